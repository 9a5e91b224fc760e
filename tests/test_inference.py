"""Models for inference: packed numbers, their kernel, the operator, the layers.

The truth is the model that was packed, and the reference in float64.  Where there is no GPU,
Triton's interpreter runs the kernel.
"""

from __future__ import annotations

import copy
import io
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch._dynamo.testing
from torch import Tensor, nn
from torch.nn import functional

import deu
import deu.reference
from deu import (
    _launcher,
    _native,
    _packed_ops,
    _triton,
    _triton_cut,
    _triton_launch,
    _triton_packed,
)
from deu._packed import COEFFICIENTS, packed, rows_of
from deu._settings import Settings

from .conftest import GPU, KERNELS, every_subspace
from .test_norm import UNITS as NORMED_UNITS
from .test_norm import inputs
from .test_triton import DEVICE, TOLERANCE, captured, relative

pytest.importorskip("triton", reason="Triton is not installed")
pytestmark = KERNELS

LAST = torch.channels_last
# Seams, and what lies near them: c = 0, b = c = 0, a double root, roots that are close.
SEAMS = (
    (0.3, 0.8, 0.0, 0.2, 0.1),
    (0.5, 0.0, 0.0, -0.2, 0.3),
    (0.25, 1.0, 1.0, 0.1, -0.2),
    (0.4, 0.9, 0.5062, 0.2, 0.1),
    (0.3, 1e-9, 1e-9, 0.3, 0.2),
    (0.01, 1.0, 1e-3, 0.1, 0.1),
)


def settings_of(solution: str, dim: int = 1) -> Settings:
    return Settings(dim, solution, 0.01, 100.0, 1.0, 1000.0, 1.0, False)


def reference(t: Tensor, units: tuple[Tensor, ...], settings: Settings) -> Tensor:
    return deu.reference.deu(t.double(), *(p.double() for p in units), **settings._asdict())


def units_of(n: int, solution: str) -> tuple[Tensor, ...]:
    if solution == "paper":
        return tuple(p.to(DEVICE) for p in every_subspace(n, torch.float32))
    rows = torch.tensor([(*NORMED_UNITS, *SEAMS)[i % 12] for i in range(n)])
    return tuple(p.contiguous().to(DEVICE) for p in rows.T)


