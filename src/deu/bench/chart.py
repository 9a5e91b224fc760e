"""The chart of a run, from its rows alone."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .models import CAPTURED, INFERENCE, TRAINING
from .providers import is_ours
from .rows import LEFT_OUT, MEASURED, Row
from .table import QUICK, by_case
from .timing import BACKWARD, BOTH, FORWARD

_COLOURS = {
    FORWARD: "#0072b2",
    BACKWARD: "#d55e00",
    BOTH: "#8a8a8a",
    TRAINING: "#d55e00",
    INFERENCE: "#0072b2",
    CAPTURED[TRAINING]: "#e69f00",
    CAPTURED[INFERENCE]: "#56b4e9",
}
_MARKERS = {FORWARD: "o", BACKWARD: "s", BOTH: "D", TRAINING: "s", INFERENCE: "o"}
_MARKERS |= {CAPTURED[work]: _MARKERS[work] for work in CAPTURED}
_COLUMNS = 3
_KINDS = ("layer", "model")
_BESIDE: dict[str, Any] = {"va": "center", "fontsize": 7.5, "color": "#666666"}
_TICKS = (0.1, 0.2, 0.3, 0.5, 0.7, 1, 1.5, 2, 3, 5, 8)
_FINE_TICKS = (0.8, 0.9, 1, 1.1, 1.2, 1.3, 1.4, 1.5, 1.7, 2)
_HIGHEST = 8  # of what is slower the ratio stands beside the panel


def draw(rows: Sequence[Row], paths: Sequence[Path]) -> None:
    """A panel for each case: every provider's ratio to the base, with its quartiles."""
    figures = importlib.import_module("matplotlib.figure")
    ordered = sorted(rows, key=lambda row: row.kind)  # layers, then models; stable
    cases = {
        case: own
        for case, own in by_case(row for row in ordered if row.status != LEFT_OUT).items()
        if any(_is_drawn(row) for row in own)
    }
    if not cases:
        raise ValueError("there is nothing measured to draw")
    names = list(cases)
    columns = min(_COLUMNS, len(names))
    lines = [names[i : i + columns] for i in range(0, len(names), columns)]
    heights = [max(len(_providers(cases[name])) for name in line) + 3.2 for line in lines]
    figure = figures.Figure(
        figsize=(max(11.0, 5.8 * columns), 0.24 * sum(heights) + 1.3),
        dpi=110,
        layout="constrained",
        facecolor="white",
    )
    grid = figure.add_gridspec(len(lines), columns, height_ratios=heights)
    scales = {kind: _scale([row for row in rows if row.kind == kind]) for kind in _KINDS}
    for i, line in enumerate(lines):
        for j, name in enumerate(line):
            own = cases[name]
            _panel(figure.add_subplot(grid[i, j]), name, own, scales[own[0].kind])
    first = next(row for row in rows if _is_drawn(row))
    title = "deu bench: time as a ratio, median and quartiles (log scale; left is faster)"
    note = f"\n{QUICK}" if first.quick else ""
    figure.suptitle(f"{title}\n{first.device}; {first.versions}; {first.date}{note}", fontsize=11)
    for path in paths:
        figure.savefig(path)


def _is_drawn(row: Row) -> bool:
    return row.status == MEASURED and row.work in _MARKERS and row.ratio > 0


def _providers(rows: Sequence[Row]) -> list[str]:
    return list(dict.fromkeys(row.provider for row in rows))


def _scale(rows: Sequence[Row]) -> tuple[float, float]:
    """One range of ratios for all panels of a kind, so that they can be compared."""
    drawn = [row for row in rows if _is_drawn(row)]
    low = min([0.9, *(row.ratio for row in drawn)]) / 1.1
    high = max([1.5, *(row.ratio for row in drawn), *(r.limit for r in drawn if r.limit > 0)]) * 1.1
    return low, min(high, _HIGHEST)


def _panel(axis: Any, title: str, rows: Sequence[Row], scale: tuple[float, float]) -> None:
    names = _providers(rows)
    place = {name: -i for i, name in enumerate(names)}
    drawn = [row for row in rows if _is_drawn(row)]
    works = list(dict.fromkeys(row.work for row in drawn))
    low, high = scale
    axis.set_xscale("log")
    axis.set_xlim(low, high)
    axis.axvline(1, color="#444444", linewidth=0.9, zorder=1)
    for k, work in enumerate(works):
        own = [row for row in drawn if row.work == work]
        offset = 0.5 / len(works) * ((len(works) - 1) / 2 - k)
        at = [place[row.provider] + offset for row in own]
        colour, marker = _COLOURS[work], _MARKERS[work]
        lows, highs = [row.ratio_low for row in own], [row.ratio_high for row in own]
        axis.hlines(at, lows, highs, color=colour, linewidth=2.4, alpha=0.35, zorder=2)
        ratios = [row.ratio for row in own]
        axis.plot(ratios, at, marker, color=colour, markersize=4.2, label=work, zorder=3)
        limited = [(row.limit, y) for row, y in zip(own, at, strict=True) if row.limit > 0]
        if limited:
            x, y = zip(*limited, strict=True)
            axis.plot(x, y, "|", color=colour, markersize=9, mew=1.8, label=f"limit, {work}")
    for name in names:
        own = [row for row in rows if row.provider == name]
        beyond = [row for row in own if _is_drawn(row) and row.ratio > high]
        if beyond:
            worst = ", ".join(f"{row.work} {row.ratio:.3g}" for row in beyond)
            beside = axis.get_yaxis_transform()  # where nothing is drawn
            axis.text(1.01, place[name], f"▸ {worst}", **_BESIDE, transform=beside)
        elif not any(_is_drawn(row) for row in own):
            axis.text(1.03, place[name], own[0].status, **_BESIDE)
    choice = _TICKS if high > 2.2 else _FINE_TICKS
    ticks = [tick for tick in choice if low <= tick <= high]
    axis.set_xticks(ticks, [f"{tick:g}" for tick in ticks], fontsize=8)
    axis.set_xticks([], minor=True)
    axis.set_ylim(-len(names) + 0.4, 0.6)
    axis.set_yticks([place[name] for name in names], names, fontsize=8)
    for label, name in zip(axis.get_yticklabels(), names, strict=True):
        label.set_fontweight("bold" if is_ours(name) else "normal")
    axis.set_xlabel(f"time / {drawn[0].base}", fontsize=8)
    axis.set_title(title, fontsize=9, loc="left")
    axis.grid(axis="x", alpha=0.25, linewidth=0.6)
    axis.spines[["top", "right"]].set_visible(False)
    # Beside the panel: within it no corner is always free.
    axis.legend(fontsize=6.5, loc="upper left", bbox_to_anchor=(1.01, 1.02), borderpad=0.3)
