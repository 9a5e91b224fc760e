"""The command ``deu``.  Each command imports what it needs when it is called."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

OUTPUT = "standard output"  # where an error's path would be
_EXTRAS = ("matplotlib", "numpy", "pooch", "sklearn", "tqdm")  # what experiments may need


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


def _setting(text: str) -> tuple[str, list[str]]:
    key, equals, values = text.partition("=")
    if not (key and equals and values):
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form SETTING=VALUE[,VALUE]")
    return key, _split(values)


def _split(values: str) -> list[str]:
    """Values at their commas, but for those within brackets.

    Example:
        >>> _split("ReLU,[4, 4],[8]")
        ['ReLU', '[4, 4]', '[8]']
    """
    parts, depth = [""], 0
    for letter in values:
        depth += (letter in "[({") - (letter in "])}")
        if letter == "," and not depth:
            parts.append("")
        else:
            parts[-1] += letter
    return parts


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
        "--match", metavar="TEXT", help='only cases with this in their title, as "bfloat16"'
    )
    parser.add_argument(
        "--providers",
        nargs="+",
        metavar="NAME",
        help="only these, and whom they are compared with; as deu ReLU NormDEU",
    )
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


def _add_experiments(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "list", help="the experiments: what they are, how long they take and on what"
    )
    parser.set_defaults(command=_experiments("list_experiments"))
    _add_reproduce(commands, "reproduce", "paper", "run experiments of the paper and report them")
    _add_reproduce(
        commands,
        "study",
        "study",
        "the same with more learning rates, activations and variants of the unit",
    )
    parser = commands.add_parser(
        "report",
        help="tables and pictures of the results in a folder",
        description="Turn a folder of results into report.md, report.csv and report.html.",
    )
    parser.add_argument(
        "folder",
        nargs="?",
        type=Path,
        default=Path("out/results"),
        metavar="DIR",
        help="default out/results",
    )
    parser.set_defaults(command=_experiments("report"))


def _add_reproduce(
    commands: argparse._SubParsersAction[argparse.ArgumentParser], name: str, scope: str, what: str
) -> None:
    parser = commands.add_parser(
        name,
        help=what,
        description=f"{what[0].upper()}{what[1:]}. Finished cells are kept and are not run again; "
        "one that was stopped goes on from its last epoch. Under torchrun each cell is trained by "
        "all processes together: torchrun --nproc-per-node 2 -m deu reproduce NAME.",
    )
    parser.add_argument("names", nargs="+", metavar="NAME", help="as deu list names them, or all")
    parser.add_argument(
        "--quick", action="store_true", help="small sizes, to see it run; marked as quick"
    )
    parser.add_argument(
        "--data",
        type=Path,
        metavar="DIR",
        help="where data lies or is downloaded to; default: DEU_DATA, else the user's cache",
    )
    parser.add_argument(
        "--out", type=Path, metavar="DIR", help="default out/results, with --quick out/quick"
    )
    parser.add_argument("--device", choices=("cpu", "cuda"), help="default: cuda if it is there")
    parser.add_argument("--seeds", type=_positive, metavar="N", help="default: the experiment's")
    parser.add_argument(
        "--engine",
        choices=("local", "ray"),
        default="local",
        help="local: here (default); ray: as tasks on the Ray cluster at RAY_ADDRESS, or on one "
        "started here",
    )
    parser.add_argument(
        "--jobs",
        type=_positive,
        metavar="N",
        help="cells at a time, each in a process of its own; default 1, with ray a core each",
    )
    parser.add_argument(
        "--precision",
        choices=("float32", "bfloat16"),
        help="of training, for experiments that have it as a setting; default: the experiment's",
    )
    parser.add_argument("--compile", action="store_true", help="train networks compiled")
    parser.add_argument(
        "--only",
        type=_setting,
        action="append",
        default=[],
        metavar="SETTING=VALUE[,VALUE]",
        help="of its cells, those with one of these values; as --only activation=ReLU,deu",
    )
    parser.add_argument("--no-report", action="store_true", help="only run")
    parser.set_defaults(command=_experiments("reproduce"), scope=scope)


def _experiments(function: str) -> Callable[[argparse.Namespace], int]:
    """A function of the experiments' commands, which are imported when it is called."""

    def command(arguments: argparse.Namespace) -> int:
        try:
            from .experiments import command

            return getattr(command, function)(arguments)
        except ModuleNotFoundError as error:
            package = (error.name or "").split(".")[0]
            if package not in _EXTRAS:
                raise
            print(
                f"deu: experiments need {package}: pip install 'deu[experiments]'", file=sys.stderr
            )
            return 1

    return command


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("deu", description="Differential Equation Units.")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    _add_experiments(commands)
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
    except BrokenPipeError:  # whoever read the output has gone
        _drop_output()
        return 141
    except OSError as error:
        if not output_fails():
            raise
        print(f"{name}: {OUTPUT}: {error.strerror}", file=sys.stderr)
        return 2
    return code


@contextmanager
def named(path: Path | str) -> Iterator[None]:
    """Let an error say at which path it was: that of a full disk does not.

    Example:
        >>> with named(Path("toy.pt")):
        ...     raise OSError(28, "No space left on device")
        Traceback (most recent call last):
        OSError: [Errno 28] No space left on device: 'toy.pt'
    """
    try:
        yield
    except OSError as error:
        error.filename = error.filename or str(path)
        raise


def say(text: str) -> None:
    """Print at once."""
    with named(OUTPUT):
        print(text, flush=True)


def place_of(error: OSError) -> str | None:
    """Where it happened, as far as that is known: a path, or ``OUTPUT``."""
    where: str | None = OUTPUT if output_fails() and not error.filename else error.filename
    return where


def output_fails() -> bool:
    """Whether what was printed cannot be written, as on a full disk; then it is dropped."""
    try:
        sys.stdout.flush()
    except OSError:
        _drop_output()
        return True
    return False


def _drop_output() -> None:
    """Keep the interpreter from flushing at its end what cannot be written."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def cannot_write(name: str, out: Path, error: OSError) -> int:
    """Say that a command's folder cannot be written to, or its output; its exit code."""
    if place_of(error) == OUTPUT:
        print(f"{name}: {OUTPUT}: {error.strerror}", file=sys.stderr)
        return 2
    reason = "it is not a folder" if isinstance(error, FileExistsError) else error.strerror
    print(f"{name}: cannot write to --out {out}: {reason}", file=sys.stderr)
    return 2
