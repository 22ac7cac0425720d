"""Reports on censored times: numbers that allow for censoring, and sentences that claim no more than they can."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import torch

from deep_ensembles import DeepEnsembleRegressor, Point, load
from deep_ensembles.distributions import Delta, Gamma, LogNormal, Poisson
from deep_ensembles.heads import LogNormal as LogNormalHead
from deep_ensembles.metrics import censored_negative_log_likelihood, concordance_index, integrated_brier_score
from deep_ensembles.mixture import Mixture
from deep_ensembles.report import Batch, Report, beside_targets, evaluate, first_member
from deep_ensembles.report.charts import evaluation_charts
from deep_ensembles.scoring import squared_error

NOISE = 0.4


def records(time: np.ndarray, event: Any) -> np.ndarray:
    array = np.empty(len(time), dtype=[("event", bool), ("time", float)])
    array["time"], array["event"] = time, event
    return array


def made(n_rows: int = 1000, longest: float = 2.0, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """An input that moves log-normal times, the times as they are seen until watching ends, and as they are."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=n_rows)
    latent, end = np.exp(0.8 * x + NOISE * rng.normal(size=n_rows)), rng.uniform(0.1, longest, size=n_rows)
    return x, records(np.minimum(latent, end), latent <= end), latent


def predicted(x: np.ndarray, noise: float = NOISE, shift: float = 0.0, n_members: int = 1) -> Mixture:
    """The true distributions, or ones that are too sure, or too late."""
    places = torch.from_numpy(0.8 * x + shift).expand(n_members, -1)
    return Mixture(LogNormal(places, torch.full_like(places, noise)))


X, Y, LATENT = made()
TRUTH = evaluate(Batch(predicted(X, n_members=2), Y, first_member(predicted(X))))


def test_scores_are_those_of_the_metrics():
    time, event = Y["time"], Y["event"]
    assert 0.4 < event.mean() < 0.6
    assert TRUTH.score("NLL").ensemble == pytest.approx(
        censored_negative_log_likelihood(predicted(X), time, event), rel=1e-9
    )
    assert TRUTH.score("Concordance index").ensemble == concordance_index(predicted(X), time, event)
    moments = TRUTH.curves["brier"]["time"]
    exact = integrated_brier_score(predicted(X), time, event, times=moments)
    assert TRUTH.score("Integrated Brier score").ensemble == pytest.approx(exact, rel=1e-9)
    assert exact == pytest.approx(integrated_brier_score(predicted(X), time, event), rel=0.02)  # at a hundred times
    assert TRUTH.curves["events"]["rows"] == [int(event.sum()), int((~event).sum())]
    names = [score.name for score in TRUTH.scores]
    assert names == ["Concordance index", "NLL", "Integrated Brier score", "Calibration error"]


def test_the_truth_is_called_right():
    """What censoring hides is estimated: the order of the true times, and how many come by which level."""
    known = concordance_index(predicted(X), LATENT, np.ones(len(X), bool))
    assert TRUTH.score("Concordance index").ensemble == pytest.approx(known, abs=0.04)
    curve = TRUTH.curves["calibration"]
    levels = np.array([level for level, share in zip(curve["level"], curve["ensemble"], strict=True) if share is not None])
    shares = np.array([share for share in curve["ensemble"] if share is not None])
    assert len(levels) > 15
    assert (np.abs(shares - levels) < 3 * np.sqrt(levels * (1 - levels) / 150)).all()
    assert TRUTH.score("Calibration error").ensemble < 0.03
    naive = np.mean(predicted(X[Y["event"]]).cdf(torch.from_numpy(Y["time"][Y["event"]])).numpy() < 0.5)
    assert naive > 0.55  # events alone would say that times are predicted too late
    assert ": as promised, within" in TRUTH.verdicts["calibration"]
    assert ": as predicted, within" in TRUTH.verdicts["calibration"]
    assert "is lower than that of the Kaplan–Meier curve" in TRUTH.verdicts["brier"]


