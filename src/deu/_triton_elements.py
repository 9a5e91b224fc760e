# mypy: ignore-errors
"""The work on each element, in Triton: a unit's basis functions, its value and its derivatives.

The formulas of ``csrc/elementwise.h`` and ``csrc/vmath.h``, but for real roots, see ``response``.
``MODE`` is the arithmetic: ``HALF`` (float32 by the chip's own fast functions, for results of 16
bits), ``SHORT`` (float32 with the chip's exponential), ``SINGLE`` (float32 to all its digits),
``DOUBLE``, or ``SEAMLESS`` (see _triton_seamless.py).  ``KIND`` is one kind of the table of
subspaces, or ``MIXED``, where every element brings its own: then all are computed and one is
chosen.
"""

from collections import namedtuple
from typing import NamedTuple

import triton
import triton.language as tl

from ._subspaces import Kind
from ._triton_chip import fast_exp2, fast_inverse, fast_sine_cosine

HALF, SHORT, SINGLE, DOUBLE, SEAMLESS = (tl.constexpr(i) for i in range(5))

MIXED = tl.constexpr(-1)
STEP = tl.constexpr(int(Kind.STEP))
POLYNOMIAL = tl.constexpr(int(Kind.POLYNOMIAL))
EXPONENTIAL = tl.constexpr(int(Kind.EXPONENTIAL))
REAL = tl.constexpr(int(Kind.REAL))
OSCILLATING = tl.constexpr(int(Kind.OSCILLATING))
CRITICAL = tl.constexpr(int(Kind.CRITICAL))
ENTIRE = tl.constexpr(int(Kind.ENTIRE))
STEADY = tl.constexpr(-2)  # REAL, and neither root grows
CLOSED = tl.constexpr(-3)  # REAL, values of 16 bits, and neither root is too slow for closed forms


class How(NamedTuple):
    """What a kernel is compiled for."""

    MODE: int
    CONTINUOUS: bool
    EPS: float
    SHARPNESS: float
    MAX_EXPONENT: float
    BOUND: float
    BOUND_BITS: int  # in a type of 16 bits, if the chip cuts two of them at once; else 0
    CLOSED_LIMIT: (
        float  # values of 16 bits: how many times a root a response may be, in closed form
    )
    PULL: bool  # whether neighbours pull singular coefficients outward
    LANES: bool  # channels lie along memory, and a tile holds many
    FLAT: bool  # all positions of a channel lie at one stride
    WIDE: bool  # offsets need 64 bits
    ALIKE: bool  # all tensors have the same strides
    HEIGHT: int  # of a tile: positions, or groups of WIDTH positions
    WIDTH: int  # of a tile: channels, or positions that are neighbours in memory
    TOGETHER: int  # channels lie along memory: at most so many neighbours are one thread's
    STAGES: int  # how many tiles are on their way at once
    ELEMENTS: int  # of a tile: a thread's
    STREAM: bool  # forward: what is written does not fit into a cache
    EVEN: bool  # tiles cover the tensor with nothing over
    PTX: bool  # whether the chip understands NVIDIA's instructions
    FACTORS: bool  # whether conditions may be factors, see _triton_fast.py
    KEEP: bool  # forward: whether normal forms are kept for backward
    READY: bool  # forward: whether they are there already, of packed numbers
    NORM: int  # whether batch norm comes before the unit, see _triton_norm.py
    RESIDUAL: bool  # and whether another tensor is added in between
    OVERLAP: bool  # whether a kernel may be launched while the one before it ends


LOG2E = tl.constexpr(1.44269504088896341)
TWO_PI = tl.constexpr(6.283185307179586)


@triton.jit
def at_most(x, cap, MODE: tl.constexpr):
    # NaN stays NaN.
    if MODE == DOUBLE:
        low = tl.where(x > cap, cap, x)
    else:
        low = tl.minimum(x, cap, propagate_nan=tl.PropagateNan.ALL)
    return low


@triton.jit
def at_least(x, floor, MODE: tl.constexpr):
    if MODE == DOUBLE:
        high = tl.where(x < floor, floor, x)
    else:
        high = tl.maximum(x, floor, propagate_nan=tl.PropagateNan.ALL)
    return high


