"""Estimators spell out the settings of training, which `Recipe` describes: the same names, types, defaults and meaning."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest

from deep_ensembles import (
    AdamW,
    Bootstrap,
    Checkpoint,
    ComplementaryFolds,
    Cosine,
    DeepEnsembleClassifier,
    DeepEnsembleRegressor,
    Recipe,
)

FIELDS = Recipe.__dataclass_fields__
# Estimators need neither streamed data nor a choice of how members are trained.
NOT_OFFERED = {"max_restarts", "members", "num_workers"}
OTHER_VALUES: dict[str, Any] = {
    "max_epochs": 3, "batch_size": 7, "learning_rate": 0.5, "schedule": Cosine(), "optimizer": AdamW(), "weight_decay": 0.1,
    "clip_norm": 2.0, "early_stopping": True, "validation_fraction": 0.3, "patience": 4, "folds": ComplementaryFolds(2),
    "time_limit": 60.0, "resampling": Bootstrap(), "checkpoint": Checkpoint("state"), "device": "cpu", "verbose": 1,
    "standardize_inputs": False, "standardize_targets": False,
}  # fmt: skip

both = pytest.mark.parametrize("estimator", [DeepEnsembleRegressor, DeepEnsembleClassifier])


@both
def test_names_types_and_defaults_are_those_of_a_recipe(estimator: type) -> None:
    parameters, recipe = inspect.signature(estimator).parameters, Recipe()
    assert set(FIELDS) - set(parameters) == NOT_OFFERED
    for name in set(FIELDS) - NOT_OFFERED:
        assert parameters[name].default == getattr(recipe, name), name
        assert parameters[name].annotation == FIELDS[name].type, name


@both
def test_every_setting_reaches_the_training(estimator: type, monkeypatch: pytest.MonkeyPatch) -> None:
    received: dict[str, Any] = {}

    class Received(Exception):
        pass

    def fit_ensemble(*arrays: Any, **settings: Any) -> None:
        received.update(settings)
        raise Received

    assert set(OTHER_VALUES) == set(FIELDS) - NOT_OFFERED
    monkeypatch.setattr("deep_ensembles.estimators._deep_ensemble.fit_ensemble", fit_ensemble)
    with pytest.raises(Received):
        estimator(**OTHER_VALUES).fit(np.eye(4), [0, 1, 0, 1])
    assert {name: received[name] for name in OTHER_VALUES} == OTHER_VALUES


def test_both_estimators_take_the_same_parameters() -> None:
    numbers, classes = (inspect.signature(kind).parameters for kind in (DeepEnsembleRegressor, DeepEnsembleClassifier))
    assert {name: value for name, value in classes.items() if name != "class_weight"} == dict(numbers)


@both
def test_every_parameter_is_kept_as_it_is(estimator: type) -> None:
    values = {name: object() for name in inspect.signature(estimator).parameters}
    model = estimator(**values)
    assert vars(model) == values == model.get_params(deep=False)


def test_the_documentation_leads_to_the_recipe() -> None:
    assert "max_epochs … verbose: see `Recipe`" in (DeepEnsembleRegressor.__doc__ or "")
    assert "others: as for `DeepEnsembleRegressor`" in (DeepEnsembleClassifier.__doc__ or "")
    described = set(inspect.signature(DeepEnsembleRegressor).parameters) - set(FIELDS)
    assert all(name in (DeepEnsembleRegressor.__doc__ or "") for name in described)
    assert all(name in (Recipe.__doc__ or "") for name in FIELDS)
