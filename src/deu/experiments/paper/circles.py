"""Nested noisy circles: two units, two Maxouts, and ReLU in two layers of four."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from .. import drawing
from ..activations import FACTORIES
from ..cells import Cell, Result
from ..experiment import Experiment, Options, Outcome, Picture, Place, Section, Table, Text
from ..models import mlp
from ..stacked import Stacked
from ..summaries import best_results, flat, median, share_below, text
from ..tables import QUICK_WORDS
from ..training import Metrics
from .fitting import fit, in_order, outcome, ranked, rounded, seeds, shuffled
from .names import shown
from .trained import last

NAME = "circles"
INNER, NOISE, POINTS = 0.5, 0.1, 1000  # the outer radius is 1; so many to train on, and to test on
EPOCHS, BATCH, SEEDS = 100, 64, 16
EDGE, GRID = 1.5, 41  # of the pictures: from -EDGE to EDGE in so many points
GOOD = 0.97

RATES = (0.01, 0.03, 0.1, 0.3)  # tried for every network; so few neurons want large ones
UNIT_RATE = 1.0  # over those, for the units: two of them have much to learn

# The paper's three, and what ReLU does with fewer neurons; the study has more units.
NETWORKS: tuple[tuple[str, tuple[int, ...]], ...] = (
    ("deu", (2,)),
    ("Maxout", (2,)),
    ("ReLU", (4, 4)),
    ("ReLU", (4,)),
    ("ReLU", (2,)),
)
MORE_NETWORKS: tuple[tuple[str, tuple[int, ...]], ...] = (("deu waves", (2,)), ("deu paper", (2,)))


def circles(points: int, seed: int) -> tuple[Tensor, Tensor]:
    """Points on two circles under noise, and 1 for those of the inner one.

    As many on each, evenly spaced, in random order: what scikit-learn's ``make_circles`` makes.

    Example:
        >>> x, inner = circles(6, seed=0)
        >>> x.shape, inner.shape, int(inner.sum())
        (torch.Size([6, 2]), torch.Size([6, 1]), 3)
    """
    random = torch.Generator().manual_seed(seed)
    inner = (torch.arange(points) % 2)[torch.randperm(points, generator=random)]
    angle = torch.zeros(points)
    for ring in (0, 1):
        own = inner == ring
        angle[own] = 2 * math.pi * torch.arange(int(own.sum())) / own.sum()
    radius = torch.where(inner == 1, INNER, 1.0)
    x = torch.stack([radius * angle.cos(), radius * angle.sin()], 1)
    return x + NOISE * torch.randn(points, 2, generator=random), inner[:, None].float()


@lru_cache
def ceiling() -> float:
    """The share of points that the best circle around the origin tells apart.

    Example:
        >>> 0.98 < ceiling() < 1
        True
    """
    x, inner = circles(200_000, seed=2)
    radius = x.norm(dim=1)
    cuts = torch.linspace(INNER, 1, 51)
    return max(((radius < cut) == (inner[:, 0] == 1)).float().mean().item() for cut in cuts)


class Beside(nn.Module):
    """Networks of any depth side by side, each on its own: (seeds, n, 2) to (seeds, n, 1)."""

    def __init__(self, activation: str, own: Sequence[int], hidden: Sequence[int]) -> None:
        super().__init__()
        self.networks = nn.ModuleList()
        with torch.random.fork_rng(devices=[]):
            for seed in own:
                torch.random.default_generator.manual_seed(seed)
                factory = FACTORIES[activation]
                self.networks.append(mlp(factory, inputs=2, hidden=hidden, classes=1))

    def forward(self, x: Tensor) -> Tensor:
        return torch.stack([net(own) for net, own in zip(self.networks, x, strict=True)])


def networks(activation: str, own: Sequence[int], hidden: Sequence[int]) -> nn.Module:
    """A network 2 → hidden → 1 for each seed, side by side."""
    if len(hidden) == 1:
        return Stacked(FACTORIES[activation], own, 2, hidden[0], 1)
    return Beside(activation, own, hidden)


class Circles:
    """To tell the circles apart; every network sees the same points, in an order of its own."""

    along = 1  # of the points in a batch; before it are the networks

    def __init__(self, number: int, device: str) -> None:
        self.number = number
        self.x, self.y = (part.to(device) for part in circles(POINTS, seed=0))
        self.test_x, self.test_y = (part.to(device) for part in circles(POINTS, seed=1))

    def steps(self, batch: int) -> int:
        return POINTS // batch

    def batches(self, batch: int, generator: torch.Generator) -> Iterator[tuple[Tensor, Tensor]]:
        for rows in shuffled(self.number, POINTS, batch, generator):
            chosen = rows.to(self.x.device)
            yield self.x[chosen], self.y[chosen]

    def loss(self, output: Tensor, target: Tensor) -> Tensor:
        return self._losses(output, target).sum()  # over seeds, as each would have it alone

    def _losses(self, output: Tensor, target: Tensor) -> Tensor:
        losses = nn.functional.binary_cross_entropy_with_logits(output, target, reduction="none")
        return losses.mean((1, 2))

    def measure(self, model: nn.Module) -> Metrics:
        output = model(self._all(self.test_x))
        right = ((output > 0) == (self.test_y > 0.5)).float().mean((1, 2))
        training = self._losses(model(self._all(self.x)), self._all(self.y))
        return {"accuracy": right.tolist(), "training_loss": training.tolist()}

    def _all(self, x: Tensor) -> Tensor:
        return x.expand(self.number, -1, -1)


def cells(options: Options) -> list[Cell]:
    """Network × learning rate, all seeds of one in one cell."""
    return [
        Cell(
            NAME,
            {
                "activation": activation,
                "hidden": list(hidden),
                "lr": lr,
                "epochs": 20 if options.quick else EPOCHS,
                "batch": BATCH,
                "unit_rate": UNIT_RATE,
            },
            seeds(options, SEEDS, quick=4),
            options.quick,
        )
        for activation, hidden in NETWORKS + (MORE_NETWORKS if options.scope == "study" else ())
        for lr in ((0.1,) if options.quick else RATES)
    ]


def run(cell: Cell, place: Place) -> Outcome:
    """Train a cell's networks; keep the logits of the one of least training loss on a grid."""
    given, number = cell.settings, len(cell.seeds)
    nets = networks(given["activation"], cell.seeds, given["hidden"]).to(place.device)
    history = fit(
        cell,
        place,
        nets,
        Circles(number, place.device),
        epochs=given["epochs"],
        batch=given["batch"],
        lr=given["lr"],
        unit_rate=given["unit_rate"],
    )
    metrics = last(history)
    best = ranked(metrics["training_loss"])[0]
    curves: dict[str, Any] = {name: values[best] for name, values in metrics.items()}
    curves["logits"] = _logits(nets, number, best)
    return outcome(history, nets, number, curves)


