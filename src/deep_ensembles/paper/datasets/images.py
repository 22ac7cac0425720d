"""Images in classes: the sets of the paper's sections 3.4 and 3.5, known and unknown classes.

A data home has idx files packed by gzip, as MNIST was published, or NumPy's, plain or packed by xz. No format needs pickle.
"""

import gzip
import lzma
import math
import os
import re
import tarfile
import warnings
import zipfile
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deep_ensembles._checks import require
from deep_ensembles._files import replacing, write_atomically
from deep_ensembles.images import DatasetError, ImageFolder, read_picture
from deep_ensembles.paper.datasets._dataset import Card, ImageDataset, Original, data_home, reading

Labelled = tuple[NDArray[np.uint8], NDArray[np.uint8]]

# How files of images and of their labels end.
IDX, NPY = ("-images-idx3-ubyte.gz", "-labels-idx1-ubyte.gz"), ("-images.npy", "-labels.npy")
PACKED = ("-images.npy.xz", "-labels.npy")
TINY, LETTERS, DIGITS = "tiny-imagenet", tuple("ABCDEFGHIJ"), tuple("0123456789")
CLASSES = {
    "mnist": DIGITS,
    "fashion-mnist": (
        *("t-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot"),
    ),
    "notmnist": LETTERS,
    "svhn": DIGITS,
    "cifar10": ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"),
}
# Of each part how many images were published, and how files that hold them, or some of them, begin.
PARTS: dict[str, dict[str, tuple[int, tuple[str, ...]]]] = {
    "mnist": {"train": (60_000, ("train",)), "test": (10_000, ("t10k",))},
    "fashion-mnist": {"train": (60_000, ("train",)), "test": (10_000, ("t10k",))},
    "notmnist": {"test": (18_724, ("small", "t10k"))},
    "svhn": {"train": (73_257, ("train", "train-first20000")), "test": (26_032, ("test",))},
    "cifar10": {"train": (50_000, ("train",)), "test": (10_000, ("test",))},
    TINY: {"train": (100_000, (TINY, f"{TINY}-subset")), "test": (10_000, (TINY, f"{TINY}-subset"))},
}
WORDS = {"train": "training", "test": "test"}


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
    card, folder = SETS[name], data_home(home) / name
    found = {part: content for part in PARTS[name] if (content := _read(name, folder, part)) is not None}
    if not found:
        raise DatasetError(f"{name} is not in {folder}; run: deep-ensembles data fetch {name}")
    counts = {part: len(content[1]) for part, content in found.items()}
    shares = [f"{counts.get(part, 0)} of {total} {WORDS[part]}" for part, (total, _) in PARTS[name].items()]
    return ImageDataset(
        *(name, {part: content[:2] for part, content in found.items()}, next(iter(found.values()))[2]),
        description=f"{card.description}; here: {' and '.join(shares)} images",
        origin=f"{card.origin}; read from {' and '.join(dict.fromkeys(content[3] for content in found.values()))}",
    )


def _read(name: str, folder: Path, part: str) -> tuple[Any, Any, tuple[str, ...], str] | None:
    """Images, labels, classes and the name of the file, of the first that is there."""
    for stem in PARTS[name][part][1]:
        if name == TINY and (folder / f"{stem}.zip").is_file():
            inside = "train" if part == "train" else "val"
            pictures = ImageFolder(folder / f"{stem}.zip", inside, image_size=SETS[name].shape[0])
            return *pictures.array(), pictures.classes, f"{stem}.zip"
        for endings in (IDX, NPY, PACKED):
            paths = [folder / f"{stem}{ending}" for ending in endings]
            if all(path.is_file() for path in paths):
                return read_array(paths[0]), read_array(paths[1]), CLASSES[name], paths[0].name
    return None


def read_array(path: Path) -> NDArray[np.uint8]:
    """An array of a data home: `.gz` (idx), `.npy` or `.npy.xz`."""
    with reading(path):
        if path.suffix == ".gz":
            return _parse_idx(gzip.decompress(path.read_bytes()))
        with lzma.open(path) if path.suffix == ".xz" else open(path, "rb") as file:
            return np.load(file, allow_pickle=False)


def _parse_idx(content: bytes) -> NDArray[np.uint8]:
    """LeCun's format: two zeros, a type (8 for bytes), the number of dimensions, each as a big-endian int32, the numbers."""
    if len(content) < 4 or content[:3] != b"\0\0\x08":
        raise ValueError("not an idx file of bytes")
    start = 4 + 4 * content[3]
    shape = np.frombuffer(content[4:start], ">u4").astype(int)
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape).copy()


