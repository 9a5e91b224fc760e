"""PyTorch's tools: operators, compile, export, autocast, higher derivatives, torch.func."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._dynamo.testing import CompileCounterWithBackend
from torch._inductor.utils import fresh_cache
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd import forward_ad

import deu
from deu._settings import Settings, unpacked

from .conftest import LIMITS, NAMES, every_subspace, gradients

SOLUTIONS = ["paper", "continuous"]
MODES = [("paper", True), ("paper", False), ("continuous", False)]
modes = pytest.mark.parametrize(("solution", "training"), MODES)
# Forward-mode differentiation and tracing script a few functions inside of PyTorch itself.
torchs_own_warnings = pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")


def settings(solution: str, training: bool, dim: int = 1) -> Settings:
    return Settings(dim, solution, 0.01, 100.0, *LIMITS.values(), training)


@pytest.mark.parametrize(
    "given",
    [
        Settings(1, "continuous", 0.01, 100.0, 1.0, 1000.0, float("inf"), True),
        Settings(-1, "paper", 1e-300, 1 / 3, 3, 1000, 0.1, False),
    ],
)
def test_settings_pass_through_a_text(given: Settings) -> None:
    assert unpacked(given.packed()) == given
    as_floats = given._replace(max_exponent=float(given.max_exponent), bound=float(given.bound))
    assert as_floats.packed() == given.packed()  # as they are the same key


LAYOUTS: dict[str, Callable[[], tuple[Tensor, int]]] = {
    "minibatch": lambda: (torch.randn(5, 4), 1),
    "image": lambda: (torch.randn(2, 4, 3, 3), 1),
    "channels last": lambda: (torch.randn(2, 4, 3, 3).to(memory_format=torch.channels_last), 1),
    "sequence": lambda: (torch.randn(2, 3, 4), -1),
    "transposed": lambda: (torch.randn(4, 5).t(), 1),
    "steps": lambda: (torch.randn(6, 8)[::2, ::2], 1),
    "empty": lambda: (torch.randn(0, 4), 1),
    "float64": lambda: (torch.randn(5, 4, dtype=torch.float64), 1),
    "bfloat16": lambda: (torch.randn(5, 4).bfloat16(), 1),
}


@modes
@pytest.mark.parametrize("layout", LAYOUTS)
def test_opcheck_unit(layout: str, solution: str, training: bool) -> None:
    t, dim = LAYOUTS[layout]()
    inputs = [x.detach().requires_grad_() for x in (t, *every_subspace(4, torch.float32))]
    torch.library.opcheck(torch.ops.deu.unit.default, (*inputs, *settings(solution, training, dim)))


@modes
@pytest.mark.parametrize("layout", LAYOUTS)
def test_opcheck_forward(layout: str, solution: str, training: bool) -> None:
    t, dim = LAYOUTS[layout]()
    call = (t, *every_subspace(4, torch.float32), settings(solution, training, dim).packed())
    torch.library.opcheck(torch.ops.deu.forward.default, call)
    torch.library.opcheck(torch.ops.deu.value.default, call)


@modes
@pytest.mark.parametrize("layout", LAYOUTS)
def test_opcheck_backward(layout: str, solution: str, training: bool) -> None:
    t, dim = LAYOUTS[layout]()
    units = every_subspace(4, torch.float32)
    options = settings(solution, training, dim).packed()
    centre = torch.ops.deu.forward(t, *units, options)[1]
    torch.library.opcheck(
        torch.ops.deu.backward.default, (torch.randn_like(t), centre, t, *units, options)
    )


@modes
def test_the_operator_is_the_function(solution: str, training: bool) -> None:
    t, units = torch.randn(9, 13), every_subspace(13, torch.float32)
    options = settings(solution, training)
    want = gradients(deu.functional.deu, t, units, solution=solution, training=training, **LIMITS)
    got = gradients(lambda *x: torch.ops.deu.unit(*x, *options), t, units)
    for name in want:
        assert torch.equal(got[name], want[name]), name


def model(solution: str, max_grad_norm: float | None = 0.1) -> nn.Module:
    layer = deu.DEU(6, solution=solution, init="spread", max_grad_norm=max_grad_norm)
    return nn.Sequential(nn.Linear(3, 6), layer, nn.Linear(6, 1))


def step(net: Callable[[Tensor], Tensor], parameters: Any, x: Tensor) -> list[Tensor]:
    parameters = list(parameters)
    y = net(x)
    return [y.detach(), *torch.autograd.grad(y.square().mean(), parameters)]


@pytest.fixture
def _fresh_dynamo() -> Any:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.mark.usefixtures("_fresh_dynamo")
@pytest.mark.parametrize("init", ["gelu", "spread", "relu"])
@modes
def test_compile_equals_eager(solution: str, training: bool, init: str) -> None:
    layer = deu.DEU(6, solution=solution, init=init).train(training)
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    for t in (torch.randn(5, 6), torch.randn(2, 6, 3, 3)):
        got, want = (step(f, layer.parameters(), t) for f in (compiled, layer))
        for x, y in zip(got, want, strict=True):
            torch.testing.assert_close(x, y, rtol=0, atol=0)


@pytest.mark.usefixtures("_fresh_dynamo")
@pytest.mark.parametrize("solution", SOLUTIONS)
def test_no_step_compiles_again(solution: str) -> None:
    counter = CompileCounterWithBackend("aot_eager")
    net = model(solution)
    compiled = torch.compile(net, fullgraph=True, backend=counter)
    optimiser = torch.optim.SGD(net.parameters(), lr=0.01)
    for _ in range(5):
        optimiser.zero_grad()
        compiled(torch.randn(7, 3)).square().mean().backward()
        optimiser.step()
    assert counter.frame_count == 1
    graph = counter.graphs[0]
    assert any("deu" in str(node.target) for node in graph.graph.nodes)


@pytest.mark.usefixtures("_fresh_dynamo")
@modes
def test_new_shapes_do_not_compile_again(solution: str, training: bool) -> None:
    counter = CompileCounterWithBackend("aot_eager")
    layer = deu.DEU(6, solution=solution, init="spread").train(training)
    compiled = torch.compile(layer, fullgraph=True, backend=counter, dynamic=True)
    counts = []
    for n, size in [(5, 4), (9, 3), (64, 7)]:
        t = torch.randn(n, 6, size)
        got, want = (step(f, layer.parameters(), t) for f in (compiled, layer))
        for x, y in zip(got, want, strict=True):
            torch.testing.assert_close(x, y, rtol=0, atol=0)
        counts.append(counter.frame_count)
    assert counts[0] == counts[-1], counts


@pytest.mark.usefixtures("_fresh_dynamo")
def test_inductor() -> None:
    net = nn.Sequential(model("paper"), deu.DEU(init="relu", solution="continuous"))
    compiled = torch.compile(net, fullgraph=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the compiler's own tools
        got = step(compiled, net.parameters(), x := torch.randn(8, 3))
    for a, b in zip(got, step(net, net.parameters(), x), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)


@pytest.mark.usefixtures("_fresh_dynamo")
def test_inductor_keeps_its_layout(monkeypatch: pytest.MonkeyPatch) -> None:
    """It keeps convolutions in channels_last: units between them take that as it is."""
    net = nn.Sequential(nn.Conv2d(3, 32, 3), deu.DEU(32), nn.Conv2d(32, 32, 3))
    x = torch.randn(4, 3, 16, 16)
    seen = []
    forward = deu._ops._forward

    def look(t: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
        seen.append(t.is_contiguous(memory_format=torch.channels_last))
        return forward(t, *rest)

    monkeypatch.setattr(deu._ops, "_forward", look)
    with fresh_cache(), warnings.catch_warnings(), torch.inference_mode():
        warnings.simplefilter("ignore")
        got = torch.compile(net, fullgraph=True)(x)
        torch.testing.assert_close(got, net(x))
    assert seen == [True]


@pytest.mark.usefixtures("_fresh_dynamo")
@pytest.mark.parametrize("solution", SOLUTIONS)
def test_compile_without_gradients_and_channels_last(solution: str) -> None:
    layer = deu.DEU(6, solution=solution, init="spread").eval()
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    t = torch.randn(2, 6, 4, 4).to(memory_format=torch.channels_last)
    with torch.no_grad():
        got, want = compiled(t), layer(t)
    assert torch.equal(got, want)
    assert got.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("solution", SOLUTIONS)
def test_export(solution: str, dynamic: bool) -> None:
    net = model(solution).eval()
    shapes = ({0: torch.export.Dim("batch", min=2)},) if dynamic else None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the exporter's own tools
        program = torch.export.export(net, (torch.randn(8, 3),), dynamic_shapes=shapes)
    targets = [str(n.target) for n in program.graph.nodes if n.op == "call_function"]
    assert sum(target.startswith("deu.unit") for target in targets) == 1, targets
    x = torch.randn(21 if dynamic else 8, 3)
    torch.testing.assert_close(program.module()(x), net(x), rtol=0, atol=0)


@modes
def test_fake_tensors(solution: str, training: bool) -> None:
    with FakeTensorMode() as mode:
        layer = deu.DEU(6, solution=solution, init="random").train(training)
        t = torch.randn(2, 6, 4, 4).to(memory_format=torch.channels_last).requires_grad_()
        y = layer(t)
        y.sum().backward()
        assert y.shape == t.shape
        assert y.is_contiguous(memory_format=torch.channels_last)
        assert t.grad.shape == t.shape
        assert layer.a.grad.shape == (6,)
    real = torch.randn(3, 6)
    assert mode.from_tensor(real).shape == (3, 6)


@modes
def test_autocast_keeps_the_input_type(solution: str, training: bool) -> None:
    layer = deu.DEU(6, solution=solution, init="random").train(training)
    t = torch.randn(5, 6)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert layer(t.bfloat16()).dtype == torch.bfloat16
        assert layer(t).dtype == torch.float32
    assert torch.equal(layer(t.bfloat16()), layer(t.bfloat16()))


@pytest.mark.parametrize("solution", SOLUTIONS)
def test_autocast_trains(solution: str) -> None:
    net = model(solution)
    x = torch.randn(64, 3)
    target = x[:, :1].sin()
    optimiser = torch.optim.Adam(net.parameters(), lr=0.02)
    losses = []
    for _ in range(60):
        optimiser.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = net(x)
        assert y.dtype == torch.bfloat16
        loss = (y.float() - target).square().mean()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert {p.grad.dtype for p in net.parameters()} == {torch.float32}
    assert losses[-1] < 0.5 * losses[0]


def second_order(function: Any, t: Tensor, units: list[Tensor], **options: Any) -> list[Tensor]:
    """Gradients of Σ(dy/dt)² + Σ(dy/da)², which need y's second derivatives."""
    inputs = [x.detach().clone().requires_grad_() for x in (t, *units)]
    y = function(*inputs, **options)
    dt, da = torch.autograd.grad(y.sum(), inputs[:2], create_graph=True)
    loss = dt.square().sum() + da.square().sum()
    return list(torch.autograd.grad(loss, inputs, materialize_grads=True))


