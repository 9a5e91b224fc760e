"""The command ``deu bench``: what is measured in which order, and what is written."""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import math
import platform
import shlex
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib import metadata
from pathlib import Path
from typing import TypeVar

import torch

from .. import __version__, _launcher, _native
from ..cli import cannot_write, say
from ..experiments.environment import processor
from . import chart as charts
from . import layers, models
from .cases import Case, layer_cases
from .models import Form, model_forms
from .rounds import Clock
from .rows import LEFT_OUT, Row, Writer, first_line, read
from .table import QUICK, case_table, document, summary

_ROUNDS, _QUICK_ROUNDS = 31, 5
Task = TypeVar("Task", Case, Form)


def bench(
    arguments: argparse.Namespace,
    cases: Sequence[Case] | None = None,
    forms: Sequence[Form] | None = None,
) -> int:
    """Measure, print and write; returns the exit code.  ``cases`` and ``forms`` may be given."""
    device = arguments.device or ("cuda" if torch.cuda.is_available() else "cpu")
    if device == "cuda" and not torch.cuda.is_available():
        print("deu bench: --device cuda: PyTorch finds no CUDA device here", file=sys.stderr)
        return 2
    out: Path = arguments.out
    threads = torch.get_num_threads()
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    try:
        out.mkdir(parents=True, exist_ok=True)
        with _ended_as_by_a_person(), Writer(out / "bench.csv") as writer:
            return _run(arguments, torch.device(device), writer, cases, forms)
    except BrokenPipeError:
        raise
    except OSError as error:
        return cannot_write("deu bench", out, error)
    finally:
        torch.set_num_threads(threads)


class _EndedError(KeyboardInterrupt):
    """Something else than a person has asked for the end: a batch system, or ``timeout``."""


