# mypy: ignore-errors
"""The paper's rows side by side: each element brings its own, and one form serves them all.

As ``_triton_fast.py``, which see; what a row does not have is 0 among its constants.
"""

from collections import namedtuple

import triton
import triton.language as tl

from ._triton_chip import fast_exp2
from ._triton_elements import (
    CRITICAL,
    EXPONENTIAL,
    HALF,
    LOG2E,
    OSCILLATING,
    POLYNOMIAL,
    REAL,
    STEP,
    as_needed,
    at_most,
    inverse_unless_tiny,
    sine_cosine,
    smooth_step,
)
from ._triton_fast import _response, _responses, _sine_cosine

Mixed = namedtuple(
    "Mixed",
    [
        *("real", "wave", "oscillating", "critical", "polynomial", "step"),
        *("p", "q", "over_p", "over_q"),  # roots; q is 0 where there is but one
        *("p2", "q2", "cap2"),  # exponents to base 2
        *("hi", "lo"),  # the angle in half turns, in two parts; HALF: hi in radians
        *("turn", "both", "straight"),  # of by_q in the slope; 1 of waves; A of polynomials
        *("A", "B", "Af", "Bf", "At", "Bt"),  # At, Bt: for t > 0, of waves with the response
        *("f1", "f2", "bent"),  # for t > 0: of the response's slope
        *("opposed", "G"),  # 1 of oscillations; the size of a smoothed step
    ],
)


@triton.jit
def mixed_unit(
    kind, p, q, A, B, Af, Bf, MODE: tl.constexpr, GRADIENTS: tl.constexpr, HOW: tl.constexpr
):
    TYPE: tl.constexpr = tl.float32
    LIMIT: tl.constexpr = HOW.MAX_EXPONENT if HOW.MAX_EXPONENT < 40.0 else 40.0
    p, q, A, B, Af, Bf = as_needed(p, q, A, B, Af, Bf, MODE, GRADIENTS)
    real, step, polynomial = kind == REAL, kind == STEP, kind == POLYNOMIAL
    oscillating, critical = kind == OSCILLATING, kind == CRITICAL
    wave = oscillating | critical
    rooted = real | (kind == EXPONENTIAL)
    p = tl.where(rooted | wave, p, 0.0)
    root = tl.where(real, q, 0.0)
    over_p = inverse_unless_tiny(p, 1e-30)
    # Waves have no second root, but an exponent: what is divided by the one must not overflow.
    over_q = tl.where(wave, 0.0, inverse_unless_tiny(root, 1e-30))
    angle = tl.where(oscillating, q, 0.0)
    turn = tl.where(critical, 1.0, tl.where(real | oscillating, q, 0.0))
    if MODE != HALF:
        angle = angle * 0.31830988618379067
    hi = angle.to(TYPE)
    lo = (angle - hi.to(angle.dtype)).to(TYPE)
    G = tl.where(step, A, 0.0)
    A = tl.where(step, 0.0, A)
    return Mixed(
        real,
        wave,
        oscillating,
        critical,
        polynomial,
        step,
        p.to(TYPE),
        root.to(TYPE),
        over_p.to(TYPE),
        over_q.to(TYPE),
        (p * LOG2E).to(TYPE),
        (tl.where(wave, p, root) * LOG2E).to(TYPE),
        tl.full((), LIMIT * LOG2E, TYPE),
        hi,
        lo,
        turn.to(TYPE),
        wave.to(TYPE),
        tl.where(polynomial, A, 0.0).to(TYPE),
        A.to(TYPE),
        B.to(TYPE),
        Af.to(TYPE),
        Bf.to(TYPE),
        tl.where(wave, A + Af, A).to(TYPE),
        tl.where(wave, B + Bf, B).to(TYPE),
        tl.where(rooted, Af, 0.0).to(TYPE),
        tl.where(rooted | polynomial, Bf, 0.0).to(TYPE),
        tl.where(polynomial, 2.0 * Af, 0.0).to(TYPE),
        oscillating.to(TYPE),
        G.to(TYPE),
    )


@triton.jit
def _basis(x, unit, MODE: tl.constexpr, HOW: tl.constexpr):
    # h1 and h2, exponents to base 2, exponentials, whether they are below their caps, cos, cos - 1.
    raw1, raw2 = unit.p2 * x, unit.q2 * x
    free1, free2 = raw1 <= unit.cap2, raw2 <= unit.cap2
    e1 = fast_exp2(at_most(raw1, unit.cap2, HALF), HOW.PTX)
    e2 = fast_exp2(at_most(raw2, unit.cap2, HALF), HOW.PTX)
    if MODE == HALF:
        sine, cosine = _sine_cosine(x, unit, MODE, HOW)
        less = cosine - 1.0
    else:
        sine, cosine, less = sine_cosine(x, unit.hi, unit.lo, MODE, HOW.PTX)
    h1 = e1 * cosine
    h2 = e2 * tl.where(unit.oscillating, sine, tl.where(unit.critical, x, 1.0))
    return h1, h2, raw1, raw2, e1, e2, free1, free2, cosine, less


