"""Estimators spell out the settings of training, which `Recipe` describes: the same names and meaning; "auto" by default."""

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
# Estimators need neither streamed data nor a choice of how members are trained, and have `warm_start` to go on.
NOT_OFFERED = {"max_restarts", "members", "num_workers", "resumable"}
OTHER_VALUES: dict[str, Any] = {
    "max_epochs": 3, "batch_size": 7, "drop_last": False, "averaging": 3.0,
    "learning_rate": 0.5, "schedule": Cosine(), "optimizer": AdamW(), "weight_decay": 0.1,
    "clip_norm": 2.0, "early_stopping": True, "validation_fraction": 0.3, "patience": 4, "patience_factor": 2.0,
    "folds": ComplementaryFolds(2),
    "time_limit": 60.0, "resampling": Bootstrap(), "checkpoint": Checkpoint("state"), "device": "cpu", "verbose": 1,
    "standardize_inputs": False, "standardize_targets": False, "precision": "bf16",
}  # fmt: skip

both = pytest.mark.parametrize("estimator", [DeepEnsembleRegressor, DeepEnsembleClassifier])


@both
def test_names_are_those_of_a_recipe_and_the_data_decide_by_default(estimator: type) -> None:
    parameters = inspect.signature(estimator).parameters
    assert set(FIELDS) - set(parameters) == NOT_OFFERED
    given = {name: parameter.default for name, parameter in parameters.items() if parameter.default != "auto"}
    assert given.pop("class_weight", None) is None
    assert given == {"preset": None, "effort": "default", "time_limit": None, "checkpoint": None, "random_state": None,
                     "verbose": 0, "execution": None, "warm_start": False}  # fmt: skip


@both
@pytest.mark.parametrize("preset", [None, "paper"])
def test_every_setting_reaches_the_training(estimator: type, preset: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    received: dict[str, Any] = {}

    class Received(Exception):
        pass

    def fit_ensemble(*arrays: Any, **settings: Any) -> None:
        received.update(settings)
        raise Received

    assert set(OTHER_VALUES) == set(FIELDS) - NOT_OFFERED
    monkeypatch.setattr("deep_ensembles.selection.fit_ensemble", fit_ensemble)
    with pytest.raises(Received):
        estimator(preset=preset, **OTHER_VALUES).fit(np.eye(4), [0, 1, 0, 1])
    assert 59 < received["time_limit"] <= 60  # what is left of it
    assert {name: received[name] for name in OTHER_VALUES} == OTHER_VALUES | {"time_limit": received["time_limit"]}


def test_none_is_off() -> None:
    off = {"averaging": None, "clip_norm": None, "recalibration": None, "folds": None, "perturbation": None}
    x = np.random.default_rng(0).normal(size=(40, 2))
    model = DeepEnsembleRegressor(2, effort="fast", max_epochs=2, random_state=0, **off).fit(x, x[:, 0])
    assert model.ensemble_.recalibration is None
    assert model.ensemble_.out_of_fold_members is None
    assert {name: model.chosen_[name] for name in ("averaging", "clip_norm", "folds", "perturbation")} == dict.fromkeys(
        ("averaging", "clip_norm", "folds", "perturbation")
    )


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
