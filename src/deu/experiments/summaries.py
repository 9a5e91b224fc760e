"""From results to numbers and their text.

A run that was not finite has NaN, an infinity or ``None`` for a metric.  Nothing here drops it:
means are of the others and :func:`text` says how many there are of it; where runs are ranked it is
the worst there is.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from typing import Any

from .cells import Result

Value = float | None  # a metric of one seed


def finite(values: Iterable[Value]) -> list[float]:
    """The values that are numbers.

    Example:
        >>> finite([1.0, None, float("nan"), 3.0])
        [1.0, 3.0]
    """
    return [value for value in values if value is not None and math.isfinite(value)]


def mean_spread(values: Sequence[Value]) -> tuple[float, float]:
    """The mean and the sample standard deviation of the finite values; NaN where there is none.

    Example:
        >>> mean_spread([1.0, 2.0, 3.0])
        (2.0, 1.0)
        >>> mean_spread([5.0])
        (5.0, nan)
    """
    found = finite(values)
    mean = statistics.fmean(found) if found else math.nan
    return mean, statistics.stdev(found) if len(found) > 1 else math.nan


def text(values: Sequence[Value], digits: int = 1, percent: bool = False) -> str:
    """The mean ± the spread (how many), and how many runs were not finite.

    Args:
        values: a number a seed.
        digits: after the point.
        percent: shares of 1, to be shown as percentages.

    Example:
        >>> text([0.922, 0.924], percent=True)
        '92.3 ± 0.1 (2)'
        >>> text([0.5, None, 0.7], digits=2)
        '0.60 ± 0.14 (2; 1 of 3 not finite)'
        >>> text([3.0]), text([None, None]), text([])
        ('3.0 (1)', '2 of 2 not finite', 'no runs')
    """
    if not values:
        return "no runs"
    found = finite(values)
    lost = f"{len(values) - len(found)} of {len(values)} not finite"
    if not found:
        return lost
    scale = 100 if percent else 1
    mean, spread = (scale * number for number in mean_spread(values))
    around = "" if math.isnan(spread) else f" ± {spread:.{digits}f}"
    count = str(len(found)) if len(found) == len(values) else f"{len(found)}; {lost}"
    return f"{mean:.{digits}f}{around} ({count})"


def median(values: Sequence[Value], higher: bool = False) -> float:
    """The middle one, with runs that were not finite as the worst.

    Args:
        values: a number a seed.
        higher: whether more is better, as for accuracies.

    Example:
        >>> median([3.0, 1.0, None]), median([1.0, None, None]), median([3.0, 1.0, None], True)
        (3.0, inf, 1.0)
    """
    worst = -math.inf if higher else math.inf
    ranked = sorted([*finite(values), *[worst] * (len(values) - len(finite(values)))])
    return statistics.median(ranked) if ranked else math.nan


def share_below(values: Sequence[Value], limit: float) -> float:
    """The share of all runs whose value is below a limit; one that was not finite is not.

    Example:
        >>> share_below([0.1, 0.2, 0.9, None], 0.5)
        0.5
    """
    return sum(value < limit for value in finite(values)) / len(values) if values else math.nan


def flat(results: Iterable[Result], metric: str) -> list[Value]:
    """A metric of all seeds of all results, one after another.

    Example:
        >>> from deu.experiments.cells import Cell
        >>> one = Result(Cell("circles", {}, (0, 1)), {"accuracy": [0.9, 1.0]})
        >>> flat([one, one], "accuracy")
        [0.9, 1.0, 0.9, 1.0]
    """
    values: list[Value] = []
    for result in results:
        if metric not in result.metrics:
            raise KeyError(
                f"no metric {metric!r} in the result {result.cell.experiment} {result.cell.label}; "
                f"it has {', '.join(result.metrics) or 'none'}"
            )
        values += result.metrics[metric]
    return values


def group(results: Iterable[Result], *keys: str) -> dict[Any, list[Result]]:
    """Results by their settings, in the order in which they come.

    The keys of what is returned are as :func:`operator.itemgetter` makes them: a setting's value
    for one name, a tuple of values for more. A setting that a result does not have is ``None``;
    a list is a tuple.

    Example:
        >>> from deu.experiments.cells import Cell
        >>> made = [Result(Cell("x", {"activation": "deu", "lr": lr}), {}) for lr in (0.1, 0.2)]
        >>> list(group(made, "activation")), list(group(made, "activation", "lr"))
        (['deu'], [('deu', 0.1), ('deu', 0.2)])
    """
    groups: dict[Any, list[Result]] = {}
    for result in results:
        values = tuple(_hashable(result.cell.settings.get(key)) for key in keys)
        groups.setdefault(values[0] if len(keys) == 1 else values, []).append(result)
    return groups


def _hashable(value: Any) -> Any:
    if isinstance(value, dict):
        return tuple((key, _hashable(own)) for key, own in value.items())
    return tuple(map(_hashable, value)) if isinstance(value, list | tuple) else value


def best_rate(
    results: Iterable[Result],
    metric: str,
    higher: bool = True,
    *,
    by: Sequence[str] = ("activation",),
    rate: str = "lr",
) -> dict[Any, Any]:
    """Each group's learning rate with the best mean over seeds.

    A rate with a run that was not finite loses to every rate without one; then the smaller share
    of them wins. Of equals the first is taken.

    Args:
        results: of all rates.
        metric: what is compared.
        higher: whether more of it is better.
        by: the settings that make a group, as :func:`group` takes them.
        rate: the setting to choose.

    Example:
        >>> from deu.experiments.cells import Cell
        >>> def made(lr, value):
        ...     return Result(Cell("x", {"activation": "deu", "lr": lr}), {"accuracy": [value]})
        >>> best_rate([made(0.1, 0.8), made(0.2, 0.9), made(0.3, None)], "accuracy")
        {'deu': 0.2}
    """
    chosen = {}
    for key, own in group(results, *by).items():
        rates = {lr: flat(some, metric) for lr, some in group(own, rate).items()}
        chosen[key] = max(rates, key=lambda lr: _rank(rates[lr], higher))
    return chosen


def _rank(values: Sequence[Value], higher: bool) -> tuple[float, float]:
    found = finite(values)
    if not found:
        return -math.inf, 0.0
    mean = statistics.fmean(found)
    return len(found) / len(values), mean if higher else -mean


def best_results(
    results: Iterable[Result],
    metric: str,
    higher: bool = True,
    *,
    by: Sequence[str] = ("activation",),
    rate: str = "lr",
) -> dict[Any, list[Result]]:
    """Each group's results at its best learning rate; arguments as of :func:`best_rate`.

    Example:
        >>> from deu.experiments.cells import Cell
        >>> def made(lr, value):
        ...     return Result(Cell("x", {"activation": "deu", "lr": lr}), {"loss": [value]})
        >>> best = best_results([made(0.1, 0.8), made(0.2, 0.9)], "loss", higher=False)
        >>> flat(best["deu"], "loss")
        [0.8]
    """
    everything = list(results)
    rates = best_rate(everything, metric, higher, by=by, rate=rate)
    return {key: group(own, rate)[rates[key]] for key, own in group(everything, *by).items()}
