"""Batch norm and a unit in one: by the kernels, as operators, and as a layer.

The truth is PyTorch's own batch norm in float64, and the reference after it.  Where there is no
GPU, Triton's interpreter runs the kernels.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch._dynamo.testing
from torch import Tensor, nn
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional

import deu
import deu.reference
from deu import _launcher, _norm_ops, _triton, _triton_cut, _triton_launch, _triton_normed
from deu._settings import Settings
from deu._triton_normed import BatchNorm

from .conftest import GPU, KERNELS, NAMES
from .test_triton import DEVICE, TOLERANCE, captured, relative

pytest.importorskip("triton", reason="Triton is not installed")
pytestmark = KERNELS

EPS, MOMENTUM = 1e-3, 0.2
SETTINGS = Settings(1, "continuous", 0.01, 100.0, 1.0, 1000.0, float("inf"), True)
OPTIONS = {**SETTINGS._asdict(), "max_grad_norm": None}
UNITS = (
    (0.14, 0.874, 0.05, -0.09, 0.005),  # as units start
    (0.5, 0.4, 1.2, 0.3, -0.2),  # oscillates
    (0.4, 0.9, 0.52, 0.2, 0.1),  # roots that are close
    (0.5, -0.3, 0.8, 0.1, 0.2),  # grows
    (0.5, 1.0, 0.5, 0.2, -0.3),  # a seam
    (0.3, 1.1, -0.4, 0.1, 0.1),
)
LAST = torch.channels_last


@pytest.fixture
def _as_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The kernels take tensors of the CPU too, in Triton's interpreter; Python launches them."""
    monkeypatch.setattr(_launcher, "call", None)
    monkeypatch.setattr(_launcher, "call_norm", None)
    if not GPU:
        monkeypatch.setattr(_triton, "_DEVICES", ("cpu", "cuda"))
    yield
    _triton_launch._plans.clear()


def on_device(x: Any) -> Any:
    return x.to(DEVICE) if isinstance(x, Tensor) else x


def made(n: int) -> tuple[BatchNorm, tuple[Tensor, ...]]:
    """A batch norm and units of each sort, in single precision."""
    norm = BatchNorm(
        torch.rand(n) + 0.5,
        0.3 * torch.randn(n),
        torch.randn(n),
        torch.rand(n) + 0.5,
        torch.tensor(3),
        MOMENTUM,
        EPS,
    )
    units = torch.tensor([UNITS[i % len(UNITS)] for i in range(n)]).T
    return BatchNorm(*map(on_device, norm)), tuple(p.contiguous().to(DEVICE) for p in units)


def inputs(
    shape: tuple[int, ...], dtype: torch.dtype = torch.float32, last: bool = False
) -> tuple[Tensor, Tensor, Tensor]:
    """Inputs whose channels lie about other means, a residual and a gradient."""
    means = 3 * torch.randn(shape[1]).view(1, -1, *[1] * (len(shape) - 2))
    found = (2 * torch.randn(shape) + means, torch.randn(shape), torch.randn(shape))
    x, residual, grad = (
        t.to(DEVICE, dtype, memory_format=LAST if last else torch.contiguous_format) for t in found
    )
    return x, residual, grad


def truth(
    x: Tensor,
    residual: Tensor | None,
    norm: BatchNorm,
    units: tuple[Tensor, ...],
    grad: Tensor,
) -> dict[str, Tensor]:
    """Results and gradients by name, in float64."""
    given = [x, *([] if residual is None else [residual]), norm.weight, norm.bias, *units]
    names = ["x", *([] if residual is None else ["residual"]), "weight", "bias", *NAMES]
    wide = [t.double().requires_grad_() for t in given]
    at = dict(zip(names, wide, strict=True))
    mean, var = (None if s is None else s.double().clone() for s in (norm.mean, norm.var))
    z = functional.batch_norm(at["x"], mean, var, at["weight"], at["bias"], True, MOMENTUM, EPS)
    if residual is not None:
        z = z + at["residual"]
    y = deu.reference.deu(z, *wide[-5:], **OPTIONS)
    found = torch.autograd.grad(y, wide, grad.double())
    results = {"y": y.detach(), **dict(zip(names, found, strict=True))}
    if mean is not None and var is not None:
        results |= {"running mean": mean, "running variance": var}
    return results


