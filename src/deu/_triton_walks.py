# mypy: ignore-errors
"""How the Triton kernels walk over a tensor.

A program walks over a share of the positions, tile by tile, keeps its sums in registers and stores
them once.  A tile is of one of two shapes.  Where positions lie along memory, a program keeps to
one channel, whose kind is then known, and a tile is so many groups of neighbours.  Where channels
do (``LANES``), a tile is so many positions of so many channels, each of its own kind.
"""

from collections import namedtuple

import triton
import triton.language as tl

from ._triton import NORM_SUMS, OWN_SUMS, SUMS
from ._triton_chip import clamped, widened
from ._triton_elements import (
    DOUBLE,
    ENTIRE,
    EXPONENTIAL,
    HALF,
    MIXED,
    OSCILLATING,
    REAL,
    SEAMLESS,
    SHORT,
    SINGLE,
    arithmetic,
    at_least,
    at_most,
    gradients,
    neighbour_sums,
    value,
)
from ._triton_entire import entire_point
from ._triton_fast import fast_gradients, fast_unit, fast_value, gathered, is_real
from ._triton_forms import (
    coefficients,
    kept_form,
    kept_neighbour,
    normal_form,
    store,
)
from ._triton_mixed import (
    close_gradients,
    mixed_gathered,
    mixed_gradients,
    mixed_unit,
    plain_unit,
    plain_value,
)
from ._triton_neighbours import near_gathered, near_sums, neighbour_unit
from ._triton_norm import MEASURED, ONWARD, norm_of, normed
from ._triton_seamless import seamless_gathered, seamless_gradients, seamless_unit

# Of each share of the positions backward leaves finish sums: of the gradients of the six numbers
# and of what is beyond the stop; ten of the neighbour's; and of the inputs.
# With batch norm before the unit there are two for it after the first: of the gradient of its
# result, and of this times its input less the mean.
ALL_SUMS, OWN, INPUTS = tl.constexpr(SUMS), tl.constexpr(OWN_SUMS), tl.constexpr(SUMS - 1)


@triton.jit
def narrow(x, pointer, MODE: tl.constexpr):
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
    if is_real(KIND):
        return MODE not in (DOUBLE, SEAMLESS)
    return MODE in (HALF, SHORT) and KIND in (OSCILLATING, MIXED)


@triton.constexpr_function
def _is_mixed(KIND, MODE, HOW):
    # Whether _triton_mixed.py does it.
    if HOW.CONTINUOUS:
        return False
    return MODE == SEAMLESS or (KIND == MIXED and MODE in (HALF, SHORT))


@triton.jit
def _unit(
    kind, p, q, A, B, Af, Bf,
    KIND: tl.constexpr, MODE: tl.constexpr, GRADIENTS: tl.constexpr, HOW: tl.constexpr, close=None,
):  # fmt: skip
    if MODE == SEAMLESS and HOW.CONTINUOUS:
        unit = seamless_unit(kind, p, q, A, B, Af, Bf)
    elif _is_mixed(KIND, MODE, HOW):
        if GRADIENTS:
            unit = mixed_unit(kind, p, q, A, B, Af, Bf, close, MODE, HOW)
        else:
            unit = plain_unit(kind, p, q, A, B, Af, Bf, MODE, HOW)
    elif _is_fast(KIND, MODE, HOW):
        unit = fast_unit(kind, p, q, A, B, Af, Bf, KIND, MODE, GRADIENTS, HOW)
    else:
        unit = arithmetic(kind, p, q, A, B, Af, Bf, MODE, HOW)
    return unit


@triton.jit
def _bounded(x, unit, pointer, KIND: tl.constexpr, MODE: tl.constexpr, HOW: tl.constexpr):
    # In the type that the pointer points to.
    # KIND = ENTIRE: every element brings its own kind, and there may be one of this.
    if _is_mixed(KIND, MODE, HOW):
        y = plain_value(x, unit, MODE, HOW)
    elif _is_fast(KIND, MODE, HOW):
        y = fast_value(x, unit, KIND, MODE, HOW)
    elif KIND == ENTIRE:
        y = value(x, unit, MIXED, MODE, HOW)
        stopped = at_most(x, unit.stop, MODE)
        at_seam, _, _, _, _, _, _ = entire_point(stopped, unit, HOW.MAX_EXPONENT)
        y = tl.where(unit.kind == ENTIRE, at_seam, y)
    else:
        y = value(x, unit, KIND, MODE, HOW)
    if HOW.BOUND_BITS > 0 and MODE != DOUBLE:  # to round and to cut is to cut and to round
        found = clamped(y.to(pointer.dtype.element_ty), HOW.BOUND_BITS)
    else:
        bound = tl.full((), HOW.BOUND, y.dtype)
        found = narrow(at_least(at_most(y, bound, MODE), -bound, MODE), pointer, MODE)
    return found


