"""What a result was made with: versions, hardware, date and command."""

from __future__ import annotations

import datetime
import os
import platform
from contextlib import suppress
from importlib import metadata
from typing import Any

import torch

from .. import __version__
from .parallel import joined


def made(device: str, command: str) -> dict[str, Any]:
    """The record of this process, now, that a result carries.

    Args:
        device: what PyTorch calls the device that the work is on.
        command: what makes it again.

    Example:
        >>> record = made("cpu", "deu reproduce circles")
        >>> sorted(record), record["hardware"]["gpu"]
        (['command', 'date', 'hardware', 'versions'], None)
    """
    now = datetime.datetime.now(datetime.timezone.utc)
    return {
        "versions": versions(),
        "hardware": hardware(device),
        "date": now.isoformat(timespec="seconds"),
        "command": command,
    }


def versions() -> dict[str, str]:
    """Of what the numbers come from; packages that are not there are left out."""
    found = {
        "deu": __version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
    }
    if torch.version.cuda:
        found["cuda"] = torch.version.cuda
    with suppress(metadata.PackageNotFoundError):
        found["triton"] = metadata.version("triton")
    return found


def hardware(device: str) -> dict[str, Any]:
    """The processor, how many threads PyTorch uses of it, processes, and the GPU if it is used."""
    gpu = torch.cuda.get_device_name(device) if torch.device(device).type == "cuda" else None
    found = {"cpu": processor(), "threads": torch.get_num_threads(), "gpu": gpu}
    if joined():
        found["processes"] = torch.distributed.get_world_size()
    return found


def processor() -> str:
    """The model of the CPU and how many cores the system shows."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            names = [line.split(":", 1)[1].strip() for line in file if "model name" in line]
    except OSError:
        names = []
    return f"{names[0] if names else platform.machine()} ({os.cpu_count()} cores)"
