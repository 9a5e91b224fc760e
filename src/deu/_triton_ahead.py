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
            if _pool is None:
                _pool = ThreadPoolExecutor(min(_THREADS, _cores()), "deu-compile")
            job = _pool.submit(_compile, kernel, options, types, fixed, device)
            _begun[key] = job
    return job


def wait(job: Future[None]) -> None:
    """Until it has been compiled.  If that failed, so it will for whoever calls, who is told."""
    try:
        job.exception()
    except CancelledError:
        pass
    except BaseException:  # Ctrl-C: nobody waits for the others any more
        with _lock:
            for other in _begun.values():
                other.cancel()
        raise


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
