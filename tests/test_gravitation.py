"""Outward gravitation, against a direct computation of what SPEC.md says it is."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

import deu

from .conftest import LIMITS, NAMES, gradients

EPS = 0.01
PAPER = {"solution": "paper", **LIMITS}
UNLIMITED = {**PAPER, "max_grad_norm": None}
FREE = {**UNLIMITED, "bound": math.inf}
# c̃1 and c̃2 come from AᵀA + 1e-9·I: the rounding of A is amplified by up to 1e9 or so.
TOLERANCE = 1e-6

UNITS = {
    "010": (0.0, 0.8, 0.0),
    "010 negative": (0.0, -0.8, 0.0),
    "001": (0.0, 0.0, 0.7),
    "011": (0.0, 0.9, 0.6),
    "100": (0.6, 0.0, 0.0),
    "101 oscillating": (0.5, 0.0, 1.2),
    "101 real": (0.7, 0.0, -0.5),
    "110": (0.8, 0.6, 0.0),
    "110 negative": (0.8, -0.6, 0.0),
    "all zero": (0.0, 0.0, 0.0),
    "inside, above 0": (0.005, 0.7, 0.005),
    "inside, below 0": (-0.005, 0.7, -0.005),
    "inside, mixed": (0.6, -0.005, 0.9),
    "all inside": (-0.005, 0.005, -0.005),
    "on the edge": (0.01, 0.5, -0.0099999),
    "none inside": (0.5, 0.4, 0.8),
}
LAYOUTS = {
    "minibatch": ((11, len(UNITS)), 1),
    "image": ((3, len(UNITS), 4, 5), 1),
    "sequence": ((3, 7, len(UNITS)), -1),
    "features first": ((len(UNITS), 9), 0),
}
layouts = pytest.mark.parametrize(("shape", "dim"), LAYOUTS.values(), ids=LAYOUTS.keys())
functions = pytest.mark.parametrize(
    "function", [deu.functional.deu, deu.reference.deu], ids=["native", "reference"]
)


def coefficients() -> list[Tensor]:
    abc = torch.tensor(list(UNITS.values()), dtype=torch.float64)
    c12 = torch.rand(len(UNITS), 2, dtype=torch.float64) - 0.5
    return [p.contiguous() for p in torch.cat([abc, c12], 1).unbind(1)]


def value_and_slope(t: Tensor, unit: list[float], **options: Any) -> Tensor:
    """y(t) and y'(t) of one unit at one t."""
    t = t.detach().requires_grad_()
    y = deu.reference.deu(t, *(torch.tensor([v], dtype=torch.float64) for v in unit), **options)
    return torch.stack([y.detach(), torch.autograd.grad(y, t)[0]])


def direct(t: Tensor, unit: list[float], upstream: Tensor, **options: Any) -> dict[str, float]:
    """The gradients of one unit's singular coefficients, from all of its own inputs ``t``."""
    inside = {n: v for n, v in zip("abc", unit, strict=False) if abs(v) < EPS}
    moved = [(-EPS if v < 0 else EPS) if abs(v) < EPS else v for v in unit[:3]]
    centre = t.mean()
    f = value_and_slope(centre, [*moved, 0.0, 0.0], **options)
    f1 = value_and_slope(centre, [*moved, 1.0, 0.0], **options) - f
    f2 = value_and_slope(centre, [*moved, 0.0, 1.0], **options) - f
    A = torch.stack([f1, f2], 1)
    B = value_and_slope(centre, unit, **options) - f
    c12 = torch.linalg.solve(A.T @ A + 1e-9 * torch.eye(2, dtype=A.dtype), A.T @ B)
    neighbour = [torch.tensor([v], dtype=torch.float64) for v in (*moved, *c12.tolist())]
    neighbour = [p.requires_grad_() for p in neighbour]
    y = deu.reference.deu(t, *neighbour, training=False, **options)
    found = torch.autograd.grad((upstream * y).sum(), neighbour)
    return {n: g.item() for n, g in zip(NAMES, found, strict=True) if n in inside}


@functions
@layouts
@pytest.mark.parametrize("offset", [0.0, 0.8, -0.8])
@pytest.mark.parametrize("max_exponent", [1.0, 3.0])
def test_singular_coefficients_get_the_neighbours_gradient(
    function: Any, shape: tuple[int, ...], dim: int, offset: float, max_exponent: float
) -> None:
    options = {**FREE, "max_exponent": max_exponent}
    units = coefficients()
    t = torch.randn(shape, dtype=torch.float64) + offset
    upstream = torch.randn(shape, dtype=torch.float64)
    got = gradients(function, t, units, upstream, dim=dim, training=True, **options)
    compared = 0
    for i, name in enumerate(UNITS):
        own_t, own_g = t.select(dim, i).flatten(), upstream.select(dim, i).flatten()
        unit = [u[i].item() for u in units]
        for p, want in direct(own_t, unit, own_g, **options).items():
            have = got[p][i].item()
            assert math.isclose(
                have, want, rel_tol=TOLERANCE, abs_tol=TOLERANCE * own_g.abs().sum()
            ), f"{p} of {name}: {have} instead of {want}"
            assert have != 0
            compared += 1
    assert compared == sum(abs(v) < EPS for unit in UNITS.values() for v in unit)


