# mypy: ignore-errors
"""Batch norm before a unit, on a GPU, in the same walk.

What reaches the unit is the input less its channel's mean, times a scale, plus a shift, and perhaps
another tensor (a residual).  Backward takes two walks: the first finds sums, for the coefficients'
gradients and for batch norm's, the second what goes on to the input.
"""

from collections import namedtuple

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_wait

from ._triton_elements import inverse, root
from ._triton_forms import load

# What comes before the unit: nothing; batch norm, by what was measured of the batch (or is packed)
# or by running statistics; and in the second walk of backward what goes on to its input.
PLAIN, MEASURED, FROZEN, ONWARD = (tl.constexpr(i) for i in range(4))

# Batch norm of a channel: its input less the mean, times scale, plus shift.  Of a gradient of that
# scale times it goes on, with along times the input less its mean, and offset.
Norm = namedtuple("Norm", ["mean", "scale", "shift", "along", "offset"])
# All that a walk has to know beside the unit's own: rows of mean, scale and shift, or what they are
# made of, and a row of each of the others; a residual, and where its gradient goes.
Beside = namedtuple(
    "Beside", ["rows", "onward", "weight", "bias", "mean", "var", "eps", "residual", "out"]
)


@triton.jit
def norm_of(beside, walk, TYPE: tl.constexpr, HOW: tl.constexpr):
    # That of a walk's channels, in the type that it is computed in.
    n, channel, mask = walk.channels, walk.channel, walk.mask
    norm = beside
    if HOW.NORM > 0:
        if HOW.NORM == FROZEN:
            mean = load(beside.mean + channel, mask, 0.0, HOW)
            variance = load(beside.var + channel, mask, 1.0, HOW)
            scale = load(beside.weight + channel, mask, 0.0, HOW)
            scale = scale * inverse(root(variance + beside.eps))
            shift = load(beside.bias + channel, mask, 0.0, HOW)
        else:
            if HOW.OVERLAP and not HOW.READY:
                gdc_wait()  # until these rows are there: all that does without is done by now
            mean = load(beside.rows + channel, mask, 0.0, HOW)
            scale = load(beside.rows + n + channel, mask, 0.0, HOW)
            shift = load(beside.rows + 2 * n + channel, mask, 0.0, HOW)
        along, offset = mean, mean
        if HOW.NORM == ONWARD:
            along = load(beside.onward + channel, mask, 0.0, HOW)
            offset = load(beside.onward + n + channel, mask, 0.0, HOW)
        norm = Norm(mean.to(TYPE), scale.to(TYPE), shift.to(TYPE), along.to(TYPE), offset.to(TYPE))
    return norm


@triton.jit
def normed(x, r, norm, HOW: tl.constexpr):
    # What reaches the unit, and the input less its mean.
    centred = x
    if HOW.NORM > 0:
        centred = x - norm.mean
        x = centred * norm.scale + norm.shift
    if HOW.RESIDUAL:
        x += r
    return x, centred
