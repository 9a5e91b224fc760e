"""The experiments on data: cells for every number of the paper, runs that go on, whole reports."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

pytest.importorskip("numpy")
pytest.importorskip("pooch")
pytest.importorskip("matplotlib")

from deu.experiments import data
from deu.experiments.cells import Cell, Result, read_result, write_result
from deu.experiments.data import DataError, files, rse, synthetic_series, windows
from deu.experiments.experiment import Experiment, Options, Picture, Place, Table, Text
from deu.experiments.paper import cifar10, cost, forecast, forecast_tables, image_sets, sets
from deu.experiments.problems import Classification, Forecast, Parts
from deu.experiments.training import CheckpointError

TRAINED = {
    "mnist": image_sets.MNIST,
    "fashion-mnist": image_sets.FASHION_MNIST,
    "convergence": image_sets.CONVERGENCE,
    "cifar10": cifar10.EXPERIMENT,
    "forecast": forecast.EXPERIMENT,
}
EVERY = {**TRAINED, "cost": cost.EXPERIMENT}
SMALL = {"train": 32, "test": 20, "batch": 16, "epochs": 2}  # of images


@pytest.fixture
def nowhere(monkeypatch, tmp_path) -> Path:
    """A data directory with nothing in it, and no network."""
    folder = tmp_path / "data"
    folder.mkdir()
    monkeypatch.setenv("DEU_DATA", str(folder))

    def no_network(file, target):
        raise OSError("no network")

    monkeypatch.setattr(files, "bring", no_network)
    return folder


def real(name: str) -> Path:
    """The data directory, where it has a set; else the test is skipped, and says why."""
    root = data.data_root()
    has = sets.has_images if name in ("mnist", "fashion-mnist", "cifar10") else sets.has_series
    if not has(name, root):
        pytest.skip(f"{name} is not in {root}: name a directory that has it with DEU_DATA")
    return root


def small(cell: Cell, **more) -> Cell:
    """A quick cell made smaller still."""
    less = {"epochs": 2} if cell.experiment == "forecast" else SMALL
    return replace(cell, settings={**cell.settings, **less, **more})


def first(name: str, **wanted) -> Cell:
    """A quick cell with such settings."""
    cells = EVERY[name].cells(Options(quick=True))
    return next(c for c in cells if wanted.items() <= c.settings.items())


def faked(experiment: Experiment, value, options=None) -> list[Result]:
    """Results of every cell without running any, the metric a function of its settings."""
    found = []
    for cell in experiment.cells(options or Options(seeds=2)):
        number = value(cell)
        names = ("accuracy", "test_loss", "rse", "corr", "valid_rse", "ratio", "unit_ms", "base_ms")
        metrics = {name: [number] for name in names}
        epochs = cell.settings.get("epochs", 1)
        history = [{"epoch": i + 1, "loss": 0.1, **metrics} for i in range(epochs)]
        curves = {
            "steps": [10 * record["epoch"] for record in history],
            "quartiles": {name: [number, number] for name in ("ratio", "unit_ms", "base_ms")},
        }
        found.append(Result(cell, metrics, history, 21_000, curves))
    return found


def tables_of(sections) -> list[Table]:
    found = [section for section in sections if isinstance(section, Table)]
    for table in found:
        assert all(len(row) == len(table.header) for row in table.rows)
        assert table.rows
    return found


def words_of(sections) -> str:
    return " ".join(section.text for section in sections if isinstance(section, Text))


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("quick", [False, True])
def test_cells_are_plain_and_apart(nowhere, name, quick):
    cells = EVERY[name].cells(Options(quick=quick))
    assert cells
    assert len({cell.name for cell in cells}) == len(cells)
    assert all(cell.experiment == name and cell.quick == quick for cell in cells)
    assert all(json.loads(json.dumps(c.settings)) == c.settings for c in cells)


@pytest.mark.parametrize("name", TRAINED)
def test_quick_cells_say_that_their_data_is_made_up(nowhere, name):
    quick = EVERY[name].cells(Options(quick=True))
    assert all(cell.settings["data"].startswith("synthetic ") for cell in quick)
    full = EVERY[name].cells(Options())
    assert not any(cell.settings["data"].startswith("synthetic ") for cell in full)


@pytest.mark.parametrize("name", TRAINED)
def test_options_reach_the_cells(nowhere, name):
    cells = EVERY[name].cells(Options(quick=True, seeds=2, precision="bfloat16"))
    assert {cell.seeds for cell in cells} == {(0,), (1,)}
    assert {cell.settings["precision"] for cell in cells} == {"bfloat16"}


def test_every_number_of_the_papers_tables_has_cells(nowhere):
    for name in ("mnist", "fashion-mnist"):
        cells = EVERY[name].cells(Options())
        made = {(c.settings["network"], c.settings["activation"]) for c in cells}
        assert made == set(image_sets.PAPER)
        assert len(cells) == len(made) * len(image_sets.RATES) * image_sets.SEEDS
    cells = cifar10.EXPERIMENT.cells(Options())
    made = {(c.settings["network"], c.settings["activation"]) for c in cells}
    assert made == {(n, a) for n in cifar10.PAPER for a in cifar10.ACTIVATIONS}
    assert {c.settings["precision"] for c in cells} == {"bfloat16"}
    cells = forecast.EXPERIMENT.cells(Options())
    made = {
        (one.paper, one.horizons[c.settings["horizon"]], c.settings["activation"])
        for c in cells
        for one in forecast.SERIES
        if one.name == c.settings["data"]
    }
    wanted = {(*key, a) for key, row in forecast_tables.PAPER.items() for a in row}
    assert wanted <= made


def test_a_study_of_fashion_mnist_has_the_papers_cells_and_every_unit(nowhere):
    paper = {c.name for c in image_sets.FASHION_MNIST.cells(Options())}
    cells = image_sets.FASHION_MNIST.cells(Options(scope="study"))
    assert paper < {c.name for c in cells}
    assert {"SiLU", "GELU", "Snake", "deu", "deu paper", "deu waves"} <= {
        c.settings["activation"] for c in cells if c.settings["norm"]
    }
    plain = {c.name for c in image_sets.MNIST.cells(Options())}
    assert {c.name for c in image_sets.MNIST.cells(Options(scope="study"))} == plain


def test_series_are_the_published_ones_or_what_stands_for_them(nowhere):
    def names() -> set[str]:
        return {one.name for one in forecast.chosen(Options())}

    assert names() == {"traffic", "solar-energy", "electricity", "exchange_rate"}
    folder = nowhere / "timeseries"
    folder.mkdir()
    (folder / "pems_occupancy.txt.gz").touch()
    (folder / "gefcom_load.txt.gz").touch()
    assert names() == {"pems_occupancy", "gefcom_load", "solar-energy", "exchange_rate"}
    (folder / "traffic.txt.gz").touch()
    assert {"traffic", "pems_occupancy"} <= names()
    other = Options(data=nowhere / "elsewhere")
    assert "pems_occupancy" not in {one.name for one in forecast.chosen(other)}


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("mnist", {"network": "mlp", "activation": "deu"}),
        ("fashion-mnist", {"network": "cnn", "activation": "Maxout"}),
        ("convergence", {"network": "cnn", "activation": "deu"}),
        ("cifar10", {"network": "preact", "activation": "deu"}),
        ("cifar10", {"network": "stunted", "activation": "Swish"}),
        ("forecast", {"activation": "deu waves"}),
    ],
)
def test_a_quick_cell_runs_and_its_result_is_a_file(nowhere, tmp_path, name, wanted):
    told: list[str] = []
    cell = small(first(name, **wanted))
    outcome = EVERY[name].run(cell, Place(progress=told.append))
    assert outcome.parameters > 0
    assert len(outcome.history) == cell.settings["epochs"] == len(told)
    assert all(math.isfinite(v) for values in outcome.metrics.values() for v in values)
    result = Result(
        cell, outcome.metrics, outcome.history, outcome.parameters, outcome.curves, made={}
    )
    assert read_result(write_result(tmp_path, result)) == result


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("mnist", {"network": "cnn", "activation": "deu"}),
        ("cifar10", {"network": "stunted", "activation": "deu"}),
        ("forecast", {"activation": "deu"}),
    ],
)
def test_a_stopped_cell_goes_on_to_the_same_bits(nowhere, tmp_path, name, wanted):
    run, cell = EVERY[name].run, small(first(name, **wanted))
    whole = run(cell, Place())
    place = Place(checkpoint=tmp_path / "cell.pt")

    def stop(text: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(cell, replace(place, progress=stop))
    torch.manual_seed(99)  # whatever came between
    assert run(cell, place) == whole
    with pytest.raises(CheckpointError, match="another setting"):
        run(replace(cell, seeds=(1,)), place)


def test_seeds_differ_in_their_networks(nowhere):
    cell = small(first("forecast", activation="ReLU"))
    one, two = (forecast.run(replace(cell, seeds=(seed,)), Place()) for seed in (0, 1))
    assert one.metrics != two.metrics


def test_missing_data_is_said_with_what_to_do(nowhere):
    for name, missing in (
        ("mnist", "MNIST/raw/train-images-idx3-ubyte.gz"),
        ("cifar10", "cifar-10-python.tar.gz"),
        ("forecast", "timeseries/traffic.txt.gz"),
    ):
        cell = EVERY[name].cells(Options())[0]
        with pytest.raises(DataError, match="--data DIR or DEU_DATA") as error:
            EVERY[name].run(cell, Place())
        assert missing in str(error.value)


def test_a_series_that_is_nowhere_published_is_said_too(nowhere):
    cell = first("forecast")
    cell = replace(cell, settings={**cell.settings, "data": "gefcom_load"})
    with pytest.raises(DataError, match="no series 'gefcom_load'"):
        forecast.run(cell, Place())


def test_images_come_normalised_whole_or_in_part(nowhere):
    settings = {"data": "synthetic mnist", "train": 100, "test": 50}
    train_x, train_y, test_x, test_y = sets.image_tensors(settings, Place())
    assert [len(t) for t in (train_x, train_y, test_x, test_y)] == [100, 100, 50, 50]
    assert train_x.dtype == torch.float32
    assert train_x.mean().abs() < 1e-5
    assert (train_x.std() - 1).abs() < 1e-3


def test_parts_of_an_epoch_are_of_different_images():
    x = torch.arange(100.0)[:, None]
    problem = Parts(x, x[:, 0].long(), x, x[:, 0].long(), parts=5)
    assert problem.steps(10) == 2
    generator = torch.Generator().manual_seed(0)
    seen = [torch.cat([b for b, _ in problem.batches(10, generator)]) for _ in range(2)]
    assert all(len(part.unique()) == 20 for part in seen)
    assert not torch.equal(*seen)
    whole = Classification(x, x[:, 0].long(), x, x[:, 0].long())
    assert len(list(whole.batches(10, generator))) == 10


class Last(nn.Module):
    """The last step of a window, with something learnt so that it has a device."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(()))

    def forward(self, x):
        return self.weight * x[:, -1]


