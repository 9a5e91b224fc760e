"""Activations as factories, from a number of features to a module, for the networks beside.

A module that takes more features than it returns, as :class:`Maxout` does, says how many for each
in an attribute ``pieces``; a network sizes the layer before it by :func:`fan`.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from ..modules import DEU

Factory = Callable[[int], nn.Module]


def fan(activation: nn.Module) -> int:
    """How many features an activation takes for each that it returns: its ``pieces``, or 1.

    Example:
        >>> fan(Maxout(8)), fan(nn.ReLU())
        (2, 1)
    """
    return getattr(activation, "pieces", 1)


def _along(parameter: Tensor, x: Tensor, dim: int) -> Tensor:
    """A parameter of one number a feature, or one for all, in a shape that broadcasts with x."""
    shape = [1] * x.ndim
    if parameter.numel() > 1:
        shape[dim] = parameter.numel()
    return parameter.reshape(shape)


class Snake(nn.Module):
    r"""Snake, with an α of its own for each feature.

    .. math:: y = x + \frac{\sin^2(\alpha x)}{\alpha}

    Takes and returns a tensor of any shape that has ``num_features`` along ``dim``.

    Args:
        num_features: how many α; 1 is shared by the whole input.
        dim: the dimension that the features lie along.

    Attributes:
        alpha: the parameter of shape ``(num_features,)``, which starts at 1.

    Example:
        >>> Snake(2)(torch.tensor([[0.0, 1.0]])).round(decimals=4).tolist()[0][0]
        0.0
    """

    def __init__(self, num_features: int = 1, *, dim: int = 1) -> None:
        super().__init__()
        self.num_features = num_features
        self.dim = dim
        self.alpha = nn.Parameter(torch.ones(num_features))

    def forward(self, x: Tensor) -> Tensor:
        alpha = _along(self.alpha, x, self.dim)
        return x + torch.sin(alpha * x).square() / alpha

    def extra_repr(self) -> str:
        return f"{self.num_features}, dim={self.dim}"


class SwishBeta(nn.Module):
    r"""Swish, with a β of its own for each feature.

    .. math:: y = x\,\sigma(\beta x)

    Takes and returns a tensor of any shape that has ``num_features`` along ``dim``.

    Args:
        num_features: how many β; 1 is shared by the whole input.
        dim: the dimension that the features lie along.

    Attributes:
        beta: the parameter of shape ``(num_features,)``, which starts at 1.

    Example:
        >>> SwishBeta(2)(torch.tensor([[0.0, 20.0]])).tolist()
        [[0.0, 20.0]]
    """

    def __init__(self, num_features: int = 1, *, dim: int = 1) -> None:
        super().__init__()
        self.num_features = num_features
        self.dim = dim
        self.beta = nn.Parameter(torch.ones(num_features))

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.sigmoid(_along(self.beta, x, self.dim) * x)

    def extra_repr(self) -> str:
        return f"{self.num_features}, dim={self.dim}"


class Maxout(nn.Module):
    r"""The largest of each feature's pieces, which the affine layer before it computes.

    .. math:: y_i = \max_{0 \le j < k} x_{ki + j}

    Takes a tensor with ``pieces * num_features`` along ``dim``, the pieces of a feature side by
    side, and returns one with ``num_features`` there.

    Args:
        num_features: how many features come out.
        pieces: k, how many go in for each.
        dim: the dimension that the features lie along.

    Example:
        >>> Maxout(2)(torch.tensor([[1.0, 4.0, 3.0, 2.0]]))
        tensor([[4., 3.]])
    """

    def __init__(self, num_features: int, pieces: int = 2, *, dim: int = 1) -> None:
        super().__init__()
        self.num_features = num_features
        self.pieces = pieces
        self.dim = dim

    def forward(self, x: Tensor) -> Tensor:
        if x.shape[self.dim] != self.pieces * self.num_features:
            raise ValueError(
                f"Maxout({self.num_features}, pieces={self.pieces}) takes "
                f"{self.pieces * self.num_features} features along dim={self.dim}; "
                f"got shape {tuple(x.shape)}. Size the layer before it by fan(activation)"
            )
        pieces = x.unflatten(self.dim, (self.num_features, self.pieces))
        return pieces.amax(self.dim + 1 if self.dim >= 0 else self.dim)

    def extra_repr(self) -> str:
        return f"{self.num_features}, pieces={self.pieces}, dim={self.dim}"


class Sine(nn.Module):
    r"""A sine, as in SIREN (Sitzmann et al., 2020).

    .. math:: y = \sin(\omega_0 x)

    Takes and returns a tensor of any shape. The layers around it should start as
    :func:`siren_start_` makes them, with the same ω₀: PyTorch's own start is far too wide for it.

    Args:
        omega: ω₀.

    Example:
        >>> Sine(math.pi)(torch.tensor([0.5]))
        tensor([1.])
    """

    def __init__(self, omega: float = 30.0) -> None:
        super().__init__()
        self.omega = omega

    def forward(self, x: Tensor) -> Tensor:
        return torch.sin(self.omega * x)

    def extra_repr(self) -> str:
        return f"{self.omega:g}"


@torch.no_grad()
def siren_start_(linear: nn.Linear, first: bool, omega: float = 30.0) -> None:
    r"""Start a layer's weights as SIREN does; its bias stays as it is, as in its authors' code.

    .. math:: w \sim U\left(-\tfrac1n, \tfrac1n\right) \text{ in the first layer, else }
              w \sim U\left(-\tfrac{\sqrt{6/n}}{\omega_0}, \tfrac{\sqrt{6/n}}{\omega_0}\right)

    Args:
        linear: the layer, of n inputs.
        first: whether it is the network's first.
        omega: ω₀ of the :class:`Sine` that follows it; for the last layer, of the one before.

    Example:
        >>> layer = nn.Linear(4, 100)
        >>> siren_start_(layer, first=True)
        >>> layer.weight.abs().max().item() <= 1 / 4
        True
    """
    n = linear.in_features
    bound = 1 / n if first else math.sqrt(6 / n) / omega
    linear.weight.uniform_(-bound, bound)


FACTORIES: dict[str, Factory] = {
    "ReLU": lambda features: nn.ReLU(),
    "LeakyReLU": lambda features: nn.LeakyReLU(),
    "ELU": lambda features: nn.ELU(),
    "SELU": lambda features: nn.SELU(),
    "GELU": lambda features: nn.GELU(),
    "SiLU": lambda features: nn.SiLU(),
    "PReLU": lambda features: nn.PReLU(features),
    "Swish": lambda features: SwishBeta(features),
    "Snake": lambda features: Snake(features),
    "Maxout": lambda features: Maxout(features),
    "Sine": lambda features: Sine(),
    "deu": lambda features: DEU(features),
    "deu waves": lambda features: DEU(features, init="waves"),
    "deu spread": lambda features: DEU(features, init="spread"),
    "deu random": lambda features: DEU(features, init="random"),
    "deu paper": lambda features: DEU(features, init="random", solution="paper"),
    "deu authors": lambda features: DEU(
        features,
        init="random",
        solution="paper",
        max_exponent=14,
        bound=1000,
        max_grad_norm=None,
    ),
}
