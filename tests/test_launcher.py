"""The launcher, which calls the GPU kernels without Python: plans, parameters, autograd.

CUDA's driver is played by Triton's interpreter: it is handed what the launcher hands the driver,
addresses and numbers.
"""

from __future__ import annotations

import ctypes
import gc
import os
import shutil
import time
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

import deu
import deu.functional
import deu.reference
from deu import (
    _launcher,
    _norm_ops,
    _packed_ops,
    _triton,
    _triton_launch,
    _triton_normed,
    _triton_packed,
)
from deu._packed import packed
from deu._settings import Settings
from deu._triton_normed import BatchNorm

from .conftest import GPU, LIMITS, NAMES, every_subspace, gradients
from .interpreter import prepare

pytest.importorskip("triton", reason="Triton is not installed")
pytestmark = [
    pytest.mark.xdist_group("launcher"),  # one process builds it
    pytest.mark.skipif(shutil.which("c++") is None, reason="there is no C++ compiler"),
    pytest.mark.skipif(os.environ.get("TRITON_INTERPRET") != "1" or GPU, reason="no interpreter"),
]

UNITS = 5
_LAUNCH = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p), ctypes.c_void_p
)
_STREAM = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int32, ctypes.POINTER(ctypes.c_void_p))


class Config(ctypes.Structure):
    """CUDA's CUlaunchConfig."""

    _fields_ = (
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(ctypes.c_int)),
        ("attribute_count", ctypes.c_uint),
    )


class Driver:
    """Runs in Triton's interpreter what CUDA's driver would run on a GPU."""

    def __init__(self) -> None:
        self.known: list[tuple[_triton_launch.Launch, list[str]]] = []
        self.launched: list[str] = []
        self.errors: list[BaseException] = []
        self.answer = 0
        self.ready = False  # knows what most tests need
        self.elements = 0  # of the big tensors
        self.type = torch.float32
        self.launch = _LAUNCH(self._launch)
        self.stream = _STREAM(self._stream)

    def describe(self, launch: _triton_launch.Launch) -> _launcher.Kernel:
        kinds = [self.kind_of(value) for value in launch.fixed]
        self.known.append((launch, kinds))
        packed = (_launcher.pack(k, v) for k, v in zip(kinds, launch.fixed, strict=True))
        fixed = b"".join(x for x in packed if x is not None)
        overlap = launch.options.get("launch_pdl", False)
        threads = 32 * launch.options["num_warps"]
        return len(self.known), launch.programs, threads, 96, overlap, fixed

    @staticmethod
    def kind_of(value: Any) -> str:
        if type(value) not in (int, float):
            return "constexpr"
        return "i32" if type(value) is int else "fp64"

    def _stream(self, device: int, found: Any) -> int:
        found[0] = 1234
        return 0

    def _launch(self, config: int, function: int, parameters: Any, extra: Any) -> int:
        if self.answer:
            return self.answer
        try:
            self._interpret(Config.from_address(config), function, parameters)
        except BaseException as error:  # ctypes would swallow it
            self.errors.append(error)
        return 0

    def _interpret(self, config: Config, function: int, parameters: Any) -> None:
        launch, kinds = self.known[function - 1]
        name = launch.kernel.fn.__name__
        big, units, wide = (self.type, self.elements), (torch.float32, UNITS), torch.float64
        shares = launch.fixed[1] if name == "finish" else launch.programs // UNITS or 1
        how = next((value for value in launch.fixed if hasattr(value, "KEEP")), None)
        paper = how is not None and not how.CONTINUOUS
        forms = (wide, (_triton.FORM + paper * _triton.NEAR_FORM) * UNITS)
        pulled = how is not None and how.PULL
        sums = wide, shares * UNITS * (_triton.SUMS if pulled else _triton.OWN_SUMS)
        keeps = how is not None and how.KEEP
        saved, two = (wide, _triton.NORM_FORM * UNITS), (wide, 2 * UNITS)
        if name in ("settle", "norm_finish"):
            shares = launch.fixed[1]
        normed, measured = (wide, _triton.NORM_SUMS * UNITS * shares), (wide, 2 * UNITS * shares)
        tensors = {
            "measure": [big, saved, measured],
            "settle": [saved, measured, *[units] * 4, (torch.int64, 1), *[units] * 5],
            "norm_forward": [*[big] * 3, *[units] * 5, saved if keeps else units, *[units] * 4],
            "norm_backward": [*[big] * 5, saved, normed, two],
            "packed_value": [*[big] * 3, (torch.int64, _triton.NORM_FORM * UNITS)],
            "norm_finish": [saved, normed, (torch.float32, 7 * UNITS), two],
            "forward": [big] * 2 + [units] * 5 + [forms if keeps else units],
            "backward": [big] * 3 + [forms, sums],
            "finish": [units] * 5 + [sums] + [units] * 5,
        }[name]
        given: list[Any] = []
        for i, (dtype, count) in enumerate(tensors):
            address = ctypes.c_uint64.from_address(parameters[i]).value
            memory = (ctypes.c_char * (count * dtype.itemsize)).from_address(address)
            given.append(torch.frombuffer(memory, dtype=dtype))
        i = len(tensors)
        for kind, value in zip(kinds, launch.fixed, strict=True):
            if kind == "constexpr":
                given.append(value)
                continue
            number = ctypes.c_int32 if kind == "i32" else ctypes.c_double
            given.append(number.from_address(parameters[i]).value)
            i += 1
        assert tuple(config.grid) == (launch.programs, 1, 1)
        assert tuple(config.block) == (32 * launch.options["num_warps"], 1, 1)
        assert (config.shared, config.stream) == (96, 1234)
        if launch.options.get("launch_pdl"):
            assert config.attribute_count == 1
            assert list(config.attributes[:3:2]) == [6, 1]
        else:
            assert config.attribute_count == 0
        launch.kernel[(config.grid[0],)](*given, **launch.options)
        self.launched.append(name)

    def took(self) -> list[str]:
        """What was launched since the last time."""
        assert not self.errors
        names, self.launched[:] = list(self.launched), []
        return names


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = _launcher._place()  # its folder says of what it was built
    path = tmp_path_factory.getbasetemp().parent / path.parent.name / path.name
    if not path.exists():
        _launcher.build(path)
    return path


