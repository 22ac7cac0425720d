"""`warm_start` and `partial_fit`, as scikit-learn means them."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone

from deep_ensembles import DeepEnsembleClassifier, DeepEnsembleRegressor
from deep_ensembles.recalibration import isotonic

GENERATOR = np.random.default_rng(0)
X = GENERATOR.normal(size=(120, 3))
Y = 3 * X[:, 0] + GENERATOR.normal(size=120)
LABELS = np.where(Y > 0, "up", "down")
SETTINGS: dict[str, Any] = {"preset": "paper", "max_epochs": 3, "random_state": 0}


def test_a_second_fit_adds_members_and_keeps_those_that_there_are() -> None:
    for kind, targets, method in ((DeepEnsembleRegressor, Y, "predict"), (DeepEnsembleClassifier, LABELS, "predict_proba")):
        model = kind(2, warm_start=True, **SETTINGS).fit(X, targets)
        model.set_params(n_members=5).fit(X, targets)
        at_once = kind(5, **SETTINGS).fit(X, targets)
        assert model.ensemble_.n_members == model.chosen_["n_members"] == 5
        np.testing.assert_allclose(getattr(model, method)(X), getattr(at_once, method)(X), rtol=1e-4, atol=1e-5)


def test_a_second_fit_with_more_epochs_goes_on() -> None:
    model = DeepEnsembleRegressor(2, warm_start=True, **SETTINGS).fit(X, Y)
    model.set_params(max_epochs=8).fit(X, Y)
    at_once = DeepEnsembleRegressor(2, **{**SETTINGS, "max_epochs": 8}).fit(X, Y)
    np.testing.assert_array_equal(model.predict(X), at_once.predict(X))
    with pytest.warns(UserWarning, match="`warm_start` found nothing to add"):
        model.fit(X, Y)
    with pytest.raises(ValueError, match="`n_members` must be at least the 2 that there are, with `warm_start`, got 1"):
        model.set_params(n_members=1).fit(X, Y)


def test_recalibration_is_fitted_anew_for_all_members() -> None:
    settings = {**SETTINGS, "recalibration": isotonic}
    model = DeepEnsembleRegressor(5, warm_start=True, **settings).fit(X, Y)
    model.set_params(n_members=10).fit(X, Y)
    at_once = DeepEnsembleRegressor(10, **settings).fit(X, Y)
    np.testing.assert_allclose(model.predict_interval(X), at_once.predict_interval(X), rtol=1e-3, atol=1e-3)


def test_members_that_were_stopped_early_grow_in_number_alone() -> None:
    model = DeepEnsembleRegressor(2, effort="fast", max_epochs=4, warm_start=True, random_state=0).fit(X, Y)
    with pytest.warns(UserWarning, match="`warm_start` found nothing to add"):
        model.set_params(max_epochs=9).fit(X, Y)
    before = model.ensemble_
    model.set_params(n_members=4).fit(X, Y)
    assert model.ensemble_.seeds[:2] == before.seeds
    assert model.ensemble_.n_members == 4


def test_without_warm_start_a_fit_starts_anew() -> None:
    model = DeepEnsembleRegressor(2, **SETTINGS).fit(X, Y)
    first = model.predict(X)
    np.testing.assert_array_equal(model.fit(X, Y).predict(X), first)


def test_partial_fits_are_epochs_on_rows_that_come() -> None:
    model = DeepEnsembleRegressor(3, preset="paper", random_state=0)
    errors = [float(np.mean((model.partial_fit(X[part], Y[part]).predict(X) - Y) ** 2)) for part in
              np.array_split(np.arange(120), 4) * 15]  # fmt: skip
    assert errors[-1] < 0.5 * errors[0]
    units = model.ensemble_.standardization.input_shift
    assert units is not None
    np.testing.assert_allclose(units[0].numpy(), X[:30].mean(0), rtol=1e-6)


def test_partial_fits_on_the_same_rows_are_a_training_of_as_many_epochs() -> None:
    model = DeepEnsembleRegressor(2, preset="paper", random_state=0)
    for _ in range(3):
        model.partial_fit(X, Y)
    at_once = DeepEnsembleRegressor(2, **SETTINGS).fit(X, Y)
    np.testing.assert_array_equal(model.predict(X), at_once.predict(X))


def test_classes_are_named_in_the_first_call() -> None:
    model = DeepEnsembleClassifier(2, preset="paper", random_state=0)
    with pytest.raises(ValueError, match="`classes` must be all labels that there will be, in the first call, got None"):
        clone(model).partial_fit(X, LABELS)
    model.partial_fit(X[:30], LABELS[:30], classes=["up", "down", "never"])
    assert model.classes_.tolist() == ["down", "never", "up"]
    assert model.partial_fit(X, LABELS).predict_proba(X).shape == (120, 3)
    with pytest.raises(ValueError, match="`classes` must be those of the first call"):
        model.partial_fit(X, LABELS, classes=["up", "down"])
    with pytest.raises(ValueError, match="`y` must be labels that the model knows"):
        model.partial_fit(X, np.where(Y > 0, "up", "other"))


def test_partial_fit_goes_on_after_fit_and_says_why_it_cannot() -> None:
    model = DeepEnsembleRegressor(2, **SETTINGS).fit(X, Y)
    before = model.predict(X)
    assert not np.array_equal(model.partial_fit(X, Y).predict(X), before)
    with pytest.raises(ValueError, match="`ensemble` must know how it was trained"):
        pickle.loads(pickle.dumps(model)).partial_fit(X, Y)
    with pytest.raises(ValueError, match="X has 2 features"):
        model.partial_fit(X[:, :2], Y)
