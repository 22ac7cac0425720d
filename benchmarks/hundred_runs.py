"""100 networks, 5 members × 20 folds of 927 training and 103 test rows, trained and tested, beside the plain loop."""

from __future__ import annotations

from functools import partial
from statistics import median

import numpy as np
import torch

from benchmarks.made_data import regression
from benchmarks.measuring import Line, seconds, speedup
from benchmarks.plain_loop import regression_ensemble
from deep_ensembles import CrossValidation, cross_validate, mlp

Fold = tuple[np.ndarray, np.ndarray]


def hundred_runs() -> list[Line]:
    """Ours whole, four times; the plain loop whole once, five folds at a time between ours."""
    X, y = regression(1030, 8)
    folds = random_folds()
    ours(X, y, folds)
    plain(X, y, folds[:1])
    rounds = [
        (seconds(lambda: ours(X, y, folds)), seconds(partial(plain, X, y, folds[start : start + 5])))
        for start in range(0, 20, 5)
    ]
    times = median(own for own, _ in rounds), sum(other for _, other in rounds)
    return [speedup("hundred_runs", times, wanted=20)]


def random_folds() -> list[Fold]:
    orders = [np.random.default_rng(seed).permutation(1030) for seed in range(20)]
    return [(order[:927], order[927:]) for order in orders]


def ours(X: np.ndarray, y: np.ndarray, folds: list[Fold]) -> CrossValidation:
    settings = {"n_members": 5, "max_epochs": 40, "batch_size": 100, "learning_rate": 0.01}
    return cross_validate(partial(mlp, 8, 2, (50,)), X, y, cv=folds, random_state=0, **settings)


def plain(X: np.ndarray, y: np.ndarray, folds: list[Fold]) -> None:
    for train, test in folds:
        networks = regression_ensemble(X[train], y[train])
        tested = torch.from_numpy((X[test] - X[train].mean(0)) / X[train].std(0)).float()
        with torch.no_grad():
            torch.stack([network(tested) for network in networks])
