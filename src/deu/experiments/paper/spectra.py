"""The spectra of activations that varying one of a, b and c goes through."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ... import reference
from .. import drawing
from ..cells import Cell, Result
from ..experiment import Experiment, Options, Outcome, Picture, Place, Section, Text
from .fitting import rounded
from .forms import AUTHORS

NAME = "spectra"
LOW, HIGH, POINTS = -2.0, 10.0, 121
FIXED = {"a": 1.0, "b": 0.5, "c": 1.0}  # the other two, where one varies
VALUES = {
    "a": (0.0, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0),
    "b": (-0.3, -0.15, 0.0, 0.25, 0.5, 1.0, 2.0, 4.0),
    "c": (-0.1, 0.0, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0),
}


def spectrum(which: str, t: Tensor) -> Tensor:
    """Each row a unit: one coefficient takes its values, the others are fixed, c1 = c2 = 0.

    Example:
        >>> spectrum("c", torch.tensor([-1.0, 0.0])).abs().max().item()
        0.0
    """
    values = torch.tensor(VALUES[which], dtype=t.dtype)
    a, b, c = (values if name == which else torch.full_like(values, FIXED[name]) for name in "abc")
    zero = torch.zeros_like(values)
    return reference.deu(t[:, None].expand(-1, len(values)), a, b, c, zero, zero, **AUTHORS).T


def cells(options: Options) -> list[Cell]:
    """One, of all the spectra; there is nothing to train."""
    return [Cell(NAME, {"solution": "paper", "fixed": FIXED}, (0,), options.quick)]


def run(cell: Cell, place: Place) -> Outcome:
    """Each unit as a line, in float64, on the CPU wherever that is."""
    t = torch.linspace(LOW, HIGH, POINTS, dtype=torch.float64)
    curves: dict[str, Any] = {"low": LOW, "high": HIGH}
    for which, values in VALUES.items():
        units = rounded(spectrum(which, t).tolist(), 4)
        curves[which] = {"values": list(values), "units": units}
    return Outcome({}, curves=curves)


def report(results: list[Result]) -> list[Section]:
    """A panel for each coefficient."""
    return [
        Text(
            "As in the paper's figure: what a unit turns into while one of a, b and c varies and "
            "the other two stay (at a = 1, b = 0.5, c = 1), with c1 = c2 = 0. Before 0, where the "
            "step has not come yet, such a unit is 0."
        ),
        Picture("varying", "Varying one coefficient", _draw(results[0])),
    ]


def _draw(result: Result) -> Callable[[Path], None]:
    def draw(path: Path) -> None:
        figure = drawing.figure(7.5, 8.5)
        axes = drawing.axes(figure, 3, 1, sharex=True)[:, 0]
        t = torch.linspace(result.curves["low"], result.curves["high"], POINTS)
        for axis, which in zip(axes, "abc", strict=True):
            values, units = result.curves[which]["values"], result.curves[which]["units"]
            for i, (value, unit) in enumerate(zip(values, units, strict=True)):
                axis.plot(t, unit, color=_shade(i / (len(values) - 1)), label=f"{value:g}")
            rest = ", ".join(f"{name} = {FIXED[name]:g}" for name in "abc" if name != which)
            axis.set_title(f"{which} varies; {rest}", loc="left", fontsize=10)
            highest = max(max(unit) for unit in units)
            axis.set_ylim(
                max(-2.4, min(min(unit) for unit in units) - 0.2), min(5.2, highest + 0.2)
            )
            axis.set_ylabel("y(t)")
            drawing.legend(axis)
            axis.get_legend().set_title(which)
        axes[-1].set_xlabel("t")
        drawing.save(figure, path)

    return draw


def _shade(share: float) -> tuple[float, float, float]:
    """From blue over grey to red."""
    cold, warm = (0.0, 0.30, 0.70), (0.84, 0.25, 0.0)
    r, g, b = ((1 - share) * u + share * v for u, v in zip(cold, warm, strict=True))
    return r, g + 0.35 * share * (1 - share), b


EXPERIMENT = Experiment(
    NAME,
    "The spectra of activations from varying one of a, b and c",
    "seconds",
    cells,
    run,
    report,
)
