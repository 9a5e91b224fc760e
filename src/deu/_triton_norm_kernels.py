# mypy: ignore-errors
"""The Triton kernels of batch norm and a unit in one.

In training ``measure`` sums each channel up, ``settle`` makes mean and variance of that and keeps
them, and ``norm_forward`` takes both steps at once.  ``norm_backward`` first finds all sums, from
which ``norm_finish`` makes the gradients of parameters, and then what goes on to the input and to
the residual.
"""

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from ._triton import NORM_ROWS
from ._triton_chip import widened
from ._triton_elements import DOUBLE, inverse, root
from ._triton_finish import columns_of, limited, only, pulls_of, sums_of
from ._triton_forms import coefficients, normal_form, store
from ._triton_kernels import backward_channels, forward_channels
from ._triton_norm import FROZEN, ONWARD, Beside
from ._triton_sums import plus_two, summed_two
from ._triton_tiles import (
    Strided,
    ask_for,
    inside_of,
    narrow,
    next_tile,
    shape_of,
    start_of,
    tile_of,
    walk_of,
)

# Rows of what forward keeps for backward, a number a channel each; a normal form comes first.
MEAN, OVER, REST, COEFFICIENTS = (tl.constexpr(row) for row in NORM_ROWS.values())


@triton.jit
def _pilot(x, walk, positions, HOW: tl.constexpr):
    # About the mean of each channel, that of its first positions: what lies far from 0 is summed up
    # without it.
    MANY: tl.constexpr = 16 if HOW.LANES else 128
    position = tl.arange(0, MANY)
    inside = position < positions
    outer = position // walk.inner
    offset = outer * x.outer + (position - outer * walk.inner) * x.inner
    if HOW.LANES:
        at = x.pointer + offset[:, None] + (walk.channel * x.channel)[None, :]
        some = tl.load(at, inside[:, None] & walk.mask[None, :], 0.0)
    else:
        some = tl.load(x.pointer + offset + walk.channel * x.channel, inside, 0.0)
    return tl.sum(some.to(tl.float32), 0) / tl.minimum(positions, MANY)


@triton.jit
def measure(
    x_ptr, saved_ptr, sums_ptr, channels, positions, share, inner, x_outer, x_channel, x_inner,
    HOW: tl.constexpr,
):  # fmt: skip
    if HOW.OVERLAP:
        gdc_wait()
        gdc_launch_dependents()
    walk = walk_of(channels, positions, share, inner, HOW)
    x = Strided(x_ptr, x_outer, x_channel, x_inner)
    pilot = _pilot(x, walk, positions, HOW)
    STRIDE: tl.constexpr = HOW.HEIGHT if HOW.LANES else HOW.HEIGHT * HOW.WIDTH
    total = tl.zeros(shape_of(1, HOW), tl.float32)
    square = total
    position, outer, along = start_of(walk, HOW)
    at = tile_of(x, position, outer, along, walk, HOW)
    inside = inside_of(position, walk, HOW)
    for _tile in tl.range(walk.first, walk.last, STRIDE, num_stages=HOW.STAGES):
        if HOW.EVEN:
            d = widened(tl.load(at), tl.float32, HOW.PTX) - pilot
        else:
            d = widened(tl.load(at, inside, 0.0), tl.float32, HOW.PTX) - pilot
            d = tl.where(inside, d, 0.0)
        total += d
        square += d * d
        position, outer, along = next_tile(position, outer, along, walk, HOW)
        at = tile_of(x, position, outer, along, walk, HOW)
        inside = inside_of(position, walk, HOW)
    total, square = summed_two(total, square, HOW)
    at = sums_ptr + 2 * walk.channel.to(tl.int64) * walk.shares + walk.share
    store(at, total.to(tl.float64), walk.mask, HOW)
    store(at + walk.shares, square.to(tl.float64), walk.mask, HOW)
    if walk.share == 0:
        store(saved_ptr + MEAN * channels + walk.channel, pilot.to(tl.float64), walk.mask, HOW)


@triton.jit
def _summed_up(at, shares, SHARES: tl.constexpr):
    # Two rows of numbers, in an order that depends on nothing else.
    total = tl.zeros((SHARES,), tl.float64)
    square = total
    for first in range(0, shares, SHARES):
        share = first + tl.arange(0, SHARES)
        total += tl.load(at + share, share < shares, 0.0)
        square += tl.load(at + shares + share, share < shares, 0.0)
    return tl.reduce((total, square), 0, plus_two)


