# mypy: ignore-errors
"""The Triton kernels forward and backward.

Forward makes the normal forms of a program's channels and keeps them for backward.  Both walk over
a share of the positions, by the walk that the channels' kinds and arithmetic ask for; ``finish``
adds up what backward leaves.  ``ALONE`` is how a channel that needs float64 is walked along.
"""

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from ._triton_elements import (
    CLOSED,
    DOUBLE,
    ENTIRE,
    HALF,
    MIXED,
    OSCILLATING,
    REAL,
    SEAMLESS,
    SHORT,
    SINGLE,
    STEADY,
)
from ._triton_forms import (
    CLOSE,
    NEEDS_DOUBLE,
    NO_ROOTS,
    NO_WAVE,
    NOT_FAST,
    NOT_FASTEST,
    STILL_DOUBLE,
    UNABLE,
    Form,
    any_bits,
    any_of,
    close_facts,
    coefficients,
    facts,
    has_closed,
    keep_form,
    keep_neighbour,
    kept_form,
    kept_neighbour,
    normal_form,
    ready_form,
)
from ._triton_norm import ONWARD
from ._triton_seamless import has_seamless
from ._triton_sums import keep_own, own_zeros
from ._triton_tiles import Strided, ask_for, holds, walk_of
from ._triton_walks import (
    backward_alone,
    backward_walk,
    forward_alone,
    forward_walk,
    has_fast,
    has_short,
    has_steady,
    joint_walk,
    neighbour_alone,
    neighbour_walk,
    occurs,
)


@triton.jit
def forward_channels(
    t, y, a_ptr, b_ptr, c_ptr, c1_ptr, c2_ptr, forms_ptr, walk,
    HOW: tl.constexpr, ALONE: tl.constexpr, beside=None,
):  # fmt: skip
    # A walk's share of the values.
    if HOW.READY:
        form, mode = ready_form(forms_ptr, walk, HOW)
    else:
        a, b, c, c1, c2 = coefficients(
            a_ptr, b_ptr, c_ptr, c1_ptr, c2_ptr, walk.channel, walk.mask, HOW
        )
        _, own_a, own_b, own_c, kind, p, q, A, B, Af, Bf, mode = normal_form(
            a, b, c, c1, c2, HOW.CONTINUOUS, HOW
        )
        form = Form(kind, p, q, A, B, Af, Bf)
    kind = form.kind
    # The first programs to begin keep what backward needs; of neighbours once they are done, but
    # where programs are so few that others would wait.
    NEIGHBOURS: tl.constexpr = HOW.KEEP and not HOW.CONTINUOUS
    EARLY: tl.constexpr = NEIGHBOURS and HOW.LANES and HOW.MODE == HALF
    if HOW.KEEP:
        if walk.share == 0:
            keep_form(forms_ptr, own_a, own_b, own_c, kind, p, q, A, B, Af, Bf, walk, HOW)
            if EARLY:
                keep_neighbour(forms_ptr, a_ptr, b_ptr, c_ptr, walk, HOW)
    if HOW.LANES and HOW.MODE == DOUBLE:
        if HOW.CONTINUOUS and any_of(kind == ENTIRE, HOW):
            forward_walk(t, y, walk, form, ENTIRE, DOUBLE, HOW, beside)
        else:
            forward_walk(t, y, walk, form, MIXED, DOUBLE, HOW, beside)
    elif HOW.LANES:
        FAST: tl.constexpr = HALF if HOW.MODE == HALF else SHORT
        found = any_bits(facts(kind, mode, walk.mask, SHORT))
        fastest, fast = found & NOT_FASTEST == 0, found & NOT_FAST == 0
        waves, reals = found & NO_WAVE == 0, found & NO_ROOTS == 0
        if waves and fast:
            forward_walk(t, y, walk, form, OSCILLATING, FAST, HOW, beside)
        elif waves:
            forward_walk(t, y, walk, form, OSCILLATING, SINGLE, HOW, beside)
        elif has_closed(HOW) and reals and fastest:
            forward_walk(t, y, walk, form, CLOSED, HALF, HOW, beside)
        elif reals and fast:
            forward_walk(t, y, walk, form, REAL, FAST, HOW, beside)
        elif fast:
            forward_walk(t, y, walk, form, MIXED, FAST, HOW, beside)
        else:
            forward_walk(t, y, walk, form, MIXED, SINGLE, HOW, beside)
        if found & NEEDS_DOUBLE > 0:
            tl.debug_barrier()  # what follows is written over what all threads have written
            slow = (mode == DOUBLE) & walk.mask
            for i in range(HOW.WIDTH):
                if holds(slow, i, HOW):
                    forward_alone(
                        t, y, a_ptr, b_ptr, c_ptr, c1_ptr, c2_ptr, forms_ptr, walk, i,
                        HOW, ALONE, beside,
                    )  # fmt: skip
    elif HOW.MODE == DOUBLE or mode == DOUBLE:
        # What few neurons need is not worth the time to compile it for each kind.
        REST: tl.constexpr = ENTIRE if HOW.CONTINUOUS else MIXED
        if kind == OSCILLATING:
            forward_walk(t, y, walk, form, OSCILLATING, DOUBLE, ALONE, beside)
        elif kind == REAL:
            forward_walk(t, y, walk, form, REAL, DOUBLE, ALONE, beside)
        else:
            forward_walk(t, y, walk, form, REST, DOUBLE, ALONE, beside)
    else:
        FAST: tl.constexpr = HALF if HOW.MODE == HALF else SHORT
        for KIND in tl.static_range(6):
            if occurs(KIND, HOW) and kind == KIND:
                if KIND == REAL and has_closed(HOW) and mode == HALF:
                    forward_walk(t, y, walk, form, CLOSED, HALF, HOW, beside)
                elif has_fast(KIND, False, HOW) and mode != SINGLE:
                    forward_walk(t, y, walk, form, KIND, FAST, HOW, beside)
                else:
                    forward_walk(t, y, walk, form, KIND, SINGLE, HOW, beside)
    if NEIGHBOURS and not EARLY:
        if walk.share == 0:
            keep_neighbour(forms_ptr, a_ptr, b_ptr, c_ptr, walk, HOW)


