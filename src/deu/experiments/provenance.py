"""How results were made, in words: hardware, versions, dates, commands, settings, seeds, time."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from .cells import Result

UNKNOWN = "not recorded"
_FEW = 8  # values of a setting that are listed


def how(results: Sequence[Result]) -> list[tuple[str, str]]:
    """Names and what they are, for the end of a report's section.

    What differs between results is listed with how many results it is of. What a result does not
    say is called "not recorded".

    Example:
        >>> from deu.experiments.cells import Cell
        >>> cell = Cell("circles", {"activation": "deu"}, seeds=(0, 1, 2))
        >>> made = {"date": "2026-01-05T10:00:00", "command": "deu reproduce circles"}
        >>> dict(how([Result(cell, {}, seconds=95, made=made)]))["seeds"]
        '3 (0–2)'
    """
    dates = sorted(_date(r.made["date"]) for r in results if r.made.get("date"))
    when = dates[0] if len(set(dates)) == 1 else f"{dates[0]} to {dates[-1]}" if dates else UNKNOWN
    seeds = sorted({seed for result in results for seed in result.cell.seeds})
    return [
        ("hardware", _counted(hardware(result) for result in results)),
        ("versions", _counted(described(result.made.get("versions")) for result in results)),
        ("date", when),
        ("command", _counted(described(result.made.get("command")) for result in results)),
        ("settings", _settings(results)),
        ("seeds", f"{len(seeds)} ({_ranges(seeds)})" if seeds else UNKNOWN),
        ("time", f"{duration(sum(r.seconds for r in results))} in {_cells(len(results))}"),
    ]


def _date(record: Any) -> str:
    return str(record).replace("T", " ").replace("+00:00", " UTC")


def hardware(result: Result) -> str:
    """What a result was made on, in words."""
    return described(result.made.get("hardware"))


def described(record: Any) -> str:
    """A record of any form in words.

    Example:
        >>> described({"cpu": "a CPU", "threads": 2, "gpu": None}), described(None)
        ('cpu a CPU, threads 2', 'not recorded')
    """
    if isinstance(record, dict):
        said = (f"{key} {described(own)}" for key, own in record.items() if _is_said(own))
        return ", ".join(said) or UNKNOWN
    if isinstance(record, list | tuple):
        return " ".join(map(str, record)) or UNKNOWN
    return str(record) if _is_said(record) else UNKNOWN


def _is_said(record: Any) -> bool:
    return record is not None and record not in ("", {}, [])


def _counted(texts: Iterable[str]) -> str:
    counts = Counter(texts)
    if len(counts) == 1:
        return next(iter(counts))
    return "; ".join(f"{text} ({_cells(count)})" for text, count in counts.items())


def _cells(count: int) -> str:
    return f"{count} cell{'s' * (count != 1)}"


def duration(seconds: float) -> str:
    """A time for people.

    Example:
        >>> duration(4.2), duration(95), duration(7320)
        ('4.2 s', '1 min 35 s', '2 h 2 min')
    """
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"


def _ranges(numbers: Sequence[int]) -> str:
    parts: list[list[int]] = []
    for number in numbers:
        if parts and number == parts[-1][-1] + 1:
            parts[-1][1:] = [number]
        else:
            parts.append([number])
    return ", ".join("–".join(map(str, part)) for part in parts)


def plain(value: Any) -> str:
    """A setting's value as text: words and numbers as they are, anything else as JSON.

    Example:
        >>> plain("deu"), plain(0.01), plain([1, 2]), plain(None)
        ('deu', '0.01', '[1, 2]', '')
    """
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    return f"{value:.12g}" if isinstance(value, float) else json.dumps(value, ensure_ascii=False)


def _settings(results: Sequence[Result]) -> str:
    keys = list(dict.fromkeys(key for result in results for key in result.cell.settings))
    parts = []
    for key in keys:
        given = [r.cell.settings[key] for r in results if key in r.cell.settings]
        values = sorted(set(map(plain, given)), key=_order)
        few = ", ".join(value or "none" for value in values[:_FEW])
        more = f" and {len(values) - _FEW} more" if len(values) > _FEW else ""
        parts.append(f"{key} {few}{more}")
    return "; ".join(parts) or "none"


def _order(text: str) -> tuple[int, float, str]:
    try:
        return 0, float(text), text
    except ValueError:
        return 1, 0.0, text
