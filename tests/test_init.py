"""Where units start: named inits are what deu.init says they are, and fits tell the truth."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import deu

from .conftest import NAMES

SOLUTIONS = ["paper", "continuous"]
GRID = torch.linspace(-3, 3, 1201, dtype=torch.float64)
EPS = 0.01


def unit(init: object, solution: str) -> Callable[[Tensor], Tensor]:
    """One unit in float64, without its bound."""
    layer = deu.DEU(init=init, solution=solution, bound=math.inf, dtype=torch.float64).eval()
    return lambda t: layer(t).detach()


@pytest.mark.parametrize("solution", SOLUTIONS)
@pytest.mark.parametrize(
    ("init", "coefficients"),
    [
        ("relu", (0, 1, 0, 0, 0)),
        ("requ", (0.5, 0, 0, 0, 0)),
        ("sine", (1000, 0, 1000, 0, 1)),
        ("identity", (1000, 0, 0, 1, 0)),
        ("sigmoid", (0, 0, 1, 0, 0)),
    ],
)
def test_named_coefficients(init: str, coefficients: tuple[float, ...], solution: str) -> None:
    if solution == "continuous":
        if init == "sigmoid":
            pytest.skip("fitted in the continuous solution")
        if init == "identity":
            coefficients = (1000, 0, 0, 0, 1)
    layer = deu.DEU(4, init=init, solution=solution)
    for name, value in zip(NAMES, coefficients, strict=True):
        assert torch.equal(getattr(layer, name).detach(), torch.full((4,), float(value))), name
    assert layer.fit is None


@pytest.mark.parametrize(
    ("init", "solution", "truth", "error"),
    [
        ("relu", "paper", torch.relu, 0),
        ("requ", "paper", lambda t: torch.relu(t) ** 2, 1e-15),
        ("requ", "continuous", lambda t: torch.relu(t) ** 2, 1e-14),
        ("sigmoid", "paper", lambda t: torch.sigmoid(100 * t), 1e-15),
        ("sine", "paper", torch.sin, 0.002),
        ("sine", "continuous", torch.sin, 0.002),
        ("identity", "paper", lambda t: t, 9 / 2000 + 1e-12),
        ("identity", "continuous", lambda t: t, 9 / 2000 + 1e-12),
        ("relu", "continuous", torch.relu, EPS + 1e-12),
    ],
)
def test_named_functions(
    init: str, solution: str, truth: Callable[[Tensor], Tensor], error: float
) -> None:
    """Each is the function it is named after, within what its docstring allows, on [-3, 3]."""
    assert (unit(init, solution)(GRID) - truth(GRID)).abs().max() <= error


@pytest.mark.parametrize("solution", SOLUTIONS)
def test_sine_and_identity_are_what_their_formulas_say(solution: str) -> None:
    step = (GRID > 0).double()
    sine = torch.sin(GRID) + step * (1 - torch.cos(GRID)) / 1000
    line = GRID + step * GRID**2 / 2000
    torch.testing.assert_close(unit("sine", solution)(GRID), sine, rtol=0, atol=1e-12)
    torch.testing.assert_close(unit("identity", solution)(GRID), line, rtol=0, atol=1e-12)


def test_continuous_relu_is_below_by_at_most_eps() -> None:
    below = torch.relu(GRID) - unit("relu", "continuous")(GRID)
    assert below.min() >= -1e-12
    assert below.max() <= EPS + 1e-12


def test_continuous_sigmoid_is_a_fit_to_the_logistic_function() -> None:
    layer = deu.DEU(3, init="sigmoid", solution="continuous", dtype=torch.float64)
    assert layer.fit.name == "sigmoid"
    off = (unit("sigmoid", "continuous")(GRID) - torch.sigmoid(GRID)).abs().max()
    assert off <= layer.fit.max_error * 1.05 + 1e-9
    assert layer.fit.max_error < 0.1
    for name, value in zip(NAMES, layer.fit.coefficients, strict=True):
        torch.testing.assert_close(
            getattr(layer, name).detach(),
            torch.full((3,), value, dtype=torch.float64),
            rtol=0,
            atol=0,
        )


@pytest.mark.parametrize("solution", SOLUTIONS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_random_is_uniform_and_above_zero(solution: str, dtype: torch.dtype) -> None:
    layer = deu.DEU(20_000, solution=solution, dtype=dtype)
    for name in ("a", "b", "c"):
        p = getattr(layer, name).detach().double()
        assert (p > 0).all(), name
        assert (p <= 1).all(), name
        assert abs(p.mean() - 0.5) < 0.01, name
        assert abs(p.var() - 1 / 12) < 0.005, name
    assert (layer.c1 == 0).all()
    assert (layer.c2 == 0).all()
    assert not torch.equal(layer.a, layer.b)


def test_random_follows_the_seed() -> None:
    layers = []
    for _ in range(2):
        torch.manual_seed(5)
        layers.append(deu.DEU(9))
    assert torch.equal(layers[0].a, layers[1].a)


@pytest.mark.parametrize("solution", SOLUTIONS)
@pytest.mark.parametrize("n", [1, 2, 5, 64])
def test_spread(solution: str, n: int) -> None:
    layer = deu.DEU(n, init="spread", solution=solution, dtype=torch.float64)
    a, b, c, c1, c2 = (p.detach() for p in layer.coefficients())
    omega = a**-0.5
    if n > 1:
        want = 0.5 * 16 ** (torch.arange(n, dtype=torch.float64) / (n - 1))
    else:
        want = torch.tensor([2.0], dtype=torch.float64)
    torch.testing.assert_close(omega, want, rtol=1e-6, atol=0)
    torch.testing.assert_close(b, 0.2 / want, rtol=1e-6, atol=0)
    assert (c == 1).all()
    assert (torch.cat([c1, c2]).abs() <= 0.5).all()
    if n == 64:
        assert torch.cat([c1, c2]).std() > 0.2
        assert not torch.equal(c1, c2)


@pytest.fixture(scope="module")
def fits() -> dict[tuple[str, str], deu.init.Fit]:
    """A few fits, made once: they take seconds."""
    return {
        ("relu", "paper"): deu.init.fit(torch.relu),
        ("tanh", "paper"): deu.init.fit(torch.tanh),
        ("silu", "continuous"): deu.init.fit(
            torch.nn.functional.silu, -1, 4, solution="continuous"
        ),
    }


FUNCTIONS = {"relu": torch.relu, "tanh": torch.tanh, "silu": torch.nn.functional.silu}


def test_fit_of_relu_is_exact(fits: dict) -> None:
    fit = fits["relu", "paper"]
    assert fit.max_error < 1e-6
    assert (unit(fit, "paper")(GRID) - torch.relu(GRID)).abs().max() < 1e-6


@pytest.mark.parametrize("key", [("relu", "paper"), ("tanh", "paper"), ("silu", "continuous")])
def test_fit_errors_are_truthful(fits: dict, key: tuple[str, str]) -> None:
    """Recomputed on a finer grid than the fit's own, through a layer that starts from it."""
    name, solution = key
    fit = fits[key]
    assert fit.solution == solution
    assert fit.name == name
    grid = torch.linspace(fit.low, fit.high, 4001, dtype=torch.float64)
    error = unit(fit, solution)(grid) - FUNCTIONS[name](grid)
    assert error.abs().max().item() == pytest.approx(fit.max_error, rel=0.05, abs=1e-6)
    assert error.square().mean().sqrt().item() == pytest.approx(fit.rms_error, rel=0.05, abs=1e-6)
    assert fit.rms_error <= fit.max_error
    assert fit.max_error < 0.2


