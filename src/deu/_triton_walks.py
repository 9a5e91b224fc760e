# mypy: ignore-errors
"""How the Triton kernels walk over a tensor.

A program walks over a share of the positions, tile by tile (see _triton_tiles.py), by the
arithmetic that its channels ask for, keeps its sums in registers and stores them once.
"""

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_wait

from ._triton_chip import clamped, widened
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
    SEAMLESS,
    SHORT,
    SINGLE,
    STEP,
    arithmetic,
    at_least,
    at_most,
    gradients,
    neighbour_sums,
    value,
)
from ._triton_entire import entire_point
from ._triton_fast import fast_gradients, fast_unit, fast_value, gathered, is_real
from ._triton_forms import Form, coefficients, kept_form, kept_neighbour, normal_form
from ._triton_mixed import (
    close_gradients,
    mixed_gathered,
    mixed_gradients,
    mixed_unit,
    plain_unit,
    plain_value,
    single_gradients,
)
from ._triton_neighbours import near_gathered, near_sums, neighbour_unit
from ._triton_norm import MEASURED, ONWARD, norm_of, normed
from ._triton_seamless import seamless_gathered, seamless_gradients, seamless_unit
from ._triton_sums import (
    Near,
    Own,
    keep_near,
    keep_own,
    near_zeros,
    own_zeros,
    summed,
    summed_near,
    summed_two,
    wide_own,
)
from ._triton_tiles import (
    inside_of,
    load_tile,
    narrow,
    next_tile,
    one_channel,
    parts_of,
    shape_of,
    start_of,
    store_tile,
    tile_of,
    whole_of,
)


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
    if KIND == EXPONENTIAL and MODE == SHORT:
        return True
    return MODE == SEAMLESS or (KIND == MIXED and MODE in (HALF, SHORT))


@triton.jit
def _unit(
    form, KIND: tl.constexpr, MODE: tl.constexpr, GRADIENTS: tl.constexpr, HOW: tl.constexpr,
    close=None,
):  # fmt: skip
    kind, p, q, A, B, Af, Bf = form
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
        elif KIND == EXPONENTIAL:
            moved, n_p, n_q, n_A, n_B, n_Af, n_Bf, stopped, more = single_gradients(x, g, unit, HOW)
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


@triton.constexpr_function
def _takes_seven(KIND, MODE, HOW):
    # Whether there is anything to the seventh sum.  Triton 3.6 does not let one such function hand
    # HOW to another that looks into it, as _is_mixed does.
    if KIND == REAL:
        return MODE == SINGLE or (HOW.CONTINUOUS and MODE in (DOUBLE, SEAMLESS))
    if HOW.CONTINUOUS:
        return not _is_fast(KIND, MODE, HOW)
    return (KIND == MIXED and MODE not in (SINGLE, DOUBLE)) or (
        KIND == EXPONENTIAL and MODE == SHORT
    )


@triton.constexpr_function
def occurs(KIND, HOW):
    # Whether the solution has rows of this kind.
    return KIND in (REAL, OSCILLATING) or not HOW.CONTINUOUS


@triton.constexpr_function
def has_fast(KIND, GRADIENTS, HOW):
    # Whether there is a faster arithmetic than SINGLE for the kind.
    return KIND in (OSCILLATING, REAL) or (KIND == EXPONENTIAL and (GRADIENTS or HOW.MODE == HALF))


@triton.constexpr_function
def has_short(KIND, HOW):
    # Whether there is one between the fastest and SINGLE for gradients.
    return KIND == OSCILLATING and HOW.MODE == HALF and (HOW.CONTINUOUS or not HOW.LANES)


@triton.constexpr_function
def has_steady(KIND, HOW):
    # Whether roots that decay are worth a loop of their own: where arithmetic is all there is.
    return KIND == REAL and HOW.CONTINUOUS and HOW.MODE == HALF