@pytest.mark.parametrize(
    ("noise", "shift", "sentence"),
    [
        (0.5 * NOISE, 0.0, "too narrow"),
        (2.5 * NOISE, 0.0, "too wide"),
        (NOISE, 0.4, "they come sooner than predicted"),
        (NOISE, -0.4, "they come later than predicted"),
    ],
)
def test_wrong_predictions_are_called_so(noise, shift, sentence):
    evaluation = evaluate((predicted(X, noise, shift), Y))
    assert sentence in evaluation.verdicts["calibration"]
    assert evaluation.score("Calibration error").ensemble > 2 * TRUTH.score("Calibration error").ensemble


def test_truths_are_rarely_called_wrong():
    """Heavy censoring of few rows: two errors are exceeded in no more than one case in ten."""
    verdicts = []
    for seed in range(40):
        x, y, _ = made(120, 1.5, seed)
        verdicts.append(evaluate((predicted(x), y)).verdicts["calibration"])
    assert sum(any(word in verdict for word in ("narrow", "wide", "they come")) for verdict in verdicts) <= 4


def test_exponential_times_without_inputs_are_no_better_than_the_kaplan_meier_curve():
    rng = np.random.default_rng(0)
    latent, end = rng.exponential(3.0, size=400), rng.uniform(0, 6, size=400)
    same = Mixture(Gamma(torch.ones(1, 400, dtype=torch.float64), torch.full((1, 400), 1 / 3, dtype=torch.float64)))
    evaluation = evaluate((same, records(np.minimum(latent, end), latent <= end)))
    assert evaluation.score("Concordance index").ensemble == 0.5
    assert "is no lower, beyond chance, than" in evaluation.verdicts["brier"]
    assert "the 50\u202f% intervals" in evaluation.verdicts["calibration"]
    assert ": as promised" in evaluation.verdicts["calibration"]
    assert "Too few rows are watched long enough to tell of 90\u202f%." in evaluation.verdicts["calibration"]


def test_where_higher_levels_are_never_seen_the_page_says_so():
    _, y, _ = made(400, 0.6)
    evaluation = evaluate((predicted(np.zeros(400), 1.0), y))
    assert None in evaluation.curves["calibration"]["ensemble"]
    assert "Higher levels cannot be told" in evaluation.verdicts["calibration"]


def test_events_alone_are_scored_as_numbers():
    times = evaluate(Batch(predicted(X), records(LATENT, True), predicted(X, 1.0)))
    numbers = evaluate(Batch(predicted(X), LATENT, predicted(X, 1.0)))
    for name in ("ensemble", "single", "gain", "gain_error"):
        assert getattr(times.score("NLL"), name) == pytest.approx(getattr(numbers.score("NLL"), name), rel=1e-12)
    observed = numbers.score("90\u202f% coverage").ensemble
    assert f"hold {100 * observed:.1f}\u202f% of the rows" in times.verdicts["calibration"]


@pytest.mark.parametrize("n_rows", [1, 2, 3, 30])
@pytest.mark.parametrize("n_events", [1, 2, 15])
def test_few_events_claim_nothing(n_rows, n_events):
    event = np.arange(n_rows) < n_events
    constant = LogNormal(torch.tensor(0.0).double(), torch.tensor(1.0).double())
    batch = Batch(predicted(X[:n_rows], n_members=2), records(LATENT[:n_rows], event), predicted(X[:n_rows], 0.1))
    evaluation = evaluate(batch, constant=constant)
    assert list(evaluation.verdicts) == ["calibration", "drift"]
    assert "too few to tell" in evaluation.verdicts["calibration"]
    assert "nothing can be claimed" in evaluation.summary
    page = Report(evaluation).html
    assert "too narrow" not in page
    assert "beyond chance" not in page
    json.dumps(evaluation.as_dict(), allow_nan=False)


def test_rows_in_parts_are_rows_at_once():
    parts = beside_targets([predicted(X)[:100], predicted(X)[100:]], Y, [predicted(X)[:100], predicted(X)[100:]])
    many, once = evaluate(parts), evaluate(Batch(predicted(X), Y, predicted(X)))
    assert many.as_dict() == once.as_dict()
    # A part without events is as good as any.
    order = np.argsort(Y["event"], kind="stable")
    parts = beside_targets([predicted(X[order])[:100], predicted(X[order])[100:]], Y[order])
    assert evaluate(parts).score("NLL").ensemble == pytest.approx(once.score("NLL").ensemble, rel=1e-9)


