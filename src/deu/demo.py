"""Two things a handful of units can do: ``python -m deu.demo --out out/demo``.

One unit that starts as ReLU learns a sine from two of its periods and goes on past them; two
units separate three nested noisy rings.  Prints what was learnt and writes three pictures.
"""

from __future__ import annotations

import argparse
import copy
import importlib
import math
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from . import formula, subspaces
from ._explain import _equation
from .cli import cannot_write, say, until_stopped
from .experiments import drawing
from .experiments.drawing import BLUE, GREEN, GREY, RED
from .modules import DEU

PERIODS = 2  # of the sine, to learn from
SINE_STEPS, SINE_RATE, SINE_BATCH = 3000, 3.0, 32
RADII, NOISE, POINTS = (1.0, 2.0, 3.0), 0.15, 900
RING_STEPS, RING_RATE, RING_BATCH, RESTARTS = 1500, 0.1, 128, 16
QUICK_STEPS = 40
BETAS = (0.9, 0.95)  # Adam's; a short memory of gradients, which get small as a and c grow


class Sine(NamedTuple):
    """A unit that learnt the sine, and copies of it from along the way."""

    unit: DEU
    way: list[tuple[int, DEU]]
    error_inside: float
    error_beyond: float


class Rings(NamedTuple):
    """A network of two units that learnt the rings, and how well."""

    network: nn.Sequential
    starts: int
    good_starts: int
    accuracy: float
    points: Tensor
    labels: Tensor

    @property
    def units(self) -> DEU:
        units = self.network[1]
        assert isinstance(units, DEU)
        return units


def _descend(
    name: str, parameters: list[nn.Parameter], rate: float, steps: int, loss: Callable[[], Tensor]
) -> Iterator[int]:
    """Adam with one cycle of the learning rate, under a progress bar; yields before each step."""
    optimiser = torch.optim.Adam(parameters, lr=rate, betas=BETAS)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, rate, total_steps=steps)
    tqdm = importlib.import_module("tqdm").tqdm
    with tqdm(total=steps, desc=name, unit="step", leave=False, disable=None) as bar:
        for step in range(steps):
            yield step
            optimiser.zero_grad()
            value = loss()
            value.backward()
            optimiser.step()
            schedule.step()
            bar.update()
            if step % 50 == 0:
                bar.set_postfix(loss=f"{value.item():.4f}")


def _copy(unit: DEU) -> DEU:
    """The unit as it is now, in float64 and out of training."""
    return copy.deepcopy(unit).double().eval()


@torch.no_grad()
def _sine_error(unit: DEU, low: float, high: float) -> float:
    t = torch.linspace(low, high, 1000, dtype=torch.float64)[:, None]
    return (unit(t) - t.sin()).square().mean().sqrt().item()


def learn_sine(steps: int = SINE_STEPS) -> Sine:
    """Train one unit, started as ReLU (within 0.01), on random points of two periods of a sine.

    The unit stands alone, without weights around it. Its five numbers take a far larger learning
    rate than weights would: to be a sine, a and c have to grow from 0 until 1/c hardly shows.

    Example:
        >>> learn_sine(steps=10).unit
        DEU(1, ...)
    """
    end = PERIODS * 2 * math.pi
    unit = DEU(1, init="relu")

    def loss() -> Tensor:
        t = torch.rand(SINE_BATCH, 1) * end
        return nn.functional.mse_loss(unit(t), t.sin())

    way = []
    kept = {round(steps * share) for share in (0, 0.05, 0.2, 0.5)}
    for step in _descend("sine ", list(unit.parameters()), SINE_RATE, steps, loss):
        if step in kept:
            way.append((step, _copy(unit)))
    learnt = _copy(unit)
    way.append((steps, learnt))
    return Sine(learnt, way, _sine_error(learnt, 0, end), _sine_error(learnt, end, 2 * end))


def noisy_rings(points: int) -> tuple[Tensor, Tensor]:
    """Points on nested noisy rings and the number of the ring of each.

    Example:
        >>> x, ring = noisy_rings(6)
        >>> x.shape, ring.tolist()
        (torch.Size([6, 2]), [0, 1, 2, 0, 1, 2])
    """
    ring = torch.arange(points) % len(RADII)
    radius = torch.tensor(RADII)[ring] + NOISE * torch.randn(points)
    angle = 2 * math.pi * torch.rand(points)
    return torch.stack([radius * angle.cos(), radius * angle.sin()], dim=1), ring


