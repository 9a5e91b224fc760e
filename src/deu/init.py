"""Where units start: by name, or fitted to any function.

- ``gelu``: two real roots, GELU within 0.15 on [-3, 3]: nearly 0 to the left (-0.25 far out in the
  paper's solution), a soft bend at 0, a slope of about 1 that slowly gives way.
- ``waves``: frequencies ω spread over the layer, log-spaced from 0.5 to 12: c = 30, a = 30/ω²,
  b = 6/ω, c1 and c2 uniform in ±0.2. Lightly damped oscillations, in which the step hardly shows;
  and so stiff that an optimiser's steps, which are alike for all parameters, move them gently.
- ``random``, the paper's: a, b, c uniform in (0, 1), c1 = c2 = 0.
- ``spread``: frequencies ω spread over the layer, log-spaced from 0.5 to 8: c = 1, a = 1/ω²,
  b = 0.2/ω, c1 and c2 uniform in ±0.5. Lightly damped oscillations.
- ``relu``: (0, 1, 0, 0, 0). ReLU, exactly. In the continuous solution a is kept at eps, and the
  unit lies below ReLU by at most eps: ReLU in the limit of small eps.
- ``requ``: (1/2, 0, 0, 0, 0). ReLU², exactly.
- ``sigmoid``: (0, 0, 1, 0, 0). σ(sharpness·t), exactly. The continuous solution does not have
  it: there the unit is fitted to σ(t), with the error that the layer's ``fit`` tells.
- ``sine``: (1000, 0, 1000, 0, 1). sin t + u(t)·(1 - cos t)/1000: sine in the limit of large a = c,
  off by at most 0.002.
- ``identity``: (1000, 0, 0, 1, 0), c1 and c2 swapped in the continuous solution. t + u(t)·t²/2000:
  the identity in the limit of large a.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from . import functional

_LARGE = 1000.0
_CANDIDATES, _STEPS = 64, 400


@dataclass(frozen=True)
class Fit:
    """Five coefficients fitted to a function over a range, and how far off they are.

    ``max_error`` and ``rms_error`` are absolute, over the range.
    """

    name: str
    solution: str
    coefficients: tuple[float, float, float, float, float]
    low: float
    high: float
    max_error: float
    rms_error: float


def fit(
    function: Callable[[Tensor], Tensor],
    low: float = -3.0,
    high: float = 3.0,
    *,
    solution: str = "continuous",
    eps: float = 0.01,
    sharpness: float = 100.0,
    max_exponent: float = 1.0,
) -> Fit:
    """The unit nearest to ``function`` in the least-squares sense over ``[low, high]``.

    c1 and c2 enter a unit linearly, so they are solved for; a, b and c are searched over a grid
    of signs and magnitudes and the best candidates refined by gradient descent.

    Args:
        function: takes a 1-D tensor of inputs to a tensor of the same shape.
        low, high: the range.
        solution, eps, sharpness, max_exponent: those of the layer that will start from it.

    Example:
        >>> near_tanh = fit(torch.tanh)
        >>> near_tanh.max_error < 0.2
        True
    """
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise ValueError(
            f"the range to fit over must be finite, with low < high; got low={low}, high={high}"
        )
    t = torch.linspace(low, high, 257, dtype=torch.float64)
    target = function(t)
    if not isinstance(target, Tensor):
        raise TypeError(
            f"the function to fit must return a tensor; it returned {type(target).__name__}"
        )
    target = target.detach().to(torch.float64)
    if target.shape != t.shape or not target.isfinite().all():
        raise ValueError(
            f"the function to fit must take {tuple(t.shape)} finite numbers to as many; "
            f"it gave shape {tuple(target.shape)}"
            + ("" if target.isfinite().all() else " with values that are not finite")
        )
    search = _Search(t, target, solution, eps, sharpness, max_exponent)
    coefficients = search.run()
    error = search.unit(coefficients) - target
    return Fit(
        getattr(function, "__name__", type(function).__name__),
        solution,
        tuple(coefficients.flatten().tolist()),
        low,
        high,
        error.abs().max().item(),
        error.square().mean().sqrt().item(),
    )


class _Search:
    """Variable projection: a, b, c by grid and descent, c1 and c2 by linear least squares."""

    def __init__(
        self,
        t: Tensor,
        target: Tensor,
        solution: str,
        eps: float,
        sharpness: float,
        max_exponent: float,
    ) -> None:
        self.t, self.target, self.eps = t, target, eps
        self.solution = solution
        self.options: dict[str, Any] = {
            "solution": solution,
            "eps": eps,
            "sharpness": sharpness,
            "max_exponent": max_exponent,
            "bound": math.inf,
            "max_grad_norm": None,
        }

    def values(self, abc: Tensor, c1: Tensor, c2: Tensor) -> Tensor:
        """y of many units at every t: (len(t), units)."""
        grid = self.t[:, None].expand(-1, abc.shape[1])
        a, b, c = abc
        return functional.deu(grid, a, b, c, c1, c2, **self.options)

    def unit(self, coefficients: Tensor) -> Tensor:
        return self.values(coefficients[:3, None], coefficients[3:4], coefficients[4:5])[:, 0]

    def project(self, abc: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The best c1 and c2 of each candidate, and its mean squared error."""
        zero, one = torch.zeros_like(abc[0]), torch.ones_like(abc[0])
        f = self.values(abc, zero, zero)
        f1, f2 = self.values(abc, one, zero) - f, self.values(abc, zero, one) - f
        rest = self.target[:, None] - f
        m11, m12, m22 = (f1 * f1).sum(0), (f1 * f2).sum(0), (f2 * f2).sum(0)
        ridge = 1e-9 * (1 + m11 + m22)
        m11, m22 = m11 + ridge, m22 + ridge
        r1, r2 = (f1 * rest).sum(0), (f2 * rest).sum(0)
        determinant = m11 * m22 - m12 * m12
        c1, c2 = (m22 * r1 - m12 * r2) / determinant, (m11 * r2 - m12 * r1) / determinant
        return c1, c2, (f + c1 * f1 + c2 * f2 - self.target[:, None]).square().mean(0)

    @torch.enable_grad()
    def run(self) -> Tensor:
        with torch.no_grad():
            sizes = torch.logspace(-1.5, 2, 8, dtype=torch.float64)
            signed = torch.cat([-sizes.flip(0), torch.zeros(1, dtype=torch.float64), sizes])
            abc = torch.cartesian_prod(signed, signed, signed).T
            errors = self.project(abc)[2]
            best = errors.nan_to_num(math.inf).argsort()[:_CANDIDATES]
        abc = abc[:, best].clone().requires_grad_()
        kept = self._best(abc.detach())
        optimiser = torch.optim.Adam([abc], lr=0.05)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, _STEPS)
        for _ in range(_STEPS):
            optimiser.zero_grad()
            # The logarithm gives every candidate a step of its own size.
            (self.project(abc)[2] + 1e-12).log().sum().backward()
            optimiser.step()
            schedule.step()
        refined = self._best(abc.detach())
        return refined[1] if refined[0] < kept[0] else kept[1]

    @torch.no_grad()
    def _best(self, abc: Tensor) -> tuple[float, Tensor]:
        c1, c2, errors = self.project(abc)
        i = int(errors.nan_to_num(math.inf).argmin())
        return errors[i].item(), torch.stack([*abc[:, i], c1[i], c2[i]])