@triton.jit
def inverse(x):
    # 1/x in float64, by Newton's steps from what the bits say: an exact division is five times as
    # long, and what a kernel does but once is paid for by the length of its code.
    y = (9213909880891250406 - x.to(tl.int64, bitcast=True)).to(tl.float64, bitcast=True)
    for _ in tl.static_range(4):
        y = y * (2.0 - x * y)
    return y


@triton.jit
def as_needed(p, q, A, B, Af, Bf, MODE: tl.constexpr, GRADIENTS: tl.constexpr):
    # The numbers from which a unit's constants are made: for values float32 is enough.
    TYPE: tl.constexpr = tl.float64 if GRADIENTS or MODE == SINGLE else tl.float32
    return p.to(TYPE), q.to(TYPE), A.to(TYPE), B.to(TYPE), Af.to(TYPE), Bf.to(TYPE)


@triton.jit
def inverse_unless_tiny(x, TINY: tl.constexpr):
    x = tl.where(tl.abs(x) < TINY, tl.full((), TINY, x.dtype), x)
    return 1.0 / x if x.dtype == tl.float32 else inverse(x)


@triton.jit
def root(x):
    # √|x| in float64, likewise: rows that take the root of x and of -x share it.
    x = tl.abs(x)
    y = (6910469410427058089 - (x.to(tl.int64, bitcast=True) >> 1)).to(tl.float64, bitcast=True)
    for _ in tl.static_range(4):
        y = y * (1.5 - 0.5 * x * y * y)
    return x * y


@triton.jit
def exp2_and_less_one(
    x, MODE: tl.constexpr, PTX: tl.constexpr = False, NARROW: tl.constexpr = False
):
    # 2^x and 2^x - 1, with all the digits of both; in float64, twelve if the result is NARROW.
    if MODE == HALF or MODE == SHORT:
        e = fast_exp2(x, PTX)
        less_one = e - 1.0
    elif MODE == SINGLE:
        x = at_least(x, -125.0, MODE)
        shifted = x + 12582912.0  # 1.5·2^23: adding it rounds to an integer
        r = x - (shifted - 12582912.0)
        r2 = r * r
        low = 0.240226507606 * r + 0.693147188031
        mid = 0.00961808253864 * r + 0.0555035709269
        high = 0.00015453172887 * r + 0.00133908748478
        y = ((high * r2 + mid) * r2 + low) * r
        scale = ((shifted.to(tl.int32, bitcast=True) << 23) + 1065353216).to(
            tl.float32, bitcast=True
        )
        e = y * scale + scale
        less_one = y * scale + (scale - 1.0)
    else:
        x = at_least(x, -1021.0, MODE)
        shifted = x + 6755399441055744.0  # 1.5·2^52
        r = x - (shifted - 6755399441055744.0)
        if NARROW:
            y = r * 1.3250812590443863e-6 + 0.0000153037109205700294
            y = y * r + 0.000154034751644266384
            y = y * r + 0.00133334784417802025
            y = y * r + 0.00961812913525271837
            y = y * r + 0.0555041090634979596
            y = y * r + 0.240226506958884849
            y = y * r + 0.693147180556829921
        else:
            y = r * 2.5729334365063256871e-11 + 4.4558199665721413479e-10
            y = y * r + 7.0548972984244248626e-9
            y = y * r + 1.0178057076155389805e-7
            y = y * r + 1.3215486808716706477e-6
            y = y * r + 0.000015252733841579288376
            y = y * r + 0.00015403530393370723602
            y = y * r + 0.0013333558146406452119
            y = y * r + 0.0096181291076284802398
            y = y * r + 0.055504108664821624356
            y = y * r + 0.24022650695910071233
            y = y * r + 0.69314718055994530942
        y = y * r
        scale = ((shifted.to(tl.int64, bitcast=True) << 52) + 4607182418800017408).to(
            tl.float64, bitcast=True
        )
        e = y * scale + scale
        less_one = y * scale + (scale - 1.0)
    return e, less_one


@triton.jit
def short_sine_cosine(x, hi, lo, PTX: tl.constexpr):
    # The chip's, of 2π·(hi + lo)·x, the angle reduced before digits are lost.
    turns = tl.fma(x, hi, 12582912.0) - 12582912.0
    return fast_sine_cosine(tl.fma(x, lo, tl.fma(x, hi, -turns)) * TWO_PI, PTX)


