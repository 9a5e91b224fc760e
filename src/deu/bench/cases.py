"""Which layers are measured, the important ones first."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from .providers import ALONE
from .timing import BACKWARD, FORWARD

NCHW, LAST, NC, BTC = "NCHW", "channels_last", "(N, C)", "(B, T, C)"
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}

_PLAIN = ("copy", "ReLU", "GELU", "SiLU", "PReLU")
_UNITS = (
    "deu",
    "deu trained",
    "deu waves",
    "deu spread",
    "deu random",
    "deu paper",
    "deu one subspace",
    "deu pulled subspace",
    "deu ten subspaces",
)
_FEW = ("copy", "GELU", "PReLU", "deu", "deu trained", "deu waves", "deu ten subspaces")
_MAIN = (*_PLAIN, *_UNITS)
_ALL = (*_PLAIN, "Snake", "rational", *_UNITS, "deu relu", "reference", "reference compiled")
# Layers that are compared with others than a copy, or among themselves, and to whom.
# A KAN layer has a function on each edge, so it stands beside a linear layer with its activation.
_DENSE = "dense"
# With what comes before most activations of images, in one layer or two.
_NORMED = "after batch norm"
_EACH = "each subspace alone"
_GROUPS = {
    _DENSE: ("Linear + GELU", "Linear + deu", "KAN layer"),
    _NORMED: ("BatchNorm + ReLU", "BatchNorm + deu", "NormDEU"),
    _EACH: ("copy", "GELU", *ALONE, "deu ten subspaces"),
}
_BASES = {_DENSE: "Linear + GELU", _NORMED: "BatchNorm + ReLU"}

# (256, 64, 56, 56) on a GPU: forward and backward over a copy of the same tensor.
_LIMITS = {
    ("float32", NCHW): (1.05, 1.60),
    ("float32", LAST): (1.15, 1.80),
    ("bfloat16", NCHW): (1.30, 2.20),
    ("bfloat16", LAST): (1.60, 2.60),
}
_PRIMARY = (256, 64, 56, 56)


@dataclass(frozen=True)
class Case:
    """One layer: a shape in a layout and a type, and who takes part."""

    shape: tuple[int, ...]
    layout: str = NCHW
    dtype: str = "float32"
    providers: tuple[str, ...] = _FEW
    group: str = ""

    @property
    def title(self) -> str:
        found = f"{self.shape} {self.layout} {self.dtype}"
        return f"{found}, {self.group}" if self.group else found

    @property
    def dim(self) -> int:
        return len(self.shape) - 1 if self.layout == BTC else 1

    @property
    def needs(self) -> float:
        """Seconds that have to be left of a budget to begin with it."""
        return 45.0 if "reference compiled" in self.providers else 5.0

    def base(self, device: str) -> str:
        """Whom ratios are taken to: a copy on a GPU, GELU on a CPU."""
        return _BASES.get(self.group, "copy" if device == "cuda" else "GELU")

    def limits(self, device: str) -> dict[str, float]:
        """What the ratios of units are required to stay within."""
        if device != "cuda" or self.shape != _PRIMARY or self.group:
            return {}
        found = _LIMITS.get((self.dtype, self.layout))
        return dict(zip((FORWARD, BACKWARD), found, strict=True)) if found else {}


def _of(group: str, shape: tuple[int, ...], layout: str, dtype: str = "float32") -> Case:
    return Case(shape, layout, dtype, _GROUPS[group], group)


def layer_cases(device: str, quick: bool = False) -> list[Case]:
    """The layers to measure on a device."""
    if quick:
        return _quick()
    return _gpu() if device == "cuda" else _cpu()


def _gpu() -> list[Case]:
    big, image, text = _PRIMARY, (64, 64, 32, 32), (32, 512, 1024)
    return [
        Case(big, NCHW, "float32", (*_PLAIN, "Snake", "rational", *_UNITS)),
        Case(big, LAST, "float32", _MAIN),
        Case(big, NCHW, "bfloat16", _MAIN),
        Case(big, LAST, "bfloat16", _MAIN),
        _of(_NORMED, big, NCHW, "float32"),
        _of(_NORMED, big, LAST, "bfloat16"),
        Case((128, 16), NC, "float32"),
        Case(image, NCHW, "float32", _ALL),
        Case(image, LAST, "bfloat16"),
        Case((16384, 1024), NC, "float32"),
        Case((16384, 1024), NC, "bfloat16"),
        Case(text, BTC, "float32"),
        Case(text, BTC, "bfloat16"),
        _of(_DENSE, (4096, 64), NC, "float32"),
        _of(_NORMED, big, LAST, "float32"),
        _of(_NORMED, big, NCHW, "bfloat16"),
        Case((512, 128, 56, 56), NCHW, "float32"),
        Case((512, 128, 56, 56), LAST, "bfloat16"),
        Case(big, NCHW, "float16"),
        Case(big, LAST, "float16"),
        Case((64, 64, 8, 8), NCHW, "float32"),
        Case((4096, 64), NC, "bfloat16"),
        Case((4096, 64), NC, "float16"),
        Case(text, BTC, "float16"),
        *(_of(_EACH, big, layout, dtype) for dtype, layout in _LIMITS),
    ]


def _cpu() -> list[Case]:
    image, text = (64, 64, 32, 32), (16, 128, 512)
    return [
        Case(image, NCHW, "float32", (*_PLAIN, "Snake", "rational", *_UNITS, "deu relu")),
        Case(image, LAST, "float32", (*_MAIN, "deu relu")),
        Case((128, 16), NC, "float32", (*_PLAIN, "Snake", *_UNITS, "reference")),
        Case((128, 1024), NC, "float32", _MAIN),
        Case(image, NCHW, "bfloat16", _MAIN),
        Case(image, LAST, "bfloat16"),
        Case((4096, 256), NC, "float32"),
        Case(text, BTC, "float32"),
        # Smaller: the reference takes seconds for the image above.
        Case((8, 64, 32, 32), NCHW, "float32", _ALL),
        _of(_DENSE, (4096, 64), NC, "float32"),
        Case(image, NCHW, "float16"),
        Case((4096, 256), NC, "bfloat16"),
        Case(text, BTC, "bfloat16"),
        Case((64, 64, 8, 8), NCHW, "float32"),
        Case(_PRIMARY, NCHW, "float32"),
        _of(_EACH, image, NCHW),
    ]


def _quick() -> list[Case]:
    image = (16, 16, 16, 16)
    return [
        Case(image, NCHW, "float32", _ALL),
        Case(image, LAST, "float32"),
        Case(image, NCHW, "bfloat16"),
        Case(image, NCHW, "float16"),
        Case((128, 16), NC, "float32"),
        Case((4, 64, 64), BTC, "float32"),
        _of(_DENSE, (256, 16), NC, "float32"),
        _of(_NORMED, image, NCHW, "float32"),
    ]
