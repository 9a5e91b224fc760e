"""What all calls of the Triton kernels share: what a kernel is compiled for, launches, plans.

One plan is made for a shape, its strides and the settings, and keeps the compiled kernels, so that
a further call costs little more than its launches.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import torch
from torch import Tensor

from . import _launcher, _triton_ahead
from ._settings import Settings
from ._triton_cut import Layout, Tiling, is_even


@functools.cache
def processors(device: torch.device) -> int:
    if device.type != "cuda":
        return 4  # Triton's interpreter
    return torch.cuda.get_device_properties(device).multi_processor_count


@functools.cache
def has_ptx(device: torch.device) -> bool:
    return device.type == "cuda" and torch.version.hip is None


@functools.cache
def is_since(device: torch.device, major: int) -> bool:
    """Whether it is a chip of NVIDIA's of this generation or later."""
    return has_ptx(device) and torch.cuda.get_device_capability(device)[0] >= major


class Launch:
    """One kernel with all that stays the same from call to call.

    The first call goes through Triton, which compiles; further ones go straight to what it
    compiled, at a fifth of the time, as long as the big tensors lie at multiples of 16 bytes.
    """

    def __init__(
        self,
        kernel: Any,
        programs: int,
        options: dict[str, Any],
        types: tuple[torch.dtype, ...],  # of its tensors, which come before what is fixed
        *fixed: Any,
    ) -> None:
        self.kernel, self.programs, self.options = kernel, programs, options
        self.types, self.fixed = types, fixed
        self.compiled: Any = None
        self.run: Callable[..., None] | None = None
        self.ahead: Future[None] | None = None  # until it has been compiled in the background

    def begin(self, device: torch.device) -> None:
        """Begin to compile it in the background."""
        self.ahead = _triton_ahead.begin(self.kernel, self.options, self.types, self.fixed, device)

    def __call__(self, aligned: bool, stream: int, *tensors: Tensor) -> None:
        if aligned and self.run is not None:
            self.run(*[x.data_ptr() for x in tensors], *self.fixed, stream=stream)
            return
        ahead, self.ahead = self.ahead, None
        if ahead is not None:
            _triton_ahead.wait(ahead)
        compiled = self.kernel[(self.programs,)](*tensors, *self.fixed, **self.options)
        if aligned and compiled is not None:  # the interpreter compiles nothing
            self.compiled = compiled
            self.run = compiled[(self.programs, 1, 1)]

    def described(self) -> _launcher.Kernel | None:
        """What the launcher has to know of it."""
        if self.compiled is None:
            return None
        return _launcher.describe(self.compiled, self.programs, self.fixed)


def options_of(warps: int, registers: int | None = None, overlap: bool = False) -> dict[str, Any]:
    options: dict[str, Any] = {"num_warps": warps, "enable_fp_fusion": True}
    if overlap:
        options["launch_pdl"] = True
    if registers is not None and torch.version.hip is None:
        options["maxnreg"] = registers
    return options


def _bits(number: float, dtype: torch.dtype) -> int:
    """A positive number in a type of 16 bits."""
    return int(torch.tensor(number, dtype=dtype).view(torch.int16).item())


def how_of(
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
        BOUND_BITS=_bits(bound, t.dtype) if t.element_size() == 2 and is_since(t.device, 8) else 0,
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
        ELEMENTS=tiling.elements,
        STREAM=False,
        EVEN=is_even(lies, height, width),
        PTX=has_ptx(t.device),
        # In the interpreter too, which then tests what NVIDIA's chips run.
        FACTORS=has_ptx(t.device) or t.device.type == "cpu",
        KEEP=False,
        READY=False,
        NORM=0,
        RESIDUAL=False,
        OVERLAP=is_since(t.device, 9),  # Hopper
    )


def alone(how: Any, size: int) -> Any:
    """One channel, part of a tile at a time: for float64, and there is less to compile.

    Neighbours that are narrower than four bytes are taken by twos: less is not loaded ahead.
    """
    width = 2 if size == 2 and not how.LANES and how.WIDTH > 1 else 1
    parts = 8 if how.LANES and how.ELEMENTS >= 8 else 4
    height = max(1, how.HEIGHT * how.WIDTH // parts // width)
    even = how.EVEN and not how.LANES  # a smaller tile divides what a larger one does
    return how._replace(
        LANES=False, HEIGHT=height, WIDTH=width, ELEMENTS=how.ELEMENTS // parts, EVEN=even
    )


_CACHE = 2**26  # bytes: more than a chip keeps


def streams(t: Tensor, lanes: bool) -> bool:
    """Whether what is written had better go past the cache."""
    return lanes and t.numel() * t.element_size() >= _CACHE


def rows_of(shares: int) -> tuple[int, int]:
    """Of how many shares a program adds the sums up at once, and by how many warps.

    At least 16, so that one kernel serves the layers of most networks.
    """
    rows = min(512, max(16, 1 << (shares - 1).bit_length()))
    return rows, max(1, rows // (64 if shares <= rows else 32))  # more where it goes several rounds


_plans: dict[tuple, Any] = {}


def remembered(key: tuple, make: Callable[[], Any]) -> Any:
    found = _plans.get(key, _plans)
    if found is _plans:
        if len(_plans) >= 4096:  # shapes that never come back must not fill the memory
            _plans.clear()
            _launcher.forget()
        found = _plans[key] = make()
    return found


_HERE = contextlib.nullcontext()


def on_device_of(t: Tensor) -> Any:
    """Kernels are launched on the current device, which is nearly always that of the tensors."""
    if t.device.type != "cuda" or t.device.index == torch.cuda.current_device():
        return _HERE
    return torch.cuda.device(t.device)


def stream_of(t: Tensor) -> int:
    if t.device.type != "cuda":
        return 0
    return torch._C._cuda_getCurrentRawStream(t.device.index)