class _Starts(nn.Module):
    """Many networks 2 → 2 units → 3 side by side, which know nothing of each other."""

    def __init__(self, starts: int) -> None:
        super().__init__()
        self.into = nn.Linear(2, 2 * starts)
        self.units = DEU(2 * starts)
        out = [nn.Linear(2, len(RADII)) for _ in range(starts)]
        self.weight = nn.Parameter(torch.stack([layer.weight.detach() for layer in out]))
        self.bias = nn.Parameter(torch.stack([layer.bias.detach() for layer in out]))

    def forward(self, x: Tensor) -> Tensor:
        """(n, 2) to the scores (n, classes, starts)."""
        hidden = self.units(self.into(x)).unflatten(1, (-1, 2))
        scores = torch.einsum("nsu,scu->nsc", hidden, self.weight) + self.bias
        return scores.transpose(1, 2)

    @torch.no_grad()
    def network(self, start: int) -> nn.Sequential:
        """One of the networks, alone."""
        one = nn.Sequential(nn.Linear(2, 2), DEU(2), nn.Linear(2, len(RADII)))
        both = slice(2 * start, 2 * start + 2)
        values = [
            self.into.weight[both],
            self.into.bias[both],
            *(p[both] for p in self.units.coefficients()),
            self.weight[start],
            self.bias[start],
        ]
        for parameter, value in zip(one.parameters(), values, strict=True):
            parameter.copy_(value)
        return one.eval()


def learn_rings(steps: int = RING_STEPS, starts: int = RESTARTS) -> Rings:
    """Train several networks of two units to tell the rings apart; keep the one of least loss.

    Their units start near GELU, as they do by default.

    Example:
        >>> learn_rings(steps=10, starts=2).network
        Sequential(
          (0): Linear(in_features=2, out_features=2, bias=True)
          (1): DEU(2, ...)
          (2): Linear(in_features=2, out_features=3, bias=True)
        )
    """
    x, ring = noisy_rings(POINTS)
    held_out, labels = noisy_rings(POINTS)
    model = _Starts(starts)

    def losses(x: Tensor, ring: Tensor) -> Tensor:
        target = ring[:, None].expand(-1, starts)
        return nn.functional.cross_entropy(model(x), target, reduction="none").mean(0)

    def loss() -> Tensor:
        batch = torch.randint(0, POINTS, (RING_BATCH,))
        return losses(x[batch], ring[batch]).sum()

    for _ in _descend("rings", list(model.parameters()), RING_RATE, steps, loss):
        pass
    model.eval()
    with torch.no_grad():
        best = int(losses(x, ring).argmin())
        right = model(x).argmax(1) == ring[:, None]
        network = model.network(best)
        accuracy = (network(held_out).argmax(1) == labels).double().mean().item()
    good = int((right.double().mean(0) > 0.95).sum())
    return Rings(network, starts, good, accuracy, held_out, labels)


@torch.no_grad()
def _values(unit: DEU, t: Tensor) -> Any:
    return unit(t[:, None])[:, 0].numpy()


def draw_sine(result: Sine, path: Path, note: str) -> None:
    """The data, the fit and how it goes on; below, the unit on its way from ReLU."""
    end = PERIODS * 2 * math.pi
    t = torch.linspace(-end / 2, 2 * end, 1201, dtype=torch.float64)
    figure = drawing.figure(9, 5)
    top, bottom = drawing.axes(figure, 2, 1, sharex=True)[:, 0]
    for axis in (top, bottom):
        axis.axvspan(0, end, color=GREY, alpha=0.13, linewidth=0)
        axis.set_ylabel("y(t)")
    top.plot(t, t.sin(), color=GREY, linewidth=4, alpha=0.55, label="sin t")
    top.plot(t, _values(result.unit, t), color=RED, linewidth=1.6, label="the unit, trained")
    data = torch.linspace(0, end, 41)
    top.plot(data, data.sin(), "o", color=BLUE, markersize=4, label="where it was trained")
    top.set_title("One unit, started as ReLU, learns a sine" + note)
    shades = ("#9a9a9a", "#9ecae1", "#4292c6", "#08306b", RED)
    for (step, unit), colour in zip(result.way, shades, strict=True):
        label = "start: ReLU" if step == 0 else f"step {step}"
        bottom.plot(t, _values(unit, t), color=colour, linewidth=1.6, label=label)
    bottom.set(ylim=(-1.6, 3.2), xlabel="t", title="The unit while it trains")
    for axis in (top, bottom):
        axis.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)
    ticks = range(-PERIODS, 4 * PERIODS + 1, 2)
    names = {0: "0", 1: "π", -1: "-π"}
    bottom.set_xticks([k * math.pi for k in ticks], [names.get(k, f"{k}π") for k in ticks])
    bottom.set_xlim(-end / 2, 2 * end)
    figure.savefig(path)


def draw_rings(result: Rings, path: Path, note: str) -> None:
    """The regions that the network tells apart, with points it did not see."""
    side = torch.linspace(-4, 4, 320)
    grid = torch.cartesian_prod(side, side)
    with torch.no_grad():
        region = result.network(grid).argmax(1).reshape(320, 320).T
    figure = drawing.figure(5.6, 5.6)
    axis = drawing.axes(figure, 1, 1)[0, 0]
    colours = (BLUE, RED, GREEN)
    axis.contourf(side, side, region, levels=[-0.5, 0.5, 1.5, 2.5], colors=colours, alpha=0.22)
    for ring, colour in enumerate(colours):
        x, y = result.points[result.labels == ring].T
        axis.plot(x, y, "o", color=colour, markersize=3, alpha=0.8, label=f"ring {ring + 1}")
    axis.set(xlabel="x₁", ylabel="x₂", aspect="equal", xlim=(-4, 4), ylim=(-4, 4))
    axis.set_title(
        f"Two units separate three rings{note}\n"
        f"{100 * result.accuracy:.1f} % of {len(result.labels)} held-out points right"
    )
    axis.legend(loc="upper right", framealpha=0.9, markerscale=1.6)
    figure.savefig(path)