def test_forecasts_are_measured_in_the_series_own_units():
    series = synthetic_series(400, 3) * torch.tensor([1.0, 10.0, 1000.0])
    problem = Forecast(windows(series, window=24, horizon=5))
    found = problem.measure(Last())
    assert set(found) == {"rse", "corr", "valid_rse", "valid_corr"}
    persistent, truth = series[320 - 5 : 400 - 5], series[320:]
    assert found["rse"][0] == pytest.approx(rse(persistent, truth), rel=1e-4)
    persistent, truth = series[240 - 5 : 320 - 5], series[240:320]
    assert found["valid_rse"][0] == pytest.approx(rse(persistent, truth), rel=1e-4)


def test_a_forecasts_loss_weighs_series_by_their_size():
    series = synthetic_series(200, 2) * torch.tensor([1.0, 100.0])
    problem = Forecast(windows(series, window=8, horizon=2))
    zero = torch.zeros(4, 2)
    small_wrong, large_wrong = torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 1.0]])
    ratio = problem.loss(zero + large_wrong, zero) / problem.loss(zero + small_wrong, zero)
    largest = series.abs().amax(0)
    assert ratio.item() == pytest.approx((largest[1] / largest[0]).item(), rel=1e-4)


def test_the_epoch_of_a_forecast_is_chosen_by_the_validation_part():
    history = [
        {"epoch": 1, "loss": math.nan, "valid_rse": [math.nan], "rse": [math.nan]},
        {"epoch": 2, "loss": 0.2, "valid_rse": [0.4], "rse": [0.6]},
        {"epoch": 3, "loss": 0.1, "valid_rse": [0.5], "rse": [0.1]},
    ]
    assert forecast.best_epoch(history) == {"valid_rse": [0.4], "rse": [0.6], "best_epoch": [2.0]}
    assert math.isnan(forecast.best_epoch(history[:1])["rse"][0])