@torch.no_grad()
def _logits(nets: nn.Module, number: int, which: int) -> list[list[float]]:
    at = torch.linspace(-EDGE, EDGE, GRID)
    grid = torch.cartesian_prod(at, at).to(next(nets.parameters()).device)
    logits = nets.eval()(grid.expand(number, -1, -1))[which].reshape(GRID, GRID)
    return rounded(logits.nan_to_num(0).clamp(-9, 9).T.tolist(), 3)  # a row for each height


def report(results: list[Result]) -> list[Section]:
    """How well each network tells the circles apart, and the line that it draws."""
    best = in_order(
        best_results(results, "accuracy", by=("activation", "hidden")), NETWORKS + MORE_NETWORKS
    )
    header = ["network", "parameters", "learning rate", "accuracy %, mean ± spread (n)"]
    header += ["median", "best", f"seeds above {GOOD:.0%}"]
    return [
        Text(
            f"{POINTS} points to train on, {POINTS} others to test on; radii 1 and {INNER:g}, "
            f"noise of {NOISE:g}. The best circle around the origin tells {ceiling():.1%} of such "
            "points apart. Each network is shown at its learning rate of best mean accuracy. The "
            "paper gives a picture and no numbers: “for using ReLU, we needed at least two layers "
            "of four hidden units to separate the circles, while one layer of either two Maxout "
            "or two DEUs is enough”."
        ),
        Table("Telling circles apart", header, [_row(own) for own in best.values()]),
        Text(QUICK_WORDS if results[0].cell.quick else words(best)),
        Picture(
            "boundaries",
            "Decision boundaries of the seeds of least training loss, and the test points",
            _draw(best),
        ),
    ]


