# mypy: ignore-errors
"""The paper's rows side by side: each element brings its own, and one form serves them all.

As ``_triton_fast.py``, which see; what a row does not have is 0 among its constants.  All rows are
made of h1, an exponential times a cosine, and h2, one times U·sine + V·t + W.  Of two roots the
first is the larger; one alone is the second; of polynomials h1 is 1 and h2 is t.
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
    SEAMLESS,
    SHORT,
    STEP,
    at_least,
    at_most,
    inverse,
    inverse_unless_tiny,
    short_sine_cosine,
    smooth_step,
)
from ._triton_fast import _cap2, _response, _response_slope, in_half_turns
from ._triton_seamless import SERIES, gathered_response, iv_series, roots_of, s_series, v_series

# For values: A·h1 + B·h2 + G/(1 + e1), and for t > 0 A1·h1 + B1·h2 + D·M(q) + Q·t + P·t² + K.
Plain = namedtuple(
    "Plain",
    [
        *("p2", "q2", "over_q", "cap2", "hi", "lo", "U", "V", "W"),
        *("A", "B", "G", "A1", "B1", "D", "Q", "P", "K"),
    ],
)

# For gradients: A·h1 + B·h2, and for t > 0 A1·(h1 - 1 + ramp·t) + B1·h2 + D·M(q), where M(q) is
# t·h2 less q times the derivative of M(q); or a step of size G, for h1.
Mixed = namedtuple(
    "Mixed",
    [
        *("p2", "q2", "over_q", "q", "hi", "lo", "U", "V", "W"),
        *("A", "A1", "B1", "D", "G", "ramp", "step"),
        # B but of roots, B of roots, A and A1 of oscillations.
        *("B_wave", "B_root", "A_turn", "A1_turn"),
        # In the slope: what multiplies the first's, and the second's or the turning's; and for
        # t > 0 of h2 and of t.
        *("first", "turn", "rise", "straight"),
        # Of roots, or of oscillations, that are close (see _triton_seamless.py): these; what of h1
        # and h2 e^(αt)·C and e^(αt)·S have.  Of all: how far from t = 0 on f is theirs; 1/a.
        *("close", "even1", "even2", "odd1", "odd2", "reach", "over_a"),
        *("mean", "gap", "over_gap2", "product", "over_product", "scale"),
    ],
)


@triton.jit
def angle(kind, q, MODE: tl.constexpr):
    # That of oscillations at t = 1 in turns, in two parts; HALF: in radians.
    hi, lo = in_half_turns(tl.where(kind == OSCILLATING, q, 0.0), MODE)
    if MODE != HALF:
        hi, lo = 0.5 * hi, 0.5 * lo
    return hi, lo


@triton.jit
def turned(x, unit, MODE: tl.constexpr, HOW: tl.constexpr):
    # Its sine and cosine.
    if MODE == HALF:
        sine, cosine = fast_sine_cosine(x * unit.hi, HOW.PTX)
    else:
        sine, cosine = short_sine_cosine(x, unit.hi, unit.lo, HOW.PTX)
    return sine, cosine


@triton.jit
def arranged(kind, p, q, A, B, Af, Bf):
    # Whether the second comes first; the exponents, what multiplies h1 and h2, and both responses.
    real, single, polynomial = kind == REAL, kind == EXPONENTIAL, kind == POLYNOMIAL
    wave = (kind == OSCILLATING) | (kind == CRITICAL)
    swapped = (real & (tl.abs(p) < tl.abs(q))) | single | polynomial
    first, second = tl.where(swapped, q, p), tl.where(swapped, p, q)
    first = tl.where(real | wave, first, 0.0)
    second = tl.where(wave, p, tl.where(real | single, second, 0.0))
    A, B = tl.where(swapped, B, A), tl.where(swapped, A, B)
    A, B = tl.where(kind == STEP, 0.0, A), tl.where(kind == STEP, 0.0, B)
    return (
        swapped, first, second, A, B,
        tl.where(swapped & real, Bf, Af), tl.where(swapped, Af, Bf),
    )  # fmt: skip


@triton.jit
def plain_unit(kind, p, q, A, B, Af, Bf, MODE: tl.constexpr, HOW: tl.constexpr):
    TYPE: tl.constexpr = tl.float32
    CAP: tl.constexpr = _cap2(HOW)
    hi, lo = angle(kind, q, MODE)
    p, q, A, B = p.to(TYPE), q.to(TYPE), A.to(TYPE), B.to(TYPE)
    Af, Bf = Af.to(TYPE), Bf.to(TYPE)
    real, single, polynomial = kind == REAL, kind == EXPONENTIAL, kind == POLYNOMIAL
    oscillating, critical, step = kind == OSCILLATING, kind == CRITICAL, kind == STEP
    wave = oscillating | critical
    G = tl.where(step, A, 0.0)
    _, first, second, A, B, A1, B1 = arranged(kind, p, q, A, B, Af, Bf)
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
    return Plain(
        tl.where(step, -HOW.SHARPNESS * LOG2E, first * LOG2E),
        second * LOG2E,
        over_q,
        tl.where(step, 126.0, CAP),
        hi,
        lo,
        tl.where(oscillating, 1.0, 0.0),
        tl.where(critical | polynomial, 1.0, 0.0),
        tl.where(wave | polynomial, 0.0, 1.0),
        A,
        B,
        G,
        A1,
        B1,
        D,
        tl.where(single | polynomial, Bf, 0.0),
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
    sine, cosine = turned(x, unit, MODE, HOW)
    h1 = e1 * cosine
    h2 = e2 * (unit.U * sine + (unit.V * x + unit.W))
    # Each step is one multiplication with an addition.
    f = unit.A1 * h1 + (unit.B1 * h2 + ((unit.P * x + unit.Q) * x + unit.K))
    if MODE != HALF:
        f = unit.D * _response(x, raw, unit.over_q, e2, e2, MODE) + f
    y = unit.A * h1 + (unit.B * h2 + unit.G * fast_inverse(1.0 + e1, HOW.PTX))
    return one_if_positive(x, HOW.PTX) * f + y


# Up to which s·t the bump makes digits of f count that its closed form has lost; and up to which
# scale·t f is made of power series, and no exponent is held at a cap of 1.
_BUMP, _INNER = tl.constexpr(4.0), tl.constexpr(0.45)


@triton.constexpr_function
def _level(MODE):
    # The arithmetic of elements.
    return SHORT if MODE == SEAMLESS else MODE


@triton.jit
def mixed_unit(kind, p, q, A, B, Af, Bf, close, MODE: tl.constexpr, HOW: tl.constexpr):
    TYPE: tl.constexpr = tl.float32
    hi, lo = angle(kind, q, SHORT)
    _, mean, half, gap, product, over_a = roots_of(kind, p, q, Af, Bf)
    real, single, polynomial = kind == REAL, kind == EXPONENTIAL, kind == POLYNOMIAL
    oscillating, critical, step = kind == OSCILLATING, kind == CRITICAL, kind == STEP
    wave, rooted, straight = oscillating | critical, real | single, single | polynomial
    G = tl.where(step, A, 0.0)
    _, first, second, A, B, A1, B1 = arranged(kind, p, q, A, B, Af, Bf)
    closed = A1 * inverse_unless_tiny(first, 1e-15)
    A1 = tl.where(real, closed, tl.where(wave, A1, tl.where(straight, Bf, 0.0)))
    D = tl.where(rooted | polynomial, B1, 0.0)
    if MODE == SEAMLESS:
        A1, B1, D = tl.where(close, 0.0, A1), tl.where(close, 0.0, B1), tl.where(close, 0.0, D)
    else:
        close = kind != kind
    over_distance = inverse(tl.where(real, second - first, 1.0))
    over_turn = inverse(tl.where(oscillating, q, 1.0))
    scale = tl.maximum(tl.abs(mean), tl.abs(half))
    reach = tl.minimum(_INNER * inverse(tl.maximum(scale, 1e-30)), _BUMP / HOW.SHARPNESS)
    reach = tl.where(close, 1e30, tl.where(real | wave, reach, -1.0))
    over_gap = inverse(tl.where(gap == 0, 1.0, gap))
    root = tl.where(rooted, second, 0.0)
    turn = tl.where(rooted, second, tl.where(oscillating, q, 1.0))
    return Mixed(
        (first * LOG2E).to(TYPE),
        (second * LOG2E).to(TYPE),
        tl.where(rooted, inverse_unless_tiny(root, 1e-30), 0.0).to(TYPE),
        root.to(TYPE),
        hi,
        lo,
        oscillating.to(TYPE),
        (critical | polynomial).to(TYPE),
        rooted.to(TYPE),
        A.to(TYPE),
        A1.to(TYPE),
        tl.where(wave, B1, 0.0).to(TYPE),
        D.to(TYPE),
        G.to(TYPE),
        straight.to(TYPE),
        step.to(TYPE),
        tl.where(rooted, 0.0, B).to(TYPE),
        tl.where(rooted, B, 0.0).to(TYPE),
        tl.where(oscillating, A, 0.0).to(TYPE),
        tl.where(oscillating, A1, 0.0).to(TYPE),
        first.to(TYPE),
        turn.to(TYPE),
        tl.where(polynomial, 2.0 * D, D).to(TYPE),
        tl.where(straight, Bf, 0.0).to(TYPE),
        close,
        tl.where(real, 0.5, 1.0).to(TYPE),
        tl.where(real, 0.5, 0.0).to(TYPE),
        tl.where(real, -over_distance, 0.0).to(TYPE),
        tl.where(real, over_distance, over_turn).to(TYPE),
        reach.to(TYPE),
        over_a.to(TYPE),
        mean.to(TYPE),
        gap.to(TYPE),
        (0.5 * over_gap).to(TYPE),
        product.to(TYPE),
        inverse(product).to(TYPE),
        scale.to(TYPE),
    )


@triton.jit
def exponentials(x, unit, HOW: tl.constexpr):
    # Exponents to base 2, exponentials, and whether they are below their caps.
    CAP: tl.constexpr = _cap2(HOW)
    raw1, raw2 = unit.p2 * x, unit.q2 * x
    e1 = fast_exp2(at_most(raw1, CAP, HALF), HOW.PTX)
    e2 = fast_exp2(at_most(raw2, CAP, HALF), HOW.PTX)
    return raw1, raw2, e1, e2, raw1 <= CAP, raw2 <= CAP


@triton.jit
def _closely(x, h1, h2, unit, HOW: tl.constexpr):
    # The response and its slope, and V, its slope and its integral; they are asked for where x > 0,
    # and a little below, where the bump is; of units that are not close there alone.
    low = at_most(at_least(x, -0.3, HALF), 1e9, HALF)  # whose fourth power is finite
    even, odd = unit.even1 * h1 + unit.even2 * h2, unit.odd1 * h1 + unit.odd2 * h2
    xx = low * low
    z, y = unit.gap * xx, -unit.mean * low
    e = fast_exp2(at_most(-LOG2E * y, 60.0, HALF), HOW.PTX)
    near = tl.abs(z) < 1.0
    ex = e * low
    odd = tl.where(near, ex * (s_series(z) * z + 1.0), odd)
    V = tl.where(near, ex * xx * v_series(z, SHORT), (low * even - odd) * unit.over_gap2)
    dV = unit.mean * V + 0.5 * low * odd
    U = (1.0 - even + unit.mean * odd) * unit.over_product
    iV = (U - dV + 2.0 * unit.mean * V) * unit.over_product
    few = unit.scale * low < SERIES
    iV = tl.where(few, ex * xx * low * iv_series(z, y, SHORT), iV)
    f = unit.over_a * (unit.product * iV + (dV - 2.0 * unit.mean * V))
    return f, unit.over_a * odd, V, dV, iV


@triton.jit
def mixed_gradients(x, g, unit, MODE: tl.constexpr, HOW: tl.constexpr):
    # g·dy/dx, and what the element adds to eight sums, see mixed_gathered.
    _, raw2, e1, e2, free1, free2 = exponentials(x, unit, HOW)
    LEVEL: tl.constexpr = _level(MODE)
    sine, cosine = turned(x, unit, SHORT, HOW)  # sums have float32's digits in 16 bits too
    smooth, bump = smooth_step(x, LEVEL, HOW)
    positive = one_if_positive(x, HOW.PTX)
    h1 = e1 * cosine + unit.step * (smooth - 1.0)
    h2 = e2 * (unit.U * sine + (unit.V * x + unit.W))
    live1, live2 = tl.where(free1, h1, 0.0), tl.where(free2, h2, 0.0)
    A, B = positive * unit.A1 + unit.A, positive * unit.B1 + unit.B_wave
    by_first = A * live1 + B * live2
    by_turn = B * h1 + (unit.B_root * live2 - (positive * unit.A1_turn + unit.A_turn) * h2)
    to_second, along = _response_slope(x, raw2, unit.over_q, e2, e2, live2, LEVEL, HOW)
    rest, later_h2 = (h1 - 1.0) + unit.ramp * x, h2
    f = unit.A1 * rest + (unit.B1 * h2 + (unit.D * (along - unit.q * to_second) + unit.G))
    after = unit.rise * live2 + unit.straight
    if MODE == SEAMLESS:
        close_f, close_after, V, dV, iV = _closely(x, h1, h2, unit, HOW)
        f = tl.where(tl.abs(x) <= unit.reach, close_f, f)
        after = tl.where(unit.close, close_after, after)
        rest, later_h2 = tl.where(unit.close, V, rest), tl.where(unit.close, iV, h2)
        along = tl.where(unit.close, dV, along)
    slope = unit.first * by_first + unit.turn * by_turn + bump * f + positive * after
    gx, gp = g * x, g * positive
    return (
        g * slope, gx * by_first, gx * by_turn, g * h1, g * h2,
        gp * rest, gp * later_h2, gp * to_second, gp * along,
    )  # fmt: skip


@triton.jit
def single_gradients(x, g, unit, HOW: tl.constexpr):
    # The same of units with one exponential: h1 is 1, and what is of the second comes first.
    raw = unit.q2 * x
    CAP: tl.constexpr = _cap2(HOW)
    e = fast_exp2(at_most(raw, CAP, HALF), HOW.PTX)
    live = tl.where(raw <= CAP, e, 0.0)
    _, bump = smooth_step(x, SHORT, HOW)
    positive = one_if_positive(x, HOW.PTX)
    by_turn = unit.B_root * live
    to_second, along = _response_slope(x, raw, unit.over_q, e, e, live, SHORT, HOW)
    f = unit.A1 * x + unit.D * (along - unit.q * to_second)
    slope = unit.turn * by_turn + bump * f + positive * (unit.rise * live + unit.straight)
    gp, zero = g * positive, tl.zeros_like(x)
    return (
        g * slope, (g * x) * by_turn, zero, g, g * e,
        gp * x, zero, gp * to_second, gp * along,
    )  # fmt: skip


@triton.jit
def close_gradients(x, g, unit, KIND: tl.constexpr, HOW: tl.constexpr):
    # As mixed_gradients, of SEAMLESS units of one kind: roots, or oscillations.
    _, _, e1, e2, free1, free2 = exponentials(x, unit, HOW)
    h1, h2 = e1, e2
    if KIND == OSCILLATING:
        sine, cosine = turned(x, unit, SHORT, HOW)
        h1, h2, free2 = e1 * cosine, e1 * sine, free1
    live1, live2 = tl.where(free1, h1, 0.0), tl.where(free2, h2, 0.0)
    if KIND == OSCILLATING:
        by_first = unit.A * live1 + unit.B_wave * live2
        by_turn = unit.B_wave * h1 - unit.A * h2
    else:
        by_first, by_turn = unit.A * live1, unit.B_root * live2
    f, after, V, dV, iV = _closely(x, h1, h2, unit, HOW)
    _, bump = smooth_step(x, SHORT, HOW)
    positive = one_if_positive(x, HOW.PTX)
    slope = unit.first * by_first + unit.turn * by_turn + bump * f + positive * after
    gx, gp = g * x, g * positive
    return (
        g * slope, gx * by_first, gx * by_turn, g * h1, g * h2,
        gp * V, gp * iV, gp * 0.0, gp * dV,
    )  # fmt: skip


@triton.jit
def mixed_gathered(
    kind, p, q, A, B, Af, Bf, close,
    by_first, by_turn, h1, h2, rest, later_h2, second, along, MODE: tl.constexpr,
):  # fmt: skip
    # The sums of p, q, A, B, Af and Bf; of responses t > 0.
    real, single = kind == REAL, kind == EXPONENTIAL
    swapped, root1, root2, _, _, A1, D = arranged(kind, p, q, A, B, Af, Bf)
    if MODE == SEAMLESS:  # by rest, later_h2 and along
        A1, D = tl.where(close, 0.0, A1), tl.where(close, 0.0, D)
    over = inverse_unless_tiny(root1, 1e-15)
    # Of two roots rest is of p·M(p), and A with A1 has all of the first's but for this.
    M1, M2 = over * rest, along - root2 * second
    by_first -= tl.where(real, A1 * over * M1, 0.0)
    by_turn += tl.where(real | single, D * second, 0.0)
    to_p, to_q = tl.where(swapped, by_turn, by_first), tl.where(swapped, by_first, by_turn)
    to_A, to_B = tl.where(swapped, h2, h1), tl.where(swapped, h1, h2)
    first = tl.where(real, M1, rest)
    to_Af = tl.where(swapped, M2, first)  # of polynomials M2 is of t²
    to_Bf = tl.where(swapped, first, tl.where(real, M2, later_h2))
    if MODE == SEAMLESS:
        r_p, r_q, r_Af, r_Bf = gathered_response(kind, p, q, Af, Bf, later_h2, rest, along)
        to_p, to_q = tl.where(close, to_p + r_p, to_p), tl.where(close, to_q + r_q, to_q)
        to_Af, to_Bf = tl.where(close, r_Af, to_Af), tl.where(close, r_Bf, to_Bf)
    return to_p, to_q, to_A, to_B, to_Af, to_Bf