@pytest.mark.parametrize("name", ["mnist", "fashion-mnist"])
def test_the_report_of_images_has_the_papers_rows_and_says_where_ours_falls_short(nowhere, name):
    def value(cell: Cell) -> float:
        best = cell.settings["lr"] == 1e-3
        return (0.80 if cell.settings["activation"] == "deu" else 0.999) - (0 if best else 0.1)

    sections = EVERY[name].report(faked(EVERY[name], value))
    beside, sizes, rates, _ = tables_of(sections)
    assert len(beside.rows) == len(sizes.rows) == 10
    row = next(row for row in beside.rows if row[0] == "CNN-DEU")
    column = 1 if name == "mnist" else 2
    assert row[1] == image_sets.PAPER["cnn", "deu"][column]
    assert row[2].startswith("80.00")
    assert row[4] == "worse"
    assert "falls short in: MLP-DEU" in words_of(sections)
    assert rates.header[2:4] == ["batch norm", "learning rate"]
    assert {row[2] for row in rates.rows} <= {"yes", "no"}
    assert all(row[3] == "0.001" for row in rates.rows)


def test_the_report_of_cifar_has_the_papers_rows(nowhere):
    sections = cifar10.report(faked(cifar10.EXPERIMENT, lambda cell: 0.95))
    beside, sizes, *rates = tables_of(sections)
    for table in rates:  # none of these networks has batch norm as a setting
        assert "batch norm" not in table.header
        assert {len(row) for row in table.rows} == {len(table.header)}
    assert len(rates) == 2
    assert [row[1] for row in beside.rows[:6]] == list(cifar10.PAPER["resnet18"])
    assert len(beside.rows) == len(sizes.rows) == 18
    assert "better in 18" in words_of(sections)


