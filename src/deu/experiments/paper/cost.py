"""``cost``: how long a training step and inference take with units, beside ReLU."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from ...bench.models import INFERENCE, TRAINING, Form, measure
from ...bench.rounds import Clock
from ...bench.rows import MEASURED, Row
from ..activations import FACTORIES, Factory
from ..cells import Cell, Result
from ..experiment import Experiment, Options, Outcome, Place, Section, Table, Text
from ..models import cnn, count_parameters, resnet18

UNIT, BASE = "deu", "ReLU"
# The paper's, and a small one to try it with.
NETWORKS: dict[str, Callable[[Factory], nn.Module]] = {"ResNet-18": resnet18, "CNN": cnn}

# The paper's milliseconds a batch of 128 on a Tesla K40c: with units, with ReLU.
PAPER = {TRAINING: (640, 180), INFERENCE: (111, 65)}


def cells(options: Options) -> list[Cell]:
    """A training step and inference; a timing has rounds instead of seeds."""
    return [
        Cell(
            "cost",
            {
                "network": "ResNet-18",
                "work": work,
                "batch": 2 if options.quick else 128,
                "rounds": 3 if options.quick else 31,
                "precision": options.precision or "float32",
            },
            quick=options.quick,
        )
        for work in PAPER
    ]


def run(cell: Cell, place: Place) -> Outcome:
    """Time both networks in turn, each checked against float64 first."""
    settings = cell.settings
    form = Form(
        settings["network"],
        settings["work"],
        settings["batch"],
        autocast=settings["precision"] == "bfloat16",
        providers=(BASE, UNIT),
    )
    rows: list[Row] = []
    template = Row("", "", "", "", "", "")
    place.progress(f"{form.title}, {form.work}")
    measure(form, torch.device(place.device), settings["rounds"], Clock(), rows.extend, template)
    measured = {row.provider: row for row in rows if row.status == MEASURED}
    for name in (BASE, UNIT):
        if name not in measured:
            why = [f"{row.status}: {row.note or row.error}" for row in rows if row.provider == name]
            raise RuntimeError(
                f"the time of {form.title}, {form.work}, with {name} could not be taken "
                f"({'; '.join(why) or 'it was not measured'})"
            )
    unit, base = measured[UNIT], measured[BASE]
    metrics = {
        "ratio": [unit.ratio],
        "unit_ms": [1000 * unit.seconds],
        "base_ms": [1000 * base.seconds],
    }
    quartiles = {
        "ratio": [unit.ratio_low, unit.ratio_high],
        "unit_ms": [1000 * unit.seconds_low, 1000 * unit.seconds_high],
        "base_ms": [1000 * base.seconds_low, 1000 * base.seconds_high],
    }
    network = NETWORKS[settings["network"]](FACTORIES[UNIT])
    return Outcome(metrics, [], count_parameters(network), {"quartiles": quartiles})


def report(results: list[Result]) -> list[Section]:
    """Milliseconds and their ratio, beside the paper's."""
    from ..tables import PaperRow, paper_table, paper_words

    quick = results[0].cell.quick
    rows, times = [], []
    for work, (unit, base) in PAPER.items():
        own = [result for result in results if result.cell.settings["work"] == work]
        ratio = [value for result in own for value in result["ratio"]]
        title = f"{work}, time with DEU over time with ReLU"
        rows.append(PaperRow(title, f"{unit / base:.2f}", ratio, digits=2, higher=False))
        for result in own:
            quartiles = result.curves["quartiles"]
            times.append(
                [
                    work,
                    f"{result.cell.settings['batch']}, {result.cell.settings['precision']}",
                    f"{unit} / {base}",
                    *(
                        f"{_short(result[name][0])} ({'–'.join(map(_short, quartiles[name]))})"
                        for name in ("unit_ms", "base_ms", "ratio")
                    ),
                ]
            )
    header = ["", "batch", "paper, DEU / ReLU", "ours, DEU", "ours, ReLU", "ratio"]
    return [
        paper_table("Time with units over time with ReLU", rows, quick),
        paper_words(rows, quick),
        Table("Milliseconds a batch: the median (quartiles)", header, times),
        Text(
            "The paper's times are of batches of 128 on a Tesla K40c, so only ratios compare. Ours "
            "are of batches as the table says, in turn with ReLU in every round, the ratio taken "
            "within a round, on the hardware named below; deu bench measures more networks and "
            "ways. A network is timed only after its result has been found right against float64."
        ),
    ]


def _short(number: float) -> str:
    """Three digits.

    Example:
        >>> _short(0.01234), _short(1234.5)
        ('0.0123', '1,234')
    """
    return f"{number:,.0f}" if number >= 100 else f"{number:.3g}"


EXPERIMENT = Experiment(
    "cost",
    "ResNet-18: time of a training step and of inference against ReLU",
    "seconds on a GPU, about ten minutes on two cores",
    cells,
    run,
    report,
)
