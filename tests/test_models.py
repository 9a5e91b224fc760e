"""The networks and activations of the experiments: what they are made of, and their formulas."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import deu
from deu.experiments import models
from deu.experiments.activations import FACTORIES, Snake


def count(net: nn.Module) -> int:
    return sum(p.numel() for p in net.parameters())


class Marker(nn.Identity):
    """An activation that is easy to count."""


def test_the_networks_have_the_papers_sizes():
    relu = FACTORIES["ReLU"]
    assert count(models.cnn(relu)) == 832 + 12_816 + 7_850  # 21k
    assert count(models.mlp(relu)) == 803_840 + 524_800 + 5_130
    assert count(models.resnet18(relu)) == 11_173_962
    assert count(models.resnet18(relu, classes=100)) == 11_173_962 + 90 * 513


@pytest.mark.parametrize(
    ("network", "widths"),
    [
        (models.mlp, [1024, 512]),
        (models.cnn, [32, 16]),
        (models.resnet18, [64] * 5 + [128] * 4 + [256] * 4 + [512] * 4),
    ],
)
def test_every_activation_is_asked_for_with_its_features(network, widths):
    asked = []

    def activation(features: int) -> nn.Module:
        asked.append(features)
        return Marker()

    net = network(activation)
    assert sorted(asked) == sorted(widths)
    assert sum(isinstance(part, Marker) for part in net.modules()) == len(widths)
    assert not any(isinstance(part, nn.ReLU) for part in net.modules())


@pytest.mark.parametrize("name", FACTORIES)
def test_networks_train_with_every_activation(name):
    for network, shape in ((models.cnn, (2, 1, 28, 28)), (models.mlp, (2, 1, 28, 28))):
        net = network(FACTORIES[name])
        net(torch.randn(shape)).square().mean().backward()
        assert all(p.grad is not None and p.grad.isfinite().all() for p in net.parameters())


def test_resnet_halves_its_image_three_times_and_trains_with_units():
    net = models.resnet18(FACTORIES["deu"])
    seen = []
    for part in net.modules():
        if isinstance(part, deu.DEU):
            part.register_forward_hook(lambda module, inputs, y: seen.append(y.shape[1:]))
    net(torch.randn(2, 3, 16, 16)).square().mean().backward()
    sizes = [(64, 16, 16)] * 5 + [(128, 8, 8)] * 4 + [(256, 4, 4)] * 4 + [(512, 2, 2)] * 4
    assert [tuple(size) for size in seen] == sizes


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
        "Snake": x + x.sin() ** 2,
    }
    assert set(formulas) == {name for name in FACTORIES if not name.startswith("deu")}
    for name, want in formulas.items():
        torch.testing.assert_close(FACTORIES[name](1).double()(x), want, msg=name)


@pytest.mark.parametrize("dim", [1, -1])
def test_snake_has_an_alpha_for_each_feature(dim):
    snake = Snake(3, dim=dim).double()
    alpha = torch.tensor([0.5, 1.0, 4.0], dtype=torch.float64)
    with torch.no_grad():
        snake.alpha.copy_(alpha)
    x = torch.randn(2, 3, 3, 3, dtype=torch.float64)
    y = snake(x)
    for i, a in enumerate(alpha):
        one = x.select(dim, i)
        torch.testing.assert_close(y.select(dim, i), one + torch.sin(a * one) ** 2 / a)
    assert torch.autograd.gradcheck(snake, x[:1, :, :2].clone().requires_grad_())
