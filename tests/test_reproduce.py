"""``deu list``, ``reproduce``, ``study`` and ``report``: what they say, write and return."""

from __future__ import annotations

import builtins
import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from deu import cli
from deu.experiments import engine, registry, report
from deu.experiments.cells import Cell, read_results, result_path
from deu.experiments.engine import checkpoint_path
from deu.experiments.experiment import Experiment, Options

NAMES = tuple(registry.SPECS)


@pytest.fixture
def toy(monkeypatch, tmp_path):
    """The toy as the only experiment, in an empty folder; the module."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    monkeypatch.setattr(registry, "SPECS", {"toy": "toy:EXPERIMENT"})
    monkeypatch.setenv("TOY", "nan")
    for name in ("RANK", "WORLD_SIZE", "DEU_DATA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    import toy

    return toy


def reproduce(*words: str) -> int:
    return cli.main(["reproduce", *words, "--device", "cpu"])


def files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("name", NAMES)
def test_every_name_has_an_experiment(name):
    experiment = registry.load(name)
    assert isinstance(experiment, Experiment)
    assert experiment.name == name
    assert experiment.title
    assert experiment.cost
    for quick in (False, True):
        cells = experiment.cells(Options(quick=quick, seeds=1, data=Path("nowhere")))
        assert cells
        assert {(cell.experiment, cell.quick) for cell in cells} == {(name, quick)}
        assert len({cell.name for cell in cells}) == len(cells)
        json.dumps([cell.settings for cell in cells], allow_nan=False)


def test_the_list_has_every_name(capsys):
    assert cli.main(["list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[1:]] == list(NAMES)


def test_a_list_says_what_it_is_and_what_it_costs(toy, capsys):
    assert cli.main(["list"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "NAME  WHAT   COST",
        "toy   A toy  a second on a CPU",
    ]


def test_a_run_writes_results_and_a_report(toy, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("TOY", "train nan")
    assert reproduce("toy", "--seeds", "1") == 0
    out = tmp_path / "out" / "results"
    results = read_results(out)
    assert [result.cell.settings["do"] for result in results] == ["nan", "train"]
    assert {result.made["command"] for result in results} == {
        "deu reproduce toy --device cpu --seeds 1"
    }
    assert {"report.md", "report.csv", "report.html"} <= files(out)
    said = capsys.readouterr().out
    assert "2 cells: 2 run, 0 were there, 0 failed; results in out/results" in said
    assert "out/results/report.html" in said
    assert "QUICK" not in said
    assert reproduce("all", "--seeds", "1") == 0
    assert "2 cells: 0 run, 2 were there, 0 failed" in capsys.readouterr().out


def test_a_quick_run_is_marked_and_kept_apart(toy, tmp_path, capsys):
    assert reproduce("toy", "--quick") == 0
    assert not (tmp_path / "out" / "results").exists()
    results = read_results(tmp_path / "out" / "quick")
    assert len(results) == 2
    assert all(result.cell.quick for result in results)
    assert "--quick" in results[0].made["command"]
    assert "QUICK RUN" in capsys.readouterr().out
    assert "QUICK RUN" in (tmp_path / "out" / "quick" / "report.md").read_text("utf-8")


def test_a_study_is_the_same_with_another_scope(toy, tmp_path, monkeypatch):
    scopes = []

    def cells(options: Options):
        scopes.append(options.scope)
        return toy.cells(options)

    monkeypatch.setattr(toy, "EXPERIMENT", Experiment("toy", "", "", cells, toy.run, toy.report))
    assert reproduce("toy", "--no-report") == 0
    assert cli.main(["study", "toy", "--device", "cpu", "--no-report", "--out", "study"]) == 0
    assert scopes == ["paper", "study"]
    assert read_results(tmp_path / "study")[0].made["command"] == "deu study toy --device cpu"
    assert not (tmp_path / "study" / "report.md").exists()


@pytest.mark.parametrize("verb", ["reproduce", "study"])
def test_a_wrong_name_lists_the_names(toy, tmp_path, capsys, verb):
    assert cli.main([verb, "toy", "tory"]) == 2
    said = capsys.readouterr().err
    assert f"deu {verb}: there is no experiment 'tory', perhaps 'toy'?" in said
    assert "There are toy, and all" in said
    assert files(tmp_path) == set()


def test_a_report_is_of_all_that_is_in_its_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("forms", "spectra"):
        assert reproduce(name, "--quick", "--out", "both") == 0
    text = Path("both/report.md").read_text()
    assert "(forms, QUICK RUN)" in text
    assert "(spectra, QUICK RUN)" in text


def test_a_cell_that_fails_is_said_and_the_others_are_reported(toy, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("TOY", "fail nan")
    assert reproduce("toy", "--seeds", "1") == 1
    captured = capsys.readouterr()
    assert "2 cells: 1 run, 0 were there, 1 failed" in captured.out
    assert "failed: toy do=fail,precision=float32,seed=0: ValueError: this cell" in captured.err
    assert (tmp_path / "out" / "results" / "report.md").exists()


@pytest.mark.parametrize(
    ("word", "code", "said"),
    [
        ("data", 2, "deu reproduce: toy.txt is missing: put it there by hand"),
        ("full", 2, "deu reproduce: toy.pt: No space left on device; what was finished is kept"),
        ("stop", 130, "stopped; finished cells are kept in out/results, and the same command goes"),
    ],
)
def test_what_ends_a_command_keeps_what_was_finished(toy, monkeypatch, capsys, word, code, said):
    monkeypatch.setenv("TOY", f"nan {word} train")
    assert reproduce("toy", "--seeds", "1") == code
    assert said in capsys.readouterr().err
    assert len(read_results(Path("out/results"))) == 1
    monkeypatch.setenv("TOY", "nan")
    assert reproduce("toy", "--seeds", "1") == 0


def test_a_truncated_result_is_said_and_stays(toy, capsys):
    assert reproduce("toy", "--seeds", "1") == 0
    (path,) = Path("out/results").glob("toy/*.json")
    path.write_text(path.read_text()[:100])
    before = files(Path("out"))
    for words in (["reproduce", "toy", "--seeds", "1"], ["report"]):
        assert cli.main(words) == 2
        assert f"{path.name} is not a whole result" in capsys.readouterr().err
    assert len(path.read_text()) == 100
    assert files(Path("out")) == before


@pytest.mark.parametrize(
    ("part", "content", "said"),
    [
        ("metrics", 5, "metrics is not an object"),
        ("metrics", {"mse": 1.0}, "metrics has no list of numbers for mse"),
        ("metrics", {"mse": ["low"]}, "metrics has no list of numbers for mse"),
        ("curves", [], "curves is not an object"),
        ("settings", None, "settings is not an object"),
        ("seeds", 0, "seeds is not a list"),
        ("seeds", ["a"], "seeds is not a list of whole numbers"),
        ("history", {}, "history is not a list"),
        ("history", [1], "history is not a list of objects"),
        ("seconds", "long", "seconds is not a number"),
    ],
)
def test_a_result_that_is_broken_inside_is_said(toy, capsys, part, content, said):
    assert reproduce("toy", "--seeds", "1", "--no-report") == 0
    (path,) = Path("out/results").glob("toy/*.json")
    path.write_text(json.dumps({**json.loads(path.read_text()), part: content}))
    capsys.readouterr()
    for words in (["reproduce", "toy", "--seeds", "1"], ["report"]):
        assert cli.main(words) == 2
        captured = capsys.readouterr()
        assert f"{path.name} is not a whole result (ValueError: {said})" in captured.err
        assert "were there" not in captured.out


@pytest.mark.parametrize("name", ["toy/copy.json", "other/{}"])
def test_a_result_under_another_name_is_said(toy, capsys, name):
    assert reproduce("toy", "--seeds", "1", "--no-report") == 0
    (path,) = Path("out/results").glob("toy/*.json")
    copy = Path("out/results", name.format(path.name))
    copy.parent.mkdir(exist_ok=True)
    copy.write_bytes(path.read_bytes())
    assert cli.main(["report"]) == 2
    assert f"{copy} is the result of another cell than its name" in capsys.readouterr().err


def test_the_checkpoint_of_another_setting_is_said_and_stays(toy, monkeypatch, capsys):
    monkeypatch.setenv("TOY", "train")
    one, other = toy.cells(Options())
    out = Path("out/results")
    path = checkpoint_path(out, other)
    path.parent.mkdir(parents=True)
    task = engine.Task("toy:EXPERIMENT", one, engine.Place(checkpoint=path))
    engine.run_task(task)
    before = path.read_bytes()
    assert reproduce("toy") == 2
    assert "is the checkpoint of another setting" in capsys.readouterr().err
    assert path.read_bytes() == before
    assert result_path(out, one).exists()
    assert not result_path(out, other).exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--data", "nowhere"], "--data nowhere is not a folder"),
        (["--out", "file"], "--out file is not a folder"),
        (["--out", "file/below"], "--out file/below cannot be made (Not a directory); name"),
    ],
)
def test_a_folder_that_is_none_is_said(toy, capsys, words, said):
    Path("file").write_text("here before")
    assert reproduce("toy", *words) == 2
    told = capsys.readouterr().err
    assert said in told
    assert "what was finished is kept" not in told
    assert files(Path()) == {"file"}
    assert Path("file").read_text() == "here before"


@pytest.mark.parametrize("words", [[], ["--quick"]])
def test_a_folder_of_data_in_the_environment_is_not_made(toy, monkeypatch, capsys, words):
    monkeypatch.setenv("DEU_DATA", "nowhere")
    assert reproduce("toy", *words) == 2
    assert "DEU_DATA nowhere is not a folder; make it, or name" in capsys.readouterr().err
    assert list(Path().iterdir()) == []
    Path("sets").mkdir()
    assert reproduce("toy", *words, "--data", "sets") == 0  # which goes before the environment's


def test_a_report_needs_a_folder_with_results(toy, tmp_path, capsys):
    assert cli.main(["report"]) == 2
    assert "out/results is not a folder; deu reproduce NAME" in capsys.readouterr().err
    (tmp_path / "empty").mkdir()
    assert cli.main(["report", "empty"]) == 2
    assert "there are no results in empty" in capsys.readouterr().err
    (tmp_path / "file").write_text("here before")
    assert cli.main(["report", "file"]) == 2
    assert capsys.readouterr().err.startswith("deu report: file is a file; name the folder")
    assert files(tmp_path) == {"file"}
    assert reproduce("toy", "--out", "mine", "--no-report") == 0
    assert cli.main(["report", "mine"]) == 0
    assert "mine/report.html" in capsys.readouterr().out


def full(*_: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))  # without a name, as a write's is


def test_a_full_disk_under_a_report_is_said(toy, monkeypatch, capsys):
    monkeypatch.setattr(report, "page", full)
    assert reproduce("toy") == 2
    assert capsys.readouterr().err == "deu reproduce: out/results: No space left on device\n"
    assert len(read_results(Path("out/results"))) == 2


@pytest.mark.parametrize("name", ["write_text", "write_bytes"])
def test_a_full_disk_under_a_run_is_said(toy, monkeypatch, capsys, name):
    monkeypatch.setenv("TOY", "train")
    monkeypatch.setattr(Path, name, full)
    assert reproduce("toy") == 2
    said = capsys.readouterr().err
    cell = toy.cells(Options())[0]
    out = Path("out/results").absolute()
    path = result_path(out, cell) if name == "write_text" else checkpoint_path(out, cell)
    assert f"{path}: No space left on device; what was finished is kept" in said


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_output_that_cannot_be_written_is_said(unbuffered):
    environment = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    command = [sys.executable, "-m", "deu", "list"]
    with open("/dev/full", "w") as out:
        done = subprocess.run(
            command, stdout=out, stderr=subprocess.PIPE, text=True, env=environment
        )
    assert done.returncode == 2
    assert done.stderr in [
        f"{name}: standard output: No space left on device\n" for name in ("deu", "deu list")
    ]


def test_precision_is_a_setting_of_cells_that_have_it(toy, monkeypatch, capsys):
    monkeypatch.setenv("TOY", "train")
    assert reproduce("toy", "--precision", "bfloat16", "--seeds", "1", "--no-report") == 0
    (result,) = read_results(Path("out/results"))
    assert result.cell.settings["precision"] == "bfloat16"
    assert "--precision bfloat16" in result.made["command"]

    def cells(options: Options):
        return toy.cells(Options(options.quick, options.seeds))

    monkeypatch.setattr(toy, "EXPERIMENT", Experiment("toy", "", "", cells, toy.run, toy.report))
    assert reproduce("toy", "--precision", "bfloat16") == 2
    assert "toy does not run in bfloat16; leave --precision out" in capsys.readouterr().err
    assert reproduce("toy", "--precision", "float32", "--seeds", "1", "--no-report") == 0


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_a_device_that_is_not_there_is_said(toy, capsys):
    assert cli.main(["reproduce", "toy", "--device", "cuda"]) == 2
    assert "--device cuda: PyTorch finds no CUDA device here" in capsys.readouterr().err


def test_torchrun_and_other_engines_do_not_mix(toy, monkeypatch, capsys):
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    for words in (["--engine", "ray"], ["--jobs", "2"]):
        assert reproduce("toy", *words) == 2
        assert "torchrun runs each cell in all its processes" in capsys.readouterr().err


def test_a_package_that_is_missing_is_said(toy, monkeypatch, capsys):
    real = builtins.__import__

    def without(name, *rest):
        if name == "matplotlib":
            raise ModuleNotFoundError("No module named 'matplotlib'", name="matplotlib")
        return real(name, *rest)

    def cells(options: Options):
        import matplotlib  # noqa: F401

        return []

    monkeypatch.setattr(toy, "EXPERIMENT", Experiment("toy", "", "", cells, toy.run, toy.report))
    monkeypatch.setattr(builtins, "__import__", without)
    assert reproduce("toy") == 1
    assert "experiments need matplotlib: pip install 'deu[experiments]'" in capsys.readouterr().err


def test_only_some_cells_are_run(toy, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("TOY", "train nan")
    assert reproduce("toy", "--seeds", "1", "--only", "do=nan", "--no-report") == 0
    (result,) = read_results(tmp_path / "out" / "results")
    assert result.cell.settings["do"] == "nan"
    assert result.made["command"].endswith("--only do=nan")
    assert reproduce("toy", "--only", "do=nothing") == 2
    assert "--only do=nothing: no cell has it; it is one of nan, train" in capsys.readouterr().err
    assert reproduce("toy", "--only", "width=3") == 2
    assert "--only width=3: no cell has it; not in do" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("only", "chosen"),
    [
        ("lr=1", [0]),
        ("lr=1.0", [0]),
        ("lr=1e-3,1", [0, 1]),
        ("hidden=[4, 4]", [0]),
        ("hidden=[4,4],[8]", [0, 1]),
        ("hidden=[8],[4]", "--only hidden=[4]: no cell has it; it is one of [4, 4], [8]"),
        ("lr=2", "--only lr=2: no cell has it; it is one of 0.001, 1"),
    ],
)
def test_values_are_chosen_as_they_are_shown(toy, monkeypatch, capsys, only, chosen):
    both = [
        Cell("toy", {"do": "nan", "lr": 1.0, "hidden": [4, 4]}),
        Cell("toy", {"do": "nan", "lr": 0.001, "hidden": [8]}),
    ]
    own = Experiment("toy", "", "", lambda options: both, toy.run, toy.report)
    monkeypatch.setattr(toy, "EXPERIMENT", own)
    code = reproduce("toy", "--only", only, "--no-report")
    if isinstance(chosen, str):
        assert code == 2
        assert chosen in capsys.readouterr().err
        return
    assert code == 0
    assert [result_path(Path("out/results"), cell).exists() for cell in both] == [
        i in chosen for i in range(2)
    ]


@pytest.mark.parametrize(
    "words",
    [
        ["reproduce"],
        ["reproduce", "toy", "--only", "do"],
        ["reproduce", "toy", "--seeds", "0"],
        ["nothing"],
    ],
)
def test_a_command_line_that_is_wrong_is_said(words, capsys):
    with pytest.raises(SystemExit) as caught:
        cli.main(words)
    assert caught.value.code == 2
    assert "usage: deu" in capsys.readouterr().err


def test_help_imports_no_experiments():
    program = (
        "import sys; from deu import cli\n"
        "try: cli.main(['--help'])\n"
        "except SystemExit: pass\n"
        "heavy = ('deu.experiments', 'deu.bench', 'matplotlib', 'numpy.', 'tqdm', 'ray')\n"
        "print([name for name in sys.modules if name.startswith(heavy)])\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert "reproduce" in done.stdout
    found = done.stdout.splitlines()[-1]
    assert "deu." not in found
    assert "matplotlib" not in found
    assert "ray" not in found.replace("array", "")
