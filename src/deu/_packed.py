"""A layer of units, and batch norm before it, as one tensor: all that their values need.

A row of float64 for each number, a column for each unit: the normal form, batch norm's mean, scale
and shift, and the five coefficients, where ``_triton.py`` says.  The tensor has the bits of these
numbers as integers, so that ``model.half()`` leaves them what they are.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ._normal_form import normal_form, working_dtype
from ._subspaces import PLACES, Kind, six_numbers
from ._triton import FORM, KIND_STEP, NORM_FORM, NORM_ROWS

# Mean, scale and shift; and the five coefficients.
NORM = slice(NORM_ROWS["mean"], NORM_ROWS["mean"] + 3)
COEFFICIENTS = slice(NORM_ROWS["coefficients"], NORM_FORM)
# Closed forms near a seam lose as many digits of float64 as their numbers have before the point:
# so far they leave those of float32.
_LARGEST = 1e7
_NOT_ZERO = 1e-100  # closed forms divide by c, and their products have none


def packed(
    coefficients: tuple[Tensor, ...],
    solution: str,
    eps: float,
    norm: tuple[Tensor, Tensor, Tensor] | None = None,
) -> Tensor:
    """Rows of numbers for the units; ``norm`` is batch norm's mean, scale and shift, if any.

    The latter are on the CPU.
    """
    if coefficients[0].is_meta:
        raise ValueError(
            "units on the meta device have no numbers to pack; "
            "load the model first, as by to_empty and load_state_dict"
        )
    a, b, c, c1, c2 = (p.detach().to("cpu", torch.float64) for p in coefficients)
    rows = torch.zeros(NORM_FORM, a.numel(), dtype=torch.float64, device="cpu")
    rows[:FORM] = _form(solution, (a, b, c, c1, c2), eps)
    rows[NORM.start + 1] = 1.0
    if norm is not None:
        rows[NORM] = torch.stack(norm)
    rows[COEFFICIENTS] = torch.stack((a, b, c, c1, c2))
    return rows.view(torch.int64).to(coefficients[0].device)


def _form(solution: str, units: tuple[Tensor, ...], eps: float) -> Tensor:
    """Kinds, and the six numbers of the normal forms."""
    form = _numbers(solution, units, eps, 0)
    if solution == "continuous":
        a, b, c, c1, c2 = units
        c = torch.where(c.abs() < _NOT_ZERO, _NOT_ZERO, c)
        closed = _numbers(solution, (a, b, c, c1, c2), eps, 1)
        form = torch.where((closed[1:].abs() <= _LARGEST).all(0), closed, form)
    return form


def _numbers(solution: str, units: tuple[Tensor, ...], eps: float, first: int) -> Tensor:
    a, b, c, c1, c2 = units
    kind, form = normal_form(solution, a, b, c, c1, c2, eps, first)
    found = {place: torch.zeros_like(a) for place in PLACES}
    for k in Kind:
        for place, number in six_numbers(k, form).items():
            found[place] = torch.where(kind == int(k), number, found[place])
    return torch.stack([KIND_STEP * kind.double(), *found.values()])


def rows_of(numbers: Tensor, which: slice) -> Tensor:
    """Some of the rows of packed numbers, in float64 where the device has it."""
    state = torch._C._get_tracing_state()
    if state is not None:  # torch.jit.trace knows no such view: to it they are constants
        torch._C._set_tracing_state(None)  # type: ignore[attr-defined]
        try:
            return rows_of(numbers, which).clone()
        finally:
            torch._C._set_tracing_state(state)  # type: ignore[attr-defined]
    dtype = working_dtype(numbers.device)
    if dtype != torch.float64:
        return numbers[which].cpu().view(torch.float64).to(numbers.device, dtype)
    return numbers.view(torch.float64)[which]