@triton.jit
def _contributions(x, g, unit, KIND: tl.constexpr, MODE: tl.constexpr, HOW: tl.constexpr):
    more = x * 0.0
    if MODE == SEAMLESS and HOW.CONTINUOUS:
        moved, n_p, n_q, n_A, n_B, n_Af, n_Bf, stopped = seamless_gradients(x, g, unit, KIND, HOW)
    elif _is_mixed(KIND, MODE, HOW):
        if KIND == MIXED:
            moved, n_p, n_q, n_A, n_B, n_Af, n_Bf, stopped, more = mixed_gradients(
                x, g, unit, MODE, HOW
            )
        else:
            moved, n_p, n_q, n_A, n_B, n_Af, n_Bf, stopped, more = close_gradients(
                x, g, unit, KIND, HOW
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
Walk = namedtuple(
    "Walk", ["first", "last", "inner", "channel", "channels", "mask", "share", "shares"]
)
# A tensor: where it begins, and its strides.
Strided = namedtuple("Strided", ["pointer", "outer", "channel", "inner"])


@triton.jit
def walk_of(channels, positions, share, inner, HOW: tl.constexpr):
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
    last = tl.minimum(first + share, positions)
    shares = tl.num_programs(0) // blocks
    return Walk(first, last, inner, channel, channels, mask, split, shares)


@triton.jit
def ask_for(x, walk, HOW: tl.constexpr):
    # Asks for what a walk along many channels reads first, which comes while normal forms are made:
    # 128 positions, in lines of 128 bytes.
    LINE: tl.constexpr = 1024 // x.pointer.dtype.element_ty.primitive_bitwidth
    ACROSS: tl.constexpr = (HOW.WIDTH + LINE - 1) // LINE
    position = tl.minimum(walk.first + tl.arange(0, 128), walk.last - 1)
    outer = position * 0
    if not HOW.FLAT:
        outer = position // walk.inner
    at = outer * x.outer + (position - outer * walk.inner) * x.inner
    first = tl.program_id(0) % tl.cdiv(walk.channels, HOW.WIDTH) * HOW.WIDTH
    for i in tl.static_range(ACROSS):
        channel = tl.minimum(first + i * LINE, walk.channels - 1)
        tl.inline_asm_elementwise(
            "prefetch.global.L2 [$1]; // $0", "=r,l", [x.pointer + at + channel * x.channel],
            tl.int32, is_pure=False, pack=1,
        )  # fmt: skip


@triton.jit
def _load(at, inside, HOW: tl.constexpr):
    if HOW.EVEN:
        found = tl.load(at)
    else:
        found = tl.load(at, inside, 0.0)
    return found


@triton.jit
def _store(at, found, inside, HOW: tl.constexpr):
    STREAM: tl.constexpr = ".cs" if HOW.STREAM else ""
    if HOW.EVEN:
        tl.store(at, found, cache_modifier=STREAM)
    else:
        tl.store(at, found, inside, cache_modifier=STREAM)


@triton.jit
def start_of(walk, HOW: tl.constexpr):
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
def next_tile(position, outer, inner, walk, HOW: tl.constexpr):
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
def inside_of(position, walk, HOW: tl.constexpr):
    # Which elements of a tile are within the walk.
    inside = (position < walk.last)[:, None]
    if HOW.LANES:
        inside = inside & walk.mask[None, :]
    return inside


@triton.jit
def tile_of(x, position, outer, inner, walk, HOW: tl.constexpr):
    # Pointers to a tile's elements.
    if HOW.FLAT:
        offset = position * x.inner
    else:
        offset = outer * x.outer + inner * x.inner
    if HOW.LANES:
        offset = offset[:, None] + (walk.channel * x.channel)[None, :]
        TOGETHER: tl.constexpr = HOW.TOGETHER
        if TOGETHER < HOW.WIDTH:
            offset = tl.max_contiguous(offset, (1, TOGETHER))
    else:
        WIDTH: tl.constexpr = HOW.WIDTH  # Triton 3.6 takes no attribute here
        offset = tl.multiple_of(offset, WIDTH)
        offset = (walk.channel * x.channel) + offset[:, None] + tl.arange(0, HOW.WIDTH)[None, :]
    return x.pointer + offset


@triton.constexpr_function
def _takes_seven(KIND, MODE, HOW):
    # Whether there is anything to the seventh sum.
    if MODE == SEAMLESS:
        return HOW.CONTINUOUS or KIND == MIXED
    if _is_fast(KIND, MODE, HOW):
        return (KIND == MIXED and not HOW.CONTINUOUS) or (KIND == REAL and MODE == SINGLE)
    return HOW.CONTINUOUS


@triton.constexpr_function
def occurs(KIND, HOW):
    # Whether the solution has rows of this kind.
    return KIND in (REAL, OSCILLATING) or not HOW.CONTINUOUS


@triton.constexpr_function
def has_fast(KIND, HOW):
    # Whether there is a faster arithmetic than SINGLE for the kind.
    return KIND in (OSCILLATING, REAL) or (HOW.MODE == HALF and KIND == EXPONENTIAL)


@triton.constexpr_function
def has_short(KIND, HOW):
    # Whether there is one between the fastest and SINGLE for gradients.
    return KIND == OSCILLATING and HOW.CONTINUOUS and HOW.MODE == HALF


@triton.constexpr_function
def has_steady(KIND, HOW):
    # Whether roots that decay are worth a loop of their own: where arithmetic is all there is.
    return KIND == REAL and HOW.CONTINUOUS and HOW.MODE == HALF


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
        walk.shares,
    )


