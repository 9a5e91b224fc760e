"""One run in several processes under ``torchrun``: each takes its part of every batch.

Gradients are those of one process, but where a layer looks at the whole batch: batch norms and the
outward gravitation of units look at their process's part of it.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from ..modules import DEU


def joined() -> bool:
    """Whether this process is one of several."""
    return torch.distributed.is_available() and torch.distributed.is_initialized()


def rank() -> int:
    """This process's number; 0 alone."""
    return torch.distributed.get_rank() if joined() else 0


def parallel(model: nn.Module) -> nn.Module:
    """The network to call in training, whose gradients are means over the processes."""
    return DistributedDataParallel(model) if joined() else model


def part(whole: Tensor, along: int) -> Tensor:
    """This process's equal part of a batch that all of them drew alike."""
    if not joined():
        return whole
    world = torch.distributed.get_world_size()
    if whole.shape[along] % world:
        raise ValueError(
            f"a batch of {whole.shape[along]} does not divide among {world} processes; start a "
            "number of them that divides it"
        )
    return whole.chunk(world, along)[rank()]


def mean(value: Tensor) -> Tensor:
    """Of all processes' values."""
    if joined():
        torch.distributed.all_reduce(value)
        value = value / torch.distributed.get_world_size()
    return value


class UnitLimits:
    """Units' ``max_grad_norm``, taken off their layers to hold for the means over processes.

    A layer limits the gradient of what it sees, which is a part of the batch.
    """

    def __init__(self, model: nn.Module) -> None:
        self.limits: list[tuple[DEU, float]] = []
        for layer in model.modules() if joined() else ():
            if isinstance(layer, DEU) and layer.max_grad_norm is not None:
                self.limits.append((layer, layer.max_grad_norm))
                layer.max_grad_norm = None

    def hold(self) -> None:
        """Scale the gradients that are there."""
        for layer, most in self.limits:
            grads = [p.grad for p in layer.coefficients() if p.grad is not None]
            norm = torch.stack(grads).double().norm(dim=0)
            for grad in grads:
                grad.mul_((most / norm).clamp(max=1).to(grad.dtype))