@triton.jit
def sine_cosine(x, hi, lo, MODE: tl.constexpr, NARROW: tl.constexpr = False):
    # sin, cos and cos - 1 of π·(hi + lo)·x, the angle reduced before digits are lost.
    if MODE != DOUBLE:
        shifted = tl.fma(x, hi, 12582912.0)
        r = tl.fma(x, lo, tl.fma(x, hi, -(shifted - 12582912.0)))
        u = at_most(r * r, 0.25, MODE)  # beyond 2^22 half turns no digit of the angle is left
        u2 = u * u
        s_low = -5.16770998999317666 * u + 3.1415926395324357
        s_mid = -0.59827503101047977 * u + 2.55007531684485385
        s = (0.0776209174109541562 * u2 + s_mid) * u2 + s_low
        c_low = 4.05871139183088489 * u - 4.93480219684338647
        c_mid = 0.235070312126060475 * u - 1.33523941492895673
        c = ((-0.0246178817364324038 * u2 + c_mid) * u2 + c_low) * u
        sign = shifted.to(tl.int32, bitcast=True) << 31
        sine = ((s * r).to(tl.int32, bitcast=True) ^ sign).to(tl.float32, bitcast=True)
        cosine = ((c + 1.0).to(tl.int32, bitcast=True) ^ sign).to(tl.float32, bitcast=True)
        cosine_less_one = tl.where(sign == 0, c, cosine - 1.0)
    else:
        product = x * (hi + lo)
        shifted = product + 6755399441055744.0
        r = product - (shifted - 6755399441055744.0)
        u = at_most(r * r, 0.25, MODE)
        if NARROW:
            s = u * -0.00702562728294660936 + 0.0820488381095647527
            s = s * u - 0.599251891214529217
            s = s * u + 2.55016329476198094
            s = s * u - 5.16771276396926879
            s = s * u + 3.14159265353352012
            c = u * 0.0018519862866265386 - 0.0257850335994132262
            c = c * u + 0.235327782719896048
            c = c * u - 1.33526260092639967
            c = c * u + 4.05871212279223533
            c = c * u - 4.93480220053199528
        else:
            s = u * 7.69582443098615584e-7 - 0.0000219033085860845563
            s = s * u + 0.00046629974442694022
            s = s * u - 0.00737043049176228686
            s = s * u + 0.0821458865715653603
            s = s * u - 0.599264529318854615
            s = s * u + 2.5501640398772979
            s = s * u - 5.16771278004996958
            s = s * u + 3.14159265358979324
            c = u * -1.3475900683248174e-7 + 4.30117402973045197e-6
            c = c * u - 0.000104637623036595657
            c = c * u + 0.00192957423793749249
            c = c * u - 0.0258068913837850977
            c = c * u + 0.235330630358588145
            c = c * u - 1.33526276885458201
            c = c * u + 4.05871212641676815
            c = c * u - 4.93480220054467931
        c = c * u
        sign = shifted.to(tl.int64, bitcast=True) << 63
        sine = ((s * r).to(tl.int64, bitcast=True) ^ sign).to(tl.float64, bitcast=True)
        cosine = ((c + 1.0).to(tl.int64, bitcast=True) ^ sign).to(tl.float64, bitcast=True)
        cosine_less_one = tl.where(sign == 0, c, cosine - 1.0)
    return sine, cosine, cosine_less_one


@triton.jit
def _fall(x, MODE: tl.constexpr, HOW: tl.constexpr):
    # e^(-s·|x|) and 1/(1 + that).
    fall = -tl.abs(x * (HOW.SHARPNESS * LOG2E))
    if HOW.MODE == DOUBLE:
        fall, _ = exp2_and_less_one(fall, MODE)
        r = 1.0 / (1.0 + fall)
    else:  # float32 is good enough for what is rounded to it
        fall = fast_exp2(fall.to(tl.float32), HOW.PTX)
        r = fast_inverse(1.0 + fall, HOW.PTX)
        if MODE == DOUBLE:
            fall, r = fall.to(tl.float64), r.to(tl.float64)
    return fall, r