@modes
@pytest.mark.parametrize("max_grad_norm", [0.1, None])
def test_second_derivatives(solution: str, training: bool, max_grad_norm: float | None) -> None:
    t, units = torch.randn(9, 13, dtype=torch.float64), every_subspace(13)
    options = {"solution": solution, "training": training, "max_grad_norm": max_grad_norm}
    got = second_order(deu.functional.deu, t, units, **options)
    want = second_order(deu.reference.deu, t, units, **options)
    for name, x, y in zip(["t", *NAMES], got, want, strict=True):
        assert x.isfinite().all(), name
        torch.testing.assert_close(x, y, rtol=1e-9, atol=1e-9, msg=name)


def test_second_derivatives_through_the_operator() -> None:
    t, units = torch.randn(9, 13, dtype=torch.float64), every_subspace(13)
    options = settings("continuous", False)
    got = second_order(lambda *x: torch.ops.deu.unit(*x, *options), t, units)
    want = second_order(deu.reference.deu, t, units, solution="continuous", **LIMITS)
    for x, y in zip(got, want, strict=True):
        torch.testing.assert_close(x, y, rtol=1e-9, atol=1e-9)


@modes
@pytest.mark.parametrize("max_grad_norm", [0.1, None])
def test_a_loss_of_second_derivatives(
    solution: str, training: bool, max_grad_norm: float | None
) -> None:
    """u'' + u as a physics-informed network would have it: a whole network against the reference.

    With a limit, each of the loss's three ways through the layer (by u, u' and u'') is limited.
    """
    net = model(solution, max_grad_norm).double().train(training)

    def residual(layer: Callable[[Tensor], Tensor]) -> list[Tensor]:
        x = torch.linspace(-1, 1, 33, dtype=torch.float64).reshape(11, 3).requires_grad_()
        u = net[2](layer(net[0](x)))
        (du,) = torch.autograd.grad(u.sum(), x, create_graph=True)
        (ddu,) = torch.autograd.grad(du.sum(), x, create_graph=True)
        loss = (ddu.sum(1, keepdim=True) + u).square().mean()
        return [loss, *torch.autograd.grad(loss, list(net.parameters()))]

    units = net[1].coefficients()
    options = {"solution": solution, "training": training, "max_grad_norm": max_grad_norm}
    got = residual(net[1])
    want = residual(lambda t: deu.reference.deu(t, *units, **options))
    names = ["loss", *(name for name, _ in net.named_parameters())]
    limited = []
    for name, x, y in zip(names, got, want, strict=True):
        assert x.isfinite().all()
        if max_grad_norm is not None and name.startswith("1."):
            limited.append(x)
        else:
            torch.testing.assert_close(x, y, rtol=1e-9, atol=1e-10)
    if max_grad_norm is not None:
        assert (torch.stack(limited).norm(dim=0) <= 3 * max_grad_norm * 1.000001).all()


