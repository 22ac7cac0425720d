"""Rows that members hold out, and recalibrations that travel with a model."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer

from deep_ensembles import (
    ComplementaryFolds,
    DeepEnsembleClassifier,
    DeepEnsembleRegressor,
    Ensemble,
    ModelFileError,
    fit_ensemble,
    load,
    mlp,
)
from deep_ensembles.metrics import interval_coverage
from deep_ensembles.recalibration import Conformal, Recalibrated, choose, conformal, isotonic, temperature, variance_scaling
from deep_ensembles.training.recipe import Recipe, plan_runs


def noisy(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    x = generator.normal(size=(n, 3))
    return x, x[:, 0] + 0.5 * generator.normal(size=n)


def fitted(n_members: int = 5, n: int = 120, **settings: object) -> tuple[Ensemble, np.ndarray, np.ndarray]:
    x, y = noisy(n)
    settings = {"max_epochs": 5, "folds": ComplementaryFolds(), "random_state": 0, **settings}
    return fit_ensemble(partial(mlp, 3, 2, (8,)), x, y, n_members=n_members, **settings), x, y


@given(st.integers(2, 7), st.integers(20, 60), st.integers(0, 5))
def test_folds_are_complementary(n_members: int, n: int, seed: int) -> None:
    rows = np.arange(3, n + 3)
    folds = ComplementaryFolds()(rows, n_members, np.random.default_rng(seed))
    assert len(folds) == min(5, n_members)
    np.testing.assert_array_equal(np.sort(np.concatenate(folds)), rows)
    assert max(map(len, folds)) - min(map(len, folds)) <= 1


@given(st.lists(st.integers(0, 9), min_size=30, max_size=60), st.integers(0, 5))
def test_a_group_is_held_out_as_a_whole(groups: list[int], seed: int) -> None:
    names = np.array([*groups, 0, 1, 2, 3, 4])
    folds = ComplementaryFolds(groups=names)(np.arange(len(names)), 5, np.random.default_rng(seed))
    assert sum(len(np.unique(names[fold])) for fold in folds) == len(np.unique(names))


def test_classes_have_the_same_share_in_each_fold() -> None:
    classes = np.repeat([0, 1], [90, 10])
    folds = ComplementaryFolds()(np.arange(100), 5, np.random.default_rng(0), classes)
    assert [int(classes[fold].sum()) for fold in folds] == [2, 2, 2, 2, 2]


def test_a_run_trains_on_all_rows_but_its_fold() -> None:
    recipe = Recipe(folds=ComplementaryFolds(), early_stopping=True)
    runs = plan_runs(np.arange(50), list(range(5)), recipe)
    for run in runs:
        np.testing.assert_array_equal(np.sort(np.concatenate([run.rows, run.validation])), np.arange(50))
        assert len(run.validation) == 10


@pytest.mark.parametrize(("folds", "members"), [(6, 5), (2, 1), (None, 1)])
def test_more_folds_than_members_are_refused(folds: int | None, members: int) -> None:
    with pytest.raises(ValueError, match="`n_folds` must be from 2 to the number of members"):
        fitted(members, folds=ComplementaryFolds(folds))


def test_fewer_groups_than_folds_are_refused() -> None:
    with pytest.raises(ValueError, match=r"`n_folds` must be at most the number of rows or groups \(3\), got 5"):
        fitted(folds=ComplementaryFolds(groups=np.arange(120) % 3))


@pytest.mark.parametrize("n_members", [2, 5, 10])
def test_a_row_is_predicted_by_members_that_never_saw_it(n_members: int) -> None:
    ensemble, x, _ = fitted(n_members)
    recipe = Recipe(folds=ComplementaryFolds())
    runs = plan_runs(np.arange(len(x)), ensemble.seeds, recipe)
    mixture, out_of_fold = ensemble.mixture(x), ensemble.out_of_fold(x)
    assert out_of_fold.n_members == n_members // min(5, n_members)
    for row in range(len(x)):
        unseen = [member for member, run in enumerate(runs) if row not in run.rows]
        torch.testing.assert_close(out_of_fold.components.mean[:, row], mixture.components.mean[unseen, row])


def test_out_of_fold_needs_folds_and_the_same_rows() -> None:
    with pytest.raises(ValueError, match="train with `folds=ComplementaryFolds"):
        fitted(folds=None)[0].out_of_fold(noisy(120)[0])
    ensemble, x, _ = fitted()
    with pytest.raises(ValueError, match="`inputs` must be the 120 training rows"):
        ensemble.out_of_fold(x[:50])


@pytest.mark.parametrize("fit", [variance_scaling, isotonic, conformal, choose])
def test_a_recalibration_travels_with_the_model(fit: object, tmp_path: Path) -> None:
    ensemble, _, _ = fitted()
    x, y = noisy(200, 1)
    recalibrated = ensemble.recalibrated(x, torch.from_numpy(y), fit)
    recalibrated.save(tmp_path / "model")
    again = load(tmp_path / "model")
    assert again.recalibration == recalibrated.recalibration
    level = torch.tensor(0.9)
    torch.testing.assert_close(again(x).icdf(level), recalibrated(x).icdf(level), rtol=0, atol=0)
    joined = torch.cat([batch.mean for batch in again.batches(x, 64)])
    # Moments after isotonic recalibration are found in single precision, which rounds by the batch.
    torch.testing.assert_close(joined, recalibrated(x).mean, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(again.mixture(x).mean, ensemble(x).mean)
    assert again.subset(2).recalibration is None


def test_a_users_own_recalibration_is_said_to_be_missing(tmp_path: Path) -> None:
    ensemble, x, y = fitted()
    ensemble.recalibrated(x, y, lambda distribution, target: lambda prediction: prediction).save(tmp_path / "model")
    with pytest.raises(ModelFileError, match="your own recalibration"):
        load(tmp_path / "model")


def test_models_saved_before_there_were_recalibrations_load(tmp_path: Path) -> None:
    ensemble, x, _ = fitted()
    config = ensemble.config()
    del config["recalibration"]
    again = Ensemble.from_file(config, ensemble.tensors(), None, None, torch.device("cpu"))
    torch.testing.assert_close(again(x).mean, ensemble(x).mean)


def test_an_estimator_recalibrates_on_the_rows_its_members_hold_out(tmp_path: Path) -> None:
    x, y = noisy(400)
    model = DeepEnsembleRegressor(max_epochs=60, recalibration=conformal, random_state=0).fit(x, y)
    assert isinstance(model.ensemble_.recalibration, Conformal)
    assert len(model.ensemble_.recalibration.scores) == 400
    assert isinstance(model.predict_distribution(x), Recalibrated)
    new_x, new_y = noisy(3000, 1)
    low, high = model.predict_interval(new_x, 0.9).T
    assert 0.88 <= float(((low <= new_y) & (new_y <= high)).mean()) <= 0.94
    model.save(tmp_path / "model")
    np.testing.assert_array_equal(load(tmp_path / "model").predict_interval(x), model.predict_interval(x))
    assert clone(model).recalibration is conformal


def test_held_out_rows_make_a_sure_model_honest() -> None:
    x, y = noisy(60)
    settings = {"hidden_sizes": (50, 50), "max_epochs": 60, "batch_size": 20, "random_state": 0}
    model = DeepEnsembleRegressor(1, preset="paper", **settings).fit(x, y)
    new_x, new_y = noisy(2000, 1)
    before = interval_coverage(model.predict_distribution(new_x), torch.from_numpy(new_y), 0.9)
    held_x, held_y = noisy(500, 2)
    after = interval_coverage(
        model.recalibrate(held_x, held_y, conformal).predict_distribution(new_x), torch.from_numpy(new_y), 0.9
    )
    assert before < 0.8
    assert 0.86 < after < 0.94


def test_a_classifier_recalibrates_with_its_own_labels() -> None:
    X, codes = load_breast_cancer(return_X_y=True)
    y = np.array(["no", "yes"])[codes]
    model = DeepEnsembleClassifier(max_epochs=30, recalibration=temperature, random_state=0).fit(X[:300], y[:300])
    assert model.ensemble_.recalibration.temperature > 0
    model.recalibrate(X[300:], y[300:], temperature)
    np.testing.assert_allclose(model.predict_proba(X).sum(1), 1)
    with pytest.raises(ValueError, match=r"`y` must be labels that the model knows, got \['perhaps'\]"):
        model.recalibrate(X[:20], np.array(["perhaps"] * 20))


def test_one_member_has_no_rows_to_recalibrate_on() -> None:
    with pytest.raises(ValueError, match="`n_members` must be at least 2 for members to hold rows out"):
        DeepEnsembleRegressor(1, recalibration=choose).fit(*noisy(50))


def test_time_that_is_up_ends_the_training() -> None:
    started = time.monotonic()
    ensemble, x, _ = fitted(max_epochs=100_000, time_limit=0.5)
    assert time.monotonic() - started < 60
    epochs = np.isfinite(ensemble.history[0]).sum(1)
    assert 1 <= epochs.min() == epochs.max() < 100_000
    assert bool(ensemble(x).mean.isfinite().all())
