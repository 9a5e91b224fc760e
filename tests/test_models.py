"""The networks of the experiments: what they are made of, and that they train."""

from __future__ import annotations

from functools import partial
from itertools import pairwise

import pytest
import torch
from torch import nn

import deu
from deu.experiments import models
from deu.experiments.activations import FACTORIES, Maxout, siren_start_
from deu.experiments.models import count_parameters as count

# Small ones of every kind, with the images that they take.
SMALL = [
    (partial(models.mlp, hidden=(20, 10)), (1, 28, 28)),
    (partial(models.mlp, hidden=(20, 10), norm=True), (1, 28, 28)),
    (models.cnn, (1, 28, 28)),
    (partial(models.cnn, norm=True), (1, 28, 28)),
    (partial(models.resnet18, widths=(4, 6)), (3, 8, 8)),
    (partial(models.preact_resnet18, widths=(4, 6)), (3, 8, 8)),
]


class Marker(nn.Identity):
    """An activation that is easy to count."""


# Behind each, what the paper says; where ours differ, its text says too little to tell why.
@pytest.mark.parametrize(
    ("network", "activation", "size"),
    [
        (models.cnn, "SELU", 832 + 12_816 + 7_850),  # 21k
        (models.cnn, "deu", 21_498 + 5 * 48),  # 21k
        (models.cnn, "ReLU", 21_498),  # 30k, of a wider one that it does not describe
        (models.cnn, "Maxout", 2 * 832 + 2 * 12_816 + 7_850),  # 26k: less than two pieces need
        (models.mlp, "ReLU", 803_840 + 524_800 + 5_130),  # 1411k, and 1293k with SELU
        (models.mlp, "deu", 1_333_770 + 5 * 1_536),  # 1292k; 784 → 1024 → 512 → 10 has 1334k
        (models.mlp, "Maxout", 2 * 803_840 + 2 * 524_800 + 5_130),  # 2043k
        (models.resnet18, "ReLU", 11_173_962),  # 11174k
        (models.resnet18, "deu", 11_173_962 + 5 * 3_904),  # 11174k: it leaves the units out
        (models.resnet18, "Maxout", 2 * 11_168_832 + 708_608 + 5_130),  # 13272k
        (models.stunted_resnet18, "ReLU", 676_682),  # 678k
        (models.stunted_resnet18, "Maxout", 2 * 675_392 + 50_176 + 1_290),  # 801k
        (models.preact_resnet18, "ReLU", 11_172_170),  # 11170k; 11171k without the last norm
        (models.preact_resnet18, "Maxout", 2 * 11_167_040 + 5_130),  # 13267k
    ],
)
def test_the_networks_have_the_papers_sizes_where_it_can_be_followed(network, activation, size):
    with torch.device("meta"):
        assert count(network(FACTORIES[activation])) == size


@pytest.mark.parametrize("network", [models.resnet18, models.preact_resnet18])
def test_classes_change_only_the_last_layer(network):
    with torch.device("meta"):
        relu = FACTORIES["ReLU"]
        assert count(network(relu, classes=100)) - count(network(relu)) == 90 * 513