@pytest.mark.parametrize("n", [1, 7])
def test_gradcheck_of_a_continuous_layer(n: int) -> None:
    layer = deu.DEU(
        n, solution="continuous", init="spread", dtype=torch.float64, max_grad_norm=None
    )
    t = torch.randn(4, n, dtype=torch.float64, requires_grad=True)

    def call(t: Tensor, *units: Tensor) -> Tensor:
        return torch.func.functional_call(layer, dict(zip(NAMES, units, strict=True)), (t,))

    inputs = (t, *layer.parameters())
    assert torch.autograd.gradcheck(call, inputs)
    assert torch.autograd.gradgradcheck(call, inputs)


@torchs_own_warnings
@modes
def test_functional_transforms(solution: str, training: bool) -> None:
    """grad, vmap, jacrev, jvp and functional_call agree with ordinary autograd."""
    layer = deu.DEU(13, solution=solution, dtype=torch.float64, max_grad_norm=None)
    layer.train(training)
    units = dict(zip(NAMES, every_subspace(13), strict=True))
    t = torch.randn(5, 13, dtype=torch.float64)

    def call(units: dict[str, Tensor], t: Tensor) -> Tensor:
        return torch.func.functional_call(layer, units, (t,))

    options = {"solution": solution, "training": training, "max_grad_norm": None}
    want = gradients(deu.reference.deu, t, list(units.values()), **options)
    found = torch.func.grad(lambda u, t: call(u, t).sum(), argnums=(0, 1))(units, t)
    for name in NAMES:
        torch.testing.assert_close(found[0][name], want[name], msg=name)
    torch.testing.assert_close(found[1], want["t"])

    jacobian = torch.func.jacrev(lambda t: call(units, t))(t)
    assert jacobian.shape == (5, 13, 5, 13)
    torch.testing.assert_close(jacobian.sum((0, 1)), want["t"])

    y, slope = torch.func.jvp(lambda t: call(units, t), (t,), (torch.ones_like(t),))
    torch.testing.assert_close(y, want["y"])
    torch.testing.assert_close(slope, want["t"])

    batches = torch.randn(3, 5, 13, dtype=torch.float64)
    many = torch.func.vmap(lambda t: call(units, t))(batches)
    torch.testing.assert_close(many, torch.stack([call(units, t) for t in batches]))

    ensemble = {name: torch.stack([p, p + 0.1, p - 0.2]) for name, p in units.items()}
    together = torch.func.vmap(call, in_dims=(0, None))(ensemble, t)
    for i in range(3):
        own = {name: p[i] for name, p in ensemble.items()}
        torch.testing.assert_close(together[i], call(own, t))