def compare(
    x: Tensor,
    residual: Tensor | None,
    norm: BatchNorm,
    units: tuple[Tensor, ...],
    grad: Tensor,
) -> None:
    """Each result and gradient by the kernels has to be near the truth."""
    want = truth(x, residual, norm, units, grad)
    y, saved = _triton_normed.forward(x, residual, norm, units, SETTINGS, False)
    assert saved is not None
    grad_x, grad_r, grads = _triton_normed.backward(grad, saved, x, residual, SETTINGS)
    got = dict(zip(("weight", "bias", *NAMES), grads, strict=True)) | {"y": y, "x": grad_x}
    if grad_r is not None:
        got["residual"] = grad_r
    if norm.mean is not None and norm.var is not None and norm.batches is not None:
        got |= {"running mean": norm.mean, "running variance": norm.var}
        assert norm.batches == 4
    assert got.keys() == want.keys()
    for name, t in got.items():
        assert t.dtype == (x.dtype if name in ("y", "x", "residual") else torch.float32)
        allowed = TOLERANCE[t.dtype if name.startswith("running") else x.dtype]
        error = relative(t, want[name]).max().item()
        assert error <= allowed, f"{name}: off by {error:.2g}, {allowed:.2g} is allowed"
    for t in (y, grad_x):
        assert t.stride() == x.stride()


@pytest.mark.parametrize(
    ("dtype", "last", "residual"),
    [
        (torch.float32, False, False),
        (torch.float32, False, True),
        (torch.float32, True, False),
        (torch.float32, True, True),
        (torch.bfloat16, False, True),
        (torch.bfloat16, True, False),
        (torch.float16, True, True),
    ],
    ids=str,
)
def test_kernels(dtype: torch.dtype, last: bool, residual: bool) -> None:
    x, other, grad = inputs((3, 6, 5, 7), dtype, last)
    norm, units = made(6)
    compare(x, other if residual else None, norm, units, grad)


@pytest.mark.parametrize("shape", [(9, 5), (2, 20), (4, 2, 11), (2, 2, 2, 3, 4), (2, 1, 3, 3)])
def test_shapes(shape: tuple[int, ...]) -> None:
    x, residual, grad = inputs(shape)
    norm, _ = made(shape[1])
    units = tuple(torch.full((shape[1],), p, device=DEVICE) for p in UNITS[0])
    compare(x, residual, norm, units, grad)


def test_tensors_that_lie_in_another_order() -> None:
    x, residual, grad = inputs((4, 3, 4, 4))
    norm, units = made(3)
    residual = residual.contiguous(memory_format=LAST)
    compare(x, residual, norm, units, grad.transpose(2, 3).contiguous().transpose(2, 3))
    some = x[:, :, ::2]
    y, _ = _triton_normed.forward(some, None, made(3)[0], units, SETTINGS, False)
    assert y.is_contiguous()


def test_without_running_statistics() -> None:
    x, _, grad = inputs((4, 2, 4, 4))
    norm, units = made(2)
    compare(x, None, norm._replace(mean=None, var=None, batches=None), units, grad)


