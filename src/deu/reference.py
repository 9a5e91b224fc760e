"""The unit in plain PyTorch: readable, in float64, differentiable to any order.

This is what every kernel is tested against, what runs where there is no kernel, and what
second derivatives go through.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from . import _entire
from ._normal_form import normal_form, singular, straight_through, working_dtype
from ._subspaces import Form, Kind

# e^300 squared is still finite in float64.
_LARGEST_EXPONENT = 300.0
_LAMBDA = 1e-9


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
    r"""The activation :math:`y(t)` of :math:`a y'' + b y' + c y = u(t)`, in plain PyTorch.

    The arguments are those of :func:`deu.functional.deu`, which see.

    Example:
        >>> t = torch.tensor([-1.0, 0.5, 2.0])
        >>> relu = [torch.tensor([p]) for p in (0.0, 1.0, 0.0, 0.0, 0.0)]
        >>> deu(t, *relu, solution="paper")
        tensor([0.0000, 0.5000, 2.0000])
    """
    dtype = working_dtype(t.device)
    limit = min(max_exponent, _LARGEST_EXPONENT)
    # torch.compile takes no Function with a jvp, and forward-mode differentiation none without.
    compiling = torch.compiler.is_compiling()
    widen = _Widen if compiling else _WidenBothWays
    time = widen.apply(t, dtype)
    coefficients = [widen.apply(p, dtype) for p in (a, b, c, c1, c2)]
    if max_grad_norm is not None:
        limit_gradient = _LimitGradient if compiling else _LimitGradientBothWays
        coefficients = list(limit_gradient.apply(max_grad_norm, *coefficients))
    shape = [1] * t.ndim
    if a.numel() > 1:
        shape[dim] = a.numel()

    def value(at: Tensor, units: list[Tensor], view: list[int]) -> Tensor:
        a, b, c, c1, c2 = units
        kind, form = normal_form(solution, a, b, c, c1, c2, eps)
        form = Form(*(number.reshape(view) for number in form))
        return _evaluate(solution, kind.reshape(view), form, at, limit, sharpness)

    y = value(time, coefficients, shape)
    y = straight_through(y.clamp(-bound, bound), y)
    if training and solution == "paper":
        # Always computed, whether or not a coefficient is singular: no branch on data, so this
        # traces.  Where none is, it adds an exact zero.
        others = [d for d in range(t.ndim) if shape[d] == 1]
        centre = time.detach().mean(dim=others) if others else time.detach()
        neighbour = _neighbour(value, coefficients, centre.reshape(-1).expand_as(a), eps)
        pull = value(time.detach(), neighbour, shape)
        y = y + torch.where(pull.isfinite(), pull - pull.detach(), 0.0)
    return y.to(t.dtype)


def _evaluate(
    solution: str, kind: Tensor, form: Form, t: Tensor, max_exponent: float, sharpness: float
) -> Tensor:
    """y(t), not yet bounded, from the normal form."""
    p, q, A, B, Q, K, Af, Bf, Pf, Qf, G = form
    oscillating, real, critical, step, entire = (
        kind == k.value  # the number itself, which torch.compile can compare with a tensor
        for k in (Kind.OSCILLATING, Kind.REAL, Kind.CRITICAL, Kind.STEP, Kind.ENTIRE)
    )
    positive = t > 0

    if solution == "continuous":
        alpha = torch.where(real, (p + q) / 2, p)
        grows = alpha > 0
        stop = torch.where(grows, max_exponent / (2 * torch.where(grows, alpha, 1.0)), torch.inf)
        t = torch.where(t > stop, stop, t)
        held = alpha * t > max_exponent
        half_gap = torch.where(real, (q - p) / 2, 0.0)
        x1 = torch.where(held, max_exponent - half_gap * t, p * t).clamp(max=2 * max_exponent)
        x2 = torch.where(held, max_exponent + half_gap * t, q * t).clamp(max=2 * max_exponent)
        x1 = torch.where(entire, 0.0, x1)
        u = positive.to(t.dtype)
    else:
        x1, x2 = (p * t).clamp(max=max_exponent), (q * t).clamp(max=max_exponent)
        smooth = torch.sigmoid(sharpness * t)
        u = straight_through(positive.to(t.dtype), smooth)

    x2 = torch.where(real, x2, 0.0)
    angle = torch.where(oscillating, q, 0.0) * t
    e1 = x1.exp()
    b1 = e1 * angle.cos()
    b2 = torch.where(oscillating, e1 * angle.sin(), torch.where(critical, t * e1, x2.exp()))
    # What f is made of, without the rounding of a difference of equal numbers near t = 0.
    b1_less_start = x1.expm1() * angle.cos() - 2 * (angle / 2).sin() ** 2
    b2_less_start = torch.where(real, x2.expm1(), b2)
    f = Af * b1_less_start + Bf * b2_less_start + Pf * t * t + Qf * t

    if solution == "continuous":
        alpha, kappa = torch.where(entire, p, 0.0), torch.where(entire, q, 0.0)
        x, k = alpha * t, kappa * t * t
        z = x * x - k
        big_x, big_y = _entire.homogeneous(x, z, t, max_exponent)
        b1 = torch.where(entire, big_x + alpha * big_y, b1)
        b2 = torch.where(entire, big_y, b2)
        f = torch.where(entire, G * _entire.step_response(x, k, z, t, big_x, big_y), f)

    y = A * b1 + B * b2 + Q * t + K + u * f
    if solution == "paper":
        y = y + torch.where(step, G, 0.0) * smooth
    return y


def _neighbour(
    value: Callable[[Tensor, list[Tensor], list[int]], Tensor],
    coefficients: list[Tensor],
    centre: Tensor,
    eps: float,
) -> list[Tensor]:
    """The units that outward gravitation takes the gradient of singular coefficients from.

    Singular coefficients are moved to the nearest of ±eps, and c1, c2 chosen so that value and
    slope agree with the unit's own at ``centre``.  Only singular coefficients carry a gradient.
    """
    own = [p.detach() for p in coefficients]
    inside = [singular(p, eps) for p in own[:3]]
    moved = [
        torch.where(i, torch.where(p < 0, torch.full_like(p, -eps), eps), p)
        for i, p in zip(inside, own[:3], strict=True)
    ]

    def value_and_slope(units: list[Tensor]) -> Tensor:
        found: Any = torch.func.vjp(lambda t: value(t, units, [-1]), centre)
        y, pullback = found
        return torch.stack([y, pullback(torch.ones_like(y))[0]])

    zero, one = torch.zeros_like(centre), torch.ones_like(centre)
    f = value_and_slope([*moved, zero, zero])
    f1 = value_and_slope([*moved, one, zero]) - f
    f2 = value_and_slope([*moved, zero, one]) - f
    rest = value_and_slope(own) - f

    def cross(u: Tensor, v: Tensor) -> Tensor:
        return u[0] * v[1] - u[1] * v[0]

    # (AᵀA + λI)⁻¹AᵀB for A = [f1 f2], a row for the value and a row for the slope, written with
    # det A so that nothing cancels.
    det = cross(f1, f2)
    whole = det * det + _LAMBDA * ((f1 * f1).sum(0) + (f2 * f2).sum(0)) + _LAMBDA * _LAMBDA
    c1 = (det * cross(rest, f2) + _LAMBDA * (f1 * rest).sum(0)) / whole
    c2 = (det * cross(f1, rest) + _LAMBDA * (f2 * rest).sum(0)) / whole
    live = [
        torch.where(i, straight_through(m, p), m)
        for i, m, p in zip(inside, moved, coefficients[:3], strict=True)
    ]
    return [*live, c1, c2]


class _Widen(torch.autograd.Function):
    """A cast whose gradient, cast back, becomes the largest number of its type, not infinite."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, dtype: torch.dtype) -> Tensor:
        return x.to(dtype, copy=True)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.narrow, ctx.wide = inputs[0].dtype, inputs[1]

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        largest = torch.finfo(ctx.narrow).max
        return grad.clamp(-largest, largest).to(ctx.narrow), None


class _WidenBothWays(_Widen):
    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, _: None) -> Tensor:
        return tangent.to(ctx.wide, copy=True)


class _LimitGradient(torch.autograd.Function):
    """The identity, whose gradient is scaled down to a norm a neuron."""

    generate_vmap_rule = True

    @staticmethod
    def forward(max_norm: float, *coefficients: Tensor) -> tuple[Tensor, ...]:
        return tuple(p.view_as(p) for p in coefficients)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        ctx.max_norm = inputs[0]

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        # Divided by the largest first, so that no square overflows.
        together = torch.stack(grads)
        largest = together.abs().amax(0).clamp(min=1e-30)
        norm = largest * (together / largest).square().sum(0).sqrt()
        return None, *torch.where(norm > ctx.max_norm, together / norm * ctx.max_norm, together)


class _LimitGradientBothWays(_LimitGradient):
    @staticmethod
    def jvp(ctx: Any, _: None, *tangents: Tensor) -> tuple[Tensor, ...]:
        return tuple(t.view_as(t) for t in tangents)
