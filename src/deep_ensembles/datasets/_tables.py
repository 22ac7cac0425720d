"""Regression tables: from the published formats into the one format of a data home, and back from there.

A table in a data home is one `.npz` without pickle: `X` `[row, feature]`, `y` `[row]`, and `test_index_0` …
`test_index_{K-1}`, the test rows of each split (int32); the training rows are all others. Values are raw.
"""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deep_ensembles._files import replacing
from deep_ensembles.datasets._dataset import Dataset, DatasetError, split_off

_LINES_AT_ONCE = 20_000


def read_split_files(folder: Path, features: int) -> Dataset:
    """The layout of Hernández-Lobato & Adams's benchmark, one folder per set.

    `data.txt` is a table of numbers; `index_features.txt` and `index_target.txt` say which columns are what;
    `index_train_k.txt` and `index_test_k.txt`, k from 0 to the number in `n_splits.txt` less one, hold row numbers.
    Columns that are neither feature nor target are left out.
    """
    data = _numbers(folder / "data.txt", dimensions=2)
    columns, target = _whole(folder / "index_features.txt"), _whole(folder / "index_target.txt")
    if len(target) != 1 or len(columns) != features or not {*columns, *target} <= set(range(data.shape[1])):
        found = f"{len(columns)} and {len(target)} among {data.shape[1]} columns"
        raise DatasetError(f"{folder.name}: expected {features} features and one target, got {found}")
    splits = [
        (_whole(folder / f"index_train_{split}.txt"), _whole(folder / f"index_test_{split}.txt"))
        for split in range(int(_whole(folder / "n_splits.txt")[0]))
    ]
    return Dataset(folder.name, np.ascontiguousarray(data[:, columns]), data[:, target[0]].copy(), splits)


def read_song_archive(archive: Path, rows: int, features: int, test_rows: int) -> Dataset:
    """`YearPredictionMSD.txt` in its zip archive: the year, then the features, separated by commas; float32.

    The last `test_rows` rows are the test rows of the one split. The text is read a block of lines at a time, so that
    memory holds little more than the table.
    """
    inputs, targets = np.empty((rows, features), np.float32), np.empty(rows, np.float32)
    done = 0
    try:
        with zipfile.ZipFile(archive) as packed, packed.open("YearPredictionMSD.txt") as lines:
            while block := list(islice(lines, _LINES_AT_ONCE)):
                where = f"{archive.name}, after row {done}"
                values = _parsed(block, where, dtype=np.float32, delimiter=",", ndmin=2)
                if values.shape[1] != features + 1:
                    raise DatasetError(f"{where}: {values.shape[1]} columns, expected {features + 1}")
                if done + len(values) > rows:
                    raise DatasetError(f"{archive.name}: more than the expected {rows} rows")
                targets[done : done + len(values)] = values[:, 0]
                inputs[done : done + len(values)] = values[:, 1:]
                done += len(values)
    except (zipfile.BadZipFile, zlib.error, EOFError, KeyError) as error:
        raise DatasetError(f"{archive.name} is damaged or not the published archive ({error})") from error
    if done != rows:
        raise DatasetError(f"{archive.name}: {done} rows, expected {rows}")
    return Dataset(archive.stem, inputs, targets, [split_off(np.arange(rows - test_rows, rows), rows)])


def write_table(path: Path, table: Dataset) -> None:
    """Write the file of a data home, at once or not at all."""
    arrays: dict[str, Any] = {"X": table.inputs, "y": table.targets}
    arrays |= {f"test_index_{number}": test.astype(np.int32) for number, (_, test) in enumerate(table.splits)}
    with replacing(path) as file:
        np.savez(file, **arrays)


def read_table(path: Path, dtype: str, description: str = "", origin: str = "", licence: str = "") -> Dataset:
    """Read the file of a data home, which has the set's name, numbers as `dtype`."""
    try:
        with open(path, "rb") as raw, np.load(raw, allow_pickle=False) as file:
            inputs, targets = (file[name].astype(dtype, copy=False) for name in ("X", "y"))
            n_splits = sum(name.startswith("test_index_") for name in file.files)
            tests = [file[f"test_index_{split}"] for split in range(n_splits)]
    except (zipfile.BadZipFile, zlib.error, EOFError, KeyError, ValueError) as error:
        cure = "delete it and fetch it again"
        raise DatasetError(f"{path} is damaged or not a table of a data home ({error}); {cure}") from error
    splits = [split_off(test, len(targets)) for test in tests]
    return Dataset(path.stem, inputs, targets, splits, description, origin, licence)


def _whole(path: Path) -> NDArray[np.intp]:
    """Row or column numbers, published as integers or as floats such as 1.000e+00."""
    numbers = _numbers(path)
    if (numbers != np.floor(numbers)).any():
        raise DatasetError(f"{path}: holds numbers that are not whole")
    return numbers.astype(np.intp)


def _numbers(path: Path, dimensions: int = 1) -> NDArray[np.float64]:
    try:
        lines = [line for line in path.read_bytes().splitlines() if line.strip()]
    except OSError as error:
        raise DatasetError(f"{path} is missing or cannot be read") from error
    if not lines:
        raise DatasetError(f"{path} is empty")
    return _parsed(lines, path, ndmin=dimensions)


def _parsed(lines: Sequence[bytes], where: Path | str, **form: Any) -> NDArray:
    try:
        return np.loadtxt(lines, encoding="ascii", **form)
    except ValueError as error:
        raise DatasetError(f"{where}: not a table of numbers ({error})") from error