@lru_cache(maxsize=8)
def _smooth_sigmoid(eps: float, max_exponent: float) -> Fit:
    return fit(torch.sigmoid, solution="continuous", eps=eps, max_exponent=max_exponent)


def _random(n: int, solution: str) -> tuple[Tensor, ...]:
    # 1 - U has U's distribution without its 0.
    a, b, c = (1 - torch.rand(3, n, dtype=torch.float64)).unbind()
    return a, b, c, torch.zeros(n), torch.zeros(n)


def _oscillations(
    stiffness: float, fastest: float, size: float
) -> Callable[[int, str], tuple[Tensor, ...]]:
    """Frequencies log-spaced from 0.5 to ``fastest``, a tenth of critically damped."""
    low, high = math.log(0.5), math.log(fastest)

    def start(n: int, solution: str) -> tuple[Tensor, ...]:
        middle = [(low + high) / 2]
        steps = [low + (high - low) * i / (n - 1) for i in range(n)] if n > 1 else middle
        omega = torch.tensor(steps, dtype=torch.float64).exp()
        c1, c2 = (2 * size * (torch.rand(2, n, dtype=torch.float64) - 0.5)).unbind()
        c = torch.full((n,), stiffness, dtype=torch.float64)
        return stiffness * omega**-2, 0.2 * stiffness / omega, c, c1, c2

    return start


