"""CIFAR-10's files: an archive of pickles, from which nothing but arrays is built."""

from __future__ import annotations

import io
import os
import pickle
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .download import alone
from .files import load
from .published import DataError, Published, damaged

FOLDER = "cifar-10-batches-py"
ARCHIVE = Published(
    "cifar-10-python.tar.gz",
    "md5:c58f30108f718f92721af3b95e74349a",
    ("https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",),
)
TRAIN = {
    "data_batch_1": "md5:c99cafc152244af753f735de768cd75f",
    "data_batch_2": "md5:d4bba439e000b95fd0a9bffe97cbabec",
    "data_batch_3": "md5:54ebc095f3ab1f0389bbae665268c751",
    "data_batch_4": "md5:634d18415352ddfa80567beed471001a",
    "data_batch_5": "md5:482c414d41f54cd18b22e5b47cb7c3cb",
}
TEST = {"test_batch": "md5:40351d587109b95175f43aff81a1287e"}

_IMAGE = (3, 32, 32)


def read_cifar(root: str | Path, *, download: bool = True) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Images and labels to train on, then to test on, downloaded and unpacked if need be."""
    root = Path(root)
    absent = _absent(root)
    if absent:
        try:
            content = load(ARCHIVE, root, download=download)
        except DataError as error:
            raise DataError(f"{absent[0]} is missing from {root.absolute()}. {error}") from error
        with alone(root / FOLDER):
            _unpack(root, content)
    images, labels = [], []
    for name, md5 in {**TRAIN, **TEST}.items():
        file = Published(f"{FOLDER}/{name}", md5, ARCHIVE.urls)
        x, y = read_batch(root / file.path, load(file, root, download=False))
        images.append(x)
        labels.append(y)
    n = len(TRAIN)
    train_x, train_y, test_x, test_y = map(
        torch.cat, (images[:n], labels[:n], images[n:], labels[n:])
    )
    return train_x, train_y, test_x, test_y


def _absent(root: Path) -> list[str]:
    names = [f"{FOLDER}/{name}" for name in (*TRAIN, *TEST)]
    return [name for name in names if not (root / name).exists()]


def _unpack(root: Path, content: bytes) -> None:
    """Write the batches that are absent, and the class names for torchvision, from the archive."""
    wanted = {*_absent(root), f"{FOLDER}/batches.meta"}
    # As a stream: going back in a gzip file means reading it again from its start.
    with tarfile.open(fileobj=io.BytesIO(content), mode="r|gz") as archive:
        for member in archive:
            if member.name not in wanted or not member.isfile():
                continue
            body = archive.extractfile(member)
            assert body is not None  # it is a file
            target = root / member.name
            target.parent.mkdir(exist_ok=True)
            part = target.with_name(f"{target.name}.part")
            part.write_bytes(body.read())
            os.replace(part, target)
    absent = _absent(root)
    if absent:
        raise damaged(root / ARCHIVE.path, f"it has no {absent[0]}")


def read_batch(path: Path, content: bytes) -> tuple[Tensor, Tensor]:
    """One pickle's images (n, 3, 32, 32), uint8, and labels (n,), int64.

    Raises:
        DataError: it is no such pickle, or asks for anything but arrays.
    """
    try:
        # Written by Python 2, whose strings are bytes.
        batch = _ArraysOnly(io.BytesIO(content), encoding="bytes").load()
        pixels, labels = batch[b"data"], batch[b"labels"]
        images = torch.from_numpy(np.array(pixels, dtype=np.uint8)).reshape(-1, *_IMAGE)
        classes = torch.tensor(labels, dtype=torch.int64)
    except Exception as error:  # an unpickler may raise anything
        raise damaged(path, f"it is no batch of CIFAR-10 ({error})") from error
    if classes.shape != images.shape[:1]:
        raise damaged(path, f"it has {len(images):,} images and {classes.numel():,} labels")
    return images, classes


# Found without importing by the name that a file gives, so also where NumPy has moved it.
_ALLOWED = {
    ("numpy.core.multiarray", "_reconstruct"): np.empty(0).__reduce__()[0],
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
}


class _ArraysOnly(pickle.Unpickler):
    """Builds what these pickles are made of; a pickle that names anything else is an error."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ALLOWED:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}, which is not allowed")
        return _ALLOWED[module, name]
