"""One network instead of an ensemble."""

from __future__ import annotations

from typing import Any

from deep_ensembles.estimators import DeepEnsembleRegressor


def single_network(**settings: Any) -> DeepEnsembleRegressor:
    """A regressor of one network that learns mean and variance ("ML-1" in the paper's appendix).

    Arguments:
        settings: any parameter of `DeepEnsembleRegressor` but `n_members`.

    Example:
        >>> single_network(max_epochs=40)
        DeepEnsembleRegressor(max_epochs=40, n_members=1)
    """
    return DeepEnsembleRegressor(n_members=1, **settings)
