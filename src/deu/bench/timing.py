"""The time and the memory of a layer's forward and backward pass, on a CPU and on a GPU."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor, nn

from .providers import Reference

FORWARD, NO_GRAD, BACKWARD, BOTH = "forward", "forward, no_grad", "backward", "both"
WORKS = (FORWARD, NO_GRAD, BACKWARD, BOTH)

_CPU_NUMBERS = 400_000  # in one timing of a small layer
_CPU_SECONDS = 0.1  # of one timing of it, at most
_GPU_SECONDS = 0.005  # of one timing
_GPU_CALLS = 50  # in one timing, at most
_GPU_BYTES = 16e9  # that one timing may hold
_SLOW_SECONDS = 0.5  # of a timing of one call: warm enough then
# Together far more than a GPU's cache, so that the cache is not what is measured.
_ROTATED_BYTES = 256e6
# Up to here the time of a call is also taken with its launches.
_SMALL_BYTES = 32e6
_CYCLES = 2e9  # a second, of a GPU's clock: about
_LONGEST_SLEEP = 0.1  # seconds


class Sample(NamedTuple):
    """Seconds a call, and the same with launches included where that was taken apart."""

    seconds: float
    wall: float = math.nan


@dataclass
class Subject:
    """One provider with its data: ``inputs`` and ``grads`` are buffers to take in turn."""

    module: nn.Module
    inputs: list[Tensor]
    grads: list[Tensor]
    differentiable: bool = True
    calls: int = 1
    memory: float = math.nan
    _issue: dict[str, float] = field(default_factory=dict)  # seconds to launch a call

    def __post_init__(self) -> None:
        self.parameters = [p for p in self.module.parameters() if p.requires_grad]
        self.works: tuple[str, ...] = WORKS if self.differentiable else (FORWARD,)
        if hasattr(self.module, "_orig_mod"):
            # It would be compiled once more, for minutes.
            self.works = (FORWARD, BACKWARD, BOTH)

    @property
    def is_cuda(self) -> bool:
        return self.inputs[0].is_cuda

    def warm_up(self) -> float:
        """Call it, so that everything is compiled and allocated; return a timing's seconds."""
        self.measure()
        if self.differentiable:
            self.memory = step_memory(self)
        start = time.perf_counter()
        samples = self.measure()
        once = time.perf_counter() - start
        if once > _SLOW_SECONDS:
            return once
        slowest = max(sample.seconds for sample in samples.values())
        size = self.inputs[0]
        if self.is_cuda:
            held = 2 * _bytes(size) if math.isnan(self.memory) else self.memory + _bytes(size)
            calls = min(_GPU_CALLS, _GPU_SECONDS / slowest, _GPU_BYTES / held)
        else:
            calls = min(_CPU_NUMBERS / size.numel(), _CPU_SECONDS / slowest)
        self.calls = max(1, int(calls))
        start = time.perf_counter()
        self.measure()
        middle = time.perf_counter()
        self.measure()
        return min(middle - start, time.perf_counter() - middle)

    def measure(self) -> dict[str, Sample]:
        """One timing of each kind of work."""
        return _on_gpu(self) if self.is_cuda else _on_cpu(self)


def buffers(x: Tensor) -> list[Tensor]:
    """x, and on a GPU copies of it to take in turn."""
    count = min(_GPU_CALLS, math.ceil(_ROTATED_BYTES / _bytes(x))) if x.is_cuda else 1
    return [x, *(x.clone() for _ in range(count - 1))]


def _bytes(x: Tensor) -> int:
    return x.numel() * x.element_size()


