"""How the tensors of a call lie in memory: what the CPU's and the GPU's kernels walk along."""

from __future__ import annotations

import torch
from torch import Tensor

DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)  # of the kernels

Strides = tuple[int, int, int]


def _collapse(shape: tuple[int, ...], stride: tuple[int, ...]) -> tuple[int, int] | None:
    """Neighbouring dimensions as one: its size and stride, or None if strides do not allow it."""
    size, step = 1, 1
    for n, s in zip(reversed(shape), reversed(stride), strict=True):
        if n == 1:
            continue
        if size == 1:
            size, step = n, s
        elif s == step * size:
            size *= n
        else:
            return None
    return size, step


def _layout(x: Tensor, dim: int, channels: int) -> tuple[tuple[int, int, int], Strides] | None:
    """(outer, channels, inner) sizes and strides of x, or None if it must be copied first."""
    if channels == 1:
        if x.is_contiguous() or _is_dense(x):
            return (1, 1, x.numel()), (0, 0, 1)
        flat = _collapse(tuple(x.shape), x.stride())
        return None if flat is None else ((1, 1, flat[0]), (0, 0, flat[1]))
    shape, stride = tuple(x.shape), x.stride()
    outer = _collapse(shape[:dim], stride[:dim])
    inner = _collapse(shape[dim + 1 :], stride[dim + 1 :])
    if outer is None or inner is None:
        return None
    if inner[0] == 1:  # (N, C): walk along what there is
        outer, inner = (1, 0), outer
    return (outer[0], channels, inner[0]), (outer[1], stride[dim], inner[1])


def _is_dense(x: Tensor) -> bool:
    """Whether x fills its memory without gaps or overlaps, in whatever order."""
    expected = 1
    for step, size in sorted(zip(x.stride(), x.shape, strict=True)):
        if size != 1:
            if step != expected:
                return False
            expected *= size
    return True


def common_layout(
    out: Tensor, sources: tuple[Tensor, ...], channels: int, dim: int
) -> tuple[tuple[int, int, int], list[Strides], list[bool]] | None:
    """Sizes, the strides of each source and of out, and which sources to copy into out's order.

    None if the kernels cannot walk along ``out``: then everything has to be made contiguous.
    """
    dim = dim % out.ndim if out.ndim and channels > 1 else 0
    found = _layout(out, dim, channels)
    if found is None:
        return None
    sizes, out_strides = found
    strides, copies = [], []
    for x in sources:
        same_order = channels > 1 or x.stride() == out.stride()
        lies = _layout(x, dim, channels) if same_order else None
        fits = lies is not None and lies[0] == sizes
        strides.append(lies[1] if lies is not None and fits else out_strides)
        copies.append(not fits)
    return sizes, [*strides, out_strides], copies


def in_order_of(x: Tensor, out: Tensor) -> Tensor:
    """A copy of x that lies in memory as ``out`` does."""
    return torch.empty_strided(out.shape, out.stride(), dtype=x.dtype, device=x.device).copy_(x)


def plain(x: Tensor) -> Tensor:
    """x itself, or a copy if its memory holds the negative of it."""
    return x.resolve_neg() if x.is_neg() else x


def uniform(coefficients: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """The five coefficients contiguous and of one type."""
    a, b, c, c1, c2 = coefficients
    dtype = a.dtype
    # Spelt out: a generator would cost as much as all of it, and this is most of what is called.
    if not (
        b.dtype is dtype
        and c.dtype is dtype
        and c1.dtype is dtype
        and c2.dtype is dtype
        and dtype in DTYPES
    ):
        a, b, c, c1, c2 = (p.to(torch.float64) for p in coefficients)
    if a.is_neg() or b.is_neg() or c.is_neg() or c1.is_neg() or c2.is_neg():
        a, b, c, c1, c2 = (p.resolve_neg() for p in (a, b, c, c1, c2))
    if (
        a.is_contiguous()
        and b.is_contiguous()
        and c.is_contiguous()
        and c1.is_contiguous()
        and c2.is_contiguous()
    ):
        return a, b, c, c1, c2
    return tuple(p.contiguous() for p in (a, b, c, c1, c2))
