"""The layers: parameters, defaults, saving, errors, limits, training."""

from __future__ import annotations

import copy
import inspect
import io
import math
import pickle
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import deu

from .conftest import NAMES, every_subspace, gradients

SOLUTIONS = ["paper", "continuous"]


def saved_and_loaded(layer: nn.Module) -> dict[str, Tensor]:
    file = io.BytesIO()
    torch.save(layer.state_dict(), file)
    file.seek(0)
    return torch.load(file, weights_only=True)


@pytest.mark.parametrize("n", [1, 3, 64])
@pytest.mark.parametrize("solution", SOLUTIONS)
def test_parameters(n: int, solution: str) -> None:
    layer = deu.DEU(n, solution=solution)
    assert [name for name, _ in layer.named_parameters()] == list(NAMES)
    for name, p in layer.named_parameters():
        assert isinstance(p, nn.Parameter), name
        assert p.shape == (n,), name
        assert p.requires_grad, name
    assert list(layer.state_dict()) == list(NAMES)
    assert layer.num_features == n


def defaults(function: Any) -> dict[str, Any]:
    parameters = inspect.signature(function).parameters.values()
    return {p.name: p.default for p in parameters if p.default is not p.empty}


def test_defaults() -> None:
    assert defaults(deu.DEU) == {
        "num_features": 1,
        "dim": 1,
        "init": "gelu",
        "solution": "continuous",
        "eps": 0.01,
        "sharpness": 100.0,
        "max_exponent": 1.0,
        "bound": 1000.0,
        "max_grad_norm": 1.0,
        "device": None,
        "dtype": None,
    }


@pytest.mark.parametrize(
    ("function", "own"),
    [
        (deu.functional.deu, {"training"}),
        (deu.reference.deu, {"training"}),
        (deu.init.fit, {"low", "high"}),
    ],
    ids=["functional", "reference", "fit"],
)
def test_defaults_are_those_of_the_layer(function: Any, own: set[str]) -> None:
    layer, theirs = defaults(deu.DEU), defaults(function)
    shared = {name: value for name, value in theirs.items() if name not in own}
    assert shared == {name: layer[name] for name in shared}
    expected = {"solution", "eps", "sharpness", "max_exponent"}
    if function is not deu.init.fit:
        expected |= {"dim", "bound", "max_grad_norm"}
    assert set(shared) == expected


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("function", [deu.functional.deu, deu.reference.deu])
def test_a_layer_is_the_function_by_default(function: Any, training: bool) -> None:
    """With inputs and coefficients that reach every limit."""
    t, units = 30 * torch.randn(40, 13, dtype=torch.float64), every_subspace(13)
    layer = deu.DEU(13, dtype=torch.float64).train(training)
    with torch.no_grad():
        for p, value in zip(layer.coefficients(), units, strict=True):
            p.copy_(value)
    t[:, 3] *= 10
    y = layer(t)
    y.sum().backward()
    want = gradients(function, t, units, training=training)
    assert (y.abs() == 1000).any()
    norms = torch.stack([want[name] for name in NAMES]).norm(dim=0)
    assert (norms > 1 - 1e-9).any()
    torch.testing.assert_close(y.detach(), want["y"], rtol=1e-9, atol=1e-9)
    for name in NAMES:
        torch.testing.assert_close(
            getattr(layer, name).grad, want[name], rtol=1e-9, atol=1e-9, msg=name
        )


@pytest.mark.parametrize("lazy", [False, True])
def test_a_layer_starts_near_gelu_by_default(lazy: bool) -> None:
    layer = deu.LazyDEU() if lazy else deu.DEU(5)
    t = torch.randn(30, 5)
    y = layer(t)
    assert torch.equal(y, deu.DEU(5, init="gelu", solution="continuous")(t))
    assert (y - nn.functional.gelu(t)).abs().max() < 0.15


