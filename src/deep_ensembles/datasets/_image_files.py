"""Arrays of images: the formats they were published in, and those of a data home.

A data home has idx files packed by gzip, as MNIST was published, or NumPy's, plain or packed by xz. No format needs pickle.
"""

from __future__ import annotations

import gzip
import lzma
import re
import tarfile
import warnings
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from deep_ensembles._files import replacing, write_atomically
from deep_ensembles.datasets._dataset import DatasetError
from deep_ensembles.datasets._inert_pickle import Inert, read_inert
from deep_ensembles.datasets._pictures import read_picture

Labelled = tuple[NDArray[np.uint8], NDArray[np.uint8]]

LETTERS = "ABCDEFGHIJ"
IDX = ("-images-idx3-ubyte.gz", "-labels-idx1-ubyte.gz")
NPY = ("-images.npy", "-labels.npy")
PACKED = ("-images.npy.xz", "-labels.npy")
_DAMAGE = (OSError, EOFError, ValueError, KeyError, lzma.LZMAError, zlib.error, tarfile.TarError)


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Whatever a damaged file leads to becomes one kind of error that names it."""
    try:
        yield
    except DatasetError:
        raise
    except _DAMAGE as error:
        raise DatasetError(f"{path} is damaged or not what its name promises ({error})") from error


def read_array(path: Path) -> NDArray[np.uint8]:
    """An array of a data home: `.gz` (idx), `.npy` or `.npy.xz`."""
    with _naming(path):
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

    with _naming(path):
        content = loadmat(path, variable_names=("X", "y"))
        images, labels = content["X"].transpose(3, 0, 1, 2), content["y"].reshape(-1) % 10
        return np.ascontiguousarray(images, np.uint8), labels.astype(np.uint8)


def read_cifar(path: Path) -> tuple[Labelled, Labelled]:
    """(train, test) of `cifar-10-binary.tar.gz` or `cifar-10-python.tar.gz`; nothing is unpacked and nothing run."""
    with _naming(path), tarfile.open(path) as archive:
        found = {Path(each.name).name: each for each in archive.getmembers() if each.isfile()}
        ending = ".bin" if "test_batch.bin" in found else ""
        names = [f"data_batch_{number}{ending}" for number in range(1, 6)]
        batches = []
        for name in (*names, f"test_batch{ending}"):
            content = archive.extractfile(found[name]).read()  # type: ignore[union-attr]
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
    with _naming(path), tarfile.open(path) as archive:
        wanted = [
            each for each in archive.getmembers() if each.isfile() and re.search(r"(^|/)[A-J]/[^/.][^/]*\.png$", each.name)
        ]
        for member in sorted(wanted, key=lambda each: each.name):
            content = archive.extractfile(member).read()  # type: ignore[union-attr]
            try:
                images.append(read_picture(content, member.name, mode="L"))
                labels.append(LETTERS.index(Path(member.name).parent.name))
            except DatasetError:
                broken.append(member.name)
        if broken:
            warnings.warn(f"{path.name}: left out {len(broken)} broken pictures: {', '.join(broken)}", stacklevel=2)
        return np.stack(images), np.array(labels, np.uint8)
