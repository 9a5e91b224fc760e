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

from ._triton_chip import fast_exp2, fast_sine_cosine, one_if_at_most, one_if_positive
from ._triton_elements import (
    CLOSED,
    HALF,
    LOG2E,
    MIXED,
    OSCILLATING,
    REAL,
    SHORT,
    SINGLE,
    STEADY,
    as_needed,
    at_least,
    at_most,
    exp2_and_less_one,
    inverse_unless_tiny,
    short_sine_cosine,
    sine_cosine,
    smooth_bump,
)

# The constants of a unit.  Of two roots p is the larger in size.  But for SINGLE it is at least
# FAST_ROOT, and its response in closed form.
Fast = namedtuple(
    "Fast",
    [
        *("real", "p", "q", "over_p", "over_q", "A", "B", "Af", "Bf"),
        *("p2", "q2", "mean2", "turn2"),  # exponents to base 2
        *("mean", "turn", "over_mean"),  # of roots: mean and half the distance; else p and q
        # The angle in half turns, in two parts; HALF: for gradients in turns, else hi in radians.
        *("hi", "lo"),
        # For t > 0: A + Af and B + Bf, of roots A - D/p (but for SINGLE) and B (CLOSED: B + D/q).
        *("At", "Bt"),
        # For t > 0: D·(M(q) - M(p)) of roots; what it adds to At and Bt: D·M(q) + K (CLOSED: K).
        *("D", "K"),
        "swapped",
    ],
)

FAST_ROOT = tl.constexpr(1.0)


@triton.jit
def in_half_turns(q, MODE: tl.constexpr):
    # The angle at t = 1 in half turns, in two parts of float32; HALF: in radians, in one.
    if MODE != HALF:
        q = q * 0.31830988618379067
    hi = q.to(tl.float32)
    return hi, (q - hi.to(q.dtype)).to(tl.float32)


@triton.jit
def fast_unit(
    kind, p, q, A, B, Af, Bf,
    KIND: tl.constexpr, MODE: tl.constexpr, GRADIENTS: tl.constexpr, HOW: tl.constexpr,
):  # fmt: skip
    TYPE: tl.constexpr = tl.float32
    hi, lo = in_half_turns(tl.where(kind == REAL, 0.0, q), SHORT if GRADIENTS else MODE)
    if GRADIENTS and MODE == HALF:
        hi, lo = 0.5 * hi, 0.5 * lo
    p, q, A, B, Af, Bf = as_needed(p, q, A, B, Af, Bf, MODE, GRADIENTS)
    real = kind == REAL
    D = tl.where(real, Bf, 0.0)
    swapped = real & (tl.abs(p) < tl.abs(q))
    p, q = tl.where(swapped, q, p), tl.where(swapped, p, q)
    A, B = tl.where(swapped, B, A), tl.where(swapped, A, B)
    D = tl.where(swapped, -D, D)
    p1, q1 = tl.where(real, p, 0.0), tl.where(real, q, 0.0)
    # The inverse, squared, is finite.
    over_p, over_q = inverse_unless_tiny(p1, 1e-15), inverse_unless_tiny(q1, 1e-15)
    closed = tl.where(real, D * over_p, -Af)
    mean = tl.where(real, (p + q) * 0.5, p)
    turn = tl.where(real, (q - p) * 0.5, q)
    other = D * over_q if KIND == CLOSED else tl.zeros_like(D)
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
        (turn * LOG2E).to(TYPE),
        mean.to(TYPE),
        turn.to(TYPE),
        inverse_unless_tiny(mean, 1e-15).to(TYPE),
        hi,
        lo,
        (A - closed).to(TYPE),
        (B + tl.where(real, other, Bf)).to(TYPE),
        D.to(TYPE),
        (closed - other).to(TYPE),
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


@triton.constexpr_function
def is_real(KIND):
    return KIND in (REAL, STEADY, CLOSED)


