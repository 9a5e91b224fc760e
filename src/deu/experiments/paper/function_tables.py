"""The report of ``function``: errors, how dependable they are, pictures."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from .. import drawing
from ..cells import Result
from ..experiment import Picture, Section, Table, Text
from ..summaries import best_results, finite, flat, group, mean_spread, median
from ..tables import QUICK_WORDS
from .fitting import in_order, places
from .function import ALL_LAYERS, HIGH, LOW, TARGETS, UNIT_LAYERS, Layer
from .names import shown

Best = dict[Layer, list[Result]]  # at the best learning rate


def sections(results: list[Result]) -> list[Section]:
    """For each function what the activations come to, each at its best learning rate."""
    found_sections: list[Section] = [
        Text(
            "One hidden layer, trained on points drawn from -10 to 10; the error is the mean "
            "squared one against the function itself on 2001 points. Every activation was trained "
            "at the same learning rates, and is shown at the one of its least mean error. The "
            "paper gives a picture and no numbers: in it 25 units fit the function “much more "
            "accurately” than 250 ReLU or 250 Maxout."
        )
    ]
    for function, own in in_order(group(results, "function"), list(TARGETS)).items():
        found = best_results(own, "mse", higher=False, by=("activation", "width", "unit_rate"))
        best: Best = in_order(found, ALL_LAYERS)
        drawn = {layer: some for layer, some in best.items() if layer not in UNIT_LAYERS}
        rows = [_row(layer, some) for layer, some in best.items()]
        header = ["activation", "hidden", "parameters", "learning rate"]
        header += ["MSE, mean ± spread (n)", "median", "least"]
        title = f"{function}: {TARGETS[function].text}"
        found_sections += [
            Table(f"Fitting “{function}”", header, rows),
            Text(QUICK_WORDS if own[0].cell.quick else words(function, best)),
            *dependable(function, own),
            Picture(function, title, _fits(function, drawn)),
            Picture(f"{function}-errors", f"{title}: the errors of all seeds", _errors(best)),
        ]
    return found_sections


def _row(layer: Layer, own: list[Result]) -> list[str]:
    errors = flat(own, "mse")
    mean, spread = mean_spread(errors)
    lost = len(errors) - len(finite(errors))
    count = f"{len(errors)}" + (f"; {lost} not finite" if lost else "")
    return [
        _name(layer),
        str(layer[1]),
        f"{own[0].parameters:,}",
        f"{own[0].cell.settings['lr']:g}",
        f"{mean:.2g} ± {spread:.2g} ({count})",
        f"{median(errors):.2g}",
        f"{min(finite(errors), default=math.nan):.2g}",
    ]


def words(function: str, best: Best) -> str:
    """Who has the least median error, and how the units compare with every other activation."""
    medians = {key: median(flat(own, "mse")) for key, own in best.items()}
    ours = [key for key in medians if key[0].startswith("deu")]
    if not ours or len(medians) == len(ours):
        return "There is nothing to compare yet: units or other activations have not been run."
    unit, least = min(ours, key=medians.__getitem__), min(medians, key=medians.__getitem__)
    parts = [
        f"that of {_layer(key)} is {_times(error / medians[unit])}"
        for key, error in medians.items()
        if key not in ours
    ]
    verdict = (
        "The units have the least."
        if least == unit
        else f"The units fall short of {_layer(least)}, which have the least."
    )
    return (
        f"The median error on “{function}” is {medians[unit]:.2g} with {_layer(unit)}; "
        f"{'; '.join(parts)}. {verdict}"
    )


def _times(ratio: float) -> str:
    """How many times an error another is, to two digits.

    Example:
        >>> _times(0.0261), _times(1.04), _times(9.96)
        ('0.026 times that', 'about the same', '10 times that')
        >>> _times(126.0), _times(3234.0), _times(math.inf)
        ('130 times that', '3,200 times that', 'not finite')
    """
    if not math.isfinite(ratio):
        return "not finite"
    rounded = float(f"{ratio:.2g}")
    if rounded == 1:
        return "about the same"
    return f"{rounded:,.0f} times that" if rounded >= 10 else f"{rounded:g} times that"


def _name(layer: Layer) -> str:
    return shown(layer[0]) + ("" if layer[2] is None else " at the weights' rate")


def _layer(layer: Layer) -> str:
    return f"{layer[1]} {_name(layer)}"


BASELINES = (("ReLU", 250), ("Maxout", 250))


def dependable(function: str, results: list[Result]) -> list[Section]:
    """How dependably 25 units beat 250 ReLU and 250 Maxout, each at its best median."""
    medians: dict[Any, dict[float, float]] = {}
    for key, own in group(results, "activation", "width", "unit_rate").items():
        medians[key] = {lr: median(flat(some, "mse")) for lr, some in group(own, "lr").items()}
    others = {key: min(found.values()) for key, found in medians.items() if key[:2] in BASELINES}
    if len(others) < len(BASELINES):
        return []
    least = min(others.values())
    rows = []
    for key, found in medians.items():
        if not key[0].startswith("deu"):
            continue
        lr = min(found, key=found.__getitem__)
        errors = flat(
            group(group(results, "activation", "width", "unit_rate")[key], "lr")[lr], "mse"
        )
        close = sum(error is not None and error <= least / 10 for error in errors)
        worse = sum(error is None or error > least for error in errors)
        rows.append(
            [
                _name(key),
                f"{lr:g}",
                f"{found[lr]:.2g}",
                f"1/{least / found[lr]:.0f}",
                f"{close} of {len(errors)}",
                str(worse),
            ]
        )
    told = ", ".join(f"{width} {name} {others[name, width, None]:.2g}" for name, width in BASELINES)
    header = ["units", "learning rate", "median MSE", "of the lesser of theirs"]
    header += ["seeds at or under 1/10 of it", "seeds above it"]
    return [Table(f"Dependable? “{function}”: best medians of others: {told}", header, rows)]


def _fits(function: str, best: Best) -> Callable[[Path], None]:
    def draw(path: Path) -> None:
        figure = drawing.figure(7.5, 1.8 * len(best) + 0.8)
        axes = drawing.axes(figure, len(best), 1, sharex=True, sharey=True)[:, 0]
        t = torch.linspace(LOW, HIGH, 1001)
        truth = TARGETS[function].function(t)
        for axis, (key, own) in zip(axes, best.items(), strict=True):
            curves = own[0].curves
            colour = drawing.style(key[0])["color"]
            axis.plot(t, truth, color=drawing.GREY, linewidth=4, alpha=0.5, label="the function")
            axis.plot(places(curves), curves["median"], color=colour, label="median seed")
            axis.plot(places(curves), curves["best"], ":", color=drawing.BLACK, label="best seed")
            error = median(flat(own, "mse"))
            axis.set_title(f"{_layer(key)}, median MSE {error:.2g}", loc="left", fontsize=10)
        low, high = truth.min().item(), truth.max().item()
        axes[0].set_ylim(low - 0.15 * (high - low), high + 0.15 * (high - low))
        axes[0].set_xlim(LOW, HIGH)
        axes[-1].set_xlabel("t")
        handles, labels = axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper center", ncols=3, frameon=False)
        drawing.save(figure, path)

    return draw


def _errors(best: Best) -> Callable[[Path], None]:
    def draw(path: Path) -> None:
        figure = drawing.figure(7.5, 0.42 * len(best) + 1.3)
        axis = drawing.axes(figure)[0, 0]
        for place, (key, own) in enumerate(best.items()):
            _strip(axis, -place, finite(flat(own, "mse")), drawing.style(key[0])["color"])
        axis.set_xscale("log")
        axis.set_yticks([-place for place in range(len(best))], [_layer(key) for key in best])
        axis.set_ylim(-len(best) + 0.4, 0.6)
        axis.set_xlabel("mean squared error; a point a seed, a bar the median")
        drawing.save(figure, path)

    return draw


def _strip(axis: Any, place: float, values: list[float], colour: str) -> None:
    """The values as points, which are moved a little apart, and their median as a bar."""
    if not values:
        return
    apart = [place + 0.13 * ((7 * i) % 5 - 2) / 2 for i in range(len(values))]
    axis.plot(values, apart, "o", color=colour, markersize=4, alpha=0.5, markeredgewidth=0)
    axis.plot([median(values)] * 2, [place - 0.3, place + 0.3], color=colour, linewidth=2.5)
