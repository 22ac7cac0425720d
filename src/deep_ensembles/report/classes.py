"""Predicted classes: values per row → scores, curves, thresholds, verdicts."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from deep_ensembles.metrics import accuracy_confidence_curve
from deep_ensembles.metrics.predictions import reliability
from deep_ensembles.mixture import Mixture
from deep_ensembles.report import rows as per_row
from deep_ensembles.report.evaluation import Curve, Score, Threshold
from deep_ensembles.report.rows import Columns, Rows, Sources, Subject, Vector
from deep_ensembles.report.words import confidence_verdict, number, order_verdict, percent, row_count, short
from deep_ensembles.scoring import brier, crps, log_score

N_BINS = 15
_TOP = 5
# A matrix of more classes than this is unreadable; the most frequent confusions say more.
MATRIX_CLASSES = 64
TARGET_CLASSES = 12
_CONFUSIONS = 10
_FIRST, _RANKING_POINTS = 0.1, 60


def class_values(prediction: Mixture, target: Tensor, point: str) -> dict[str, Tensor]:
    """What predictions of classes were worth, row by row; where the point is the median, classes have an order."""
    confidence, predicted = prediction.probs.max(-1)
    ordered: dict[str, Tensor] = {}
    if point == "median":
        predicted = (prediction.probs[:, :-1].cumsum(-1) < 0.5).sum(-1)
        confidence = prediction.probs.gather(-1, predicted[:, None])[:, 0]
        ordered = {"distance": (predicted - target).abs(), "crps": crps(prediction, target)}
    order = prediction.probs.argsort(dim=-1, descending=True, stable=True)
    second = {"second": prediction.probs[:, 1]} if prediction.probs.shape[-1] == 2 else {}
    return (
        ordered
        | second
        | {
            "confidence": confidence.clamp_max(1.0),
            "predicted": predicted,
            "correct": predicted == target,
            "place": (order == target[:, None]).double().argmax(-1),
            "nll": log_score(prediction, target),
            "brier": brier(prediction, target),
        }
    )


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
    rows, names, told = sources.ensemble, np.array(labels, dtype=object), [*map(short, labels)]
    rare = _rare_class(sources)
    scores, curves = _scores(sources, subject), _curves(sources, len(labels))
    verdicts = _verdicts(rows, scores, curves, told)
    if rare is not None:
        ranked, positive = sources.apply(lambda source: source["second"] * (2 * rare - 1)), rows["actual"] == rare
        scores[1:1] = _rare_scores(ranked, positive, told[rare])
        curves |= _rare_curves(_ranking(ranked[0], positive))
        verdicts |= _rare_verdicts(_ranking(ranked[0], positive), scores, told[rare])
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
        "verdicts": verdicts,
        "summary": _summary(rows, scores, subject),
        "notes": {
            "predicts": f"{len(labels)} classes" + (" with an order" if subject.point == "median" else ""),
            "uncertainty": "confidence",
            "rows": "Entropy is the whole uncertainty in nats; disagreement is the sum of the members' divergences from "
            "their average.",
            "parts": "entropy; and the entropy of their average minus that (mutual information), in nats.",
            "constant": "probabilities for every row: the share of each class in training",
            **({} if rare is None else {"rare": told[rare]}),
        },
    }


def _rare_class(sources: Sources) -> int | None:
    """Of two classes that both occur the rarer one, in training where that is known; else None."""
    rows, constant = sources.ensemble, sources.constant
    if "second" not in rows or not np.ptp(rows["actual"]):
        return None
    return 1 - int(constant["predicted"][0]) if constant else int(rows["actual"].mean() <= 0.5)


class _Ranking(NamedTuple):
    """Rows ranked by a score, at each of its different values, the largest first: how many there are, how many positive."""

    rows: Vector
    found: Vector

    @property
    def precision(self) -> Vector:
        return self.found / self.rows

    @property
    def recall(self) -> Vector:
        return self.found / self.found[-1]

    @property
    def false_alarms(self) -> Vector:
        others = self.rows - self.found
        return others / others[-1]

    def area(self) -> float:
        """Under the ROC curve: the share of pairs that are ranked right."""
        return float(np.trapezoid(np.append(0, self.recall), np.append(0, self.false_alarms)))

    def average_precision(self) -> float:
        """The mean precision over all positive rows, each at its place."""
        return float((np.diff(self.recall, prepend=0) * self.precision).sum())

    def recall_at(self, share: float) -> float:
        """The share of positive rows found among the first, rows of equal score in any order."""
        return float(np.interp(share * self.rows[-1], np.append(0, self.rows), np.append(0, self.recall)))


def _ranking(score: Vector, positive: Any) -> _Ranking:
    order = np.argsort(-score, kind="stable")
    last = np.flatnonzero(np.append(np.diff(score[order]) != 0, True))
    return _Ranking(last + np.float64(1), positive[order].cumsum()[last].astype(np.float64))


def _placements(score: Vector, positive: Any) -> Vector:
    """Of each row the share of the other class that it is ranked rightly to; the mean of either class is the area."""
    places, shares = per_row.ranks(score), np.empty(len(score))
    for side in (positive, ~positive):
        shares[side] = (places[side] - per_row.ranks(score[side])) / (~side).sum()
    return np.where(positive, shares, 1 - shares)


def _area_difference(ours: Vector, other: Vector | None, positive: Any) -> tuple[float | None, float | None]:
    """The difference of areas and its standard error (DeLong, DeLong & Clarke-Pearson, 1988); none where rows are few."""
    if other is None or min(positive.sum(), (~positive).sum()) < per_row.MIN_ROWS:
        return None, None
    sides = [(_placements(ours, positive) - _placements(other, positive))[side] for side in (positive, ~positive)]
    return float(sides[0].mean()), float(sum(side.var(ddof=1) / len(side) for side in sides) ** 0.5)


def _rare_scores(ranked: Any, positive: Any, label: str) -> list[Score]:
    values: Any = [[None if score is None else value(_ranking(score, positive)) for score in ranked]
                   for value in (_Ranking.average_precision, _Ranking.area)]  # fmt: skip
    differences: Any = [change for other in ranked[1:] for change in _area_difference(ranked[0], other, positive)]
    meaning = f"of {label}, the rarer class: mean precision over its rows, in the order of P({label}); at random its share"
    pairs = f"area under the ROC curve: in how many pairs a row of {label} gets a higher P({label}) than another row"
    scores = (
        Score("Average precision", meaning, "higher", *values[0]),
        Score("AUROC", pairs, "higher", *values[1], *differences),
    )
    return [replace(score, share=True) for score in scores]


def _rare_curves(ranking: _Ranking) -> dict[str, Curve]:
    """Points of the curves: spread evenly over rows and over what is found."""
    rows, found = ranking
    spread = [np.searchsorted(values, np.linspace(0, values[-1], _RANKING_POINTS)) for values in (rows, found)]
    at = np.unique(np.concatenate(spread))
    recall, begin = ranking.recall[at], np.zeros(1)
    return {
        "roc": per_row.as_lists(false=np.append(begin, ranking.false_alarms[at]), found=np.append(begin, recall)),
        "precision": per_row.as_lists(recall=recall, precision=ranking.precision[at]),
        "lift": per_row.as_lists(share=np.append(begin, rows[at] / rows[-1]), found=np.append(begin, recall)),
    }


def _rare_verdicts(ranking: _Ranking, scores: list[Score], label: str) -> dict[str, str]:
    precision, area, n_rare = scores[1].ensemble, scores[2].ensemble, int(ranking.found[-1])
    share, found = n_rare / ranking.rows[-1], ranking.recall_at(_FIRST)
    few = f" With only {row_count(n_rare)} of {label}, that says little." if n_rare < per_row.MIN_ROWS else ""
    return {
        "roc": f"In {percent(area)} of pairs the row of {label} gets the higher probability.{few}",
        "precision": f"The average precision of {label} is {percent(precision)}; at random it is {percent(share)}.{few}",
        "lift": f"The tenth ranked first holds {percent(found)} of {label}, {found / _FIRST:.1f} times its share.{few}",
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
    wrong = rows["correct"] == 0
    return _ranking(-rows["confidence"], wrong).area() if np.ptp(rows["correct"]) else None


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
        "target": _target(ensemble, n_classes),
        "rows": per_row.sample_rows(ensemble, ("aleatoric", "epistemic", "correct")),
        "error": per_row.group_means(ensemble["entropy"], {"entropy": ensemble["entropy"], "wrong": wrong}, np.mean),
        **_confusions(ensemble, n_classes),
    }


def _target(rows: Rows, n_classes: int) -> Curve:
    """The share of each class among what happened and what was predicted, the most frequent first."""
    actual, predicted = (np.bincount(rows[name].astype(np.int64), minlength=n_classes) for name in ("actual", "predicted"))
    order = np.argsort(-actual, kind="stable")[:TARGET_CLASSES]
    n_rows = len(rows["actual"])
    return per_row.as_lists(label=order, actual=actual[order] / n_rows, predicted=predicted[order] / n_rows)


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
    right, n_rows, entropy = rows["correct"], len(rows["correct"]), float(rows["entropy"].mean())
    part = float(rows["epistemic"].mean()) / entropy if entropy > 0 else 0.0
    sure = rows["confidence"] >= 0.9
    verdicts = {
        "reliability": confidence_verdict(float(rows["confidence"].mean()), float(right.mean()), n_rows),
        "parts": f"{percent(part)} of the predicted entropy is disagreement between members.",
    }
    if scores[-1].name == "Error detection" and n_rows >= per_row.MIN_ROWS:
        area, n_right = scores[-1].ensemble, float(right.sum())
        chance = 2 * np.sqrt((n_rows + 1) / (12 * n_right * (n_rows - n_right)))
        verdict = order_verdict(area - 0.5, chance, 0.15)
        verdicts["error"] = f"In {percent(area)} of pairs a wrong prediction is less confident than a right one: {verdict}."
    if sure.any():
        share, accuracy = percent(float(sure.mean())), percent(float(right[sure].mean()))
        verdicts["accuracy"] = (
            f"Where its confidence is 90\u202f% or more, in {share} of the rows, it is right in {accuracy}."
        )
    worst = curves["confusions"]
    if worst["rows"]:
        true, guess = labels[worst["actual"][0]], labels[worst["predicted"][0]]
        verdicts["matrix"] = f"The most frequent confusion: {true} taken for {guess}, in {row_count(worst['rows'][0])}."
    return verdicts


def _summary(rows: Rows, scores: list[Score], subject: Subject) -> str:
    by_name = {score.name: score for score in scores}
    accuracy, nll, precision = scores[0], by_name["NLL"], by_name.get("Average precision")
    constant, distance = "", ""
    if accuracy.constant is not None:
        which = "median" if subject.point == "median" else "most frequent"
        constant = f" (always naming the {which} class of training: {percent(accuracy.constant)})"
    if "distance" in rows:
        distance = f", off by {number(float(rows['distance'].mean()))} classes on average"
    return (
        f"On {row_count(len(rows['correct']))} the model names the right class in {percent(accuracy.ensemble)}{constant}"
        f"{distance}; it claimed {percent(float(rows['confidence'].mean()))} on average. "
        f"Its negative log-likelihood is {number(nll.ensemble)} nats"
        f"{'' if precision is None else f', its average precision of the rarer class {percent(precision.ensemble)}'}."
    )
