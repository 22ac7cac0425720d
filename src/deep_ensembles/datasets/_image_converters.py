"""Sets of images as they were published, brought into a data home."""

from __future__ import annotations

import zipfile
from pathlib import Path

from deep_ensembles._files import replacing, write_atomically
from deep_ensembles.datasets._dataset import Card, DatasetError
from deep_ensembles.datasets._image_files import (
    IDX,
    NPY,
    Labelled,
    read_array,
    read_cifar,
    read_letters,
    read_svhn,
    write_idx,
    write_npy,
)


def keep(card: Card, folder: Path, file: Path) -> None:
    """idx files, which are right as they are."""
    stems = sorted({original.file.partition("-")[0] for original in card.originals})
    _check(card, *((read_array(folder / f"{stem}{IDX[0]}"), read_array(folder / f"{stem}{IDX[1]}")) for stem in stems))
    for name in sorted((original.file for original in card.originals), key=lambda name: name == file.name):
        write_atomically(file.parent / name, (folder / name).read_bytes())


def convert_letters(card: Card, folder: Path, file: Path) -> None:
    """notMNIST: pictures into idx files."""
    letters = read_letters(folder / card.originals[0].file)
    _check(card, letters)
    for array, ending in zip(letters, IDX, strict=True):
        write_idx(file.parent / f"small{ending}", array)


def convert_svhn(card: Card, folder: Path, file: Path) -> None:
    """MATLAB's format into NumPy's."""
    train, test = (read_svhn(folder / original.file) for original in card.originals)
    _write(card, file, train, test)


def convert_cifar(card: Card, folder: Path, file: Path) -> None:
    """Batches into arrays."""
    (original,) = card.originals
    given = [folder / name for name in (original.instead, original.file) if name and (folder / name).is_file()]
    _write(card, file, *read_cifar(given[0] if given else folder / original.file))


def convert_tiny_imagenet(card: Card, folder: Path, file: Path) -> None:
    """The same JPEG files, but those of the validation part in class folders too."""
    path, count = folder / card.originals[0].file, 0
    try:
        with zipfile.ZipFile(path) as source, replacing(file) as raw, zipfile.ZipFile(raw, "w") as packed:
            table = source.read("tiny-imagenet-200/val/val_annotations.txt").decode()
            classes = dict(line.split("\t")[:2] for line in table.splitlines())
            for name in source.namelist():
                _, part, *inner = name.split("/")
                if name.endswith(".JPEG") and part in ("train", "val"):
                    own = inner[0] if part == "train" else classes[inner[-1]]
                    packed.writestr(f"{part}/{own}/{inner[-1]}", source.read(name))
                    count += 1
            if count != card.rows:
                raise DatasetError(f"{card.name}: expected {card.rows} pictures, got {count}")
    except (OSError, zipfile.BadZipFile, KeyError, IndexError) as error:
        raise DatasetError(f"{path} is damaged or not the published archive ({error})") from error


def _write(card: Card, file: Path, train: Labelled, test: Labelled) -> None:
    """Both parts, the training labels last: `file` says that all is there."""
    _check(card, train, test)
    for part, labelled in (("test", test), ("train", train)):
        for array, ending in zip(labelled, NPY, strict=True):
            write_npy(file.parent / f"{part}{ending}", array)


def _check(card: Card, *parts: Labelled) -> None:
    """All parts together have the promised images, each with a label."""
    shapes = {images.shape[1:] for images, _ in parts}
    got = [sum(len(part[which]) for part in parts) for which in (0, 1)]
    if shapes != {card.shape} or got != [card.rows] * 2:
        wanted = f"{card.rows} images of {card.shape} and as many labels"
        raise DatasetError(f"{card.name}: expected {wanted}, got {got[0]} of {sorted(shapes)} and {got[1]}")
