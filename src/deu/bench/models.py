"""Whole networks: a training step and inference, as the ratio to the same network with ReLU."""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from .. import _launcher
from ..experiments import models
from ..experiments.activations import FACTORIES, Factory
from ..modules import DEU
from ..norm import NormDEU
from .cases import LAST, NCHW
from .check import Error, block_size
from .layers import Emit
from .prepared import PREPARED
from .providers import by_reference, compiled, exact, is_ours
from .rounds import Clock, Times, enough, summarise, take_turns, wrong_row
from .rows import FAILED, Row, first_line
from .timing import Sample, saved_bytes

TRAINING, INFERENCE = "training step", "inference"
# In a CUDA graph.
CAPTURED = {TRAINING: "training step, captured", INFERENCE: "inference, captured"}
BASE = "ReLU"
_EAGER = ("ReLU", "GELU", "PReLU", "Snake", "deu", "deu paper")
_COMPILED = ("ReLU", "deu")
# What ResNet-18 has besides, batch norm and units in one; the other networks have no norm.
_IN_ONE = "NormDEU"
_FACTORIES: dict[str, Factory] = {
    **FACTORIES,
    _IN_ONE: lambda features: NormDEU(nn.BatchNorm2d(features), DEU(features)),
}
EAGER, COMPILED = "eager", "compiled"
_LIMITS = {TRAINING: 1.10, INFERENCE: 1.05}  # of ResNet-18 on a GPU
_LIMITS |= {CAPTURED[work]: limit for work, limit in _LIMITS.items()}
_GPU_SECONDS = 0.05  # of one timing
_BLOCK_NUMBERS = 12_500  # for blocks of 32: float64 takes a lot of memory
# A network may be off from float64 by so many times what plain PyTorch is in the same type, or by
# what its layers may be; never by as much as a gradient of zero, which is off by 1. In bfloat16 a
# deep network's first gradients are mostly rounding, with any activation.
_TIMES_PLAIN, _LEAST_LIMIT, _MOST_LIMIT = 3, 1e-5, 0.98

_NETWORKS: dict[str, tuple[Callable[[Factory], nn.Module], tuple[int, int, int]]] = {
    "ResNet-18": (models.resnet18, (3, 32, 32)),
    "MLP": (models.mlp, (1, 28, 28)),
    "CNN": (models.cnn, (1, 28, 28)),
}


@dataclass(frozen=True)
class Form:
    """One network doing one thing in one way."""

    network: str
    work: str
    batch: int = 128
    layout: str = NCHW
    autocast: bool = False
    how: str = EAGER
    providers: tuple[str, ...] = _EAGER

    @property
    def dtype(self) -> str:
        return "bfloat16 autocast" if self.autocast else "float32"

    @property
    def title(self) -> str:
        return f"{self.network} {self.layout} {self.dtype} batch {self.batch}, {self.how}"

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.batch, *_NETWORKS[self.network][1])

    @property
    def needs(self) -> float:
        """Seconds that have to be left of a budget to begin with it."""
        if self.how != COMPILED:
            return 5.0
        return {"ResNet-18": 90.0 if self.work == TRAINING else 45.0}.get(self.network, 30.0)

    def limits(self, device: str) -> dict[str, float]:
        limited = device == "cuda" and self.network == "ResNet-18"
        return _LIMITS if limited else {}


def model_forms(device: str, quick: bool = False) -> list[Form]:
    """The networks to measure on a device, the important ones first."""
    if quick:
        return [
            *(Form("CNN", work, 8, providers=_COMPILED) for work in (TRAINING, INFERENCE)),
            Form("MLP", TRAINING, 8, providers=_COMPILED),
            Form("MLP", INFERENCE, 8, how=COMPILED, providers=_COMPILED),
            Form("ResNet-18", TRAINING, 2, providers=(*_COMPILED, _IN_ONE)),
            Form("ResNet-18", INFERENCE, 2, providers=(*_COMPILED, _IN_ONE, *PREPARED)),
        ]
    both = (TRAINING, INFERENCE)
    small = [Form(name, work) for name in ("MLP", "CNN") for work in both]
    small_compiled = [
        Form(name, work, how=COMPILED, providers=_COMPILED)
        for name in ("MLP", "CNN")
        for work in both
    ]
    if device != "cuda":
        # A smaller batch: a step of 128 takes seconds on a few cores.
        resnet = [Form("ResNet-18", work, 16, providers=_COMPILED) for work in both]
        last = [
            Form("ResNet-18", work, 16, LAST, autocast, providers=_COMPILED)
            for autocast in (False, True)
            for work in both
        ]
        hard = [Form("ResNet-18", work, 16, how=COMPILED, providers=_COMPILED) for work in both]
        return [*resnet, *small, *small_compiled, *last, *hard]
    ways = [(NCHW, False), (LAST, True), (LAST, False), (NCHW, True)]

    def resnet18(how: str, providers: tuple[str, ...]) -> list[list[Form]]:
        """For each way, a training step and inference."""
        more = {TRAINING: (_IN_ONE,), INFERENCE: (_IN_ONE, *PREPARED)}
        return [
            [Form("ResNet-18", work, 128, *way, how, (*providers, *more[work])) for work in both]
            for way in ways
        ]

    by_compiler = resnet18(COMPILED, _COMPILED)
    return [
        *(form for forms in resnet18(EAGER, _EAGER) for form in forms),
        *by_compiler[1],
        *by_compiler[0],
        *small,
        *small_compiled,
        *by_compiler[2],
        *by_compiler[3],
    ]


