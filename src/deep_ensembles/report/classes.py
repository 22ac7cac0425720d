"""Predicted classes: facts of rows → scores, curves, verdicts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch.distributions import Categorical, Distribution

from deep_ensembles._checks import require
from deep_ensembles.metrics import accuracy_confidence_curve, ood_detection
from deep_ensembles.metrics.reliability_diagram import reliability
from deep_ensembles.report._facts import Facts, Vector
from deep_ensembles.report.evaluation import Curve, Evaluation, Outside, Stop
from deep_ensembles.report.examples import Columns, examples
from deep_ensembles.report.scores import Rows, Score, Sources, mean_score, over
from deep_ensembles.report.selection import bins, risk_by_share, shown_rows, stops
from deep_ensembles.report.wording import awareness_verdict, confidence_verdict, number, percent, row_count
from deep_ensembles.scoring import brier, log_score

N_BINS = 15
_TOP = 5
# A matrix of more classes than this is unreadable; the most frequent confusions say more.
MATRIX_CLASSES = 64
_CONFUSIONS = 15
# Of fewer rows nothing is said about the order of errors.
_ENOUGH = 20


def of_classes(
    facts: Facts,
    constant: Distribution | None,
    labels: Sequence[str],
    about: dict[str, str],
    columns: Columns | None,
    outside: Sequence[Outside] | None,
) -> Evaluation:
    """The evaluation of predicted classes."""
    rows = facts.ensemble
    known = {} if constant is None else _constant_facts(constant, rows["actual"], facts.n_classes)
    scores = _scores((rows, facts.single, known), facts.n_classes)
    names = np.array(labels, dtype=object)
    actual, predicted = (rows[name].astype(np.int64) for name in ("actual", "predicted"))
    told = {
        "actual": names[actual],
        "predicted": names[predicted],
        "confidence": rows["confidence"],
        "truth": rows["truth"],
        "entropy": rows["entropy"],
        "disagreement": rows["disagreement"],
    }
    return Evaluation(
        task="classes",
        n_rows=facts.n_rows,
        n_members=facts.n_members,
        coverage=None,
        about=about,
        labels=tuple(labels),
        scores=scores,
        curves=_curves(facts, actual, predicted),
        stops=_stops(rows["confidence"], rows["correct"]),
        uncertain=examples(rows["entropy"], told, columns),
        wrong=examples(np.where(rows["correct"] == 1, 0.0, rows["nll"]), told, columns),
        outside=outside,
        verdicts=_verdicts(facts, scores, actual, predicted, labels),
        summary=_summary(facts, scores),
    )


def _constant_facts(constant: Distribution, actual: Vector, n_classes: int) -> Rows:
    """What the same probabilities for every row are worth."""
    wrong = not isinstance(constant, Categorical) or constant.probs.shape != (n_classes,)
    require(not wrong, "constant", f"one Categorical of {n_classes} classes", constant)
    shares: torch.Tensor = constant.probs.detach().cpu().double()  # type: ignore[attr-defined]
    target = torch.from_numpy(actual).long()
    same = Categorical(probs=shares.expand(len(actual), n_classes))
    order = shares.argsort(descending=True, stable=True)
    found = {"nll": log_score(same, target), "brier": brier(same, target), "place": order.argsort()[target].double()}
    best = int(shares.argmax())
    right = (target == best).double()
    found |= {"correct": right, "confidence": torch.full_like(right, float(shares[best]))}
    return {name: each.numpy() for name, each in found.items()}


def _scores(sources: Sources, n_classes: int) -> list[Score]:
    found = [
        mean_score(
            "Accuracy", "share of rows whose most probable class is the true one", "higher", sources, "correct", True
        ),
        mean_score("NLL", "mean negative log-likelihood, −log p(true class), in nats", "lower", sources, "nll"),
    ]
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
    if (area := _error_detection(sources[0])) is not None:
        meaning = (
            "area under the ROC curve: in how many pairs of a wrong and a right prediction the wrong one is less confident"
        )
        single = _error_detection(sources[1]) if sources[1] else None
        found.append(Score("Error detection", meaning, "higher", area, single, share=True))
    return found


def _error_detection(rows: Rows) -> float | None:
    right = rows["correct"] == 1
    if right.all() or not right.any():
        return None
    return ood_detection(-rows["confidence"][right], -rows["confidence"][~right]).auroc


def _calibration_error(rows: Rows, adaptive: bool) -> float:
    return reliability(rows["confidence"], rows["correct"], N_BINS, adaptive).calibration_error


def _curves(facts: Facts, actual: Any, predicted: Any) -> dict[str, Curve]:
    rows = facts.ensemble
    wrong = 1 - rows["correct"]
    curves: dict[str, Curve] = {}
    for name, each in (("reliability", rows), ("single reliability", facts.single)):
        if each:
            diagram = reliability(each["confidence"], each["correct"], N_BINS)
            lists = (diagram.confidence.tolist(), diagram.accuracy.tolist(), diagram.count.tolist())
            curves[name] = dict(zip(("confidence", "accuracy", "rows"), lists, strict=True))
    for name, each in (("accuracy", rows), ("single accuracy", facts.single)):
        if each:
            curve = accuracy_confidence_curve(each["confidence"], each["correct"])
            reached = [None if np.isnan(value) else value for value in curve.accuracy.tolist()]
            curves[name] = {"threshold": curve.threshold.tolist(), "accuracy": reached, "kept": curve.kept.tolist()}
    shown, groups = shown_rows(len(wrong)), bins(rows["entropy"])
    histogram = np.histogram(rows["confidence"], N_BINS, (0.0, 1.0))
    names = ("aleatoric", "epistemic", "correct")
    return curves | {
        "confidence": {"edge": histogram[1].tolist(), "share": (histogram[0] / len(wrong)).tolist()},
        "rows": {"row": shown.tolist(), **{name: rows[name][shown].tolist() for name in names}},
        "error": {
            "entropy": [float(rows["entropy"][group].mean()) for group in groups],
            "wrong": [float(wrong[group].mean()) for group in groups],
            "rows": [len(group) for group in groups],
        },
        "risk": risk_by_share(-rows["confidence"], wrong),
        **_confusions(actual, predicted, facts.n_classes),
    }


def _confusions(actual: Any, predicted: Any, n_classes: int) -> dict[str, Curve]:
    """Rows of each true class by predicted class, the most frequent confusions, and each class's recall and precision."""
    pairs, number_of = np.unique(actual * n_classes + predicted, return_counts=True)
    true, guess = pairs // n_classes, pairs % n_classes
    rows, said = (np.bincount(each, minlength=n_classes) for each in (actual, predicted))
    hits = np.bincount(true[true == guess], number_of[true == guess], n_classes)
    recall, precision = (_shares(hits, each) for each in (rows, said))
    found: dict[str, Curve] = {"classes": {"rows": rows.tolist(), "recall": recall, "precision": precision}}
    off = np.flatnonzero(true != guess)
    worst = off[np.argsort(-number_of[off], kind="stable")][:_CONFUSIONS]
    found["confusions"] = {
        "actual": true[worst].tolist(),
        "predicted": guess[worst].tolist(),
        "rows": number_of[worst].tolist(),
    }
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
    found = stops(-confidence, correct, demands[demands > overall], least=True)
    return [Stop(each.wanted, -each.threshold, each.reached, each.kept, each.rows) for each in found]


