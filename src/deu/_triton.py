"""The Triton kernels for GPUs: how the tensors of a call lie, and its launches.

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
from typing import Any, NamedTuple

import torch
from torch import Tensor

from . import _launcher
from ._layout import DTYPES, Strides, common_layout, in_order_of, plain, uniform
from ._settings import Settings

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


class Tiling(NamedTuple):
    """How a call is cut into programs; found by measuring, see ``docs/speed.md``."""

    warps: int
    elements: int  # of a tile, a thread
    programs: int  # at most about so many a multiprocessor
    registers: int  # at most so many a thread
    stages: int  # tiles on their way at once; backward, and 1 in forward: in registers
    together: int = 16  # channels along memory: at most so many neighbours are one thread's


_LARGE = 2**24  # elements
_CACHE = 2**26  # bytes


def _tiling(t: Tensor, settings: Settings, lanes: bool, backward: bool) -> Tiling:
    """How a tensor is cut, with its channels along memory (``lanes``) or not.

    There are as many programs as run at once, since each begins slowly.  In a large tensor with one
    channel to a program there are more, because some take far longer than others: those in
    float64, of which the paper's solution has more.
    """
    size, large = t.element_size(), t.numel() >= _LARGE
    continuous = settings.solution == "continuous"
    if lanes and not backward:
        return Tiling(4, 16, 4, 128, 3) if size == 2 and large else Tiling(4, 8, 4, 128, 4)
    if lanes and size == 8:
        return Tiling(4, 4, 3, 168, 2)
    if lanes and size == 2 and continuous:
        return Tiling(4, 4, 4, 128, 2)
    if lanes:
        # A thread with two channels instead of four keeps their constants in its registers.  Each
        # program leaves sums, and of the paper's solution in training more than twice as many.
        warps = 4 if not large else 2 if continuous else 8
        return Tiling(warps, 4, 16 // warps, 128, 2, together=2)
    if not large:
        return Tiling(4, 4, 4, 128, 2) if backward else Tiling(4, 8, 6, 80, 5 if size == 2 else 4)
    if backward and size == 2 and continuous:
        return Tiling(2, 4, 16, 128, 2)
    if backward:
        return Tiling(4, 4, 12 if continuous else 16, 128, 2)
    if size == 2 and continuous:
        return Tiling(2, 16, 16, 96, 5)
    return Tiling(4, 16, 8, 128, 5 if size == 2 else 1)


_WORTH_A_PROGRAM = 8192  # elements: fewer would make more sums to keep than they save time


@functools.cache
def _processors(device: torch.device) -> int:
    if device.type != "cuda":
        return 4  # Triton's interpreter
    return torch.cuda.get_device_properties(device).multi_processor_count


@functools.cache
def _has_ptx(device: torch.device) -> bool:
    return device.type == "cuda" and torch.version.hip is None


@functools.cache
def _overlaps(device: torch.device) -> bool:
    """Whether a kernel can be launched while the one before it ends: Hopper and later."""
    return _has_ptx(device) and torch.cuda.get_device_capability(device) >= (9, 0)


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


class _Layout(NamedTuple):
    sizes: tuple[int, int, int]
    strides: list[Strides]  # of each tensor
    lanes: bool
    flat: bool
    wide: bool
    width: int  # neighbours in memory that may be loaded at once


def _lie(
    out: Tensor, sources: tuple[Tensor, ...], channels: int, dim: int
) -> tuple[_Layout, list[bool]] | None:
    """How all tensors of a call lie, and which sources must be copied into out's order first."""
    found = common_layout(out, sources, channels, dim)
    if found is None:
        return None
    sizes, strides, copies = found
    outer, _, inner = sizes
    lanes = channels > 1 and all(s[1] == 1 for s in strides) and not all(s[2] == 1 for s in strides)
    flat = outer == 1 or all(s[0] == inner * s[2] for s in strides)
    width = 1
    if not lanes and all(s[2] == 1 for s in strides):
        width = 16 // out.element_size()
        together = outer * inner if flat else inner
        while width > 1 and (
            together % width
            or any(s[1] % width for s in strides)
            or (not flat and any(s[0] % width for s in strides))
        ):
            width //= 2
    reach = max(sum((n - 1) * abs(step) for n, step in zip(sizes, s, strict=True)) for s in strides)
    wide = reach + 65536 >= 2**31 or outer * channels * inner + 65536 >= 2**31
    return _Layout(sizes, strides, lanes, flat, wide, width), copies