@triton.jit(
    do_not_specialize=["shares", "momentum", "eps"],
    do_not_specialize_on_alignment=[
        *("weight_ptr", "bias_ptr", "mean_ptr", "var_ptr", "batches_ptr"),
        *("a_ptr", "b_ptr", "c_ptr", "c1_ptr", "c2_ptr"),
    ],
)
def settle(
    saved_ptr, sums_ptr, weight_ptr, bias_ptr, mean_ptr, var_ptr, batches_ptr,
    a_ptr, b_ptr, c_ptr, c1_ptr, c2_ptr, channels, shares, positions, momentum, eps,
    TRACKED: tl.constexpr, SHARES: tl.constexpr, OVERLAP: tl.constexpr,
):  # fmt: skip
    channel = tl.program_id(0)
    row = saved_ptr + channel
    weight = tl.load(weight_ptr + channel).to(tl.float64)
    bias = tl.load(bias_ptr + channel).to(tl.float64)
    at = row + COEFFICIENTS * channels
    tl.store(at, tl.load(a_ptr + channel).to(tl.float64))
    tl.store(at + channels, tl.load(b_ptr + channel).to(tl.float64))
    tl.store(at + 2 * channels, tl.load(c_ptr + channel).to(tl.float64))
    tl.store(at + 3 * channels, tl.load(c1_ptr + channel).to(tl.float64))
    tl.store(at + 4 * channels, tl.load(c2_ptr + channel).to(tl.float64))
    if TRACKED:
        mean_before = tl.load(mean_ptr + channel).to(tl.float64)
        var_before = tl.load(var_ptr + channel).to(tl.float64)
    if OVERLAP:
        gdc_wait()  # until the sums are there
        gdc_launch_dependents()
    at = sums_ptr + 2 * channel.to(tl.int64) * shares
    total, square = _summed_up(at, shares, SHARES)
    off = total / positions
    variance = square / positions - off * off
    variance = tl.where(variance < 0, 0.0, variance)
    mean = tl.load(row + MEAN * channels) + off
    over = inverse(root(variance + eps))
    scale = weight * over
    # Inputs are less the mean in float32; the shift has the rest.
    near = mean.to(tl.float32).to(tl.float64)
    rest = mean - near
    tl.store(row + MEAN * channels, near)
    tl.store(row + (MEAN + 1) * channels, scale)
    tl.store(row + (MEAN + 2) * channels, bias - rest * scale)
    tl.store(row + OVER * channels, over)
    tl.store(row + REST * channels, rest)
    if TRACKED:
        tl.store(mean_ptr + channel, mean_before + momentum * (mean - mean_before))
        unbiased = variance * (positions / (positions - 1.0))
        tl.store(var_ptr + channel, var_before + momentum * (unbiased - var_before))
        if channel == 0:
            tl.store(batches_ptr, tl.load(batches_ptr) + 1)


@triton.jit(
    do_not_specialize=["eps"],
    do_not_specialize_on_alignment=[
        *("a_ptr", "b_ptr", "c_ptr", "c1_ptr", "c2_ptr"),
        *("weight_ptr", "bias_ptr", "mean_ptr", "var_ptr"),
    ],
)
def norm_forward(
    t_ptr, r_ptr, y_ptr, a_ptr, b_ptr, c_ptr, c1_ptr, c2_ptr, saved_ptr,
    weight_ptr, bias_ptr, mean_ptr, var_ptr, channels, positions, share, inner,
    t_outer, t_channel, t_inner, r_outer, r_channel, r_inner, y_outer, y_channel, y_inner, eps,
    HOW: tl.constexpr, ALONE: tl.constexpr,
):  # fmt: skip
    # In training, normal forms are made while settle runs; norm_of waits for it.
    if HOW.OVERLAP and HOW.NORM == FROZEN:
        gdc_wait()
    walk = walk_of(channels, positions, share, inner, HOW)
    t = Strided(t_ptr, t_outer, t_channel, t_inner)
    if HOW.PTX and HOW.LANES:
        ask_for(t, walk, HOW)
    if HOW.ALIKE:
        r = Strided(r_ptr, t_outer, t_channel, t_inner)
        y = Strided(y_ptr, t_outer, t_channel, t_inner)
    else:
        r = Strided(r_ptr, r_outer, r_channel, r_inner)
        y = Strided(y_ptr, y_outer, y_channel, y_inner)
    rows = saved_ptr + MEAN * channels
    beside = Beside(rows, rows, weight_ptr, bias_ptr, mean_ptr, var_ptr, eps, r, r)
    forward_channels(
        t, y, a_ptr, b_ptr, c_ptr, c1_ptr, c2_ptr, saved_ptr, walk, HOW, ALONE, beside
    )  # fmt: skip


@triton.jit
def packed_value(
    t_ptr, r_ptr, y_ptr, packed_ptr, channels, positions, share, inner,
    t_outer, t_channel, t_inner, r_outer, r_channel, r_inner, y_outer, y_channel, y_inner,
    HOW: tl.constexpr, ALONE: tl.constexpr,
):  # fmt: skip
    # Values by packed numbers, with batch norm or without.  All that does not depend on the input
    # is done while the kernel before this one ends; forward_walk waits for it.
    walk = walk_of(channels, positions, share, inner, HOW)
    t = Strided(t_ptr, t_outer, t_channel, t_inner)
    if HOW.ALIKE:
        r = Strided(r_ptr, t_outer, t_channel, t_inner)
        y = Strided(y_ptr, t_outer, t_channel, t_inner)
    else:
        r = Strided(r_ptr, r_outer, r_channel, r_inner)
        y = Strided(y_ptr, y_outer, y_channel, y_inner)
    forms = packed_ptr.to(tl.pointer_type(tl.float64), bitcast=True)
    rows = forms + MEAN * channels
    beside = Beside(rows, rows, rows, rows, rows, rows, 0.0, r, r)
    forward_channels(
        t, y, forms, forms, forms, forms, forms, forms, walk, HOW, ALONE, beside
    )  # fmt: skip


