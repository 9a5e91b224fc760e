"""The training loop: its schedule, and that a run which was stopped goes on to the same result."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from deu import cli
from deu.experiments import registry
from deu.experiments.cells import Result, read_results
from deu.experiments.problems import Classification
from deu.experiments.training import CheckpointError, Recipe, Run, one_cycle

from . import toy

RECIPE = Recipe(0.01, epochs=4, batch=16, weight_decay=0.1)


def make(checkpoint: Path | None = None, recipe: Recipe = RECIPE, **options) -> Run:
    """A run of the toy, which starts as it always does unless it has a checkpoint."""
    torch.manual_seed(3)
    model = options.pop("model", None) or toy.network()
    options = {"seed": 1, "identity": {"activation": "deu"}, **options}
    return Run(model, toy.problem(), recipe, checkpoint=checkpoint, **options)


def finish(run: Run) -> Run:
    for _ in run.epochs():
        pass
    return run


def same(one: Run, other: Run) -> None:
    """Bit for bit: weights, what the optimiser knows, and the numbers on the way."""
    states = [[run.model.state_dict(), run.optimiser.state_dict()["state"]] for run in (one, other)]
    torch.testing.assert_close(*states, rtol=0, atol=0)
    assert one.history == other.history
    assert [record["epoch"] for record in one.history] == list(range(1, RECIPE.epochs + 1))


@pytest.mark.parametrize("steps", [12, 37, 1000])
@pytest.mark.parametrize("warmup", [0.1, 0.3, 0.5])
def test_the_schedule_is_the_one_cycle_of_pytorch(steps, warmup):
    weight = nn.Parameter(torch.zeros(1))
    optimiser = torch.optim.SGD([weight], lr=1.0)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimiser, 1.0, total_steps=steps, pct_start=warmup
    )
    for step in range(steps):
        assert one_cycle(step, steps, warmup) == pytest.approx(schedule.get_last_lr()[0], rel=1e-9)
        optimiser.step()
        if step < steps - 1:
            schedule.step()


@pytest.mark.parametrize("steps", [1, 2, 3])
def test_the_schedule_has_a_rate_for_runs_of_hardly_any_steps(steps):
    assert all(0 < one_cycle(step, steps) <= 1 for step in range(steps))


@pytest.mark.parametrize("stop", [1, 3, 4])
def test_a_run_that_was_stopped_after_an_epoch_goes_on_bit_for_bit(tmp_path, stop):
    whole = finish(make())
    path = tmp_path / "run.pt"
    for record in make(path).epochs():
        if record["epoch"] == stop:
            break
    again = make(path)
    with torch.no_grad():  # whatever happens before it goes on
        torch.rand(7)
    assert again.epoch == stop
    torch.manual_seed(99)
    same(finish(make(path)), whole)


def started(path: Path) -> bytes:
    """What a checkpoint of one epoch holds."""
    next(make(path).epochs())
    return path.read_bytes()


def refused(path: Path, match: str, **options) -> None:
    """The run is not started, and the file is as it was."""
    before = path.read_bytes()
    with pytest.raises(CheckpointError, match=match) as caught:
        make(path, **options)
    assert str(path) in str(caught.value)
    assert "delete it" in str(caught.value)
    assert path.read_bytes() == before


def test_the_checkpoint_of_another_setting_is_left_alone(tmp_path):
    path = tmp_path / "run.pt"
    started(path)
    other = "another setting: activation is 'deu' in it and 'ReLU' here; delete it .* with --out$"
    refused(path, other, identity={"activation": "ReLU"})
    other = "another setting: lr is 0.01 in it and 0.02 here; delete it"
    refused(path, other, recipe=Recipe(0.02, epochs=4, batch=16, weight_decay=0.1))


def test_the_checkpoint_of_another_network_is_left_alone(tmp_path):
    path = tmp_path / "run.pt"
    started(path)
    refused(path, "does not fit this network", model=nn.Linear(2, 2))


@pytest.mark.parametrize("size", [0, 10, 1000])
def test_a_truncated_checkpoint_is_left_alone(tmp_path, size):
    path = tmp_path / "run.pt"
    path.write_bytes(started(path)[:size])
    refused(path, "cannot be read as a checkpoint")


@pytest.mark.parametrize("content", [{"weights": torch.zeros(2)}, Recipe(0.02, 4, 16), [1]])
def test_a_file_that_is_no_checkpoint_is_left_alone(tmp_path, content):
    path = tmp_path / "run.pt"
    torch.save(content, path)
    refused(path, r"cannot be read as a checkpoint \(\w+\); delete it to start that run anew$")


def test_a_full_disk_leaves_the_checkpoint_before(tmp_path, monkeypatch):
    path = tmp_path / "run.pt"
    before = started(path)

    def full(self: Path, data: object) -> int:
        with open(self, "wb") as file:
            file.write(b"some of it")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self))

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(OSError, match="No space left"):
        finish(make(path))
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_that_may_not_grow_says_so(tmp_path):
    """PyTorch's own writer would say something else than that the disk is full."""
    resource = pytest.importorskip("resource")
    path = tmp_path / "run.pt"
    before = started(path)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) // 2, hard))
    try:
        with pytest.raises(OSError) as caught:  # noqa: PT011
            finish(make(path))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert caught.value.errno == errno.EFBIG
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_bfloat16_trains_other_numbers_to_much_the_same(tmp_path):
    whole = finish(make())
    narrow = finish(make(recipe=Recipe(0.01, 4, 16, weight_decay=0.1, precision="bfloat16")))
    assert narrow.model[0].weight.dtype == torch.float32
    assert narrow.history[-1]["loss"] != whole.history[-1]["loss"]
    assert narrow.history[-1]["loss"] == pytest.approx(whole.history[-1]["loss"], rel=0.05)