@functions
@pytest.mark.parametrize("shape", [(), (7,), (3, 4, 5)])
@pytest.mark.parametrize("unit", [u for u in UNITS if u != "none inside"])
def test_a_shared_unit_is_centred_on_everything(
    function: Any, shape: tuple[int, ...], unit: str
) -> None:
    values = [*UNITS[unit], 0.3, -0.2]
    t, upstream = (torch.randn(shape, dtype=torch.float64) + 0.4 for _ in range(2))
    shared = [torch.tensor([v], dtype=torch.float64) for v in values]
    got = gradients(function, t, shared, upstream, training=True, **FREE)
    for p, want in direct(t.flatten(), values, upstream.flatten(), **FREE).items():
        assert math.isclose(got[p].item(), want, rel_tol=TOLERANCE, abs_tol=TOLERANCE), p


@functions
@layouts
def test_everything_else_stays_the_units_own(
    function: Any, shape: tuple[int, ...], dim: int
) -> None:
    units = coefficients()
    t, upstream = (torch.randn(shape, dtype=torch.float64) for _ in range(2))
    on, off = (
        gradients(function, t, units, upstream, dim=dim, training=training, **UNLIMITED)
        for training in (True, False)
    )
    for name in ("y", "t", "c1", "c2"):
        torch.testing.assert_close(on[name], off[name], rtol=1e-14, atol=1e-14, msg=name)
    for name, p in zip("abc", units, strict=False):
        outside = p.abs() >= EPS
        torch.testing.assert_close(on[name][outside], off[name][outside], rtol=1e-13, atol=1e-13)
        assert (off[name][~outside] == 0).all(), f"{name} has a gradient in eval mode"
        assert (on[name][~outside] != 0).all(), f"{name} has no gradient in training"


@functions
def test_continuous_has_no_gravitation(function: Any) -> None:
    units, t = coefficients(), torch.randn(9, len(UNITS), dtype=torch.float64)
    on, off = (
        gradients(function, t, units, solution="continuous", training=training)
        for training in (True, False)
    )
    for name in on:
        assert torch.equal(on[name], off[name]), name


@functions
def test_a_narrow_layer_is_pulled_the_same_way(function: Any) -> None:
    """float32 in and out: within its tolerance of the float64 gradients."""
    t = torch.randn(64, len(UNITS))
    units = [p.float() for p in coefficients()]
    options = {"training": True, **UNLIMITED}
    got = gradients(function, t, units, **options)
    want = gradients(deu.reference.deu, t.double(), [p.double() for p in units], **options)
    for name in NAMES:
        torch.testing.assert_close(got[name].double(), want[name], rtol=1e-4, atol=1e-4, msg=name)


def test_evaluation_between_steps_does_not_disturb() -> None:
    """The centre belongs to a call: another call between forward and backward changes nothing."""
    layer = deu.DEU(4, init="relu", dtype=torch.float64, **UNLIMITED)
    t = torch.randn(9, 4, dtype=torch.float64) + 0.3
    layer(t).sum().backward()
    want = [p.grad.clone() for p in layer.parameters()]
    layer.zero_grad()
    y = layer(t)
    layer(t + 5)
    layer.eval()(t - 5)
    y.sum().backward()
    for p, g in zip(layer.parameters(), want, strict=True):
        assert torch.equal(p.grad, g)


@pytest.mark.parametrize("pulled", [True, False])
def test_a_relu_leaves_relu_only_by_gravitation(pulled: bool) -> None:
    layer = deu.DEU(init="relu", **PAPER).train(pulled)
    t = torch.linspace(0, 4 * math.pi, 128)[:, None]
    optimiser = torch.optim.Adam(layer.parameters(), lr=0.02)
    for _ in range(40):
        optimiser.zero_grad()
        (layer(t) - t.sin()).square().mean().backward()
        optimiser.step()
    left = [p.abs().item() > EPS for p in (layer.a, layer.c)]
    assert left == [pulled, pulled]
    if not pulled:
        assert layer.a.item() == layer.c.item() == 0


@pytest.mark.parametrize("solution", ["paper", "continuous"])
@pytest.mark.parametrize(
    ("subspace", "start"),
    {
        "001": (0.0, 0.0, 1.0),
        "010": (0.0, 1.0, 0.0),
        "011": (0.0, 1.0, 1.0),
        "100": (1.0, 0.0, 0.0),
        "101": (1.0, 0.0, 1.0),
        "110": (1.0, 1.0, 0.0),
        "critical": (1.0, 2.0, 1.0),
    }.items(),
)
def test_training_leaves_a_subspace_that_the_gradient_says_to_leave(solution, subspace, start):
    unit, truth = (deu.DEU(1, solution=solution) for _ in range(2))
    with torch.no_grad():
        for name, own, wanted in zip(NAMES, (*start, 0.1, 0.1), (1, -3, 1, 0.3, 0.1), strict=True):
            unit.get_parameter(name).fill_(own)
            truth.get_parameter(name).fill_(wanted)
        t = torch.linspace(-3, 3, 256)[:, None]
        y = truth(t)
    assert deu.subspaces(unit) == [subspace]
    optimiser = torch.optim.Adam(unit.parameters(), lr=0.03)
    losses, stays = [], []
    for _ in range(600):
        optimiser.zero_grad()
        loss = (unit(t) - y).square().mean()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
        stays.append(deu.subspaces(unit) == [subspace])
    assert sum(stays) < 30
    assert not any(stays[-300:])
    assert losses[-1] < 0.5 * losses[0]
