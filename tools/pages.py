"""Lay the project's pages out for Sphinx, as they lie here, so that every link between them holds.

python tools/pages.py out/pages
"""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
_PAGES = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "docs/*", "results/*/*.md")
_LINK = re.compile(r"\]\((?!https?:|#)([^)#]+)")


def lay_out(out: Path) -> None:
    """Copy the pages, and what they link to, into an empty folder."""
    shutil.rmtree(out, ignore_errors=True)
    found = {page for pattern in _PAGES for page in ROOT.glob(pattern) if page.is_file()}
    for page in [page for page in found if page.suffix == ".md"]:
        links = _LINK.findall(page.read_text(encoding="utf-8"))
        found |= {target for link in links if (target := (page.parent / link).resolve()).is_file()}
    for page in found:
        to = out / page.relative_to(ROOT)
        to.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(page, to)


if __name__ == "__main__":
    lay_out(Path(sys.argv[1]))