@pytest.mark.parametrize(
    ("prediction", "target", "message"),
    [
        (Mixture(Poisson(torch.ones(1, 1000))), Y, "`prediction` must be of a number with a density"),
        (Mixture(Delta(torch.ones(1, 1000))), Y, "`prediction` must be of a number with a density"),
        (predicted(X), records(LATENT, False), "at least one is an event's"),
        (predicted(X), Y[:9], "`target` must be of the prediction's shape"),
        (predicted(X), records(LATENT * np.nan, True), "`target` must be finite times"),
    ],
)
def test_what_is_refused(prediction, target, message):
    with pytest.raises(ValueError, match=message):
        evaluate((prediction, target))


@pytest.fixture(scope="module")
def model() -> DeepEnsembleRegressor:
    settings: dict[str, Any] = {"hidden_sizes": (10,), "max_epochs": 30, "random_state": 0}
    return DeepEnsembleRegressor(2, head=LogNormalHead(), **settings).fit(X[:600, None], Y[:600])


def test_an_estimator_writes_the_page(model, tmp_path):
    report = model.report(X[600:, None], Y[600:])
    evaluation = report.evaluation
    page = report.save(tmp_path / "times.html").read_text("utf-8")
    for text in ("Left out: MAE", "Kaplan–Meier", "Do events come when they should?", "Censored"):
        assert text in page
    assert "What to trust</h2>" not in page
    assert list(evaluation_charts(evaluation)) == ["calibration", "survival", "brier", "rows", "parts"]
    assert evaluation.about["Events"].startswith(f"{Y['event'][600:].sum()} (")
    data = json.loads(json.dumps(evaluation.as_dict(), allow_nan=False))
    assert data["task"] == "times"
    assert not {"MAE", "RMSE", "R²", "CRPS"} & {score["name"] for score in data["scores"]}
    assert evaluation.verdicts["constant"].startswith("It is better than a constant prediction: its NLL is")
    assert evaluation.score("NLL").single is not None
    assert "Concordance index" in report.text().text()


def test_the_constant_allows_for_censoring(model, tmp_path):
    """Of log-normal times it is near the true log-normal of all of them, whatever was seen; model files keep it."""
    constant = model._constant(0)
    assert float(constant.loc) == pytest.approx(0.0, abs=0.1)
    assert float(constant.scale) == pytest.approx(np.hypot(0.8, NOISE), abs=0.1)
    model.save(tmp_path / "model")
    assert load(tmp_path / "model").constant_ == model.constant_
    normal = DeepEnsembleRegressor(1, max_epochs=1, random_state=0).fit(
        X[:, None], records(np.log(Y["time"]) + 9, Y["event"])
    )
    assert float(normal._constant(0).loc) == pytest.approx(9.0, abs=0.1)
    # Where no constant allows for it, none is shown.
    normal.constant_ = None
    score = normal.report(X[:, None], records(np.log(Y["time"]) + 9, Y["event"])).evaluation.score("NLL")
    assert score.constant is None
    assert "no constant" in score.meaning


def test_a_recalibrated_model_and_one_of_points(model):
    events = records(LATENT, True)
    known = DeepEnsembleRegressor(2, head=LogNormalHead(), max_epochs=5, random_state=0).fit(X[:600, None], LATENT[:600])
    known.recalibrate(X[600:800, None], LATENT[600:800])
    evaluation = known.report(X[800:, None], Y[800:]).evaluation
    assert np.isfinite(evaluation.score("Integrated Brier score").ensemble)
    points = DeepEnsembleRegressor(1, head=Point(), scoring_rule=squared_error, max_epochs=1).fit(X[:, None], LATENT)
    with pytest.raises(ValueError, match="of a number with a density"):
        points.report(X[:, None], events)
