"""``mnist``, ``fashion-mnist`` and ``convergence``: two networks with five activations each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import nn

from ..activations import FACTORIES
from ..cells import Cell, Result
from ..experiment import Experiment, Options, Outcome, Place, Section, Text
from ..models import cnn, count_parameters, mlp
from ..problems import Classification, Parts
from .names import shown
from .sets import image_data, image_tensors
from .trained import last, recipe, train

NETWORKS: dict[str, Callable[..., nn.Module]] = {"mlp": mlp, "cnn": cnn}
ACTIVATIONS = ("ReLU", "SELU", "PReLU", "deu", "Maxout")
RATES = (1e-3, 3e-3, 1e-2)
SEEDS = 5

# What a study has besides: with and without batch norm, and every unit there is.
STUDIED = ("ReLU", "SiLU", "GELU", "PReLU", "Snake")
STUDIED_RATES = (3e-4, *RATES)

# The paper's table: size in thousands, accuracy on MNIST, accuracy on Fashion-MNIST.
PAPER = {
    ("mlp", "ReLU"): (1411, "98.1", "89.0"),
    ("cnn", "ReLU"): (30, "99.2", "90.2"),
    ("mlp", "SELU"): (1293, "95.5", "87.5"),
    ("cnn", "SELU"): (21, "98.8", "89.6"),
    ("mlp", "PReLU"): (1293, "97.4", "88.7"),
    ("cnn", "PReLU"): (21, "98.9", "89.6"),
    ("mlp", "deu"): (1292, "98.3", "89.8"),
    ("cnn", "deu"): (21, "99.2", "91.5"),
    ("mlp", "Maxout"): (2043, "98.5", "89.4"),
    ("cnn", "Maxout"): (26, "99.4", "91.3"),
}
WHY = (
    "Most likely by chance or by the schedule: twelve passes with Adam and one cycle at three "
    "learning rates are all that was tried, and the paper gives neither its own nor a spread."
)
SIZES = (
    "Sizes: the paper says how wide its layers are, not how large its kernels or what else it "
    "counts. Ours are the networks as it describes them, the same for every activation (5×5 "
    "kernels and 2×2 average pools in the CNN): with DEU, SELU and PReLU the CNN's 21 thousand "
    "parameters are the paper's, and the paper's ReLU networks, 1411 and 30 thousand, are larger "
    "than its others by something that it does not say. Our Maxout has two pieces."
)


def quick_sizes(options: Options) -> dict[str, Any]:
    """The settings by which a quick cell differs: few images, two epochs."""
    return {"epochs": 2, "batch": 64, "train": 1024, "test": 500} if options.quick else {}


def cells(experiment: str, options: Options) -> list[Cell]:
    """Every network with every activation at every learning rate, a cell a seed."""
    chosen = [
        (network, activation, False, lr)
        for network in NETWORKS
        for activation in ACTIVATIONS
        for lr in (RATES[1:2] if options.quick else RATES)
    ]
    if options.scope == "study" and experiment == "fashion-mnist":
        units = [name for name in FACTORIES if name.startswith("deu")]
        chosen += [
            (network, activation, norm, lr)
            for network in NETWORKS
            for activation in (*STUDIED, *units)
            for norm in (False, True)
            for lr in (RATES[1:2] if options.quick else STUDIED_RATES)
        ]
    data = image_data(experiment, options)
    return [
        Cell(
            experiment,
            {
                "network": network,
                "activation": activation,
                "norm": norm,
                "lr": lr,
                "epochs": 12,
                "batch": 128,
                "data": data,
                "precision": options.precision or "float32",
                **quick_sizes(options),
            },
            seeds=(seed,),
            quick=options.quick,
        )
        for network, activation, norm, lr in dict.fromkeys(chosen)
        for seed in range(options.seeds or (1 if options.quick else SEEDS))
    ]


def network(cell: Cell, place: Place) -> nn.Module:
    """A cell's network as its seed starts it, on its device."""
    settings = cell.settings
    torch.manual_seed(cell.seeds[0])
    make = NETWORKS[settings["network"]]
    return make(FACTORIES[settings["activation"]], norm=settings["norm"]).to(place.device)