@torchs_own_warnings
@modes
def test_gradients_per_sample(solution: str, training: bool) -> None:
    layer = deu.DEU(6, solution=solution, init="spread", dtype=torch.float64).train(training)
    units = {name: p.detach() for name, p in layer.named_parameters()}
    samples = torch.randn(4, 6, dtype=torch.float64)

    def loss(units: dict[str, Tensor], sample: Tensor) -> Tensor:
        return torch.func.functional_call(layer, units, (sample[None],)).square().sum()

    found = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0))(units, samples)
    for i, sample in enumerate(samples):
        layer.zero_grad()
        layer(sample[None]).square().sum().backward()
        for name, p in layer.named_parameters():
            torch.testing.assert_close(found[name][i], p.grad, msg=name)


@torchs_own_warnings
@pytest.mark.parametrize("solution", SOLUTIONS)
def test_hessian(solution: str) -> None:
    units = [p[7:8] for p in every_subspace(8)]
    t = torch.tensor([0.3, -0.7, 1.1], dtype=torch.float64)

    def total(t: Tensor) -> Tensor:
        return deu.functional.deu(t, *units, solution=solution).sum()

    hessian = torch.func.hessian(total)(t)
    rows = torch.autograd.functional.hessian(total, t)
    torch.testing.assert_close(hessian, rows)


@torchs_own_warnings
@modes
@pytest.mark.parametrize("max_grad_norm", [0.1, None])
def test_forward_mode(solution: str, training: bool, max_grad_norm: float | None) -> None:
    t, units = torch.randn(5, 13, dtype=torch.float64), every_subspace(13)
    options = {"solution": solution, "training": training, "max_grad_norm": max_grad_norm}
    want = gradients(deu.reference.deu, t, units, **options)
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(t, torch.ones_like(t))
        y, slope = forward_ad.unpack_dual(deu.functional.deu(dual, *units, **options))
    torch.testing.assert_close(y, want["y"])
    torch.testing.assert_close(slope, want["t"])


