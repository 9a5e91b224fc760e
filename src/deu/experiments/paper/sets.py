"""The data of a cell: a published set, or in a quick run that lacks it its stand-in."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any, cast

from torch import Tensor

from ..data import Images, ImageSet, data_root, images, series, synthetic_images, synthetic_series
from ..data.cifar import ARCHIVE, FOLDER, TEST, TRAIN
from ..data.image_sets import IDX
from ..data.series_files import FOLDER as SERIES
from ..data.series_files import LSTNET, SUFFIXES
from ..experiment import Options, Place

STAND_IN = "synthetic "  # and the name of the set that it stands in for


def has_images(name: str, root: Path) -> bool:
    """Whether a data directory has all files of a set of images; not whether they are whole.

    Example:
        >>> has_images("mnist", Path("nowhere"))
        False
    """
    if name == "cifar10":
        batches = all((root / FOLDER / file).exists() for file in (*TRAIN, *TEST))
        return batches or (root / ARCHIVE.path).exists()
    folder, _, files = IDX[name]
    return all((root / folder / "raw" / file).exists() for file in files)


def has_series(name: str, root: Path) -> bool:
    """Whether a data directory has the file of a series.

    Example:
        >>> has_series("traffic", Path("nowhere"))
        False
    """
    if name in LSTNET:
        path = root / LSTNET[name].path
        return path.exists() or path.with_suffix("").exists()
    return any((root / SERIES / f"{name}{suffix}").exists() for suffix in SUFFIXES)


def image_data(name: str, options: Options) -> str:
    """What a cell's settings say of its images: the set, or in a quick run the stand-in for it."""
    if options.quick and not has_images(name, data_root(options.data)):
        return STAND_IN + name
    return name


def image_tensors(settings: dict[str, Any], place: Place) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Images and labels to train on, then to test on, normalised and on the device.

    Takes the first ``settings["train"]`` and ``settings["test"]`` images of ``settings["data"]``;
    all of them where it does not say how many.
    """
    root = data_root(place.data)
    found = _images(settings["data"], root, settings.get("train"), settings.get("test"))
    return (
        found.normalised(found.train_x.to(place.device)),
        found.train_y.to(place.device),
        found.normalised(found.test_x.to(place.device)),
        found.test_y.to(place.device),
    )


@lru_cache(maxsize=1)  # the next cell most likely asks for the same
def _images(data: str, root: Path, train: int | None, test: int | None) -> Images:
    if data.startswith(STAND_IN):
        name = cast(ImageSet, data.removeprefix(STAND_IN))
        return synthetic_images(name, train or 1000, test or 1000)
    whole = images(cast(ImageSet, data), root)
    if train is None and test is None:
        return whole
    return Images(
        data, whole.train_x[:train], whole.train_y[:train], whole.test_x[:test], whole.test_y[:test]
    )


def series_tensor(settings: dict[str, Any], place: Place) -> Tensor:
    """A series, (steps, variables), float64, on the CPU.

    The last ``settings["steps"]`` and the first ``settings["variables"]`` of ``settings["data"]``;
    all of them where it does not say how many.
    """
    steps, variables = settings.get("steps"), settings.get("variables")
    if settings["data"].startswith(STAND_IN):
        return synthetic_series(steps or 1000, variables or 4)
    whole = _series(settings["data"], data_root(place.data))
    return whole[-steps if steps else 0 :, :variables].clone()


@lru_cache(maxsize=1)
def _series(name: str, root: Path) -> Tensor:
    return series(name, root)
