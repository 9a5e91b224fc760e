"""MNIST's own format: big-endian sizes, then bytes."""

from __future__ import annotations

import math
import struct
from pathlib import Path

import torch
from torch import Tensor

from .published import damaged

_BYTES = 0x08  # the format's name for unsigned bytes, the one type that is read here


def read_idx(path: Path, content: bytearray, dimensions: int) -> Tensor:
    """The array of an idx file, uint8; ``path`` is for the error where it is not one.

    Example:
        >>> content = bytearray(b"\\0\\0\\x08\\x02" + b"\\0\\0\\0\\x01" + b"\\0\\0\\0\\x02" + b"ab")
        >>> read_idx(Path("a"), content, 2)
        tensor([[97, 98]], dtype=torch.uint8)
    """
    start = 4 + 4 * dimensions
    if len(content) < start:
        raise damaged(path, f"it has {len(content)} bytes, and its header alone takes {start}")
    magic, *shape = struct.unpack(f">{1 + dimensions}I", content[:start])
    wanted = _BYTES << 8 | dimensions
    if magic != wanted:
        raise damaged(path, f"it begins with the number {magic}, and such a file with {wanted}")
    if len(content) - start != math.prod(shape):
        size = " × ".join(map(str, shape))
        raise damaged(path, f"it says {size} bytes and holds {len(content) - start:,}")
    return torch.frombuffer(content, dtype=torch.uint8)[start:].reshape(shape)
