"""The compiled CPU kernels, through their C interface (csrc/api.cpp)."""

from __future__ import annotations

import ctypes
import functools
import glob
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ._layout import common_layout, in_order_of, plain, uniform
from ._settings import Settings

_ABI = 2
_DTYPES = {torch.float32: 0, torch.float64: 1, torch.bfloat16: 2, torch.float16: 3}
ISAS = ("portable", "avx2", "avx512")


class _Plan(ctypes.Structure):
    """csrc/api.cpp's Plan."""

    _fields_ = [
        *[(name, ctypes.c_int64) for name in ("outer", "channels", "inner")],
        *[
            (f"{which}_{part}", ctypes.c_int64)
            for which in ("input", "grad", "out")
            for part in ("outer", "channel", "inner")
        ],
        *[
            (name, ctypes.c_int32)
            for name in ("dtype", "coefficient_dtype", "continuous", "training")
        ],
        *[
            (name, ctypes.c_double)
            for name in ("eps", "sharpness", "max_exponent", "bound", "max_grad_norm")
        ],
    ]


def _openmp() -> int | None:
    """The address of GOMP_parallel in the OpenMP library that PyTorch itself uses.

    Sharing its threads keeps to PyTorch's thread count and never runs more threads than cores.
    """
    folder = os.path.join(os.path.dirname(torch.__file__), "lib")
    for pattern in ("libgomp*", "libomp*", "libiomp*"):
        for path in glob.glob(os.path.join(folder, pattern)):
            try:
                function = ctypes.CDLL(path).GOMP_parallel
            except (OSError, AttributeError):
                continue
            return ctypes.cast(function, ctypes.c_void_p).value
    return None


def _find() -> str | None:
    names = ("_kernels.so", "_kernels.dll", "_kernels.dylib")
    paths = (os.path.join(os.path.dirname(__file__), name) for name in names)
    return next((path for path in paths if os.path.exists(path)), None)


def _load() -> tuple[ctypes.CDLL | None, str | None]:
    """The kernels, or None and what to tell the user (nothing if DEU_NATIVE=0 says so)."""
    if os.environ.get("DEU_NATIVE", "1") == "0":
        return None, None
    path = _find()
    if path is None:
        return None, (
            "deu: the compiled CPU kernels are not there; using the slower PyTorch reference. "
            "Install a C++ compiler and reinstall deu to have them."
        )
    try:
        lib = ctypes.CDLL(path)
        if lib.deu_abi() != _ABI:
            raise OSError("it belongs to another version of deu")
    except (OSError, AttributeError) as error:
        return None, (
            f"deu: the compiled CPU kernels at {path} cannot be loaded ({error}); "
            "using the slower plain PyTorch reference. Reinstall deu to build them again."
        )
    pointer = ctypes.c_void_p
    lib.deu_forward.argtypes = [pointer] * 9 + [ctypes.c_int]
    lib.deu_forward.restype = ctypes.c_int
    lib.deu_backward.argtypes = [pointer] * 15 + [ctypes.c_int]
    lib.deu_backward.restype = None
    lib.deu_use_openmp.argtypes = [pointer]
    lib.deu_use_openmp(_openmp())
    if os.environ.get("DEU_ISA") in ISAS:
        lib.deu_use_isa(ISAS.index(os.environ["DEU_ISA"]))
    return lib, None


# Loaded with the module, so that torch.compile sees a constant.
_library, _regret = _load()
AVAILABLE = _library is not None


@functools.cache
def _warn_once() -> None:
    if _regret is not None:
        warnings.warn(_regret, stacklevel=2)


def isas() -> list[str]:
    """The instruction sets that this machine can run, slowest first."""
    return [] if _library is None else list(ISAS[: _library.deu_best_isa() + 1])


@contextmanager
def use_isa(name: str) -> Iterator[None]:
    """Run with another instruction set than the best one, for tests and comparisons."""
    if _library is None or name not in isas():
        raise ValueError(f"instruction set {name!r} is not one of {isas()}")
    before = _library.deu_isa()
    _library.deu_use_isa(ISAS.index(name))
    try:
        yield
    finally:
        _library.deu_use_isa(before)


class _Planned(NamedTuple):
    """A plan (which whoever uses it must keep), its address, and what to copy into its order."""

    plan: _Plan
    address: int
    copy_t: bool
    copy_grad: bool


_plans: dict[tuple, _Planned | None] = {}
_UNKNOWN: Any = object()


def _plan(
    t: Tensor,
    grad: Tensor | None,
    out: Tensor,
    dtype: torch.dtype,
    channels: int,
    settings: Settings,
) -> _Planned | None:
    """A plan for these shapes and settings, made once.

    ``out`` is ``empty_like(t)``, so that its strides follow from those of t. None if the kernels
    cannot walk along ``out``: then everything has to be made contiguous.
    """
    key = (
        t.shape,
        t.stride(),
        None if grad is None else grad.stride(),
        t.dtype,
        dtype,
        channels,
        settings,
    )
    found = _plans.get(key, _UNKNOWN)
    if found is _UNKNOWN:
        if len(_plans) >= 4096:  # shapes that never come back must not fill the memory
            _plans.clear()
        found = _plans[key] = _make_plan(t, grad, out, dtype, channels, settings)
    return found


