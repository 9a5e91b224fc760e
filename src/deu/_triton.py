"""The Triton kernels for GPUs: plans of calls, and their launches.

Triton ships with PyTorch where there is a GPU; it is imported with the first tensor that asks for
it.  One plan is made for a shape, its strides and the settings, and keeps the compiled kernels, so
that a further call costs little more than its launches.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import os
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from . import _launcher
from ._layout import DTYPES, in_order_of, plain, uniform
from ._settings import Settings
from ._triton_cut import Layout, Tiling, cut, is_even, lie, tiling_of

_CACHE = 2**26  # bytes: more than a chip keeps
_DEVICES = ("cuda",)  # AMD's GPUs go by this name too

# How many numbers backward leaves its last step of each neuron and share of the positions, and how
# many if no neighbour pulls; _triton_walks.py says what they are.
SUMS, OWN_SUMS = 18, 7
FORM = 7  # and how many forward keeps for backward of each neuron: its normal form

# Known without importing it, so that torch.compile sees a constant.
AVAILABLE = importlib.util.find_spec("triton") is not None and os.environ.get("DEU_TRITON") != "0"


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


@functools.cache
def _processors(device: torch.device) -> int:
    if device.type != "cuda":
        return 4  # Triton's interpreter
    return torch.cuda.get_device_properties(device).multi_processor_count


@functools.cache
def _has_ptx(device: torch.device) -> bool:
    return device.type == "cuda" and torch.version.hip is None


@functools.cache
def _is_since(device: torch.device, major: int) -> bool:
    """Whether it is a chip of NVIDIA's of this generation or later."""
    return _has_ptx(device) and torch.cuda.get_device_capability(device)[0] >= major


class _Launch:
    """One kernel with all that stays the same from call to call.

    The first call goes through Triton, which compiles; further ones go straight to what it
    compiled, at a fifth of the time, as long as the big tensors lie at multiples of 16 bytes.
    """

    def __init__(self, kernel: Any, programs: int, options: dict[str, Any], *fixed: Any) -> None:
        self.kernel, self.programs, self.options, self.fixed = kernel, programs, options, fixed
        self.compiled: Any = None
        self.run: Callable[..., None] | None = None

    def __call__(self, aligned: bool, stream: int, *tensors: Tensor) -> None:
        if aligned and self.run is not None:
            self.run(*[x.data_ptr() for x in tensors], *self.fixed, stream=stream)
            return
        compiled = self.kernel[(self.programs,)](*tensors, *self.fixed, **self.options)
        if aligned and compiled is not None:  # the interpreter compiles nothing
            self.compiled = compiled
            self.run = compiled[(self.programs, 1, 1)]

    def described(self) -> _launcher.Kernel | None:
        """What the launcher has to know of it."""
        if self.compiled is None:
            return None
        return _launcher.describe(self.compiled, self.programs, self.fixed)


@dataclass
class _Plan:
    forward: _Launch
    copy: bool  # the input must be copied into the output's order first
    left: bool = False  # to the launcher, wherever it can


@dataclass
class _BackwardPlan:
    backward: _Launch
    finish: _Launch
    copy_t: bool
    copy_grad: bool
    sums: int
    left: bool = False


def _options(warps: int, registers: int | None = None, overlap: bool = False) -> dict[str, Any]:
    options: dict[str, Any] = {"num_warps": warps, "enable_fp_fusion": True}
    if overlap:
        options["launch_pdl"] = True
    if registers is not None and torch.version.hip is None:
        options["maxnreg"] = registers
    return options


def _bits(number: float, dtype: torch.dtype) -> int:
    """A positive number in a type of 16 bits."""
    return int(torch.tensor(number, dtype=dtype).view(torch.int16).item())


def _how(
    t: Tensor, settings: Settings, lies: Layout, height: int, width: int, tiling: Tiling
) -> Any:
    from ._triton_elements import DOUBLE, HALF, SINGLE, How

    continuous = settings.solution == "continuous"
    bound = min(settings.bound, torch.finfo(t.dtype).max)
    mode = {torch.float32: SINGLE, torch.float64: DOUBLE}.get(t.dtype, HALF)
    return How(
        MODE=mode.value,
        CONTINUOUS=continuous,
        EPS=settings.eps,
        SHARPNESS=settings.sharpness,
        MAX_EXPONENT=settings.max_exponent,
        BOUND=bound,
        BOUND_BITS=_bits(bound, t.dtype) if t.element_size() == 2 and _is_since(t.device, 8) else 0,
        CLOSED_LIMIT=torch.finfo(t.dtype).eps * 2**20,
        PULL=settings.training and not continuous,
        LANES=lies.lanes,
        FLAT=lies.flat,
        WIDE=lies.wide,
        ALIKE=len(set(lies.strides)) == 1,
        HEIGHT=height,
        WIDTH=width,
        TOGETHER=tiling.together,
        STAGES=tiling.stages,
        HALVES=tiling.elements >= 8,
        STREAM=False,
        EVEN=is_even(lies, height, width),
        PTX=_has_ptx(t.device),
        # In the interpreter too, which then tests what NVIDIA's chips run.
        FACTORS=_has_ptx(t.device) or t.device.type == "cpu",
        KEEP=False,
        OVERLAP=_is_since(t.device, 9),  # Hopper
    )


