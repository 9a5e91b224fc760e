"""The command ``deu``.  Each command imports what it needs when it is called."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from pathlib import Path


def _positive(text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of 1 or more")
    return number


def _seconds(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds above 0")
    return number


def _add_bench(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "bench",
        help="speed, memory and error beside other activations",
        description="Time layers and whole networks beside other activations, in turn, in one run. "
        "Writes bench.csv, bench.md and, with matplotlib, bench.png and bench.svg. A time whose "
        "result is wrong, against float64, is not reported.",
    )
    parser.add_argument("--device", choices=("cpu", "cuda"), help="default: cuda if it is there")
    parser.add_argument("--only", choices=("layers", "models"), help="leave the other out")
    parser.add_argument(
        "--quick", action="store_true", help="small sizes, to see it run; marked as quick"
    )
    parser.add_argument("--rounds", type=_positive, metavar="N", help="default 31, quick 5")
    parser.add_argument(
        "--budget",
        type=_seconds,
        metavar="SECONDS",
        help="start nothing new in the last part of it; says what was left out",
    )
    parser.add_argument("--threads", type=_positive, metavar="N", help="of the CPU")
    parser.add_argument("--out", type=Path, default=Path("out/bench"), help="default out/bench")
    parser.add_argument(
        "--chart", type=Path, metavar="CSV", help="only draw the chart of a run that was made"
    )
    parser.set_defaults(command=_bench)


def _bench(arguments: argparse.Namespace) -> int:
    from .bench import command

    if arguments.chart is not None:
        return command.chart(arguments.chart)
    return command.bench(arguments)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("deu", description="Differential Equation Units.")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    _add_bench(commands)
    return parser


def main(argv: list[str] | None = None) -> int:
    """The command line; returns its exit code."""
    arguments = _parser().parse_args(argv)
    return until_stopped("deu", lambda: arguments.command(arguments))


def until_stopped(name: str, command: Callable[[], int]) -> int:
    """A command's exit code, also where Ctrl-C or a closed pipe ends it."""
    try:
        code = command()
        sys.stdout.flush()
    except KeyboardInterrupt:
        print(f"{name}: stopped", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # Whoever read the output has gone; the interpreter must not try to flush it again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    return code
