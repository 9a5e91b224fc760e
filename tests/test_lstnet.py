"""LSTNet against its formulas, step by step, and each of its parts alone."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import deu
from deu.experiments.activations import FACTORIES, fan
from deu.experiments.lstnet import LSTNet


def gru(layer: nn.GRU, steps: list[Tensor]) -> Tensor:
    """The last state of a GRU, by its equations: one sample, a list of (features,)."""
    w, v, b, d = (
        getattr(layer, f"{name}_l0") for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    )
    h = torch.zeros(layer.hidden_size, dtype=torch.float64)
    for x in steps:
        xr, xz, xn = (w @ x + b).chunk(3)
        hr, hz, hn = (v @ h + d).chunk(3)
        reset, update = torch.sigmoid(xr + hr), torch.sigmoid(xz + hz)
        h = (1 - update) * torch.tanh(xn + reset * hn) + update * h
    return h


def naive(net: LSTNet, x: Tensor, skip: int, highway: int) -> Tensor:
    """One sample of shape (window, variables), by loops."""
    weight, bias = net.convolution.weight, net.convolution.bias
    kernel = weight.shape[2]
    h = []
    for t in range(len(x) - kernel + 1):
        now = sum(weight[:, :, i] @ x[t + i] for i in range(kernel)) + bias
        h.append(net.activation(now[None])[0])
    states = [gru(net.recurrent, h)]
    if skip:
        for phase in range(skip):
            at = range(len(h) - skip + phase, -1, -skip)  # from the last period backwards
            whole = [h[t] for t in at][: len(h) // skip]
            states.append(gru(net.skipping, whole[::-1]))
    y = net.output.weight @ torch.cat(states) + net.output.bias
    if highway:
        for i in range(highway):
            y = y + net.highway.weight[0, i] * x[len(x) - highway + i]
        y = y + net.highway.bias
    return torch.sigmoid(y) if net.sigmoid else y


def small(activation: str = "ReLU", **settings: object) -> LSTNet:
    sizes = {"window": 20, "channels": 5, "kernel": 3, "hidden": 4, "skip": 4, "skip_hidden": 2}
    return LSTNet(FACTORIES[activation], 3, **{**sizes, "highway": 6, **settings}).double()


@pytest.mark.parametrize(
    ("activation", "settings"),
    [
        ("ReLU", {}),
        ("ReLU", {"sigmoid": True}),
        ("ReLU", {"skip": 0}),
        ("ReLU", {"highway": 0}),
        ("ReLU", {"skip": 5, "window": 17, "highway": 1}),  # 15 steps: exactly three periods
        ("ReLU", {"skip": 18}),  # one period
        ("Snake", {}),
        ("Maxout", {}),
        ("deu paper", {}),
        ("deu random", {}),
    ],
)
def test_it_is_what_its_formulas_say(activation, settings):
    net = small(activation, **settings).eval()
    x = torch.randn(4, settings.get("window", 20), 3, dtype=torch.float64)
    skip, highway = settings.get("skip", 4), settings.get("highway", 6)
    want = torch.stack([naive(net, one, skip, highway) for one in x])
    torch.testing.assert_close(net(x), want)


def test_its_defaults_are_those_of_the_paper():
    net = LSTNet(FACTORIES["ReLU"], 8)
    assert net.convolution.weight.shape == (100, 8, 6)
    assert (net.recurrent.hidden_size, net.skipping.hidden_size) == (100, 5)
    assert (net.skip, net.periods) == (24, 6)  # of 163 steps
    assert net.output.weight.shape == (8, 100 + 24 * 5)
    assert net.highway.weight.shape == (1, 24)
    assert net.dropout.p == 0.2


def test_the_skip_part_reads_whole_periods_up_to_the_last_step():
    """18 steps, period 4: 16 are read, and phase j those at 2 + j, 6 + j, 10 + j, 14 + j."""
    net = small().eval()
    h = torch.randn(1, 5, 18, dtype=torch.float64, requires_grad=True)
    states = net._phases(net.skipping, h)
    assert states.shape == (1, 8)
    for phase in range(4):
        (grad,) = torch.autograd.grad(states[0, 2 * phase], h, retain_graph=True)
        read = grad[0].abs().sum(0).nonzero().flatten().tolist()
        assert read == [2 + phase, 6 + phase, 10 + phase, 14 + phase]


def test_the_linear_part_alone_is_a_regression_on_the_last_steps():
    net = small(highway=6).eval()
    nn.init.zeros_(net.output.weight)
    nn.init.zeros_(net.output.bias)
    x = torch.randn(4, 20, 3, dtype=torch.float64)
    with torch.no_grad():
        steps = x[:, -6:].permute(0, 2, 1).reshape(-1, 6)  # a row for each sample and series
        target = torch.randn(len(steps), 1, dtype=torch.float64)
        design = torch.cat([steps, torch.ones(len(steps), 1, dtype=torch.float64)], 1)
        solved = torch.linalg.lstsq(design, target).solution[:, 0]
        net.highway.weight.copy_(solved[None, :6])
        net.highway.bias.copy_(solved[6:])
        torch.testing.assert_close(net(x).reshape(-1, 1), design @ solved[:, None])


def test_dropout_acts_in_training_only():
    net = small(dropout=0.5)
    x = torch.randn(4, 20, 3, dtype=torch.float64)
    assert not torch.equal(net(x), net(x))
    net.eval()
    assert torch.equal(net(x), net(x))
    net = small(dropout=0.0)
    assert torch.equal(net(x), net.eval()(x))


@pytest.mark.parametrize("name", FACTORIES)
def test_it_trains_with_every_activation(name):
    net = small(name)
    net(torch.randn(4, 20, 3, dtype=torch.float64)).square().mean().backward()
    assert net.convolution.out_channels == 5 * fan(net.activation)
    assert all(p.grad is not None and p.grad.isfinite().all() for p in net.parameters())


def test_the_activation_is_asked_for_with_the_channels():
    net = LSTNet(lambda features: deu.DEU(features), 3, channels=7)
    assert net.activation.num_features == 7


@pytest.mark.parametrize(
    ("settings", "least"), [({"kernel": 30}, 33), ({"skip": 19}, 21), ({"highway": 25}, 25)]
)
def test_a_window_too_short_is_an_error_that_says_how_long(settings, least):
    with pytest.raises(ValueError, match=rf"window of 20 is too short .* give at least {least}$"):
        small(**settings)
