"""Baselines: what deep ensembles are compared with. Methods with a mechanism of their own have a file; two are settings."""

from typing import Any

from deep_ensembles.baselines.mc_dropout import MCDropout, fit_dropout
from deep_ensembles.estimators import DeepEnsembleRegressor
from deep_ensembles.heads import Point
from deep_ensembles.scoring import squared_error

__all__ = ["MCDropout", "fit_dropout", "mse_ensemble", "single_network"]


def mse_ensemble(n_members: int = 5, **settings: Any) -> DeepEnsembleRegressor:
    r"""Point predictions whose empirical variance, $M^{-1}\sum_m (\mu_m - \mu_*)^2$, is all the uncertainty there is.

    A mixture of points has no density: for a likelihood take `predict_distribution(X).moment_matched()`.

    References:
        Lakshminarayanan, Pritzel, Blundell (2017), section 3.2 and appendix A.

    Arguments:
        n_members: how many networks.
        settings: any parameter of `DeepEnsembleRegressor` but `head` and `scoring_rule`.

    Example:
        >>> mse_ensemble(10).n_members
        10
    """
    return DeepEnsembleRegressor(n_members, head=Point(), scoring_rule=squared_error, **{"preset": "paper", **settings})


def single_network(**settings: Any) -> DeepEnsembleRegressor:
    """A regressor of one network that learns mean and variance ("ML-1" in the paper's appendix).

    Arguments:
        settings: any parameter of `DeepEnsembleRegressor` but `n_members`.

    Example:
        >>> single_network(max_epochs=40)
        DeepEnsembleRegressor(max_epochs=40, n_members=1, preset='paper')
    """
    return DeepEnsembleRegressor(n_members=1, **{"preset": "paper", **settings})
