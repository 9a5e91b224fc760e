# mypy: ignore-errors
"""The Triton kernel after backward.

It adds the shares up in a fixed order and turns the gradient of the normal form into that of the
coefficients.
"""

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_wait

from ._triton_elements import DOUBLE, MIXED, REAL, arithmetic, gradients, inverse, root, value
from ._triton_forms import (
    any_of,
    coefficients,
    is_singular,
    largest_of,
    normal_form,
    outward,
)
from ._triton_rows import continuous_pull, paper_pull
from ._triton_sums import ALL_SUMS, OWN, count_of, plus_eight
from ._triton_tiles import narrow

# That of the inputs is the last of these.
LAST_EIGHT = tl.constexpr(ALL_SUMS.value - 8)


@triton.jit
def columns_of(
    sums_ptr, FIRST: tl.constexpr, channel, shares, SHARES: tl.constexpr, HOW: tl.constexpr
):
    # Eight of the sums, in columns that are still to be added up, in float64 and in an order that
    # depends on nothing else.  After the unit's own come the neighbour's, which are there for units
    # that are pulled alone, or batch norm's.
    COUNT: tl.constexpr = count_of(HOW)
    LAST: tl.constexpr = OWN if FIRST == 0 else COUNT
    i = FIRST + tl.arange(0, 8)
    at = sums_ptr + (channel.to(tl.int64) * COUNT + i)[:, None] * shares
    total = tl.zeros((8, SHARES), tl.float64)
    for first in range(0, shares, SHARES):
        share = (first + tl.arange(0, SHARES))[None, :]
        total += tl.load(at + share, (share < shares) & (i < LAST)[:, None], 0.0)
    return total


@triton.jit
def totals_of(
    sums_ptr, FIRST: tl.constexpr, channel, shares, SHARES: tl.constexpr, HOW: tl.constexpr
):
    return tl.sum(columns_of(sums_ptr, FIRST, channel, shares, SHARES, HOW), 1)


@triton.jit
def only(totals, i: tl.constexpr):
    # One of the eight, and 0 for the others.
    return tl.where(tl.arange(0, 8) == i, totals, 0.0)


@triton.jit
def one_of(totals, i: tl.constexpr):
    return tl.sum(only(totals, i), 0, keep_dims=True)


@triton.jit
def _each(i: tl.constexpr):
    # 1 for one of the eight, else 0.
    return tl.where(tl.arange(0, 8) == i, 1.0, 0.0).to(tl.float64)


@triton.jit
def sums_of(s0, s1, s2, s3, s4, s5, s6, s7):
    # Those of eights.  Together, because each time warps wait for each other.
    return tl.reduce((s0, s1, s2, s3, s4, s5, s6, s7), 0, plus_eight, keep_dims=True)


@triton.jit
def pulls_of(row, a, b, c, c1, c2, kind, p, q, A, B, Af, Bf, HOW: tl.constexpr):
    # What each of the eight sums adds to the gradients of the five coefficients.
    g_p, g_q, g_A, g_B, g_Af, g_Bf = _each(0), _each(1), _each(2), _each(3), _each(4), _each(5)
    if HOW.CONTINUOUS:
        # stop = m/2α moves with α; nothing stops unless α > 0, nor where that is out of reach.
        real = kind == REAL
        mean = tl.where(real, (p + q) * 0.5, p)
        unit = arithmetic(kind, p, q, A, B, Af, Bf, HOW.MODE, HOW)
        through = -unit.stop.to(tl.float64) * inverse(tl.where(mean > 0, mean, 1.0))
        stops = (mean > 0) & (tl.abs(through) < float("inf"))
        through = tl.where(stops, through, 0.0) * _each(6)
        g_p += tl.where(real, through * 0.5, through)
        g_q += tl.where(real, through * 0.5, 0.0)
        d_a, d_b, d_c, d_c1, d_c2 = continuous_pull(
            row, a, b, c, c1, c2, g_p, g_q, g_A, g_B, g_Af, g_Bf
        )
    else:
        d_a, d_b, d_c, d_c1, d_c2 = paper_pull(row, a, b, c, c1, c2, g_p, g_q, g_A, g_B, g_Af, g_Bf)
    return d_a, d_b, d_c, d_c1, d_c2


@triton.jit
def _value_and_slope(x, kind, p, q, A, B, Af, Bf, HOW: tl.constexpr):
    unit = arithmetic(kind, p, q, A, B, Af, Bf, DOUBLE, HOW)
    slope, _, _, _, _, _, _, _ = gradients(x, x * 0.0 + 1.0, unit, MIXED, DOUBLE, HOW)
    return value(x, unit, MIXED, DOUBLE, HOW), slope


@triton.jit
def _neighbour(a, b, c, c1, c2, centre, HOW: tl.constexpr):
    # The c1 and c2 with which the neighbour has the unit's value and slope at the centre.
    _, _, _, _, kind, p, q, A, B, Af, Bf, _ = normal_form(a, b, c, c1, c2, False, HOW)
    own, own_slope = _value_and_slope(centre, kind, p, q, A, B, Af, Bf, HOW)
    x, y, z = outward(a, HOW), outward(b, HOW), outward(c, HOW)
    zero, one = tl.zeros_like(a), tl.zeros_like(a) + 1.0
    _, _, _, _, kind, p, q, A, B, Af, Bf, _ = normal_form(x, y, z, zero, zero, False, HOW)
    f, f_slope = _value_and_slope(centre, kind, p, q, A, B, Af, Bf, HOW)
    _, _, _, _, _, _, _, A, B, _, _, _ = normal_form(x, y, z, one, zero, False, HOW)
    f1, f1_slope = _value_and_slope(centre, kind, p, q, A, B, zero, zero, HOW)
    _, _, _, _, _, _, _, A, B, _, _, _ = normal_form(x, y, z, zero, one, False, HOW)
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


