"""The demo and the README's example: they run, say what they should, and fail in one line."""

from __future__ import annotations

import importlib
import math
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import deu

pytest.importorskip("matplotlib")
pytest.importorskip("tqdm")
from deu import demo

ROOT = Path(__file__).parent.parent


def test_quick_run_writes_and_prints_everything(tmp_path, capsys):
    threads = torch.get_num_threads()
    assert demo.main(["--quick", "--seed", "3", "--out", str(tmp_path / "new" / "folder")]) == 0
    assert torch.get_num_threads() == threads
    out, err = capsys.readouterr()
    assert "QUICK RUN" in out
    assert "seed 3" in out
    assert "y(t) = -0.01·u(t)·(1 - e^(-100t) - 100·t)" in out  # ReLU, in the continuous solution
    assert out.count("y(t) = ") == 4
    assert err == ""  # progress bars only where there is a terminal
    for name in ("sine.png", "circles.png", "activations.png"):
        picture = tmp_path / "new" / "folder" / name
        assert str(picture) in out
        assert picture.read_bytes().startswith(b"\x89PNG")


@pytest.fixture
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.usefixtures("one_thread")
def test_one_unit_learns_the_sine():
    result = demo.learn_sine()
    assert result.error_inside < 0.03
    assert result.error_beyond < 0.06
    start, t = result.way[0][1], torch.linspace(-10, 10, 201, dtype=torch.float64)
    assert (start(t) - t.relu()).abs().max() <= 0.01 + 1e-12
    assert deu.subspaces(start) == ["010"]
    assert deu.subspaces(result.unit) == ["oscillating"]
    assert math.isclose((result.unit.c / result.unit.a).item(), 1, rel_tol=0.01)


@pytest.mark.usefixtures("one_thread")
def test_two_units_separate_the_rings():
    result = demo.learn_rings()
    assert result.accuracy > 0.97
    assert result.good_starts > result.starts / 2
    assert result.units.num_features == 2


def test_a_file_in_the_way_is_one_line(tmp_path, capsys):
    taken = tmp_path / "taken"
    taken.write_text("")
    assert demo.main(["--quick", "--out", str(taken)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err == f"deu.demo: cannot write to --out {taken}: it is not a folder\n"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_output_that_cannot_be_written_is_one_line(tmp_path, unbuffered):
    environment = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    command = [sys.executable, "-m", "deu.demo", "--quick", "--out", str(tmp_path)]
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            command, stdout=full, stderr=subprocess.PIPE, text=True, env=environment
        )
    assert done.returncode == 2
    assert done.stderr == "deu.demo: standard output: No space left on device\n"


def test_interrupted_is_one_line(tmp_path, capsys, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(demo, "run", interrupted)
    assert demo.main(["--out", str(tmp_path)]) == 130
    assert capsys.readouterr().err == "deu.demo: stopped\n"


def test_missing_packages_are_named_with_the_extra(tmp_path, capsys, monkeypatch):
    real = importlib.import_module

    def without(name: str, package: str | None = None):
        if name == "tqdm":
            raise ImportError(name)
        return real(name, package)

    monkeypatch.setattr(importlib, "import_module", without)
    assert demo.main(["--out", str(tmp_path)]) == 1
    assert capsys.readouterr().err == "deu.demo needs tqdm: pip install deu[demo]\n"


@pytest.mark.skipif(sys.platform == "win32", reason="needs a POSIX pipe")
def test_a_closed_pipe_leaves_no_traceback(tmp_path):
    command = [sys.executable, "-m", "deu.demo", "--quick", "--out", str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""


@pytest.mark.usefixtures("one_thread")
def test_the_readmes_example_runs(capsys):
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text("utf-8"), re.DOTALL)
    assert len(blocks) == 1
    exec(compile(blocks[0], "README.md", "exec"), {})
    assert "y(t) = " in capsys.readouterr().out


def test_links_and_pictures_of_the_documents_are_there():
    for page in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *ROOT.glob("docs/*.md")]:
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text("utf-8")):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_public_functions_have_examples():
    for function in (deu.formula, deu.subspaces, demo.learn_sine, demo.learn_rings):
        assert function.__doc__ is not None
        assert ">>> " in function.__doc__
