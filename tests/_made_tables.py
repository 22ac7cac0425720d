"""Small tables whose truth is known, and models of them that train in a moment."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from deep_ensembles.report import Evaluation
from deep_ensembles.tabular import FittedTable, TableSettings, fit_table
from deep_ensembles.tabular.data import read_data, split_rows

QUICK: dict[str, Any] = {"members": 3, "hidden_sizes": (8,), "max_epochs": 4, "batch_size": 32, "effort": "fast"}


def houses(n: int = 200, seed: int = 0) -> pa.Table:
    """Houses: a size, a colour, a yard, an owner, a year of sale, a price, and whether it sold fast."""
    r = np.random.default_rng(seed)
    size, colour = r.normal(size=n), r.choice(["red", "green", "blue"], n)
    price = 2 * size + (colour == "red") + 0.3 * r.normal(size=n)
    yard = np.where(r.random(n) < 0.1, np.nan, r.uniform(0, 5, n))
    return pa.table(
        {
            "number": pa.array([f"n{i}" for i in range(n)]),
            "size": size,
            "colour": colour,
            "yard": pa.array(yard, from_pandas=True),
            "owner": r.integers(0, 25, n),
            "year": r.permutation(n) + 1800,
            "price": price,
            "speed": np.where(price > 0.5, "fast", "slow"),
        }
    )


NO_INPUTS = ("number", "owner", "year", "speed")


def numbers_settings(**changes: Any) -> TableSettings:
    """For the price, with rows that no network sees."""
    return TableSettings(**{"target": "price", "drop": NO_INPUTS, "holdout": 0.2, **QUICK, **changes})


def classes_settings(**changes: Any) -> TableSettings:
    """For the speed, with rows that no network sees."""
    drop = ("number", "owner", "year", "price")
    return TableSettings(**{"target": "speed", "drop": drop, "holdout": 0.2, **QUICK, **changes})


def write(table: pa.Table, path: Path) -> Path:
    """As CSV, TSV or Parquet, by the ending."""
    if path.suffix == ".parquet":
        pa.parquet.write_table(table, path)
    else:
        options = pa.csv.WriteOptions(delimiter="\t" if path.suffix == ".tsv" else ",")
        pa.csv.write_csv(table, path, options)
    return path


def read(path: Path) -> pa.Table:
    """A table of predictions."""
    if path.suffix == ".parquet":
        return pa.parquet.read_table(path)
    return pa.csv.read_csv(path, parse_options=pa.csv.ParseOptions(delimiter="\t" if path.suffix == ".tsv" else ","))


def with_column(table: pa.Table, name: str, values: Any) -> pa.Table:
    """The table with other values in a column, or with one more."""
    if name in table.column_names:
        return table.set_column(table.column_names.index(name), name, pa.array(values))
    return table.append_column(name, pa.array(values))


def quiet(what: Any) -> None:
    """Listens to nothing."""


def fitted(table: pa.Table, folder: Path, settings: TableSettings) -> FittedTable:
    """A model of a table, by way of a Parquet file."""
    return fit_table(write(table, folder / "fitted.parquet"), settings, log=quiet)


def same_networks(one: FittedTable, other: FittedTable) -> bool:
    """Whether the networks are the same, bit for bit."""
    ours, theirs = one.model.ensemble.tensors(), other.model.ensemble.tensors()
    return ours.keys() == theirs.keys() and all(bool((ours[name] == theirs[name]).all()) for name in ours)


def held_out(table: pa.Table, folder: Path, settings: TableSettings) -> tuple[np.ndarray, np.ndarray]:
    """(rows trained on, rows held out) of the table."""
    data = read_data(write(table, folder / "split.parquet"), settings, quiet)
    train, held = split_rows(data, settings)
    return data.rows[train], data.rows[held]


def plain_scores(evaluation: Evaluation) -> dict[str, float]:
    """Scores by name, with plain spaces in them."""
    return {score.name.replace("\u202f", " "): score.ensemble for score in evaluation.scores}


def normal_mixture(found: FittedTable, rows: pa.Table) -> tuple[np.ndarray, np.ndarray]:
    """Means and deviations `[member, row]` of the networks."""
    parts = found.model.ensemble.mixture(found.model.schema.encode(rows)).components
    return parts.mean.double().numpy(), parts.stddev.double().numpy()
