# mypy: ignore-errors
"""The sums of a neighbour, from which its gradient follows whatever its A and B are.

``neighbour_sums`` of ``_triton_elements.py`` in less time, for the kinds that a neighbour can have:
two roots, an oscillation, a double root, or (``KIND`` is ``MIXED``) one of these side by side.
``MODE`` is ``SHORT``; ``SINGLE`` for two roots of which the larger too is slow; or ``SEAMLESS`` for
an oscillation that is slow: its response has V = ∂F/∂D and its integral then, see
_triton_seamless.py.
"""

from collections import namedtuple

import triton
import triton.language as tl

from ._triton_chip import one_if_positive
from ._triton_elements import (
    CRITICAL,
    HALF,
    LOG2E,
    MIXED,
    OSCILLATING,
    REAL,
    SEAMLESS,
    SHORT,
    SINGLE,
    at_least,
    inverse,
    inverse_unless_tiny,
)
from ._triton_fast import _response_slope
from ._triton_mixed import angle, arranged, exponentials, turned
from ._triton_seamless import SERIES, gathered_response, iv_series, v_series
from ._triton_sums import Near

Neighbour = namedtuple(
    "Neighbour",
    [
        *("p2", "q2", "over_p", "over_q", "hi", "lo", "U", "V", "W"),  # as of Mixed
        # Of slow oscillations: these; α, 1/ω, D, 1/2D and a/c; the larger of |α| and ω.
        *("slow", "mean", "over_turn", "gap", "over_gap2", "over_product", "scale"),
    ],
)


@triton.constexpr_function
def _level(HOW):
    # The arithmetic of elements.
    return HALF if HOW.MODE == HALF else SHORT


@triton.jit
def neighbour_unit(kind, p, q, slow, HOW: tl.constexpr):
    TYPE: tl.constexpr = tl.float32
    hi, lo = angle(kind, q, _level(HOW))
    zero = tl.zeros_like(p)
    _, first, second, _, _, _, _ = arranged(kind, p, q, zero, zero, zero, zero)
    oscillating, critical, real = kind == OSCILLATING, kind == CRITICAL, kind == REAL
    turn = tl.where(oscillating, q, 1.0)
    return Neighbour(
        (first * LOG2E).to(TYPE),
        (second * LOG2E).to(TYPE),
        tl.where(real, inverse_unless_tiny(first, 1e-30), 0.0).to(TYPE),
        tl.where(real, inverse_unless_tiny(second, 1e-30), 0.0).to(TYPE),
        hi,
        lo,
        oscillating.to(TYPE),
        critical.to(TYPE),
        real.to(TYPE),
        slow,
        p.to(TYPE),
        inverse(turn).to(TYPE),
        (-turn * turn).to(TYPE),
        (-0.5 * inverse(turn * turn)).to(TYPE),
        inverse(p * p + turn * turn).to(TYPE),
        tl.maximum(tl.abs(p), tl.abs(turn)).to(TYPE),
    )


@triton.jit
def _slowly(x, e, h1, h2, unit, HOW: tl.constexpr):
    # V and iV; for x < 0, of which 0 is given instead, they are 0 too.  In closed form from where
    # this has the digits.
    odd = h2 * unit.over_turn
    xx = x * x
    z, y = unit.gap * xx, -unit.mean * x
    V, U = (x * h1 - odd) * unit.over_gap2, (1.0 - h1 + unit.mean * odd) * unit.over_product
    iV = (U + unit.mean * V - 0.5 * x * odd) * unit.over_product
    near = e * (xx * x)
    V = tl.where(z > -(0.05 if HOW.MODE == HALF else 1.0), near * v_series(z, HOW.MODE), V)
    few = unit.scale * x < (0.5 if HOW.MODE == HALF else SERIES)
    iV = tl.where(few, near * (x * iv_series(z, y, HOW.MODE)), iV)
    return V, iV


