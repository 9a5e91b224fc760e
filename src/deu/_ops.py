"""The unit as operators that PyTorch's tools understand, and its place in autograd.

``deu::unit`` is what ``torch.compile`` and ``torch.export`` see.  Below autograd it becomes one
node each way, ``deu::forward`` and ``deu::backward``, or ``deu::value`` where no gradient is asked
for.  These have no gradients of their own, so a compiled graph calls them without autograd in
between.  In plain eager mode the same two
functions are called from an ``autograd.Function``, which costs a fraction of an operator call:
in a layer of a few thousand numbers that is most of the time.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from . import _launcher, _native, _triton, reference
from ._settings import Settings, unpacked


def _reference(t: Tensor, coefficients: tuple[Tensor, ...], settings: Settings) -> Tensor:
    options = settings._asdict()
    if settings.max_grad_norm == float("inf"):
        options["max_grad_norm"] = None
    return reference.deu(t, *coefficients, **options)


def _kernels(t: Tensor, coefficients: tuple[Tensor, ...]) -> Any:
    """The compiled kernels for these tensors, if there are any."""
    if t.is_cpu:
        return _native if _native.handles(t, coefficients) else None
    return _triton if _triton.handles(t, coefficients) else None


def _fits(t: Tensor, coefficients: tuple[Tensor, ...]) -> bool:
    """The same without a warning or a look at the tensors' memory, for tracing."""
    return _native.fits(t, coefficients) or _triton.fits(t, coefficients)


def _forward(
    t: Tensor, coefficients: tuple[Tensor, ...], settings: Settings, keep: bool = True
) -> tuple[Tensor, Tensor | None]:
    kernels = _kernels(t, coefficients)
    if kernels is not None:
        y, saved = kernels.forward(t, coefficients, settings, keep)
        return y, saved
    with torch.no_grad():  # the value is the same in training
        y = _reference(t, coefficients, settings._replace(training=False))
    return torch.empty_like(t).copy_(y), None


def _new_saved(t: Tensor, coefficients: tuple[Tensor, ...], settings: Settings) -> Tensor:
    """Room for what forward leaves backward.

    On a CPU the centre of each neuron's inputs, on a GPU its normal form and its neighbour's.
    """
    if _triton.fits(t, coefficients):
        each = _triton.kept_of(settings)
    else:
        each = int(t.is_cpu and settings.training and settings.solution == "paper")
    return t.new_empty(each * coefficients[0].shape[0], dtype=torch.float64)


def _backward(
    grad: Tensor,
    t: Tensor,
    coefficients: tuple[Tensor, ...],
    saved: Tensor,
    settings: Settings,
) -> tuple[Tensor, ...]:
    kernels = _kernels(t, coefficients)
    if kernels is not None:
        return kernels.backward(grad, t, coefficients, saved, settings)

    def by_reference() -> tuple[Tensor, ...]:
        inputs = tuple(x.detach().requires_grad_() for x in (t, *coefficients))
        y = _reference(inputs[0], inputs[1:], settings)
        return torch.autograd.grad(y, inputs, grad, allow_unused=True, materialize_grads=True)

    # Autograd is off in the thread that an operator runs in, and on in a new one.
    with ThreadPoolExecutor(1) as thread:
        grads = thread.submit(by_reference).result()
    return torch.empty_like(t).copy_(grads[0]), *grads[1:]


def _differentiable_backward(
    grad: Tensor, t: Tensor, coefficients: tuple[Tensor, ...], settings: Settings
) -> tuple[Tensor | None, ...]:
    """The same gradients with a graph of their own, for ``create_graph=True``."""
    inputs = (t, *coefficients)
    wanted = [x for x in inputs if x.requires_grad]
    with torch.enable_grad():
        y = _reference(t, coefficients, settings)
    found = iter(
        torch.autograd.grad(
            y, wanted, grad, create_graph=True, allow_unused=True, materialize_grads=True
        )
    )
    return tuple(next(found) if x.requires_grad else None for x in inputs)


_has_memory = torch._C._has_storage  # batched gradients, as jacobian(vectorize=True)'s, have none


class EagerDEU(torch.autograd.Function):
    """The kernels in eager mode: saves its input and nothing else of its size."""

    @staticmethod
    def forward(ctx: Any, settings: Settings, t: Tensor, *coefficients: Tensor) -> Tensor:
        ctx.kernels = _native if t.is_cpu else _triton
        y, ctx.saved = ctx.kernels.forward(t, coefficients, settings)
        ctx.settings = settings
        ctx.save_for_backward(t, *coefficients)
        return y

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        t, *coefficients = ctx.saved_tensors
        return None, *_eager_backward(
            ctx.kernels, grad, t, tuple(coefficients), ctx.saved, ctx.settings
        )


def _eager_backward(
    kernels: Any,
    grad: Tensor,
    t: Tensor,
    coefficients: tuple[Tensor, ...],
    saved: Tensor,
    settings: Settings,
) -> tuple[Tensor | None, ...]:
    if torch.is_grad_enabled() or not _has_memory(grad):
        return _differentiable_backward(grad, t, coefficients, settings)
    found: tuple[Tensor, ...] = kernels.backward(grad, t, coefficients, saved, settings)
    return found


_launcher.connect(
    lambda grad, t, *rest: _eager_backward(_triton, grad, t, rest[:5], rest[5], rest[6])
)


# Past Function.apply's own look at torch.func, which has been taken in apply() below.
_eager = super(torch.autograd.Function, EagerDEU).apply


