"""The Triton kernels for GPUs: plans of calls, and their launches.

Triton ships with PyTorch where there is a GPU; it is imported with the first tensor that asks for
it.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import warnings
from dataclasses import dataclass

import torch
from torch import Tensor

from . import _launcher
from ._layout import DTYPES, in_order_of, plain, uniform
from ._settings import Settings
from ._triton_cut import cut, lie, tiling_of
from ._triton_launch import (
    Launch,
    alone,
    how_of,
    on_device_of,
    options_of,
    processors,
    remembered,
    rows_of,
    stream_of,
    streams,
)

_DEVICES = ("cuda",)  # AMD's GPUs go by this name too

# How many numbers backward leaves its last step of each neuron and share of the positions, and how
# many if no neighbour pulls, or if batch norm comes first; _triton_sums.py says what they are.
SUMS, OWN_SUMS, NORM_SUMS = 16, 7, 9
# And how many forward keeps for backward of each neuron: its normal form; and its neighbour's.
FORM, NEAR_FORM = 7, 5
# The first of a normal form's is the kind, so many times, with what else is known of it.
KIND_STEP = 32
# With batch norm before it: then mean, scale and shift, the inverse of the deviation, what the mean
# lacks in float32, and the five coefficients.
NORM_ROWS = {"mean": FORM, "over": FORM + 3, "rest": FORM + 4, "coefficients": FORM + 5}
NORM_FORM = FORM + 10

# Known without importing it, so that torch.compile sees a constant.
AVAILABLE = importlib.util.find_spec("triton") is not None and os.environ.get("DEU_TRITON") != "0"


def kept_of(settings: Settings) -> int:
    """How many numbers forward keeps for backward of each neuron."""
    return FORM if settings.solution == "continuous" else FORM + NEAR_FORM


@functools.cache
def _warn_once() -> None:
    if os.environ.get("DEU_TRITON") != "0":
        warnings.warn(
            "deu: Triton is not there; on the GPU, using the slower PyTorch reference. "
            "It comes with PyTorch's own builds for GPUs.",
            stacklevel=2,
        )


def fits(t: Tensor, coefficients: tuple[Tensor, ...]) -> bool:
    """Whether the kernels are there and take these tensors."""
    return (
        AVAILABLE
        and t.device.type in _DEVICES
        and coefficients[0].device == t.device
        and t.dtype in DTYPES
    )


def handles(t: Tensor, coefficients: tuple[Tensor, ...]) -> bool:
    """The same, warning the first time that tensors on a GPU have to do without."""
    if not AVAILABLE and t.device.type in _DEVICES:
        _warn_once()
    return fits(t, coefficients)


@dataclass
class _Plan:
    forward: Launch
    copy: bool  # the input must be copied into the output's order first
    left: bool = False  # to the launcher, wherever it can


@dataclass
class _BackwardPlan:
    backward: Launch
    finish: Launch
    copy_t: bool
    copy_grad: bool
    sums: int
    left: bool = False


def _plan_forward(t: Tensor, y: Tensor, a: Tensor, settings: Settings, keep: bool) -> _Plan | None:
    from ._triton_kernels import forward as kernel

    if t.device.type == "cuda":
        _launcher.begin()
    found = lie(y, (t,), a.shape[0], settings.dim)
    if found is None:
        return None
    lies, (copy,) = found
    tiling = tiling_of(t, settings, lies.lanes, False)
    height, width, share, _, programs = cut(lies, tiling, processors(t.device))
    outer, channels, inner = lies.sizes
    fixed = (channels, outer * inner, share, inner, *lies.strides[0], *lies.strides[1])
    # Values are the same in training: one kernel serves both.
    how = how_of(t, settings, lies, height, width, tiling)
    how = how._replace(PULL=False, KEEP=keep, STREAM=streams(t, lies.lanes))
    options = options_of(tiling.warps, tiling.registers, how.OVERLAP)
    types = (*[t.dtype] * 2, *[a.dtype] * 5, torch.float64 if keep else a.dtype)
    forward = Launch(kernel, programs, options, types, *fixed, how, alone(how, t.element_size()))
    return _Plan(forward, copy)


def _plan_backward(
    grad: Tensor, t: Tensor, out: Tensor, a: Tensor, settings: Settings
) -> _BackwardPlan | None:
    from ._triton_finish import finish
    from ._triton_kernels import backward as kernel

    found = lie(out, (t, grad), a.shape[0], settings.dim)
    if found is None:
        return None
    lies, (copy_t, copy_grad) = found
    tiling = tiling_of(t, settings, lies.lanes, True)
    height, width, share, shares, programs = cut(lies, tiling, processors(t.device))
    outer, channels, inner = lies.sizes
    strides = (step for s in lies.strides for step in s)
    how = how_of(t, settings, lies, height, width, tiling)
    fixed = (channels, outer * inner, share, inner, *strides, how, alone(how, t.element_size()))
    finish_how = how._replace(LANES=True, HEIGHT=1, WIDTH=1)
    rows, warps = rows_of(shares)
    return _BackwardPlan(
        Launch(
            kernel,
            programs,
            options_of(tiling.warps, tiling.registers, how.OVERLAP),
            (*[t.dtype] * 3, *[torch.float64] * 2),
            *fixed,
        ),
        Launch(
            finish,
            channels,
            options_of(warps, overlap=how.OVERLAP),
            (*[a.dtype] * 5, torch.float64, *[a.dtype] * 5),
            channels,
            shares,
            outer * inner,
            settings.max_grad_norm,
            rows,
            finish_how,
        ),
        copy_t,
        copy_grad,
        shares * (SUMS if how.PULL else OWN_SUMS) * channels,
    )


def _backward_plan(
    grad: Tensor, t: Tensor, out: Tensor, a: Tensor, settings: Settings
) -> _BackwardPlan | None:
    key = (t.shape, t.stride(), grad.stride(), t.dtype, t.device, a.shape[0], a.dtype, settings)
    plan: _BackwardPlan | None = remembered(key, lambda: _plan_backward(grad, t, out, a, settings))
    return plan


def _begun(t: Tensor, y: Tensor, a: Tensor, settings: Settings, keep: bool) -> _Plan | None:
    """A plan whose kernels are being compiled, and those of the backward pass that is to come.

    Its gradient will mostly lie as y does.
    """
    plan = _plan_forward(t, y, a, settings, keep)
    if plan is not None:
        plan.forward.begin(t.device)
        backward = _backward_plan(y, t, y, a, settings) if keep else None
        if backward is not None:
            backward.backward.begin(t.device)
            backward.finish.begin(t.device)
    return plan


def forward(
    t: Tensor, coefficients: tuple[Tensor, ...], settings: Settings, keep: bool = True
) -> tuple[Tensor, Tensor | None]:
    """y and, if they are to be kept for backward, the normal forms of the neurons."""
    a, b, c, c1, c2 = uniform(coefficients)
    t = plain(t)
    y = torch.empty_like(t)
    if t.numel() == 0:
        return y, None
    key = (t.shape, t.stride(), t.dtype, t.device, a.shape[0], a.dtype, settings, keep)
    plan = remembered(key, lambda: _begun(t, y, a, settings, keep))
    if plan is None:
        value, forms = forward(t.contiguous(), coefficients, settings, keep)
        return y.copy_(value), forms
    if plan.copy:
        t = in_order_of(t, y)
    kept = kept_of(settings) * a.shape[0]
    forms = a.new_empty(kept, dtype=torch.float64) if keep else None
    with on_device_of(t):
        aligned, stream = t.data_ptr() % 16 == 0, stream_of(t)
        plan.forward(aligned, stream, t, y, a, b, c, c1, c2, a if forms is None else forms)
    if aligned and not plan.left:
        plan.left = plan.copy or _launcher.keep_forward(t, a, settings, keep, kept, plan.forward)
    return y, forms


def backward(
    grad: Tensor,
    t: Tensor,
    coefficients: tuple[Tensor, ...],
    forms: Tensor | None,
    settings: Settings,
) -> tuple[Tensor, ...]:
    """The gradients of t and of the five coefficients."""
    a, b, c, c1, c2 = uniform(coefficients)
    t, grad = plain(t), plain(grad)
    if a.dtype != coefficients[0].dtype:  # of several types
        grad_t, *grads = backward(grad, t, (a, b, c, c1, c2), forms, settings)
        return grad_t, *(g.to(p.dtype) for g, p in zip(grads, coefficients, strict=True))
    grad_t = torch.empty_like(t)
    grads = [torch.empty_like(a) for _ in range(5)]
    if t.numel() == 0:
        return grad_t, *(g.zero_() for g in grads)
    assert forms is not None
    if grad.dtype != t.dtype:
        grad = grad.to(t.dtype)
    plan = _backward_plan(grad, t, grad_t, a, settings)
    if plan is None:
        moved, *grads = backward(grad.contiguous(), t.contiguous(), coefficients, forms, settings)
        return grad_t.copy_(moved), *grads
    if plan.copy_t:
        t = in_order_of(t, grad_t)
    if plan.copy_grad:
        grad = in_order_of(grad, grad_t)
    sums = a.new_empty(plan.sums, dtype=torch.float64)
    with on_device_of(t):
        aligned, stream = (t.data_ptr() | grad.data_ptr()) % 16 == 0, stream_of(t)
        plan.backward(aligned, stream, t, grad, grad_t, forms, sums)
        plan.finish(True, stream, a, b, c, c1, c2, sums, *grads)
    if aligned and not plan.left:
        plan.left = (plan.copy_t or plan.copy_grad) or _launcher.keep_backward(
            grad, t, a, settings, plan.sums, plan.backward, plan.finish
        )
    return grad_t, *grads
