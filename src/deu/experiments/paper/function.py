"""A function to fit: 25 units against ten times as many of other activations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ..activations import FACTORIES, siren_start_
from ..cells import Cell, Result
from ..experiment import Experiment, Options, Outcome, Place, Section
from ..models import Start
from ..problems import Regression
from ..stacked import Stacked
from .fitting import RATES, fit, lines, outcome, seeds

NAME = "function"
LOW, HIGH = -10.0, 10.0
EPOCHS, STEPS, BATCH, SEEDS = 30, 100, 32, 32
Layer = tuple[str, int, float | None]  # activation, width, units' rate if not the library's
LAYERS: tuple[Layer, ...] = (("deu waves", 25, None), ("ReLU", 250, None), ("Maxout", 250, None))
MORE = ("SiLU", "GELU", "PReLU", "Snake", "Sine")
UNITS = ("deu", "deu spread", "deu random", "deu paper", "deu authors")
MORE_LAYERS: tuple[Layer, ...] = (
    *((name, 250, None) for name in MORE),
    ("Sine", 25, None),
    ("deu waves", 25, 1.0),
)
UNIT_LAYERS: tuple[Layer, ...] = tuple((name, 25, rate) for name in UNITS for rate in (None, 1.0))
ALL_LAYERS = LAYERS + MORE_LAYERS + UNIT_LAYERS


@dataclass(frozen=True)
class Target:
    """A function, its text, and the standard deviation of the noise on what it is learnt from."""

    function: Callable[[Tensor], Tensor]
    text: str
    noise: float = 0.0


def challenging(t: Tensor) -> Tensor:
    """The paper's function, of period 4π, with kinks.

    Example:
        >>> challenging(torch.zeros(1))
        tensor([2.9277])
    """
    waves = (t.sin() - (2 * t).cos().square()) / 2
    return waves + 4 * (1 + (t / 2).sin().arccos()) / 3


def smooth(t: Tensor) -> Tensor:
    """An oscillation that quickens away from 0."""
    return t.sin() * (t.square() / 10).cos()


def kink(t: Tensor) -> Tensor:
    """Straight lines and arches, which meet in kinks."""
    return t.sin().abs() + (t - 3).abs() / 5


def noisy(t: Tensor) -> Tensor:
    """Two waves and a slope."""
    return (2 * t).sin() / 2 + t / 10 + 0.3 * (5 * t).cos()


TARGETS = {
    "challenging": Target(challenging, "(sin t − cos²2t)/2 + 4(1 + arccos(sin(t/2)))/3"),
    "smooth": Target(smooth, "sin t · cos(t²/10)"),
    "kink": Target(kink, "|sin t| + |t − 3|/5"),
    "noisy": Target(noisy, "sin(2t)/2 + t/10 + 0.3·cos(5t), learnt with noise of 0.1", 0.1),
}


def sine_start(linear: nn.Linear, first: bool) -> None:
    """SIREN's start for inputs from -10 to 10, where its authors have -1 to 1.

    Example:
        >>> layer = nn.Linear(1, 50)
        >>> sine_start(layer, first=True)
        >>> bool(layer.weight.abs().max() <= 0.1)
        True
    """
    siren_start_(linear, first)
    if first:
        with torch.no_grad():
            linear.weight /= HIGH


def networks(activation: str, own: Sequence[int], width: int) -> Stacked:
    """A network 1 → width → 1 for each seed, side by side."""
    start: Start | None = sine_start if activation == "Sine" else None
    return Stacked(FACTORIES[activation], own, 1, width, 1, start=start)


def layers(function: str, study: bool) -> tuple[Layer, ...]:
    """What is trained on a function; on the paper's, a study has every start of the units."""
    if not study:
        return LAYERS
    return ALL_LAYERS if function == "challenging" else LAYERS + MORE_LAYERS


def cells(options: Options) -> list[Cell]:
    """Function × activation × learning rate, all seeds of one in one cell."""
    study = options.scope == "study"
    own = seeds(options, SEEDS, quick=4)
    return [
        Cell(
            NAME,
            {
                "function": function,
                "activation": activation,
                "width": width,
                "unit_rate": rate,
                "lr": lr,
                "epochs": 3 if options.quick else EPOCHS,
                "batch": BATCH,
            },
            own,
            options.quick,
        )
        for function in (TARGETS if study else ("challenging",))
        for activation, width, rate in layers(function, study)
        for lr in ((0.01,) if options.quick else RATES)
    ]


def run(cell: Cell, place: Place) -> Outcome:
    """Train a cell's networks."""
    given, number = cell.settings, len(cell.seeds)
    target = TARGETS[given["function"]]
    nets = networks(given["activation"], cell.seeds, given["width"]).to(place.device)
    problem = Regression(
        target.function, LOW, HIGH, seeds=number, steps_an_epoch=STEPS, noise=target.noise
    )
    history = fit(
        cell,
        place,
        nets,
        problem,
        epochs=given["epochs"],
        batch=given["batch"],
        lr=given["lr"],
        unit_rate=given["unit_rate"],
    )
    return outcome(history, nets, number, lines(nets, history[-1]["mse"], LOW, HIGH))


def report(results: list[Result]) -> list[Section]:
    """For each function what the activations come to, each at its best learning rate."""
    from .function_tables import sections

    return sections(results)


EXPERIMENT = Experiment(
    NAME,
    "25 units against 250 ReLU and 250 Maxout in fitting a challenging function",
    "five minutes on two cores",
    cells,
    run,
    report,
)
