"""The commands ``deu list``, ``deu reproduce``, ``deu study`` and ``deu report``."""

from __future__ import annotations

import argparse
import errno
import os
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from ..cli import OUTPUT, named, place_of
from . import engine, registry
from .cells import Cell, ResultError, read_results, short
from .chapters import ReportError
from .data import DataError, data_root
from .experiment import Experiment, Options, Place
from .parallel import rank
from .progress import Display
from .training import CheckpointError

RESULTS, QUICK_RESULTS = Path("out/results"), Path("out/quick")
QUICK = "QUICK RUN: small sizes, to see it run; these are not results"


def list_experiments(arguments: argparse.Namespace) -> int:
    """Print every experiment: its name, what it is, how long it takes and on what."""
    return _said("deu list", _list)


def _list() -> int:
    rows = [("NAME", "WHAT", "COST")]
    rows += [(name, (found := registry.load(name)).title, found.cost) for name in registry.SPECS]
    widths = [max(len(row[i]) for row in rows) for i in range(2)]
    with named(OUTPUT):
        for name, title, cost in rows:
            print(f"{name:{widths[0]}}  {title:{widths[1]}}  {cost}".rstrip())
    return 0


def report(arguments: argparse.Namespace) -> int:
    """Write the report of a folder of results."""
    return _said("deu report", lambda: _report(arguments.folder))


def reproduce(arguments: argparse.Namespace) -> int:
    """Run experiments and write their report; ``arguments.scope`` says how much of them."""
    return _said(f"deu {_verb(arguments)}", lambda: _reproduce(arguments))


