"""Bad input gets a clear error or the right answer."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

from deep_ensembles import (
    Categorical,
    Checkpoint,
    Cosine,
    DeepEnsembleClassifier,
    DeepEnsembleRegressor,
    FastGradientSign,
    Normal,
    RandomSign,
    Subsample,
    brier,
    crps,
    fit_ensemble,
    mlp,
)

X = np.random.default_rng(0).normal(size=(60, 3))
Y = X[:, 0] * 2 + 1


def quick(**settings: Any) -> DeepEnsembleRegressor:
    return DeepEnsembleRegressor(**({"n_members": 2, "max_epochs": 3, "random_state": 0} | settings))


@pytest.mark.parametrize(
    ("inputs", "targets", "message"),
    [
        (np.where(X > 2, np.nan, X), Y, "NaN"),
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
        ({"scoring_rule": "nll"}, "`scoring_rule` must be a function, got 'nll'"),
        ({"perturbation": "fgsm"}, "`perturbation` must be a function or None, got 'fgsm'"),
        ({"head": "normal"}, "`head` must be a function or None, got 'normal'"),
        ({"schedule": "cosine"}, "`schedule` must be an object to call, got 'cosine'"),
        ({"optimizer": "adam"}, "`optimizer` must be an object to call, got 'adam'"),
        ({"resampling": "bootstrap"}, "`resampling` must be None or an object, got 'bootstrap'"),
        ({"checkpoint": "state"}, "`checkpoint` must be None or a `Checkpoint.path.`, got 'state'"),
        ({"batch_norm": "yes"}, "`batch_norm` must be True or False, got 'yes'"),
        ({"verbose": "x"}, "`verbose` must be an integer ≥ 0, got 'x'"),
        ({"patience": 0}, "`patience` must be an integer ≥ 1, got 0"),
    ],
)
def test_settings(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        quick(**settings).fit(X, Y)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: FastGradientSign(-1), "`epsilon` must be a number ≥ 0, got -1"),
        (lambda: RandomSign(float("inf")), "`epsilon` must be a number ≥ 0, got inf"),
        (lambda: Normal(min_variance=0), "`min_variance` must be a number > 0, got 0"),
        (lambda: Cosine(warmup=2), "`warmup` must be a number ≥ 0 and ≤ 1, got 2"),
        (lambda: Subsample(0), "`fraction` must be a number > 0 and ≤ 1, got 0"),
        (lambda: Checkpoint("x", every_epochs=0), "`every_epochs` must be an integer ≥ 1, got 0"),
        (lambda: Checkpoint(3), "`path` must be a file name, got 3"),
    ],
)
def test_strategies(make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


def test_one_row_has_an_answer() -> None:
    model = quick(max_epochs=50).fit(X[:1], Y[:1])
    assert model.predict(X[:1]) == pytest.approx(Y[:1], abs=0.5)
    with pytest.raises(ValueError, match="at least 2 rows are needed to hold some out"):
        quick(early_stopping=True).fit(X[:1], Y[:1])


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
    np.testing.assert_allclose(mean, 7, atol=0.3)
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


class TestThePyTorchDoor:
    network = partial(mlp, 3, 2)

    def test_lengths_and_shapes(self) -> None:
        x, y = torch.from_numpy(X), torch.from_numpy(Y)
        with pytest.raises(ValueError, match=r"`targets` must be as long as `inputs` \(60 rows\), got 59 rows"):
            fit_ensemble(self.network, x, y[:-1])
        with pytest.raises(ValueError, match="`inputs` must be of shape"):
            fit_ensemble(self.network, x[:, 0], y)
        with pytest.raises(ValueError, match="`inputs` must be at least one row"):
            fit_ensemble(self.network, x[:0], y[:0])
        with pytest.raises(ValueError, match="`targets` must be given"):
            fit_ensemble(self.network, x)
        with pytest.raises(TypeError, match="`inputs` must be numbers"):
            fit_ensemble(self.network, np.array([["a"]]), y)

    def test_not_finite(self) -> None:
        for at, message in ((0, "`inputs` must be finite"), (1, "`targets` must be finite")):
            arrays = [torch.from_numpy(X.copy()), torch.from_numpy(Y.copy())]
            arrays[at][0] = torch.nan
            with pytest.raises(ValueError, match=message):
                fit_ensemble(self.network, *arrays)

    def test_unknown_setting(self) -> None:
        with pytest.raises(TypeError, match="unknown setting `epochs`; there are max_epochs"):
            fit_ensemble(self.network, X, Y, epochs=3)

    def test_classes_that_the_network_has_no_output_for(self) -> None:
        with pytest.raises(ValueError, match="classes from 0 to 1, as many as the network has outputs, got 2"):
            fit_ensemble(self.network, X, np.arange(60) % 3)
        with pytest.raises(ValueError, match="class numbers"):
            fit_ensemble(self.network, X, Y, head=Categorical())
        with pytest.raises(ValueError, match="class numbers"):
            fit_ensemble(self.network, X, np.arange(60) % 3 - 1)

    def test_a_network_with_too_few_outputs(self) -> None:
        with pytest.raises(ValueError, match="2 outputs per target"):
            fit_ensemble(partial(mlp, 3, 1), X, Y)

    def test_rules_that_do_not_fit_the_head(self) -> None:
        with pytest.raises(TypeError, match="`brier` needs a prediction over classes"):
            fit_ensemble(self.network, X, Y, scoring_rule=brier)
        with pytest.raises(TypeError, match="`crps` needs a continuous prediction"):
            fit_ensemble(self.network, X, np.arange(60) % 2, scoring_rule=crps)

    def test_inputs_of_another_shape_at_prediction(self) -> None:
        ensemble = fit_ensemble(self.network, X, Y, max_epochs=1)
        with pytest.raises(ValueError, match=r"`inputs` must have shape \['n', 3\], got \[60, 2\]"):
            ensemble(X[:, :2])
        assert ensemble(X[:0]).mean.shape == (0,)