def test_a_report_of_some_cells_says_which_are_missing(nowhere):
    some = [r for r in faked(cifar10.EXPERIMENT, lambda cell: 0.9) if r.cell.seeds == (0,)]
    some = [r for r in some if r.cell.settings["network"] == "stunted"]
    sections = cifar10.report(some)
    assert "In the paper and not here: ResNet-18, ReLU (not run)" in words_of(sections)
    convergence = faked(image_sets.CONVERGENCE, lambda cell: 0.9)[:4]
    assert image_sets.report_convergence(convergence)


@pytest.mark.parametrize(("unit", "says"), [(0.99, "holds here too"), (0.5, "does not hold")])
def test_the_report_of_convergence_draws_curves_and_checks_the_claim(nowhere, tmp_path, unit, says):
    def value(cell: Cell) -> float:
        return unit if cell.settings["activation"] == "deu" else 0.9

    sections = image_sets.report_convergence(faked(image_sets.CONVERGENCE, value))
    assert words_of(sections).count(says) == 2
    for table in tables_of(sections):
        assert table.header[2:] == ["after 0.1", "after 0.5", "after 1", "after 2", "after 5"]
    pictures = [section for section in sections if isinstance(section, Picture)]
    assert [picture.name for picture in pictures] == ["mlp", "cnn"]
    pictures[0].draw(tmp_path / "a.png")
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


def test_the_report_of_published_series_compares_with_the_paper(nowhere):
    sections = forecast.report(faked(forecast.EXPERIMENT, lambda cell: 0.2))
    beside = tables_of(sections)[0]
    assert len(beside.rows) == 40
    rows = {row[0]: row for row in beside.rows}
    assert rows["Elect. 12, DEU, RSE"][1] == "0.100"
    assert rows["Elect. 12, DEU, RSE"][4] == "worse"  # 0.2 is more, of an error
    assert rows["Traffic 6, Swish, RSE"][4] == "better"
    assert rows["Traffic 6, Swish, CORR"][4] == "worse"


def test_the_report_of_stand_ins_says_what_they_are_and_what_was_not_run(nowhere):
    folder = nowhere / "timeseries"
    folder.mkdir()
    (folder / "nrel_pv_rhode_island.txt.gz").touch()
    results = faked(forecast.EXPERIMENT, lambda cell: 0.2)
    results = [r for r in results if r.cell.settings["data"] == "nrel_pv_rhode_island"]
    sections = forecast.report(results)
    words = words_of(sections)
    assert "nrel_pv_rhode_island for Solar output" in words
    assert "steps of ten minutes" in words
    beside, own = tables_of(sections)
    assert {row[0].split()[0] for row in beside.rows} == {"Traffic", "Elect."}
    assert {row[4] for row in beside.rows} == {forecast_tables.NOT_RUN}
    assert own.title == "nrel_pv_rhode_island, in place of Solar output"
    assert [row[0] for row in own.rows[::5]] == ["1 h", "2 h", "6 h", "12 h"]
    assert own.rows[0][3] == "0.269"