class Network:
    """A network with its data, and the step that is timed."""

    def __init__(
        self,
        form: Form,
        net: nn.Module,
        x: Tensor,
        target: Tensor,
        prepare: Callable[[nn.Module], nn.Module] = lambda net: net,
    ) -> None:
        self.form, self.x, self.target = form, x, target
        self.plain = net  # before it is prepared for inference
        self.net = prepare(net.train(form.work == TRAINING))
        if form.work == TRAINING:
            self.optimiser = torch.optim.SGD(net.parameters(), lr=1e-4, momentum=0.9, fused=True)
        if form.how == COMPILED:
            self.net = compiled(self.net)
        self.graph: torch.cuda.CUDAGraph | None = None
        self.calls = self.replays = 1
        self.memory = math.nan
        self.launches = math.nan

    def autocast(self) -> AbstractContextManager[object]:
        if not self.form.autocast:
            return nullcontext()
        return torch.autocast(self.x.device.type, torch.bfloat16)

    def step(self) -> None:
        if self.form.work == INFERENCE:
            self.infer()
            return
        self.optimiser.zero_grad(set_to_none=True)
        self.loss().backward()
        self.optimiser.step()

    def loss(self) -> Tensor:
        with self.autocast():
            return nn.functional.cross_entropy(self.net(self.x), self.target)

    def infer(self) -> Tensor:
        with torch.inference_mode(), self.autocast():
            y: Tensor = self.net(self.x)
            return y

    def measure(self) -> dict[str, Sample]:
        """Seconds a step on the clock: launches are part of what a user waits for.

        On a GPU also of a step in a CUDA graph, where they are not.
        """
        found = {self.form.work: self._time(self.step, self.calls)}
        if self.graph is not None:
            found[CAPTURED[self.form.work]] = self._time(self.graph.replay, self.replays)
        return found

    def _time(self, step: Callable[[], None], calls: int) -> Sample:
        self._wait()
        start = time.perf_counter()
        for _ in range(calls):
            step()
        self._wait()
        return Sample((time.perf_counter() - start) / calls)

    def warm_up(self) -> float:
        for _ in range(3 if self.x.is_cuda else 1):
            self.step()
        self.memory = self._memory()
        if not self.x.is_cuda:
            return self._time(self.step, 1).seconds
        self.launches = launches(self.step)
        self.capture()
        assert self.graph is not None
        self.calls, seconds = self._enough(self.step)
        self.replays, more = self._enough(self.graph.replay)
        return seconds + more

    def _enough(self, step: Callable[[], None]) -> tuple[int, float]:
        """How often a step is timed at once, and how long that takes."""
        seconds = self._time(step, 1).seconds
        calls = max(1, min(50, int(_GPU_SECONDS / seconds)))
        return calls, calls * seconds

    def capture(self) -> None:
        """Record a step in a CUDA graph: what it takes without the host."""
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            self.step()
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self.step()
        self.graph = graph

    def _wait(self) -> None:
        if self.x.is_cuda:
            torch.cuda.synchronize()

    def _memory(self) -> float:
        """On a GPU the peak of what a step adds; on a CPU what training keeps for backward."""
        if self.x.is_cuda:
            self._wait()
            before = torch.cuda.memory_allocated()
            torch.cuda.reset_peak_memory_stats()
            self.step()
            self._wait()
            return float(torch.cuda.max_memory_allocated() - before)
        if self.form.work == TRAINING and self.form.how == EAGER:
            return saved_bytes(self.loss)
        return math.nan


def launches(step: Callable[[], None]) -> float:
    """How many kernels a step starts on the GPU; NaN where the profiler cannot say."""
    try:
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
            step()
            torch.cuda.synchronize()
        events = [e for e in profile.events() or [] if e.device_type.name == "CUDA"]
    except RuntimeError:
        return math.nan
    count = sum(not e.name.startswith(("Memcpy", "Memset")) for e in events)
    return float(count) if count else math.nan


