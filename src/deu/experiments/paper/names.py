"""How activations are called in tables and pictures."""

from __future__ import annotations

_NAMES = {
    "deu": "DEU",
    "deu waves": "DEU (waves)",
    "deu spread": "DEU (spread)",
    "deu random": "DEU (random start)",
    "deu paper": "DEU (paper's solution and start)",
    "deu authors": "DEU (authors' limits)",
    "deu continuous": "DEU (continuous)",
    "Sine": "Sine (SIREN)",
}


def shown(activation: str) -> str:
    """An activation's name for people.

    Example:
        >>> shown("deu waves"), shown("ReLU")
        ('DEU (waves)', 'ReLU')
    """
    return _NAMES.get(activation, activation)
