"""The mathematics, once: from the five coefficients of a unit to its normal form.

On each side of ``t = 0`` every unit is a sum of two basis functions and a polynomial::

    t <= 0:  y(t) = A·B1(t) + B·B2(t) + Q·t + K
    t >  0:  y(t) = the same + f(t),  f(t) = Af·(B1(t) - B1(0)) + Bf·(B2(t) - B2(0)) + Pf·t² + Qf·t

``f`` is the paper's, the response to the step, which starts from 0.  What ``B1`` and ``B2`` are
depends on the row's :class:`Kind`, and ``p`` and ``q`` are their two constants.

Each :class:`Row` below is one subspace.  Its functions use only ``+ - * /``, comparisons, ``&``,
``|`` and the handful of functions of the namespace ``m``, so that the same text serves PyTorch
tensors (``deu._normal_form``) and SymPy symbols, from which ``tools/generate.py`` writes the
same rows, with their derivatives, for the compiled kernels.  A new subspace is one more row.

The derivations stand in ``docs/mathematics.md``.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import Any, NamedTuple

Number = Any  # a tensor or a SymPy expression


class Kind(IntEnum):
    """Which basis functions a row's normal form is written in."""

    STEP = 0  # no basis: y = G·σ(s·t), the smoothed step itself
    POLYNOMIAL = 1  # no basis
    EXPONENTIAL = 2  # B1 = e^(pt)
    REAL = 3  # B1 = e^(pt), B2 = e^(qt)
    OSCILLATING = 4  # B1 = e^(pt)·cos(qt), B2 = e^(pt)·sin(qt)
    CRITICAL = 5  # B1 = e^(pt), B2 = t·e^(pt)
    ENTIRE = 6  # B1 = F', B2 = F, f = G·∫F, where F'' - 2p·F' + q·F = 0, F(0) = 0, F'(0) = 1


class Form(NamedTuple):
    """The normal form of one unit (or of one a neuron, as tensors)."""

    p: Number = 0
    q: Number = 0
    A: Number = 0
    B: Number = 0
    Q: Number = 0
    K: Number = 0
    Af: Number = 0
    Bf: Number = 0
    Pf: Number = 0
    Qf: Number = 0
    G: Number = 0


class Row(NamedTuple):
    """One subspace: its public name, its kind, where it holds, and its normal form there.

    ``when(m, a, b, c, eps)`` says whether the row holds, given that no row above it does.
    ``solve(m, a, b, c, c1, c2)`` is the normal form.
    ``force(m, a, b, c)`` gives the values at which value and gradients are taken.
    ``inside`` is a point of the row, for evaluating it safely where it does not hold.
    """

    name: str
    kind: Kind
    when: Callable[..., Number]
    solve: Callable[..., Form]
    inside: tuple[float, float, float]
    force: Callable[..., tuple[Number, Number, Number]] = lambda m, a, b, c: (a, b, c)


# A row of each kind has at most six numbers; the GPU's kernels keep them in these places.
PLACES = ("p", "q", "A", "B", "Af", "Bf")
_FIELDS = {
    Kind.STEP: {"A": "G"},
    Kind.POLYNOMIAL: {"A": "Q", "B": "K", "Af": "Pf", "Bf": "Qf"},
    Kind.EXPONENTIAL: {"p": "p", "A": "A", "B": "K", "Af": "Af", "Bf": "Qf"},
    Kind.ENTIRE: {"p": "p", "q": "q", "A": "A", "B": "B", "Af": "G"},
}
# The response of a real root p is kept as Af·p times (e^(pt) - 1)/p: neither is large where p is
# small, and the derivatives of neither.
_TIMES = {Kind.EXPONENTIAL: {"Af": "p"}, Kind.REAL: {"Af": "p", "Bf": "q"}}


def places_of(kind: Kind) -> dict[str, tuple[str, str | None]]:
    """For each place that a kind uses, a field of its normal form, and one to multiply it by."""
    fields, times = _FIELDS.get(kind, {place: place for place in PLACES}), _TIMES.get(kind, {})
    return {place: (field, times.get(place)) for place, field in fields.items()}