@triton.jit
def forward_walk(
    t, y, walk, form, KIND: tl.constexpr, MODE: tl.constexpr, HOW: tl.constexpr, beside=None
):
    unit = _unit(form, KIND, MODE, False, HOW)
    TYPE: tl.constexpr = tl.float64 if MODE == DOUBLE else tl.float32
    norm = norm_of(beside, walk, TYPE, HOW)
    if HOW.READY and HOW.OVERLAP:
        gdc_wait()  # until the input is there: packed numbers have been for long
    STRIDE: tl.constexpr = HOW.HEIGHT if HOW.LANES else HOW.HEIGHT * HOW.WIDTH
    position, outer, inner = start_of(walk, HOW)
    # The loop carries its pointers: Triton's passes take far less time then.
    t_at = tile_of(t, position, outer, inner, walk, HOW)
    inside = inside_of(position, walk, HOW)
    y_at = tile_of(y, position, outer, inner, walk, HOW)
    if HOW.RESIDUAL:
        r_at = tile_of(beside.residual, position, outer, inner, walk, HOW)
    for _tile in tl.range(walk.first, walk.last, STRIDE, num_stages=HOW.STAGES):
        x = widened(load_tile(t_at, inside, HOW), TYPE, HOW.PTX)
        residual = x
        if HOW.RESIDUAL:
            residual = widened(load_tile(r_at, inside, HOW), TYPE, HOW.PTX)
        x, centred = normed(x, residual, norm, HOW)
        found = _bounded(x, unit, y.pointer, KIND, MODE, HOW)
        store_tile(y_at, found, inside, HOW)
        position, outer, inner = next_tile(position, outer, inner, walk, HOW)
        t_at = tile_of(t, position, outer, inner, walk, HOW)
        inside = inside_of(position, walk, HOW)
        y_at = tile_of(y, position, outer, inner, walk, HOW)
        if HOW.RESIDUAL:
            r_at = tile_of(beside.residual, position, outer, inner, walk, HOW)


@triton.jit
def forward_alone(
    t, y, a_ptr, b_ptr, c_ptr, c1_ptr, c2_ptr, forms_ptr, walk, i,
    HOW: tl.constexpr, ALONE: tl.constexpr, beside=None,
):  # fmt: skip
    # One channel of a tile in float64: all of the tile in it would be far slower.
    KIND: tl.constexpr = ENTIRE if HOW.CONTINUOUS else MIXED
    one = one_channel(walk, i, HOW)
    if ALONE.READY:
        form, _, _, _ = kept_form(forms_ptr, one, ALONE)
    else:
        a, b, c, c1, c2 = coefficients(
            a_ptr, b_ptr, c_ptr, c1_ptr, c2_ptr, one.channel, one.mask, ALONE
        )
        _, _, _, _, kind, p, q, A, B, Af, Bf, _ = normal_form(
            a, b, c, c1, c2, ALONE.CONTINUOUS, ALONE
        )
        form = Form(kind, p, q, A, B, Af, Bf)
    if form.kind == OSCILLATING:
        forward_walk(t, y, one, form, OSCILLATING, DOUBLE, ALONE, beside)
    elif HOW.CONTINUOUS and form.kind == REAL:
        forward_walk(t, y, one, form, REAL, DOUBLE, ALONE, beside)
    else:
        forward_walk(t, y, one, form, KIND, DOUBLE, ALONE, beside)


@triton.jit
def _added(
    x, r, g, norm, unit, s, KIND: tl.constexpr, MODE: tl.constexpr, HOW: tl.constexpr
):  # fmt: skip
    # What of the gradient goes to the input and to the unit's own, and the sums with what elements
    # add to them.
    x, centred = normed(x, r, norm, HOW)
    moved, n_p, n_q, n_A, n_B, n_Af, n_Bf, n_stopped, n_more = _contributions(
        x, g, unit, KIND, MODE, HOW
    )
    p, q, A, B, Af, Bf, stopped, more, all, along = s
    onward = moved
    if HOW.NORM == ONWARD:
        onward = norm.scale * moved + (norm.along * centred + norm.offset)
    else:
        if _is_mixed(KIND, MODE, HOW) or (_is_fast(KIND, MODE, HOW) and KIND != OSCILLATING):
            more += n_more
        if _takes_seven(KIND, MODE, HOW):
            stopped += n_stopped
        if KIND != STEP and KIND != POLYNOMIAL:
            p += n_p
            if KIND != EXPONENTIAL and KIND != CRITICAL:
                q += n_q
        A += n_A
        if KIND != STEP:
            B, Af, Bf = B + n_B, Af + n_Af, Bf + n_Bf
    if HOW.NORM == MEASURED:
        all += moved
        along += moved * centred
    return onward, moved, Own(p, q, A, B, Af, Bf, stopped, more, all, along)


