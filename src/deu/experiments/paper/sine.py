"""One unit that starts as ReLU learns a sine, against networks of ten neurons."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from torch import nn

from ...modules import DEU
from .. import drawing
from ..activations import FACTORIES
from ..cells import Cell, Result
from ..experiment import Experiment, Options, Outcome, Picture, Place, Section, Table, Text
from ..problems import Regression
from ..stacked import Stacked
from ..summaries import best_results, flat, median, share_below
from .fitting import RATES, fit, in_order, lines, outcome, places, seeds
from .names import shown

NAME = "sine"
END = 4 * math.pi  # two periods to learn from
EPOCHS, STEPS, BATCH, SEEDS = 30, 100, 32, 64
UNITS = {"deu continuous": "continuous"}  # alone, without weights around it
MORE_UNITS = {"deu paper": "paper"}
UNIT_RATES: tuple[float, ...] = (0.3, 1.0, 3.0)
MORE_UNIT_RATES = (0.03, 0.1, *UNIT_RATES)
NETWORKS, NEURONS = ("ReLU", "LeakyReLU", "SELU"), 10
INSIDE, BEYOND = 0.01, 0.05  # errors below these count as learnt, and as going on


def networks(activation: str, own: Sequence[int]) -> nn.Module:
    """One unit a seed, which starts as ReLU, or a network 1 → 10 → 1 a seed; (seeds, n, 1)."""
    solution = (UNITS | MORE_UNITS).get(activation)
    if solution is not None:
        return DEU(len(own), dim=0, init="relu", solution=solution)
    return Stacked(FACTORIES[activation], own, 1, NEURONS, 1)


def cells(options: Options) -> list[Cell]:
    """Activation × learning rate, all seeds of one in one cell."""
    study = options.scope == "study"
    units = UNITS | MORE_UNITS if study else UNITS
    unit_rates, rates = (MORE_UNIT_RATES if study else UNIT_RATES), RATES
    if options.quick:
        unit_rates, rates = (1.0,), (0.03,)
    grid = [(name, lr) for name in units for lr in unit_rates]
    grid += [(name, lr) for name in NETWORKS for lr in rates]
    return [
        Cell(
            NAME,
            {
                "activation": activation,
                "width": NEURONS if activation in NETWORKS else 1,
                "lr": lr,
                "epochs": 10 if options.quick else EPOCHS,
                "batch": BATCH,
            },
            seeds(options, SEEDS, quick=4),
            options.quick,
        )
        for activation, lr in grid
    ]


def run(cell: Cell, place: Place) -> Outcome:
    """Train a cell's units or networks."""
    given, number = cell.settings, len(cell.seeds)
    nets = networks(given["activation"], cell.seeds).to(place.device)
    problem = Regression(
        torch.sin,
        0.0,
        END,
        seeds=number,
        steps_an_epoch=STEPS,
        ranges={"mse": (0.0, END), "mse_beyond": (END, 2 * END)},
    )
    history = fit(
        cell,
        place,
        nets,
        problem,
        epochs=given["epochs"],
        batch=given["batch"],
        lr=given["lr"],
        unit_rate=1.0,
    )
    curves = lines(nets, history[-1]["mse"], 0.0, 2 * END, 321)
    return outcome(history, nets, number, curves)


def report(results: list[Result]) -> list[Section]:
    """How many seeds learn the sine, and how many go on with it beyond what they saw."""
    best = in_order(best_results(results, "mse", higher=False), [*UNITS, *MORE_UNITS, *NETWORKS])
    header = ["network", "parameters", "learning rate", "median MSE", "median MSE beyond"]
    header += [f"learnt it (MSE < {INSIDE:g})", f"and goes on (MSE < {BEYOND:g} beyond)", "seeds"]
    return [
        Text(
            "Trained on points of two periods, 0 to 4π; “beyond” is the two periods that follow, "
            "4π to 8π, of which nothing was seen. The unit stands alone and starts as ReLU; the "
            "networks have one hidden layer of ten neurons. Each is shown at its learning rate of "
            "least mean error. The paper gives pictures and no numbers: in them a single unit "
            "learns the sine almost perfectly, and the larger networks fail to fit what they are "
            "trained on. (It goes one period beyond with the unit, and half of one with the "
            "networks.)"
        ),
        Table("Learning a sine", header, [_row(name, own) for name, own in best.items()]),
        Text(words(best)),
        Picture("fits", "Learnt from 0 to 4π (grey), and how it goes on", _draw(best)),
    ]


def _label(activation: str, own: list[Result]) -> str:
    width = own[0].cell.settings["width"]
    return f"one {shown(activation)}" if width == 1 else f"{width} {shown(activation)}"


def _row(activation: str, own: list[Result]) -> list[str]:
    inside, beyond = flat(own, "mse"), flat(own, "mse_beyond")
    return [
        _label(activation, own),
        f"{own[0].parameters:,}",
        f"{own[0].cell.settings['lr']:g}",
        f"{median(inside):.2g}",
        f"{median(beyond):.2g}",
        f"{share_below(inside, INSIDE):.0%}",
        f"{both(own):.0%}",
        str(len(inside)),
    ]


def both(own: Sequence[Result]) -> float:
    """The share of seeds that learnt the sine and go on with it."""
    pairs = list(zip(flat(own, "mse"), flat(own, "mse_beyond"), strict=True))
    good = [share_below([i], INSIDE) * share_below([b], BEYOND) for i, b in pairs]
    return sum(good) / len(good)


def words(best: dict[str, list[Result]]) -> str:
    """Which networks learnt it, in a sentence each."""
    told = []
    for name, own in best.items():
        inside = flat(own, "mse")
        learnt = round(share_below(inside, INSIDE) * len(inside))
        on = round(both(own) * len(inside))
        told.append(
            f"{_label(name, own)}: {learnt} of {len(inside)} seeds learnt the sine, and {on} of "
            "them go on with it."
        )
    return " ".join(told)


def _draw(best: dict[str, list[Result]]) -> Callable[[Path], None]:
    def draw(path: Path) -> None:
        figure = drawing.figure(7.5, 1.7 * len(best) + 0.8)
        axes = drawing.axes(figure, len(best), 1, sharex=True, sharey=True)[:, 0]
        t = torch.linspace(0, 2 * END, 801)
        for axis, (activation, own) in zip(axes, best.items(), strict=True):
            curves = own[0].curves
            colour = drawing.style(activation)["color"]
            axis.axvspan(0, END, color=drawing.GREY, alpha=0.13, linewidth=0)
            axis.plot(t, t.sin(), color=drawing.GREY, linewidth=4, alpha=0.5, label="sin t")
            axis.plot(places(curves), curves["median"], color=colour, label="median seed")
            axis.plot(places(curves), curves["best"], ":", color=drawing.BLACK, label="best seed")
            shares = f"{share_below(flat(own, 'mse'), INSIDE):.0%} learnt it, {both(own):.0%} go on"
            axis.set_title(f"{_label(activation, own)}: {shares}", loc="left", fontsize=10)
        axes[0].set_ylim(-2, 2)
        axes[0].set_xlim(0, 2 * END)
        ticks = range(0, 9, 2)
        axes[-1].set_xticks([k * math.pi for k in ticks], [f"{k}π" if k else "0" for k in ticks])
        axes[-1].set_xlabel("t")
        handles, labels = axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper center", ncols=3, frameon=False)
        drawing.save(figure, path)

    return draw


EXPERIMENT = Experiment(
    NAME,
    "One unit, started as ReLU, learns a sine, against networks of ten neurons",
    "two minutes on two cores",
    cells,
    run,
    report,
)
