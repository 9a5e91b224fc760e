"""A model for inference: each layer of units, and batch norm before it, as one tensor."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn

from . import _packed_ops
from ._packed import COEFFICIENTS, packed, rows_of
from ._settings import Settings
from .functional import check_features
from .modules import DEU
from .norm import ONE, NormDEU, is_like

_SAME = ("num_features", "dim", "solution", "eps", "sharpness", "max_exponent", "bound")


def for_inference(model: nn.Module) -> nn.Module:
    """A copy of a model in evaluation mode, whose units are quicker to call and learn no more.

    In the copy each :class:`DEU` is a :class:`PackedDEU` and each :class:`NormDEU` a
    :class:`PackedNormDEU`: the same function of one tensor, in which normal forms are ready,
    instead of five parameters, or nine tensors with batch norm.  On a GPU a call then takes less of
    the host's time, most of all under ``torch.compile``, and its kernel less time to begin.

    Some layers stay as they are: those with hooks, subclasses of these, lazy ones that have had no
    input yet, and batch norm without parameters or running statistics or with a unit that all
    features share.  Gradients of the input can still be taken.

    Args:
        model: any module; it is left as it was.

    Returns:
        The copy.  What was compiled is not in it: compile the copy.

    Example:
        >>> import torch
        >>> model = nn.Sequential(nn.Conv2d(3, 8, 3), NormDEU(nn.BatchNorm2d(8), DEU(8)))
        >>> quick = for_inference(model)
        >>> sum(p.numel() for p in quick[1].parameters())
        0
        >>> x = torch.randn(2, 3, 8, 8)
        >>> torch.allclose(quick(x), model.eval()(x), atol=1e-5)
        True
    """
    return _replaced(copy.deepcopy(model).eval(), {})


def _replaced(module: nn.Module, done: dict[nn.Module, nn.Module]) -> nn.Module:
    module = getattr(module, "_orig_mod", module)  # that of torch.compile
    if module not in done:
        done[module] = module
        if type(module) is DEU and not _has_hooks(module):
            done[module] = PackedDEU(module)
        elif type(module) is NormDEU and _can_be_one(module):
            done[module] = PackedNormDEU(module)
        elif not isinstance(module, NormDEU):
            for name, child in list(module._modules.items()):  # which may be one twice
                if child is not None:
                    module._modules[name] = _replaced(child, done)
    return done[module]


def _can_be_one(layer: NormDEU) -> bool:
    norm, unit = layer.norm, layer.unit
    dimensions = ONE.get(type(norm), ())
    return (
        type(unit) is DEU
        and unit.num_features == norm.num_features
        and dimensions != ()
        and all(unit.dim in (1, 1 - n) for n in dimensions)
        and norm.weight is not None
        and norm.bias is not None
        and norm.running_mean is not None
        and not any(map(_has_hooks, layer.modules()))
    )


def _has_hooks(module: nn.Module) -> bool:
    hooks = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    return any(getattr(module, name) for name in hooks)


def _row(i: int) -> Any:
    return property(lambda self: self.coefficients()[i])


class PackedDEU(DEU):
    """A :class:`DEU` that learns no more, as :func:`for_inference` makes it.

    It has a buffer, ``packed``, in the place of five parameters; copies of these can be read.
    """

    packed: Tensor
    a, b, c, c1, c2 = map(_row, range(5))

    def __init__(self, unit: DEU, norm: nn.Module | None = None) -> None:
        nn.Module.__init__(self)
        for name in (*_SAME, "max_grad_norm", "_init"):
            setattr(self, name, getattr(unit, name))
        self.training = unit.training
        self._settings = super().settings()._replace(training=False)
        numbers = packed(unit.coefficients(), unit.solution, unit.eps, _frozen(norm))
        self.register_buffer("packed", numbers)

    def coefficients(self) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        a, b, c, c1, c2 = rows_of(self.packed, COEFFICIENTS).clone().unbind()
        return a, b, c, c1, c2

    def reset_parameters(self) -> None:
        raise RuntimeError(
            "units that are packed for inference cannot start again; "
            "reset the model that for_inference was given, and call it again"
        )

    def settings(self) -> Settings:
        return self._settings  # made once: it takes as long as a small layer

    def forward(self, input: Tensor) -> Tensor:
        check_features(input, self.num_features, self.dim)
        return _packed_ops.apply(input, None, self.packed, False, self.settings())


def _frozen(norm: Any) -> tuple[Tensor, Tensor, Tensor] | None:
    """Batch norm by its running statistics: mean, scale and shift."""
    if norm is None:
        return None
    given = (norm.running_mean, norm.running_var, norm.weight, norm.bias)
    mean, var, weight, bias = (p.detach().to("cpu", torch.float64) for p in given)
    return mean, weight * (var + norm.eps).rsqrt(), bias


class PackedNormDEU(NormDEU):
    """A :class:`NormDEU` that learns no more, as :func:`for_inference` makes it.

    Its ``unit`` is a :class:`PackedDEU` whose tensor has batch norm's numbers too, so that there is
    no ``norm``.
    """

    unit: PackedDEU

    def __init__(self, layer: NormDEU) -> None:
        nn.Module.__init__(self)
        if not _can_be_one(layer):
            raise ValueError(f"batch norm and unit cannot be packed into one; got {layer}")
        self.dimensions = ONE[type(layer.norm)]
        self.unit = PackedDEU(layer.unit, layer.norm)
        self._settings = self.unit.settings()._replace(dim=1)
        self.training = layer.training

    def forward(self, input: Tensor, residual: Tensor | None = None) -> Tensor:
        unit = self.unit
        if input.ndim not in self.dimensions:
            wanted = " or ".join(f"{n}D" for n in self.dimensions)
            raise ValueError(f"expected {wanted} input (got {input.ndim}D input)")
        check_features(input, unit.num_features, 1, shared=False)
        call = _packed_ops.apply
        if residual is not None and not is_like(residual, input):
            call = _packed_ops.plain
        return call(input, residual, unit.packed, True, self._settings)
