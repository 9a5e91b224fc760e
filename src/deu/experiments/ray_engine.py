"""Runs cells as tasks on a Ray cluster: the one that ``RAY_ADDRESS`` names, or one started here.

The driver writes the results, so a cell whose worker dies and that runs again counts once.  Where
workers see the driver's folder, such a cell goes on from its checkpoint; elsewhere it starts anew.
"""

from __future__ import annotations

import importlib
import os
import re
import socket
from collections.abc import Generator, Iterator, Sequence
from typing import Any

import torch

from .cells import Result
from .engine import Done, Engine, EngineError, Failed, Task, ends_all, failed, run_task

RETRIES = 3  # of a cell whose worker or machine dies
REACH = 5.0  # seconds that a cluster's address has to answer in


def on_ray(jobs: int | None = None) -> Engine:
    """The engine.

    Args:
        jobs: how many cells at a time where the cluster is started here; ``None``: a core each.
    """

    def engine(tasks: Sequence[Task]) -> Generator[Done, None, None]:
        if not tasks:
            return
        ray = get_ray()
        gpu = torch.device(tasks[0].place.device).type == "cuda"
        own = not ray.is_initialized()
        if own:
            _connect(ray, jobs, gpu)
        try:
            yield from _results(ray, tasks, gpu)
        finally:
            if own:
                ray.shutdown()  # ends what still runs

    return engine


def get_ray() -> Any:
    """The module ray, or an error that says how to get it."""
    try:
        return importlib.import_module("ray")
    except ImportError as error:
        raise EngineError("--engine ray needs Ray: pip install 'deu[ray]'") from error


def _connect(ray: Any, jobs: int | None, gpu: bool) -> None:
    # Ray's way from its next version on, which it warns of: tasks without a GPU keep what they see.
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    if address := os.environ.get("RAY_ADDRESS"):
        _reach(address)
        try:
            ray.init(address="auto", log_to_driver=False)  # which reads that variable
        except (ConnectionError, ValueError) as error:
            raise EngineError(
                f"no Ray cluster lets this in at RAY_ADDRESS={address}: {error}; see that it is "
                "up, and that Ray's own authentication is set up here as it is there "
                "(RAY_AUTH_MODE=token where `ray start` asks for a token)"
            ) from error
        return
    if gpu and not torch.cuda.is_available():
        raise EngineError(
            "--device cuda: PyTorch finds no CUDA device here, nor is RAY_ADDRESS set"
        )
    ray.init(
        address="local",
        num_cpus=jobs,
        include_dashboard=False,
        log_to_driver=False,
        configure_logging=False,
    )


def _reach(address: str) -> None:
    """Refuse an address where nothing listens, for which Ray would wait minutes."""
    found = re.fullmatch(r"(?:ray://)?\[?([^/]+?)\]?:(\d+)", address)
    if found is None:
        return  # "auto" and the like
    try:
        socket.create_connection((found[1], int(found[2])), REACH).close()
    except (OSError, OverflowError) as error:  # of a port that cannot be
        why = getattr(error, "strerror", None) or error
        raise EngineError(
            f"nothing answers at RAY_ADDRESS={address} ({why}); see that the cluster is up"
        ) from error


def _results(ray: Any, tasks: Sequence[Task], gpu: bool) -> Iterator[Done]:
    home = ray.get_runtime_context().get_node_id()
    remote = ray.remote(num_cpus=1, num_gpus=int(gpu), max_retries=RETRIES)(_run_there)
    waiting = {remote.remote(task, home): task for task in tasks}
    while waiting:
        (ready,), _ = ray.wait(list(waiting), num_returns=1)
        task = waiting.pop(ready)
        try:
            result = ray.get(ready)
        except ray.exceptions.RayTaskError as error:
            if isinstance(error.cause, Exception) and ends_all(error.cause):
                raise error.cause from error
            result = failed(error)
        except ray.exceptions.RayError as error:  # its worker died too often
            result = failed(error)
        yield task, result


def _run_there(task: Task, home: str) -> Result | Failed:
    """Run a cell in a worker.  On another machine the driver cannot delete the checkpoint."""
    import ray

    result = run_task(task)
    away = ray.get_runtime_context().get_node_id() != home
    if away and isinstance(result, Result) and task.place.checkpoint is not None:
        task.place.checkpoint.unlink(missing_ok=True)
    return result
