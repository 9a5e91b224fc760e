"""Batch norm and a unit as one layer."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from . import _norm_ops, _ops
from ._triton_normed import BatchNorm
from .modules import DEU

# Of which norms, and of inputs of how many dimensions.
_ONE = {nn.BatchNorm1d: (2, 3), nn.BatchNorm2d: (4,), nn.BatchNorm3d: (5,)}


def _has_hooks(module: nn.Module) -> bool:
    return bool(
        module._forward_hooks
        or module._forward_pre_hooks
        or module._backward_hooks
        or module._backward_pre_hooks
    )


class NormDEU(nn.Module):
    r"""Batch norm and a layer of units after it, in fewer passes over memory than the two take.

    .. math:: y = \mathrm{unit}(\mathrm{norm}(x) + r)

    In value and gradients this is ``unit(norm(input) + residual)``, and on a CPU it is computed so.
    On a GPU both are one: a training step moves about two thirds of what two layers move through
    memory, and keeps ``input`` (and ``residual``) for backward, no more.  There too they are two
    where one would not be the same: for the paper's solution; a unit that all features share; batch
    norm that is synchronised, without parameters or ``momentum``, or in evaluation while gradients
    are taken; and layers that have hooks.

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
        norm, unit = self.norm, self.unit
        if self._may_be_one(input, residual):
            frozen = not norm.training and norm.running_mean is not None
            batch_norm = self._batch_norm(frozen)
            coefficients = unit.coefficients()
            if _norm_ops.fits(input, batch_norm, coefficients):
                settings = unit.settings()
                return _norm_ops.apply(input, residual, batch_norm, coefficients, settings, frozen)
        y = norm(input)
        return unit(y if residual is None else y + residual)

    def _may_be_one(self, input: Tensor, residual: Tensor | None) -> bool:
        """Whether the kernels do the same; errors are left to the two layers."""
        norm, unit = self.norm, self.unit
        n = norm.num_features
        return (
            type(unit) is DEU
            and unit.solution == "continuous"
            and (torch.compiler.is_compiling() or not _ops.is_transformed())
            and input.ndim in _ONE.get(type(norm), ())
            and unit.dim in (1, 1 - input.ndim)
            and input.shape[1] == n == unit.num_features
            and norm.weight is not None
            and norm.bias is not None
            and norm.momentum is not None
            and not (torch.is_grad_enabled() and not norm.training)
            and (not norm.training or input.numel() > n)
            and (residual is None or _is_like(residual, input))
            and not _has_hooks(norm)
            and not _has_hooks(unit)
        )

    def _batch_norm(self, frozen: bool) -> BatchNorm:
        norm = self.norm
        assert norm.momentum is not None
        numbers = norm.momentum, norm.eps
        if not frozen and not (norm.training and norm.track_running_stats):
            return BatchNorm(norm.weight, norm.bias, None, None, None, *numbers)
        statistics = norm.running_mean, norm.running_var, norm.num_batches_tracked
        return BatchNorm(norm.weight, norm.bias, *statistics, *numbers)


def _is_like(x: Tensor, other: Tensor) -> bool:
    return x.shape == other.shape and x.dtype is other.dtype and x.device == other.device
