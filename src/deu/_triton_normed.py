"""Batch norm and a unit in one, by the Triton kernels: plans of calls, and their launches.

As ``_triton.py``, which see.  A training step takes three launches each way.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from . import _launcher
from ._layout import in_order_of, plain, uniform
from ._settings import Settings
from ._triton import NORM_FORM, NORM_SUMS
from ._triton_cut import cut, lie, tiling_with_norm
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

_MEASURED, _FROZEN, _ONWARD = 1, 2, 3  # as in _triton_norm.py, which imports Triton
_SINGLE, _WIDE = torch.float32, torch.float64


class BatchNorm(NamedTuple):
    """What a batch norm has: parameters, running statistics (none, if not tracked) and numbers."""

    weight: Tensor
    bias: Tensor
    mean: Tensor | None
    var: Tensor | None
    batches: Tensor | None
    momentum: float
    eps: float


@dataclass
class _Plan:
    measure: Launch | None  # not by running statistics
    settle: Launch | None
    forward: Launch
    copy: bool  # the input must be copied into the output's order first
    copy_residual: bool
    sums: int
    left: bool = False  # to the launcher, wherever it can


@dataclass
class _BackwardPlan:
    backward: Launch
    finish: Launch
    onward: Launch
    copies: tuple[bool, bool, bool]  # of input, residual and gradient
    sums: int
    left: bool = False


def _plan_forward(
    x: Tensor, residual: Tensor | None, y: Tensor, norm: BatchNorm, settings: Settings, frozen: bool
) -> _Plan:
    from . import _triton_norm_kernels as kernels

    if x.device.type == "cuda":
        _launcher.begin()
    n = norm.weight.shape[0]
    found = lie(y, (x, x if residual is None else residual), n, 1)
    assert found is not None  # the output is dense
    lies, (copy, copy_residual) = found
    copy_residual = copy_residual and residual is not None
    outer, channels, inner = lies.sizes
    positions = outer * inner
    tiling = tiling_with_norm(x, settings, lies.lanes, "forward")
    height, width, share, _, programs = cut(lies, tiling, processors(x.device))
    how = how_of(x, settings, lies, height, width, tiling)
    how = how._replace(
        PULL=False,
        KEEP=not frozen,
        NORM=_FROZEN if frozen else _MEASURED,
        RESIDUAL=residual is not None,
        STREAM=streams(x, lies.lanes),
    )
    strides = (step for s in lies.strides for step in s)
    forward = Launch(
        kernels.norm_forward,
        programs,
        options_of(tiling.warps, tiling.registers, how.OVERLAP),
        (*[x.dtype] * 3, *[_SINGLE] * 5, _SINGLE if frozen else _WIDE, *[_SINGLE] * 4),
        *(channels, positions, share, inner, *strides, norm.eps),
        *(how, alone(how, x.element_size())),
    )
    if frozen:
        return _Plan(None, None, forward, copy, copy_residual, 0)
    tiling = tiling_with_norm(x, settings, lies.lanes, "measure")
    height, width, share, shares, programs = cut(lies, tiling, processors(x.device))
    how = how_of(x, settings, lies, height, width, tiling)
    measure = Launch(
        kernels.measure,
        programs,
        options_of(tiling.warps, tiling.registers, how.OVERLAP),
        (x.dtype, _WIDE, _WIDE),
        *(channels, positions, share, inner, *lies.strides[-1], how),
    )
    rows, warps = rows_of(shares)
    batches = _SINGLE if norm.batches is None else norm.batches.dtype
    settle = Launch(
        kernels.settle,
        channels,
        options_of(warps, overlap=how.OVERLAP),
        (*[_WIDE] * 2, *[_SINGLE] * 4, batches, *[_SINGLE] * 5),
        *(channels, shares, positions, norm.momentum, norm.eps),
        *(norm.mean is not None, rows, how.OVERLAP),
    )
    return _Plan(measure, settle, forward, copy, copy_residual, 2 * shares * channels)


def _plan_backward(
    grad: Tensor, x: Tensor, residual: Tensor | None, out: Tensor, n: int, settings: Settings
) -> _BackwardPlan:
    from . import _triton_norm_kernels as kernels

    found = lie(out, (x, x if residual is None else residual, grad), n, 1)
    assert found is not None
    lies, copies = found
    outer, channels, inner = lies.sizes
    positions = outer * inner
    strides = tuple(step for s in lies.strides for step in s)

    def launch(step: str, norm: int) -> tuple[Launch, Any, int]:
        tiling = tiling_with_norm(x, settings, lies.lanes, step)
        height, width, share, shares, programs = cut(lies, tiling, processors(x.device))
        how = how_of(x, settings, lies, height, width, tiling)
        how = how._replace(PULL=False, NORM=norm, RESIDUAL=residual is not None)
        made = Launch(
            kernels.norm_backward,
            programs,
            options_of(tiling.warps, tiling.registers, how.OVERLAP),
            (*[x.dtype] * 5, *[_WIDE] * 3),
            *(channels, positions, share, inner, *strides, how, alone(how, x.element_size())),
        )
        return made, how, shares

    backward, how, shares = launch("backward", _MEASURED)
    onward, _, _ = launch("onward", _ONWARD)
    rows, warps = rows_of(shares)
    finish = Launch(
        kernels.norm_finish,
        channels,
        options_of(warps, overlap=how.OVERLAP),
        (_WIDE, _WIDE, _SINGLE, _WIDE),
        *(channels, shares, positions, settings.max_grad_norm, rows),
        how._replace(LANES=True, HEIGHT=1, WIDTH=1),
    )
    return _BackwardPlan(
        backward,
        finish,
        onward,
        (copies[0], residual is not None and copies[1], copies[2]),
        NORM_SUMS * shares * channels,
    )


def _backward_plan(
    grad: Tensor, x: Tensor, residual: Tensor | None, out: Tensor, n: int, settings: Settings
) -> _BackwardPlan:
    where = None if residual is None else residual.stride()
    key = ("norm", x.shape, x.stride(), where, grad.stride(), x.dtype, x.device, settings)
    plan: _BackwardPlan = remembered(
        key, lambda: _plan_backward(grad, x, residual, out, n, settings)
    )
    return plan


def _begun(
    x: Tensor, residual: Tensor | None, y: Tensor, norm: BatchNorm, settings: Settings, frozen: bool
) -> _Plan:
    """A plan whose kernels are being compiled, and those of the backward pass that is to come.

    Its gradient will mostly lie as y does.
    """
    plan = _plan_forward(x, residual, y, norm, settings, frozen)
    launches = [plan.measure, plan.settle, plan.forward]
    if not frozen:
        back = _backward_plan(y, x, residual, y, norm.weight.shape[0], settings)
        launches += [back.backward, back.finish, back.onward]
    for launch in launches:
        if launch is not None:
            launch.begin(x.device)
    return plan


def forward(
    x: Tensor,
    residual: Tensor | None,
    norm: BatchNorm,
    coefficients: tuple[Tensor, ...],
    settings: Settings,
    frozen: bool,
) -> tuple[Tensor, Tensor | None]:
    """y and, in training, what backward needs; running statistics are brought up to date."""
    a, b, c, c1, c2 = uniform(coefficients)
    x = plain(x)
    y = torch.empty_like(x)
    where = None if residual is None else residual.stride()
    numbers = (norm.momentum, norm.eps, norm.mean is None, frozen)
    key = ("norm", x.shape, x.stride(), where, x.dtype, x.device, a.dtype, settings, numbers)
    plan = remembered(key, lambda: _begun(x, residual, y, norm, settings, frozen))
    if plan.copy:
        x = in_order_of(x, y)
    r = x if residual is None else plain(residual)
    if plan.copy_residual:
        r = in_order_of(r, y)
    mean = norm.weight if norm.mean is None else norm.mean
    var = norm.weight if norm.var is None else norm.var
    batches = norm.weight if norm.batches is None else norm.batches
    saved = None if frozen else x.new_empty(NORM_FORM * a.shape[0], dtype=torch.float64)
    with on_device_of(x):
        aligned, stream = (x.data_ptr() | r.data_ptr()) % 16 == 0, stream_of(x)
        if saved is not None:
            sums = x.new_empty(plan.sums, dtype=torch.float64)
            plan.measure(aligned, stream, x, saved, sums)
            plan.settle(
                *(True, stream, saved, sums, norm.weight, norm.bias, mean, var, batches),
                *(a, b, c, c1, c2),
            )
        plan.forward(
            *(aligned, stream, x, r, y, a, b, c, c1, c2, norm.weight if saved is None else saved),
            *(norm.weight, norm.bias, mean, var),
        )
    if aligned and not plan.left:
        plan.left = (plan.copy or plan.copy_residual) or (
            _launcher.keep_norm_forward(
                x,
                residual,
                (norm.mean, norm.momentum, norm.eps, frozen),
                settings,
                (plan.sums, NORM_FORM * a.shape[0]),
                tuple(k for k in (plan.measure, plan.settle, plan.forward) if k is not None),
            )
        )
    return y, saved


def backward(
    grad: Tensor, saved: Tensor, x: Tensor, residual: Tensor | None, settings: Settings
) -> tuple[Tensor, Tensor | None, Tensor]:
    """The gradients of input and residual, and seven rows: of weight, bias and coefficients."""
    n = saved.shape[0] // NORM_FORM
    x, grad = plain(x), plain(grad)
    grad_x = torch.empty_like(x)
    if grad.dtype != x.dtype:
        grad = grad.to(x.dtype)
    plan = _backward_plan(grad, x, residual, grad_x, n, settings)
    if plan.copies[0]:
        x = in_order_of(x, grad_x)
    r = x if residual is None else plain(residual)
    if plan.copies[1]:
        r = in_order_of(r, grad_x)
    if plan.copies[2]:
        grad = in_order_of(grad, grad_x)
    grad_r = None if residual is None else torch.empty_like(grad_x)
    grads = x.new_empty((7, n), dtype=torch.float32)
    sums = x.new_empty(plan.sums, dtype=torch.float64)
    onward = x.new_empty(2 * n, dtype=torch.float64)
    with on_device_of(x):
        aligned = (x.data_ptr() | r.data_ptr() | grad.data_ptr()) % 16 == 0
        stream = stream_of(x)
        tensors = (x, r, grad, grad_x, grad_x if grad_r is None else grad_r, saved, sums, onward)
        plan.backward(aligned, stream, *tensors)
        plan.finish(True, stream, saved, sums, grads, onward)
        plan.onward(aligned, stream, *tensors)
    if aligned and not plan.left:
        plan.left = any(plan.copies) or _launcher.keep_norm_backward(
            grad, x, residual, settings, plan.sums, (plan.backward, plan.finish, plan.onward)
        )
    return grad_x, grad_r, grads
