# mypy: ignore-errors
"""The Triton kernels: forward, backward, and the last step of backward.

A program walks over a share of the positions, tile by tile, keeps its sums in registers and stores
them once; ``finish`` adds the shares up in a fixed order and turns the gradient of the normal form
into that of the coefficients.  A tile is of one of two shapes.  Where positions lie along memory, a
program keeps to one channel, whose kind is then known, and a tile is so many groups of neighbours.
Where channels do (``LANES``), a tile is so many positions of so many channels, each of its own
kind.
"""

from collections import namedtuple

import triton
import triton.language as tl

from ._triton import OWN_SUMS, SUMS
from ._triton_elements import (
    CRITICAL,
    DOUBLE,
    ENTIRE,
    EXPONENTIAL,
    HALF,
    MIXED,
    OSCILLATING,
    POLYNOMIAL,
    REAL,
    SHORT,
    SINGLE,
    STEP,
    arithmetic,
    at_least,
    at_most,
    gradients,
    inverse,
    neighbour_sums,
    value,
)
from ._triton_entire import entire_point
from ._triton_fast import FAST_ROOT, fast_gradients, fast_unit, fast_value, gathered
from ._triton_mixed import mixed_gradients, mixed_neighbour_sums, mixed_unit, mixed_value
from ._triton_rows import (
    continuous_kind,
    continuous_pull,
    continuous_row,
    continuous_snap,
    continuous_solve,
    paper_force,
    paper_kind,
    paper_pull,
    paper_row,
    paper_snap,
    paper_solve,
)

# Of each share of the positions backward leaves finish sums: of the gradients of the six numbers
# and of what is beyond the stop; ten of the neighbour's; and of the inputs.
_SUMS, _NEAR, _INPUTS = tl.constexpr(SUMS), tl.constexpr(OWN_SUMS), tl.constexpr(SUMS - 1)

# Which arithmetic a neuron needs depends on its numbers: how large those of the response are
# (AHEAD), all of them (NUMBER) and a frequency; how slow a real root is; and, for gradients, how
# steep the numbers are in the coefficients, which is how much they amplify rounding errors.
_FAST_AHEAD, _FAST_NUMBER, _FAST_STEEP = tl.constexpr(4.0), tl.constexpr(4.0), tl.constexpr(24.0)
_HALF_AHEAD, _HALF_ROOT, _HALF_STEEP = tl.constexpr(8.0), tl.constexpr(0.5), tl.constexpr(500.0)
_HALF_FAST_STEEP, _HALF_REAL_STEEP = tl.constexpr(16.0), tl.constexpr(250.0)
_HALF_FREQUENCY = tl.constexpr(16.0)
_NUMBER, _STEEP, _FREQUENCY = tl.constexpr(1e3), tl.constexpr(64.0), tl.constexpr(64.0)
_REAL_AHEAD, _REAL_STEEP = tl.constexpr(16.0), tl.constexpr(24.0)
_GROWTH = tl.constexpr(0.25)
_FAST_DECAY, _BUMPED_AHEAD = tl.constexpr(32.0), tl.constexpr(1.2)
_NEAR_AHEAD = tl.constexpr(50.0)  # of neighbours, whose response may be as steep as 1/eps²
# Between these exponents nothing over- or underflows; up to this steepness a closed form in float64
# stands in for the entire functions at a seam.
_SLOWEST, _FASTEST, _BY_DOUBLE = tl.constexpr(1e-6), tl.constexpr(1e6), tl.constexpr(1e8)


@triton.jit
def _any(condition, HOW: tl.constexpr):
    if HOW.LANES:
        condition = tl.max(condition.to(tl.int32), 0) > 0
    return condition


@triton.jit
def _largest(A, B, Af, Bf):
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
    closeness = tl.abs(inverse(tl.where(kind == OSCILLATING, a * q, 1.0)))  # 2/√-Δ
    swing = tl.maximum(tl.abs(Af), tl.abs(Bf))
    wave = swing * tl.maximum(tl.abs(Af), closeness * closeness * size)
    real = 2.0 * size * Af * Af * tl.abs(Af)
    if CONTINUOUS:  # A and B have the same scales
        own = tl.maximum(tl.abs(A), tl.abs(B))
        wave = tl.maximum(wave, own * closeness * tl.maximum(closeness * size, 1.0))
        real = tl.maximum(real, own * 2.0 * size * Af * Af)
    other = swing * tl.maximum(swing, 1.0)
    steep = tl.where(kind == OSCILLATING, wave, tl.where(kind == REAL, real, other))
    return tl.where((kind == STEP) | (kind == POLYNOMIAL), 0.0, steep)


@triton.jit
def _normal_form(
    a, b, c, c1, c2, CONTINUOUS: tl.constexpr, GRADIENTS: tl.constexpr, HOW: tl.constexpr
):
    # Row, forced coefficients, kind, the six numbers, and the arithmetic that they need: for
    # values, or, with GRADIENTS, for gradients.
    eps = tl.full((), HOW.EPS, tl.float64)
    if CONTINUOUS:
        a, b, c = continuous_snap(a, b, c, eps)
        row = continuous_row(a, b, c, eps)
        seam = row == 0
        if HOW.MODE != DOUBLE:
            # Narrow tensors have no digits that the closed forms lose, but right at a seam; and
            # they are ten times as fast.
            row = continuous_row(a, b, c, eps, 1)
        p, q, A, B, Af, Bf = continuous_solve(row, a, b, c, c1, c2)
        kind = continuous_kind(row)
        if HOW.MODE != DOUBLE:
            steep = _steepest(a, b, c, kind, p, q, A, B, Af, Bf, CONTINUOUS)
            seam = seam & ((steep <= _BY_DOUBLE) == 0)
            if _any(seam, HOW):
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
    steepest = tl.zeros_like(a)
    if GRADIENTS:
        steepest = _steepest(a, b, c, kind, p, q, A, B, Af, Bf, CONTINUOUS)
    largest = _largest(A, B, Af, Bf)
    wave, real = kind == OSCILLATING, kind == REAL
    rooted = real | (kind == EXPONENTIAL)
    trusted = (tl.abs(p) <= _FASTEST) & (tl.abs(q) <= _FASTEST)
    trusted = trusted & ((tl.abs(p) >= _SLOWEST) | (kind != EXPONENTIAL))
    if HOW.MODE == DOUBLE:
        mode = tl.where(row == row, DOUBLE, DOUBLE)
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
        fast = steepest <= (_HALF_FAST_STEEP if HOW.MODE == HALF else _FAST_STEEP)
        fast = fast & ((tl.maximum(tl.abs(p), tl.abs(q)) >= FAST_ROOT) | (real == 0))
        if CONTINUOUS:  # where an oscillation grows, time stops
            fast = fast & ((p <= 0) | (wave == 0))
        if HOW.MODE == HALF:
            trusted = trusted & (steepest <= tl.where(real, _HALF_REAL_STEEP, _HALF_STEEP))
            fast = fast & (ahead <= _HALF_AHEAD)
            fast = fast & ((tl.abs(p) >= _HALF_ROOT) | (kind != EXPONENTIAL))
            fast = fast & ((tl.abs(q) <= _HALF_FREQUENCY) | (wave == 0))
            mode = tl.where(trusted, tl.where(fast, HALF, SINGLE), DOUBLE)
        else:
            trusted = trusted & (steepest <= tl.where(real, _REAL_STEEP, _STEEP))
            fast = fast & (ahead <= _FAST_AHEAD)
            fast = fast & ((tl.maximum(tl.abs(p), tl.abs(q)) <= _FAST_DECAY) | (rooted == 0))
            if not CONTINUOUS:  # the bump multiplies the response near t = 0
                fast = fast & ((ahead <= _BUMPED_AHEAD) | (wave == 0))
            fast = fast & (tl.maximum(tl.abs(A), tl.abs(B)) <= _FAST_NUMBER)
            mode = tl.where(trusted, tl.where(fast, SHORT, SINGLE), DOUBLE)
    mode = tl.where(careful, DOUBLE, mode)
    return row, a, b, c, kind, p, q, A, B, Af, Bf, mode


