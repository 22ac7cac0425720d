"""A bar on a terminal, silence elsewhere."""

from __future__ import annotations

import sys

import pytest
from _processes import not_on_windows, shown_by

SCRIPT = """
import numpy as np
from deep_ensembles import DeepEnsembleRegressor
X = np.random.default_rng(0).normal(size=(200, 2))
DeepEnsembleRegressor(n_members=3, max_epochs=4, verbose={verbose}, random_state=0).fit(X, X[:, 0])
"""


def stderr_of(verbose: int, terminal: bool) -> str:
    return shown_by([sys.executable, "-c", SCRIPT.format(verbose=verbose)], terminal)


@not_on_windows
def test_a_bar_on_a_terminal() -> None:
    shown = stderr_of(verbose=2, terminal=True)
    for word in ("training", "epoch", "4/4", "members", "score", "left"):
        assert word in shown


@not_on_windows
@pytest.mark.parametrize(("verbose", "terminal"), [(2, False), (0, True)])
def test_silence_otherwise(verbose: int, terminal: bool) -> None:
    assert stderr_of(verbose, terminal) == ""