@pytest.mark.parametrize("solution", ["continuous", "paper"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("layout", ["NCHW", "channels_last", "(B, T, C)"])
def test_kernel(solution: str, dtype: torch.dtype, layout: str) -> None:
    n, settings = 13, settings_of(solution, -1 if layout == "(B, T, C)" else 1)
    t = 2 * torch.randn((2, 9, n) if layout == "(B, T, C)" else (2, n, 3, 5), device=DEVICE)
    t = t.to(dtype)
    if layout == "channels_last":
        t = t.to(memory_format=LAST)
    units = units_of(n, solution)
    y = _triton_packed.value(t, None, packed(units, solution, settings.eps), False, settings)
    assert y.dtype == dtype
    assert y.stride() == t.stride()
    assert relative(y, reference(t, units, settings)).max() <= TOLERANCE[dtype]


@pytest.mark.parametrize("solution", ["continuous", "paper"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("layout", ["NCHW", "channels_last", "a part", "(B, T, C)"])
def test_on_a_cpu(solution: str, dtype: torch.dtype, layout: str) -> None:
    n, settings = 13, settings_of(solution, -1 if layout == "(B, T, C)" else 1)
    t = 2 * torch.randn((2, 9, n) if layout == "(B, T, C)" else (2, n, 3, 6)).to(dtype)
    if layout == "channels_last":
        t = t.to(memory_format=LAST)
    elif layout == "a part":
        t = t[..., ::2]
    units = tuple(p.cpu() for p in units_of(n, solution))
    y = _packed_ops.plain(t, None, packed(units, solution, 0.01), False, settings)
    want = _native.forward(t, tuple(p.double() for p in units), settings, False)[0]
    assert torch.equal(y, want)
    assert y.stride() == want.stride()


@pytest.mark.parametrize("last", [False, True], ids=["NCHW", "channels_last"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("residual", [False, True], ids=["", "residual"])
@pytest.mark.parametrize("solution", ["continuous", "paper"])
def test_kernel_after_batch_norm(
    solution: str,
    dtype: torch.dtype,
    last: bool,
    residual: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(_triton_cut, "_WORTH_A_PROGRAM", 64)
    monkeypatch.setattr(_triton_launch, "_plans", {})
    settings = settings_of(solution)
    x, other, _ = inputs((3, 6, 8, 12), dtype, last)
    r, units = other if residual else None, units_of(6, solution)
    mean, scale, shift = torch.randn(6), torch.rand(6) + 0.5, torch.randn(6)
    numbers = packed(units, solution, 0.01, (mean, scale, shift))
    y = _triton_packed.value(x, r, numbers, True, settings)
    given = [p.double().to(DEVICE) for p in (mean, torch.zeros(6), scale, shift)]
    z = functional.batch_norm(x.double(), *given, eps=1.0)
    want = reference(z if r is None else z + r.double(), units, settings)
    assert relative(y, want).max() <= TOLERANCE[dtype]
    assert y.stride() == x.stride()


@pytest.mark.parametrize("shape", [(1,), (63,), (64, 3), (1000, 1), (2, 3, 4, 5, 2)])
def test_shapes_and_a_shared_unit(shape: tuple[int, ...]) -> None:
    settings, n = settings_of("continuous"), 1 if len(shape) == 1 else shape[1]
    t, units = torch.randn(shape, device=DEVICE), units_of(n, "continuous")
    y = _triton_packed.value(t, None, packed(units, "continuous", 0.01), False, settings)
    assert relative(y, reference(t, units, settings)).max() <= TOLERANCE[torch.float32]


def test_tensors_that_lie_in_another_order() -> None:
    settings, units = settings_of("continuous"), units_of(3, "continuous")
    numbers = packed(units, "continuous", 0.01)
    x, r, _ = inputs((4, 3, 4, 4))
    r = r.contiguous(memory_format=LAST)
    y = _triton_packed.value(x, r, numbers, True, settings)
    assert relative(y, reference(x + r, units, settings)).max() <= TOLERANCE[torch.float32]
    for some in (x[:, :, ::2], x.permute(2, 0, 1, 3)[1:, :, :, 1:].permute(1, 2, 0, 3)):
        y = _triton_packed.value(some, None, numbers, False, settings)
        assert relative(y, reference(some, units, settings)).max() <= TOLERANCE[torch.float32]


@pytest.mark.parametrize("solution", ["continuous", "paper"])
def test_numbers_are_those_that_the_kernels_make(solution: str) -> None:
    n, settings = 13, settings_of(solution)
    units = units_of(n, solution)
    _, forms = _triton.forward(torch.zeros(1, n, device=DEVICE), units, settings)
    assert forms is not None
    kept = forms[: 7 * n].view(7, n).cpu()
    numbers = packed(units, solution, 0.01).view(torch.float64).cpu()
    kinds = numbers[0] // 32
    alike = kept[0] // 32 == kinds  # near a seam they may choose another form
    assert alike.sum() >= n - 3
    torch.testing.assert_close(numbers[1:7, alike], kept[1:, alike], rtol=1e-6, atol=1e-9)
    rows = rows_of(numbers.view(torch.int64), COEFFICIENTS)
    for p, q in zip(rows, units, strict=True):
        assert torch.equal(p.to(DEVICE), q.double())


# ---- the layers -------------------------------------------------------------------------------


class Block(nn.Module):
    """A bit of everything: batch norm and units in one, with a residual; units alone; shared."""

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, padding=1)
        self.one = deu.NormDEU(nn.BatchNorm2d(4), deu.DEU(4))
        self.two = deu.DEU(4, init="waves", **options)
        self.shared = deu.DEU(**options)

    def forward(self, x: Tensor) -> Tensor:
        y = self.conv(x)
        y = self.one(y, residual=torch.relu(y))
        return self.shared(self.two(y))


def trained(make: Callable[[], nn.Module] = Block) -> nn.Module:
    model = make().to(DEVICE)
    for _ in range(3):
        model(torch.randn(8, 3, 6, 6, device=DEVICE))
    return model


@pytest.fixture(params=["kernel", "plain"])
def _ways(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """By the kernel, Python launching it, as on a GPU; and by PyTorch, as on a CPU."""
    monkeypatch.setattr(_launcher, "call", None)
    monkeypatch.setattr(_launcher, "call_norm", None)
    monkeypatch.setattr(_launcher, "call_packed", None)
    if request.param == "plain":
        monkeypatch.setattr(_triton_packed, "fits", lambda *args: False)
    elif not GPU:
        monkeypatch.setattr(_triton, "_DEVICES", ("cpu", "cuda"))
    yield
    _triton_launch._plans.clear()


@pytest.mark.usefixtures("_ways")
@pytest.mark.parametrize("mode", ["no_grad", "inference", "frozen", "gradients"])
def test_is_the_model_in_evaluation_mode(mode: str) -> None:
    model = trained()
    quick = deu.for_inference(model)
    assert model.training
    assert not quick.training
    model.eval()
    x = torch.randn(4, 3, 6, 6, device=DEVICE, requires_grad=mode == "gradients")
    if mode == "frozen":
        quick.requires_grad_(False)
    if mode in ("frozen", "gradients"):
        got, want = quick(x), model(x)
    else:
        with {"no_grad": torch.no_grad, "inference": torch.inference_mode}[mode]():
            got, want = quick(x), model(x)
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5, check_stride=True)
    if mode == "gradients":
        found = [torch.autograd.grad(y.square().sum(), x)[0] for y in (got, want)]
        torch.testing.assert_close(*found, rtol=1e-4, atol=1e-5)


def test_layers_are_replaced_and_nothing_else() -> None:
    model = trained()
    before = copy.deepcopy(model.state_dict())
    quick = deu.for_inference(model)
    assert isinstance(quick.one, deu.PackedNormDEU)
    assert isinstance(quick.one, deu.NormDEU)  # for code that asks
    assert isinstance(quick.two, deu.PackedDEU)
    assert type(model.one) is deu.NormDEU
    assert {name for name, _ in quick.named_parameters()} == {"conv.weight", "conv.bias"}
    for name, t in model.state_dict().items():
        assert torch.equal(t, before[name])
    for name in ("a", "b", "c", "c1", "c2"):
        assert torch.equal(getattr(quick.two, name), getattr(model.two, name).double())
    assert deu.formula(quick.two, 1) == deu.formula(model.two, 1)
    assert deu.subspaces(quick.one.unit) == deu.subspaces(model.one.unit)
    assert quick.two.fit is model.two.fit or quick.two.fit == model.two.fit
    with pytest.raises(RuntimeError, match=r"cannot start again; reset the model that"):
        quick.two.reset_parameters()


def test_a_layer_by_itself_and_one_that_is_used_twice() -> None:
    unit = deu.DEU(3)
    assert isinstance(deu.for_inference(unit), deu.PackedDEU)
    quick = deu.for_inference(nn.Sequential(unit, nn.Sequential(unit), unit))
    assert isinstance(quick[0], deu.PackedDEU)
    assert quick[0] is quick[1][0] is quick[2]


@pytest.mark.parametrize(
    ("layer", "kinds"),
    [
        (lambda: deu.NormDEU(nn.BatchNorm2d(3, track_running_stats=False), deu.DEU(3)), "none"),
        (lambda: deu.NormDEU(nn.BatchNorm2d(3, affine=False), deu.DEU(3)), "none"),
        (lambda: deu.NormDEU(nn.BatchNorm2d(3), deu.DEU(3, solution="paper")), "one"),
        (lambda: deu.NormDEU(nn.BatchNorm2d(3), deu.DEU()), "none"),
        (lambda: deu.NormDEU(nn.BatchNorm2d(3), deu.DEU(3, dim=-3)), "one"),
        (lambda: hooked(deu.NormDEU(nn.BatchNorm2d(3), deu.DEU(3))), "none"),
        (lambda: hooked(deu.DEU(3)), "none"),
        (lambda: Louder(3), "none"),
    ],
    ids=["statistics", "affine", "paper", "shared", "dim", "hook", "hook", "subclass"],
)
def test_what_cannot_be_packed_stays(layer: Callable[[], nn.Module], kinds: str) -> None:
    model = nn.Sequential(layer()).to(DEVICE)
    x = torch.randn(4, 3, 5, 5, device=DEVICE)
    model(x)
    quick = deu.for_inference(model)
    model.eval()
    with torch.no_grad():
        torch.testing.assert_close(quick(x), model(x), rtol=1e-4, atol=1e-5)
    assert isinstance(quick[0], deu.PackedNormDEU) == (kinds == "one")
    ours = [m for m in quick.modules() if isinstance(m, deu.PackedDEU)]
    assert len(ours) == (0 if kinds == "none" else 1)


def hooked(layer: nn.Module) -> nn.Module:
    layer.register_forward_hook(_double)
    return layer


def _double(module: nn.Module, given: Any, y: Tensor) -> Tensor:
    return 2 * y


class Louder(deu.DEU):
    def forward(self, input: Tensor) -> Tensor:
        return 3 * super().forward(input)


def test_errors_say_what_was_given() -> None:
    quick = deu.for_inference(trained())
    with pytest.raises(ValueError, match=r"expected 4D input \(got 2D input\)"):
        quick.one(torch.randn(4, 4, device=DEVICE))
    single = deu.for_inference(deu.NormDEU(nn.BatchNorm2d(1), deu.DEU(1)).to(DEVICE))
    with pytest.raises(ValueError, match="expected 1 features along dim=1"):
        single(torch.randn(2, 5, 3, 3, device=DEVICE))
    with pytest.raises(TypeError, match="real floating-point input"):
        single(torch.ones(2, 1, 3, 3, dtype=torch.int64, device=DEVICE))
    with pytest.raises(ValueError, match="cannot be packed into one; got NormDEU"):
        deu.PackedNormDEU(deu.NormDEU(nn.BatchNorm2d(3, affine=False), deu.DEU(3)))
    with pytest.raises(ValueError, match="meta device have no numbers"):
        deu.for_inference(deu.DEU(3, device="meta"))
    with pytest.raises(ValueError, match="expected 4 features along dim=1"):
        quick.one(torch.randn(4, 5, 3, 3, device=DEVICE))
    with pytest.raises(TypeError, match="real floating-point input"):
        quick.two(torch.ones(4, 4, dtype=torch.int64, device=DEVICE))


@pytest.mark.usefixtures("_ways")
def test_a_residual_of_another_shape() -> None:
    model = trained()
    quick = deu.for_inference(model).one
    x, r = torch.randn(2, 4, 3, 3, device=DEVICE), torch.randn(4, 1, 1, device=DEVICE)
    with torch.no_grad():
        want = model.eval().one(x, r)
        torch.testing.assert_close(quick(x, r), want, rtol=1e-4, atol=1e-5)


def test_numbers_keep_their_digits() -> None:
    quick = deu.for_inference(trained())
    numbers = quick.two.packed.clone()
    file = io.BytesIO()
    torch.save(quick.state_dict(), file)
    file.seek(0)
    other = deu.for_inference(trained())
    other.load_state_dict(torch.load(file))
    for model in (quick.half(), quick.bfloat16(), copy.deepcopy(quick), other):
        assert torch.equal(model.two.packed, numbers)


@pytest.mark.usefixtures("_ways")
@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")  # in PyTorch's own jvp
def test_transforms_of_functions() -> None:
    quick = deu.for_inference(deu.DEU(3, init="waves").to(DEVICE))
    t = torch.randn(5, 3, device=DEVICE)
    with torch.no_grad():
        want = quick(t)
        got = torch.func.vmap(lambda row: quick(row[None])[0])(t)
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)
    _, slope = torch.func.jvp(quick, (t,), (torch.ones_like(t),))
    (grad,) = torch.autograd.grad(quick(t.requires_grad_()).sum(), t, create_graph=True)
    torch.testing.assert_close(slope, grad.detach(), rtol=1e-4, atol=1e-5)
    (again,) = torch.autograd.grad(grad.sum(), t)
    assert again.isfinite().all()


# ---- the operator -----------------------------------------------------------------------------


@pytest.fixture
def _by_operator(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there is no GPU, the operator is put together from PyTorch's own."""
    if not GPU:
        monkeypatch.setattr(_triton_packed, "fits", lambda *args: True)
        monkeypatch.setattr(_triton_packed, "value", _packed_ops.plain)


@pytest.mark.parametrize("normed", [False, True], ids=["", "normed"])
def test_operator_passes_its_checks(normed: bool) -> None:
    x, r, _ = inputs((3, 5, 4, 4))
    numbers = packed(units_of(5, "continuous"), "continuous", 0.01)
    given = (x, r if normed else None, numbers, normed, settings_of("continuous").packed())
    torch.library.opcheck(torch.ops.deu.packed_value.default, given)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # PyTorch's own, in Python 3.12
@pytest.mark.usefixtures("_by_operator")
@pytest.mark.parametrize("wanted", [False, True], ids=["", "gradients"])
def test_compiles_whole_and_once(wanted: bool) -> None:
    model = trained()
    quick = deu.for_inference(model)
    model.eval()
    torch._dynamo.reset()
    counter = torch._dynamo.testing.CompileCounterWithBackend("inductor" if GPU else "aot_eager")
    compiled = torch.compile(quick, fullgraph=True, backend=counter)
    with torch.set_grad_enabled(wanted):
        for _ in range(3):
            x = torch.randn(4, 3, 6, 6, device=DEVICE)
            torch.testing.assert_close(compiled(x), model(x), rtol=1e-4, atol=1e-5)
    assert counter.frame_count == 1
    nodes = [node.target for graph in counter.graphs for node in graph.graph.nodes]
    assert nodes.count(torch.ops.deu.packed_unit.default) == 3


@pytest.mark.usefixtures("_by_operator")
@pytest.mark.parametrize("wanted", [False, True], ids=["", "gradients"])
def test_below_autograd_a_compiled_graph_has_values(wanted: bool) -> None:
    quick = deu.for_inference(trained())
    torch._dynamo.reset()
    backend = torch._dynamo.testing.AotEagerAndRecordGraphs()
    with torch.set_grad_enabled(wanted):
        torch.compile(quick, backend=backend)(torch.randn(4, 3, 6, 6, device=DEVICE))
    nodes = [node.target for node in backend.fw_graphs[0].graph.nodes]
    assert nodes.count(torch.ops.deu.packed_value.default) == (0 if wanted else 3)
    assert torch.ops.deu.packed_unit.default not in nodes


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # PyTorch's own, of its jvp
@pytest.mark.usefixtures("_by_operator")
@pytest.mark.parametrize("backward", [True, False], ids=["grad", "jvp"])
def test_compiled_gradients_of_functions_are_right_or_refused(backward: bool) -> None:
    """The operator has no gradients, which must not go without notice."""
    quick = deu.for_inference(deu.DEU(4, init="waves").to(DEVICE))
    x = torch.randn(2, 4, device=DEVICE)

    def gradient(x: Tensor) -> Tensor:
        if backward:
            return torch.func.grad(lambda x: quick(x).square().sum())(x)
        return torch.func.jvp(quick, (x,), (torch.ones_like(x),))[1]

    want = gradient(x)
    torch._dynamo.reset()
    try:
        got = torch.compile(gradient, backend="aot_eager")(x)
    except Exception:
        return  # as of layers that are not packed
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)


def test_a_compiled_model_is_to_be_compiled_again() -> None:
    unit = deu.DEU(4, init="waves")
    for model in (unit, nn.Sequential(unit)):
        quick = deu.for_inference(torch.compile(model, backend="eager"))
        assert any(type(m) is deu.PackedDEU for m in quick.modules())
        assert not any(hasattr(m, "_orig_mod") for m in quick.modules())
        x = torch.randn(3, 4)
        torch.testing.assert_close(quick(x), model(x), rtol=1e-4, atol=1e-5)


@pytest.mark.filterwarnings("ignore")  # of torch.jit
def test_traces() -> None:
    quick = deu.for_inference(nn.Sequential(deu.NormDEU(nn.BatchNorm1d(4), deu.DEU(4)), deu.DEU(4)))
    x = torch.randn(3, 4)
    traced = torch.jit.trace(quick, x)
    torch.testing.assert_close(traced(2 * x), quick(2 * x), rtol=1e-4, atol=1e-5)


def test_exports() -> None:
    quick = deu.for_inference(trained())
    x = torch.randn(4, 3, 6, 6, device=DEVICE)
    with torch.no_grad():
        program = torch.export.export(quick, (x,))
        torch.testing.assert_close(program.module()(x), quick(x), rtol=1e-4, atol=1e-5)
    x.requires_grad_()
    found = (torch.autograd.grad(f(x).sum(), x)[0] for f in (program.module(), quick))
    torch.testing.assert_close(*found, rtol=1e-4, atol=1e-5)


@pytest.mark.gpu
@pytest.mark.parametrize("last", [False, True], ids=["NCHW", "channels_last"])
def test_the_launcher_launches_the_same(last: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    assert _launcher.ready(), _launcher.problem
    # Which a test that did without when it was loaded has put back to None.
    monkeypatch.setattr(_launcher, "call_packed", _launcher._module.call_packed)  # type: ignore
    x, r, _ = inputs((4, 4, 8, 8), last=last)
    quick = deu.for_inference(trained()).one
    with torch.inference_mode():
        with monkeypatch.context() as patch:
            patch.setattr(_launcher, "call_packed", None)
            want = quick(x, r)
        monkeypatch.setattr(_triton_packed, "value", lambda *args: pytest.fail("by Python"))
        assert torch.equal(quick(x, r), want)


@pytest.mark.gpu
def test_a_cuda_graph_captures_a_call() -> None:
    quick = deu.for_inference(trained())
    x = torch.randn(4, 3, 6, 6, device=DEVICE)

    @torch.no_grad()
    def once() -> list[Tensor]:
        return [quick(x)]

    graph, (y,) = captured(once)
    with torch.no_grad():
        x.normal_()
        graph.replay()
        assert torch.equal(y, quick(x))
