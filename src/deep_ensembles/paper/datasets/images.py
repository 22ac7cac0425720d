"""Images in classes: the sets of the paper's sections 3.4 and 3.5, known and unknown classes."""

import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

from deep_ensembles._checks import require
from deep_ensembles.images import DatasetError, ImageFolder
from deep_ensembles.paper.datasets import _image_files as converters
from deep_ensembles.paper.datasets._dataset import Card, ImageDataset, Original, data_home
from deep_ensembles.paper.datasets._image_files import IDX, LETTERS, NPY, PACKED, read_array

Part: TypeAlias = tuple[int, tuple[str, ...]]  # how many images were published; how files that hold them, or some, begin

TINY = "tiny-imagenet"
DIGITS = tuple("0123456789")
CLOTHES = ("t-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot")
THINGS = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")


@dataclass(frozen=True)
class _Set:
    description: str
    shape: tuple[int, ...]
    classes: tuple[str, ...]
    parts: tuple[Part, Part]  # training and test
    address: str
    files: tuple[str, ...]  # at that address
    convert: Callable[[Card, Path, Path], None]
    last: str  # the file that is written last
    licence: str = "none stated"
    md5: tuple[str, ...] = ()  # of those files, as published; notMNIST has none
    instead: str | None = None


_FOUR = tuple(f"{stem}{ending}" for stem in ("train", "t10k") for ending in IDX)
_MNIST: tuple[Part, Part] = ((60_000, ("train",)), (10_000, ("t10k",)))
_ZIPS = ("tiny-imagenet", "tiny-imagenet-subset")
SETS = {
    "mnist": _Set(
        "handwritten digits", (28, 28), DIGITS, _MNIST, "https://ossci-datasets.s3.amazonaws.com/mnist", _FOUR,
        converters.keep, _FOUR[1], md5=("f68b3c2dcbeaaa9fbdd348bbdeb94873", "d53e105ee54ea40749a09fcbcd1e9432",
                                        "9fb629c4189551a2d022fa330f9573f3", "ec29112dd5afa0611ce80d1b7f02629c"),
    ),
    "fashion-mnist": _Set(
        "clothing", (28, 28), CLOTHES, _MNIST,
        "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion", _FOUR,
        converters.keep, _FOUR[1], "MIT", ("8d4fb7e6c68d591d4c3dfef9ec88bf0d", "25c81989df183df01b3e8a0aad5dffbe",
                                           "bef4ecab320f06d8554ea6380940ec79", "bb300cfdad3c16e7a12a480ee83cd310"),
    ),
    "notmnist": _Set(
        "letters in many fonts (notMNIST_small)", (28, 28), tuple(LETTERS), ((0, ()), (18_724, ("small", "t10k"))),
        "https://commondatastorage.googleapis.com/books1000", ("notMNIST_small.tar.gz",),
        converters.convert_letters, f"small{IDX[1]}",
    ),
    "svhn": _Set(
        "street view house numbers, cropped digits", (32, 32, 3), DIGITS,
        ((73_257, ("train", "train-first20000")), (26_032, ("test",))), "https://ufldl.stanford.edu/housenumbers",
        ("train_32x32.mat", "test_32x32.mat"), converters.convert_svhn, f"train{NPY[1]}", "non-commercial use only",
        ("e26dedcc434d2e4c54c9b2d4a06d8373", "eb5a983be6a315427106f1b164d9cef3"),
    ),
    "cifar10": _Set(
        "small photographs", (32, 32, 3), THINGS, ((50_000, ("train",)), (10_000, ("test",))),
        "https://www.cs.toronto.edu/~kriz", ("cifar-10-binary.tar.gz",), converters.convert_cifar, f"train{NPY[1]}",
        md5=("c32a1d4ab5d03f1284b67883e8d87530",), instead="cifar-10-python.tar.gz",
    ),
    TINY: _Set(
        "photographs of ImageNet, 200 classes", (64, 64, 3), (), ((100_000, _ZIPS), (10_000, _ZIPS)),
        "https://cs231n.stanford.edu", ("tiny-imagenet-200.zip",), converters.convert_tiny_imagenet, "tiny-imagenet.zip",
        "ImageNet's: non-commercial research", ("90528d7ca1a48142e341f4ef8d21d0de",),
    ),
}  # fmt: skip


