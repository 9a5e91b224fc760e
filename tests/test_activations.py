"""The activations of the experiments: their formulas, parameters and starts."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

import deu
from deu.experiments.activations import (
    FACTORIES,
    Maxout,
    Sine,
    Snake,
    SwishBeta,
    fan,
    siren_start_,
)


def test_factories_give_the_formulas_that_they_name():
    x = torch.linspace(-3, 3, 61, dtype=torch.float64)[:, None]
    e = x.exp()
    formulas = {
        "ReLU": x.clamp(min=0),
        "LeakyReLU": torch.where(x > 0, x, 0.01 * x),
        "PReLU": torch.where(x > 0, x, 0.25 * x),
        "ELU": torch.where(x > 0, x, e - 1),
        "SELU": 1.0507009873554805 * torch.where(x > 0, x, 1.6732632423543772 * (e - 1)),
        "GELU": x * (1 + torch.erf(x / 2**0.5)) / 2,
        "SiLU": x / (1 + 1 / e),
        "Swish": x / (1 + 1 / e),
        "Snake": x + x.sin() ** 2,
        "Sine": (30 * x).sin(),
        "Maxout": x.abs(),
    }
    assert set(formulas) == {name for name in FACTORIES if not name.startswith("deu")}
    for name, want in formulas.items():
        given = torch.cat([x, -x], 1) if name == "Maxout" else x
        torch.testing.assert_close(FACTORIES[name](1).double()(given), want, msg=name)


@pytest.mark.parametrize("name", FACTORIES)
def test_parameters_have_one_number_a_feature(name):
    assert all(p.shape == (6,) for p in FACTORIES[name](6).parameters())


@pytest.mark.parametrize("name", [name for name in FACTORIES if name.startswith("deu")])
def test_units_have_the_solution_and_the_start_that_they_name(name):
    layer = FACTORIES[name](3)
    assert isinstance(layer, deu.DEU)
    which = name.removeprefix("deu").strip()
    papers = which in ("paper", "authors")
    assert layer.solution == ("paper" if papers else "continuous")
    start = "random" if papers else which or "gelu"
    assert f"init={start!r}" in repr(layer)


def snake(x: Tensor, alpha: Tensor) -> Tensor:
    return x + torch.sin(alpha * x) ** 2 / alpha


def swish(x: Tensor, beta: Tensor) -> Tensor:
    return x / (1 + torch.exp(-beta * x))


@pytest.mark.parametrize("dim", [1, -1])
@pytest.mark.parametrize(("module", "formula"), [(Snake, snake), (SwishBeta, swish)])
def test_each_feature_has_its_own_parameter(module, formula, dim):
    layer = module(3, dim=dim).double()
    (parameter,) = layer.parameters()
    assert parameter.tolist() == [1, 1, 1]
    values = torch.tensor([0.5, 1.0, 4.0], dtype=torch.float64)
    with torch.no_grad():
        parameter.copy_(values)
    x = torch.randn(2, 3, 3, 3, dtype=torch.float64)
    y = layer(x)
    for i, value in enumerate(values):
        torch.testing.assert_close(y.select(dim, i), formula(x.select(dim, i), value))
    assert torch.autograd.gradcheck(layer, x[:1, :, :2].clone().requires_grad_())


@pytest.mark.parametrize("module", [Snake, SwishBeta])
def test_one_parameter_is_shared_by_all(module):
    x = torch.randn(2, 3, 4)
    assert torch.equal(module()(x), module(3)(x))


@pytest.mark.parametrize("pieces", [2, 3])
@pytest.mark.parametrize(("dim", "shape"), [(1, (5, 4)), (1, (2, 4, 3, 3)), (-1, (2, 3, 4))])
def test_maxout_takes_the_largest_of_neighbours(pieces, dim, shape):
    layer = Maxout(4, pieces, dim=dim)
    assert fan(layer) == pieces
    wide = list(shape)
    wide[dim] *= pieces
    x = torch.randn(wide, dtype=torch.float64)
    y = layer(x)
    assert y.shape == shape
    for i in range(4):
        group = [x.select(dim, pieces * i + j) for j in range(pieces)]
        assert torch.equal(y.select(dim, i), torch.stack(group).max(0).values)
    assert torch.autograd.gradcheck(layer, x.requires_grad_())


def test_maxout_says_what_it_takes():
    with pytest.raises(
        ValueError, match=r"takes 8 features along dim=1; got shape \(2, 4\)\. Size"
    ):
        Maxout(4)(torch.zeros(2, 4))


def test_modules_without_pieces_take_what_they_return():
    assert fan(nn.ReLU()) == fan(deu.DEU(3)) == 1


@pytest.mark.parametrize(
    ("first", "omega", "bound"),
    [
        (True, 30.0, 1 / 50),
        (False, 30.0, math.sqrt(6 / 50) / 30),
        (False, 2.0, math.sqrt(6 / 50) / 2),
    ],
)
def test_siren_starts_weights_uniformly_within_its_bounds(first, omega, bound):
    layer = nn.Linear(50, 400)
    bias = layer.bias.detach().clone()
    siren_start_(layer, first, omega)
    assert layer.weight.requires_grad
    assert layer.weight.abs().max() <= bound
    assert layer.weight.abs().max() > 0.99 * bound
    assert abs(layer.weight.std().item() / (bound / math.sqrt(3)) - 1) < 0.02
    assert torch.equal(layer.bias, bias)


def test_siren_keeps_its_spread_from_layer_to_layer():
    """What its start is for: 1 from the weights and 30/√(3·256) from the bias, at any depth."""
    x = torch.rand(2000, 256) * 2 - 1
    for depth in range(5):
        layer = nn.Linear(256, 256)
        siren_start_(layer, first=depth == 0)
        t = 30 * layer(x).detach()
        x = Sine()(layer(x)).detach()
        if depth:
            assert abs(t.std() / math.sqrt(1 + 30**2 / (3 * 256)) - 1) < 0.1
