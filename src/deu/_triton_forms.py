# mypy: ignore-errors
"""On a GPU: what a neuron's coefficients make of it, and the arithmetic that it needs."""

from collections import namedtuple

import triton
import triton.language as tl

from ._triton import FORM as _FORM
from ._triton import KIND_STEP as _KIND_STEP
from ._triton_elements import (
    CRITICAL,
    DOUBLE,
    ENTIRE,
    EXPONENTIAL,
    HALF,
    OSCILLATING,
    POLYNOMIAL,
    REAL,
    SEAMLESS,
    SHORT,
    SINGLE,
    STEP,
)
from ._triton_fast import FAST_ROOT
from ._triton_rows import (
    continuous_kind,
    continuous_row,
    continuous_snap,
    continuous_solve,
    paper_force,
    paper_kind,
    paper_row,
    paper_snap,
    paper_solve,
)
from ._triton_seamless import can_be_beside, can_be_seamless, has_seamless, paper_can_be_seamless

# Which arithmetic a neuron needs depends on its numbers: how large those of the response are
# (AHEAD), all of them (NUMBER) and a frequency; how slow a real root is; and, for gradients, how
# steep the numbers are in the coefficients, which is how much they amplify rounding errors.
_FAST_AHEAD, _FAST_NUMBER = tl.constexpr(4.0), tl.constexpr(4.0)
_HALF_AHEAD, _HALF_ROOT, _HALF_STEEP = tl.constexpr(8.0), tl.constexpr(0.5), tl.constexpr(500.0)
_HALF_FAST_STEEP, _HALF_REAL_STEEP = tl.constexpr(16.0), tl.constexpr(250.0)
_HALF_PAPER_STEEP = tl.constexpr(80.0)  # of real roots too
_HALF_FREQUENCY = tl.constexpr(16.0)
_NUMBER, _STEEP, _FREQUENCY = tl.constexpr(1e3), tl.constexpr(72.0), tl.constexpr(64.0)
_REAL_AHEAD, _REAL_STEEP = tl.constexpr(16.0), tl.constexpr(12.0)
_GROWTH = tl.constexpr(0.25)
_FAST_VALUE, _SINE_VALUE, _SINE_GROWN = tl.constexpr(16.0), tl.constexpr(8.0), tl.constexpr(12.0)
_HALF_VALUE = tl.constexpr(32.0)
_FAST_DECAY, _BUMPED_AHEAD = tl.constexpr(32.0), tl.constexpr(1.2)
# Of a root by a, times what its sum has of the other root's.
_FAST_SHIFT, _HALF_SHIFT = tl.constexpr(48.0), tl.constexpr(600.0)
# Of neighbours: from which root, or frequency, on closed forms have the digits; and for 16 bits.
_NEAR_ROOT, _NEAR_TURN = tl.constexpr(0.25), tl.constexpr(1.0)
_HALF_NEAR_ROOT, _HALF_NEAR_TURN = tl.constexpr(0.03), tl.constexpr(0.35)
# Between these exponents nothing over- or underflows; up to this steepness a closed form in float64
# stands in for the entire functions at a seam.
_SLOWEST, _FASTEST, _BY_DOUBLE = tl.constexpr(1e-6), tl.constexpr(1e6), tl.constexpr(1e8)


FORM = tl.constexpr(_FORM)  # how many numbers are kept of a normal form
KIND_STEP = tl.constexpr(_KIND_STEP)

# What is known of a channel; and of its neighbour, with whether it oscillates slowly.
Form = namedtuple("Form", ["kind", "p", "q", "A", "B", "Af", "Bf"])
NearForm = namedtuple("NearForm", ["kind", "p", "q", "Af", "Bf", "slow"])

# What facts and close_facts say.
NEEDS_DOUBLE, NOT_FASTEST, NOT_FAST, NO_WAVE, NO_ROOTS, CLOSE, STILL_DOUBLE, UNABLE = (
    tl.constexpr(1 << i) for i in range(8)
)


@triton.jit
def any_of(condition, HOW: tl.constexpr):
    if HOW.LANES:
        condition = tl.max(condition.to(tl.int32), 0) > 0
    return condition


@triton.jit
def _or(x, y):
    return x | y


@triton.jit
def any_bits(x):
    return tl.reduce(x, 0, _or)


