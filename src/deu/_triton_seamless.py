# mypy: ignore-errors
"""The gradients of units whose two roots are close, in float32: functions in which nothing cancels.

Written with two roots, or a frequency, the coefficients' gradients are small differences of large
sums where these are close to each other, or to 0.  With V = ∂F/∂D, its slope ``dV`` and its
integral ``iV`` (``docs/mathematics.md``), which are smooth across a double root, they are not.
Units that do not grow: of the continuous solution here, of the paper's with what is here in
``_triton_mixed.py``.  ``MODE`` is ``SEAMLESS``.
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
    SHORT,
    SINGLE,
    at_most,
    inverse,
    sine_cosine,
)
from ._triton_fast import _cap2, _if, _response_slope, in_half_turns

# The constants of a unit; p is the faster of two roots.
Seamless = namedtuple(
    "Seamless",
    [
        *("real", "apart"),  # two roots; and these are not close
        *("mean", "mean2"),  # of the roots, or p of an oscillation; to base 2
        *("p", "q", "p2", "q2", "turn2", "over_p", "over_q"),  # turn2: half their distance, base 2
        *("hi", "lo"),  # the angle in half turns, in two parts
        *("gap", "over_gap2", "over_turn"),  # D = mean² - product, 1/2D; 1/(q - p), or 1/ω
        *("scale", "over_product"),  # the faster of mean and turn; 1/(p·q), or 1/(α² + ω²)
        *("A", "B", "G"),  # the factors of e^(αt)·C and e^(αt)·S; 1/a
    ],
)
# What units may have: own numbers, at a cap of 1; those times mean and 1/a
# if the roots are far from each other; roots and frequencies; and 1/a over the larger of mean and
# turn, which is how large a gradient is where it has a zero: of roots, of what hardly oscillates,
# and of what does.
_OWN, _OWN_APART, _ROOT = (tl.constexpr(x) for x in (0.6, 8.0, 32.0))
_STEEP, _DAMPED, _WAVE = (tl.constexpr(x) for x in (11.0, 8.0, 5.0))
_PAPER_APART, _PAPER_SHIFT = tl.constexpr(0.8), tl.constexpr(48.0)
# Up to which scale·t iV is a series, and from which half distance over mean on roots are apart.
SERIES, _APART = tl.constexpr(1.5), tl.constexpr(0.5)


@triton.jit
def roots_of(kind, p, q, Af, Bf):
    # Mean, turn (half the distance, or ω), D, p·q or α² + ω², 1/a.
    real = kind == REAL
    mean = tl.where(real, (p + q) * 0.5, p)
    turn = tl.where(real, (q - p) * 0.5, q)
    square = turn * turn
    gap = tl.where(real, square, -square)
    product = tl.where(real, p * q, p * p + square)
    G = tl.where(real, 2.0 * turn * Bf, -Af * product)
    return real, mean, turn, gap, product, G


@triton.jit
def _even_odd(real, turn, A, B):
    # A and B of C and S.
    return tl.where(real, A + B, A), tl.where(real, B - A, B) * turn


@triton.constexpr_function
def has_seamless(HOW):
    # Whether this is done at all.  Below a cap of 1 a root's exponent may come up to its own within
    # the power series; far above it a slow root is lost beside a fast one.  The paper's bump has to
    # be narrow: where, below t = 0, an exponent is held, f is another.  In 16 bits few need it, and
    # all the others would take longer.
    if HOW.CONTINUOUS:
        return 1 <= HOW.MAX_EXPONENT <= 2 and HOW.MODE == SINGLE
    return HOW.MAX_EXPONENT >= 1 and HOW.SHARPNESS >= 100 and HOW.MODE == SINGLE


@triton.constexpr_function
def _own_limit(HOW):
    # What units add for t < 0, where the two parts of it nearly cancel, grows up to the cap.
    return _OWN.value * 2.718281828459045 ** (2.0 - 2.0 * HOW.MAX_EXPONENT)


@triton.jit
def _gentle(real, wave, p, q, mean, turn, G):
    # Whether a unit does not grow, and its gradient is not too large where it has a zero.
    limit = tl.where(turn <= 2.0 * mean, _DAMPED, _WAVE)
    able = G <= tl.where(real, _STEEP, limit) * tl.maximum(mean, turn)
    return able & ((real & (tl.maximum(p, q) <= 0)) | (wave & (p <= 0)))


@triton.jit
def can_be_seamless(kind, p, q, A, B, Af, Bf, HOW: tl.constexpr):
    real, mean, turn, _, _, G = roots_of(kind, p, q, Af, Bf)
    even, odd = _even_odd(real, turn, A, B)
    mean, turn, G = tl.abs(mean), tl.abs(turn), tl.abs(G)
    able = _gentle(real, kind == OSCILLATING, p, q, mean, turn, G)
    apart = real & (turn > _APART * mean)
    able = able & ((apart == 0) | ((tl.abs(A) + tl.abs(B)) * mean * G <= _OWN_APART))
    able = able & (tl.maximum(tl.abs(even), tl.abs(odd)) <= _own_limit(HOW))
    return able & (tl.maximum(tl.abs(p), tl.abs(q)) <= _ROOT)


@triton.constexpr_function
def _paper_root(HOW):
    # Below t = 0, where the bump is, no exponent may come to its cap.
    return min(6.5 * HOW.MAX_EXPONENT, 32.0)


@triton.jit
def paper_can_be_seamless(kind, p, q, A, B, Af, Bf, HOW: tl.constexpr):
    # In the paper's solution, see _triton_mixed.py; of a double root D is 0.
    real, mean, turn, _, _, G = roots_of(kind, p, q, Af, Bf)
    mean, turn, G = tl.abs(mean), tl.abs(turn), tl.abs(G)
    own, root = tl.maximum(tl.abs(A), tl.abs(B)), tl.maximum(tl.abs(p), tl.abs(q))
    able = _gentle(real, (kind == OSCILLATING) | (kind == CRITICAL), p, q, mean, turn, G)
    able = able & ((real == 0) | (turn <= _PAPER_APART * mean))
    # Of roots by a; of a frequency.
    shift = own * root * root * tl.where(real, tl.abs(Bf), G / tl.where(turn > 0, turn, 1.0))
    return able & (shift <= _PAPER_SHIFT) & (root <= _paper_root(HOW))


@triton.jit
def can_be_beside(kind, p, q, A, B, Af, Bf):
    # Whether units that need SINGLE by themselves can be among SEAMLESS ones as if they did not:
    # the larger root is nearly fast enough, or there is one, which the chip's exponential has the
    # digits for, or none.  Steps are not: they would be 1 more than a number.
    own, ahead = tl.maximum(tl.abs(A), tl.abs(B)), tl.maximum(tl.abs(Af), tl.abs(Bf))
    root = tl.maximum(tl.abs(p), tl.abs(q))
    roots = (kind == REAL) & (root >= 0.5) & (ahead <= 2.0) & (own <= 4.0)
    single = (kind == EXPONENTIAL) & (ahead <= 16.0) & (own <= 8.0)
    return (roots | single | (kind == POLYNOMIAL)) & (root <= _ROOT)


@triton.jit
def seamless_unit(kind, p, q, A, B, Af, Bf):
    TYPE: tl.constexpr = tl.float32
    real, mean, turn, gap, product, G = roots_of(kind, p, q, Af, Bf)
    A, B = _even_odd(real, turn, A, B)
    hi, lo = in_half_turns(tl.where(real, 0.0, q), SHORT)
    faster = tl.abs(p) > tl.abs(q)
    p, q = tl.where(faster, p, q), tl.where(faster, q, p)
    # A root that is 0 is as good as one that is next to it.
    q = tl.where(tl.abs(q) < 1e-15, -1e-15, q)
    p1, q1 = tl.where(real, p, -1.0), tl.where(real, q, -1.0)
    return Seamless(
        real,
        real & (tl.abs(turn) > _APART * tl.abs(mean)),
        mean.to(TYPE),
        (mean * LOG2E).to(TYPE),
        p1.to(TYPE),
        q1.to(TYPE),
        (p1 * LOG2E).to(TYPE),
        (q1 * LOG2E).to(TYPE),
        (tl.abs(turn) * LOG2E).to(TYPE),
        inverse(p1).to(TYPE),
        inverse(q1).to(TYPE),
        hi,
        lo,
        gap.to(TYPE),
        (0.5 * inverse(gap)).to(TYPE),
        tl.where(real, 0.5 * tl.abs(inverse(turn)), inverse(turn)).to(TYPE),
        tl.maximum(tl.abs(mean), tl.abs(turn)).to(TYPE),
        inverse(product).to(TYPE),
        A.to(TYPE),
        B.to(TYPE),
        G.to(TYPE),
    )


@triton.jit
def s_series(z):
    # (S·e^(-αt)/t - 1)/z of z = D·t² while |z| < 1.
    S = 2.753922444753698e-06 * z + 0.00019844394410029054
    return (S * z + 0.008333335630595684) * z + 0.1666666567325592


@triton.jit
def v_series(z, MODE: tl.constexpr):
    # V·e^(-αt)/t³, likewise; for 16 bits while |z| < 1/20.
    if MODE == HALF:
        N = 0.016666667 * z + 0.16666667
    else:
        N = (1.1018109034921508e-05 * z + 0.0005953632644377649) * z + 0.016666671261191368
        N = N * z + 0.1666666567325592
    return N


@triton.jit
def iv_series(x, y, MODE: tl.constexpr):
    # iV·e^(-αt)/t⁴ = Σ (k+1)·x^k·y^m/(2k+m+4)! of x = D·t² and y = -αt from 0 to 1.5, x from -2.25
    # to y²: fitted, to 4e-7; for 16 bits of y up to 1/2, to 4e-4.
    if MODE == HALF:
        found = 0.0027777778 * x + ((0.0013888889 * y + 0.0083333333) * y + 0.041666667)
    else:
        a = 5.833506975250202e-07 * y + 1.7975335140363313e-06
        a = a * y + 2.636648787301965e-05
        a = a * y + 0.00019681407138705254
        a = a * y + 0.0013898219913244247
        a = a * y + 0.008333091624081135
        a = a * y + 0.041666679084300995
        b = 9.289209970120282e-07 * y + 4.598819487000583e-06
        b = b * y + 5.056227382738143e-05
        b = b * y + 0.0003964542120229453
        b = b * y + 0.0027777741197496653
        c = 1.0109562254001503e-06 * y + 8.19047727418365e-06
        c = c * y + 7.438007742166519e-05
        d = 1.1723502524318974e-07 * y + 1.09903521661181e-06
        e = 1.3317663416501091e-08
        found = (((e * x + d) * x + c) * x + b) * x + a
    return found


@triton.jit
def seamless_gradients(x, g, unit, KIND: tl.constexpr, HOW: tl.constexpr):
    # g·dy/dx, and what the element adds to seven sums, see seamless_gathered.
    CAP: tl.constexpr = _cap2(HOW)
    raw = unit.mean2 * x
    moving = raw <= CAP
    e = fast_exp2(at_most(raw, CAP, HALF), HOW.PTX)
    # Away from t = 0: two exponentials, the growing one capped, or a sine and a cosine.
    if KIND != OSCILLATING:
        # With the mean held, only the distance counts; a difference would lose digits far out.
        raw1 = tl.where(moving, unit.p2 * x, CAP - unit.turn2 * x)
        raw2 = tl.where(moving, unit.q2 * x, CAP + unit.turn2 * x)
        free = raw1 <= 2.0 * CAP
        e1 = fast_exp2(at_most(raw1, 2.0 * CAP, HALF), HOW.PTX)
        e2 = fast_exp2(raw2, HOW.PTX)
        live1 = tl.where(free, e1, 0.0)
        even, odd = 0.5 * (e2 + e1), (e2 - e1) * unit.over_turn
        live_even, live_odd = 0.5 * (e2 + live1), (e2 - live1) * unit.over_turn
    if KIND != REAL:
        sine, cosine, _ = sine_cosine(x, unit.hi, unit.lo, SHORT)
        wave_even, wave_odd = e * cosine, e * sine * unit.over_turn
    if KIND == OSCILLATING:
        even, odd, live_even, live_odd = wave_even, wave_odd, wave_even, wave_odd
    elif KIND != REAL:
        even, odd = tl.where(unit.real, even, wave_even), tl.where(unit.real, odd, wave_odd)
        live_even = tl.where(unit.real, live_even, wave_even)
        live_odd = tl.where(unit.real, live_odd, wave_odd)
    half = 0.5 * x
    V = (x * live_even - odd) * unit.over_gap2
    dV = unit.mean * V + half * live_odd
    if KIND != OSCILLATING:  # the same with less lost, if the roots are far apart
        far = (half * (unit.q * e2 + unit.p * e1) - unit.mean * odd) * unit.over_gap2
        dV = far if KIND == REAL else tl.where(unit.real, far, dV)
    # Near it: power series of D·t².
    xx = x * x
    z = unit.gap * xx
    near = tl.abs(z) < 1.0
    C = 2.4733928512432612e-05 * z + 0.0013892273418605328
    C = (C * z + 0.04166673496365547) * z + 0.49999991059303284
    ex = e * x
    near_odd = ex * (s_series(z) * z + 1.0)
    V_near = ex * xx * v_series(z, SINGLE)
    even = tl.where(near, e * (C * z + 1.0), even)
    odd = tl.where(near, near_odd, odd)
    live_even = tl.where(near, even, live_even)
    live_odd = tl.where(near, near_odd, live_odd)
    V = tl.where(near, V_near, V)
    dV = tl.where(near, unit.mean * V_near + half * near_odd, dV)
    # For t > 0 alone.
    U = (1.0 - even + unit.mean * odd) * unit.over_product
    iV = (U - dV + 2.0 * unit.mean * V) * unit.over_product
    if KIND != OSCILLATING:
        second, along = _response_slope(x, unit.q2 * x, unit.over_q, e2, e2 - 1.0, e2, SHORT, HOW)
        M1 = e1 * unit.over_p - unit.over_p
        first = (x * e1 - M1) * unit.over_p
        U = (along - unit.q * second - M1) * unit.over_turn
        iV = tl.where(unit.apart, (0.5 * (first + second) - U) * unit.over_gap2, iV)
    iV = tl.where(unit.scale * x < SERIES, e * xx * xx * iv_series(z, -unit.mean * x, SINGLE), iV)
    positive = x > 0
    along = tl.where(moving, unit.A * live_even + unit.B * live_odd, 0.0)
    slope = unit.mean * along + unit.A * (unit.gap * live_odd) + unit.B * live_even
    slope += tl.where(positive, unit.G * odd, 0.0)
    by_gap = unit.A * (half * live_odd) + unit.B * V
    return (
        g * slope, g * x * along, g * by_gap, g * even, g * odd,
        g * _if(positive, iV), g * _if(positive, V), g * _if(positive, dV),
    )  # fmt: skip


@triton.jit
def gathered_response(kind, p, q, Af, Bf, iV, V, dV):
    # What the response adds to the sums of p and q, and those of Af and Bf, in float64: what is
    # large in them cancels later.
    real, mean, turn, _, product, _ = roots_of(kind, p, q, Af, Bf)
    U = product * iV - 2.0 * mean * V + dV
    U_mean = 2.0 * V - 2.0 * mean * iV
    # Of two roots it is Bf·(q - p)·U, of the mean and D; an oscillation's is -Af·(α² + ω²)·U.
    rise = turn * (U_mean + 2.0 * turn * iV)
    fall = turn * (U_mean - 2.0 * turn * iV)
    return (
        tl.where(real, Bf * (fall - U), -Af * (2.0 * mean * U + product * U_mean)),
        tl.where(real, Bf * (rise + U), -2.0 * turn * Af * (U - product * iV)),
        tl.where(real, 0.0, -product * U),
        tl.where(real, 2.0 * turn * U, 0.0),
    )


@triton.jit
def seamless_gathered(kind, p, q, A, B, Af, Bf, by_mean, by_gap, even, odd, iV, V, dV):
    # The sums of p, q, A, B, Af and Bf.
    real = kind == REAL
    turn = tl.where(real, (q - p) * 0.5, q)
    to_p, to_q, to_Af, to_Bf = gathered_response(kind, p, q, Af, Bf, iV, V, dV)
    apart = 0.5 * (B - A) * odd
    roots_p = 0.5 * by_mean - turn * by_gap - apart
    roots_q = 0.5 * by_mean + turn * by_gap + apart
    return (
        to_p + tl.where(real, roots_p, by_mean),
        to_q + tl.where(real, roots_q, B * odd - 2.0 * turn * by_gap),
        tl.where(real, even - turn * odd, even),
        tl.where(real, even + turn * odd, turn * odd),
        to_Af,
        to_Bf,
    )
