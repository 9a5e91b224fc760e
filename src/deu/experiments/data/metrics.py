"""The two numbers that LSTNet's authors report: relative error and correlation."""

from __future__ import annotations

import math

from torch import Tensor


def rse(prediction: Tensor, truth: Tensor) -> float:
    r"""Root relative squared error: 0 is perfect, about 1 is what the overall mean gets.

    .. math:: \sqrt{\frac{1}{nm}\sum_{ti} (\hat y_{ti} - y_{ti})^2} \;\Big/\;
              \sqrt{\frac{n-1}{n}\,\frac{1}{nm-1}\sum_{ti} (y_{ti} - \bar y)^2}

    The divisor is the one of LSTNet's code, which differs from the paper's by a factor of about
    1 − 1/2n.  Their code divides the error on the validation set by the test set's too; here it is
    by that of the ``truth`` given.

    Args:
        prediction, truth: (n, m), both in the series' own units: with variables that were divided
            by different scales it is another number.

    Example:
        >>> import torch
        >>> truth = torch.tensor([[0.0], [1.0], [2.0], [3.0]])
        >>> rse(truth, truth), round(rse(truth.mean().expand(4, 1), truth), 4)
        (0.0, 1.0)
    """
    _check(prediction, truth)
    prediction, truth = prediction.double(), truth.double()
    n = len(truth)
    error = (prediction - truth).square().mean().sqrt()
    spread = truth.std() * math.sqrt((n - 1) / n)
    return (error / spread).item()


def corr(prediction: Tensor, truth: Tensor) -> float:
    r"""Correlation of each variable's prediction with its truth, averaged over the variables.

    .. math:: \frac1m \sum_i
              \frac{\overline{(\hat y_i - \bar{\hat y}_i)(y_i - \bar y_i)}}{\hat\sigma_i \sigma_i}

    A variable whose truth is constant is left out, as in LSTNet's code.  One whose prediction is
    constant counts 0, where that code gives NaN for all.

    Args:
        prediction, truth: (n, m), in any positive scale.

    Example:
        >>> import torch
        >>> truth = torch.tensor([[0.0, 5.0], [1.0, 5.0], [2.0, 5.0]])
        >>> round(corr(-3 * truth, truth), 6)
        -1.0
    """
    _check(prediction, truth)
    varies = (truth != truth[:1]).any(0)
    prediction, truth = prediction[:, varies].double(), truth[:, varies].double()
    flat = (prediction == prediction[:1]).all(0)
    spread = prediction.std(0, correction=0) * truth.std(0, correction=0)
    product = ((prediction - prediction.mean(0)) * (truth - truth.mean(0))).mean(0)
    return (product / spread).masked_fill(flat, 0).mean().item()


def _check(prediction: Tensor, truth: Tensor) -> None:
    if prediction.ndim != 2 or prediction.shape != truth.shape or len(truth) < 2:
        raise ValueError(
            "prediction and truth must both have the shape (n, variables) with n of 2 or more, not "
            f"{tuple(prediction.shape)} and {tuple(truth.shape)}"
        )
