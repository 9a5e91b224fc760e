# mypy: ignore-errors
"""The paper's rows side by side: each element brings its own, and one form serves them all.

As ``_triton_fast.py``, which see; what a row does not have is 0 among its constants.
"""

from collections import namedtuple

import triton
import triton.language as tl

from ._triton_chip import fast_exp2, fast_inverse, fast_sine_cosine, one_if_positive
from ._triton_elements import (
    CRITICAL,
    EXPONENTIAL,
    HALF,
    LOG2E,
    OSCILLATING,
    POLYNOMIAL,
    REAL,
    STEP,
    at_least,
    at_most,
    inverse_unless_tiny,
    short_sine_cosine,
    sine_cosine,
    smooth_step,
)
from ._triton_fast import _cap2, _response, _responses, _sine_cosine, in_half_turns

Mixed = namedtuple(
    "Mixed",
    [
        *("real", "wave", "oscillating", "critical", "polynomial", "step"),
        *("p", "q", "over_p", "over_q"),  # roots; q is 0 where there is but one
        *("p2", "q2"),  # exponents to base 2
        *("hi", "lo"),  # the angle in half turns, in two parts; HALF: hi in radians
        *("turn", "both", "straight"),  # of by_q in the slope; 1 of waves; A of polynomials
        *("A", "B", "Af", "Bf", "At", "Bt"),  # At, Bt: for t > 0, of waves with the response
        *("f1", "f2", "bent"),  # for t > 0: of the response's slope
        *("opposed", "G"),  # 1 of oscillations; the size of a smoothed step
    ],
)


# The same for values alone: A·h1 + B·h2 + G/(1 + e1), and for t > 0 A1·h1 + B1·h2 + D·M(q) + Q·t +
# P·t² + K, where h1 is an exponential e1 times a cosine, and h2 is one times U·sine + V·t + W.  Of
# two roots the first is the larger; one alone is the second.
Plain = namedtuple(
    "Plain",
    [
        *("p2", "q2", "over_q", "cap2", "hi", "lo", "U", "V", "W"),
        *("A", "B", "G", "A1", "B1", "D", "Q", "P", "K"),
    ],
)


@triton.jit
def plain_unit(kind, p, q, A, B, Af, Bf, MODE: tl.constexpr, HOW: tl.constexpr):
    TYPE: tl.constexpr = tl.float32
    CAP: tl.constexpr = _cap2(HOW)
    oscillating, critical = kind == OSCILLATING, kind == CRITICAL
    hi, lo = in_half_turns(tl.where(oscillating, q, 0.0), MODE)
    if MODE != HALF:  # in turns
        hi, lo = 0.5 * hi, 0.5 * lo
    p, q, A, B = p.to(TYPE), q.to(TYPE), A.to(TYPE), B.to(TYPE)
    Af, Bf = Af.to(TYPE), Bf.to(TYPE)
    real, step, polynomial = kind == REAL, kind == STEP, kind == POLYNOMIAL
    wave, single = oscillating | critical, kind == EXPONENTIAL
    swapped = (real & (tl.abs(p) < tl.abs(q))) | single | polynomial
    first, second = tl.where(swapped, q, p), tl.where(swapped, p, q)
    first = tl.where(real | wave, first, 0.0)
    second = tl.where(wave, p, tl.where(real | single, second, 0.0))
    A, B = tl.where(swapped, B, A), tl.where(swapped, A, B)
    A1, B1 = tl.where(swapped & real, Bf, Af), tl.where(swapped, Af, Bf)
    ramp = tl.where(single | polynomial, Bf, 0.0)
    over_q = inverse_unless_tiny(second, 1e-15)
    closed = A1 * inverse_unless_tiny(first, 1e-15)
    A1 = tl.where(real, closed, tl.where(wave, A1, 0.0))
    D = tl.where(real | single, B1, 0.0)
    K = -A1
    if MODE == HALF:  # in closed form
        D = D * over_q
        K -= D
        B1 = tl.where(wave, B1, D)
    else:
        B1 = tl.where(wave, B1, 0.0)
    bent = tl.where(critical | polynomial, 1.0, 0.0)
    return Plain(
        tl.where(step, -HOW.SHARPNESS * LOG2E, first * LOG2E),
        second * LOG2E,
        over_q,
        tl.where(step, 126.0, CAP),
        hi,
        lo,
        tl.where(oscillating, 1.0, 0.0),
        bent,
        tl.where(wave | polynomial, 0.0, 1.0),
        tl.where(step, 0.0, A),
        tl.where(step, 0.0, B),
        tl.where(step, A, 0.0),
        A1,
        B1,
        D,
        ramp,
        tl.where(polynomial, Af, 0.0),
        K,
    )