def _label(own: Sequence[Result]) -> str:
    settings = own[0].cell.settings
    return f"{' + '.join(map(str, settings['hidden']))} {shown(settings['activation'])}"


def _of(own: Sequence[Result]) -> tuple[str, int]:
    """The activation, and how many layers."""
    settings = own[0].cell.settings
    return settings["activation"], len(settings["hidden"])


def _row(own: list[Result]) -> list[str]:
    accuracies = flat(own, "accuracy")
    return [
        _label(own),
        str(own[0].parameters),
        f"{own[0].cell.settings['lr']:g}",
        text(accuracies, 1, percent=True),
        f"{100 * median(accuracies, higher=True):.1f}",
        f"{100 * max(a for a in accuracies if a is not None):.1f}",
        f"{1 - share_below(accuracies, GOOD):.0%}",
    ]


def words(best: dict[Any, list[Result]]) -> str:
    """Which networks' best seeds separate the circles, and which never do."""
    separates = [own for own in best.values() if max(own[0]["accuracy"]) >= GOOD]
    never = [own for own in best.values() if own not in separates]
    told = f"These reach {GOOD:.0%} with at least one seed: "
    told += ", ".join(map(_label, separates)) or "none"
    if never:
        told += f". These with none: {', '.join(map(_label, never))}"
    small = [own for own in separates if _of(own) == ("ReLU", 1)]
    if small:
        told += (
            f". The paper's two layers of four ReLU are not the least: {_label(small[0])} do it too"
        )
    return told + "."


def _draw(best: dict[Any, list[Result]]) -> Callable[[Path], None]:
    def draw(path: Path) -> None:
        columns = min(3, len(best))
        rows = math.ceil(len(best) / columns)
        figure = drawing.figure(2.7 * columns, 2.9 * rows)
        axes = drawing.axes(figure, rows, columns, sharex=True, sharey=True).ravel()
        x, inner = circles(POINTS, seed=1)
        at = torch.linspace(-EDGE, EDGE, GRID).tolist()
        for axis in axes[len(best) :]:
            axis.set_axis_off()
        for axis, own in zip(axes, best.values(), strict=False):
            curves = min((result.curves for result in own), key=lambda c: c["training_loss"])
            logits = curves["logits"]
            axis.contourf(
                at, at, logits, levels=[-99, 0, 99], colors=[drawing.BLUE, drawing.RED], alpha=0.15
            )
            axis.contour(at, at, logits, levels=[0], colors=drawing.BLACK, linewidths=1.5)
            for ring, colour in ((0, drawing.BLUE), (1, drawing.RED)):
                shown_points = x[inner[:, 0] == ring][::2]
                axis.plot(*shown_points.T, "o", color=colour, markersize=1.8, alpha=0.6)
            axis.set_title(f"{_label(own)}: {curves['accuracy']:.1%}", fontsize=9)
            axis.set_aspect("equal")
            axis.grid(False)
            axis.set_xticks([-1, 0, 1])
            axis.set_yticks([-1, 0, 1])
        drawing.save(figure, path)

    return draw


EXPERIMENT = Experiment(
    NAME,
    "Nested noisy circles: two units, two Maxouts, and ReLU in two layers of four",
    "three minutes on two cores",
    cells,
    run,
    report,
)