@triton.jit
def facts(kind, mode, mask, FAST: tl.constexpr):
    # Of each channel of a tile, in bits: that it needs float64; and if not, that it needs more than
    # the fastest arithmetic, or more than FAST, does not oscillate, has not two roots.
    rest = (mode != DOUBLE) & mask
    found = _bit((mode == DOUBLE) & mask, NEEDS_DOUBLE) + _bit((mode > HALF) & rest, NOT_FASTEST)
    found += _bit((mode > FAST) & rest, NOT_FAST)
    return (
        found + _bit((kind != OSCILLATING) & rest, NO_WAVE) + _bit((kind != REAL) & rest, NO_ROOTS)
    )


@triton.jit
def close_facts(mode, able, mask):
    # That its roots are close; and that it needs float64, or cannot be SEAMLESS, all the same.
    double = (mode == DOUBLE) & mask
    unable = (able == 0) & (mode != DOUBLE) & mask
    found = _bit((mode == SEAMLESS) & mask, CLOSE) + _bit(double, STILL_DOUBLE)
    return found + _bit(unable, UNABLE)


@triton.jit
def _bit(condition, BIT: tl.constexpr):
    return condition.to(tl.int32) * BIT


@triton.jit
def largest_of(A, B, Af, Bf):
    # NaN if there is one, which no comparison trusts.
    total = tl.abs(A) + tl.abs(B) + tl.abs(Af) + tl.abs(Bf)
    most = tl.maximum(tl.maximum(tl.abs(A), tl.abs(B)), tl.maximum(tl.abs(Af), tl.abs(Bf)))
    return tl.where(total == total, most, total)


@triton.jit
def _steepest(a, b, c, kind, p, q, A, B, Af, Bf, CONTINUOUS: tl.constexpr):
    # How steep the numbers are in the coefficients, roughly, where their terms cancel: products of
    # the response with its own scales.  What is of one term, or of terms of one sign, cancels
    # nothing.  Of oscillations Af = -1/c and Bf = -b/(c·√-Δ), of real roots Af = -Bf = -1/√Δ.
    size = tl.maximum(tl.abs(a), tl.maximum(tl.abs(b), tl.abs(c)))
    closeness = tl.abs(1.0 / tl.where(kind == OSCILLATING, a * q, 1.0))  # 2/√-Δ
    swing = tl.maximum(tl.abs(Af), tl.abs(Bf))
    wave = swing * tl.maximum(tl.abs(Af), closeness * closeness * size)
    real = 2.0 * size * Af * Af * tl.abs(Af)
    own = tl.maximum(tl.abs(A), tl.abs(B))
    if CONTINUOUS:  # A and B have the same scales
        wave = tl.maximum(wave, own * closeness * tl.maximum(closeness * size, 1.0))
        real = tl.maximum(real, own * 2.0 * size * Af * Af)
    else:  # the frequency's is about q/2a, times what it turns
        wave = tl.maximum(wave, 0.8 * own * q * q * closeness)
    other = swing * tl.maximum(swing, 1.0)
    steep = tl.where(kind == OSCILLATING, wave, tl.where(kind == REAL, real, other))
    return tl.where((kind == STEP) | (kind == POLYNOMIAL), 0.0, steep)


@triton.jit
def _may_be_steep(a, b, c, A, B, Af, Bf):
    # Whether _steepest may be above _BY_DOUBLE: a few comparisons, which nearly all units pass.
    size = tl.maximum(tl.abs(a), tl.maximum(tl.abs(b), tl.abs(c)))
    apart = tl.abs(b * b - 4.0 * a * c) >= 0.01
    return (apart & (size <= 100.0) & (largest_of(A, B, Af, Bf) <= 1e3)) == 0


@triton.jit
def _shorter(a, b, c, p, q, A, B, Af, Bf):
    # In float32, which is enough to choose an arithmetic, and a third of the code.
    a, b, c, p, q = _short(a), _short(b), _short(c), _short(p), _short(q)
    return a, b, c, p, q, _short(A), _short(B), _short(Af), _short(Bf)


@triton.jit
def _short(x):
    return x.to(tl.float32)


