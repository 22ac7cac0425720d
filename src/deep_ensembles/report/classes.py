"""Predicted classes: values per row → scores, curves, thresholds, verdicts."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from torch import Tensor

from deep_ensembles.metrics import accuracy_confidence_curve
from deep_ensembles.metrics.calibration import reliability
from deep_ensembles.mixture import Mixture
from deep_ensembles.report import rows as per_row
from deep_ensembles.report.evaluation import Curve, Score, Threshold
from deep_ensembles.report.rows import Columns, Rows, Sources, Subject, Vector
from deep_ensembles.report.words import confidence_verdict, number, order_verdict, percent, row_count
from deep_ensembles.scoring import brier, crps, log_score

N_BINS = 15
_TOP = 5
# A matrix of more classes than this is unreadable; the most frequent confusions say more.
MATRIX_CLASSES = 64
_CONFUSIONS = 15


def class_values(prediction: Mixture, target: Tensor, point: str) -> dict[str, Tensor]:
    """What predictions of classes were worth, row by row; where the point is the median, classes have an order."""
    confidence, predicted = prediction.probs.max(-1)
    ordered: dict[str, Tensor] = {}
    if point == "median":
        predicted = (prediction.probs[:, :-1].cumsum(-1) < 0.5).sum(-1)
        confidence = prediction.probs.gather(-1, predicted[:, None])[:, 0]
        ordered = {"distance": (predicted - target).abs(), "crps": crps(prediction, target)}
    order = prediction.probs.argsort(dim=-1, descending=True, stable=True)
    return ordered | {
        "confidence": confidence.clamp_max(1.0),
        "predicted": predicted,
        "correct": predicted == target,
        "place": (order == target[:, None]).double().argmax(-1),
        "nll": log_score(prediction, target),
        "brier": brier(prediction, target),
    }


def class_details(prediction: Mixture, target: Tensor) -> dict[str, Tensor]:
    """What else is shown of the ensemble's rows."""
    return {
        "actual": target,
        "aleatoric": prediction.aleatoric,
        "epistemic": prediction.epistemic,
        "truth": prediction.probs.gather(-1, target[:, None])[:, 0],
        "entropy": prediction.entropy(),
        "disagreement": prediction.disagreement,
    }


def class_fields(sources: Sources, subject: Subject, labels: Sequence[str], columns: Columns | None) -> dict[str, Any]:
    """The fields of an `Evaluation` that are special to predicted classes."""
    rows, names = sources.ensemble, np.array(labels, dtype=object)
    scores, curves = _scores(sources, subject), _curves(sources, len(labels))
    shown = {name: names[rows[name].astype(np.int64)] for name in ("actual", "predicted")}
    shown |= {name: rows[name] for name in ("confidence", "truth", "entropy", "disagreement")}
    return {
        "task": "classes",
        "coverage": None,
        "labels": tuple(labels),
        "scores": scores,
        "curves": curves,
        "thresholds": _thresholds(rows["confidence"], rows["correct"]),
        "uncertain": per_row.examples(rows["entropy"], shown, columns),
        "wrong": per_row.examples(np.where(rows["correct"] == 1, 0.0, rows["nll"]), shown, columns),
        "verdicts": _verdicts(rows, scores, curves, labels),
        "summary": _summary(rows, scores, subject),
        "notes": {
            "predicts": f"{len(labels)} classes" + (" with an order" if subject.point == "median" else ""),
            "uncertainty": "confidence",
            "rows": "Entropy is the whole uncertainty in nats; disagreement is the sum of the members' divergences from "
            "their average.",
            "parts": "entropy; and the entropy of their average minus that (mutual information), in nats.",
            "constant": "probabilities for every row: the share of each class in training",
        },
    }


