"""The unit against what it has to be: mpmath, SciPy's ODE solver, the ODE itself, and gradcheck.

Every subspace of both solutions, on both sides of t = 0 and beyond the exponent cap; value, dy/dt
and each of the five coefficient gradients; the plain PyTorch reference and the compiled kernel
under every instruction set that this machine has.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, NamedTuple

import pytest
import torch
from scipy.integrate import solve_ivp
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck

import deu
import deu.functional
import deu.reference
from deu import _native

from .conftest import LIMITS
from .truth import PAPER, QUANTITIES, Limits, truth

# |ours - truth| / max(1, |truth|).
TOLERANCE = {torch.float64: 1e-10, torch.float32: 5e-6}
HALF = (torch.bfloat16, torch.float16)

# Where exponents are capped: at 3 unless a test says otherwise, and by default at 1.
CAPS = (3.0, 1.0)
# No cut and no scaled gradients: both are straight through, so neither belongs to the function.
OPEN: dict[str, Any] = {"max_exponent": CAPS[0], "bound": 1e9, "max_grad_norm": None}

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # where no kernel was built, the one warning says so
    NATIVE = _native.isas() or ["without a kernel"]
ON_GPU = ("GPU, a channel a row", "GPU, channels along lanes")
ON_CPU = ("reference", *NATIVE)
BACKENDS = (*ON_CPU, *(pytest.param(b, marks=pytest.mark.gpu) for b in ON_GPU))

SIDES = (0.0, 1e-3, 0.01, 0.1, 0.3, 1.0, 2.5, 7.3)  # the Dirac bump is over at 0.2
TIMES = tuple(sorted({sign * t for t in SIDES for sign in (-1, 1)}))

# Several (a, b, c) a row: every combination of signs, small numbers and large ones, and numbers
# that are not zero but count as zero.
PAPER_CASES: dict[str, list[tuple[float, float, float]]] = {
    "001": [(0, 0, 0.7), (0.004, -0.006, -1.3), (0, 0, 0.05), (0, 0.002, -3.1)],
    "010": [(0, 0.8, 0), (0.003, -1.2, -0.004), (0, 0.04, 0), (0, -4, 0), (0, 0.004, -0.002)],
    "011": [
        (0, 0.6, 0.9),
        (0.002, -0.7, 0.5),
        (0, 0.5, -1.1),
        (-0.009, -0.9, -0.4),
        (0, 0.05, 0.08),
        (0, 0.03, 2.5),
        (0, 3, 0.02),
    ],
    "100": [(0.7, 0, 0), (-1.2, 0.005, -0.005), (0.03, 0, 0), (4, 0, 0)],
    "101, ac>0": [
        (0.5, 0, 0.9),
        (-0.8, 0.003, -0.4),
        (0.05, 0, 0.07),
        (0.02, 0, 4.5),
        (3, 0, 0.05),
    ],
    "101, ac<0": [(0.5, 0, -0.9), (-0.8, 0, 0.4), (0.05, 0, -0.07), (2.5, -0.004, -0.03)],
    "110": [
        (0.6, 0.9, 0),
        (-0.5, 0.8, 0.002),
        (0.7, -1.1, 0),
        (-0.9, -0.3, -0.003),
        (0.05, 0.08, 0),
        (2.2, 0.03, 0),
        (0.03, 3, 0),
    ],
    "oscillating": [
        (0.9, 0.4, 1.1),
        (0.6, -0.5, 0.8),
        (-0.7, 0.3, -1.2),
        (-0.8, -0.6, -0.5),
        (0.05, 0.03, 0.9),
        (0.08, 0.02, 0.06),
        (2.4, 0.1, 4.2),
        (4, 3, 3.5),
    ],
    "critical": [
        (0.5, 1, 0.5),
        (-0.45, 0.9, -0.45),
        (0.3, 0.6, 0.305),
        (-0.6, -1.2, -0.598),
        (0.6, -1.2, 0.601),
        (0.04, 0.09, 0.05),
        (0.02, 0.06, 0.1),
        (2.5, 5, 2.5005),
    ],
    "overdamped": [
        (0.4, 1.3, 0.7),
        (-0.3, 1.1, 0.9),
        (0.5, -1.2, 0.4),
        (-0.4, -1, -0.3),
        (0.6, 0.5, -0.9),
        (0.05, 0.9, 0.06),
        (0.07, 0.04, -0.08),
        (0.03, 0.02, -0.04),  # |Δ| < eps, but never critical: a and c have opposite signs
        (2.2, 5, 1.1),
    ],
}
CONTINUOUS_CASES: dict[str, list[tuple[float, float, float]]] = {
    "oscillating": [
        (0.9, 0.4, 1.1),
        (-0.7, 0.3, -1.2),
        (0.05, 0.03, 0.9),
        (2.4, 0.1, 4.2),
        (0.5, 0, 0.9),
    ],
    "overdamped": [
        (0.4, 1.3, 0.7),
        (-0.3, 1.1, 0.9),
        (0.6, 0.5, -0.9),
        (0.05, 0.9, 0.06),
        (2.2, 5, 1.1),
        (0.5, 0, -0.9),
    ],
    "near-critical": [
        (1, 2, 1 + 1e-7),
        (1, 2, 1 - 1e-7),
        (1, -2, 1.001),
        (0.5, 1, 0.499),
        (0.7, -1.4, 0.69),
        (-0.3, -0.6, -0.294),
        (0.04, 0.08, 0.041),
        (1, 0.1, 0.04),
    ],
    "critical": [(1, 2, 1), (1, -2, 1), (0.5, 1, 0.5), (-0.5, -1, -0.5)],
    "c = 0": [(1, 1, 0), (1, -1, 0), (-0.6, 0.8, 0), (0.05, 0.9, 0)],
    "c near 0": [
        (1, 1, 1e-6),
        (1, 1, -1e-6),
        (1, -1, 1e-6),
        (1, -1, -1e-6),
        (0.6, 3, 0.02),
        (3, 0.6, -0.02),
    ],
    "b = c = 0": [(1, 0, 0), (-0.5, 0, 0), (1, 0, 1e-6), (1, 0, -1e-6), (0.02, 0, 0)],
    "b < 0": [(0.6, -0.5, 0.8), (0.5, -1.2, 0.4), (-0.8, -0.6, -0.5), (-0.9, -0.3, 0.02)],
    "a kept away from 0": [(0.004, 0.5, 0.3), (-0.003, 0.2, -0.4), (0, -0.05, 0.08)],
}
CASES = {"paper": PAPER_CASES, "continuous": CONTINUOUS_CASES}
STARTS = ((0.6, -0.4), (-0.8, 0.3), (0, 0), (0.5, 0.9))  # c1, c2: one pair a case, in turn


class Pairs(NamedTuple):
    """One unit and one input a place, and the truth there."""

    rows: list[str]
    t: Tensor
    coefficients: list[Tensor]
    truth: dict[str, Tensor]


@functools.cache
def pairs(
    solution: str, dtype: torch.dtype, coefficient_dtype: torch.dtype, cap: float = CAPS[0]
) -> Pairs:
    """The truth, of coefficients and inputs as they are after rounding to these types."""
    rows, places = [], []
    # Exponents go with t, so that under another cap too they lie on both sides of it, never on it.
    times = torch.tensor(TIMES, dtype=torch.float64) * (cap / CAPS[0])
    # mpmath is slow, and half precision has little to add: the first cases of each row will do.
    enough = 4 if dtype in HALF else None
    cases = [(row, abc) for row, some in CASES[solution].items() for abc in some[:enough]]
    for i, (row, abc) in enumerate(cases):
        unit = torch.tensor([*abc, *STARTS[i % len(STARTS)]], dtype=torch.float64)
        for t in times.to(dtype).tolist():
            places.append((t, *unit.to(coefficient_dtype).tolist()))
            rows.append(row)
    found = [truth(solution, t, unit, Limits(max_exponent=cap)) for t, *unit in places]
    if solution == "paper":
        # The truth decides for itself which row holds; the table above must agree with it (but
        # after rounding to few bits, a case may lie in another one, as long as each is there).
        if coefficient_dtype not in HALF:
            assert [row for row, _ in found] == rows
        assert {row for row, _ in found} == set(PAPER)
        rows = [row for row, _ in found]
    t, *coefficients = torch.tensor(places, dtype=torch.float64).T
    return Pairs(
        rows,
        t.to(dtype),
        [p.to(coefficient_dtype) for p in coefficients],
        {
            name: torch.tensor([numbers[name] for _, numbers in found], dtype=torch.float64)
            for name in QUANTITIES
        },
    )


def using(backend: str) -> Any:
    return _native.use_isa(backend) if backend in _native.ISAS else nullcontext()


def function(backend: str) -> Callable[..., Tensor]:
    return deu.reference.deu if backend == "reference" else deu.functional.deu


@functools.cache
def ours(
    backend: str,
    solution: str,
    dtype: torch.dtype,
    coefficient_dtype: torch.dtype,
    repeat: int,
    cap: float = CAPS[0],
) -> dict[str, Tensor]:
    """The seven quantities of each pair, each a feature of its own, so that nothing is summed.

    ``repeat`` puts that many equal inputs into each feature: a vector loop and its remainder.
    Values and dy/dt then have that many columns; coefficient gradients are divided by it.
    """
    _, t, coefficients, _ = pairs(solution, dtype, coefficient_dtype, cap)
    options = {**OPEN, "max_exponent": cap}
    device = "cuda" if backend in ON_GPU else "cpu"
    t = t[None, :, None].repeat(1, 1, repeat).to(device)
    if backend == ON_GPU[1]:
        t = t.mT.contiguous().mT
    t.requires_grad_()
    coefficients = [p.clone().to(device).requires_grad_() for p in coefficients]
    with using(backend):
        y = function(backend)(t, *coefficients, solution=solution, **options)
        y.backward(torch.ones_like(y))
    assert y.dtype == t.dtype == t.grad.dtype
    gradients = [p.grad.double()[:, None] / repeat for p in coefficients]
    found = [y.detach()[0].double(), t.grad[0].double(), *gradients]
    return dict(zip(QUANTITIES, (x.cpu() for x in found), strict=True))


def report(name: str, found: Pairs, error: Tensor, allowed: Any, got: Tensor) -> str:
    """The worst place of each row that is off."""
    ratio = error / allowed
    lines = [f"{name}: error over what is allowed, worst place of each row"]
    for row in dict.fromkeys(found.rows):
        here = torch.tensor([r == row for r in found.rows])
        i = int(torch.where(here, ratio.nan_to_num(torch.inf), -1).argmax())
        if not ratio[i] <= 1:
            unit = ", ".join(f"{p[i].item():.9g}" for p in found.coefficients)
            lines.append(
                f"  {row}: {ratio[i]:.3g} at t={found.t[i].item():.9g}, coefficients ({unit}): "
                f"got {got[i]:.12g}, truth {found.truth[name][i]:.12g}, error {error[i]:.3g}"
            )
    return "\n".join(lines)


def check(name: str, found: Pairs, got: Tensor, allowed: Any) -> None:
    """``got`` has one row a pair; each of its columns has to be within ``allowed``."""
    expected = found.truth[name][:, None]
    error, worst = (got - expected).abs().nan_to_num(torch.inf).max(1)
    got = got.gather(1, worst[:, None])[:, 0]
    assert (error <= allowed).all(), report(name, found, error, allowed, got)


def name_of(parameter: Any) -> str:
    return str(parameter).removeprefix("torch.")


def every(name: str, values: Any) -> Any:
    plain = all(isinstance(v, (str, int, torch.dtype)) for v in values)
    return pytest.mark.parametrize(name, list(values), ids=name_of if plain else None)


@every("quantity", QUANTITIES)
@every("repeat", (1, 37))
@every("backend", BACKENDS)
@every("dtype", TOLERANCE)
@every("cap", CAPS)
@every("solution", CASES)
def test_against_mpmath(
    solution: str, cap: float, dtype: torch.dtype, backend: str, repeat: int, quantity: str
) -> None:
    found = pairs(solution, dtype, dtype, cap)
    got = ours(backend, solution, dtype, dtype, repeat, cap)[quantity]
    allowed = TOLERANCE[dtype] * found.truth[quantity].abs().clamp(min=1)
    check(quantity, found, got, allowed)


def half_precision_allows(number: Tensor, dtype: torch.dtype) -> Tensor:
    """Twice the most that rounding to ``dtype`` can be off by.

    The truth is taken at the rounded inputs, so all that is left to round is the output.  But the
    arithmetic is that of float32, whose own tolerance is absolute below 1: nothing that comes out
    of it can be held to less, where the truth is a small difference of large numbers.
    """
    info = torch.finfo(dtype)
    rounding = info.eps / 2 * number.abs().clamp(min=info.tiny)
    return (2 * rounding).clamp(min=TOLERANCE[torch.float32])


# A sum of 37 gradients may lie beyond float16, so with coefficients in it there is one input each.
@every("quantity", QUANTITIES)
@every("backend", BACKENDS)
@pytest.mark.parametrize(("coefficients", "repeat"), [("float32", 1), ("float32", 37), ("same", 1)])
@every("dtype", HALF)
@every("solution", CASES)
def test_half_precision_against_mpmath(
    solution: str,
    dtype: torch.dtype,
    coefficients: str,
    repeat: int,
    backend: str,
    quantity: str,
) -> None:
    """Under autocast coefficients are float32; in a layer moved to ``dtype``, they are rounded."""
    coefficient_dtype = torch.float32 if coefficients == "float32" else dtype
    found = pairs(solution, dtype, coefficient_dtype)
    got = ours(backend, solution, dtype, coefficient_dtype, repeat)[quantity]
    check(quantity, found, got, half_precision_allows(found.truth[quantity], dtype))


# ---------------------------------------------------------------------------- the ODE itself

# No exponent in these comes near its cap of 300.
FREE: dict[str, Any] = {**OPEN, "max_exponent": 300.0}
ODE_CASES = [
    (solution, row, unit, start)
    for solution, rows in (
        (
            "paper",
            {
                "010": [(0, 0.8, 0), (0, -1.2, 0)],
                "011": [(0, 0.6, 0.9), (0, -0.7, 0.5)],
                "100": [(0.7, 0, 0), (-1.2, 0, 0)],
                "101, ac>0": [(0.5, 0, 0.9), (-0.8, 0, -0.4)],
                "101, ac<0": [(0.5, 0, -0.9), (-0.8, 0, 0.4)],
                "110": [(0.6, 0.9, 0), (-0.5, 0.8, 0)],
                "oscillating": [(0.9, 0.4, 1.1), (-0.7, 0.3, -1.2)],
                "critical": [(0.5, 1, 0.5), (-0.45, -0.9, -0.45), (0.6, -1.2, 0.6)],
                "overdamped": [(0.4, 1.3, 0.7), (-0.3, 1.1, 0.9)],
            },
        ),
        (
            "continuous",
            {
                "oscillating": [(0.9, 0.4, 1.1), (-0.7, 0.3, -1.2)],
                "overdamped": [(0.4, 1.3, 0.7), (-0.3, 1.1, 0.9)],
                "near-critical": [(1, 2, 1 - 1e-7), (1, 2, 1.001)],
                "critical": [(1, 2, 1), (-0.5, 1, -0.5)],
                "c = 0": [(1, 1, 0), (-0.6, 0.8, 0)],
                "c near 0": [(1, 1, 1e-6), (1, -1, -1e-6)],
                "b = c = 0": [(1, 0, 0), (-0.5, 0, 0)],
                "b < 0": [(0.6, -0.5, 0.8), (0.5, -1.2, 0.4)],
            },
        ),
    )
    for row, units in rows.items()
    for unit in units
    for start in (STARTS[0], STARTS[2])
]
ode_cases = pytest.mark.parametrize(
    ("solution", "row", "unit", "start"),
    ODE_CASES,
    ids=lambda value: str(value).replace(" ", ""),
)


def tensors(unit: tuple[float, ...], start: tuple[float, ...]) -> list[Tensor]:
    return [torch.tensor([float(p)], dtype=torch.float64) for p in (*unit, *start)]


@ode_cases
@every("backend", ("reference", NATIVE[-1]))
def test_against_scipy(backend: str, solution: str, row: str, unit: tuple, start: tuple) -> None:
    """SciPy goes on from the unit's own value and slope, and stays on the unit."""
    a, b, c = unit
    coefficients = tensors(unit, start)

    def unit_at(times: list[float]) -> tuple[Tensor, Tensor]:
        t = torch.tensor(times, dtype=torch.float64).requires_grad_()
        with using(backend):
            # At |t| = 0.2 the default sharpness still leaves 2e-7 of the Dirac bump.
            y = function(backend)(t, *coefficients, solution=solution, sharpness=400.0, **FREE)
            (slope,) = torch.autograd.grad(y.sum(), t)
        return y.detach(), slope

    for side in (1.0, -1.0):
        step = 1.0 if side > 0 else 0.0
        times = [side * x for x in (0.2, 0.5, 0.9, 1.4, 2.0)]
        y, slope = unit_at(times)
        if a == 0:
            first, initial = (lambda t, s, u=step: [(u - c * s[0]) / b]), [y[0].item()]
        else:
            first = lambda t, s, u=step: [s[1], (u - b * s[1] - c * s[0]) / a]  # noqa: E731
            initial = [y[0].item(), slope[0].item()]
        solved = solve_ivp(
            first, (times[0], times[-1]), initial, t_eval=times, rtol=1e-10, atol=1e-12
        )
        assert solved.success
        expected = torch.from_numpy(solved.y)
        scale = expected[0].abs().clamp(min=1)
        assert ((y - expected[0]).abs() / scale).max() < 1e-7, f"value, side {side}"
        if a != 0:
            scale = expected[1].abs().clamp(min=1)
            assert ((slope - expected[1]).abs() / scale).max() < 1e-7, f"dy/dt, side {side}"


