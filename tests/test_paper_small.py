"""The paper's small experiments: their quick runs from cell to picture, and their mathematics."""

from __future__ import annotations

import math
import re
from dataclasses import replace

import pytest
import torch

import deu
from deu.experiments import registry
from deu.experiments.cells import Cell, Result, read_result, write_result
from deu.experiments.experiment import Options, Picture, Place, Table, Text
from deu.experiments.paper import (
    circles,
    diabetes,
    fitting,
    forms,
    function,
    manifold,
    occupancy,
    sine,
    spectra,
    universal,
)

NAMES = (
    "circles",
    "function",
    "sine",
    "forms",
    "spectra",
    "manifold",
    "universal",
    "diabetes",
    "occupancy",
)
QUICK = Options(quick=True)


@pytest.fixture(autouse=True)
def _small(monkeypatch, tmp_path):
    """Without real data, so that the stand-in runs; in one thread, for networks that small."""
    monkeypatch.setenv("DEU_DATA", str(tmp_path / "nowhere"))
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def finished(experiment, cell):
    outcome = experiment.run(cell, Place())
    return Result(
        cell, outcome.metrics, outcome.history, outcome.parameters, outcome.curves, 1.0, {}
    )


def short(cell: Cell, **settings) -> Cell:
    return replace(cell, settings={**cell.settings, **settings}, seeds=cell.seeds[:2])


@pytest.mark.parametrize("name", NAMES)
def test_a_quick_run_goes_from_its_cells_to_its_pictures(name, tmp_path):
    experiment = registry.load(name)
    results = []
    for cell in experiment.cells(QUICK):
        assert cell.quick
        assert cell.experiment == name
        result = finished(experiment, cell)
        assert all(len(values) == len(cell.seeds) for values in result.metrics.values())
        results.append(read_result(write_result(tmp_path, result)))
        assert results[-1] == result  # what is kept is plain, and as it was
    sections = experiment.report(results)
    for section in sections:
        if isinstance(section, Picture):
            path = tmp_path / f"{section.name}.png"
            section.draw(path)
            assert path.stat().st_size > 10_000
        elif isinstance(section, Table):
            assert section.rows
            assert all(len(row) == len(section.header) for row in section.rows)
        else:
            assert isinstance(section, Text)
            assert len(section.text) > 40
            assert not re.search("hold here|holds here|fall short|not the least", section.text)
    assert any(isinstance(section, Picture) for section in sections)


@pytest.mark.parametrize("name", NAMES)
def test_a_study_has_all_cells_of_the_paper(name):
    experiment = registry.load(name)
    for quick in (True, False):
        paper = [cell.name for cell in experiment.cells(Options(quick=quick))]
        study = [cell.name for cell in experiment.cells(Options(quick=quick, scope="study"))]
        assert len(set(paper)) == len(paper)
        assert len(set(study)) == len(study)
        assert set(paper) <= set(study)


@pytest.mark.parametrize("name", ["circles", "function", "sine", "manifold", "diabetes"])
def test_the_number_of_seeds_can_be_asked_for(name):
    cells = registry.load(name).cells(Options(seeds=5))
    assert {cell.seeds for cell in cells} == {(0, 1, 2, 3, 4)}


@pytest.mark.parametrize("name", ["circles", "function", "sine", "diabetes", "occupancy"])
def test_a_cell_is_the_same_whatever_random_numbers_came_before(name):
    experiment = registry.load(name)
    cell = short(experiment.cells(QUICK)[0], epochs=1)
    torch.manual_seed(1)
    once = finished(experiment, cell)
    torch.manual_seed(2)
    assert finished(experiment, cell) == once


def test_a_run_that_was_stopped_goes_on_to_the_same_way(tmp_path):
    cell = short(manifold.cells(QUICK)[0], epochs=5)
    checkpoint = tmp_path / "cell.pt"

    def stop(text: str) -> None:
        if "epoch 3/" in text:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        manifold.run(cell, Place(checkpoint=checkpoint, progress=stop))
    assert checkpoint.exists()
    went_on = manifold.run(cell, Place(checkpoint=checkpoint))
    assert went_on == manifold.run(cell, Place())
    assert len(went_on.curves["way"]) == 6


def test_reports_stand_without_some_cells_and_with_runs_that_were_not_finite(tmp_path):
    cells = [replace(cell, quick=False) for cell in function.cells(QUICK)]
    results = [finished(function.EXPERIMENT, short(cell, epochs=1)) for cell in cells[1:2]]
    assert "nothing to compare" in function.report(results)[2].text
    unit = finished(function.EXPERIMENT, short(cells[0], epochs=1))
    broken = replace(results[0], metrics={"mse": [math.nan, 0.5]})
    sections = function.report([unit, broken])
    assert "1 not finite" in sections[1].rows[1][4]
    assert "that of 250 ReLU is not finite" in sections[2].text
    for section in sections:
        if isinstance(section, Picture):
            section.draw(tmp_path / "x.png")


