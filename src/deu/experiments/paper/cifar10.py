"""``cifar10``: three residual networks with six activations each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from ..activations import FACTORIES, Factory
from ..cells import Cell, Result
from ..experiment import Experiment, Options, Outcome, Place, Section, Text
from ..models import count_parameters, preact_resnet18, resnet18, stunted_resnet18
from ..problems import Classification
from .names import shown
from .sets import image_data, image_tensors
from .trained import last, on_gpu, recipe, train

# By name: the network, and the widths that a quick run has instead.
NETWORKS: dict[str, tuple[Callable[..., nn.Module], tuple[int, ...]]] = {
    "resnet18": (resnet18, (8, 16, 16, 16)),
    "preact": (preact_resnet18, (8, 16, 16, 16)),
    "stunted": (stunted_resnet18, (8, 16)),
}
ACTIVATIONS = ("ReLU", "PReLU", "SELU", "Swish", "Maxout", "deu")
STUDIED = ("SiLU", "GELU", "Snake")  # what a study has besides
RATES = (1e-3, 3e-3, 1e-2)
EPOCHS = {"resnet18": 15, "preact": 15, "stunted": 30}  # the first two have far more parameters
SEEDS = 3
WEIGHT_DECAY = 0.05
SHIFT = 4  # pixels, at most, of a training image

WHY = (
    "Most likely because of the schedule, a fifth of the usual length or less: SELU, which is "
    "furthest behind, still has the highest loss on the training images, and its accuracy rises "
    "with the learning rate up to the highest. The learning rates of the last table below were "
    "tried; where it has a dash, a neighbouring rate was better already or none other was run. "
    "Longer schedules were not tried."
)

# The paper's table, and the sizes in thousands that its text gives.
TITLES = {"resnet18": "ResNet-18", "preact": "Preact-ResNet", "stunted": "ResNet-Stunted"}
PAPER = {
    "resnet18": ("91.25", "92.1", "92.2", "91.9", "92.5", "92.5"),
    "preact": ("92.1", "92.2", "92.3", "92.0", "92.4", "92.3"),
    "stunted": ("89.3", "89.4", "90.5", "90.1", "91.1", "90.7"),
}
SIZES = {"resnet18": 11174, "preact": 11170, "stunted": 678}
MAXOUT_SIZES = {"resnet18": 13272, "preact": 13267, "stunted": 801}


def cells(options: Options) -> list[Cell]:
    """Every network with every activation at every learning rate, a cell a seed."""
    quick: dict[str, Any] = {"epochs": 1, "batch": 64, "train": 256, "test": 128}
    data = image_data("cifar10", options)
    return [
        Cell(
            "cifar10",
            {
                "network": network,
                "activation": activation,
                "lr": lr,
                "epochs": EPOCHS[network],
                "batch": 128,
                "weight_decay": WEIGHT_DECAY,
                "data": data,
                "precision": options.precision or ("float32" if options.quick else "bfloat16"),
                **({**quick, "widths": list(widths)} if options.quick else {}),
            },
            seeds=(seed,),
            quick=options.quick,
        )
        for network, (_, widths) in NETWORKS.items()
        for activation in (ACTIVATIONS + STUDIED if options.scope == "study" else ACTIVATIONS)
        for lr in (RATES[1:2] if options.quick else RATES)
        for seed in range(options.seeds or (1 if options.quick else SEEDS))
    ]


def network(cell: Cell) -> nn.Module:
    """A cell's network as its seed starts it."""
    settings = cell.settings
    torch.manual_seed(cell.seeds[0])
    make, _ = NETWORKS[settings["network"]]
    activation: Factory = FACTORIES[settings["activation"]]
    if "widths" in settings:
        make = preact_resnet18 if settings["network"] == "preact" else resnet18
        return make(activation, widths=settings["widths"])
    return make(activation)


def run(cell: Cell, place: Place) -> Outcome:
    """Train one network on shifted and flipped images; measure it after each epoch."""
    model = network(cell).to(place.device)
    train_x, train_y, test_x, test_y = image_tensors(cell.settings, place)
    if on_gpu(place):
        model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        train_x = train_x.to(memory_format=torch.channels_last)
        test_x = test_x.to(memory_format=torch.channels_last)
    problem = Classification(train_x, train_y, test_x, test_y, crop=SHIFT)
    how = recipe(cell, place, weight_decay=cell.settings["weight_decay"])
    history = train(cell, place, model, problem, how)
    return Outcome(last(history), history, count_parameters(model))


def report(results: list[Result]) -> list[Section]:
    """The paper's table with ours beside it, sizes, and each activation's learning rate."""
    from ..summaries import best_results, flat
    from ..tables import PaperRow, paper_table, paper_words
    from .image_tables import every_rate_table, rates_table, sizes_table, standing, trained_on

    quick = results[0].cell.quick
    best = best_results(results, "accuracy", by=("network", "activation"))
    pairs = [(network, activation) for network in NETWORKS for activation in ACTIVATIONS]
    rows = [
        PaperRow(
            label(network, activation),
            PAPER[network][ACTIVATIONS.index(activation)],
            flat(best.get((network, activation), []), "accuracy"),
            digits=2,
            percent=True,
        )
        for network, activation in pairs
    ]
    sizes = {
        label(*pair): (
            (MAXOUT_SIZES if pair[1] == "Maxout" else SIZES)[pair[0]],
            best[pair][0].parameters if pair in best else None,
        )
        for pair in pairs
    }
    words = (
        "Sizes: the paper's table gives one for each network and its text one more for Maxout. The "
        "table's are those of the networks with ReLU, to a thousand; a unit adds five numbers for "
        "each channel. Our Maxout has two pieces in each channel, so that nearly all its kernels "
        "are twice as large; the paper's, larger by a fifth, must be in some of the layers only, "
        "which it does not name."
    )
    about_sizes: list[Section] = [] if quick else [sizes_table(sizes), Text(words)]
    return [
        trained_on(results),
        paper_table("Accuracy on the test images, %", rows, quick),
        paper_words(rows, quick, WHY),
        *([] if quick else [standing(best)]),
        Text(
            "The paper trains with the settings of He et al. (2016): SGD, many more epochs. Here "
            f"every network has AdamW with a weight decay of {WEIGHT_DECAY:g} and one cycle of the "
            "learning rate, images shifted by up to four pixels and flipped. Of the learning rates "
            "that an activation was run at (the last table below) the one with the best mean over "
            "seeds is shown. Swish learns a β for each channel."
        ),
        *about_sizes,
        rates_table(best),
        every_rate_table(results),
    ]


def label(network: str, activation: str) -> str:
    """As the paper's table names them.

    Example:
        >>> label("preact", "deu")
        'Preact-ResNet, DEU'
    """
    return f"{TITLES[network]}, {shown(activation)}"


EXPERIMENT = Experiment(
    "cifar10",
    "CIFAR-10: three residual networks with six activations",
    "162 networks of minutes each on a GPU; on a few cores it would take weeks",
    cells,
    run,
    report,
)
