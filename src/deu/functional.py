"""The unit as a function."""

from __future__ import annotations

from torch import Tensor

from . import _ops
from ._settings import Settings, check_settings


def deu(
    t: Tensor,
    a: Tensor,
    b: Tensor,
    c: Tensor,
    c1: Tensor,
    c2: Tensor,
    *,
    dim: int = 1,
    solution: str = "continuous",
    eps: float = 0.01,
    sharpness: float = 100.0,
    max_exponent: float = 1.0,
    bound: float = 1000.0,
    max_grad_norm: float | None = 1.0,
    training: bool = False,
) -> Tensor:
    r"""The activation :math:`y(t)` that solves :math:`a y'' + b y' + c y = u(t)`.

    .. math:: y(t) = f(t; a, b, c) + c_1 f_1(t; a, b, c) + c_2 f_2(t; a, b, c)

    Args:
        t: the input, of any shape and any real floating type.
        a, b, c, c1, c2: the coefficients, each of shape ``(num_features,)``; one number each is
            shared by all of ``t``.
        dim: the dimension of ``t`` that the features lie along.
        solution: ``"paper"``, with its subspaces, or ``"continuous"``, without their seams
            (there ``c1`` and ``c2`` are :math:`y(0)` and :math:`y'(0)`).
        eps: below it a coefficient counts as zero.
        sharpness: of the smoothed step, in the paper's solution.
        max_exponent: every exponential is :math:`e^{\min(x, \mathrm{max\_exponent})}`. At least 1;
            more than 40 counts as 40 in float32 and below, more than 300 as 300 in float64.
        bound: values are cut at ± this; their gradients are not.
        max_grad_norm: each neuron's gradient of its five coefficients is scaled down to this
            norm, in every backward pass through the call (with ``create_graph=True`` a loss may
            pass more than once). ``None``: never.
        training: give coefficients that count as zero their gradient by outward gravitation.

    Returns:
        A tensor like ``t``.

    Example:
        >>> import torch
        >>> t = torch.tensor([[-1.0, -1.0], [2.0, 2.0]])
        >>> a, b, c = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
        >>> c1 = c2 = torch.zeros(2)
        >>> y = deu(t, a, b, c, c1, c2, solution="paper")  # a ReLU and a steep sigmoid
        >>> y.round(decimals=4)
        tensor([[0., 0.],
                [2., 1.]])
    """
    check_settings(solution, eps, sharpness, max_exponent, bound, max_grad_norm)
    check_input(t, (a, b, c, c1, c2), dim)
    return _ops.apply(
        t,
        (a, b, c, c1, c2),
        Settings(
            dim,
            solution,
            float(eps),
            float(sharpness),
            float(max_exponent),
            float(bound),
            float("inf") if max_grad_norm is None else float(max_grad_norm),
            training,
        ),
    )


def check_input(t: Tensor, coefficients: tuple[Tensor, ...], dim: int) -> None:
    """Raise an error that says what does not fit: the input's type or shape, or a coefficient's."""
    shape = coefficients[0].shape
    for name, p in zip(("a", "b", "c", "c1", "c2"), coefficients, strict=True):
        if p.ndim != 1 or p.shape != shape:
            raise ValueError(
                f"the coefficients must be one-dimensional and of one size; "
                f"a has shape {tuple(shape)} and {name} has {tuple(p.shape)}"
            )
    check_features(t, shape[0], dim)


def check_features(t: Tensor, features: int, dim: int, shared: bool = True) -> None:
    """The same of the input alone, for units that are known to fit each other.

    One unit is for all of the input if it may be ``shared``.
    """
    if not t.is_floating_point():
        raise TypeError(
            f"deu needs a real floating-point input; got {t.dtype}. "
            "Convert it first, as with t.float()"
        )
    if features == 1 and shared:
        return
    if not -t.ndim <= dim < t.ndim:
        raise ValueError(
            f"dim={dim} is not a dimension of an input of shape {tuple(t.shape)}; "
            f"a unit of {features} features needs one of them to be its features"
        )
    if t.shape[dim] != features:
        raise ValueError(
            f"expected {features} features along dim={dim}; "
            f"got an input of shape {tuple(t.shape)}, which has {t.shape[dim]} there"
        )
