"""The engine: every cell has one result, whatever happens on the way, and keeps it."""

from __future__ import annotations

import errno
import importlib
import json
import math
import multiprocessing
import os
import re
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from deu.experiments import engine, progress, ray_engine
from deu.experiments.cells import Cell, Result, ResultError, read_results, result_path, write_result
from deu.experiments.data import DataError
from deu.experiments.engine import EngineError, Task, checkpoint_path
from deu.experiments.environment import made
from deu.experiments.experiment import Place
from deu.experiments.progress import Display
from deu.experiments.training import CheckpointError

from . import toy

QUIET = Display(quiet=True)


@pytest.fixture(autouse=True)
def _toy_can_be_imported(monkeypatch):
    """By this process, by those it starts, and by Ray's workers."""
    here = str(Path(__file__).parent)
    monkeypatch.syspath_prepend(here)
    monkeypatch.setenv("PYTHONPATH", here)


def tasks(*words: str, seeds: int = 1) -> list[Task]:
    """A task for each word and seed, of the toy."""
    cells = [
        Cell("toy", {"do": do, "precision": "float32"}, (seed,))
        for do in words
        for seed in range(seeds)
    ]
    return [Task("toy:EXPERIMENT", cell, Place(), "deu reproduce toy") for cell in cells]


def run(folder: Path, *words: str, seeds: int = 1, how=None, display=QUIET) -> engine.Summary:
    return engine.run(tasks(*words, seeds=seeds), folder, how or engine.here(display), display)


def files(folder: Path) -> list[str]:
    """Everything below a folder but the locks."""
    found = [path for path in folder.rglob("*") if path.is_file() and path.suffix != ".lock"]
    return sorted(str(path.relative_to(folder)) for path in found)


def weights(folder: Path) -> list[dict]:
    return [result.curves for result in read_results(folder)]


def test_a_result_says_how_it_was_made(tmp_path):
    summary = run(tmp_path, "train")
    assert (summary.run, summary.kept, summary.failed) == (1, 0, [])
    (result,) = read_results(tmp_path)
    assert result.cell == tasks("train")[0].cell
    assert result.finite
    assert [record["epoch"] for record in result.history] == [1, 2, 3, 4]
    assert result.history[-1]["accuracy"] == result["accuracy"]
    assert result.parameters == 2 * 8 + 8 + 5 * 8 + 8 * 2 + 2
    assert result.seconds > 0
    assert result.made["versions"]["torch"] == torch.__version__
    assert result.made["hardware"]["threads"] == torch.get_num_threads()
    assert result.made["command"] == "deu reproduce toy"
    assert files(tmp_path) == [f"toy/{result.cell.name}.json"]  # the checkpoint is gone


def test_what_has_a_result_is_not_run_again_and_that_is_said(tmp_path, capsys):
    run(tmp_path, "train")
    before = result_path(tmp_path, tasks("train")[0].cell).read_bytes()
    summary = run(tmp_path, "train", seeds=2, display=Display())
    assert (summary.run, summary.kept) == (1, 1)
    assert result_path(tmp_path, tasks("train")[0].cell).read_bytes() == before
    said = capsys.readouterr().out
    assert "1 of 2 cells have a result here and are not run again" in said
    assert "[2/2] toy do=train,precision=float32,seed=1: accuracy" in said


def test_a_cell_that_is_asked_for_twice_is_run_once(tmp_path):
    assert run(tmp_path, "train", "train").run == 1


def test_a_cell_does_not_depend_on_the_ones_before(tmp_path):
    run(tmp_path / "both", "train", seeds=2)
    torch.manual_seed(7)
    engine.run(tasks("train", seeds=2)[1:], tmp_path / "one", engine.here(QUIET), QUIET)
    assert weights(tmp_path / "one") == weights(tmp_path / "both")[1:]


def test_the_others_go_on_where_a_cell_fails(tmp_path, capsys):
    summary = run(tmp_path, "fail", "odd", "train", display=Display())
    assert summary.run == 1
    assert [label.split(",")[0] for label, _ in summary.failed] == ["toy do=fail", "toy do=odd"]
    assert summary.failed[0][1] == "ValueError: this cell always fails"
    assert "JSON" in summary.failed[1][1]
    assert len(files(tmp_path)) == 1
    captured = capsys.readouterr()
    assert "[1/3] toy do=fail,precision=float32,seed=0: failed: ValueError" in captured.out
    assert 'raise ValueError("this cell always fails")' in captured.err
    assert run(tmp_path, "fail", "odd", "train").kept == 1


@pytest.mark.parametrize(
    ("word", "error", "match"),
    [
        ("data", DataError, "toy.txt is missing"),
        ("full", OSError, "No space left"),
        ("stop", KeyboardInterrupt, "by hand"),
    ],
)
def test_what_all_cells_would_meet_ends_them(tmp_path, word, error, match):
    with pytest.raises(error, match=match):
        run(tmp_path, "train", word, "nan")
    assert [result.cell.settings["do"] for result in read_results(tmp_path)] == ["train"]


