"""``deu bench``: it checks before it times, keeps what it measured, and fails in one line."""

from __future__ import annotations

import csv
import importlib
import math
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

import deu
from deu import cli
from deu.bench import check, command, layers, models, providers, rounds, rows, table, timing
from deu.bench.cases import BTC, LAST, NC, NCHW, Case, layer_cases
from deu.bench.models import Form, model_forms
from deu.bench.rounds import Clock

FEW = ("copy", "GELU", "PReLU", "deu")
SMALL = Case((4, 4, 4, 4), NCHW, "float32", FEW)
CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def _few_calls(monkeypatch):
    monkeypatch.setattr(timing, "_CPU_NUMBERS", 500)


def run(*words: str, cases=(), forms=()) -> int:
    """``deu bench`` with the given words, on the given cases."""
    arguments = cli._parser().parse_args(["bench", "--device", "cpu", *words])
    return command.bench(arguments, cases, forms)


def lines(path) -> list[dict[str, str]]:
    with open(path / "bench.csv", newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_a_run_writes_a_table_a_csv_and_a_chart(tmp_path, capsys):
    pytest.importorskip("matplotlib")
    threads = torch.get_num_threads()
    cases = [SMALL, Case((4, 4, 4, 4), LAST, "bfloat16", FEW), Case((2, 3, 4), BTC, "float16", FEW)]
    forms = [Form("MLP", work, 2, providers=("ReLU", "deu")) for work in models.CAPTURED]
    code = run(
        "--quick", "--threads", "1", "--out", str(tmp_path / "a" / "b"), cases=cases, forms=forms
    )
    assert code == 0
    assert torch.get_num_threads() == threads
    out = tmp_path / "a" / "b"
    found = lines(out)
    assert list(found[0]) == rows.COLUMNS
    assert {row["status"] for row in found} == {"measured"}
    assert {row["quick"] for row in found} == {"True"}
    assert {row["case"] for row in found} == {c.title for c in (*cases, *forms)}
    for case in cases:
        own = [row for row in found if row["case"] == case.title]
        assert {row["work"] for row in own if row["provider"] == "deu"} == set(timing.WORKS)
        assert {row["work"] for row in own if row["provider"] == "copy"} == {timing.FORWARD}
    for row in found:
        assert float(row["seconds_low"]) <= float(row["seconds"]) <= float(row["seconds_high"])
        assert float(row["error"]) <= float(row["error_limit"])
        assert row["rounds"] == "5"
        assert row["command"] == "deu bench --device cpu --threads 1 --quick"
    base = [row for row in found if row["provider"] == row["base"]]
    assert base
    assert all(float(row["ratio"]) == 1 for row in base)
    page = (out / "bench.md").read_text("utf-8")
    said = capsys.readouterr().out
    for text in (page, said):
        assert "QUICK RUN" in text
        assert torch.__version__ in text
        assert "| deu " in text
    assert (out / "bench.png").read_bytes().startswith(b"\x89PNG")
    assert "<svg" in (out / "bench.svg").read_text("utf-8")
    assert cli.main(["bench", "--chart", str(out / "bench.csv")]) == 0


class Wrong(nn.Module):
    """GELU, a thousandth off."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.gelu(x) * (1.001 if x.dtype == torch.float32 else 1)


class Nan(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * (math.nan if x.dtype == torch.float32 else 1)


class Breaks(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        raise RuntimeError("no such kernel\nand more")


@pytest.mark.parametrize("module", [Wrong, Nan])
def test_a_time_whose_result_is_wrong_is_not_reported(tmp_path, capsys, monkeypatch, module):
    monkeypatch.setitem(providers.PROVIDERS, "deu wrong", lambda features, dim: module())
    monkeypatch.setitem(providers.PROVIDERS, "breaks", lambda features, dim: Breaks())
    case = Case(SMALL.shape, NCHW, "float32", ("copy", "GELU", "deu wrong", "breaks"))
    assert run("--rounds", "3", "--out", str(tmp_path), cases=[case]) == 0
    by_name = {row["provider"]: row for row in lines(tmp_path)}
    assert by_name["deu wrong"]["status"] == "wrong"
    assert by_name["deu wrong"]["seconds"] == ""
    assert by_name["deu wrong"]["error_limit"] == "1e-05"
    assert by_name["breaks"]["status"] == "failed"
    assert by_name["breaks"]["note"] == "RuntimeError: no such kernel"
    assert by_name["GELU"]["status"] == "measured"
    assert "units that are WRONG: 1" in capsys.readouterr().out


def test_a_network_with_a_wrong_gradient_is_found(monkeypatch):
    form = Form("MLP", models.TRAINING, 4, providers=("ReLU", "deu"))
    x, target = models.data(form, CPU)
    net = models._NETWORKS["MLP"][0](models.FACTORIES["deu"])
    assert not models.error(models.Network(form, net, x, target)).wrong
    net[2].register_forward_hook(lambda module, inputs, y: y + 0.01 * y.detach())
    # The copies in float64 go by the reference, which has no hook.
    assert models.error(models.Network(form, net, x, target)).wrong


@pytest.mark.parametrize("work", [models.TRAINING, models.INFERENCE])
def test_a_block_says_how_far_off_is_right_where_a_batch_has_no_room(monkeypatch, work):
    form = Form("CNN", work, 6)
    monkeypatch.setattr(models, "_BLOCK_NUMBERS", 200_000)  # blocks of two
    x, target = models.data(form, CPU)
    net = models._NETWORKS["CNN"][0](models.FACTORIES["deu"])
    seen, whole = [], models._result

    def result(network):
        seen.append(len(network.x))
        if seen == [2, 6]:  # the reference's
            raise torch.OutOfMemoryError
        return whole(network)

    monkeypatch.setattr(models, "_result", result)
    assert not models.error(models.Network(form, net, x, target)).wrong
    assert seen == [2, 6, 2, 6]


@pytest.mark.parametrize("name", ["PReLU", "deu"])
@pytest.mark.parametrize("work", [models.TRAINING, models.INFERENCE])
def test_the_truth_of_a_block_is_the_truth_of_a_networks_batch(monkeypatch, name, work):
    form = Form("CNN", work, 6)
    monkeypatch.setattr(models, "_BLOCK_NUMBERS", 200_000)  # blocks of two
    x, target = models.data(form, CPU)
    assert torch.equal(x[:2], x[2:4])
    assert torch.equal(target[:2], target[4:])
    net = models._NETWORKS["CNN"][0](models.FACTORIES[name])
    assert not models.error(models.Network(form, net, x, target)).wrong
    whole = models._result(models.Network(form, providers.exact(net), x.double(), target))
    got = models._result(models.Network(form, net, x, target))
    assert models._off(got, whole) < 1e-5


@pytest.mark.parametrize("layout", [NCHW, LAST])
@pytest.mark.parametrize(
    "name", ["PReLU", "deu", "deu ten subspaces", "deu relu", "deu paper", "deu spread"]
)
def test_the_truth_of_a_block_is_the_truth_of_the_batch(monkeypatch, layout, name):
    """Gradients of parameters, clipped and gravitating, from a block: as from the whole batch."""
    monkeypatch.setattr(check, "_BLOCK", 100)
    shape = (6, 12, 2, 2)
    assert check.block_size(shape) == 2
    module = providers.make(name, 12, 1, CPU, torch.float32)
    x, grad = (check.data(shape, torch.float32, CPU, layout == LAST) for _ in range(2))
    assert torch.equal(x[:2], x[2:4])
    assert x.is_contiguous(memory_format=torch.channels_last) == (layout == LAST)
    assert not check.error(module, x, grad).wrong
    whole = providers.exact(module)
    inputs = [x.double().requires_grad_(), *whole.parameters()]
    want = torch.autograd.grad(whole(inputs[0]), inputs, grad.double())
    ours = [x.detach().requires_grad_(), *module.parameters()]
    got = torch.autograd.grad(module(ours[0]), ours, grad)
    largest = max(w.abs().max() for w in want[1:])
    for g, w in zip(got[1:], want[1:], strict=True):
        assert (g - w).abs().max() <= 1e-4 * largest


def test_limits_are_those_of_the_number_type():
    assert check.limits(torch.float32)[0] == 1e-5
    assert check.limits(torch.bfloat16) == (2**-6, 2**-6)
    assert check.limits(torch.float16) == (2**-9, 2**-9)
    assert check.Error(math.nan, "output", 1.0).wrong


def test_saved_memory_is_that_of_the_input():
    x = torch.randn(64, 16).requires_grad_()
    kept = {
        name: timing.step_memory(timing.Subject(module, [x], [x]))
        for name, module in (("gelu", nn.GELU()), ("deu", deu.DEU(16)))
    }
    assert kept["gelu"] == x.numel() * 4
    assert kept["deu"] <= kept["gelu"] + 5 * 16 * 4


class _Interrupted(nn.GELU):
    """Works in the check and for a while, then somebody ends it."""

    def __init__(self, calls: int, by: signal.Signals) -> None:
        super().__init__()
        self.left, self.by = calls, by

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.left -= 1
        if self.left < 0:
            signal.raise_signal(self.by)
        return super().forward(x)


@pytest.fixture
def ctrl_c():
    """Python's own answer to it, which a shell takes from what it starts in the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("ctrl_c")
@pytest.mark.parametrize(("by", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.parametrize(("calls", "kept"), [(30, True), (12, False)])
def test_interrupted_keeps_what_was_measured(tmp_path, capsys, monkeypatch, calls, kept, by, code):
    """10 calls are the check and the warm-up, then two a round: 10 rounds, or too few to keep."""
    monkeypatch.setitem(providers.PROVIDERS, "stops", lambda features, dim: _Interrupted(calls, by))
    monkeypatch.setattr(timing, "_CPU_NUMBERS", 1)
    monkeypatch.setattr(rounds, "_SLOW", math.inf)
    stopped = Case((8, 8), NC, "float32", (*FEW, "stops"))
    never = Case((9, 9), NC, "float32", FEW)
    assert run("--rounds", "30", "--out", str(tmp_path), cases=[SMALL, stopped, never]) == code
    assert capsys.readouterr().err == "deu bench: stopped; what was measured is kept\n"
    found = lines(tmp_path)
    assert {row["rounds"] for row in found if row["case"] == SMALL.title} == {"30"}
    of_stopped = [row["rounds"] for row in found if row["case"] == stopped.title]
    assert set(of_stopped) == ({"10", "11"} if kept else set())
    assert not any(row["case"] == never.title for row in found)
    page = (tmp_path / "bench.md").read_text("utf-8")
    assert SMALL.title in page
    assert (stopped.title in page) == kept


def test_some_cases_and_providers_of_a_run(tmp_path, capsys):
    cases = [SMALL, Case((4, 4, 4, 4), LAST, "float32", FEW)]
    forms = [Form("MLP", models.TRAINING, 2, providers=("ReLU", "GELU", "PReLU"))]
    words = ("--match", "last", "--providers", "deu", "--rounds", "3", "--out", str(tmp_path))
    assert run(*words, cases=cases, forms=forms) == 0
    found = lines(tmp_path)
    assert {row["provider"] for row in found} == {"GELU", "deu"}  # with its base
    assert {row["case"] for row in found} == {cases[1].title}
    assert "--match last --providers deu" in found[0]["command"]
    assert run("--match", "chairs", "--out", str(tmp_path), cases=cases, forms=forms) == 2
    assert "no case is left" in capsys.readouterr().err


def test_some_of_a_group_keep_its_title_and_base(tmp_path):
    cases = [case for case in layer_cases("cpu", quick=True) if case.group == "after batch norm"]
    words = ("--match", "after batch norm", "--providers", "NormDEU", "--rounds", "3")
    assert run(*words, "--out", str(tmp_path), cases=cases, forms=[]) == 0
    found = lines(tmp_path)
    assert {row["provider"] for row in found} == {"BatchNorm + ReLU", "NormDEU"}
    assert {row["base"] for row in found} == {"BatchNorm + ReLU"}
    assert {row["case"] for row in found} == {cases[0].title}


def test_out_of_budget_says_what_was_left_out(tmp_path, capsys):
    forms = [Form("MLP", models.TRAINING, 2, how=models.COMPILED)]
    code = run("--budget", "0.5", "--out", str(tmp_path), cases=[SMALL], forms=forms)
    assert code == 0
    assert {row["status"] for row in lines(tmp_path)} == {"left out"}
    for text in (capsys.readouterr().out, (tmp_path / "bench.md").read_text("utf-8")):
        assert SMALL.title in text
        assert "compiled training step" in text


def test_the_clock_ends_the_rounds_of_a_case():
    found: list[rows.Row] = []
    layers.measure(SMALL, CPU, 1000, Clock(budget=0.0), found.extend, rows.Row(*[""] * 6))
    assert {row.rounds for row in found} == {3}


def test_missing_peers_are_named(tmp_path, monkeypatch):
    real = importlib.import_module

    def without(name: str, package: str | None = None):
        if name.startswith(("rational", "kan")):
            raise ImportError(f"No module named {name!r}")
        return real(name, package)

    monkeypatch.setattr(importlib, "import_module", without)
    dense = Case((4, 4), NC, "float32", ("Linear + GELU", "Linear + deu", "KAN layer"))
    case = Case((4, 4), NC, "float32", ("copy", "GELU", "rational"))
    assert run("--rounds", "3", "--out", str(tmp_path), cases=[case, dense]) == 0
    missing = {r["provider"]: r["note"] for r in lines(tmp_path) if r["status"] == "missing"}
    assert set(missing) == {"rational", "KAN layer"}
    assert missing["rational"].startswith("not installed: rational-activations")


def test_without_matplotlib_there_is_no_chart_and_a_way_to_it(tmp_path, capsys, monkeypatch):
    real = importlib.import_module

    def without(name: str, package: str | None = None):
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return real(name, package)

    monkeypatch.setattr(importlib, "import_module", without)
    assert run("--rounds", "3", "--out", str(tmp_path), cases=[SMALL]) == 0
    assert f"deu bench --chart {tmp_path / 'bench.csv'}" in capsys.readouterr().out
    assert not (tmp_path / "bench.png").exists()
    assert cli.main(["bench", "--chart", str(tmp_path / "bench.csv")]) == 1
    assert "pip install deu[bench]" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "COMMAND"),
        (["brench"], "brench"),
        (["bench", "--rounds", "0"], "'0' is not a whole number of 1 or more"),
        (["bench", "--threads", "two"], "'two' is not a whole number of 1 or more"),
        (["bench", "--budget", "-1"], "'-1' is not a number of seconds above 0"),
        (["bench", "--budget", "inf"], "'inf' is not a number of seconds above 0"),
        (["bench", "--only", "chairs"], "chairs"),
    ],
)
def test_wrong_arguments_are_named(capsys, words, message):
    with pytest.raises(SystemExit) as stopped:
        cli.main(words)
    assert stopped.value.code == 2
    assert message in capsys.readouterr().err