@triton.jit
def holds(condition, i, HOW: tl.constexpr):
    # Whether it holds for the i-th channel of a tile.
    return tl.sum(tl.where(tl.arange(0, HOW.WIDTH) == i, condition.to(tl.int32), 0), 0) > 0


@triton.jit
def forward_walk(
    t, y, walk, kind, p, q, A, B, Af, Bf, KIND: tl.constexpr, MODE: tl.constexpr, HOW: tl.constexpr,
    beside=None,
):  # fmt: skip
    unit = _unit(kind, p, q, A, B, Af, Bf, KIND, MODE, False, HOW)
    TYPE: tl.constexpr = tl.float64 if MODE == DOUBLE else tl.float32
    norm = norm_of(beside, walk, TYPE, HOW)
    STRIDE: tl.constexpr = HOW.HEIGHT if HOW.LANES else HOW.HEIGHT * HOW.WIDTH
    position, outer, inner = start_of(walk, HOW)
    # The loop carries its pointers: Triton's passes take far less time then.
    t_at = tile_of(t, position, outer, inner, walk, HOW)
    inside = inside_of(position, walk, HOW)
    y_at = tile_of(y, position, outer, inner, walk, HOW)
    if HOW.RESIDUAL:
        r_at = tile_of(beside.residual, position, outer, inner, walk, HOW)
    for _tile in tl.range(walk.first, walk.last, STRIDE, num_stages=HOW.STAGES):
        x = widened(_load(t_at, inside, HOW), TYPE, HOW.PTX)
        residual = x
        if HOW.RESIDUAL:
            residual = widened(_load(r_at, inside, HOW), TYPE, HOW.PTX)
        x, centred = normed(x, residual, norm, HOW)
        found = _bounded(x, unit, y.pointer, KIND, MODE, HOW)
        _store(y_at, found, inside, HOW)
        position, outer, inner = next_tile(position, outer, inner, walk, HOW)
        t_at = tile_of(t, position, outer, inner, walk, HOW)
        inside = inside_of(position, walk, HOW)
        y_at = tile_of(y, position, outer, inner, walk, HOW)
        if HOW.RESIDUAL:
            r_at = tile_of(beside.residual, position, outer, inner, walk, HOW)


