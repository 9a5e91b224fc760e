"""Parameter groups: every parameter once, units apart and without decay."""

import pytest
import torch
from torch import nn

import deu


def network() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), deu.DEU(4), nn.Flatten(), nn.LazyLinear(2)
    )


def test_every_parameter_is_in_one_group() -> None:
    model = network()
    model(torch.randn(2, 1, 8, 8))
    groups = deu.param_groups(model, lr=0.1, weight_decay=0.01)
    listed = [id(p) for group in groups for p in group["params"]]
    assert sorted(listed) == sorted(id(p) for p in model.parameters())
    by_name = {group["name"]: group for group in groups}
    assert {name: group["weight_decay"] for name, group in by_name.items()} == {
        "weights": 0.01,
        "biases": 0.0,
        "units": 0.0,
    }
    assert [id(p) for p in by_name["units"]["params"]] == [id(p) for p in model[2].parameters()]


@pytest.mark.parametrize(("unit_lr", "expected"), [(None, 0.01), (0.003, 0.003), (0.0, 0.0)])
def test_units_take_their_own_rate(unit_lr: float | None, expected: float) -> None:
    model = nn.Sequential(nn.Linear(2, 3), deu.DEU(3))
    groups = deu.param_groups(model, 0.1, unit_lr=unit_lr)
    assert {group["name"]: group["lr"] for group in groups}["units"] == pytest.approx(expected)


def test_frozen_and_missing_parameters_are_left_out() -> None:
    model = nn.Sequential(nn.Linear(2, 3), deu.DEU(3))
    model[0].requires_grad_(False)
    assert [group["name"] for group in deu.param_groups(model, 0.1)] == ["units"]
    assert [group["name"] for group in deu.param_groups(nn.Linear(2, 3), 0.1)] == [
        "weights",
        "biases",
    ]


@pytest.mark.parametrize("optimiser", [torch.optim.Adam, torch.optim.AdamW, torch.optim.SGD])
def test_optimisers_take_them(optimiser: type[torch.optim.Optimizer]) -> None:
    model = nn.Sequential(nn.Linear(2, 3), deu.DEU(3), nn.Linear(3, 1))
    steps = optimiser(deu.param_groups(model, lr=0.01, weight_decay=0.1))  # type: ignore[arg-type]
    before = [p.detach().clone() for p in model.parameters()]
    model(torch.randn(16, 2)).square().mean().backward()
    steps.step()
    assert any(not torch.equal(p, q) for p, q in zip(model.parameters(), before, strict=True))


@pytest.mark.parametrize("wrong", [{"lr": -1.0}, {"lr": 0.1, "unit_lr": float("nan")}])
def test_a_wrong_rate_is_named(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="must be a number of 0 or more; got"):
        deu.param_groups(nn.Linear(1, 1), **wrong)
