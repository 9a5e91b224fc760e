"""Kernels are compiled in the background, those of a training step side by side."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

import deu
from deu import _triton_ahead
from deu._triton_launch import Launch

DEVICE = torch.device("cuda", 0)
ROOT = Path(__file__).parents[1]


class Kernel:
    """As Triton's: of one tensor, a number, and a number that is compiled in."""

    params = tuple(SimpleNamespace(is_constexpr=constant) for constant in (False, False, True))

    def __init__(self, during: Any = lambda: None) -> None:
        self.during = during
        self.compiled: list[tuple[Any, ...]] = []
        self.called = 0

    def warmup(self, *arguments: Any, grid: tuple[int], **options: Any) -> None:
        self.during()
        self.compiled.append(arguments)

    def __getitem__(self, grid: tuple[int]) -> Any:
        return self.call

    def call(self, *arguments: Any, **options: Any) -> None:
        assert self.compiled, "called before it was compiled"
        self.called += 1


def begin(kernel: Kernel, number: int = 32, constant: int = 1) -> Future[None]:
    job = _triton_ahead.begin(
        kernel, {"num_warps": 4}, (torch.float32,), (number, constant), DEVICE
    )
    assert job is not None
    return job


@pytest.fixture(autouse=True)
def _two_cores(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    if request.node.get_closest_marker("gpu"):
        yield
        return
    monkeypatch.setattr(_triton_ahead, "_cores", lambda: 2)
    monkeypatch.setattr(_triton_ahead, "_pool", None)
    monkeypatch.setattr(_triton_ahead, "_begun", {})
    monkeypatch.setattr(torch.cuda, "device", lambda device: contextlib.nullcontext())
    yield
    if _triton_ahead._pool is not None:
        _triton_ahead._pool.shutdown()


def test_two_are_compiled_at_once() -> None:
    both = threading.Barrier(2, timeout=30)  # broken unless both wait at it together
    jobs = [begin(Kernel(both.wait)) for _ in range(2)]
    assert [job.exception() for job in jobs] == [None, None]


@pytest.mark.parametrize(
    ("number", "constant", "same"),
    [
        (32, 1, True),
        (48, 1, True),
        (33, 1, False),
        (1, 1, False),
        (2**40, 1, False),
        (32, 2, False),
    ],
)
def test_what_differs_in_nothing_that_matters_is_compiled_once(
    number: int, constant: int, same: bool
) -> None:
    kernel = Kernel()
    assert (begin(kernel, number, constant) is begin(kernel)) == same
    assert begin(Kernel()) is not begin(kernel)


def test_a_launch_waits_for_its_kernel() -> None:
    go = threading.Event()
    kernel = Kernel(lambda: go.wait(30))
    launch = Launch(kernel, 7, {"num_warps": 4}, (torch.float32,), 32, 1)
    launch.begin(DEVICE)
    threading.Timer(0.2, go.set).start()
    launch(True, 0, torch.zeros(1))
    launch(True, 0, torch.zeros(1))
    assert (kernel.compiled, kernel.called) == ([(torch.float32, 32, 1)], 2)


def test_where_there_is_no_gpu_nothing_is_begun() -> None:
    kernel = Kernel()
    launch = Launch(kernel, 7, {}, (torch.float32,), 32, 1)
    launch.begin(torch.device("cpu"))
    assert launch.ahead is None
    assert not kernel.compiled


def test_an_error_comes_up_where_the_kernel_is_called() -> None:
    kernel = Kernel(lambda: 1 / 0)
    launch = Launch(kernel, 7, {}, (torch.float32,), 32, 1)
    launch.begin(DEVICE)
    with pytest.raises(AssertionError, match="called before"):
        launch(True, 0, torch.zeros(1))


def test_ctrl_c_leaves_no_others_to_wait_for(monkeypatch: pytest.MonkeyPatch) -> None:
    go = threading.Event()
    running = [begin(Kernel(lambda: go.wait(30))) for _ in range(2)]
    later = Kernel()
    waiting = begin(later)

    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(running[0], "exception", interrupted)
    with pytest.raises(KeyboardInterrupt):
        _triton_ahead.wait(running[0])
    assert waiting.cancelled()
    go.set()
    _triton_ahead.wait(waiting)  # does not raise: the call compiles
    assert not later.compiled
    _triton_ahead.wait(begin(later))
    assert later.compiled


def test_without_threads_nothing_is_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    def none_left(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", none_left)
    launch = Launch(Kernel(), 7, {}, (torch.float32,), 32, 1)
    launch.begin(DEVICE)
    assert launch.ahead is None


ENDING = """
import contextlib, threading, time
import torch
from tests.test_ahead import DEVICE, Kernel, begin
from deu import _triton_ahead
_triton_ahead._cores = lambda: 2
torch.cuda.device = lambda device: contextlib.nullcontext()
{}
"""
LATE = """
def late():
    threading.main_thread().join()
    for number in range(2):
        print(_triton_ahead.begin(Kernel(), {}, (torch.float32,), (32, number), DEVICE))
threading.Thread(target=late).start()
"""
MANY = """
for number in range(2):
    begin(Kernel(lambda: time.sleep(0.5)), constant=number)
for number in range(20):
    begin(Kernel(lambda: print("compiled")), constant=number)
"""


@pytest.mark.parametrize(("program", "says"), [(LATE, "None\nNone\n"), (MANY, "")])
def test_when_python_ends(program: str, says: str) -> None:
    """Nothing can be begun any more; and what has not been is left, instead of waited for."""
    run = [sys.executable, "-c", ENDING.format(program)]
    done = subprocess.run(run, capture_output=True, text=True, timeout=120, cwd=ROOT, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, says, "")


def _kernels() -> list[Any]:
    from deu._triton_finish import finish
    from deu._triton_kernels import backward, forward
    from deu._triton_norm_kernels import (
        measure,
        norm_backward,
        norm_finish,
        norm_forward,
        settle,
    )

    return [forward, backward, finish, measure, settle, norm_forward, norm_backward, norm_finish]


@pytest.mark.gpu
@pytest.mark.parametrize("norm", [False, True], ids=["", "norm"])
@pytest.mark.parametrize("last", [False, True], ids=["NCHW", "channels_last"])
def test_backward_finds_what_was_compiled_ahead(norm: bool, last: bool) -> None:
    unit = deu.DEU(8, sharpness=99.0 + norm + 2 * last)  # which no other test has compiled
    layer = (deu.NormDEU(nn.BatchNorm2d(8), unit) if norm else unit).cuda()
    x = torch.randn(4, 8, 16, 16, device="cuda", requires_grad=True)
    y = layer(x.to(memory_format=torch.channels_last) if last else x)
    for job in _triton_ahead._begun.values():
        assert job.exception() is None

    def compiled() -> int:
        return sum(len(kernel.device_caches[y.device.index][0]) for kernel in _kernels())

    before = compiled()
    y.square().sum().backward()
    torch.cuda.synchronize()
    assert compiled() == before