@triton.jit
def plain_value(x, unit, MODE: tl.constexpr, HOW: tl.constexpr):
    # y(x), not yet bounded.
    CAP: tl.constexpr = _cap2(HOW)
    # So that nothing overflows, which 0 times would be NaN; a value is at its bound long before.
    x = at_least(x, -1e18, HALF)
    raw = unit.q2 * x
    e1 = fast_exp2(at_most(unit.p2 * x, unit.cap2, HALF), HOW.PTX)
    e2 = fast_exp2(at_most(raw, CAP, HALF), HOW.PTX)
    if MODE == HALF:
        sine, cosine = fast_sine_cosine(x * unit.hi, HOW.PTX)
    else:
        sine, cosine = short_sine_cosine(x, unit.hi, unit.lo, HOW.PTX)
    h1 = e1 * cosine
    h2 = e2 * (unit.U * sine + (unit.V * x + unit.W))
    # Each step is one multiplication with an addition.
    f = unit.A1 * h1 + (unit.B1 * h2 + ((unit.P * x + unit.Q) * x + unit.K))
    if MODE != HALF:
        f = unit.D * _response(x, raw, unit.over_q, e2, e2, MODE) + f
    y = unit.A * h1 + (unit.B * h2 + unit.G * fast_inverse(1.0 + e1, HOW.PTX))
    return one_if_positive(x, HOW.PTX) * f + y


@triton.jit
def mixed_unit(kind, p, q, A, B, Af, Bf, MODE: tl.constexpr, HOW: tl.constexpr):
    TYPE: tl.constexpr = tl.float32
    hi, lo = in_half_turns(tl.where(kind == OSCILLATING, q, 0.0), MODE)
    real, step, polynomial = kind == REAL, kind == STEP, kind == POLYNOMIAL
    oscillating, critical = kind == OSCILLATING, kind == CRITICAL
    wave = oscillating | critical
    rooted = real | (kind == EXPONENTIAL)
    p = tl.where(rooted | wave, p, 0.0)
    root = tl.where(real, q, 0.0)
    over_p = inverse_unless_tiny(p, 1e-30)
    # Waves have no second root, but an exponent: what is divided by the one must not overflow.
    over_q = tl.where(wave, 0.0, inverse_unless_tiny(root, 1e-30))
    turn = tl.where(critical, 1.0, tl.where(real | oscillating, q, 0.0))
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
def _exponentials(x, unit, HOW: tl.constexpr):
    # Exponents to base 2, exponentials, and whether they are below their caps.
    CAP: tl.constexpr = _cap2(HOW)
    raw1, raw2 = unit.p2 * x, unit.q2 * x
    free1, free2 = raw1 <= CAP, raw2 <= CAP
    e1 = fast_exp2(at_most(raw1, CAP, HALF), HOW.PTX)
    e2 = fast_exp2(at_most(raw2, CAP, HALF), HOW.PTX)
    return raw1, raw2, e1, e2, free1, free2


@triton.jit
def _basis(x, unit, MODE: tl.constexpr, HOW: tl.constexpr):
    # h1 and h2, exponents to base 2, exponentials, whether they are below their caps, cos, cos - 1.
    raw1, raw2, e1, e2, free1, free2 = _exponentials(x, unit, HOW)
    if MODE == HALF:
        sine, cosine = _sine_cosine(x, unit, MODE, HOW)
        less = cosine - 1.0
    else:
        sine, cosine, less = sine_cosine(x, unit.hi, unit.lo, MODE)
    h1 = e1 * cosine
    h2 = e2 * tl.where(unit.oscillating, sine, tl.where(unit.critical, x, 1.0))
    return h1, h2, raw1, raw2, e1, e2, free1, free2, cosine, less


@triton.jit
def _differences(x, unit, h2, M1, M2, cosine, less):
    # What Af and Bf multiply.
    d1 = tl.where(unit.wave, unit.p * M1 * cosine + less, M1)
    return tl.where(unit.polynomial, x * x, d1), tl.where(unit.wave, h2, M2)


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
def mixed_neighbour_sums(x, g, unit, KIND: tl.constexpr, MODE: tl.constexpr, HOW: tl.constexpr):
    # As neighbour_sums in _triton_elements.py, of the kinds that a neighbour can have, or of roots.
    gp = tl.where(x > 0, g, 0.0)
    gx = g * x
    if KIND == REAL:
        raw1, raw2, h1, h2, free1, free2 = _exponentials(x, unit, HOW)
    else:
        h1, h2, raw1, raw2, e1, e2, free1, free2, cosine, less = _basis(x, unit, MODE, HOW)
    X1, X2 = gx * h1, gx * h2
    live1, live2 = tl.where(free1, X1, 0.0), tl.where(free2, X2, 0.0)
    if KIND == REAL:
        d1, to_first = _responses(x, raw1, unit.p, unit.over_p, h1, h1, free1, MODE, HOW)
        d2, to_second = _responses(x, raw2, unit.q, unit.over_q, h2, h2, free2, MODE, HOW)
        capped1, capped2 = x * 0.0, x * 0.0
        P1, P2 = gp * to_first, gp * to_second
    else:
        M1, to_first = _responses(x, raw1, unit.p, unit.over_p, e1, e1, free1, MODE, HOW)
        M2, to_second = _responses(x, raw2, unit.q, unit.over_q, e2, e2, free2, MODE, HOW)
        d1, d2 = _differences(x, unit, h2, M1, M2, cosine, less)
        capped1, capped2 = (X1 - live1) * unit.both, (X2 - live2) * unit.both
        gpx = gp * x
        P1 = tl.where(unit.real, gp * to_first, gpx * h1)
        P2 = tl.where(unit.real, gp * to_second, gpx * h2)
    return (
        g * h1, g * h2, gp * d1, gp * d2,
        live1 + capped1, live2 + capped2, P1, P2, capped1, capped2,
    )  # fmt: skip