@triton.jit
def smooth_step(x, MODE: tl.constexpr, HOW: tl.constexpr):
    # σ(s·x) and its slope s·σ'(s·x), the bump that stands for the Dirac term.
    fall, r = _fall(x, MODE, HOW)
    tail = fall * r
    return tl.where(x > 0, r, tail), tail * r * HOW.SHARPNESS


@triton.jit
def smooth_bump(x, MODE: tl.constexpr, HOW: tl.constexpr):
    # σ'(s·x) alone.
    fall, r = _fall(x, MODE, HOW)
    return fall * r * r


# A unit's constants in the precision of its arithmetic.
Unit = namedtuple(
    "Unit",
    [
        *("kind", "p", "q", "A", "B", "Af", "Bf"),  # the normal form; q = 1 if critical
        *("p2", "q2", "half_gap2", "mean2"),  # exponents to base 2; roots p, q as mean ± half_gap
        *("hi", "lo"),  # the angle in half turns, in two parts
        *("over_p", "over_q"),  # of real roots, else 1
        *("half_gap", "cap2", "inner_cap2", "stop"),
    ],
)


@triton.jit
def arithmetic(
    kind,
    p,
    q,
    A,
    B,
    Af,
    Bf,
    MODE: tl.constexpr,
    HOW: tl.constexpr,
):
    # The constants of a unit, from its normal form in float64.
    TYPE: tl.constexpr = tl.float64 if MODE == DOUBLE else tl.float32
    MOST: tl.constexpr = 300.0 if MODE == DOUBLE else 40.0  # e^MOST squared is still finite
    LIMIT: tl.constexpr = HOW.MAX_EXPONENT if HOW.MAX_EXPONENT < MOST else MOST
    real, wave = kind == REAL, kind == OSCILLATING
    # A root that is 0 is as good as one that is next to it, whose inverse is finite in float32.
    rooted, tiny = real | (kind == EXPONENTIAL), tl.full((), 1e-30, tl.float64)
    p = tl.where(rooted & (tl.abs(p) < tiny), tiny, p)
    q = tl.where(real & (tl.abs(q) < tiny), tiny, q)
    turns = tl.where(wave, q * 0.31830988618379067, 0.0)
    hi = turns.to(TYPE)
    lo = (turns - hi.to(tl.float64)).to(TYPE)
    turning = tl.where(kind == CRITICAL, 1.0, q)
    half_gap = tl.where(real, (q - p) * 0.5, 0.0)
    mean = tl.where(real, (p + q) * 0.5, p)
    cap2 = tl.where(real & HOW.CONTINUOUS, 2.0, 1.0).to(tl.float64) * (LIMIT * LOG2E)
    grows = mean > 0
    stop = tl.where(grows, 0.5 * LIMIT * inverse(tl.where(grows, mean, 1.0)), float("inf"))
    return Unit(
        kind,
        p.to(TYPE),
        turning.to(TYPE),
        A.to(TYPE),
        B.to(TYPE),
        Af.to(TYPE),
        Bf.to(TYPE),
        (p * LOG2E).to(TYPE),
        tl.where(real, q * LOG2E, 0.0).to(TYPE),
        (half_gap * LOG2E).to(TYPE),
        (mean * LOG2E).to(TYPE),
        hi,
        lo,
        inverse(tl.where(rooted, p, 1.0)).to(TYPE),
        inverse(tl.where(real, q, 1.0)).to(TYPE),
        half_gap.to(TYPE),
        cap2.to(TYPE),
        tl.full((), LIMIT * LOG2E, TYPE),
        stop.to(TYPE),
    )