def test_the_functions_are_what_they_say():
    t = torch.tensor([-9.5, -2.0, 0.0, 0.3, 7.7], dtype=torch.float64)
    formulas = {
        "challenging": lambda t: (
            (math.sin(t) - math.cos(2 * t) ** 2) / 2 + 4 * (1 + math.acos(math.sin(t / 2))) / 3
        ),
        "smooth": lambda t: math.sin(t) * math.cos(t * t / 10),
        "kink": lambda t: abs(math.sin(t)) + abs(t - 3) / 5,
        "noisy": lambda t: math.sin(2 * t) / 2 + t / 10 + 0.3 * math.cos(5 * t),
    }
    assert formulas.keys() == function.TARGETS.keys()
    for name, formula in formulas.items():
        expected = torch.tensor([formula(x) for x in t.tolist()], dtype=torch.float64)
        torch.testing.assert_close(function.TARGETS[name].function(t), expected)
    assert [name for name, target in function.TARGETS.items() if target.noise] == ["noisy"]


def test_units_have_a_tenth_of_the_neurons():
    layers = {
        (cell.settings["activation"], cell.settings["width"]) for cell in function.cells(QUICK)
    }
    assert layers == {("deu waves", 25), ("ReLU", 250), ("Maxout", 250)}
    assert sine.networks("deu continuous", range(3)).num_features == 3
    assert sine.networks("ReLU", range(3)).weight2.shape == (3, 1, 10)


def test_units_alone_start_as_relu_and_know_nothing_of_each_other():
    units = sine.networks("deu paper", range(3))
    t = torch.linspace(-2, 2, 9)[:, None].expand(3, -1, 1)
    assert torch.equal(units(t), t.relu())
    units(t)[1].sum().backward()
    for grad in (p.grad for p in units.parameters()):
        assert grad[[0, 2]].abs().max() == 0
    assert units.b.grad[1] != 0


@pytest.mark.parametrize("name", universal.TARGETS)
@pytest.mark.parametrize("frequencies", [1, 7, 64])
def test_a_layer_built_from_a_fourier_series_is_that_series(name, frequencies):
    target = universal.TARGETS[name]
    series = universal.fourier(target, frequencies)
    net = universal.layer(series)
    assert deu.subspaces(net[1]) == ["101"] * (2 * frequencies)
    t = torch.linspace(-2 * target.period, 2 * target.period, 997, dtype=torch.float64)
    expected = torch.full_like(t, series.mean)
    for omega, c, s in zip(series.omega, series.cosines, series.sines, strict=True):
        expected += c * torch.cos(omega * t) + s * torch.sin(omega * t)
    torch.testing.assert_close(net(t[:, None])[:, 0], expected, rtol=0, atol=1e-10)


def test_fourier_coefficients_are_the_known_ones():
    square = universal.fourier(universal.TARGETS["square"], 4)
    assert square.sines.tolist() == pytest.approx([4 / math.pi, 0, 4 / (3 * math.pi), 0], abs=1e-3)
    triangle = universal.fourier(universal.TARGETS["triangle"], 3)
    assert triangle.mean == pytest.approx(math.pi / 2)
    expected = [-4 / math.pi, 0, -4 / (9 * math.pi)]
    assert triangle.cosines.tolist() == pytest.approx(expected, abs=1e-6)


def test_more_units_come_nearer_to_the_function():
    result = finished(universal.EXPERIMENT, universal.cells(QUICK)[2])
    errors = [record["rms_error"][0] for record in result.history]
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] < 0.002
    assert result["from_series"][0] < 1e-10


def test_forms_show_one_unit_of_each_subspace():
    assert sorted(map(forms.named, forms.UNITS.values())) == sorted(occupancy.SUBSPACES)


SMOOTH = ("pure oscillation", "damped oscillation", "two real roots", "relaxation", "drag")


