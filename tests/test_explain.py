"""The names and formulas that describe a layer: right in every subspace of both solutions."""

from __future__ import annotations

import importlib
import math
import re

import pytest
import torch

import deu
from deu._explain import _equation

C12 = (0.3, -0.2)

# (a, b, c) and the name of its subspace, with either sign where signs matter.
UNITS = {
    "001": [(0, 0, 2), (0.005, -0.009, -0.5)],
    "010": [(0, -1.5, 0), (0, 0, 0)],
    "011": [(0, 1, -0.5), (0, 1, 0.7)],
    "100": [(-0.5, 0, 0), (2, 0, 0)],
    "101": [(1, 0, 2), (-1, 0, -2), (1, 0, -2), (-1, 0, 2)],
    "110": [(1, 0.5, 0), (-1, 0.5, 0)],
    "oscillating": [(1, 0.2, 1), (-1, 0.2, -1), (0.3, -0.4, 2)],
    "critical": [(1, 2, 1), (0.8, -1.6, 0.8), (-1, 2.001, -1)],
    "overdamped": [(1, 3, 1), (1, 3, -1), (-0.5, 0.3, 1)],
}

# Units at and next to the seams of the continuous solution.
SEAMS = [
    *((1, 2 + d, 1) for d in (0, 1e-7, -1e-7, 1e-3, -1e-3)),
    *((1, 0.5, d) for d in (0, 1e-6, -1e-6, 1e-3)),
    *((1, 0, d) for d in (0, 1e-6, -1e-6)),
    (-2, 0, 0),
    (1, 1e-3, 1e-7),
    (1, 1e-3, -1e-7),
]


def layer_of(abc: list[tuple[float, ...]], solution: str = "paper", **settings: float) -> deu.DEU:
    layer = deu.DEU(len(abc), solution=solution, dtype=torch.float64, **settings)
    with torch.no_grad():
        for parameter, values in zip(layer.coefficients(), zip(*abc, strict=True), strict=False):
            parameter.copy_(torch.tensor(values, dtype=torch.float64))
        layer.c1.fill_(C12[0])
        layer.c2.fill_(C12[1])
    return layer.eval()


def free(abc: list[tuple[float, ...]], solution: str) -> deu.DEU:
    """A layer whose limits are out of reach."""
    return layer_of(abc, solution, max_exponent=60.0, bound=1e12)


def outputs(layer: deu.DEU) -> tuple[torch.Tensor, torch.Tensor]:
    t = torch.linspace(-2, 2, 41, dtype=torch.float64)
    with torch.no_grad():
        return t, layer(t[:, None].expand(-1, layer.num_features))


EVERY = [abc for several in UNITS.values() for abc in several]
KNOWN = [name for name, several in UNITS.items() for _ in several]


@pytest.mark.parametrize("solution", ["paper", "continuous"])
def test_every_subspace_has_its_name(solution):
    assert deu.subspaces(layer_of(EVERY, solution)) == KNOWN


def test_coefficients_are_compared_in_float64():
    layer = deu.DEU(2, eps=0.01)
    with torch.no_grad():
        for p in layer.parameters():
            p.zero_()
        layer.a.copy_(torch.tensor([0.01, 0.0099999]))  # float32's 0.01 is below 0.01
        layer.b.fill_(1.0)
    below = layer.a[0].double().item() < 0.01
    assert deu.subspaces(layer) == ["010" if below else "110", "010"]


def sympy_error(layer: deu.DEU, i: int) -> float:
    """How far the formula is from the layer, at 40 digits, relative to max(1, |y|)."""
    sympy = pytest.importorskip("sympy")
    expression = deu.formula(layer, i, style="sympy")
    t = sympy.Symbol("t", real=True)
    assert expression.free_symbols <= {t}
    times, y = outputs(layer)
    worst = 0.0
    for time, value in zip(times.tolist()[::4], y[::4, i].tolist(), strict=True):
        there = float(expression.subs(t, sympy.Float(time, 40)).evalf(40))
        worst = max(worst, abs(there - value) / max(1, abs(value)))
    return worst


@pytest.mark.parametrize("abc", EVERY)
def test_sympy_formula_is_the_layer_in_the_papers_solution(abc):
    assert sympy_error(free([abc], "paper"), 0) < 1e-12


@pytest.mark.parametrize("abc", [abc for abc in EVERY if abs(abc[0]) > 0.1] + SEAMS)
def test_sympy_formula_is_the_layer_in_the_continuous_solution(abc):
    # Within 1e-7 of a seam 1e-16 in a root is worth 1e-9 in the value.
    assert sympy_error(free([abc], "continuous"), 0) < 1e-8


