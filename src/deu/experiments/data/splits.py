"""Windows on a series and what follows them, split as LSTNet's authors do."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Windows:
    """Pairs of a window and the step ``horizon`` after its last, cut out when asked for.

    Indexed with a tensor of n numbers from 0 to ``len() - 1``, gives ``x`` (n, window, variables)
    and ``y`` (n, variables); with a slice or one number, likewise.

    Attributes:
        values: the whole series, each variable divided by its ``scale``; (steps, variables).
        scale: (variables,); ``y * scale`` is in the series' own units.
        targets: the steps to predict, in the order of time.
        window: how many steps go in.
        horizon: how far after the last of them the target lies.
    """

    values: Tensor
    scale: Tensor
    targets: Tensor
    window: int
    horizon: int

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, index: Tensor | slice | int) -> tuple[Tensor, Tensor]:
        target = self.targets[index]
        back = torch.arange(self.window - 1, -1, -1, device=target.device)
        return self.values[target[..., None] - self.horizon - back], self.values[target]

    def to(self, device: torch.device | str) -> Windows:
        """The same on another device."""
        values, scale, targets = (v.to(device) for v in (self.values, self.scale, self.targets))
        return replace(self, values=values, scale=scale, targets=targets)


class Split(NamedTuple):
    """The first 60 % of the targets, the next 20 %, and the rest."""

    train: Windows
    valid: Windows
    test: Windows


def windows(
    series: Tensor, *, window: int = 168, horizon: int = 3, dtype: torch.dtype = torch.float32
) -> Split:
    r"""LSTNet's task: predict all variables ``horizon`` steps after a window.

    .. math:: (x_{t-h-w+1}, \dots, x_{t-h}) \mapsto x_t, \qquad
              x_{ti} = \frac{s_{ti}}{\max_\tau |s_{\tau i}|}

    The steps t are split in order: the first 60 % to train on, 20 % to choose by, 20 % to test on.
    Windows reach back across these borders, as they would in use.  The largest size is that of the
    whole series, test and all, as in LSTNet's code; a variable that is always 0 stays 0.

    Args:
        series: (steps, variables).
        window: w, steps that go in.
        horizon: h, how far ahead to predict; 3, 6, 12 or 24 in LSTNet's tables.
        dtype: of the values.

    Example:
        >>> split = windows(torch.arange(1.0, 101)[:, None], window=4, horizon=2)
        >>> [len(part) for part in split]
        [55, 20, 20]
        >>> x, y = split.train[torch.tensor([0])]
        >>> (x[0, :, 0] * 100).round().tolist(), (y[0, 0] * 100).round().item()
        ([1.0, 2.0, 3.0, 4.0], 6.0)
    """
    if series.ndim != 2:
        raise ValueError(f"a series has the shape (steps, variables), not {tuple(series.shape)}")
    if window < 1 or horizon < 1:
        raise ValueError(f"window and horizon must be 1 or more, not {window} and {horizon}")
    steps = len(series)
    train_end, valid_end = steps * 6 // 10, steps * 8 // 10
    start = window + horizon - 1
    if start >= train_end:
        raise ValueError(
            f"a series of {steps} steps is too short for a window of {window} and a horizon of "
            f"{horizon}: its first 60 %, {train_end} steps, must have more than {start}. "
            "Take a longer series or a shorter window."
        )
    largest = series.abs().amax(0)
    scale = torch.where(largest > 0, largest, 1)
    values, scale = (series / scale).to(dtype), scale.to(dtype)

    def part(first: int, end: int) -> Windows:
        targets = torch.arange(first, end, device=series.device)
        return Windows(values, scale, targets, window, horizon)

    return Split(part(start, train_end), part(train_end, valid_end), part(valid_end, steps))
