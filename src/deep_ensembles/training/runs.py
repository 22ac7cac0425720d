"""Runs: each is one network to train. A recipe and a list of seeds make a list of runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from deep_ensembles._random import Purpose, stream
from deep_ensembles._splits import hold_out
from deep_ensembles.training.recipe import Recipe


@dataclass(frozen=True)
class Run:
    """One network to train.

    Arguments:
        rows: the numbers of the rows it may learn from.
        seed: everything random about it.
        validation: the numbers of the rows it is stopped on; none for no early stopping.
        learning_rate, weight_decay: its own instead of the recipe's.
        perturbation_factor: a factor on the perturbation's ε.
    """

    rows: np.ndarray
    seed: int
    validation: np.ndarray = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    learning_rate: float | None = None
    weight_decay: float | None = None
    perturbation_factor: float = 1.0


def plan_runs(rows: np.ndarray, seeds: Sequence[int], recipe: Recipe, classes: np.ndarray | None = None) -> list[Run]:
    """One run per seed over the same rows; held-out rows and resampling are each run's own.

    Arguments:
        classes: the class of every row of the data, to hold out the same share of each class.
    """
    runs: list[Run] = []
    strata = None if classes is None else classes[rows]
    folds: list[np.ndarray] = []
    if recipe.folds is not None:
        folds = recipe.folds(rows, len(seeds), stream(seeds[0], Purpose.VALIDATION), strata)
    for seed in seeds:
        train, held_out = rows, np.empty(0, dtype=np.int64)
        if folds:
            fold = folds[len(runs) % len(folds)]
            train, held_out = np.setdiff1d(rows, fold), fold if recipe.early_stopping else held_out
        elif recipe.early_stopping:
            train, held_out = hold_out(rows, recipe.validation_fraction, stream(seed, Purpose.VALIDATION), strata)
        if recipe.resampling is not None:
            train = recipe.resampling(train, stream(seed, Purpose.RESAMPLING))
        runs.append(Run(train, seed, held_out))
    return runs