@triton.jit
def basis(x, unit, KIND: tl.constexpr, MODE: tl.constexpr, HOW: tl.constexpr):
    # h1, h2: what A and B multiply.  d1, d2: what Af and Bf multiply, which start from 0.
    # free1, free2: whether the exponents are below their caps; held: whether their mean is at its.
    h1, h2, d1, d2 = x, x * 0.0 + 1.0, x * x, x  # POLYNOMIAL
    free1, free2, held = x == x, x == x, x != x
    if KIND != POLYNOMIAL:
        raw1, raw2 = unit.p2 * x, unit.q2 * x
        if HOW.CONTINUOUS and (KIND == REAL or KIND == MIXED):
            held = unit.mean2 * x > unit.inner_cap2
            if KIND == MIXED:
                held = held & (unit.kind == REAL)
            raw1 = tl.where(held, unit.inner_cap2 - unit.half_gap2 * x, raw1)
            raw2 = tl.where(held, unit.inner_cap2 + unit.half_gap2 * x, raw2)
        free1 = raw1 <= unit.cap2
        e, less_one = exp2_and_less_one(
            at_most(raw1, unit.cap2, MODE), MODE, HOW.PTX, HOW.MODE != DOUBLE
        )
        h1, d1 = e, less_one
        if KIND == CRITICAL:
            h2 = x * e
            d2 = h2
            free2 = free1
        if KIND == OSCILLATING or KIND == MIXED:
            sine, cosine, cosine_less_one = sine_cosine(
                x, unit.hi, unit.lo, MODE, HOW.MODE != DOUBLE
            )
            h1 = e * cosine
            if MODE == HALF or MODE == SHORT:
                d1 = h1 - 1.0
            else:
                d1 = less_one * cosine + cosine_less_one
        if KIND == OSCILLATING:
            h2 = e * sine
            d2 = h2
            free2 = free1
        if KIND == EXPONENTIAL or KIND == REAL or KIND == MIXED:
            d1 = d1 * unit.over_p
        if KIND == REAL or KIND == MIXED:
            free2 = raw2 <= unit.cap2
            h2, d2 = exp2_and_less_one(
                at_most(raw2, unit.cap2, MODE), MODE, HOW.PTX, HOW.MODE != DOUBLE
            )
            d2 = d2 * unit.over_q
        if KIND == MIXED:
            wave = unit.kind == OSCILLATING
            if not HOW.CONTINUOUS:
                critical, polynomial = unit.kind == CRITICAL, unit.kind == POLYNOMIAL
                wave = wave | critical
                sine = tl.where(critical, x, sine)
                h1 = tl.where(polynomial, x, h1)
                d1 = tl.where(polynomial, x * x, d1)
                d2 = tl.where(unit.kind == REAL, d2, x)
            turned = e * sine
            h2 = tl.where(wave, turned, h2)
            d2 = tl.where(wave, turned, d2)
            free2 = tl.where(wave, free1, free2)
    return h1, h2, d1, d2, free1, free2, held


@triton.jit
def value(x, unit, KIND: tl.constexpr, MODE: tl.constexpr, HOW: tl.constexpr):
    # y(x), not yet bounded.
    if HOW.CONTINUOUS:
        x = at_most(x, unit.stop, MODE)
    if KIND == STEP:
        step, _ = smooth_step(x, MODE, HOW)
        y = unit.A * step
    else:
        h1, h2, d1, d2, _, _, _ = basis(x, unit, KIND, MODE, HOW)
        if KIND == MIXED and not HOW.CONTINUOUS:
            step, _ = smooth_step(x, MODE, HOW)
            h1 = tl.where(unit.kind == STEP, step, h1)
        f = unit.Af * d1 + unit.Bf * d2
        y = unit.A * h1 + unit.B * h2 + tl.where(x > 0, f, 0.0)
    return y


@triton.jit
def response_slope(x, p, over_p, h, d, free, MODE: tl.constexpr):
    # The derivative by p of d = (e^(px) - 1)/p, whose closed form loses digits where px is small.
    closed = (tl.where(free, x * h, 0.0) - d) * over_p
    if MODE == HALF:
        slope = closed
    else:
        z = p * x
        if MODE == DOUBLE:
            near = tl.abs(z) < 0.0625
            s = z * (11.0 / 479001600.0) + 10.0 / 39916800.0
            s = s * z + 9.0 / 3628800.0
            s = s * z + 8.0 / 362880.0
            s = s * z + 7.0 / 40320.0
            s = s * z + 6.0 / 5040.0
            s = s * z + 5.0 / 720.0
            s = s * z + 4.0 / 120.0
            s = s * z + 3.0 / 24.0
            s = s * z + 2.0 / 6.0
            s = s * z + 1.0 / 2.0
        else:
            near = tl.abs(z) < 1.0
            s = 2.18465575017035e-05 * z + 0.00017851075972430408
            s = s * z + 0.0011913792695850134
            s = s * z + 0.0069414773024618626
            s = s * z + 0.03333279862999916
            s = s * z + 0.12500056624412537
            s = s * z + 0.33333340287208557
            s = s * z + 0.4999999701976776
        slope = tl.where(near, s * x * x, closed)
    return slope


