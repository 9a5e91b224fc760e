"""What the report of ``forecast`` shows: the paper's numbers, ours, and what stands for what."""

from __future__ import annotations

from typing import Any

from ..cells import Result
from ..experiment import Section, Table, Text
from ..summaries import best_results, flat, mean_spread, text
from ..tables import PaperRow, paper_table, paper_words
from .forecast import ACTIVATIONS, PUBLISHED, SERIES, Series
from .names import shown
from .sets import STAND_IN

Best = dict[Any, list[Result]]  # by data, horizon and activation

# RSE and CORR by set, column and activation.
PAPER: dict[tuple[str, str], dict[str, tuple[str, str]]] = {
    ("Traffic", "6"): {
        "deu": ("0.487", "0.870"),
        "ReLU": ("0.499", "0.869"),
        "Swish": ("0.483", "0.872"),
        "Maxout": ("0.493", "0.863"),
    },
    ("Traffic", "12"): {
        "deu": ("0.500", "0.863"),
        "ReLU": ("0.520", "0.851"),
        "Swish": ("0.505", "0.862"),
        "Maxout": ("0.501", "0.868"),
    },
    ("Solar output", "6"): {
        "deu": ("0.269", "0.965"),
        "ReLU": ("0.270", "0.965"),
        "Swish": ("0.270", "0.965"),
        "Maxout": ("0.265", "0.967"),
    },
    ("Solar output", "12"): {
        "deu": ("0.327", "0.947"),
        "ReLU": ("0.433", "0.906"),
        "Swish": ("0.329", "0.944"),
        "Maxout": ("0.328", "0.945"),
    },
    ("Elect.", "12"): {
        "deu": ("0.100", "0.912"),
        "ReLU": ("0.104", "0.900"),
        "Swish": ("0.104", "0.908"),
        "Maxout": ("0.107", "0.911"),
    },
}
NOT_RUN = "not run here: run it with --data"

STANDS = {
    "pems_occupancy": "the same quantity, how long a sensor of a road is covered: 100 sensors, "
    "2000 hours of other months",
    "nrel_pv_rhode_island": "photovoltaic output modelled from weather in the same way: 100 sites "
    "of another state, half-hours where Solar-Energy has ten minutes",
    "gefcom_load": "the load of 20 zones of a grid, hourly, where Electricity has single clients",
    "uci_electricity_5weeks": "the last five weeks of the very data that Electricity is made of",
}
ABOUT = (
    "Every activation stands in LSTNet's convolution, its only place for one, and has the same "
    "learning rates to choose from. The epoch and the learning rate are chosen by the RSE on the "
    "validation part; the numbers are of the test part. RSE: lower is better. CORR: higher."
)
SOLAR = (
    "Solar output: the paper writes of 6 and 12 hours. Its numbers are about those that LSTNet's "
    "authors give for 6 and 12 steps of ten minutes, so these are what we read them as: 6 and 12 "
    "steps of solar-energy, and 1 and 2 hours of the half-hourly series, which has 6 and 12 hours "
    "as well."
)


def sections(results: list[Result]) -> list[Section]:
    """The report."""
    quick = results[0].cell.quick
    best = best_results(results, "valid_rse", False, by=("data", "horizon", "activation"))
    made = {data for data, _, _ in best}
    if quick:
        return [_about_quick(made), *(_table(data, best) for data in sorted(made)), Text(ABOUT)]
    known = [one for one in SERIES if one.name in made]
    rows = [row for one in known if one.name in PUBLISHED.values() for row in _rows(one, best)]
    for one in SERIES:
        if one.name in PUBLISHED.values() and one.paper not in {own.paper for own in known}:
            rows += _rows(one, {})
    compared: list[Section] = []
    if rows:
        compared = [paper_table("Beside the paper", rows), paper_words(rows)]
    return [
        Text(ABOUT),
        *compared,
        *([_stand_ins(known)] if any(one.name in STANDS for one in known) else []),
        *([Text(SOLAR)] if any(one.paper == "Solar output" for one in known) else []),
        *(_table(one.name, best, one) for one in known),
        _ranking(best),
    ]


