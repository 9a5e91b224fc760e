# make install   a virtual environment in .venv with everything pinned in constraints.txt
# make demo      one unit learns a sine, two separate circles; pictures in out/demo
# make test      everything that has to hold: style, types, generated code, tests
# make docs      the pages as a site, in out/site; a link that leads nowhere is an error
# make bench     layers and networks beside other activations: table, CSV and chart in out/bench
# make generate  the compiled form of the table of subspaces, after a change to it

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: install demo test docs bench generate clean

install: $(STAMP)

$(STAMP): constraints.txt pyproject.toml setup.py $(wildcard src/deu/csrc/*)
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade-strategy only-if-needed -c constraints.txt torch
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[dev]'
	touch $(STAMP)

demo: install
	$(BIN)/python -m deu.demo --out out/demo

test: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python tools/generate.py --check
	$(BIN)/python -m pytest -n 2 --dist loadgroup

docs: install
	$(BIN)/python tools/pages.py out/pages
	$(BIN)/sphinx-build -q -W --keep-going -c docs out/pages out/site
	cp out/site/README.html out/site/index.html
	@echo out/site/index.html

bench: install
	$(BIN)/python -m deu bench --out out/bench

generate: install
	$(BIN)/python tools/generate.py

clean:
	rm -rf $(VENV) build dist out src/*.egg-info src/deu/_kernels.*
