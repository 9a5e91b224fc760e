"""The Triton kernels against the float64 reference: layouts, types, sizes, and GPU tools.

Where there is no GPU, Triton's interpreter runs the same kernels on small tensors; what only a GPU
can show is marked so.
"""

from __future__ import annotations

import copy
import itertools
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import deu
import deu.functional
import deu.reference
from deu import _launcher, _triton, _triton_cut, _triton_launch
from deu._settings import Settings
from deu.bench.providers import TEN

from .conftest import GPU, KERNELS, LIMITS, NAMES, SUBSPACES, every_subspace, gradients

pytest.importorskip("triton", reason="Triton is not installed")
pytestmark = KERNELS

DEVICE = "cuda" if GPU else "cpu"
UNITS = len(SUBSPACES)

# Relative to max(1, |truth|).  The 16-bit types: two units in the last place, since the
# interpreter cuts off what a GPU rounds.
TOLERANCE = {
    torch.float64: 1e-10,
    torch.float32: 2e-5,
    torch.bfloat16: 2**-7,
    torch.float16: 2**-10,
}

INF = float("inf")
EPS_AND_SHARPNESS = (0.01, 100.0)

# c̃1 and c̃2 come from AᵀA + 1e-9·I, which amplifies rounding errors.
PULL = 1e-4

Layout = Callable[[Tensor], Tensor]
LAYOUTS: dict[str, tuple[tuple[int, ...], int, Layout]] = {
    "NCHW": ((2, UNITS, 4, 8), 1, lambda t: t),
    "NCHW, 7×7": ((2, UNITS, 7, 7), 1, lambda t: t),
    "channels_last": (
        (2, UNITS, 3, 5),
        1,
        lambda t: t.contiguous(memory_format=torch.channels_last),
    ),
    "(N, C)": ((5, UNITS), 1, lambda t: t),
    "(B, T, C)": ((2, 3, UNITS), -1, lambda t: t),
    "(C,)": ((UNITS,), 0, lambda t: t),
    "every other column": ((2, UNITS, 9, 2), 1, lambda t: t[..., ::2]),
    "a transposed view": ((3, 4, UNITS), 1, lambda t: t.transpose(1, 2)),
    "broken order": ((4, 2, UNITS, 3), 1, lambda t: t.permute(1, 2, 0, 3)),
}


def relative(got: Tensor, truth: Tensor) -> Tensor:
    """What each number is off by, relative to max(1, |truth|)."""
    return (got.double() - truth).abs() / truth.abs().clamp(min=1)


def values(t: Tensor, coefficients: list[Tensor], settings: Settings) -> tuple[Tensor, Tensor]:
    """Values by the kernels, and what they are off by."""
    y, _ = _triton.forward(t, tuple(coefficients), settings)
    options = {**settings._asdict(), "max_grad_norm": None}
    wide = [p.double() for p in coefficients]
    return y, relative(y, deu.reference.deu(t.double(), *wide, **options))


def compare(
    t: Tensor,
    coefficients: list[Tensor],
    *,
    dim: int = 1,
    solution: str = "paper",
    training: bool = False,
    max_exponent: float = 3.0,
    bound: float = 1e9,
    max_grad_norm: float = float("inf"),
) -> dict[str, Tensor]:
    """Value and all gradients by the kernels; each has to be near the reference's, by name."""
    t, coefficients = t.to(DEVICE), [p.to(DEVICE) for p in coefficients]
    limits = (max_exponent, bound, max_grad_norm)
    settings = Settings(dim, solution, 0.01, 100.0, *limits, training)
    upstream = torch.randn(t.shape, dtype=torch.float64).to(t)
    y, record = _triton.forward(t, tuple(coefficients), settings)
    grads = _triton.backward(upstream, t, tuple(coefficients), record, settings)
    got = {"y": y, "t": grads[0], **dict(zip(NAMES, grads[1:], strict=True))}
    options = settings._asdict()
    options["max_grad_norm"] = None if max_grad_norm == float("inf") else max_grad_norm
    wide = [p.double() for p in coefficients]
    want = gradients(deu.reference.deu, t.double(), wide, upstream.double(), **options)
    for name, truth in want.items():
        # Coefficients are float32 beside 16-bit inputs, and so are their gradients.
        dtype = t.dtype if name in ("y", "t") else coefficients[0].dtype
        assert got[name].dtype == dtype
        allowed = TOLERANCE[dtype]
        if name in NAMES and training:
            allowed = max(allowed, PULL, TOLERANCE[t.dtype])
        error = relative(got[name], truth).max().item()
        assert error <= allowed, f"{name}: off by {error:.2g}, {allowed:.2g} is allowed"
    assert y.shape == t.shape
    assert y.stride() == torch.empty_like(t).stride()
    return got


