"""What an experiment is: cells to run, how one runs, and what a report says of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .cells import Cell, Result
from .training import Metrics, Run


@dataclass(frozen=True)
class Options:
    """What the command line was asked for: what decides which cells there are."""

    quick: bool = False
    seeds: int | None = None  # None: the experiment's own number
    scope: str = "paper"  # or "study": every learning rate and every variant of the unit
    data: Path | None = None  # where data lies, for a quick run that takes a stand-in without it
    precision: str | None = None  # None: the experiment's own; else a setting of its cells


def silent(text: str) -> None:
    """Progress that nobody sees."""


@dataclass(frozen=True)
class Place:
    """Where a cell runs.  Nothing here may decide its result beyond rounding.

    ``progress`` shows a line of text in place of the one before; :meth:`watch` calls it.
    """

    device: str = "cpu"
    data: Path | None = None
    checkpoint: Path | None = None
    progress: Callable[[str], None] = silent
    captured: bool = False
    compiled: bool = False

    def watch(self, run: Run) -> Iterator[dict[str, Any]]:
        """Train a run to its end: its records by epoch, each told to ``progress`` as well."""
        start, first = time.monotonic(), run.epoch
        for record in run.epochs():
            total = run.recipe.epochs
            each = (time.monotonic() - start) / (run.epoch - first)
            self.progress(_line(record, total, each * (total - run.epoch)))
            yield record


def _line(record: dict[str, Any], total: int, seconds: float) -> str:
    """An epoch's loss and first metric, and the time that is left.

    Example:
        >>> _line({"epoch": 3, "loss": 0.25, "accuracy": [0.5, 1.0], "test_loss": [1.0]}, 10, 75)
        'epoch 3/10, loss 0.25, accuracy 0.75, 1:15 left'
    """
    parts = [f"epoch {record['epoch']}/{total}", f"loss {record['loss']:.4g}"]
    for name, values in record.items():
        if isinstance(values, list) and values:
            parts.append(f"{name} {sum(values) / len(values):.4g}")
            break
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    left = f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
    return ", ".join([*parts, f"{left} left"])


@dataclass(frozen=True)
class Outcome:
    """What a run gives: the parts of a :class:`~deu.experiments.cells.Result` it knows."""

    metrics: Metrics
    history: list[dict[str, Any]] = field(default_factory=list)
    parameters: int = 0
    curves: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Text:
    """A paragraph of a report."""

    text: str


@dataclass(frozen=True)
class Table:
    """A table of a report; every cell is text."""

    title: str
    header: list[str]
    rows: list[list[str]]


@dataclass(frozen=True)
class Picture:
    """A picture of a report.  ``draw`` writes it to the path that it is given."""

    name: str
    title: str
    draw: Callable[[Path], None]


Section = Text | Table | Picture


@dataclass(frozen=True)
class Experiment:
    """One name of ``deu reproduce``."""

    name: str
    title: str
    cost: str
    cells: Callable[[Options], list[Cell]]
    run: Callable[[Cell, Place], Outcome]
    report: Callable[[list[Result]], list[Section]]