@triton.jit
def _fast_gradients(
    kind, p, q, A, B, ahead, Bf, steepest, CONTINUOUS: tl.constexpr, HOW: tl.constexpr
):
    # Whether the chip's own functions have the digits that gradients need.
    own, root = tl.maximum(tl.abs(A), tl.abs(B)), tl.maximum(tl.abs(p), tl.abs(q))
    wave, real, single = kind == OSCILLATING, kind == REAL, kind == EXPONENTIAL
    fast = (root >= FAST_ROOT) | (real == 0)
    if CONTINUOUS:
        few = root * root * tl.abs(Bf) * own <= (_HALF_SHIFT if HOW.MODE == HALF else _FAST_SHIFT)
        fast = fast & (few | (real == 0))
    else:  # the bump multiplies the response near t = 0
        turning = wave | (kind == CRITICAL)
        fast = fast & ((ahead <= _BUMPED_AHEAD) | (turning == 0))
    if HOW.MODE == HALF:
        fast = fast & (ahead <= _HALF_AHEAD) & (steepest <= _HALF_FAST_STEEP)
        fast = fast & ((tl.abs(p) >= _HALF_ROOT) | (single == 0))
    else:
        fast = fast & (ahead <= _FAST_AHEAD) & (own <= _FAST_NUMBER)
        fast = fast & ((root <= _FAST_DECAY) | ((real | single) == 0))
    return fast


@triton.constexpr_function
def has_closed(HOW):
    # Whether roots that are not too slow for closed forms have a loop of their own for values.
    return HOW.MODE == HALF and not (HOW.LANES and not HOW.CONTINUOUS)


@triton.constexpr_function
def _at_its_cap(HOW):
    # What an exponential comes up to.
    return 2.718281828459045 ** min(HOW.MAX_EXPONENT, 40.0)


@triton.jit
def _fast_value(kind, p, q, A, B, ahead, CONTINUOUS: tl.constexpr, HOW: tl.constexpr):
    # The same for values, where all that is lost is lost in (e^(pt) - 1)/p, if it is taken as that.
    wave, real, single = kind == OSCILLATING, kind == REAL, kind == EXPONENTIAL
    larger, slower = tl.maximum(tl.abs(p), tl.abs(q)), tl.minimum(tl.abs(p), tl.abs(q))
    if HOW.MODE == HALF:
        fast = ahead <= _HALF_VALUE
        fast = fast & ((ahead <= HOW.CLOSED_LIMIT * tl.abs(p)) | (single == 0))
        if HOW.LANES and not CONTINUOUS:
            larger = slower
        fast = fast & ((ahead <= HOW.CLOSED_LIMIT * larger) | (real == 0))
    else:
        own = tl.maximum(tl.abs(A), tl.abs(B))
        fast = tl.maximum(ahead, own) <= _FAST_VALUE
        fast = fast & ((ahead <= _FAST_VALUE * larger) | (real == 0))
        if HOW.LANES and CONTINUOUS:  # an exponent whose mean is held is a difference
            fast = fast & ((larger <= _FAST_DECAY) | (real == 0))
        elif HOW.LANES:  # by the chip's sine, of which an exponential makes more
            grown = _at_its_cap(HOW) * tl.where(p > 0, own + ahead, own)
            fast = fast & ((tl.maximum(ahead, own) <= _SINE_VALUE) | (wave == 0))
            fast = fast & ((grown <= _SINE_GROWN) | (wave == 0))
    return fast


