"""What the small experiments share: networks side by side, how they train, what is kept of them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from ..cells import Cell
from ..experiment import Options, Outcome, Place
from ..models import count_parameters
from ..training import Problem, Recipe, Run
from .trained import last, on_gpu

RATES: tuple[float, ...] = (0.003, 0.01, 0.03, 0.1)  # tried for every activation
BETAS = (0.9, 0.95)
DIGITS = 6  # significant ones, of what is kept

K = TypeVar("K")
V = TypeVar("V")


def seeds(options: Options, own: int, quick: int = 2) -> tuple[int, ...]:
    """As many seeds as were asked for, or the experiment's own number.

    Example:
        >>> seeds(Options(), 8), seeds(Options(quick=True), 8), seeds(Options(seeds=3), 8)
        ((0, 1, 2, 3, 4, 5, 6, 7), (0, 1), (0, 1, 2))
    """
    return tuple(range(options.seeds or (quick if options.quick else own)))


def in_order(groups: dict[K, V], order: Sequence[K]) -> dict[K, V]:
    """Groups in the order of a list; those that are not in it come after.

    Example:
        >>> in_order({"ReLU": 1, "new": 2, "deu": 3}, ["deu", "ReLU"])
        {'deu': 3, 'ReLU': 1, 'new': 2}
    """
    keys = [key for key in order if key in groups]
    return {key: groups[key] for key in [*keys, *(key for key in groups if key not in keys)]}


def fit(
    cell: Cell,
    place: Place,
    networks: nn.Module,
    problem: Problem,
    *,
    epochs: int,
    batch: int,
    lr: float,
    unit_rate: float | None = None,
) -> list[dict[str, Any]]:
    """Train networks side by side on the place's device; their metrics by epoch.

    ``unit_rate`` is what units learn by over ``lr``: 1 where they stand alone, else the library's.
    """
    recipe = Recipe(
        lr,
        epochs,
        batch,
        unit_rate,
        betas=BETAS,
        compiled=place.compiled,
        captured=place.captured and on_gpu(place),
    )
    run = Run(
        networks,
        problem,
        recipe,
        seed=cell.seeds[0],
        identity=cell.identity,
        checkpoint=place.checkpoint,
    )
    for _ in place.watch(run):
        pass
    return run.history


def outcome(
    history: list[dict[str, Any]], networks: nn.Module, number: int, curves: dict[str, Any]
) -> Outcome:
    """What is kept of ``number`` networks side by side: rounded, and one network's parameters."""
    history = rounded(history)
    return Outcome(last(history), history, count_parameters(networks) // number, rounded(curves))


def rounded(value: Any, digits: int = DIGITS) -> Any:
    """Plain data whose floats have so many significant digits.

    Example:
        >>> rounded({"mse": [1 / 3, 2000.0], "epoch": 3}, 2)
        {'mse': [0.33, 2000.0], 'epoch': 3}
    """
    if isinstance(value, dict):
        return {key: rounded(own, digits) for key, own in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(own, digits) for own in value]
    return float(f"{value:.{digits}g}") if isinstance(value, float) else value


def ranked(values: Sequence[float]) -> list[int]:
    """The indices from the least to the largest value, those that are not finite at the end.

    Example:
        >>> ranked([3.0, math.nan, 1.0])
        [2, 0, 1]
    """
    return sorted(range(len(values)), key=lambda i: (not math.isfinite(values[i]), values[i]))


@torch.no_grad()
def lines(
    networks: nn.Module, errors: Sequence[float], low: float, high: float, points: int = 201
) -> dict[str, Any]:
    """The networks of least and of middle error as lines over a range, for pictures."""
    device = next(networks.parameters()).device
    t = torch.linspace(low, high, points)
    order = ranked(errors)
    y = networks.eval()(t.to(device)[:, None].expand(len(order), -1, 1))
    chosen = {"best": order[0], "median": order[len(order) // 2]}
    drawn = {name: rounded(y[i, :, 0].tolist(), 4) for name, i in chosen.items()}
    return {"low": low, "high": high, **drawn}


def places(curves: dict[str, Any], line: str = "median") -> list[float]:
    """Where the points of :func:`lines` lie."""
    return torch.linspace(curves["low"], curves["high"], len(curves[line])).tolist()


def shuffled(networks: int, rows: int, batch: int, generator: torch.Generator) -> Iterator[Tensor]:
    """Numbers of rows, (networks, batch), in an order of its own for each network.

    Example:
        >>> chosen = list(shuffled(2, 10, 5, torch.Generator()))
        >>> len(chosen), chosen[0].shape, torch.cat(chosen, 1)[0].sort().values.tolist()
        (2, torch.Size([2, 5]), [0, 1, 2, 3, 4, 5, 6, 7, 8, 9])
    """
    order = torch.rand(networks, rows, generator=generator).argsort(1)
    for i in range(rows // batch):
        yield order[:, i * batch : (i + 1) * batch]