def test_sympy_formula_runs_on_arrays():
    sympy = pytest.importorskip("sympy")
    layer = free(EVERY, "paper")
    times, y = outputs(layer)
    for i in range(layer.num_features):
        function = sympy.lambdify(sympy.Symbol("t", real=True), deu.formula(layer, i, "sympy"))
        value = torch.as_tensor(function(times.numpy()))
        torch.testing.assert_close(value, y[:, i], rtol=1e-10, atol=1e-10)


def evaluate(text: str, t: float) -> float:
    """A formula in text, read back."""
    text = text.removeprefix("y(t) = ").replace("·", "*").replace("²", "**2")
    text = re.sub(r"e\^\(", "exp(", text)
    text = re.sub(r"(\d)t", r"\1*t", text)
    names = {n: getattr(math, n) for n in ("exp", "sin", "cos", "sinh", "cosh")}
    names |= {"t": t, "u": lambda t: float(t > 0), "σ": lambda x: 1 / (1 + math.exp(-x))}
    return eval(text, {"__builtins__": {}}, names)


@pytest.mark.parametrize("solution", ["paper", "continuous"])
def test_text_reads_back_as_the_layer(solution):
    units = EVERY if solution == "paper" else [u for u in EVERY if abs(u[0]) > 0.1] + SEAMS
    layer = free(units, solution)
    times, y = outputs(layer)
    for i, unit in enumerate(units):
        text = deu.formula(layer, i)
        for t, value in zip(times.tolist(), y[:, i].tolist(), strict=True):
            assert evaluate(text, t) == pytest.approx(value, rel=0.01, abs=0.01), (unit, text, t)


@pytest.mark.parametrize(
    ("init", "solutions", "text", "latex"),
    [
        ("relu", ["paper"], "y(t) = t·u(t)", r"y(t) = t\,u(t)"),
        (
            "relu",
            ["continuous"],
            "y(t) = -0.01·u(t)·(1 - e^(-100t) - 100·t)",
            r"y(t) = -0.01\,u(t)\,\left(1 - e^{-100t} - 100\,t\right)",
        ),
        ("requ", ["paper", "continuous"], "y(t) = t²·u(t)", r"y(t) = t^{2}\,u(t)"),
        ("sigmoid", ["paper"], "y(t) = σ(100t)", r"y(t) = \sigma(100t)"),
        (
            "sine",
            ["paper", "continuous"],
            "y(t) = sin(t) + 0.001·u(t)·(1 - cos(t))",
            r"y(t) = \sin(t) + 0.001\,u(t)\,\left(1 - \cos(t)\right)",
        ),
    ],
)
def test_known_formulas(init, solutions, text, latex):
    for solution in solutions:
        layer = deu.DEU(3, init=init, solution=solution)
        assert deu.formula(layer, 2) == deu.formula(layer, 2, "text") == text
        assert deu.formula(layer, 2, "latex") == latex


@pytest.mark.parametrize(
    ("abc", "solution", "equation"),
    [
        ((0, 1, 0), "paper", "y' = u(t)"),
        ((0.98, 0.01, 1.02), "paper", "0.98 y'' + 0.01 y' + 1.02 y = u(t)"),
        ((-1, 0.005, -2.5), "paper", "-y'' - 2.5 y = u(t)"),
        ((0, 0, 2), "paper", "2 y = σ(100t)"),
        ((0, 0, 0), "paper", "0.01 y' = u(t)"),
        ((0.9, 2, 1.11), "paper", "y'' + 2 y' + y = u(t)"),
        ((-0.001, 1, 0), "continuous", "-0.01 y'' + y' = u(t)"),
    ],
)
def test_equations(abc, solution, equation):
    assert _equation(layer_of([abc], solution), 0) == equation


def test_errors_say_what_was_given_and_expected():
    layer = deu.DEU(3)
    with pytest.raises(ValueError, match="text, latex, sympy; got 'html'"):
        deu.formula(layer, 0, style="html")
    for i in (3, -1):
        with pytest.raises(IndexError, match=f"3 units, numbered from 0 to 2; got i={i}"):
            deu.formula(layer, i)
    with pytest.raises(TypeError, match=r"expected a deu\.DEU layer; got ReLU"):
        deu.subspaces(torch.nn.ReLU())
    with pytest.raises(ValueError, match="give it an input first"):
        deu.subspaces(deu.LazyDEU())


def test_without_sympy_the_error_names_the_extra(monkeypatch):
    real = importlib.import_module

    def missing(name: str, package: str | None = None):
        if name == "sympy":
            raise ImportError(name)
        return real(name, package)

    monkeypatch.setattr(importlib, "import_module", missing)
    with pytest.raises(ImportError, match=r"pip install deu\[sympy\]"):
        deu.formula(deu.DEU(1), 0, style="sympy")
