"""The training loop of every experiment."""

from __future__ import annotations

import gc
import io
import math
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from .._groups import param_groups
from ..cli import named
from .parallel import UnitLimits, mean, parallel, part, rank

Metrics = dict[str, list[float]]


@dataclass(frozen=True)
class Recipe:
    """How to train.  Everything here decides the result, so results and checkpoints carry it."""

    lr: float
    epochs: int
    batch: int
    unit_rate: float | None = None  # the units' learning rate over lr; None: the library's own
    weight_decay: float = 0.0
    betas: tuple[float, float] = (0.9, 0.999)
    warmup: float = 0.3
    precision: str = "float32"  # or "bfloat16"
    compiled: bool = False
    captured: bool = False  # each step as one CUDA graph


class Problem(Protocol):
    """What a network is trained on.

    ``metrics`` of a problem are lists, an entry a seed: most problems train one network, some
    train many side by side. Under ``torchrun`` a batch is cut along dimension 0, or along the one
    that an attribute ``along`` names.
    """

    def steps(self, batch: int) -> int:
        """How many steps are an epoch."""

    def batches(self, batch: int, generator: torch.Generator) -> Iterator[tuple[Tensor, Tensor]]:
        """One epoch of inputs and targets, each batch of the same shape, by a CPU's generator."""

    def loss(self, output: Tensor, target: Tensor) -> Tensor:
        """To be minimised."""

    def measure(self, model: nn.Module) -> Metrics:
        """How good the network is now, on data it did not see."""


def one_cycle(step: int, steps: int, warmup: float = 0.3) -> float:
    """The learning rate's share of its peak: up from 1/25 over ``warmup``, then down to 0, cosines.

    Example:
        >>> [round(one_cycle(step, 10), 2) for step in (0, 2, 9)]
        [0.04, 1.0, 0.0]
    """
    low, end = 1 / 25, 1 / 25e4
    top = max(warmup * steps - 1, 1e-9)
    if step <= top:
        return low + (1 - low) * (1 - math.cos(math.pi * step / top)) / 2
    return end + (1 - end) * (1 + math.cos(math.pi * (step - top) / (steps - 1 - top))) / 2


class _Step:
    """One step of training: gradients, then the optimiser."""

    def __init__(
        self,
        model: Callable[[Tensor], Tensor],
        loss: Callable[[Tensor, Tensor], Tensor],
        optimiser: torch.optim.Optimizer,
        limits: UnitLimits,
        autocast: Callable[[], AbstractContextManager[Any]],
    ) -> None:
        self.model, self.loss, self.optimiser = model, loss, optimiser
        self.limits, self.autocast = limits, autocast

    def __call__(self, x: Tensor, y: Tensor) -> Tensor:
        self.optimiser.zero_grad()
        with self.autocast():
            loss = self.loss(self.model(x), y)
        loss.backward()
        self.limits.hold()
        self.optimiser.step()
        return loss.detach()


class _CapturedStep:
    """The same as a CUDA graph, after a few ordinary steps."""

    WARM = 4

    def __init__(self, step: _Step) -> None:
        self.step = step
        self.taken = 0
        self.stream = torch.cuda.Stream()
        self.graph = torch.cuda.CUDAGraph()

    def __call__(self, x: Tensor, y: Tensor) -> Tensor:
        self.taken += 1
        if self.taken <= self.WARM:
            self.stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(self.stream):
                loss = self.step(x, y)
            torch.cuda.current_stream().wait_stream(self.stream)
            return loss
        if self.taken == self.WARM + 1:
            self.x, self.y = x.clone(), y.clone()
            gc.collect()  # what a former graph held must not be freed while this one is captured
            with torch.cuda.graph(self.graph):
                self.result = self.step(self.x, self.y)
        self.x.copy_(x)
        self.y.copy_(y)
        self.graph.replay()
        return self.result


