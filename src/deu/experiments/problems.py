"""What networks are trained on: images to tell apart, functions to fit, series to predict."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn

from .data import Split, Windows, corr, rse
from .training import Metrics


class Classification:
    """Images, or points, and their classes, whole on the device.

    Args:
        train_x, train_y, test_x, test_y: inputs as the network takes them, and labels.
        crop: at most so many pixels of shift, and a flip, of each training image.
    """

    def __init__(
        self, train_x: Tensor, train_y: Tensor, test_x: Tensor, test_y: Tensor, *, crop: int = 0
    ) -> None:
        self.train_x, self.train_y = train_x, train_y
        self.test_x, self.test_y = test_x, test_y
        self.crop = crop

    def steps(self, batch: int) -> int:
        return len(self.train_x) // batch

    def batches(self, batch: int, generator: torch.Generator) -> Iterator[tuple[Tensor, Tensor]]:
        order = torch.randperm(len(self.train_x), generator=generator, device=generator.device)
        order = order.to(self.train_x.device)
        for i in range(self.steps(batch)):
            chosen = order[i * batch : (i + 1) * batch]
            x = self.train_x[chosen]
            if self.crop:
                x = shifted(x, self.crop, generator)
            yield x, self.train_y[chosen]

    def loss(self, output: Tensor, target: Tensor) -> Tensor:
        return nn.functional.cross_entropy(output, target)

    def measure(self, model: nn.Module) -> Metrics:
        right, loss = 0, 0.0
        for x, y in zip(self.test_x.split(1000), self.test_y.split(1000), strict=True):
            output = model(x).float()
            right += int((output.argmax(1) == y).sum())
            loss += nn.functional.cross_entropy(output, y, reduction="sum").item()
        return {"accuracy": [right / len(self.test_y)], "test_loss": [loss / len(self.test_y)]}


class Parts(Classification):
    """The same with a part of the images an epoch, to measure more often than once a pass.

    Every epoch draws its images anew, none twice in one.

    Args:
        parts: how many epochs show as many images as the set has.

    Example:
        >>> x, y = torch.zeros(100, 2), torch.zeros(100, dtype=torch.int64)
        >>> Parts(x, y, x, y, parts=10).steps(batch=5)
        2
    """

    def __init__(
        self, train_x: Tensor, train_y: Tensor, test_x: Tensor, test_y: Tensor, *, parts: int
    ) -> None:
        super().__init__(train_x, train_y, test_x, test_y)
        self.parts = parts

    def steps(self, batch: int) -> int:
        return max(1, len(self.train_x) // self.parts // batch)


def shifted(x: Tensor, most: int, generator: torch.Generator) -> Tensor:
    """Each image shifted by up to ``most`` pixels both ways, zeros moving in, half of them flipped.

    Example:
        >>> shifted(torch.ones(2, 1, 4, 4), 1, torch.Generator().manual_seed(0)).shape
        torch.Size([2, 1, 4, 4])
    """
    n, _, height, width = x.shape
    home = generator.device
    shifts = torch.randint(0, 2 * most + 1, (2, n, 1), generator=generator, device=home)
    dy, dx = shifts.to(x.device).unbind()
    flip = (torch.rand((n, 1), generator=generator, device=home) < 0.5).to(x.device)
    rows = dy + torch.arange(height, device=x.device)
    columns = torch.arange(width, device=x.device).expand(n, -1)
    columns = dx + torch.where(flip, width - 1 - columns, columns)
    padded = nn.functional.pad(x, (most, most, most, most))
    index = torch.arange(n, device=x.device)[:, None, None]
    picked = padded.permute(0, 2, 3, 1)[index, rows[:, :, None], columns[:, None, :]]
    return picked.permute(0, 3, 1, 2)


class Regression:
    """A function to fit by many networks side by side, from points drawn anew for each step.

    Args:
        function: the truth, elementwise.
        low, high: where points are drawn, uniformly.
        seeds: how many networks.
        steps_an_epoch: an epoch has no other meaning here.
        noise: standard deviation of what is added to the targets.
        ranges: ranges on which to measure the mean squared error, by the name of the metric.
    """

    along = 1  # its points, of (seeds, points, 1)

    def __init__(
        self,
        function: Callable[[Tensor], Tensor],
        low: float,
        high: float,
        *,
        seeds: int,
        steps_an_epoch: int = 100,
        noise: float = 0.0,
        ranges: dict[str, tuple[float, float]] | None = None,
    ) -> None:
        self.function, self.low, self.high = function, low, high
        self.seeds, self.steps_an_epoch, self.noise = seeds, steps_an_epoch, noise
        self.ranges = ranges or {"mse": (low, high)}

    def steps(self, batch: int) -> int:
        return self.steps_an_epoch

    def batches(self, batch: int, generator: torch.Generator) -> Iterator[tuple[Tensor, Tensor]]:
        shape = (self.seeds, batch, 1)
        for _ in range(self.steps_an_epoch):
            t = torch.rand(shape, generator=generator, device=generator.device)
            t = self.low + (self.high - self.low) * t
            y = self.function(t)
            if self.noise:
                y = y + self.noise * torch.randn(
                    shape, generator=generator, device=generator.device
                )
            yield t, y

    def loss(self, output: Tensor, target: Tensor) -> Tensor:
        # The sum over seeds keeps each one's gradient what it would be alone.
        return (output - target).square().mean((1, 2)).sum()

    def measure(self, model: nn.Module) -> Metrics:
        device = next(model.parameters()).device
        found = {}
        for name, (low, high) in self.ranges.items():
            t = torch.linspace(low, high, 2001, device=device)[:, None].expand(self.seeds, -1, 1)
            error = (model(t) - self.function(t)).square().mean((1, 2))
            found[name] = error.tolist()
        return found


class Forecast:
    """Series to predict, as LSTNet's authors do: on windows of a split, by the absolute error.

    The error is in the series' own units, as RSE is: a series of large numbers counts for more.

    Args:
        split: windows to train, to choose by, and to test on, all on the device.

    Example:
        >>> from .data import synthetic_series, windows
        >>> problem = Forecast(windows(synthetic_series(100, 3), window=8, horizon=2))
        >>> x, y = next(problem.batches(16, torch.Generator()))
        >>> problem.steps(16), tuple(x.shape), tuple(y.shape)
        (3, (16, 8, 3), (16, 3))
    """

    CHUNK = 256  # windows that are measured at once

    def __init__(self, split: Split) -> None:
        self.split = split
        scale = split.train.scale
        self.weight = scale / scale.mean()

    def steps(self, batch: int) -> int:
        return len(self.split.train) // batch

    def batches(self, batch: int, generator: torch.Generator) -> Iterator[tuple[Tensor, Tensor]]:
        train = self.split.train
        order = torch.randperm(len(train), generator=generator, device=generator.device)
        order = order.to(train.targets.device)
        for i in range(self.steps(batch)):
            yield train[order[i * batch : (i + 1) * batch]]

    def loss(self, output: Tensor, target: Tensor) -> Tensor:
        return ((output - target) * self.weight).abs().mean()

    def measure(self, model: nn.Module) -> Metrics:
        found = {}
        for prefix, part in (("valid_", self.split.valid), ("", self.split.test)):
            prediction, truth = self._predicted(model, part)
            found[f"{prefix}rse"] = [rse(prediction, truth)]
            found[f"{prefix}corr"] = [corr(prediction, truth)]
        return found

    def _predicted(self, model: nn.Module, part: Windows) -> tuple[Tensor, Tensor]:
        """Predictions and truth of all windows, in the series' own units."""
        predictions, truths = [], []
        for start in range(0, len(part), self.CHUNK):
            x, y = part[start : start + self.CHUNK]
            predictions.append(model(x).float())
            truths.append(y)
        return torch.cat(predictions) * part.scale, torch.cat(truths) * part.scale
