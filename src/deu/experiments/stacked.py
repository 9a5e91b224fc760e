"""Many seeds of a small network side by side in one module."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from .activations import Factory
from .models import Start, hidden


class Stacked(nn.Module):
    r"""The network :func:`~deu.experiments.models.hidden` once for each seed, trained at once.

    .. math:: y_s = V_s\,\phi(W_s x_s + b_s) + d_s

    Every seed starts as it would alone after ``torch.manual_seed(seed)``, on the CPU, and trains
    as it would alone, as long as nothing mixes seeds: sum their losses, each a mean over its own
    (n, outputs), and use an optimiser that works number by number, as Adam does. Clip gradients,
    if at all, for each seed alone.

    Takes (seeds, n, inputs) and returns (seeds, n, outputs).

    Args:
        activation: makes φ from a number of features; its module has one number a feature in each
            of its parameters and buffers, or none. All seeds share one of seeds * width features.
        seeds: what each network starts from.
        inputs, width, outputs: of each network.
        start: called with each network's linear layers, as in ``hidden``.

    Attributes:
        weight1, bias1, weight2, bias2: those of the linear layers, a seed in front.
        activation: the one module, which sees (n, seeds * width), seed after seed.

    Example:
        >>> nets = Stacked(lambda features: nn.PReLU(features), range(3), 10, 4, 1)
        >>> x = torch.randn(3, 20, 10)
        >>> nets(x).shape
        torch.Size([3, 20, 1])
        >>> torch.allclose(nets.network(2)(x[2]), nets(x)[2], atol=1e-6)
        True
    """

    def __init__(
        self,
        activation: Factory,
        seeds: Sequence[int],
        inputs: int,
        width: int,
        outputs: int,
        *,
        start: Start | None = None,
    ) -> None:
        super().__init__()
        self.seeds = tuple(seeds)
        with torch.random.fork_rng(devices=[]), torch.device("cpu"):
            alone = []
            for seed in self.seeds:
                torch.random.default_generator.manual_seed(seed)  # leaves a GPU's alone
                alone.append(hidden(activation, inputs, width, outputs, start=start))
            self.activation = activation(len(alone) * width)
        states = [net.state_dict() for net in alone]
        self.weight1 = nn.Parameter(torch.stack([state["0.weight"] for state in states]))
        self.bias1 = nn.Parameter(torch.stack([state["0.bias"] for state in states]))
        self.weight2 = nn.Parameter(torch.stack([state["2.weight"] for state in states]))
        self.bias2 = nn.Parameter(torch.stack([state["2.bias"] for state in states]))
        for name, whole in self.activation.state_dict().items():
            parts = [state[f"1.{name}"] for state in states]
            _check(name, whole, parts)
            whole.copy_(torch.cat(parts))
        self._alone = (alone[0],)  # in a tuple: a pattern for network(), not a part of this module

    def forward(self, x: Tensor) -> Tensor:
        t = torch.baddbmm(self.bias1[:, None], x, self.weight1.mT)
        y = self.activation(t.transpose(0, 1).flatten(1))
        y = y.unflatten(1, (len(self.seeds), -1)).transpose(0, 1)
        return torch.baddbmm(self.bias2[:, None], y, self.weight2.mT)

    def network(self, i: int) -> nn.Sequential:
        """The i-th seed's network alone, a copy with its present weights."""
        state = {
            "0.weight": self.weight1[i],
            "0.bias": self.bias1[i],
            "2.weight": self.weight2[i],
            "2.bias": self.bias2[i],
        }
        for name, whole in self.activation.state_dict().items():
            state[f"1.{name}"] = whole.chunk(len(self.seeds))[i]
        net = copy.deepcopy(self._alone[0]).to(self.weight1)
        net.load_state_dict(state)
        return net.train(self.training)

    def extra_repr(self) -> str:
        outputs, width = self.weight2.shape[1:]
        return f"{len(self.seeds)} seeds, {self.weight1.shape[2]} → {width} → {outputs}"


def _check(name: str, whole: Tensor, parts: list[Tensor]) -> None:
    """Whether a parameter of the shared activation is those of the lone ones in a row."""
    size = parts[0].shape
    if len(size) != 1 or whole.shape != (len(parts) * size[0],):
        raise ValueError(
            f"{len(parts)} seeds share one activation, so its {name} must have one number a "
            f"feature; alone it has shape {tuple(size)}, for all {tuple(whole.shape)}. "
            "Give a factory whose module has a number for each feature that it is asked for"
        )