@triton.jit
def _tier(
    a, b, c, kind, p, q, A, B, Af, Bf,
    CONTINUOUS: tl.constexpr, GRADIENTS: tl.constexpr, HOW: tl.constexpr,
):  # fmt: skip
    # The arithmetic that numbers need.
    a, b, c, p, q, A, B, Af, Bf = _shorter(a, b, c, p, q, A, B, Af, Bf)
    steepest = tl.zeros_like(a)
    if GRADIENTS:
        steepest = _steepest(a, b, c, kind, p, q, A, B, Af, Bf, CONTINUOUS)
    largest = largest_of(A, B, Af, Bf)
    wave, real = kind == OSCILLATING, kind == REAL
    trusted = (tl.abs(p) <= _FASTEST) & (tl.abs(q) <= _FASTEST)
    trusted = trusted & ((tl.abs(p) >= _SLOWEST) | (kind != EXPONENTIAL))
    if HOW.MODE == DOUBLE:
        mode = tl.where(kind == kind, DOUBLE, DOUBLE)
    else:
        ahead = tl.maximum(tl.abs(Af), tl.abs(Bf))
        trusted = trusted & (largest <= _NUMBER)
        # t/b and what falls behind it by a/b² are close at first.
        lagging = (kind == EXPONENTIAL) & (Bf != 0)
        trusted = trusted & ((ahead <= _HALF_AHEAD) | (lagging == 0))
        # So are the responses of two roots that are close.
        trusted = trusted & ((ahead <= _REAL_AHEAD) | (real == 0))
        if CONTINUOUS:  # a root that grows does so up to the square of the cap; or time stops
            grown = (tl.maximum(p, q) <= _GROWTH) & (p + q <= 0)
            trusted = trusted & (grown | (real == 0))
        trusted = trusted & ((tl.abs(q) <= _FREQUENCY) | (wave == 0))
        if GRADIENTS:
            fast = _fast_gradients(kind, p, q, A, B, ahead, Bf, steepest, CONTINUOUS, HOW)
        else:
            fast = _fast_value(kind, p, q, A, B, ahead, CONTINUOUS, HOW)
        if CONTINUOUS:  # where an oscillation grows, time stops
            fast = fast & ((p <= 0) | (wave == 0))
        if HOW.MODE == HALF:
            fast = fast & ((tl.abs(q) <= _HALF_FREQUENCY) | (wave == 0))
            ROOTS: tl.constexpr = _HALF_REAL_STEEP if CONTINUOUS else _HALF_PAPER_STEEP
            trusted = trusted & (steepest <= tl.where(real, ROOTS, _HALF_STEEP))
            mode = tl.where(trusted, tl.where(fast, HALF, SINGLE), DOUBLE)
            if GRADIENTS and (CONTINUOUS or not HOW.LANES):
                short = wave & (ahead <= _FAST_AHEAD) & (steepest <= _STEEP)
                if CONTINUOUS:
                    short = short & (p <= 0)
                mode = tl.where(short & (mode == SINGLE), SHORT, mode)
            if not GRADIENTS and has_closed(HOW):
                slower = tl.minimum(tl.abs(p), tl.abs(q))
                short = real & ((ahead <= HOW.CLOSED_LIMIT * slower) == 0)
                mode = tl.where(short & (mode == HALF), SHORT, mode)
        else:
            trusted = trusted & (steepest <= tl.where(real, _REAL_STEEP, _STEEP))
            mode = tl.where(trusted, tl.where(fast, SHORT, SINGLE), DOUBLE)
    return mode


@triton.jit
def normal_form(a, b, c, c1, c2, CONTINUOUS: tl.constexpr, HOW: tl.constexpr):
    # Row, forced coefficients, kind, the six numbers, and the arithmetic that values need.
    eps = tl.full((), HOW.EPS, tl.float64)
    if CONTINUOUS:
        a, b, c = continuous_snap(a, b, c, eps)
        if HOW.MODE == DOUBLE:
            row = continuous_row(a, b, c, eps)
        else:
            # Narrow tensors have no digits that the closed forms lose, but right at a seam; and
            # they are ten times as fast.
            row = continuous_row(a, b, c, eps, 1)
        p, q, A, B, Af, Bf = continuous_solve(row, a, b, c, c1, c2)
        kind = continuous_kind(row)
        if HOW.MODE != DOUBLE:
            x, y, z, u, v, E, F, Ef, Ff = _shorter(a, b, c, p, q, A, B, Af, Bf)
            if any_of(_may_be_steep(x, y, z, E, F, Ef, Ff), HOW):
                steep = _steepest(x, y, z, kind, u, v, E, F, Ef, Ff, CONTINUOUS)
                seam = (continuous_row(a, b, c, eps) == 0) & ((steep <= _BY_DOUBLE) == 0)
                row = tl.where(seam, 0, row)
                kind = continuous_kind(row)
                p, q, A, B, Af, Bf = continuous_solve(row, a, b, c, c1, c2)
        careful = kind == ENTIRE
    else:
        a, b, c = paper_snap(a, b, c, eps)
        row = paper_row(a, b, c, eps)
        a, b, c = paper_force(row, a, b, c)
        kind = paper_kind(row)
        p, q, A, B, Af, Bf = paper_solve(row, a, b, c, c1, c2)
        careful = row != row
    mode = _tier(a, b, c, kind, p, q, A, B, Af, Bf, CONTINUOUS, False, HOW)
    mode = tl.where(careful, DOUBLE, mode)
    return row, a, b, c, kind, p, q, A, B, Af, Bf, mode