def write_idx(path: Path, array: NDArray[np.uint8]) -> None:
    """The same format, packed."""
    head = bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">u4").tobytes()
    write_atomically(path, gzip.compress(head + array.tobytes(), compresslevel=6, mtime=0))


def read_svhn(path: Path) -> Labelled:
    """`train_32x32.mat` or `test_32x32.mat`: `X` `[32, 32, 3, image]` and `y`, where 10 stands for the digit 0."""
    from scipy.io import loadmat

    with reading(path):
        content = loadmat(path, variable_names=("X", "y"))
        images, labels = content["X"].transpose(3, 0, 1, 2), content["y"].reshape(-1) % 10
        return np.ascontiguousarray(images, np.uint8), labels.astype(np.uint8)


def read_cifar(path: Path) -> tuple[Labelled, Labelled]:
    """(train, test) of `cifar-10-binary.tar.gz`: records of one label and three planes, red, green and blue."""
    with reading(path), tarfile.open(path) as archive:
        files = {Path(member.name).name: member for member in archive.getmembers() if member.isfile()}
        names = [*(f"data_batch_{number}.bin" for number in range(1, 6)), "test_batch.bin"]
        *train, test = (archive.extractfile(files[name]).read() for name in names)  # type: ignore[union-attr]
        return _records(b"".join(train)), _records(test)


def _records(content: bytes) -> Labelled:
    records = np.frombuffer(content, np.uint8).reshape(-1, 1 + 3 * 32 * 32)
    planes = records[:, 1:].reshape(-1, 3, 32, 32)
    return np.ascontiguousarray(planes.transpose(0, 2, 3, 1)), records[:, 0]


def read_letters(path: Path) -> Labelled:
    """`notMNIST_small.tar.gz`: grey pictures in folders A to J, by letter, then name; broken ones are left out."""
    images, labels, broken = [], [], []
    with reading(path), tarfile.open(path) as archive:
        for member in sorted(archive.getmembers(), key=lambda member: member.name):
            if not (member.isfile() and re.search(r"(^|/)[A-J]/[^/.][^/]*\.png$", member.name)):
                continue
            content = archive.extractfile(member).read()  # type: ignore[union-attr]
            try:
                images.append(read_picture(content, member.name, mode="L"))
                labels.append(LETTERS.index(Path(member.name).parent.name))
            except DatasetError:
                broken.append(member.name)
        if broken:
            warnings.warn(f"{path.name}: left out {len(broken)} broken pictures: {', '.join(broken)}", stacklevel=2)
        return np.stack(images), np.array(labels, np.uint8)


def _keep(card: Card, folder: Path, file: Path) -> None:
    """idx files, which are right as they are."""
    names = [original.file for original in card.originals]
    arrays = [read_array(folder / name) for name in names]
    _check(card, arrays[:2], arrays[2:])
    for name in sorted(names, key=lambda name: name == file.name):
        write_atomically(file.parent / name, (folder / name).read_bytes())


def _convert_letters(card: Card, folder: Path, file: Path) -> None:
    """notMNIST: pictures into idx files."""
    letters = read_letters(folder / card.originals[0].file)
    _check(card, letters)
    for array, ending in zip(letters, IDX, strict=True):
        write_idx(file.parent / f"small{ending}", array)


def _convert_tiny_imagenet(card: Card, folder: Path, file: Path) -> None:
    """The same JPEG files, but those of the validation part in class folders too."""
    path = folder / card.originals[0].file
    damage = reading(path, "the published archive")
    with damage, zipfile.ZipFile(path) as source, replacing(file) as raw, zipfile.ZipFile(raw, "w") as packed:
        lines = source.read("tiny-imagenet-200/val/val_annotations.txt").decode().splitlines()
        classes = dict(line.split("\t")[:2] for line in lines)
        for name in source.namelist():
            _, part, *inner = name.split("/")
            if name.endswith(".JPEG") and part in ("train", "val"):
                folder_name = inner[0] if part == "train" else classes[inner[-1]]
                packed.writestr(f"{part}/{folder_name}/{inner[-1]}", source.read(name))
        if (count := len(packed.namelist())) != card.rows:
            raise DatasetError(f"{card.name}: expected {card.rows} pictures, got {count}")