@ode_cases
def test_by_substitution(solution: str, row: str, unit: tuple, start: tuple) -> None:
    """a y'' + b y' + c y = u, with derivatives by autograd, where the smoothed step is flat."""
    a, b, c = unit
    t = torch.tensor([-2.5, -1.7, -1.1, -0.6, 0.6, 1.2, 1.9, 2.6], dtype=torch.float64)
    t.requires_grad_()
    y = deu.functional.deu(t, *tensors(unit, start), solution=solution, **FREE)
    (first,) = torch.autograd.grad(y.sum(), t, create_graph=True)
    second = torch.zeros_like(t)
    if first.requires_grad:  # a straight line has no graph left
        (second,) = torch.autograd.grad(first.sum(), t)
    terms = torch.stack([a * second, b * first.detach(), c * y.detach(), -(t > 0).double()])
    residual = terms.sum(0).abs() / terms.abs().amax(0).clamp(min=1)
    assert residual.max() < 1e-8, f"{residual}"


@every("backend", ON_CPU)
@every("c", (0.7, -1.3, 0.05))
def test_the_row_001_is_algebraic(c: float, backend: str) -> None:
    """c y = the smoothed step: there is no derivative in its equation."""
    t = torch.linspace(-2.5, 2.5, 41, dtype=torch.float64)
    with using(backend):
        y = function(backend)(t, *tensors((0, 0, c), (0.3, -0.2)), solution="paper", **FREE)
    assert (c * y - torch.sigmoid(100 * t)).abs().max() < 1e-12