def _constant(*coefficients: float) -> Callable[[int, str], tuple[Tensor, ...]]:
    return lambda n, solution: tuple(torch.full((n,), v, dtype=torch.float64) for v in coefficients)


def _identity(n: int, solution: str) -> tuple[Tensor, ...]:
    slope = (1.0, 0.0) if solution == "paper" else (0.0, 1.0)
    return _constant(_LARGE, 0, 0, *slope)(n, solution)


def _gelu(n: int, solution: str) -> tuple[Tensor, ...]:
    a, b, c, value, slope = 0.14, 0.874, 0.038, -0.09, 0.005
    if solution == "continuous":
        return _constant(a, b, c, value, slope)(n, solution)
    # The paper's c1 and c2 are the sizes of the two exponentials.
    root = math.sqrt(b * b - 4 * a * c)
    r1, r2 = -(b + root) / (2 * a), (root - b) / (2 * a)
    c1 = (r2 * value - slope) / (r2 - r1)
    return _constant(a, b, c, c1, value - c1)(n, solution)


NAMED: dict[str, Callable[[int, str], tuple[Tensor, ...]]] = {
    "gelu": _gelu,
    "waves": _oscillations(stiffness=30.0, fastest=12.0, size=0.2),
    "random": _random,
    "spread": _oscillations(stiffness=1.0, fastest=8.0, size=0.5),
    "relu": _constant(0, 1, 0, 0, 0),
    "requ": _constant(0.5, 0, 0, 0, 0),
    "sigmoid": _constant(0, 0, 1, 0, 0),
    "sine": _constant(_LARGE, 0, _LARGE, 0, 1),
    "identity": _identity,
}

Init = str | Fit


def resolve(
    init: str | Fit | Callable[[Tensor], Tensor],
    *,
    solution: str,
    eps: float,
    sharpness: float,
    max_exponent: float,
) -> Init:
    """A name or a fit, from whatever was given; an unknown name is an error that lists them."""
    if isinstance(init, Fit):
        if init.solution != solution:
            raise ValueError(
                f"init was fitted for solution={init.solution!r}, and the layer has {solution!r}; "
                f"fit it again with solution={solution!r}"
            )
        return init
    if isinstance(init, str):
        if init not in NAMED:
            raise ValueError(
                f"init must be one of {', '.join(NAMED)}, a function to fit or a deu.init.Fit; "
                f"got {init!r}"
            )
        if init == "sigmoid" and solution == "continuous":
            return _smooth_sigmoid(eps, max_exponent)
        return init
    if callable(init):
        return fit(init, solution=solution, eps=eps, sharpness=sharpness, max_exponent=max_exponent)
    raise TypeError(
        f"init must be one of {', '.join(NAMED)}, a function to fit or a deu.init.Fit; "
        f"got {type(init).__name__}"
    )


@torch.no_grad()
def fill(coefficients: tuple[Tensor, ...], init: Init, solution: str) -> None:
    """Set the five coefficients of a layer in place."""
    n = coefficients[0].numel()
    if isinstance(init, Fit):
        values = _constant(*init.coefficients)(n, solution)
    else:
        values = NAMED[init](n, solution)
    for parameter, value in zip(coefficients, values, strict=True):
        parameter.copy_(value)
