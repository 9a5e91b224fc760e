"""Batch norm and a unit in one, as operators, and their place in autograd.

As ``_ops.py``, which see: ``deu::norm_unit`` is what ``torch.compile`` sees, and becomes
``deu::norm_forward`` and ``deu::norm_backward`` below autograd, or ``deu::norm_value`` by running
statistics.  For tensors without a kernel they are put together from PyTorch's own.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.nn import functional

from . import _launcher, _ops, _triton, _triton_normed
from ._settings import Settings, unpacked
from ._triton_normed import BatchNorm

_NORM = "Tensor weight, Tensor bias, Tensor(a!)? mean, Tensor(b!)? var, Tensor(c!)? batches"
_NUMBERS = "float momentum, float norm_eps"
_UNITS = "Tensor a, Tensor b, Tensor c, Tensor c1, Tensor c2"
_GRADS = 7  # of weight, bias and the five coefficients


def fits(x: Tensor, norm: BatchNorm, coefficients: tuple[Tensor, ...]) -> bool:
    """Whether there is a kernel for these tensors: in single precision, but for the input."""
    single = (norm.weight, norm.bias, norm.mean, norm.var, *coefficients)
    return (
        _triton.fits(x, coefficients)
        and x.dtype != torch.float64
        and all(p is None or p.dtype is torch.float32 for p in single)
        and x.numel() > 0
    )


def _along_features(row: Tensor, x: Tensor) -> Tensor:
    return row.view(1, -1, *[1] * (x.ndim - 2))


def _saved_rows(saved: Tensor) -> tuple[Tensor, ...]:
    """Mean, scale, shift, the inverse of the deviation, 0, and the five coefficients."""
    return saved.view(_triton.NORM_FORM, -1)[_triton.NORM_ROWS["mean"] :].unbind()


def _normed(x: Tensor, residual: Tensor | None, saved: Tensor) -> Tensor:
    mean, scale, shift = (_along_features(row, x) for row in _saved_rows(saved)[:3])
    z = (x.double() - mean) * scale + shift
    return (z if residual is None else z + residual).to(x.dtype)


def _plain_forward(
    x: Tensor,
    residual: Tensor | None,
    norm: BatchNorm,
    coefficients: tuple[Tensor, ...],
    settings: Settings,
) -> tuple[Tensor, Tensor]:
    over_all = [d for d in range(x.ndim) if d != 1]
    var, mean = torch.var_mean(x.double(), over_all, correction=0)
    over = (var + norm.eps).rsqrt()
    saved = x.new_zeros(_triton.NORM_FORM, norm.weight.shape[0], dtype=torch.float64)
    rows = (mean, norm.weight * over, norm.bias, over, 0 * over, *coefficients)
    saved[_triton.NORM_ROWS["mean"] :] = torch.stack([row.double() for row in rows])
    if norm.mean is not None and norm.var is not None and norm.batches is not None:
        many = x.numel() // x.shape[1]
        norm.mean.lerp_(mean.to(norm.mean.dtype), norm.momentum)
        norm.var.lerp_((var * (many / (many - 1))).to(norm.var.dtype), norm.momentum)
        norm.batches.add_(1)
    saved = saved.view(-1)
    y, _ = _ops._forward(_normed(x, residual, saved), coefficients, settings)
    return torch.empty_like(x).copy_(y), saved


def _plain_backward(
    grad: Tensor, saved: Tensor, x: Tensor, residual: Tensor | None, settings: Settings
) -> tuple[Tensor, Tensor | None, Tensor]:
    mean, scale, _, over, _, *rest = _saved_rows(saved)
    z, coefficients = _normed(x, residual, saved), tuple(rest)
    _, kept = _ops._run_forward(z, *coefficients, settings.packed())
    moved, *grads = _ops._backward(grad.to(z.dtype), z, coefficients, kept, settings)
    wide, centred = moved.double(), x.double() - _along_features(mean, x)
    over_all = [d for d in range(x.ndim) if d != 1]
    d_bias, d_weight = wide.sum(over_all), (wide * centred).sum(over_all) * over
    many = x.numel() // x.shape[1]
    found = wide - _along_features(d_bias / many, x)
    found -= centred * _along_features(over * d_weight / many, x)
    found *= _along_features(scale, x)
    rows = torch.stack([d_weight, d_bias, *(g.double() for g in grads)]).float()
    grad_x = torch.empty_like(x).copy_(found)
    return grad_x, None if residual is None else torch.empty_like(x).copy_(moved), rows


def _forward(
    x: Tensor,
    residual: Tensor | None,
    norm: BatchNorm,
    coefficients: tuple[Tensor, ...],
    settings: Settings,
) -> tuple[Tensor, Tensor]:
    if not fits(x, norm, coefficients):
        return _plain_forward(x, residual, norm, coefficients, settings)
    y, saved = _triton_normed.forward(x, residual, norm, coefficients, settings, False)
    assert saved is not None
    return y, saved


def _backward(
    grad: Tensor, saved: Tensor, x: Tensor, residual: Tensor | None, settings: Settings
) -> tuple[Tensor, Tensor | None, Tensor]:
    if _triton.fits(x, (saved,)) and x.dtype != torch.float64:
        return _triton_normed.backward(grad, saved, x, residual, settings)
    return _plain_backward(grad, saved, x, residual, settings)


def _value(
    x: Tensor,
    residual: Tensor | None,
    norm: BatchNorm,
    coefficients: tuple[Tensor, ...],
    settings: Settings,
) -> Tensor:
    if fits(x, norm, coefficients):
        return _triton_normed.forward(x, residual, norm, coefficients, settings, True)[0]
    z = functional.batch_norm(
        x, norm.mean, norm.var, norm.weight.to(x.dtype), norm.bias.to(x.dtype), eps=norm.eps
    )
    return _ops._forward(z if residual is None else z + residual, coefficients, settings, False)[0]


def differentiable(
    x: Tensor,
    residual: Tensor | None,
    norm: BatchNorm,
    coefficients: tuple[Tensor, ...],
    settings: Settings,
) -> Tensor:
    """The same in training by what PyTorch can differentiate to any order."""
    z = functional.batch_norm(x, None, None, norm.weight, norm.bias, True, 0.0, norm.eps)
    return _ops._reference(z if residual is None else z + residual, coefficients, settings)


def _run_value(x: Tensor, residual: Tensor | None, *rest: Any) -> Tensor:
    return _value(x, residual, BatchNorm(*rest[:7]), rest[7:12], unpacked(rest[12]))


def _run_forward(x: Tensor, residual: Tensor | None, *rest: Any) -> tuple[Tensor, Tensor]:
    return _forward(x, residual, BatchNorm(*rest[:7]), rest[7:12], unpacked(rest[12]))


def _run_backward(
    grad: Tensor, saved: Tensor, x: Tensor, residual: Tensor | None, settings: str
) -> tuple[Tensor, Tensor, Tensor]:
    grad_x, grad_r, grads = _backward(grad, saved, x, residual, unpacked(settings))
    return grad_x, x.new_empty(0) if grad_r is None else grad_r, grads


_ALL = f"Tensor x, Tensor? residual, {_NORM}, {_NUMBERS}, {_UNITS}"
_FROZEN = _ALL.replace("(a!)", "").replace("(b!)", "").replace("(c!)", "")
value_op = _ops.define("norm_value", _FROZEN, "Tensor", _run_value)
forward_op = _ops.define("norm_forward", _ALL, "Tensor, Tensor", _run_forward)
backward_op = _ops.define(
    "norm_backward",
    "Tensor grad, Tensor saved, Tensor x, Tensor? residual",
    "Tensor, Tensor, Tensor",
    _run_backward,
)


@_ops.fake("norm_value")
def _value_fake(x: Tensor, *rest: Any) -> Tensor:
    return torch.empty_like(x)


@_ops.fake("norm_forward")
def _forward_fake(x: Tensor, residual: Tensor | None, weight: Tensor, *rest: Any) -> Any:
    room = _triton.NORM_FORM * weight.shape[0]
    return torch.empty_like(x), x.new_empty(room, dtype=torch.float64)


@_ops.fake("norm_backward")
def _backward_fake(
    grad: Tensor, saved: Tensor, x: Tensor, residual: Tensor | None, *rest: Any
) -> Any:
    grads = x.new_empty((_GRADS, saved.shape[0] // _triton.NORM_FORM), dtype=torch.float32)
    return torch.empty_like(x), x.new_empty(0) if residual is None else torch.empty_like(x), grads


class _InTraining(torch.autograd.Function):
    """By the operators where ``operators`` says so, else by what they call."""

    @staticmethod
    def forward(
        ctx: Any,
        operators: bool,
        settings: Settings,
        statistics: tuple[Any, ...],
        x: Tensor,
        residual: Tensor | None,
        *parameters: Tensor,
    ) -> Tensor:
        weight, bias, *coefficients = parameters
        norm = BatchNorm(weight, bias, *statistics)
        ctx.operators, ctx.settings, ctx.eps = operators, settings, norm.eps
        if operators:
            y, saved = forward_op(x, residual, *norm, *coefficients, settings.packed())
            ctx.save_for_backward(x, residual, saved)
        else:
            y, ctx.saved = _forward(x, residual, norm, tuple(coefficients), settings)
            ctx.save_for_backward(x, residual)
        # Wanted only for gradients of gradients, which the compiler does not take.
        ctx.parameters = None if torch.compiler.is_compiling() else parameters
        return y

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, residual, *saved = ctx.saved_tensors
        # Not is_compiling(): a GPU's gradients are taken in a thread that does not know.
        if ctx.operators and (ctx.parameters is None or not torch.is_grad_enabled()):
            found = _rows(*backward_op(grad, *saved, x, residual, ctx.settings.packed()))
        else:
            (kept,) = saved or (ctx.saved,)
            given = (grad, kept, x, residual, *ctx.parameters, ctx.eps, ctx.settings)
            found = _eager_backward(*given)
        return None, None, None, found[0], None if residual is None else found[1], *found[2:]


def _rows(grad_x: Tensor, grad_r: Tensor | None, grads: Tensor) -> tuple[Tensor | None, ...]:
    return grad_x, grad_r, *grads.unbind()


def _eager_backward(
    grad: Tensor, saved: Tensor, x: Tensor, residual: Tensor | None, *rest: Any
) -> tuple[Tensor | None, ...]:
    """Of x, residual, weight, bias and coefficients.

    ``rest`` is these from weight on, eps and settings.
    """
    weight, bias, *coefficients, eps, settings = rest
    if not torch.is_grad_enabled() and _ops._has_memory(grad):
        return _rows(*_backward(grad, saved, x, residual, settings))
    inputs = (x, residual, weight, bias, *coefficients)
    wanted = [p for p in inputs if p is not None and p.requires_grad]
    norm = BatchNorm(weight, bias, None, None, None, 0.0, eps)
    with torch.enable_grad():
        y = differentiable(x, residual, norm, tuple(coefficients), settings)
    again = torch.is_grad_enabled()
    options = {"create_graph": again, "allow_unused": True, "materialize_grads": True}
    found = iter(torch.autograd.grad(y, wanted, grad, **options))
    return tuple(next(found) if p is not None and p.requires_grad else None for p in inputs)


_launcher.connect_norm(_eager_backward, _triton.NORM_FORM)


def _in_training(
    operators: bool,
    x: Tensor,
    residual: Tensor | None,
    norm: BatchNorm,
    coefficients: tuple[Tensor, ...],
    settings: Settings,
) -> Tensor:
    y: Tensor = _InTraining.apply(
        operators, settings, norm[2:], x, residual, norm.weight, norm.bias, *coefficients
    )
    return y


def _run_unit(x: Tensor, residual: Tensor | None, *rest: Any) -> Tensor:
    norm, coefficients = BatchNorm(*rest[:7]), rest[7:12]
    frozen, settings = rest[12], Settings(*rest[13:])
    y: Tensor
    if not frozen and torch.is_grad_enabled():
        return _in_training(True, x, residual, norm, coefficients, settings)
    given = (x, residual, *norm, *coefficients, settings.packed())
    if frozen:
        y = value_op(*given)
    else:
        y, _ = forward_op(*given)
    return y


unit_op = _ops.define(
    "norm_unit", f"{_ALL}, bool frozen", "Tensor", _run_unit, "CompositeImplicitAutograd"
)


def apply(
    x: Tensor,
    residual: Tensor | None,
    norm: BatchNorm,
    coefficients: tuple[Tensor, ...],
    settings: Settings,
    frozen: bool,
) -> Tensor | None:
    """The unit of batch norm's result, and of the residual added to it.

    None if there is no kernel for it here.
    """
    y: Tensor
    if torch.compiler.is_compiling():
        if not fits(x, norm, coefficients):
            return None
        y = unit_op(x, residual, *norm, *coefficients, frozen, *settings)
        return y
    launch = _launcher.call_norm
    if launch is not None and forward_ad._current_level < 0:
        found = launch(x, residual, norm, coefficients, settings, frozen)
        if found is not None:
            return found
    if not fits(x, norm, coefficients) or _ops.is_transformed():
        return None
    if _ops.is_not_plain(x):
        y = unit_op(x, residual, *norm, *coefficients, frozen, *settings)
    elif frozen:
        y = _value(x, residual, norm, coefficients, settings)
    elif torch.is_grad_enabled():
        y = _in_training(False, x, residual, norm, coefficients, settings)
    else:
        y, _ = _forward(x, residual, norm, coefficients, settings)
    return y
