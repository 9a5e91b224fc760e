"""What is timed in a layer: PyTorch's activations, a copy, the reference, units, peers."""

from __future__ import annotations

import copy
import importlib
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from .. import reference
from ..experiments.activations import Snake
from ..modules import DEU
from ..norm import NormDEU

# One unit of each of the ten subspaces, which a layer may have alone.
ALONE = {
    "deu 001": (0, 0, 0.7),
    "deu 010": (0, 0.8, 0),
    "deu 011": (0, 0.8, 0.6),
    "deu 100": (1.3, 0, 0),
    "deu 101": (0.5, 0, 0.9),
    "deu 101, ac < 0": (0.5, 0, -0.9),
    "deu 110": (0.7, 0.9, 0),
    "deu oscillating": (0.7, 0.3, 0.9),
    "deu critical": (1.0, 2.0, 1.001),
    "deu overdamped": (0.4, 1.3, 0.5),
}
TEN = tuple(ALONE.values())
# The second's a is pulled outward, as of seven of the ten.
OSCILLATING, PULLED = ALONE["deu oscillating"], ALONE["deu 011"]


# What training made of the default start, least and most over 1,584 units of an MLP and a CNN on
# Fashion-MNIST: c goes through zero, so one of the two roots is slow and of either sign.
TRAINED = {
    "a": (0.09, 0.19),
    "b": (0.82, 0.91),
    "c": (-0.04, 0.10),
    "c1": (-0.22, -0.06),
    "c2": (-0.08, 0.08),
}


class Copy(nn.Module):
    """A plain copy into memory of the same size: the least that any activation can take."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.empty_like(x).copy_(x)


class Reference(nn.Module):
    """A layer's units by :func:`deu.reference.deu`, in plain PyTorch."""

    def __init__(self, layer: DEU) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        layer = self.layer
        return reference.deu(
            x,
            *layer.coefficients(),
            dim=layer.dim,
            solution=layer.solution,
            eps=layer.eps,
            sharpness=layer.sharpness,
            max_exponent=layer.max_exponent,
            bound=layer.bound,
            max_grad_norm=layer.max_grad_norm,
            training=layer.training,
        )


class NotThereError(Exception):
    """A peer that is not installed, or that does not work here; the message says why."""


def units(features: int, dim: int, rows: tuple[tuple[float, float, float], ...]) -> DEU:
    """A layer in the paper's solution, whose units take the given (a, b, c) in turn."""
    layer = DEU(features, dim=dim, solution="paper")
    with torch.no_grad():
        for i in range(features):
            layer.a[i], layer.b[i], layer.c[i] = rows[i % len(rows)]
        layer.c1.uniform_(-0.5, 0.5)
        layer.c2.uniform_(-0.5, 0.5)
    return layer


