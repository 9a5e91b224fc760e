"""The table that sets our numbers beside the paper's, and what it says in words."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

from .experiment import Table, Text
from .summaries import Value, finite, mean_spread, text

BETTER, EQUAL, WORSE, UNSTABLE = "better", "equal", "worse", "unstable"
NOT_IN_PAPER, NOT_RUN, QUICK = "not in the paper", "not run", "quick run"
QUICK_WORDS = "A quick run: nothing here is to be compared with the paper."
HEADER = ["", "paper", "ours, mean ± spread (n)", "difference", "verdict"]


@dataclass(frozen=True)
class PaperRow:
    """One number of the paper and ours over seeds.

    Args:
        label: the row's name.
        paper: the number as the paper prints it, best as text, for ``"0.500"`` keeps its digits;
            ``None`` where it prints none.
        ours: a number a seed, ``None`` for a run that was not finite; none at all if not run.
        reason: why the paper's or ours is missing, in words.
        digits: of ours, after the point.
        percent: ours are shares of 1; the paper's number is a percentage already.
        higher: whether more is better.
    """

    label: str
    paper: str | float | None
    ours: Sequence[Value]
    reason: str = ""
    digits: int = 1
    percent: bool = False
    higher: bool = True

    @property
    def difference(self) -> float:
        """Our mean less the paper's number; NaN where one is missing."""
        if self.paper is None:
            return math.nan
        return (100 if self.percent else 1) * mean_spread(self.ours)[0] - float(self.paper)

    @property
    def verdict(self) -> str:
        """In a word.

        ``equal`` is a difference of at most our spread, or of at most half of the last digit that
        the paper prints; ``unstable``, that a run was not finite.

        Example:
            >>> PaperRow("ReLU", "98.1", [0.984, 0.986], percent=True).verdict
            'better'
            >>> PaperRow("ReLU", "98.1", [0.98, 0.983], percent=True).verdict
            'equal'
        """
        if not self.ours:
            return self.reason or NOT_RUN
        if self.paper is None:
            return self.reason or NOT_IN_PAPER
        if len(finite(self.ours)) < len(self.ours):
            return UNSTABLE
        spread = (100 if self.percent else 1) * mean_spread(self.ours)[1]
        exponent = Decimal(str(self.paper)).as_tuple().exponent
        rounding = 0.5 * 10.0**exponent if isinstance(exponent, int) else 0.0
        room = rounding if math.isnan(spread) else max(rounding, spread)
        if abs(self.difference) <= room * (1 + 1e-9):
            return EQUAL
        return BETTER if (self.difference > 0) == self.higher else WORSE


def paper_table(title: str, rows: Sequence[PaperRow], quick: bool = False) -> Table:
    """The paper's numbers beside ours: name | paper | ours | difference | verdict.

    A quick run is shown beside the paper and not judged by it.

    Example:
        >>> rows = [PaperRow("MLP", "98.1", [98.4, 98.6]), PaperRow("CNN", None, [99.0, 99.0])]
        >>> for row in paper_table("MNIST", rows).rows:
        ...     print(" | ".join(row))
        MLP | 98.1 | 98.5 ± 0.1 (2) | +0.4 | better
        CNN | – | 99.0 ± 0.0 (2) | – | not in the paper
    """
    lines = []
    for row in rows:
        paper = "–" if row.paper is None else str(row.paper)
        ours = text(row.ours, row.digits, row.percent) if row.ours else "–"
        apart = "–" if math.isnan(row.difference) else _signed(row.difference, row.digits)
        verdict = QUICK if quick and _is_judged(row) else row.verdict
        lines.append([row.label, paper, ours, apart, verdict])
    return Table(title, list(HEADER), lines)


def _signed(number: float, digits: int) -> str:
    rounded = round(number, digits)
    return f"{rounded:+.{digits}f}" if rounded else f"{0:.{digits}f}"


def _is_judged(row: PaperRow) -> bool:
    return row.paper is not None and bool(row.ours)


def paper_words(rows: Sequence[PaperRow], quick: bool = False, why: str = "") -> Text:
    """What :func:`paper_table` shows, in words: above all where ours falls short, and how far.

    ``why`` is said where it does: the most likely reason, and what was tried.

    Example:
        >>> rows = [PaperRow("MLP", "98.1", [98.4, 98.6]), PaperRow("CNN", "99.2", [99.0, 99.1])]
        >>> paper_words(rows).text
        'Of 2 numbers of the paper ours is better in 1, equal in 0 and worse in 1. ...'
    """
    judged = [row for row in rows if _is_judged(row)]
    if quick:
        return Text(QUICK_WORDS)
    if not judged:
        return Text("The paper has no numbers to compare these with.")
    by = {v: [r for r in judged if r.verdict == v] for v in (BETTER, EQUAL, WORSE, UNSTABLE)}
    sentences = [
        f"Of {len(judged)} number{'s' * (len(judged) > 1)} of the paper ours is "
        f"better in {len(by[BETTER])}, equal in {len(by[EQUAL])} and worse in {len(by[WORSE])}."
    ]
    if by[WORSE]:
        told = (
            f"{r.label} ({text(r.ours, r.digits, r.percent)}, paper {r.paper})" for r in by[WORSE]
        )
        sentences.append(f"Ours falls short in: {'; '.join(told)}.")
        if why:
            sentences.append(why)
    if by[UNSTABLE]:
        told = (f"{r.label} ({text(r.ours, r.digits, r.percent)})" for r in by[UNSTABLE])
        sentences.append(f"Runs that were not finite, so not judged: {'; '.join(told)}.")
    missing = [row for row in rows if row.paper is not None and not row.ours]
    if missing:
        told = (f"{row.label} ({row.verdict})" for row in missing)
        sentences.append(f"In the paper and not here: {'; '.join(told)}.")
    return Text(" ".join(sentences))