def _convert_arrays(read: Callable[..., Iterable[Labelled]], card: Card, folder: Path, file: Path) -> None:
    """Both parts, which a function reads of all originals, into NumPy's format: not packed, which would take minutes; the
    training labels last, as `file` says that all is there."""
    train, test = read(*(folder / original.file for original in card.originals))
    _check(card, train, test)
    for part, labelled in (("test", test), ("train", train)):
        for array, ending in zip(labelled, NPY, strict=True):
            with replacing(file.parent / f"{part}{ending}") as raw:
                np.save(raw, array, allow_pickle=False)


def _check(card: Card, *parts: Any) -> None:
    """All parts together have the promised images, each with a label."""
    shapes = {images.shape[1:] for images, _ in parts}
    got = [sum(len(part[which]) for part in parts) for which in (0, 1)]
    if shapes != {card.shape} or got != [card.rows] * 2:
        wanted = f"{card.rows} images of {card.shape} and as many labels"
        raise DatasetError(f"{card.name}: expected {wanted}, got {got[0]} of {sorted(shapes)} and {got[1]}")


def _card(
    name: str,
    description: str,
    shape: tuple[int, ...],
    convert: Callable[[Card, Path, Path], None],
    last: str,
    address: str,
    files: Mapping[str, str | None],
    licence: str = "none stated",
) -> Card:
    """A set whose files, with their MD5 where one was published, are at an address; `last` is written last."""
    sums = {file: None if md5 is None else f"md5:{md5}" for file, md5 in files.items()}
    stems = dict.fromkeys(stem for _, part in PARTS[name].values() for stem in part)
    endings = (".zip",) if name == TINY else (IDX[0], NPY[0], PACKED[0])
    return Card(
        *(name, sum(total for total, _ in PARTS[name].values()), math.prod(shape), 1, partial(images, name)),
        *(description, address, licence),
        hidden_units=200,
        file=f"{name}/{last}",
        originals=tuple(Original(f"{address}/{file}", file, checksum) for file, checksum in sums.items()),
        convert=convert,
        shape=shape,
        parts=tuple(f"{name}/{stem}{ending}" for stem in stems for ending in endings),
    )


_FOUR = [f"{stem}{ending}" for stem in ("train", "t10k") for ending in IDX]
_MNIST = ("f68b3c2dcbeaaa9fbdd348bbdeb94873", "d53e105ee54ea40749a09fcbcd1e9432",
          "9fb629c4189551a2d022fa330f9573f3", "ec29112dd5afa0611ce80d1b7f02629c")  # fmt: skip
_FASHION = ("8d4fb7e6c68d591d4c3dfef9ec88bf0d", "25c81989df183df01b3e8a0aad5dffbe",
            "bef4ecab320f06d8554ea6380940ec79", "bb300cfdad3c16e7a12a480ee83cd310")  # fmt: skip
_SVHN = {"train_32x32.mat": "e26dedcc434d2e4c54c9b2d4a06d8373", "test_32x32.mat": "eb5a983be6a315427106f1b164d9cef3"}
IMAGE_CARDS = (
    _card("mnist", "handwritten digits", (28, 28), _keep, _FOUR[1], "https://ossci-datasets.s3.amazonaws.com/mnist",
          dict(zip(_FOUR, _MNIST, strict=True))),
    _card("fashion-mnist", "clothing", (28, 28), _keep, _FOUR[1],
          "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion",
          dict(zip(_FOUR, _FASHION, strict=True)), "MIT"),
    _card("notmnist", "letters in many fonts (notMNIST_small)", (28, 28), _convert_letters, f"small{IDX[1]}",
          "https://commondatastorage.googleapis.com/books1000", {"notMNIST_small.tar.gz": None}),
    _card("svhn", "street view house numbers, cropped digits", (32, 32, 3),
          partial(_convert_arrays, lambda *files: map(read_svhn, files)), f"train{NPY[1]}",
          "https://ufldl.stanford.edu/housenumbers", _SVHN, "non-commercial use only"),
    _card("cifar10", "small photographs", (32, 32, 3), partial(_convert_arrays, read_cifar), f"train{NPY[1]}",
          "https://www.cs.toronto.edu/~kriz", {"cifar-10-binary.tar.gz": "c32a1d4ab5d03f1284b67883e8d87530"}),
    _card(TINY, "photographs of ImageNet, 200 classes", (64, 64, 3), _convert_tiny_imagenet, "tiny-imagenet.zip",
          "https://cs231n.stanford.edu", {"tiny-imagenet-200.zip": "90528d7ca1a48142e341f4ef8d21d0de"},
          "ImageNet's: non-commercial research"),
)  # fmt: skip
SETS = {card.name: card for card in IMAGE_CARDS}