@triton.jit(do_not_specialize_on_alignment=["a_ptr", "b_ptr", "c_ptr", "c1_ptr", "c2_ptr"])
def forward(
    t_ptr,
    y_ptr,
    a_ptr,
    b_ptr,
    c_ptr,
    c1_ptr,
    c2_ptr,
    forms_ptr,
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
    ALONE: tl.constexpr,
):
    if HOW.OVERLAP:
        gdc_wait()
    walk = walk_of(channels, positions, share, inner, HOW)
    t = Strided(t_ptr, t_outer, t_channel, t_inner)
    if HOW.PTX and HOW.LANES:
        ask_for(t, walk, HOW)
    if HOW.ALIKE:
        y = Strided(y_ptr, t_outer, t_channel, t_inner)
    else:
        y = Strided(y_ptr, y_outer, y_channel, y_inner)
    forward_channels(
        t, y, a_ptr, b_ptr, c_ptr, c1_ptr, c2_ptr, forms_ptr, walk, HOW, ALONE
    )  # fmt: skip


@triton.jit
def _neighbours(
    t, g, forms_ptr, sums_ptr, walk, pulled, form, mode, HOW: tl.constexpr, ALONE: tl.constexpr
):  # fmt: skip
    # The sums of the neighbours that have not been walked along yet.
    if HOW.MODE == DOUBLE:
        neighbour_walk(t, g, sums_ptr, walk, form, MIXED, DOUBLE, HOW)
    elif HOW.LANES:
        if any_of(form.slow, HOW):
            neighbour_walk(t, g, sums_ptr, walk, form, MIXED, SEAMLESS, HOW)
        else:
            neighbour_walk(t, g, sums_ptr, walk, form, MIXED, SHORT, HOW)
        double = pulled & (mode == DOUBLE)
        if any_of(double, HOW):
            tl.debug_barrier()  # what follows is written over what all threads have written
            for i in range(HOW.WIDTH):
                if holds(double, i, HOW):
                    neighbour_alone(t, g, forms_ptr, sums_ptr, walk, i, HOW, ALONE)
    elif mode == DOUBLE and form.kind == OSCILLATING:
        neighbour_walk(t, g, sums_ptr, walk, form, OSCILLATING, DOUBLE, ALONE)
    elif mode == DOUBLE:
        neighbour_walk(t, g, sums_ptr, walk, form, MIXED, DOUBLE, ALONE)
    elif mode == SINGLE:
        neighbour_walk(t, g, sums_ptr, walk, form, REAL, SINGLE, HOW)
    else:
        neighbour_walk(t, g, sums_ptr, walk, form, MIXED, SEAMLESS, HOW)


