"""Evaluations: every number against an independent computation."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy import integrate, stats
from sklearn.datasets import load_iris
from sklearn.metrics import (
    accuracy_score,
    confusion_matrix,
    log_loss,
    mean_absolute_error,
    precision_score,
    r2_score,
    recall_score,
    roc_auc_score,
    root_mean_squared_error,
    top_k_accuracy_score,
)
from torch.distributions import Categorical, Independent, Normal

import deep_ensembles
from deep_ensembles import DeepEnsembleClassifier, DeepEnsembleRegressor, load
from deep_ensembles.distributions import Delta
from deep_ensembles.metrics import (
    accuracy_confidence_curve,
    adaptive_calibration_error,
    expected_calibration_error,
    interval_coverage,
    threshold_for_accuracy,
)
from deep_ensembles.mixture import Mixture
from deep_ensembles.paper.figures import draw as drawn
from deep_ensembles.recalibration import conformal, isotonic
from deep_ensembles.report import Batch, Evaluation, Report, Unseen, evaluate, first_member, unseen_values
from deep_ensembles.report.charts import Band, Columns, Figure, Grid, Panel, Points, Ranges, Row
from deep_ensembles.report.rows import thresholds
from deep_ensembles.report.svg import draw
from deep_ensembles.report.words import confidence_verdict, coverage_verdict, threshold_text

MEMBERS = 4


def numbers(n_rows: int = 300) -> tuple[Mixture, np.ndarray]:
    rng = np.random.default_rng(0)
    x = rng.uniform(0, 4, n_rows)
    means = x**2 + rng.normal(0, 0.3, (MEMBERS, n_rows)) * (1 + x)
    deviations = (0.3 + 0.4 * x) * rng.uniform(0.7, 1.1, (MEMBERS, n_rows))
    return Mixture(Normal(torch.from_numpy(means), torch.from_numpy(deviations))), x**2 + rng.normal(0, 0.3 + 0.4 * x)


def classes(n_rows: int = 400, n_classes: int = 3, sharpness: float = 2.6) -> tuple[Mixture, np.ndarray]:
    rng = np.random.default_rng(1)
    truth = rng.normal(size=(n_rows, n_classes))
    draws = rng.gumbel(size=truth.shape)
    logits = sharpness * truth + rng.normal(0, 0.6, (MEMBERS, *truth.shape))
    return Mixture(Categorical(logits=torch.from_numpy(logits))), (2 * truth + draws).argmax(1)


def full(prediction: Mixture, target: np.ndarray, **settings: Any) -> Evaluation:
    if prediction.is_discrete:
        shares = np.bincount(target, minlength=prediction.probs.shape[-1]) + 1.0
        constant: Any = Categorical(probs=torch.from_numpy(shares))
    else:
        constant = Normal(torch.tensor(3.0), torch.tensor(5.0))
    return evaluate(Batch(prediction, target, first_member(prediction)), constant=constant, **settings)


def triple(evaluation: Evaluation, name: str) -> tuple[float, float | None, float | None]:
    score = evaluation.score(name)
    return score.ensemble, score.single, score.constant


def components(mixture: Mixture) -> Any:
    return stats.norm(mixture.components.mean.numpy(), mixture.components.stddev.numpy())


def test_scores_of_numbers_are_those_of_scipy_and_scikit_learn() -> None:
    prediction, target = numbers()
    evaluation = full(prediction, target)
    each = components(prediction)
    constant = stats.norm(3, 5)
    density = each.pdf(target)
    losses = [-np.log(density.mean(0)), -each.logpdf(target)[0], -constant.logpdf(target)]
    assert triple(evaluation, "NLL") == pytest.approx([loss.mean() for loss in losses])
    nll = evaluation.score("NLL")
    assert nll.gain == pytest.approx((losses[0] - losses[1]).mean())
    assert nll.gain_error == pytest.approx(stats.sem(losses[0] - losses[1]))
    means = [each.mean().mean(0), each.mean()[0], np.full(len(target), 3.0)]
    for name, metric in (("RMSE", root_mean_squared_error), ("MAE", mean_absolute_error), ("R²", r2_score)):
        assert triple(evaluation, name) == pytest.approx([metric(target, mean) for mean in means])
    levels = [each.cdf(target).mean(0), each.cdf(target)[0], constant.cdf(target)]
    inside = [((level >= 0.05) & (level <= 0.95)).mean() for level in levels]
    assert triple(evaluation, "90\u202f% coverage") == pytest.approx(inside)
    assert evaluation.score("90\u202f% coverage").ensemble == interval_coverage(prediction, target, 0.9)
    distance, deviation = np.abs(means[0] - target), prediction.stddev.numpy()
    assert evaluation.score("Rank correlation").ensemble == pytest.approx(stats.spearmanr(distance, deviation).statistic)
    wanted = np.arange(1, 20) / 20
    observed = [[(np.abs(level - 0.5) <= p / 2 + 1e-12).mean() for p in wanted] for level in levels]
    errors = [np.abs(np.array(each) - wanted).mean() for each in observed]
    assert triple(evaluation, "Calibration error") == pytest.approx(errors)


def test_crps_is_the_integral_that_the_page_states() -> None:
    prediction, target = numbers(12)
    evaluation = full(prediction, target)
    each = components(prediction)
    scores = []
    for row, y in enumerate(target):

        def distance(z: float, row: int = row, y: float = y) -> float:
            return float((each.cdf(z)[:, row].mean() - (z >= y)) ** 2)

        scores.append(sum(integrate.quad(distance, *ends, limit=200)[0] for ends in ((y - 40, y), (y, y + 40))))
    assert evaluation.score("CRPS").ensemble == pytest.approx(np.mean(scores), rel=1e-5)


def test_intervals_have_their_mass_and_widths_are_theirs() -> None:
    prediction, target = numbers(50)
    evaluation = full(prediction, target, coverage=0.8)
    rows, each = evaluation.curves["rows"], components(prediction)
    assert rows["row"] == list(range(50))
    assert each.cdf(np.array(rows["high"])).mean(0) - each.cdf(np.array(rows["low"])).mean(0) == pytest.approx(0.8)
    assert evaluation.score("80\u202f% width").ensemble == pytest.approx(np.mean(rows["high"]) - np.mean(rows["low"]))
    single = 2 * stats.norm.ppf(0.9) * each.std()[0].mean()
    assert triple(evaluation, "80\u202f% width")[1:] == pytest.approx([single, 10 * stats.norm.ppf(0.9)])
    parts = np.square(rows["aleatoric"]) + np.square(rows["epistemic"])
    assert parts == pytest.approx(prediction.variance.numpy())


def test_scores_of_classes_are_those_of_scikit_learn() -> None:
    prediction, target = classes(n_classes=12)
    evaluation = full(prediction, target)
    shares = np.bincount(target, minlength=12) + 1.0
    same = np.tile(shares / shares.sum(), (len(target), 1))
    probabilities = [prediction.probs.numpy(), prediction.components.probs[0].numpy(), same]  # type: ignore[attr-defined]
    names = np.arange(12)
    assert triple(evaluation, "Accuracy") == pytest.approx([accuracy_score(target, p.argmax(1)) for p in probabilities])
    assert triple(evaluation, "NLL") == pytest.approx([log_loss(target, p, labels=names) for p in probabilities])
    squares = [((np.eye(12)[target] - p) ** 2).sum(1).mean() / 12 for p in probabilities]
    assert triple(evaluation, "Brier score") == pytest.approx(squares)
    top = [1 - top_k_accuracy_score(target, p, k=5, labels=names) for p in probabilities[:2]]
    assert triple(evaluation, "Top-5 error")[:2] == pytest.approx(top)
    assert triple(evaluation, "ECE") == pytest.approx([calibration_error(p, target) for p in probabilities])
    assert evaluation.score("ECE").ensemble == pytest.approx(expected_calibration_error(prediction, target))
    wrong = prediction.mode.numpy() != target
    assert evaluation.score("Error detection").ensemble == pytest.approx(
        roc_auc_score(wrong, -prediction.confidence.numpy())
    )
    assert evaluation.score("ACE").ensemble == pytest.approx(adaptive_calibration_error(prediction, target))


def calibration_error(probabilities: np.ndarray, target: np.ndarray) -> float:
    confidence, right = probabilities.max(1), probabilities.argmax(1) == target
    error = 0.0
    for b in range(15):
        inside = (confidence > b / 15) & (confidence <= (b + 1) / 15)
        if inside.any():
            error += inside.mean() * abs(right[inside].mean() - confidence[inside].mean())
    return error


def test_confusions_are_those_of_scikit_learn() -> None:
    prediction, target = classes()
    evaluation = full(prediction, target, labels=["a", "b", "c"])
    guess = prediction.mode.numpy()
    matrix = confusion_matrix(target, guess)
    assert list(evaluation.curves["matrix"].values()) == matrix.tolist()
    assert evaluation.curves["classes"]["recall"] == pytest.approx(recall_score(target, guess, average=None))
    assert evaluation.curves["classes"]["precision"] == pytest.approx(precision_score(target, guess, average=None))
    worst = evaluation.curves["confusions"]
    off = matrix - np.diag(np.diag(matrix))
    assert worst["rows"][0] == off.max() == matrix[worst["actual"][0], worst["predicted"][0]]
    assert sum(worst["rows"]) == off.sum()


def test_thresholds_of_classes_keep_as_many_rows_as_possible() -> None:
    prediction, target = classes(n_rows=500)
    evaluation = full(prediction, target)
    right = prediction.mode.numpy() == target
    confidence = prediction.confidence.numpy()
    assert len(evaluation.thresholds) > 5
    for line in evaluation.thresholds[1:]:
        best = threshold_for_accuracy(confidence, right, line.wanted)
        assert best is not None
        assert (line.threshold, line.kept) == pytest.approx((best.threshold, best.kept))
        assert (confidence >= line.threshold - 1e-12).sum() == line.rows
    curve = accuracy_confidence_curve(confidence, right)
    assert evaluation.curves["accuracy"]["kept"] == pytest.approx(curve.kept)


def test_thresholds_of_numbers_keep_as_many_rows_as_possible() -> None:
    prediction, target = numbers()
    evaluation = full(prediction, target)
    deviation, distance = prediction.stddev.numpy(), np.abs(prediction.mean.numpy() - target)
    assert evaluation.thresholds[0].rows == len(target)
    assert evaluation.thresholds[0].reached == pytest.approx(distance.mean())
    assert evaluation.thresholds[0].error == pytest.approx(stats.sem(distance))
    assert len(evaluation.thresholds) > 5
    for line in evaluation.thresholds:
        assert (deviation <= float(threshold_text(line.threshold, at_least=False))).sum() == line.rows
        kept = deviation <= line.threshold + 1e-12
        assert kept.sum() == line.rows
        assert distance[kept].mean() <= line.wanted + 1e-12
        larger = [distance[deviation <= other].mean() for other in deviation[deviation > line.threshold + 1e-12]]
        assert all(each > line.wanted for each in larger)


def test_what_a_threshold_reaches_is_judged_by_rows_that_did_not_choose_it() -> None:
    """Where confidence says nothing, the rows that choose a threshold flatter it, and the others do not."""
    rng, flattered, honest = np.random.default_rng(0), [], []
    for _ in range(200):
        confidence, right = rng.uniform(size=100), (rng.uniform(size=100) < 0.7).astype(float)
        for line in thresholds(confidence, right, [0.75], at_least=True)[1:]:
            flattered.append(right[confidence >= line.threshold].mean())
            honest.append((line.reached - 0.7) / line.error)
    assert len(honest) > 100
    assert np.mean(flattered) > 0.75
    assert np.mean(honest) < 0.3
    assert np.mean(np.abs(honest) < 2) > 0.85


def test_no_threshold_reaches_more_than_the_rows_that_it_keeps() -> None:
    rng = np.random.default_rng(1)
    for _ in range(50):
        confidence = rng.uniform(size=200)
        right = (rng.uniform(size=200) < confidence**0.1).astype(float)
        for line in thresholds(confidence, right, [0.95, 0.99], at_least=True)[1:]:
            assert line.reached <= right[confidence >= line.threshold].mean() + 1e-12
        for line in thresholds(1 - confidence, 1 - right, [0.05, 0.01], at_least=False)[1:]:
            assert line.reached >= (1 - right)[1 - confidence <= line.threshold].mean() - 1e-12


def test_curves_of_error() -> None:
    prediction, target = numbers(200)
    curves = full(prediction, target).curves
    deviation, error = prediction.stddev.numpy(), prediction.mean.numpy() - target
    surest = np.argsort(deviation)[:20]
    assert curves["error"]["rows"] == [20] * 10
    assert curves["error"]["spread"][0] == pytest.approx(math.sqrt(np.mean(deviation[surest] ** 2)))
    assert curves["error"]["error"][0] == pytest.approx(math.sqrt(np.mean(error[surest] ** 2)))


def test_batches_give_what_one_prediction_gives() -> None:
    for prediction, target in (numbers(), classes()):
        pieces = [slice(0, 1), slice(1, 170), slice(170, None)]
        parts = (Batch(prediction[part], target[part], first_member(prediction[part])) for part in pieces)
        whole, pieced = evaluate(Batch(prediction, target, first_member(prediction))), evaluate(parts)
        for name in (score.name for score in whole.scores):
            assert triple(pieced, name)[:2] == pytest.approx(triple(whole, name)[:2])
        assert [each.row for each in pieced.wrong] == [each.row for each in whole.wrong]
        assert pieced.summary == whole.summary
    assert evaluate([(prediction, target)]).scores[0].single is None


def test_examples_tell_the_worst_rows_with_their_cells() -> None:
    prediction, target = numbers(40)
    evaluation = full(prediction, target, columns={"age": np.arange(40), "name": [f"n{i}" for i in range(40)]})
    worst = int(np.abs(prediction.mean.numpy() - target).argmax())
    assert evaluation.wrong[0].row == worst
    assert evaluation.wrong[0].columns == {"age": str(worst), "name": f"n{worst}"}
    assert evaluation.uncertain[0].row == int(prediction.stddev.argmax())
    labels, known = classes(60)
    found = full(labels, known, labels="xyz")
    wrong = np.flatnonzero(labels.mode.numpy() != known)
    probability = labels.probs.numpy()[wrong, known[wrong]]
    assert found.wrong[0].row == wrong[probability.argmin()]
    assert found.wrong[0].values["truth"] == pytest.approx(probability.min())
    assert found.uncertain[0].row == int(labels.entropy().argmax())
    with pytest.raises(ValueError, match="`columns` must be 40 values each"):
        full(prediction, target, columns={"age": [1, 2]})


def test_points_have_no_density_and_no_score_that_needs_one() -> None:
    prediction, target = numbers()
    evaluation = full(Mixture(Delta(prediction.components.mean)), target)
    names = [score.name for score in evaluation.scores]
    assert "NLL" not in names
    assert {"CRPS", "RMSE", "90\u202f% coverage"} <= set(names)
    no_nonsense(evaluation)


@pytest.mark.parametrize("fit", [isotonic, conformal])
def test_recalibrated_predictions(fit: Any) -> None:
    prediction, target = numbers()
    better = fit(prediction, target)(prediction)
    evaluation = evaluate(Batch(better, target, first_member(prediction)), coverage=0.999)
    assert evaluation.score("NLL").ensemble == pytest.approx(-float(better.log_prob(torch.from_numpy(target)).mean()))
    no_nonsense(evaluation)


def test_names_in_json() -> None:
    content = full(*numbers(10), unseen=[Unseen("a", "0 to 1", 1, 0.1, ("2",))]).as_dict()
    assert content["outside"] == [{"column": "a", "seen": "0 to 1", "rows": 1, "share": 0.1, "examples": ["2"]}]
    assert set(content["stops"][0]) == {"wanted", "threshold", "reached", "error", "kept", "rows"}


def no_nonsense(evaluation: Evaluation) -> str:
    """Plain data without NaN or infinity, and a page that says neither."""
    text = json.dumps(evaluation.as_dict(), allow_nan=False)
    assert len(text) < 1_000_000
    html = Report(evaluation).html
    assert "nan" not in html.lower().replace("nanm", "")
    assert "None" not in html
    assert len(html) < 3_000_000
    return html


@pytest.mark.parametrize("n_rows", [1, 2, 5])
@pytest.mark.parametrize("n_classes", [0, 2, 3, 60, 200])
def test_tiny_data(n_rows: int, n_classes: int) -> None:
    prediction, target = classes(n_rows, n_classes) if n_classes else numbers(n_rows)
    no_nonsense(full(prediction, target))
    no_nonsense(evaluate((first_member(prediction), target)))


def test_constant_targets_and_perfect_predictions() -> None:
    same = torch.full((3, 20), 2.0, dtype=torch.float64)
    evaluation = evaluate(
        (Mixture(Normal(same, same)), np.full(20, 2.0)), constant=Normal(torch.tensor(2.0), torch.tensor(1.0))
    )
    assert evaluation.score("MAE").ensemble == 0
    assert "R²" not in [score.name for score in evaluation.scores]
    no_nonsense(evaluation)
    certain = Mixture(Categorical(logits=torch.tensor([[[90.0, 0.0]] * 20] * 3)))
    evaluation = evaluate((certain, np.zeros(20)), constant=Categorical(probs=torch.tensor([0.0, 1.0])))
    assert evaluation.score("Accuracy").ensemble == 1
    no_nonsense(evaluation)


def test_what_is_wrong_is_said() -> None:
    prediction, target = numbers(10)
    several = Mixture(Independent(Normal(torch.zeros(2, 10, 3), torch.ones(2, 10, 3)), 1))
    with pytest.raises(ValueError, match=r"take one target at a time with `target\(i\)`"):
        evaluate((several, np.zeros((10, 3))))
    assert evaluate((several.target(2), np.zeros(10))).score("MAE").ensemble == 0
    with pytest.raises(ValueError, match="`coverage` must be a number > 0 and < 1"):
        evaluate((prediction, target), coverage=1.0)
    with pytest.raises(ValueError, match="`batches` must be at least one row"):
        evaluate([])
    with pytest.raises(ValueError, match="`constant` must be one Normal"):
        evaluate((prediction, target), constant=Categorical(probs=torch.ones(2)))
    with pytest.raises(ValueError, match="`labels` must be 3 names"):
        full(*classes(), labels=["a"])
    with pytest.raises(ValueError, match="`target` must be of the prediction's shape"):
        evaluate((prediction, np.zeros(11)))
    with pytest.raises(ValueError, match="`target` must be finite"):
        evaluate((prediction, np.full(10, np.nan)))


def test_verdicts_say_what_the_numbers_say() -> None:
    assert coverage_verdict(0.9, 0.8, 1000).endswith(": too narrow.")
    assert coverage_verdict(0.9, 0.93, 1000).endswith(": slightly too wide.")
    assert "as promised" in coverage_verdict(0.9, 0.93, 100)
    assert confidence_verdict(0.9, 0.95, 1000).endswith(": underconfident.")
    assert confidence_verdict(0.97, 0.95, 10_000).endswith(": slightly overconfident.")
    assert "honest" in confidence_verdict(0.99, 1.0, 100)
    rng = np.random.default_rng(0)
    blind = Mixture(Normal(torch.zeros(1, 400), torch.from_numpy(rng.uniform(1, 2, (1, 400)))))
    evaluation = evaluate((blind, rng.normal(size=400)))
    assert "no more than chance explains" in evaluation.verdicts["error"]
    assert evaluation.verdicts["calibration"].endswith(": too wide.")
    assert "knows which of its predictions to doubt" in full(*numbers()).verdicts["error"]


def test_unseen_values_are_counted_by_column() -> None:
    values = np.array([[0.0, 5.0], [2.0, 5.0], [-3.0, 5.0], [9.0, np.nan]])
    (found,) = unseen_values(["a", "b"], values, [0.0, 5.0], [1.0, 5.0])
    assert (found.column, found.rows, found.share, found.examples) == ("a", 3, 0.75, ("9", "-3", "2"))


def test_values_that_have_no_order_may_be_unseen_too() -> None:
    html = Report(full(*numbers(10), unseen=[Unseen("colour", "category, 2 values", 2, 0.2, ("mauve", "puce"))])).html
    assert "mauve, puce" in html


def test_nasty_names_are_escaped() -> None:
    nasty = "</script><script>alert(1)</script><img src=x onerror=alert(2)>&'\""
    prediction, target = classes()
    evaluation = full(
        prediction, target, labels=[nasty, "b", "c"], columns={nasty: [nasty] * len(target)}, about={nasty: nasty}
    )
    html = Report(evaluation, nasty).html
    assert "<script>alert" not in html
    assert "<img" not in html
    assert html.count("</script>") == 2
    assert "<img" not in Report(evaluation, nasty)._repr_html_()


def test_a_report_is_text_a_file_and_a_frame(tmp_path: Path) -> None:
    report = Report(full(*numbers()), "Title")
    assert report.save(tmp_path / "new" / "report.html").read_text("utf-8") == report.html
    assert "R²" in report.text().text()
    assert report._repr_html_().startswith("<iframe srcdoc=")


def test_public_names_are_pinned() -> None:
    names = [
        "Batch",
        "ColumnFacts",
        "Evaluation",
        "Groups",
        "Influences",
        "Reasons",
        "Report",
        "RowFacts",
        "Score",
        "Unseen",
        "beside_targets",
        "evaluate",
        "explain",
        "first_member",
        "influences",
        "unseen_columns",
        "unseen_values",
    ]
    assert deep_ensembles.report.__all__ == names
    assert all(getattr(deep_ensembles.report, name).__doc__ for name in names)


def test_scores_need_no_library_for_pages_and_figures() -> None:
    code = "import sys, deep_ensembles.report; print({'matplotlib', 'jinja2'} & set(sys.modules))"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert shown.strip() == "set()"


def test_a_page_is_a_template_a_style_and_a_script() -> None:
    folder = Path(deep_ensembles.__file__).parent / "report"
    assert {path.name for path in folder.glob("page.*")} == {"page.py", "page.html", "page.css", "page.js"}


def test_estimators_report(tmp_path: Path) -> None:
    X, y = load_iris(return_X_y=True, as_frame=True)
    words = y.map({0: "setosa", 1: "versicolor", 2: "virginica"})
    model = DeepEnsembleClassifier(3, max_epochs=5, random_state=0).fit(X[::2], words[::2])
    evaluation = model.report(X, words).evaluation
    assert evaluation.score("Accuracy").ensemble == pytest.approx(model.score(X, words))
    assert evaluation.score("Accuracy").constant == pytest.approx(1 / 3)
    single = model.ensemble_.subset(1)(X.to_numpy()).probs.argmax(-1).numpy()
    assert evaluation.score("Accuracy").single == pytest.approx((single == y).mean())
    assert set(evaluation.wrong[0].columns) == set(X.columns)
    assert evaluation.unseen is not None
    model.save(tmp_path / "model")
    assert load(tmp_path / "model").report(X, words).evaluation == evaluation
    with pytest.raises(ValueError, match="`y` must be labels that the model knows, got \\['nonsense'\\]"):
        model.report(X[:1], ["nonsense"])


def test_regressors_report_one_target_at_a_time() -> None:
    X, _ = load_iris(return_X_y=True)
    both = X[:, 2:]
    model = DeepEnsembleRegressor(2, max_epochs=5, random_state=0).fit(X[:, :2], both)
    evaluation = model.report(X[:, :2], both, target=1).evaluation
    assert evaluation.score("MAE").ensemble == pytest.approx(np.abs(model.predict(X[:, :2]) - both)[:, 1].mean())
    assert evaluation.score("RMSE").constant == pytest.approx(both[:, 1].std())
    assert evaluation.unseen == []
    with pytest.raises(ValueError, match="`target` must be from 0 to 1, got 2"):
        model.report(X[:, :2], both, target=2)


def test_every_layer_is_drawn_by_both() -> None:
    x, y = [0.0, 1.0], [1.0, 3.0]
    layers = [
        Band(x, x, y, "band"),
        Ranges(x, x, y, "range"),
        Columns([0, 1, 2], y, "column"),
        Points(x, y, "point", marker="x"),
    ]
    grid = Panel([Grid(np.eye(2), [["1", ""], ["", "<"]])], x_ticks=["a", "b" * 40], y_ticks=["a", "b"])
    for panel in (Panel(layers), grid):
        assert draw(panel, "name", "<desc>").count("&lt;desc&gt;") == 1
        drawn(Figure([Row([panel])]))


@pytest.mark.slow
@pytest.mark.parametrize("n_classes", [0, 10])
def test_a_million_rows_make_a_small_page(n_classes: int) -> None:
    prediction, target = classes(1_000_000, n_classes) if n_classes else numbers(1_000_000)
    evaluation = full(prediction, target, columns={"row": np.arange(1_000_000)})
    assert evaluation.n_rows == 1_000_000
    no_nonsense(evaluation)
