"""One cell trained: the loop between an experiment's settings and its outcome."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from ..cells import Cell
from ..experiment import Place
from ..training import Problem, Recipe, Run


def train(
    cell: Cell, place: Place, model: nn.Module, problem: Problem, recipe: Recipe
) -> list[dict[str, Any]]:
    """Train a network, from its checkpoint if there is one, and return its metrics by epoch.

    Args:
        cell: what is trained; its first seed is of the order of the data.
        place: where.
        model, problem, recipe: as :class:`~deu.experiments.training.Run` takes them.
    """
    run = Run(
        model,
        problem,
        recipe,
        seed=cell.seeds[0],
        identity=cell.identity,
        checkpoint=place.checkpoint,
    )
    with tf32(place):
        for _ in place.watch(run):
            pass
    return run.history


def recipe(cell: Cell, place: Place, **more: Any) -> Recipe:
    """How a cell is trained, by its settings ``lr``, ``epochs``, ``batch`` and ``precision``.

    Example:
        >>> settings = {"lr": 0.01, "epochs": 2, "batch": 128, "precision": "float32"}
        >>> recipe(Cell("mnist", settings), Place(), weight_decay=0.1).weight_decay
        0.1
    """
    own = {key: cell.settings[key] for key in ("lr", "epochs", "batch", "precision")}
    captured = place.captured and on_gpu(place)
    return Recipe(**own, captured=captured, compiled=place.compiled, **more)


@contextmanager
def tf32(place: Place) -> Iterator[None]:
    """On a GPU, products of float32 matrices in TF32, as its convolutions are anyway."""
    before = torch.get_float32_matmul_precision()
    if on_gpu(place):
        torch.set_float32_matmul_precision("high")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def on_gpu(place: Place) -> bool:
    """Whether a cell runs on a GPU.

    Example:
        >>> on_gpu(Place(device="cuda:1")), on_gpu(Place())
        (True, False)
    """
    return torch.device(place.device).type == "cuda"


def last(history: list[dict[str, Any]]) -> dict[str, list[float]]:
    """The metrics of the last epoch.

    Example:
        >>> last([{"epoch": 1, "loss": 0.5, "accuracy": [0.9]}])
        {'accuracy': [0.9]}
    """
    return {key: value for key, value in history[-1].items() if key not in ("epoch", "loss")}
