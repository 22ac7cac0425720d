"""The data sets: nine of UCI with their official splits, scikit-learn's embedded ones, and made ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from typing import NamedTuple

import numpy as np
from sklearn import datasets as embedded
from sklearn.model_selection import StratifiedShuffleSplit

from benchmarks.made_tables import MADE_CLASSES, MADE_NUMBERS, MadeTable
from deep_ensembles.paper import datasets

N_SPLITS, TEST_SHARE = 5, 0.25  # of tables without official splits
SMALL_FIRST = ("yacht", "boston-housing", "energy", "concrete", "wine-quality-red", "power-plant", "kin8nm")
UCI = (*SMALL_FIRST, "naval-propulsion-plant", "protein")
LATTICE = {"wine-quality-red": 1.0, "naval-propulsion-plant": 0.001}  # the distance of neighbouring targets


class Parts(NamedTuple):
    """One split; `truth`: the class probabilities of the test rows, where they are known."""

    X_train: np.ndarray
    y_train: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray
    truth: np.ndarray | None = None


@dataclass(frozen=True)
class Table:
    """A data set and its splits.

    Arguments:
        task: "regression" or "classification".
        kind: "uci", "embedded" or "made".
        rows: how many the training and test rows of a split are together.
        n_splits: how many splits there are.
        load: the number of a split → its rows.
        test_rows: how many a split has, where that is known before.
        is_fresh: whether every split is a new draw, so that splits share no rows.
    """

    name: str
    task: str
    kind: str
    rows: int
    n_splits: int
    load: Callable[[int], Parts]
    description: str = ""
    test_rows: int = 0
    is_fresh: bool = False


def _uci(name: str) -> Table:
    card = datasets.card(name)
    return Table(name, "regression", "uci", card.rows, card.splits, partial(_uci_parts, name), card.description)


@cache
def _uci_table(name: str) -> datasets.Dataset:
    return datasets.uci(name)


def _uci_parts(name: str, split: int) -> Parts:
    (X_train, y_train), (X_test, y_test) = _uci_table(name).parts(split)
    return Parts(X_train, y_train, X_test, y_test)


def _embedded(name: str, rows: int, load: Callable[..., tuple[np.ndarray, np.ndarray]]) -> Table:
    parts = partial(_embedded_parts, load)
    return Table(
        name, "classification", "embedded", rows, N_SPLITS, parts, "embedded in scikit-learn", round(TEST_SHARE * rows)
    )


def _embedded_parts(load: Callable[..., tuple[np.ndarray, np.ndarray]], split: int) -> Parts:
    X, y = load(return_X_y=True)
    pairs = list(StratifiedShuffleSplit(N_SPLITS, test_size=TEST_SHARE, random_state=0).split(X, y))
    train, test = pairs[split]
    return Parts(X[train], y[train], X[test], y[test])


def _made(made: MadeTable, task: str) -> Table:
    rows, load = made.n_train + made.n_test, partial(_made_parts, made)
    return Table(made.name, task, "made", rows, N_SPLITS, load, made.description, made.n_test, is_fresh=True)


def _made_parts(made: MadeTable, split: int) -> Parts:
    train, test = made.split(split)
    return Parts(train.X, train.y, test.X, test.y, test.truth)


TABLES = {
    table.name: table
    for table in (
        *map(_uci, UCI),
        *(_made(made, "regression") for made in MADE_NUMBERS),
        _embedded("breast-cancer", 569, embedded.load_breast_cancer),
        _embedded("wine", 178, embedded.load_wine),
        _embedded("iris", 150, embedded.load_iris),
        _embedded("digits", 1797, embedded.load_digits),
        *(_made(made, "classification") for made in MADE_CLASSES),
    )
}