@triton.jit
def backward_channels(
    t, g, out, forms_ptr, sums_ptr, walk, HOW: tl.constexpr, ALONE: tl.constexpr, beside=None
):  # fmt: skip
    # A walk's share of the gradients.
    form, mode, able, close = kept_form(forms_ptr, walk, HOW)
    kind = form.kind
    if HOW.PULL:
        pulled, near, near_mode = kept_neighbour(forms_ptr, walk, HOW)
    sums = own_zeros(tl.zeros_like(form.p))
    if HOW.LANES and HOW.MODE == DOUBLE:
        if HOW.CONTINUOUS and any_of(kind == ENTIRE, HOW):
            sums = backward_walk(t, g, out, walk, form, ENTIRE, DOUBLE, HOW, None, beside)
        else:
            sums = backward_walk(t, g, out, walk, form, MIXED, DOUBLE, HOW, None, beside)
    elif HOW.LANES:
        FAST: tl.constexpr = HALF if HOW.MODE == HALF else SHORT
        NEXT: tl.constexpr = SHORT if has_short(OSCILLATING, HOW) else SINGLE
        seen = kind
        if has_short(OSCILLATING, HOW):  # then waves that need more are none
            seen = tl.where(mode == SINGLE, ENTIRE, kind)
        # Close roots alone, in float64, unless all of the others can be SEAMLESS too; or, of the
        # paper's rows, unless more of them cannot, which are alone then.
        alone = tl.where(mode == SEAMLESS, DOUBLE, mode)
        each = facts(seen, alone, walk.mask, FAST)
        if has_seamless(HOW):
            each += close_facts(mode, able, walk.mask)
        found = any_bits(each)
        fast, waves, reals = found & NOT_FAST == 0, found & NO_WAVE == 0, found & NO_ROOTS == 0
        any_slow = found & NEEDS_DOUBLE > 0
        if has_seamless(HOW) and HOW.CONTINUOUS:
            seamless = found & (CLOSE | UNABLE) == CLOSE
            alone = tl.where(seamless, mode, alone)
            any_slow = any_slow & ((seamless == 0) | (found & STILL_DOUBLE > 0))
        elif has_seamless(HOW):
            unable = each & UNABLE > 0
            more = tl.sum(unable.to(tl.int32) - (each & CLOSE > 0).to(tl.int32), 0)
            seamless = (found & CLOSE > 0) | ((fast == 0) & (waves == 0))
            seamless = seamless & (more <= 0)
            fast, waves = fast & (seamless == 0), waves & (seamless == 0)
            alone = tl.where(seamless, tl.where(unable, DOUBLE, mode), alone)
            any_slow = tl.where(seamless, found & (STILL_DOUBLE | UNABLE) > 0, any_slow)
        slow = (alone == DOUBLE) & walk.mask
        if HOW.CONTINUOUS and has_seamless(HOW) and seamless:
            sums = backward_walk(t, g, out, walk, form, MIXED, SEAMLESS, HOW, None, beside)
        elif waves and fast:
            sums = backward_walk(t, g, out, walk, form, OSCILLATING, FAST, HOW, None, beside)
        elif waves:
            sums = backward_walk(t, g, out, walk, form, OSCILLATING, NEXT, HOW, None, beside)
        elif reals and fast:
            sums = backward_walk(t, g, out, walk, form, REAL, FAST, HOW, None, beside)
        elif fast:
            sums = backward_walk(t, g, out, walk, form, MIXED, FAST, HOW, None, beside)
        elif not HOW.CONTINUOUS and has_seamless(HOW) and seamless:
            sums = backward_walk(t, g, out, walk, form, MIXED, SEAMLESS, HOW, close, beside)
        else:
            sums = backward_walk(t, g, out, walk, form, MIXED, SINGLE, HOW, None, beside)
    elif HOW.MODE == DOUBLE or mode == DOUBLE:
        # What few neurons need is not worth the time to compile it for each kind.
        REST: tl.constexpr = ENTIRE if HOW.CONTINUOUS else MIXED
        if kind == OSCILLATING:
            sums = backward_walk(t, g, out, walk, form, OSCILLATING, DOUBLE, ALONE, None, beside)
        elif kind == REAL:
            sums = backward_walk(t, g, out, walk, form, REAL, DOUBLE, ALONE, None, beside)
        else:
            sums = backward_walk(t, g, out, walk, form, REST, DOUBLE, ALONE, None, beside)
    else:
        FAST: tl.constexpr = HALF if HOW.MODE == HALF else SHORT
        for KIND in tl.static_range(6):
            if occurs(KIND, HOW) and kind == KIND:
                if has_seamless(HOW) and (KIND == REAL or KIND == OSCILLATING) and mode == SEAMLESS:
                    sums = backward_walk(t, g, out, walk, form, KIND, SEAMLESS, HOW, close, beside)
                elif has_steady(KIND, HOW) and mode != SINGLE and tl.maximum(form.p, form.q) <= 0:
                    sums = backward_walk(t, g, out, walk, form, STEADY, FAST, HOW, None, beside)
                elif has_short(KIND, HOW) and mode == SHORT:
                    sums = backward_walk(t, g, out, walk, form, KIND, SHORT, HOW, None, beside)
                elif has_fast(KIND, True, HOW) and mode != SINGLE:
                    if HOW.PULL:
                        sums, pulled = joint_walk(
                            t, g, out, sums_ptr, walk, form, pulled, near, near_mode,
                            KIND, FAST, HOW,
                        )  # fmt: skip
                    else:
                        sums = backward_walk(t, g, out, walk, form, KIND, FAST, HOW, None, beside)
                elif HOW.PULL and not has_fast(KIND, True, HOW):
                    sums, pulled = joint_walk(
                        t, g, out, sums_ptr, walk, form, pulled, near, near_mode,
                        KIND, SINGLE, HOW,
                    )  # fmt: skip
                else:
                    sums = backward_walk(t, g, out, walk, form, KIND, SINGLE, HOW, None, beside)
    if HOW.NORM != ONWARD:
        keep_own(sums_ptr, sums, walk, HOW)
    if HOW.LANES and HOW.MODE != DOUBLE:
        if any_slow:
            tl.debug_barrier()  # what follows is written over what all threads have written
            for i in range(HOW.WIDTH):
                if holds(slow, i, HOW):
                    backward_alone(
                        t, g, out, forms_ptr, sums_ptr, walk, i, HOW, ALONE, beside
                    )  # fmt: skip
    if HOW.PULL:
        if any_of(pulled, HOW):
            _neighbours(t, g, forms_ptr, sums_ptr, walk, pulled, near, near_mode, HOW, ALONE)


@triton.jit
def backward(
    t_ptr,
    g_ptr,
    out_ptr,
    forms_ptr,
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
    ALONE: tl.constexpr,
):
    if HOW.OVERLAP:
        gdc_wait()
        gdc_launch_dependents()
    walk = walk_of(channels, positions, share, inner, HOW)
    t = Strided(t_ptr, t_outer, t_channel, t_inner)
    if HOW.ALIKE:
        g = Strided(g_ptr, t_outer, t_channel, t_inner)
        out = Strided(out_ptr, t_outer, t_channel, t_inner)
    else:
        g = Strided(g_ptr, g_outer, g_channel, g_inner)
        out = Strided(out_ptr, out_outer, out_channel, out_inner)
    backward_channels(t, g, out, forms_ptr, sums_ptr, walk, HOW, ALONE)
