"""What one measurement says, and the CSV that keeps it."""

from __future__ import annotations

import csv
import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

MEASURED, WRONG, MISSING, FAILED, LEFT_OUT = "measured", "wrong", "missing", "failed", "left out"


@dataclass
class Row:
    """One provider doing one kind of work in one case.

    Times are seconds a call; ``_low`` and ``_high`` are the quartiles around a median. ``ratio``
    is taken to ``base`` within each round, ``over_prelu`` to PReLU.
    """

    kind: str  # layer or model
    case: str
    shape: str
    layout: str
    dtype: str
    provider: str
    work: str = ""
    status: str = MEASURED
    rounds: int = 0
    seconds: float = math.nan
    seconds_low: float = math.nan
    seconds_high: float = math.nan
    wall_seconds: float = math.nan  # of a call, launches included, where that was measured apart
    base: str = ""
    ratio: float = math.nan
    ratio_low: float = math.nan
    ratio_high: float = math.nan
    limit: float = math.nan  # what the ratio is required to stay within, where something is
    over_prelu: float = math.nan
    over_prelu_low: float = math.nan
    over_prelu_high: float = math.nan
    memory_bytes: float = math.nan
    memory_ratio: float = math.nan  # to GELU in a layer, to the base in a model
    launches: float = math.nan  # kernels in one step
    error: float = math.nan  # against float64
    error_in: str = ""
    error_limit: float = math.nan
    note: str = ""
    quick: bool = False
    device: str = ""
    versions: str = ""
    date: str = ""
    command: str = ""


COLUMNS = [field.name for field in dataclasses.fields(Row)]
_NUMBERS = {f.name for f in dataclasses.fields(Row) if isinstance(f.default, float)}


class Spread(NamedTuple):
    """A median and its quartiles."""

    low: float
    middle: float
    high: float


def spread(values: Sequence[float]) -> Spread:
    """The quartiles of some numbers, of one too.

    Example:
        >>> spread([3.0, 1.0, 2.0])
        Spread(low=1.5, middle=2.0, high=2.5)
    """
    ordered = sorted(values)

    def at(share: float) -> float:
        place = share * (len(ordered) - 1)
        below = math.floor(place)
        above = min(below + 1, len(ordered) - 1)
        return ordered[below] + (place - below) * (ordered[above] - ordered[below])

    return Spread(at(0.25), at(0.5), at(0.75))


def first_line(error: Exception) -> str:
    """What an exception says, short enough for a table."""
    lines = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {lines[0]}"[:200]


class Writer:
    """Rows into a CSV file, each as it comes, so that a run that is stopped leaves what it had."""

    def __init__(self, path: Path) -> None:
        self._file = open(path, "w", newline="", encoding="utf-8")  # noqa: SIM115
        self._writer = csv.writer(self._file)
        self._writer.writerow(COLUMNS)
        self._file.flush()

    def write(self, rows: Sequence[Row]) -> None:
        for row in rows:
            self._writer.writerow([_text(getattr(row, name)) for name in COLUMNS])
        self._file.flush()

    def __enter__(self) -> Writer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._file.close()


def _text(value: Any) -> str:
    if isinstance(value, float):
        return "" if math.isnan(value) else f"{value:.6g}"
    return str(value)


def read(path: Path) -> list[Row]:
    """The rows of a file that :class:`Writer` wrote."""
    with open(path, newline="", encoding="utf-8") as file:
        reader = csv.DictReader(file)
        if reader.fieldnames != COLUMNS:
            raise ValueError(f"{path} is not a CSV file that deu bench wrote")
        return [_row(line) for line in reader]


def _row(line: dict[str, str]) -> Row:
    values: dict[str, Any] = dict(line)
    for name in _NUMBERS:
        values[name] = float(line[name]) if line[name] else math.nan
    values["rounds"] = int(line["rounds"])
    values["quick"] = line["quick"] == "True"
    return Row(**values)