@contextmanager
def _ended_as_by_a_person() -> Iterator[None]:
    """Let SIGTERM, like Ctrl-C, leave what was measured so far."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may ask for signals
        return

    def end(*_: object) -> None:
        raise _EndedError

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def chart(path: Path) -> int:
    """Draw the chart of a CSV that an earlier run wrote, beside it."""
    try:
        rows = read(path)
        paths = [path.with_suffix(".png"), path.with_suffix(".svg")]
        charts.draw(rows, paths)
    except ImportError:
        print("deu bench: the chart needs matplotlib: pip install deu[bench]", file=sys.stderr)
        return 1
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        print(f"deu bench: cannot draw {path}: {reason}", file=sys.stderr)
        return 2
    print("\n".join(str(made) for made in paths))
    return 0


def _run(
    arguments: argparse.Namespace,
    device: torch.device,
    writer: Writer,
    cases: Sequence[Case] | None,
    forms: Sequence[Form] | None,
) -> int:
    quick = arguments.quick
    rounds = arguments.rounds or (_QUICK_ROUNDS if quick else _ROUNDS)
    clock = Clock(arguments.budget or math.inf)
    template = Row("", "", "", "", "", "", quick=quick)
    template.device, template.versions = _hardware(device), _versions(device)
    template.date = datetime.date.today().isoformat()
    template.command = shlex.join(["deu", "bench", *_given(arguments)])
    heading = [
        f"{template.device}; {template.versions}; {template.date}; {rounds} rounds",
        f"`{template.command}`",
    ]
    for line in (*heading, QUICK) if quick else heading:
        say(line)
    rows: list[Row] = []

    def emit(new: list[Row]) -> None:
        rows.extend(new)
        writer.write(new)
        if new:
            say(f"\n{new[0].case}{', ' + new[0].work if new[0].kind == 'model' else ''}")
            say(case_table(new))

    if cases is None:
        cases = layer_cases(device.type, quick) if arguments.only != "models" else []
    if forms is None:
        forms = model_forms(device.type, quick) if arguments.only != "layers" else []
    tasks = [
        task
        for task in _in_order(
            _chosen(cases, arguments.providers, device.type),
            _chosen(forms, arguments.providers, device.type),
        )
        if arguments.match is None or arguments.match in _title(task)
    ]
    if not tasks:
        print("deu bench: no case is left by --match and --providers", file=sys.stderr)
        return 2
    code = 0
    for i, task in enumerate(tasks):
        kind, work = ("model", task.work) if isinstance(task, Form) else ("layer", "")
        title = _title(task)
        if clock.left < task.needs:
            row = Row(kind, task.title, "", "", "", "", work, LEFT_OUT, quick=quick)
            rows.append(row)
            writer.write([row])
            say(f"\nleft out, for want of time: {title}")
            continue
        if sys.stderr.isatty():
            print(f"[{i + 1}/{len(tasks)}] {title}", file=sys.stderr)
        try:
            if isinstance(task, Form):
                models.measure(task, device, rounds, clock, emit, template)
            else:
                layers.measure(task, device, rounds, clock, emit, template)
        except KeyboardInterrupt as reason:
            print("deu bench: stopped; what was measured is kept", file=sys.stderr)
            code = 143 if isinstance(reason, _EndedError) else 130
            break
        if device.type == "cuda":
            torch.cuda.empty_cache()
    _write(arguments.out, rows, heading)
    return code


def _title(task: Case | Form) -> str:
    return f"{task.title} {task.work}" if isinstance(task, Form) else task.title


def _chosen(tasks: Sequence[Task], wanted: list[str] | None, device: str) -> list[Task]:
    """The tasks of the wanted providers, with these and whom they are compared with."""
    if wanted is None:
        return list(tasks)
    found = []
    for task in tasks:
        base = models.BASE if isinstance(task, Form) else task.base(device)
        own = tuple(name for name in task.providers if name in wanted or name == base)
        if set(own) & set(wanted):
            found.append(dataclasses.replace(task, providers=own))
    return found


def _in_order(cases: Sequence[Case], forms: Sequence[Form]) -> list[Case | Form]:
    """The more important half of the layers, then of the networks, then the rest of both."""
    a, b = (len(cases) + 1) // 2, (len(forms) + 1) // 2
    return [*cases[:a], *forms[:b], *cases[a:], *forms[b:]]


def _write(out: Path, rows: list[Row], heading: list[str]) -> None:
    """The table and, if it can be drawn, the chart."""
    measured = [row for row in rows if row.status != LEFT_OUT]
    page = out / "bench.md"
    page.write_text(document(rows, heading), encoding="utf-8")
    if text := summary(rows):
        say(f"\n{text}")
    say(f"\n{out / 'bench.csv'}\n{page}")
    if not measured:
        return
    paths = [out / "bench.png", out / "bench.svg"]
    try:
        charts.draw(measured, paths)
    except ImportError:
        say(
            "no chart: it needs matplotlib. With it (pip install deu[bench]), draw it from the "
            f"CSV: deu bench --chart {out / 'bench.csv'}"
        )
    except ValueError as error:
        say(f"no chart: {error}")
    else:
        say("\n".join(str(path) for path in paths))


def _given(arguments: argparse.Namespace) -> list[str]:
    """The arguments as they would be typed again."""
    words = []
    for name in ("device", "only", "match", "providers", "rounds", "budget", "threads"):
        value = getattr(arguments, name)
        if isinstance(value, list):
            words += [f"--{name}", *value]
        elif value is not None:
            words += [f"--{name}", f"{value:g}" if isinstance(value, float) else str(value)]
    return [*words, *(["--quick"] if arguments.quick else [])]


def _hardware(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    isa = _native.isas()[-1] if _native.isas() else "reference, no kernels"
    return f"{processor()}, {torch.get_num_threads()} threads, kernels: {isa}"


def _versions(device: torch.device) -> str:
    versions = f"deu {__version__}, PyTorch {torch.__version__}, Python {platform.python_version()}"
    if device.type != "cuda":
        return versions
    versions += f", CUDA {torch.version.cuda}"
    with suppress(metadata.PackageNotFoundError):
        versions += f", Triton {metadata.version('triton')}"
    if _launcher.ready():
        return versions
    why = _launcher.problem or RuntimeError("the launcher is not built yet")
    return f"{versions}, launched by Python ({first_line(why)})"