@triton.jit
def gradients(x, g, unit, KIND: tl.constexpr, MODE: tl.constexpr, HOW: tl.constexpr):
    # g·dy/dx; what the element adds to the gradients of p, q, A, B, Af and Bf; and, in the
    # continuous solution, g·dy/dx where x is beyond the stop and moves it instead.
    stopped = x * 0.0
    if HOW.CONTINUOUS:
        beyond = x > unit.stop
        x = at_most(x, unit.stop, MODE)
    positive = x > 0
    gx = g * x
    gp = tl.where(positive, g, 0.0)
    to_p, to_q = x * 0.0, x * 0.0
    if KIND == STEP:
        h1, bump = smooth_step(x, MODE, HOW)
        h2, d1, d2 = to_p, to_p, to_p
        slope = unit.A * bump
    else:
        h1, h2, d1, d2, free1, free2, held = basis(x, unit, KIND, MODE, HOW)
        if KIND == POLYNOMIAL:
            slope = unit.A + tl.where(positive, 2.0 * unit.Af * x + unit.Bf, 0.0)
        elif KIND == EXPONENTIAL:
            live = tl.where(free1, h1, 0.0)
            slope = live * tl.where(positive, unit.p * unit.A + unit.Af, unit.p * unit.A)
            slope += tl.where(positive, unit.Bf, 0.0)
            pushed = response_slope(x, unit.p, unit.over_p, h1, d1, free1, MODE)
            to_p = gx * (unit.A * live) + gp * (unit.Af * pushed)
        elif KIND == REAL:
            live1, live2 = tl.where(free1, h1, 0.0), tl.where(free2, h2, 0.0)
            slope = live1 * tl.where(positive, unit.p * unit.A + unit.Af, unit.p * unit.A)
            slope += live2 * tl.where(positive, unit.q * unit.B + unit.Bf, unit.q * unit.B)
            by_p, by_q = unit.A * live1, unit.B * live2
            if HOW.CONTINUOUS:
                # With the mean of the roots held, only their distance moves the exponents; that
                # is so on the left alone, where there is no response.
                apart = 0.5 * (by_q - by_p)
                by_p, by_q = tl.where(held, -apart, by_p), tl.where(held, apart, by_q)
                slope = tl.where(held, 2.0 * unit.half_gap * apart, slope)
            pushed1 = response_slope(x, unit.p, unit.over_p, h1, d1, free1, MODE)
            pushed2 = response_slope(x, unit.q, unit.over_q, h2, d2, free2, MODE)
            to_p = gx * by_p + gp * (unit.Af * pushed1)
            to_q = gx * by_q + gp * (unit.Bf * pushed2)
        elif KIND == OSCILLATING or KIND == CRITICAL:
            At = tl.where(positive, unit.A + unit.Af, unit.A)
            Bt = tl.where(positive, unit.B + unit.Bf, unit.B)
            by_p = tl.where(free1, At * h1 + Bt * h2, 0.0)
            by_q = Bt * h1
            if KIND == OSCILLATING:
                by_q = by_q - At * h2
                to_q = gx * by_q
            slope = unit.p * by_p + unit.q * by_q
            to_p = gx * by_p
        else:
            real, wave = unit.kind == REAL, unit.kind == OSCILLATING
            rooted = real
            if not HOW.CONTINUOUS:
                critical, polynomial = unit.kind == CRITICAL, unit.kind == POLYNOMIAL
                wave = wave | critical
                rooted = real | (unit.kind == EXPONENTIAL)
            # Af and Bf as if they multiplied e^(px) - 1.
            f1 = tl.where(positive, unit.Af * unit.over_p, 0.0)
            f2 = tl.where(positive, unit.Bf * unit.over_q, 0.0)
            live1 = tl.where(free1, h1, 0.0)
            live2 = tl.where(free2, h2, 0.0)
            turned = (unit.B + f2) * h1
            if HOW.CONTINUOUS:
                turned -= (unit.A + f1) * h2
            else:
                turned -= tl.where(critical, 0.0, (unit.A + f1) * h2)
            by_p = unit.A * live1 + tl.where(wave, (unit.B + f2) * live2 + f1 * live1, 0.0)
            by_q = tl.where(real, unit.B * live2, turned)
            slope = unit.p * (by_p + tl.where(rooted, f1 * live1, 0.0))
            slope += unit.q * (by_q + tl.where(real, f2 * live2, 0.0))
            if HOW.CONTINUOUS:
                apart = 0.5 * (unit.B * live2 - unit.A * live1)
                by_p, by_q = tl.where(held, -apart, by_p), tl.where(held, apart, by_q)
                slope = tl.where(held, 2.0 * unit.half_gap * apart, slope)
            else:
                ramp = polynomial | (unit.kind == EXPONENTIAL)
                slope += tl.where(ramp & positive, unit.Bf, 0.0)
                bent = unit.A + tl.where(positive, 2.0 * unit.Af * x, 0.0)
                slope += tl.where(polynomial, bent, 0.0)
            pushed1 = response_slope(x, unit.p, unit.over_p, h1, d1, free1, MODE)
            pushed2 = response_slope(x, unit.q, unit.over_q, h2, d2, free2, MODE)
            to_p = gx * by_p + gp * tl.where(rooted, unit.Af * pushed1, 0.0)
            to_q = gx * by_q + gp * tl.where(real, unit.Bf * pushed2, 0.0)
            if MODE == SINGLE:  # of two roots, M is more exact by its derivative
                near1, near2 = tl.abs(unit.p * x) < 1.0, tl.abs(unit.q * x) < 1.0
                d1 = tl.where(real & near1, x * live1 - unit.p * pushed1, d1)
                d2 = tl.where(real & near2, x * live2 - unit.q * pushed2, d2)
        if not HOW.CONTINUOUS:
            step, bump = smooth_step(x, MODE, HOW)
            slope += bump * (unit.Af * d1 + unit.Bf * d2)
            if KIND == MIXED:
                slope = tl.where(unit.kind == STEP, unit.A * bump, slope)
                h1 = tl.where(unit.kind == STEP, step, h1)
    moved = g * slope
    if HOW.CONTINUOUS:
        stopped = tl.where(beyond, moved, 0.0)
        moved = tl.where(beyond, 0.0, moved)
    return moved, to_p, to_q, g * h1, g * h2, gp * d1, gp * d2, stopped


