"""How Sphinx makes the project's pages, which tools/pages.py lays out, into a site."""

from __future__ import annotations

from sphinx.application import Sphinx

import deu

project = "deu"
author = copyright = "The deu developers"
release = deu.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx-mathjax-offline",
    "sphinx_copybutton",
]
root_doc = "README"
html_theme = "furo"
html_title = "deu"
copybutton_exclude = ".linenos, .gp, .go"
myst_heading_anchors = 3
autodoc_member_order = "bysource"
autodoc_typehints = "none"  # docstrings say what arguments are
suppress_warnings = ["toc.not_included"]  # tables of measurements, which pages link to

# The README is the first page, and on GitHub too: the site's contents are added to it here.
_CONTENTS = """
```{toctree}
:hidden:
docs/training
docs/mathematics
docs/speed
docs/api
results/experiments/report
CONTRIBUTING
CHANGELOG
```
"""


def _with_contents(app: Sphinx, name: str, source: list[str]) -> None:
    if name == root_doc:
        source[0] += _CONTENTS


def setup(app: Sphinx) -> None:
    app.connect("source-read", _with_contents)
