"""An ensemble of 5 networks that predict mean and variance beside one network of scikit-learn that predicts a mean."""

from __future__ import annotations

import warnings

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.neural_network import MLPRegressor

from benchmarks.made_data import regression
from benchmarks.measuring import Line, side_by_side, speedup
from benchmarks.plain_loop import standardized
from benchmarks.small_ensemble import our_ensemble


def one_scikit_learn_mlp() -> list[Line]:
    """The same rows, hidden units, batches, epochs and learning rate."""
    X, y = regression(927, 8)
    times = side_by_side(lambda: our_ensemble().fit(X, y), lambda: theirs(X, y), repeats=21)
    return [speedup("one_scikit_learn_mlp", times, wanted=1)]


def theirs(X: np.ndarray, y: np.ndarray) -> None:
    settings = {"batch_size": 100, "max_iter": 40, "learning_rate_init": 0.01, "n_iter_no_change": 1000, "tol": 0}
    network = MLPRegressor(hidden_layer_sizes=(50,), random_state=0, **settings)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        network.fit(standardized(X).numpy(), standardized(y).numpy())
