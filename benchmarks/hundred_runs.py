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
from deep_ensembles.paper.datasets import load_dataset

Fold = tuple[np.ndarray, np.ndarray]


def hundred_runs() -> list[Line]:
    """On made data."""
    return [compared("hundred_runs", *regression(1030, 8), random_folds(), wanted=20)]


def concrete_splits() -> list[Line]:
    """On the concrete set's own rows and splits: ML-5 of the paper's Table 1."""
    dataset = load_dataset("concrete")
    return [compared("concrete_splits", dataset.inputs, dataset.targets, list(dataset.splits), wanted=15)]


def compared(name: str, X: np.ndarray, y: np.ndarray, folds: list[Fold], wanted: float) -> Line:
    """Ours whole, four times; the plain loop whole once, five folds at a time between ours."""
    ours(X, y, folds)
    plain(X, y, folds[:1])
    rounds = [
        (seconds(lambda: ours(X, y, folds)), seconds(partial(plain, X, y, folds[start : start + 5])))
        for start in range(0, 20, 5)
    ]
    times = median(own for own, _ in rounds), sum(other for _, other in rounds)
    return speedup(name, times, wanted=wanted)


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
