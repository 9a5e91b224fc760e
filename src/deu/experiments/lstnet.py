"""LSTNet (Lai et al., 2018), with whatever activation it is given."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from .activations import Factory, fan


class LSTNet(nn.Module):
    r"""One step ahead of many series: a convolution, two recurrent networks, a linear part.

    .. math::
        h &= \phi(W * x), \qquad
        r = \mathrm{GRU}(h_1, \dots, h_T), \qquad
        s_j = \mathrm{GRU}'(h_j, h_{j+p}, h_{j+2p}, \dots) \\
        y &= W_o\,[r, s_1, \dots, s_p] + b_o + \sum_{i=1}^{q} v_i\,x_{-i} + b_v

    The skip part reads the last whole periods p of h, one sequence a phase j. Dropout follows the
    convolution's activation φ and both recurrent networks.

    φ is the only activation that can be chosen. LSTNet's paper also has ReLU inside its GRUs; its
    authors' code, like this, has PyTorch's GRU there, which is tanh. The units' paper does not say
    more than that it used LSTNet.

    Takes (n, window, variables) and returns (n, variables).

    Args:
        activation: makes φ from the number of channels.
        variables: how many series.
        window: how many past steps are given.
        channels, kernel: of the convolution over time.
        hidden: size of the recurrent network.
        skip, skip_hidden: the period, and the size of the recurrent network that skips by it;
            ``skip=0`` leaves it out.
        highway: q, how many steps the linear part sees; 0 leaves it out.
        dropout: how much is dropped.
        sigmoid: whether the output goes through a sigmoid.

    Example:
        >>> net = LSTNet(lambda features: nn.ReLU(), variables=8)
        >>> net(torch.randn(2, 168, 8)).shape
        torch.Size([2, 8])
    """

    def __init__(
        self,
        activation: Factory,
        variables: int,
        *,
        window: int = 168,
        channels: int = 100,
        kernel: int = 6,
        hidden: int = 100,
        skip: int = 24,
        skip_hidden: int = 5,
        highway: int = 24,
        dropout: float = 0.2,
        sigmoid: bool = False,
    ) -> None:
        super().__init__()
        if max(kernel, kernel + skip - 1, highway) > window:
            raise ValueError(
                f"a window of {window} is too short for kernel={kernel}, skip={skip}, "
                f"highway={highway}; give at least {max(kernel, kernel + skip - 1, highway)}"
            )
        self.skip = skip
        self.periods = (window - kernel + 1) // skip if skip else 0
        self.activation = activation(channels)
        self.convolution = nn.Conv1d(variables, fan(self.activation) * channels, kernel)
        self.dropout = nn.Dropout(dropout)
        self.recurrent = nn.GRU(channels, hidden, batch_first=True)
        self.skipping = nn.GRU(channels, skip_hidden, batch_first=True) if skip else None
        self.output = nn.Linear(hidden + skip * skip_hidden, variables)
        self.highway = nn.Linear(highway, 1) if highway else None
        self.sigmoid = sigmoid

    def forward(self, x: Tensor) -> Tensor:
        series = x.transpose(1, 2)
        h = self.dropout(self.activation(self.convolution(series)))
        states = [self._last(self.recurrent, h)]
        if self.skipping is not None:
            states.append(self._phases(self.skipping, h))
        y: Tensor = self.output(torch.cat(states, 1))
        if self.highway is not None:
            y = y + self.highway(series[..., -self.highway.in_features :]).squeeze(2)
        return torch.sigmoid(y) if self.sigmoid else y

    def _last(self, recurrent: nn.GRU, h: Tensor) -> Tensor:
        """The state after the last step of (n, channels, steps), dropped out."""
        state: Tensor = recurrent(h.transpose(1, 2))[1][0]
        return self.dropout(state)

    def _phases(self, recurrent: nn.GRU, h: Tensor) -> Tensor:
        """The last states of all phases, side by side: (n, skip * skip_hidden)."""
        whole = h[..., -self.periods * self.skip :].unflatten(2, (self.periods, self.skip))
        each = whole.permute(0, 3, 1, 2).flatten(0, 1)  # (n * skip, channels, periods)
        return self._last(recurrent, each).reshape(len(h), -1)