@pytest.fixture(scope="module")
def _driver(built: Path) -> Iterator[Driver]:
    np = pytest.importorskip("numpy")
    prepare()
    made = Driver()
    operator = torch.ops.deu.forward.default
    whole = operator._op
    with pytest.MonkeyPatch.context() as patch, np.errstate(all="ignore"):
        patch.setattr(_triton_launch.Launch, "described", lambda launch: made.describe(launch))
        patch.setattr(_triton_launch, "_plans", {})
        _launcher.use(built, "cpu", made.launch, made.stream)
        yield made
    _launcher.release()
    assert operator._op is whole


@pytest.fixture
def driver(_driver: Driver) -> Driver:
    _driver.answer = 0
    _driver.took()
    return _driver


OPTIONS = {"solution": "continuous", **LIMITS}


def settings(solution: str = "continuous", training: bool = False, dim: int = 1) -> Settings:
    return Settings(dim, solution, 0.01, 100.0, *LIMITS.values(), training)


def make(
    driver: Driver, t: Tensor, units: list[Tensor], options: Settings, grad: Tensor | None = None
) -> list[Tensor]:
    """Output and gradients by Python, after which the launcher knows how."""
    driver.type, driver.elements = t.dtype, t.numel()
    grad = torch.randn_like(t) if grad is None else grad
    y, forms = _triton.forward(t, tuple(units), options)
    _triton.forward(t, tuple(units), options, False)
    return [y, *_triton.backward(grad, t, tuple(units), forms, options)]


def ready(driver: Driver) -> tuple[Tensor, list[Tensor]]:
    """Tensors for which the launcher knows how."""
    t, units = torch.randn(2, UNITS, 4, 4), every_subspace(UNITS, torch.float32)
    driver.type, driver.elements = t.dtype, t.numel()
    if not driver.ready:
        make(driver, t, units, settings())
        driver.ready = True
    return t, units


def call(t: Tensor, units: list[Tensor], options: Settings | None = None) -> Tensor:
    return deu.functional.deu(t, *units, **(options or settings())._asdict())


