"""``forecast``: LSTNet on several series, with four activations in its convolution."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from ..activations import FACTORIES
from ..cells import Cell, Result
from ..data import data_root, windows
from ..experiment import Experiment, Options, Outcome, Place, Section
from ..lstnet import LSTNet
from ..models import count_parameters
from ..problems import Forecast
from ..training import Metrics
from .sets import STAND_IN, has_series, series_tensor
from .trained import recipe, train

ACTIVATIONS = ("deu", "deu waves", "ReLU", "Swish", "Maxout")
RATES = (1e-3, 3e-3)
SEEDS = 3


@dataclass(frozen=True)
class Series:
    """A series and how it is trained on.

    Attributes:
        name: as :func:`deu.experiments.data.series` knows it.
        paper: the set of the paper's table that it is or stands for; "" for none.
        step: minutes from one step to the next.
        horizons: steps ahead, each with the paper's column that it is to be read beside, or "".
        window, skip, batch, epochs: settings, fewer steps and smaller batches where it is short.
    """

    name: str
    paper: str
    step: int
    horizons: dict[int, str]
    window: int = 168
    skip: int = 24
    batch: int = 128
    epochs: int = 20


HOURLY = {6: "6", 12: "12"}
SERIES = (
    Series("traffic", "Traffic", 60, HOURLY),
    Series("pems_occupancy", "Traffic", 60, HOURLY, batch=32, epochs=40),
    Series("solar-energy", "Solar output", 10, HOURLY),
    # A day is 48 steps. LSTNet's 6 and 12 steps are 1 and 2 hours, the paper says 6 and 12.
    Series("nrel_pv_rhode_island", "Solar output", 30, {2: "6", 4: "12", 12: "", 24: ""}, skip=48),
    Series("electricity", "Elect.", 60, {12: "12"}),
    Series("gefcom_load", "Elect.", 60, {12: "12"}, epochs=30),
    Series("uci_electricity_5weeks", "Elect.", 60, {12: "12"}, window=84, batch=32, epochs=60),
    Series("exchange_rate", "", 1440, {6: "", 12: ""}, epochs=30),
)
PUBLISHED = {"Traffic": "traffic", "Solar output": "solar-energy", "Elect.": "electricity"}


def chosen(options: Options) -> list[Series]:
    """The series to run on.

    For each set of the paper: its published file where the data directory has it, and whatever
    stands for it where it is there; if nothing is, the published file, which is then downloaded
    or said to be missing.
    """
    root = data_root(options.data)
    present = [one for one in SERIES if has_series(one.name, root)]
    covered = {one.paper for one in present}
    return [
        one
        for one in SERIES
        if one in present
        or one.name == "exchange_rate"
        or (one.name in PUBLISHED.values() and one.paper not in covered)
    ]


def cells(options: Options) -> list[Cell]:
    """Every series and horizon with every activation at every learning rate, a cell a seed."""
    if options.quick:
        return _quick_cells(options)
    return [
        Cell(
            "forecast",
            {
                "data": one.name,
                "horizon": horizon,
                "activation": activation,
                "lr": lr,
                "window": one.window,
                "skip": one.skip,
                "epochs": one.epochs,
                "batch": one.batch,
                "precision": options.precision or "float32",
            },
            seeds=(seed,),
        )
        for one in chosen(options)
        for horizon in one.horizons
        for activation in ACTIVATIONS
        for lr in RATES
        for seed in range(options.seeds or SEEDS)
    ]


def _quick_cells(options: Options) -> list[Cell]:
    """A small network on a short piece of one series, or of its stand-in."""
    real = has_series("exchange_rate", data_root(options.data))
    return [
        Cell(
            "forecast",
            {
                "data": "exchange_rate" if real else STAND_IN + "exchange_rate",
                "horizon": 6,
                "activation": activation,
                "lr": RATES[1],
                "window": 48,
                "skip": 12,
                "epochs": 2,
                "batch": 32,
                "precision": options.precision or "float32",
                "steps": 600,
                "variables": 4,
                "channels": 16,
            },
            seeds=(seed,),
            quick=True,
        )
        for activation in ACTIVATIONS
        for seed in range(options.seeds or 1)
    ]


def network(settings: dict[str, Any], variables: int, seed: int) -> nn.Module:
    """A cell's LSTNet as its seed starts it."""
    torch.manual_seed(seed)
    channels = settings.get("channels", 100)
    return LSTNet(
        FACTORIES[settings["activation"]],
        variables,
        window=settings["window"],
        channels=channels,
        hidden=channels,
        skip=settings["skip"],
    )


def run(cell: Cell, place: Place) -> Outcome:
    """Train one network; its metrics are those of the epoch that is best on the validation part."""
    settings = cell.settings
    values = series_tensor(settings, place)
    split = windows(values, window=settings["window"], horizon=settings["horizon"])
    problem = Forecast(type(split)(*(part.to(place.device) for part in split)))
    model = network(settings, values.shape[1], cell.seeds[0]).to(place.device)
    history = train(cell, place, model, problem, recipe(cell, place))
    return Outcome(best_epoch(history), history, count_parameters(model))


def best_epoch(history: list[dict[str, Any]]) -> Metrics:
    """The metrics of the epoch with the least RSE on the validation part, and its number.

    Example:
        >>> records = [{"epoch": i, "loss": 0.0, "valid_rse": [v]} for i, v in ((1, 0.5), (2, 0.7))]
        >>> best_epoch(records)
        {'valid_rse': [0.5], 'best_epoch': [1.0]}
    """
    # NaN compares with nothing: it would be kept if it came first.
    finite = [r for r in history if r["valid_rse"][0] == r["valid_rse"][0]]
    best = min(finite or history, key=lambda record: record["valid_rse"][0])
    metrics = {key: value for key, value in best.items() if key not in ("epoch", "loss")}
    return {**metrics, "best_epoch": [float(best["epoch"])]}


def report(results: list[Result]) -> list[Section]:
    """The paper's table with ours beside it, set by set, and which file stands for which."""
    from .forecast_tables import sections

    return sections(results)


EXPERIMENT = Experiment(
    "forecast",
    "Series: LSTNet with four activations",
    "210 networks or more, of a minute or so each on a GPU, of up to an hour on two cores",
    cells,
    run,
    report,
)
