"""What an experiment is: cells to run, how one runs, and what a report says of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .cells import Cell, Result
from .training import Metrics


@dataclass(frozen=True)
class Options:
    """What the command line was asked for."""

    quick: bool = False
    seeds: int | None = None  # None: the experiment's own number
    scope: str = "paper"  # or "study": every learning rate and every variant of the unit


@dataclass(frozen=True)
class Place:
    """Where a cell runs.  Nothing here may decide its result beyond rounding."""

    device: str = "cpu"
    data: Path | None = None
    checkpoint: Path | None = None
    progress: Callable[[str], None] = lambda text: None
    captured: bool = False


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
