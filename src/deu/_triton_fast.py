# mypy: ignore-errors
"""The work on each element by the chip's own functions, for units whose numbers allow it.

Two real roots, oscillations, and both side by side in the continuous solution (``MIXED``), there
only where time does not stop: the mean of two roots, or an oscillation, does not grow.  ``MODE`` is
``HALF``, for results of 16 bits, ``SHORT``, or, of real roots alone, ``SINGLE``, which does without
the chip's exponential.  What an element's sums are is known to ``gathered`` alone, which makes
those of the normal form's six numbers from them.
"""

from collections import namedtuple

import triton
import triton.language as tl

from ._triton_elements import (
    HALF,
    LOG2E,
    MIXED,
    OSCILLATING,
    REAL,
    SINGLE,
    at_least,
    at_most,
    exp2_and_less_one,
    fast_exp2,
    fast_sine_cosine,
    inverse,
    sine_cosine,
    smooth_step,
)

# The constants of a unit.  Of two roots p is the larger in size.  But for SINGLE it is at least
# FAST_ROOT, and its response in closed form.
Fast = namedtuple(
    "Fast",
    [
        *("real", "p", "q", "over_p", "over_q", "A", "B", "Af", "Bf"),
        *("p2", "q2", "mean2", "cap2", "inner_cap2"),  # exponents to base 2
        *("mean", "turn"),  # of roots: their mean and half their distance; else p and q
        *("hi", "lo"),  # the angle in half turns, in two parts; HALF: hi in radians
        *("At", "Bt"),  # for t > 0: A + Af and B + Bf, of roots A and B
        "D",  # for t > 0: the response of two roots is D·(M(q) - M(p))
        "swapped",
    ],
)

FAST_ROOT = tl.constexpr(1.0)


@triton.jit
def fast_unit(kind, p, q, A, B, Af, Bf, MODE: tl.constexpr, HOW: tl.constexpr):
    TYPE: tl.constexpr = tl.float32
    LIMIT: tl.constexpr = HOW.MAX_EXPONENT if HOW.MAX_EXPONENT < 40.0 else 40.0
    real = kind == REAL
    D = tl.where(real, Bf, 0.0)
    swapped = real & (tl.abs(p) < tl.abs(q))
    p, q = tl.where(swapped, q, p), tl.where(swapped, p, q)
    A, B = tl.where(swapped, B, A), tl.where(swapped, A, B)
    D = tl.where(swapped, -D, D)
    p1, q1 = tl.where(real, p, 0.0), tl.where(real, q, 0.0)
    tiny = tl.full((), 1e-30, tl.float64)
    over_p = inverse(tl.where(tl.abs(p1) < tiny, tiny, p1))
    over_q = inverse(tl.where(tl.abs(q1) < tiny, tiny, q1))
    mean = tl.where(real, (p + q) * 0.5, p)
    turn = tl.where(real, (q - p) * 0.5, q)
    angle = tl.where(real, 0.0, q)
    if MODE != HALF:
        angle = angle * 0.31830988618379067
    hi = angle.to(TYPE)
    lo = (angle - hi.to(tl.float64)).to(TYPE)
    cap2 = tl.where(real & HOW.CONTINUOUS, 2.0, 1.0).to(tl.float64) * (LIMIT * LOG2E)
    return Fast(
        real,
        p1.to(TYPE),
        q1.to(TYPE),
        over_p.to(TYPE),
        over_q.to(TYPE),
        A.to(TYPE),
        B.to(TYPE),
        Af.to(TYPE),
        Bf.to(TYPE),
        (p * LOG2E).to(TYPE),
        (tl.where(real, q, p) * LOG2E).to(TYPE),
        (mean * LOG2E).to(TYPE),
        cap2.to(TYPE),
        tl.full((), LIMIT * LOG2E, TYPE),
        mean.to(TYPE),
        turn.to(TYPE),
        hi,
        lo,
        tl.where(real, A, A + Af).to(TYPE),
        tl.where(real, B, B + Bf).to(TYPE),
        D.to(TYPE),
        swapped,
    )


@triton.jit
def _exponential(x, MODE: tl.constexpr, HOW: tl.constexpr):
    if MODE == SINGLE:
        e, less_one = exp2_and_less_one(x, MODE)
    else:
        e = fast_exp2(x, HOW.PTX)
        less_one = e - 1.0
    return e, less_one


