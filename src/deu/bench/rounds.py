"""Everybody in turn, round after round, so that a slow moment falls on all; and what it gives."""

from __future__ import annotations

import copy
import math
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from .check import Error
from .rows import WRONG, Row, spread
from .timing import FORWARD, Sample

# Times the base, and seconds: a provider that takes more sits out most rounds.
_SLOW, _SLOW_SECONDS = 20, 0.2
_SLOW_ROUNDS = 5
_LEAST_ROUNDS = 3


class Measurable(Protocol):
    """Something with one timing of each kind of its work."""

    def measure(self) -> dict[str, Sample]: ...


@dataclass
class Clock:
    """How long a run may take; without a budget, for ever."""

    budget: float = math.inf
    start: float = field(default_factory=time.monotonic)

    @property
    def left(self) -> float:
        return self.budget - (time.monotonic() - self.start)


Times = dict[str, dict[int, dict[str, Sample]]]  # provider, round, work


def take_turns(
    subjects: Mapping[str, Measurable],
    seconds: Mapping[str, float],
    base: str,
    rounds: int,
    clock: Clock,
    times: Times,
) -> None:
    """Time everybody in turn and put it into ``times``, which holds what there is if stopped.

    Every round but the first has an order of its own: what a provider leaves behind, in caches and
    in the allocator, costs the next one, and would always cost the same one.

    ``seconds`` is what one timing of each took in its warm-up.
    """
    usual = seconds.get(base, min(seconds.values(), default=0.0))
    every = {
        name: max(1, rounds // _SLOW_ROUNDS) if taken > max(_SLOW * usual, _SLOW_SECONDS) else 1
        for name, taken in seconds.items()
    }
    for round_ in range(rounds):
        if clock.left < 0 and round_ >= _LEAST_ROUNDS:
            return
        order = list(subjects)
        if round_ > 0:
            random.Random(round_).shuffle(order)
        for name in order:
            if round_ % every[name] == 0:
                times.setdefault(name, {})[round_] = subjects[name].measure()


def enough(times: Times, base: str) -> bool:
    """Whether a run that was stopped got far enough to say something."""
    return len(times.get(base, {})) >= _LEAST_ROUNDS


def summarise(
    template: Row,
    times: Times,
    base: str,
    limits: Mapping[str, float],
    errors: Mapping[str, Error],
    is_ours: Callable[[str], bool],
) -> list[Row]:
    """A row for each provider and kind of work: medians, and ratios taken within a round."""
    rows = []
    for name, by_round in times.items():
        for work in next(iter(by_round.values())):
            row = copy.copy(template)
            row.provider, row.work, row.base, row.rounds = name, work, base, len(by_round)
            row.seconds_low, row.seconds, row.seconds_high = spread(
                [samples[work].seconds for samples in by_round.values()]
            )
            row.wall_seconds = spread([s[work].wall for s in by_round.values()]).middle
            if ratios := _over(times, name, base, work):
                row.ratio_low, row.ratio, row.ratio_high = spread(ratios)
            if ratios := _over(times, name, "PReLU", work):
                row.over_prelu_low, row.over_prelu, row.over_prelu_high = spread(ratios)
            if is_ours(name):
                row.limit = limits.get(work, math.nan)
            _put_error(row, errors.get(name))
            rows.append(row)
    return rows


def wrong_row(template: Row, name: str, error: Error) -> Row:
    """The row of a provider that is not timed."""
    row = copy.copy(template)
    row.provider, row.status = name, WRONG
    _put_error(row, error)
    return row


def _put_error(row: Row, error: Error | None) -> None:
    if error is not None:
        row.error, row.error_in, row.error_limit = error.size, error.where, error.limit


def _over(times: Times, name: str, base: str, work: str) -> list[float]:
    ratios = []
    for round_, samples in times[name].items():
        other = times.get(base, {}).get(round_)
        if other is not None:
            # A copy has a forward pass only, and stands beside every kind of work.
            ratios.append(samples[work].seconds / (other.get(work) or other[FORWARD]).seconds)
    return ratios