def _verdicts(facts: Facts, scores: list[Score], actual: Any, predicted: Any, labels: Sequence[str]) -> dict[str, str]:
    rows, n_rows = facts.ensemble, facts.n_rows
    wrong = 1 - rows["correct"]
    risk = risk_by_share(-rows["confidence"], wrong)["risk"]
    half = risk[(len(risk) - 1) // 2]
    total = float(rows["entropy"].mean())
    part = float(rows["epistemic"].mean()) / total if total > 0 else 0.0
    sure = rows["confidence"] >= 0.9
    found = {
        "reliability": confidence_verdict(float(rows["confidence"].mean()), float(rows["correct"].mean()), n_rows),
        "risk": f"Of the surest half of the rows {percent(half)} are wrong, of all {percent(risk[-1])}.",
        "parts": f"{percent(part)} of the predicted entropy is disagreement between members.",
        "confidence": f"On {percent(float(sure.mean()))} of the rows the confidence is 90\u202f% or more.",
    }
    area = next((score.ensemble for score in scores if score.name == "Error detection"), None)
    if area is not None and n_rows >= _ENOUGH:
        n_wrong = float(wrong.sum())
        chance = 2 * math.sqrt((n_rows + 1) / (12 * n_wrong * (n_rows - n_wrong)))
        judged = awareness_verdict(area - 0.5, chance, 0.15)
        found["error"] = f"In {percent(area)} of pairs a wrong prediction is less confident than a right one: {judged}."
    if sure.any():
        right = float(rows["correct"][sure].mean())
        found["accuracy"] = f"Where its confidence is 90\u202f% or more, it is right in {percent(right)} of the rows."
    worst = _confusions(actual, predicted, facts.n_classes)["confusions"]
    if worst["rows"]:
        true, guess = labels[worst["actual"][0]], labels[worst["predicted"][0]]
        found["matrix"] = f"The most frequent confusion: {true} taken for {guess}, in {row_count(worst['rows'][0])}."
    return found


def _summary(facts: Facts, scores: list[Score]) -> str:
    accuracy, nll = scores[0], scores[1]
    text = f"On {row_count(facts.n_rows)} the model names the right class in {percent(accuracy.ensemble)}"
    if accuracy.constant is not None:
        text += f" (always naming the most frequent class of training: {percent(accuracy.constant)})"
    stated = float(facts.ensemble["confidence"].mean())
    return text + f"; it claimed {percent(stated)} on average. Its negative log-likelihood is {number(nll.ensemble)} nats."