@triton.jit
def _exponentials(x, unit, KIND: tl.constexpr, MODE: tl.constexpr, HOW: tl.constexpr):
    # e1 and e2, and both less 1; whether their exponents are below their caps, and whether the
    # mean of these is at its.
    raw1 = unit.p2 * x
    free1, free2, held = x == x, x == x, x != x
    if HOW.CONTINUOUS:
        over = at_least(unit.mean2 * x - unit.inner_cap2, 0.0, HALF)
        held = over > 0
        raw1 = raw1 - over
        raw2 = unit.q2 * x - over
    else:
        raw2 = unit.q2 * x
        held = raw1 > unit.cap2
    if KIND != OSCILLATING or not HOW.CONTINUOUS:
        free1, free2 = raw1 <= unit.cap2, raw2 <= unit.cap2
        raw1 = at_most(raw1, unit.cap2, HALF)
        raw2 = at_most(raw2, unit.cap2, HALF)
    e1, less1 = _exponential(raw1, MODE, HOW)
    e2, less2 = e1, less1
    if KIND != OSCILLATING:
        e2, less2 = _exponential(raw2, MODE, HOW)
    return e1, e2, less1, less2, free1, free2, held


@triton.jit
def _sine_cosine(x, unit, MODE: tl.constexpr, HOW: tl.constexpr):
    if MODE == HALF:
        sine, cosine = fast_sine_cosine(x * unit.hi, HOW.PTX)
    else:
        sine, cosine, _ = sine_cosine(x, unit.hi, unit.lo, MODE, HOW.PTX)
    return sine, cosine


@triton.jit
def _closed(e, less_one, over_r, MODE: tl.constexpr):
    return less_one * over_r if MODE == SINGLE else e * over_r - over_r


@triton.jit
def _response(x, r, over_r, e, less_one, MODE: tl.constexpr):
    # M = (e^(rx) - 1)/r alone.
    z = r * x
    if MODE == HALF:
        near = tl.abs(z) < 0.25
        s = 0.04166661202907562 * z + 0.16718736290931702
        s = (s * z + 0.5000033974647522) * z + 0.9999959468841553
    else:
        near = tl.abs(z) < 0.5
        s = 0.0013888797257095575 * z + 0.008407682180404663
        s = s * z + 0.04166870191693306
        s = s * z + 0.16665974259376526
        s = s * z + 0.4999998211860657
        s = s * z + 1.0000001192092896
    return tl.where(near, s * x, _closed(e, less_one, over_r, MODE))


@triton.jit
def _responses(x, r, over_r, e, less_one, live, MODE: tl.constexpr):
    # M = (e^(rx) - 1)/r and its derivative by r, x²·Σ (k+1)/(k+2)!·(rx)^k where rx is small; e^(rx)
    # is held where it is not live.
    z = r * x
    if MODE == HALF:
        near = tl.abs(z) < 0.25
        s = 0.0333002544939518 * z + 0.12543344497680664
        s = (s * z + 0.33333778381347656) * z + 0.4999966323375702
    else:
        near = tl.abs(z) < 1.0
        if MODE == SINGLE:
            s = 2.18465575017035e-05 * z + 0.00017851075972430408
            s = s * z + 0.0011913792695850134
            s = s * z + 0.0069414773024618626
            s = s * z + 0.03333279862999916
            s = s * z + 0.12500056624412537
            s = s * z + 0.33333340287208557
            s = s * z + 0.4999999701976776
        else:
            s = 0.000171852923813276 * z + 0.0012285275151953101
            s = s * z + 0.006951340939849615
            s = s * z + 0.0333150252699852
            s = s * z + 0.12499693781137466
            s = s * z + 0.3333354592323303
            s = s * z + 0.5000001788139343
    along = x * live
    closed = _closed(e, less_one, over_r, MODE)
    slope = tl.where(near, s * x * x, (along - closed) * over_r)
    grown = along - r * slope
    if MODE == SINGLE:
        grown = tl.where(tl.abs(z) < 0.0625, grown, closed)
    return grown, slope


@triton.jit
def _basis(x, e1, e2, positive, unit, KIND: tl.constexpr, MODE: tl.constexpr, HOW: tl.constexpr):
    # The two functions that y is made of, and their factors on this side of 0.
    h1, h2 = e1, e2
    A, B = unit.A, unit.B
    if KIND != REAL:
        sine, cosine = _sine_cosine(x, unit, MODE, HOW)
        if KIND == MIXED:
            sine = tl.where(unit.real, 1.0, sine)
        h1, h2 = e1 * cosine, e2 * sine
        A, B = tl.where(positive, unit.At, A), tl.where(positive, unit.Bt, B)
    return h1, h2, A, B


