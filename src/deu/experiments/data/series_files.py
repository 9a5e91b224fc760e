"""Multivariate series from comma-separated files, published or anyone's."""

from __future__ import annotations

import csv
import io
from array import array
from collections.abc import Iterable
from pathlib import Path

import torch
from torch import Tensor

from .files import load
from .published import DataError, Published, damaged, gunzip

FOLDER = "timeseries"
SUFFIXES = (".txt.gz", ".txt", ".csv.gz", ".csv")

# The checksums are the names that git has for the files in this commit.
_COMMIT = (
    "https://raw.githubusercontent.com/laiguokun/multivariate-time-series-data/"
    "7f402f185cc2435b5e66aed13a3b560ed142e023/"
)
LSTNET = {
    "traffic": Published(
        f"{FOLDER}/traffic.txt.gz",
        "git:63ddb74bf7602568f36056a0b1a47aa407f0a6fe",
        (_COMMIT + "traffic/traffic.txt.gz",),
    ),
    "solar-energy": Published(
        f"{FOLDER}/solar_AL.txt.gz",
        "git:08a1f235546b3708309ff4fb544a54bb82e4f5e7",
        (_COMMIT + "solar-energy/solar_AL.txt.gz",),
    ),
    "electricity": Published(
        f"{FOLDER}/electricity.txt.gz",
        "git:df158a9fff65428ece107200432a72c992d5e4e9",
        (_COMMIT + "electricity/electricity.txt.gz",),
    ),
    "exchange_rate": Published(
        f"{FOLDER}/exchange_rate.txt.gz",
        "git:d72d0d7a5d5d06ecd1cf4c79396180b2962be101",
        (_COMMIT + "exchange_rate/exchange_rate.txt.gz",),
    ),
}

_DATES = {"", "date", "datetime", "time", "timestamp"}  # "" is how pandas heads its index


def series(name_or_path: str | Path, root: str | Path, *, download: bool = True) -> Tensor:
    """A series, float64, (steps, variables).

    A file is comma-separated, a line a step, and may be packed with gzip.  A ``.csv`` begins with a
    header; any other file does if its first line is not numbers.  A first column of dates, told by
    its name in the header or by not being numbers, is left out.

    Args:
        name_or_path: ``"traffic"``, ``"solar-energy"``, ``"electricity"`` or ``"exchange_rate"``,
            which LSTNet's authors publish; or a file; or the name, with its suffix or without, of a
            file in ``timeseries`` under the data directory.
        root: the data directory.
        download: bring a published one from the network if it is missing.

    Raises:
        DataError: it is missing or damaged, or a line of it is no row of numbers; says which line.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as root:
        ...     file = Path(root, "heat.csv")
        ...     _ = file.write_text("date,a,b\\n2020-01-01,1,2\\n2020-01-02,3,4\\n")
        ...     series(file, root).tolist()
        [[1.0, 2.0], [3.0, 4.0]]
    """
    root = Path(root)
    published = LSTNET.get(str(name_or_path))
    if published is not None:
        path = root / published.path
        unpacked = path.with_suffix("")
        if path.exists() or not unpacked.exists():
            return read_series(path, load(published, root, download=download))
        path = unpacked
    else:
        path = _find(name_or_path, root)
    return read_series(path, path.read_bytes())


def _find(name_or_path: str | Path, root: Path) -> Path:
    folder = root / FOLDER
    given = folder / name_or_path
    for path in (
        Path(name_or_path).expanduser(),
        given,
        *(given.with_name(given.name + s) for s in SUFFIXES),
    ):
        if path.is_file():
            return path
    files = [path.name for path in sorted(folder.glob("*")) if path.name.endswith(SUFFIXES)]
    raise DataError(
        f"there is no series {str(name_or_path)!r}: it is not a file, it is none of "
        f"{', '.join(LSTNET)}, and {folder.absolute()} has {', '.join(files) or 'none'}. "
        "Give one of these or a file's path, or another directory with --data DIR or DEU_DATA=DIR."
    )


def read_series(path: Path, content: bytes) -> Tensor:
    """The series in a file's content, float64, (steps, variables); see :func:`series`.

    Example:
        >>> read_series(Path("a.txt"), b"1,2\\n3,4\\n").tolist()
        [[1.0, 2.0], [3.0, 4.0]]
        >>> read_series(Path("a.txt"), b"1,2\\n3\\n")
        Traceback (most recent call last):
        deu.experiments.data.published.DataError: a.txt, line 2: 1 column, where line 1 has 2. ...
    """
    body = gunzip(path, content) if path.suffix == ".gz" else content
    text = io.TextIOWrapper(io.BytesIO(body), encoding="utf-8-sig", newline="")
    try:
        values, first, columns = _numbers(path, text)
    except (UnicodeDecodeError, csv.Error) as error:
        raise damaged(path, f"it is not comma-separated text ({error})") from error
    result = torch.frombuffer(values, dtype=torch.float64).reshape(-1, columns)
    bad = (~result.isfinite()).nonzero()
    if len(bad):
        row, column = bad[0].tolist()
        value = result[row, column].item()
        raise _at(path, first + row, f"value {column + 1} is {value}, and must be a finite number")
    return result


def _numbers(path: Path, text: Iterable[str]) -> tuple[array[float], int, int]:
    """All the numbers, the line of the first, and how many variables there are."""
    rows = csv.reader(text, strict=True)
    values = array("d")
    skipped = first = width = empty = 0
    for row in rows:
        line = rows.line_num
        if not row:
            empty = empty or line
            continue
        if empty:  # at the end they do no harm
            raise _at(path, empty, "it is empty, with more after it")
        if line == 1:
            is_csv = path.name.endswith((".csv", ".csv.gz"))
            if is_csv or not all(map(_is_number, row[1:] or row)):
                skipped = int(len(row) > 1 and row[0].strip().lower() in _DATES)
                width = len(row)
                continue
        if not first:
            first = line
            skipped = skipped or int(len(row) > 1 and not _is_number(row[0]))
            width = width or len(row)
        if len(row) != width:
            count = f"{len(row)} column{'s' * (len(row) != 1)}"
            raise _at(path, line, f"{count}, where line 1 has {width}")
        try:
            values.extend(map(float, row[skipped:]))
        except ValueError:
            wrong = next(field for field in row[skipped:] if not _is_number(field))
            raise _at(path, line, f"{wrong!r} is not a number") from None
    if not first:
        raise damaged(path, "it has no numbers")
    return values, first, width - skipped


def _is_number(field: str) -> bool:
    try:
        float(field)
    except ValueError:
        return False
    return True


def _at(path: Path, line: int, problem: str) -> DataError:
    return DataError(
        f"{path}, line {line}: {problem}. Every line must hold the same number of finite numbers, "
        "separated by commas: mend the file, or fetch a whole copy of it."
    )
