"""What a unit is, in mpmath, written from SPEC.md and from nothing in ``src``.

Derivatives are central differences with a step of 1e-30 in 160-digit arithmetic.  Their error is
near 1e-60, but for c = 0 and for a double root, where the formulas below divide two small numbers:
there some 60 digits are left.  Both are beyond the 50 digits that the comparison asks for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from mpmath import mp, mpf

COEFFICIENTS = ("a", "b", "c", "c1", "c2")
QUANTITIES = ("value", "dy/dt", *COEFFICIENTS)
DIGITS = 160
STEP = mpf(10) ** -30

Basis = tuple[Any, Any, Any]
Formula = Callable[..., Basis]


class Limits(NamedTuple):
    eps: float = 0.01
    sharpness: float = 100.0
    max_exponent: float = 1.0


def _capped(x: Any, limit: Any) -> Any:
    """min(x, limit), and an error at the kink, where there is no derivative to compare with."""
    assert abs(x - limit) > 1e-6, f"exponent {float(x)} lies on its cap"
    return min(x, limit)


# ---------------------------------------------------------------------------- the paper's table
# Each row gives f (without its u), f1 and f2.  E is the capped exponential.


def _row_010(t: Any, a: Any, b: Any, c: Any, E: Any) -> Basis:
    return t / b, mpf(1), mpf(0)


def _row_011(t: Any, a: Any, b: Any, c: Any, E: Any) -> Basis:
    e = E(-c * t / b)
    return (1 - e) / c, e, mpf(0)


def _row_100(t: Any, a: Any, b: Any, c: Any, E: Any) -> Basis:
    return t**2 / (2 * a), t, mpf(1)


def _row_101_same_signs(t: Any, a: Any, b: Any, c: Any, E: Any) -> Basis:
    w = mp.sign(a) * mp.sqrt(c / a)
    return (1 - mp.cos(w * t)) / c, mp.cos(w * t), mp.sin(w * t)


def _row_101_opposite_signs(t: Any, a: Any, b: Any, c: Any, E: Any) -> Basis:
    w = mp.sqrt(-a * c) / a
    return -(E(w * t) + E(-w * t) - 2) / (2 * c), E(-w * t), E(w * t)


def _row_110(t: Any, a: Any, b: Any, c: Any, E: Any) -> Basis:
    e = E(-b * t / a)
    return (a / b**2) * (e - 1) + t / b, -(a / b) * e, mpf(1)


def _row_oscillating(t: Any, a: Any, b: Any, c: Any, E: Any) -> Basis:
    root = mp.sqrt(4 * a * c - b**2)
    e, w = E(-b / (2 * a) * t), root / (2 * a)
    cos, sin = mp.cos(w * t), mp.sin(w * t)
    return (1 - e * (cos + b / root * sin)) / c, e * cos, e * sin


def _row_critical(t: Any, a: Any, b: Any, c: Any, E: Any) -> Basis:
    r = -b / (2 * a)
    e = E(r * t)
    return (1 - (1 - r * t) * e) / c, t * e, e


def _row_overdamped(t: Any, a: Any, b: Any, c: Any, E: Any) -> Basis:
    q = mp.sqrt(b**2 - 4 * a * c)
    e1, e2 = E(-(b + q) / (2 * a) * t), E((q - b) / (2 * a) * t)
    return (1 - ((b + q) * e2 + (q - b) * e1) / (2 * q)) / c, e1, e2


PAPER: dict[str, Formula | None] = {
    "001": None,  # σ(st)/c: the only row without a step to switch on
    "010": _row_010,
    "011": _row_011,
    "100": _row_100,
    "101, ac>0": _row_101_same_signs,
    "101, ac<0": _row_101_opposite_signs,
    "110": _row_110,
    "oscillating": _row_oscillating,
    "critical": _row_critical,
    "overdamped": _row_overdamped,
}


def paper_row(a: Any, b: Any, c: Any, eps: Any) -> str:
    """Which row of the table holds for coefficients already taken as zero below eps."""
    pattern = "".join("0" if p == 0 else "1" for p in (a, b, c))
    if pattern == "101":
        return "101, ac>0" if a * c > 0 else "101, ac<0"
    if pattern != "111":
        return pattern
    delta = b**2 - 4 * a * c
    if abs(delta) < eps and a * c > 0:
        return "critical"
    return "oscillating" if delta < 0 else "overdamped"


def _paper(t: Any, coefficients: Sequence[Any], limits: Limits) -> tuple[str, dict[str, Any]]:
    eps, s, cap = (mpf(x) for x in limits)
    a, b, c, c1, c2 = coefficients
    counts = [abs(p) >= eps for p in (a, b, c)]
    a, b, c = (p if n else mpf(0) for p, n in zip((a, b, c), counts, strict=True))
    if not any(counts):
        b = eps
    name = paper_row(a, b, c, eps)
    if name == "critical":
        a, c = mp.sign(a) * abs(b) / 2, mp.sign(c) * abs(b) / 2
    formula = PAPER[name]
    u = 1 if t > 0 else 0

    def value(t: Any, a: Any, b: Any, c: Any, c1: Any, c2: Any) -> Any:
        if formula is None:
            return 1 / (c * (1 + mp.exp(-s * t)))
        f, f1, f2 = formula(t, a, b, c, lambda x: mp.exp(_capped(x, cap)))
        return u * f + c1 * f1 + c2 * f2

    found = _differentiate(value, (t, a, b, c, c1, c2))
    for coefficient, n in zip("abc", counts, strict=True):
        if not n:
            found[coefficient] = mpf(0)
    if formula is not None:
        f = formula(t, a, b, c, lambda x: mp.exp(_capped(x, cap)))[0]
        found["dy/dt"] += s * mp.exp(-s * t) / (1 + mp.exp(-s * t)) ** 2 * f
    return name, found


# ---------------------------------------------------------------------------- without the seams


def _continuous(t: Any, coefficients: Sequence[Any], limits: Limits) -> tuple[str, dict[str, Any]]:
    eps, _, cap = (mpf(x) for x in limits)
    a, *rest = coefficients
    if abs(a) < eps:  # straight through: the gradient at the moved a is that of a
        a = -eps if a < 0 else eps
    u = 1 if t > 0 else 0

    def value(t: Any, a: Any, b: Any, c: Any, c1: Any, c2: Any) -> Any:
        alpha = -b / (2 * a)
        D = alpha**2 - c / a
        if u and alpha > 0:
            t = _capped(t, cap / (2 * alpha))
        x = _capped(alpha * t, cap)
        if D > 0:
            root = mp.sqrt(D)
            grown = mp.exp(_capped(x + root * abs(t), 2 * cap))
            shrunk = mp.exp(_capped(x - root * abs(t), 2 * cap))
            C, S = (grown + shrunk) / 2, mp.sign(t) * (grown - shrunk) / (2 * root)
        elif D < 0:
            w = mp.sqrt(-D)
            C, S = mp.exp(x) * mp.cos(w * t), mp.exp(x) * mp.sin(w * t) / w
        else:
            C, S = mp.exp(x), t * mp.exp(x)
        if not u:
            step = mpf(0)
        elif c != 0:
            step = (1 - C + alpha * S) / c
        elif b != 0:
            step = (a / b**2) * (mp.exp(-b * t / a) - 1) + t / b
        else:
            step = t**2 / (2 * a)
        return c1 * (C - alpha * S) + c2 * S + step

    return "continuous", _differentiate(value, (t, a, *rest))


def _differentiate(value: Callable[..., Any], at: tuple[Any, ...]) -> dict[str, Any]:
    found = {"value": value(*at)}
    for i, name in enumerate(QUANTITIES[1:]):
        above, below = list(at), list(at)
        above[i] += STEP
        below[i] -= STEP
        found[name] = (value(*above) - value(*below)) / (2 * STEP)
    return found


def truth(
    solution: str, t: float, coefficients: Sequence[float], limits: Limits
) -> tuple[str, dict[str, float]]:
    """The row that holds, and the seven quantities by name.

    Arguments are taken as exactly what they are in binary.  Below t = 0 and at it, u is 0; the
    derivatives are those of the formula on t's own side.
    """
    with mp.workdps(DIGITS):
        solve = {"paper": _paper, "continuous": _continuous}[solution]
        row, found = solve(mpf(t), [mpf(p) for p in coefficients], limits)
        return row, {name: float(number) for name, number in found.items()}