@triton.jit
def keep_form(forms_ptr, a, b, c, kind, p, q, A, B, Af, Bf, walk, HOW: tl.constexpr):
    # A normal form in memory, for backward; gradients may need more digits than the value does.
    mode = _tier(a, b, c, kind, p, q, A, B, Af, Bf, HOW.CONTINUOUS, True, HOW)
    mode = tl.where(kind == ENTIRE, DOUBLE, mode)
    able, close = kind != kind, kind != kind
    if has_seamless(HOW):
        _, _, _, u, v, E, F, Ef, Ff = _shorter(a, b, c, p, q, A, B, Af, Bf)
        if HOW.CONTINUOUS:
            able = can_be_seamless(kind, u, v, E, F, Ef, Ff, HOW)
        else:
            able = paper_can_be_seamless(kind, u, v, E, F, Ef, Ff, HOW)
        able = able & (largest_of(E, F, Ef, Ff) <= _NUMBER)
        close = able
        mode = tl.where(able & (mode == DOUBLE) & (kind != CRITICAL), SEAMLESS, mode)
        if not HOW.CONTINUOUS:  # rows side by side are SEAMLESS if those are that need it
            beside = can_be_beside(kind, u, v, E, F, Ef, Ff)
            able = able | (mode <= SHORT) | (beside & (mode == SINGLE))
    at, n = forms_ptr + walk.channel, walk.channels
    code = kind * KIND_STEP + close.to(tl.int32) * 16 + able.to(tl.int32) * 8 + mode
    store(at, code.to(tl.float64), walk.mask, HOW)
    store(at + n, p, walk.mask, HOW)
    store(at + 2 * n, q, walk.mask, HOW)
    store(at + 3 * n, A, walk.mask, HOW)
    store(at + 4 * n, B, walk.mask, HOW)
    store(at + 5 * n, Af, walk.mask, HOW)
    store(at + 6 * n, Bf, walk.mask, HOW)


