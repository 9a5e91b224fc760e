"""Runs cells: each result goes into its file once, and what is there already is left as it is.

A cell is run by :func:`run_task`, wherever that is: :func:`here` in this process, by
:func:`processes` in others beside it, by :mod:`~deu.experiments.ray_engine` on a cluster.  Only
:func:`run`, in one process, writes results.
"""

from __future__ import annotations

import errno
import multiprocessing
import os
import signal
import threading
import time
import traceback
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock, Timeout

from .cells import Cell, Result, another_cell, read_result, result_path, write_result
from .data import DataError
from .environment import made
from .experiment import Place
from .parallel import joined, rank
from .progress import Display
from .registry import imported
from .training import CheckpointError

CHECKPOINTS = ".checkpoints"  # in the folder of results
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # what a disk without room says


class EngineError(RuntimeError):
    """Cells that cannot be run as was asked."""


@dataclass(frozen=True)
class Task:
    """A cell to run.  ``spec`` is the experiment, as the registry writes it."""

    spec: str
    cell: Cell
    place: Place
    command: str = ""

    @property
    def label(self) -> str:
        return f"{self.cell.experiment} {self.cell.label}"


@dataclass(frozen=True)
class Failed:
    """Instead of a result: why there is none."""

    why: str
    trace: str = ""


@dataclass
class Summary:
    """What became of the cells.  ``failed`` has labels and reasons."""

    run: int = 0
    kept: int = 0
    failed: list[tuple[str, str]] = field(default_factory=list)


Done = tuple[Task, Result | Failed]
Engine = Callable[[Sequence[Task]], Generator[Done, None, None]]


def checkpoint_path(folder: Path, cell: Cell) -> Path:
    """Where a cell's checkpoint lies while it runs."""
    return folder / CHECKPOINTS / cell.experiment / f"{cell.name}.pt"


def run_task(task: Task) -> Result | Failed:
    """Run a cell in this process.

    Raises:
        DataError, CheckpointError, OSError: what other cells would meet as well, so all end.
    """
    cell, place = task.cell, task.place
    taken_up = place.checkpoint is not None and place.checkpoint.exists()
    place.progress("starts" if not taken_up else "goes on from its checkpoint")
    torch.manual_seed(cell.seeds[0])
    start = time.perf_counter()
    try:
        outcome = imported(task.spec).run(cell, place)
    except Exception as error:
        if ends_all(error):
            raise
        return failed(error)
    seconds = time.perf_counter() - start
    record: dict[str, Any] = made(place.device, task.command)
    if taken_up:
        record["resumed"] = True  # the time is that of the last part
    return Result(
        cell,
        outcome.metrics,
        outcome.history,
        outcome.parameters,
        outcome.curves,
        seconds,
        record,
    )


def ends_all(error: Exception) -> bool:
    """Whether an error is one that the other cells would meet as well, or would wait for."""
    if isinstance(error, DataError | CheckpointError):
        return True
    if isinstance(error, OSError) and error.errno in FULL:
        return True
    return joined()


def failed(error: Exception) -> Failed:
    """An error as what became of a cell."""
    return Failed(
        f"{type(error).__name__}: {error}", "".join(traceback.format_exception(error)).rstrip()
    )


