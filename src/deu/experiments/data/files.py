"""Where data lies, and how a published file gets from there, or from the network, to memory."""

from __future__ import annotations

import os
from pathlib import Path

from .download import download as bring
from .download import get_pooch
from .published import DataError, Published, damaged, wrong


def data_root(given: str | Path | None = None) -> Path:
    """The data directory: ``given``, else the environment's ``DEU_DATA``, else the user's cache.

    Example:
        >>> data_root("sets").name
        'sets'
    """
    if given is None or given == "":
        given = os.environ.get("DEU_DATA") or get_pooch().os_cache("deu")
    return Path(given).expanduser()


def load(file: Published, root: str | Path, *, download: bool = True) -> bytes:
    """The content of a published file, which is the published one or there is an error.

    Args:
        file: what is wanted.
        root: the data directory.
        download: bring it from the network if it is not there.

    Raises:
        DataError: it is missing and cannot be had, or it is damaged.

    Example:
        >>> file = Published("empty", "md5:d41d8cd98f00b204e9800998ecf8427e", ())
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as root:
        ...     _ = Path(root, "empty").write_bytes(b"")
        ...     load(file, root)
        b''
    """
    target = Path(root) / file.path
    if not target.exists():
        if not download:
            why = f"Downloading is turned off; it can be had from {' or '.join(file.urls)}."
            raise missing(file, target, why)
        try:
            bring(file, target)
        except OSError as error:
            raise missing(file, target, f"Downloading it failed: {error}.") from error
    content = target.read_bytes()
    problem = wrong(file, content)
    if problem:
        raise damaged(target, problem)
    return content


def missing(file: Published, target: Path, why: str) -> DataError:
    """The error for a file that is not there; ``why`` names the addresses."""
    return DataError(
        f"{file.path} is missing: it is expected at {target.absolute()}. {why} "
        "Put it there by hand, or name the directory that has it with --data DIR or DEU_DATA=DIR."
    )
