"""The table of subspaces evaluated on tensors: one normal form a neuron, in float64."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ._subspaces import SOLUTIONS, Form


class _TorchMath:
    """The functions that the rows of the table may use, for tensors."""

    sqrt = staticmethod(torch.sqrt)
    abs = staticmethod(torch.abs)
    sign = staticmethod(torch.sign)
    where = staticmethod(torch.where)

    @staticmethod
    def zero(p: Tensor) -> Tensor:
        return p == 0

    @staticmethod
    def true(p: Tensor) -> Tensor:
        return torch.ones_like(p, dtype=torch.bool)


_math: Any = _TorchMath


def working_dtype(device: torch.device) -> torch.dtype:
    """float64, but on devices that have none."""
    return torch.float32 if device.type == "mps" else torch.float64


def singular(p: Tensor, eps: float) -> Tensor:
    """Which coefficients count as zero."""
    return p.abs() < eps


def straight_through(value: Tensor, source: Tensor) -> Tensor:
    """``value``, with the gradient of ``source``."""
    return value.detach() + (source - source.detach())


def classify(
    solution: str, a: Tensor, b: Tensor, c: Tensor, eps: float, first: int = 0
) -> list[Tensor]:
    """For each row of the table from ``first`` on, which neurons it holds for: each has one."""
    rows, snap = SOLUTIONS[solution]
    a, b, c = snap(_math, a.detach(), b.detach(), c.detach(), eps)
    free = torch.ones_like(a, dtype=torch.bool)
    held = []
    for row in rows[first:]:
        here = free & row.when(_math, a, b, c, eps)
        held.append(here)
        free = free & ~here
    held[-1] = held[-1] | free  # a NaN coefficient satisfies no comparison, and shows in the value
    return held


def normal_form(
    solution: str,
    a: Tensor,
    b: Tensor,
    c: Tensor,
    c1: Tensor,
    c2: Tensor,
    eps: float,
    first: int = 0,
) -> tuple[Tensor, Form]:
    """Kind and normal form of each neuron, differentiable in the five coefficients.

    Arguments are float64 tensors of one shape.  A coefficient that counts as zero in the paper's
    solution gets no gradient here; ``deu.reference`` adds what outward gravitation gives it.  Rows
    before ``first`` are passed over.
    """
    rows, snap = SOLUTIONS[solution]
    snapped = snap(_math, a, b, c, eps)
    live = [
        straight_through(
            v, torch.where(singular(p, eps), p.detach(), p) if solution == "paper" else p
        )
        for v, p in zip(snapped, (a, b, c), strict=True)
    ]
    kind = torch.zeros_like(a, dtype=torch.int64)
    total = [torch.zeros_like(a) for _ in Form._fields]
    for row, here in zip(rows[first:], classify(solution, a, b, c, eps, first), strict=True):
        safe = [torch.where(here, p, float(v)) for p, v in zip(live, row.inside, strict=True)]
        forced = row.force(_math, *safe)
        safe = [straight_through(v, p) for v, p in zip(forced, safe, strict=True)]
        safe += [torch.where(here, p, 0.0) for p in (c1, c2)]
        kind = torch.where(here, int(row.kind), kind)
        for i, number in enumerate(row.solve(_math, *safe)):
            if isinstance(number, Tensor):
                total[i] = torch.where(here, number, total[i])
    return kind, Form(*total)