@triton.constexpr_function
def _by_mean(KIND, MODE, HOW):
    # Whether two roots are but their mean and half their distance: a thread then has five constants
    # of a channel less to keep.  A slow root is then a difference, which CLOSED cannot do with.
    return is_real(KIND) and KIND != CLOSED and HOW.CONTINUOUS and MODE == HALF


@triton.constexpr_function
def _by_factors(KIND, MODE, HOW):
    # Whether a condition is a factor of 0 or 1.  A chip compares and chooses at half the rate at
    # which it multiplies, and two roots have much to choose.  It takes more registers.
    if not HOW.FACTORS or KIND == OSCILLATING:
        return False
    return MODE == HALF or (MODE == SHORT and not HOW.LANES)


@triton.constexpr_function
def _cap2(HOW):
    # Of the mean's exponent, to base 2.
    return min(HOW.MAX_EXPONENT, 40.0) * LOG2E.value


@triton.constexpr_function
def _roots_cap2(HOW):
    # Twice the mean's cap is that of roots, and no oscillation comes up to it.
    return (2.0 if HOW.CONTINUOUS else 1.0) * min(HOW.MAX_EXPONENT, 40.0) * LOG2E.value


@triton.jit
def _is_positive(x, KIND: tl.constexpr, MODE: tl.constexpr, HOW: tl.constexpr):
    if _by_factors(KIND, MODE, HOW):
        condition = one_if_positive(x, HOW.PTX)
    else:
        condition = x > 0
    return condition


@triton.jit
def _is_at_most(x, CAP: tl.constexpr, KIND: tl.constexpr, MODE: tl.constexpr, HOW: tl.constexpr):
    if _by_factors(KIND, MODE, HOW):
        condition = one_if_at_most(x, CAP, HOW.PTX)
    else:
        condition = x <= CAP
    return condition


@triton.jit
def _if(condition, x):
    # As a factor, of what is finite.
    if condition.dtype == tl.float32:
        chosen = condition * x
    else:
        chosen = tl.where(condition, x, 0.0)
    return chosen


@triton.jit
def _either(condition, x, y, MODE: tl.constexpr):
    if condition.dtype != tl.float32:
        chosen = tl.where(condition, x, y)
    elif MODE == HALF:
        chosen = condition * (x - y) + y
    else:  # no digit is lost
        chosen = condition * x + (y - condition * y)
    return chosen


@triton.jit
def _exponentials(x, unit, KIND: tl.constexpr, MODE: tl.constexpr, HOW: tl.constexpr):
    # The exponents to base 2, e1 and e2, and both less 1; whether the exponents are below their
    # caps, and whether their mean is.
    CAP: tl.constexpr = _cap2(HOW)
    ROOTS_CAP: tl.constexpr = _roots_cap2(HOW)
    raw1 = unit.p2 * x
    free1, free2 = x == x, x == x
    if _by_mean(KIND, MODE, HOW):
        middle = unit.mean2 * x
        moving = _is_at_most(middle, CAP, KIND, MODE, HOW)
        middle = at_most(middle, CAP, HALF)
        raw1, raw2 = middle - unit.turn2 * x, middle + unit.turn2 * x
    elif HOW.CONTINUOUS:
        over = at_least(unit.mean2 * x - CAP, 0.0, HALF)
        if _by_factors(KIND, MODE, HOW):
            moving = _is_at_most(unit.mean2 * x, CAP, KIND, MODE, HOW)
        else:
            moving = over <= 0
        raw1 = raw1 - over
        raw2 = unit.q2 * x - over
    else:
        raw2 = unit.q2 * x
        moving = _is_at_most(raw1, ROOTS_CAP, KIND, MODE, HOW)
    if KIND != OSCILLATING or not HOW.CONTINUOUS:
        free1 = _is_at_most(raw1, ROOTS_CAP, KIND, MODE, HOW)
        if KIND != STEADY:
            free2 = _is_at_most(raw2, ROOTS_CAP, KIND, MODE, HOW)
        e1, less1 = _exponential(at_most(raw1, ROOTS_CAP, HALF), MODE, HOW)
    else:
        e1, less1 = _exponential(raw1, MODE, HOW)
    e2, less2 = e1, less1
    if KIND == STEADY:  # while the mean's is held, the slower root's exponent falls
        e2, less2 = _exponential(raw2, MODE, HOW)
    elif KIND != OSCILLATING:
        e2, less2 = _exponential(at_most(raw2, ROOTS_CAP, HALF), MODE, HOW)
    return raw1, raw2, e1, e2, less1, less2, free1, free2, moving