@pytest.mark.parametrize(
    ("network", "widths"),
    [
        (models.mlp, [1024, 512]),
        (models.cnn, [32, 16]),
        (models.resnet18, [64] * 5 + [128] * 4 + [256] * 4 + [512] * 4),
        (models.preact_resnet18, [64] * 5 + [128] * 4 + [256] * 4 + [512] * 4),
        (models.stunted_resnet18, [64] * 5 + [128] * 4),
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
    for network, image in SMALL:
        net = network(FACTORIES[name])
        net(torch.randn(2, *image)).square().mean().backward()
        assert all(p.grad is not None and p.grad.isfinite().all() for p in net.parameters())


@pytest.mark.parametrize(("network", "image"), SMALL)
def test_maxout_has_two_pieces_in_every_network(network, image):
    seen = []
    net = network(FACTORIES["Maxout"])
    for part in net.modules():
        if isinstance(part, Maxout):
            part.register_forward_hook(
                lambda module, inputs, y: seen.append(inputs[0].shape[1] == 2 * y.shape[1])
            )
    net(torch.randn(2, *image))
    assert len(seen) == sum(isinstance(part, Maxout) for part in net.modules())
    assert all(seen)


@pytest.mark.parametrize("network", [models.cnn, models.mlp])
def test_norm_stands_before_each_activation(network):
    plain = network(lambda features: Marker())
    normed = network(lambda features: Marker(), norm=True)
    before = [a for a, b in pairwise(normed) if isinstance(b, Marker)]
    assert len(before) == 2
    assert all(isinstance(part, (nn.BatchNorm1d, nn.BatchNorm2d)) for part in before)
    assert len(normed) == len(plain) + 2


def test_mlp_takes_any_hidden_layers():
    net = models.mlp(FACTORIES["ReLU"], inputs=7, hidden=(6, 5, 4), classes=3)
    sizes = [(part.in_features, part.out_features) for part in net if isinstance(part, nn.Linear)]
    assert sizes == [(7, 6), (6, 5), (5, 4), (4, 3)]


def test_hidden_is_one_hidden_layer():
    net = models.hidden(FACTORIES["Snake"], 10, 4, 2)
    x = torch.randn(5, 10)
    torch.testing.assert_close(net(x), net[2](net[1](net[0](x))))
    assert [type(part).__name__ for part in net] == ["Linear", "Snake", "Linear"]
    assert count(net) == 44 + 4 + 10
    assert count(models.hidden(FACTORIES["Maxout"], 10, 4, 2)) == 88 + 10


def test_hidden_starts_its_layers_as_told():
    asked = []
    net = models.hidden(
        FACTORIES["Sine"], 2, 4, 1, start=lambda layer, first: asked.append((layer, first))
    )
    assert asked == [(net[0], True), (net[2], False)]
    net = models.hidden(FACTORIES["Sine"], 2, 4, 1, start=siren_start_)
    assert net[2].weight.abs().max() < (6 / 4) ** 0.5 / 30


@pytest.mark.parametrize("name", ["ReLU", "Maxout"])
def test_preact_shortcuts_carry_the_input_itself_where_the_shape_stays(name):
    """With its last convolution at zero, a block is its shortcut."""
    for inputs, outputs, stride in ((4, 4, 1), (4, 6, 1), (4, 4, 2), (4, 6, 2)):
        block = models.PreactBlock(inputs, outputs, stride, FACTORIES[name])
        nn.init.zeros_(block.conv2.weight)
        x = torch.randn(2, block.norm1.num_features, 4, 4)
        if (inputs, stride) == (outputs, 1):
            assert torch.equal(block(x), x)
        else:
            assert torch.equal(block(x), block.shortcut(block.activation1(block.norm1(x))))


def test_resnet_adds_a_convolution_to_shortcuts_only_where_shapes_differ():
    def convolved(name: str) -> list[bool]:
        with torch.device("meta"):
            net = models.resnet18(FACTORIES[name])
        return [len(m.shortcut) > 0 for m in net if isinstance(m, models.BasicBlock)]

    assert convolved("ReLU") == [False, False, True, False, True, False, True, False]
    assert all(convolved("Maxout"))


def test_resnet_halves_its_image_three_times_and_trains_with_units():
    net = models.resnet18(FACTORIES["deu"])
    seen = []
    for part in net.modules():
        if isinstance(part, deu.DEU):
            part.register_forward_hook(lambda module, inputs, y: seen.append(y.shape[1:]))
    net(torch.randn(2, 3, 16, 16)).square().mean().backward()
    sizes = [(64, 16, 16)] * 5 + [(128, 8, 8)] * 4 + [(256, 4, 4)] * 4 + [(512, 2, 2)] * 4
    assert [tuple(size) for size in seen] == sizes
