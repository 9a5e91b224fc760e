"""The experiments by name.  Each is imported when it is asked for."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .experiment import Experiment

ALL = "all"  # every name there is

# In the order in which they are listed, run and reported: functions first, then data.
SPECS: dict[str, str] = {
    "circles": "deu.experiments.paper.circles:EXPERIMENT",
    "sine": "deu.experiments.paper.sine:EXPERIMENT",
    "function": "deu.experiments.paper.function:EXPERIMENT",
    "forms": "deu.experiments.paper.forms:EXPERIMENT",
    "spectra": "deu.experiments.paper.spectra:EXPERIMENT",
    "manifold": "deu.experiments.paper.manifold:EXPERIMENT",
    "universal": "deu.experiments.paper.universal:EXPERIMENT",
    "mnist": "deu.experiments.paper.image_sets:MNIST",
    "fashion-mnist": "deu.experiments.paper.image_sets:FASHION_MNIST",
    "convergence": "deu.experiments.paper.image_sets:CONVERGENCE",
    "cifar10": "deu.experiments.paper.cifar10:EXPERIMENT",
    "cost": "deu.experiments.paper.cost:EXPERIMENT",
    "diabetes": "deu.experiments.paper.diabetes:EXPERIMENT",
    "forecast": "deu.experiments.paper.forecast:EXPERIMENT",
    "occupancy": "deu.experiments.paper.occupancy:EXPERIMENT",
}


class UnknownNameError(ValueError):
    """A name that no experiment has."""


def chosen(given: Sequence[str]) -> list[str]:
    """The names that were asked for, each once, in the order given; ``all`` is every one.

    Example:
        >>> chosen(["sine", "circles", "sine"])
        ['sine', 'circles']
        >>> chosen(["circle"])
        Traceback (most recent call last):
        deu.experiments.registry.UnknownNameError: there is no experiment 'circle'...
    """
    names: list[str] = []
    for name in given:
        if name != ALL and name not in SPECS:
            near = difflib.get_close_matches(name, [*SPECS, ALL], 1)
            perhaps = f", perhaps {near[0]!r}?" if near else "."
            raise UnknownNameError(
                f"there is no experiment {name!r}{perhaps} There are {', '.join(SPECS)}, and {ALL}"
            )
        names += SPECS if name == ALL else [name]
    return list(dict.fromkeys(names))


def load(name: str) -> Experiment:
    """The experiment of a name that :func:`chosen` has seen."""
    return imported(SPECS[name])


def imported(spec: str) -> Experiment:
    """The experiment that a text ``module:ATTRIBUTE`` is of."""
    module, attribute = spec.split(":")
    return getattr(importlib.import_module(module), attribute)


def experiments() -> list[Experiment]:
    """All of them, in order."""
    return [load(name) for name in SPECS]
