"""Seeds side by side start and train as each would alone."""

from __future__ import annotations

import copy
from functools import partial

import pytest
import torch
from torch import Tensor, nn

import deu
from deu.experiments.activations import FACTORIES, Maxout, Sine, siren_start_
from deu.experiments.models import hidden
from deu.experiments.stacked import Stacked

SEEDS = (3, 1, 4, 15)
ACTIVATIONS = {
    **{name: FACTORIES[name] for name in ("ReLU", "PReLU", "Swish", "Snake", "Maxout")},
    **{name: FACTORIES[name] for name in ("deu", "deu paper", "deu random", "deu spread")},
    "three pieces": lambda features: Maxout(features, 3),
    "deu relu": lambda features: deu.DEU(features, init="relu"),
}


def train(net: nn.Module, x: Tensor, target: Tensor, mean_over: tuple[int, ...]) -> None:
    optimiser = torch.optim.Adam(net.parameters(), lr=0.01)
    for _ in range(20):
        optimiser.zero_grad()
        (net(x) - target).square().mean(mean_over).sum().backward()
        optimiser.step()


@pytest.mark.parametrize("width", [1, 5])
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_training_at_once_is_training_alone(name, width):
    activation = ACTIVATIONS[name]
    x = torch.randn(len(SEEDS), 16, 3, dtype=torch.float64)
    target = torch.randn(len(SEEDS), 16, 2, dtype=torch.float64)
    nets = Stacked(activation, SEEDS, 3, width, 2).double()
    train(nets, x, target, (1, 2))
    for i, seed in enumerate(SEEDS):
        torch.manual_seed(seed)
        alone = hidden(activation, 3, width, 2).double()
        before = [p.detach().clone() for p in alone.parameters()]
        train(alone, x[i], target[i], (0, 1))
        assert not any(map(torch.equal, before, alone.parameters()))
        for key, value in nets.network(i).state_dict().items():
            torch.testing.assert_close(
                value, alone.state_dict()[key], rtol=1e-10, atol=1e-10, msg=f"{key} of seed {seed}"
            )
        torch.testing.assert_close(nets(x)[i], alone(x[i]), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_each_seed_starts_as_it_would_alone(name):
    nets = Stacked(ACTIVATIONS[name], SEEDS, 3, 5, 2)
    for i, seed in enumerate(SEEDS):
        torch.manual_seed(seed)
        alone = hidden(ACTIVATIONS[name], 3, 5, 2).state_dict()
        got = nets.network(i).state_dict()
        assert got.keys() == alone.keys()
        assert all(torch.equal(got[key], alone[key]) for key in alone)


def test_layers_start_as_told():
    start = partial(siren_start_, omega=20.0)
    nets = Stacked(lambda features: Sine(20.0), SEEDS, 3, 5, 2, start=start)
    for i, seed in enumerate(SEEDS):
        torch.manual_seed(seed)
        alone = hidden(lambda features: Sine(20.0), 3, 5, 2, start=start)
        assert torch.equal(nets.weight1[i], alone[0].weight)
        assert torch.equal(nets.weight2[i], alone[2].weight)


def test_building_leaves_the_random_numbers_alone():
    before = torch.get_rng_state()
    Stacked(FACTORIES["deu"], SEEDS, 3, 5, 2).network(0)
    assert torch.equal(torch.get_rng_state(), before)


def test_a_seeds_network_is_a_copy_in_the_same_type_and_mode():
    nets = Stacked(FACTORIES["deu"], SEEDS, 3, 5, 2).double().eval()
    alone = nets.network(1)
    assert all(p.dtype == torch.float64 and p.requires_grad for p in alone.parameters())
    assert not any(part.training for part in alone.modules())
    before = copy.deepcopy(nets.state_dict())
    for p in alone.parameters():
        nn.init.zeros_(p)
    assert all(torch.equal(value, before[key]) for key, value in nets.state_dict().items())


def test_it_learns_the_parameters_of_its_networks_and_no_more():
    nets = Stacked(FACTORIES["deu"], SEEDS, 3, 5, 2)
    alone = sum(p.numel() for p in hidden(FACTORIES["deu"], 3, 5, 2).parameters())
    assert sum(p.numel() for p in nets.parameters()) == len(SEEDS) * alone
    x = torch.randn(len(SEEDS), 7, 3)
    assert torch.equal(copy.deepcopy(nets)(x), nets(x))


def test_a_parameter_shared_by_all_features_is_an_error():
    with pytest.raises(ValueError, match=r"weight must have one number a feature; alone .* \(1,\)"):
        Stacked(lambda features: nn.PReLU(), SEEDS, 3, 5, 2)
