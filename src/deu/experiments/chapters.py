"""From results to the chapters of a report: one for each experiment, quick runs apart."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

from . import registry
from .cells import Result
from .experiment import Experiment, Options, Picture, Table, Text
from .provenance import how

T = TypeVar("T")

QUICK = "QUICK RUN: small sizes, not results"
_PNG = b"\x89PNG\r\n\x1a\n"
TITLE = "deu: the paper's experiments, reproduced"
READING = (
    "Numbers over several runs are the mean ± the sample standard deviation (how many runs). "
    "Beside the paper's number, *equal* is a difference of at most that spread, or of at most half "
    "of the last digit the paper prints; *unstable*, that a run was not finite."
)


class ReportError(RuntimeError):
    """A report that could not be made."""


@dataclass(frozen=True)
class Drawn:
    """A picture that was drawn."""

    title: str
    path: Path


Part = Text | Table | Drawn


@dataclass(frozen=True)
class Chapter:
    """All that a report says of one experiment's full runs, or of its quick ones."""

    name: str
    title: str
    quick: bool
    parts: list[Part]
    made: list[tuple[str, str]]

    @property
    def heading(self) -> str:
        return f"{self.title} ({self.name}{', QUICK RUN' * self.quick})"

    @property
    def anchor(self) -> str:
        return slug(f"{self.name}{'-quick' * self.quick}")


def slug(text: str) -> str:
    """Text as a name of files and of anchors.

    Example:
        >>> slug("Fashion MNIST: error/step")
        'Fashion-MNIST-error-step'
    """
    return re.sub(r"[^A-Za-z0-9_-]+", "-", text).strip("-") or "x"


def chapters(results: Sequence[Result], names: Iterable[str], folder: Path) -> list[Chapter]:
    """A chapter for each experiment that has results, full runs first; draws their pictures.

    Args:
        results: of any experiments; only those of ``names`` are told.
        names: of the registry's experiments, in the order of the report.
        folder: for the pictures.
    """
    known = {name: _told(f"the experiment {name}", partial(registry.load, name)) for name in names}
    found = []
    for quick in (False, True):
        for name, experiment in known.items():
            own = [r for r in results if (r.cell.experiment, r.cell.quick) == (name, quick)]
            if own:
                found.append(_chapter(experiment, own, folder))
    return found


def _chapter(experiment: Experiment, results: list[Result], folder: Path) -> Chapter:
    quick = results[0].cell.quick
    what = f"{'the quick ' * quick}{experiment.name}"
    sections = _told(f"the report of {what}", partial(experiment.report, results))
    parts: list[Part] = []
    for section in sections:
        if isinstance(section, Picture):
            path = _free(folder, slug(f"{'quick-' * quick}{experiment.name}-{section.name}"))
            _told(f"the picture {section.name!r} of {what}", partial(section.draw, path))
            if not path.is_file() or path.read_bytes()[:8] != _PNG:
                raise ReportError(
                    f"the picture {section.name!r} of {what} is not there: its draw has to write a "
                    "PNG to the path that it is given"
                )
            parts.append(Drawn(f"{section.title}{f' ({QUICK})' * quick}", path))
        elif isinstance(section, Table):
            _check(section, what)
            parts.append(
                Table(f"{section.title}{' (quick run)' * quick}", section.header, section.rows)
            )
        else:
            parts.append(section)
    made = [*how(results), *_not_run(experiment, results)]
    return Chapter(experiment.name, experiment.title, quick, parts, made)


def _not_run(experiment: Experiment, results: list[Result]) -> list[tuple[str, str]]:
    """How many cells of a full run there are no results of, where the data decides none of them."""
    if results[0].cell.quick:
        return []
    study = any(" study " in str(result.made.get("command")) for result in results)
    command = f"deu {'study' if study else 'reproduce'} {experiment.name}"
    all_cells = experiment.cells(Options(scope="study" if study else "paper"))
    left = {cell.name for cell in all_cells} - {result.cell.name for result in results}
    if not left or len(left) + len(results) != len(all_cells):
        return []
    return [("not run", f"{len(left)} of the {len(all_cells)} cells of {command}")]


def _told(what: str, make: Callable[[], T]) -> T:
    """What a call gives; an error in it says of what it is."""
    try:
        return make()
    except OSError:
        raise  # a full disk and the like, which has nothing to do with what was drawn
    except Exception as error:
        raise ReportError(f"{what} failed: {type(error).__name__}: {error}") from error


def _free(folder: Path, name: str) -> Path:
    path, number = folder / f"{name}.png", 1
    while path.exists():
        number += 1
        path = folder / f"{name}-{number}.png"
    return path


def _check(table: Table, what: str) -> None:
    for row in table.rows:
        if len(row) != len(table.header):
            raise ReportError(
                f"the table {table.title!r} of {what} has {len(table.header)} columns and a row of "
                f"{len(row)}: {row}"
            )