def _scores(sources: Sources, subject: Subject) -> list[Score]:
    n_classes, is_median = subject.n_classes, subject.point == "median"
    meaning = f"share of rows whose {'median' if is_median else 'most probable'} class is the true one"
    scores = [sources.mean_score("correct", "Accuracy", meaning, "higher", share=True)]
    scores.append(sources.mean_score("nll", "NLL", "mean negative log-likelihood, −log p(true class), in nats"))
    meaning = f"mean squared distance of the probabilities from the truth, divided by the {n_classes} classes"
    scores.append(sources.mean_score("brier", "Brier score", meaning))
    if is_median:
        meaning = "mean number of classes between the predicted one, the median, and the true one"
        scores.append(sources.mean_score("distance", "Mean distance", meaning))
        meaning = "mean ranked probability score, Σ(F(k) − 1{y ≤ k})², in classes: near misses cost less"
        scores.append(sources.mean_score("crps", "CRPS", meaning))
    if n_classes > 2 * _TOP:
        meaning = f"share of rows whose true class is not among the {_TOP} most probable"
        values = sources.apply(lambda rows: float((rows["place"] >= _TOP).mean()))
        scores.append(Score(f"Top-{_TOP} error", meaning, "lower", *values, share=True))
    for name, long, kind in (("ECE", "expected", "equally wide"), ("ACE", "adaptive", "equally full")):
        meaning = f"{long} calibration error: mean distance of accuracy from confidence over {N_BINS} {kind} bins"
        values = sources.apply(partial(_calibration_error, adaptive=name == "ACE"))
        scores.append(Score(name, meaning, "lower", *values, share=True))
    # A constant is equally confident of every row, and detects nothing.
    ensemble, single, _ = sources._replace(constant={}).apply(_error_detection)
    if ensemble is not None:
        meaning = (
            "area under the ROC curve: in how many pairs of a wrong and a right prediction the wrong one is less confident"
        )
        scores.append(Score("Error detection", meaning, "higher", ensemble, single, share=True))
    return scores


def _error_detection(rows: Rows) -> float | None:
    """The area under the ROC curve from ranks (Mann & Whitney, 1947), which needs no curve."""
    wrong = rows["correct"] == 0
    n_wrong, n_right = int(wrong.sum()), int((~wrong).sum())
    if not n_wrong or not n_right:
        return None
    area = per_row.ranks(-rows["confidence"])[wrong].sum() - n_wrong * (n_wrong + 1) / 2
    return float(area / (n_wrong * n_right))


def _calibration_error(rows: Rows, adaptive: bool) -> float:
    return reliability(rows["confidence"], rows["correct"], N_BINS, adaptive).calibration_error


def _curves(sources: Sources, n_classes: int) -> dict[str, Curve]:
    ensemble, wrong = sources.ensemble, 1 - sources.ensemble["correct"]
    curves: dict[str, Curve] = {}
    for prefix, rows in (("", ensemble), ("single ", sources.single)):
        if rows:
            diagram = reliability(rows["confidence"], rows["correct"], N_BINS)
            shares = per_row.as_lists(confidence=diagram.confidence, accuracy=diagram.accuracy, rows=diagram.count)
            curve = accuracy_confidence_curve(rows["confidence"], rows["correct"])
            kept = per_row.as_lists(threshold=curve.threshold, accuracy=curve.accuracy, kept=curve.kept)
            kept["accuracy"] = [None if np.isnan(value) else value for value in kept["accuracy"]]
            curves |= {f"{prefix}reliability": shares, f"{prefix}accuracy": kept}
    return curves | {
        "confidence": per_row.histogram(ensemble["confidence"], N_BINS),
        "rows": per_row.sample_rows(ensemble, ("aleatoric", "epistemic", "correct")),
        "error": per_row.group_means(ensemble["entropy"], {"entropy": ensemble["entropy"], "wrong": wrong}, np.mean),
        "risk": per_row.risk_curve(-ensemble["confidence"], wrong),
        **_confusions(ensemble, n_classes),
    }