@pytest.mark.parametrize("last", [False, True], ids=["NCHW", "channels_last"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_as_large_tensors_are_cut(
    dtype: torch.dtype, last: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_triton_cut, "_LARGE", 0)
    monkeypatch.setattr(_triton_cut, "_WORTH_A_PROGRAM", 64)
    monkeypatch.setattr(_triton_launch, "_plans", {})
    x, residual, grad = inputs((4, 3, 16, 16), dtype, last)
    norm, units = made(3)
    compare(x, residual, norm, units, grad)


@pytest.mark.parametrize("last", [False, True], ids=["NCHW", "channels_last"])
def test_inputs_far_from_zero(last: bool) -> None:
    # Squares alone would leave nothing of the variance.
    x, _, grad = inputs((8, 2, 8, 8), last=last)
    norm, units = made(2)
    compare(x + 5000, None, norm, units, grad)


@pytest.mark.parametrize("last", [False, True], ids=["NCHW", "channels_last"])
@pytest.mark.parametrize("residual", [False, True], ids=["", "residual"])
def test_by_running_statistics(residual: bool, last: bool) -> None:
    x, other, _ = inputs((3, 6, 5, 7), last=last)
    norm, units = made(6)
    r = other if residual else None
    y, saved = _triton_normed.forward(x, r, norm, units, SETTINGS, True)
    assert saved is None
    assert norm.batches == 3
    wide = [None if t is None else t.double() for t in norm[:4]]
    z = functional.batch_norm(x.double(), wide[2], wide[3], wide[0], wide[1], eps=EPS)
    want = deu.reference.deu(
        z if r is None else z + r.double(), *(p.double() for p in units), **OPTIONS
    )
    assert relative(y, want).max() <= TOLERANCE[torch.float32]


def test_limits_the_gradient_of_each_neuron() -> None:
    x, _, grad = inputs((4, 2, 4, 4))
    norm, units = made(2)
    found = []
    for limit in (float("inf"), 0.1):
        settings = SETTINGS._replace(max_grad_norm=limit)
        _, saved = _triton_normed.forward(x, None, norm, units, settings, False)
        assert saved is not None
        found.append(_triton_normed.backward(100 * grad, saved, x, None, settings)[2])
    free, cut = found
    assert torch.equal(free[:2], cut[:2])
    torch.testing.assert_close(cut[2:], free[2:] * (0.1 / free[2:].norm(dim=0)))


# ---- operators --------------------------------------------------------------------------------


@pytest.mark.parametrize("residual", [False, True], ids=["", "residual"])
def test_operators_pass_their_checks(residual: bool) -> None:
    x, other, grad = inputs((3, 5, 4, 4))
    r, settings = other if residual else None, SETTINGS.packed()
    norm, units = made(5)
    given = (x, r, *norm, *units, settings)
    torch.library.opcheck(torch.ops.deu.norm_forward.default, given)
    torch.library.opcheck(torch.ops.deu.norm_value.default, given)
    _, saved = torch.ops.deu.norm_forward(*given)
    torch.library.opcheck(torch.ops.deu.norm_backward.default, (grad, saved, x, r, settings))


@pytest.mark.parametrize("residual", [False, True], ids=["", "residual"])
def test_plain_operators_are_right(residual: bool) -> None:
    x, other, grad = inputs((3, 5, 4, 4))
    r = other if residual else None
    norm, units = made(5)
    want = truth(x, r, norm, units, grad)
    y, saved = _norm_ops._plain_forward(x, r, norm, units, SETTINGS)
    grad_x, grad_r, grads = _norm_ops._plain_backward(grad, saved, x, r, SETTINGS)
    got = {"y": y, "x": grad_x, **dict(zip(("weight", "bias", *NAMES), grads, strict=True))}
    if grad_r is not None:
        got["residual"] = grad_r
    assert norm.mean is not None
    assert norm.var is not None
    got |= {"running mean": norm.mean, "running variance": norm.var}
    assert got.keys() == want.keys()
    for name, t in got.items():
        assert relative(t, want[name]).max() <= TOLERANCE[torch.float32], name


# ---- the layer --------------------------------------------------------------------------------


def layer(n: int = 3, **options: Any) -> deu.NormDEU:
    found = deu.NormDEU(nn.BatchNorm2d(n, momentum=MOMENTUM, eps=EPS), deu.DEU(n, **options))
    with torch.no_grad():
        for p in found.parameters():
            p.add_(0.05 * torch.randn_like(p))
    return found.to(DEVICE)


def apart(module: deu.NormDEU, x: Tensor, residual: Tensor | None) -> Tensor:
    z = module.norm(x)
    return module.unit(z if residual is None else z + residual)


def step(call: Any, module: nn.Module, x: Tensor, residual: Tensor | None) -> dict[str, Tensor]:
    """Output, gradients and buffers after a step."""
    x = x.detach().requires_grad_()
    r = None if residual is None else residual.detach().requires_grad_()
    y = call(x, r)
    module.zero_grad()
    (y * torch.linspace(-1, 1, y.numel(), device=y.device).view(y.shape)).sum().backward()
    found = {"y": y.detach(), "x": x.grad, "residual": None if r is None else r.grad}
    found |= {name: p.grad for name, p in module.named_parameters()}
    found |= {name: b.clone() for name, b in module.named_buffers()}
    return {name: t.clone() for name, t in found.items() if t is not None}


def same(got: dict[str, Tensor], want: dict[str, Tensor]) -> None:
    assert got.keys() == want.keys()
    for name, t in got.items():
        torch.testing.assert_close(
            t, want[name], rtol=2e-4, atol=2e-5, msg=lambda said, name=name: f"{name}: {said}"
        )


@pytest.mark.usefixtures("_as_on_a_gpu")
@pytest.mark.parametrize("residual", [False, True], ids=["", "residual"])
@pytest.mark.parametrize("mode", ["train", "eval", "eval, no_grad", "train, no_grad"])
def test_one_layer_is_two(mode: str, residual: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    launched = []
    forward = _triton_normed.forward
    monkeypatch.setattr(
        _triton_normed, "forward", lambda *args: (launched.append(args), forward(*args))[1]
    )
    x, other, _ = inputs((4, 3, 5, 3))
    r = other if residual else None
    one = layer().train(mode.startswith("train"))
    two = copy.deepcopy(one)
    if mode.endswith("no_grad"):
        with torch.no_grad():
            torch.testing.assert_close(one(x, r), apart(two, x, r), rtol=1e-4, atol=1e-5)
        assert one.norm.num_batches_tracked == int(mode.startswith("train"))
    else:
        same(
            step(one, one, x, r), step(lambda x, r: apart(two, x, r), two, x, r)
        )  # fmt: skip
    assert len(launched) == int(mode != "eval")  # frozen, and gradients are wanted


@pytest.mark.usefixtures("_as_on_a_gpu")
@pytest.mark.parametrize(
    "change",
    [
        lambda m: setattr(m.norm, "momentum", None),
        lambda m: setattr(m.norm, "num_batches_tracked", None),
        lambda m: m.norm.register_forward_hook(lambda *args: None),
        lambda m: m.unit.register_forward_pre_hook(lambda *args: None),
        lambda m: setattr(m.unit, "solution", "paper"),
        lambda m: setattr(m, "norm", nn.BatchNorm2d(3, affine=False)),
        lambda m: setattr(m, "unit", deu.DEU()),
        lambda m: m.double(),
    ],
    ids=["momentum", "count", "hook", "pre-hook", "paper", "affine", "shared", "double"],
)
def test_where_they_are_two(change: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_triton_normed, "forward", lambda *args: pytest.fail("as one"))
    module = layer()
    change(module)
    module.to(DEVICE)
    x = torch.randn(4, 3, 3, 3, device=DEVICE, dtype=module.norm.running_mean.dtype)
    two = copy.deepcopy(module)
    torch.testing.assert_close(module(x), apart(two, x, None))


@pytest.mark.usefixtures("_as_on_a_gpu")
def test_errors_are_those_of_the_two() -> None:
    module = layer()
    with pytest.raises(ValueError, match="4D"):
        module(torch.randn(4, 3, device=DEVICE))
    with pytest.raises(RuntimeError, match="3"):
        module(torch.randn(4, 5, 3, 3, device=DEVICE))
    with pytest.raises(ValueError, match="more than 1 value"):
        module(torch.randn(1, 3, 1, 1, device=DEVICE))
    with pytest.raises(TypeError, match=r"norm must be a batch norm.*LayerNorm"):
        deu.NormDEU(nn.LayerNorm(6), deu.DEU(6))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"unit must be a deu\.DEU; got ReLU"):
        deu.NormDEU(nn.BatchNorm2d(6), nn.ReLU())  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="got 6 and 5"):
        deu.NormDEU(nn.BatchNorm2d(6), deu.DEU(5))


def test_lazy_layers() -> None:
    module = deu.NormDEU(nn.LazyBatchNorm2d(), deu.LazyDEU())
    assert module(torch.randn(3, 5, 4, 4)).shape == (3, 5, 4, 4)
    assert module.unit.num_features == 5


@pytest.mark.usefixtures("_as_on_a_gpu")
def test_gradients_of_gradients() -> None:
    one = layer(3)
    two = copy.deepcopy(one)
    found = []
    for module, call in ((one, one), (two, lambda x: apart(two, x, None))):
        x = torch.linspace(-2, 2, 24, device=DEVICE).view(2, 3, 2, 2).requires_grad_()
        (grad,) = torch.autograd.grad(call(x).square().sum(), x, create_graph=True)
        found.append(torch.autograd.grad(grad.square().sum(), [x, *module.parameters()]))
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-4)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("residual", [False, True], ids=["", "residual"])
def test_compiles_whole_and_once(residual: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not GPU:  # the operators, put together from PyTorch's own
        monkeypatch.setattr(_norm_ops, "fits", lambda *args: True)
        monkeypatch.setattr(_norm_ops, "_forward", _norm_ops._plain_forward)
        monkeypatch.setattr(_norm_ops, "_backward", _norm_ops._plain_backward)
    x, other, _ = inputs((4, 3, 5, 3))
    r = other if residual else None
    one = layer()
    two = copy.deepcopy(one)
    torch._dynamo.reset()
    counter = torch._dynamo.testing.CompileCounterWithBackend("inductor" if GPU else "aot_eager")
    compiled = torch.compile(one, fullgraph=True, backend=counter)
    for _ in range(3):
        same(step(compiled, one, x, r), step(lambda x, r: apart(two, x, r), two, x, r))
    assert counter.frame_count == 1
    assert one.norm.num_batches_tracked == 3
    nodes = {node.target for graph in counter.graphs for node in graph.graph.nodes}
    assert torch.ops.deu.norm_unit.default in nodes


def test_traced_gradients_are_an_operator_in_any_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """As of a GPU, whose gradients are taken in a thread that does not know of the compiler."""
    monkeypatch.setattr(_norm_ops, "fits", lambda *args: True)
    one = layer()
    x, r, grad = inputs((4, 3, 5, 3))

    def gradient(x: Tensor) -> Tensor:
        assert not torch.compiler.is_compiling()
        return torch.autograd.grad(one(x, r), x, grad)[0]

    traced = make_fx(gradient, tracing_mode="fake", _allow_non_fake_inputs=True)(x.requires_grad_())
    assert torch.ops.deu.norm_backward.default in {node.target for node in traced.graph.nodes}


@pytest.mark.gpu
@pytest.mark.parametrize("last", [False, True], ids=["NCHW", "channels_last"])
def test_the_launcher_launches_the_same(last: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    assert _launcher.ready(), _launcher.problem
    # Which a test that did without when it was loaded has put back to None.
    monkeypatch.setattr(_launcher, "call_norm", _launcher._module.call_norm)  # type: ignore
    x, r, _ = inputs((4, 3, 8, 8), last=last)
    one = layer()
    other = copy.deepcopy(one)
    with monkeypatch.context() as patch:
        patch.setattr(_launcher, "call_norm", None)
        want = step(one, one, x, r)
    monkeypatch.setattr(_triton_normed, "forward", lambda *args: pytest.fail("by Python"))
    monkeypatch.setattr(_triton_normed, "backward", lambda *args: pytest.fail("by Python"))
    got = step(other, other, x, r)
    for name, t in want.items():
        assert torch.equal(got[name], t), name


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore:The AccumulateGrad node's stream")
def test_a_cuda_graph_captures_a_step() -> None:
    one = layer()
    x, r, grad = inputs((4, 3, 8, 8))
    x.requires_grad_()
    wanted = [x, *one.parameters()]

    def once() -> list[Tensor]:
        y = one(x, r)
        return [y, *torch.autograd.grad(y, wanted, grad)]

    graph, kept = captured(once)
    batches = int(one.norm.num_batches_tracked)
    with torch.no_grad():
        x.normal_()
    graph.replay()
    assert one.norm.num_batches_tracked == batches + 1
    for a, b in zip(kept, once(), strict=True):
        assert torch.equal(a, b)
