"""The way of a unit that starts as ReLU and becomes a cosine."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ...modules import DEU
from ...reference import deu
from .. import drawing
from ..cells import Cell, Result
from ..experiment import Experiment, Options, Outcome, Picture, Place, Section, Table, Text
from ..problems import Regression
from ..summaries import share_below
from ..training import Metrics
from .fitting import fit, outcome, ranked, seeds

NAME = "manifold"
END = 4 * math.pi
EPOCHS, STEPS, BATCH, SEEDS, RATE = 60, 50, 32, 16, 1.0
LEARNT = 0.01
COEFFICIENTS = ("a", "b", "c", "c1", "c2")
SHOWN = (0.0, 0.1, 0.2, 0.35, 1.0)  # of the training, in the picture
COLOURS = (drawing.BLUE, drawing.SKY, drawing.GREEN, drawing.ORANGE, drawing.RED)


class Cosine(Regression):
    """A cosine to learn by units alone; tells their coefficients along the way."""

    def measure(self, model: nn.Module) -> Metrics:
        assert isinstance(model, DEU)
        values = zip(COEFFICIENTS, model.coefficients(), strict=True)
        return {**super().measure(model), **{name: value.tolist() for name, value in values}}


def cells(options: Options) -> list[Cell]:
    """One, of all seeds."""
    settings = {
        "solution": "continuous",
        "lr": RATE,
        "epochs": 20 if options.quick else EPOCHS,
        "batch": BATCH,
    }
    return [Cell(NAME, settings, seeds(options, SEEDS, quick=4), options.quick)]


def run(cell: Cell, place: Place) -> Outcome:
    """Train units that start as ReLU, a unit a seed, without weights around them."""
    given, number = cell.settings, len(cell.seeds)
    units = DEU(number, dim=0, init="relu", solution=given["solution"]).to(place.device)
    start = [value[0].item() for value in units.coefficients()]
    history = fit(
        cell,
        place,
        units,
        Cosine(torch.cos, 0.0, END, seeds=number, steps_an_epoch=STEPS),
        epochs=given["epochs"],
        batch=given["batch"],
        lr=given["lr"],
        unit_rate=1.0,
    )
    best = ranked(history[-1]["mse"])[0]
    way = [start] + [[record[name][best] for name in COEFFICIENTS] for record in history]
    return outcome(history, units, number, {"way": way})


def report(results: list[Result]) -> list[Section]:
    """The way of the seed of least error, as functions and through the space of a, b and c."""
    result = results[0]
    way = result.curves["way"]
    moments = _moments(len(way))
    rows = [
        [str(i * STEPS), *(f"{value:.3g}" for value in way[i]), f"{_error(way[i], result):.2g}"]
        for i in moments
    ]
    errors = result["mse"]
    learnt = round(share_below(errors, LEARNT) * len(errors))
    return [
        Text(
            "The paper draws the solutions as a manifold, and the path on it from ReLU to a "
            "cosine. Here is such a path: one unit, which starts as ReLU (a = 0, b = 1, c = 0), "
            f"learns cos t from 0 to 4π. {learnt} of {len(errors)} seeds come below a mean squared "
            f"error of {LEARNT:g}; the one of least error is shown."
        ),
        Table("The unit on its way", ["step", *COEFFICIENTS, "MSE"], rows),
        Picture("path", "From ReLU to a cosine: the activation, and (a, b, c)", _draw(result)),
    ]


def _moments(points: int) -> list[int]:
    return sorted({round(share * (points - 1)) for share in SHOWN})


def activation(coefficients: list[float], t: Tensor, solution: str) -> Tensor:
    """The unit of five coefficients.

    Example:
        >>> relu = activation([0.0, 1.0, 0.0, 0.0, 0.0], torch.tensor([-1.0, 2.0]), "paper")
        >>> relu.tolist()
        [0.0, 2.0]
    """
    return deu(t, *torch.tensor(coefficients, dtype=t.dtype)[:, None], solution=solution)


def _error(coefficients: list[float], result: Result) -> float:
    t = torch.linspace(0, END, 2001, dtype=torch.float64)
    y = activation(coefficients, t, result.cell.settings["solution"])
    return (y - t.cos()).square().mean().item()


def _draw(result: Result) -> Callable[[Path], None]:
    def draw(path: Path) -> None:
        way, solution = result.curves["way"], result.cell.settings["solution"]
        moments = _moments(len(way))
        figure = drawing.figure(7.5, 8)
        top, bottom = figure.subfigures(2, 1, height_ratios=(1, 1.5))
        axis = drawing.axes(top)[0, 0]
        t = torch.linspace(-math.pi, END, 801, dtype=torch.float64)
        axis.plot(t, t.cos(), color=drawing.GREY, linewidth=5, alpha=0.45, label="cos t")
        for i, colour in zip(moments, COLOURS, strict=False):
            y = activation(way[i], t, solution)
            axis.plot(t, y, color=colour, label=f"step {i * STEPS}")
        axis.set_ylim(-1.8, 2.6)
        axis.set_xlim(-math.pi, END)
        ticks = range(-1, 5)
        labels = ["−π", "0", "π", *(f"{k}π" for k in ticks[3:])]
        axis.set_xticks([k * math.pi for k in ticks], labels)
        drawing.legend(axis)
        _path(bottom, way, moments)
        drawing.save(figure, path)

    return draw


def _path(figure: Any, way: list[list[float]], moments: list[int]) -> None:
    """The way through the space of a, b and c."""
    axis = figure.add_subplot(projection="3d")
    a, b, c = (list(values) for values in zip(*(point[:3] for point in way), strict=True))
    floor = [min(0.0, *c)] * len(c)
    axis.plot(a, b, floor, color=drawing.GREY, alpha=0.6, linewidth=1)  # its shadow
    for start, end, colour in zip([0, *moments], moments, COLOURS, strict=False):
        at, last = slice(start, end + 1), slice(end, end + 1)
        axis.plot(a[at], b[at], c[at], color=colour, linewidth=2)
        axis.plot(a[last], b[last], c[last], "o", color=colour, markersize=7)
    axis.text(a[0], b[0], c[0], "  ReLU")
    axis.text(a[-1], b[-1], c[-1], "  cosine")
    axis.set_xlabel("a")
    axis.set_ylabel("b")
    axis.set_zlabel("c")
    axis.view_init(elev=24, azim=-58)
    axis.set_box_aspect((5, 4, 3), zoom=1.15)


EXPERIMENT = Experiment(
    NAME,
    "The path of a unit from ReLU to a cosine",
    "seconds",
    cells,
    run,
    report,
)
