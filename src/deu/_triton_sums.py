# mypy: ignore-errors
"""What a walk of the Triton kernels adds up, and where it leaves that for ``finish``.

Of each share of the positions backward leaves sums: of the gradients of the six numbers and of what
is beyond the stop; eight of the neighbour's; and of the inputs.  With batch norm before the unit
there are two for it after the first: of the gradient of its result, and of this times its input
less the mean.
"""

from collections import namedtuple

import triton
import triton.language as tl

from ._triton import NORM_SUMS, OWN_SUMS, SUMS
from ._triton_forms import store

ALL_SUMS, OWN, INPUTS = tl.constexpr(SUMS), tl.constexpr(OWN_SUMS), tl.constexpr(SUMS - 1)

# Of a unit.  While it walks these are what its arithmetic adds up, of which "gathered" makes them.
Own = namedtuple("Own", ["p", "q", "A", "B", "Af", "Bf", "stopped", "more", "all", "along"])


@triton.jit
def own_zeros(z):
    return Own(z, z, z, z, z, z, z, z, z, z)


@triton.jit
def wide(x):
    return x.to(tl.float64)


@triton.jit
def plus_eight(a0, a1, a2, a3, a4, a5, a6, a7, b0, b1, b2, b3, b4, b5, b6, b7):
    return a0 + b0, a1 + b1, a2 + b2, a3 + b3, a4 + b4, a5 + b5, a6 + b6, a7 + b7


@triton.jit
def summed(s0, s1, s2, s3, s4, s5, s6, s7, HOW: tl.constexpr):
    # The sums of eight tiles, a channel.  Together, because each time warps wait for each other.
    if not HOW.LANES:
        s0, s1, s2, s3 = tl.sum(s0, 1), tl.sum(s1, 1), tl.sum(s2, 1), tl.sum(s3, 1)
        s4, s5, s6, s7 = tl.sum(s4, 1), tl.sum(s5, 1), tl.sum(s6, 1), tl.sum(s7, 1)
        s0, s1, s2, s3 = wide(s0), wide(s1), wide(s2), wide(s3)
        s4, s5, s6, s7 = wide(s4), wide(s5), wide(s6), wide(s7)
    return tl.reduce((s0, s1, s2, s3, s4, s5, s6, s7), 0, plus_eight)


@triton.jit
def plus_two(a0, a1, b0, b1):
    return a0 + b0, a1 + b1


@triton.jit
def summed_two(s0, s1, HOW: tl.constexpr):
    # The same of two.
    if not HOW.LANES:
        s0, s1 = wide(tl.sum(s0, 1)), wide(tl.sum(s1, 1))
    return tl.reduce((s0, s1), 0, plus_two)


@triton.jit
def wide_own(s):
    return Own(
        wide(s.p), wide(s.q), wide(s.A), wide(s.B), wide(s.Af), wide(s.Bf),
        wide(s.stopped), wide(s.more), wide(s.all), wide(s.along),
    )  # fmt: skip


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
def keep_own(sums_ptr, sums, walk, HOW: tl.constexpr):
    keep(sums_ptr, 0, sums.p, walk, HOW)
    keep(sums_ptr, 1, sums.q, walk, HOW)
    keep(sums_ptr, 2, sums.A, walk, HOW)
    keep(sums_ptr, 3, sums.B, walk, HOW)
    keep(sums_ptr, 4, sums.Af, walk, HOW)
    keep(sums_ptr, 5, sums.Bf, walk, HOW)
    keep(sums_ptr, 6, sums.stopped, walk, HOW)
    if HOW.NORM > 0:
        keep(sums_ptr, 7, sums.all, walk, HOW)
        keep(sums_ptr, 8, sums.along, walk, HOW)


# Of a neighbour, from which its gradient follows whatever its A and B are; while it walks see
# _triton_neighbours.py.
Near = namedtuple("Near", ["Af", "Bf", "X1", "X2", "P1", "P2", "F1", "F2", "more", "inputs"])


@triton.jit
def near_zeros(z):
    return Near(z, z, z, z, z, z, z, z, z, z)


@triton.jit
def summed_near(s, HOW: tl.constexpr):
    Af, Bf, X1, X2, P1, P2, F1, F2 = summed(s.Af, s.Bf, s.X1, s.X2, s.P1, s.P2, s.F1, s.F2, HOW)
    more, inputs = summed_two(s.more, s.inputs, HOW)
    return Near(
        wide(Af), wide(Bf), wide(X1), wide(X2), wide(P1), wide(P2), wide(F1), wide(F2),
        wide(more), wide(inputs),
    )  # fmt: skip


@triton.jit
def keep_near(sums_ptr, sums, walk, HOW: tl.constexpr):
    keep(sums_ptr, OWN, sums.Af, walk, HOW)
    keep(sums_ptr, OWN + 1, sums.Bf, walk, HOW)
    keep(sums_ptr, OWN + 2, sums.X1, walk, HOW)
    keep(sums_ptr, OWN + 3, sums.X2, walk, HOW)
    keep(sums_ptr, OWN + 4, sums.P1, walk, HOW)
    keep(sums_ptr, OWN + 5, sums.P2, walk, HOW)
    keep(sums_ptr, OWN + 6, sums.F1, walk, HOW)
    keep(sums_ptr, OWN + 7, sums.F2, walk, HOW)
    keep(sums_ptr, INPUTS, sums.inputs, walk, HOW)
