"""Heads in estimators: counts of any size, attributes with typos, heads given to `load`, targets of another kind."""

from __future__ import annotations

from functools import partial
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch.distributions import HalfNormal, Laplace, Normal

from deep_ensembles import (
    DeepEnsembleClassifier,
    DeepEnsembleRegressor,
    ModelFileError,
    NegativeBinomial,
    Ordinal,
    Poisson,
    StudentT,
    ZeroInflated,
    crps,
    energy_score,
    fit_ensemble,
    load,
    log_score,
    mlp,
    pinball,
    squared_error,
)
from deep_ensembles.heads import Laplace as LaplaceHead

X = np.random.default_rng(0).normal(size=(300, 3))


@pytest.mark.parametrize("head", [Poisson(), NegativeBinomial(), ZeroInflated()], ids=lambda head: type(head).__name__)
@pytest.mark.parametrize("mean", [2.0, 3000.0])
def test_counts_of_any_size_are_learnt(head: Any, mean: float) -> None:
    rng = np.random.default_rng(1)
    y = rng.poisson(mean * np.exp(0.5 * X[:, 0]))
    model = DeepEnsembleRegressor(2, preset="paper", head=head, max_epochs=100, random_state=0).fit(X, y)
    assert model.score(X, y) > (0.9 if mean > 100 else 0.3)
    assert model.head == head  # what was given stays; the ensemble's knows the mean


def test_an_offset_of_ones_own_stays() -> None:
    model = DeepEnsembleRegressor(1, head=Poisson(offset=1.5), max_epochs=1, random_state=0).fit(X, np.full(300, 1000))
    assert model.ensemble_.head == Poisson(offset=1.5)


class Own:
    kind: ClassVar[str] = "numbers"
    scaling: ClassVar[str] = "location-scale"
    point: ClassVar[str] = "mean"

    def __init__(self, family: Any = Laplace, **attributes: Any) -> None:
        self.family = family
        vars(self).update(attributes)

    def raw_size(self, n_targets: int) -> int:
        return 2 * n_targets

    def __call__(self, raw: torch.Tensor) -> Any:
        scale = torch.nn.functional.softplus(raw[..., 1]) + 0.01
        return self.family(raw[..., 0], scale) if self.family is not HalfNormal else HalfNormal(scale)


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"scaling": "location_scale"}, "`head.scaling` must be one of 'location-scale', 'scale', 'none', None, got"),
        ({"point": "average"}, "`head.point` must be one of 'mean', 'median', got 'average'"),
        ({"point": "mode"}, "`head.point` must be one of 'mean', 'median', got 'mode'"),
        ({"kind": "number"}, "`head.kind` must be one of 'numbers', 'counts'"),
        ({"family": HalfNormal}, '`head.scaling` must be one of "scale" or "none" where values have a bound'),
    ],
    ids=lambda value: str(value)[:30],
)
def test_attributes_of_a_head_are_checked(attributes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        fit_ensemble(partial(mlp, 3, 2), X, X[:, 0], head=Own(**attributes), max_epochs=1)


def test_a_head_that_is_loaded_must_be_the_one_that_was_trained(tmp_path: Any) -> None:
    DeepEnsembleRegressor(1, max_epochs=1, random_state=0).fit(X, X[:, 0]).save(tmp_path / "normal")
    with pytest.raises(ModelFileError, match="the head is not the one that was trained"):
        load(tmp_path / "normal", head=LaplaceHead())
    head = Own()
    DeepEnsembleRegressor(1, head=head, max_epochs=1, random_state=0).fit(X, X[:, 0]).save(tmp_path / "own")
    assert load(tmp_path / "own", head=Own()).predict(X).shape == (300,)
    with pytest.raises(ModelFileError, match="pass `load"):
        load(tmp_path / "own")


@pytest.mark.parametrize("rule", [log_score, crps, squared_error, pinball, energy_score], ids=lambda rule: rule.__name__)
def test_rules_refuse_targets_of_another_shape_and_take_arrays(rule: Any) -> None:
    prediction, y = Normal(torch.zeros(4), torch.ones(4)), np.arange(4.0, dtype=np.float32)
    assert rule(prediction, y).shape == (4,)
    for wrong in (y[:, None], y[:3]):
        with pytest.raises(ValueError, match="`target` must be of the prediction's shape \\[4\\]"):
            rule(prediction, wrong)


def test_the_order_of_text_labels_is_said() -> None:
    labels = np.array(["low", "mid", "high"])[np.digitize(X[:, 0], [-0.5, 0.5])]
    with pytest.warns(UserWarning, match="order of sorted labels, high < low < mid"):
        DeepEnsembleClassifier(1, head=Ordinal(), max_epochs=1, random_state=0).fit(X, labels)


def test_censored_times_are_no_labels() -> None:
    times = np.array(list(zip([True] * 300, np.ones(300), strict=True)), dtype=[("event", bool), ("time", float)])
    with pytest.raises(ValueError, match="for censored times use `DeepEnsembleRegressor`"):
        DeepEnsembleClassifier().fit(X, times)


def test_a_class_or_a_name_is_no_head() -> None:
    for wrong in (StudentT, "student_t"):
        with pytest.raises(ValueError, match='`head` must be "auto", None or an object such as `StudentT\\(\\)`'):
            DeepEnsembleRegressor(head=wrong).fit(X, X[:, 0])
