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
from ._triton_walks import ALL_SUMS, OWN, narrow, summed

# The neighbour's last two, and that of the inputs, are the last three of these.
LAST_EIGHT = tl.constexpr(ALL_SUMS.value - 8)


@triton.jit
def _share(sums_ptr, i: tl.constexpr, share, channel, inside, shares, HOW: tl.constexpr):
    COUNT: tl.constexpr = ALL_SUMS if HOW.PULL else OWN
    if i < COUNT:
        place = (channel.to(tl.int64) * COUNT + i) * shares
        found = tl.load(sums_ptr + place[None, :] + share[:, None], inside, 0.0)
    else:
        found = tl.zeros_like(inside.to(tl.float64))
    return found


@triton.jit
def _totals(
    sums_ptr,
    FIRST: tl.constexpr,
    channel,
    mask,
    shares,
    SHARES: tl.constexpr,
    HOW: tl.constexpr,
):
    # Eight of the sums over the shares, in float64 and in an order that depends on nothing else.
    # All of them at once: there is little to each but to wait for it.
    WIDTH: tl.constexpr = HOW.WIDTH
    z = tl.zeros((SHARES, WIDTH), tl.float64)
    s0, s1, s2, s3, s4, s5, s6, s7 = z, z, z, z, z, z, z, z
    for first in range(0, shares, SHARES):
        share = first + tl.arange(0, SHARES)
        inside = (share < shares)[:, None] & mask[None, :]
        s0 += _share(sums_ptr, FIRST, share, channel, inside, shares, HOW)
        s1 += _share(sums_ptr, FIRST + 1, share, channel, inside, shares, HOW)
        s2 += _share(sums_ptr, FIRST + 2, share, channel, inside, shares, HOW)
        s3 += _share(sums_ptr, FIRST + 3, share, channel, inside, shares, HOW)
        s4 += _share(sums_ptr, FIRST + 4, share, channel, inside, shares, HOW)
        s5 += _share(sums_ptr, FIRST + 5, share, channel, inside, shares, HOW)
        s6 += _share(sums_ptr, FIRST + 6, share, channel, inside, shares, HOW)
        s7 += _share(sums_ptr, FIRST + 7, share, channel, inside, shares, HOW)
    return summed(s0, s1, s2, s3, s4, s5, s6, s7, HOW)


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
    own_a, own_b, own_c, c1, c2 = coefficients(
        a_ptr, b_ptr, c_ptr, c1_ptr, c2_ptr, channel, mask, HOW
    )
    row, a, b, c, kind, p, q, A, B, Af, Bf, mode = normal_form(
        own_a, own_b, own_c, c1, c2, HOW.CONTINUOUS, HOW
    )
    if HOW.OVERLAP:
        gdc_wait()  # until backward has ended
    g_p, g_q, g_A, g_B, g_Af, g_Bf, stopped, _ = _totals(
        sums_ptr, 0, channel, mask, shares, SHARES, HOW
    )
    if HOW.CONTINUOUS:
        # stop = m/2α moves with α.
        real = kind == REAL
        mean = tl.where(real, (p + q) * 0.5, p)
        unit = arithmetic(kind, p, q, A, B, Af, Bf, HOW.MODE, HOW)
        through = -unit.stop.to(tl.float64) * inverse(tl.where(mean == 0, 1.0, mean))
        through = tl.where(stopped != 0, stopped * through, 0.0)
        g_p += tl.where(real, through * 0.5, through)
        g_q += tl.where(real, through * 0.5, 0.0)
        d_a, d_b, d_c, d_c1, d_c2 = continuous_pull(
            row, a, b, c, c1, c2, g_p, g_q, g_A, g_B, g_Af, g_Bf
        )
    else:
        d_a, d_b, d_c, d_c1, d_c2 = paper_pull(row, a, b, c, c1, c2, g_p, g_q, g_A, g_B, g_Af, g_Bf)
        none_a, none_b, none_c = (
            is_singular(own_a, HOW), is_singular(own_b, HOW), is_singular(own_c, HOW)
        )  # fmt: skip
        d_a, d_b, d_c = (
            tl.where(none_a, 0.0, d_a), tl.where(none_b, 0.0, d_b), tl.where(none_c, 0.0, d_c)
        )  # fmt: skip
        if HOW.PULL:
            if any_of(none_a | none_b | none_c, HOW):
                _, _, _, _, _, F1, F2, inputs = _totals(
                    sums_ptr, LAST_EIGHT, channel, mask, shares, SHARES, HOW
                )
                n_c1, n_c2 = _neighbour(own_a, own_b, own_c, c1, c2, inputs / positions, HOW)
                row, a, b, c, kind, p, q, A, B, Af, Bf, mode = normal_form(
                    outward(own_a, HOW), outward(own_b, HOW), outward(own_c, HOW),
                    n_c1, n_c2, False, HOW,
                )  # fmt: skip
                g_A, g_B, g_Af, g_Bf, X1, X2, P1, P2 = _totals(
                    sums_ptr, OWN, channel, mask, shares, SHARES, HOW
                )
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
    most = tl.maximum(largest_of(d_a, d_b, d_c, d_c1), tl.abs(d_c2))
    part = inverse(tl.where(most > 0, tl.where(most > 1e300, 1e300, most), 1.0))
    u_a, u_b, u_c, u_c1, u_c2 = d_a * part, d_b * part, d_c * part, d_c1 * part, d_c2 * part
    length = root(u_a * u_a + u_b * u_b + u_c * u_c + u_c1 * u_c1 + u_c2 * u_c2)
    limited = length > MAX_GRAD_NORM * part
    scale = MAX_GRAD_NORM * inverse(length)
    d_a, d_b = tl.where(limited, u_a * scale, d_a), tl.where(limited, u_b * scale, d_b)
    d_c, d_c1 = tl.where(limited, u_c * scale, d_c), tl.where(limited, u_c1 * scale, d_c1)
    d_c2 = tl.where(limited, u_c2 * scale, d_c2)
    tl.store(a_out + channel, narrow(d_a, a_out, DOUBLE), mask)
    tl.store(b_out + channel, narrow(d_b, b_out, DOUBLE), mask)
    tl.store(c_out + channel, narrow(d_c, c_out, DOUBLE), mask)
    tl.store(c1_out + channel, narrow(d_c1, c1_out, DOUBLE), mask)
    tl.store(c2_out + channel, narrow(d_c2, c2_out, DOUBLE), mask)
