"""Compiles kernels in the background, so that those of a training step are compiled side by side.

Triton compiles a kernel when it is first called, for seconds, and a training step of a layer takes
three kernels or six.  So all of them are begun with the first call of the forward pass, each in a
thread of its own, as far as there are cores; a call waits for its own kernel alone.
"""

from __future__ import annotations

import os
import threading
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from typing import Any

import torch

_THREADS = 8  # at most: there is little more to do at once
_lock = threading.Lock()
_pool: ThreadPoolExecutor | None = None
_begun: dict[tuple[Any, ...], Future[None]] = {}


def begin(
    kernel: Any,
    options: dict[str, Any],
    types: tuple[torch.dtype, ...],
    fixed: tuple[Any, ...],
    device: torch.device,
) -> Future[None] | None:
    """Begin to compile a kernel for tensors of these types and what is fixed.

    None if it would not help; the same, if layers that differ in nothing that matters ask for it.
    """
    global _pool
    if not _is_wanted(device):
        return None
    after = kernel.params[len(types) :]
    sorts = tuple(_sort(p.is_constexpr, value) for p, value in zip(after, fixed, strict=True))
    key = (kernel, device, types, sorts, *sorted(options.items()))
    with _lock:
        job = _begun.get(key)
        if job is None or job.cancelled():
            try:
                if _pool is None:
                    _pool = _new_pool()
                job = _pool.submit(_compile, kernel, options, types, fixed, device)
            except RuntimeError:  # no more threads are to be had, or the interpreter is ending
                return None
            _begun[key] = job
    return job


def wait(job: Future[None]) -> None:
    """Until it has been compiled.  If that failed, so it will for whoever calls, who is told."""
    try:
        job.exception()
    except CancelledError:
        pass
    except (KeyboardInterrupt, SystemExit):
        _leave_the_rest()
        raise


def _leave_the_rest() -> None:
    """Cancel what has not begun yet: nobody waits for it any more."""
    with _lock:
        for job in _begun.values():
            job.cancel()


def _new_pool() -> ThreadPoolExecutor:
    # Python ends when the pool's threads have done all that there is to do.  Of what has to be
    # called before it waits for them there is no public way to tell it.
    call_before = getattr(threading, "_register_atexit", None)
    if call_before is not None:
        call_before(_leave_the_rest)
    return ThreadPoolExecutor(min(_THREADS, _cores()), "deu-compile")


def _is_wanted(device: torch.device) -> bool:
    # AMD's compiler looks at where tensors lie, which is not known yet.
    return device.type == "cuda" and torch.version.hip is None and _cores() > 1


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _sort(constant: bool, value: Any) -> Any:
    """What of an argument Triton compiles in."""
    if constant or not isinstance(value, int):
        return value if constant else type(value)
    return value == 1, value % 16 == 0, value.bit_length() > 31


def _compile(
    kernel: Any,
    options: dict[str, Any],
    types: tuple[torch.dtype, ...],
    fixed: tuple[Any, ...],
    device: torch.device,
) -> None:
    with torch.cuda.device(device):
        kernel.warmup(*types, *fixed, grid=(1,), **options)
