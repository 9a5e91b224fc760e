"""How far a result is from float64; a provider that is too far off is not timed.

The data of a case repeats one block of its batch.  So the float64 truth is computed for the block
alone and holds for the whole, in the layout, type and size that are timed: outputs and input
gradients repeat, and the gradients of parameters are those of the block with its upstream gradient
times the number of repeats.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn

from .providers import exact

_BLOCK = 400_000  # numbers, about


class Error(NamedTuple):
    """The largest error, relative as said by its limit, and in what."""

    size: float
    where: str
    limit: float

    @property
    def wrong(self) -> bool:
        return not self.size <= self.limit  # a NaN is wrong


def limits(dtype: torch.dtype) -> tuple[float, float]:
    """What is allowed of outputs and input gradients, and of parameters' gradients.

    The first is relative to max(1, |truth|), the second to the largest gradient of a parameter in
    the layer. In 16 bits both are two units in the last place.
    """
    if dtype == torch.float32:
        return 1e-5, 1e-4
    return 2 * torch.finfo(dtype).eps, 2 * torch.finfo(dtype).eps


def block_size(shape: tuple[int, ...]) -> int:
    """How many samples repeat: a divisor of the batch."""
    sample = max(1, math.prod(shape[1:]))
    wanted = max(1, _BLOCK // sample)
    return max(n for n in range(1, shape[0] + 1) if shape[0] % n == 0 and n <= wanted)


def data(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device, last: bool) -> Tensor:
    """Normal numbers that repeat along the batch; ``last``: in channels_last."""
    block = torch.randn(block_size(shape), *shape[1:], device=device).to(dtype)
    x = block.repeat(shape[0] // block.shape[0], *[1] * (len(shape) - 1))
    return x.to(memory_format=torch.channels_last) if last else x


def error(module: nn.Module, x: Tensor, grad: Tensor, differentiable: bool = True) -> Error:
    """The error of a module's output and gradients on data made by :func:`data`."""
    block = block_size(tuple(x.shape))
    repeats = x.shape[0] // block
    limit, parameter_limit = limits(x.dtype)
    if not differentiable:
        with torch.no_grad():
            return Error(0.0 if torch.equal(module(x), x) else math.inf, "output", 0.0)

    truth = exact(module)
    truth_in = x.detach()[:block].double().requires_grad_()
    truth_parameters = [p for p in truth.parameters() if p.requires_grad]
    truth_out = truth(truth_in)
    truth_grads = torch.autograd.grad(
        truth_out, [truth_in, *truth_parameters], grad[:block].double() * repeats, allow_unused=True
    )

    ours_in = x.detach().requires_grad_()
    parameters = [p for p in module.parameters() if p.requires_grad]
    ours_out = module(ours_in)
    ours_grads = torch.autograd.grad(ours_out, [ours_in, *parameters], grad, allow_unused=True)

    assert truth_grads[0] is not None
    found = [
        Error(_repeated(ours_out.detach(), truth_out.detach()), "output", limit),
        Error(_repeated(ours_grads[0], truth_grads[0] / repeats), "input gradient", limit),
    ]
    pairs = [
        (got.double(), want)
        for got, want in zip(ours_grads[1:], truth_grads[1:], strict=True)
        if want is not None
    ]
    largest = max((want.abs().max().item() for _, want in pairs), default=0.0)
    if largest > 0:
        size = _worst([(got - want).abs().max().item() for got, want in pairs]) / largest
        found.append(Error(size, "parameter gradient", parameter_limit))
    # The one nearest to its limit, or past it.
    return max(found, key=lambda e: math.inf if math.isnan(e.size) else e.size / e.limit)


def _repeated(got: Tensor, want: Tensor) -> float:
    scale = want.abs().clamp(min=1)
    blocks = got.split(want.shape[0])
    return _worst([((part.double() - want).abs() / scale).max().item() for part in blocks])


def _worst(sizes: list[float]) -> float:
    return math.nan if any(math.isnan(size) for size in sizes) else max(sizes)