@triton.jit
def kept_form(forms_ptr, walk, HOW: tl.constexpr):
    # The form, the arithmetic for gradients, whether they may be SEAMLESS, and should.
    at, n, mask = forms_ptr + walk.channel, walk.channels, walk.mask
    code = load(at, mask, 0.0, HOW)
    p, q = load(at + n, mask, 0.0, HOW), load(at + 2 * n, mask, 0.0, HOW)
    A, B = load(at + 3 * n, mask, 0.0, HOW), load(at + 4 * n, mask, 0.0, HOW)
    Af, Bf = load(at + 5 * n, mask, 0.0, HOW), load(at + 6 * n, mask, 0.0, HOW)
    code = code.to(tl.int32)
    return Form(code // KIND_STEP, p, q, A, B, Af, Bf), code % 8, code & 8 > 0, code & 16 > 0


@triton.jit
def ready_form(forms_ptr, walk, HOW: tl.constexpr):
    # A form among packed numbers (see _packed.py), and the arithmetic for values.
    form, _, _, _ = kept_form(forms_ptr, walk, HOW)
    kind, p, q, A, B, Af, Bf = form
    zero = tl.zeros_like(p)
    mode = _tier(zero, zero, zero, kind, p, q, A, B, Af, Bf, HOW.CONTINUOUS, False, HOW)
    return form, tl.where(kind == ENTIRE, DOUBLE, mode)


@triton.jit
def keep_neighbour(forms_ptr, a_ptr, b_ptr, c_ptr, walk, HOW: tl.constexpr):
    # Likewise that of the neighbour which pulls singular coefficients outward; code -1: none does.
    a = load(a_ptr + walk.channel, walk.mask, 1.0, HOW)
    b = load(b_ptr + walk.channel, walk.mask, 1.0, HOW)
    c = load(c_ptr + walk.channel, walk.mask, 1.0, HOW)
    pulled = is_singular(a, HOW) | is_singular(b, HOW) | is_singular(c, HOW)
    at, n = forms_ptr + FORM * walk.channels + walk.channel, walk.channels
    zero = tl.zeros_like(a)
    code, p, q, Af, Bf = tl.where(pulled, 0, -1), zero, zero, zero, zero
    if any_of(pulled & walk.mask, HOW):
        _, _, _, _, kind, p, q, _, _, Af, Bf, mode = normal_form(
            outward(a, HOW), outward(b, HOW), outward(c, HOW), zero, zero, False, HOW
        )
        mode = neighbour_mode(a, kind, p, q, mode, HOW)
        code = tl.where(pulled, kind * 8 + mode, -1)
    store(at, code.to(tl.float64), walk.mask, HOW)
    store(at + n, p, walk.mask, HOW)
    store(at + 2 * n, q, walk.mask, HOW)
    store(at + 3 * n, Af, walk.mask, HOW)
    store(at + 4 * n, Bf, walk.mask, HOW)


@triton.jit
def kept_neighbour(forms_ptr, walk, HOW: tl.constexpr):
    # Whether there is one, its form, and the arithmetic for its sums.
    at, n, mask = forms_ptr + FORM * walk.channels + walk.channel, walk.channels, walk.mask
    code = load(at, mask, -1.0, HOW).to(tl.int32)
    p, q = load(at + n, mask, 0.0, HOW), load(at + 2 * n, mask, 0.0, HOW)
    Af, Bf = load(at + 3 * n, mask, 0.0, HOW), load(at + 4 * n, mask, 0.0, HOW)
    kind, mode = code // 8, code % 8
    if HOW.LANES:  # SINGLE is for roots by themselves
        mode = tl.where(mode == SINGLE, DOUBLE, mode)
    pulled = code >= 0
    return pulled, NearForm(kind, p, q, Af, Bf, pulled & (mode == SEAMLESS)), mode


@triton.jit
def outward(p, HOW: tl.constexpr):
    # A singular coefficient moved to the nearest of ±eps.
    eps = tl.full((), HOW.EPS, tl.float64)
    return tl.where(tl.abs(p) < eps, tl.where(p < 0, -eps, eps), p)


@triton.jit
def neighbour_mode(a, kind, p, q, mode, HOW: tl.constexpr):
    # The arithmetic that a neighbour's sums need: SHORT, SEAMLESS if it oscillates slowly, SINGLE
    # if both roots are slow, or DOUBLE.  Its own a is a, which SEAMLESS sums say nothing of, and
    # these must not grow.
    ROOT: tl.constexpr = _HALF_NEAR_ROOT if HOW.MODE == HALF else _NEAR_ROOT
    TURN: tl.constexpr = _HALF_NEAR_TURN if HOW.MODE == HALF else _NEAR_TURN
    larger = tl.maximum(tl.abs(p), tl.abs(q))
    slow = (kind == OSCILLATING) & (larger < TURN)
    able = slow & (p <= 0) & (is_singular(a, HOW) == 0)
    double = (mode == DOUBLE) | (slow & (able == 0))
    double = double | ((kind == CRITICAL) & (tl.abs(p) < TURN))
    slowly = tl.where((kind == REAL) & (larger < ROOT), SINGLE, SHORT)
    return tl.where(double, DOUBLE, tl.where(able, SEAMLESS, slowly))


@triton.jit
def is_singular(p, HOW: tl.constexpr):
    return tl.abs(p) < tl.full((), HOW.EPS, tl.float64)


@triton.jit
def load(pointer, mask, other, HOW: tl.constexpr):
    # One number, or one a lane.
    if HOW.LANES:
        # In a loop of one turn, which LLVM takes away again.  It carries the pointer: Triton looks
        # at all of a kernel for each tensor of pointers that is not an argument of a block, which
        # was most of the time that it took to compile.  And it loads here: without the loop Triton
        # would load in each thread that walks along a channel, and make a unit's constants there,
        # four or eight a thread, instead of handing them on: what is done once is paid for by the
        # length of its code.
        loaded = tl.zeros(pointer.shape, tl.float64)
        left = tl.full((), 1, tl.int32)
        while left > 0:
            loaded = tl.load(pointer, mask, other).to(tl.float64)
            pointer += left
            left -= 1
    else:
        loaded = tl.load(pointer).to(tl.float64)
    return loaded


@triton.jit
def store(pointer, number, mask, HOW: tl.constexpr):
    if HOW.LANES:
        left = tl.full((), 1, tl.int32)
        while left > 0:  # see load
            tl.store(pointer, number, mask)
            pointer += left
            left -= 1
    else:
        tl.store(pointer, number)


@triton.jit
def coefficients(a_ptr, b_ptr, c_ptr, c1_ptr, c2_ptr, channel, mask, HOW: tl.constexpr):
    a, b = load(a_ptr + channel, mask, 1.0, HOW), load(b_ptr + channel, mask, 1.0, HOW)
    c = load(c_ptr + channel, mask, 1.0, HOW)
    c1, c2 = load(c1_ptr + channel, mask, 0.0, HOW), load(c2_ptr + channel, mask, 0.0, HOW)
    return a, b, c, c1, c2