def test_what_cannot_be_done_is_one_line(tmp_path, capsys, monkeypatch):
    taken = tmp_path / "taken"
    taken.write_text("")
    assert run("--out", str(taken), cases=[SMALL]) == 2
    assert capsys.readouterr().err == (
        f"deu bench: cannot write to --out {taken}: it is not a folder\n"
    )
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert cli.main(["bench", "--device", "cuda", "--out", str(tmp_path)]) == 2
    assert "no CUDA device" in capsys.readouterr().err
    for path, reason in ((taken, "deu bench wrote"), (tmp_path / "none", "No such file")):
        assert cli.main(["bench", "--chart", str(path)]) == 2
        err = capsys.readouterr().err
        assert err.count("\n") == 1
        assert reason in err


@pytest.mark.skipif(sys.platform == "win32", reason="needs a POSIX pipe")
def test_a_closed_pipe_leaves_no_traceback(tmp_path):
    words = ["bench", "--device", "cpu", "--quick", "--only", "models", "--out", str(tmp_path)]
    command = [sys.executable, "-m", "deu", *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("quick", [False, True])
def test_cases_are_whole(device, quick):
    cases, forms = layer_cases(device, quick), model_forms(device, quick)
    assert len({case.title for case in cases}) == len(cases)
    assert len({(form.title, form.work) for form in forms}) == len(forms)
    for case in cases:
        assert set(case.providers) <= set(providers.PROVIDERS)
        assert case.base(device) in case.providers
    assert {case.layout for case in cases} == {NCHW, LAST, NC, BTC}
    assert {case.dtype for case in cases} == {"float32", "bfloat16", "float16"}
    assert {form.network for form in forms} == {"ResNet-18", "MLP", "CNN"}
    assert {form.how for form in forms} == {models.EAGER, models.COMPILED}
    limited = [case for case in cases if case.limits(device)]
    assert len(limited) == (4 if device == "cuda" and not quick else 0)


@pytest.mark.parametrize("name", [n for n in providers.PROVIDERS if n.startswith("deu")])
def test_units_are_what_their_names_say(name):
    """Where a name is one of the networks' too, it means the same."""
    torch.manual_seed(0)
    layer = providers.PROVIDERS[name](20, 1)
    assert isinstance(layer, deu.DEU)
    assert providers.is_ours(name)
    which = name.removeprefix("deu").strip()
    papers = which == "paper" or "subspace" in which or name in providers.ALONE
    assert layer.solution == ("paper" if papers else "continuous")
    if name in models.FACTORIES:
        assert repr(layer) == repr(models.FACTORIES[name](20))
    elif name in providers.ALONE:
        assert set(deu.subspaces(layer)) == {which.partition(",")[0]}
    elif papers:
        counts = {"one": 1, "pulled": 1, "ten": 9}  # 101 counts for both of its signs
        assert len(set(deu.subspaces(layer))) == counts[which.split()[0]]
    elif which == "trained":  # with a slow root of either sign
        assert set(deu.subspaces(layer)) <= {"overdamped", "110"}
        assert layer.c.min() < 0 < layer.c.max()
    else:
        assert f"init={which!r}" in repr(layer)


def row(provider: str, work: str, seconds: float, ratio: float, limit: float) -> rows.Row:
    made = rows.Row("layer", "case", "", "", "", provider, work)
    made.seconds, made.ratio, made.limit, made.memory_ratio = seconds, ratio, limit, 1.0001
    made.base = "copy"
    return made


def test_requirements_take_the_worst_unit():
    found = table.requirements(
        [
            row("GELU", "forward", 1.0, 9.0, math.nan),
            row("deu one subspace", "forward", 1.0, 1.00, 1.05),
            row("deu pulled subspace", "forward", 1.15, 1.00, 1.05),
            row("deu ten subspaces", "forward", 1.2, 1.06, 1.05),
        ]
    )
    values = {(round(one.value, 2), one.limit, one.met) for one in found}
    assert values == {(1.06, 1.05, False), (1.2, 1.1, False), (1.04, 1.1, True), (1.0, 1.01, True)}


def test_rows_come_back_from_their_file(tmp_path):
    made = row("deu paper", "forward", 0.25, 1.5, math.nan)
    made.note, made.quick, made.rounds = 'commas, "quotes"', True, 3
    with rows.Writer(tmp_path / "x.csv") as writer:
        writer.write([made])
        assert len(rows.read(tmp_path / "x.csv")) == 1  # there before the file is closed
    (back,) = rows.read(tmp_path / "x.csv")
    for name in rows.COLUMNS:
        want, got = getattr(made, name), getattr(back, name)
        assert got == want or (math.isnan(got) and math.isnan(want)), name


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_says_when_its_output_cannot_be_written(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(command, "_run", lambda *_: cli.say("a table"))
    arguments = cli._parser().parse_args(["bench", "--device", "cpu", "--out", str(tmp_path)])
    with open("/dev/full", "w") as full:
        monkeypatch.setattr(sys, "stdout", full)
        assert command.bench(arguments) == 2
    assert capsys.readouterr().err == "deu bench: standard output: No space left on device\n"


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.filterwarnings("default")  # of PyTorch's profiler and graphs, in a version to come
def test_a_run_on_a_gpu(tmp_path):
    cases = [SMALL, Case((8, 64, 56, 56), LAST, "bfloat16", FEW)]
    forms = [
        Form("ResNet-18", work, 4, providers=("ReLU", "deu", "NormDEU"))
        for work in (models.TRAINING, models.INFERENCE)
    ]
    arguments = cli._parser().parse_args(["bench", "--rounds", "3", "--out", str(tmp_path)])
    assert command.bench(arguments, cases, forms) == 0
    found = lines(tmp_path)
    assert {row["status"] for row in found} == {"measured"}
    for row in found:
        assert row["base"] == ("ReLU" if row["kind"] == "model" else "copy")
        assert float(row["seconds"]) > 0
        assert row["launches"] or row["kind"] == "layer"
        assert row["memory_bytes"] or row["provider"] == "copy"
    assert {row["work"] for row in found} >= {*models.CAPTURED, *models.CAPTURED.values()}
    assert all(row["wall_seconds"] for row in found if row["case"] == SMALL.title)