class Run:
    """A network in training, which can stop after any epoch and go on from its checkpoint.

    Args:
        model: the network, on its device.
        problem: what it learns.
        recipe: how.
        seed: of the order of the data; the network's own start is the caller's.
        identity: what a checkpoint must be of to be taken up again.
        checkpoint: the file to keep after each epoch, or ``None``.
    """

    def __init__(
        self,
        model: nn.Module,
        problem: Problem,
        recipe: Recipe,
        *,
        seed: int,
        identity: Any = None,
        checkpoint: Path | None = None,
    ) -> None:
        self.model, self.problem, self.recipe = model, problem, recipe
        self.identity, self.checkpoint = [identity, _deciding(recipe)], checkpoint
        self.device = next(model.parameters()).device
        # On the CPU wherever the network is, so that the data's order is the same everywhere.
        self.generator = torch.Generator().manual_seed(seed)
        self.epoch, self.history = 0, list[dict[str, Any]]()
        unit_lr = None if recipe.unit_rate is None else recipe.lr * recipe.unit_rate
        groups = param_groups(model, recipe.lr, recipe.weight_decay, unit_lr)
        for group in groups:
            group["peak"] = group["lr"]
            if recipe.captured:
                group["lr"] = torch.tensor(group["lr"], device=self.device)
        self.optimiser = torch.optim.AdamW(groups, betas=recipe.betas, capturable=recipe.captured)
        limits = UnitLimits(model)
        self.parallel = parallel(model)
        forward = torch.compile(self.parallel) if recipe.compiled else self.parallel
        step = _Step(forward, problem.loss, self.optimiser, limits, self._autocast)
        self.step = _CapturedStep(step) if recipe.captured else step
        if checkpoint is not None and checkpoint.exists():
            self._load(checkpoint)

    def _autocast(self) -> AbstractContextManager[Any]:
        if self.recipe.precision == "float32":
            return nullcontext()
        return torch.autocast(self.device.type, dtype=getattr(torch, self.recipe.precision))

    def epochs(self) -> Iterator[dict[str, Any]]:
        """Train, and yield each epoch's record; the ones a checkpoint had are not repeated."""
        while self.epoch < self.recipe.epochs:
            loss = self._epoch()
            self.epoch += 1
            self.model.eval()
            with torch.no_grad(), self._autocast():
                metrics = self.problem.measure(self.model)
            self.history.append({"epoch": self.epoch, "loss": loss, **metrics})
            if self.checkpoint is not None and rank() == 0:
                self._save(self.checkpoint)
            yield self.history[-1]

    def _epoch(self) -> float:
        self.model.train()
        batch = self.recipe.batch
        steps = self.problem.steps(batch)
        total = steps * self.recipe.epochs
        along = getattr(self.problem, "along", 0)
        losses = torch.zeros((), device=self.device)
        for i, (x, y) in enumerate(self.problem.batches(batch, self.generator)):
            share = one_cycle(self.epoch * steps + i, total, self.recipe.warmup)
            for group in self.optimiser.param_groups:
                if self.recipe.captured:
                    group["lr"].fill_(group["peak"] * share)
                else:
                    group["lr"] = group["peak"] * share
            x, y = (part(whole.to(self.device), along) for whole in (x, y))
            losses += self.step(x, y)
        return mean(losses).item() / steps

    def _save(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        state = {
            "identity": self.identity,
            "epoch": self.epoch,
            "history": self.history,
            "model": self.model.state_dict(),
            "optimiser": self.optimiser.state_dict(),
            "generator": self.generator.get_state(),
            "random": torch.get_rng_state(),
        }
        if self.device.type == "cuda":
            state["random_cuda"] = torch.cuda.get_rng_state(self.device)
        part = path.with_name(f"{path.name}.{os.getpid()}.part")
        content = io.BytesIO()
        torch.save(state, content)  # into a file it would not say that a disk is full
        try:
            with named(path):
                part.write_bytes(content.getbuffer())
                os.replace(part, path)
        finally:
            part.unlink(missing_ok=True)

    def _load(self, path: Path) -> None:
        try:
            state = torch.load(path, map_location="cpu", weights_only=True)
            same = state["identity"] == self.identity
        except Exception as error:
            raise CheckpointError(
                f"{path} cannot be read as a checkpoint ({type(error).__name__}); delete it to "
                "start that run anew"
            ) from error
        if not same:
            raise CheckpointError(
                f"{path} is the checkpoint of another setting: "
                f"{_apart(state['identity'], self.identity)}; delete it to start that run anew, or "
                "choose another folder with --out"
            )
        try:
            self._take_up(state)
        except Exception as error:
            raise CheckpointError(
                f"{path} does not fit this network ({type(error).__name__}: {error}); delete it to "
                "start that run anew"
            ) from error

    def _take_up(self, state: dict[str, Any]) -> None:
        groups = state["optimiser"]["param_groups"]
        for saved, own in zip(groups, self.optimiser.param_groups, strict=True):
            # A run may go on on another device.
            saved["lr"], saved["capturable"] = own["lr"], own["capturable"]
        self.model.load_state_dict(state["model"])
        self.optimiser.load_state_dict(state["optimiser"])
        self.generator.set_state(state["generator"])
        torch.set_rng_state(state["random"])
        if self.device.type == "cuda" and "random_cuda" in state:
            torch.cuda.set_rng_state(state["random_cuda"], self.device)
        self.epoch, self.history = state["epoch"], state["history"]


class CheckpointError(RuntimeError):
    """A checkpoint that is damaged or of another setting."""


def _deciding(recipe: Recipe) -> dict[str, Any]:
    """What of a recipe decides the result, as it comes back from a checkpoint."""
    given = asdict(recipe)
    del given["compiled"], given["captured"]
    return given


def _apart(theirs: Any, ours: Any) -> str:
    """What differs between the identities of a checkpoint and of a run.

    Example:
        >>> _apart([{"a": {"lr": 0.1, "batch": 8}}, {"lr": 0.1}], [{"a": {"lr": 1.0}}, {"lr": 1.0}])
        'lr is 0.1 in it and 1.0 here, batch is 8 in it and not set here'
    """
    there, here = _leaves(theirs), _leaves(ours)
    told = []
    for key in {**there, **here}:
        if key not in there or key not in here or there[key] != here[key]:
            first, second = (repr(own[key]) if key in own else "not set" for own in (there, here))
            told.append(f"{key[-1]} is {first} in it and {second} here")
    return ", ".join(dict.fromkeys(told))


def _leaves(value: Any, *keys: str) -> dict[tuple[str, ...], Any]:
    """What nested dicts hold, by the way to it; of an identity's list, each of its parts."""
    if not keys and isinstance(value, list):
        value = {f"part {i}": own for i, own in enumerate(value)}
    if not isinstance(value, dict):
        return {keys or ("it",): value}
    found: dict[tuple[str, ...], Any] = {}
    for key, own in value.items():
        found |= _leaves(own, *keys, str(key))
    return found
