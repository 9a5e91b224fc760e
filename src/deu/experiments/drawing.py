"""What pictures share: figures, axes, and one colour for each activation."""

from __future__ import annotations

import importlib
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .summaries import Value, mean_spread

BLUE, RED, GREEN, GREY = "#0072b2", "#d55e00", "#009e73", "#8a8a8a"
ORANGE, SKY, PINK, YELLOW, BLACK = "#e69f00", "#56b4e9", "#cc79a7", "#b8a900", "#222222"

# Colours that are told apart also without red or green; units are red, and solid.
_STYLES: dict[str, tuple[str, str]] = {
    "deu": (RED, "-"),
    "deu waves": (RED, "-"),
    "deu paper": (RED, "--"),
    "deu continuous": (RED, ":"),
    "ReLU": (BLUE, "-"),
    "LeakyReLU": (SKY, "-"),
    "PReLU": (SKY, "--"),
    "ELU": (GREEN, ":"),
    "SELU": (GREEN, "-"),
    "GELU": (PINK, ":"),
    "SiLU": (PINK, "--"),
    "Swish": (PINK, "-"),
    "Maxout": (ORANGE, "-"),
    "Snake": (YELLOW, "-"),
    "Sine": (YELLOW, "--"),
}


def style(activation: str) -> dict[str, Any]:
    """The colour and the line of an activation, the same in every picture, as plot takes them.

    Example:
        >>> style("ReLU")
        {'color': '#0072b2', 'linestyle': '-'}
    """
    colour, line = _STYLES.get(activation, (RED if activation.startswith("deu") else GREY, "-."))
    return {"color": colour, "linestyle": line}


def figure(width: float = 8.0, height: float = 4.5) -> Any:
    """An empty matplotlib figure of so many inches."""
    try:
        module = importlib.import_module("matplotlib.figure")
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"pictures need {error.name}: pip install deu[experiments]", name=error.name
        ) from error
    return module.Figure(figsize=(width, height), dpi=110, layout="constrained", facecolor="white")


def axes(figure: Any, rows: int = 1, columns: int = 1, **options: Any) -> Any:
    """The axes of a figure, (rows, columns) of them; options as of ``Figure.subplots``."""
    found = figure.subplots(rows, columns, squeeze=False, **options)
    for axis in found.flat:
        axis.spines[["top", "right"]].set_visible(False)
        axis.grid(alpha=0.25, linewidth=0.6)
        axis.set_axisbelow(True)
    return found


def band(
    axis: Any, x: Sequence[float], runs: Sequence[Sequence[Value]], label: str, **options: Any
) -> None:
    """The mean of some runs as a line and the spread around it as a band.

    A point where no run is finite is a gap; the label says how many runs end not finite.

    Args:
        axis: to draw on.
        x: where the points are.
        runs: for each seed a value a point.
        label: for the legend.
        options: of the line, such as :func:`style`'s.
    """
    points = [mean_spread([run[i] for run in runs]) for i in range(len(x))]
    means = [mean for mean, _ in points]
    spreads = [0.0 if math.isnan(spread) else spread for _, spread in points]
    lost = sum(run[-1] is None or not math.isfinite(run[-1]) for run in runs if len(run))
    name = f"{label} ({lost} of {len(runs)} not finite)" if lost else label
    (line,) = axis.plot(x, means, label=name, **options)
    low = [mean - spread for mean, spread in zip(means, spreads, strict=True)]
    high = [mean + spread for mean, spread in zip(means, spreads, strict=True)]
    axis.fill_between(x, low, high, color=line.get_color(), alpha=0.15, linewidth=0)


def legend(axis: Any) -> None:
    """A legend to the right of the axis, where it hides nothing."""
    axis.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)


def save(figure: Any, path: Path) -> None:
    """Write a figure as PNG."""
    figure.savefig(path, format="png")
