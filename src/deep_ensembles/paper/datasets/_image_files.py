"""Arrays of images: the formats they were published in, those of a data home, and the way from one to the other.

A data home has idx files packed by gzip, as MNIST was published, or NumPy's, plain or packed by xz. No format needs pickle.
"""

import gzip
import io
import lzma
import pickle
import re
import tarfile
import warnings
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deep_ensembles._files import replacing, write_atomically
from deep_ensembles.images import DatasetError, read_picture
from deep_ensembles.paper.datasets._dataset import Card, reading

Labelled = tuple[NDArray[np.uint8], NDArray[np.uint8]]

LETTERS = "ABCDEFGHIJ"
IDX = ("-images-idx3-ubyte.gz", "-labels-idx1-ubyte.gz")
NPY = ("-images.npy", "-labels.npy")
PACKED = ("-images.npy.xz", "-labels.npy")


def read_array(path: Path) -> NDArray[np.uint8]:
    """An array of a data home: `.gz` (idx), `.npy` or `.npy.xz`."""
    with reading(path):
        if path.suffix == ".gz":
            return parse_idx(gzip.decompress(path.read_bytes()))
        with lzma.open(path) if path.suffix == ".xz" else open(path, "rb") as file:
            return np.load(file, allow_pickle=False)


def parse_idx(content: bytes) -> NDArray[np.uint8]:
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


def write_npy(path: Path, array: NDArray[np.uint8]) -> None:
    """NumPy's format, not packed: the larger sets would take minutes to pack."""
    with replacing(path) as file:
        np.save(file, array, allow_pickle=False)


def read_svhn(path: Path) -> Labelled:
    """`train_32x32.mat` or `test_32x32.mat`: `X` `[32, 32, 3, image]` and `y`, where 10 stands for the digit 0."""
    from scipy.io import loadmat

    with reading(path):
        content = loadmat(path, variable_names=("X", "y"))
        images, labels = content["X"].transpose(3, 0, 1, 2), content["y"].reshape(-1) % 10
        return np.ascontiguousarray(images, np.uint8), labels.astype(np.uint8)


def read_cifar(path: Path) -> tuple[Labelled, Labelled]:
    """(train, test) of `cifar-10-binary.tar.gz` or `cifar-10-python.tar.gz`; nothing is unpacked and nothing run."""
    with reading(path), tarfile.open(path) as archive:
        files = {Path(member.name).name: member for member in archive.getmembers() if member.isfile()}
        ending = ".bin" if "test_batch.bin" in files else ""
        names = [f"data_batch_{number}{ending}" for number in range(1, 6)]
        batches = []
        for name in (*names, f"test_batch{ending}"):
            content = archive.extractfile(files[name]).read()  # type: ignore[union-attr]
            batches.append(_binary_batch(content) if ending else _python_batch(content, f"{path}, {name}"))
    images, labels = zip(*batches, strict=True)
    return (np.concatenate(images[:5]), np.concatenate(labels[:5])), batches[5]


def _binary_batch(content: bytes) -> Labelled:
    """Records of one label and three planes, red, green and blue."""
    records = np.frombuffer(content, np.uint8).reshape(-1, 1 + 3 * 32 * 32)
    return _channels_last(records[:, 1:]), records[:, 0]


def _python_batch(content: bytes, file: str) -> Labelled:
    batch = read_inert(content, file)
    data = batch.get(b"data") if isinstance(batch, dict) else None
    if not isinstance(data, Inert) or not isinstance(data.state, tuple) or not isinstance(data.state[-1], bytes):
        raise ValueError(f"{file} holds no array of images")
    return _channels_last(np.frombuffer(data.state[-1], np.uint8)), np.array(batch[b"labels"], np.uint8)


def _channels_last(planes: NDArray[np.uint8]) -> NDArray[np.uint8]:
    return np.ascontiguousarray(planes.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1))


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
    _write(card, file, *(read_svhn(folder / original.file) for original in card.originals))


def convert_cifar(card: Card, folder: Path, file: Path) -> None:
    """Batches into arrays."""
    (original,) = card.originals
    instead = folder / (original.instead or "")
    _write(card, file, *read_cifar(instead if instead.is_file() else folder / original.file))


def convert_tiny_imagenet(card: Card, folder: Path, file: Path) -> None:
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


# What an array needs; NumPy has moved one of them.
_ARRAYS = {
    *(("numpy.core.multiarray", "_reconstruct"), ("numpy._core.multiarray", "_reconstruct")),
    *(("numpy", "ndarray"), ("numpy", "dtype")),
}


class Inert:
    """Stands for an array or a dtype: it does nothing but keep what the pickle says of it."""

    state: Any = None

    def __init__(self, *args: Any) -> None:
        self.args = args

    def __setstate__(self, state: Any) -> None:
        self.state = state


class _Reader(pickle.Unpickler):
    """Where a pickle asks for a function or class, arrays get one that does nothing, and everything else is refused."""

    def find_class(self, module: str, name: str) -> type[Inert]:
        if (module, name) not in _ARRAYS:
            raise pickle.UnpicklingError(f"it asks to run {module}.{name}; no array needs that, and it was not run")
        return Inert


def read_inert(content: bytes, file: str) -> Any:
    """What was pickled, text as bytes and arrays as `Inert` objects whose `state` ends in their bytes."""
    with reading(file, "a batch of images"):
        return _Reader(io.BytesIO(content), encoding="bytes").load()
