"""How many subspaces the units of a network are in, as training goes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ..._explain import subspaces
from ...modules import DEU
from .. import drawing
from ..cells import Cell, Result
from ..experiment import Experiment, Options, Outcome, Picture, Place, Section, Table, Text
from ..models import mlp
from ..problems import Classification, Parts, Regression
from ..stacked import Stacked
from ..summaries import flat, group, mean_spread, text
from ..training import Metrics
from .fitting import fit, in_order, outcome, seeds
from .function import HIGH, LOW, challenging
from .sets import STAND_IN, image_data, image_tensors

NAME = "occupancy"
UNITS, RATE, EPOCHS, STEPS, BATCH, SEEDS = 25, 0.01, 30, 100, 32, 32
IMAGE_RATE, IMAGE_EPOCHS, IMAGE_BATCH, IMAGE_SEEDS, PARTS = 0.003, 40, 128, 3, 4
SUBSPACES = ("001", "010", "011", "100", "101", "110", "critical", "oscillating", "overdamped")
LARGE = 0.01  # of the units: a subspace that holds as many is not there by chance
PAPER = "3 to 5"
COLOURS = {
    "oscillating": drawing.RED,
    "overdamped": drawing.BLUE,
    "critical": drawing.GREEN,
    "011": drawing.ORANGE,
    "101": drawing.PINK,
    "110": drawing.SKY,
    "001": drawing.YELLOW,
    "010": drawing.BLACK,
    "100": drawing.GREY,
}


def units(features: int) -> DEU:
    """The paper's units, as the paper starts them."""
    return DEU(features, init="random", solution="paper")


def occupancy(model: nn.Module, networks: int = 1) -> Metrics:
    """How many subspaces each of some networks side by side has units in, and the share of each.

    ``large`` is how many have a hundredth of the units or more.

    Example:
        >>> occupancy(DEU(4, init="relu", solution="paper"), networks=2)["subspaces"]
        [1.0, 1.0]
    """
    layers = [subspaces(layer) for layer in model.modules() if isinstance(layer, DEU)]
    counts = [Counter[str]() for _ in range(networks)]
    for names in layers:
        width = len(names) // networks
        for i, count in enumerate(counts):
            count.update(names[i * width : (i + 1) * width])
    shares = {name: [count[name] / count.total() for count in counts] for name in SUBSPACES}
    large = [float(sum(own[i] >= LARGE for own in shares.values())) for i in range(networks)]
    return {"subspaces": [float(len(count)) for count in counts], "large": large, **shares}


class Fitted(Regression):
    """The paper's function; tells how the units are doing as well."""

    def measure(self, model: nn.Module) -> Metrics:
        return {**super().measure(model), **occupancy(model, self.seeds)}


class Classified(Parts):
    """Images; tells how the units are doing as well, some times a pass."""

    def measure(self, model: nn.Module) -> Metrics:
        return {**Classification.measure(self, model), **occupancy(model)}


def cells(options: Options) -> list[Cell]:
    """The function, all seeds in one cell, and the images, a cell a seed."""
    quick = options.quick
    function = {
        "task": "function",
        "lr": RATE,
        "epochs": 5 if quick else EPOCHS,
        "batch": BATCH,
    }
    images: dict[str, Any] = {
        "task": "images",
        "data": image_data("fashion-mnist", options),
        "lr": IMAGE_RATE,
        "epochs": 8 if quick else IMAGE_EPOCHS,
        "batch": 32 if quick else IMAGE_BATCH,
        "hidden": [64, 32] if quick else [1024, 512],
        **({"train": 2000, "test": 500} if quick else {}),
    }
    return [
        Cell(NAME, function, seeds(options, SEEDS, quick=4), quick),
        *(Cell(NAME, images, (seed,), quick) for seed in seeds(options, IMAGE_SEEDS)),
    ]


def run(cell: Cell, place: Place) -> Outcome:
    """Train a cell's networks, and count their subspaces on the way."""
    given, number = cell.settings, len(cell.seeds)
    model: nn.Module
    problem: Fitted | Classified
    if given["task"] == "function":
        model = Stacked(units, cell.seeds, 1, UNITS, 1)
        problem = Fitted(challenging, LOW, HIGH, seeds=number, steps_an_epoch=STEPS)
    else:
        torch.manual_seed(cell.seeds[0])
        model = mlp(units, hidden=given["hidden"])
        problem = Classified(*image_tensors(given, place), parts=PARTS)
    start = occupancy(model, number)
    history = fit(
        cell,
        place,
        model.to(place.device),
        problem,
        epochs=given["epochs"],
        batch=given["batch"],
        lr=given["lr"],
    )
    return outcome(history, model, number, {"start": start, "steps": problem.steps(given["batch"])})


