"""Predicted classes: facts of rows → scores, curves, verdicts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from deep_ensembles.metrics import accuracy_confidence_curve, ood_detection
from deep_ensembles.metrics.calibration import reliability
from deep_ensembles.report._facts import Facts, Rows, Sources, Vector
from deep_ensembles.report.evaluation import Curve, Findings, Stop
from deep_ensembles.report.examples import Columns, examples
from deep_ensembles.report.scores import Score, mean_score, over
from deep_ensembles.report.selection import ENOUGH, by_doubt, histogram, lists, risk_by_share, shown_rows, stops
from deep_ensembles.report.wording import awareness_verdict, confidence_verdict, number, percent, row_count

N_BINS = 15
_TOP = 5
# A matrix of more classes than this is unreadable; the most frequent confusions say more.
MATRIX_CLASSES = 64
_CONFUSIONS = 15


def of_classes(facts: Facts, labels: Sequence[str], columns: Columns | None) -> Findings:
    """What is found out of predicted classes."""
    rows, names = facts.sources[0], np.array(labels, dtype=object)
    scores, curves = _scores(facts.sources, len(labels)), _curves(facts.sources, len(labels))
    told = {name: names[rows[name].astype(np.int64)] for name in ("actual", "predicted")}
    told |= {name: rows[name] for name in ("confidence", "truth", "entropy", "disagreement")}
    return Findings(
        scores,
        curves,
        _stops(rows["confidence"], rows["correct"]),
        uncertain=examples(rows["entropy"], told, columns),
        wrong=examples(np.where(rows["correct"] == 1, 0.0, rows["nll"]), told, columns),
        verdicts=_verdicts(rows, scores, curves, labels),
        summary=_summary(rows, scores),
    )


def _scores(sources: Sources, n_classes: int) -> list[Score]:
    meaning = "share of rows whose most probable class is the true one"
    found = [mean_score("Accuracy", meaning, "higher", sources, "correct", share=True)]
    meaning = "mean negative log-likelihood, −log p(true class), in nats"
    found.append(mean_score("NLL", meaning, "lower", sources, "nll"))
    meaning = f"mean squared distance of the probabilities from the truth, divided by the {n_classes} classes"
    found.append(mean_score("Brier score", meaning, "lower", sources, "brier"))
    if n_classes > 2 * _TOP:
        meaning = f"share of rows whose true class is not among the {_TOP} most probable"
        values = over(sources, lambda rows: float((rows["place"] >= _TOP).mean()))
        found.append(Score(f"Top-{_TOP} error", meaning, "lower", *values, share=True))
    for name, long, kind in (("ECE", "expected", "equally wide"), ("ACE", "adaptive", "equally full")):
        meaning = f"{long} calibration error: mean distance of accuracy from confidence over {N_BINS} {kind} bins"
        values = over(sources, partial(_calibration_error, adaptive=name == "ACE"))
        found.append(Score(name, meaning, "lower", *values, share=True))
    # A constant is equally confident of every row, and detects nothing.
    ensemble, single, _ = over((*sources[:2], {}), _error_detection)
    if ensemble is not None:
        meaning = (
            "area under the ROC curve: in how many pairs of a wrong and a right prediction the wrong one is less confident"
        )
        found.append(Score("Error detection", meaning, "higher", ensemble, single, share=True))
    return found


def _error_detection(rows: Rows) -> float | None:
    right = rows["correct"] == 1
    if right.all() or not right.any():
        return None
    return ood_detection(-rows["confidence"][right], -rows["confidence"][~right]).auroc


def _calibration_error(rows: Rows, adaptive: bool) -> float:
    return reliability(rows["confidence"], rows["correct"], N_BINS, adaptive).calibration_error


def _curves(sources: Sources, n_classes: int) -> dict[str, Curve]:
    rows, wrong = sources[0], 1 - sources[0]["correct"]
    curves: dict[str, Curve] = {}
    for prefix, each in zip(("", "single "), sources, strict=False):
        if each:
            diagram = reliability(each["confidence"], each["correct"], N_BINS)
            shares = lists(confidence=diagram.confidence, accuracy=diagram.accuracy, rows=diagram.count)
            curve = accuracy_confidence_curve(each["confidence"], each["correct"])
            kept = lists(threshold=curve.threshold, accuracy=curve.accuracy, kept=curve.kept)
            kept["accuracy"] = [None if np.isnan(value) else value for value in kept["accuracy"]]
            curves |= {f"{prefix}reliability": shares, f"{prefix}accuracy": kept}
    return curves | {
        "confidence": histogram(rows["confidence"], N_BINS),
        "rows": shown_rows(rows, ("aleatoric", "epistemic", "correct")),
        "error": by_doubt(rows["entropy"], {"entropy": rows["entropy"], "wrong": wrong}, np.mean),
        "risk": risk_by_share(-rows["confidence"], wrong),
        **_confusions(rows, n_classes),
    }


def _confusions(facts: Rows, n_classes: int) -> dict[str, Curve]:
    """Rows of each true class by predicted class, the most frequent confusions, and each class's recall and precision."""
    actual, predicted = (facts[name].astype(np.int64) for name in ("actual", "predicted"))
    pairs, number_of = np.unique(actual * n_classes + predicted, return_counts=True)
    true, guess = pairs // n_classes, pairs % n_classes
    rows, said = (np.bincount(each, minlength=n_classes) for each in (actual, predicted))
    hits = np.bincount(true[true == guess], number_of[true == guess], n_classes)
    recall, precision = (_shares(hits, each) for each in (rows, said))
    found: dict[str, Curve] = {"classes": {"rows": rows.tolist(), "recall": recall, "precision": precision}}
    off = np.flatnonzero(true != guess)
    worst = off[np.argsort(-number_of[off], kind="stable")][:_CONFUSIONS]
    found["confusions"] = lists(actual=true[worst], predicted=guess[worst], rows=number_of[worst])
    if n_classes <= MATRIX_CLASSES:
        matrix = np.zeros((n_classes, n_classes), dtype=np.int64)
        matrix[true, guess] = number_of
        found["matrix"] = {str(i): matrix[i].tolist() for i in range(n_classes)}
    return found


