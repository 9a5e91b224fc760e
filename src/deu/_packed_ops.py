"""Values by packed numbers, as an operator: units, and batch norm before them, for inference.

One tensor of constants stands where the others have five or nine, each of which a compiled graph
checks and fetches in every call.  ``deu::packed_unit`` is what ``torch.compile`` sees; below
autograd it becomes ``deu::packed_value``, which has no gradients, or what has them where they are
wanted.  For tensors without a kernel that is put together from PyTorch's own.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.nn import functional

from . import _launcher, _native, _ops, _triton_packed
from ._packed import COEFFICIENTS, NORM, rows_of
from ._settings import Settings, unpacked


def plain(
    x: Tensor, residual: Tensor | None, packed: Tensor, normed: bool, settings: Settings
) -> Tensor:
    """The same by PyTorch and what units without packed numbers are computed by."""
    if normed:
        dtype = torch.float64 if x.dtype == torch.float64 else torch.float32
        mean, scale, shift = rows_of(packed, NORM).to(dtype).unbind()
        x = functional.batch_norm(x, mean, torch.zeros_like(mean), scale, shift, eps=1.0)
    z = x if residual is None else x + residual
    if _is_for_cpu(z, packed):
        return _native.value(z, packed.contiguous(), COEFFICIENTS.start, settings)
    return _ops.apply(z, rows_of(packed, COEFFICIENTS).unbind(), settings)


def _is_for_cpu(z: Tensor, packed: Tensor) -> bool:
    """Whether the CPU's kernels take the packed numbers as they are."""
    return (
        z.is_cpu
        and not torch.compiler.is_compiling()
        and _native.fits(z, (packed,))
        and not _is_wanted(z, None)
        and not _ops.is_transformed()
        and not _ops.is_not_plain(z)
    )


def _run(x: Tensor, residual: Tensor | None, packed: Tensor, normed: bool, settings: str) -> Tensor:
    if _triton_packed.fits(x, packed):
        return _triton_packed.value(x, residual, packed, normed, unpacked(settings))
    y = plain(x, residual, packed, normed, unpacked(settings))
    return torch.empty_like(x).copy_(y)


value_op = _ops.define(
    "packed_value", "Tensor x, Tensor? residual, Tensor packed, bool normed", "Tensor", _run
)


@_ops.fake("packed_value")
def _fake(x: Tensor, *rest: Any) -> Tensor:
    return torch.empty_like(x)


def _run_unit(
    x: Tensor, residual: Tensor | None, packed: Tensor, normed: bool, *rest: Any
) -> Tensor:
    settings = Settings(*rest)
    if _is_wanted(x, residual) or _ops.is_transformed():
        return plain(x, residual, packed, normed, settings)
    y: Tensor = value_op(x, residual, packed, normed, settings.packed())
    return y


unit_op = _ops.define(
    "packed_unit",
    "Tensor x, Tensor? residual, Tensor packed, bool normed",
    "Tensor",
    _run_unit,
    "CompositeImplicitAutograd",
)


def _is_wanted(x: Tensor, residual: Tensor | None) -> bool:
    """Whether the gradient of an input is."""
    wanted = x.requires_grad or (residual is not None and residual.requires_grad)
    return wanted and torch.is_grad_enabled()


def apply(
    x: Tensor, residual: Tensor | None, packed: Tensor, normed: bool, settings: Settings
) -> Tensor:
    """The value, and if the input's gradient is wanted, what has one."""
    y: Tensor
    if torch.compiler.is_compiling():
        if _triton_packed.fits(x, packed):
            y = unit_op(x, residual, packed, normed, *settings)
            return y
        return plain(x, residual, packed, normed, settings)
    if _is_wanted(x, residual):
        return plain(x, residual, packed, normed, settings)
    launch = _launcher.call_packed
    if launch is not None and forward_ad._current_level < 0:
        found = launch(x, residual, packed, normed, settings)
        if found is not None:
            return found
    if not _triton_packed.fits(x, packed) or _ops.is_transformed():
        return plain(x, residual, packed, normed, settings)
    if _ops.is_not_plain(x):
        y = unit_op(x, residual, packed, normed, *settings)
        return y
    return _triton_packed.value(x, residual, packed, normed, settings)