def _confusions(rows: Rows, n_classes: int) -> dict[str, Curve]:
    """Rows of each true class by predicted class, the most frequent confusions, and each class's recall and precision."""
    actual, predicted = (rows[name].astype(np.int64) for name in ("actual", "predicted"))
    pairs, n_pair = np.unique(actual * n_classes + predicted, return_counts=True)
    true, guess = pairs // n_classes, pairs % n_classes
    n_actual, n_predicted = (np.bincount(classes, minlength=n_classes) for classes in (actual, predicted))
    hits = np.bincount(true[true == guess], n_pair[true == guess], n_classes)
    recall, precision = (_shares(hits, total) for total in (n_actual, n_predicted))
    curves: dict[str, Curve] = {"classes": {"rows": n_actual.tolist(), "recall": recall, "precision": precision}}
    wrong = np.flatnonzero(true != guess)
    worst = wrong[np.argsort(-n_pair[wrong], kind="stable")][:_CONFUSIONS]
    curves["confusions"] = per_row.as_lists(actual=true[worst], predicted=guess[worst], rows=n_pair[worst])
    if n_classes <= MATRIX_CLASSES:
        matrix = np.zeros((n_classes, n_classes), dtype=np.int64)
        matrix[true, guess] = n_pair
        curves["matrix"] = {str(i): matrix[i].tolist() for i in range(n_classes)}
    return curves


def _shares(hits: Any, totals: Any) -> list[float | None]:
    return [float(hit / total) if total else None for hit, total in zip(hits, totals, strict=True)]


def _thresholds(confidence: Vector, correct: Vector) -> list[Threshold]:
    overall = float(correct.mean())
    # Per mille between a good model's accuracy and 1, else per cent.
    parts = 1000 if overall > 0.95 else 200 if overall > 0.8 else 100
    targets = np.arange(int(np.floor(overall * parts)) + 1, parts + 1) / parts
    return per_row.thresholds(confidence, correct, targets[targets > overall].tolist(), at_least=True)


def _verdicts(rows: Rows, scores: list[Score], curves: dict[str, Curve], labels: Sequence[str]) -> dict[str, str]:
    risk, right, n_rows = curves["risk"]["risk"], rows["correct"], len(rows["correct"])
    half, entropy = risk[(len(risk) - 1) // 2], float(rows["entropy"].mean())
    part = float(rows["epistemic"].mean()) / entropy if entropy > 0 else 0.0
    sure = rows["confidence"] >= 0.9
    verdicts = {
        "reliability": confidence_verdict(float(rows["confidence"].mean()), float(right.mean()), n_rows),
        "risk": f"Of the surest half of the rows {percent(half)} are wrong, of all {percent(risk[-1])}.",
        "parts": f"{percent(part)} of the predicted entropy is disagreement between members.",
        "confidence": f"On {percent(float(sure.mean()))} of the rows the confidence is 90\u202f% or more.",
    }
    if scores[-1].name == "Error detection" and n_rows >= per_row.MIN_ROWS:
        area, n_right = scores[-1].ensemble, float(right.sum())
        chance = 2 * np.sqrt((n_rows + 1) / (12 * n_right * (n_rows - n_right)))
        verdict = order_verdict(area - 0.5, chance, 0.15)
        verdicts["error"] = f"In {percent(area)} of pairs a wrong prediction is less confident than a right one: {verdict}."
    if sure.any():
        accuracy = percent(float(right[sure].mean()))
        verdicts["accuracy"] = f"Where its confidence is 90\u202f% or more, it is right in {accuracy} of the rows."
    worst = curves["confusions"]
    if worst["rows"]:
        true, guess = labels[worst["actual"][0]], labels[worst["predicted"][0]]
        verdicts["matrix"] = f"The most frequent confusion: {true} taken for {guess}, in {row_count(worst['rows'][0])}."
    return verdicts


def _summary(rows: Rows, scores: list[Score], subject: Subject) -> str:
    accuracy, nll = scores[0], scores[1]
    constant, distance = "", ""
    if accuracy.constant is not None:
        which = "median" if subject.point == "median" else "most frequent"
        constant = f" (always naming the {which} class of training: {percent(accuracy.constant)})"
    if "distance" in rows:
        distance = f", off by {number(float(rows['distance'].mean()))} classes on average"
    return (
        f"On {row_count(len(rows['correct']))} the model names the right class in {percent(accuracy.ensemble)}{constant}"
        f"{distance}; it claimed {percent(float(rows['confidence'].mean()))} on average. "
        f"Its negative log-likelihood is {number(nll.ensemble)} nats."
    )