@triton.jit
def _gathered(
    unit, form, close, s, KIND: tl.constexpr, MODE: tl.constexpr, HOW: tl.constexpr
):  # fmt: skip
    # The sums of a channel, of those that elements were added to.
    kind, p, q, A, B, Af, Bf = form
    s_p, s_q, s_A, s_B, s_Af, s_Bf, stopped, more = summed(
        s.p, s.q, s.A, s.B, s.Af, s.Bf, s.stopped, s.more, HOW
    )
    all, along = stopped, stopped
    if HOW.NORM == MEASURED:
        all, along = summed_two(s.all, s.along, HOW)
    found = Own(s_p, s_q, s_A, s_B, s_Af, s_Bf, stopped, more, all, along)
    if MODE != HALF:  # what follows takes differences
        found = wide_own(found)
    s_p, s_q, s_A, s_B, s_Af, s_Bf, stopped, more, all, along = found
    if MODE == SEAMLESS and HOW.CONTINUOUS:
        s_p, s_q, s_A, s_B, s_Af, s_Bf = seamless_gathered(
            kind, p, q, A, B, Af, Bf, s_p, s_q, s_A, s_B, s_Af, s_Bf, stopped
        )
        stopped = tl.zeros_like(stopped)
    elif _is_mixed(KIND, MODE, HOW):
        if KIND == EXPONENTIAL:  # which has but this
            s_p, s_q = tl.zeros_like(s_p), s_p
        s_p, s_q, s_A, s_B, s_Af, s_Bf = mixed_gathered(
            kind, p, q, A, B, Af, Bf, close,
            s_p, s_q, s_A, s_B, s_Af, s_Bf, stopped, more, MODE,
        )  # fmt: skip
        stopped = tl.zeros_like(stopped)
    elif _is_fast(KIND, MODE, HOW):
        s_p, s_q, s_A, s_B, s_Af, s_Bf = gathered(
            unit, s_p, s_q, s_A, s_B, s_Af, s_Bf, stopped, more, KIND, MODE, HOW
        )
        stopped = tl.zeros_like(stopped)
    return wide_own(Own(s_p, s_q, s_A, s_B, s_Af, s_Bf, stopped, more, all, along))


@triton.jit
def _neighbour(form, MODE: tl.constexpr, HOW: tl.constexpr):
    if MODE == DOUBLE:
        zero = tl.zeros_like(form.p)
        unit = arithmetic(form.kind, form.p, form.q, zero, zero, zero, zero, MODE, HOW)
    else:
        unit = neighbour_unit(form.kind, form.p, form.q, form.slow, HOW)
    return unit


@triton.jit
def _pulled(x, g, unit, s, KIND: tl.constexpr, MODE: tl.constexpr, HOW: tl.constexpr):
    # The sums of a neighbour with what elements add to them, and that of the inputs.
    if MODE == DOUBLE:
        Af, Bf, X1, X2, P1, P2, F1, F2 = neighbour_sums(x, g, unit, KIND, MODE, HOW)
        sums = Near(
            s.Af + Af, s.Bf + Bf, s.X1 + X1, s.X2 + X2, s.P1 + P1, s.P2 + P2, s.F1 + F1, s.F2 + F2,
            s.more, s.inputs + x,
        )  # fmt: skip
    else:
        sums = near_sums(x, g, unit, s, KIND, MODE, HOW)
    return sums


@triton.jit
def _keep_pulls(sums_ptr, sums, form, walk, MODE: tl.constexpr, HOW: tl.constexpr):
    found = summed_near(sums, HOW)
    if MODE != DOUBLE:
        found = near_gathered(form, found, MODE)
    keep_near(sums_ptr, found, walk, HOW)