@triton.jit
def norm_backward(
    t_ptr, r_ptr, g_ptr, out_ptr, r_out_ptr, saved_ptr, sums_ptr, onward_ptr,
    channels, positions, share, inner, t_outer, t_channel, t_inner, r_outer, r_channel, r_inner,
    g_outer, g_channel, g_inner, out_outer, out_channel, out_inner,
    HOW: tl.constexpr, ALONE: tl.constexpr,
):  # fmt: skip
    # The second walk gets ready while norm_finish runs; norm_of waits for it.
    if HOW.OVERLAP and HOW.NORM != ONWARD:
        gdc_wait()
        gdc_launch_dependents()
    walk = walk_of(channels, positions, share, inner, HOW)
    t = Strided(t_ptr, t_outer, t_channel, t_inner)
    if HOW.ALIKE:
        r = Strided(r_ptr, t_outer, t_channel, t_inner)
        g = Strided(g_ptr, t_outer, t_channel, t_inner)
        out = Strided(out_ptr, t_outer, t_channel, t_inner)
        r_out = Strided(r_out_ptr, t_outer, t_channel, t_inner)
    else:
        r = Strided(r_ptr, r_outer, r_channel, r_inner)
        g = Strided(g_ptr, g_outer, g_channel, g_inner)
        out = Strided(out_ptr, out_outer, out_channel, out_inner)
        r_out = Strided(r_out_ptr, out_outer, out_channel, out_inner)
    rows = saved_ptr + MEAN * channels
    beside = Beside(rows, onward_ptr, rows, rows, rows, rows, 0.0, r, r_out)
    backward_channels(t, g, out, saved_ptr, sums_ptr, walk, HOW, ALONE, beside)


@triton.jit(do_not_specialize=["shares"])
def norm_finish(
    saved_ptr, sums_ptr, grads_ptr, onward_ptr, channels, shares, positions,
    MAX_GRAD_NORM: tl.constexpr, SHARES: tl.constexpr, HOW: tl.constexpr,
):  # fmt: skip
    channel = tl.program_id(0) + tl.arange(0, 1)
    mask = channel < channels
    row = saved_ptr + COEFFICIENTS * channels
    a, b, c, c1, c2 = coefficients(
        row, row + channels, row + 2 * channels, row + 3 * channels, row + 4 * channels,
        channel, mask, HOW,
    )  # fmt: skip
    row, a, b, c, kind, p, q, A, B, Af, Bf, mode = normal_form(a, b, c, c1, c2, True, HOW)
    by_a, by_b, by_c, by_c1, by_c2 = pulls_of(row, a, b, c, c1, c2, kind, p, q, A, B, Af, Bf, HOW)
    scale = tl.load(saved_ptr + (MEAN + 1) * channels + channel, mask)
    over = tl.load(saved_ptr + OVER * channels + channel, mask)
    rest = tl.load(saved_ptr + REST * channels + channel, mask)
    if HOW.OVERLAP:
        gdc_wait()  # until the sums are there
        gdc_launch_dependents()
    own = columns_of(sums_ptr, 0, channel, shares, SHARES, HOW)
    last = columns_of(sums_ptr, 1, channel, shares, SHARES, HOW)
    totals, last = tl.reduce((own, last), 1, plus_two)
    d_a, d_b, d_c, d_c1, d_c2, all, along, _ = sums_of(
        by_a * totals, by_b * totals, by_c * totals, by_c1 * totals, by_c2 * totals,
        only(last, 6), only(last, 7), tl.zeros_like(last),
    )  # fmt: skip
    d_a, d_b, d_c, d_c1, d_c2 = limited(d_a, d_b, d_c, d_c1, d_c2, MAX_GRAD_NORM)
    d_weight = over * (along - rest * all)
    at = grads_ptr + channel
    tl.store(at, narrow(d_weight, grads_ptr, DOUBLE), mask)
    tl.store(at + channels, narrow(all, grads_ptr, DOUBLE), mask)
    tl.store(at + 2 * channels, narrow(d_a, grads_ptr, DOUBLE), mask)
    tl.store(at + 3 * channels, narrow(d_b, grads_ptr, DOUBLE), mask)
    tl.store(at + 4 * channels, narrow(d_c, grads_ptr, DOUBLE), mask)
    tl.store(at + 5 * channels, narrow(d_c1, grads_ptr, DOUBLE), mask)
    tl.store(at + 6 * channels, narrow(d_c2, grads_ptr, DOUBLE), mask)
    # What a change of an input does to mean and variance takes this of its gradient.
    along = -scale * over * d_weight / positions
    tl.store(onward_ptr + channel, along, mask)
    tl.store(onward_ptr + channels + channel, -scale * all / positions - along * rest, mask)
