"""Right-censored times, as scikit-survival gives them, through every door."""

from __future__ import annotations

import json
from functools import partial

import numpy as np
import pytest
import torch
from sklearn.base import clone

import deep_ensembles
from deep_ensembles import DeepEnsembleRegressor, Looped, censored, cross_validate, crps, fit_ensemble, log_score, mlp
from deep_ensembles._files import ModelFileError, write_model
from deep_ensembles._splits import ComplementaryFolds
from deep_ensembles.heads import (
    Bernoulli,
    Categorical,
    Gamma,
    GaussianMixture,
    LogNormal,
    MultivariateNormal,
    NegativeBinomial,
    Normal,
    Point,
    Quantiles,
    StudentT,
)
from deep_ensembles.metrics import censored_negative_log_likelihood, concordance_index, interval_coverage
from deep_ensembles.perturbations import FastGradientSign, VirtualAdversarial
from deep_ensembles.recalibration import choose, isotonic

N = 400
SURVIVAL = [("event", bool), ("time", float)]


def records(time: np.ndarray, event: np.ndarray, dtype: list | None = None) -> np.ndarray:
    array = np.empty(len(time), dtype=SURVIVAL if dtype is None else dtype)
    for name in array.dtype.names:
        array[name] = event if array.dtype[name].kind == "b" else time
    return array