@triton.jit
def _differences(x, unit, h2, M1, M2, cosine, less):
    # What Af and Bf multiply.
    d1 = tl.where(unit.wave, unit.p * M1 * cosine + less, M1)
    return tl.where(unit.polynomial, x * x, d1), tl.where(unit.wave, h2, M2)


@triton.jit
def mixed_value(x, unit, MODE: tl.constexpr, HOW: tl.constexpr):
    # y(x), not yet bounded.
    h1, h2, raw1, raw2, e1, e2, _, _, cosine, less = _basis(x, unit, MODE, HOW)
    M1 = _response(x, raw1, unit.over_p, e1, e1, MODE)
    M2 = _response(x, raw2, unit.over_q, e2, e2, MODE)
    d1, d2 = _differences(x, unit, h2, M1, M2, cosine, less)
    f = unit.Af * d1 + unit.Bf * d2
    smooth, _ = smooth_step(x, MODE, HOW)
    h1 = tl.where(unit.polynomial, x, h1)
    return unit.A * h1 + unit.B * h2 + unit.G * smooth + tl.where(x > 0, f, 0.0)


@triton.jit
def mixed_gradients(x, g, unit, MODE: tl.constexpr, HOW: tl.constexpr):
    # g·dy/dx; what the element adds to the gradients of p, q, A, B, Af and Bf, but for what the
    # response adds to the roots', which is f1 and f2 times the last two.
    h1, h2, raw1, raw2, e1, e2, free1, free2, cosine, less = _basis(x, unit, MODE, HOW)
    positive = x > 0
    gx = g * x
    gp = tl.where(positive, g, 0.0)
    live1, live2 = tl.where(free1, h1, 0.0), tl.where(free2, h2, 0.0)
    M1, to_first = _responses(x, raw1, unit.p, unit.over_p, e1, e1, free1, MODE, HOW)
    M2, to_second = _responses(x, raw2, unit.q, unit.over_q, e2, e2, free2, MODE, HOW)
    d1, d2 = _differences(x, unit, h2, M1, M2, cosine, less)
    A, B = tl.where(positive, unit.At, unit.A), tl.where(positive, unit.Bt, unit.B)
    first, second = A * live1, B * live2
    by_p = first + unit.both * second
    by_q = tl.where(unit.real, second, B * h1 - unit.opposed * (A * h2))
    slope = unit.p * by_p + unit.turn * by_q + unit.straight
    slope += tl.where(positive, unit.f1 * live1 + unit.f2 * live2 + unit.bent * x, 0.0)
    smooth, bump = smooth_step(x, MODE, HOW)
    slope += bump * (unit.Af * d1 + unit.Bf * d2 + unit.G)
    h1 = tl.where(unit.polynomial, x, tl.where(unit.step, smooth, h1))
    return (
        g * slope, gx * by_p, gx * by_q, g * h1, g * h2,
        gp * d1, gp * d2, gp * to_first, gp * to_second,
    )  # fmt: skip


@triton.jit
def mixed_neighbour_sums(x, g, unit, MODE: tl.constexpr, HOW: tl.constexpr):
    # As neighbour_sums in _triton_elements.py, of the kinds that a neighbour can have.
    h1, h2, raw1, raw2, e1, e2, free1, free2, cosine, less = _basis(x, unit, MODE, HOW)
    gp = tl.where(x > 0, g, 0.0)
    gx, gpx = g * x, gp * x
    M1, to_first = _responses(x, raw1, unit.p, unit.over_p, e1, e1, free1, MODE, HOW)
    M2, to_second = _responses(x, raw2, unit.q, unit.over_q, e2, e2, free2, MODE, HOW)
    d1, d2 = _differences(x, unit, h2, M1, M2, cosine, less)
    X1, X2 = gx * h1, gx * h2
    live1, live2 = tl.where(free1, X1, 0.0), tl.where(free2, X2, 0.0)
    capped1, capped2 = (X1 - live1) * unit.both, (X2 - live2) * unit.both
    P1 = tl.where(unit.real, gp * to_first, gpx * h1)
    P2 = tl.where(unit.real, gp * to_second, gpx * h2)
    return (
        g * h1, g * h2, gp * d1, gp * d2,
        live1 + capped1, live2 + capped2, P1, P2, capped1, capped2,
    )  # fmt: skip
