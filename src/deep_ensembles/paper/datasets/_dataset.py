"""What a data set is once it is loaded, and what is known of it before."""

import csv
import hashlib
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from deep_ensembles._checks import require
from deep_ensembles.images import DatasetError

Split: TypeAlias = tuple[NDArray[np.intp], NDArray[np.intp]]  # row numbers of the training and the test part


@dataclass(frozen=True)
class Original:
    """A file as it was published.

    Arguments:
        url: where it is.
        file: what to call it.
        checksum: where one is known: a SHA-256, or another kind with its name in front, as in "md5:…".
    """

    url: str
    file: str
    checksum: str | None = None


@dataclass(frozen=True)
class Card:
    """What is known of a data set without loading it.

    Arguments:
        name: what users call it.
        rows, features, splits: how many it has.
        load: loads it from a data home.
        description, origin, licence: for people.
        hidden_units: of the paper's perceptron for this set.
        file: where it lies in a data home; None if it is made on the spot. Of several files, the one written last.
        originals: what to download.
        convert: makes the file from a folder of originals: `convert(card, folder, file)`.
        shape: of one image, for sets of images.
        parts: files that hold a part of the set, which can be used alone.
    """

    name: str
    rows: int
    features: int
    splits: int
    load: "Callable[[Path], Dataset | ImageDataset]"
    description: str
    origin: str
    licence: str
    hidden_units: int = 50
    file: str | None = None
    originals: tuple[Original, ...] = ()
    convert: "Callable[[Card, Path, Path], None] | None" = None
    shape: tuple[int, ...] = ()
    parts: tuple[str, ...] = ()

    def is_whole(self, home: Path) -> bool:
        """Whether all of it can be loaded from this data home."""
        return self.file is None or (home / self.file).is_file()

    def is_here(self, home: Path) -> bool:
        """Whether it, or a part of it, can be loaded from this data home."""
        return self.is_whole(home) or any((home / part).is_file() for part in self.parts)


@dataclass(frozen=True, eq=False)
class Dataset:
    """A table, and the ways to cut it into training and test rows.

    Arguments:
        name: what users call it.
        inputs: finite numbers, not standardised.
        targets: one number per row.
        splits: pairs of row numbers (train, test) that share no row and together hold every row once.

    Shape:
        inputs `[row, feature]`, targets `[row]`

    Example:
        >>> table = Dataset("pair", np.zeros((2, 3)), np.ones(2), [(np.array([0]), np.array([1]))])
        >>> [(inputs.shape, targets.shape) for inputs, targets in table.parts(0)]
        [((1, 3), (1,)), ((1, 3), (1,))]
    """

    name: str
    inputs: NDArray[np.floating]
    targets: NDArray[np.floating]
    splits: Sequence[Split]

    def __post_init__(self) -> None:
        if self.inputs.ndim != 2 or self.targets.shape != self.inputs.shape[:1] or self.inputs.size == 0:
            wanted = "inputs must be [row, feature] and targets [row]"
            raise DatasetError(f"{self.name}: {wanted}, got {self.inputs.shape} and {self.targets.shape}")
        if not (np.isfinite(self.inputs).all() and np.isfinite(self.targets).all()):
            raise DatasetError(f"{self.name}: holds numbers that are not finite")
        for number, split in enumerate(self.splits):
            if not np.array_equal(np.sort(np.concatenate(split)), np.arange(len(self.targets))):
                wanted = f"disjoint and hold each of the {len(self.targets)} rows once"
                raise DatasetError(f"{self.name}, split {number}: train and test rows must be {wanted}")

    def parts(self, split: int) -> tuple[tuple[NDArray, NDArray], tuple[NDArray, NDArray]]:
        """((inputs, targets) of the training rows, the same of the test rows) of one split, as copies."""
        train, test = self.splits[split]
        return (self.inputs[train], self.targets[train]), (self.inputs[test], self.targets[test])