@pytest.mark.filterwarnings("ignore:.*script_method.*:DeprecationWarning")  # in torch.compile
@pytest.mark.skipif(shutil.which("c++") is None, reason="torch.compile needs a C++ compiler")
def test_a_compiled_run_trains_to_much_the_same(tmp_path):
    model = nn.Sequential(nn.Linear(2, 8), toy.DEU(8), nn.Linear(8, 2))
    state = {name: value.clone() for name, value in model.state_dict().items()}
    recipe = Recipe(0.01, 2, 16)
    whole = finish(make(recipe=recipe, model=model))
    model.load_state_dict(state)
    fast = finish(make(recipe=Recipe(0.01, 2, 16, compiled=True), model=model))
    assert fast.history[-1]["loss"] == pytest.approx(whole.history[-1]["loss"], rel=1e-4)


def command(*words: str, two: bool = False, **environment: str) -> subprocess.CompletedProcess:
    """``deu`` with the toy, in a process of its own, or in two under torchrun."""
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"] if two else []
    threads = {"OMP_NUM_THREADS": "1" if two else str(torch.get_num_threads())}
    return subprocess.run(
        [sys.executable, *launch, toy.__file__, *words],
        env={**os.environ, **threads, **environment},
        capture_output=True,
        text=True,
        timeout=120,
    )


def cell(folder: Path, do: str) -> Result:
    """The only result of the toy's cells that do something."""
    (found,) = [r for r in read_results(folder) if r.cell.settings["do"] == do]
    return found


@pytest.fixture
def _toy(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(toy.__file__).parent))
    monkeypatch.setattr(registry, "SPECS", {"toy": "toy:EXPERIMENT"})


