"""Every head, from `fit` to the page: nothing is NaN, intervals stay where targets can be, and sentences hold."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from _found import found

from deep_ensembles import DeepEnsembleClassifier, DeepEnsembleRegressor, heads, load
from deep_ensembles.distributions import LogNormal, Poisson
from deep_ensembles.distributions import StudentT as StudentTFamily
from deep_ensembles.heads import GaussianMixture, LogitNormal, MultivariateNormal, Normal, Quantiles, StudentT
from deep_ensembles.mixture import Mixture
from deep_ensembles.recalibration import choose
from deep_ensembles.report import Batch, Report, evaluate
from deep_ensembles.scoring import log_score, squared_error

N_ROWS = 160
FOUND = {each.id: each.values[0] for each in found(heads)}
SETTINGS: dict[str, dict[str, Any]] = {"point": {"scoring_rule": squared_error}}
# More heads than one per file: tails so heavy that variance or mean do not exist, several targets, other bounds.
MORE: dict[str, Any] = {
    "student_t-2": StudentT(degrees_of_freedom=1.5),
    "student_t-1": StudentT(degrees_of_freedom=0.8),
    "student_t-learned": StudentT(min_degrees_of_freedom=0.5),
    "logit_normal-100": LogitNormal(0.0, 100.0),
    "gaussian_mixture-2": GaussianMixture(2),
    "quantiles-3": Quantiles((0.1, 0.5, 0.9)),
    "normal-several": Normal(),
    "multivariate_normal-1": MultivariateNormal(rank=1),
}
NAMES = [*FOUND, *MORE]
HEAVY = ("student_t-2", "student_t-1", "student_t-learned")
CLASSES = ("categorical", "ordinal", "bernoulli")
NUMBERS = [name for name in NAMES if name not in CLASSES]


def head_of(name: str) -> Any:
    return MORE[name] if name in MORE else FOUND[name]()


def made(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Inputs, and targets of the kind that the head is for."""
    rng, kind, support = np.random.default_rng(0), head_of(name).kind, str(head_of(name).support)
    x = rng.normal(size=(N_ROWS, 2))
    normal = x[:, 0] + 0.5 * rng.normal(size=N_ROWS)
    if kind == "counts":
        return x, rng.poisson(np.exp(0.5 * x[:, 0])) * (rng.uniform(size=N_ROWS) < 0.8)
    if kind == "classes":
        return x, np.digitize(normal, [-0.7, 0.7])
    if kind == "labels":
        return x, (np.stack([normal, x[:, 1], -normal], 1) > 0).astype(int)
    if name.startswith("logit_normal"):
        return x, (100 if name.endswith("100") else 1) / (1 + np.exp(-normal))
    if "GreaterThan" in support or "positive" in support.lower():
        return x, np.exp(1.5 * normal)
    if kind == "vectors" or name.endswith("several"):
        return x, np.stack([normal, normal + 0.3 * rng.normal(size=N_ROWS)], 1)
    return x, normal + (rng.standard_cauchy(N_ROWS) if name in HEAVY else 0.0)


@cache
def fitted(name: str) -> Any:
    head = head_of(name)
    kind = DeepEnsembleClassifier if head.kind in ("classes", "labels") else DeepEnsembleRegressor
    settings = {"preset": "paper", "max_epochs": 8, "hidden_sizes": (8,), "random_state": 0, **SETTINGS.get(name, {})}
    return kind(3, head=head, **settings).fit(*made(name))


def finite(values: Any) -> bool:
    return bool(np.isfinite(np.asarray(values, dtype=float)).all())


@pytest.mark.parametrize("name", NUMBERS)
def test_predictions_of_numbers(name: str) -> None:
    model, (x, y) = fitted(name), made(name)
    point = model.predict(x)
    assert point.shape == y.shape
    assert finite(point)
    again, std = model.predict(x, return_std=True)
    np.testing.assert_array_equal(again, point)
    assert not np.isnan(std).any()
    assert bool(np.isinf(std).any()) == (name in HEAVY)
    interval = model.predict_interval(x, 0.9)
    assert finite(interval)
    low, high = interval[:, 0], interval[:, 1]
    assert (low <= high).all()
    quantiles = model.predict_quantiles(x, [0.05, 0.5, 0.95])
    assert (np.diff(quantiles, axis=1) >= 0).all()
    support = model.predict_distribution(x).support
    if name.startswith("logit_normal"):
        assert (low > 0).all()
        assert (high < (100 if name.endswith("100") else 1)).all()
    elif hasattr(support, "lower_bound"):
        assert (low >= 0).all()
    if model.ensemble_.head.kind == "counts":
        np.testing.assert_array_equal(interval, np.floor(interval))