def images(name: str, home: str | os.PathLike[str] | None = None) -> ImageDataset:
    """A set of images by name, or the part of it that is in the data home; its description says how much that is.

    `notmnist` has only test images: all of notMNIST_small, ordered by letter, else the sample of 10,000 known as t10k. The
    test images of `tiny-imagenet` are its validation images, its classes WordNet ids; all of it takes 1.4 GB of memory.

    References:
        LeCun, Bottou, Bengio & Haffner (1998); Xiao, Rasul & Vollgraf (2017); Bulatov (2011); Netzer et al. (2011);
        Krizhevsky (2009); Deng et al. (2009)

    Arguments:
        name: see `SETS`.
        home: the data home; see `data_home`.

    Shape:
        images `[image, height, width]` or `[image, height, width, 3]`, uint8; labels `[image]`
    """
    require(name in SETS, "name", f"one of {', '.join(SETS)}", name)
    return _load(name, data_home(home))


def _load(name: str, home: Path) -> ImageDataset:
    known, folder = SETS[name], home / name
    parts = [_read(folder, known, number) for number in (0, 1)]
    present = [part for part in parts if part is not None]
    if not present:
        raise DatasetError(f"{name} is not in {folder}; run: deep-ensembles data fetch {name}")
    counts = zip(parts, known.parts, ("training", "test"), strict=True)
    shares = [f"{len(part[1]) if part else 0} of {total} {which}" for part, (total, _), which in counts if total]
    (train, train_labels), (test, test_labels) = (part[:2] if part else (None, None) for part in parts)
    return ImageDataset(
        *(name, train, train_labels, test, test_labels, present[0][2]),
        description=f"{known.description}; here: {' and '.join(shares)} images",
        origin=f"{known.address}; read from {' and '.join(dict.fromkeys(part[3] for part in present))}",
        licence=known.licence,
    )


def _read(folder: Path, known: _Set, number: int) -> tuple[Any, Any, tuple[str, ...], str] | None:
    """Images, labels, classes and the name of the file, of the first that is there."""
    for stem in known.parts[number][1]:
        if known is SETS[TINY] and (folder / f"{stem}.zip").is_file():
            pictures = ImageFolder(folder / f"{stem}.zip", ("train", "val")[number], image_size=known.shape[0])
            return *pictures.array(), pictures.classes, f"{stem}.zip"
        for endings in (IDX, NPY, PACKED):
            paths = [folder / f"{stem}{ending}" for ending in endings]
            if all(path.is_file() for path in paths):
                return read_array(paths[0]), read_array(paths[1]), known.classes, paths[0].name
    return None


def _card(name: str) -> Card:
    known = SETS[name]
    sums = {file: f"md5:{md5}" for file, md5 in zip(known.files, known.md5, strict=False)}
    originals = [Original(f"{known.address}/{file}", file, sums.get(file), known.instead) for file in known.files]
    endings = (".zip",) if name == TINY else (IDX[0], NPY[0], PACKED[0])
    stems = dict.fromkeys(stem for _, part in known.parts for stem in part)
    return Card(
        *(name, sum(total for total, _ in known.parts), math.prod(known.shape), 1, partial(_load, name)),
        *(known.description, known.address, known.licence),
        hidden_units=200,
        file=f"{name}/{known.last}",
        originals=tuple(originals),
        convert=known.convert,
        shape=known.shape,
        parts=tuple(f"{name}/{stem}{ending}" for stem in stems for ending in endings),
    )


IMAGE_CARDS = tuple(_card(name) for name in SETS)