@triton.jit
def neighbour_sums(x, g, unit, KIND: tl.constexpr, MODE: tl.constexpr, HOW: tl.constexpr):
    # What the element adds to the sums from which a neighbour's gradient follows whatever its A
    # and B: of g·d; of g·x·h; for x > 0 of g·∂d/∂p (real roots) or of g·x·h; and of g·x·h
    # over the capped elements (not of real roots, where it is left out of the former).
    h1, h2, d1, d2, free1, free2, _ = basis(x, unit, KIND, MODE, HOW)
    gp = tl.where(x > 0, g, 0.0)
    gx, gpx = g * x, gp * x
    if KIND == REAL:
        X1, X2 = gx * tl.where(free1, h1, 0.0), gx * tl.where(free2, h2, 0.0)
        P1 = gp * response_slope(x, unit.p, unit.over_p, h1, d1, free1, MODE)
        P2 = gp * response_slope(x, unit.q, unit.over_q, h2, d2, free2, MODE)
        capped1, capped2 = x * 0.0, x * 0.0
    else:
        X1, X2, P1, P2 = gx * h1, gx * h2, gpx * h1, gpx * h2
        capped1, capped2 = tl.where(free1, 0.0, X1), tl.where(free2, 0.0, X2)
        if KIND == MIXED:
            real = unit.kind == REAL
            X1, X2 = X1 - tl.where(real, capped1, 0.0), X2 - tl.where(real, capped2, 0.0)
            capped1, capped2 = tl.where(real, 0.0, capped1), tl.where(real, 0.0, capped2)
            pushed1 = response_slope(x, unit.p, unit.over_p, h1, d1, free1, MODE)
            pushed2 = response_slope(x, unit.q, unit.over_q, h2, d2, free2, MODE)
            P1, P2 = tl.where(real, gp * pushed1, P1), tl.where(real, gp * pushed2, P2)
    return gp * d1, gp * d2, X1, X2, P1, P2, capped1, capped2