@dataclass(frozen=True, eq=False)
class ImageDataset:
    """Images in classes, in the parts in which they were published.

    Arguments:
        name: what users call it.
        parts: images and labels of "train" and "test", where they are here; labels are numbers of classes.
        classes: their names, in the order of their numbers.
        description, origin: for people: how much of the set is here, and which files that was read from.

    Shape:
        images `[image, height, width]` or `[image, height, width, channel]`, uint8; labels `[image]`

    Example:
        >>> images = ImageDataset("grey", {"test": (np.zeros((2, 28, 28), np.uint8), np.array([0, 1]))}, ("a", "b"))
        >>> [array.shape for array in images.part("test")]
        [(2, 1, 28, 28), (2,)]
    """

    name: str
    parts: Mapping[str, tuple[NDArray[np.uint8], NDArray[np.integer]]]
    classes: tuple[str, ...]
    description: str = ""
    origin: str = ""

    def __post_init__(self) -> None:
        for part, labelled in self.parts.items():
            _check_images(f"{self.name}, {part}", *labelled, len(self.classes))

    def part(self, part: str) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        """Images `[image, channel, height, width]` as networks take them and labels (int64), of "train" or "test"."""
        require(part in ("train", "test"), "part", "'train' or 'test'", part)
        if part not in self.parts:
            raise DatasetError(f"{self.name}: its {part} images are not here; run: deep-ensembles data fetch {self.name}")
        images, labels = self.parts[part]
        return images[:, None] if images.ndim == 3 else images.transpose(0, 3, 1, 2), labels.astype(np.int64)


def _check_images(name: str, images: NDArray, labels: NDArray, n_classes: int) -> None:
    """Images are uint8 `[image, height, width]` or with channels, labels one class number each."""
    if images.dtype != np.uint8 or images.ndim not in (3, 4) or images.size == 0:
        wanted = "uint8 [image, height, width] or [image, height, width, channel]"
        raise DatasetError(f"{name}: images must be {wanted}, got {images.dtype} {images.shape}")
    if labels.shape != images.shape[:1] or labels.dtype.kind not in "iu":
        raise DatasetError(f"{name}: labels must be {len(images)} class numbers, got {labels.dtype} {labels.shape}")
    if labels.min() < 0 or labels.max() >= n_classes:
        raise DatasetError(f"{name}: labels must be from 0 to {n_classes - 1}, got {labels.min()} to {labels.max()}")


@contextmanager
def reading(file: Path | str, kind: str = "what its name promises", cure: str = "") -> Iterator[None]:
    """Whatever a damaged file leads to becomes one kind of error that names it."""
    try:
        yield
    except DatasetError:
        raise
    except Exception as error:  # decoders raise many kinds
        raise DatasetError(f"{file} is damaged or not {kind} ({error}){cure}") from error


def data_home(home: str | os.PathLike[str] | None = None) -> Path:
    """The folder of all data sets: `home`, else `$DEEP_ENSEMBLES_DATA`, else a folder in the user's cache.

    The folder need not exist.

    Example:
        >>> data_home("somewhere").name
        'somewhere'
    """
    folder = home or os.environ.get("DEEP_ENSEMBLES_DATA")
    return Path(folder).expanduser() if folder else _user_cache() / "deep-ensembles"


def _user_cache() -> Path:
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")


def file_sum(path: Path) -> str:
    """The SHA-256 of a file's content."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(2**20):
            digest.update(block)
    return digest.hexdigest()


def class_groups(path: str | os.PathLike[str]) -> dict[str, tuple[str, ...]]:
    """Classes by group, such as dogs and others, from a table with the columns `wnid` and `group` separated by tabs."""
    groups: dict[str, tuple[str, ...]] = {}
    try:
        with open(path, newline="", encoding="utf-8") as file:
            for row in csv.DictReader(file, delimiter="\t"):
                groups[row["group"]] = (*groups.get(row["group"], ()), row["wnid"])
    except (OSError, KeyError, UnicodeDecodeError) as error:
        raise DatasetError(f"{path} is not a table with the columns `wnid` and `group` ({error})") from error
    return groups
