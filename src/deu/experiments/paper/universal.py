"""The appendix's theorem made real: a layer of units that is a Fourier series.

For each frequency ω the proof takes two units with a = 1/ω², b = 0, c = 1.  The first has the
series' cosine and sine coefficients as c1 and c2, the second has 0 and 0; their difference is the
wave alone, for the step's part is in both.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ...modules import DEU
from .. import drawing
from ..cells import Cell, Result
from ..experiment import Experiment, Options, Outcome, Picture, Place, Section, Table, Text
from ..models import count_parameters
from .fitting import rounded
from .function import challenging

NAME = "universal"
SAMPLES = 4096  # of a period, for its Fourier coefficients
NUMBERS = (1, 2, 4, 8, 16, 32, 64)  # of frequencies
EPS = 1e-9  # a = 1/ω² must not count as zero
DRAWN = (2, 8, 64)


@dataclass(frozen=True)
class Periodic:
    """A function and its period."""

    function: Callable[[Tensor], Tensor]
    period: float
    text: str


def triangle(t: Tensor) -> Tensor:
    """The distance to the nearest multiple of 2π."""
    return (t - 2 * math.pi * (t / (2 * math.pi)).round()).abs()


TARGETS = {
    "smooth": Periodic(lambda t: t.sin().exp(), 2 * math.pi, "e^(sin t)"),
    "triangle": Periodic(triangle, 2 * math.pi, "|t|, of period 2π"),
    "challenging": Periodic(challenging, 4 * math.pi, "the paper's function, of period 4π"),
    "square": Periodic(lambda t: t.sin().sign(), 2 * math.pi, "sign(sin t)"),
}


@dataclass(frozen=True)
class Series:
    """mean + Σ cosines·cos(ωt) + sines·sin(ωt), each a tensor of one number a frequency."""

    mean: float
    omega: Tensor
    cosines: Tensor
    sines: Tensor

    def __call__(self, t: Tensor) -> Tensor:
        angle = t[:, None] * self.omega
        return self.mean + angle.cos() @ self.cosines + angle.sin() @ self.sines


def fourier(target: Periodic, frequencies: int) -> Series:
    """The first terms of a function's Fourier series, from samples of one period.

    Example:
        >>> series = fourier(TARGETS["square"], 3)
        >>> series.omega.tolist(), [round(abs(x), 3) for x in series.sines.tolist()]
        ([1.0, 2.0, 3.0], [1.273, 0.0, 0.424])
    """
    t = target.period * torch.arange(SAMPLES, dtype=torch.float64) / SAMPLES
    found = torch.fft.rfft(target.function(t)) / SAMPLES
    omega = 2 * math.pi / target.period * torch.arange(1, frequencies + 1, dtype=torch.float64)
    own = found[1 : frequencies + 1]
    return Series(found[0].real.item(), omega, 2 * own.real, -2 * own.imag)


@torch.no_grad()
def layer(series: Series) -> nn.Sequential:
    """The proof's network: 1 → two units a frequency → 1, in float64.

    Example:
        >>> net = layer(fourier(TARGETS["triangle"], 8))
        >>> net(torch.zeros(1, 1, dtype=torch.float64)).shape, net[1]
        (torch.Size([1, 1]), DEU(16, ...))
    """
    number = len(series.omega)
    into, out = nn.Linear(1, 2 * number).double(), nn.Linear(2 * number, 1).double()
    units = DEU(2 * number, solution="paper", eps=EPS, bound=math.inf, dtype=torch.float64)
    into.weight.fill_(1)
    into.bias.fill_(0)
    zero = torch.zeros_like(series.omega)
    units.a.copy_((1 / series.omega.square()).repeat(2))
    units.b.fill_(0)
    units.c.fill_(1)
    units.c1.copy_(torch.cat([series.cosines, zero]))
    units.c2.copy_(torch.cat([series.sines, zero]))
    out.weight.copy_(torch.cat([zero + 1, zero - 1])[None])
    out.bias.fill_(series.mean)
    return nn.Sequential(into, units, out).eval()


def cells(options: Options) -> list[Cell]:
    """A function each; there is nothing to train."""
    return [
        Cell(NAME, {"function": name, "frequencies": NUMBERS[-1]}, (0,), options.quick)
        for name in TARGETS
    ]


@torch.no_grad()
def run(cell: Cell, place: Place) -> Outcome:
    """Build each network and measure it, in float64, on the CPU wherever that is."""
    target = TARGETS[cell.settings["function"]]
    t = torch.linspace(-target.period, target.period, 2001, dtype=torch.float64)
    truth = target.function(t)
    history, lines = [], {}
    most = cell.settings["frequencies"]
    for number in (n for n in NUMBERS if n <= most):
        series = fourier(target, number)
        y = layer(series)(t[:, None])[:, 0]
        error = y - truth
        history.append(
            {
                "frequencies": number,
                "units": 2 * number,
                "from_series": [(y - series(t)).abs().max().item()],
                "rms_error": [error.square().mean().sqrt().item()],
                "max_error": [error.abs().max().item()],
            }
        )
        if number in DRAWN:
            lines[str(number)] = rounded(y[::5].tolist(), 4)
    history = rounded(history, 3)
    metrics = {key: value for key, value in history[-1].items() if isinstance(value, list)}
    metrics["from_series"] = [max(record["from_series"][0] for record in history)]
    curves = {"low": -target.period, "high": target.period, "lines": lines}
    return Outcome(
        metrics, history, count_parameters(layer(fourier(target, most))), rounded(curves)
    )


def report(results: list[Result]) -> list[Section]:
    """How far the networks are from the series, and the series from the functions."""
    results = sorted(results, key=lambda r: list(TARGETS).index(r.cell.settings["function"]))
    worst = max(result["from_series"][0] for result in results)
    header = ["function", "frequencies", "units", "from its series, at most"]
    header += ["from the function, RMS", "at most"]
    rows = [
        [
            TARGETS[result.cell.settings["function"]].text,
            str(record["frequencies"]),
            str(record["units"]),
            *(f"{record[key][0]:.1e}" for key in ("from_series", "rms_error", "max_error")),
        ]
        for result in results
        for record in result.history
    ]
    return [
        Text(
            "The appendix proves that networks with units are universal approximators: two units "
            "for each frequency of a function's Fourier series make a network that is the series. "
            "These networks were built that way and not trained. They equal their series to "
            f"{worst:.0e}, which is float64's rounding; what is left against the function is the "
            "series' own error, which falls with its length as fast as the function is smooth (and "
            "not at all at a jump, where the largest error stays)."
        ),
        Table("A layer built from a Fourier series", header, rows),
        Picture("fits", "Networks built from Fourier series", _fits(results)),
        Picture(
            "errors", "The error against the function by the number of units", _errors(results)
        ),
    ]


def _fits(results: Sequence[Result]) -> Callable[[Path], None]:
    def draw(path: Path) -> None:
        figure = drawing.figure(7.5, 1.8 * len(results) + 0.8)
        axes = drawing.axes(figure, len(results), 1)[:, 0]
        for axis, result in zip(axes, results, strict=True):
            target, curves = TARGETS[result.cell.settings["function"]], result.curves
            t = torch.linspace(curves["low"], curves["high"], 1001, dtype=torch.float64)
            axis.plot(t, target.function(t), color=drawing.GREY, linewidth=5, alpha=0.45)
            shades = (drawing.SKY, drawing.BLUE, drawing.RED)
            for (number, line), colour in zip(curves["lines"].items(), shades, strict=False):
                at = torch.linspace(curves["low"], curves["high"], len(line))
                axis.plot(at, line, color=colour, linewidth=1.2, label=f"{2 * int(number)} units")
            axis.set_title(target.text, loc="left", fontsize=10)
            axis.set_xlim(curves["low"], curves["high"])
        axes[-1].set_xlabel("t, two periods")
        handles, labels = axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper center", ncols=3, frameon=False)
        drawing.save(figure, path)

    return draw


def _errors(results: Sequence[Result]) -> Callable[[Path], None]:
    def draw(path: Path) -> None:
        figure = drawing.figure(7.5, 4.6)
        axis: Any = drawing.axes(figure)[0, 0]
        shades = (drawing.RED, drawing.BLUE, drawing.GREEN, drawing.ORANGE)
        for result, colour in zip(results, shades, strict=False):
            units = [record["units"] for record in result.history]
            errors = [record["rms_error"][0] for record in result.history]
            text = TARGETS[result.cell.settings["function"]].text
            axis.loglog(units, errors, "o-", color=colour, markersize=4, label=text)
        first = results[0].history
        axis.loglog(
            [record["units"] for record in first],
            [max(r.history[i]["from_series"][0] for r in results) for i in range(len(first))],
            "s--",
            color=drawing.GREY,
            markersize=4,
            label="network from its series, at most",
        )
        axis.set_xlabel("units")
        axis.set_ylabel("RMS error")
        ticks = [2 * number for number in NUMBERS]
        axis.set_xticks(ticks, [str(tick) for tick in ticks])
        axis.set_xticks([], minor=True)
        figure.legend(loc="outside upper center", ncols=2, frameon=False)
        drawing.save(figure, path)

    return draw


EXPERIMENT = Experiment(
    NAME,
    "The proof made real: a layer built from a Fourier series equals it",
    "seconds",
    cells,
    run,
    report,
)