def inputs(name: str, dtype: torch.dtype) -> tuple[Tensor, list[Tensor], int]:
    shape, dim, arrange = LAYOUTS[name]
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    t = arrange((2 * torch.randn(shape, dtype=torch.float64)).to(dtype))
    return t, every_subspace(UNITS, wide), dim


@pytest.mark.parametrize(
    ("solution", "dtype"),
    [
        ("paper", torch.float32),
        ("continuous", torch.float32),
        ("paper", torch.bfloat16),  # whose tiles are taken in halves
        ("continuous", torch.bfloat16),
    ],
    ids=str,
)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout(layout: str, solution: str, dtype: torch.dtype) -> None:
    t, coefficients, dim = inputs(layout, dtype)
    compare(t, coefficients, dim=dim, solution=solution)


@pytest.mark.parametrize("solution", ["paper", "continuous"])
@pytest.mark.parametrize("layout", ["NCHW", "channels_last"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16], ids=str)
def test_every_type(dtype: torch.dtype, layout: str, solution: str) -> None:
    t, coefficients, dim = inputs(layout, dtype)
    compare(t, coefficients, dim=dim, solution=solution)


@pytest.mark.parametrize("layout", ["NCHW", "channels_last"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
def test_outward_gravitation(dtype: torch.dtype, layout: str) -> None:
    t, coefficients, dim = inputs(layout, dtype)
    compare(t, coefficients, dim=dim, training=True)


@pytest.mark.parametrize("where", ["here", pytest.param("on a GPU", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("solution", ["paper", "continuous"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
@pytest.mark.parametrize("lanes", [False, True])
def test_values_of_slow_and_large_responses(
    lanes: bool, dtype: torch.dtype, solution: str, where: str
) -> None:
    # Of a and b with c from just above eps on: 1/c, and the root c/b, are at their worst there;
    # what forward may compute in a short way and what not has its limits among them.
    grid = itertools.product((0.02, 0.3, 1.0), (0.0, 0.15, 1.0), (0.011, 0.02, 0.05, 0.1, 0.3, 1.0))
    a, b, c = (torch.tensor(x).repeat(2) for x in zip(*grid, strict=True))
    sign = torch.tensor([1.0, -1.0]).repeat_interleave(len(a) // 2)
    coefficients = [x.to(DEVICE) for x in (a, b, sign * c, 0.5 * sign, torch.full_like(a, -0.3))]
    t = torch.linspace(-6, 6, 12).to(dtype)[:, None].repeat(1, len(a)).to(DEVICE)
    if not lanes:
        t = t.T.contiguous()
    settings = Settings(int(lanes), solution, 0.01, 100.0, 3.0, 1e9, float("inf"), False)
    _, off = values(t, coefficients, settings)
    assert off.max() <= TOLERANCE[dtype], f"off by {off.max():.2g}"


@pytest.mark.parametrize("where", ["here", pytest.param("on a GPU", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("lanes", [False, True])
def test_values_of_roots_however_slow(lanes: bool, dtype: torch.dtype, where: str) -> None:
    # What a response in closed form loses to rounding goes with the inverse of the slower root.
    t = torch.linspace(-6, 6, 37).to(dtype)[:, None].repeat(1, 2).to(DEVICE)
    if not lanes:
        t = t.T.contiguous()
    settings = Settings(int(lanes), "continuous", 0.01, 100.0, 1.0, 1e9, float("inf"), False)
    for c in (0.0, *(sign * 10**-k for k in torch.arange(0.5, 6.5, 0.5) for sign in (-1, 1))):
        unit = [torch.full((2,), x, device=DEVICE) for x in (0.2, 1.2, c, 0.1, -0.3)]
        _, off = values(t, unit, settings)
        # Little is added to what rounding takes, or cutting digits off, as the interpreter does.
        allowed = (0.75 if GPU else 1.25) * torch.finfo(dtype).eps
        assert off.max() <= allowed, f"c = {c}: off by {off.max():.2g}"


@pytest.mark.parametrize("where", ["here", pytest.param("on a GPU", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("solution", ["paper", "continuous"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_values_beside_another_kind(dtype: torch.dtype, solution: str, where: str) -> None:
    # Side by side with a harmless one, each unit has the form that serves all kinds, which a
    # neighbour that needs more would keep from it.  Some grow, far and with large c1 and c2.
    other = (0.0, 0.7, 0.0, 0.2, 0.0) if solution == "paper" else (0.5, 1.5, 0.5, 0.2, 0.1)
    pairs = torch.tensor(
        [
            (unit, other)
            for unit in [
                *((*abc, 0.4, -0.3) for abc in TEN),
                *((-a, -b, -c, 3.0, -2.0) for a, b, c in TEN),
                (0.1989, -0.6913, 0.6663, 6.233, 1.397),
                (0.6002, 0.537, 0.7182, -3.647, -2.922),
                (-0.094, -0.168, -1.072, -0.3155, -2.221),
                (1.0, 201.0, 10100.0, 0.1, -8.0),
            ]
        ]
    )
    far = 10 ** torch.tensor([1.5, 5, 18.5, 20, 30])
    t = torch.cat([torch.linspace(-8, 8, 41), far, -far]).to(dtype)[:, None].repeat(1, 2).to(DEVICE)
    settings = Settings(1, solution, 0.01, 100.0, 3.0, 1000.0, float("inf"), False)
    for pair in pairs:
        y, off = values(t, [p.contiguous().to(DEVICE) for p in pair.T], settings)
        assert y[:, 0].isfinite().all(), pair
        error = off[:42].max()
        assert error <= TOLERANCE[dtype], f"{pair[0].tolist()}: off by {error:.2g}"


@pytest.mark.parametrize("where", ["here", pytest.param("on a GPU", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("lanes", [False, True])
def test_values_are_cut_at_the_bound(lanes: bool, dtype: torch.dtype, where: str) -> None:
    bound = 1.7  # which no type of 16 bits has
    shape = (5, 9, 3, 3)
    t = (20 * torch.randn(shape, dtype=torch.float64)).to(dtype).to(DEVICE)
    if lanes:
        t = t.contiguous(memory_format=torch.channels_last)
    coefficients = tuple(p.to(DEVICE) for p in every_subspace(9, torch.float32))
    cut, free = (
        _triton.forward(t, coefficients, Settings(1, "paper", 0.01, 100.0, 3.0, b, 1.0, False))[0]
        for b in (bound, 1e9)
    )
    want = free.clamp(-bound, bound)
    assert (want == free).any()
    assert (want != free).any()
    off = (cut - want).abs().max().item()
    assert off <= (0 if GPU else torch.finfo(dtype).eps)  # the interpreter cuts digits off
    t[0, :, 0, 0] = float("nan")
    cut, _ = _triton.forward(
        t, coefficients, Settings(1, "paper", 0.01, 100.0, 3.0, bound, 1.0, False)
    )
    assert cut[0, :, 0, 0].isnan().all()


@pytest.mark.parametrize("where", ["here", pytest.param("on a GPU", marks=pytest.mark.gpu)])
@pytest.mark.parametrize(
    ("lanes", "beside"),
    [(False, "others like them"), (True, "others like them"), (True, "one that grows")],
)
def test_gradients_of_close_roots(lanes: bool, beside: str, where: str) -> None:
    # b² about 4ac, on both sides and up to where the roots are not close any more; every unit has
    # one input, so that nothing averages out.
    near = torch.tensor([0.01, 0.3])
    t = torch.tensor([-110.0, -7.3, -2.0, 0.1, 0.9, 1.8, 4.0])
    grid = itertools.product((0.1, -0.5), (0.2, 0.7), (*near, *-near), t)
    a, c, near, t = torch.tensor(list(grid)).T
    c = c * a.sign()
    b = a.sign() * 2 * (a * c).sqrt() * (1 + near)
    cap, own = (2.0, 0.03) if lanes else (1.0, 0.2)
    c1, c2 = own * torch.cos(7 * t + a), own * torch.sin(5 * t + c)
    unit = torch.stack([a, b, c, c1, c2])
    if beside == "one that grows":
        unit, t = unit[:, :40], t[:40]
        unit[:, 3], t[3] = torch.tensor([0.5, -0.4, 0.3, 0.2, 0.1]), 0.7
    _compare_close(
        unit, t, Settings(int(lanes), "continuous", *EPS_AND_SHARPNESS, cap, 1e9, INF, True), 0.4
    )


@pytest.mark.parametrize("where", ["here", pytest.param("on a GPU", marks=pytest.mark.gpu)])
@pytest.mark.parametrize(
    ("lanes", "beside"),
    [(False, "others like them"), (True, "others like them"), (True, "every other row")],
)
def test_gradients_of_close_roots_of_the_paper(lanes: bool, beside: str, where: str) -> None:
    # As above, from where the critical row ends; in channels_last side by side with other rows.
    t = torch.tensor([-1.7, -0.02, 0.004, 0.1, 0.9, 4.0])
    distance = (0.0102, 0.04, 0.15)
    grid = itertools.product((0.15, 0.6), (*distance, *(-x for x in distance)), t)
    a, distance, t = torch.tensor(list(grid)).T
    c = 0.12 / a
    b = (4 * a * c + distance).sqrt()
    unit = torch.stack([a, b, c, 0.4 * torch.cos(7 * t + a), 0.4 * torch.sin(5 * t + c)])
    if beside == "every other row":
        unit, t = unit[:, ::2], t[::2].clone()
        rows = torch.tensor([(*abc, 0.4, -0.3) for abc in TEN]).T
        unit[:, 5:15], t[5:15] = rows, torch.linspace(-1, 2, 10)
        unit[:, 15], t[15] = torch.tensor([0.0, 0.0, 0.03, 0.1, 0.2]), -0.071  # a high step
    settings = Settings(int(lanes), "paper", *EPS_AND_SHARPNESS, 1.0, 1e9, INF, False)
    _compare_close(unit, t, settings, 0.2)


def test_close_roots_of_the_paper_where_the_bump_is_wide() -> None:
    # It multiplies the response where, below t = 0, exponents are held.
    t = torch.tensor([-1.0, -0.35, -0.2, 0.9])
    grid = itertools.product((0.15, 0.6), (0.02, -0.15), t)
    a, distance, t = torch.tensor(list(grid)).T
    b = (1.6 + distance).sqrt()
    unit = torch.stack([a, b, 0.4 / a, 0.1 * a, -0.2 * a])
    _compare_close(unit, t, Settings(1, "paper", 0.01, 10.0, 1.0, 1e9, INF, False), -1)


def test_gradients_of_what_is_not_damped_beside_close_roots() -> None:
    unit = torch.tensor([(0.8, 0.0, 0.9, 0.4, -0.3), (0.6, 0.7, 0.18, 0.4, -0.3)]).T
    t = torch.tensor([2e6, 0.3])
    _compare_close(unit, t, Settings(1, "paper", *EPS_AND_SHARPNESS, 1.0, 1e9, INF, False), 0.4)


def _compare_close(unit: Tensor, t: Tensor, settings: Settings, part: float) -> None:
    """Gradients of units with one input each, of which more than this part is SEAMLESS."""
    from deu._triton_elements import SEAMLESS  # imports Triton

    if DEVICE == "cpu" and not settings.dim:  # a channel each takes the interpreter half a second
        unit, t = unit[:, ::5], t[::5]
    # Of channels along memory there have to be two inputs; the gradient of the other one is 0.
    t = (torch.stack([t, t]) if settings.dim else t[:, None]).to(DEVICE)
    grad = torch.ones_like(t)
    if settings.dim:
        grad[1] = 0
    lies = _triton_cut.lie(t, (t,), len(unit[0]), settings.dim)
    assert lies is not None
    assert lies[0].lanes == bool(settings.dim)
    coefficients = tuple(x.contiguous().to(DEVICE) for x in unit)
    _, forms = _triton.forward(t, coefficients, settings)
    assert forms is not None
    assert (forms[: len(unit[0])] % 8 == SEAMLESS.value).float().mean() > part
    got = _triton.backward(grad, t, coefficients, forms, settings)
    wide = [x.double() for x in coefficients]
    options = {**settings._asdict(), "max_grad_norm": None}
    want = gradients(deu.reference.deu, t.double(), wide, grad.double(), **options)
    for name, found in zip(("t", *NAMES), got, strict=True):
        off = relative(found, want[name]).flatten()
        worst = off.argmax().item() % len(unit[0])
        said = f"{name} of {unit[:, worst].tolist()} at {t.flatten()[worst]}: {off.max():.2g}"
        assert off.max() <= TOLERANCE[torch.float32] / 2, said


@pytest.mark.parametrize("where", ["here", pytest.param("on a GPU", marks=pytest.mark.gpu)])
def test_gradients_of_close_roots_far_out(where: str) -> None:
    from deu._triton_elements import SEAMLESS  # imports Triton

    t = torch.tensor([-1e20, -1e9, -1e5, 1e5, 1e20], device=DEVICE)[:, None]
    for unit in (
        (0.5, 1.0, 0.45, 0.1, 0.2),
        (0.466, 0.986, 0.583, 0.1, 0.2),
        (0.23, 0.31, 0.05, 0, 0),
    ):
        coefficients = tuple(torch.full((len(t),), x, device=DEVICE) for x in unit)
        settings = Settings(0, "continuous", 0.01, 100.0, 1.0, 1e9, float("inf"), True)
        _, forms = _triton.forward(t, coefficients, settings)
        assert (forms[: len(t)] % 8 == SEAMLESS.value).all()
        got = _triton.backward(torch.ones_like(t), t, coefficients, forms, settings)
        assert all(x.isfinite().all() for x in got), unit


@pytest.mark.parametrize("layout", ["NCHW", "channels_last"])
def test_limits_the_gradient_of_each_neuron(layout: str) -> None:
    t, coefficients, dim = inputs(layout, torch.float32)
    got = compare(t, coefficients, dim=dim, max_grad_norm=0.1)
    norm = torch.stack([got[name] for name in NAMES]).norm(dim=0)
    assert (norm <= 0.1001).all()
    assert (norm > 0.0999).any()


@pytest.mark.parametrize("solution", ["paper", "continuous"])
def test_the_default_limits(solution: str) -> None:
    t, coefficients, dim = inputs("NCHW", torch.float32)
    options = {"dim": dim, "solution": solution}
    got = compare(t, coefficients, max_exponent=1.0, bound=1000.0, max_grad_norm=1.0, **options)
    norm = torch.stack([got[name] for name in NAMES]).norm(dim=0)
    assert (norm <= 1.0001).all()
    assert (norm > 0.9999).any()


@pytest.mark.parametrize("layout", ["NCHW", "channels_last"])
def test_memory_that_nobody_wrote(layout: str) -> None:
    """No neuron is pulled, and so there are no sums of neighbours; they are NaN here."""
    t, _, dim = inputs(layout, torch.float32)
    units = [torch.full((t.shape[dim],), p) for p in (0.7, 0.3, 0.9, 0.2, -0.4)]
    torch.use_deterministic_algorithms(True, warn_only=True)  # empty memory is filled with NaN
    try:
        compare(t, units, dim=dim, training=True)
    finally:
        torch.use_deterministic_algorithms(False)


def test_an_oscillation_that_grows_out_of_reach() -> None:
    """Time stops where e^(αt) is at its cap, here beyond all numbers of float32."""
    unit = [torch.full((2,), p) for p in (1.0, -1e-39, 1.0, 0.3, -0.4)]
    compare(torch.randn(5, 2, 3), unit, solution="continuous")


def test_sums_that_cancel_in_half_precision() -> None:
    """At its cap, with 1/c² in it: of a's gradient the last of seven digits is left."""
    unit = [torch.full((4,), p) for p in (0.05, 0.0, -0.07, 0.0, 0.0)]
    compare(torch.full((37, 4), 7.30078125, dtype=torch.float16), unit, solution="paper")


@pytest.mark.parametrize("size", [1, 63, 64, 1000])
@pytest.mark.parametrize("solution", ["paper", "continuous"])
def test_every_size(size: int, solution: str) -> None:
    unit = [torch.tensor([p]) for p in (0.7, 0.3, 0.9, 0.2, -0.4)]
    compare(torch.randn(size), unit, solution=solution)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("layout", ["NCHW", "channels_last"])
def test_as_trained(layout: str, dtype: torch.dtype) -> None:
    """Two roots, one of them slow, of either sign or 0, as layers from the default start have."""
    units = [(0.14, 0.874, c, -0.09, 0.005) for c in (0.1, 0.038, 1e-4, 0.0, -1e-4, -0.04)]
    units += [(-a, -b, -c, 0.2, 0.3) for a, b, c, *_ in units]  # the same roots, swapped
    t = 3 * torch.randn(2, len(units), 4, 8)
    t[0, :, 0, 0], t[0, :, 0, 1] = 100.0, -100.0  # beyond the caps
    if layout == "channels_last":
        t = t.contiguous(memory_format=torch.channels_last)
    coefficients = list(torch.tensor(units).T.contiguous())
    compare(t.to(dtype), coefficients, solution="continuous", max_exponent=1.0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("solution", ["paper", "continuous"])
def test_as_large_tensors_are_cut(
    solution: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_triton_cut, "_LARGE", 0)
    monkeypatch.setattr(_triton_launch, "_plans", {})
    t, coefficients, dim = inputs("NCHW", dtype)
    compare(t, coefficients, dim=dim, solution=solution)


def test_roots_and_waves_side_by_side() -> None:
    units = [(0.14, 0.874, 0.038, -0.09, 0.005), (0.9, 0.4, 1.1, 0.2, -0.3)] * 3
    compare(
        2 * torch.randn(9, len(units)),
        list(torch.tensor(units).T.contiguous()),
        solution="continuous",
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("images", [False, True])
def test_gentle_rows(images: bool, training: bool, dtype: torch.dtype) -> None:
    """All of the paper's rows, none of them steep: the fastest arithmetic serves them all."""
    c12 = torch.rand(2, 2 * len(TEN)) - 0.5
    coefficients = [*torch.tensor(2 * TEN).T.contiguous(), *c12]
    t = 3 * torch.randn(40, 2 * len(TEN))
    t[0], t[1] = 30.0, -30.0
    t = t.T.reshape(1, -1, 5, 8) if images else t
    compare(t.to(dtype), coefficients, training=training)


@pytest.mark.parametrize("solution", ["paper", "continuous"])
def test_a_random_start_side_by_side(solution: str) -> None:
    """A quarter of such units need float64, some of two roots and some that oscillate."""
    units = list(deu.DEU(24, init="random", solution=solution).requires_grad_(False).coefficients())
    units[3:] = torch.rand(2, 24) - 0.5
    compare(2 * torch.randn(9, 24), units, solution=solution, max_exponent=1.0)


def test_more_channels_than_a_tile_has() -> None:
    compare(torch.randn(3, 131), every_subspace(131, torch.float32))


@pytest.mark.parametrize("shape", [(0, 4), (3, 4, 0)])
def test_nothing(shape: tuple[int, ...]) -> None:
    t = torch.randn(shape, device=DEVICE)
    coefficients = tuple(p.to(DEVICE) for p in every_subspace(4, torch.float32))
    settings = Settings(1, "paper", 0.01, 100.0, *LIMITS.values(), True)
    y, record = _triton.forward(t, coefficients, settings)
    assert y.shape == t.shape
    for gradient in _triton.backward(t, t, coefficients, record, settings)[1:]:
        assert (gradient == 0).all()


def test_not_a_number_stays_one() -> None:
    t = torch.randn(4, UNITS, 3, 3, device=DEVICE)
    t[1, :, 1, 1] = torch.nan
    coefficients = tuple(p.to(DEVICE) for p in every_subspace(UNITS, torch.float32))
    settings = Settings(1, "paper", 0.01, 100.0, *LIMITS.values(), False)
    y, _ = _triton.forward(t, coefficients, settings)
    assert y[1, :, 1, 1].isnan().all()
    assert y.isnan().sum() == UNITS


@pytest.mark.parametrize("solution", ["paper", "continuous"])
def test_extreme_numbers_stay_finite(solution: str) -> None:
    sizes = [0.0, 1e-30, -0.0099999, 0.01, -3.0, 1e4, -1e20]
    abc = list(itertools.product(sizes, repeat=3))
    abc = abc if GPU else [*abc[::11], (-1e20, -1e20, 1e-30)]  # with a root of 1e-50
    t = torch.tensor([0.0, 1e-40, -1e-3, 0.1, 30.0, -1e3, 6e4, -6e4], device=DEVICE)
    t = t[:, None].repeat(1, len(abc))
    c12 = [torch.full((len(abc),), p) for p in (0.5, -1.0)]
    coefficients = tuple(p.to(DEVICE) for p in (*torch.tensor(abc).T.contiguous(), *c12))
    settings = Settings(1, solution, 0.01, 100.0, *LIMITS.values(), True)
    y, record = _triton.forward(t, coefficients, settings)
    grads = _triton.backward(torch.ones_like(t), t, coefficients, record, settings)
    for name, found in zip(("y", "t", *NAMES), (y, *grads), strict=True):
        assert found.isfinite().all(), name


def test_without_triton_there_is_one_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_triton, "AVAILABLE", False)
    monkeypatch.setattr(_triton, "_DEVICES", ("cpu", "cuda"))
    _triton._warn_once.cache_clear()
    t, coefficients = torch.randn(2, 3), tuple(every_subspace(3, torch.float32))
    with pytest.warns(UserWarning, match="Triton is not there"):
        assert not _triton.handles(t, coefficients)
    assert not _triton.handles(t, coefficients)  # warnings are errors here


# ------------------------------------------------------------------------------------ GPUs alone


def layer(**settings: Any) -> deu.DEU:
    made = deu.DEU(UNITS, **{"solution": "paper", **LIMITS, **settings}).cuda()
    with torch.no_grad():
        for p, q in zip(made.coefficients(), every_subspace(UNITS, torch.float32), strict=True):
            p.copy_(q)
    return made


def step(module: nn.Module, t: Tensor) -> list[Tensor]:
    """Output and gradients of one step."""
    t = t.detach().requires_grad_()
    y = module(t)
    y.square().sum().backward()
    found = [y.detach(), t.grad, *(p.grad for p in module.parameters())]
    module.zero_grad()
    return [x for x in found if x is not None]


@pytest.mark.gpu
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", list(TOLERANCE), ids=str)
@pytest.mark.parametrize("solution", ["paper", "continuous"])
def test_everything_on_a_gpu(solution: str, dtype: torch.dtype, layout: str) -> None:
    t, coefficients, dim = inputs(layout, dtype)
    compare(t, coefficients, dim=dim, solution=solution, training=True)


@pytest.mark.gpu
@pytest.mark.parametrize("shape", [(2**20 + 3,), (2**14 + 3, UNITS), (UNITS, 2**16 + 3)])
def test_large(shape: tuple[int, ...]) -> None:
    dim = 0 if shape[0] == UNITS else 1
    units = UNITS if len(shape) == 2 else 1
    compare(torch.randn(shape), every_subspace(units, torch.float32), dim=dim, training=True)


@pytest.mark.gpu
@pytest.mark.parametrize("lanes", [False, True])
def test_more_elements_than_32_bits_count(lanes: bool) -> None:
    n, channels = 2**25 + 1, 64
    t = torch.empty(n, channels, dtype=torch.bfloat16, device="cuda").normal_()
    options = {"solution": "paper", **LIMITS, "dim": 1}
    layer = deu.DEU(channels, init="spread", **options).cuda().requires_grad_(False)
    if not lanes:
        t = t.view(1, channels, n)
    with torch.no_grad():
        y = layer(t)
    if not lanes:
        t, y = t[0].T, y[0].T
    for some in (slice(0, 3), slice(n // 2, n // 2 + 3), slice(n - 3, n)):
        want = deu.reference.deu(
            t[some].double(), *(p.double() for p in layer.coefficients()), **options
        )
        error = relative(y[some], want)
        assert error.max() <= TOLERANCE[torch.bfloat16]


@pytest.mark.gpu
@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("solution", ["paper", "continuous"])
def test_the_same_bits_every_time(solution: str, channels_last: bool) -> None:
    made = layer(solution=solution)
    t = torch.randn(32, UNITS, 28, 28, device="cuda")
    if channels_last:
        t = t.contiguous(memory_format=torch.channels_last)
    first = step(made, t)
    for _ in range(3):
        for x, y in zip(first, step(made, t), strict=True):
            assert torch.equal(x, y)


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore:Synchronization debug mode", "ignore:.*Profiler clears events")
@pytest.mark.parametrize("solution", ["paper", "continuous"])
def test_at_most_three_launches_and_no_synchronisation(solution: str) -> None:
    made = layer(solution=solution)
    t = torch.randn(8, UNITS, 16, 16, device="cuda", requires_grad=True)
    upstream = torch.randn_like(t)

    def once() -> None:
        torch.autograd.grad(made(t), [t, *made.parameters()], upstream)

    once()
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as seen:
            once()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    torch.cuda.synchronize()
    launched = [e for e in seen.events() if e.device_type == torch.autograd.DeviceType.CUDA]
    assert len(launched) <= 3, [e.name for e in launched]


@pytest.mark.gpu
@pytest.mark.parametrize("solution", ["paper", "continuous"])
def test_keeps_no_more_than_gelu(solution: str) -> None:
    t = torch.randn(64, UNITS, 64, 64, device="cuda", requires_grad=True)

    def peak(module: nn.Module) -> int:
        module(t).sum().backward()
        t.grad = None
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        module(t).sum().backward()
        t.grad = None
        return torch.cuda.max_memory_allocated() - before

    assert peak(layer(solution=solution)) <= 1.01 * peak(nn.GELU())


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("layout", ["NCHW", "channels_last", "(B, T, C)"])
@pytest.mark.parametrize("solution", ["paper", "continuous"])
def test_the_launcher_launches_the_same(
    solution: str, layout: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    t, _, dim = inputs(layout, dtype)
    t, made = t.cuda(), layer(solution=solution, dim=dim)
    assert _launcher.ready(), _launcher.problem
    with monkeypatch.context() as patch:
        patch.setattr(_launcher, "call", None)
        want = step(made, t)
        with torch.no_grad():
            want.append(made(t))
    launched = []
    monkeypatch.setattr(_triton, "forward", lambda *args: launched.append("forward"))
    monkeypatch.setattr(_triton, "backward", lambda *args: launched.append("backward"))
    got = step(made, t)
    with torch.no_grad():
        got.append(made(t))
    assert not launched  # by Python
    for x, y in zip(got, want, strict=True):
        assert torch.equal(x, y)


@pytest.mark.gpu
def test_the_launcher_in_a_thread_that_has_not_used_the_gpu() -> None:
    made, t = layer(), torch.randn(4, UNITS, 8, 8, device="cuda")
    assert _launcher.ready(), _launcher.problem
    with torch.no_grad():
        want = made(t)
        found: list[Tensor] = []

        def work() -> None:
            with torch.no_grad():
                found.append(made(t))

        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    assert torch.equal(found[0], want)


@pytest.mark.parametrize("layout", ["(N, C)", "NCHW"])
@pytest.mark.parametrize("solution", ["paper", "continuous"])
def test_forward_writes_all_that_it_keeps(layout: str, solution: str) -> None:
    t, coefficients, dim = inputs(layout, torch.float32)
    settings = Settings(dim, solution, 0.01, 100.0, *LIMITS.values(), True)
    torch.use_deterministic_algorithms(True)  # which fills memory with NaN
    try:
        y, record = _triton.forward(
            t.to(DEVICE), tuple(p.to(DEVICE) for p in coefficients), settings
        )
    finally:
        torch.use_deterministic_algorithms(False)
    assert record is not None
    assert y.isfinite().all()
    assert record.isfinite().all()


@pytest.mark.gpu
def test_operators_pass_their_checks() -> None:
    made = layer()
    t = torch.randn(3, UNITS, 5, 5, device="cuda", requires_grad=True)
    settings = Settings(1, "paper", 0.01, 100.0, *LIMITS.values(), True)
    torch.library.opcheck(torch.ops.deu.unit.default, (t, *made.coefficients(), *settings))
    fixed = [x.detach() for x in (t, *made.coefficients())]
    fixed.append(settings.packed())
    torch.library.opcheck(torch.ops.deu.forward.default, fixed)
    torch.library.opcheck(torch.ops.deu.value.default, fixed)
    saved = torch.ops.deu.forward(*fixed)[1]
    torch.library.opcheck(
        torch.ops.deu.backward.default, (torch.randn_like(fixed[0]), saved, *fixed)
    )


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # PyTorch's own, in Python 3.12
@pytest.mark.parametrize("solution", ["paper", "continuous"])
def test_compiles_whole_and_once(solution: str) -> None:
    made = layer(solution=solution)
    plain = copy.deepcopy(made)
    torch._dynamo.reset()
    counter = torch._dynamo.testing.CompileCounterWithBackend("inductor")
    compiled = torch.compile(made, fullgraph=True, backend=counter)
    for seed in range(3):
        torch.manual_seed(seed)
        t = torch.randn(4, UNITS, 8, 8, device="cuda")
        for x, y in zip(step(compiled, t), step(plain, t), strict=True):
            torch.testing.assert_close(x, y)
        with torch.no_grad():
            for module in (made, plain):
                for p in module.parameters():
                    p.add_(0.01)
    assert counter.frame_count == 1


@pytest.mark.gpu
def test_autocast_gives_what_it_gets() -> None:
    made = layer()
    model = nn.Sequential(nn.Conv2d(3, UNITS, 3, device="cuda"), made)
    with torch.autocast("cuda", torch.bfloat16):
        y = model(torch.randn(2, 3, 8, 8, device="cuda"))
        assert y.dtype == torch.bfloat16
        y.float().sum().backward()
    assert made.a.grad is not None
    assert made.a.grad.dtype == torch.float32


def captured(once: Callable[[], list[Tensor]]) -> tuple[torch.cuda.CUDAGraph, list[Tensor]]:
    """A CUDA graph of a call that has been made once before, and the results that it fills."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        once()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        results = once()
    return graph, results


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore:The AccumulateGrad node's stream")
@pytest.mark.parametrize("solution", ["paper", "continuous"])
def test_a_cuda_graph_captures_a_step(solution: str) -> None:
    made = layer(solution=solution)
    t = torch.randn(4, UNITS, 8, 8, device="cuda", requires_grad=True)
    upstream = torch.randn_like(t)
    wanted = [t, *made.parameters()]

    def once() -> list[Tensor]:
        y = made(t)
        return [y, *torch.autograd.grad(y, wanted, upstream)]

    graph, kept = captured(once)
    with torch.no_grad():
        t.normal_()
    graph.replay()
    for x, y in zip(kept, once(), strict=True):
        assert torch.equal(x, y)


@pytest.mark.gpu
@pytest.mark.parametrize("wrap", ["DDP", "FSDP2"])
def test_wrapped_for_several_gpus(wrap: str, tmp_path: Any) -> None:
    plain = nn.Sequential(nn.Linear(5, UNITS), layer(), nn.Linear(UNITS, 1)).cuda()
    model = copy.deepcopy(plain)
    torch.distributed.init_process_group(
        "nccl", init_method=f"file://{tmp_path}/rendezvous", rank=0, world_size=1
    )
    try:
        if wrap == "DDP":
            model = nn.parallel.DistributedDataParallel(model)
        else:
            from torch.distributed.fsdp import fully_shard

            fully_shard(model[1])
            fully_shard(model)
        t = torch.randn(16, 5, device="cuda")
        losses = []
        for module in (model, plain):
            optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
            for _ in range(3):
                optimizer.zero_grad()
                loss = module(t).square().mean()
                loss.backward()
                optimizer.step()
            losses.append(loss.item())
        assert losses[0] == pytest.approx(losses[1], rel=1e-4)
    finally:
        torch.distributed.destroy_process_group()
