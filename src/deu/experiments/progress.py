"""What a command shows while cells run: bars on a terminal, lines elsewhere."""

from __future__ import annotations

import importlib
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from ..cli import OUTPUT, named
from .cells import Result
from .provenance import duration
from .summaries import finite

HEARTBEAT = 60.0  # seconds between lines of a cell that runs where there is no terminal
_FEW = 3  # metrics that a line has room for


class Display:
    """How far cells are: a bar of cells, below it the cell that runs, and a line for each done.

    Args:
        quiet: show nothing.
    """

    def __init__(self, quiet: bool = False) -> None:
        self.quiet = quiet
        self.bars: list[Any] = []
        self.total = self.done = 0
        self.last = time.monotonic()

    def begin(self, total: int, there: int) -> None:
        """So many cells there are, and so many of them have a result."""
        self.total, self.done = total, there
        if there:
            self.say(f"{there} of {total} cells have a result here and are not run again")
        if self.quiet or not sys.stderr.isatty():
            return
        tqdm = importlib.import_module("tqdm").tqdm
        self.bars = [
            tqdm(total=total, initial=there, unit="cell", dynamic_ncols=True, leave=False),
            tqdm(total=0, bar_format="{desc}", position=1, dynamic_ncols=True, leave=False),
        ]

    def hook(self, label: str) -> Callable[[str], None]:
        """What a cell tells its progress to."""
        return partial(self._tell, label)

    def _tell(self, label: str, text: str) -> None:
        now = time.monotonic()
        if self.bars:
            self.bars[1].set_description_str(f"{text} ({label})")  # cut at the terminal's edge
            self.bars[0].refresh()
        elif now - self.last >= HEARTBEAT:
            self.last = now
            self.say(f"{label}: {text}")

    def finished(self, label: str, result: Result) -> None:
        """A cell has its result."""
        self._step(f"{label}: {_metrics(result)}{duration(result.seconds)}")

    def failed(self, label: str, why: str, trace: str) -> None:
        """A cell has none."""
        if trace and not self.quiet:
            self.say(trace, sys.stderr)
        self._step(f"{label}: failed: {why}")

    def _step(self, text: str) -> None:
        self.done += 1
        self.last = time.monotonic()
        self.say(f"[{self.done}/{self.total}] {text}")
        if self.bars:
            self.bars[0].update()

    def say(self, text: str, file: Any = None) -> None:
        """A line that stays."""
        if self.quiet:
            return
        with named(OUTPUT):
            if self.bars:
                type(self.bars[0]).write(text, file=file or sys.stdout)
            else:
                print(text, file=file or sys.stdout, flush=True)

    def end(self) -> None:
        """Take the bars away."""
        for bar in reversed(self.bars):
            bar.close()
        self.bars = []


def _metrics(result: Result) -> str:
    """The first metrics, as means over the seeds that are finite.

    Example:
        >>> from deu.experiments.cells import Cell
        >>> _metrics(Result(Cell("circles", {}), {"accuracy": [0.5, 1.0]}))
        'accuracy 0.75, '
    """
    parts = []
    for name, values in list(result.metrics.items())[:_FEW]:
        found = finite(values)
        parts.append(f"{name} {sum(found) / len(found):.4g}" if found else f"{name} not finite")
    if not result.finite:
        parts.append("NOT FINITE somewhere")
    return "".join(f"{part}, " for part in parts)
