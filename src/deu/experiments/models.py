"""The paper's networks, each with whatever activation it is given.

``activation`` is a factory: it is called with a number of features and returns the module that
activates them, features along dimension 1.
"""

from __future__ import annotations

from torch import Tensor, nn

from .activations import Factory


def mlp(activation: Factory, *, inputs: int = 784, classes: int = 10) -> nn.Sequential:
    """784 → 1024 → 512 → 10; takes images too, and flattens them.

    Example:
        >>> import torch
        >>> mlp(lambda features: nn.ReLU())(torch.randn(2, 1, 28, 28)).shape
        torch.Size([2, 10])
    """
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(inputs, 1024),
        activation(1024),
        nn.Linear(1024, 512),
        activation(512),
        nn.Linear(512, classes),
    )


def cnn(activation: Factory, *, classes: int = 10) -> nn.Sequential:
    """Two 5×5 convolutions of 32 and 16, average pools, one linear layer; takes (n, 1, 28, 28).

    Example:
        >>> import torch
        >>> cnn(lambda features: nn.ReLU())(torch.randn(2, 1, 28, 28)).shape
        torch.Size([2, 10])
    """
    return nn.Sequential(
        nn.Conv2d(1, 32, 5, padding=2),
        activation(32),
        nn.AvgPool2d(2),
        nn.Conv2d(32, 16, 5, padding=2),
        activation(16),
        nn.AvgPool2d(2),
        nn.Flatten(),
        nn.Linear(16 * 7 * 7, classes),
    )


class BasicBlock(nn.Module):
    """Two 3×3 convolutions with batch norm, added to their input."""

    def __init__(self, inputs: int, outputs: int, stride: int, activation: Factory) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(outputs)
        self.activation1 = activation(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(outputs)
        self.activation2 = activation(outputs)
        self.shortcut = nn.Sequential()
        if stride != 1 or inputs != outputs:
            self.shortcut.append(nn.Conv2d(inputs, outputs, 1, stride, bias=False))
            self.shortcut.append(nn.BatchNorm2d(outputs))

    def forward(self, x: Tensor) -> Tensor:
        y = self.activation1(self.norm1(self.conv1(x)))
        return self.activation2(self.norm2(self.conv2(y)) + self.shortcut(x))


def resnet18(activation: Factory, classes: int = 10) -> nn.Sequential:
    """ResNet-18 in its CIFAR form: a 3×3 stem, no max-pool, 17 activations; takes (n, 3, h, w).

    Example:
        >>> import torch
        >>> resnet18(lambda features: nn.ReLU())(torch.randn(2, 3, 32, 32)).shape
        torch.Size([2, 10])
    """
    blocks: list[nn.Module] = []
    width = 64
    for outputs, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
        blocks.append(BasicBlock(width, outputs, stride, activation))
        blocks.append(BasicBlock(outputs, outputs, 1, activation))
        width = outputs
    return nn.Sequential(
        nn.Conv2d(3, 64, 3, 1, 1, bias=False),
        nn.BatchNorm2d(64),
        activation(64),
        *blocks,
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(width, classes),
    )
