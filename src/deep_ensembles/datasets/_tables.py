"""Regression tables: from the published formats into the one format of a data home, and back from there.

A table in a data home is one `.npz` without pickle: `X` `[row, feature]`, `y` `[row]`, and `test_index_0` …
`test_index_{K-1}`, the test rows of each split (int32); the training rows are all others. Values are raw.
"""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deep_ensembles._files import replacing
from deep_ensembles.datasets._dataset import DatasetError, check_split, check_table, split_off

_LINES_AT_ONCE = 20_000


@dataclass(frozen=True, eq=False)
class Table:
    """What a file of a data home holds.

    Shape:
        inputs `[row, feature]`, targets `[row]`, tests: row numbers for each split
    """

    inputs: NDArray[np.floating]
    targets: NDArray[np.floating]
    tests: Sequence[NDArray[np.integer]]


def read_split_files(folder: Path, features: int) -> Table:
    """The layout of Hernández-Lobato & Adams's benchmark, one folder per set.

    `data.txt` is a table of numbers; `index_features.txt` and `index_target.txt` say which columns are what;
    `index_train_k.txt` and `index_test_k.txt`, k from 0 to the number in `n_splits.txt` less one, hold row numbers.
    Columns that are neither feature nor target are left out. Every split is checked to hold each row once.
    """
    data = _numbers(folder / "data.txt", two_dimensional=True)
    columns, target = _whole(folder / "index_features.txt"), _whole(folder / "index_target.txt")
    if len(target) != 1 or len(columns) != features or not {*columns, *target} <= set(range(data.shape[1])):
        found = f"{len(columns)} and {len(target)} among {data.shape[1]} columns"
        raise DatasetError(f"{folder.name}: expected {features} features and one target, got {found}")
    tests = []
    for split in range(int(_whole(folder / "n_splits.txt")[0])):
        train, test = (_whole(folder / f"index_{part}_{split}.txt") for part in ("train", "test"))
        check_split(f"{folder.name}, split {split}", train, test, len(data))
        tests.append(test)
    return Table(np.ascontiguousarray(data[:, columns]), data[:, target[0]].copy(), tests)


def read_song_archive(archive: Path, rows: int, features: int, test_rows: int) -> Table:
    """`YearPredictionMSD.txt` in its zip archive: the year, then the features, separated by commas; float32.

    The last `test_rows` rows are the test rows of the one split. The text is read a block of lines at a time, so that
    memory holds little more than the table.
    """
    inputs, targets = np.empty((rows, features), np.float32), np.empty(rows, np.float32)
    done = 0
    try:
        with zipfile.ZipFile(archive) as packed, packed.open("YearPredictionMSD.txt") as lines:
            while block := list(islice(lines, _LINES_AT_ONCE)):
                values = _parsed(block, features + 1, f"{archive.name}, after row {done}")
                if done + len(values) > rows:
                    raise DatasetError(f"{archive.name}: more than the expected {rows} rows")
                targets[done : done + len(values)] = values[:, 0]
                inputs[done : done + len(values)] = values[:, 1:]
                done += len(values)
    except (zipfile.BadZipFile, zlib.error, EOFError, KeyError) as error:
        raise DatasetError(f"{archive.name} is damaged or not the published archive ({error})") from error
    if done != rows:
        raise DatasetError(f"{archive.name}: {done} rows, expected {rows}")
    return Table(inputs, targets, [np.arange(rows - test_rows, rows)])


def check_counts(name: str, table: Table, rows: int, features: int, splits: int) -> None:
    """The table has the promised rows, features and splits, and finite numbers."""
    check_table(name, table.inputs, table.targets)
    got = (*table.inputs.shape, len(table.tests))
    if got != (rows, features, splits):
        wanted = f"{rows} rows, {features} features, {splits} splits"
        raise DatasetError(f"{name}: expected {wanted}, got {got[0]}, {got[1]} and {got[2]}")
    for number, test in enumerate(table.tests):
        check_split(f"{name}, split {number}", *split_off(test, rows), rows)


def write_table(path: Path, table: Table) -> None:
    """Write the file of a data home, at once or not at all."""
    arrays: dict[str, Any] = {"X": table.inputs, "y": table.targets}
    arrays |= {f"test_index_{split}": test.astype(np.int32) for split, test in enumerate(table.tests)}
    with replacing(path) as file:
        np.savez(file, **arrays)


def read_table(path: Path, dtype: str) -> Table:
    """Read the file of a data home, numbers as `dtype`."""
    try:
        with open(path, "rb") as raw, np.load(raw, allow_pickle=False) as file:
            splits = sum(name.startswith("test_index_") for name in file.files)
            tests = [file[f"test_index_{split}"] for split in range(splits)]
            return Table(file["X"].astype(dtype, copy=False), file["y"].astype(dtype, copy=False), tests)
    except (zipfile.BadZipFile, zlib.error, EOFError, KeyError, ValueError) as error:
        raise DatasetError(
            f"{path} is damaged or not a table of a data home ({error}); delete it and fetch it again"
        ) from error


def _whole(path: Path) -> NDArray[np.intp]:
    """Row or column numbers, published as integers or as floats such as 1.000e+00."""
    numbers = _numbers(path)
    if (numbers != np.floor(numbers)).any():
        raise DatasetError(f"{path}: holds numbers that are not whole")
    return numbers.astype(np.intp)


def _numbers(path: Path, two_dimensional: bool = False) -> NDArray[np.float64]:
    try:
        lines = [line for line in path.read_bytes().splitlines() if line.strip()]
    except OSError as error:
        raise DatasetError(f"{path} is missing or cannot be read") from error
    if not lines:
        raise DatasetError(f"{path} is empty")
    try:
        return np.loadtxt(lines, ndmin=2 if two_dimensional else 1, encoding="ascii")
    except ValueError as error:
        raise DatasetError(f"{path}: not a table of numbers ({error})") from error


def _parsed(lines: Iterable[bytes], columns: int, where: str) -> NDArray[np.float32]:
    try:
        values = np.loadtxt(lines, dtype=np.float32, delimiter=",", ndmin=2, encoding="ascii")
    except ValueError as error:
        raise DatasetError(f"{where}: not a table of numbers ({error})") from error
    if values.shape[1] != columns:
        raise DatasetError(f"{where}: {values.shape[1]} columns, expected {columns}")
    return values