def run(cell: Cell, place: Place) -> Outcome:
    """Train one network and measure it on the test images after each epoch."""
    model = network(cell, place)
    problem = Classification(*image_tensors(cell.settings, place))
    history = train(cell, place, model, problem, recipe(cell, place))
    return Outcome(last(history), history, count_parameters(model))


def report(results: list[Result]) -> list[Section]:
    """The paper's table with ours beside it, sizes, and each activation's learning rate."""
    from ..summaries import best_results, flat
    from ..tables import PaperRow, paper_table, paper_words
    from .image_tables import every_rate_table, rates_table, sizes_table, standing, trained_on

    experiment, quick = results[0].cell.experiment, results[0].cell.quick
    best = best_results(results, "accuracy", by=("network", "activation", "norm"))
    column = 1 if experiment == "mnist" else 2
    rows = [
        PaperRow(
            label(*key),
            numbers[column],
            flat(best.get((*key, False), []), "accuracy"),
            digits=2,
            percent=True,
        )
        for key, numbers in PAPER.items()
    ]
    counts = {key[:2]: runs[0].parameters for key, runs in best.items() if not key[2]}
    sizes = {label(*key): (size, counts.get(key)) for key, (size, *_) in PAPER.items()}
    return [
        trained_on(results),
        paper_table("Accuracy on the test images, %", rows, quick),
        paper_words(rows, quick, WHY),
        *([] if quick else [standing(best)]),
        Text(
            "Every activation has the same learning rates to choose from, and the one with the "
            "best mean over seeds is shown; the paper does not say how it chose."
        ),
        sizes_table(sizes),
        Text(SIZES),
        rates_table(best),
        every_rate_table(results),
    ]


def label(network: str, activation: str) -> str:
    """As the paper's table names them.

    Example:
        >>> label("cnn", "deu")
        'CNN-DEU'
    """
    return f"{network.upper()}-{shown(activation)}"


PASSES, PARTS = 5, 10  # how often the training images are seen, and measurements in each pass


def convergence_cells(options: Options) -> list[Cell]:
    """Those of MNIST, over fewer passes and measured more often."""
    parts = 4 if options.quick else PARTS
    return [
        replace(
            cell,
            experiment="convergence",
            settings={
                **cell.settings,
                "epochs": parts * (2 if options.quick else PASSES),
                "parts": parts,
            },
        )
        for cell in cells("mnist", replace(options, scope="paper"))
    ]


def run_convergence(cell: Cell, place: Place) -> Outcome:
    """Train one network and measure it several times a pass."""
    model = network(cell, place)
    problem = Parts(*image_tensors(cell.settings, place), parts=cell.settings["parts"])
    history = train(cell, place, model, problem, recipe(cell, place))
    steps = problem.steps(cell.settings["batch"])
    at = {"steps": [steps * record["epoch"] for record in history]}
    return Outcome(last(history), history, count_parameters(model), at)


def report_convergence(results: list[Result]) -> list[Section]:
    """Error against step, and whether the unit is the best at almost all of them."""
    from ..summaries import best_results
    from .convergence import curves_picture, errors_table, leading_words
    from .image_tables import trained_on

    best = best_results(results, "accuracy", by=("network", "activation"))
    sections: list[Section] = [trained_on(results)]
    for name in NETWORKS:
        own = {a: best[name, a] for a in ACTIVATIONS if (name, a) in best}
        if own:
            sections += [
                curves_picture(name, own),
                errors_table(name, own),
                leading_words(name, own),
            ]
    return sections


def experiment(name: str, title: str) -> Experiment:
    """One of the two sets."""
    cost = "150 networks of seconds each on a GPU, about two minutes each on two cores"
    return Experiment(name, title, cost, partial(cells, name), run, report)


MNIST = experiment("mnist", "MNIST: MLP and CNN with five activations")
FASHION_MNIST = experiment("fashion-mnist", "Fashion-MNIST: MLP and CNN with five activations")
CONVERGENCE = Experiment(
    "convergence",
    "MNIST: error against step",
    "150 networks of seconds each on a GPU, about a minute each on two cores",
    convergence_cells,
    run_convergence,
    report_convergence,
)