def test_a_fit_starts_a_layer(fits: dict) -> None:
    fit = fits["tanh", "paper"]
    layer = deu.DEU(3, init=fit, dtype=torch.float64)
    assert layer.fit is fit
    for name, value in zip(NAMES, fit.coefficients, strict=True):
        torch.testing.assert_close(
            getattr(layer, name).detach(),
            torch.full((3,), value, dtype=torch.float64),
            rtol=0,
            atol=0,
        )


def test_a_callable_is_fitted_over_minus_three_to_three(fits: dict) -> None:
    layer = deu.DEU(2, init=torch.tanh)
    assert (layer.fit.low, layer.fit.high) == (-3, 3)
    assert layer.fit == fits["tanh", "paper"]


@pytest.mark.parametrize(
    ("key", "other"), [(("tanh", "paper"), "continuous"), (("silu", "continuous"), "paper")]
)
def test_a_fit_for_another_solution_is_refused(
    fits: dict, key: tuple[str, str], other: str
) -> None:
    with pytest.raises(ValueError, match=f"solution='{key[1]}'.*'{other}'"):
        deu.DEU(2, init=fits[key], solution=other)


@pytest.mark.parametrize(
    ("low", "high"), [(3, -3), (1, 1), (math.nan, 1), (0, math.nan), (-math.inf, 0), (0, math.inf)]
)
def test_bad_ranges(low: float, high: float) -> None:
    with pytest.raises(ValueError, match=f"low={low}.*high={high}"):
        deu.init.fit(torch.tanh, low, high)


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (lambda t: t.sum(), r"\(257,\).*shape \(\)"),
        (lambda t: t[:5], r"\(257,\).*shape \(5,\)"),
        (lambda t: 1 / t, "not finite"),
        (lambda t: t.log(), "not finite"),
    ],
)
def test_bad_functions(function: Callable[[Tensor], Tensor], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        deu.init.fit(function, -1, 1)


@pytest.mark.parametrize("gives", [3.0, None, [1.0, 2.0]])
def test_a_function_that_gives_no_tensor(gives: object) -> None:
    with pytest.raises((TypeError, ValueError), match=type(gives).__name__):
        deu.init.fit(lambda t: gives)


def test_fit_checks_its_solution() -> None:
    with pytest.raises(ValueError, match=r"paper.*continuous.*'exact'"):
        deu.init.fit(torch.tanh, solution="exact")


def test_fitting_under_no_grad_is_the_same(fits: dict) -> None:
    with torch.no_grad():
        assert deu.init.fit(torch.relu) == fits["relu", "paper"]