@triton.jit
def forward_alone(
    t, y, a_ptr, b_ptr, c_ptr, c1_ptr, c2_ptr, walk, i,
    HOW: tl.constexpr, ALONE: tl.constexpr, beside=None,
):  # fmt: skip
    # One channel of a tile in float64: all of the tile in it would be far slower.
    KIND: tl.constexpr = ENTIRE if HOW.CONTINUOUS else MIXED
    one = _one_channel(walk, i, HOW)
    a, b, c, c1, c2 = coefficients(
        a_ptr, b_ptr, c_ptr, c1_ptr, c2_ptr, one.channel, one.mask, ALONE
    )
    _, _, _, _, kind, p, q, A, B, Af, Bf, _ = normal_form(a, b, c, c1, c2, ALONE.CONTINUOUS, ALONE)
    if kind == OSCILLATING:
        forward_walk(t, y, one, kind, p, q, A, B, Af, Bf, OSCILLATING, DOUBLE, ALONE, beside)
    elif HOW.CONTINUOUS and kind == REAL:
        forward_walk(t, y, one, kind, p, q, A, B, Af, Bf, REAL, DOUBLE, ALONE, beside)
    else:
        forward_walk(t, y, one, kind, p, q, A, B, Af, Bf, KIND, DOUBLE, ALONE, beside)


@triton.jit
def plus_eight(a0, a1, a2, a3, a4, a5, a6, a7, b0, b1, b2, b3, b4, b5, b6, b7):
    return a0 + b0, a1 + b1, a2 + b2, a3 + b3, a4 + b4, a5 + b5, a6 + b6, a7 + b7


@triton.jit
def summed(s0, s1, s2, s3, s4, s5, s6, s7, HOW: tl.constexpr):
    # The sums of eight tiles, a channel.  Together, because each time warps wait for each other.
    if not HOW.LANES:
        s0, s1, s2, s3 = tl.sum(s0, 1), tl.sum(s1, 1), tl.sum(s2, 1), tl.sum(s3, 1)
        s4, s5, s6, s7 = tl.sum(s4, 1), tl.sum(s5, 1), tl.sum(s6, 1), tl.sum(s7, 1)
        s0, s1, s2, s3 = _wide(s0), _wide(s1), _wide(s2), _wide(s3)
        s4, s5, s6, s7 = _wide(s4), _wide(s5), _wide(s6), _wide(s7)
    return tl.reduce((s0, s1, s2, s3, s4, s5, s6, s7), 0, plus_eight)


@triton.jit
def plus_two(a0, a1, b0, b1):
    return a0 + b0, a1 + b1


@triton.jit
def summed_two(s0, s1, HOW: tl.constexpr):
    # The same of two.
    if not HOW.LANES:
        s0, s1 = _wide(tl.sum(s0, 1)), _wide(tl.sum(s1, 1))
    return tl.reduce((s0, s1), 0, plus_two)


@triton.jit
def _wide(x):
    return x.to(tl.float64)


@triton.constexpr_function
def count_of(HOW):
    # How many sums there are of a channel and share.
    if HOW.NORM:
        return NORM_SUMS
    return ALL_SUMS.value if HOW.PULL else OWN.value


@triton.jit
def keep(sums_ptr, i: tl.constexpr, total, walk, HOW: tl.constexpr):
    COUNT: tl.constexpr = count_of(HOW)
    place = (walk.channel.to(tl.int64) * COUNT + i) * walk.shares + walk.share
    store(sums_ptr + place, total, walk.mask, HOW)


@triton.jit
def keep_own(sums_ptr, s0, s1, s2, s3, s4, s5, s6, s7, s8, walk, HOW: tl.constexpr):
    keep(sums_ptr, 0, s0, walk, HOW)
    keep(sums_ptr, 1, s1, walk, HOW)
    keep(sums_ptr, 2, s2, walk, HOW)
    keep(sums_ptr, 3, s3, walk, HOW)
    keep(sums_ptr, 4, s4, walk, HOW)
    keep(sums_ptr, 5, s5, walk, HOW)
    keep(sums_ptr, 6, s6, walk, HOW)
    if HOW.NORM > 0:
        keep(sums_ptr, 7, s7, walk, HOW)
        keep(sums_ptr, 8, s8, walk, HOW)