_LIBRARY = torch.library.Library("deu", "DEF")
_UNITS = "Tensor t, Tensor a, Tensor b, Tensor c, Tensor c1, Tensor c2"
_SETTINGS = (
    "int dim, str solution, float eps, float sharpness, float max_exponent, float bound, "
    "float max_grad_norm, bool training"
)


_PACKED = "str settings"  # of operators that are called in every step
_BELOW_AUTOGRAD = "CompositeExplicitAutograd"


def define(
    name: str, arguments: str, results: str, run: Callable[..., Any], key: str = _BELOW_AUTOGRAD
) -> Any:
    """An operator that takes its tensors in whatever layout suits its neighbours.

    By ``torch.library.custom_op`` a call would take a quarter longer; without the tag
    ``torch.compile`` would transpose what it keeps in ``channels_last`` before and after it.
    """
    settings = _PACKED if key == _BELOW_AUTOGRAD else _SETTINGS
    schema = f"{name}({arguments}, {settings}) -> ({results})"
    _LIBRARY.define(schema, tags=(torch.Tag.flexible_layout, torch.Tag.pt2_compliant_tag))
    _LIBRARY.impl(name, run, key)
    return getattr(torch.ops.deu, name).default


def _run_value(t: Tensor, *rest: Any) -> Tensor:
    return _forward(t, rest[:5], unpacked(rest[5]), False)[0]


def _run_forward(t: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    coefficients, settings = rest[:5], unpacked(rest[5])
    y, saved = _forward(t, coefficients, settings)
    if saved is None or not saved.numel():
        saved = _new_saved(t, coefficients, settings).zero_()
    return y, saved


def _run_backward(grad: Tensor, saved: Tensor, t: Tensor, *rest: Any) -> tuple[Tensor, ...]:
    return _backward(grad, t, rest[:5], saved, unpacked(rest[5]))


value_op = define("value", _UNITS, "Tensor", _run_value)
forward_op = define("forward", _UNITS, "Tensor, Tensor", _run_forward)
backward_op = define(
    "backward",
    f"Tensor grad, Tensor saved, {_UNITS}",
    "Tensor, Tensor, Tensor, Tensor, Tensor, Tensor",
    _run_backward,
)


def fake(name: str) -> Callable[..., Any]:
    """What follows says what an operator's results are like."""
    return torch.library.register_fake(f"deu::{name}", lib=_LIBRARY)


@fake("value")
def _value_fake(t: Tensor, *rest: Any) -> Tensor:
    return torch.empty_like(t)


@fake("forward")
def _forward_fake(t: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    return torch.empty_like(t), _new_saved(t, rest[:5], unpacked(rest[5]))


@fake("backward")
def _backward_fake(grad: Tensor, saved: Tensor, t: Tensor, *rest: Any) -> tuple[Tensor, ...]:
    return torch.empty_like(t), *(torch.empty_like(p) for p in rest[:5])


class _OverOperators(torch.autograd.Function):
    """The same as EagerDEU for whatever is not plain: it calls the operators."""

    @staticmethod
    def forward(ctx: Any, settings: Settings, t: Tensor, *coefficients: Tensor) -> Tensor:
        y, saved = forward_op(t, *coefficients, settings.packed())
        ctx.settings = settings
        ctx.save_for_backward(saved, t, *coefficients)
        return y

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        saved, t, *coefficients = ctx.saved_tensors
        if torch.is_grad_enabled() and not torch.compiler.is_compiling():
            grads = _differentiable_backward(grad, t, tuple(coefficients), ctx.settings)
        else:
            grads = backward_op(grad, saved, t, *coefficients, ctx.settings.packed())
        return None, *grads


def _run_unit(t: Tensor, *rest: Any) -> Tensor:
    coefficients, settings = rest[:5], Settings(*rest[5:])
    y: Tensor
    if torch.is_grad_enabled():
        y = _OverOperators.apply(settings, t, *coefficients)
    else:
        y = value_op(t, *coefficients, settings.packed())
    return y


unit_op = define("unit", _UNITS, "Tensor", _run_unit, "CompositeImplicitAutograd")


_transforms = torch._C._functorch.peek_interpreter_stack
_tracing = torch._C._get_tracing_state


def is_transformed() -> bool:
    """Whether torch.func, forward-mode differentiation or tracing is at work.

    They need plain PyTorch.
    """
    return _transforms() is not None or forward_ad._current_level >= 0 or _tracing() is not None


_PLAIN = (Tensor, torch.nn.Parameter)


def is_not_plain(t: Tensor) -> bool:
    """Whether the tensor is more than its numbers, or somebody listens to operators."""
    return type(t) not in _PLAIN or torch._C._len_torch_dispatch_stack() > 0


def apply(t: Tensor, coefficients: tuple[Tensor, ...], settings: Settings) -> Tensor:
    """y(t) by whichever way fits where the call is made."""
    if torch.compiler.is_compiling():
        if not _fits(t, coefficients):
            return _reference(t, coefficients, settings)
        return unit_op(t, *coefficients, *settings)
    launch = _launcher.call
    if launch is not None and forward_ad._current_level < 0:
        y = launch(t, coefficients, settings)
        if y is not None:
            return y
    kernels = _kernels(t, coefficients)
    if kernels is None or is_transformed():
        return _reference(t, coefficients, settings)
    if is_not_plain(t):
        return unit_op(t, *coefficients, *settings)
    if torch.is_grad_enabled():
        return _eager(settings, t, *coefficients)
    return kernels.forward(t, coefficients, settings, False)[0]