@triton.jit
def _sine_cosine(x, unit, MODE: tl.constexpr, GRADIENTS: tl.constexpr, HOW: tl.constexpr):
    if MODE == HALF and GRADIENTS:  # whose sums have the digits of float32
        sine, cosine = short_sine_cosine(x, unit.hi, unit.lo, HOW.PTX)
    elif MODE == HALF:
        sine, cosine = fast_sine_cosine(x * unit.hi, HOW.PTX)
    else:
        sine, cosine, _ = sine_cosine(x, unit.hi, unit.lo, MODE)
    return sine, cosine


@triton.jit
def _closed(e, less_one, over_r, MODE: tl.constexpr):
    return less_one * over_r if MODE == SINGLE else e * over_r - over_r


@triton.jit
def _response(x, raw, over_r, e, less_one, MODE: tl.constexpr):
    # M = (e^(rx) - 1)/r alone; raw is rx to base 2.
    if MODE == HALF:
        near = tl.abs(raw) < 0.25 * LOG2E
        s = 0.013876008801162243 * raw + 0.0803256705403328
        s = s * raw + 0.34657594561576843
        s = s * raw + 0.9999959468841553
    else:
        near = tl.abs(raw) < 0.5 * LOG2E
        s = 0.0002222245093435049 * raw + 0.0019407881191000342
        s = s * raw + 0.01387670449912548
        s = s * raw + 0.08007217198610306
        s = s * raw + 0.34657347202301025
        s = s * raw + 1.0000001192092896
    return tl.where(near, s * x, _closed(e, less_one, over_r, MODE))


@triton.constexpr_function
def _near(MODE):
    # Up to which exponent, to base 2, the derivative of M is a polynomial.
    return (0.2 if MODE == HALF else 1.0) * LOG2E.value


@triton.jit
def _response_slope(x, raw, over_r, e, less_one, live, MODE: tl.constexpr, HOW: tl.constexpr):
    # The derivative of M by r, x²·Σ (k+1)/(k+2)!·(rx)^k where rx is small; and x·e^(rx), live: or 0
    # where its exponent is held.
    near = tl.abs(raw) < _near(MODE)
    if _near(MODE) > _roots_cap2(HOW):
        near = near & (raw <= _roots_cap2(HOW))
    if MODE == HALF:
        s = 0.011093775741755962 * raw + 0.06018996983766556
        s = s * raw + 0.23105032742023468
        s = s * raw + 0.49999862909317017
    elif MODE == SINGLE:
        s = 1.6794274415588006e-06 * raw + 1.9797809727606364e-05
        s = s * raw + 0.00019062389037571847
        s = s * raw + 0.0016023366479203105
        s = s * raw + 0.011100643314421177
        s = s * raw + 0.0600568987429142
        s = s * raw + 0.23104910552501678
        s = s * raw + 0.4999999701976776
    else:
        s = 1.905942008306738e-05 * raw + 0.00019656772201415151
        s = s * raw + 0.0016046134987846017
        s = s * raw + 0.011094724759459496
        s = s * raw + 0.06005515530705452
        s = s * raw + 0.2310505360364914
        s = s * raw + 0.5000001788139343
    along = x * live
    if MODE == HALF and HOW.CONTINUOUS:
        over_r2 = over_r * over_r
        closed = over_r * along + (over_r2 - over_r2 * e)
    else:
        closed = (along - _closed(e, less_one, over_r, MODE)) * over_r
    return tl.where(near, s * x * x, closed), along