@triton.constexpr_function
def _part(HOW):
    # The shape of what a tile's sums are kept of: the tile, or half of it.
    if not HOW.HALVES:
        return HOW.HEIGHT, HOW.WIDTH
    if _splits_width(HOW.LANES, HOW.WIDTH):
        return HOW.HEIGHT, HOW.WIDTH // 2
    return HOW.HEIGHT // 2, HOW.WIDTH


@triton.constexpr_function
def _splits_width(LANES, WIDTH):
    # Halves are taken so that each thread has elements of both: of its neighbours, or its rows.
    return not LANES and WIDTH > 4


@triton.jit
def _halves(x, HOW: tl.constexpr):
    if _splits_width(HOW.LANES, HOW.WIDTH):
        pairs = tl.reshape(x, (HOW.HEIGHT, HOW.WIDTH // 2, 2))
    else:
        pairs = tl.permute(tl.reshape(x, (2, HOW.HEIGHT // 2, HOW.WIDTH)), (1, 2, 0))
    return tl.split(pairs)


@triton.jit
def _whole(x, y, HOW: tl.constexpr):
    # The tile that these are the halves of.
    pairs = tl.join(x, y)
    if not _splits_width(HOW.LANES, HOW.WIDTH):
        pairs = tl.permute(pairs, (2, 0, 1))
    return tl.reshape(pairs, (HOW.HEIGHT, HOW.WIDTH))


@triton.jit
def _added(
    x, r, g, norm, unit, s_p, s_q, s_A, s_B, s_Af, s_Bf, s_stopped, s_more, s_all, s_along,
    KIND: tl.constexpr, MODE: tl.constexpr, HOW: tl.constexpr,
):  # fmt: skip
    # What of the gradient goes to the input and to the unit's own, and the sums with what elements
    # add to them.
    x, centred = normed(x, r, norm, HOW)
    moved, n_p, n_q, n_A, n_B, n_Af, n_Bf, stopped, more = _contributions(
        x, g, unit, KIND, MODE, HOW
    )
    onward = moved
    if HOW.NORM == ONWARD:
        onward = norm.scale * moved + (norm.along * centred + norm.offset)
    else:
        if _is_mixed(KIND, MODE, HOW) or (_is_fast(KIND, MODE, HOW) and KIND != OSCILLATING):
            s_more += more
        if _takes_seven(KIND, MODE, HOW):
            s_stopped += stopped
        s_p, s_q, s_A = s_p + n_p, s_q + n_q, s_A + n_A
        s_B, s_Af, s_Bf = s_B + n_B, s_Af + n_Af, s_Bf + n_Bf
    if HOW.NORM == MEASURED:
        s_all += moved
        s_along += moved * centred
    return (
        onward, moved, s_p, s_q, s_A, s_B, s_Af, s_Bf, s_stopped, s_more, s_all, s_along
    )  # fmt: skip


@triton.jit
def _joined(x, other, pointer, MODE: tl.constexpr, HOW: tl.constexpr):
    # A tile, or its two halves, in the type that the pointer points to.
    x = narrow(x, pointer, MODE)
    if HOW.HALVES:
        x = _whole(x, narrow(other, pointer, MODE), HOW)
    return x


@triton.jit
def backward_walk(
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
    close=None,
    beside=None,
):
    # What of the gradient goes to t, and the sums for the coefficients; with batch norm before the
    # unit one of these, and two sums for it.
    unit = _unit(kind, p, q, A, B, Af, Bf, KIND, MODE, True, HOW, close)
    TYPE: tl.constexpr = tl.float64 if MODE == DOUBLE else tl.float32
    FAST: tl.constexpr = _is_fast(KIND, MODE, HOW)
    HEIGHT: tl.constexpr = HOW.HEIGHT
    WIDTH: tl.constexpr = HOW.WIDTH
    STRIDE: tl.constexpr = HEIGHT if HOW.LANES else HEIGHT * WIDTH
    norm = norm_of(beside, walk, TYPE, HOW)
    z = tl.zeros(_part(HOW), TYPE)
    s_p, s_q, s_A, s_B, s_Af, s_Bf, s_stopped, s_more, s_all, s_along = z, z, z, z, z, z, z, z, z, z
    position, outer, inner = start_of(walk, HOW)
    t_at = tile_of(t, position, outer, inner, walk, HOW)
    inside = inside_of(position, walk, HOW)
    g_at = tile_of(g, position, outer, inner, walk, HOW)
    if HOW.NORM != MEASURED:
        out_at = tile_of(out, position, outer, inner, walk, HOW)
    if HOW.RESIDUAL:
        r_at = tile_of(beside.residual, position, outer, inner, walk, HOW)
        if HOW.NORM == ONWARD:
            r_out_at = tile_of(beside.out, position, outer, inner, walk, HOW)
    for _tile in tl.range(walk.first, walk.last, STRIDE, num_stages=HOW.STAGES):
        x = widened(_load(t_at, inside, HOW), TYPE, HOW.PTX)
        gradient = widened(_load(g_at, inside, HOW), TYPE, HOW.PTX)
        residual = x
        if HOW.RESIDUAL:
            residual = widened(_load(r_at, inside, HOW), TYPE, HOW.PTX)
        onward_other, other = x, x
        if HOW.HALVES:
            x, x_other = _halves(x, HOW)
            residual, r_other = _halves(residual, HOW)
            gradient, g_other = _halves(gradient, HOW)
            (
                onward_other, other,
                s_p, s_q, s_A, s_B, s_Af, s_Bf, s_stopped, s_more, s_all, s_along,
            ) = _added(
                x_other, r_other, g_other, norm, unit,
                s_p, s_q, s_A, s_B, s_Af, s_Bf, s_stopped, s_more, s_all, s_along, KIND, MODE, HOW,
            )  # fmt: skip
        onward, moved, s_p, s_q, s_A, s_B, s_Af, s_Bf, s_stopped, s_more, s_all, s_along = _added(
            x, residual, gradient, norm, unit,
            s_p, s_q, s_A, s_B, s_Af, s_Bf, s_stopped, s_more, s_all, s_along, KIND, MODE, HOW,
        )  # fmt: skip
        if HOW.NORM != MEASURED:
            _store(out_at, _joined(onward, onward_other, out.pointer, MODE, HOW), inside, HOW)
        if HOW.RESIDUAL and HOW.NORM == ONWARD:
            _store(r_out_at, _joined(moved, other, out.pointer, MODE, HOW), inside, HOW)
        position, outer, inner = next_tile(position, outer, inner, walk, HOW)
        t_at = tile_of(t, position, outer, inner, walk, HOW)
        inside = inside_of(position, walk, HOW)
        g_at = tile_of(g, position, outer, inner, walk, HOW)
        if HOW.NORM != MEASURED:
            out_at = tile_of(out, position, outer, inner, walk, HOW)
        if HOW.RESIDUAL:
            r_at = tile_of(beside.residual, position, outer, inner, walk, HOW)
            if HOW.NORM == ONWARD:
                r_out_at = tile_of(beside.out, position, outer, inner, walk, HOW)
    if HOW.NORM == ONWARD:
        zero = _wide(tl.zeros_like(p))
        s_p, s_q, s_A, s_B, s_Af, s_Bf = zero, zero, zero, zero, zero, zero
        s_stopped, s_all, s_along = zero, zero, zero
    else:
        s_p, s_q, s_A, s_B, s_Af, s_Bf, s_stopped, s_more = summed(
            s_p, s_q, s_A, s_B, s_Af, s_Bf, s_stopped, s_more, HOW
        )
        if MODE != HALF:  # what follows takes differences
            s_p, s_q, s_A, s_B = _wide(s_p), _wide(s_q), _wide(s_A), _wide(s_B)
            s_Af, s_Bf = _wide(s_Af), _wide(s_Bf)
            s_stopped, s_more = _wide(s_stopped), _wide(s_more)
        if MODE == SEAMLESS and HOW.CONTINUOUS:
            s_p, s_q, s_A, s_B, s_Af, s_Bf = seamless_gathered(
                kind, p, q, A, B, Af, Bf, s_p, s_q, s_A, s_B, s_Af, s_Bf, s_stopped
            )
            s_stopped = tl.zeros_like(s_stopped)
        elif _is_mixed(KIND, MODE, HOW):
            s_p, s_q, s_A, s_B, s_Af, s_Bf = mixed_gathered(
                kind, p, q, A, B, Af, Bf, close,
                s_p, s_q, s_A, s_B, s_Af, s_Bf, s_stopped, s_more, MODE,
            )  # fmt: skip
            s_stopped = tl.zeros_like(s_stopped)
        elif FAST:
            s_p, s_q, s_A, s_B, s_Af, s_Bf = gathered(
                unit, s_p, s_q, s_A, s_B, s_Af, s_Bf, s_stopped, s_more, KIND, MODE, HOW
            )
            s_stopped = tl.zeros_like(s_stopped)
        if HOW.NORM == MEASURED:
            s_all, s_along = summed_two(s_all, s_along, HOW)
        else:
            s_all, s_along = s_stopped, s_stopped
    return (
        _wide(s_p), _wide(s_q), _wide(s_A), _wide(s_B), _wide(s_Af), _wide(s_Bf), _wide(s_stopped),
        _wide(s_all), _wide(s_along),
    )  # fmt: skip


@triton.jit
def _pulled(
    x, g, unit, s0, s1, s2, s3, s4, s5, s6, s7, s8, s9, s10, inputs,
    KIND: tl.constexpr, MODE: tl.constexpr, HOW: tl.constexpr,
):  # fmt: skip
    # The sums of a neighbour with what elements add to them, and that of the inputs.
    if MODE == DOUBLE:
        n0, n1, n2, n3, n4, n5, n6, n7, n8, n9 = neighbour_sums(x, g, unit, KIND, MODE, HOW)
        s0, s1, s2, s3, s4 = s0 + n0, s1 + n1, s2 + n2, s3 + n3, s4 + n4
        s5, s6, s7, s8, s9 = s5 + n5, s6 + n6, s7 + n7, s8 + n8, s9 + n9
    else:
        s0, s1, s2, s3, s4, s5, s6, s7, s8, s9, s10 = near_sums(
            x, g, unit, s0, s1, s2, s3, s4, s5, s6, s7, s8, s9, s10, KIND, MODE, HOW
        )
    return s0, s1, s2, s3, s4, s5, s6, s7, s8, s9, s10, inputs + x


@triton.jit
def neighbour_walk(
    t, g, sums_ptr, walk, kind, p, q, Af, Bf, slow,
    KIND: tl.constexpr, MODE: tl.constexpr, HOW: tl.constexpr,
):  # fmt: skip
    if MODE == DOUBLE:
        unit = arithmetic(kind, p, q, p, p, p, p, MODE, HOW)
    else:
        unit = neighbour_unit(kind, p, q, slow, HOW)
    TYPE: tl.constexpr = tl.float64 if MODE == DOUBLE else tl.float32
    HEIGHT: tl.constexpr = HOW.HEIGHT
    WIDTH: tl.constexpr = HOW.WIDTH
    STRIDE: tl.constexpr = HEIGHT if HOW.LANES else HEIGHT * WIDTH
    z = tl.zeros(_part(HOW), TYPE)
    s0, s1, s2, s3, s4, s5, s6, s7, s8, s9, s10, inputs = z, z, z, z, z, z, z, z, z, z, z, z
    position, outer, inner = start_of(walk, HOW)
    t_at = tile_of(t, position, outer, inner, walk, HOW)
    inside = inside_of(position, walk, HOW)
    g_at = tile_of(g, position, outer, inner, walk, HOW)
    for _tile in tl.range(walk.first, walk.last, STRIDE, num_stages=HOW.STAGES):
        x = widened(_load(t_at, inside, HOW), TYPE, HOW.PTX)
        gradient = widened(_load(g_at, inside, HOW), TYPE, HOW.PTX)
        position, outer, inner = next_tile(position, outer, inner, walk, HOW)
        t_at = tile_of(t, position, outer, inner, walk, HOW)
        inside = inside_of(position, walk, HOW)
        g_at = tile_of(g, position, outer, inner, walk, HOW)
        if HOW.HALVES:
            x, x_other = _halves(x, HOW)
            gradient, g_other = _halves(gradient, HOW)
            s0, s1, s2, s3, s4, s5, s6, s7, s8, s9, s10, inputs = _pulled(
                x_other, g_other, unit,
                s0, s1, s2, s3, s4, s5, s6, s7, s8, s9, s10, inputs, KIND, MODE, HOW,
            )  # fmt: skip
        s0, s1, s2, s3, s4, s5, s6, s7, s8, s9, s10, inputs = _pulled(
            x, gradient, unit, s0, s1, s2, s3, s4, s5, s6, s7, s8, s9, s10, inputs, KIND, MODE, HOW
        )
    zero = tl.zeros(_part(HOW), TYPE)
    s0, s1, s2, s3, s4, s5, s6, s7 = summed(s0, s1, s2, s3, s4, s5, s6, s7, HOW)
    s8, s9, s10, inputs, _, _, _, _ = summed(s8, s9, s10, inputs, zero, zero, zero, zero, HOW)
    if MODE != DOUBLE:
        s0, s1, s2, s3, s4 = _wide(s0), _wide(s1), _wide(s2), _wide(s3), _wide(s4)
        s5, s6, s7, s8, s9 = _wide(s5), _wide(s6), _wide(s7), _wide(s8), _wide(s9)
        s0, s1, s2, s3, s4, s5, s6, s7, s8, s9 = near_gathered(
            kind, p, q, Af, Bf, slow,
            s0, s1, s2, s3, s4, s5, s6, s7, s8, s9, _wide(s10), MODE,
        )  # fmt: skip
    keep(sums_ptr, OWN, s0, walk, HOW)
    keep(sums_ptr, OWN + 1, s1, walk, HOW)
    keep(sums_ptr, OWN + 2, s2, walk, HOW)
    keep(sums_ptr, OWN + 3, s3, walk, HOW)
    keep(sums_ptr, OWN + 4, s4, walk, HOW)
    keep(sums_ptr, OWN + 5, s5, walk, HOW)
    keep(sums_ptr, OWN + 6, s6, walk, HOW)
    keep(sums_ptr, OWN + 7, s7, walk, HOW)
    keep(sums_ptr, OWN + 8, s8, walk, HOW)
    keep(sums_ptr, OWN + 9, s9, walk, HOW)
    keep(sums_ptr, INPUTS, inputs, walk, HOW)


@triton.jit
def neighbour_alone(t, g, forms_ptr, sums_ptr, walk, i, HOW: tl.constexpr, ALONE: tl.constexpr):
    one = _one_channel(walk, i, HOW)
    _, kind, p, q, Af, Bf, _ = kept_neighbour(forms_ptr, one, ALONE)
    slow = kind != kind
    if kind == OSCILLATING:
        neighbour_walk(t, g, sums_ptr, one, kind, p, q, Af, Bf, slow, OSCILLATING, DOUBLE, ALONE)
    else:
        neighbour_walk(t, g, sums_ptr, one, kind, p, q, Af, Bf, slow, MIXED, DOUBLE, ALONE)


@triton.jit
def backward_alone(
    t, g, out, forms_ptr, sums_ptr, walk, i, HOW: tl.constexpr, ALONE: tl.constexpr, beside=None
):
    KIND: tl.constexpr = ENTIRE if HOW.CONTINUOUS else MIXED
    one = _one_channel(walk, i, HOW)
    kind, p, q, A, B, Af, Bf, _, _, _ = kept_form(forms_ptr, one, ALONE)
    if kind == OSCILLATING:
        s0, s1, s2, s3, s4, s5, s6, s7, s8 = backward_walk(
            t, g, out, one, kind, p, q, A, B, Af, Bf, OSCILLATING, DOUBLE, ALONE, None, beside
        )
    elif HOW.CONTINUOUS and kind == REAL:  # the functions at a seam take five times as long
        s0, s1, s2, s3, s4, s5, s6, s7, s8 = backward_walk(
            t, g, out, one, kind, p, q, A, B, Af, Bf, REAL, DOUBLE, ALONE, None, beside
        )
    else:
        s0, s1, s2, s3, s4, s5, s6, s7, s8 = backward_walk(
            t, g, out, one, kind, p, q, A, B, Af, Bf, KIND, DOUBLE, ALONE, None, beside
        )
    if HOW.NORM != ONWARD:
        keep_own(sums_ptr, s0, s1, s2, s3, s4, s5, s6, s7, s8, one, ALONE)