@triton.constexpr_function
def _parts(HOW, JOINT):
    # In how many parts, which share their sums, a tile is taken; with a neighbour's sums in twice
    # as many, for as many registers.
    parts = 2 if HOW.ELEMENTS >= 8 else 1
    return 2 * parts if JOINT and HOW.ELEMENTS > parts else parts


@triton.jit
def backward_walk(
    t, g, out, walk, form, KIND: tl.constexpr, MODE: tl.constexpr, HOW: tl.constexpr,
    close=None, beside=None, near=None, sums_ptr=None,
    NEAR_KIND: tl.constexpr = None, NEAR_MODE: tl.constexpr = None,
):  # fmt: skip
    # What of the gradient goes to t, and the sums for the coefficients; with batch norm before the
    # unit one of these, and two sums for it.  With a neighbour's form, its sums are kept.
    unit = _unit(form, KIND, MODE, True, HOW, close)
    JOINT: tl.constexpr = NEAR_KIND is not None
    TYPE: tl.constexpr = tl.float64 if MODE == DOUBLE else tl.float32
    STRIDE: tl.constexpr = HOW.HEIGHT if HOW.LANES else HOW.HEIGHT * HOW.WIDTH
    PARTS: tl.constexpr = _parts(HOW, JOINT)
    norm = norm_of(beside, walk, TYPE, HOW)
    zeros = tl.zeros(shape_of(PARTS, HOW), TYPE)
    sums = own_zeros(zeros)
    if JOINT:
        neighbour = _neighbour(near, NEAR_MODE, HOW)
        pulls = near_zeros(zeros)
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
        x = widened(load_tile(t_at, inside, HOW), TYPE, HOW.PTX)
        gradient = widened(load_tile(g_at, inside, HOW), TYPE, HOW.PTX)
        residual = x
        if HOW.RESIDUAL:
            residual = widened(load_tile(r_at, inside, HOW), TYPE, HOW.PTX)
        xs, gs = parts_of(x, PARTS, HOW), parts_of(gradient, PARTS, HOW)
        rs = parts_of(residual, PARTS, HOW)
        onwards, moves = (), ()
        for i in tl.static_range(PARTS):
            onward, moved, sums = _added(xs[i], rs[i], gs[i], norm, unit, sums, KIND, MODE, HOW)
            onwards += (narrow(onward, out.pointer, MODE),)
            moves += (narrow(moved, out.pointer, MODE),)
            if JOINT:
                pulls = _pulled(xs[i], gs[i], neighbour, pulls, NEAR_KIND, NEAR_MODE, HOW)
        if HOW.NORM != MEASURED:
            store_tile(out_at, whole_of(onwards, HOW), inside, HOW)
        if HOW.RESIDUAL and HOW.NORM == ONWARD:
            store_tile(r_out_at, whole_of(moves, HOW), inside, HOW)
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
    if JOINT:
        _keep_pulls(sums_ptr, pulls, near, walk, NEAR_MODE, HOW)
    if HOW.NORM == ONWARD:
        found = own_zeros(tl.zeros_like(form.p))
    else:
        found = _gathered(unit, form, close, sums, KIND, MODE, HOW)
    return found


@triton.jit
def neighbour_walk(
    t, g, sums_ptr, walk, form, KIND: tl.constexpr, MODE: tl.constexpr, HOW: tl.constexpr
):  # fmt: skip
    unit = _neighbour(form, MODE, HOW)
    TYPE: tl.constexpr = tl.float64 if MODE == DOUBLE else tl.float32
    STRIDE: tl.constexpr = HOW.HEIGHT if HOW.LANES else HOW.HEIGHT * HOW.WIDTH
    PARTS: tl.constexpr = _parts(HOW, False)
    sums = near_zeros(tl.zeros(shape_of(PARTS, HOW), TYPE))
    position, outer, inner = start_of(walk, HOW)
    t_at = tile_of(t, position, outer, inner, walk, HOW)
    inside = inside_of(position, walk, HOW)
    g_at = tile_of(g, position, outer, inner, walk, HOW)
    for _tile in tl.range(walk.first, walk.last, STRIDE, num_stages=HOW.STAGES):
        x = widened(load_tile(t_at, inside, HOW), TYPE, HOW.PTX)
        gradient = widened(load_tile(g_at, inside, HOW), TYPE, HOW.PTX)
        position, outer, inner = next_tile(position, outer, inner, walk, HOW)
        t_at = tile_of(t, position, outer, inner, walk, HOW)
        inside = inside_of(position, walk, HOW)
        g_at = tile_of(g, position, outer, inner, walk, HOW)
        xs, gs = parts_of(x, PARTS, HOW), parts_of(gradient, PARTS, HOW)
        for i in tl.static_range(PARTS):
            sums = _pulled(xs[i], gs[i], unit, sums, KIND, MODE, HOW)
    _keep_pulls(sums_ptr, sums, form, walk, MODE, HOW)