def test_the_learning_rate_of_a_forecast_is_chosen_by_the_validation_part(nowhere):
    results = []
    for cell in forecast.EXPERIMENT.cells(Options(seeds=1)):
        good = cell.settings["lr"] == 1e-3
        metrics = {"valid_rse": [0.1 if good else 0.2], "rse": [0.5 if good else 0.3]}
        results.append(Result(cell, {**metrics, "corr": [0.9]}, parameters=1))
    (table, *_) = (t for t in tables_of(forecast.report(results)) if t.title == "exchange_rate")
    assert {row[2] for row in table.rows} == {"0.001"}
    assert all(row[4].startswith("0.5000") for row in table.rows)


def test_a_quick_report_is_marked_and_not_judged(nowhere):
    for name, experiment in EVERY.items():
        sections = experiment.report(faked(experiment, lambda cell: 0.5, Options(quick=True)))
        assert tables_of(sections), name
        assert "quick run" in words_of(sections).lower(), name
        shown = " ".join(
            cell for table in tables_of(sections) for row in table.rows for cell in row
        )
        assert "worse" not in shown
        assert "better" not in shown


def test_the_cost_is_timed_and_checked():
    cell = cost.EXPERIMENT.cells(Options(quick=True))[0]
    assert cell.settings["network"] == "ResNet-18"
    cell = replace(cell, settings={**cell.settings, "network": "CNN"})
    outcome = cost.run(cell, Place())
    assert set(outcome.metrics) == {"ratio", "unit_ms", "base_ms"}
    assert all(values[0] > 0 for values in outcome.metrics.values())
    low, high = outcome.curves["quartiles"]["ratio"]
    assert low <= outcome.metrics["ratio"][0] <= high
    sections = cost.report([Result(cell, outcome.metrics, curves=outcome.curves)])
    beside, times = tables_of(sections)
    assert [row[1] for row in beside.rows] == ["3.56", "1.71"]
    assert times.rows[0][2] == "640 / 180"


@pytest.mark.parametrize("name", ["mnist", "fashion-mnist", "cifar10"])
def test_networks_train_on_the_real_images(name):
    real(name)
    network = {"mnist": "mlp", "fashion-mnist": "cnn", "cifar10": "stunted"}[name]
    cell = first(name, network=network, activation="deu")
    assert cell.settings["data"] == name
    outcome = EVERY[name].run(small(cell, train=256, test=100), Place())
    losses = [record["loss"] for record in outcome.history]
    assert losses[1] < losses[0]
    assert "synthetic" not in words_of(EVERY[name].report([Result(cell, outcome.metrics)]))


@pytest.mark.parametrize("name", ["exchange_rate", "pems_occupancy", "uci_electricity_5weeks"])
def test_networks_train_on_the_real_series(name):
    real(name)
    cells = forecast.EXPERIMENT.cells(Options())
    cell = next(c for c in cells if c.settings["data"] == name)
    less = {"channels": 8, "steps": 800, "variables": 4, "window": 84, "epochs": 2}
    outcome = forecast.run(replace(cell, settings={**cell.settings, **less}), Place())
    assert outcome.history[1]["loss"] < outcome.history[0]["loss"]
    assert math.isfinite(outcome.metrics["rse"][0])


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("mnist", {"network": "cnn", "activation": "deu"}),
        ("cifar10", {"network": "stunted", "activation": "deu"}),
        ("forecast", {"activation": "deu"}),
    ],
)
def test_cells_run_captured_on_a_gpu_and_go_on(nowhere, tmp_path, name, wanted):
    before = torch.get_float32_matmul_precision()
    precision = "bfloat16" if name == "cifar10" else "float32"
    cell = small(first(name, **wanted), precision=precision, epochs=4)
    place = Place(device="cuda", captured=True)
    whole = EVERY[name].run(cell, place)
    plain = EVERY[name].run(cell, replace(place, captured=False))
    off = 0.02 if precision == "bfloat16" else 0.002
    assert whole.history[-1]["loss"] == pytest.approx(plain.history[-1]["loss"], rel=off)
    place = replace(place, checkpoint=tmp_path / "cell.pt")

    def stop(text: str) -> None:
        if text.startswith("epoch 2/"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        EVERY[name].run(cell, replace(place, progress=stop))
    again = EVERY[name].run(cell, place)
    assert again.history[-1]["loss"] == pytest.approx(whole.history[-1]["loss"], rel=off)
    assert torch.get_float32_matmul_precision() == before