@pytest.mark.usefixtures("_toy")
def test_a_command_that_was_killed_goes_on_bit_for_bit(tmp_path, monkeypatch):
    words = ["reproduce", "toy", "--seeds=1", "--no-report", "--device=cpu", "--out"]
    out, flag = tmp_path / "out", tmp_path / "flag"
    killed = command(*words, str(out), TOY="nan die", TOY_FLAG=str(flag))
    assert killed.returncode == -signal.SIGKILL  # in the middle of the third epoch
    assert [result.cell.settings["do"] for result in read_results(out)] == ["nan"]
    monkeypatch.setenv("TOY", "nan die")
    monkeypatch.setenv("TOY_FLAG", str(flag))
    assert cli.main([*words, str(out)]) == 0
    assert cli.main([*words, str(tmp_path / "whole")]) == 0
    again, whole = cell(out, "die"), cell(tmp_path / "whole", "die")
    assert again.made["resumed"]
    assert "resumed" not in whole.made
    assert again.curves == whole.curves
    assert again.history == whole.history
    assert not list(out.rglob("*.p*t"))


@pytest.mark.usefixtures("_toy")
def test_two_processes_have_the_gradients_of_one(tmp_path, monkeypatch):
    words = ["reproduce", "toy", "--seeds=1", "--device=cpu", "--out"]
    done = command(*words, str(tmp_path / "two"), two=True, TOY="gradients train")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("do=train") == done.stdout.count("report.html") == 1
    monkeypatch.setenv("TOY", "gradients")
    assert cli.main([*words, str(tmp_path / "one"), "--no-report"]) == 0
    two, one = (cell(tmp_path / name, "gradients") for name in ("two", "one"))
    assert two.made["hardware"]["processes"] == 2
    assert two.made["command"].startswith("torchrun --nproc-per-node 2 -m deu reproduce toy")
    assert one.curves.keys() == two.curves.keys()
    for name, value in one.curves.items():
        wide = name.startswith("one ") and "loss" not in name  # that network is of float64
        close = {"rtol": 1e-9, "atol": 1e-12} if wide else {"rtol": 1e-4, "atol": 1e-6}
        found, expected = (torch.tensor(v, dtype=torch.float64) for v in (two.curves[name], value))
        torch.testing.assert_close(found, expected, **close, msg=lambda m, n=name: f"{n}: {m}")
    norms = torch.tensor([one.curves[f"one 1.{k}"] for k in ("a", "b", "c", "c1", "c2")]).norm(
        dim=0
    )
    assert norms.max() == pytest.approx(0.1, rel=1e-5)  # or the units' limit would not be tested
    assert len(cell(tmp_path / "two", "train").history) == toy.EPOCHS


@pytest.mark.gpu
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_captured_steps_train_as_plain_ones_do(precision):
    runs = []
    for captured in (False, True):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(2, 8), toy.DEU(8), nn.Linear(8, 2)).cuda()
        recipe = Recipe(0.01, 4, 16, precision=precision, captured=captured)
        runs.append(finish(Run(model, on_gpu(), recipe, seed=1)))
    plain, captured = (run.history[-1]["loss"] for run in runs)
    assert captured == pytest.approx(plain, rel=1e-3 if precision == "float32" else 2e-2)


def on_gpu() -> Classification:
    problem = toy.problem()
    tensors = problem.train_x, problem.train_y, problem.test_x, problem.test_y
    return Classification(*(tensor.cuda() for tensor in tensors))


@pytest.mark.gpu
@pytest.mark.parametrize("before", ["cpu", "cuda", "captured"])
@pytest.mark.parametrize("after", ["cpu", "cuda", "captured"])
def test_a_run_goes_on_on_another_device(tmp_path, before, after):
    path = tmp_path / "run.pt"

    def run(where: str) -> Run:
        torch.manual_seed(0)
        layers = nn.Linear(2, 8), toy.DEU(8), nn.Linear(8, 2)
        model = nn.Sequential(*layers).to("cpu" if where == "cpu" else "cuda")
        problem = toy.problem() if where == "cpu" else on_gpu()
        recipe = Recipe(0.01, 4, 16, captured=where == "captured")
        return Run(model, problem, recipe, seed=1, checkpoint=path)

    whole = finish(run("cpu")).history[-1]["loss"]
    path.unlink()
    epochs = run(before).epochs()
    next(epochs), next(epochs)
    assert finish(run(after)).history[-1]["loss"] == pytest.approx(whole, rel=1e-3)