def _said(name: str, command: Callable[[], int]) -> int:
    """A command's exit code, and what is wrong with what it was given in one line."""
    if os.environ.get("RANK", "0") != "0":
        name += f" (process {os.environ['RANK']})"
    try:
        return command()
    except (
        registry.UnknownNameError,
        engine.EngineError,
        DataError,
        CheckpointError,
        ResultError,
        ReportError,
    ) as error:
        print(f"{name}: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        raise
    except OSError as error:
        print(f"{name}: {_reason(error)}", file=sys.stderr)
        return 2


def _reason(error: OSError) -> str:
    """What is wrong, and with what."""
    where = place_of(error)
    return f"{where}: {error.strerror or error}" if where else f"{error.strerror or error}"


def _report(folder: Path) -> int:
    from . import report as reports

    results = read_results(folder)
    if not results:
        raise ResultError(f"there are no results in {folder}; deu reproduce NAME makes some")
    for path in reports.write(results, folder):
        print(path)
    return 0


def _reproduce(arguments: argparse.Namespace) -> int:
    names = registry.chosen(arguments.names)
    out = arguments.out or (QUICK_RESULTS if arguments.quick else RESULTS)
    _check_data(arguments.data)
    data = arguments.data and arguments.data.absolute()
    options = Options(arguments.quick, arguments.seeds, arguments.scope, data, arguments.precision)
    with _together(arguments) as device:
        display = Display(quiet=rank() != 0)
        place = Place(
            device,
            data,
            captured=device == "cuda" and not arguments.compile,
            compiled=arguments.compile,
        )
        tasks = []
        for name in names:
            command = _command(arguments, name)
            for cell in _only(arguments.only, _cells(registry.load(name), options)):
                tasks.append(engine.Task(registry.SPECS[name], cell, place, command))
        _make(out)
        if arguments.quick:
            display.say(QUICK)
        try:
            summary = engine.run(tasks, out.absolute(), _engine(arguments, display), display)
        except KeyboardInterrupt:
            display.say(
                f"deu {_verb(arguments)}: stopped; finished cells are kept in {out}, and the same "
                "command goes on from there",
                sys.stderr,
            )
            return 130
        except OSError as error:
            if error.errno not in (*engine.FULL, errno.EIO):
                raise
            raise engine.EngineError(
                f"{_reason(error)}; what was finished is kept, and the same command goes on from "
                "there"
            ) from error
        if rank():
            return 0
    said = [f"{summary.run} run", f"{summary.kept} were there", f"{len(summary.failed)} failed"]
    cells = f"{len(tasks)} cell{'s' * (len(tasks) != 1)}"
    print(f"{cells}: {', '.join(said)}; results in {out}", flush=True)
    for label, why in summary.failed:
        print(f"failed: {label}: {why}", file=sys.stderr)
    if not arguments.no_report and (summary.run or summary.kept):
        _report(out)
    return 1 if summary.failed else 0


def _check_data(given: Path | None) -> None:
    """Refuse a folder of data that is none, wherever its name comes from."""
    name, folder = "--data", given
    if given is None and os.environ.get("DEU_DATA"):
        name, folder = "DEU_DATA", data_root()
    if folder is not None and not folder.is_dir():
        raise DataError(f"{name} {folder} is not a folder; make it, or name another")


def _make(out: Path) -> None:
    """The folder of results, where it is not there."""
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        wrong = "is not a folder" if isinstance(error, FileExistsError) else "cannot be made"
        why = "" if isinstance(error, FileExistsError) else f" ({error.strerror})"
        raise engine.EngineError(f"--out {out} {wrong}{why}; name another") from error


def _cells(experiment: Experiment, options: Options) -> list[Cell]:
    cells = experiment.cells(options)
    wanted = options.precision
    own = {cell.settings.get("precision", "float32") for cell in cells}
    if wanted is not None and own != {wanted}:
        raise engine.EngineError(
            f"{experiment.name} does not run in {wanted}; leave --precision out, or name other "
            "experiments"
        )
    return cells


def _only(wanted: Sequence[tuple[str, list[str]]], cells: list[Cell]) -> list[Cell]:
    """The cells that have one of the wanted values of each wanted setting."""
    for key, values in wanted:
        having = [cell for cell in cells if key in cell.settings]
        for value in values:
            if not any(_is(value, cell.settings[key]) for cell in having):
                names = dict.fromkeys(name for cell in cells for name in cell.settings)
                there = sorted({short(cell.settings[key]) for cell in having})
                told = f"it is one of {', '.join(there)}" if there else f"not in {', '.join(names)}"
                raise engine.EngineError(f"--only {key}={value}: no cell has it; {told}")
        cells = [cell for cell in having if any(_is(v, cell.settings[key]) for v in values)]
    return cells


def _is(text: str, value: Any) -> bool:
    """Whether a text is a setting's value, as it is shown or as it is written in full.

    Example:
        >>> _is("1", 1.0), _is("1.0", 1.0), _is("1e-3", 0.001), _is("[4,4]", [4, 4])
        (True, True, True, True)
        >>> _is("0.3", 0.03), _is("True", 1.0)
        (False, False)
    """
    try:
        spelt = {text, f"{float(text)}", f"{float(text):g}"}
    except ValueError:
        spelt = {text}
    own = {str(value), short(value)}
    return not {_dense(word) for word in spelt}.isdisjoint({_dense(word) for word in own})


def _dense(text: str) -> str:
    return "".join(text.split())


def _engine(arguments: argparse.Namespace, display: Display) -> engine.Engine:
    if arguments.engine == "ray":
        from .ray_engine import on_ray

        return on_ray(arguments.jobs)
    if arguments.jobs and arguments.jobs > 1:
        return engine.processes(arguments.jobs)
    return engine.here(display)


@contextmanager
def _together(arguments: argparse.Namespace) -> Iterator[str]:
    """The device; under ``torchrun``, this process's, with the processes joined."""
    ray = arguments.engine == "ray"
    there = torch.cuda.is_available()
    device = arguments.device or ("cuda" if there else "cpu")
    if device == "cuda" and not there and not (ray and "RAY_ADDRESS" in os.environ):
        raise engine.EngineError("--device cuda: PyTorch finds no CUDA device here")
    if "WORLD_SIZE" not in os.environ or "RANK" not in os.environ:
        yield device
        return
    if ray or arguments.jobs:
        raise engine.EngineError(
            "torchrun runs each cell in all its processes: no --engine, --jobs"
        )
    if device == "cuda":
        device = f"cuda:{os.environ.get('LOCAL_RANK', '0')}"
        torch.cuda.set_device(device)
        torch.distributed.init_process_group("nccl", device_id=torch.device(device))
    else:
        torch.distributed.init_process_group("gloo")
    try:
        yield device
    finally:
        torch.distributed.destroy_process_group()


def _verb(arguments: argparse.Namespace) -> str:
    return "study" if arguments.scope == "study" else "reproduce"


def _command(arguments: argparse.Namespace, name: str) -> str:
    """What makes an experiment's results again, as it would be typed."""
    world = os.environ.get("WORLD_SIZE") if "RANK" in os.environ else None
    words = ["torchrun", "--nproc-per-node", world, "-m"] if world else []
    words += ["deu", _verb(arguments), name]
    words += ["--quick"] if arguments.quick else []
    for option in ("device", "seeds", "precision"):
        value = getattr(arguments, option)
        words += [f"--{option}", str(value)] if value is not None else []
    words += ["--compile"] if arguments.compile else []
    for key, values in arguments.only:
        words += ["--only", f"{key}={','.join(values)}"]
    return shlex.join(words)
