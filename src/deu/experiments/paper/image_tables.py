"""Tables that the experiments on images share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ..activations import FACTORIES
from ..cells import Result
from ..experiment import Table, Text
from ..summaries import Value, flat, mean_spread, text
from .names import shown
from .sets import STAND_IN


def trained_on(results: list[Result]) -> Text:
    """Which data the networks of a report saw, and for how long."""
    settings = results[0].cell.settings
    data = sorted({result.cell.settings["data"] for result in results})
    count = "all images" if settings.get("train") is None else f"{settings['train']} images"
    words = f"Trained on {', '.join(data)}: {count}, each seen {_times(results)} times"
    words += f", in batches of {settings['batch']}."
    if any(name.startswith(STAND_IN) for name in data):
        words += " A synthetic set is made up, and says nothing of the real one."
    return Text(words)


def _times(results: list[Result]) -> str:
    """How often an image is seen; where networks differ in it, of each."""
    by_network: dict[float, list[str]] = {}
    for result in results:
        settings = result.cell.settings
        names = by_network.setdefault(settings["epochs"] / settings.get("parts", 1), [])
        if settings["network"] not in names:
            names.append(settings["network"])
    if len(by_network) == 1:
        return f"{next(iter(by_network)):g}"
    return ", ".join(f"{times:g} ({', '.join(own)})" for times, own in by_network.items())


def standing(best: dict[Any, list[Result]], metric: str = "accuracy") -> Text:
    """Where the unit stands among the activations, network by network: the paper's real claim.

    Example:
        >>> from deu.experiments.cells import Cell
        >>> def run(name, accuracy):
        ...     cell = Cell("x", {"network": "cnn", "activation": name})
        ...     return [Result(cell, {"accuracy": accuracy})]
        >>> standing({1: run("deu", [0.5]), 2: run("ReLU", [0.75]), 3: run("SELU", [0.25])}).text
        'Where units stand, by the mean: cnn 2nd of 3 with 50.00 (1), behind ReLU 75.00 (1).'
    """
    networks: dict[str, dict[str, list[Value]]] = {}
    for results in best.values():
        settings = results[0].cell.settings
        if not settings.get("norm"):
            own = networks.setdefault(settings["network"], {})
            own[settings["activation"]] = flat(results, metric)
    told = []
    for network, found in networks.items():
        means = {name: mean_spread(values)[0] for name, values in found.items()}
        means = {name: mean for name, mean in means.items() if mean == mean}
        if "deu" not in means or len(means) < 2:
            continue
        ahead = sorted((n for n in means if means[n] > means["deu"]), key=lambda n: -means[n])
        numbers = {name: text(found[name], 2, percent=True) for name in means}
        place = f"{network} {_ordinal(len(ahead) + 1)} of {len(means)}"
        if ahead:
            others = ", ".join(f"{shown(name)} {numbers[name]}" for name in ahead)
            place += f" with {numbers['deu']}, behind {others}"
        told.append(place)
    if not told:
        return Text("There is nothing to compare units with.")
    return Text(f"Where units stand, by the mean: {'; '.join(told)}.")


def _ordinal(number: int) -> str:
    """1st, 2nd, 3rd, 4th.

    Example:
        >>> _ordinal(1), _ordinal(4)
        ('1st', '4th')
    """
    return f"{number}{ {1: 'st', 2: 'nd', 3: 'rd'}.get(number, 'th') }"


def sizes_table(sizes: Mapping[str, tuple[int | None, int | None]]) -> Table:
    """Parameters by a network's name: the paper's, in thousands, and ours.

    Example:
        >>> sizes_table({"CNN-ReLU": (30, 21498), "CNN-SELU": (21, None)}).rows
        [['CNN-ReLU', '30k', '21,498', '-9k'], ['CNN-SELU', '21k', '–', '–']]
    """
    rows = []
    for name, (paper, ours) in sizes.items():
        both = paper is not None and ours is not None
        rows.append(
            [
                name,
                "–" if paper is None else f"{paper}k",
                "–" if ours is None else f"{ours:,}",
                f"{ours / 1000 - paper:+.0f}k" if both else "–",  # type: ignore[operator]
            ]
        )
    return Table("Parameters", ["", "paper", "ours", "difference"], rows)


def rates_table(best: dict[Any, list[Result]], metric: str = "accuracy") -> Table:
    """What was chosen for each network and activation, and what it gave, test loss included."""
    order = list(FACTORIES)

    def place(results: list[Result]) -> tuple[str, bool, int]:
        settings = results[0].cell.settings
        known = order.index(settings["activation"]) if settings["activation"] in order else -1
        return settings["network"], bool(settings.get("norm")), known

    normed = _normed(result for own in best.values() for result in own)
    rows = []
    for results in sorted(best.values(), key=place):
        settings = results[0].cell.settings
        rows.append(
            [
                settings["network"],
                shown(settings["activation"]),
                *([_norm(settings)] if normed else []),
                f"{settings['lr']:g}",
                text(flat(results, metric), 2, percent=True),
                text(flat(results, "test_loss"), 3),
                f"{results[0].parameters:,}",
            ]
        )
    header = ["network", "activation", *normed, "learning rate", "accuracy, %", "test loss"]
    return Table("Every activation at its best learning rate", [*header, "parameters"], rows)


def _normed(results: Iterable[Result]) -> list[str]:
    """The header of the column of batch norms, or none where no cell has that setting."""
    return ["batch norm"] if any("norm" in result.cell.settings for result in results) else []


def _norm(settings: Mapping[str, Any]) -> str:
    norm = settings.get("norm")
    return "–" if norm is None else "yes" if norm else "no"


def every_rate_table(results: list[Result], metric: str = "accuracy") -> Table:
    """Every activation at every learning rate: whether any run collapses, and where.

    Example:
        >>> from deu.experiments.cells import Cell
        >>> settings = {"network": "cnn", "activation": "ReLU", "lr": 0.01}
        >>> runs = [Result(Cell("x", settings, (s,)), {"accuracy": [0.9 + s]}) for s in (0, 0.02)]
        >>> every_rate_table(runs).rows
        [['cnn', 'ReLU', '91.00 ± 1.41 (2), least 90.00']]
    """
    normed = _normed(results)
    rates = sorted({result.cell.settings["lr"] for result in results})
    order = list(FACTORIES)
    found: dict[tuple[str, bool, int], dict[float, list[Result]]] = {}
    for result in results:
        own = result.cell.settings
        name = own["activation"]
        key = (own["network"], bool(own.get("norm")), order.index(name))
        found.setdefault(key, {}).setdefault(own["lr"], []).append(result)
    rows = []
    for _, by_rate in sorted(found.items()):
        own = next(iter(by_rate.values()))[0].cell.settings
        row = [own["network"], shown(own["activation"]), *([_norm(own)] if normed else [])]
        for rate in rates:
            values = flat(by_rate.get(rate, []), metric)
            told = text(values, 2, percent=True) if values else "–"
            least = min((value for value in values if value is not None), default=None)
            row.append(told if least is None else f"{told}, least {100 * least:.2f}")
        rows.append(row)
    header = ["network", "activation", *normed, *(f"at {rate:g}" for rate in rates)]
    return Table("Every learning rate: accuracy, %", header, rows)