def _on_cpu(subject: Subject) -> dict[str, Sample]:
    """Forward and backward of one call after the other, as in training; then without autograd."""
    module, x, grad = subject.module, subject.inputs[0], subject.grads[0]
    forward = backward = no_grad = 0.0
    if subject.differentiable:
        for _ in range(subject.calls):
            # As an optimiser's zero_grad() leaves it.
            x.grad = None
            for parameter in subject.parameters:
                parameter.grad = None
            start = time.perf_counter()
            y = module(x)
            middle = time.perf_counter()
            y.backward(grad)
            end = time.perf_counter()
            forward += middle - start
            backward += end - middle
    if NO_GRAD in subject.works or not subject.differentiable:
        with torch.no_grad():
            for _ in range(subject.calls):
                start = time.perf_counter()
                module(x)
                no_grad += time.perf_counter() - start
    total = {
        FORWARD: forward if subject.differentiable else no_grad,
        NO_GRAD: no_grad,
        BACKWARD: backward,
        BOTH: forward + backward,
    }
    return {work: Sample(total[work] / subject.calls) for work in subject.works}


def _on_gpu(subject: Subject) -> dict[str, Sample]:
    """Each kind of work by itself.  What a call returns is kept, so that none reuses memory."""
    module, inputs, grads = subject.module, subject.inputs, subject.grads

    def forward(i: int) -> Tensor:
        y: Tensor = module(inputs[i % len(inputs)])
        return y

    def gradients(y: Tensor, i: int) -> tuple[Tensor | None, ...]:
        wanted = [inputs[i % len(inputs)], *subject.parameters]
        return torch.autograd.grad(y, wanted, grads[i % len(grads)], allow_unused=True)

    def timed(work: str) -> Sample:
        if work == NO_GRAD or not subject.differentiable:
            with torch.no_grad():
                return _gpu_sample(subject, work, lambda: forward)
        if work == BACKWARD:

            def ready() -> Callable[[int], object]:
                outputs = [forward(i) for i in range(subject.calls)]
                return lambda i: gradients(outputs[i], i)

            return _gpu_sample(subject, work, ready)
        if work == BOTH:
            return _gpu_sample(subject, work, lambda: lambda i: gradients(forward(i), i))
        return _gpu_sample(subject, work, lambda: forward)

    return {work: timed(work) for work in subject.works}


def _gpu_sample(
    subject: Subject, work: str, ready: Callable[[], Callable[[int], object]]
) -> Sample:
    """The GPU's own time of a call, between events, and for a small layer the time on the clock.

    The GPU first sleeps for as long as the calls take to launch, so that it then works through
    them without waiting for the host.
    """
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    call = ready()
    torch.cuda.synchronize()
    issue = subject._issue.get(work, 0.001) * subject.calls
    torch.cuda._sleep(int(min(1.5 * issue, _LONGEST_SLEEP) * _CYCLES))
    start.record()
    begun = time.perf_counter()
    kept = [call(i) for i in range(subject.calls)]
    subject._issue[work] = (time.perf_counter() - begun) / subject.calls
    end.record()
    end.synchronize()
    seconds = start.elapsed_time(end) / 1e3 / subject.calls
    del kept, call
    if _bytes(subject.inputs[0]) > _SMALL_BYTES:
        return Sample(seconds)
    call = ready()
    torch.cuda.synchronize()
    begun = time.perf_counter()
    kept = [call(i) for i in range(subject.calls)]
    torch.cuda.synchronize()
    wall = (time.perf_counter() - begun) / subject.calls
    del kept
    return Sample(seconds, wall)


def step_memory(subject: Subject) -> float:
    """On a GPU the peak of what a training step adds; on a CPU what it keeps for its backward."""
    x, grad = subject.inputs[0], subject.grads[0]
    if not subject.is_cuda:
        if any(isinstance(part, Reference) for part in subject.module.modules()):
            return math.nan  # the reference uses torch.func, which takes no hooks
        return saved_bytes(lambda: subject.module(x))
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    y = subject.module(x)
    torch.autograd.grad(y, [x, *subject.parameters], grad, allow_unused=True)
    torch.cuda.synchronize()
    return float(torch.cuda.max_memory_allocated() - before)


def saved_bytes(forward: Callable[[], Tensor]) -> float:
    """The bytes that autograd keeps of a forward pass."""
    kept: dict[int, int] = {}

    def pack(t: Tensor) -> Tensor:
        kept[t.data_ptr()] = _bytes(t)
        return t

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        forward()
    return float(sum(kept.values()))
