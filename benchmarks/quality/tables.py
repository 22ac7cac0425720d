"""The data sets: nine of UCI with their official splits, scikit-learn's embedded ones, and made ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
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
        rows, features: how many the training and test rows of a split have together.
        n_splits: how many splits there are.
        load: the number of a split → its rows.
        is_fresh: whether every split is a new draw, so that splits share no rows.
    """

    name: str
    task: str
    kind: str
    rows: int
    features: int
    n_splits: int
    load: Callable[[int], Parts]
    description: str = field(default="")
    is_fresh: bool = False


def _uci(name: str) -> Table:
    card = datasets.card(name)
    return Table(
        name, "regression", "uci", card.rows, card.features, card.splits, partial(_uci_parts, name), card.description
    )


@cache
def _uci_table(name: str) -> datasets.Dataset:
    return datasets.uci(name)


def _uci_parts(name: str, split: int) -> Parts:
    (X_train, y_train), (X_test, y_test) = _uci_table(name).parts(split)
    return Parts(X_train, y_train, X_test, y_test)


def _embedded(name: str, load: Callable[..., tuple[np.ndarray, np.ndarray]]) -> Table:
    X, y = load(return_X_y=True)
    return Table(
        name, "classification", "embedded", *X.shape, N_SPLITS, partial(_embedded_parts, X, y), "embedded in scikit-learn"
    )


def _embedded_parts(X: np.ndarray, y: np.ndarray, split: int) -> Parts:
    pairs = list(StratifiedShuffleSplit(N_SPLITS, test_size=TEST_SHARE, random_state=0).split(X, y))
    train, test = pairs[split]
    return Parts(X[train], y[train], X[test], y[test])


def _made(made: MadeTable, task: str) -> Table:
    load = partial(_made_parts, made)
    n_features = made.draw(1, np.random.default_rng(0)).X.shape[1]
    rows = made.n_train + made.n_test
    return Table(made.name, task, "made", rows, n_features, N_SPLITS, load, made.description, is_fresh=True)


def _made_parts(made: MadeTable, split: int) -> Parts:
    train, test = made.split(split)
    return Parts(train.X, train.y, test.X, test.y, test.truth)


TABLES = {
    table.name: table
    for table in (
        *map(_uci, UCI),
        *(_made(made, "regression") for made in MADE_NUMBERS),
        _embedded("breast-cancer", embedded.load_breast_cancer),
        _embedded("wine", embedded.load_wine),
        _embedded("iris", embedded.load_iris),
        _embedded("digits", embedded.load_digits),
        *(_made(made, "classification") for made in MADE_CLASSES),
    )
}
