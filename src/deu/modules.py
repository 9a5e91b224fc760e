"""The unit as a layer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.lazy import LazyModuleMixin
from torch.nn.parameter import Parameter, UninitializedParameter

from . import _ops
from . import init as _init
from ._settings import Settings, check_settings
from .functional import check_features


class DEU(nn.Module):
    r"""A layer of Differential Equation Units: each feature learns its own activation function.

    .. math:: a\,y'' + b\,y' + c\,y = u(t), \qquad
              y(t) = f(t; a, b, c) + c_1 f_1(t; a, b, c) + c_2 f_2(t; a, b, c)

    Takes and returns a tensor of any shape that has ``num_features`` along ``dim``.

    Args:
        num_features: how many units; 1 shares one unit across the whole input, as ``nn.PReLU``
            does, and then ``dim`` does not matter.
        dim: the dimension that the features lie along.
        init: where the units start: ``"gelu"`` (near GELU; for deep networks and in place of any
            usual activation), ``"waves"`` (gentle oscillations, their frequencies spread over the
            layer; for functions, signals and whatever repeats), ``"random"`` (the paper's: a, b, c
            uniform in (0, 1), c1 = c2 = 0), ``"spread"``, ``"relu"``, ``"requ"``, ``"sigmoid"``,
            ``"sine"``, ``"identity"``, any function from tensor to tensor, which is fitted over
            [-3, 3], or what :func:`deu.init.fit` returned. :mod:`deu.init` says what each is, and
            how exactly, in either solution.
        solution: ``"continuous"``, in which c1 and c2 are :math:`y(0)` and :math:`y'(0)`, or
            ``"paper"``, with its subspaces, their seams and outward gravitation.
        eps: below it a coefficient counts as zero.
        sharpness: of the smoothed step in the paper's solution.
        max_exponent: every exponential is :math:`e^{\min(x, \mathrm{max\_exponent})}`.
        bound: values are cut at ± this, and still pass their gradient.
        max_grad_norm: each unit's gradient of its five coefficients is scaled down to this norm;
            ``None`` leaves it alone.

    The defaults are what trained best; the guide, ``docs/training.md``, has the measurements. The
    authors' own units are ``DEU(n, init="random", solution="paper", max_exponent=14, bound=1000,
    max_grad_norm=None)``.

    Attributes:
        a, b, c, c1, c2: the coefficients, parameters of shape ``(num_features,)``.
        fit: the :class:`deu.init.Fit` that the units started from, with its error, if they were
            fitted, else ``None``.

    Example:
        >>> layer = DEU(64)
        >>> layer(torch.randn(8, 64, 32, 32)).shape
        torch.Size([8, 64, 32, 32])
        >>> shared = DEU(init=torch.tanh)
        >>> shared.fit.max_error < 0.2
        True
    """

    num_features: int
    a: Tensor
    b: Tensor
    c: Tensor
    c1: Tensor
    c2: Tensor

    def __init__(
        self,
        num_features: int = 1,
        *,
        dim: int = 1,
        init: str | _init.Fit | Callable[[Tensor], Tensor] = "gelu",
        solution: str = "continuous",
        eps: float = 0.01,
        sharpness: float = 100.0,
        max_exponent: float = 1.0,
        bound: float = 1000.0,
        max_grad_norm: float | None = 1.0,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        if not isinstance(num_features, int) or num_features < 1:
            raise ValueError(f"num_features must be a positive integer; got {num_features!r}")
        if not isinstance(dim, int):
            raise TypeError(f"dim must be an integer; got {dim!r}")
        check_settings(solution, eps, sharpness, max_exponent, bound, max_grad_norm)
        self.num_features = num_features
        self.dim = dim
        self.solution = solution
        self.eps = float(eps)
        self.sharpness = float(sharpness)
        self.max_exponent = float(max_exponent)
        self.bound = float(bound)
        self.max_grad_norm = None if max_grad_norm is None else float(max_grad_norm)
        self._init = _init.resolve(
            init, solution=solution, eps=eps, sharpness=sharpness, max_exponent=max_exponent
        )
        for name in ("a", "b", "c", "c1", "c2"):
            setattr(self, name, Parameter(torch.empty(num_features, device=device, dtype=dtype)))
        self.reset_parameters()

    @property
    def fit(self) -> _init.Fit | None:
        return self._init if isinstance(self._init, _init.Fit) else None

    def reset_parameters(self) -> None:
        """Start again, as ``init`` said."""
        _init.fill(self.coefficients(), self._init, self.solution)

    def coefficients(self) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """(a, b, c, c1, c2)."""
        # From where Module keeps them: attribute look-up is a tenth of a small layer's time.
        p: Any = self._parameters
        return p["a"], p["b"], p["c"], p["c1"], p["c2"]

    def settings(self) -> Settings:
        """What a call needs beside its tensors."""
        return Settings(
            self.dim,
            self.solution,
            self.eps,
            self.sharpness,
            self.max_exponent,
            self.bound,
            float("inf") if self.max_grad_norm is None else self.max_grad_norm,
            self.training,
        )

    def forward(self, input: Tensor) -> Tensor:
        check_features(input, self.num_features, self.dim)
        return _ops.apply(input, self.coefficients(), self.settings())

    def extra_repr(self) -> str:
        start = self._init.name if isinstance(self._init, _init.Fit) else self._init
        return (
            f"{self.num_features}, dim={self.dim}, init={start!r}, solution={self.solution!r}, "
            f"eps={self.eps:g}, sharpness={self.sharpness:g}, max_exponent={self.max_exponent:g}, "
            f"bound={self.bound:g}, max_grad_norm={self.max_grad_norm}"
        )


class LazyDEU(LazyModuleMixin, DEU):
    """A :class:`DEU` that takes ``num_features`` from its first input's size along ``dim``.

    Its other arguments are those of :class:`DEU`.

    Example:
        >>> layer = LazyDEU(init="spread")
        >>> _ = layer(torch.randn(8, 32))
        >>> layer
        DEU(32, dim=1, init='spread', ...)
    """

    cls_to_become = DEU

    def __init__(
        self,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(1, device=device, dtype=dtype, **settings)
        self.num_features = 0
        for name in ("a", "b", "c", "c1", "c2"):
            later = UninitializedParameter(device=device, dtype=dtype)  # type: ignore[call-arg]
            setattr(self, name, later)

    def reset_parameters(self) -> None:
        if self.num_features and not self.has_uninitialized_params():
            super().reset_parameters()

    def initialize_parameters(self, input: Tensor) -> None:
        if not self.has_uninitialized_params():  # loaded from a state_dict
            self.num_features = self.a.numel()
            return
        if not -input.ndim <= self.dim < input.ndim:
            raise ValueError(
                f"LazyDEU takes its size from dim={self.dim} of its first input, "
                f"which has shape {tuple(input.shape)}"
            )
        self.num_features = input.shape[self.dim]
        for parameter in self.coefficients():
            assert isinstance(parameter, UninitializedParameter)
            parameter.materialize((self.num_features,))
        self.reset_parameters()
