"""The kernel against the reference: every layout in memory, size, type and instruction set."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
import torch
from torch import Tensor, nn

import deu
from deu import _native

from .conftest import LIMITS, NAMES, SUBSPACES, every_subspace, gradients

# Relative to max(1, |truth|); in the narrow types twice the rounding of the result.
TOLERANCE = {
    torch.float64: 1e-10,
    torch.float32: 5e-6,
    torch.bfloat16: 2.0**-8,
    torch.float16: 2.0**-10,
}
# The neighbour's c1 and c2 come from AᵀA + 1e-9·I, which amplifies rounding by up to 1e9 or so.
GRAVITATION = 1e-7
MODES = [("paper", True), ("paper", False), ("continuous", False)]
modes = pytest.mark.parametrize(("solution", "training"), MODES)
# What is compared unless a test says otherwise; gradients are scaled down in tests of their own.
OPTIONS = {"solution": "paper", **LIMITS, "max_grad_norm": None}


@pytest.fixture(autouse=True)
def _nan_in_fresh_memory() -> Iterator[None]:
    """Whatever a kernel forgets to write shows as NaN."""
    torch.use_deterministic_algorithms(True)
    assert torch.utils.deterministic.fill_uninitialized_memory
    assert torch.empty(3).isnan().all()
    yield
    torch.use_deterministic_algorithms(False)


@contextmanager
def threads(n: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(n)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def compare(
    t: Tensor, coefficients: list[Tensor], upstream: Tensor, dim: int, **options: object
) -> dict[str, Tensor]:
    """Check all seven results against the reference in float64, and return them."""
    options = {"dim": dim, **OPTIONS, **options}
    got = gradients(deu.functional.deu, t, coefficients, upstream, **options)
    wide = [p.double() for p in coefficients]
    want = gradients(deu.reference.deu, t.double(), wide, upstream.double(), **options)
    channels = coefficients[0].numel()
    summed = upstream.double().abs()
    summed = (
        summed.transpose(dim, -1).reshape(-1, channels) if channels > 1 else summed.reshape(-1, 1)
    )
    for name, value in got.items():
        limit = torch.finfo(value.dtype).max
        truth = want[name].clamp(-limit, limit)
        assert value.shape == truth.shape, name
        assert value.dtype == (coefficients[0].dtype if name in NAMES else t.dtype), name
        # A coefficient's gradient is a sum, and errs in proportion to what was summed.
        scale = 1 + summed.sum(0) if name in NAMES else 1 + upstream.double().abs()
        scale = torch.maximum(scale, truth.abs())
        tolerance = torch.full_like(truth, TOLERANCE[t.dtype])
        if name in ("a", "b", "c") and options.get("training"):
            inside = wide[NAMES.index(name)].abs() < 0.01
            tolerance[inside] = tolerance[inside].clamp(min=GRAVITATION)
        error = ((value.double() - truth).abs() / scale).nan_to_num(torch.inf)
        assert (error <= tolerance).all(), (
            f"{name}: off by {error.max():.3g}, allowed {tolerance.min():.3g}"
        )
    return got


def rand(*shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return (2 * torch.randn(shape, dtype=torch.float64)).to(dtype)


RANKS = [
    ((6,), 0),
    ((6,), -1),
    ((5, 6), 0),
    ((5, 6), 1),
    ((5, 6), -2),
    ((2, 6, 3), 1),
    ((2, 3, 6), 2),
    ((6, 2, 3), 0),
    ((2, 3, 6), -1),
    ((2, 6, 3, 4), 1),
    ((2, 3, 6, 4), 2),
    ((2, 3, 4, 6), -1),
    ((6, 2, 3, 4), -4),
    ((2, 6, 3, 2, 4), 1),
    ((2, 3, 2, 6, 4), -2),
    ((2, 3, 2, 4, 6), 4),
]


@modes
@pytest.mark.parametrize(("shape", "dim"), RANKS)
def test_ranks_and_dims(shape: tuple[int, ...], dim: int, solution: str, training: bool) -> None:
    units = every_subspace(shape[dim])
    compare(rand(*shape), units, rand(*shape), dim, solution=solution, training=training)


@pytest.mark.parametrize("shape", [(), (1,), (7,), (5, 6), (2, 3, 4, 5)])
@modes
def test_one_unit_shared(shape: tuple[int, ...], solution: str, training: bool) -> None:
    unit = [p[2:3] for p in every_subspace(3)]
    compare(rand(*shape), unit, rand(*shape), 1, solution=solution, training=training)


def _gapped(shape: tuple[int, ...]) -> Tensor:
    """Every second element along every dimension of something larger, from an offset."""
    return rand(*[2 * n + 1 for n in shape])[tuple(slice(1, None, 2) for _ in shape)]


def _turned(shape: tuple[int, ...]) -> Tensor:
    """The same shape with its dimensions in memory in reverse order."""
    return rand(*reversed(shape)).permute(*reversed(range(len(shape))))


def _rotated(shape: tuple[int, ...]) -> Tensor:
    """The same shape with its dimensions in memory rotated by one."""
    return rand(*shape[1:], shape[0]).permute(-1, *range(len(shape) - 1))


def _flipped_first_two(shape: tuple[int, ...]) -> Tensor:
    return rand(shape[1], shape[0], *shape[2:]).transpose(0, 1)


LAYOUTS: dict[str, Callable[[tuple[int, ...]], Tensor]] = {
    "contiguous": lambda shape: rand(*shape),
    "reversed": _turned,
    "rotated": _rotated,
    "first two swapped": _flipped_first_two,
    "steps": _gapped,
    "some columns": lambda shape: rand(*shape[:-1], shape[-1] + 3)[..., 2:-1],
    "expanded over the first": lambda shape: rand(*shape[1:]).expand(shape),
    "expanded over the last": lambda shape: rand(*shape[:-1], 1).expand(shape),
    "one number": lambda shape: rand(1).expand(shape),
}
layouts = pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS.keys())


@layouts
@pytest.mark.parametrize(
    ("shape", "dim"),
    [((70, 6), 1), ((70, 6), 0), ((3, 6, 5), 1), ((3, 5, 6), -1), ((3, 4, 6, 5), 2)],
)
def test_inputs_lie_anyhow(
    layout: Callable[[tuple[int, ...]], Tensor], shape: tuple[int, ...], dim: int
) -> None:
    coefficients = every_subspace(shape[dim])
    for solution, training in MODES[:1] + MODES[2:]:
        t = layout(shape)
        compare(t, coefficients, rand(*shape), dim, solution=solution, training=training)


@layouts
@pytest.mark.parametrize(
    ("shape", "dim"), [((70, 6), 1), ((3, 6, 5), 1), ((3, 5, 6), -1), ((3, 6, 4, 5), 1)]
)
def test_upstream_gradients_lie_anyhow(
    layout: Callable[[tuple[int, ...]], Tensor], shape: tuple[int, ...], dim: int
) -> None:
    compare(rand(*shape), every_subspace(shape[dim]), layout(shape), dim, training=True)


@layouts
def test_one_shared_unit_takes_any_layout(layout: Callable[[tuple[int, ...]], Tensor]) -> None:
    shape, unit = (3, 4, 5), [p[4:5] for p in every_subspace(5)]
    compare(layout(shape), unit, rand(*shape), 1, training=True)
    compare(rand(*shape), unit, layout(shape), 1, training=True)
    compare(layout(shape), unit, layout(shape), 1, training=True)


def _alike(n: int, kinds: list[int], dtype: torch.dtype, stranger: int | None) -> list[Tensor]:
    """n units of a few subspaces in turns, and one of another; no two the same."""
    picked = [kinds[i % len(kinds)] for i in range(n)]
    if stranger is not None:
        picked[n // 2] = stranger
    abc = torch.tensor([SUBSPACES[i] for i in picked], dtype=torch.float64)
    abc = abc * (0.8 + 0.4 * torch.rand(n, 1, dtype=torch.float64))
    c12 = torch.rand(n, 2, dtype=torch.float64) - 0.5
    return [p.contiguous().to(dtype) for p in torch.cat([abc, c12], 1).unbind(1)]


def _last_of(shape: tuple[int, int, int, int], dtype: torch.dtype) -> Tensor:
    return rand(*shape, dtype=dtype).to(memory_format=torch.channels_last)


@pytest.mark.parametrize("isa", _native.isas())
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kind", range(len(SUBSPACES)))
@modes
def test_neighbouring_channels_of_one_kind(
    kind: int, dtype: torch.dtype, isa: str, solution: str, training: bool
) -> None:
    options = {"solution": solution, "training": training, "max_exponent": 2.0}
    other = (kind + 1) % len(SUBSPACES)
    with _native.use_isa(isa):
        # Short and long rows; channels that fill groups, and blocks of groups, and not.
        for shape, kinds, stranger in [
            ((70, 16), [kind], None),
            ((70, 37), [kind, other], None),
            ((131, 35), [kind], other),
            ((129, 14), [kind], None),
            ((3, 140), [kind], other),
        ]:
            t, upstream = rand(*shape, dtype=dtype), rand(*shape, dtype=dtype)
            compare(t, _alike(shape[1], kinds, dtype, stranger), upstream, 1, **options)
        # Lines with gaps between them; an upstream gradient that lies otherwise.
        t = _last_of((2, 20, 9, 12), dtype)[..., :7]
        upstream = rand(*t.shape, dtype=dtype)
        compare(t, _alike(20, [kind], dtype, None), upstream, 1, **options)
        compare(t, _alike(20, [kind], dtype, other), _last_of(t.shape, dtype), 1, **options)


@pytest.mark.parametrize("upstream_last", [True, False])
@pytest.mark.parametrize("channels", [1, 3, 16, 37])
@modes
def test_channels_last_is_kept(
    channels: int, upstream_last: bool, solution: str, training: bool
) -> None:
    shape = (2, channels, 5, 7)
    t = rand(*shape).to(memory_format=torch.channels_last)
    upstream = rand(*shape)
    if upstream_last:
        upstream = upstream.to(memory_format=torch.channels_last)
    got = compare(t, every_subspace(channels), upstream, 1, solution=solution, training=training)
    for name in ("y", "t"):
        assert got[name].is_contiguous(memory_format=torch.channels_last), name


@pytest.mark.parametrize("dim", [0, 2, 3, -1])
def test_channels_last_input_with_features_elsewhere(dim: int) -> None:
    t = rand(4, 3, 5, 6).to(memory_format=torch.channels_last)
    got = compare(t, every_subspace(t.shape[dim]), rand(*t.shape), dim, training=True)
    assert got["y"].is_contiguous(memory_format=torch.channels_last)


def test_channels_last_3d_is_kept() -> None:
    t = rand(2, 5, 3, 4, 2).to(memory_format=torch.channels_last_3d)
    got = compare(t, every_subspace(5), rand(*t.shape), 1)
    assert got["y"].is_contiguous(memory_format=torch.channels_last_3d)
    assert got["t"].is_contiguous(memory_format=torch.channels_last_3d)


@pytest.mark.parametrize("channels", [1, 5, 16, 33])
@pytest.mark.parametrize("n", [0, 1, 3, 63, 64, 129, 1000])
def test_batch_sizes(n: int, channels: int) -> None:
    for solution, training in MODES[:1] + MODES[2:]:
        t, upstream = rand(n, channels), rand(n, channels)
        compare(t, every_subspace(channels), upstream, 1, solution=solution, training=training)


@pytest.mark.parametrize("shape", [(3, 13, 1), (3, 13, 7, 7), (2, 13, 63), (2, 13, 1000)])
@modes
def test_spatial_sizes(shape: tuple[int, ...], solution: str, training: bool) -> None:
    compare(rand(*shape), every_subspace(13), rand(*shape), 1, solution=solution, training=training)


@pytest.mark.parametrize(
    ("shape", "dim"),
    [
        ((0, 4), 1),
        ((0, 4, 5, 5), 1),
        ((3, 4, 0), 1),
        ((3, 4, 0, 5), 1),
        ((3, 4, 5, 0), 1),
        ((2, 0, 3, 4), -1),
        ((0, 2, 3, 4), -1),
        ((2, 3, 0, 4), -1),
        ((4, 0), 0),
    ],
)
@pytest.mark.parametrize("features", [1, 4])
@modes
def test_empty_batches(
    shape: tuple[int, ...], dim: int, features: int, solution: str, training: bool
) -> None:
    options = {"solution": solution, "training": training, "dim": dim}
    coefficients = every_subspace(features)
    for function in (deu.functional.deu, deu.reference.deu):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            got = gradients(function, rand(*shape), coefficients, rand(*shape), **options)
        assert got["y"].shape == got["t"].shape == shape
        for name in NAMES:
            assert torch.equal(got[name], torch.zeros(features, dtype=torch.float64)), (
                f"{name} of {function.__module__}"
            )


@pytest.mark.parametrize("isa", _native.isas())
@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("max_exponent", [1.0, 3.0])
@modes
def test_instruction_sets_and_types(
    isa: str, dtype: torch.dtype, max_exponent: float, solution: str, training: bool
) -> None:
    options = {"solution": solution, "training": training, "max_exponent": max_exponent}
    with _native.use_isa(isa):
        for shape in [(65, 26), (3, 26, 37)]:
            t, upstream = rand(*shape, dtype=dtype), rand(*shape, dtype=dtype)
            coefficients = every_subspace(26, dtype)
            compare(t, coefficients, upstream, 1, **options)
        last = rand(2, 26, 5, 3, dtype=dtype).to(memory_format=torch.channels_last)
        upstream = rand(*last.shape, dtype=dtype)
        compare(last, coefficients, upstream, 1, **options)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@modes
def test_narrow_input_to_a_float32_layer(dtype: torch.dtype, solution: str, training: bool) -> None:
    t, upstream = rand(129, 26, dtype=dtype), rand(129, 26, dtype=dtype)
    compare(t, every_subspace(26, torch.float32), upstream, 1, solution=solution, training=training)


@modes
def test_coefficients_of_different_types_and_strides(solution: str, training: bool) -> None:
    options = {**OPTIONS, "solution": solution, "training": training}
    coefficients = every_subspace(12)
    mixed = [coefficients[0].float()[::2], *(p[::2] for p in coefficients[1:])]
    t, upstream = rand(9, 6), rand(9, 6)
    got = gradients(deu.functional.deu, t, mixed, upstream, **options)
    want = gradients(deu.reference.deu, t, mixed, upstream, **options)
    for name in got:
        assert got[name].dtype == want[name].dtype
        torch.testing.assert_close(got[name], want[name])


LARGE = [(256, 32, 16, 16), (5000, 26), (90, 600), (3, 2, 40_000), (8, 64, 32, 33)]


@pytest.mark.parametrize("shape", LARGE)
@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("mixed", [False, True])
def test_many_threads_and_runs_give_the_same_bits(
    shape: tuple[int, ...], last: bool, mixed: bool
) -> None:
    if last and len(shape) != 4:
        pytest.skip("channels_last is of four dimensions")
    if mixed:
        coefficients = every_subspace(shape[1], torch.float32)
    else:
        coefficients = _alike(shape[1], [9], torch.float32, 7)
    t, upstream = rand(*shape, dtype=torch.float32), rand(*shape, dtype=torch.float32)
    if last:
        t = t.to(memory_format=torch.channels_last)
    results = []
    for n in (1, 2, 2, 3):
        with threads(n):
            results.append(
                gradients(deu.functional.deu, t, coefficients, upstream, training=True, **OPTIONS)
            )
    for other in results[1:]:
        for name, value in results[0].items():
            assert not value.isnan().any(), name
            assert torch.equal(value, other[name]), name


@modes
def test_large_inputs_on_two_threads_agree_with_the_reference(
    solution: str, training: bool
) -> None:
    with threads(2):
        shape = (36, 26, 7, 7)
        t, upstream = rand(*shape), rand(*shape)
        compare(t, every_subspace(26), upstream, 1, solution=solution, training=training)


def _bytes_saved(layer: nn.Module, t: Tensor) -> int:
    saved: dict[int, int] = {}

    def pack(x: Tensor) -> Tensor:
        storage = x.untyped_storage()
        saved[storage.data_ptr()] = storage.nbytes()
        return x

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
        y = layer(t)
    node = y.grad_fn
    # What a node keeps as plain attributes is out of the hooks' sight.
    kept = [v for v in getattr(node, "__dict__", {}).values() if isinstance(v, Tensor)]
    return sum(saved.values()) + sum(v.numel() * v.element_size() for v in kept)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@modes
def test_a_step_saves_no_more_than_gelu(solution: str, training: bool, dtype: torch.dtype) -> None:
    channels = 8
    layer = deu.DEU(channels, solution=solution, dtype=dtype).train(training)
    t = rand(16, channels, 12, 12, dtype=dtype).requires_grad_()
    gelu = _bytes_saved(nn.GELU(), t)
    assert gelu == t.numel() * t.element_size()
    # Five coefficients and a centre a channel, in float64 at most.
    assert gelu <= _bytes_saved(layer, t) <= gelu + 6 * 8 * channels


def test_the_input_is_not_changed() -> None:
    t, coefficients = rand(9, 13), every_subspace(13)
    before = copy.deepcopy((t, coefficients))
    gradients(deu.functional.deu, t, coefficients, rand(9, 13), training=True, **OPTIONS)
    assert torch.equal(t, before[0])
    for p, q in zip(coefficients, before[1], strict=True):
        assert torch.equal(p, q)


@pytest.mark.parametrize("solution", ["paper", "continuous"])
def test_threads_of_its_own(solution: str) -> None:
    """Where PyTorch has no OpenMP to share, the kernels start threads themselves: the same bits."""
    library = deu._native._library
    if library is None:
        pytest.skip("no compiled kernels")
    coefficients = every_subspace(20)
    t, upstream = rand(64, 20, 100), rand(64, 20, 100)
    options = {"solution": solution, "training": True}
    with threads(2):
        shared = gradients(deu.functional.deu, t, coefficients, upstream, **options)
        library.deu_use_openmp(None)
        try:
            own = gradients(deu.functional.deu, t, coefficients, upstream, **options)
        finally:
            library.deu_use_openmp(deu._native._openmp())
    for name, value in shared.items():
        assert torch.equal(value, own[name]), name
