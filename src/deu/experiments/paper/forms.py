"""Sample activation functions with their derivatives in t, a, b and c."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ... import functional
from ..._explain import subspaces
from ...modules import DEU
from .. import drawing
from ..cells import Cell, Result
from ..experiment import Experiment, Options, Outcome, Picture, Place, Section, Table, Text
from .fitting import rounded

NAME = "forms"
LOW, HIGH = -3.0, 5.0
AUTHORS: dict[str, Any] = {"solution": "paper", "max_exponent": 14.0, "bound": 1000.0}
FAST = ("sigmoid", "ab")  # their neighbour swings too fast, and too far before 0, to be drawn

# One of each subspace; the first two are the paper's first two.
UNITS: dict[str, tuple[float, float, float, float, float]] = {
    "ReLU": (0.0, 1.0, 0.0, 0.0, 0.0),
    "ReQU": (1.0, 0.0, 0.0, 0.0, 0.0),
    "sigmoid": (0.0, 0.0, 1.0, 0.0, 0.0),
    "relaxation": (0.0, 1.0, 0.7, 0.0, 0.0),
    "drag": (1.0, 1.0, 0.0, 0.0, 0.0),
    "pure oscillation": (0.25, 0.0, 1.0, 0.3, 0.3),
    "damped oscillation": (0.2, 0.25, 1.0, 0.15, 0.1),
    "double root": (0.5, 1.0, 0.5, 0.0, 0.2),
    "two real roots": (0.4, 1.5, 0.6, 0.02, 0.1),
}


def inputs() -> Tensor:
    """Where forms are drawn: evenly, and closely around 0, where the smoothed step is."""
    wide = torch.linspace(LOW, HIGH, 81, dtype=torch.float64)
    return torch.cat([wide, torch.linspace(-0.09, 0.09, 37, dtype=torch.float64)]).unique()


def derivatives(t: Tensor, units: Sequence[Sequence[float]]) -> dict[str, Tensor]:
    """y of units by the paper's solution, and its derivatives in t, a, b and c, at each t.

    A coefficient that counts as zero has the derivative that outward gravitation gives it: that
    of the neighbour whose value and slope agree with the unit's at the mean of t. The limits are
    wide, as the paper's authors have them.

    Args:
        t: (n,)
        units: m of them, five coefficients each.

    Returns:
        ``y``, ``t``, ``a``, ``b`` and ``c``, each (n, m).

    Example:
        >>> found = derivatives(torch.tensor([1.0, 2.0]), [(0, 1, 0, 0, 0)])
        >>> [found[key].flatten().tolist() for key in "ytb"]
        [[1.0, 2.0], [1.0, 1.0], [-1.0, -2.0]]
    """
    grid = t[:, None].repeat(1, len(units)).requires_grad_()
    a, b, c, c1, c2 = torch.tensor(units, dtype=t.dtype).T.contiguous()
    given = (a.requires_grad_(), b.requires_grad_(), c.requires_grad_())
    y = functional.deu(grid, *given, c1, c2, max_grad_norm=None, training=True, **AUTHORS)
    slopes = torch.autograd.grad(y.sum(), grid, retain_graph=True)[0]
    # A row of y depends on all of a, so a row at a time; its units are apart.
    rows = [torch.autograd.grad(row.sum(), given, retain_graph=True) for row in y]
    abc = (torch.stack(own) for own in zip(*rows, strict=True))
    return {"y": y.detach(), "t": slopes, **dict(zip("abc", abc, strict=True))}


def cells(options: Options) -> list[Cell]:
    """One, of all the forms; there is nothing to train."""
    return [Cell(NAME, {"solution": "paper", "units": len(UNITS)}, (0,), options.quick)]


def run(cell: Cell, place: Place) -> Outcome:
    """Each unit and its derivatives as lines, in float64, on the CPU wherever that is."""
    t = inputs()
    found = derivatives(t, list(UNITS.values()))
    curves: dict[str, Any] = {"t": rounded(t.tolist(), 4)}
    for i, (name, unit) in enumerate(UNITS.items()):
        lines = {key: rounded(found[key][:, i].tolist(), 4) for key in "ytabc"}
        curves[name] = {"unit": list(unit), **lines}
    return Outcome({}, curves=curves)


def named(unit: Sequence[float]) -> str:
    """The subspace that a unit is in."""
    layer = DEU(1, solution="paper", dtype=torch.float64)
    with torch.no_grad():
        for parameter, value in zip(layer.coefficients(), unit, strict=True):
            parameter.fill_(value)
    return subspaces(layer)[0]


def report(results: list[Result]) -> list[Section]:
    """The table of the units and a panel for each."""
    result = results[0]
    units = {name: own["unit"] for name, own in result.curves.items() if name != "t"}
    rows = [[name, named(unit), *(f"{p:g}" for p in unit)] for name, unit in units.items()]
    return [
        Text(
            "As in the paper's figure: the activation, its derivative in t, and its derivatives in "
            "a, b and c. The bump in the derivatives at 0 is the smoothed Dirac delta. A "
            "coefficient that counts as zero has the derivative that outward gravitation gives "
            "it; the sigmoid's in a and b swing too fast to be drawn. One unit of each subspace; "
            "the paper draws six."
        ),
        Table("The units", ["", "subspace", "a", "b", "c", "c1", "c2"], rows),
        Picture("derivatives", "Activations and their derivatives", _draw(result)),
    ]


def _draw(result: Result) -> Callable[[Path], None]:
    def draw(path: Path) -> None:
        units = [name for name in result.curves if name != "t"]
        figure = drawing.figure(8, 2.3 * -(-len(units) // 3) + 0.5)
        axes = drawing.axes(figure, -(-len(units) // 3), 3, sharex=True).ravel()
        t = result.curves["t"]
        for axis in axes[len(units) :]:
            axis.set_axis_off()
        for axis, name in zip(axes, units, strict=False):
            own = result.curves[name]
            for key, colour in zip("abc", (drawing.GREEN, drawing.PINK, drawing.SKY), strict=True):
                if not (name == FAST[0] and key in FAST[1]):
                    axis.plot(t, own[key], "--", color=colour, label=f"∂y/∂{key}")
            axis.plot(t, own["t"], color=drawing.ORANGE, linewidth=1.4, label="∂y/∂t")
            axis.plot(t, own["y"], color=drawing.BLUE, linewidth=2.4, label="y")
            axis.set_ylim(-2.2, 3.2)
            axis.set_xlim(LOW, HIGH)
            axis.set_title(name, fontsize=10)
        handles, labels = axes[0].get_legend_handles_labels()
        figure.legend(
            handles[::-1], labels[::-1], loc="outside upper center", ncols=5, frameon=False
        )
        drawing.save(figure, path)

    return draw


EXPERIMENT = Experiment(
    NAME,
    "Sample activation functions with their derivatives in t, a, b and c",
    "seconds",
    cells,
    run,
    report,
)