@triton.jit
def _outward(p, HOW: tl.constexpr):
    # A singular coefficient moved to the nearest of ±eps.
    eps = tl.full((), HOW.EPS, tl.float64)
    return tl.where(tl.abs(p) < eps, tl.where(p < 0, -eps, eps), p)


@triton.jit
def _is_singular(p, HOW: tl.constexpr):
    return tl.abs(p) < tl.full((), HOW.EPS, tl.float64)


@triton.jit
def _load(pointer, mask, other, HOW: tl.constexpr):
    # One number, or one a lane.
    if HOW.LANES:
        loaded = tl.load(pointer, mask, other)
    else:
        loaded = tl.load(pointer)
    return loaded.to(tl.float64)


@triton.jit
def _store(pointer, number, mask, HOW: tl.constexpr):
    if HOW.LANES:
        tl.store(pointer, number, mask)
    else:
        tl.store(pointer, number)


@triton.jit
def _coefficients(a_ptr, b_ptr, c_ptr, c1_ptr, c2_ptr, channel, mask, HOW: tl.constexpr):
    return (
        _load(a_ptr + channel, mask, 1.0, HOW),
        _load(b_ptr + channel, mask, 1.0, HOW),
        _load(c_ptr + channel, mask, 1.0, HOW),
        _load(c1_ptr + channel, mask, 0.0, HOW),
        _load(c2_ptr + channel, mask, 0.0, HOW),
    )


@triton.jit
def _narrow(x, pointer, MODE: tl.constexpr):
    # x in the type that the pointer points to; overflow becomes its largest number.
    TYPE: tl.constexpr = pointer.dtype.element_ty
    if MODE == DOUBLE and TYPE != tl.float64:
        largest = tl.full(
            (), 3.3895313892515355e38 if TYPE == tl.bfloat16 else 3.4028234663852886e38, tl.float64
        )
        x = at_least(at_most(x, largest, MODE), -largest, MODE).to(tl.float32)
    if TYPE == tl.float16:
        x = at_least(at_most(x, 65504.0, HALF), -65504.0, HALF)
    return x.to(TYPE)


@triton.constexpr_function
def _is_fast(KIND, MODE, HOW):
    # Whether the chip's own functions do it, see _triton_fast.py.
    if KIND == REAL:
        return MODE != DOUBLE
    return MODE in (HALF, SHORT) and KIND in (OSCILLATING, MIXED)


@triton.constexpr_function
def _is_mixed(KIND, HOW):
    # Whether they are those of _triton_mixed.py.
    return KIND == MIXED and not HOW.CONTINUOUS


@triton.jit
def _unit(kind, p, q, A, B, Af, Bf, KIND: tl.constexpr, MODE: tl.constexpr, HOW: tl.constexpr):
    if _is_fast(KIND, MODE, HOW) and _is_mixed(KIND, HOW):
        unit = mixed_unit(kind, p, q, A, B, Af, Bf, MODE, HOW)
    elif _is_fast(KIND, MODE, HOW):
        unit = fast_unit(kind, p, q, A, B, Af, Bf, MODE, HOW)
    else:
        unit = arithmetic(kind, p, q, A, B, Af, Bf, MODE, HOW)
    return unit


@triton.jit
def _bounded(x, unit, KIND: tl.constexpr, MODE: tl.constexpr, HOW: tl.constexpr):
    # KIND = ENTIRE: every element brings its own kind, and there may be one of this.
    if _is_fast(KIND, MODE, HOW) and _is_mixed(KIND, HOW):
        y = mixed_value(x, unit, MODE, HOW)
    elif _is_fast(KIND, MODE, HOW):
        y = fast_value(x, unit, KIND, MODE, HOW)
    elif KIND == ENTIRE:
        y = value(x, unit, MIXED, MODE, HOW)
        stopped = at_most(x, unit.stop, MODE)
        at_seam, _, _, _, _, _, _ = entire_point(stopped, unit, HOW.MAX_EXPONENT)
        y = tl.where(unit.kind == ENTIRE, at_seam, y)
    else:
        y = value(x, unit, KIND, MODE, HOW)
    bound = tl.full((), HOW.BOUND, y.dtype)
    return at_least(at_most(y, bound, MODE), -bound, MODE)


@triton.jit
def _contributions(x, g, unit, KIND: tl.constexpr, MODE: tl.constexpr, HOW: tl.constexpr):
    more = x * 0.0
    if _is_fast(KIND, MODE, HOW) and _is_mixed(KIND, HOW):
        moved, n_p, n_q, n_A, n_B, n_Af, n_Bf, stopped, more = mixed_gradients(
            x, g, unit, MODE, HOW
        )
    elif _is_fast(KIND, MODE, HOW):
        moved, n_p, n_q, n_A, n_B, n_Af, n_Bf, stopped, more = fast_gradients(
            x, g, unit, KIND, MODE, HOW
        )
    elif KIND == ENTIRE:
        moved, n_p, n_q, n_A, n_B, n_Af, n_Bf, stopped = gradients(x, g, unit, MIXED, MODE, HOW)
        entire = unit.kind == ENTIRE
        _, slope, by_p, by_q, by_A, by_B, by_Af = entire_point(
            at_most(x, unit.stop, MODE), unit, HOW.MAX_EXPONENT
        )
        beyond = x > unit.stop
        moved = tl.where(entire, tl.where(beyond, 0.0, g * slope), moved)
        stopped = tl.where(entire, tl.where(beyond, g * slope, 0.0), stopped)
        n_p, n_q = tl.where(entire, g * by_p, n_p), tl.where(entire, g * by_q, n_q)
        n_A, n_B = tl.where(entire, g * by_A, n_A), tl.where(entire, g * by_B, n_B)
        n_Af = tl.where(entire, g * by_Af, n_Af)
    else:
        moved, n_p, n_q, n_A, n_B, n_Af, n_Bf, stopped = gradients(x, g, unit, KIND, MODE, HOW)
    return moved, n_p, n_q, n_A, n_B, n_Af, n_Bf, stopped, more