@pytest.mark.parametrize("use_reentrant", [False, True])
@modes
def test_checkpoint(solution: str, training: bool, use_reentrant: bool) -> None:
    layer = deu.DEU(6, solution=solution, init="relu").train(training)
    t = torch.randn(5, 6, requires_grad=True)
    found = []
    for call in (
        layer,
        lambda t: torch.utils.checkpoint.checkpoint(layer, t, use_reentrant=use_reentrant),
    ):
        layer.zero_grad()
        t.grad = None
        y = call(t)
        y.square().sum().backward()
        found.append([y.detach(), t.grad.clone(), *(p.grad.clone() for p in layer.parameters())])
    for x, y in zip(*found, strict=True):
        assert torch.equal(x, y)


@torchs_own_warnings
@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")
@pytest.mark.parametrize("solution", SOLUTIONS)
def test_trace(solution: str) -> None:
    layer = deu.DEU(6, solution=solution, init="spread").eval()
    traced = torch.jit.trace(layer, torch.randn(5, 6))
    t = torch.randn(9, 6)
    torch.testing.assert_close(traced(t), layer(t), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("solution", SOLUTIONS)
def test_a_tensor_subclass_passes_through(solution: str) -> None:
    class Marked(Tensor):
        pass

    layer, t = deu.DEU(6, solution=solution, init="random"), torch.randn(5, 6)
    y = layer(t.as_subclass(Marked))
    assert torch.equal(y.as_subclass(Tensor), layer(t))


@pytest.mark.parametrize("solution", SOLUTIONS)
def test_hooks_and_weights_shared_between_layers(solution: str) -> None:
    first, second = (deu.DEU(6, solution=solution, init="spread") for _ in range(2))
    for name in NAMES:
        setattr(second, name, getattr(first, name))
    seen = []
    handle = first.register_full_backward_hook(lambda *_: seen.append(1))
    t = torch.randn(5, 6, requires_grad=True)
    second(first(t)).sum().backward()
    handle.remove()
    assert seen == [1]
    own = copy.deepcopy(first)
    assert own.a.grad is None or own.a.grad is not first.a.grad
    assert first.a.grad is second.a.grad


@pytest.mark.parametrize("solution", SOLUTIONS)
def test_backward_twice_with_a_kept_graph(solution: str) -> None:
    layer, t = deu.DEU(6, solution=solution, init="relu"), torch.randn(5, 6)
    y = layer(t).sum()
    y.backward(retain_graph=True)
    once = layer.b.grad.clone()
    y.backward()
    torch.testing.assert_close(layer.b.grad, 2 * once)


@pytest.mark.parametrize("solution", SOLUTIONS)
def test_changing_the_input_before_backward_is_an_error(solution: str) -> None:
    layer, t = deu.DEU(6, solution=solution, init="random"), torch.randn(5, 6)
    y = layer(t)
    t += 1
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


@modes
def test_batched_gradients(solution: str, training: bool) -> None:
    t, units = torch.randn(3, 4), every_subspace(4, torch.float32)
    options = {"solution": solution, "training": training, **LIMITS}
    inputs = [x.requires_grad_() for x in (t, *units)]
    several = torch.randn(2, 3, 4)

    def back(grad: Tensor, batched: bool) -> tuple[Tensor, ...]:
        y = deu.functional.deu(*inputs, **options)
        return torch.autograd.grad(y, inputs, grad, is_grads_batched=batched)

    got = back(several, True)
    for i, grad in enumerate(several):
        for x, y in zip(got, back(grad, False), strict=True):
            torch.testing.assert_close(x[i], y, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("which", range(7), ids=["grad", "t", *NAMES])
def test_numbers_whose_memory_holds_the_negative(which: int) -> None:
    plain = [torch.randn(3, 4), torch.randn(3, 4), *every_subspace(4, torch.float32)]
    lazy = [torch._neg_view(-x) if i == which else x for i, x in enumerate(plain)]
    assert lazy[which].is_neg()

    def back(grad: Tensor, *inputs: Tensor) -> list[Tensor]:
        inputs = tuple(x.detach().requires_grad_() for x in inputs)
        y = deu.functional.deu(*inputs, **LIMITS)
        return [y, *torch.autograd.grad(y, inputs, grad)]

    for x, y in zip(back(*lazy), back(*plain), strict=True):
        assert torch.equal(x, y)