@triton.jit
def _responses(x, raw, r, over_r, e, less_one, free, MODE: tl.constexpr, HOW: tl.constexpr):
    # M, which is x·e^(rx) less r times its derivative, and this.
    slope, along = _response_slope(x, raw, over_r, e, less_one, _if(free, e), MODE, HOW)
    grown = along - r * slope
    if MODE == SINGLE:
        grown = tl.where(tl.abs(raw) < LOG2E, grown, less_one * over_r)
    return grown, slope


@triton.jit
def _basis(
    x, e1, e2, positive, unit,
    KIND: tl.constexpr, MODE: tl.constexpr, GRADIENTS: tl.constexpr, HOW: tl.constexpr,
):  # fmt: skip
    # The two functions that y is made of, and their factors on this side of 0.
    h1, h2 = e1, e2
    A, B = unit.A, unit.B
    if not is_real(KIND):
        sine, cosine = _sine_cosine(x, unit, MODE, GRADIENTS, HOW)
        if KIND == MIXED:
            sine = tl.where(unit.real, 1.0, sine)
        h1, h2 = e1 * cosine, e2 * sine
    if not is_real(KIND) or KIND == CLOSED:
        B = _either(positive, unit.Bt, B, MODE)
    if MODE != SINGLE:
        A = _either(positive, unit.At, A, MODE)
    return h1, h2, A, B


@triton.jit
def fast_value(x, unit, KIND: tl.constexpr, MODE: tl.constexpr, HOW: tl.constexpr):
    # y(x), not yet bounded.
    raw1, raw2, e1, e2, less1, less2, _, _, _ = _exponentials(x, unit, KIND, MODE, HOW)
    positive = _is_positive(x, KIND, MODE, HOW)
    h1, h2, A, B = _basis(x, e1, e2, positive, unit, KIND, MODE, False, HOW)
    y = A * h1 + B * h2
    if KIND == OSCILLATING or KIND == CLOSED:
        y += _if(positive, unit.K)
    else:
        apart = _response(x, raw2, unit.over_q, e2, less2, MODE)
        if MODE == SINGLE:
            apart -= _response(x, raw1, unit.over_p, e1, less1, MODE)
            y += _if(positive, unit.D) * apart
        else:
            y += _if(positive, unit.D * apart + unit.K)
    return y


