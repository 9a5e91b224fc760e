"""Files as they were published: where, with what checksum, and whether they still are that."""

from __future__ import annotations

import gzip
import hashlib
import zlib
from pathlib import Path
from typing import NamedTuple


class DataError(RuntimeError):
    """Data that is missing, damaged or not what its name says; the message says what to do."""


class Published(NamedTuple):
    """A file that others publish.

    Attributes:
        path: where it lies under the data directory, with ``/``.
        checksum: ``"md5:…"``, ``"sha256:…"``, or ``"git:…"``, the name git gives to its content.
        urls: where it can be had; tried in turn.
    """

    path: str
    checksum: str
    urls: tuple[str, ...]


def checksum(content: bytes, kind: str) -> str:
    """The checksum of a file's content, as :class:`Published` writes it.

    Example:
        >>> checksum(b"", "md5")
        'md5:d41d8cd98f00b204e9800998ecf8427e'
        >>> checksum(b"", "git")
        'git:e69de29bb2d1d6434b8b29ae775ad8c2e48c5391'
    """
    if kind == "git":
        content, algorithm = b"blob %d\0" % len(content) + content, "sha1"
    else:
        algorithm = kind
    digest = hashlib.new(algorithm, content, usedforsecurity=False).hexdigest()
    return f"{kind}:{digest}"


def wrong(file: Published, content: bytes) -> str:
    """What is wrong with the content of a published file, in words; empty where nothing is.

    Example:
        >>> file = Published("a", "md5:d41d8cd98f00b204e9800998ecf8427e", ())
        >>> wrong(file, b"")
        ''
        >>> wrong(file, b"ab").split(",")[0]
        'its 2 bytes have md5:187ef4436122d1cc2f40dc2b92f0eba0'
    """
    found = checksum(content, file.checksum.partition(":")[0])
    if found == file.checksum:
        return ""
    return f"its {len(content):,} bytes have {found}, not {file.checksum}"


def damaged(path: Path, problem: str) -> DataError:
    """The error for a file that is there and cannot be used."""
    return DataError(
        f"{path} is damaged or not what its name says: {problem}. "
        "Put a whole copy in its place; a published file is downloaded again once it is deleted."
    )


def gunzip(path: Path, content: bytes) -> bytearray:
    """What a gzip file holds; ``path`` is for the error where it is cut short or no gzip file.

    Example:
        >>> gunzip(Path("a.gz"), gzip.compress(b"12"))
        bytearray(b'12')
    """
    try:
        return bytearray(gzip.decompress(content))
    except (OSError, EOFError, zlib.error) as error:
        raise damaged(path, f"it does not unpack ({error})") from error