def _import(module: str, package: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise NotThereError(f"not installed: {package} ({error})") from error


class _Rational(nn.Module):
    """rational-activations: one rational function of degrees 5 and 4 for the whole layer.

    Its version B in plain PyTorch: its CUDA kernels are built for PyTorch 1.7 only, and its own
    module takes no other type than float32.
    """

    def __init__(self) -> None:
        super().__init__()
        package = _import("rational.torch", "rational-activations")
        made = package.Rational(cuda=False, version="B")
        self.function = made.activation_function
        self.numerator = nn.Parameter(made.numerator.detach().clone())
        self.denominator = nn.Parameter(made.denominator.detach().clone())

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.function(x, self.numerator, self.denominator, self.training)
        return y


class _Kan(nn.Module):
    """pykan's layer: a spline on each of the features × features edges."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.layer = _import("kan.KANLayer", "pykan").KANLayer(features, features)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.layer(x)[0]
        return y


def _alone(row: tuple[float, float, float]) -> Callable[[int, int], nn.Module]:
    return lambda features, dim: units(features, dim, (row,))


def _trained(features: int, dim: int) -> DEU:
    layer = DEU(features, dim=dim)
    with torch.no_grad():
        for name, (low, high) in TRAINED.items():
            layer.get_parameter(name).uniform_(low, high)
    return layer


def _prelu(features: int, dim: int) -> nn.Module:
    # PReLU knows features along dimension 1 only; elsewhere it is one number for all.
    return nn.PReLU(features if dim == 1 else 1)


def _dense(features: int, activation: nn.Module) -> nn.Module:
    return nn.Sequential(nn.Linear(features, features), activation)


# From the number of features and the dimension that they lie along.  "deu" is a layer as it is by
# default, with the name of another start after it one that starts so; "deu paper" has the paper's
# solution and start, and layers of subspaces have its solution.
PROVIDERS: dict[str, Callable[[int, int], nn.Module]] = {
    "copy": lambda features, dim: Copy(),
    "ReLU": lambda features, dim: nn.ReLU(),
    "GELU": lambda features, dim: nn.GELU(),
    "SiLU": lambda features, dim: nn.SiLU(),
    "PReLU": _prelu,
    "Snake": lambda features, dim: Snake(features, dim=dim),
    "rational": lambda features, dim: _Rational(),
    "deu": lambda features, dim: DEU(features, dim=dim),
    "deu trained": _trained,
    "deu waves": lambda features, dim: DEU(features, dim=dim, init="waves"),
    "deu spread": lambda features, dim: DEU(features, dim=dim, init="spread"),
    "deu random": lambda features, dim: DEU(features, dim=dim, init="random"),
    "deu relu": lambda features, dim: DEU(features, dim=dim, init="relu"),
    "deu paper": lambda features, dim: DEU(features, dim=dim, init="random", solution="paper"),
    "deu one subspace": _alone(OSCILLATING),
    "deu pulled subspace": _alone(PULLED),
    **{name: _alone(row) for name, row in ALONE.items()},
    "deu ten subspaces": lambda features, dim: units(features, dim, TEN),
    "reference": lambda features, dim: Reference(DEU(features, dim=dim)),
    "reference compiled": lambda features, dim: compiled(Reference(DEU(features, dim=dim))),
    "Linear + GELU": lambda features, dim: _dense(features, nn.GELU()),
    "Linear + deu": lambda features, dim: _dense(features, DEU(features, dim=dim)),
    "KAN layer": lambda features, dim: _Kan(features),
    "BatchNorm + ReLU": lambda features, dim: nn.Sequential(nn.BatchNorm2d(features), nn.ReLU()),
    "BatchNorm + deu": lambda features, dim: nn.Sequential(nn.BatchNorm2d(features), DEU(features)),
    "NormDEU": lambda features, dim: NormDEU(nn.BatchNorm2d(features), DEU(features)),
}


def is_ours(name: str) -> bool:
    """Whether a provider is the thing that this project makes, by its name."""
    return name == "deu" or name.startswith(("deu ", "NormDEU")) or name.endswith("+ deu")


def compiled(module: nn.Module) -> nn.Module:
    """The module under torch.compile, for one shape."""
    made = torch.compile(module, dynamic=False)
    assert isinstance(made, nn.Module)
    return made


def make(name: str, features: int, dim: int, device: torch.device, dtype: torch.dtype) -> nn.Module:
    """A provider, in training mode.

    Units and batch norm keep float32, as under autocast; others take dtype.
    """
    module = PROVIDERS[name](features, dim).to(device)
    if not any(isinstance(part, (DEU, _BatchNorm)) for part in module.modules()):
        module = module.to(dtype=dtype) if list(module.parameters()) else module
    return module.train()


def exact(module: nn.Module) -> nn.Module:
    """The same function in float64, with its units by the reference."""
    plain = getattr(module, "_orig_mod", module)
    return by_reference(copy.deepcopy(plain).double())


def by_reference(module: nn.Module) -> nn.Module:
    """The module itself, with :class:`Reference` in the place of every layer of units."""
    if isinstance(module, DEU):
        return Reference(module)
    if not isinstance(module, Reference):
        for name, child in module.named_children():
            setattr(module, name, by_reference(child))
    return module