@pytest.mark.parametrize("name", CLASSES)
def test_predictions_of_classes(name: str) -> None:
    model, (x, y) = fitted(name), made(name)
    assert model.predict(x).shape == y.shape
    assert finite(model.predict_proba(x))
    assert finite(model.predict_distribution(x).epistemic)


def page_of(report: Report) -> str:
    """The page, which says nothing that no one can read."""
    text = json.dumps(report.evaluation.as_dict(), allow_nan=False)
    assert "NaN" not in text
    html = report.html
    body = html[html.index("<body>") :]
    for nonsense in ("nan", "None", "inf<", ">inf", "∞"):
        assert nonsense not in body.replace("nanm", "").replace("nant", ""), nonsense
    return body


def median_class(model: Any, x: Any) -> np.ndarray:
    """What a page scores where classes have an order; `predict` names the most probable, as scikit-learn wants it."""
    return model.classes_[model.predict_distribution(x).icdf(torch.tensor(0.5)).long().numpy()]


@pytest.mark.parametrize("name", NAMES)
def test_the_report(name: str, tmp_path: Any) -> None:
    model, (x, y) = fitted(name), made(name)
    report = model.report(x, y)
    assert report.save(tmp_path / "report.html").stat().st_size > 10_000
    body, evaluation = page_of(report), report.evaluation
    assert all(np.isfinite(score.ensemble) for score in evaluation.scores)
    point = model.predict(x)
    if model.ensemble_.head.kind == "classes" and model.ensemble_.head.point == "median":
        point = median_class(model, x)
    if y.ndim > 1:
        point, y = point[:, 0], y[:, 0]
    if name in NUMBERS:
        assert evaluation.score("MAE").ensemble == pytest.approx(np.abs(point - y).mean())
        assert f"of the predicted {model.ensemble_.head.point}," in body
        assert ("infinite" in body) == (name in HEAVY)
        assert ("Greatest standard deviation" in body) == (name not in HEAVY and len(evaluation.thresholds) > 1)
        assert ("parts-head" in body) == (name not in HEAVY)
        low, high = model.predict_interval(x)[:, :2].reshape(len(x), 2, -1)[:, :, 0].T
        inside = ((low <= y) & (y <= high)).mean()
        assert evaluation.score("90\u202f% coverage").ensemble == pytest.approx(inside)
    else:
        assert evaluation.score("Accuracy").ensemble == pytest.approx((point == y).mean())


@pytest.mark.parametrize("name", ["log_normal", "poisson", "student_t", "quantiles", "gaussian_mixture"])
def test_the_constant_is_of_the_same_family(name: str, tmp_path: Any) -> None:
    model, (x, y) = fitted(name), made(name)
    constant = model._constant(0)
    assert type(constant) is type(model.predict_distribution(x).components)
    nll = model.report(x, y).evaluation.score("NLL")
    assert nll.constant is not None
    # Nothing in the family that ignores the inputs is more probable; a normal is much less so.
    best = float(log_score(constant, torch.from_numpy(np.asarray(y, dtype=float))).mean())
    assert nll.constant == pytest.approx(best, rel=1e-6)
    if name == "poisson":
        assert float(constant.mean) == pytest.approx(y.mean(), rel=1e-3)
    if name == "log_normal":
        assert float(constant.loc) == pytest.approx(np.log(y).mean(), abs=1e-3)
        assert float(constant.scale) == pytest.approx(np.log(y).std(), rel=1e-2)
    model.save(tmp_path / "model")
    again = load(tmp_path / "model")
    assert again.report(x, y).evaluation.score("NLL").constant == pytest.approx(nll.constant)


def test_counts_are_not_called_too_wide() -> None:
    x, y = made("poisson")
    evaluation = fitted("poisson").report(x, y).evaluation
    assert "as they are of whole numbers" in evaluation.verdicts["calibration"]
    assert evaluation.score("90\u202f% coverage").best is None
    assert "An interval of whole numbers cannot" in Report(evaluation).html


