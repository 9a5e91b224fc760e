"""Made-up data in the form of the real sets, for quick runs and tests; never for results."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional

from .image_sets import Images, ImageSet, check_name

_SHAPES = {"mnist": (1, 28, 28), "fashion-mnist": (1, 28, 28), "cifar10": (3, 32, 32)}
_CLASSES = 10


def synthetic_images(name: ImageSet, n_train: int, n_test: int, seed: int = 0) -> Images:
    """Images of the shape of a real set: a smooth pattern for each class, under noise.

    Args:
        name: the set whose shape to take; the result's name is ``"synthetic …"``.
        n_train, n_test: how many; the ten classes come equally often, in random order.
        seed: for patterns, noise and order.

    Example:
        >>> data = synthetic_images("cifar10", 40, 10, seed=0)
        >>> data.name, tuple(data.train_x.shape), data.train_y.bincount().tolist()
        ('synthetic cifar10', (40, 3, 32, 32), [4, 4, 4, 4, 4, 4, 4, 4, 4, 4])
    """
    check_name(name)
    if n_train < 1 or n_test < 1:
        raise ValueError(f"one image or more are needed of each, not {n_train} and {n_test}")
    random = torch.Generator().manual_seed(seed)
    channels, height, width = _SHAPES[name]
    coarse = torch.rand(_CLASSES, channels, 7, 7, generator=random)
    patterns = functional.interpolate(coarse, (height, width), mode="bilinear")

    def draw(n: int) -> tuple[Tensor, Tensor]:
        y = (torch.arange(n) % _CLASSES)[torch.randperm(n, generator=random)]
        contrast = 0.5 + 0.5 * torch.rand(n, 1, 1, 1, generator=random)
        noise = torch.randn(n, channels, height, width, generator=random)
        x = 200 * contrast * patterns[y] + 50 * noise
        return x.round().clamp(0, 255).to(torch.uint8), y

    return Images(f"synthetic {name}", *draw(n_train), *draw(n_test))


def synthetic_series(steps: int, variables: int, seed: int = 0) -> Tensor:
    """A series with a day of 24 steps, a week of 168, a slow drift and noise.

    Args:
        steps, variables: its shape.
        seed: for everything in it.

    Returns:
        float64, (steps, variables).

    Example:
        >>> synthetic_series(500, 3, seed=0).shape
        torch.Size([500, 3])
    """
    if steps < 1 or variables < 1:
        raise ValueError(f"one step and one variable or more are needed, not {steps} × {variables}")
    random = torch.Generator().manual_seed(seed)

    def uniform(low: float, high: float) -> Tensor:
        return low + (high - low) * torch.rand(variables, generator=random, dtype=torch.float64)

    t = torch.arange(steps, dtype=torch.float64)[:, None]
    day = uniform(0.5, 1.5) * torch.sin(2 * math.pi * (t / 24 + uniform(0, 1)))
    week = uniform(0.2, 0.8) * torch.sin(2 * math.pi * (t / 168 + uniform(0, 1)))
    drift = 0.01 * torch.randn(steps, variables, generator=random, dtype=torch.float64).cumsum(0)
    noise = 0.1 * torch.randn(steps, variables, generator=random, dtype=torch.float64)
    return uniform(1, 10) * (5 + day + week + drift + noise)