# ---------------------------------------------------------------------------- without the seams

SEAMS = [
    *[(1.0, b, 1.0 - delta / 4) for delta in (0, 1e-7, -1e-7, 1e-3, -1e-3) for b in (2.0, -2.0)],
    *[(1.0, b, c) for c in (0.0, 1e-6, -1e-6) for b in (1.0, -1.0, 0.0)],
]
# Both sides, and beyond the cap: e^(αt) is held from |t| = 3 or 6 on.
SEAM_TIMES = (-7.0, -3.1, -1.3, -0.2, 0.3, 1.1, 2.7, 6.3)


def seam_inputs(unit: tuple[float, ...]) -> tuple[Tensor, ...]:
    numbers = (torch.tensor(SEAM_TIMES, dtype=torch.float64), *tensors(unit, (0.6, -0.4)))
    return tuple(x.requires_grad_() for x in numbers)


@every("unit", SEAMS)
@every("which", ("reference", "functional"))
def test_gradcheck_at_the_seams(which: str, unit: tuple) -> None:
    call = getattr(deu, which).deu

    def y(*inputs: Tensor) -> Tensor:
        return call(*inputs, solution="continuous", **OPEN)

    inputs = seam_inputs(unit)
    assert gradcheck(y, inputs)
    assert gradgradcheck(y, inputs)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        pytest.param((1, b, 1 - 0.25e-9), (1, b, 1 + 0.25e-9), id=f"double root, b={b}")
        for b in (2.0, -2.0)
    ]
    + [pytest.param((1, b, 1e-9), (1, b, -1e-9), id=f"c = 0, b={b}") for b in (1.0, -1.0, 0.0)]
    + [pytest.param((1, b, 1e-9), (1, b, 0.0), id=f"c to 0, b={b}") for b in (1.0, -1.0, 0.0)],
)
@every("backend", ON_CPU)
def test_continuous_across_the_seams(backend: str, one: tuple, other: tuple) -> None:
    results = []
    for unit in (one, other):
        t, *coefficients = seam_inputs(unit)
        # One feature a time, so that each has its own coefficient gradients.
        each = [p.detach().expand(len(t)).clone().requires_grad_() for p in coefficients]
        with using(backend):
            y = function(backend)(t[None], *each, solution="continuous", **OPEN)
            grads = torch.autograd.grad(y.sum(), (t, *each))
        results.append(dict(zip(QUANTITIES, (y.detach()[0], *grads), strict=True)))
    for name in QUANTITIES:
        here, there = results[0][name], results[1][name]
        error = ((here - there).abs() / there.abs().clamp(min=1)).max()
        assert error < 1e-6, f"{name}: {error:.3g}"