def report(results: list[Result]) -> list[Section]:
    """How many subspaces are in use at the start and at the end, and all along."""
    tasks = in_order(group(results, "task"), ["function", "images"])
    header = ["network", "paper", "ours at the start", "at most on the way", "at the end"]
    header.append(f"at the end, of {LARGE:.0%} of the units or more")
    names = {task: _name(own) for task, own in tasks.items()}
    return [
        Text(
            "The subspaces of the paper's table that the units of a network are in, out of nine: "
            "its own solution, its own random start. The paper: “in most of our experiments on "
            "real data, we observed that three to five different solutions appear”, which is what "
            "its cost grows with. Ours does not: whichever subspaces there are, a unit costs the "
            "same."
        ),
        Table(
            "Subspaces in use",
            header,
            [_row(names[task], task, own) for task, own in tasks.items()],
        ),
        Picture("count", "Subspaces in use, mean and spread over seeds", _count(tasks, names)),
        Picture("shares", "The share of the units in each subspace, mean", _shares(tasks, names)),
    ]


def _name(own: list[Result]) -> str:
    settings = own[0].cell.settings
    if settings["task"] == "function":
        return f"{UNITS} units on the paper's function"
    hidden = " + ".join(map(str, settings["hidden"]))
    note = ", which is made up" if settings["data"].startswith(STAND_IN) else ""
    return f"{hidden} units on {settings['data']}{note}"


def _row(name: str, task: str, own: list[Result]) -> list[str]:
    start = [float(n) for result in own for n in result.curves["start"]["subspaces"]]
    most = [float(max(run)) for run in _runs(own, "subspaces")]
    real = task == "images" and STAND_IN not in name
    end = text(flat(own, "subspaces"), 1)
    return [
        name,
        PAPER if real else "–",
        text(start, 1),
        text(most, 1),
        end,
        text(flat(own, "large"), 1),
    ]


def _runs(own: Sequence[Result], key: str) -> list[list[float]]:
    """A line a seed: the start, then each epoch."""
    return [
        [float(result.curves["start"][key][i]), *(record[key][i] for record in result.history)]
        for result in own
        for i in range(len(result.cell.seeds))
    ]


def _steps(own: Sequence[Result]) -> list[int]:
    return [i * own[0].curves["steps"] for i in range(len(own[0].history) + 1)]


def _count(tasks: dict[str, list[Result]], names: dict[str, str]) -> Callable[[Path], None]:
    def draw(path: Path) -> None:
        figure = drawing.figure(7.5, 2.6 * len(tasks) + 0.3)
        axes = drawing.axes(figure, len(tasks), 1, sharey=True)[:, 0]
        for axis, (task, own) in zip(axes, tasks.items(), strict=True):
            if task == "images":
                axis.axhspan(3, 5, color=drawing.GREY, alpha=0.15, linewidth=0)
                axis.text(0, 2.8, " grey: the paper's “three to five”", va="top", color="#666666")
                label = f"with {LARGE:.0%} of the units or more"
                runs = _runs(own, "large")
                drawing.band(axis, _steps(own), runs, label, color=drawing.BLUE, linestyle="--")
            runs = _runs(own, "subspaces")
            drawing.band(axis, _steps(own), runs, "with a unit in it", color=drawing.RED)
            axis.set_title(names[task], loc="left", fontsize=10)
            axis.set_ylim(0, 9.3)
            axis.set_yticks(range(0, 10, 3))
            axis.set_ylabel("subspaces")
            axis.set_xlim(0, _steps(own)[-1])
        axes[-1].set_xlabel("step")
        handles, labels = axes[-1].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper center", ncols=2, frameon=False)
        drawing.save(figure, path)

    return draw


def _shares(tasks: dict[str, list[Result]], names: dict[str, str]) -> Callable[[Path], None]:
    def draw(path: Path) -> None:
        figure = drawing.figure(7.5, 3.1 * len(tasks) + 0.6)
        axes = drawing.axes(figure, len(tasks), 1, sharey=True)[:, 0]
        for axis, (task, own) in zip(axes, tasks.items(), strict=True):
            for name, colour in COLOURS.items():
                runs = _runs(own, name)
                means = [mean_spread([run[i] for run in runs])[0] for i in range(len(runs[0]))]
                axis.plot(_steps(own), [100 * mean for mean in means], color=colour, label=name)
            axis.set_title(names[task], loc="left", fontsize=10)
            axis.set_yscale("symlog", linthresh=1)
            axis.set_ylim(0, 100)
            axis.set_yticks([0, 1, 3, 10, 30, 100], ["0", "1", "3", "10", "30", "100"])
            axis.set_yticks([], minor=True)
            axis.set_ylabel("% of the units")
            axis.set_xlim(0, _steps(own)[-1])
        axes[-1].set_xlabel("step")
        handles, labels = axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside right upper", frameon=False)
        drawing.save(figure, path)

    return draw


EXPERIMENT = Experiment(
    NAME,
    "How many subspaces are in use as training goes",
    "two minutes on a GPU, fifteen on two cores",
    cells,
    run,
    report,
)
