"""Downloads: resumed where they stopped, checked, put in place whole, by one run at a time."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any

from filelock import FileLock, Timeout

from .published import Published, wrong

if TYPE_CHECKING:
    import requests

TIMEOUT = 30.0  # seconds without a sign from the other side
TRIES = 5  # at one address, as long as each brings something
_CHUNK = 1 << 16


def get_pooch() -> Any:
    """The module pooch, or an error that says how to get it."""
    try:
        import pooch
    except ImportError as error:
        raise ImportError(
            "finding and downloading data needs pooch: pip install deu[experiments]"
        ) from error
    return pooch


@contextmanager
def alone(target: Path) -> Iterator[None]:
    """Keep other runs that ask for the same target waiting, in this process or another."""
    target.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(target.with_name(f".{target.name}.lock"))
    try:
        lock.acquire(timeout=0)
    except Timeout:
        get_pooch().get_logger().info("Waiting for another run that is bringing '%s'.", target)
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def download(file: Published, target: Path) -> None:
    """Bring a published file to ``target`` unless it is there; nothing else ever stands there.

    What a broken try left lies beside it as ``.part``, and the next try goes on from it, at
    whichever address.

    Raises:
        OSError: it could not be had; says what was wrong at each address.
    """
    with alone(target):
        problems = []
        for url in file.urls:
            if target.exists():  # from the run before us in line
                return
            problem = _from(url, file, target)
            if problem:
                problems.append(f"{url}: {problem}")
        if not target.exists():
            raise OSError("; ".join(problems))


def _from(url: str, file: Published, target: Path) -> str:
    """Bring the file from one address; what went wrong, or nothing."""
    pooch = get_pooch()
    part = target.with_name(f"{target.name}.part")
    # pooch checks what hashlib knows; the names git gives are checked before it gets the file.
    known = None if file.checksum.startswith("git:") else file.checksum
    problem = ""
    for _ in range(TRIES):
        before = _size(part)
        try:
            pooch.retrieve(
                url,
                known_hash=known,
                fname=target.name,
                path=target.parent,
                downloader=partial(_resume, file=file, part=part),
            )
            return ""
        except (OSError, ValueError) as error:
            problem = _reason(error)
        # Another try helps if this one brought something, or cast out a part that proved wrong.
        if _size(part) == before:
            break
    return problem


def _resume(url: str, output: str, pooch: object, *, file: Published, part: Path) -> None:
    """A downloader for pooch: completes ``part`` and hands it over as ``output``."""
    import requests

    have = _size(part)
    headers = {"Accept-Encoding": "identity"}
    if have:
        headers["Range"] = f"bytes={have}-"
    with requests.get(url, headers=headers, stream=True, timeout=TIMEOUT) as response:
        # This status is for a range past the end: the part is whole, or its checksum is wrong.
        if response.status_code != HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
            response.raise_for_status()
            _append(response, part, have)
    if file.checksum.startswith("git:"):
        problem = wrong(file, part.read_bytes())
        if problem:
            part.unlink()
            raise ValueError(problem)
    os.replace(part, output)


def _append(response: requests.Response, part: Path, have: int) -> None:
    """Write the answer's body after what there is, or anew where the whole file was sent."""
    from tqdm import tqdm
    from urllib3.exceptions import HTTPError

    if response.status_code != HTTPStatus.PARTIAL_CONTENT:
        have = 0
    length = int(response.headers.get("Content-Length", 0))
    name = part.name.removesuffix(".part")
    bar = tqdm(
        total=have + length if length else None,
        initial=have,
        desc=name,
        unit="B",
        unit_scale=True,
        leave=False,
        disable=None,
    )
    with bar, part.open("ab" if have else "wb") as out:
        try:
            # Raw, so that a file which is a gzip file stays one, whatever the server says of it.
            for chunk in response.raw.stream(_CHUNK, decode_content=False):
                out.write(chunk)
                bar.update(len(chunk))
        except HTTPError as error:
            raise OSError(f"cut off after {out.tell():,} bytes") from error


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _reason(error: Exception) -> str:
    """An error of a download in a few words."""
    import requests

    if isinstance(error, requests.Timeout):
        return f"no answer within {TIMEOUT:g} seconds"
    if type(error) is requests.ConnectionError:  # its kinds, of certificates and proxies, say more
        return "no connection"
    if isinstance(error, requests.HTTPError) and error.response is not None:
        return f"{error.response.status_code} {error.response.reason}"
    return str(error)
