"""scikit-learn's contract, data frames, labels of any type, weights, several targets."""

from __future__ import annotations

import pickle
from functools import partial

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris, make_regression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks
from torch import nn

from deep_ensembles import (
    DeepEnsembleClassifier,
    DeepEnsembleRegressor,
    FastGradientSign,
    Mixture,
    MultivariateNormal,
    Ordinal,
    Point,
    brier,
    crps,
    mlp,
    squared_error,
)

PAPER = {"preset": "paper"}
FAST = {"effort": "fast", "max_epochs": 20}


@parametrize_with_checks([
    DeepEnsembleRegressor(**PAPER),
    DeepEnsembleRegressor(preset="paper", head=MultivariateNormal(), max_epochs=30),
    DeepEnsembleClassifier(**PAPER),
    DeepEnsembleClassifier(head=Ordinal(), **PAPER),
])  # fmt: skip
def test_scikit_learn_checks(estimator, check) -> None:  # type: ignore[no-untyped-def]
    """All of them, those for several labels at once too; none is expected to fail."""
    check(estimator)


def excused(estimator: DeepEnsembleRegressor | DeepEnsembleClassifier) -> dict[str, str]:
    """What no estimator can meet that holds rows out: scikit-learn excuses its own that stop early from the same."""
    held_out = "other rows are held out where a row of weight 2 is two rows"
    return {"check_sample_weight_equivalence_on_dense_data": held_out}


@parametrize_with_checks(
    [DeepEnsembleRegressor(**FAST), DeepEnsembleClassifier(**FAST)], expected_failed_checks=excused
)  # fmt: skip
def test_scikit_learn_checks_of_the_default_recipe(estimator, check) -> None:  # type: ignore[no-untyped-def]
    check(estimator)


@pytest.fixture(scope="module")
def diabetes() -> tuple[np.ndarray, np.ndarray]:
    return load_diabetes(return_X_y=True)


@pytest.fixture(scope="module")
def regressor(diabetes: tuple[np.ndarray, np.ndarray]) -> DeepEnsembleRegressor:
    return DeepEnsembleRegressor(max_epochs=20, random_state=0).fit(*diabetes)


@pytest.fixture(scope="module")
def classifier() -> DeepEnsembleClassifier:
    return DeepEnsembleClassifier(max_epochs=30, random_state=0).fit(*load_iris(return_X_y=True))


