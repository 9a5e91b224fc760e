"""Where units start: named inits are what deu.init says they are, and fits tell the truth."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

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


@pytest.mark.parametrize("solution", SOLUTIONS)
def test_gelu_is_near_gelu(solution: str) -> None:
    gelu = torch.nn.functional.gelu(GRID)
    assert (unit("gelu", solution)(GRID) - gelu).abs().max() <= 0.15


def test_continuous_gelu_is_zero_far_to_the_left() -> None:
    far = torch.linspace(-1000, -3, 1000, dtype=torch.float64)
    assert unit("gelu", "continuous")(far).abs().max() <= 0.002


def test_gelu_is_one_function_in_both_solutions() -> None:
    """Above 0, where nothing grows; and below it too, if what grows there is not cut."""
    for max_exponent, t in ((1.0, GRID[GRID > 0]), (300.0, GRID)):
        options = {"init": "gelu", "max_exponent": max_exponent, "bound": math.inf}
        paper, continuous = (
            deu.DEU(solution=solution, dtype=torch.float64, **options).eval()(t)
            for solution in SOLUTIONS
        )
        torch.testing.assert_close(paper, continuous, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("solution", SOLUTIONS)
def test_gelu_starts_all_units_alike(solution: str) -> None:
    layer = deu.DEU(5, init="gelu", solution=solution)
    for name, p in layer.named_parameters():
        assert (p == p[0]).all(), name
    a, b, c = (p[0].item() for p in layer.coefficients()[:3])
    assert deu.subspaces(layer) == ["overdamped"] * 5
    assert b * b - 4 * a * c > 0
    assert layer.fit is None


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
    layer = deu.DEU(20_000, init="random", solution=solution, dtype=dtype)
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
        layers.append(deu.DEU(9, init="random"))
    assert torch.equal(layers[0].a, layers[1].a)


class Oscillations(NamedTuple):
    """What deu.init says of a start: its highest frequency, c, and how large c1 and c2 are."""

    fastest: float
    stiffness: float
    size: float


OSCILLATIONS = {"spread": Oscillations(8, 1, 0.5), "waves": Oscillations(12, 30, 0.2)}
oscillations = pytest.mark.parametrize("init", OSCILLATIONS)


def frequencies(init: str, n: int) -> Tensor:
    """From 0.5 up, each the same factor above the one before; one alone is in the middle."""
    fastest = OSCILLATIONS[init].fastest
    if n == 1:
        return torch.tensor([math.sqrt(0.5 * fastest)], dtype=torch.float64)
    return 0.5 * (fastest / 0.5) ** (torch.arange(n, dtype=torch.float64) / (n - 1))


@oscillations
@pytest.mark.parametrize("solution", SOLUTIONS)
@pytest.mark.parametrize("n", [1, 2, 5, 64])
def test_oscillations(init: str, solution: str, n: int) -> None:
    _, stiffness, size = OSCILLATIONS[init]
    layer = deu.DEU(n, init=init, solution=solution, dtype=torch.float64)
    a, b, c, c1, c2 = (p.detach() for p in layer.coefficients())
    omega = frequencies(init, n)
    torch.testing.assert_close((c / a).sqrt(), omega, rtol=1e-6, atol=0)
    torch.testing.assert_close(a, stiffness / omega**2, rtol=1e-6, atol=0)
    torch.testing.assert_close(b, 0.2 * stiffness / omega, rtol=1e-6, atol=0)
    # A tenth of critically damped: b = 0.1 · 2√(ac).
    torch.testing.assert_close(b / (2 * (a * c).sqrt()), torch.full_like(b, 0.1))
    assert (c == stiffness).all()
    assert (torch.cat([c1, c2]).abs() <= size).all()
    assert deu.subspaces(layer) == ["oscillating"] * n
    if n == 64:
        assert torch.cat([c1, c2]).std() > 0.4 * size  # 0.577 of it, if uniform
        assert not torch.equal(c1, c2)


@oscillations
@pytest.mark.parametrize("solution", SOLUTIONS)
@pytest.mark.parametrize("n", [1, 7])
def test_oscillations_are_what_their_formula_says(init: str, solution: str, n: int) -> None:
    """A damped oscillation of size c1 and c2, and for t > 0 the answer to the step beside it."""
    layer = deu.DEU(n, init=init, solution=solution, dtype=torch.float64).eval()
    c1, c2 = layer.c1.detach(), layer.c2.detach()
    omega, stiffness = frequencies(init, n), OSCILLATIONS[init].stiffness
    decay, turn = 0.1 * omega, math.sqrt(0.99) * omega
    t = GRID[:, None].expand(-1, n)
    fade = torch.exp((-decay * t).clamp(max=1.0))  # the default max_exponent
    cos, sin = fade * torch.cos(turn * t), fade * torch.sin(turn * t)
    if solution == "continuous":  # c1 and c2 are y(0) and y'(0)
        c2 = (c2 + decay * c1) / turn
    step = (1 - cos - decay / turn * sin) / stiffness
    want = c1 * cos + c2 * sin + (t > 0) * step
    torch.testing.assert_close(layer(t).detach(), want, rtol=0, atol=1e-12)


def test_the_step_hardly_shows_in_waves() -> None:
    layer = deu.DEU(64, init="waves", dtype=torch.float64)
    with torch.no_grad():
        layer.c1.zero_()
        layer.c2.zero_()
    t = torch.linspace(-100, 100, 4001, dtype=torch.float64)[:, None].expand(-1, 64)
    assert layer(t).abs().max() <= 1.8 / 30


@pytest.mark.parametrize("init", ["random", *OSCILLATIONS])
def test_starts_that_draw_draw_alike_in_both_solutions(init: str) -> None:
    layers = []
    for solution in SOLUTIONS:
        torch.manual_seed(5)
        layers.append(deu.DEU(9, init=init, solution=solution))
    for p, q in zip(*(layer.coefficients() for layer in layers), strict=True):
        assert torch.equal(p, q)


@pytest.fixture(scope="module")
def fits() -> dict[tuple[str, str], deu.init.Fit]:
    """A few fits, made once: they take seconds."""
    return {
        ("relu", "paper"): deu.init.fit(torch.relu, solution="paper"),
        ("tanh", "paper"): deu.init.fit(torch.tanh, solution="paper"),
        ("tanh", "continuous"): deu.init.fit(torch.tanh),
        ("silu", "continuous"): deu.init.fit(torch.nn.functional.silu, -1, 4),
    }


FUNCTIONS = {"relu": torch.relu, "tanh": torch.tanh, "silu": torch.nn.functional.silu}


def test_fit_of_relu_is_exact(fits: dict) -> None:
    fit = fits["relu", "paper"]
    assert fit.max_error < 1e-6
    assert (unit(fit, "paper")(GRID) - torch.relu(GRID)).abs().max() < 1e-6


@pytest.mark.parametrize(
    "key",
    [("relu", "paper"), ("tanh", "paper"), ("tanh", "continuous"), ("silu", "continuous")],
)
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


@pytest.mark.parametrize("solution", SOLUTIONS)
def test_a_fit_starts_a_layer(fits: dict, solution: str) -> None:
    fit = fits["tanh", solution]
    layer = deu.DEU(3, init=fit, solution=solution, dtype=torch.float64)
    assert layer.fit is fit
    for name, value in zip(NAMES, fit.coefficients, strict=True):
        torch.testing.assert_close(
            getattr(layer, name).detach(),
            torch.full((3,), value, dtype=torch.float64),
            rtol=0,
            atol=0,
        )


def test_a_callable_is_fitted_over_minus_three_to_three(fits: dict) -> None:
    layers = {"paper": deu.DEU(2, init=torch.tanh, solution="paper")}
    layers["continuous"] = deu.DEU(2, init=torch.tanh)  # as by default in fit
    for solution, layer in layers.items():
        assert (layer.fit.low, layer.fit.high) == (-3, 3)
        assert layer.fit == fits["tanh", solution]


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
        assert deu.init.fit(torch.relu, solution="paper") == fits["relu", "paper"]
