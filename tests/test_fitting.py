"""The PyTorch door: bad arrays, networks and folds get a clear error."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch
from torch import nn

from deep_ensembles import (
    Adam,
    Categorical,
    Cosine,
    FastGradientSign,
    Normal,
    TrainingDiverged,
    brier,
    cross_validate,
    crps,
    fit_ensemble,
    mlp,
)

X = np.random.default_rng(0).normal(size=(60, 3))
Y = X[:, 0] * 2 + 1
NETWORK = partial(mlp, 3, 2)


def test_lengths_and_shapes() -> None:
    x, y = torch.from_numpy(X), torch.from_numpy(Y)
    with pytest.raises(ValueError, match="`targets` must be as long as `inputs`, 60 rows, got 59"):
        fit_ensemble(NETWORK, x, y[:-1])
    with pytest.raises(ValueError, match="`inputs` must be of shape"):
        fit_ensemble(NETWORK, x[:, 0], y)
    with pytest.raises(ValueError, match="`inputs` must be at least one row"):
        fit_ensemble(NETWORK, x[:0], y[:0])
    with pytest.raises(ValueError, match="`targets` must be given"):
        fit_ensemble(NETWORK, x)
    with pytest.raises(TypeError, match="`inputs` must be numbers"):
        fit_ensemble(NETWORK, np.array([["a"]]), y)


def test_not_finite() -> None:
    for at, message in ((0, "`inputs` must be finite"), (1, "`targets` must be finite")):
        arrays = [torch.from_numpy(X.copy()), torch.from_numpy(Y.copy())]
        arrays[at][0] = torch.nan
        with pytest.raises(ValueError, match=message):
            fit_ensemble(NETWORK, *arrays)


def test_unknown_setting() -> None:
    with pytest.raises(TypeError, match="unknown setting `epochs`; there are max_epochs"):
        fit_ensemble(NETWORK, X, Y, epochs=3)


def test_classes_that_the_network_has_no_output_for() -> None:
    with pytest.raises(ValueError, match="class numbers from 0 to 1 for which the network has outputs, got 2 in row 2"):
        fit_ensemble(NETWORK, X, np.arange(60) % 3)
    with pytest.raises(ValueError, match="class numbers"):
        fit_ensemble(NETWORK, X, Y, head=Categorical())
    with pytest.raises(ValueError, match="class numbers"):
        fit_ensemble(NETWORK, X, np.arange(60) % 3 - 1)


def test_a_network_with_too_few_outputs() -> None:
    with pytest.raises(ValueError, match="2 outputs per target"):
        fit_ensemble(partial(mlp, 3, 1), X, Y)


def test_rules_that_do_not_fit_the_head() -> None:
    with pytest.raises(TypeError, match="`brier` needs a prediction over classes"):
        fit_ensemble(NETWORK, X, Y, scoring_rule=brier)
    with pytest.raises(TypeError, match="`crps` needs a continuous prediction"):
        fit_ensemble(NETWORK, X, np.arange(60) % 2, scoring_rule=crps)


def test_inputs_of_another_shape_at_prediction() -> None:
    ensemble = fit_ensemble(NETWORK, X, Y, max_epochs=1)
    with pytest.raises(ValueError, match=r"`inputs` must have shape \['n', 3\], got \[60, 2\]"):
        ensemble(X[:, :2])
    assert ensemble(X[:0]).mean.shape == (0,)


def test_outputs_that_do_not_fit() -> None:
    with pytest.raises(ValueError, match="raw outputs do not fit the head"):
        fit_ensemble(partial(mlp, 3, 6), X, np.stack([Y, Y], axis=1))
    with pytest.raises(ValueError, match=r"must return \[batch, raw outputs\]"):
        fit_ensemble(lambda: nn.Sequential(nn.Linear(3, 1), nn.Flatten(0)), X, Y)


def test_a_class_that_only_held_out_rows_have() -> None:
    labels = np.zeros(60, dtype=int)
    labels[5] = 3
    with pytest.raises(ValueError, match="class numbers from 0 to 1"):
        fit_ensemble(NETWORK, X, labels, early_stopping=True, validation_fraction=0.9, random_state=0)


def test_folds() -> None:
    assert len(cross_validate(NETWORK, X, Y, cv=np.int64(3), n_members=1, max_epochs=1).ensembles) == 3
    mask = np.arange(60) < 20
    assert len(cross_validate(NETWORK, X, Y, cv=[(mask, ~mask)], n_members=1, max_epochs=1).folds[0][1]) == 40
    for bad in ([(np.arange(5), np.array([60]))], [(np.array([-1]), np.arange(3))]):
        with pytest.raises(ValueError, match="row numbers from 0 to 59"):
            cross_validate(NETWORK, X, Y, cv=bad)


@pytest.mark.parametrize("rate", [1e12, 1e15, 1e300])
def test_a_network_that_exploded_in_its_last_epoch_is_not_returned(rate: float) -> None:
    try:
        settings = {"learning_rate": rate, "max_epochs": 1, "batch_size": 1000, "random_state": 0}
        ensemble = fit_ensemble(partial(mlp, 3, 2, (20, 20, 20)), X, Y, **settings)
    except TrainingDiverged:
        return
    assert ensemble(X).mean.isfinite().all()
    assert ensemble(X).variance.isfinite().all()


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"members": "foo"}, "`members` must be None, `Stacked` or `Looped`"),
        ({"optimizer": Adam}, "`optimizer` must be an object such as `Adam\\(\\)`"),
        ({"schedule": Cosine}, "`schedule` must be an object such as `Cosine\\(\\)`"),
        ({"head": Normal}, "`head` must be a function or an object"),
        ({"perturbation": FastGradientSign}, "`perturbation` must be a function or an object"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_a_class_instead_of_an_object_is_refused(settings, said):
    with pytest.raises(ValueError, match=said):
        fit_ensemble(lambda: nn.Linear(4, 2), torch.randn(9, 4), torch.randn(9), max_epochs=1, **settings)


def test_a_network_instead_of_a_factory_is_refused():
    with pytest.raises(TypeError, match="write `lambda: YourModule"):
        fit_ensemble(nn.Linear(4, 2), torch.randn(9, 4), torch.randn(9), max_epochs=1)
