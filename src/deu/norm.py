"""Batch norm and a unit as one layer."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from . import _norm_ops
from ._triton_normed import BatchNorm
from .modules import DEU

# Of which norms, and of inputs of how many dimensions.
ONE = {nn.BatchNorm1d: (2, 3), nn.BatchNorm2d: (4,), nn.BatchNorm3d: (5,)}


class NormDEU(nn.Module):
    r"""Batch norm and a layer of units after it, in fewer passes over memory than the two take.

    .. math:: y = \mathrm{unit}(\mathrm{norm}(x) + r)

    In value and gradients this is ``unit(norm(input) + residual)``, and on a CPU it is computed so.
    On a GPU both are one: a training step moves about two thirds of what two layers move through
    memory, and keeps ``input`` (and ``residual``) for backward, no more.  There too they are two
    where one would not be the same: for the paper's solution; a unit that all features share; batch
    norm that is synchronised, without parameters or ``momentum``, or in evaluation while gradients
    are taken; layers that have hooks; inputs in float64 and parameters that are not in float32;
    and under ``torch.func``, forward-mode differentiation and tracing.

    Args:
        norm: a ``BatchNorm1d``, ``2d`` or ``3d``.
        unit: a :class:`DEU` of as many features, along dimension 1.

    Both stay what they are, as ``.norm`` and ``.unit``.

    Example:
        >>> layer = NormDEU(nn.BatchNorm2d(16), DEU(16))
        >>> x = torch.randn(8, 16, 32, 32)
        >>> torch.equal(layer(x, residual=x), layer.unit(layer.norm.train()(x) + x))
        True
    """

    norm: _BatchNorm
    unit: DEU

    def __init__(self, norm: _BatchNorm, unit: DEU) -> None:
        super().__init__()
        if not isinstance(norm, _BatchNorm):
            raise TypeError(
                f"norm must be a batch norm, such as nn.BatchNorm2d; got {type(norm).__name__}"
            )
        if not isinstance(unit, DEU):
            raise TypeError(f"unit must be a deu.DEU; got {type(unit).__name__}")
        known = norm.num_features and unit.num_features  # of lazy ones not yet
        if known and unit.num_features not in (1, norm.num_features):
            raise ValueError(
                f"norm and unit must have the same number of features; "
                f"got {norm.num_features} and {unit.num_features}"
            )
        self.norm = norm
        self.unit = unit

    def forward(self, input: Tensor, residual: Tensor | None = None) -> Tensor:
        # From where Module keeps them: attribute look-up takes longer than all the rest.
        norm: Any = self._modules["norm"]
        unit: Any = self._modules["unit"]
        if _may_be_one(norm, unit, input, residual):
            y = _norm_ops.apply(
                input,
                residual,
                _batch_norm(norm),
                unit.coefficients(),
                unit.settings(),
                not norm.training and norm._buffers["running_mean"] is not None,
            )
            if y is not None:
                return y
        y = norm(input)
        y = unit(y if residual is None else y + residual)
        return y


def _may_be_one(norm: Any, unit: Any, input: Tensor, residual: Tensor | None) -> bool:
    """Whether the kernels do the same, as far as the layers go; errors are left to these."""
    n, dimensions = norm.num_features, input.ndim
    return (
        type(unit) is DEU
        and unit.solution == "continuous"
        and dimensions in ONE.get(type(norm), ())
        and unit.dim in (1, 1 - dimensions)
        and input.shape[1] == n == unit.num_features
        and norm._parameters["weight"] is not None
        and norm._parameters["bias"] is not None
        and norm.momentum is not None
        and (norm._buffers["num_batches_tracked"] is not None or not norm.track_running_stats)
        # What is frozen has no backward here; and of one value there is no deviation.
        and (input.numel() > n if norm.training else not torch.is_grad_enabled())
        and (residual is None or is_like(residual, input))
        and not (norm._forward_hooks or norm._forward_pre_hooks)
        and not (norm._backward_hooks or norm._backward_pre_hooks)
        and not (unit._forward_hooks or unit._forward_pre_hooks)
        and not (unit._backward_hooks or unit._backward_pre_hooks)
    )


def _batch_norm(norm: Any) -> BatchNorm:
    p, buffers = norm._parameters, norm._buffers
    mean, var, batches = None, None, None
    if not norm.training or norm.track_running_stats:
        mean, var = buffers["running_mean"], buffers["running_var"]
    if norm.training and norm.track_running_stats:
        batches = buffers["num_batches_tracked"]
    return BatchNorm(p["weight"], p["bias"], mean, var, batches, norm.momentum, norm.eps)


def is_like(x: Tensor, other: Tensor) -> bool:
    return x.shape == other.shape and x.dtype is other.dtype and x.device == other.device
