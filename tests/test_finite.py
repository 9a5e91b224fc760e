"""Whatever the coefficients and inputs, values and gradients are finite numbers."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import deu

from .conftest import LIMITS, NAMES, gradients

COEFFICIENTS = [
    *(0.0, 1e-45, -1e-45, 1e-30, 0.0099999, -0.0099999, 0.01, -0.01, 0.5, -0.5),
    *(1.0, -3.0, 1e4, -1e4, 1e20, -1e20),
]
MAGNITUDES = [1e-40, 1e-20, 1e-5, 0.1, 1.0, 30.0, 1e3, 6e4]
INPUTS = [0.0, *MAGNITUDES, *(-m for m in MAGNITUDES)]
TRIPLES = torch.tensor(
    list(itertools.product(COEFFICIENTS, COEFFICIENTS, COEFFICIENTS)), dtype=torch.float64
)
TYPES = [
    (torch.float32, torch.float32),
    (torch.bfloat16, torch.float32),
    (torch.bfloat16, torch.bfloat16),
    (torch.float16, torch.float32),
    (torch.float16, torch.float16),
    (torch.float64, torch.float64),
]
FUNCTIONS = {"native": deu.functional.deu, "reference": deu.reference.deu}
DEFAULT = {"max_exponent": 1.0, "bound": 1000.0, "max_grad_norm": 1.0}
SETTINGS = {
    "default": DEFAULT,
    "default, no norm": {**DEFAULT, "max_grad_norm": None},
    "others": LIMITS,
    "others, no norm": {**LIMITS, "max_grad_norm": None},
}


def layer(pattern: int, dtype: torch.dtype) -> list[Tensor]:
    """Every combination of a, b, c; c1 and c2 walk through the same numbers at their own pace."""
    numbers = torch.tensor(COEFFICIENTS, dtype=torch.float64)
    i = torch.arange(len(TRIPLES))
    steps = [(0, 0), (1, 5), (7, 3)][pattern]
    c1, c2 = (numbers[(i * step + i // 16 * step + i // 256) % 16] for step in steps)
    if pattern == 0:
        c1, c2 = torch.zeros_like(c1), torch.zeros_like(c2)
    largest = torch.finfo(dtype).max  # 1e20 is no float16
    return [p.clamp(-largest, largest).to(dtype) for p in (*TRIPLES.unbind(1), c1, c2)]


@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS.keys())
@pytest.mark.parametrize(
    ("dtype", "layer_dtype"), TYPES, ids=lambda d: str(d).removeprefix("torch.")
)
@pytest.mark.parametrize(
    ("solution", "training"), [("paper", True), ("paper", False), ("continuous", False)]
)
@pytest.mark.parametrize("limits", SETTINGS.values(), ids=SETTINGS.keys())
def test_everything_is_finite(
    function: Callable[..., Tensor],
    dtype: torch.dtype,
    layer_dtype: torch.dtype,
    solution: str,
    training: bool,
    limits: dict[str, float | None],
) -> None:
    t = torch.tensor(INPUTS, dtype=torch.float64).to(dtype)[:, None].expand(-1, len(TRIPLES))
    upstream = torch.ones_like(t)
    upstream[::3] = -1.5
    bad = []
    # The reference works in float64 whatever comes in: its casts are seen in one pattern.
    narrow = dtype not in (torch.float32, torch.float64)
    for pattern in (2,) if narrow and function is deu.reference.deu else range(3):
        coefficients = layer(pattern, layer_dtype)
        got = gradients(
            function,
            t,
            coefficients,
            upstream,
            solution=solution,
            training=training,
            **limits,
        )
        for name, value in got.items():
            wrong = ~value.isfinite()
            if wrong.any():
                where = tuple(wrong.nonzero()[0].tolist())
                unit = [p[where[-1]].item() for p in coefficients]
                at = "" if name in NAMES else f" at t={t[where].item()}"
                bad.append(f"{name}: {wrong.sum()} are not finite, as {value[where]} of {unit}{at}")
        assert not (got["y"].abs() > limits["bound"]).any()
    assert not bad, "\n".join(bad)


@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS.keys())
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("solution", ["paper", "continuous"])
@pytest.mark.parametrize("training", [True, False])
def test_a_nan_is_not_hidden(
    function: Callable[..., Tensor], dtype: torch.dtype, solution: str, training: bool
) -> None:
    """A NaN in the input is NaN in the output there, and nowhere else."""
    units = [(0, 0, 1), (0, 1, 0), (0, 1, 1), (1, 0, 0), (1, 0, 1), (1, 0, -1), (1, 1, 0)]
    units += [(1, 1, 1), (1, 2, 1), (1, 3, 1)]
    a, b, c = torch.tensor(units, dtype=dtype).unbind(1)
    c1, c2 = torch.full_like(a, 0.3), torch.full_like(a, -0.2)
    t = torch.linspace(-2, 2, 37, dtype=dtype)[:, None].repeat(1, len(units))
    t[5] = torch.nan
    y = function(t, a, b, c, c1, c2, solution=solution, training=training)
    assert y[5].isnan().all()
    assert y[:5].isfinite().all()
    assert y[6:].isfinite().all()


@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS.keys())
@pytest.mark.parametrize("solution", ["paper", "continuous"])
@pytest.mark.parametrize("name", NAMES)
def test_a_nan_coefficient_shows(function: Callable[..., Tensor], solution: str, name: str) -> None:
    """A unit whose coefficient is NaN gives NaN for t > 0, and its neighbour is untouched."""
    coefficients = [torch.tensor([v, v]) for v in (0.5, 0.4, 0.8, 0.3, 0.2)]
    coefficients[NAMES.index(name)][0] = torch.nan
    y = function(torch.full((3, 2), 0.7), *coefficients, solution=solution)
    assert y[:, 0].isnan().all()
    assert y[:, 1].isfinite().all()


@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS.keys())
@pytest.mark.parametrize("solution", ["paper", "continuous"])
@pytest.mark.parametrize(("max_exponent", "bound"), [(14.0, 1000.0), (300.0, 1e30)])
def test_other_limits_are_finite_too(
    function: Callable[..., Tensor], solution: str, max_exponent: float, bound: float
) -> None:
    """The authors' limits, and wide ones in float64, on coefficients of an ordinary size."""
    sizes = [0.0, 0.02, -0.02, 0.5, -0.5, 1.0, -3.0]
    a, b, c = torch.tensor(list(itertools.product(sizes, repeat=3)), dtype=torch.float64).unbind(1)
    t = torch.tensor(INPUTS, dtype=torch.float64)[:, None].repeat(1, len(a))
    coefficients = [a, b, c, torch.ones_like(a), -torch.ones_like(a)]
    got = gradients(
        function,
        t,
        coefficients,
        solution=solution,
        training=solution == "paper",
        max_exponent=max_exponent,
        bound=bound,
        max_grad_norm=None,
    )
    for name, value in got.items():
        assert value.isfinite().all(), name
