"""Methods to compare with, behind the same face."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.utils.estimator_checks import parametrize_with_checks

from deep_ensembles import DeepEnsembleRegressor, FastGradientSign
from deep_ensembles.baselines import MCDropout, mse_ensemble, single_network
from deep_ensembles.baselines.mc_dropout import fit_dropout


def data(n: int = 300, noise: float = 0.3) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (n, 2))
    return X, 5 * X[:, 0] + 100 + noise * rng.normal(size=n)


@parametrize_with_checks([MCDropout(rates=(0.1,), max_epochs=60)])
def test_scikit_learn_checks(estimator, check) -> None:  # type: ignore[no-untyped-def]
    check(estimator)


def test_single_network_is_the_first_member() -> None:
    X, y = data()
    settings = {"max_epochs": 5, "random_state": 0, "perturbation": FastGradientSign(0.01)}
    alone = single_network(**settings).fit(X, y).predict_distribution(X)
    first = DeepEnsembleRegressor(3, preset="paper", **settings).fit(X, y).ensemble_.subset(1)(X)
    np.testing.assert_allclose(alone.mean, first.mean, rtol=1e-5, atol=1e-4)
    np.testing.assert_allclose(alone.variance, first.variance, rtol=1e-4, atol=1e-6)
    assert (alone.epistemic == 0).all()


def test_mse_ensemble_has_no_noise_and_is_overconfident() -> None:
    X, y = data()
    model = mse_ensemble(5, max_epochs=60, random_state=0).fit(X, y)
    mixture = model.predict_distribution(X)
    assert (mixture.aleatoric == 0).all()
    np.testing.assert_allclose(mixture.variance, np.var(mixture.components.mean.numpy(), axis=0), rtol=1e-6, atol=1e-12)
    low, high = model.predict_quantiles(X, [0.1, 0.9]).T
    assert np.mean((low <= y) & (y <= high)) < 0.6
    assert model.score(X, y) > 0.9


def test_mc_dropout_learns_mean_and_noise() -> None:
    X, y = data(1000)
    model = MCDropout(max_epochs=40, random_state=0).fit(X[:700], y[:700])
    mean, std = model.predict(X[700:], return_std=True)
    assert np.sqrt(np.mean((mean - y[700:]) ** 2)) < 0.45
    assert 0.2 < std.mean() < 0.7
    mixture = model.predict_distribution(X[700:])
    assert mixture.n_members == 100
    inside = (mixture.cdf(torch.from_numpy(y[700:])) - 0.5).abs() < 0.45
    assert 0.8 < float(inside.double().mean()) < 0.99
    np.testing.assert_array_equal(mean, model.predict(X[700:]))


def test_mc_dropout_of_many_row_sets_is_that_of_each_alone() -> None:
    X, y = data(120)
    sets = [np.arange(100), np.arange(20, 120)]
    settings = {"rates": (0.05, 0.2), "max_epochs": 5, "n_samples": 20, "random_state": 0}
    together = fit_dropout(X, y, sets, **settings)
    alone = fit_dropout(X, y, sets[:1], **settings)
    assert (together[0].rate, together[0].deviation) == pytest.approx((alone[0].rate, alone[0].deviation), rel=1e-4)
    np.testing.assert_allclose(together[0](X).mean, alone[0](X).mean, rtol=1e-4, atol=1e-4)


def test_mc_dropout_refuses_bad_rates() -> None:
    X, y = data(30)
    with pytest.raises(ValueError, match=r"`rates` must be a number ≥ 0 and < 1, got 1\.0"):
        MCDropout(rates=(1.0,)).fit(X, y)
    with pytest.raises(ValueError, match="at least one dropout rate"):
        MCDropout(rates=()).fit(X, y)
