"""The paper's networks, each with whatever activation it is given.

``activation`` is a factory: it is called with a number of features and returns the module that
activates them, features along dimension 1. The layer before a module that takes several features
for each that it returns, as Maxout does, is that much wider. A module is made before its layer,
because it says so. One that brings its own batch norm, a :class:`deu.NormDEU`, gets no other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import Tensor, nn

from ..norm import NormDEU
from .activations import Factory, fan

Start = Callable[[nn.Linear, bool], None]


def count_parameters(model: nn.Module) -> int:
    """How many numbers a network learns.

    Example:
        >>> count_parameters(nn.Linear(3, 2))
        8
    """
    return sum(parameter.numel() for parameter in model.parameters())


def _norm(activation: nn.Module, features: int) -> nn.Module:
    """Batch norm before an activation, unless it brings its own."""
    return nn.Identity() if isinstance(activation, NormDEU) else nn.BatchNorm2d(features)


def hidden(
    activation: Factory, inputs: int, width: int, outputs: int, *, start: Start | None = None
) -> nn.Sequential:
    """One hidden layer: linear, activation, linear; takes (n, inputs).

    ``start`` is called with each linear layer and whether it is the first, to set its weights.

    Example:
        >>> import torch
        >>> hidden(lambda features: nn.ReLU(), 10, 4, 1)(torch.randn(2, 10)).shape
        torch.Size([2, 1])
    """
    act = activation(width)
    first, last = nn.Linear(inputs, fan(act) * width), nn.Linear(width, outputs)
    if start is not None:
        start(first, True)
        start(last, False)
    return nn.Sequential(first, act, last)


def mlp(
    activation: Factory,
    *,
    inputs: int = 784,
    hidden: Sequence[int] = (1024, 512),
    classes: int = 10,
    norm: bool = False,
) -> nn.Sequential:
    """784 → 1024 → 512 → 10; takes images too, and flattens them.

    ``norm`` puts a batch norm before each activation.

    Example:
        >>> import torch
        >>> mlp(lambda features: nn.ReLU())(torch.randn(2, 1, 28, 28)).shape
        torch.Size([2, 10])
    """
    net = nn.Sequential(nn.Flatten())
    for width in hidden:
        act = activation(width)
        net.append(nn.Linear(inputs, fan(act) * width))
        if norm:
            net.append(nn.BatchNorm1d(fan(act) * width))
        net.append(act)
        inputs = width
    return net.append(nn.Linear(inputs, classes))


def cnn(activation: Factory, *, classes: int = 10, norm: bool = False) -> nn.Sequential:
    """Two 5×5 convolutions of 32 and 16, average pools, one linear layer; takes (n, 1, 28, 28).

    ``norm`` puts a batch norm before each activation.

    Example:
        >>> import torch
        >>> cnn(lambda features: nn.ReLU())(torch.randn(2, 1, 28, 28)).shape
        torch.Size([2, 10])
    """
    net, inputs = nn.Sequential(), 1
    for width in (32, 16):
        act = activation(width)
        net.append(nn.Conv2d(inputs, fan(act) * width, 5, padding=2))
        if norm:
            net.append(nn.BatchNorm2d(fan(act) * width))
        net.append(act)
        net.append(nn.AvgPool2d(2))
        inputs = width
    return net.append(nn.Flatten()).append(nn.Linear(inputs * 7 * 7, classes))


class BasicBlock(nn.Module):
    """Two 3×3 convolutions with batch norm, added to their input, then activated.

    The input goes through a 1×1 convolution where its shape is not the sum's: in every block, if
    the activation takes several features for each.
    """

    def __init__(self, inputs: int, outputs: int, stride: int, activation: Factory) -> None:
        super().__init__()
        self.activation1 = activation(outputs)
        self.activation2 = activation(outputs)
        inner, outer = fan(self.activation1) * outputs, fan(self.activation2) * outputs
        self.conv1 = nn.Conv2d(inputs, inner, 3, stride, 1, bias=False)
        self.norm1 = _norm(self.activation1, inner)
        self.conv2 = nn.Conv2d(outputs, outer, 3, 1, 1, bias=False)
        self.norm2 = _norm(self.activation2, outer)
        self.shortcut = nn.Sequential()
        if stride != 1 or inputs != outer:
            self.shortcut.append(nn.Conv2d(inputs, outer, 1, stride, bias=False))
            self.shortcut.append(nn.BatchNorm2d(outer))

    def forward(self, x: Tensor) -> Tensor:
        y = self.conv2(self.activation1(self.norm1(self.conv1(x))))
        if isinstance(self.activation2, NormDEU):
            return self.activation2(y, self.shortcut(x))
        y = self.activation2(self.norm2(y) + self.shortcut(x))
        return y


def resnet18(
    activation: Factory, classes: int = 10, *, widths: Sequence[int] = (64, 128, 256, 512)
) -> nn.Sequential:
    """ResNet-18 in its CIFAR form: a 3×3 stem, no max-pool, 17 activations; takes (n, 3, h, w).

    Two blocks for each of ``widths``; each width after the first halves the image.

    Example:
        >>> import torch
        >>> resnet18(lambda features: nn.ReLU())(torch.randn(2, 3, 32, 32)).shape
        torch.Size([2, 10])
    """
    act, width = activation(widths[0]), widths[0]
    stem = fan(act) * width
    net = nn.Sequential(nn.Conv2d(3, stem, 3, 1, 1, bias=False), _norm(act, stem), act)
    for i, outputs in enumerate(widths):
        net.append(BasicBlock(width, outputs, 2 if i else 1, activation))
        net.append(BasicBlock(outputs, outputs, 1, activation))
        width = outputs
    return net.extend([nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, classes)])


def stunted_resnet18(activation: Factory, classes: int = 10) -> nn.Sequential:
    """ResNet-18 without its filters of 256 and 512: 9 activations; takes (n, 3, h, w).

    Example:
        >>> import torch
        >>> stunted_resnet18(lambda features: nn.ReLU())(torch.randn(2, 3, 32, 32)).shape
        torch.Size([2, 10])
    """
    return resnet18(activation, classes, widths=(64, 128))


class PreactBlock(nn.Module):
    """Batch norm, activation, 3×3 convolution, twice, added to the input.

    Where the shape changes, the input is activated too and goes through a 1×1 convolution. All
    that is added up has ``fan(activation)`` channels a feature, so that shortcuts stay plain.
    """

    def __init__(self, inputs: int, outputs: int, stride: int, activation: Factory) -> None:
        super().__init__()
        self.activation1 = activation(inputs)
        self.activation2 = activation(outputs)
        wide = fan(self.activation2) * outputs
        self.norm1 = _norm(self.activation1, fan(self.activation1) * inputs)
        self.conv1 = nn.Conv2d(inputs, wide, 3, stride, 1, bias=False)
        self.norm2 = _norm(self.activation2, wide)
        self.conv2 = nn.Conv2d(outputs, wide, 3, 1, 1, bias=False)
        self.shortcut: nn.Conv2d | None = None
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Conv2d(inputs, wide, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        y = self.activation1(self.norm1(x))
        shortcut = x if self.shortcut is None else self.shortcut(y)
        return self.conv2(self.activation2(self.norm2(self.conv1(y)))) + shortcut


def preact_resnet18(
    activation: Factory, classes: int = 10, *, widths: Sequence[int] = (64, 128, 256, 512)
) -> nn.Sequential:
    """The pre-activation ResNet-18 (He et al., 2016) in its CIFAR form; takes (n, 3, h, w).

    A 3×3 stem, two blocks for each of ``widths``, a last batch norm and activation: 17 activations.

    Example:
        >>> import torch
        >>> preact_resnet18(lambda features: nn.ReLU())(torch.randn(2, 3, 32, 32)).shape
        torch.Size([2, 10])
    """
    act, width = activation(widths[-1]), widths[0]
    net = nn.Sequential(nn.Conv2d(3, fan(act) * width, 3, 1, 1, bias=False))
    for i, outputs in enumerate(widths):
        net.append(PreactBlock(width, outputs, 2 if i else 1, activation))
        net.append(PreactBlock(outputs, outputs, 1, activation))
        width = outputs
    net.extend([_norm(act, fan(act) * width), act])
    return net.extend([nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, classes)])
