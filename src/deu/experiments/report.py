"""``deu report``: a folder of results as Markdown, CSV and one HTML page, with pictures."""

from __future__ import annotations

import csv
import io
import math
import os
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..bench.table import markdown_table
from ..cli import named
from . import registry
from .cells import Result
from .chapters import QUICK, READING, TITLE, Chapter, Drawn, Part, ReportError, chapters
from .experiment import Text
from .page import page
from .provenance import hardware, plain

_FIRST = ("experiment", "quick")
_LAST = ("seed", "metric", "value", "parameters", "seconds", "date", "hardware")


def write(results: Sequence[Result], folder: Path) -> list[Path]:
    """Write ``report.md``, ``report.csv``, ``report.html`` and ``pictures/*.png`` into a folder.

    Everything is made before anything is put in its place, so a report that cannot be made leaves
    the one that was there.

    Args:
        results: of any experiments, full and quick; the two are shown apart.
        folder: to write to; made where it is not there.

    Returns:
        The paths of what was written, the page first.
    """
    if not results:
        raise ReportError("there are no results to report; deu reproduce NAME makes some")
    counts = Counter(result.cell.experiment for result in results)
    known = [name for name in registry.SPECS if name in counts]  # in the order of deu list
    unknown = {name: count for name, count in counts.items() if name not in known}
    folder.mkdir(parents=True, exist_ok=True)
    with named(folder), tempfile.TemporaryDirectory(dir=folder, prefix=".report-") as name:
        draft = Path(name)
        pictures = draft / "pictures"
        pictures.mkdir()
        found = chapters(results, known, pictures)
        texts = {
            "report.html": page(found, unknown),
            "report.md": markdown(found, unknown),
            "report.csv": table_of(results),
        }
        for file, text in texts.items():
            (draft / file).write_text(text, encoding="utf-8", newline="")
        files = [*texts, *(f"pictures/{path.name}" for path in sorted(pictures.iterdir()))]
        if len(files) > len(texts):
            (folder / "pictures").mkdir(exist_ok=True)
        for file in reversed(files):  # pictures first, and the page, which needs none, last
            os.replace(draft / file, folder / file)
    return [folder / file for file in files]


def markdown(found: Sequence[Chapter], unknown: Mapping[str, int]) -> str:
    """The report as Markdown, its pictures beside it."""
    blocks = [f"# {TITLE}", READING]
    for chapter in found:
        blocks.append(f"## {chapter.heading}")
        if chapter.quick:
            blocks.append(f"> **{QUICK}**")
        blocks += [_block(part) for part in chapter.parts]
        made = "\n".join(f"- {name}: {_safe(said)}" for name, said in chapter.made)
        blocks += ["How this was made:", made]
    if unknown:
        blocks += [
            "## Unknown experiments",
            "Results of experiments that this version does not know, and how many. They are in "
            "`report.csv` and nowhere else.",
            "\n".join(f"- {_safe(name)}: {count}" for name, count in unknown.items()),
        ]
    return "\n\n".join(blocks) + "\n"


def _block(part: Part) -> str:
    if isinstance(part, Text):
        return part.text.strip()
    if isinstance(part, Drawn):
        alt = _safe(part.title).replace("[", "(").replace("]", ")")
        return f"![{alt}](pictures/{part.path.name})\n\n*{_safe(part.title)}*"
    lines = [[_safe(cell) for cell in line] for line in (part.header, *part.rows)]
    return f"**{_safe(part.title)}**\n\n{markdown_table(lines)}"


def _safe(text: str) -> str:
    """Text that a Markdown table or list cannot be broken by."""
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")


def table_of(results: Sequence[Result]) -> str:
    """Every number of every result as CSV, a line for each metric of each seed.

    A setting is a column of its own name, or ``setting NAME`` where another column has that. A
    run that was not finite has the value ``nan``; a result without metrics has one line.
    """
    keys = list(dict.fromkeys(key for result in results for key in result.cell.settings))
    taken = {*_FIRST, *_LAST}
    names = [f"setting {key}" if key in taken else key for key in keys]
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow([*_FIRST, *names, *_LAST])
    for result in results:
        cell = result.cell
        head = [cell.experiment, cell.quick, *(plain(cell.settings.get(key)) for key in keys)]
        tail = [result.parameters, f"{result.seconds:.3f}", result.made.get("date", "")]
        lines: list[tuple[Any, ...]] = [
            (seed, metric, math.nan if value is None else value)
            for metric, values in result.metrics.items()
            for seed, value in _by_seed(cell.seeds, values)
        ]
        for line in lines or [("", "", "")]:
            writer.writerow([*head, *line, *tail, hardware(result)])
    return file.getvalue()


def _by_seed(
    seeds: Sequence[int], values: Sequence[float | None]
) -> list[tuple[int | str, float | None]]:
    """Values with their seeds, or with none where they are not one a seed."""
    if len(seeds) == len(values):
        return list(zip(seeds, values, strict=True))
    return [("", value) for value in values]
