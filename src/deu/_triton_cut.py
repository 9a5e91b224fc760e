"""How the work of a call on a GPU is cut: how its tensors lie, its tiles and its programs."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from ._layout import Strides, common_layout
from ._settings import Settings


class Tiling(NamedTuple):
    """How a call is cut into programs; found by measuring, see ``docs/speed.md``."""

    warps: int
    elements: int  # of a tile, a thread; backward takes it in parts, see _triton_walks.py
    programs: int  # at most about so many a multiprocessor
    registers: int  # at most so many a thread
    stages: int  # tiles on their way at once
    together: int = 16  # channels along memory: at most so many neighbours are one thread's


_LARGE = 2**24  # elements


def tiling_of(t: Tensor, settings: Settings, lanes: bool, backward: bool) -> Tiling:
    """How a tensor is cut, with its channels along memory (``lanes``) or not.

    There are as many programs as run at once, since each begins slowly.  In a large tensor with one
    channel to a program there are more, because some take far longer than others: those in
    float64, of which the paper's solution has more.
    """
    size, large = t.element_size(), t.numel() >= _LARGE
    continuous = settings.solution == "continuous"
    if not backward:
        return _forward(size, large, lanes, continuous)
    if lanes and size == 8:
        return Tiling(4, 4, 3, 168, 2)
    if lanes and size == 2:
        return Tiling(4, 8, 3, 168, 4, together=8)
    if lanes:
        # A thread with two channels instead of four keeps their constants in its registers; the
        # paper's rows have more of them.
        if not continuous:
            return Tiling(4, 4, 3, 168, 4, together=2)
        warps = 8 if large else 4  # fewer programs leave fewer sums
        return Tiling(warps, 4, 16 // warps, 128, 4, together=2)
    if size == 2 and not large:
        return Tiling(2, 8, 8, 128, 4)
    if size == 2:
        # More warps that do the same, of kinds that take many instructions, which a multiprocessor
        # holds few of.
        return Tiling(4, 8, 16, 128, 4) if continuous else Tiling(8, 8, 10, 128, 4)
    if not large:
        return Tiling(2, 4, 8, 128, 4) if continuous else Tiling(4, 4, 4, 128, 4)
    return Tiling(4, 4, 15, 96, 4) if continuous else Tiling(4, 4, 20, 128, 5)


def _forward(size: int, large: bool, lanes: bool, continuous: bool) -> Tiling:
    if lanes and large and size == 2:
        return Tiling(4, 16, 8, 128, 4) if continuous else Tiling(2, 16, 12, 128, 4, together=4)
    if lanes and large and size == 4:
        return Tiling(4, 8, 32, 128, 4) if continuous else Tiling(4, 8, 16, 128, 5)
    if lanes:
        return Tiling(4, 16 if size == 2 else 8, 4, 128, 4)
    if size == 2 and continuous:
        return Tiling(2, 16, 32 if large else 8, 96, 5)
    if not large:
        return Tiling(4, 8, 6, 80, 5 if size == 2 else 4)
    if size == 2:
        return Tiling(4, 16, 8, 128, 5)
    return Tiling(4, 8, 32, 128, 5)


def tiling_with_norm(t: Tensor, settings: Settings, lanes: bool, step: str) -> Tiling:
    """The same for batch norm and a unit in one.

    ``step`` is "measure", "forward", "backward", or "onward", the second walk of that.
    """
    if step == "measure":
        return Tiling(4, 8, 8, 64, 4)
    return tiling_of(t, settings, lanes, step != "forward")


_WORTH_A_PROGRAM = 8192  # elements: fewer would make more sums to keep than they save time


class Layout(NamedTuple):
    sizes: tuple[int, int, int]
    strides: list[Strides]  # of each tensor
    lanes: bool
    flat: bool
    wide: bool
    width: int  # neighbours in memory that may be loaded at once


def lie(
    out: Tensor, sources: tuple[Tensor, ...], channels: int, dim: int
) -> tuple[Layout, list[bool]] | None:
    """How all tensors of a call lie, and which sources must be copied into out's order first."""
    found = common_layout(out, sources, channels, dim)
    if found is None:
        return None
    sizes, strides, copies = found
    outer, _, inner = sizes
    lanes = channels > 1 and all(s[1] == 1 for s in strides) and not all(s[2] == 1 for s in strides)
    flat = outer == 1 or all(s[0] == inner * s[2] for s in strides)
    width = 1
    if not lanes and all(s[2] == 1 for s in strides):
        width = 16 // out.element_size()
        together = outer * inner if flat else inner
        while width > 1 and (
            together % width
            or any(s[1] % width for s in strides)
            or (not flat and any(s[0] % width for s in strides))
        ):
            width //= 2
    reach = max(sum((n - 1) * abs(step) for n, step in zip(sizes, s, strict=True)) for s in strides)
    wide = reach + 65536 >= 2**31 or outer * channels * inner + 65536 >= 2**31
    return Layout(sizes, strides, lanes, flat, wide, width), copies


def cut(lies: Layout, tiling: Tiling, processors: int) -> tuple[int, int, int, int, int]:
    """The tile's height and width, the positions of a share, the shares, the programs."""
    outer, channels, inner = lies.sizes
    positions = outer * inner
    size = 32 * tiling.warps * tiling.elements
    if lies.lanes:
        width = min(64, 1 << (channels - 1).bit_length())
        height = max(1, size // width)
        step, blocks = height, -(-channels // width)
    else:
        width = lies.width
        height = max(1, size // width)
        step, blocks = height * width, channels
    wanted = max(1, processors * tiling.programs // blocks)
    worth = max(1, _WORTH_A_PROGRAM // (width if lies.lanes else 1))
    share = max(-(-positions // wanted), worth)
    share = -(-share // step) * step
    shares = -(-positions // share)
    return height, width, share, shares, shares * blocks


def is_even(lies: Layout, height: int, width: int) -> bool:
    """Whether tiles of this size cover the tensor with nothing over."""
    outer, channels, inner = lies.sizes
    if lies.lanes:
        return outer * inner % height == 0 and channels % width == 0
    return outer * inner % (height * width) == 0