def _rows(one: Series, best: Best) -> list[PaperRow]:
    """One published series beside the paper's numbers."""
    rows = []
    for horizon, column in one.horizons.items():
        for activation, numbers in PAPER[one.paper, column].items():
            runs = best.get((one.name, horizon, activation), [])
            for metric, number in zip(("rse", "corr"), numbers, strict=True):
                rows.append(
                    PaperRow(
                        f"{one.paper} {column}, {shown(activation)}, {metric.upper()}",
                        number,
                        flat(runs, metric),
                        reason=NOT_RUN if not runs else "",
                        digits=3,
                        higher=metric == "corr",
                    )
                )
    return rows


def _stand_ins(known: list[Series]) -> Text:
    """Which file stands for which set of the paper's, and why."""
    told = [
        f"{one.name} for {one.paper} ({STANDS[one.name]})" for one in known if one.name in STANDS
    ]
    return Text(
        f"In place of the published files: {'; '.join(told)}. A number on another series does not "
        "compare with the paper's, only the order of the activations does. The published files "
        f"({', '.join(PUBLISHED.values())}) where they are missing here: {NOT_RUN.split(': ')[1]}, "
        "a folder that has them or that they can be downloaded to."
    )


def _table(data: str, best: Best, one: Series | None = None) -> Table:
    """All activations on one series, beside the paper's for the set that it is or stands for."""
    rows = []
    for horizon in sorted({own for name, own, _ in best if name == data}):
        column = one.horizons.get(horizon, "") if one else ""
        for activation in ACTIVATIONS:
            runs = best.get((data, horizon, activation))
            if not runs:
                continue
            paper = PAPER.get((one.paper if one else "", column), {}).get(activation, ("–", "–"))
            rows.append(
                [
                    _ahead(horizon, one),
                    shown(activation),
                    f"{runs[0].cell.settings['lr']:g}",
                    paper[0],
                    text(flat(runs, "rse"), 4),
                    paper[1],
                    text(flat(runs, "corr"), 4),
                    f"{runs[0].parameters:,}",
                ]
            )
    stands = one is not None and one.name in STANDS
    title = f"{data}, in place of {one.paper}" if stands and one else data
    where = f", on {one.paper}" if stands and one else ""
    header = ["ahead", "", "learning rate", f"RSE, paper{where}", "RSE, ours"]
    return Table(title, [*header, f"CORR, paper{where}", "CORR, ours", "parameters"], rows)


def _ahead(horizon: int, one: Series | None) -> str:
    if one is None:
        return f"{horizon} steps"
    minutes = horizon * one.step
    if minutes % 1440 == 0 and one.step == 1440:
        return f"{minutes // 1440} days"
    return f"{minutes // 60} h" if minutes % 60 == 0 else f"{minutes} min"


def _ranking(best: Best) -> Text:
    """Who has the least RSE how often, and whether the unit improves on ReLU in all cases."""
    places = list(dict.fromkeys((data, horizon) for data, horizon, _ in best))
    wins = dict.fromkeys(ACTIVATIONS, 0)
    over = {"deu": 0, "deu waves": 0}
    for place in places:
        means = {
            activation: mean_spread(flat(runs, "rse"))[0]
            for (*own, activation), runs in best.items()
            if tuple(own) == place
        }
        finite = {name: mean for name, mean in means.items() if mean == mean}
        if finite:
            wins[min(finite, key=finite.__getitem__)] += 1
        for unit in over:
            over[unit] += unit in finite and "ReLU" in finite and finite[unit] < finite["ReLU"]
    count = len(places)
    told = ", ".join(f"{shown(name)} in {number}" for name, number in wins.items())
    better = " and ".join(f"{shown(unit)} in {number}" for unit, number in over.items())
    holds = "So it is here."
    if over["deu"] < count:
        holds = (
            "Here it is not so in all. Most likely because LSTNet has one place for an activation, "
            "between its convolution and recurrent networks that have their own, and because these "
            "series are shorter than the paper's: seeds differ by as much as activations do. Both "
            "starts of the unit and two learning rates were tried."
        )
    return Text(
        f"Of {count} series and horizons the least mean RSE is that of: {told}. Less than ReLU's "
        f'has {better}. The paper: "DEU gives improvement in all cases". {holds}'
    )


def _about_quick(made: set[str]) -> Text:
    words = f"A quick run: a small network on a short piece of {', '.join(sorted(made))}, and "
    words += "nothing here is to be compared with the paper."
    if any(name.startswith(STAND_IN) for name in made):
        words += " A synthetic series is made up."
    return Text(words)