@pytest.mark.parametrize("solution", SOLUTIONS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_to_dtype(dtype: torch.dtype, solution: str) -> None:
    layer = deu.DEU(5, init="random", solution=solution).to(dtype)
    assert {p.dtype for p in layer.parameters()} == {dtype}
    y = layer(torch.randn(3, 5, dtype=dtype))
    assert y.dtype == dtype
    y.sum().backward()
    assert {p.grad.dtype for p in layer.parameters()} == {dtype}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_dtype_and_device_arguments(dtype: torch.dtype) -> None:
    layer = deu.DEU(5, dtype=dtype, device="cpu")
    assert {(p.dtype, p.device.type) for p in layer.parameters()} == {(dtype, "cpu")}


@pytest.mark.parametrize("init", deu.init.NAMED)
def test_meta_device(init: str) -> None:
    layer = deu.DEU(5, init=init, device="meta")
    assert {p.device.type for p in layer.parameters()} == {"meta"}
    y = layer(torch.empty(3, 5, device="meta"))
    assert y.shape == (3, 5)
    assert y.device.type == "meta"
    layer.to_empty(device="cpu").reset_parameters()
    assert layer(torch.randn(3, 5)).isfinite().all()


def test_default_device_and_dtype_are_kept_to() -> None:
    with torch.device("meta"):
        assert deu.DEU(4).a.is_meta
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        assert deu.DEU(4).a.dtype == torch.float64
    finally:
        torch.set_default_dtype(before)


@pytest.mark.parametrize("solution", SOLUTIONS)
def test_state_dict_round_trip(solution: str) -> None:
    layer, other = (deu.DEU(7, init="random", solution=solution) for _ in range(2))
    t = torch.randn(4, 7)
    assert not torch.equal(layer(t), other(t))
    other.load_state_dict(saved_and_loaded(layer))
    assert torch.equal(layer(t), other(t))


def a_wave(t: Tensor) -> Tensor:
    return torch.sin(2 * t)


@pytest.mark.parametrize("init", ["spread", a_wave], ids=["name", "fitted"])
@pytest.mark.parametrize("way", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
def test_copies(init: Any, way: Any) -> None:
    layer = deu.DEU(6, init=init)
    other = way(layer)
    t = torch.randn(4, 6)
    assert torch.equal(layer(t), other(t))
    assert repr(layer) == repr(other)
    assert other.fit == layer.fit
    with torch.no_grad():
        other.a += 1
    assert not torch.equal(layer.a, other.a)
    other.reset_parameters()
    assert torch.equal(layer.a, other.a)


def test_a_layer_fitted_to_a_lambda_pickles() -> None:
    layer = deu.DEU(2, init=lambda t: 2 * t)
    other = pickle.loads(pickle.dumps(layer))
    for p, q in zip(layer.coefficients(), other.coefficients(), strict=True):
        assert torch.equal(p, q)


@pytest.mark.parametrize(
    ("shape", "dim", "features"),
    [((4, 6), 1, 6), ((2, 5, 3, 3), 1, 5), ((2, 3, 7), -1, 7), ((9,), 0, 9), ((1, 1), 1, 1)],
)
@pytest.mark.parametrize("solution", SOLUTIONS)
def test_lazy(shape: tuple[int, ...], dim: int, features: int, solution: str) -> None:
    layer = deu.LazyDEU(dim=dim, init="spread", solution=solution, dtype=torch.float64)
    assert layer.has_uninitialized_params()
    assert isinstance(layer, deu.DEU)
    y = layer(torch.randn(shape, dtype=torch.float64))
    assert y.shape == shape
    assert type(layer) is deu.DEU
    assert layer.num_features == features
    assert {p.shape for p in layer.parameters()} == {(features,)}
    assert {p.dtype for p in layer.parameters()} == {torch.float64}
    assert (layer.c == 1).all()


def test_lazy_reports_and_loads() -> None:
    """A lazy layer takes its size from a state dict too, and copies before its first input."""
    layer, full = deu.LazyDEU(init="relu"), deu.DEU(6, init="spread")
    assert "LazyDEU" in repr(layer)
    copied = copy.deepcopy(layer)
    assert copied.has_uninitialized_params()
    layer.load_state_dict(saved_and_loaded(full))
    t = torch.randn(3, 6)
    assert torch.equal(layer(t), full(t))
    assert type(layer) is deu.DEU
    assert layer.num_features == 6


def test_lazy_in_a_model_before_an_optimiser() -> None:
    model = nn.Sequential(nn.LazyLinear(8), deu.LazyDEU(), nn.Linear(8, 1))
    model(torch.randn(2, 3))
    assert type(model[1]) is deu.DEU
    assert sum(p.numel() for p in model.parameters()) == 4 * 8 + 5 * 8 + 9


def test_lazy_says_which_dim_is_missing() -> None:
    with pytest.raises(ValueError, match=r"dim=3.*\(4, 5\)"):
        deu.LazyDEU(dim=3)(torch.randn(4, 5))


def test_repr_is_a_call() -> None:
    layer = deu.DEU(3, dim=-1, init="spread", solution="continuous", bound=7, max_grad_norm=None)
    again = eval(repr(layer), {"DEU": deu.DEU})
    assert repr(again) == repr(layer)
    for part in ("3", "dim=-1", "'spread'", "'continuous'", "bound=7", "max_grad_norm=None"):
        assert part in repr(layer)
    assert "a_wave" in repr(deu.DEU(init=a_wave))


def test_reset_parameters() -> None:
    layer = deu.DEU(50, init="relu")
    with torch.no_grad():
        for p in layer.parameters():
            p.fill_(7.0)
    layer.reset_parameters()
    assert [p[0].item() for p in layer.coefficients()] == [0, 1, 0, 0, 0]
    random = deu.DEU(50, init="random")
    before = random.a.clone()
    random.reset_parameters()
    assert not torch.equal(random.a, before)


@pytest.mark.parametrize("shape", [(), (5,), (4, 3), (2, 3, 4), (2, 3, 2, 2), (0, 3), (0,)])
@pytest.mark.parametrize("solution", SOLUTIONS)
@pytest.mark.parametrize("dim", [1, -1, 7])
def test_one_unit_is_shared_over_any_rank(shape: tuple[int, ...], solution: str, dim: int) -> None:
    layer = deu.DEU(init="spread", solution=solution, dim=dim)
    t = torch.randn(shape, requires_grad=True)
    y = layer(t)
    assert y.shape == shape
    y.sum().backward()
    assert t.grad.shape == shape
    flat = deu.DEU(1, init="spread", solution=solution)
    flat.load_state_dict(layer.state_dict())
    assert torch.equal(y.detach().reshape(-1, 1), flat(t.detach().reshape(-1, 1)).detach())


BAD_INPUTS = [
    (lambda: torch.randn(4, 5), {}, ValueError, ["3 features", "dim=1", "(4, 5)", "5"]),
    (lambda: torch.randn(2, 3, 5), {"dim": -1}, ValueError, ["3 features", "dim=-1", "(2, 3, 5)"]),
    (lambda: torch.randint(9, (4, 3)), {}, TypeError, ["floating", "torch.int64"]),
    (lambda: torch.randn(4, 3, dtype=torch.complex64), {}, TypeError, ["real", "complex64"]),
    (lambda: torch.ones(4, 3, dtype=torch.bool), {}, TypeError, ["floating", "torch.bool"]),
    (lambda: torch.tensor(1.0), {}, ValueError, ["dim=1", "()", "3 features"]),
    (lambda: torch.tensor(1.0), {"dim": 0}, ValueError, ["dim=0", "()", "3 features"]),
    (lambda: torch.randn(3), {}, ValueError, ["dim=1", "(3,)", "3 features"]),
    (lambda: torch.randn(4, 3), {"dim": 2}, ValueError, ["dim=2", "(4, 3)"]),
    (lambda: torch.randn(4, 3), {"dim": -3}, ValueError, ["dim=-3", "(4, 3)"]),
]


@pytest.mark.parametrize(("make", "options", "kind", "said"), BAD_INPUTS)
@pytest.mark.parametrize("training", [True, False])
def test_bad_inputs(
    make: Any, options: dict[str, Any], kind: type[Exception], said: list[str], training: bool
) -> None:
    layer = deu.DEU(3, **options).train(training)
    for call in (layer, lambda t: deu.functional.deu(t, *layer.coefficients(), **options)):
        with pytest.raises(kind) as caught:
            call(make())
        for part in said:
            assert part in str(caught.value)


@pytest.mark.parametrize("lazy", [False, True])
@pytest.mark.parametrize(
    ("options", "kind", "said"),
    [
        ({"dim": 1.0}, TypeError, ["dim", "integer", "1.0"]),
        ({"dim": "1"}, TypeError, ["dim", "integer", "'1'"]),
        ({"dim": None}, TypeError, ["dim", "integer", "None"]),
        ({"init": "rleu"}, ValueError, ["init", "'rleu'", "relu", "random", "spread", "sine"]),
        ({"init": 3}, TypeError, ["init", "int", "relu", "function"]),
        ({"init": None}, TypeError, ["init", "None", "relu"]),
        ({"solution": "exact"}, ValueError, ["solution", "'exact'", "paper", "continuous"]),
        ({"eps": 0}, ValueError, ["eps", "positive", "0"]),
        ({"eps": -0.5}, ValueError, ["eps", "positive", "-0.5"]),
        ({"eps": math.nan}, ValueError, ["eps", "positive", "nan"]),
        ({"eps": math.inf}, ValueError, ["eps", "inf"]),
        ({"bound": 0.0}, ValueError, ["bound", "positive", "0.0"]),
        ({"bound": -2}, ValueError, ["bound", "positive", "-2"]),
        ({"bound": math.nan}, ValueError, ["bound", "positive", "nan"]),
        ({"sharpness": 0}, ValueError, ["sharpness", "positive", "0"]),
        ({"sharpness": -4.0}, ValueError, ["sharpness", "positive", "-4.0"]),
        ({"max_exponent": 0.5}, ValueError, ["max_exponent", "at least 1", "0.5"]),
        ({"max_exponent": math.nan}, ValueError, ["max_exponent", "at least 1", "nan"]),
        ({"max_grad_norm": -1.0}, ValueError, ["max_grad_norm", "positive", "None", "-1.0"]),
        ({"max_grad_norm": math.nan}, ValueError, ["max_grad_norm", "positive", "nan"]),
    ],
)
def test_bad_settings(
    options: dict[str, Any], kind: type[Exception], said: list[str], lazy: bool
) -> None:
    with pytest.raises(kind) as caught:
        deu.LazyDEU(**options) if lazy else deu.DEU(3, **options)
    for part in said:
        assert part in str(caught.value)


@pytest.mark.parametrize("n", [0, -1, 2.0, "3", None])
def test_bad_number_of_features(n: Any) -> None:
    with pytest.raises((TypeError, ValueError)) as caught:
        deu.DEU(n)
    for part in ("num_features", "positive integer", repr(n)):
        assert part in str(caught.value)


@pytest.mark.parametrize("function", [deu.functional.deu])
def test_bad_coefficients(function: Any) -> None:
    a, b, c, c1, c2 = every_subspace(3)
    with pytest.raises(ValueError, match=r"\(3,\).*c1.*\(2,\)"):
        function(torch.randn(4, 3), a, b, c, c1[:2], c2)
    with pytest.raises(ValueError, match=r"one-dimensional.*\(\)"):
        function(torch.randn(4, 3), *(p[0] for p in (a, b, c, c1, c2)))


@pytest.mark.parametrize("solution", SOLUTIONS)
@pytest.mark.parametrize("function", [deu.functional.deu, deu.reference.deu])
def test_bound_cuts_values_and_not_gradients(solution: str, function: Any) -> None:
    t, units = 3 * torch.randn(40, 13, dtype=torch.float64), every_subspace(13)
    options = {"solution": solution, "max_grad_norm": None}
    free = gradients(function, t, units, bound=math.inf, **options)
    cut = gradients(function, t, units, bound=0.5, **options)
    assert (free["y"].abs() > 0.5).any()
    assert torch.equal(cut["y"], free["y"].clamp(-0.5, 0.5))
    for name in ("t", *NAMES):
        torch.testing.assert_close(cut[name], free[name], rtol=0, atol=0, msg=name)


@pytest.mark.parametrize("solution", SOLUTIONS)
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("function", [deu.functional.deu, deu.reference.deu])
def test_max_grad_norm(solution: str, training: bool, function: Any) -> None:
    t, units = torch.randn(40, 13, dtype=torch.float64), every_subspace(13)
    options = {"solution": solution, "training": training}
    free = gradients(function, t, units, max_grad_norm=None, **options)
    vectors = torch.stack([free[n] for n in NAMES])
    norms = vectors.norm(dim=0)
    limit = norms.median().item()
    assert (norms > limit).any()
    assert (norms <= limit).any()
    held = gradients(function, t, units, max_grad_norm=limit, **options)
    got = torch.stack([held[n] for n in NAMES])
    assert (got.norm(dim=0) <= limit * (1 + 1e-12)).all()
    torch.testing.assert_close(got, vectors * (limit / norms).clamp(max=1), rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(held["t"], free["t"], rtol=0, atol=0)
    torch.testing.assert_close(held["y"], free["y"], rtol=0, atol=0)
    default = gradients(function, t, units, **options)
    assert (norms > 1).any()
    assert (torch.stack([default[n] for n in NAMES]).norm(dim=0) <= 1 + 1e-12).all()


def test_a_layer_passes_its_settings_on() -> None:
    t = torch.randn(30, 13, dtype=torch.float64)
    settings = {
        "dim": -1,
        "eps": 0.05,
        "sharpness": 20.0,
        "max_exponent": 2.0,
        "bound": 1.5,
        "max_grad_norm": 0.03,
    }
    for solution in SOLUTIONS:
        layer = deu.DEU(13, init="random", solution=solution, dtype=torch.float64, **settings)
        for training in (True, False):
            layer.train(training).zero_grad()
            y = layer(t)
            y.sum().backward()
            want = gradients(
                deu.functional.deu,
                t,
                list(layer.coefficients()),
                solution=solution,
                training=training,
                **settings,
            )
            assert torch.equal(y.detach(), want["y"])
            for name in NAMES:
                assert torch.equal(getattr(layer, name).grad, want[name]), name


@pytest.mark.parametrize("solution", SOLUTIONS)
@pytest.mark.parametrize("init", ["gelu", "waves", "random", "spread"])
def test_training_lowers_the_loss(solution: str, init: str) -> None:
    model = nn.Sequential(
        nn.Linear(1, 16), deu.DEU(16, solution=solution, init=init), nn.Linear(16, 1)
    )
    x = torch.linspace(-3, 3, 64)[:, None]
    target = torch.sin(2 * x)
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-2)
    losses = []
    for _ in range(150):
        optimiser.zero_grad()
        loss = (model(x) - target).square().mean()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert losses[-1] < 0.5 * losses[0]
    assert all(map(math.isfinite, losses))


@pytest.mark.parametrize("solution", SOLUTIONS)
def test_inference_without_gradients(solution: str) -> None:
    layer, t = deu.DEU(5, init="random", solution=solution), torch.randn(4, 5)
    want = layer(t).detach()
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            y = layer(t)
        assert not y.requires_grad
        assert torch.equal(y, want)


@pytest.mark.parametrize("solution", SOLUTIONS)
@pytest.mark.parametrize("wanted", [["t"], ["a"], ["c2"], ["t", "b"]])
def test_only_some_gradients_are_asked_for(wanted: list[str], solution: str) -> None:
    everything = dict(
        zip(["t", *NAMES], [torch.randn(9, 13).double(), *every_subspace(13)], strict=True)
    )
    options = {"solution": solution}
    full = gradients(deu.functional.deu, everything["t"], list(everything.values())[1:], **options)
    for name in wanted:
        everything[name] = everything[name].clone().requires_grad_()
    t, *units = everything.values()
    deu.functional.deu(t, *units, **options).sum().backward()
    for name, value in everything.items():
        if name in wanted:
            assert torch.equal(value.grad, full[name])
        else:
            assert value.grad is None