def draw_activations(sine: Sine, rings: Rings, path: Path, note: str) -> None:
    """Each learnt activation and its slope, over the inputs that its unit gets."""
    with torch.no_grad():
        seen = rings.network[0](rings.points)
    units = _copy(rings.units)
    panels = [("sine", sine.unit, 0, 0.0, PERIODS * 2 * math.pi)]
    for i in range(2):
        low, high = seen[:, i].min().item(), seen[:, i].max().item()
        panels.append((f"rings, unit {i + 1}", units, i, low, high))
    figure = drawing.figure(10, 3.4)
    figure.suptitle("Learnt activation functions" + note)
    for axis, (name, layer, i, low, high) in zip(
        drawing.axes(figure, 1, 3)[0], panels, strict=True
    ):
        t = torch.linspace(low, high, 1001, dtype=torch.float64, requires_grad=True)
        y = layer(t[:, None].expand(-1, layer.num_features))[:, i]
        (slope,) = torch.autograd.grad(y.sum(), t)
        time = t.detach()
        axis.axhline(0, color=GREY, linewidth=0.8)
        axis.plot(time, y.detach(), color=BLUE, linewidth=2, label="y(t)")
        axis.plot(time, slope, color=RED, linewidth=1.3, linestyle="--", label="dy/dt")
        axis.set(xlabel="t", title=f"{name}: {subspaces(layer)[i]}")
        axis.margins(x=0)
        axis.legend(fontsize="small", framealpha=0.9)
    figure.savefig(path)


def _tell(title: str, layer: DEU, i: int) -> None:
    say(f"  {title} ({subspaces(layer)[i]})")
    say(f"    {_equation(layer, i)}")
    say(f"    {formula(layer, i)}")


def run(out: Path, seed: int, quick: bool) -> None:
    """Train, tell and draw."""
    torch.manual_seed(seed)
    note = " (quick run, not trained)" if quick else ""
    say(f"deu demo, seed {seed}" + (": QUICK RUN, a few steps only, nothing is learnt" * quick))

    sine = learn_sine(QUICK_STEPS if quick else SINE_STEPS)
    say("\nOne unit, started as ReLU, learns a sine from two periods")
    say(f"  rms error on the two periods {sine.error_inside:.4f}")
    say(f"  rms error on the next two    {sine.error_beyond:.4f}")
    _tell("at the start, within 0.01 of ReLU", sine.way[0][1], 0)
    _tell("learnt", sine.unit, 0)

    rings = learn_rings(QUICK_STEPS, 4) if quick else learn_rings()
    say("\nTwo units separate three nested noisy rings")
    say(
        f"  {rings.starts} random starts trained side by side, {rings.good_starts} of them above "
        "95 % on the training points; kept: the one of least training loss"
    )
    say(f"  held-out points right: {100 * rings.accuracy:.1f} %")
    for i in range(2):
        _tell(f"unit {i + 1}", rings.units, i)
    say("  (formulas leave out the limits max_exponent and bound, which hold them finite)")

    say("\nPictures")
    pictures: list[tuple[str, Callable[[Path], None]]] = [
        ("sine.png", lambda path: draw_sine(sine, path, note)),
        ("circles.png", lambda path: draw_rings(rings, path, note)),
        ("activations.png", lambda path: draw_activations(sine, rings, path, note)),
    ]
    for name, draw in pictures:
        draw(out / name)
        say(f"  {out / name}")


def _arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m deu.demo", description="What a few units learn.")
    parser.add_argument("--out", type=Path, default=Path("out/demo"), help="folder for pictures")
    parser.add_argument("--seed", type=int, default=0, help="of everything random (default 0)")
    parser.add_argument("--quick", action="store_true", help="a few steps only, to see it run")
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> int:
    """The command line; returns its exit code."""
    arguments = _arguments(argv)
    missing = [name for name in ("matplotlib", "tqdm") if not _is_there(name)]
    if missing:
        print(f"deu.demo needs {' and '.join(missing)}: pip install deu[demo]", file=sys.stderr)
        return 1
    return until_stopped("deu.demo", lambda: _run_single_threaded(arguments))


def _run_single_threaded(arguments: argparse.Namespace) -> int:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # tensors this small are slower with more
    try:
        arguments.out.mkdir(parents=True, exist_ok=True)
        run(arguments.out, arguments.seed, arguments.quick)
    except BrokenPipeError:
        raise
    except OSError as error:
        return cannot_write("deu.demo", arguments.out, error)
    finally:
        torch.set_num_threads(threads)
    return 0


def _is_there(module: str) -> bool:
    try:
        importlib.import_module(module)
    except ImportError:
        return False
    return True


if __name__ == "__main__":
    sys.exit(main())