def _make_plan(
    t: Tensor,
    grad: Tensor | None,
    out: Tensor,
    dtype: torch.dtype,
    channels: int,
    settings: Settings,
) -> _Planned | None:
    sources = (t,) if grad is None else (t, grad)
    found = common_layout(out, sources, channels, settings.dim)
    if found is None:
        return None
    sizes, strides, copies = found
    plan = _Plan(
        *sizes,
        *strides[0],
        *strides[1],  # where there is no gradient, the output's, unused
        *strides[-1],
        _DTYPES[t.dtype],
        _DTYPES[dtype],
        settings.solution == "continuous",
        settings.training,
        settings.eps,
        settings.sharpness,
        settings.max_exponent,
        settings.bound,
        settings.max_grad_norm,
    )
    return _Planned(plan, ctypes.addressof(plan), copies[0], copies[-1] and grad is not None)


def fits(t: Tensor, coefficients: tuple[Tensor, ...]) -> bool:
    """Whether the kernels are there and take these tensors."""
    return AVAILABLE and t.is_cpu and coefficients[0].is_cpu and t.dtype in _DTYPES


def handles(t: Tensor, coefficients: tuple[Tensor, ...]) -> bool:
    """The same, warning the first time that tensors on the CPU have to do without."""
    if not AVAILABLE and t.is_cpu:
        _warn_once()
    return fits(t, coefficients)


_NO_CENTRE = torch.empty(0, dtype=torch.float64)


def forward(
    t: Tensor, coefficients: tuple[Tensor, ...], settings: Settings, keep: bool = True
) -> tuple[Tensor, Tensor]:
    """y, and each neuron's mean input if outward gravitation will ask for any, else nothing."""
    if not keep and settings.training:
        settings = settings._replace(training=False)
    assert _library is not None
    a, b, c, c1, c2 = uniform(coefficients)
    t = plain(t)
    y = torch.empty_like(t)
    if t.numel() == 0:
        return y, _NO_CENTRE
    planned = _plan(t, None, y, a.dtype, a.shape[0], settings)
    if planned is None:
        contiguous, centre = forward(t.contiguous(), (a, b, c, c1, c2), settings)
        return y.copy_(contiguous), centre
    if planned.copy_t:
        t = in_order_of(t, y)
    pointers = (
        planned.address,
        t.data_ptr(),
        y.data_ptr(),
        a.data_ptr(),
        b.data_ptr(),
        c.data_ptr(),
        c1.data_ptr(),
        c2.data_ptr(),
    )
    threads = torch.get_num_threads()
    if not _library.deu_forward(*pointers, None, threads):
        return y, _NO_CENTRE
    centre = torch.empty(a.shape[0], dtype=torch.float64)
    _library.deu_forward(*pointers, centre.data_ptr(), threads)
    return y, centre


def value(t: Tensor, numbers: Tensor, row: int, settings: Settings) -> Tensor:
    """y alone, of coefficients that are five rows of eight bytes a number, from this one on."""
    assert _library is not None
    assert not settings.training
    t = plain(t)
    y = torch.empty_like(t)
    if t.numel() == 0:
        return y
    channels = numbers.shape[1]
    planned = _plan(t, None, y, torch.float64, channels, settings)
    if planned is None:
        return y.copy_(value(t.contiguous(), numbers, row, settings))
    if planned.copy_t:
        t = in_order_of(t, y)
    first, step = numbers.data_ptr() + 8 * channels * row, 8 * channels
    pointers = (first, first + step, first + 2 * step, first + 3 * step, first + 4 * step)
    _library.deu_forward(
        planned.address, t.data_ptr(), y.data_ptr(), *pointers, None, torch.get_num_threads()
    )
    return y


def backward(
    grad: Tensor,
    t: Tensor,
    coefficients: tuple[Tensor, ...],
    centre: Tensor,
    settings: Settings,
) -> tuple[Tensor, ...]:
    """The gradients of t and of the five coefficients."""
    assert _library is not None
    a, b, c, c1, c2 = uniform(coefficients)
    t, grad = plain(t), plain(grad)
    if a.dtype != coefficients[0].dtype:  # of several types
        grad_t, *wide = backward(grad, t, (a, b, c, c1, c2), centre, settings)
        return grad_t, *(g.to(p.dtype) for g, p in zip(wide, coefficients, strict=True))
    grad_t = torch.empty_like(t)
    if grad.dtype != t.dtype:
        grad = grad.to(t.dtype)
    # One by one: autograd takes longer to keep views of one.
    grad_a, grad_b = torch.empty_like(a), torch.empty_like(a)
    grad_c, grad_c1, grad_c2 = torch.empty_like(a), torch.empty_like(a), torch.empty_like(a)
    grads = (grad_a, grad_b, grad_c, grad_c1, grad_c2)
    if t.numel() == 0:
        return grad_t, *(g.zero_() for g in grads)
    planned = _plan(t, grad, grad_t, a.dtype, a.shape[0], settings)
    if planned is None:
        moved, *rest = backward(grad.contiguous(), t.contiguous(), coefficients, centre, settings)
        return grad_t.copy_(moved), *rest
    if planned.copy_t:
        t = in_order_of(t, grad_t)
    if planned.copy_grad:
        grad = in_order_of(grad, grad_t)
    _library.deu_backward(
        planned.address,
        t.data_ptr(),
        grad.data_ptr(),
        grad_t.data_ptr(),
        a.data_ptr(),
        b.data_ptr(),
        c.data_ptr(),
        c1.data_ptr(),
        c2.data_ptr(),
        centre.data_ptr(),
        grad_a.data_ptr(),
        grad_b.data_ptr(),
        grad_c.data_ptr(),
        grad_c1.data_ptr(),
        grad_c2.data_ptr(),
        torch.get_num_threads(),
    )
    return grad_t, *grads