@pytest.mark.parametrize(
    ("solution", "training", "layout", "dtype"),
    [
        ("continuous", True, "NCHW", torch.float32),
        ("paper", True, "channels_last", torch.bfloat16),
        ("paper", False, "(B, T, C)", torch.float32),
    ],
)
def test_the_bits_are_those_of_python(
    driver: Driver, solution: str, training: bool, layout: str, dtype: torch.dtype
) -> None:
    t = torch.randn(2, UNITS, 3, 4).to(dtype)
    options = settings(solution, training, -1 if layout == "(B, T, C)" else 1)
    if layout == "channels_last":
        t = t.to(memory_format=torch.channels_last)
    elif layout == "(B, T, C)":
        t = torch.randn(2, 3, UNITS).to(dtype)
    units, grad = every_subspace(UNITS, torch.float32), torch.randn_like(t)
    want = make(driver, t, units, options, grad)
    inputs = [x.clone(memory_format=torch.preserve_format) for x in (t, *units)]
    for x in inputs:
        x.requires_grad_()
    y = call(inputs[0], inputs[1:], options)
    assert driver.took() == ["forward"]
    y.backward(grad)
    assert driver.took() == ["backward", "finish"]
    for name, got, expected in zip(
        ("y", "t", *NAMES), (y, *(x.grad for x in inputs)), want, strict=True
    ):
        assert got.dtype == expected.dtype
        assert got.stride() == expected.stride()
        assert torch.equal(got, expected), name
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            assert torch.equal(call(t, units, options), want[0])
        assert driver.took() == ["forward"]


def normed(dtype: torch.dtype = torch.float32, last: bool = False) -> tuple[Any, ...]:
    """Input, residual, batch norm, units of each sort, settings."""
    x = (2 * torch.randn(2, UNITS, 4, 4) + 1).to(dtype)
    if last:
        x = x.to(memory_format=torch.channels_last)
    rows = (torch.rand(UNITS) + 0.5, torch.randn(UNITS), torch.randn(UNITS), torch.rand(UNITS))
    norm = BatchNorm(*rows, torch.tensor(2), 0.1, 1e-5)
    return x, torch.randn_like(x), norm, tuple(every_subspace(UNITS, torch.float32)), settings()


def copied(norm: BatchNorm) -> BatchNorm:
    return BatchNorm(*(p.clone() if isinstance(p, Tensor) else p for p in norm))


