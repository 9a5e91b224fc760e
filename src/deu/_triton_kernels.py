# mypy: ignore-errors
"""The Triton kernels forward and backward.

Each program makes the normal forms of its channels and walks over its share of the positions, by
the walk that its channels' kinds and arithmetic ask for; ``finish`` adds up what backward leaves.
"""

import triton
import triton.language as tl

from ._triton_elements import (
    CRITICAL,
    DOUBLE,
    ENTIRE,
    HALF,
    MIXED,
    OSCILLATING,
    REAL,
    SHORT,
    SINGLE,
)
from ._triton_forms import (
    NEAR_AHEAD,
    any_of,
    coefficients,
    facts,
    is_singular,
    normal_form,
    outward,
)
from ._triton_walks import (
    Strided,
    backward_alone,
    backward_walk,
    few,
    forward_alone,
    forward_walk,
    has_fast,
    holds,
    keep_own,
    neighbour_alone,
    neighbour_walk,
    occurs,
    walk_of,
)


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
    walk = walk_of(channels, positions, share, inner, HOW)
    t = Strided(t_ptr, t_outer, t_channel, t_inner)
    if HOW.ALIKE:
        y = Strided(y_ptr, t_outer, t_channel, t_inner)
    else:
        y = Strided(y_ptr, y_outer, y_channel, y_inner)
    a, b, c, c1, c2 = coefficients(
        a_ptr, b_ptr, c_ptr, c1_ptr, c2_ptr, walk.channel, walk.mask, HOW
    )
    _, _, _, _, kind, p, q, A, B, Af, Bf, mode = normal_form(
        a, b, c, c1, c2, HOW.CONTINUOUS, False, HOW
    )
    if HOW.LANES and HOW.MODE == DOUBLE:
        if HOW.CONTINUOUS and any_of(kind == ENTIRE, HOW):
            forward_walk(t, y, walk, kind, p, q, A, B, Af, Bf, ENTIRE, DOUBLE, HOW)
        else:
            forward_walk(t, y, walk, kind, p, q, A, B, Af, Bf, MIXED, DOUBLE, HOW)
    elif HOW.LANES:
        FAST: tl.constexpr = HALF if HOW.MODE == HALF else SHORT
        slow, any_slow, fast, waves, reals = facts(kind, mode, walk.mask, HOW)
        if waves and fast:
            forward_walk(t, y, walk, kind, p, q, A, B, Af, Bf, OSCILLATING, FAST, HOW)
        elif waves:
            forward_walk(t, y, walk, kind, p, q, A, B, Af, Bf, OSCILLATING, SINGLE, HOW)
        elif reals and fast:
            forward_walk(t, y, walk, kind, p, q, A, B, Af, Bf, REAL, FAST, HOW)
        elif fast:
            forward_walk(t, y, walk, kind, p, q, A, B, Af, Bf, MIXED, FAST, HOW)
        else:
            forward_walk(t, y, walk, kind, p, q, A, B, Af, Bf, MIXED, SINGLE, HOW)
        if any_slow:
            tl.debug_barrier()  # what follows is written over what all threads have written
            for i in range(HOW.WIDTH):
                if holds(slow, i, HOW):
                    forward_alone(
                        t, y, a_ptr, b_ptr, c_ptr, c1_ptr, c2_ptr, walk, i, HOW
                    )  # fmt: skip
    elif HOW.MODE == DOUBLE or mode == DOUBLE:
        # What few neurons need is not worth the time to compile it for each kind.
        REST: tl.constexpr = ENTIRE if HOW.CONTINUOUS else MIXED
        FEW: tl.constexpr = few(HOW)
        if kind == OSCILLATING:
            forward_walk(t, y, walk, kind, p, q, A, B, Af, Bf, OSCILLATING, DOUBLE, FEW)
        elif kind == REAL:
            forward_walk(t, y, walk, kind, p, q, A, B, Af, Bf, REAL, DOUBLE, FEW)
        else:
            forward_walk(t, y, walk, kind, p, q, A, B, Af, Bf, REST, DOUBLE, FEW)
    else:
        FAST: tl.constexpr = HALF if HOW.MODE == HALF else SHORT
        for KIND in tl.static_range(6):
            if occurs(KIND, HOW) and kind == KIND:
                if has_fast(KIND, HOW) and mode != SINGLE:
                    forward_walk(t, y, walk, kind, p, q, A, B, Af, Bf, KIND, FAST, HOW)
                else:
                    forward_walk(t, y, walk, kind, p, q, A, B, Af, Bf, KIND, SINGLE, HOW)


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
    walk = walk_of(channels, positions, share, inner, HOW)
    t = Strided(t_ptr, t_outer, t_channel, t_inner)
    if HOW.ALIKE:
        g = Strided(g_ptr, t_outer, t_channel, t_inner)
        out = Strided(out_ptr, t_outer, t_channel, t_inner)
    else:
        g = Strided(g_ptr, g_outer, g_channel, g_inner)
        out = Strided(out_ptr, out_outer, out_channel, out_inner)
    a, b, c, c1, c2 = coefficients(
        a_ptr, b_ptr, c_ptr, c1_ptr, c2_ptr, walk.channel, walk.mask, HOW
    )
    _, _, _, _, kind, p, q, A, B, Af, Bf, mode = normal_form(
        a, b, c, c1, c2, HOW.CONTINUOUS, True, HOW
    )
    zero = tl.zeros_like(a)
    s0, s1, s2, s3, s4, s5, s6 = zero, zero, zero, zero, zero, zero, zero
    if HOW.LANES and HOW.MODE == DOUBLE:
        if HOW.CONTINUOUS and any_of(kind == ENTIRE, HOW):
            s0, s1, s2, s3, s4, s5, s6 = backward_walk(
                t, g, out, walk, kind, p, q, A, B, Af, Bf, ENTIRE, DOUBLE, HOW
            )
        else:
            s0, s1, s2, s3, s4, s5, s6 = backward_walk(
                t, g, out, walk, kind, p, q, A, B, Af, Bf, MIXED, DOUBLE, HOW
            )
    elif HOW.LANES:
        FAST: tl.constexpr = HALF if HOW.MODE == HALF else SHORT
        slow, any_slow, fast, waves, reals = facts(kind, mode, walk.mask, HOW)
        if waves and fast:
            s0, s1, s2, s3, s4, s5, s6 = backward_walk(
                t, g, out, walk, kind, p, q, A, B, Af, Bf, OSCILLATING, FAST, HOW
            )
        elif waves:
            s0, s1, s2, s3, s4, s5, s6 = backward_walk(
                t, g, out, walk, kind, p, q, A, B, Af, Bf, OSCILLATING, SINGLE, HOW
            )
        elif reals and fast:
            s0, s1, s2, s3, s4, s5, s6 = backward_walk(
                t, g, out, walk, kind, p, q, A, B, Af, Bf, REAL, FAST, HOW
            )
        elif fast:
            s0, s1, s2, s3, s4, s5, s6 = backward_walk(
                t, g, out, walk, kind, p, q, A, B, Af, Bf, MIXED, FAST, HOW
            )
        else:
            s0, s1, s2, s3, s4, s5, s6 = backward_walk(
                t, g, out, walk, kind, p, q, A, B, Af, Bf, MIXED, SINGLE, HOW
            )
    elif HOW.MODE == DOUBLE or mode == DOUBLE:
        # What few neurons need is not worth the time to compile it for each kind.
        REST: tl.constexpr = ENTIRE if HOW.CONTINUOUS else MIXED
        FEW: tl.constexpr = few(HOW)
        if kind == OSCILLATING:
            s0, s1, s2, s3, s4, s5, s6 = backward_walk(
                t, g, out, walk, kind, p, q, A, B, Af, Bf, OSCILLATING, DOUBLE, FEW
            )
        elif kind == REAL:
            s0, s1, s2, s3, s4, s5, s6 = backward_walk(
                t, g, out, walk, kind, p, q, A, B, Af, Bf, REAL, DOUBLE, FEW
            )
        else:
            s0, s1, s2, s3, s4, s5, s6 = backward_walk(
                t, g, out, walk, kind, p, q, A, B, Af, Bf, REST, DOUBLE, FEW
            )
    else:
        FAST: tl.constexpr = HALF if HOW.MODE == HALF else SHORT
        for KIND in tl.static_range(6):
            if occurs(KIND, HOW) and kind == KIND:
                if has_fast(KIND, HOW) and mode != SINGLE:
                    s0, s1, s2, s3, s4, s5, s6 = backward_walk(
                        t, g, out, walk, kind, p, q, A, B, Af, Bf, KIND, FAST, HOW
                    )
                else:
                    s0, s1, s2, s3, s4, s5, s6 = backward_walk(
                        t, g, out, walk, kind, p, q, A, B, Af, Bf, KIND, SINGLE, HOW
                    )
    keep_own(sums_ptr, s0, s1, s2, s3, s4, s5, s6, walk, HOW)
    if HOW.LANES and HOW.MODE != DOUBLE:
        if any_slow:
            tl.debug_barrier()  # what follows is written over what all threads have written
            for i in range(HOW.WIDTH):
                if holds(slow, i, HOW):
                    backward_alone(
                        t, g, out, a_ptr, b_ptr, c_ptr, c1_ptr, c2_ptr, sums_ptr, walk, i, HOW
                    )
    if HOW.PULL:
        pulled = is_singular(a, HOW) | is_singular(b, HOW) | is_singular(c, HOW)
        pulled = pulled & walk.mask
        if any_of(pulled, HOW):
            _, _, _, _, kind, p, q, _, _, Af, Bf, mode = normal_form(
                outward(a, HOW), outward(b, HOW), outward(c, HOW), zero, zero, False, False, HOW
            )
            if HOW.MODE == SINGLE:
                mode = tl.where(tl.maximum(tl.abs(Af), tl.abs(Bf)) > NEAR_AHEAD, DOUBLE, mode)
            if HOW.MODE == DOUBLE:
                neighbour_walk(t, g, sums_ptr, walk, kind, p, q, MIXED, DOUBLE, HOW)
            elif HOW.LANES:
                neighbour_walk(t, g, sums_ptr, walk, kind, p, q, MIXED, SHORT, HOW)
                slow = pulled & (mode == DOUBLE)
                if any_of(slow, HOW):
                    tl.debug_barrier()
                    for i in range(HOW.WIDTH):
                        if holds(slow, i, HOW):
                            neighbour_alone(t, g, a_ptr, b_ptr, c_ptr, sums_ptr, walk, i, HOW)
            elif mode == DOUBLE and kind == OSCILLATING:
                neighbour_walk(t, g, sums_ptr, walk, kind, p, q, OSCILLATING, DOUBLE, few(HOW))
            elif mode == DOUBLE:
                neighbour_walk(t, g, sums_ptr, walk, kind, p, q, MIXED, DOUBLE, few(HOW))
            elif kind == REAL:
                neighbour_walk(t, g, sums_ptr, walk, kind, p, q, REAL, SINGLE, HOW)
            elif kind == OSCILLATING:
                neighbour_walk(t, g, sums_ptr, walk, kind, p, q, OSCILLATING, SINGLE, HOW)
            else:
                neighbour_walk(t, g, sums_ptr, walk, kind, p, q, CRITICAL, SINGLE, HOW)
