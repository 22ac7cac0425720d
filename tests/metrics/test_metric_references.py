"""Metrics equal independent references, hold what their mathematics promises, and say what is wrong with their input."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import permutations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm
from sklearn.metrics import accuracy_score, brier_score_loss, log_loss, roc_auc_score, top_k_accuracy_score
from torch.distributions import Categorical, Independent, Normal

from deep_ensembles.metrics import (
    accuracy,
    accuracy_confidence_curve,
    adaptive_calibration_error,
    area_under_risk_coverage,
    brier_score,
    expected_calibration_error,
    interval_coverage,
    negative_log_likelihood,
    ood_detection,
    reliability_diagram,
    risk_coverage_curve,
    summed_brier_score,
    threshold_for_accuracy,
    top_k_error,
)
from deep_ensembles.mixture import Mixture

quick = settings(deadline=None, derandomize=True, max_examples=100)
tied = st.integers(0, 6)
cases = st.lists(st.tuples(tied, st.booleans()), min_size=1, max_size=25)
losses = st.lists(st.tuples(tied, st.integers(-5, 5)), min_size=1, max_size=25)
scores = st.lists(tied, min_size=1, max_size=25)
CLASS_METRICS = [accuracy, top_k_error, negative_log_likelihood, brier_score, summed_brier_score]
CLASS_METRICS += [expected_calibration_error, adaptive_calibration_error]


def mixture(n_cases: int = 200, n_classes: int = 7, sharpness: float = 2.0) -> tuple[Mixture, np.ndarray]:
    """Class predictions of three members with unequal weights, and labels that lean towards them."""
    random = np.random.default_rng(0)
    logits = sharpness * random.normal(size=(3, n_cases, n_classes))
    prediction = Mixture(Categorical(logits=torch.from_numpy(logits)), torch.tensor([0.5, 0.3, 0.2]))
    labels = [random.choice(n_classes, p=each / each.sum()) for each in (prediction.probs.numpy() + 0.05)]
    return prediction, np.array(labels)


def binary(confidence: np.ndarray, correct: np.ndarray) -> tuple[Categorical, np.ndarray]:
    """Predictions of class 0 with the given confidences (≥ 1/2), right where told."""
    probabilities = np.stack([confidence, 1 - np.asarray(confidence)], -1)
    return Categorical(torch.from_numpy(probabilities), validate_args=False), 1 - np.asarray(correct, dtype=int)


# -- right or wrong -----------------------------------------------------------------------------------------------


def test_equal_to_sklearn():
    prediction, labels = mixture()
    probabilities, classes = prediction.probs.numpy(), range(7)
    each = [brier_score_loss(labels == k, probabilities[:, k]) for k in classes]
    assert accuracy(prediction, labels) == accuracy_score(labels, probabilities.argmax(-1))
    assert negative_log_likelihood(prediction, labels) == pytest.approx(log_loss(labels, probabilities, labels=classes))
    assert brier_score(prediction, labels) == pytest.approx(np.mean(each))
    assert summed_brier_score(prediction, labels) == pytest.approx(np.sum(each))
    for k in range(1, 7):
        expected = 1 - top_k_accuracy_score(labels, probabilities, k=k, labels=classes)
        assert top_k_error(prediction, labels, k=k) == pytest.approx(expected)
    assert top_k_error(prediction, labels, k=7) == 0.0


@pytest.mark.parametrize("metric", CLASS_METRICS)
def test_any_batch_shape(metric):
    prediction, labels = mixture()
    for shape in ((200,), (20, 10), (2, 5, 20)):
        reshaped = Categorical(prediction.probs.reshape(*shape, 7))
        assert metric(reshaped, labels.reshape(shape)) == pytest.approx(metric(prediction, labels))
    single = Categorical(prediction.probs[0])
    assert metric(single, labels[0]) == pytest.approx(metric(prediction[:1], labels[:1]))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_likelihood_of_a_mixture_survives_underflow(dtype):
    logits = torch.tensor([[[0.0, -1000.0]], [[0.0, -2000.0]]], dtype=dtype)
    value = negative_log_likelihood(Mixture(Categorical(logits=logits)), [1])
    assert value == pytest.approx(1000 + math.log(2), rel=1e-7)


def test_likelihood_of_numbers_equals_scipy():
    means, target = np.array([[0.0, 1.0], [2.0, 3.0]]), np.array([[0.5, 0.5], [1.0, 9.0]])
    one = Normal(torch.from_numpy(means), 2.0)
    logs = norm.logpdf(target, means, 2)
    assert negative_log_likelihood(one, target) == pytest.approx(-logs.mean())
    assert negative_log_likelihood(Independent(one, 1), target) == pytest.approx(-logs.sum(1).mean())


def test_means_are_taken_in_double_precision():
    labels = np.zeros(300_000, dtype=int)
    prediction = Categorical(logits=torch.tensor([[0.1, 0.0]]).expand(300_000, 2))
    expected = float(-prediction.logits[0, 0].double())
    assert negative_log_likelihood(prediction, labels) == pytest.approx(expected, rel=1e-12)


@given(st.lists(st.tuples(tied, tied, tied, st.integers(0, 2)), min_size=1, max_size=20))
@quick
def test_top_one_error_is_what_accuracy_misses(rows):
    """Also where classes tie."""
    *counts, labels = (np.array(column) for column in zip(*rows, strict=True))
    prediction = Categorical(torch.from_numpy(np.stack(counts, -1) + 1.0))
    assert top_k_error(prediction, labels, k=1) == pytest.approx(1 - accuracy(prediction, labels))


# -- calibration --------------------------------------------------------------------------------------------------


def plain_calibration_error(confidence: np.ndarray, correct: np.ndarray, edges: list[float]) -> float:
    """The definition, bin after bin, each closed above."""
    error, below = 0.0, -math.inf
    for edge in [*edges, math.inf]:
        inside = (confidence > below) & (confidence <= edge)
        if inside.any():
            error += inside.mean() * abs(correct[inside].mean() - confidence[inside].mean())
        below = edge
    return error


@pytest.mark.parametrize("n_bins", [1, 2, 7, 15, 500])
@pytest.mark.parametrize("sharpness", [0.0, 2.0, 50.0])
def test_calibration_errors_equal_the_plain_definition(n_bins, sharpness):
    prediction, labels = mixture(sharpness=sharpness)
    confidence, correct = prediction.confidence.numpy(), prediction.mode.numpy() == labels
    widths = [b / n_bins for b in range(1, n_bins)]
    assert expected_calibration_error(prediction, labels, n_bins) == pytest.approx(
        plain_calibration_error(confidence, correct, widths)
    )
    masses = [sorted(confidence)[math.ceil(Fraction(b * 200, n_bins)) - 1] for b in range(1, n_bins)]
    assert adaptive_calibration_error(prediction, labels, n_bins) == pytest.approx(
        plain_calibration_error(confidence, correct, masses)
    )


@pytest.mark.parametrize("n_bins", [1, 4, 10, 200])
def test_adaptive_bins_are_equally_full(n_bins):
    prediction, labels = mixture()
    diagram = reliability_diagram(prediction, labels, n_bins, adaptive=True)
    assert diagram.count.tolist() == [200 // n_bins] * n_bins
    order = np.argsort(prediction.confidence.numpy())
    gaps = [
        abs((prediction.mode.numpy() == labels)[part].mean() - prediction.confidence.numpy()[part].mean())
        for part in np.split(order, n_bins)
    ]
    assert diagram.calibration_error == pytest.approx(np.mean(gaps))


def test_bins_are_closed_above_and_empty_ones_left_out():
    prediction, labels = binary(np.array([0.5, 0.75, 0.75, 0.8125, 1.0]), np.array([1, 1, 0, 0, 1]))
    diagram = reliability_diagram(prediction, labels, n_bins=4)
    assert diagram.count.tolist() == [1, 2, 2]
    assert diagram.confidence.tolist() == [0.5, 0.75, 0.90625]
    assert diagram.accuracy.tolist() == [1.0, 0.5, 0.5]


def test_equal_confidences_share_an_adaptive_bin():
    prediction, labels = binary(np.array([0.5, 0.75, 0.75, 0.75, 1.0]), np.array([1, 1, 0, 0, 1]))
    assert reliability_diagram(prediction, labels, n_bins=5, adaptive=True).count.tolist() == [1, 3, 1]


@given(st.lists(st.tuples(st.floats(0.5, 1), st.booleans()), min_size=1, max_size=40), st.booleans())
@quick
def test_calibration_error_grows_as_bins_are_split(rows, adaptive):
    """From the plain gap of the means (one bin) to finer bins that lie inside the coarser ones."""
    confidence, correct = (np.array(column) for column in zip(*rows, strict=True))
    prediction, labels = binary(confidence, correct)
    diagrams = [reliability_diagram(prediction, labels, n_bins, adaptive) for n_bins in (1, 5, 15)]
    errors = [each.calibration_error for each in diagrams]
    sure = prediction.probs.amax(-1).numpy()
    right = prediction.probs.argmax(-1).numpy() == labels
    assert errors[0] == pytest.approx(abs(right.mean() - sure.mean()))
    assert errors[0] <= errors[1] + 1e-12
    assert errors[1] <= errors[2] + 1e-12
    assert all(each.count.sum() == len(rows) and each.count.min() > 0 for each in diagrams)
    assert all((np.diff(each.confidence) > 0).all() for each in diagrams)


def test_interval_coverage_counts_each_target():
    moments = torch.zeros(2, 2, dtype=torch.float64), torch.ones(2, 2, dtype=torch.float64)
    target = np.array([[0.0, 9.0], [1.0, -1.0]])
    assert interval_coverage(Independent(Normal(*moments), 1), target) == 0.75


# -- unknown cases ------------------------------------------------------------------------------------------------


def plain_detection(known: list[int], unknown: list[int], recall: Fraction) -> tuple[float, float, float]:
    """Pairs for the area under ROC, and every threshold for the average precision and the false alarms."""
    wins = sum((u > k) + Fraction(u == k, 2) for u in unknown for k in known)
    precision_sum, recall_before, false_alarms = Fraction(0), Fraction(0), None
    for threshold in sorted({*known, *unknown}, reverse=True):
        found, alarms = sum(u >= threshold for u in unknown), sum(k >= threshold for k in known)
        reached = Fraction(found, len(unknown))
        precision_sum += (reached - recall_before) * Fraction(found, found + alarms)
        recall_before = reached
        if false_alarms is None and reached >= recall:
            false_alarms = Fraction(alarms, len(known))
    return float(wins / (len(known) * len(unknown))), float(precision_sum), float(false_alarms)


@given(scores, scores, st.integers(1, 20))
@quick
def test_detection_equals_the_plain_definition(known, unknown, twentieths):
    """With the unknown as positive class and, by turning both around, with the known."""
    detection = ood_detection(known, unknown, recall=twentieths / 20)
    expected = plain_detection(known, unknown, Fraction(twentieths, 20))
    assert (detection.auroc, detection.aupr, detection.fpr) == pytest.approx(expected)
    turned = plain_detection([-u for u in unknown], [-k for k in known], Fraction(twentieths, 20))
    around = ood_detection([-u for u in unknown], [-k for k in known], recall=twentieths / 20)
    assert detection.aupr_known == pytest.approx(turned[1])
    assert (around.auroc, around.aupr, around.fpr) == pytest.approx(turned)


def test_detection_by_entropy_equals_sklearn():
    known, unknown = mixture(sharpness=5.0)[0].entropy(), mixture(n_cases=90, sharpness=1.0)[0].entropy()
    expected = roc_auc_score([0] * 200 + [1] * 90, torch.cat([known, unknown]))
    assert ood_detection(known, unknown).auroc == pytest.approx(expected)
    assert expected > 0.8


def test_recall_on_a_straight_piece_of_the_curve():
    """Equal scores on both sides give a diagonal, of which scikit-learn would keep the ends alone."""
    assert [ood_detection([1, 2, 3, 4], [1, 2, 3, 4], recall).fpr for recall in (0.25, 0.5, 0.6)] == [0.25, 0.5, 0.75]


# -- selective prediction -----------------------------------------------------------------------------------------


def split(rows: list[tuple[int, bool]]) -> tuple[np.ndarray, np.ndarray]:
    """Confidences in sixths, with many ties, and whether each case was right."""
    sixths, correct = (np.array(column) for column in zip(*rows, strict=True))
    return sixths / 6, correct


@given(cases, st.lists(st.one_of(st.floats(0, 1), tied.map(lambda sixths: sixths / 6)), min_size=1, max_size=9))
@quick
def test_curve_equals_counting(rows, thresholds):
    confidence, correct = split(rows)
    curve = accuracy_confidence_curve(confidence, correct, thresholds)
    for i, threshold in enumerate(thresholds):
        kept = confidence >= threshold
        assert curve.threshold[i] == threshold
        assert curve.kept[i] == pytest.approx(kept.mean())
        if kept.any():
            assert curve.accuracy[i] == pytest.approx(correct[kept].mean())
        else:
            assert math.isnan(curve.accuracy[i])


def test_curve_has_a_hundred_steps_unless_told_otherwise():
    curve = accuracy_confidence_curve([0.3, 0.6], [True, False])
    assert len(curve.threshold) == 101
    assert [curve.threshold[0], curve.threshold[30], curve.threshold[100]] == [0.0, 0.3, 1.0]
    assert curve.kept[[0, 30, 31, 60, 61]].tolist() == [1.0, 1.0, 0.5, 0.5, 0.0]


@given(cases, st.integers(0, 20))
@quick
def test_threshold_is_the_best_of_all(rows, twentieths):
    confidence, correct = split(rows)
    wanted = Fraction(twentieths, 20)
    candidates = [(t, Fraction(int(correct[confidence >= t].sum()), int((confidence >= t).sum()))) for t in confidence]
    reaching = [(t, float(reached), (confidence >= t).mean()) for t, reached in candidates if reached >= wanted]
    found = threshold_for_accuracy(confidence, correct, twentieths / 20)
    if not reaching:
        assert found is None
        return
    assert found == pytest.approx(min(reaching))
    assert found.kept == max(kept for *_, kept in reaching)
    curve = accuracy_confidence_curve(confidence, correct, [found.threshold])
    assert (curve.accuracy[0], curve.kept[0]) == (found.accuracy, found.kept)


def test_threshold_takes_a_mixture_as_it_comes():
    prediction, labels = mixture(sharpness=4.0)
    correct = prediction.mode == torch.from_numpy(labels)
    found = threshold_for_accuracy(prediction.confidence, correct, wanted=0.9)
    trusted = prediction.confidence >= found.threshold
    assert found.kept == pytest.approx(float(trusted.double().mean()))
    assert float(correct[trusted].double().mean()) == pytest.approx(found.accuracy)
    assert found.accuracy >= 0.9
    assert float(correct.double().mean()) < 0.9


def plain_risks(uncertainty: np.ndarray, loss: np.ndarray) -> np.ndarray:
    """Risks averaged over every order of the cases that sorts them by uncertainty."""
    orders = [list(o) for o in permutations(range(len(loss))) if (np.diff(uncertainty[list(o)]) >= 0).all()]
    return np.mean([loss[o].cumsum() / np.arange(1, len(loss) + 1) for o in orders], axis=0)


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(-5, 5)), min_size=1, max_size=6))
@quick
def test_risk_is_averaged_over_tied_orders(rows):
    uncertainty, loss = (np.array(column) for column in zip(*rows, strict=True))
    curve = risk_coverage_curve(uncertainty, loss)
    np.testing.assert_allclose(curve.risk, plain_risks(uncertainty, loss), atol=1e-12)
    np.testing.assert_allclose(curve.coverage, [(n + 1) / len(loss) for n in range(len(loss))])


@given(losses)
@quick
def test_area_lies_between_oracle_and_its_opposite(rows):
    uncertainty, loss = (np.array(column) for column in zip(*rows, strict=True))
    area = area_under_risk_coverage(uncertainty, loss)
    assert area_under_risk_coverage(loss, loss) - 1e-12 <= area <= area_under_risk_coverage(-loss, loss) + 1e-12
    assert area == pytest.approx(area_under_risk_coverage(uncertainty**3 + 2, loss))
    assert area_under_risk_coverage(uncertainty, 3 * loss + 1) == pytest.approx(3 * area + 1)
    assert area_under_risk_coverage(np.ones(len(loss)), loss) == pytest.approx(loss.mean())
    assert risk_coverage_curve(uncertainty, loss).risk[-1] == pytest.approx(loss.mean())


# -- refusals -----------------------------------------------------------------------------------------------------

TWO = Categorical(torch.tensor([[0.9, 0.1], [0.6, 0.4]]))


@pytest.mark.parametrize("metric", CLASS_METRICS)
@pytest.mark.parametrize(("label", "shown"), [(2, "2"), (-1, "-1"), (0.5, "0.5")])
def test_refuses_labels_that_are_no_classes(metric, label, shown):
    with pytest.raises(ValueError, match=f"`target` must be class numbers from 0 to 1, got {shown}"):
        metric(TWO, np.array([0, label]))


@pytest.mark.parametrize("metric", [each for each in CLASS_METRICS if each is not negative_log_likelihood])
@pytest.mark.parametrize("moments", [(torch.zeros(2), torch.ones(2)), (torch.zeros(3, 2), torch.ones(3, 2))])
def test_refuses_numbers_where_classes_are_needed(metric, moments):
    prediction = Normal(*moments) if moments[0].dim() == 1 else Mixture(Normal(*moments))
    with pytest.raises(TypeError, match="needs a prediction over classes"):
        metric(prediction, [0, 1])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: accuracy(TWO, [0, 1, 1]), r"`target` must be of the prediction's shape \(2,\), got \(3,\)"),
        (lambda: top_k_error(TWO, [0, 1]), "`k` must be at most the number of classes, 2, got 5"),
        (lambda: top_k_error(TWO, [0, 1], k=0), "`k` must be an integer ≥ 1, got 0"),
        (lambda: expected_calibration_error(TWO, [0, 1], n_bins=0), "`n_bins` must be an integer ≥ 1, got 0"),
        (lambda: reliability_diagram(TWO, [0, 1], adaptive=2), "`adaptive` must be True or False, got 2"),
        (lambda: ood_detection([0.1], [np.inf]), "`unknown` must be finite, got inf"),
        (lambda: ood_detection([], [1.0]), r"`known` must be one number per case, at least one, got \(0,\)"),
        (lambda: ood_detection([0.1], [1.0], recall=0), "`recall` must be a number > 0 and ≤ 1, got 0"),
        (lambda: accuracy_confidence_curve([90.0], [1]), "`confidence` must be between 0 and 1, got 90.0"),
        (lambda: accuracy_confidence_curve([-0.1], [1]), "`confidence` must be between 0 and 1, got -0.1"),
        (lambda: accuracy_confidence_curve([0.9], [1], [0.5, 1.5]), "`thresholds` must be between 0 and 1, got 1.5"),
        (lambda: accuracy_confidence_curve([0.9], [1], []), "`thresholds` must be one number per case, at least one"),
        (lambda: threshold_for_accuracy([0.9], [2], 0.5), r"`correct` must be true or false \(1 or 0\), got 2.0"),
        (lambda: threshold_for_accuracy([0.9], [1], 95), "`wanted` must be a number ≥ 0 and ≤ 1, got 95"),
        (lambda: risk_coverage_curve([0.1, 0.2], [1.0]), "`loss` must be as many as `uncertainty`, 2, got 1"),
    ],
)
def test_says_what_is_wrong(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_confidence_may_exceed_one_by_rounding():
    assert threshold_for_accuracy(np.array([1.0000001, 0.5], dtype=np.float32), [1, 0], 1.0).kept == 0.5


def test_interval_coverage_refuses_classes():
    with pytest.raises(TypeError, match="`interval_coverage` needs a prediction of numbers"):
        interval_coverage(TWO, [0, 1])