def data(form: Form, device: torch.device) -> tuple[Tensor, Tensor]:
    """Images and their classes, which repeat along the batch."""
    block = block_size((form.batch, _BLOCK_NUMBERS))
    repeats = form.batch // block
    x = torch.randn(block, *form.shape[1:], device=device).repeat(repeats, 1, 1, 1)
    target = torch.randint(0, 10, (block,), device=device).repeat(repeats)
    return x.to(memory_format=torch.channels_last) if form.layout == LAST else x, target


def _result(network: Network) -> list[Tensor]:
    """Scores, or in training the gradients of all parameters, in float64."""
    if network.form.work == INFERENCE:
        return [network.infer().double()]
    network.net.zero_grad(set_to_none=True)
    network.loss().backward()
    grads = [p.grad.double() for p in network.net.parameters() if p.grad is not None]
    network.net.zero_grad(set_to_none=True)
    return grads


def _off(got: list[Tensor], want: list[Tensor]) -> float:
    """The norm of the difference over the norm of the truth."""
    difference = sum((g - w).square().sum().item() for g, w in zip(got, want, strict=True))
    return math.sqrt(difference / sum(w.square().sum().item() for w in want))


def error(network: Network) -> Error:
    """How far a network's result is from float64, and how far it may be.

    The batch repeats a block, so scores repeat, and batch norm and a mean loss have the block's
    own statistics and gradients: the truth of the block is that of the batch.
    """
    form = network.form
    block = block_size((form.batch, _BLOCK_NUMBERS))
    x, target = network.x[:block], network.target[:block]
    plainly = Form(form.network, form.work, form.batch, form.layout)
    truth = _result(Network(plainly, exact(network.plain), x.double(), target))
    if form.work == INFERENCE:
        truth = [truth[0].repeat(form.batch // block, 1)]
    same_type = Form(form.network, form.work, form.batch, form.layout, form.autocast)
    plain = by_reference(copy.deepcopy(network.plain))
    try:
        # The batch itself: a GPU may round otherwise in a smaller one.
        least = _off(_result(Network(same_type, plain, network.x, network.target)), truth)
    except torch.OutOfMemoryError:  # the reference keeps dozens of tensors in float64
        part = _result(Network(same_type, plain, x, target))
        least = _off(part, [t[:block] for t in truth] if form.work == INFERENCE else truth)
    limit = min(max(_TIMES_PLAIN * least, _LEAST_LIMIT), _MOST_LIMIT)
    where = "scores" if form.work == INFERENCE else "all gradients"
    return Error(_off(_result(network), truth), where, limit)


def measure(
    form: Form, device: torch.device, rounds: int, clock: Clock, emit: Emit, template: Row
) -> None:
    """Measure a network and hand its rows over, those of a run that was stopped too.

    On a GPU, float32 may use TF32, as it does in convolutions anyway.
    """
    before = torch.get_float32_matmul_precision()
    if device.type == "cuda":
        torch.set_float32_matmul_precision("high")
        _launcher.ready()
    try:
        _measure(form, device, rounds, clock, emit, template)
    finally:
        torch.set_float32_matmul_precision(before)


def _measure(
    form: Form, device: torch.device, rounds: int, clock: Clock, emit: Emit, template: Row
) -> None:
    template = copy.copy(template)
    template.kind, template.case, template.shape = "model", form.title, str(form.shape)
    template.layout, template.dtype = form.layout, form.dtype
    make, _ = _NETWORKS[form.network]
    torch.manual_seed(0)
    x, target = data(form, device)
    networks: dict[str, Network] = {}
    seconds: dict[str, float] = {}
    errors: dict[str, Error] = {}
    apart: list[Row] = []
    times: Times = {}
    finished = False
    try:
        for name in form.providers:
            try:
                torch.manual_seed(1)
                made_as, prepare = PREPARED.get(name, (name, lambda net: net))
                net = make(_FACTORIES[made_as]).to(device)
                if form.layout == LAST:
                    net.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
                network = Network(form, net, x, target, prepare)
                errors[name] = error(network)
                if errors[name].wrong:
                    apart.append(wrong_row(template, name, errors[name]))
                else:
                    seconds[name] = network.warm_up()
                    networks[name] = network
            except Exception as reason:  # of a compiler or for memory: said, and the others go on
                row = copy.copy(template)
                row.provider, row.work = name, form.work
                row.status, row.note = FAILED, first_line(reason)
                apart.append(row)
        take_turns(networks, seconds, BASE, rounds, clock, times)
        finished = True
    finally:
        if form.how == COMPILED:
            torch.compiler.reset()
        if finished or enough(times, BASE):
            limits = form.limits(device.type)
            rows = summarise(template, times, BASE, limits, errors, is_ours)
            for row in rows:
                row.memory_bytes = networks[row.provider].memory
                row.launches = networks[row.provider].launches
                if BASE in networks:
                    row.memory_ratio = row.memory_bytes / networks[BASE].memory
            emit(rows + apart)
