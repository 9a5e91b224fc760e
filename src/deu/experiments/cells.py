"""The unit of work of every experiment, and the file that holds what came of it."""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ..cli import named

FORMAT = 1


class ResultError(RuntimeError):
    """A result file that is damaged or of another form."""


@dataclass(frozen=True)
class Cell:
    """One piece of an experiment: a network, an activation, a learning rate, one or more seeds.

    ``settings`` is plain JSON and holds everything that decides the result. ``seeds`` has more
    than one entry where networks are so small that many train side by side.

    Example:
        >>> cell = Cell("circles", {"activation": "deu", "lr": 0.01}, seeds=(0,))
        >>> cell.name
        'activation=deu,lr=0.01,seed=0-...'
    """

    experiment: str
    settings: dict[str, Any]
    seeds: tuple[int, ...] = (0,)
    quick: bool = False

    @property
    def identity(self) -> dict[str, Any]:
        """What a checkpoint or a result must be of to count as this cell's."""
        given = {**asdict(self), "format": FORMAT}
        return json.loads(json.dumps(given))  # as it comes back from a file

    @property
    def label(self) -> str:
        """For people."""
        parts = [f"{key}={short(value)}" for key, value in self.settings.items()]
        few = len(self.seeds) == 1
        parts.append(f"seed={self.seeds[0]}" if few else f"seeds={len(self.seeds)}")
        return ",".join(parts)

    @property
    def name(self) -> str:
        """For files: the label and a digest that tells apart what the label does not."""
        text = json.dumps(self.identity, sort_keys=True)
        digest = hashlib.sha256(text.encode()).hexdigest()[:8]
        plain = re.sub(r"[^A-Za-z0-9=.,_-]+", "-", self.label)[:120]
        return f"{plain}-{digest}"


def short(value: Any) -> str:
    """A setting's value as labels show it.

    Example:
        >>> short(1.0), short([4, 4]), short("deu")
        ('1', '[4, 4]', 'deu')
    """
    return f"{value:g}" if isinstance(value, float) else str(value)


@dataclass(frozen=True)
class Result:
    """What came of a cell.

    ``metrics`` are the last ones, a list with an entry a seed under each name; ``history`` has
    them by epoch; ``curves`` is whatever the experiment's pictures need.

    A number that is not finite is ``null`` in the file, and NaN again in the metrics and the
    history that are read from it.
    """

    cell: Cell
    metrics: dict[str, list[float]]
    history: list[dict[str, Any]] = field(default_factory=list)
    parameters: int = 0
    curves: dict[str, Any] = field(default_factory=dict)
    seconds: float = 0.0
    made: dict[str, Any] = field(default_factory=dict)  # versions, hardware, date

    def __getitem__(self, metric: str) -> list[float]:
        return self.metrics[metric]

    @property
    def finite(self) -> bool:
        """Whether every metric and every loss on the way was a number.

        Example:
            >>> Result(Cell("circles", {}), {"mse": [1.0]}, [{"loss": math.nan}]).finite
            False
        """
        return _finite([self.metrics, self.history])


def result_path(folder: Path, cell: Cell) -> Path:
    """Where a cell's result lies in a folder of results."""
    return folder / cell.experiment / f"{cell.name}.json"


def write_result(folder: Path, result: Result) -> Path:
    """Put a result where it belongs, whole or not at all."""
    path = result_path(folder, result.cell)
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    content = {**result.cell.identity, **asdict(result), "finite": result.finite}
    content.pop("cell")
    try:
        with named(path):
            part.write_text(_text(_each(_to_null, content)))
            os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)
    return path


def _text(content: dict[str, Any]) -> str:
    """JSON with a line for each of its parts, and for each epoch."""

    def line(value: Any) -> str:
        return json.dumps(value, allow_nan=False)

    lines = []
    for key, value in content.items():
        epochs = key == "history" and value
        told = "[\n" + ",\n".join(map(line, value)) + "]" if epochs else line(value)
        lines.append(f"{line(key)}: {told}")
    return "{\n" + ",\n".join(lines) + "}\n"


def read_result(path: Path) -> Result:
    """A result from its file; a damaged one is an error that names it."""
    try:
        content = json.loads(path.read_text())
        if content.pop("format") != FORMAT:
            raise ValueError(f"its format is not {FORMAT}")
        _check(content)
        cell = Cell(
            content.pop("experiment"),
            content.pop("settings"),
            tuple(content.pop("seeds")),
            content.pop("quick"),
        )
        del content["finite"]
        for part in ("metrics", "history"):
            content[part] = _each(_to_nan, content[part])
        return Result(cell, **content)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ResultError(
            f"{path} is not a whole result ({type(error).__name__}: {error}); "
            "delete it and run its experiment again"
        ) from error


_KINDS: dict[str, tuple[type | tuple[type, ...], str]] = {
    "experiment": (str, "a text"),
    "settings": (dict, "an object"),
    "seeds": (list, "a list"),
    "quick": (bool, "true or false"),
    "metrics": (dict, "an object"),
    "history": (list, "a list"),
    "parameters": (int, "a whole number"),
    "curves": (dict, "an object"),
    "seconds": ((int, float), "a number"),
    "made": (dict, "an object"),
}


def _check(content: dict[str, Any]) -> None:
    """Whether a file's parts are of their kinds, and of what a report counts on in them."""
    for part, (kind, name) in _KINDS.items():
        if not isinstance(content[part], kind):
            raise ValueError(f"{part} is not {name}")
    if not content["seeds"] or not all(isinstance(seed, int) for seed in content["seeds"]):
        raise ValueError("seeds is not a list of whole numbers")
    if not all(isinstance(epoch, dict) for epoch in content["history"]):
        raise ValueError("history is not a list of objects")
    for metric, values in content["metrics"].items():
        if not isinstance(values, list) or not all(map(_is_number, values)):
            raise ValueError(f"metrics has no list of numbers for {metric}")


def _is_number(value: Any) -> bool:
    return value is None or isinstance(value, int | float)


def another_cell(path: Path) -> ResultError:
    """The error for a result that lies where another cell's belongs."""
    return ResultError(
        f"{path} is the result of another cell than its name says; move it away, or choose "
        "another folder"
    )


def read_results(folder: Path) -> list[Result]:
    """All results under a folder, in the order of their names."""
    if folder.is_file():
        raise ResultError(f"{folder} is a file; name the folder that the results are in")
    if not folder.is_dir():
        raise ResultError(f"{folder} is not a folder; deu reproduce NAME --out {folder} makes it")
    found = []
    for path in sorted(folder.glob("*/*.json")):
        found.append(read_result(path))
        if path != result_path(folder, found[-1].cell):
            raise another_cell(path)
    return found


def _finite(value: Any) -> bool:
    if isinstance(value, dict | list | tuple):
        return all(map(_finite, value.values() if isinstance(value, dict) else value))
    return value is not None and not (isinstance(value, float) and not math.isfinite(value))


def _to_null(value: Any) -> Any:
    return value if _finite(value) else None


def _to_nan(value: Any) -> Any:
    return math.nan if value is None else value


def _each(change: Callable[[Any], Any], value: Any) -> Any:
    """Plain data with each of its numbers and texts changed."""
    if isinstance(value, dict):
        return {key: _each(change, own) for key, own in value.items()}
    if isinstance(value, list | tuple):
        return [_each(change, own) for own in value]
    return change(value)