@pytest.mark.parametrize("norm", [False, True], ids=["", "batch norm"])
@pytest.mark.parametrize("last", [False, True], ids=["NCHW", "channels_last"])
def test_packed_numbers(
    driver: Driver, last: bool, norm: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, r, _, units, options = normed(torch.bfloat16 if last else torch.float32, last)
    r = r if norm else None
    rows = (torch.randn(UNITS), torch.rand(UNITS) + 0.5, torch.randn(UNITS)) if norm else None
    numbers = packed(units, options.solution, options.eps, rows)
    driver.type, driver.elements = x.dtype, x.numel()
    want = _triton_packed.value(x, r, numbers, norm, options)
    driver.took()
    monkeypatch.setattr(_triton, "_DEVICES", ("cpu", "cuda"))
    monkeypatch.setattr(_triton_packed, "value", lambda *args: pytest.fail("by Python"))
    ways = (
        lambda: _packed_ops.apply(x, r, numbers, norm, options),
        lambda: torch.ops.deu.packed_value.default(x, r, numbers, norm, options.packed()),
        lambda: torch.ops.deu.packed_value(x, r, numbers, normed=norm, settings=options.packed()),
    )
    for way in ways:
        y = way()
        assert torch.equal(y, want)
        assert y.stride() == want.stride()
        assert driver.took() == ["packed_value"]
    with pytest.raises(pytest.fail.Exception, match="by Python"):  # another batch is another plan
        _packed_ops.apply(x[:1].clone(), None, numbers, norm, options)


FORWARD = ["measure", "settle", "norm_forward"]
BACKWARD = ["norm_backward", "norm_finish", "norm_backward"]


@pytest.mark.parametrize("residual", [False, True], ids=["", "residual"])
@pytest.mark.parametrize("last", [False, True], ids=["NCHW", "channels_last"])
def test_batch_norm_and_a_unit_in_one(
    driver: Driver, last: bool, residual: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    dtype = torch.bfloat16 if last else torch.float32
    x, r, norm, units, options = normed(dtype, last)
    r = r if residual else None
    driver.type, driver.elements = dtype, x.numel()
    grad = torch.randn_like(x)
    by_python = copied(norm)
    y, saved = _triton_normed.forward(x, r, by_python, units, options, False)
    grad_x, grad_r, grads = _triton_normed.backward(grad, saved, x, r, options)
    frozen, _ = _triton_normed.forward(x, r, copied(norm), units, options, True)
    driver.took()

    given = [p.clone().requires_grad_() for p in (x, norm.weight, norm.bias, *units)]
    other = None if r is None else r.clone().requires_grad_()
    mine = copied(norm)._replace(weight=given[1], bias=given[2])
    monkeypatch.setattr(_triton, "_DEVICES", ("cpu", "cuda"))
    got = _norm_ops.apply(given[0], other, mine, tuple(given[3:]), options, False)
    assert driver.took() == FORWARD
    got.backward(grad)
    assert driver.took() == BACKWARD
    assert torch.equal(got, y)
    for p, want in zip(given, (grad_x, *grads), strict=True):
        assert torch.equal(p.grad, want)
        assert p.grad.stride() == p.stride()
    if other is not None:
        assert torch.equal(other.grad, grad_r)
    for a, b in zip(mine[2:5], by_python[2:5], strict=True):
        assert torch.equal(a, b)
    with torch.no_grad():
        assert torch.equal(_norm_ops.apply(x, r, mine, units, options, False), y)
        assert driver.took() == FORWARD
        assert torch.equal(_norm_ops.apply(x, r, copied(norm), units, options, True), frozen)
        assert driver.took() == ["norm_forward"]

    # By the operators, as compiled graphs call them.
    norm = copied(norm)
    ops, packed = torch.ops.deu, options.packed()
    assert torch.equal(ops.norm_value.default(x, r, *norm, *units, packed), frozen)
    assert driver.took() == ["norm_forward"]
    found, kept = ops.norm_forward.default(x, r, *norm, *units, packed)
    assert torch.equal(found, y)
    results = ops.norm_backward.default(grad, kept, x, r, packed)
    expected = (grad_x, x.new_empty(0) if r is None else grad_r, grads)
    for a, b in zip(results, expected, strict=True):
        assert torch.equal(a, b)
    assert driver.took() == FORWARD + BACKWARD


def test_operators_have_a_shortcut(driver: Driver) -> None:
    """Which hands on all that is not plain, and by which PyTorch finds them as before."""
    t, units, options = torch.randn(2, UNITS), every_subspace(UNITS, torch.float32), settings()
    grad = torch.randn_like(t)
    y, *grads = make(driver, t, units, options, grad)
    given = (t, *units, options.packed())
    value, forward, backward = (
        getattr(torch.ops.deu, name).default for name in ("value", "forward", "backward")
    )
    assert forward._op is not _launcher._whole["forward"]
    assert hash(forward) == hash(_launcher._whole["forward"])
    with torch.profiler.profile(acc_events=True) as seen:
        observed = value(*given)
    assert "deu::value" in {event.key for event in seen.key_averages()}
    named = value(**dict(zip(("t", *NAMES, "settings"), given, strict=True)))
    found, forms = forward(*given)
    for each in (observed, named, value(*given), found):
        assert torch.equal(each, y)
    assert driver.took() == ["forward"] * 4
    for a, b in zip(backward(grad, forms, *given), grads, strict=True):
        assert torch.equal(a, b)
    assert driver.took() == ["backward", "finish"]

    with FakeTensorMode() as mode:
        assert isinstance(value(*map(mode.from_tensor, given[:-1]), given[-1]), FakeTensor)
    other = options._replace(bound=7.0).packed()
    torch.testing.assert_close(value(*given[:-1], other), y, rtol=1e-5, atol=1e-5)
    assert driver.took() == []  # by Python
    with pytest.raises(RuntimeError, match="settings"):
        value(*given[:-1])
    with _Seen() as functions:
        value(*given)
    assert "deu.value" in " ".join(functions.seen), functions.seen


def test_gradients_of_gradients_of_both_in_one(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, r, norm, units, options = normed()
    options = options._replace(max_grad_norm=float("inf"))
    driver.type, driver.elements = x.dtype, x.numel()
    _triton_normed.forward(x, r, copied(norm), units, options, False)
    monkeypatch.setattr(_triton, "_DEVICES", ("cpu", "cuda"))
    found = []
    for call in (_norm_ops.apply, lambda *args: _norm_ops.differentiable(*args[:-1])):
        given = [p.detach().requires_grad_() for p in (x, r, norm.weight, norm.bias, *units)]
        mine = copied(norm)._replace(weight=given[2], bias=given[3])
        y = call(given[0], given[1], mine, tuple(given[4:]), options, False)
        first = torch.autograd.grad(y.square().sum(), given, create_graph=True)
        found.append(torch.autograd.grad(sum(g.square().sum() for g in first), given))
    assert driver.took()[-3:] == FORWARD
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-3)


def test_a_checkpoint_of_both_in_one(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    x, r, norm, units, options = normed()
    driver.type, driver.elements = x.dtype, x.numel()
    monkeypatch.setattr(_triton, "_DEVICES", ("cpu", "cuda"))

    def call(x: Tensor) -> Tensor:
        return _norm_ops.apply(x, r, copied(norm), units, options, False)

    x.requires_grad_()
    want = torch.autograd.grad(call(x).sum(), x)[0]  # by Python, and then the launcher knows
    got = checkpoint(call, x, use_reentrant=False)
    torch.testing.assert_close(torch.autograd.grad(got.sum(), x)[0], want)


def test_a_layer(driver: Driver) -> None:
    t = torch.randn(2, UNITS, 4, 4)
    layer = deu.DEU(UNITS, **LIMITS)
    make(driver, t, list(layer.coefficients()), settings(training=True))
    layer(t).sum().backward()
    assert driver.took()[0] == "forward"
    for name, p in layer.named_parameters():
        assert p.grad.shape == p.shape, name
        assert p.grad.is_contiguous()
        assert p.grad.data_ptr() % 16 == 0


def test_gradients_add_up(driver: Driver) -> None:
    t, units = ready(driver)
    grad = torch.ones_like(t)
    inputs = [x.detach().requires_grad_() for x in (t, *units)]
    call(inputs[0], inputs[1:]).backward(grad)
    once = [x.grad.clone() for x in inputs]
    call(inputs[0], inputs[1:]).backward(grad)
    for x, first in zip(inputs, once, strict=True):
        assert torch.equal(x.grad, 2 * first)


def test_a_gradient_that_lies_otherwise_goes_by_python(driver: Driver) -> None:
    t, units = ready(driver)
    inputs = [x.detach().requires_grad_() for x in (t, *units)]
    call(inputs[0], inputs[1:]).sum().backward()  # one number, expanded
    assert driver.took() == ["forward"]
    want = gradients(deu.reference.deu, t, units, torch.ones_like(t), **OPTIONS)
    for name, x in zip(("t", *NAMES), inputs, strict=True):
        torch.testing.assert_close(x.grad, want[name], rtol=1e-4, atol=1e-5)
    call(inputs[0], inputs[1:]).sum().backward()  # and then the launcher knows that too
    assert driver.took() == ["forward", "backward", "finish"]


def test_second_derivatives(driver: Driver) -> None:
    t, units = torch.randn(2, UNITS, 4, 4), every_subspace(UNITS, torch.float32)
    make(driver, t, units, settings()._replace(max_grad_norm=float("inf")))

    def second(function: Callable[..., Tensor]) -> list[Tensor]:
        inputs = [x.detach().requires_grad_() for x in (t, *units)]
        y = function(*inputs, **{**OPTIONS, "max_grad_norm": None})
        first = torch.autograd.grad(y.square().sum(), inputs, create_graph=True)
        return list(torch.autograd.grad(sum(g.square().sum() for g in first), inputs))

    for got, want in zip(second(deu.functional.deu), second(deu.reference.deu), strict=True):
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)
    assert "forward" in driver.took()


def test_a_changed_input_is_noticed(driver: Driver) -> None:
    t, units = ready(driver)
    for p in units:
        p.requires_grad_()
    y = call(t, units)
    t.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_a_graph_can_be_used_again_if_it_is_kept(driver: Driver) -> None:
    t, units = ready(driver)
    t.requires_grad_()
    y = call(t, units)
    first = torch.autograd.grad(y, t, torch.ones_like(t), retain_graph=True)[0]
    assert torch.equal(first, torch.autograd.grad(y, t, torch.ones_like(t))[0])
    with pytest.raises(RuntimeError, match="second time"):
        torch.autograd.grad(y, t, torch.ones_like(t))


def test_checkpoints_and_hooks_on_what_is_saved(driver: Driver) -> None:
    t, units = ready(driver)
    t.requires_grad_()
    want = torch.autograd.grad(call(t, units).sum(), t)[0]
    got = checkpoint(call, t, units, use_reentrant=False)
    assert torch.equal(torch.autograd.grad(got.sum(), t)[0], want)
    packed: list[Tensor] = []

    def pack(x: Tensor) -> Tensor:
        packed.append(x)
        return x

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
        call(t, units)
    assert len(packed) == 6  # as by Python, so that a checkpoint may be made by either


class _Seen(TorchFunctionMode):
    """Notes which functions of PyTorch's are called."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        self.seen.append(str(function))
        return function(*args, **(kwargs or {}))


class _Loud(TorchDispatchMode):
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


class _Sub(Tensor):
    pass


def _unaligned(t: Tensor) -> Tensor:
    return torch.empty(t.numel() + 1)[1:].view(t.shape).copy_(t)


LEFT: dict[str, Callable[[Tensor, list[Tensor]], Tensor]] = {
    "another shape": lambda t, p: call(torch.cat([t, t]), p)[: len(t)],
    "other strides": lambda t, p: call(t.to(memory_format=torch.channels_last), p),
    "another type": lambda t, p: call(t.double(), p).float(),
    "not aligned": lambda t, p: call(_unaligned(t), p),
    "other settings": lambda t, p: call(t, p, settings()._replace(bound=19.0)),
    "coefficients of another type": lambda t, p: call(t, [x.double() for x in p]),
    "of several types": lambda t, p: call(t, [p[0].double(), *p[1:]]),
    "not contiguous": lambda t, p: call(t, [torch.stack([x, x], 1)[:, 0] for x in p]),
    "vmap": lambda t, p: torch.vmap(lambda x: call(x, p, settings(dim=0)))(t),
    "forward mode": lambda t, p: torch.func.jvp(lambda x: call(x, p), (t,), (t,))[0],
    "negated": lambda t, p: call(torch._neg_view(-t), p),
    "torch.func.grad": lambda t, p: torch.func.vjp(lambda x: call(x, p), t)[0],
}


@pytest.mark.filterwarnings("ignore")  # of torch.jit
@pytest.mark.parametrize("case", LEFT)
def test_what_is_left_to_python(driver: Driver, case: str) -> None:
    t, units = ready(driver)
    want = deu.reference.deu(t, *units, **OPTIONS)
    got = LEFT[case](t, units)
    assert driver.took() == []
    torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-5)


@pytest.mark.filterwarnings("ignore")  # of torch.jit
def test_subclasses_modes_and_tracers_see_the_operators(driver: Driver) -> None:
    t, units = ready(driver)
    want = deu.reference.deu(t, *units, **OPTIONS)
    y = call(t.as_subclass(_Sub), units)
    assert type(y) is _Sub
    torch.testing.assert_close(y.as_subclass(Tensor), want, rtol=1e-5, atol=1e-5)
    with _Loud():
        torch.testing.assert_close(call(t, units), want, rtol=1e-5, atol=1e-5)
    traced = torch.jit.trace(lambda x: call(x, units), t, check_trace=False)
    torch.testing.assert_close(traced(t), want, rtol=1e-5, atol=1e-5)
    dual = torch.autograd.forward_ad
    with dual.dual_level():
        y = call(dual.make_dual(t, torch.ones_like(t)), units)
        assert dual.unpack_dual(y).tangent is not None


def test_compiled_graphs_use_it(driver: Driver) -> None:
    t = torch.randn(2, UNITS, 4, 4)
    layer = deu.DEU(UNITS, **LIMITS)
    make(driver, t, list(layer.coefficients()), settings(training=True))
    plain = layer(t)
    driver.took()
    torch._dynamo.reset()
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    y = compiled(t)
    assert torch.equal(y, plain)
    y.backward(torch.ones_like(y))
    assert driver.took() == ["forward", "backward", "finish"]
    with torch.no_grad():
        assert torch.equal(compiled(t), plain)
    assert driver.took() == ["forward"]
    other = torch.randn(3, UNITS, 4, 4)  # unknown: to Python, from inside the operator
    torch.testing.assert_close(compiled(other), layer(other))
    torch._dynamo.reset()


def test_autocast(driver: Driver) -> None:
    t, units = ready(driver)
    with torch.autocast("cpu", torch.bfloat16):
        assert call(t, units).dtype == torch.float32
    assert driver.took() == ["forward"]


def test_a_launch_that_fails_says_so(driver: Driver) -> None:
    t, units = ready(driver)
    driver.answer = 719
    with pytest.raises(RuntimeError, match="could not be launched; CUDA's driver says error 719"):
        call(t, units)


def test_a_thread_without_a_context_goes_by_python(driver: Driver) -> None:
    t, units = ready(driver)
    t.requires_grad_()
    y = call(t, units)
    driver.answer = 201
    torch.testing.assert_close(call(t, units), y)
    y.backward(torch.ones_like(t))
    want = gradients(deu.reference.deu, t.detach(), units, torch.ones_like(t), **OPTIONS)
    torch.testing.assert_close(t.grad, want["t"], rtol=1e-4, atol=1e-5)


def test_a_negated_gradient(driver: Driver) -> None:
    t, units = ready(driver)
    t.requires_grad_()
    want = torch.autograd.grad(call(t, units), t, -torch.ones_like(t))[0]
    driver.took()
    grad = torch._neg_view(torch.ones_like(t))
    assert torch.equal(torch.autograd.grad(call(t, units), t, grad)[0], want)
    assert driver.took() == ["forward"]


def test_nothing_is_kept_alive(driver: Driver) -> None:
    t, _ = ready(driver)
    made = nn.Sequential(deu.DEU(UNITS, **LIMITS))
    x = t.clone().requires_grad_()
    alive = weakref.ref(x)
    y = made(x)
    del x, y
    gc.collect()
    assert alive() is None


def test_forgets_with_the_plans(driver: Driver) -> None:
    t, units = ready(driver)
    _launcher.forget()
    _triton_launch._plans.clear()
    driver.ready = False
    call(t, units)
    assert driver.took() == []


# --------------------------------------------------------------------------------------- building


@pytest.fixture
def _fresh(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path))
    for name in ("call", "problem", "_built", "_module", "_thread"):
        monkeypatch.setattr(_launcher, name, None)


@pytest.mark.usefixtures("_fresh")
@pytest.mark.parametrize(
    ("variables", "reason"),
    [
        ({"DEU_LAUNCHER": "0"}, "DEU_LAUNCHER=0"),
        ({"PATH": ""}, "there is no C++ compiler"),
        ({"CXX": "false"}, "the launcher was not compiled"),
        ({"TORCH_EXTENSIONS_DIR": "/dev/null/x"}, "Not a directory"),
    ],
)
def test_whatever_is_in_the_way_python_goes_on(
    variables: dict[str, str], reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert not _launcher.ready(60)
    assert reason in str(_launcher.problem)


def test_waits_for_another_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "deu_launcher.so"
    mark = path.with_suffix(".building")
    mark.touch()
    monkeypatch.setattr(time, "sleep", lambda seconds: path.write_text("theirs"))
    _launcher.build(path)
    assert path.read_text() == "theirs"


def test_a_build_that_died_is_begun_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "deu_launcher.so"
    mark = path.with_suffix(".building")
    mark.touch()
    monkeypatch.setattr(time, "sleep", lambda seconds: os.utime(mark, (0, 0)))
    monkeypatch.setattr(_launcher, "_command", lambda part: ["cp", "/dev/null", str(part)])
    _launcher.build(path)
    assert sorted(tmp_path.iterdir()) == [path]