# A walk: from which position to which, how many channels there are, and which are walked along.
Walk = namedtuple("Walk", ["first", "last", "inner", "channel", "channels", "mask", "share"])
# A tensor: where it begins, and its strides.
Strided = namedtuple("Strided", ["pointer", "outer", "channel", "inner"])


@triton.jit
def _walk(channels, positions, share, inner, HOW: tl.constexpr):
    program = tl.program_id(0)
    if HOW.LANES:
        blocks = tl.cdiv(channels, HOW.WIDTH)
        channel = program % blocks * HOW.WIDTH + tl.arange(0, HOW.WIDTH)
        split = program // blocks
    else:
        blocks = channels
        channel = program % blocks
        split = program // blocks
    mask = channel < channels
    if HOW.WIDE:
        first = split.to(tl.int64) * share
        channel = channel.to(tl.int64)
    else:
        first = split * share
    return Walk(first, tl.minimum(first + share, positions), inner, channel, channels, mask, split)


@triton.jit
def _start(walk, HOW: tl.constexpr):
    # The first tile's positions, and each as an index along the outer and the inner dimension.
    if HOW.LANES:
        position = walk.first + tl.arange(0, HOW.HEIGHT)
    else:
        position = walk.first + tl.arange(0, HOW.HEIGHT) * HOW.WIDTH
    outer = position * 0
    if not HOW.FLAT:
        outer = position // walk.inner
    return position, outer, position - outer * walk.inner


@triton.jit
def _next(position, outer, inner, walk, HOW: tl.constexpr):
    # The same of the tile after it; no division is worth being done for each.
    STRIDE: tl.constexpr = HOW.HEIGHT if HOW.LANES else HOW.HEIGHT * HOW.WIDTH
    if not HOW.FLAT:
        whole = STRIDE // walk.inner
        inner += STRIDE - whole * walk.inner
        over = inner >= walk.inner
        inner = tl.where(over, inner - walk.inner, inner)
        outer += whole + over.to(tl.int32)
    return position + STRIDE, outer, inner


@triton.jit
def _tile(x, position, outer, inner, walk, HOW: tl.constexpr):
    # Pointers to a tile's elements, and which of them are within the walk.
    inside = (position < walk.last)[:, None]
    if HOW.FLAT:
        offset = position * x.inner
    else:
        offset = outer * x.outer + inner * x.inner
    if HOW.LANES:
        inside = inside & walk.mask[None, :]
        offset = offset[:, None] + (walk.channel * x.channel)[None, :]
    else:
        WIDTH: tl.constexpr = HOW.WIDTH  # Triton 3.6 takes no attribute here
        offset = tl.multiple_of(offset, WIDTH)
        offset = (walk.channel * x.channel) + offset[:, None] + tl.arange(0, HOW.WIDTH)[None, :]
    return x.pointer + offset, inside


@triton.constexpr_function
def _occurs(KIND, HOW):
    # Whether the solution has rows of this kind.
    return KIND in (REAL, OSCILLATING) or not HOW.CONTINUOUS


@triton.constexpr_function
def _has_fast(KIND, HOW):
    # Whether there is a faster arithmetic than SINGLE for the kind.
    return KIND in (OSCILLATING, REAL) or (HOW.MODE == HALF and KIND == EXPONENTIAL)