def _options(warps: int, registers: int | None = None, overlap: bool = False) -> dict[str, Any]:
    options: dict[str, Any] = {"num_warps": warps, "enable_fp_fusion": True}
    if overlap:
        options["launch_pdl"] = True
    if registers is not None and torch.version.hip is None:
        options["maxnreg"] = registers
    return options


def _cut(lies: _Layout, tiling: Tiling, processors: int) -> tuple[int, int, int, int, int]:
    """The tile's height and width, the positions of a share, the shares, the programs."""
    outer, channels, inner = lies.sizes
    positions = outer * inner
    size = 32 * tiling.warps * tiling.elements
    if lies.lanes:
        width = min(64, 1 << (channels - 1).bit_length())
        height = max(1, size // width)
        step, blocks = height, -(-channels // width)
    else:
        width = lies.width
        height = max(1, size // width)
        step, blocks = height * width, channels
    wanted = max(1, processors * tiling.programs // blocks)
    worth = max(1, _WORTH_A_PROGRAM // (width if lies.lanes else 1))
    share = max(-(-positions // wanted), worth)
    share = -(-share // step) * step
    shares = -(-positions // share)
    return height, width, share, shares, shares * blocks


def _how(
    t: Tensor, settings: Settings, lies: _Layout, height: int, width: int, tiling: Tiling
) -> Any:
    from ._triton_elements import DOUBLE, HALF, SINGLE, How

    continuous = settings.solution == "continuous"
    mode = {torch.float32: SINGLE, torch.float64: DOUBLE}.get(t.dtype, HALF)
    return How(
        MODE=mode.value,
        CONTINUOUS=continuous,
        EPS=settings.eps,
        SHARPNESS=settings.sharpness,
        MAX_EXPONENT=settings.max_exponent,
        BOUND=min(settings.bound, torch.finfo(t.dtype).max),
        PULL=settings.training and not continuous,
        LANES=lies.lanes,
        FLAT=lies.flat,
        WIDE=lies.wide,
        ALIKE=len(set(lies.strides)) == 1,
        HEIGHT=height,
        WIDTH=width,
        TOGETHER=tiling.together,
        STAGES=tiling.stages,
        STREAM=lies.lanes and t.numel() * t.element_size() >= _CACHE,
        PTX=_has_ptx(t.device),
        KEEP=False,
        OVERLAP=_overlaps(t.device),
    )


def _alone(how: Any) -> Any:
    """One channel, a quarter of a tile at a time: for float64, and there is less to compile."""
    return how._replace(LANES=False, HEIGHT=max(1, how.HEIGHT * how.WIDTH // 4), WIDTH=1)


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
    found = _lie(y, (t,), a.shape[0], settings.dim)
    if found is None:
        return None
    lies, (copy,) = found
    tiling = _tiling(t, settings, lies.lanes, False)
    height, width, share, _, programs = _cut(lies, tiling, _processors(t.device))
    outer, channels, inner = lies.sizes
    fixed = (channels, outer * inner, share, inner, *lies.strides[0], *lies.strides[1])
    # Values are the same in training: one kernel serves both.
    how = _how(t, settings, lies, height, width, tiling)
    how = how._replace(PULL=False, OVERLAP=False, KEEP=keep)
    options = _options(tiling.warps, tiling.registers)
    return _Plan(_Launch(kernel, programs, options, *fixed, how, _alone(how)), copy)


def _plan_backward(
    grad: Tensor, t: Tensor, out: Tensor, a: Tensor, settings: Settings
) -> _BackwardPlan | None:
    from ._triton_finish import finish
    from ._triton_kernels import backward as kernel

    found = _lie(out, (t, grad), a.shape[0], settings.dim)
    if found is None:
        return None
    lies, (copy_t, copy_grad) = found
    tiling = _tiling(t, settings, lies.lanes, True)
    height, width, share, shares, programs = _cut(lies, tiling, _processors(t.device))
    outer, channels, inner = lies.sizes
    strides = (step for s in lies.strides for step in s)
    how = _how(t, settings, lies, height, width, tiling)
    fixed = (channels, outer * inner, share, inner, *strides, how, _alone(how))
    finish_how = how._replace(LANES=True, HEIGHT=1, WIDTH=1)
    rows = min(512, 1 << (shares - 1).bit_length())
    warps = max(1, rows // (64 if shares <= rows else 32))
    return _BackwardPlan(
        _Launch(kernel, programs, _options(tiling.warps, tiling.registers), *fixed),
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