@triton.constexpr_function
def _joins(KIND, NEAR_KIND, NEAR_MODE):
    # Whether most neurons of a kind have such a neighbour, or many, so that one loop for both is
    # worth the time to compile it.
    if KIND == STEP:
        return NEAR_MODE == SHORT
    if KIND == POLYNOMIAL:
        return NEAR_MODE == (SHORT if NEAR_KIND == REAL else SEAMLESS)
    if KIND == EXPONENTIAL or KIND == REAL:
        return NEAR_KIND == REAL and NEAR_MODE == SHORT
    return KIND == OSCILLATING and NEAR_KIND == OSCILLATING and NEAR_MODE == SHORT


@triton.jit
def joint_walk(
    t, g, out, sums_ptr, walk, form, pulled, near, near_mode,
    KIND: tl.constexpr, MODE: tl.constexpr, HOW: tl.constexpr,
):  # fmt: skip
    # backward_walk, and the neighbour's where one loop does both; whether it is still to be walked.
    left = pulled & False
    short = near_mode == SHORT
    if _joins(KIND, REAL, SHORT) and (short & (near.kind == REAL)):
        sums = backward_walk(
            t, g, out, walk, form, KIND, MODE, HOW, None, None, near, sums_ptr, REAL, SHORT
        )  # fmt: skip
    elif _joins(KIND, OSCILLATING, SHORT) and (short & (near.kind == OSCILLATING)):
        sums = backward_walk(
            t, g, out, walk, form, KIND, MODE, HOW, None, None, near, sums_ptr, OSCILLATING, SHORT
        )  # fmt: skip
    elif _joins(KIND, OSCILLATING, SEAMLESS) and near_mode == SEAMLESS:
        sums = backward_walk(
            t, g, out, walk, form, KIND, MODE, HOW, None, None, near, sums_ptr,
            OSCILLATING, SEAMLESS,
        )  # fmt: skip
    else:
        left = pulled
        sums = backward_walk(t, g, out, walk, form, KIND, MODE, HOW)
    return sums, left


@triton.jit
def neighbour_alone(t, g, forms_ptr, sums_ptr, walk, i, HOW: tl.constexpr, ALONE: tl.constexpr):
    one = one_channel(walk, i, HOW)
    _, form, _ = kept_neighbour(forms_ptr, one, ALONE)
    if form.kind == OSCILLATING:
        neighbour_walk(t, g, sums_ptr, one, form, OSCILLATING, DOUBLE, ALONE)
    else:
        neighbour_walk(t, g, sums_ptr, one, form, MIXED, DOUBLE, ALONE)


@triton.jit
def backward_alone(
    t, g, out, forms_ptr, sums_ptr, walk, i, HOW: tl.constexpr, ALONE: tl.constexpr, beside=None
):
    KIND: tl.constexpr = ENTIRE if HOW.CONTINUOUS else MIXED
    one = one_channel(walk, i, HOW)
    form, _, _, _ = kept_form(forms_ptr, one, ALONE)
    if form.kind == OSCILLATING:
        sums = backward_walk(t, g, out, one, form, OSCILLATING, DOUBLE, ALONE, None, beside)
    elif HOW.CONTINUOUS and form.kind == REAL:  # the functions at a seam take five times as long
        sums = backward_walk(t, g, out, one, form, REAL, DOUBLE, ALONE, None, beside)
    else:
        sums = backward_walk(t, g, out, one, form, KIND, DOUBLE, ALONE, None, beside)
    if HOW.NORM != ONWARD:
        keep_own(sums_ptr, sums, one, ALONE)
