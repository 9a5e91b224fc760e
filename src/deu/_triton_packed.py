"""Values by packed numbers, by the Triton kernels: plans of calls, and their launches.

As ``_triton.py``, which see; ``_packed.py`` says what packed numbers are.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from . import _launcher, _triton
from ._layout import in_order_of, plain
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
    stream_of,
    streams,
)


def fits(x: Tensor, packed: Tensor) -> bool:
    """Whether there is a kernel for these tensors: in single precision at most."""
    return (
        _triton.fits(x, (packed,))
        and x.dtype != torch.float64
        and x.numel() > 0
        and packed.dtype == torch.int64
        and packed.shape[0] == _triton.NORM_FORM
        and packed.is_contiguous()  # a copy would not be there yet when the kernel begins
    )


@dataclass
class _Plan:
    value: Launch
    copy: bool  # the input must be copied into the output's order first
    copy_residual: bool
    left: bool = False  # to the launcher, wherever it can


def _plan(
    x: Tensor, residual: Tensor | None, y: Tensor, n: int, normed: bool, settings: Settings
) -> _Plan | None:
    from ._triton_norm import MEASURED, PLAIN
    from ._triton_norm_kernels import packed_value

    if x.device.type == "cuda":
        _launcher.begin()
    found = lie(y, (x, x if residual is None else residual), n, settings.dim)
    if found is None:
        return None
    lies, (copy, copy_residual) = found
    outer, channels, inner = lies.sizes
    tiling = tiling_of(x, settings, lies.lanes, False)
    height, width, share, _, programs = cut(lies, tiling, processors(x.device))
    how = how_of(x, settings, lies, height, width, tiling)
    how = how._replace(
        PULL=False,
        READY=True,
        NORM=(MEASURED if normed else PLAIN).value,
        RESIDUAL=residual is not None,
        STREAM=streams(x, lies.lanes),
    )
    value = Launch(
        packed_value,
        programs,
        options_of(tiling.warps, tiling.registers, how.OVERLAP),
        (*[x.dtype] * 3, torch.int64),
        *(channels, outer * inner, share, inner),
        *(step for s in lies.strides for step in s),
        *(how, alone(how, x.element_size())),
    )
    return _Plan(value, copy, copy_residual and residual is not None)


def _begun(
    x: Tensor, residual: Tensor | None, y: Tensor, n: int, normed: bool, settings: Settings
) -> _Plan | None:
    plan = _plan(x, residual, y, n, normed, settings)
    if plan is not None:
        plan.value.begin(x.device)
    return plan


def value(
    x: Tensor, residual: Tensor | None, packed: Tensor, normed: bool, settings: Settings
) -> Tensor:
    """y, after batch norm if ``normed``, and with the residual if there is one."""
    x = plain(x)
    y = torch.empty_like(x)
    n = packed.shape[1]
    where = None if residual is None else residual.stride()
    key = ("packed", x.shape, x.stride(), where, x.dtype, x.device, n, normed, settings)
    plan = remembered(key, lambda: _begun(x, residual, y, n, normed, settings))
    if plan is None:
        r = None if residual is None else residual.contiguous()
        return y.copy_(value(x.contiguous(), r, packed, normed, settings))
    if plan.copy:
        x = in_order_of(x, y)
    r = x if residual is None else plain(residual)
    if plan.copy_residual:
        r = in_order_of(r, y)
    with on_device_of(x):
        aligned = (x.data_ptr() | r.data_ptr()) % 16 == 0
        plan.value(aligned, stream_of(x), x, r, y, packed)
    if aligned and not plan.left:
        plan.left = (plan.copy or plan.copy_residual) or _launcher.keep_packed(
            x, residual, packed, normed, settings, plan.value
        )
    return y
