"""Parameter groups for optimisers: what decays, and how fast units learn."""

from __future__ import annotations

from typing import Any

from torch import nn

from .modules import DEU

UNIT_RATE = 0.1


def param_groups(
    model: nn.Module,
    lr: float,
    weight_decay: float = 0.0,
    unit_lr: float | None = None,
) -> list[dict[str, Any]]:
    """The parameters of a model, grouped for any of PyTorch's optimisers.

    Matrices and kernels decay; whatever is one-dimensional (biases, norms) does not, and neither
    do the coefficients of units, which have a group, and if wanted a learning rate, of their own.

    Args:
        model: any module, with units in it or without.
        lr: the learning rate.
        weight_decay: of the parameters that decay.
        unit_lr: the learning rate of the units' coefficients; ``None`` takes a tenth of ``lr``,
            which trained best. A unit that stands alone, without weights, wants far more.

    Returns:
        Groups with ``params``, ``lr``, ``weight_decay`` and ``name`` (``"weights"``,
        ``"biases"`` and ``"units"``; those without parameters are left out). Parameters that
        need no gradient are left out too.

    Example:
        >>> import torch
        >>> model = nn.Sequential(nn.Linear(1, 8), DEU(8), nn.Linear(8, 1))
        >>> [group["name"] for group in param_groups(model, lr=0.01)]
        ['weights', 'biases', 'units']
        >>> optimiser = torch.optim.AdamW(param_groups(model, lr=0.01, weight_decay=0.1))
    """
    for name, value in (("lr", lr), ("weight_decay", weight_decay), ("unit_lr", unit_lr)):
        if value is not None and not value >= 0:
            raise ValueError(f"{name} must be a number of 0 or more; got {value!r}")
    units = {
        id(p) for m in model.modules() if isinstance(m, DEU) for p in m.parameters(recurse=False)
    }
    rates = {"units": UNIT_RATE * lr if unit_lr is None else unit_lr}
    parameters = [p for p in model.parameters() if p.requires_grad]
    split = {
        "weights": [p for p in parameters if id(p) not in units and p.ndim > 1],
        "biases": [p for p in parameters if id(p) not in units and p.ndim <= 1],
        "units": [p for p in parameters if id(p) in units],
    }
    return [
        {
            "name": name,
            "params": params,
            "lr": rates.get(name, lr),
            "weight_decay": weight_decay if name == "weights" else 0.0,
        }
        for name, params in split.items()
        if params
    ]