def run(tasks: Sequence[Task], folder: Path, engine: Engine, display: Display) -> Summary:
    """Run the tasks that have no result in a folder, and put their results there.

    Under ``torchrun`` all processes call this alike; the first of them writes.

    Args:
        tasks: their places' checkpoints are set here.
        folder: of results, as :func:`~deu.experiments.cells.read_results` takes it.
        engine: what runs them.
        display: what is told of it.

    Raises:
        EngineError: another command runs the same experiment into the same folder.
        ResultError: a result that is there is damaged; nothing has been run.
        DataError, CheckpointError, OSError: as they came up; results before them are kept.
    """
    unique = {result_path(folder, task.cell): task for task in tasks}
    summary = Summary()
    with ExitStack() as stack:
        if rank() == 0:
            for name in dict.fromkeys(task.cell.experiment for task in tasks):
                stack.enter_context(_alone(folder, name))
        there = _shared([str(path) for path, task in unique.items() if _has(path, task.cell)])
        todo = [
            replace(task, place=replace(task.place, checkpoint=checkpoint_path(folder, task.cell)))
            for path, task in unique.items()
            if str(path) not in there
        ]
        summary.kept = len(there)
        display.begin(len(unique), len(there))
        stack.callback(display.end)
        with closing(engine(todo)) as done:
            for task, result in done:
                if isinstance(result, Result) and rank() == 0:
                    result = _keep(folder, task, result)
                if isinstance(result, Failed):
                    summary.failed.append((task.label, result.why))
                    display.failed(task.label, result.why, result.trace)
                else:
                    summary.run += 1
                    display.finished(task.label, result)
    return summary


def _has(path: Path, cell: Cell) -> bool:
    """Whether a cell's result is there, whole and of that cell."""
    if not path.exists():
        return False
    if read_result(path).cell.identity != cell.identity:
        raise another_cell(path)
    return True


def _keep(folder: Path, task: Task, result: Result) -> Result | Failed:
    """Write a result; the checkpoint has then done its work."""
    try:
        write_result(folder, result)
    except (TypeError, ValueError) as error:  # it holds something that JSON does not
        return failed(error)
    checkpoint = checkpoint_path(folder, task.cell)
    checkpoint.unlink(missing_ok=True)
    for part in checkpoint.parent.glob(f"{checkpoint.name}.*.part"):  # of a run that was killed
        part.unlink(missing_ok=True)
    return result


@contextmanager
def _alone(folder: Path, name: str) -> Iterator[None]:
    """Keep other commands from running an experiment into the same folder."""
    path = folder / CHECKPOINTS / f"{name}.lock"
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(path, timeout=0)
    try:
        lock.acquire()
    except Timeout as error:
        raise EngineError(
            f"another command is running {name} into {folder}; wait for it, or choose another "
            "folder with --out"
        ) from error
    try:
        yield
    finally:
        lock.release()


def _shared(value: Any) -> Any:
    """The first process's value, in all of them."""
    if not joined():
        return value
    values = [value]
    torch.distributed.broadcast_object_list(values)
    return values[0]


def here(display: Display) -> Engine:
    """One after another in this process; under ``torchrun``, each in all processes together."""

    def engine(tasks: Sequence[Task]) -> Generator[Done, None, None]:
        for task in tasks:
            place = replace(task.place, progress=display.hook(task.label))
            result = run_task(replace(task, place=place))
            if joined():
                torch.distributed.barrier()  # all have read the checkpoint before it is deleted
            yield task, result

    return engine


def processes(jobs: int) -> Engine:
    """So many at a time, each in a process of its own on this machine."""

    def engine(tasks: Sequence[Task]) -> Generator[Done, None, None]:
        others = multiprocessing.active_children()
        threads = max(1, torch.get_num_threads() // jobs)
        pool = ProcessPoolExecutor(
            jobs, multiprocessing.get_context("spawn"), initializer=_start, initargs=(threads,)
        )
        waiting = {pool.submit(run_task, task): task for task in tasks}
        try:
            for future in as_completed(waiting):
                yield waiting[future], future.result()
        except BaseException as error:
            pool.shutdown(wait=False, cancel_futures=True)
            for child in multiprocessing.active_children():
                if child not in others:
                    child.terminate()
            if isinstance(error, BrokenProcessPool):
                raise EngineError(
                    "a process of --jobs died, killed or out of memory; the same command goes on "
                    "from there, with fewer jobs perhaps"
                ) from error
            raise
        pool.shutdown()

    return engine


def _start(threads: int) -> None:
    """What a process of :func:`processes` does first."""
    torch.set_num_threads(threads)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends it
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
