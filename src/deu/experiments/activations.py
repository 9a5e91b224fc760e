"""Activations as factories, from a number of features to a module, for the networks beside."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from ..modules import DEU

Factory = Callable[[int], nn.Module]


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
        shape = [1] * x.ndim
        if self.num_features > 1:
            shape[self.dim] = self.num_features
        alpha = self.alpha.reshape(shape)
        return x + torch.sin(alpha * x).square() / alpha

    def extra_repr(self) -> str:
        return f"{self.num_features}, dim={self.dim}"


FACTORIES: dict[str, Factory] = {
    "ReLU": lambda features: nn.ReLU(),
    "LeakyReLU": lambda features: nn.LeakyReLU(),
    "ELU": lambda features: nn.ELU(),
    "SELU": lambda features: nn.SELU(),
    "GELU": lambda features: nn.GELU(),
    "SiLU": lambda features: nn.SiLU(),
    "PReLU": lambda features: nn.PReLU(features),
    "Snake": lambda features: Snake(features),
    "deu": lambda features: DEU(features),
    "deu continuous": lambda features: DEU(features, solution="continuous"),
}
