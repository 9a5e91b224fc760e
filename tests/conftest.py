"""What the tests share: a seed, threads, limits, units of every subspace, gradients by name."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor

from . import interpreter as triton_interpreter

GPU = torch.cuda.is_available()
if not GPU:  # before anything imports Triton: its kernels then run in its interpreter
    os.environ.setdefault("TRITON_INTERPRET", "1")

# Of tests that run the Triton kernels, wherever that can be.
KERNELS = [
    pytest.mark.skipif(
        not GPU and os.environ.get("TRITON_INTERPRET") != "1", reason="neither GPU nor interpreter"
    ),
    pytest.mark.usefixtures("interpreter"),
]

NAMES = ("a", "b", "c", "c1", "c2")

# Other limits than the defaults, which do not show where one is not passed on.
LIMITS = {"max_exponent": 3.0, "bound": 20.0, "max_grad_norm": 0.1}

# One unit or more of every row of the paper's table, with either sign where signs matter.
SUBSPACES = [
    (0.0, 0.0, 0.7),
    (0.0, -0.8, 0.0),
    (0.0, 0.9, 0.6),
    (0.6, 0.0, 0.0),
    (0.5, 0.0, 1.2),
    (0.7, 0.0, -0.5),
    (0.8, 0.6, 0.0),
    (0.4, 0.3, 0.9),
    (0.5, 1.0, 0.5),
    (0.3, 1.1, 0.4),
    (-0.5, 0.4, 0.8),
    (0.0, 0.0, 0.0),
    (0.004, 0.7, -0.003),
]


def pytest_configure(config: pytest.Config) -> None:
    """Workers of xdist share the cores, so each keeps to one thread."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


@pytest.fixture
def interpreter() -> Iterator[None]:
    """Triton's interpreter, where there is no GPU; it warns of numbers that are chosen from."""
    if GPU:
        yield
        return
    np = pytest.importorskip("numpy")
    triton_interpreter.prepare()
    with np.errstate(all="ignore"):
        yield


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that need a GPU run where there is one, and say so where there is none."""
    if not GPU:
        for item in items:
            if item.get_closest_marker("gpu"):
                item.add_marker(pytest.mark.skip(reason="there is no GPU here"))


def every_subspace(n: int, dtype: torch.dtype = torch.float64) -> list[Tensor]:
    """The five coefficients of n units that take turns through the subspaces."""
    abc = torch.tensor([SUBSPACES[i % len(SUBSPACES)] for i in range(n)], dtype=torch.float64)
    generator = torch.Generator().manual_seed(n)
    c12 = torch.rand(n, 2, dtype=torch.float64, generator=generator) - 0.5
    return [p.contiguous().to(dtype) for p in torch.cat([abc, c12], 1).unbind(1)]


def gradients(
    function: Callable[..., Tensor],
    t: Tensor,
    coefficients: list[Tensor],
    upstream: Tensor | None = None,
    **options: object,
) -> dict[str, Tensor]:
    """``y``, and the gradients of ``sum(upstream * y)``, of ``t`` and the coefficients by name."""
    inputs = [x.detach().requires_grad_() for x in (t, *coefficients)]
    y = function(*inputs, **options)
    if upstream is None:
        upstream = torch.ones_like(y)
    grads = torch.autograd.grad(y, inputs, upstream)
    return {"y": y.detach(), "t": grads[0], **dict(zip(NAMES, grads[1:], strict=True))}