@triton.jit
def limited(d_a, d_b, d_c, d_c1, d_c2, MAX_GRAD_NORM: tl.constexpr):
    # A gradient cut to this norm.  Divided by the largest first, so that no square overflows.
    most = tl.maximum(largest_of(d_a, d_b, d_c, d_c1), tl.abs(d_c2))
    part = inverse(tl.where(most > 0, tl.where(most > 1e300, 1e300, most), 1.0))
    u_a, u_b, u_c, u_c1, u_c2 = d_a * part, d_b * part, d_c * part, d_c1 * part, d_c2 * part
    length = root(u_a * u_a + u_b * u_b + u_c * u_c + u_c1 * u_c1 + u_c2 * u_c2)
    over = length > MAX_GRAD_NORM * part
    scale = MAX_GRAD_NORM * inverse(length)
    d_a, d_b = tl.where(over, u_a * scale, d_a), tl.where(over, u_b * scale, d_b)
    d_c, d_c1 = tl.where(over, u_c * scale, d_c), tl.where(over, u_c1 * scale, d_c1)
    d_c2 = tl.where(over, u_c2 * scale, d_c2)
    return d_a, d_b, d_c, d_c1, d_c2


@triton.jit(
    do_not_specialize=["shares"],
    do_not_specialize_on_alignment=["a_ptr", "b_ptr", "c_ptr", "c1_ptr", "c2_ptr"],
)
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
    channel = tl.program_id(0) + tl.arange(0, 1)
    mask = channel < channels
    own_a, own_b, own_c, c1, c2 = coefficients(
        a_ptr, b_ptr, c_ptr, c1_ptr, c2_ptr, channel, mask, HOW
    )
    row, a, b, c, kind, p, q, A, B, Af, Bf, mode = normal_form(
        own_a, own_b, own_c, c1, c2, HOW.CONTINUOUS, HOW
    )
    by_a, by_b, by_c, by_c1, by_c2 = pulls_of(row, a, b, c, c1, c2, kind, p, q, A, B, Af, Bf, HOW)
    if HOW.OVERLAP:
        gdc_wait()  # until backward has ended: all that does not depend on its sums is done by now
    totals = totals_of(sums_ptr, 0, channel, shares, SHARES, HOW)
    none = tl.zeros_like(totals)
    d_a, d_b, d_c, d_c1, d_c2, _, _, _ = sums_of(
        by_a * totals, by_b * totals, by_c * totals, by_c1 * totals, by_c2 * totals,
        none, none, none,
    )  # fmt: skip
    if not HOW.CONTINUOUS:
        none_a, none_b, none_c = (
            is_singular(own_a, HOW), is_singular(own_b, HOW), is_singular(own_c, HOW)
        )  # fmt: skip
        d_a, d_b, d_c = (
            tl.where(none_a, 0.0, d_a), tl.where(none_b, 0.0, d_b), tl.where(none_c, 0.0, d_c)
        )  # fmt: skip
        if HOW.PULL:
            if any_of(none_a | none_b | none_c, HOW):
                last = totals_of(sums_ptr, LAST_EIGHT, channel, shares, SHARES, HOW)
                inputs = one_of(last, 7)
                n_c1, n_c2 = _neighbour(own_a, own_b, own_c, c1, c2, inputs / positions, HOW)
                row, a, b, c, kind, p, q, A, B, Af, Bf, mode = normal_form(
                    outward(own_a, HOW), outward(own_b, HOW), outward(own_c, HOW),
                    n_c1, n_c2, False, HOW,
                )  # fmt: skip
                near = totals_of(sums_ptr, OWN, channel, shares, SHARES, HOW)
                g_Af, g_Bf = one_of(near, 0), one_of(near, 1)
                X1, X2, P1, P2 = one_of(near, 2), one_of(near, 3), one_of(near, 4), one_of(near, 5)
                F1, F2 = one_of(near, 6), one_of(near, 7)
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
                # A and B, which are c1 and c2, say nothing of the other three.
                zero = tl.zeros_like(a)
                n_a, n_b, n_c, n_d, n_e = paper_pull(
                    row, a, b, c, n_c1, n_c2, g_p, g_q, zero, zero, g_Af, g_Bf
                )
                d_a = tl.where(none_a, n_a, d_a)
                d_b = tl.where(none_b, n_b, d_b)
                d_c = tl.where(none_c, n_c, d_c)
    d_a, d_b, d_c, d_c1, d_c2 = limited(d_a, d_b, d_c, d_c1, d_c2, MAX_GRAD_NORM)
    tl.store(a_out + channel, narrow(d_a, a_out, DOUBLE), mask)
    tl.store(b_out + channel, narrow(d_b, b_out, DOUBLE), mask)
    tl.store(c_out + channel, narrow(d_c, c_out, DOUBLE), mask)
    tl.store(c1_out + channel, narrow(d_c1, c1_out, DOUBLE), mask)
    tl.store(c2_out + channel, narrow(d_c2, c2_out, DOUBLE), mask)