@pytest.mark.parametrize("name", SMOOTH)
def test_derivatives_of_forms_are_those_by_finite_differences(name):
    unit = list(forms.UNITS[name])
    t = torch.tensor([-1.5, -0.7, 0.4, 1.1, 2.9], dtype=torch.float64)
    found = forms.derivatives(t, [unit])
    step = 1e-5

    def value(change: dict[str, float]) -> torch.Tensor:
        moved = [p + change.get(key, 0.0) for key, p in zip("abc", unit, strict=False)]
        return forms.derivatives(t + change.get("t", 0.0), [[*moved, *unit[3:]]])["y"]

    for key in "tabc":
        if key != "t" and unit["abc".index(key)] == 0:
            continue  # outward gravitation's, which is of a neighbour
        difference = (value({key: step}) - value({key: -step})) / (2 * step)
        torch.testing.assert_close(found[key], difference, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", forms.UNITS)
def test_derivatives_of_forms_are_what_training_takes(name):
    unit = forms.UNITS[name]
    t = forms.inputs()
    given = [torch.tensor([p], dtype=torch.float64, requires_grad=True) for p in unit]
    y = deu.reference.deu(t, *given, **forms.AUTHORS, max_grad_norm=None, training=True)
    grads = torch.autograd.grad(y.sum(), given[:3])
    found = forms.derivatives(t, [unit])
    torch.testing.assert_close(found["y"][:, 0], y)
    for key, grad in zip("abc", grads, strict=True):
        torch.testing.assert_close(found[key].sum(), grad[0], rtol=1e-8, atol=1e-8)


def test_spectra_solve_the_equation_after_the_step():
    t = torch.linspace(0.5, 8, 31, dtype=torch.float64)
    step = 1e-3
    for which in "abc":
        low, y, high = (spectra.spectrum(which, t + h) for h in (-step, 0, step))
        values = torch.tensor(spectra.VALUES[which], dtype=torch.float64)[:, None]
        a, b, c = (values if name == which else spectra.FIXED[name] for name in "abc")
        first, second = (high - low) / (2 * step), (high - 2 * y + low) / step**2
        left = a * second + b * first + c * y
        torch.testing.assert_close(left, torch.ones_like(left), rtol=0, atol=1e-4)


def test_circles_are_scikit_learns(monkeypatch):
    datasets = pytest.importorskip("sklearn.datasets")
    monkeypatch.setattr(circles, "NOISE", 0.0)
    x, inner = circles.circles(100, seed=0)
    theirs, labels = datasets.make_circles(100, shuffle=False, factor=circles.INNER)
    for ring in (0, 1):
        ours = sorted(x[inner[:, 0] == ring].round(decimals=4).tolist())
        expected = sorted(torch.tensor(theirs[labels == ring]).float().round(decimals=4).tolist())
        torch.testing.assert_close(torch.tensor(ours), torch.tensor(expected), rtol=0, atol=2e-4)


def test_deeper_networks_beside_each_other_start_as_each_would_alone():
    nets = circles.networks("ReLU", (5, 3), (4, 4))
    x = torch.randn(2, 6, 2)
    torch.manual_seed(3)
    alone = circles.mlp(circles.FACTORIES["ReLU"], inputs=2, hidden=(4, 4), classes=1)
    torch.testing.assert_close(nets(x)[1], alone(x[1]))


def test_no_network_sees_the_patients_that_it_is_tested_on():
    folds = diabetes.Folds((0, 4), "cpu")
    assert torch.equal(folds.held_out.reshape(2, 3, -1).sum(1), torch.ones(2, 442))
    seen = folds.held_out == 0
    for k in range(6):
        x = folds.x[k, seen[k, :, 0]]
        torch.testing.assert_close(x.mean(0), torch.zeros(10), rtol=0, atol=1e-4)
        torch.testing.assert_close(x.std(0, unbiased=False), torch.ones(10), rtol=0, atol=1e-4)
    folds.x = torch.arange(442.0).expand(6, -1)[..., None]  # each patient by number
    batches = list(folds.batches(32, torch.Generator().manual_seed(0)))
    assert len(batches) == folds.steps(32)
    for x, _ in batches:
        rows = x[..., 0].long()
        assert folds.held_out[..., 0].gather(1, rows).sum() == 0


def test_the_linear_model_is_scikit_learns():
    linear = pytest.importorskip("sklearn.linear_model")
    x, y = (part.double().numpy() for part in diabetes.patients())
    folds = diabetes.Folds((7,), "cpu")
    found = folds.errors(folds.least_squares())
    scores = []
    for held in (folds.held_out[..., 0] == 1).numpy():
        model = linear.LinearRegression().fit(x[~held], y[~held])
        scores.append(model.score(x[held], y[held]))
    assert found["r2"] == pytest.approx([sum(scores) / 3], abs=1e-4)


def test_diabetes_without_scikit_learn_says_what_to_install(monkeypatch):
    diabetes.patients.cache_clear()
    monkeypatch.setitem(__import__("sys").modules, "sklearn.datasets", None)
    with pytest.raises(diabetes.DataError, match=r"scikit-learn.*pip install 'deu\[experiments\]'"):
        diabetes.patients()


def test_occupancy_counts_each_networks_subspaces():
    layer = deu.DEU(4, init="relu", solution="paper")
    with torch.no_grad():
        layer.a[3] = layer.c[3] = 1.0
    found = occupancy.occupancy(torch.nn.Sequential(layer), networks=2)
    assert found["subspaces"] == [1, 2]
    assert found["010"] == [1.0, 0.5]
    assert found["oscillating"] == [0.0, 0.5]
    assert found["large"] == [1, 2]


def test_quick_occupancy_says_that_its_images_are_made_up():
    tasks = {cell.settings.get("data") for cell in occupancy.cells(QUICK)}
    assert tasks == {None, "synthetic fashion-mnist"}
    assert {cell.settings.get("data") for cell in occupancy.cells(Options())} == {
        None,
        "fashion-mnist",
    }


def test_networks_are_ranked_with_what_is_not_finite_last():
    assert fitting.ranked([0.2, math.inf, 0.1, math.nan])[:2] == [2, 0]