@triton.jit
def fast_gradients(x, g, unit, KIND: tl.constexpr, MODE: tl.constexpr, HOW: tl.constexpr):
    # g·dy/dx, and what the element adds to eight sums, see gathered: of the mean and the turn, or
    # of p and q, with At and Bt; of A, B; and for t > 0.
    raw1, raw2, e1, e2, less1, less2, free1, free2, moving = _exponentials(x, unit, KIND, MODE, HOW)
    positive = _is_positive(x, KIND, MODE, HOW)
    gx = g * x
    gp = _if(positive, g)
    h1, h2, A, B = _basis(x, e1, e2, positive, unit, KIND, MODE, True, HOW)
    live1, live2 = h1, h2
    if KIND != OSCILLATING:
        live1, live2 = _if(free1, h1), h2 if KIND == STEADY else _if(free2, h2)
    if _by_mean(KIND, MODE, HOW):  # times the mean; gathered knows
        A = _either(positive, unit.At * unit.mean, unit.A * unit.mean, MODE)
        B = unit.B * unit.mean
    first, second = A * live1, B * live2
    if is_real(KIND) and not HOW.CONTINUOUS:
        slope = unit.p * first + unit.q * second
        by_mean, by_turn = first, second
    elif is_real(KIND) and MODE == SINGLE:
        # Of p and q instead: half a difference would have the rounding errors of the slow root's.
        apart = 0.5 * (first - second)
        by_mean, by_turn = tl.where(moving, first, apart), tl.where(moving, second, -apart)
        slope = unit.p * by_mean + unit.q * by_turn
    else:
        by_mean = _if(moving, first + second)
        if is_real(KIND):
            by_turn = second - first
        elif KIND == OSCILLATING:
            by_turn = B * h1 - A * h2
        else:
            by_turn = B * tl.where(unit.real, h2, h1) - A * tl.where(unit.real, live1, h2)
        if _by_mean(KIND, MODE, HOW):
            slope = by_mean + (unit.turn * unit.over_mean) * by_turn
        else:
            slope = unit.mean * by_mean + unit.turn * by_turn
    from_f, from_g = h1 - 1.0, h2
    to_first, to_second = x * 0.0, x * 0.0
    if KIND != OSCILLATING:
        D = _if(positive, unit.D)
        if MODE == SINGLE:
            slope += D * (live2 - live1)
            M1, to_first = _responses(x, raw1, unit.p, unit.over_p, e1, less1, free1, MODE, HOW)
            M2, to_second = _responses(x, raw2, unit.q, unit.over_q, e2, less2, free2, MODE, HOW)
            from_f, from_g = M2 - M1, x * 0.0
        else:
            slope += D * live2
            to_second, along = _response_slope(x, raw2, unit.over_q, e2, less2, live2, MODE, HOW)
            from_g = along if is_real(KIND) else tl.where(unit.real, along, h2)
    if not HOW.CONTINUOUS:
        # s multiplies a constant; in channels_last, where constants are many, the bump.
        bump, s = smooth_bump(x, MODE, HOW), HOW.SHARPNESS
        if HOW.LANES or HOW.SHARPNESS > 1e10:  # which would overflow
            bump, s = bump * s, 1.0
        if is_real(KIND):
            apart = from_f
            if MODE != SINGLE:
                apart = (along - unit.q * to_second) - _closed(e1, less1, unit.over_p, MODE)
            slope += bump * ((s * unit.D) * apart)
        else:
            slope += bump * ((s * unit.Af) * from_f + (s * unit.Bf) * from_g)
    return (
        g * slope, gx * by_mean, gx * by_turn, g * h1, g * h2,
        gp * from_f, gp * from_g, gp * to_first, gp * to_second,
    )  # fmt: skip


@triton.jit
def gathered(
    unit, s0, s1, s2, s3, s4, s5, s6, s7, KIND: tl.constexpr, MODE: tl.constexpr, HOW: tl.constexpr
):
    # The sums of p, q, A, B, Af and Bf.
    if KIND != OSCILLATING:
        lower, upper = s0, s1
        if HOW.CONTINUOUS and MODE != SINGLE:
            if _by_mean(KIND, MODE, HOW):
                s0, s1 = s0 * unit.over_mean, s1 * unit.over_mean
            lower, upper = 0.5 * (s0 - s1), 0.5 * (s0 + s1)
        # For t > 0 s7 is of g·∂M(q)/∂q.  SINGLE: s6 of g·∂M(p)/∂p, s4 of g·(M(q) - M(p)).  Else s4
        # is of g·p·M(p), s5 of g·t·e^(qt) = g·(M(q) + q·∂M(q)/∂q); A - D/p has the rest of p's.
        apart = s4
        if MODE == SINGLE:
            lower -= unit.D * s6
        else:
            lower += unit.K * unit.over_p * s4
            apart = s5 - unit.q * s7 - unit.over_p * s4
        upper += unit.D * s7
        if is_real(KIND):
            s0, s1, s4, s5 = lower, upper, s4 * 0.0, apart
        else:
            s0, s1 = tl.where(unit.real, lower, s0), tl.where(unit.real, upper, s1)
            s4, s5 = tl.where(unit.real, 0.0, s4), tl.where(unit.real, apart, s5)
        s0, s1 = tl.where(unit.swapped, s1, s0), tl.where(unit.swapped, s0, s1)
        s2, s3 = tl.where(unit.swapped, s3, s2), tl.where(unit.swapped, s2, s3)
        s5 = tl.where(unit.swapped, -s5, s5)
    return s0, s1, s2, s3, s4, s5