@triton.jit
def near_sums(x, g, unit, s, KIND: tl.constexpr, MODE: tl.constexpr, HOW: tl.constexpr):
    # The sums with what the element adds to them: F of g·x·h1 and g·x·h2 where their exponents are
    # below their caps, X of these anywhere, P of the former for x > 0; Af and Bf, for x > 0, of
    # g·(h1 - 1) and g·h2, or of a slow one V and iV, or of slow roots g·∂M(p)/∂p; more of
    # g·∂M(q)/∂q.
    Af, Bf, X1, X2, P1, P2, F1, F2, more, inputs = s
    raw1, raw2, e1, e2, free1, free2 = exponentials(x, unit, HOW)
    h1, h2 = e1, e2
    if KIND == MIXED or KIND == OSCILLATING:
        sine, cosine = turned(x, unit, _level(HOW), HOW)
        h1 = e1 * cosine
        h2 = e1 * sine
    if KIND == MIXED:
        h2 = e2 * (unit.U * sine + (unit.V * x + unit.W))
    elif KIND == CRITICAL:
        h2 = e1 * x
    positive = one_if_positive(x, HOW.PTX)
    gx, gp = g * x, g * positive
    live1 = tl.where(free1, gx, 0.0)
    live2 = live1
    if KIND == MIXED or KIND == REAL:
        live2 = tl.where(free2, gx, 0.0)
    F1 += live1 * h1
    F2 += live2 * h2
    if KIND != REAL:
        X1 += gx * h1
        X2 += gx * h2
    first, second = h1 - 1.0, h2
    if MODE == SEAMLESS:
        V, iV = _slowly(at_least(x, 0.0, HALF), e1, h1, h2, unit, HOW)
        first, second = tl.where(unit.slow, V, first), tl.where(unit.slow, iV, second)
    if MODE == SINGLE:
        live = tl.where(free1, e1, 0.0)
        first, _ = _response_slope(x, raw1, unit.over_p, e1, e1, live, _level(HOW), HOW)
    Af += gp * first
    if KIND != REAL:
        Bf += gp * second
    P1 += (positive * live1) * h1
    P2 += (positive * live2) * h2
    if KIND == MIXED or KIND == REAL:
        live = tl.where(free2, e2, 0.0)
        to_second, _ = _response_slope(x, raw2, unit.over_q, e2, e2, live, _level(HOW), HOW)
        more += gp * to_second
    return Near(Af, Bf, X1, X2, P1, P2, F1, F2, more, inputs + x)


@triton.jit
def near_gathered(form, s, MODE: tl.constexpr):
    # What neighbour_sums would have found.
    kind, p, q, Af, Bf, slow = form
    real = kind == REAL
    zero = tl.zeros_like(p)
    swapped, first, second, _, _, _, _ = arranged(kind, p, q, zero, zero, zero, zero)
    # Two roots.
    over = inverse_unless_tiny(first, 1e-15)
    M1, M2 = over * s.Af, s.P2 - second * s.more
    to_first = over * (s.P1 - M1)
    if MODE == SINGLE:
        M1, to_first = s.P1 - first * s.Af, s.Af
    # An exponent is capped on one side of 0 alone: where it grows.
    capped1, capped2 = s.X1 - s.F1, s.X2 - s.F2
    P1 = s.P1 + tl.where(p > 0, capped1, 0.0)
    P2 = s.P2 + tl.where(p > 0, capped2, 0.0)
    # A slow oscillation.  V's slope matters to a alone, which is not pulled.
    by_p, by_q, by_Af, _ = gathered_response(kind, p, q, Af, Bf, s.Bf, s.Af, zero)
    over_size = inverse(Af * Af + Bf * Bf)
    P1 = tl.where(slow, (Af * by_p + Bf * by_q) * over_size, P1)
    P2 = tl.where(slow, (Bf * by_p - Af * by_q) * over_size, P2)
    d1, d2 = tl.where(slow, by_Af, s.Af), tl.where(slow, 0.0, s.Bf)
    return Near(
        tl.where(real, tl.where(swapped, M2, M1), d1),
        tl.where(real, tl.where(swapped, M1, M2), d2),
        tl.where(real, tl.where(swapped, s.F2, s.F1), s.X1),
        tl.where(real, tl.where(swapped, s.F1, s.F2), s.X2),
        tl.where(real, tl.where(swapped, s.more, to_first), P1),
        tl.where(real, tl.where(swapped, to_first, s.more), P2),
        tl.where(real, 0.0, capped1),
        tl.where(real, 0.0, capped2),
        s.more,
        s.inputs,
    )