def test_several_targets_and_labels_are_scored_together() -> None:
    for name in ("multivariate_normal", "normal-several", "bernoulli"):
        model, (x, y) = fitted(name), made(name)
        evaluations = [model.report(x, y, target=which).evaluation for which in (0, 1)]
        what = "labels" if name == "bernoulli" else "targets"
        joint = -float(model.predict_distribution(x).log_prob(torch.from_numpy(y).double()).mean())
        for evaluation in evaluations:
            assert evaluation.score(f"NLL of all {what}").ensemble == pytest.approx(joint)
        assert evaluations[0].scores[0] != evaluations[1].scores[0]
    guess = model.predict(x)
    assert evaluations[0].score("All labels right").ensemble == pytest.approx((guess == y).all(1).mean())
    squares = ((model.predict_proba(x) - y) ** 2).mean()
    assert evaluations[0].score("Brier score of all labels").ensemble == pytest.approx(squares, rel=1e-5)
    assert evaluations[0].curves["labels"]["rows"] == y.sum(0).tolist()


def test_classes_with_an_order_are_scored_by_distance() -> None:
    model, (x, y) = fitted("ordinal"), made("ordinal")
    evaluation = model.report(x, y).evaluation
    assert evaluation.score("Mean distance").ensemble == pytest.approx(np.abs(median_class(model, x) - y).mean())
    below = model.predict_proba(x).cumsum(1)[:, :-1]
    expected = ((below - (y[:, None] <= np.arange(below.shape[1]))) ** 2).sum(1).mean()
    assert evaluation.score("CRPS").ensemble == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("name", ["poisson", "log_normal", "student_t-2", "ordinal", "bernoulli", "multivariate_normal"])
def test_recalibrated_models(name: str) -> None:
    model, (x, y) = fitted(name), made(name)
    before = model.ensemble_
    try:
        page_of(model.recalibrate(x, y, choose).report(x, y))
    finally:
        model.ensemble_ = before


def true_counts(n_rows: int = 4000) -> tuple[Mixture, np.ndarray]:
    rate = np.random.default_rng(0).gamma(1.0, 2.0, n_rows)
    return Mixture(Poisson(torch.from_numpy(rate)[None])), np.random.default_rng(2).poisson(rate)


def test_the_truth_about_counts_is_called_honest() -> None:
    """F(y) of a count is never even and its intervals hold more than their level; neither is a fault."""
    evaluation = evaluate(true_counts())
    assert evaluation.score("Calibration error").ensemble < 0.02
    assert max(evaluation.curves["levels"]["share"]) < 0.12
    assert evaluation.score("90\u202f% coverage").ensemble > 0.93
    assert "as promised" in evaluation.verdicts["calibration"]
    prediction, target = true_counts()
    narrow = evaluate((Mixture(Poisson(prediction.mean[None] / 3)), target))
    assert narrow.verdicts["calibration"].endswith("too narrow.")


def test_likelihoods_of_other_kinds_are_not_compared() -> None:
    prediction, target = true_counts(200)
    normal = torch.distributions.Normal(torch.tensor(2.0), torch.tensor(2.0))
    evaluation = evaluate((prediction, target), constant=normal)
    assert evaluation.score("NLL").constant is None
    assert evaluation.score("CRPS").constant is not None
    assert evaluation.verdicts["constant"].startswith("It is better than a constant prediction: its CRPS is")
    same = evaluate((prediction, target), constant=Poisson(torch.tensor(2.0)))
    assert same.score("NLL").constant is not None
    assert "Poisson, fitted to the training targets" in Report(same).html


def test_a_batch_says_which_target_and_which_point() -> None:
    mixture = Mixture(LogNormal(torch.zeros(2, 5), torch.ones(2, 5)))
    target = np.full(5, 1.5)
    assert evaluate(Batch(mixture, target)).score("MAE").ensemble == pytest.approx(np.exp(0.5) - 1.5, rel=1e-5)
    assert evaluate(Batch(mixture, target, point="median")).score("MAE").ensemble == pytest.approx(0.5, rel=1e-5)
    heavy = Mixture(StudentTFamily(torch.full((2, 5), 0.9), torch.zeros(2, 5), torch.ones(2, 5)))
    assert "predicted median" in evaluate(Batch(heavy, target, point="mean")).score("MAE").meaning