@triton.jit
def fast_value(x, unit, KIND: tl.constexpr, MODE: tl.constexpr, HOW: tl.constexpr):
    # y(x), not yet bounded.
    e1, e2, less1, less2, _, _, _ = _exponentials(x, unit, KIND, MODE, HOW)
    positive = x > 0
    h1, h2, A, B = _basis(x, e1, e2, positive, unit, KIND, MODE, HOW)
    y = A * h1 + B * h2
    if KIND == OSCILLATING:
        y -= tl.where(positive, unit.Af, 0.0)
    else:
        apart = _response(x, unit.q, unit.over_q, e2, less2, MODE)
        if MODE == SINGLE:
            apart -= _response(x, unit.p, unit.over_p, e1, less1, MODE)
        else:
            apart -= _closed(e1, less1, unit.over_p, MODE)
        if KIND == MIXED:
            rest = tl.where(unit.real, unit.D * apart, -unit.Af)
            y += tl.where(positive, rest, 0.0)
        else:
            y += tl.where(positive, unit.D, 0.0) * apart
    return y


@triton.jit
def fast_gradients(x, g, unit, KIND: tl.constexpr, MODE: tl.constexpr, HOW: tl.constexpr):
    # g·dy/dx, and what the element adds to eight sums: of the mean and the turn, or of p and q;
    # of A, B; of Af and Bf, or, of two roots, of D and nothing; of the roots in the response.
    e1, e2, less1, less2, free1, free2, held = _exponentials(x, unit, KIND, MODE, HOW)
    positive = x > 0
    gx = g * x
    gp = tl.where(positive, g, 0.0)
    h1, h2, A, B = _basis(x, e1, e2, positive, unit, KIND, MODE, HOW)
    live1, live2 = h1, h2
    if KIND != OSCILLATING:
        live1, live2 = tl.where(free1, h1, 0.0), tl.where(free2, h2, 0.0)
    first, second = A * live1, B * live2
    D = tl.where(positive, unit.D, 0.0)
    if KIND == REAL and not HOW.CONTINUOUS:
        slope = unit.p * first + unit.q * second
        by_mean, by_turn = first, second
    else:
        by_mean = tl.where(held, 0.0, first + second)
        if KIND == REAL:
            by_turn = second - first
        elif KIND == OSCILLATING:
            by_turn = B * h1 - A * h2
        else:
            by_turn = B * tl.where(unit.real, h2, h1) - A * tl.where(unit.real, live1, h2)
        slope = unit.mean * by_mean + unit.turn * by_turn
    to_first, to_second = x * 0.0, x * 0.0
    from_f, from_g = h1 - 1.0, h2
    if KIND != OSCILLATING:
        if MODE == SINGLE:
            M1, to_first = _responses(x, unit.p, unit.over_p, e1, less1, live1, MODE)
        else:
            M1 = _closed(e1, less1, unit.over_p, MODE)
            to_first = x * live1 - M1  # times 1/p in the end
        M2, to_second = _responses(x, unit.q, unit.over_q, e2, less2, live2, MODE)
        to_first, to_second = gp * to_first, gp * to_second
        apart = M2 - M1
        slope += D * (live2 - live1)
        if KIND == REAL:
            from_f, from_g = apart, x * 0.0
        else:
            from_f = tl.where(unit.real, apart, from_f)
    if not HOW.CONTINUOUS:
        _, bump = smooth_step(x, MODE, HOW)
        if KIND == REAL:
            slope += bump * (unit.D * apart)
        else:
            slope += bump * (unit.Af * from_f + unit.Bf * from_g)
    return (
        g * slope, gx * by_mean, gx * by_turn, g * h1, g * h2,
        gp * from_f, gp * from_g, to_first, to_second,
    )  # fmt: skip


@triton.jit
def gathered(
    unit, s0, s1, s2, s3, s4, s5, s6, s7, KIND: tl.constexpr, MODE: tl.constexpr, HOW: tl.constexpr
):
    # The sums of p, q, A, B, Af and Bf.
    if KIND != OSCILLATING:
        lower, upper = s0, s1
        if HOW.CONTINUOUS:
            lower, upper = 0.5 * (s0 - s1), 0.5 * (s0 + s1)
        lower -= unit.D * s6 * (1.0 if MODE == SINGLE else unit.over_p)
        upper += unit.D * s7
        if KIND == REAL:
            s0, s1, s4, s5 = lower, upper, s4 * 0.0, s4
        else:
            s0, s1 = tl.where(unit.real, lower, s0), tl.where(unit.real, upper, s1)
            s4, s5 = tl.where(unit.real, 0.0, s4), tl.where(unit.real, s4, s5)
        s0, s1 = tl.where(unit.swapped, s1, s0), tl.where(unit.swapped, s0, s1)
        s2, s3 = tl.where(unit.swapped, s3, s2), tl.where(unit.swapped, s2, s3)
        s5 = tl.where(unit.swapped, -s5, s5)
    return s0, s1, s2, s3, s4, s5