def test_the_public_face_of_the_regressor(regressor: DeepEnsembleRegressor, diabetes: tuple[np.ndarray, np.ndarray]) -> None:
    X, y = diabetes
    mean, std = regressor.predict(X, return_std=True)
    mixture = regressor.predict_distribution(X)
    assert isinstance(mixture, Mixture)
    np.testing.assert_allclose(mean, mixture.mean, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(std, mixture.stddev, rtol=1e-6, atol=1e-6)
    np.testing.assert_array_equal(mean, regressor.predict(X))
    interval = regressor.predict_interval(X, coverage=0.9)
    quantiles = regressor.predict_quantiles(X, [0.05, 0.5, 0.95])
    assert interval.shape == (442, 2)
    assert quantiles.shape == (442, 3)
    np.testing.assert_allclose(interval, quantiles[:, [0, 2]], rtol=1e-9, atol=1e-9)
    assert (np.diff(quantiles, axis=1) > 0).all()
    np.testing.assert_allclose(mixture.cdf(torch.from_numpy(quantiles[:, 2])), 0.95, atol=1e-9)
    assert 0.8 < np.mean((interval[:, 0] < y) & (y < interval[:, 1])) < 1
    assert regressor.score(X, y) > 0.3


def test_the_public_face_of_the_classifier(classifier: DeepEnsembleClassifier) -> None:
    X, y = load_iris(return_X_y=True)
    mixture = classifier.predict_distribution(X)
    np.testing.assert_allclose(classifier.predict_proba(X), mixture.probs, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(np.exp(classifier.predict_log_proba(X)), classifier.predict_proba(X), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(classifier.predict_proba(X).sum(1), 1, rtol=1e-12)
    assert mixture.entropy().shape == mixture.mutual_information.shape == mixture.disagreement.shape == (150,)
    assert classifier.score(X, y) > 0.9


def test_members_disagree_far_from_the_data() -> None:
    x = np.random.default_rng(0).uniform(-1, 1, (200, 1))
    model = DeepEnsembleRegressor(effort="fast", random_state=0).fit(x, x[:, 0] ** 3)
    near, far = (model.predict_distribution(np.array([[at]])).epistemic.item() for at in (0.0, 8.0))
    assert far > 100 * near


@pytest.mark.parametrize(
    "labels",
    [
        np.array(["setosa", "versicolor", "virginica"]),
        np.array(["a", "b", "c"], dtype=object),
        np.array([10, -3, 7]),
        np.array([0.5, 1.5, 2.5]) * 2,
        np.array([True, False, True]),
    ],
    ids=["strings", "objects", "integers", "whole floats", "booleans"],
)
def test_labels_of_any_type(labels: np.ndarray) -> None:
    X, codes = load_iris(return_X_y=True)
    y = labels[codes]
    model = DeepEnsembleClassifier(max_epochs=30, random_state=0).fit(X, y)
    assert set(model.predict(X)) <= set(labels)
    assert (model.predict(X) == y).mean() > 0.9


def test_data_frames() -> None:
    X, y = load_breast_cancer(return_X_y=True, as_frame=True)
    model = DeepEnsembleClassifier(n_members=2, max_epochs=5, random_state=0)
    from_pandas = model.fit(X, y).predict_proba(X)
    assert list(model.feature_names_in_) == list(X.columns)
    frame = pl.from_pandas(X)
    from_polars = clone(model).fit(frame, pl.Series(y.to_numpy())).predict_proba(frame)
    from_numpy = clone(model).fit(X.to_numpy(), y.to_numpy()).predict_proba(X.to_numpy())
    for frame_based in (
        from_pandas,
        from_polars,
    ):  # columns lie side by side in frames, rows in arrays: sums may be rounded otherwise
        np.testing.assert_allclose(frame_based, from_numpy, rtol=1e-4, atol=1e-6)
    with pytest.raises(ValueError, match="feature names"):
        model.predict(X[X.columns[::-1]])


def test_float32_stays_float32_until_it_is_standardised(diabetes: tuple[np.ndarray, np.ndarray]) -> None:
    X, y = diabetes
    model = DeepEnsembleRegressor(n_members=2, max_epochs=5, random_state=0).fit(X.astype(np.float32), y)
    assert model.predict(X.astype(np.float32)).dtype == np.float64
    assert np.corrcoef(model.predict(X), y)[0, 1] > 0.5


def test_in_a_pipeline_with_set_output(diabetes: tuple[np.ndarray, np.ndarray]) -> None:
    X, y = diabetes
    model = DeepEnsembleRegressor(n_members=2, max_epochs=5, random_state=0)
    pipeline = make_pipeline(StandardScaler(), model).set_output(transform="pandas").fit(X, y)
    assert pipeline.predict(X).shape == (442,)
    assert pipeline[-1].feature_names_in_.tolist() == [f"x{i}" for i in range(10)]


def test_grid_search_and_cross_validation(diabetes: tuple[np.ndarray, np.ndarray]) -> None:
    model = DeepEnsembleRegressor(n_members=2, max_epochs=10, random_state=0)
    grid = {"hidden_sizes": [(5,), (20,)], "perturbation": [None, FastGradientSign(0.01)]}
    search = GridSearchCV(model, grid, cv=2).fit(*diabetes)
    assert set(search.best_params_) == set(grid)
    assert cross_val_score(model, *diabetes, cv=3).mean() > 0


def test_clone_and_pickle(regressor: DeepEnsembleRegressor, diabetes: tuple[np.ndarray, np.ndarray]) -> None:
    X, y = diabetes
    again = clone(regressor).fit(X, y)
    np.testing.assert_array_equal(again.predict(X), regressor.predict(X))
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(regressor)).predict(X), regressor.predict(X))


def test_several_targets() -> None:
    X, y = make_regression(300, 5, n_targets=3, noise=1.0, random_state=0)
    y = y * [1, 100, 0.01] + [0, 1e4, 5]
    settings = {"perturbation": FastGradientSign(0.01), "max_epochs": 100, "random_state": 0}
    model = DeepEnsembleRegressor(preset="paper", **settings).fit(X, y)
    mean, std = model.predict(X, return_std=True)
    assert mean.shape == std.shape == (300, 3)
    assert (np.sqrt(((mean - y) ** 2).mean(0)) < 0.3 * y.std(0)).all()
    assert model.predict_interval(X).shape == (300, 2, 3)
    mixture = model.predict_distribution(X)
    assert mixture.log_prob(torch.from_numpy(y)).shape == (300,)
    assert mixture.event_shape == (3,)
    assert model.score(X, y) > 0.9


@pytest.mark.parametrize("rule", [crps, squared_error, brier], ids=lambda rule: rule.__name__)
def test_other_scoring_rules_train(rule) -> None:  # type: ignore[no-untyped-def]
    if rule is brier:
        X, y = load_iris(return_X_y=True)
        assert DeepEnsembleClassifier(scoring_rule=rule, max_epochs=40, random_state=0).fit(X, y).score(X, y) > 0.9
        return
    X, y = load_diabetes(return_X_y=True)
    head = Point() if rule is squared_error else None
    model = DeepEnsembleRegressor(preset="paper", scoring_rule=rule, head=head, max_epochs=30, random_state=0).fit(X, y)
    assert model.score(X, y) > 0.4
    if rule is squared_error:
        mixture = model.predict_distribution(X)
        assert (mixture.aleatoric == 0).all()
        np.testing.assert_allclose(mixture.variance, mixture.components.mean.var(0, correction=0), rtol=1e-5, atol=1e-8)


def test_network_factories(diabetes: tuple[np.ndarray, np.ndarray]) -> None:
    X, y = diabetes

    class Own(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = nn.Parameter(torch.randn(10, 2) * 0.1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x @ self.w

    for network in (Own, lambda: nn.Linear(10, 2), partial(mlp, hidden_sizes=(7,)), lambda n, k: mlp(n, k, (4, 4))):
        model = DeepEnsembleRegressor(n_members=3, network=network, max_epochs=30, random_state=0).fit(X, y)
        assert model.score(X, y) > 0.2
        assert model.chosen_["hidden_sizes"] is None
    with pytest.raises(TypeError, match="function that builds"):
        DeepEnsembleRegressor(network=nn.Linear(10, 2)).fit(X, y)


def test_class_weight_moves_probability() -> None:
    X, y = load_breast_cancer(return_X_y=True)
    rare = np.r_[np.flatnonzero(y == 0)[:20], np.flatnonzero(y == 1)]
    X, y = X[rare, :2], y[rare]
    settings = {"n_members": 2, "max_epochs": 20, "random_state": 0}
    plain, balanced, by_hand = (
        DeepEnsembleClassifier(**settings, class_weight=weight).fit(X, y).predict_proba(X)[:, 0].mean()
        for weight in (None, "balanced", {0: len(y) / 40, 1: len(y) / (2 * (y == 1).sum())})
    )
    assert balanced > 2 * plain
    assert balanced == pytest.approx(by_hand, rel=1e-4)


def test_sample_weight_zero_is_absence(diabetes: tuple[np.ndarray, np.ndarray]) -> None:
    X, y = diabetes
    keep = np.arange(len(y)) % 4 != 0
    poisoned = np.where(keep, y, 1e6)
    model = DeepEnsembleRegressor(n_members=2, max_epochs=3, random_state=0)
    weighted = clone(model).fit(X, poisoned, sample_weight=keep.astype(float)).predict(X)
    absent = clone(model).fit(X[keep], y[keep]).predict(X)
    np.testing.assert_allclose(weighted, absent, rtol=1e-5, atol=1e-3)


def test_verbose_is_silent_when_piped(capsys: pytest.CaptureFixture[str], diabetes: tuple[np.ndarray, np.ndarray]) -> None:
    DeepEnsembleRegressor(n_members=2, max_epochs=2, verbose=2, random_state=0).fit(*diabetes)
    assert capsys.readouterr() == ("", "")


def test_frames_with_integer_and_boolean_columns() -> None:
    frame = pd.DataFrame({"a": np.arange(40), "b": np.arange(40) % 2 == 0, "c": np.linspace(0, 1, 40)})
    model = DeepEnsembleRegressor(n_members=2, max_epochs=50, random_state=0).fit(frame, frame["a"] * 2.0)
    assert model.score(frame, frame["a"] * 2.0) > 0.9
