"""The hyperparameters of a unit, checked once."""

from __future__ import annotations

import functools
import math
from typing import NamedTuple

from ._subspaces import SOLUTIONS


class Settings(NamedTuple):
    """What a call needs beside its tensors.  ``max_grad_norm`` is infinite for "never"."""

    dim: int
    solution: str
    eps: float
    sharpness: float
    max_exponent: float
    bound: float
    max_grad_norm: float
    training: bool

    def packed(self) -> str:
        """All of it in one text: operators take eight arguments in the time of three tensors."""
        dim, solution, *numbers, training = self
        return f"{int(dim)} {solution} {' '.join(repr(float(x)) for x in numbers)} {int(training)}"


@functools.lru_cache
def unpacked(text: str) -> Settings:
    """The settings that were packed."""
    dim, solution, *rest = text.split()
    eps, sharpness, max_exponent, bound, max_grad_norm, training = map(float, rest)
    limits = max_exponent, bound, max_grad_norm
    return Settings(int(dim), solution, eps, sharpness, *limits, bool(training))


def check_settings(
    solution: str,
    eps: float,
    sharpness: float,
    max_exponent: float,
    bound: float,
    max_grad_norm: float | None,
) -> None:
    """Raise a ValueError that names the first hyperparameter that makes no unit."""
    if solution not in SOLUTIONS:
        raise ValueError(f"solution must be one of {', '.join(SOLUTIONS)}; got {solution!r}")
    if not (eps > 0 and math.isfinite(eps)):
        raise ValueError(f"eps must be a positive number; got {eps!r}")
    if not (sharpness > 0 and math.isfinite(sharpness)):
        raise ValueError(f"sharpness must be a positive number; got {sharpness!r}")
    if not max_exponent >= 1:
        raise ValueError(f"max_exponent must be at least 1; got {max_exponent!r}")
    if not bound > 0:
        raise ValueError(f"bound must be positive; got {bound!r}")
    if max_grad_norm is not None and not max_grad_norm > 0:
        raise ValueError(
            f"max_grad_norm must be positive, or None for no limit; got {max_grad_norm!r}"
        )
