"""Data and settings of every kind get a clear error or the right answer."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from deep_ensembles import DeepEnsembleClassifier, DeepEnsembleRegressor, FastGradientSign

X = np.random.default_rng(0).normal(size=(60, 3))
Y = X[:, 0] * 2 + 1
# More rows than a batch: trained in single precision.
MORE = np.random.default_rng(0).normal(size=(230, 8))
TARGETS = MORE[:, 0] + MORE[:, 1] ** 2


def quick(**settings: Any) -> DeepEnsembleRegressor:
    return DeepEnsembleRegressor(**({"preset": "paper", "n_members": 2, "max_epochs": 3, "random_state": 0} | settings))


@pytest.mark.parametrize(
    ("inputs", "targets", "message"),
    [
        (np.where(X > 2, np.nan, X), Y, None),
        (X, np.where(Y > 2, np.nan, Y), "NaN"),
        (np.where(X > 2, np.inf, X), Y, "infinity"),
        (X, np.where(Y > 2, np.inf, Y), "infinity"),
        (X[:0], Y[:0], "0 sample"),
        (X[:, :0], Y, "0 feature"),
        (X, Y[:-1], "inconsistent numbers of samples"),
        (X[:, 0], Y, "Reshape your data"),
        (np.array([["a", "b"]] * 60), Y, "could not convert string"),
        (X, np.array(["a"] * 60), "convert"),
        (X, Y * 1e200, "standard deviation between"),
        (X, 1 + Y * 1e-200, None),
    ],
)
def test_data_of_a_regression(inputs: np.ndarray, targets: np.ndarray, message: str | None) -> None:
    if message is None:
        assert np.isfinite(quick().fit(inputs, targets).predict(inputs)).all()
        return
    with pytest.raises(ValueError, match=message):
        quick().fit(inputs, targets)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"n_members": 0}, "`n_members` must be an integer ≥ 1, got 0"),
        ({"n_members": 2.5}, "`n_members` must be an integer ≥ 1, got 2.5"),
        ({"max_epochs": 0}, "`max_epochs` must be an integer ≥ 1, got 0"),
        ({"batch_size": "all"}, "`batch_size` must be an integer ≥ 1, got 'all'"),
        ({"batch_size": -1}, "`batch_size` must be an integer ≥ 1, got -1"),
        ({"learning_rate": 0}, "`learning_rate` must be a number > 0, got 0"),
        ({"learning_rate": float("nan")}, "`learning_rate` must be a number > 0, got nan"),
        ({"weight_decay": -0.1}, "`weight_decay` must be a number ≥ 0, got -0.1"),
        ({"validation_fraction": 1.5}, "`validation_fraction` must be a number > 0 and ≤ 0.99, got 1.5"),
        ({"early_stopping": "yes"}, "`early_stopping` must be True or False, got 'yes'"),
        ({"clip_norm": -1}, "`clip_norm` must be a number > 0, got -1"),
        ({"hidden_sizes": 50}, "`hidden_sizes` must be a sequence of integers ≥ 1, got 50; for one layer write"),
        ({"hidden_sizes": (0,)}, "`hidden_sizes` must be an integer ≥ 1, got 0"),
        ({"activation": "rleu"}, "`activation` must be one of elu, .*got 'rleu'"),
        ({"dropout": 2}, "`dropout` must be a number ≥ 0 and ≤ 1, got 2"),
        ({"random_state": -1}, "`random_state` must be"),
        ({"device": "cuda:7"}, "`device` must be \"auto\" or one that is here, got 'cuda:7'"),
        ({"device": "toaster"}, "`device` must be \"auto\" or one that is here, got 'toaster'"),
        ({"scoring_rule": "nll"}, "`scoring_rule` must be a function or an object or None, got 'nll'"),
        ({"perturbation": "fgsm"}, "`perturbation` must be a function or an object or None, got 'fgsm'"),
        ({"head": "normal"}, "`head` must be \"auto\", None or an object such as `StudentT..`, got 'normal'"),
        ({"schedule": "cosine"}, "`schedule` must be an object such as `Cosine\\(\\)`, got 'cosine'"),
        ({"optimizer": "adam"}, "`optimizer` must be an object such as `Adam\\(\\)`, got 'adam'"),
        ({"resampling": "bootstrap"}, "`resampling` must be an object such as `Bootstrap\\(\\)`, got 'bootstrap'"),
        ({"checkpoint": "state"}, "`checkpoint` must be None or a `Checkpoint.path.`, got 'state'"),
        ({"batch_norm": "yes"}, "`batch_norm` must be True or False, got 'yes'"),
        ({"verbose": "x"}, "`verbose` must be an integer ≥ 0, got 'x'"),
        ({"patience": 0}, "`patience` must be an integer ≥ 1, got 0"),
        ({"averaging": 0}, "`averaging` must be a number > 0, got 0"),
        ({"drop_last": 1}, "`drop_last` must be True or False, got 1"),
        ({"effort": "most"}, "`effort` must be one of fast, default, best, got 'most'"),
    ],
)
@pytest.mark.parametrize("preset", [None, "paper"])
def test_settings(settings: dict[str, Any], message: str, preset: str | None) -> None:
    with pytest.raises(ValueError, match=message):
        quick(preset=preset, **settings).fit(X, Y)


def test_one_row_has_an_answer() -> None:
    model = quick(max_epochs=50).fit(X[:1], Y[:1])
    assert model.predict(X[:1]) == pytest.approx(Y[:1], abs=0.5)
    with pytest.raises(ValueError, match="at least 2 rows are needed to hold some out"):
        quick(early_stopping=True).fit(X[:1], Y[:1])
    assert np.isfinite(quick(preset=None).fit(X[:1], Y[:1]).predict(X[:1])).all()


def test_one_class_is_refused() -> None:
    with pytest.raises(ValueError, match=r"`y` must be labels of at least two classes, got .*one class"):
        DeepEnsembleClassifier().fit(X, np.zeros(60, dtype=int))


def test_continuous_labels_are_refused() -> None:
    with pytest.raises(ValueError, match="continuous"):
        DeepEnsembleClassifier().fit(X, Y)


def test_constant_columns_and_constant_target() -> None:
    inputs = np.column_stack([X, np.full(60, 3.0), np.zeros(60)])
    model = quick(max_epochs=100, perturbation=FastGradientSign(0.01)).fit(inputs, np.full(60, 7.0))
    mean, std = model.predict(inputs, return_std=True)
    np.testing.assert_allclose(mean, 7, rtol=0, atol=0.3)
    assert (std < 0.5).all()


@pytest.mark.parametrize("scale", [1e-30, 1e-9, 1e9, 1e30])
@pytest.mark.parametrize("offset", [0.0, 1e6])
def test_targets_of_any_scale(scale: float, offset: float) -> None:
    """The fit of a rescaled target is the rescaled fit."""
    base_mean, base_std = quick(max_epochs=20).fit(X, Y).predict(X, return_std=True)
    shift = offset * scale
    mean, std = quick(max_epochs=20).fit(X, Y * scale + shift).predict(X, return_std=True)
    np.testing.assert_allclose((mean - shift) / scale, base_mean, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(std / scale, base_std, rtol=1e-3, atol=1e-3)


def test_inputs_of_any_scale() -> None:
    base = quick(max_epochs=20).fit(X, Y).predict(X)
    units = np.array([1e-20, 1e20, 1e3])
    np.testing.assert_allclose(quick(max_epochs=20).fit(X * units, Y).predict(X * units), base, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("method", ["predict", "predict_distribution", "predict_interval"])
def test_wrong_number_of_features(method: str) -> None:
    model = quick().fit(X, Y)
    with pytest.raises(ValueError, match="X has 2 features, but DeepEnsembleRegressor is expecting 3"):
        getattr(model, method)(X[:, :2])


def test_quantiles_and_coverage_are_probabilities() -> None:
    model = quick().fit(X, Y)
    with pytest.raises(ValueError, match=r"`quantiles` must be a number ≥ 0 and ≤ 1, got 1\.5"):
        model.predict_quantiles(X, [0.5, 1.5])
    with pytest.raises(ValueError, match="`quantiles` must be at least one number"):
        model.predict_quantiles(X, [])
    with pytest.raises(ValueError, match=r"`coverage` must be a number ≥ 0 and ≤ 1, got 90"):
        model.predict_interval(X, coverage=90)


@pytest.mark.parametrize(
    ("weight", "message"),
    [
        (-np.ones(60), "[Nn]egative"),
        (np.zeros(60), "non-zero"),
        (np.ones(59), "inconsistent|shape"),
        (np.full(60, np.nan), "NaN"),
    ],
)
def test_sample_weights(weight: np.ndarray, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        quick().fit(X, Y, sample_weight=weight)


@pytest.mark.parametrize("preset", [None, "paper"])
def test_reversed_and_fortran_arrays(preset: str | None) -> None:
    model = DeepEnsembleRegressor(2, preset=preset, max_epochs=2, random_state=0)
    expected = model.fit(MORE[::-1].copy(), TARGETS[::-1].copy()).predict(MORE)
    np.testing.assert_array_equal(model.fit(MORE[::-1], TARGETS[::-1]).predict(MORE), expected)
    np.testing.assert_allclose(model.predict(MORE[::-1])[::-1], expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(model.predict(np.asfortranarray(MORE)), expected, rtol=1e-5, atol=1e-6)


def test_two_threads_fit_like_one() -> None:
    def fit(results: list[np.ndarray], hidden: tuple[int, ...]) -> None:
        model = DeepEnsembleRegressor(3, hidden_sizes=hidden, max_epochs=1, random_state=0)
        results.extend(model.fit(MORE, TARGETS).predict(MORE) for _ in range(5))

    found: tuple[list[np.ndarray], list[np.ndarray]] = ([], [])
    threads = [threading.Thread(target=fit, args=(found[i], (200 + 100 * i,))) for i in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for i in range(2):
        alone: list[np.ndarray] = []
        fit(alone, (200 + 100 * i,))
        for result in found[i]:
            np.testing.assert_allclose(result, alone[0], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("unit", [1e-300, 1e-170, 1e160, 1e200])
def test_units_whose_squares_are_no_numbers(unit: float) -> None:
    settings = {"preset": "paper", "max_epochs": 20, "random_state": 0}
    base = DeepEnsembleRegressor(2, **settings).fit(MORE, TARGETS).predict(MORE)
    np.testing.assert_allclose(
        DeepEnsembleRegressor(2, **settings).fit(MORE * unit, TARGETS).predict(MORE * unit), base, rtol=1e-3, atol=1e-3
    )
    with pytest.raises(ValueError, match="change their unit"):
        DeepEnsembleRegressor(2, **settings).fit(MORE, TARGETS * unit)


@pytest.mark.parametrize("scale", [1e-50, 1e45])
def test_weights_are_relative(scale: float) -> None:
    model = DeepEnsembleRegressor(2, max_epochs=3, random_state=0)
    weights = np.linspace(0.5, 1.5, 230)
    expected = model.fit(MORE, TARGETS, sample_weight=weights).predict(MORE)
    np.testing.assert_allclose(
        model.fit(MORE, TARGETS, sample_weight=weights * scale).predict(MORE), expected, rtol=1e-3, atol=1e-4
    )


def test_a_head_of_the_users_own_for_classes() -> None:
    labels = (MORE[:, 0] > 0).astype(int)

    def head(raw: Tensor) -> torch.distributions.Distribution:
        return torch.distributions.Categorical(logits=raw)

    assert DeepEnsembleClassifier(2, head=head, max_epochs=20, random_state=0).fit(MORE, labels).score(MORE, labels) > 0.9