def six_numbers(kind: Kind, form: Form) -> dict[str, Number]:
    """A kind's normal form by places; what it does not use is 0."""
    numbers: dict[str, Number] = dict.fromkeys(PLACES, 0)
    for place, (field, times) in places_of(kind).items():
        number = getattr(form, field)
        numbers[place] = number if times is None else number * getattr(form, times)
    return numbers


def discriminant(a: Number, b: Number, c: Number) -> Number:
    return b * b - 4 * a * c


def roots(m: Any, a: Number, b: Number, c: Number) -> tuple[Number, Number]:
    """r1 = -(b+q)/2a and r2 = (q-b)/2a, q = √Δ, neither by a difference of equal numbers."""
    negative = b < 0
    s = b + m.where(negative, -1, 1) * m.sqrt(discriminant(a, b, c))
    large, small = -s / (2 * a), -2 * c / s
    return m.where(negative, small, large), m.where(negative, large, small)


def _sigmoid(m: Any, a: Number, b: Number, c: Number, c1: Number, c2: Number) -> Form:
    return Form(G=1 / c)


def _ramp(m: Any, a: Number, b: Number, c: Number, c1: Number, c2: Number) -> Form:
    return Form(K=c1, Qf=1 / b)


def _relaxation(m: Any, a: Number, b: Number, c: Number, c1: Number, c2: Number) -> Form:
    return Form(p=-c / b, A=c1, Af=-1 / c)


def _parabola(m: Any, a: Number, b: Number, c: Number, c1: Number, c2: Number) -> Form:
    return Form(Q=c1, K=c2, Pf=1 / (2 * a))


def _drag(m: Any, a: Number, b: Number, c: Number, c1: Number, c2: Number) -> Form:
    return Form(p=-b / a, A=-c1 * a / b, K=c2, Af=a / (b * b), Qf=1 / b)


def _oscillating(m: Any, a: Number, b: Number, c: Number, c1: Number, c2: Number) -> Form:
    root = m.sqrt(-discriminant(a, b, c))
    return Form(p=-b / (2 * a), q=root / (2 * a), A=c1, B=c2, Af=-1 / c, Bf=-b / (root * c))


def _overdamped(m: Any, a: Number, b: Number, c: Number, c1: Number, c2: Number) -> Form:
    r1, r2 = roots(m, a, b, c)
    q = m.sqrt(discriminant(a, b, c))
    return Form(p=r1, q=r2, A=c1, B=c2, Af=-1 / (q * r1), Bf=1 / (q * r2))


def _critical(m: Any, a: Number, b: Number, c: Number, c1: Number, c2: Number) -> Form:
    r = -b / (2 * a)
    return Form(p=r, A=c2, B=c1, Af=-1 / c, Bf=r / c)


def _force_critical(m: Any, a: Number, b: Number, c: Number) -> tuple[Number, Number, Number]:
    half = m.abs(b) / 2
    return m.sign(a) * half, b, m.sign(c) * half


PAPER: tuple[Row, ...] = (
    Row("001", Kind.STEP, lambda m, a, b, c, eps: m.zero(a) & m.zero(b), _sigmoid, (0, 0, 1)),
    Row("010", Kind.POLYNOMIAL, lambda m, a, b, c, eps: m.zero(a) & m.zero(c), _ramp, (0, 1, 0)),
    Row("011", Kind.EXPONENTIAL, lambda m, a, b, c, eps: m.zero(a), _relaxation, (0, 1, 1)),
    Row(
        "100", Kind.POLYNOMIAL, lambda m, a, b, c, eps: m.zero(b) & m.zero(c), _parabola, (1, 0, 0)
    ),
    Row("110", Kind.EXPONENTIAL, lambda m, a, b, c, eps: m.zero(c), _drag, (1, 1, 0)),
    Row(
        "101",
        Kind.OSCILLATING,
        lambda m, a, b, c, eps: m.zero(b) & (a * c > 0),
        _oscillating,
        (1, 0, 1),
    ),
    Row("101", Kind.REAL, lambda m, a, b, c, eps: m.zero(b), _overdamped, (1, 0, -1)),
    Row(
        "critical",
        Kind.CRITICAL,
        lambda m, a, b, c, eps: (m.abs(discriminant(a, b, c)) < eps) & (a * c > 0),
        _critical,
        (1, 2, 1),
        _force_critical,
    ),
    Row(
        "oscillating",
        Kind.OSCILLATING,
        lambda m, a, b, c, eps: discriminant(a, b, c) < 0,
        _oscillating,
        (1, 1, 1),
    ),
    Row("overdamped", Kind.REAL, lambda m, a, b, c, eps: m.true(a), _overdamped, (1, 3, 1)),
)