def made(n_rows: int = N) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Inputs, censored targets, and what the times would have been."""
    random = np.random.default_rng(0)
    X = random.normal(size=(n_rows, 2))
    latent = 100 * np.exp(0.8 * X[:, 0] + 0.4 * random.normal(size=n_rows))
    end = random.uniform(20, 150, size=n_rows)
    return X, records(np.minimum(latent, end), latent <= end), latent


X, Y, LATENT = made()
fit = partial(fit_ensemble, head=LogNormal(), n_members=2, max_epochs=40, random_state=0)


def build(n_outputs: int = 2):
    return lambda: mlp(2, n_outputs, (20,))


def test_times_that_were_never_seen_are_predicted():
    """Without regard to censoring the longest times are underestimated, and intervals miss them."""
    model = DeepEnsembleRegressor(preset="paper", head=LogNormal(), max_epochs=60, random_state=0)
    aware, naive = clone(model).fit(X, Y), clone(model).fit(X, Y["time"])
    assert 0.4 < Y["event"].mean() < 0.7
    covered = [interval_coverage(each.predict_distribution(X), LATENT) for each in (aware, naive)]
    assert covered[0] == pytest.approx(0.9, abs=0.05)
    assert covered[1] < 0.8
    middle = np.log(aware.predict_quantiles(X, [0.5])[:, 0] / 100)
    assert np.abs(middle - 0.8 * X[:, 0]).mean() < 0.15


def test_units_are_those_of_the_times_alone():
    ensemble = fit(build(), X, Y)
    assert ensemble.standardization.target_scale.shape == (2,)
    np.testing.assert_allclose(ensemble.standardization.target_scale, Y["time"].mean(), rtol=1e-12)
    years = records(Y["time"] / 365.25, Y["event"])
    other = fit(build(), X, years)
    np.testing.assert_allclose(ensemble(X).mean, 365.25 * other(X).mean, rtol=1e-5)


def test_structured_and_plain_targets_are_the_same():
    pairs = np.stack([Y["time"], Y["event"]], axis=-1)
    expected = fit(build(), X, Y)(X).mean
    other = records(Y["time"], Y["event"], [("days", np.float64), ("died", bool)])
    for targets, rule in ((pairs, censored(log_score)), (torch.from_numpy(pairs), censored()), (other, log_score)):
        torch.testing.assert_close(fit(build(), X, targets, scoring_rule=rule)(X).mean, expected, rtol=0, atol=0)


@pytest.mark.parametrize("dtype", [np.float32, np.int32, np.uint16])
def test_times_may_be_of_any_number_type(dtype):
    whole = np.ceil(Y["time"])
    expected = fit(build(), X, records(whole, Y["event"]))(X).mean
    kept = records(whole.astype(dtype), Y["event"], [("t", dtype), ("e", bool)])
    torch.testing.assert_close(fit(build(), X, kept)(X).mean, expected, rtol=0, atol=0)


def test_all_events_are_the_usual_targets():
    everything = records(LATENT, np.ones(N, dtype=bool))
    torch.testing.assert_close(fit(build(), X, everything)(X).mean, fit(build(), X, LATENT)(X).mean, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "head", [Normal(), Gamma(), StudentT(), GaussianMixture(2), Quantiles(), NegativeBinomial()], ids=repr
)
def test_any_head_of_one_number(head):
    targets = records(np.ceil(Y["time"]), Y["event"])
    model = DeepEnsembleRegressor(2, head=head, max_epochs=30, random_state=0).fit(X, targets)
    assert model.score(X, targets) > 0.7
    assert np.isfinite(model.predict_interval(X)).all()


@pytest.mark.parametrize(
    "settings",
    [
        {"early_stopping": True},
        {"folds": ComplementaryFolds()},
        {"perturbation": FastGradientSign(0.01)},
        {"perturbation": VirtualAdversarial(0.1)},
        {"standardize_targets": False, "max_epochs": 100},
        {"sample_weight": np.linspace(0, 2, N)},
        {"members": Looped},
    ],
    ids=repr,
)
def test_every_way_of_training(settings):
    ensemble = fit(build(), X, Y, **settings)
    assert concordance_index(ensemble(X), Y["time"], Y["event"]) > 0.75
    if "folds" in settings:
        assert concordance_index(ensemble.out_of_fold(X), Y["time"], Y["event"]) > 0.75


def test_streamed_rows():
    class Rows(torch.utils.data.Dataset):
        def __len__(self):
            return N

        def __getitem__(self, row):
            return X[row], np.array([Y["time"][row], Y["event"][row]])

    ensemble = fit(build(), Rows(), scoring_rule=censored(log_score))
    assert concordance_index(ensemble(X), Y["time"], Y["event"]) > 0.75


def test_cross_validation():
    folds = cross_validate(build(), X, Y, head=LogNormal(), cv=3, n_members=2, max_epochs=40, random_state=0)
    assert concordance_index(folds.distribution, Y["time"], Y["event"]) > 0.75
    constant = torch.distributions.LogNormal(torch.full((N,), np.log(80.0)), torch.ones(N))
    scores = [censored_negative_log_likelihood(each, Y["time"], Y["event"]) for each in (folds.distribution, constant)]
    assert scores[0] < scores[1]


def test_score_is_the_concordance_of_predictions():
    model = DeepEnsembleRegressor(2, head=LogNormal(), max_epochs=20, random_state=0).fit(X, Y)
    assert model.score(X, Y) == concordance_index(-model.predict(X), Y["time"], Y["event"])
    assert model.score(X, LATENT) < 1  # R² where all times are known
    assert model.recalibrate(X, LATENT, isotonic).ensemble_.recalibration is not None
    assert 0.5 < concordance_index(model.predict_distribution(X), Y["time"], Y["event"]) < 1


def test_model_files(tmp_path):
    model = DeepEnsembleRegressor(2, head=LogNormal(), scoring_rule=censored(log_score), max_epochs=3, random_state=0).fit(
        X, Y
    )
    model.save(tmp_path / "model")
    loaded = deep_ensembles.load(tmp_path / "model")
    assert loaded.scoring_rule == censored(log_score)
    np.testing.assert_array_equal(loaded.predict(X), model.predict(X))
    named = json.loads((tmp_path / "model" / "config.json").read_text())["parameters"]["scoring_rule"]
    assert named == {"name": "scoring.Censored", "arguments": {"rule": {"name": "scoring.log_score"}}}


def test_a_file_that_names_another_rule_is_refused(tmp_path):
    model = DeepEnsembleRegressor(1, scoring_rule=censored(log_score), max_epochs=1, random_state=0).fit(X, Y)
    config = {"kind": "DeepEnsembleRegressor", "parameters": {"scoring_rule": {"name": "scoring.Censored", "arguments": {}}}}
    config |= {"fitted": {"n_features_in_": 2, "n_outputs_": 1}, "ensemble": model.ensemble_.config()}
    write_model(tmp_path / "model", config, model.ensemble_.tensors())
    with pytest.raises(ModelFileError):
        deep_ensembles.load(tmp_path / "model")


def changed(field: str, value: float, row: int = 3) -> np.ndarray:
    array = Y.copy()
    array[field][row] = value
    return array


NO_EVENTS = records(Y["time"], np.zeros(N, dtype=bool))
FORM = r"one row of a flag \(event\) and a number \(time\) each"


@pytest.mark.parametrize(
    ("targets", "settings", "message"),
    [
        (NO_EVENTS, {}, "`targets` must be times of which at least one is an event's, got '400 censored ones'"),
        (changed("time", -1.0), {}, "`targets` must be numbers above 0 for LogNormal.*, got -1 in row 3"),
        (changed("time", np.nan), {}, "`targets` must be finite times, got nan"),
        (changed("time", np.inf), {}, "`targets` must be finite times, got inf"),
        (Y[:50], {}, "`targets` must be as long as `inputs`"),
        (Y[:, None], {}, FORM),
        (records(Y["time"], Y["event"], [("a", float), ("b", float)]), {}, FORM),
        (records(Y["time"], Y["event"], [("a", bool), ("b", bool)]), {}, FORM),
        (records(Y["time"], Y["event"], [("a", bool), ("b", float), ("c", float)]), {}, FORM),
        (Y, {"head": Categorical()}, "`head` must be one of numbers for censored times, got Categorical"),
        (Y, {"head": Bernoulli()}, "`head` must be one of numbers for censored times, got Bernoulli"),
        (Y, {"head": MultivariateNormal(), "n_outputs": 5}, "`censored` needs one time per row, got MultivariateNormal"),
        (Y, {"n_outputs": 4}, "`censored` needs one time per row, got LogNormal of several targets"),
        (Y, {"head": Point(), "n_outputs": 1}, "a point prediction has no density"),
        (Y, {"scoring_rule": crps}, "`censored` takes `log_score` alone, got crps"),
        (Y["time"], {"scoring_rule": censored()}, r"`targets` must be of shape \[row, 2\] \(time, event\)"),
        (np.ones((N, 2)) * 2, {"scoring_rule": censored()}, r"`targets` must be events that are 0 or 1"),
    ],
)
def test_clear_errors_before_training(targets, settings, message):
    n_outputs = settings.get("n_outputs", 2)
    settings = {name: value for name, value in settings.items() if name != "n_outputs"}
    with pytest.raises((ValueError, TypeError, NotImplementedError), match=message):
        fit(build(n_outputs), X, targets, **settings)


@pytest.mark.parametrize(
    ("use", "message"),
    [
        (lambda model: model.fit(X, NO_EVENTS), "`y` must be times of which at least one is an event's"),
        (lambda model: model.fit(X, Y[:9]), "inconsistent numbers of samples"),
        (lambda model: model.set_params(recalibration=choose).fit(X, Y), "`recalibration` must be None for censored times"),
        (lambda model: model.set_params(head=Categorical()).fit(X, Y), "`head` must be one of numbers"),
        (lambda model: model.fit(X, Y).recalibrate(X, Y), "`y` must be times that are all known, got 'censored ones'"),
        (lambda model: model.fit(X, np.stack([LATENT] * 2, 1)).report(X, Y), "`y` must be 2 targets per row, got 'censored"),
        (lambda model: model.fit(X, Y).score(X, Y, np.ones(N)), "`sample_weight` must be None for censored times"),
    ],
)
def test_clear_errors_of_the_estimator(use, message):
    with pytest.raises(ValueError, match=message):
        use(DeepEnsembleRegressor(1, max_epochs=1, random_state=0))