def _alone(how: Any, size: int) -> Any:
    """One channel, part of a tile at a time: for float64, and there is less to compile.

    Neighbours that are narrower than four bytes are taken by twos: less is not loaded ahead.
    """
    width = 2 if size == 2 and not how.LANES and how.WIDTH > 1 else 1
    parts = 8 if how.LANES and how.HALVES else 4
    height = max(1, how.HEIGHT * how.WIDTH // parts // width)
    even = how.EVEN and not how.LANES  # a smaller tile divides what a larger one does
    return how._replace(LANES=False, HEIGHT=height, WIDTH=width, HALVES=False, EVEN=even)


_plans: dict[tuple, Any] = {}


def _remembered(key: tuple, make: Callable[[], Any]) -> Any:
    found = _plans.get(key, _plans)
    if found is _plans:
        if len(_plans) >= 4096:  # shapes that never come back must not fill the memory
            _plans.clear()
            _launcher.forget()
        found = _plans[key] = make()
    return found


def _plan_forward(t: Tensor, y: Tensor, a: Tensor, settings: Settings, keep: bool) -> _Plan | None:
    from ._triton_kernels import forward as kernel

    if t.device.type == "cuda":
        _launcher.begin()
    found = lie(y, (t,), a.shape[0], settings.dim)
    if found is None:
        return None
    lies, (copy,) = found
    tiling = tiling_of(t, settings, lies.lanes, False)
    height, width, share, _, programs = cut(lies, tiling, _processors(t.device))
    outer, channels, inner = lies.sizes
    fixed = (channels, outer * inner, share, inner, *lies.strides[0], *lies.strides[1])
    # Values are the same in training: one kernel serves both.
    how = _how(t, settings, lies, height, width, tiling)
    stream = lies.lanes and t.numel() * t.element_size() >= _CACHE
    how = how._replace(PULL=False, KEEP=keep, STREAM=stream)
    options = _options(tiling.warps, tiling.registers, how.OVERLAP)
    return _Plan(
        _Launch(kernel, programs, options, *fixed, how, _alone(how, t.element_size())), copy
    )


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
    height, width, share, shares, programs = cut(lies, tiling, _processors(t.device))
    outer, channels, inner = lies.sizes
    strides = (step for s in lies.strides for step in s)
    how = _how(t, settings, lies, height, width, tiling)
    fixed = (channels, outer * inner, share, inner, *strides, how, _alone(how, t.element_size()))
    finish_how = how._replace(LANES=True, HEIGHT=1, WIDTH=1)
    rows = min(512, 1 << (shares - 1).bit_length())
    warps = max(1, rows // (64 if shares <= rows else 32))  # more where it goes several rounds
    return _BackwardPlan(
        _Launch(kernel, programs, _options(tiling.warps, tiling.registers, how.OVERLAP), *fixed),
        _Launch(
            finish,
            channels,
            _options(warps, overlap=how.OVERLAP),
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


_HERE = contextlib.nullcontext()


def _on_device_of(t: Tensor) -> Any:
    """Kernels are launched on the current device, which is nearly always that of the tensors."""
    if t.device.type != "cuda" or t.device.index == torch.cuda.current_device():
        return _HERE
    return torch.cuda.device(t.device)


def _stream(t: Tensor) -> int:
    if t.device.type != "cuda":
        return 0
    return torch._C._cuda_getCurrentRawStream(t.device.index)


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
    plan = _remembered(key, lambda: _plan_forward(t, y, a, settings, keep))
    if plan is None:
        value, forms = forward(t.contiguous(), coefficients, settings, keep)
        return y.copy_(value), forms
    if plan.copy:
        t = in_order_of(t, y)
    forms = a.new_empty(FORM * a.shape[0], dtype=torch.float64) if keep else None
    with _on_device_of(t):
        aligned, stream = t.data_ptr() % 16 == 0, _stream(t)
        plan.forward(aligned, stream, t, y, a, b, c, c1, c2, a if forms is None else forms)
    if aligned and not plan.left:
        plan.left = plan.copy or _launcher.keep_forward(
            t, a, settings, keep, FORM * a.shape[0], plan.forward
        )
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
    key = (t.shape, t.stride(), grad.stride(), t.dtype, t.device, a.shape[0], a.dtype, settings)
    plan = _remembered(key, lambda: _plan_backward(grad, t, grad_t, a, settings))
    if plan is None:
        moved, *grads = backward(grad.contiguous(), t.contiguous(), coefficients, forms, settings)
        return grad_t.copy_(moved), *grads
    if plan.copy_t:
        t = in_order_of(t, grad_t)
    if plan.copy_grad:
        grad = in_order_of(grad, grad_t)
    sums = a.new_empty(plan.sums, dtype=torch.float64)
    with _on_device_of(t):
        aligned, stream = (t.data_ptr() | grad.data_ptr()) % 16 == 0, _stream(t)
        plan.backward(aligned, stream, t, grad, grad_t, a, b, c, forms, sums)
        plan.finish(True, stream, a, b, c, c1, c2, sums, *grads)
    if aligned and not plan.left:
        plan.left = (plan.copy_t or plan.copy_grad) or _launcher.keep_backward(
            grad, t, a, settings, plan.sums, plan.backward, plan.finish
        )
    return grad_t, *grads