def snap_paper(m: Any, a: Number, b: Number, c: Number, eps: Number) -> tuple[Number, ...]:
    """Coefficients below eps become exactly zero; if all are, b becomes eps."""
    none_a, none_b, none_c = (m.abs(p) < eps for p in (a, b, c))
    return (
        m.where(none_a, 0 * a, a),
        m.where(none_a & none_b & none_c, 0 * b + eps, m.where(none_b, 0 * b, b)),
        m.where(none_c, 0 * c, c),
    )


# The closed forms of `continuous` divide by c/a and by D = α² - c/a.  Closer than this to either
# zero the unit is written in functions that are entire there.
SEAM_KAPPA, SEAM_D = 0.01, 0.001


def _near_seam(m: Any, a: Number, b: Number, c: Number, eps: Number) -> Number:
    alpha, kappa = -b / (2 * a), c / a
    d = alpha * alpha - kappa
    return (m.abs(kappa) < SEAM_KAPPA * (1 + m.abs(alpha))) | (
        m.abs(d) < SEAM_D * (1 + alpha * alpha)
    )


def _entire(m: Any, a: Number, b: Number, c: Number, c1: Number, c2: Number) -> Form:
    return Form(p=-b / (2 * a), q=c / a, A=c1, B=c2 + c1 * b / a, G=1 / a)


def _continuous_oscillating(
    m: Any, a: Number, b: Number, c: Number, c1: Number, c2: Number
) -> Form:
    alpha, omega = -b / (2 * a), m.sqrt(-discriminant(a, b, c)) / (2 * a)
    return Form(
        p=alpha,
        q=omega,
        A=c1,
        B=(c2 - alpha * c1) / omega,
        Af=-1 / c,
        Bf=alpha / (omega * c),
    )


def _continuous_real(m: Any, a: Number, b: Number, c: Number, c1: Number, c2: Number) -> Form:
    r1, r2 = roots(m, a, b, c)
    gap = m.sqrt(discriminant(a, b, c)) / a
    return Form(
        p=r1,
        q=r2,
        A=(c1 * r2 - c2) / gap,
        B=(c2 - c1 * r1) / gap,
        Af=-1 / (a * gap * r1),
        Bf=1 / (a * gap * r2),
    )


CONTINUOUS: tuple[Row, ...] = (
    Row("entire", Kind.ENTIRE, _near_seam, _entire, (1, 2, 1)),
    Row(
        "oscillating",
        Kind.OSCILLATING,
        lambda m, a, b, c, eps: discriminant(a, b, c) < 0,
        _continuous_oscillating,
        (1, 1, 1),
    ),
    Row("overdamped", Kind.REAL, lambda m, a, b, c, eps: m.true(a), _continuous_real, (1, 3, 1)),
)


def snap_continuous(m: Any, a: Number, b: Number, c: Number, eps: Number) -> tuple[Number, ...]:
    """a is kept at least eps away from zero; nothing else has a seam."""
    return m.where(m.abs(a) < eps, m.where(a < 0, 0 * a - eps, 0 * a + eps), a), b, c


class Solution(NamedTuple):
    rows: tuple[Row, ...]
    snap: Callable[..., tuple[Number, ...]]


SOLUTIONS: dict[str, Solution] = {
    "paper": Solution(PAPER, snap_paper),
    "continuous": Solution(CONTINUOUS, snap_continuous),
}
