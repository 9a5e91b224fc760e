"""The second-order unit in functions that have no seam at c = 0 or at a double root.

With ``x = αt``, ``k = κt²`` and ``z = x² - k`` (α = -b/2a, κ = c/a), the unit is made of

    X = e^x·C(z),   Y = t·e^x·S(z),   U = ∫₀ᵗ Y,

C and S the entire functions that are cosh √z and sinh √z / √z for z > 0, cos and sin/· for
z < 0.  Each is evaluated by whichever of its formulas loses no digits, and every formula is
plain differentiable PyTorch, so derivatives of any order are right on both sides of a seam.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

# Roots within 1/4 of 0 count as near it.  Both are for |x| < 1/4, |k| < 1/32; how many terms
# reach 1e-16 there, and how many for |z| < 1.
_NEAR_X, _NEAR_K, _SERIES_TERMS = 1 / 4, 1 / 32, 16
_Z_TERMS = 11


def _pick(where: Tensor, inside: Tensor, elsewhere: float) -> Tensor:
    """``inside`` where a formula is used, a harmless constant where its result is dropped."""
    return torch.where(where, inside, elsewhere)


def _power_series(z: Tensor, coefficients: list[float]) -> Tensor:
    total = torch.full_like(z, coefficients[-1])
    for c in reversed(coefficients[:-1]):
        total = total * z + c
    return total


def homogeneous(x: Tensor, z: Tensor, t: Tensor, max_exponent: float) -> tuple[Tensor, Tensor]:
    """X and Y, e^x held at e^max_exponent and the growing real exponential at its square."""
    small, above, below = z.abs() < 1, z >= 1, z <= -1
    x = x.clamp(max=max_exponent)

    zs = _pick(small, z, 0.0)
    even = _power_series(zs, [1 / math.factorial(2 * j) for j in range(_Z_TERMS)])
    odd = _power_series(zs, [1 / math.factorial(2 * j + 1) for j in range(_Z_TERMS)])

    w = _pick(below, -z, 1.0).sqrt()
    even = torch.where(below, w.cos(), even)
    odd = torch.where(below, w.sin() / w, odd)

    s = _pick(above, z, 1.0).sqrt()
    grown = (x + s).clamp(max=2 * max_exponent).exp()
    shrunk = (x - s).exp()
    e = x.exp()
    big_x = torch.where(above, (grown + shrunk) / 2, e * even)
    big_y = torch.where(above, (grown - shrunk) / (2 * s), e * odd)
    return big_x, t * big_y


def step_response(
    x: Tensor, k: Tensor, z: Tensor, t: Tensor, big_x: Tensor, big_y: Tensor
) -> Tensor:
    """U for t > 0, from X and Y of the same arguments."""
    tiny = (x.abs() < _NEAR_X) & (k.abs() < _NEAR_K)
    distance = x.abs() + z.clamp(min=_NEAR_K).sqrt()  # of the far root from 0, if it is real
    one_root = ~tiny & (z > _NEAR_K) & (k.abs() < _NEAR_X * distance)
    plain = ~tiny & ~one_root
    y_over_t = _pick(t != 0, big_y, 1.0) / _pick(t != 0, t, 1.0)

    # Both roots near 0: Taylor's series, from the ODE's own recurrence.
    xs, ks = _pick(tiny, x, 0.0), _pick(tiny, k, 0.0)
    before, term = torch.ones_like(xs), 2 * xs
    series = before / 2
    for n in range(3, _SERIES_TERMS):
        series = series + term / math.factorial(n)
        before, term = term, 2 * xs * term - ks * before

    closed = (1 - big_x + x * y_over_t) / _pick(plain, k, 1.0)

    # One root near 0, the other not.
    s = _pick(one_root, z, 1.0).sqrt()
    far = torch.where(x < 0, x - s, x + s)
    far = _pick(one_root, far, 1.0)
    near = _pick(one_root, k, 0.0) / far
    phi = _power_series(near, [1 / math.factorial(j + 1) for j in range(_Z_TERMS)])
    split = (y_over_t - phi) / far

    return t * t * torch.where(tiny, series, torch.where(one_root, split, closed))
