"""Sets of images, as tensors."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal, get_args

import torch
from torch import Tensor

from .cifar import read_cifar
from .files import load
from .idx import read_idx
from .published import Published, damaged, gunzip

ImageSet = Literal["mnist", "fashion-mnist", "cifar10"]

IDX = {
    "mnist": (
        "MNIST",
        (
            "https://ossci-datasets.s3.amazonaws.com/mnist/",
            "https://storage.googleapis.com/cvdf-datasets/mnist/",
        ),
        {
            "train-images-idx3-ubyte.gz": "md5:f68b3c2dcbeaaa9fbdd348bbdeb94873",
            "train-labels-idx1-ubyte.gz": "md5:d53e105ee54ea40749a09fcbcd1e9432",
            "t10k-images-idx3-ubyte.gz": "md5:9fb629c4189551a2d022fa330f9573f3",
            "t10k-labels-idx1-ubyte.gz": "md5:ec29112dd5afa0611ce80d1b7f02629c",
        },
    ),
    "fashion-mnist": (
        "FashionMNIST",
        (
            "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
            "https://github.com/zalandoresearch/fashion-mnist/raw/master/data/fashion/",
        ),
        {
            "train-images-idx3-ubyte.gz": "md5:8d4fb7e6c68d591d4c3dfef9ec88bf0d",
            "train-labels-idx1-ubyte.gz": "md5:25c81989df183df01b3e8a0aad5dffbe",
            "t10k-images-idx3-ubyte.gz": "md5:bef4ecab320f06d8554ea6380940ec79",
            "t10k-labels-idx1-ubyte.gz": "md5:bb300cfdad3c16e7a12a480ee83cd310",
        },
    ),
}


@dataclass(frozen=True, eq=False)
class Images:
    """Images to train and to test on, with labels.

    Attributes:
        name: the set's name; begins with ``synthetic`` where it is not a real one.
        train_x, test_x: uint8, (n, channels, height, width).
        train_y, test_y: int64, (n,), from 0 to 9.
    """

    name: str
    train_x: Tensor
    train_y: Tensor
    test_x: Tensor
    test_y: Tensor

    @property
    def shape(self) -> tuple[int, int, int]:
        """Channels, height and width of an image."""
        channels, height, width = self.train_x.shape[1:]
        return channels, height, width

    @cached_property
    def mean(self) -> Tensor:
        """Each channel's mean over the training images, of values from 0 to 1; float64."""
        return self._counts @ _LEVELS / self._counts.sum(1)

    @cached_property
    def std(self) -> Tensor:
        """Each channel's standard deviation over the training images, likewise."""
        squares = self._counts @ _LEVELS.square() / self._counts.sum(1)
        return (squares - self.mean.square()).clamp(min=0).sqrt()

    @cached_property
    def _counts(self) -> Tensor:
        """How often each level occurs in each channel: exact, and no float copy of the set."""
        channels = self.train_x.transpose(0, 1).flatten(1)
        return torch.stack([c.bincount(minlength=256) for c in channels.cpu()]).double()

    def normalised(self, x: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
        """Images ``x`` (n, channels, height, width), uint8, as (x/255 − mean)/std, by channel.

        Example:
            >>> from deu.experiments.data import synthetic_images
            >>> data = synthetic_images("mnist", 100, 10, seed=0)
            >>> x = data.normalised(data.train_x)
            >>> x.dtype, bool(x.mean().abs() < 1e-5), bool((x.std() - 1).abs() < 1e-3)
            (torch.float32, True, True)
        """
        exact = torch.promote_types(dtype, torch.float32)
        scale, shift = 1 / (255 * self.std), -self.mean / self.std
        scale, shift = (v.to(x.device, exact)[:, None, None] for v in (scale, shift))
        return (x.to(exact) * scale + shift).to(dtype)


_LEVELS = torch.arange(256, dtype=torch.float64) / 255


def images(name: ImageSet, root: str | Path, *, download: bool = True) -> Images:
    """A published set of images, each of its files checked against its published checksum.

    Args:
        name: ``"mnist"``, ``"fashion-mnist"`` or ``"cifar10"``.
        root: the data directory, in the layout that ``torchvision.datasets`` has.
        download: bring what is missing from the network.

    Raises:
        DataError: a file is missing and cannot be had, or is damaged; says which and what to do.

    Example:
        >>> images("mnist", "nowhere", download=False)
        Traceback (most recent call last):
        deu.experiments.data.published.DataError: MNIST/raw/train-images-idx3-ubyte.gz is missing...
    """
    check_name(name)
    if name == "cifar10":
        return Images(name, *read_cifar(root, download=download))
    folder, mirrors, files = IDX[name]
    arrays = []
    for number, (file, md5) in enumerate(files.items()):
        published = Published(f"{folder}/raw/{file}", md5, tuple(url + file for url in mirrors))
        content = load(published, root, download=download)
        path = Path(root) / published.path
        arrays.append(read_idx(path, gunzip(path, content), 1 if number % 2 else 3))
        if number % 2 and len(arrays[-1]) != len(arrays[-2]):
            raise damaged(path, f"{len(arrays[-1]):,} labels for {len(arrays[-2]):,} images")
    train_x, train_y, test_x, test_y = arrays
    return Images(name, train_x[:, None], train_y.long(), test_x[:, None], test_y.long())


def check_name(name: str) -> None:
    """An error that lists the sets where ``name`` is none of them."""
    names = get_args(ImageSet)
    if name not in names:
        raise ValueError(f"there is no set of images {name!r}; there are {', '.join(names)}")