@triton.constexpr_function
def _few(HOW):
    # A quarter of a tile, for float64: there is work enough in each element, and less to compile.
    return HOW._replace(HEIGHT=max(1, HOW.HEIGHT * HOW.WIDTH // 4), WIDTH=1)


@triton.constexpr_function
def _alone(HOW):
    # For one channel of a tile that holds many, in float64.
    return HOW._replace(LANES=False, HEIGHT=max(1, HOW.HEIGHT * HOW.WIDTH // 4), WIDTH=1)


@triton.jit
def _one_channel(walk, i, HOW: tl.constexpr):
    # The walk along the i-th channel of a tile.
    channel = tl.sum(tl.where(tl.arange(0, HOW.WIDTH) == i, walk.channel, 0), 0)
    return Walk(
        walk.first,
        walk.last,
        walk.inner,
        channel,
        walk.channels,
        channel < walk.channels,
        walk.share,
    )


@triton.jit
def _holds(condition, i, HOW: tl.constexpr):
    # Whether it holds for the i-th channel of a tile.
    return tl.sum(tl.where(tl.arange(0, HOW.WIDTH) == i, condition.to(tl.int32), 0), 0) > 0


@triton.jit
def _forward_walk(
    t, y, walk, kind, p, q, A, B, Af, Bf, KIND: tl.constexpr, MODE: tl.constexpr, HOW: tl.constexpr
):
    unit = _unit(kind, p, q, A, B, Af, Bf, KIND, MODE, HOW)
    TYPE: tl.constexpr = tl.float64 if MODE == DOUBLE else tl.float32
    STRIDE: tl.constexpr = HOW.HEIGHT if HOW.LANES else HOW.HEIGHT * HOW.WIDTH
    position, outer, inner = _start(walk, HOW)
    # The loop carries its pointers: Triton's passes take far less time then.
    t_at, inside = _tile(t, position, outer, inner, walk, HOW)
    y_at, _ = _tile(y, position, outer, inner, walk, HOW)
    for _ in tl.range(walk.first, walk.last, STRIDE, num_stages=HOW.STAGES):
        x = tl.load(t_at, inside, 0.0).to(TYPE)
        found = _bounded(x, unit, KIND, MODE, HOW)
        tl.store(y_at, _narrow(found, y.pointer, MODE), inside)
        position, outer, inner = _next(position, outer, inner, walk, HOW)
        t_at, inside = _tile(t, position, outer, inner, walk, HOW)
        y_at, _ = _tile(y, position, outer, inner, walk, HOW)


@triton.jit
def _forward_alone(t, y, a_ptr, b_ptr, c_ptr, c1_ptr, c2_ptr, walk, i, HOW: tl.constexpr):
    # One channel of a tile in float64: all of the tile in it would be far slower.
    ALONE: tl.constexpr = _alone(HOW)
    KIND: tl.constexpr = ENTIRE if HOW.CONTINUOUS else MIXED
    one = _one_channel(walk, i, HOW)
    a, b, c, c1, c2 = _coefficients(
        a_ptr, b_ptr, c_ptr, c1_ptr, c2_ptr, one.channel, one.mask, ALONE
    )
    _, _, _, _, kind, p, q, A, B, Af, Bf, _ = _normal_form(
        a, b, c, c1, c2, HOW.CONTINUOUS, False, ALONE
    )
    if kind == OSCILLATING:
        _forward_walk(t, y, one, kind, p, q, A, B, Af, Bf, OSCILLATING, DOUBLE, ALONE)
    else:
        _forward_walk(t, y, one, kind, p, q, A, B, Af, Bf, KIND, DOUBLE, ALONE)


@triton.jit(do_not_specialize_on_alignment=["a_ptr", "b_ptr", "c_ptr", "c1_ptr", "c2_ptr"])
def forward(
    t_ptr,
    y_ptr,
    a_ptr,
    b_ptr,
    c_ptr,
    c1_ptr,
    c2_ptr,
    channels,
    positions,
    share,
    inner,
    t_outer,
    t_channel,
    t_inner,
    y_outer,
    y_channel,
    y_inner,
    HOW: tl.constexpr,
):
    walk = _walk(channels, positions, share, inner, HOW)
    t = Strided(t_ptr, t_outer, t_channel, t_inner)
    if HOW.ALIKE:
        y = Strided(y_ptr, t_outer, t_channel, t_inner)
    else:
        y = Strided(y_ptr, y_outer, y_channel, y_inner)
    a, b, c, c1, c2 = _coefficients(
        a_ptr, b_ptr, c_ptr, c1_ptr, c2_ptr, walk.channel, walk.mask, HOW
    )
    _, _, _, _, kind, p, q, A, B, Af, Bf, mode = _normal_form(
        a, b, c, c1, c2, HOW.CONTINUOUS, False, HOW
    )
    if HOW.LANES and HOW.MODE == DOUBLE:
        if HOW.CONTINUOUS and _any(kind == ENTIRE, HOW):
            _forward_walk(t, y, walk, kind, p, q, A, B, Af, Bf, ENTIRE, DOUBLE, HOW)
        else:
            _forward_walk(t, y, walk, kind, p, q, A, B, Af, Bf, MIXED, DOUBLE, HOW)
    elif HOW.LANES:
        slow = (mode == DOUBLE) & walk.mask
        FAST: tl.constexpr = HALF if HOW.MODE == HALF else SHORT
        fast = tl.max(tl.where(slow, 0, mode), 0) <= FAST
        waves = _any((kind != OSCILLATING) & walk.mask & (slow == 0), HOW) == 0
        reals = _any((kind != REAL) & walk.mask & (slow == 0), HOW) == 0
        if waves and fast:
            _forward_walk(t, y, walk, kind, p, q, A, B, Af, Bf, OSCILLATING, FAST, HOW)
        elif waves:
            _forward_walk(t, y, walk, kind, p, q, A, B, Af, Bf, OSCILLATING, SINGLE, HOW)
        elif reals and fast:
            _forward_walk(t, y, walk, kind, p, q, A, B, Af, Bf, REAL, FAST, HOW)
        elif fast:
            _forward_walk(t, y, walk, kind, p, q, A, B, Af, Bf, MIXED, FAST, HOW)
        else:
            _forward_walk(t, y, walk, kind, p, q, A, B, Af, Bf, MIXED, SINGLE, HOW)
        if _any(slow, HOW):
            tl.debug_barrier()  # what follows is written over what all threads have written
            for i in range(HOW.WIDTH):
                if _holds(slow, i, HOW):
                    _forward_alone(
                        t, y, a_ptr, b_ptr, c_ptr, c1_ptr, c2_ptr, walk, i, HOW
                    )  # fmt: skip
    elif HOW.MODE == DOUBLE or mode == DOUBLE:
        # What few neurons need is not worth the time to compile it for each kind.
        REST: tl.constexpr = ENTIRE if HOW.CONTINUOUS else MIXED
        FEW: tl.constexpr = _few(HOW)
        if kind == OSCILLATING:
            _forward_walk(t, y, walk, kind, p, q, A, B, Af, Bf, OSCILLATING, DOUBLE, FEW)
        elif kind == REAL:
            _forward_walk(t, y, walk, kind, p, q, A, B, Af, Bf, REAL, DOUBLE, FEW)
        else:
            _forward_walk(t, y, walk, kind, p, q, A, B, Af, Bf, REST, DOUBLE, FEW)
    else:
        FAST: tl.constexpr = HALF if HOW.MODE == HALF else SHORT
        for KIND in tl.static_range(6):
            if _occurs(KIND, HOW) and kind == KIND:
                if _has_fast(KIND, HOW) and mode != SINGLE:
                    _forward_walk(t, y, walk, kind, p, q, A, B, Af, Bf, KIND, FAST, HOW)
                else:
                    _forward_walk(t, y, walk, kind, p, q, A, B, Af, Bf, KIND, SINGLE, HOW)


@triton.jit
def _summed(tile, HOW: tl.constexpr):
    total = tl.sum(tile.to(tl.float64), 0)
    if not HOW.LANES:
        total = tl.sum(total, 0)
    return total


@triton.jit
def _keep(sums_ptr, i: tl.constexpr, total, walk, HOW: tl.constexpr):
    COUNT: tl.constexpr = _SUMS if HOW.PULL else _NEAR
    place = (walk.share * COUNT + i).to(tl.int64) * walk.channels + walk.channel
    _store(sums_ptr + place, total, walk.mask, HOW)


@triton.jit
def _keep_own(sums_ptr, s0, s1, s2, s3, s4, s5, s6, walk, HOW: tl.constexpr):
    _keep(sums_ptr, 0, s0, walk, HOW)
    _keep(sums_ptr, 1, s1, walk, HOW)
    _keep(sums_ptr, 2, s2, walk, HOW)
    _keep(sums_ptr, 3, s3, walk, HOW)
    _keep(sums_ptr, 4, s4, walk, HOW)
    _keep(sums_ptr, 5, s5, walk, HOW)
    _keep(sums_ptr, 6, s6, walk, HOW)


@triton.jit
def _backward_walk(
    t,
    g,
    out,
    walk,
    kind,
    p,
    q,
    A,
    B,
    Af,
    Bf,
    KIND: tl.constexpr,
    MODE: tl.constexpr,
    HOW: tl.constexpr,
):
    # What of the gradient goes to t, and the sums for the coefficients.
    unit = _unit(kind, p, q, A, B, Af, Bf, KIND, MODE, HOW)
    TYPE: tl.constexpr = tl.float64 if MODE == DOUBLE else tl.float32
    FAST: tl.constexpr = _is_fast(KIND, MODE, HOW)
    HEIGHT: tl.constexpr = HOW.HEIGHT
    WIDTH: tl.constexpr = HOW.WIDTH
    STRIDE: tl.constexpr = HEIGHT if HOW.LANES else HEIGHT * WIDTH
    z = tl.zeros((HEIGHT, WIDTH), TYPE)
    s_p, s_q, s_A, s_B, s_Af, s_Bf, s_stopped, s_more = z, z, z, z, z, z, z, z
    position, outer, inner = _start(walk, HOW)
    t_at, inside = _tile(t, position, outer, inner, walk, HOW)
    g_at, _ = _tile(g, position, outer, inner, walk, HOW)
    out_at, _ = _tile(out, position, outer, inner, walk, HOW)
    for _ in tl.range(walk.first, walk.last, STRIDE, num_stages=HOW.STAGES):
        x = tl.load(t_at, inside, 0.0).to(TYPE)
        gradient = tl.load(g_at, inside, 0.0).to(TYPE)
        moved, n_p, n_q, n_A, n_B, n_Af, n_Bf, stopped, more = _contributions(
            x, gradient, unit, KIND, MODE, HOW
        )
        tl.store(out_at, _narrow(moved, out.pointer, MODE), inside)
        position, outer, inner = _next(position, outer, inner, walk, HOW)
        t_at, inside = _tile(t, position, outer, inner, walk, HOW)
        g_at, _ = _tile(g, position, outer, inner, walk, HOW)
        out_at, _ = _tile(out, position, outer, inner, walk, HOW)
        s_p += n_p
        s_q += n_q
        s_A += n_A
        s_B += n_B
        s_Af += n_Af
        s_Bf += n_Bf
        if FAST and KIND != OSCILLATING:
            s_stopped += stopped
            s_more += more
        elif HOW.CONTINUOUS and not FAST:
            s_stopped += stopped
    if FAST and _is_mixed(KIND, HOW):
        s_p += unit.f1 * s_stopped
        s_q += unit.f2 * s_more
        s_stopped = z
    elif FAST:
        s_p, s_q, s_A, s_B, s_Af, s_Bf = gathered(
            unit, s_p, s_q, s_A, s_B, s_Af, s_Bf, s_stopped, s_more, KIND, MODE, HOW
        )
        s_stopped = z
    return (
        _summed(s_p, HOW), _summed(s_q, HOW), _summed(s_A, HOW), _summed(s_B, HOW),
        _summed(s_Af, HOW), _summed(s_Bf, HOW), _summed(s_stopped, HOW),
    )  # fmt: skip


@triton.jit
def _neighbour_walk(
    t, g, sums_ptr, walk, kind, p, q, KIND: tl.constexpr, MODE: tl.constexpr, HOW: tl.constexpr
):
    if MODE == SHORT:
        unit = mixed_unit(kind, p, q, p, p, p, p, MODE, HOW)
    else:
        unit = arithmetic(kind, p, q, p, p, p, p, MODE, HOW)
    TYPE: tl.constexpr = tl.float64 if MODE == DOUBLE else tl.float32
    HEIGHT: tl.constexpr = HOW.HEIGHT
    WIDTH: tl.constexpr = HOW.WIDTH
    STRIDE: tl.constexpr = HEIGHT if HOW.LANES else HEIGHT * WIDTH
    z = tl.zeros((HEIGHT, WIDTH), TYPE)
    s0, s1, s2, s3, s4, s5, s6, s7, s8, s9 = z, z, z, z, z, z, z, z, z, z
    inputs = tl.zeros((HEIGHT, WIDTH), tl.float64)
    position, outer, inner = _start(walk, HOW)
    t_at, inside = _tile(t, position, outer, inner, walk, HOW)
    g_at, _ = _tile(g, position, outer, inner, walk, HOW)
    for _ in tl.range(walk.first, walk.last, STRIDE, num_stages=HOW.STAGES):
        x = tl.load(t_at, inside, 0.0).to(TYPE)
        gradient = tl.load(g_at, inside, 0.0).to(TYPE)
        position, outer, inner = _next(position, outer, inner, walk, HOW)
        t_at, inside = _tile(t, position, outer, inner, walk, HOW)
        g_at, _ = _tile(g, position, outer, inner, walk, HOW)
        if MODE == SHORT:
            n0, n1, n2, n3, n4, n5, n6, n7, n8, n9 = mixed_neighbour_sums(
                x, gradient, unit, MODE, HOW
            )
        else:
            n0, n1, n2, n3, n4, n5, n6, n7, n8, n9 = neighbour_sums(
                x, gradient, unit, KIND, MODE, HOW
            )
        s0 += n0
        s1 += n1
        s2 += n2
        s3 += n3
        s4 += n4
        s5 += n5
        s6 += n6
        s7 += n7
        s8 += n8
        s9 += n9
        inputs += x.to(tl.float64)
    _keep(sums_ptr, _NEAR, _summed(s0, HOW), walk, HOW)
    _keep(sums_ptr, _NEAR + 1, _summed(s1, HOW), walk, HOW)
    _keep(sums_ptr, _NEAR + 2, _summed(s2, HOW), walk, HOW)
    _keep(sums_ptr, _NEAR + 3, _summed(s3, HOW), walk, HOW)
    _keep(sums_ptr, _NEAR + 4, _summed(s4, HOW), walk, HOW)
    _keep(sums_ptr, _NEAR + 5, _summed(s5, HOW), walk, HOW)
    _keep(sums_ptr, _NEAR + 6, _summed(s6, HOW), walk, HOW)
    _keep(sums_ptr, _NEAR + 7, _summed(s7, HOW), walk, HOW)
    _keep(sums_ptr, _NEAR + 8, _summed(s8, HOW), walk, HOW)
    _keep(sums_ptr, _NEAR + 9, _summed(s9, HOW), walk, HOW)
    _keep(sums_ptr, _INPUTS, _summed(inputs, HOW), walk, HOW)


@triton.jit
def _neighbour_alone(t, g, a_ptr, b_ptr, c_ptr, sums_ptr, walk, i, HOW: tl.constexpr):
    ALONE: tl.constexpr = _alone(HOW)
    one = _one_channel(walk, i, HOW)
    a = _outward(_load(a_ptr + one.channel, one.mask, 1.0, ALONE), HOW)
    b = _outward(_load(b_ptr + one.channel, one.mask, 1.0, ALONE), HOW)
    c = _outward(_load(c_ptr + one.channel, one.mask, 1.0, ALONE), HOW)
    zero = tl.zeros_like(a)
    _, _, _, _, kind, p, q, _, _, _, _, _ = _normal_form(a, b, c, zero, zero, False, False, ALONE)
    if kind == OSCILLATING:
        _neighbour_walk(t, g, sums_ptr, one, kind, p, q, OSCILLATING, DOUBLE, ALONE)
    else:
        _neighbour_walk(t, g, sums_ptr, one, kind, p, q, MIXED, DOUBLE, ALONE)


@triton.jit
def _backward_alone(
    t, g, out, a_ptr, b_ptr, c_ptr, c1_ptr, c2_ptr, sums_ptr, walk, i, HOW: tl.constexpr
):
    ALONE: tl.constexpr = _alone(HOW)
    KIND: tl.constexpr = ENTIRE if HOW.CONTINUOUS else MIXED
    one = _one_channel(walk, i, HOW)
    a, b, c, c1, c2 = _coefficients(
        a_ptr, b_ptr, c_ptr, c1_ptr, c2_ptr, one.channel, one.mask, ALONE
    )
    _, _, _, _, kind, p, q, A, B, Af, Bf, _ = _normal_form(
        a, b, c, c1, c2, HOW.CONTINUOUS, True, ALONE
    )
    if kind == OSCILLATING:
        s0, s1, s2, s3, s4, s5, s6 = _backward_walk(
            t, g, out, one, kind, p, q, A, B, Af, Bf, OSCILLATING, DOUBLE, ALONE
        )
    else:
        s0, s1, s2, s3, s4, s5, s6 = _backward_walk(
            t, g, out, one, kind, p, q, A, B, Af, Bf, KIND, DOUBLE, ALONE
        )
    _keep_own(sums_ptr, s0, s1, s2, s3, s4, s5, s6, one, ALONE)


@triton.jit(do_not_specialize_on_alignment=["a_ptr", "b_ptr", "c_ptr", "c1_ptr", "c2_ptr"])
def backward(
    t_ptr,
    g_ptr,
    out_ptr,
    a_ptr,
    b_ptr,
    c_ptr,
    c1_ptr,
    c2_ptr,
    sums_ptr,
    channels,
    positions,
    share,
    inner,
    t_outer,
    t_channel,
    t_inner,
    g_outer,
    g_channel,
    g_inner,
    out_outer,
    out_channel,
    out_inner,
    HOW: tl.constexpr,
):
    walk = _walk(channels, positions, share, inner, HOW)
    t = Strided(t_ptr, t_outer, t_channel, t_inner)
    if HOW.ALIKE:
        g = Strided(g_ptr, t_outer, t_channel, t_inner)
        out = Strided(out_ptr, t_outer, t_channel, t_inner)
    else:
        g = Strided(g_ptr, g_outer, g_channel, g_inner)
        out = Strided(out_ptr, out_outer, out_channel, out_inner)
    a, b, c, c1, c2 = _coefficients(
        a_ptr, b_ptr, c_ptr, c1_ptr, c2_ptr, walk.channel, walk.mask, HOW
    )
    _, _, _, _, kind, p, q, A, B, Af, Bf, mode = _normal_form(
        a, b, c, c1, c2, HOW.CONTINUOUS, True, HOW
    )
    zero = tl.zeros_like(a)
    s0, s1, s2, s3, s4, s5, s6 = zero, zero, zero, zero, zero, zero, zero
    if HOW.LANES and HOW.MODE == DOUBLE:
        if HOW.CONTINUOUS and _any(kind == ENTIRE, HOW):
            s0, s1, s2, s3, s4, s5, s6 = _backward_walk(
                t, g, out, walk, kind, p, q, A, B, Af, Bf, ENTIRE, DOUBLE, HOW
            )
        else:
            s0, s1, s2, s3, s4, s5, s6 = _backward_walk(
                t, g, out, walk, kind, p, q, A, B, Af, Bf, MIXED, DOUBLE, HOW
            )
    elif HOW.LANES:
        slow = (mode == DOUBLE) & walk.mask
        FAST: tl.constexpr = HALF if HOW.MODE == HALF else SHORT
        fast = tl.max(tl.where(slow, 0, mode), 0) <= FAST
        waves = _any((kind != OSCILLATING) & walk.mask & (slow == 0), HOW) == 0
        reals = _any((kind != REAL) & walk.mask & (slow == 0), HOW) == 0
        if waves and fast:
            s0, s1, s2, s3, s4, s5, s6 = _backward_walk(
                t, g, out, walk, kind, p, q, A, B, Af, Bf, OSCILLATING, FAST, HOW
            )
        elif waves:
            s0, s1, s2, s3, s4, s5, s6 = _backward_walk(
                t, g, out, walk, kind, p, q, A, B, Af, Bf, OSCILLATING, SINGLE, HOW
            )
        elif reals and fast:
            s0, s1, s2, s3, s4, s5, s6 = _backward_walk(
                t, g, out, walk, kind, p, q, A, B, Af, Bf, REAL, FAST, HOW
            )
        elif fast:
            s0, s1, s2, s3, s4, s5, s6 = _backward_walk(
                t, g, out, walk, kind, p, q, A, B, Af, Bf, MIXED, FAST, HOW
            )
        else:
            s0, s1, s2, s3, s4, s5, s6 = _backward_walk(
                t, g, out, walk, kind, p, q, A, B, Af, Bf, MIXED, SINGLE, HOW
            )
    elif HOW.MODE == DOUBLE or mode == DOUBLE:
        # What few neurons need is not worth the time to compile it for each kind.
        REST: tl.constexpr = ENTIRE if HOW.CONTINUOUS else MIXED
        FEW: tl.constexpr = _few(HOW)
        if kind == OSCILLATING:
            s0, s1, s2, s3, s4, s5, s6 = _backward_walk(
                t, g, out, walk, kind, p, q, A, B, Af, Bf, OSCILLATING, DOUBLE, FEW
            )
        elif kind == REAL:
            s0, s1, s2, s3, s4, s5, s6 = _backward_walk(
                t, g, out, walk, kind, p, q, A, B, Af, Bf, REAL, DOUBLE, FEW
            )
        else:
            s0, s1, s2, s3, s4, s5, s6 = _backward_walk(
                t, g, out, walk, kind, p, q, A, B, Af, Bf, REST, DOUBLE, FEW
            )
    else:
        FAST: tl.constexpr = HALF if HOW.MODE == HALF else SHORT
        for KIND in tl.static_range(6):
            if _occurs(KIND, HOW) and kind == KIND:
                if _has_fast(KIND, HOW) and mode != SINGLE:
                    s0, s1, s2, s3, s4, s5, s6 = _backward_walk(
                        t, g, out, walk, kind, p, q, A, B, Af, Bf, KIND, FAST, HOW
                    )
                else:
                    s0, s1, s2, s3, s4, s5, s6 = _backward_walk(
                        t, g, out, walk, kind, p, q, A, B, Af, Bf, KIND, SINGLE, HOW
                    )
    _keep_own(sums_ptr, s0, s1, s2, s3, s4, s5, s6, walk, HOW)
    if HOW.LANES and HOW.MODE != DOUBLE:
        slow = (mode == DOUBLE) & walk.mask
        if _any(slow, HOW):
            tl.debug_barrier()  # what follows is written over what all threads have written
            for i in range(HOW.WIDTH):
                if _holds(slow, i, HOW):
                    _backward_alone(
                        t, g, out, a_ptr, b_ptr, c_ptr, c1_ptr, c2_ptr, sums_ptr, walk, i, HOW
                    )
    if HOW.PULL:
        pulled = _is_singular(a, HOW) | _is_singular(b, HOW) | _is_singular(c, HOW)
        pulled = pulled & walk.mask
        if _any(pulled, HOW):
            _, _, _, _, kind, p, q, _, _, Af, Bf, mode = _normal_form(
                _outward(a, HOW), _outward(b, HOW), _outward(c, HOW), zero, zero, False, False, HOW
            )
            if HOW.MODE == SINGLE:
                mode = tl.where(tl.maximum(tl.abs(Af), tl.abs(Bf)) > _NEAR_AHEAD, DOUBLE, mode)
            if HOW.MODE == DOUBLE:
                _neighbour_walk(t, g, sums_ptr, walk, kind, p, q, MIXED, DOUBLE, HOW)
            elif HOW.LANES:
                _neighbour_walk(t, g, sums_ptr, walk, kind, p, q, MIXED, SHORT, HOW)
                slow = pulled & (mode == DOUBLE)
                if _any(slow, HOW):
                    tl.debug_barrier()
                    for i in range(HOW.WIDTH):
                        if _holds(slow, i, HOW):
                            _neighbour_alone(t, g, a_ptr, b_ptr, c_ptr, sums_ptr, walk, i, HOW)
            elif mode == DOUBLE and kind == OSCILLATING:
                _neighbour_walk(t, g, sums_ptr, walk, kind, p, q, OSCILLATING, DOUBLE, _few(HOW))
            elif mode == DOUBLE:
                _neighbour_walk(t, g, sums_ptr, walk, kind, p, q, MIXED, DOUBLE, _few(HOW))
            elif kind == REAL:
                _neighbour_walk(t, g, sums_ptr, walk, kind, p, q, REAL, SINGLE, HOW)
            elif kind == OSCILLATING:
                _neighbour_walk(t, g, sums_ptr, walk, kind, p, q, OSCILLATING, SINGLE, HOW)
            else:
                _neighbour_walk(t, g, sums_ptr, walk, kind, p, q, CRITICAL, SINGLE, HOW)


@triton.jit
def _total(
    sums_ptr,
    i: tl.constexpr,
    channel,
    mask,
    channels,
    shares,
    SHARES: tl.constexpr,
    HOW: tl.constexpr,
):
    # The sum over the shares, in float64 and in an order that depends on nothing else.
    COUNT: tl.constexpr = _SUMS if HOW.PULL else _NEAR
    total = tl.zeros_like(channel).to(tl.float64)
    for first in range(0, shares, SHARES):
        share = first + tl.arange(0, SHARES)
        place = (share * COUNT + i).to(tl.int64) * channels
        inside = (share < shares)[:, None] & mask[None, :]
        total += tl.sum(tl.load(sums_ptr + place[:, None] + channel[None, :], inside, 0.0), 0)
    return total


@triton.jit
def _value_and_slope(x, kind, p, q, A, B, Af, Bf, HOW: tl.constexpr):
    unit = arithmetic(kind, p, q, A, B, Af, Bf, DOUBLE, HOW)
    slope, _, _, _, _, _, _, _ = gradients(x, x * 0.0 + 1.0, unit, MIXED, DOUBLE, HOW)
    return value(x, unit, MIXED, DOUBLE, HOW), slope


@triton.jit
def _neighbour(a, b, c, c1, c2, centre, HOW: tl.constexpr):
    # The c1 and c2 with which the neighbour has the unit's value and slope at the centre.
    _, _, _, _, kind, p, q, A, B, Af, Bf, _ = _normal_form(a, b, c, c1, c2, False, False, HOW)
    own, own_slope = _value_and_slope(centre, kind, p, q, A, B, Af, Bf, HOW)
    x, y, z = _outward(a, HOW), _outward(b, HOW), _outward(c, HOW)
    zero, one = tl.zeros_like(a), tl.zeros_like(a) + 1.0
    _, _, _, _, kind, p, q, A, B, Af, Bf, _ = _normal_form(x, y, z, zero, zero, False, False, HOW)
    f, f_slope = _value_and_slope(centre, kind, p, q, A, B, Af, Bf, HOW)
    _, _, _, _, _, _, _, A, B, _, _, _ = _normal_form(x, y, z, one, zero, False, False, HOW)
    f1, f1_slope = _value_and_slope(centre, kind, p, q, A, B, zero, zero, HOW)
    _, _, _, _, _, _, _, A, B, _, _, _ = _normal_form(x, y, z, zero, one, False, False, HOW)
    f2, f2_slope = _value_and_slope(centre, kind, p, q, A, B, zero, zero, HOW)
    rest, rest_slope = own - f, own_slope - f_slope
    # (AᵀA + λI)⁻¹AᵀB for A = [f1 f2], a row for the value and a row for the slope, written with
    # det A so that nothing cancels.
    tiny = 1e-9
    det = f1 * f2_slope - f1_slope * f2
    lengths = f1 * f1 + f1_slope * f1_slope + f2 * f2 + f2_slope * f2_slope
    whole = det * det + tiny * lengths + tiny * tiny
    near_c1 = det * (rest * f2_slope - rest_slope * f2) + tiny * (f1 * rest + f1_slope * rest_slope)
    near_c2 = det * (f1 * rest_slope - f1_slope * rest) + tiny * (f2 * rest + f2_slope * rest_slope)
    return near_c1 / whole, near_c2 / whole


@triton.jit(do_not_specialize_on_alignment=["a_ptr", "b_ptr", "c_ptr", "c1_ptr", "c2_ptr"])
def finish(
    a_ptr,
    b_ptr,
    c_ptr,
    c1_ptr,
    c2_ptr,
    sums_ptr,
    a_out,
    b_out,
    c_out,
    c1_out,
    c2_out,
    channels,
    shares,
    positions,
    MAX_GRAD_NORM: tl.constexpr,
    SHARES: tl.constexpr,
    HOW: tl.constexpr,
):
    channel = tl.program_id(0) * HOW.WIDTH + tl.arange(0, HOW.WIDTH)
    mask = channel < channels
    own_a, own_b, own_c, c1, c2 = _coefficients(
        a_ptr, b_ptr, c_ptr, c1_ptr, c2_ptr, channel, mask, HOW
    )
    row, a, b, c, kind, p, q, A, B, Af, Bf, mode = _normal_form(
        own_a, own_b, own_c, c1, c2, HOW.CONTINUOUS, False, HOW
    )
    g_p = _total(sums_ptr, 0, channel, mask, channels, shares, SHARES, HOW)
    g_q = _total(sums_ptr, 1, channel, mask, channels, shares, SHARES, HOW)
    g_A = _total(sums_ptr, 2, channel, mask, channels, shares, SHARES, HOW)
    g_B = _total(sums_ptr, 3, channel, mask, channels, shares, SHARES, HOW)
    g_Af = _total(sums_ptr, 4, channel, mask, channels, shares, SHARES, HOW)
    g_Bf = _total(sums_ptr, 5, channel, mask, channels, shares, SHARES, HOW)
    if HOW.CONTINUOUS:
        # stop = m/2α moves with α.
        stopped = _total(sums_ptr, 6, channel, mask, channels, shares, SHARES, HOW)
        real = kind == REAL
        mean = tl.where(real, (p + q) * 0.5, p)
        unit = arithmetic(kind, p, q, A, B, Af, Bf, HOW.MODE, HOW)
        through = tl.where(stopped != 0, stopped * (-unit.stop.to(tl.float64) / mean), 0.0)
        g_p += tl.where(real, through * 0.5, through)
        g_q += tl.where(real, through * 0.5, 0.0)
        d_a, d_b, d_c, d_c1, d_c2 = continuous_pull(
            row, a, b, c, c1, c2, g_p, g_q, g_A, g_B, g_Af, g_Bf
        )
    else:
        d_a, d_b, d_c, d_c1, d_c2 = paper_pull(row, a, b, c, c1, c2, g_p, g_q, g_A, g_B, g_Af, g_Bf)
        none_a, none_b, none_c = (
            _is_singular(own_a, HOW), _is_singular(own_b, HOW), _is_singular(own_c, HOW)
        )  # fmt: skip
        d_a, d_b, d_c = (
            tl.where(none_a, 0.0, d_a), tl.where(none_b, 0.0, d_b), tl.where(none_c, 0.0, d_c)
        )  # fmt: skip
        if HOW.PULL:
            if _any(none_a | none_b | none_c, HOW):
                inputs = _total(sums_ptr, _INPUTS, channel, mask, channels, shares, SHARES, HOW)
                n_c1, n_c2 = _neighbour(own_a, own_b, own_c, c1, c2, inputs / positions, HOW)
                row, a, b, c, kind, p, q, A, B, Af, Bf, mode = _normal_form(
                    _outward(own_a, HOW), _outward(own_b, HOW), _outward(own_c, HOW),
                    n_c1, n_c2, False, False, HOW,
                )  # fmt: skip
                g_A = _total(sums_ptr, _NEAR, channel, mask, channels, shares, SHARES, HOW)
                g_B = _total(sums_ptr, _NEAR + 1, channel, mask, channels, shares, SHARES, HOW)
                g_Af = _total(sums_ptr, _NEAR + 2, channel, mask, channels, shares, SHARES, HOW)
                g_Bf = _total(sums_ptr, _NEAR + 3, channel, mask, channels, shares, SHARES, HOW)
                X1 = _total(sums_ptr, _NEAR + 4, channel, mask, channels, shares, SHARES, HOW)
                X2 = _total(sums_ptr, _NEAR + 5, channel, mask, channels, shares, SHARES, HOW)
                P1 = _total(sums_ptr, _NEAR + 6, channel, mask, channels, shares, SHARES, HOW)
                P2 = _total(sums_ptr, _NEAR + 7, channel, mask, channels, shares, SHARES, HOW)
                F1 = _total(sums_ptr, _NEAR + 8, channel, mask, channels, shares, SHARES, HOW)
                F2 = _total(sums_ptr, _NEAR + 9, channel, mask, channels, shares, SHARES, HOW)
                real = kind == REAL
                g_q = B * X1 - A * X2 + Bf * P1 - Af * P2
                # An exponent is capped on one side of 0 alone: where its root makes it grow.
                X1 -= F1
                X2 -= F2
                P1 -= tl.where(p > 0, F1, 0.0)
                P2 -= tl.where(tl.where(real, q, p) > 0, F2, 0.0)
                first, second = A * X1 + Af * P1, B * X2 + Bf * P2
                g_p = tl.where(real, first, first + second)
                g_q = tl.where(real, second, g_q)
                n_a, n_b, n_c, n_d, n_e = paper_pull(
                    row, a, b, c, n_c1, n_c2, g_p, g_q, g_A, g_B, g_Af, g_Bf
                )
                d_a = tl.where(none_a, n_a, d_a)
                d_b = tl.where(none_b, n_b, d_b)
                d_c = tl.where(none_c, n_c, d_c)
    # Divided by the largest first, so that no square overflows.
    most = tl.maximum(_largest(d_a, d_b, d_c, d_c1), tl.abs(d_c2))
    most = tl.where(most > 0, most, 1.0)
    u_a, u_b, u_c, u_c1, u_c2 = d_a / most, d_b / most, d_c / most, d_c1 / most, d_c2 / most
    length = tl.sqrt(u_a * u_a + u_b * u_b + u_c * u_c + u_c1 * u_c1 + u_c2 * u_c2)
    limited = most * length > MAX_GRAD_NORM
    scale = MAX_GRAD_NORM / length
    d_a, d_b = tl.where(limited, u_a * scale, d_a), tl.where(limited, u_b * scale, d_b)
    d_c, d_c1 = tl.where(limited, u_c * scale, d_c), tl.where(limited, u_c1 * scale, d_c1)
    d_c2 = tl.where(limited, u_c2 * scale, d_c2)
    tl.store(a_out + channel, _narrow(d_a, a_out, DOUBLE), mask)
    tl.store(b_out + channel, _narrow(d_b, b_out, DOUBLE), mask)
    tl.store(c_out + channel, _narrow(d_c, c_out, DOUBLE), mask)
    tl.store(c1_out + channel, _narrow(d_c1, c1_out, DOUBLE), mask)
    tl.store(c2_out + channel, _narrow(d_c2, c2_out, DOUBLE), mask)
