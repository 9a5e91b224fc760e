"""A small experiment for tests of the engine, and the command ``deu`` with nothing but it.

Started as a program this is that command, so that tests can kill it and run it under torchrun.
``TOY`` in the environment says what its cells do, a word each.
"""

from __future__ import annotations

import errno
import math
import os
import signal
import sys
from pathlib import Path

import torch
from torch import nn

from deu import DEU, cli
from deu.experiments import registry
from deu.experiments.cells import Cell, Result
from deu.experiments.data import DataError
from deu.experiments.experiment import Experiment, Options, Outcome, Place, Section, Table
from deu.experiments.problems import Classification, Regression
from deu.experiments.stacked import Stacked
from deu.experiments.summaries import text
from deu.experiments.training import Recipe, Run

EPOCHS, BATCH = 4, 16


class Dying(Classification):
    """In the middle of the third epoch the process is killed, once for each flag file."""

    epochs = 0
    flag: Path | None = None

    def batches(self, batch, generator):
        self.epochs += 1
        for i, pair in enumerate(super().batches(batch, generator)):
            if self.flag is not None and self.epochs == 3 and i == 2 and not self.flag.exists():
                self.flag.touch()
                os.kill(os.getpid(), signal.SIGKILL)
            yield pair


def problem(kind: type[Classification] = Classification) -> Classification:
    """Points in the plane, and which side of a circle they are on."""
    x = torch.randn(128 + 64, 2, generator=torch.Generator().manual_seed(5))
    y = (x.square().sum(1) > 1.5).long()
    return kind(x[:128], y[:128], x[128:], y[128:])


def network() -> nn.Sequential:
    return nn.Sequential(nn.Linear(2, 8), DEU(8), nn.Dropout(0.1), nn.Linear(8, 2))


def cells(options: Options) -> list[Cell]:
    found = []
    for do in os.environ.get("TOY", "train").split():
        for seed in range(options.seeds or 2):
            settings = {"do": do, "precision": options.precision or "float32"}
            found.append(Cell("toy", settings, (seed,), options.quick))
    return found


def run(cell: Cell, place: Place) -> Outcome:
    do = cell.settings["do"]
    if do == "fail":
        raise ValueError("this cell always fails")
    if do == "data":
        raise DataError("toy.txt is missing: put it there by hand")
    if do == "full":
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "toy.pt")
    if do == "stop":
        raise KeyboardInterrupt("by hand")
    if do == "nan":
        return Outcome({"accuracy": [0.5], "mse": [math.inf]}, [{"epoch": 1, "loss": math.nan}])
    if do == "odd":
        return Outcome({}, curves={"net": nn.Linear})
    if do == "gradients":
        return Outcome({}, curves=gradients())
    torch.manual_seed(cell.seeds[0])
    task = problem(Dying)
    task.flag = Path(os.environ["TOY_FLAG"]) if do == "die" else None
    model = network()
    recipe = Recipe(
        0.01,
        EPOCHS,
        BATCH,
        precision=cell.settings["precision"],
        compiled=place.compiled,
        captured=place.captured,
    )
    training = Run(
        model.to(place.device),
        task,
        recipe,
        seed=cell.seeds[0],
        identity=cell.identity,
        checkpoint=place.checkpoint,
    )
    for _ in place.watch(training):
        pass
    last = training.history[-1]
    weights = {name: value.tolist() for name, value in model.state_dict().items()}
    return Outcome(
        {"accuracy": last["accuracy"], "test_loss": last["test_loss"]},
        training.history,
        sum(p.numel() for p in model.parameters()),
        weights,
    )


def gradients() -> dict[str, list]:
    """The gradients of one step, by parameter, and the loss: of one network, and of three."""
    layers = nn.Linear(2, 8), DEU(8, solution="continuous", max_grad_norm=0.1), nn.Linear(8, 2)
    one = nn.Sequential(*layers).double()
    nn.init.normal_(one[2].weight, std=5)  # gradients that the units limit
    points = problem()
    tensors = points.train_x.double(), points.train_y, points.test_x.double(), points.test_y
    three = Stacked(lambda n: DEU(n, init="spread", solution="continuous"), range(3), 1, 4, 1)
    waves = Regression(torch.sin, 0.0, 6.0, seeds=3, steps_an_epoch=1)
    found = {}
    for name, model, task, batch in (
        ("one", one, Classification(*tensors), len(tensors[0])),
        ("three", three, waves, 8),
    ):
        (record,) = Run(model, task, Recipe(0.01, 1, batch), seed=0).epochs()
        found |= {f"{name} {key}": p.grad.tolist() for key, p in model.named_parameters()}
        found[f"{name} loss"] = [record["loss"]]
    return found


def report(results: list[Result]) -> list[Section]:
    rows = [[r.cell.label, text(r.metrics.get("accuracy", []), 3)] for r in results]
    return [Table("Toys", ["cell", "accuracy"], rows)]


EXPERIMENT = Experiment("toy", "A toy", "a second on a CPU", cells, run, report)

if __name__ == "__main__":
    registry.SPECS = {"toy": "toy:EXPERIMENT"}
    sys.exit(cli.main())