def test_a_full_disk_leaves_no_half_result(tmp_path, monkeypatch):
    def full(self: Path, text: str) -> int:
        self.touch()
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self))

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(OSError, match="No space left"):
        run(tmp_path, "train")
    assert [Path(file).suffix for file in files(tmp_path)] == [".pt"]
    monkeypatch.undo()
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    run(tmp_path, "train")  # all of its epochs are in the checkpoint
    (result,) = read_results(tmp_path)
    assert result.made["resumed"]
    assert len(result.history) == 4


def test_a_damaged_checkpoint_ends_all_and_stays(tmp_path):
    path = checkpoint_path(tmp_path, tasks("train")[0].cell)
    path.parent.mkdir(parents=True)
    path.write_bytes(b"not a checkpoint")
    with pytest.raises(CheckpointError, match="cannot be read as a checkpoint"):
        run(tmp_path, "train", "nan")
    assert path.read_bytes() == b"not a checkpoint"
    assert len(files(tmp_path)) == 1


def test_what_a_killed_run_left_half_written_goes_with_its_checkpoint(tmp_path):
    path = checkpoint_path(tmp_path, tasks("train")[0].cell)
    path.parent.mkdir(parents=True)
    path.with_name(f"{path.name}.123.part").write_bytes(b"half")
    run(tmp_path, "train")
    assert [Path(file).suffix for file in files(tmp_path)] == [".json"]


def test_a_damaged_result_is_said_before_anything_runs_and_stays(tmp_path):
    path = result_path(tmp_path, tasks("train")[0].cell)
    path.parent.mkdir(parents=True)
    path.write_text('{"format": 1, "metrics"')
    with pytest.raises(ResultError, match=r"train.*is not a whole result.*delete it"):
        run(tmp_path, "nan", "train")
    assert path.read_text() == '{"format": 1, "metrics"'
    assert len(files(tmp_path)) == 1


def test_the_result_of_another_cell_under_a_cells_name_is_not_its_own(tmp_path):
    run(tmp_path, "nan")
    path = result_path(tmp_path, tasks("train")[0].cell)
    result_path(tmp_path, tasks("nan")[0].cell).rename(path)
    with pytest.raises(ResultError, match="the result of another cell"):
        run(tmp_path, "train")


def test_numbers_that_are_not_finite_are_null_in_the_file_and_nan_again(tmp_path, capsys):
    run(tmp_path, "nan", display=Display())
    assert "accuracy 0.5, mse not finite, NOT FINITE somewhere" in capsys.readouterr().out
    (path,) = tmp_path.glob("toy/*.json")

    def never(text: str) -> float:
        raise AssertionError(f"{text} is not JSON")

    content = json.loads(path.read_text(), parse_constant=never)
    assert content["metrics"] == {"accuracy": [0.5], "mse": [None]}
    assert content["finite"] is False
    (result,) = read_results(tmp_path)
    assert not result.finite
    assert math.isnan(result["mse"][0])
    assert math.isnan(result.history[0]["loss"])


def test_a_result_with_none_for_a_metric_is_not_finite():
    cell = Cell("toy", {})
    assert not Result(cell, {"mse": [1.0, None]}).finite
    assert Result(cell, {"mse": [1.0]}, [{"epoch": 1, "loss": 0.5}], curves={"y": [None]}).finite


def test_two_commands_do_not_run_an_experiment_into_one_folder(tmp_path):
    with engine._alone(tmp_path, "toy"):
        with pytest.raises(EngineError, match=r"another command is running toy into .*--out"):
            run(tmp_path, "nan")
        run(tmp_path / "other", "nan")
    run(tmp_path, "nan")


def test_jobs_give_the_same_results(tmp_path):
    run(tmp_path / "here", "train", "nan")
    summary = run(tmp_path / "jobs", "train", "nan", "fail", how=engine.processes(2))
    assert (summary.run, len(summary.failed)) == (2, 1)
    assert len(files(tmp_path / "jobs")) == 2
    for one, other in zip(weights(tmp_path / "here"), weights(tmp_path / "jobs"), strict=True):
        for name, value in one.items():
            torch.testing.assert_close(torch.tensor(other[name]), torch.tensor(value))


def test_a_job_that_is_killed_ends_all_and_the_next_run_goes_on(tmp_path, monkeypatch):
    monkeypatch.setenv("TOY_FLAG", str(tmp_path / "flag"))
    others = multiprocessing.active_children()
    with pytest.raises(EngineError, match=r"a process of --jobs died.*goes on"):
        run(tmp_path / "jobs", "die", how=engine.processes(1))
    assert [Path(file).suffix for file in files(tmp_path / "jobs")] == [".pt"]
    assert run(tmp_path / "jobs", "die").run == 1
    (result,) = read_results(tmp_path / "jobs")
    assert result.made["resumed"]
    run(tmp_path / "here", "die")
    assert weights(tmp_path / "jobs") == weights(tmp_path / "here")
    assert multiprocessing.active_children() == others