# ---------------------------------------------------------------------------- kernel and reference


@functools.cache
def random_units(init: str) -> tuple[Tensor, ...]:
    """A start, with c1 and c2 that are not 0, and among a, b and c some that count as 0."""
    generator = torch.Generator().manual_seed(7)
    features = 160
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(7)
        layer = deu.DEU(features, init=init, dtype=torch.float64)
    units = [p.detach().clone() for p in (layer.a, layer.b, layer.c, layer.c1, layer.c2)]
    if init == "random":
        for p in units[3:]:
            p.uniform_(-0.5, 0.5, generator=generator)
    # Every pattern of coefficients inside (-eps, eps), exactly 0 among them.
    for i, p in enumerate(units[:3]):
        for n in range(48):
            if n >> i & 1:
                p[n] = 0.0 if n % 5 == 0 else 0.02 * torch.rand((), generator=generator) - 0.01
        p[96:] *= torch.randint(0, 2, (features - 96,), generator=generator) * 2 - 1  # signs
    return tuple(units)


@every("limits", ("open", "others", "default"))
@every("training", (False, True))
@every("init", ("gelu", "waves", "random", "spread"))
@every("isa", NATIVE)
@every("solution", CASES)
def test_reference_and_kernel_agree(
    solution: str, isa: str, init: str, training: bool, limits: str
) -> None:
    units = random_units(init)
    generator = torch.Generator().manual_seed(11)
    numbers = 2 * torch.randn(5, len(units[0]), 7, dtype=torch.float64, generator=generator)
    upstream = torch.randn(numbers.shape, dtype=torch.float64, generator=generator)
    results = []
    for backend in ("reference", isa):
        inputs = [x.clone().requires_grad_() for x in (numbers, *units)]
        with using(backend):
            y = function(backend)(
                *inputs,
                solution=solution,
                training=training,
                **{"open": OPEN, "others": LIMITS, "default": {}}[limits],
            )
            grads = torch.autograd.grad(y, inputs, upstream)
        results.append(dict(zip(QUANTITIES, (y.detach(), *grads), strict=True)))
    for name in QUANTITIES:
        expected, got = results[0][name], results[1][name]
        error = ((got - expected).abs() / expected.abs().clamp(min=1)).nan_to_num(torch.inf)
        worst = int(error.reshape(-1).argmax())
        assert error.max() <= TOLERANCE[torch.float64], (
            f"{name}: {error.max():.3g}, got {got.reshape(-1)[worst]:.12g}, "
            f"reference {expected.reshape(-1)[worst]:.12g}, at place {worst} of {tuple(got.shape)}"
        )