def _shares(hits: Any, of: Any) -> list[float | None]:
    return [float(hit / n) if n else None for hit, n in zip(hits, of, strict=True)]


def _stops(confidence: Vector, correct: Vector) -> list[Stop]:
    overall = float(correct.mean())
    # Per mille between a good model's accuracy and 1, else per cent.
    parts = 1000 if overall > 0.95 else 200 if overall > 0.8 else 100
    demands = np.arange(int(np.floor(overall * parts)) + 1, parts + 1) / parts
    found = stops(-confidence, correct, demands[demands > overall].tolist(), least=True)
    return [replace(each, threshold=-each.threshold) for each in found]


def _verdicts(rows: Rows, scores: list[Score], curves: dict[str, Curve], labels: Sequence[str]) -> dict[str, str]:
    risk, right, n_rows = curves["risk"]["risk"], rows["correct"], len(rows["correct"])
    half, total = risk[(len(risk) - 1) // 2], float(rows["entropy"].mean())
    part = float(rows["epistemic"].mean()) / total if total > 0 else 0.0
    sure = rows["confidence"] >= 0.9
    found = {
        "reliability": confidence_verdict(float(rows["confidence"].mean()), float(right.mean()), n_rows),
        "risk": f"Of the surest half of the rows {percent(half)} are wrong, of all {percent(risk[-1])}.",
        "parts": f"{percent(part)} of the predicted entropy is disagreement between members.",
        "confidence": f"On {percent(float(sure.mean()))} of the rows the confidence is 90\u202f% or more.",
    }
    if scores[-1].name == "Error detection" and n_rows >= ENOUGH:
        area, n_right = scores[-1].ensemble, float(right.sum())
        chance = 2 * math.sqrt((n_rows + 1) / (12 * n_right * (n_rows - n_right)))
        judged = awareness_verdict(area - 0.5, chance, 0.15)
        found["error"] = f"In {percent(area)} of pairs a wrong prediction is less confident than a right one: {judged}."
    if sure.any():
        reached = percent(float(right[sure].mean()))
        found["accuracy"] = f"Where its confidence is 90\u202f% or more, it is right in {reached} of the rows."
    worst = curves["confusions"]
    if worst["rows"]:
        true, guess = labels[worst["actual"][0]], labels[worst["predicted"][0]]
        found["matrix"] = f"The most frequent confusion: {true} taken for {guess}, in {row_count(worst['rows'][0])}."
    return found


def _summary(rows: Rows, scores: list[Score]) -> str:
    accuracy, nll = scores[0], scores[1]
    constant = ""
    if accuracy.constant is not None:
        constant = f" (always naming the most frequent class of training: {percent(accuracy.constant)})"
    return (
        f"On {row_count(len(rows['correct']))} the model names the right class in {percent(accuracy.ensemble)}{constant}; "
        f"it claimed {percent(float(rows['confidence'].mean()))} on average. "
        f"Its negative log-likelihood is {number(nll.ensemble)} nats."
    )