def test_a_cell_whose_ray_worker_is_killed_runs_again_and_counts_once(tmp_path, monkeypatch):
    ray = pytest.importorskip("ray", reason="Ray is not installed: pip install 'deu[ray]'")
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setenv("TOY_FLAG", str(tmp_path / "flag"))
    monkeypatch.setenv("OMP_NUM_THREADS", str(torch.get_num_threads()))
    out = tmp_path / "ray"
    run(out, "nan")
    summary = run(out, "die", "nan", "fail", seeds=2, how=ray_engine.on_ray(2))
    assert (tmp_path / "flag").exists()  # a worker was killed
    assert (summary.run, summary.kept, len(summary.failed)) == (3, 1, 2)
    assert len(files(out)) == 4
    died = [result for result in read_results(out) if result.cell.settings["do"] == "die"]
    assert [result.made.get("resumed", False) for result in died].count(True) == 1
    assert not ray.is_initialized()
    run(tmp_path / "here", "die", seeds=2)
    for one, other in zip(weights(tmp_path / "here"), [r.curves for r in died], strict=True):
        for name, value in one.items():
            torch.testing.assert_close(torch.tensor(other[name]), torch.tensor(value))


@pytest.fixture
def cluster(tmp_path, monkeypatch):
    """A Ray cluster of two workers that stands by itself, as ``ray start`` leaves one."""
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'deu[ray]'")
    monkeypatch.setenv("HOME", str(tmp_path))  # where Ray keeps the token that lets one in
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    monkeypatch.setenv("RAY_ADDRESS", "")
    ray = [sys.executable, "-m", "ray.scripts.scripts"]
    subprocess.run([*ray, "get-auth-token", "--generate"], check=True, capture_output=True)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = f"start --head --block --port {port} --num-cpus 2 --include-dashboard false"
    with (tmp_path / "cluster.txt").open("w+") as said:
        process = subprocess.Popen([*ray, *words.split()], stdout=said, stderr=said)
        try:
            for _ in range(120):
                found = re.search(r"--address='(.*?)'", (tmp_path / "cluster.txt").read_text())
                if found or process.poll() is not None:
                    break
                time.sleep(0.5)
            assert found, (tmp_path / "cluster.txt").read_text()
            yield found[1]
        finally:
            process.terminate()
            process.wait(30)


def test_a_ray_cluster_that_stands_elsewhere_runs_the_cells(tmp_path, cluster):
    out = tmp_path / "out"
    words = [toy.__file__, "reproduce", "toy", "--engine", "ray", "--out", str(out)]
    environment = {**os.environ, "RAY_ADDRESS": cluster, "TOY": "train nan"}
    done = subprocess.run(
        [sys.executable, *words], env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert "4 cells: 4 run, 0 were there, 0 failed" in done.stdout
    assert len(read_results(out)) == 4


def test_ray_says_how_to_get_it(tmp_path, monkeypatch):
    def missing(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr(importlib, "import_module", missing)
    with pytest.raises(EngineError, match=r"needs Ray: pip install 'deu\[ray\]'"):
        run(tmp_path, "nan", how=ray_engine.on_ray())


def test_a_cell_tells_its_progress_where_there_is_no_terminal(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(progress, "HEARTBEAT", 0.0)
    run(tmp_path, "train", display=Display())
    said = capsys.readouterr().out.splitlines()
    assert said[0] == "toy do=train,precision=float32,seed=0: starts"
    assert "epoch 3/4, loss 0." in said[3]
    assert "accuracy 0." in said[3]
    assert said[3].endswith(" left")


def test_a_terminal_has_bars(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "200")
    display = Display()
    run(tmp_path, "train", "nan", display=display)
    captured = capsys.readouterr()
    assert "| 1/2 [" in captured.err
    assert "epoch 4/4, loss 0." in captured.err
    assert "left (toy do=train" in captured.err
    assert len(captured.out.splitlines()) == 2
    assert display.bars == []


def test_a_quiet_display_says_nothing(tmp_path, capsys):
    run(tmp_path, "fail", "nan")
    assert capsys.readouterr() == ("", "")


def test_a_result_goes_where_its_name_says_whole(tmp_path):
    result = Result(Cell("toy", {"lr": 0.1}), {"mse": [1.0]}, made=made("cpu", "deu"))
    path = write_result(tmp_path, result)
    assert path == result_path(tmp_path, result.cell)
    assert read_results(tmp_path) == [result]


def test_a_ray_cluster_that_lets_nobody_in_is_said(tmp_path, monkeypatch):
    class Ray:
        def is_initialized(self) -> bool:
            return False

        def init(self, **options: object) -> None:
            assert options["address"] == "auto"
            raise ConnectionError("nobody there")

    monkeypatch.setattr(ray_engine, "get_ray", Ray)
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        monkeypatch.setenv("RAY_ADDRESS", address)
        with pytest.raises(EngineError, match=f"at RAY_ADDRESS={address}: nobody there; see that"):
            run(tmp_path, "nan", how=ray_engine.on_ray())
    for told in (address, f"ray://{address}", "127.0.0.1:99999"):  # where nothing listens now
        monkeypatch.setenv("RAY_ADDRESS", told)
        with pytest.raises(EngineError, match=f"nothing answers at RAY_ADDRESS={told} "):
            run(tmp_path, "nan", how=ray_engine.on_ray())
    assert files(tmp_path) == []
