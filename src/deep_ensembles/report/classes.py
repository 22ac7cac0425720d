"""Predicted classes: values per row → scores, curves, thresholds, verdicts."""

from functools import partial
from typing import Any

import numpy as np
from torch import Tensor

from deep_ensembles import Mixture, brier, crps, log_score
from deep_ensembles.metrics import accuracy_confidence_curve
from deep_ensembles.metrics.predictions import reliability
from deep_ensembles.report import rows as per_row
from deep_ensembles.report.evaluation import Curve, Score, Threshold
from deep_ensembles.report.rows import Columns, Rows, Sources, Subject, Vector
from deep_ensembles.report.words import Ordering, confidence_verdict, parts_verdict, percent, row_count, short

N_BINS = 15
_TOP = 5
# A matrix of more classes than this is unreadable; the most frequent confusions say more.
MATRIX_CLASSES = 64
TARGET_CLASSES = 12
_CONFUSIONS = 10
_FIRST, _RANKING_POINTS = 0.1, 60
_FEWEST_RANKED = 5  # rows of a class, below which nothing is said of how well it is ranked


def row_values(prediction: Mixture, target: Tensor, subject: Subject) -> dict[str, Tensor]:
    """What predictions of classes were worth, row by row; where the point is the median, classes have an order."""
    probs = prediction.probs
    confidence, predicted = probs.max(-1)
    values: dict[str, Tensor] = {}
    if subject.point == "median":
        predicted = (probs[:, :-1].cumsum(-1) < 0.5).sum(-1)
        confidence = probs.gather(-1, predicted[:, None])[:, 0]
        values = {"distance": (predicted - target).abs(), "crps": crps(prediction, target)}
    if probs.shape[-1] == 2:
        values["second"] = probs[:, 1]
    order = probs.argsort(dim=-1, descending=True, stable=True)
    values |= {"confidence": confidence.clamp_max(1.0), "predicted": predicted, "correct": predicted == target}
    values |= {"nll": log_score(prediction, target), "brier": brier(prediction, target)}
    return values | {"place": (order == target[:, None]).double().argmax(-1)}


def row_details(prediction: Mixture, target: Tensor) -> dict[str, Tensor]:
    """What else is shown of the ensemble's rows."""
    parts = {name: getattr(prediction, name) for name in ("aleatoric", "epistemic", "disagreement")}
    truth = prediction.probs.gather(-1, target[:, None])[:, 0]
    return {"actual": target, "truth": truth, "entropy": prediction.entropy(), **parts}


def report_fields(sources: Sources, subject: Subject, columns: Columns | None) -> dict[str, Any]:
    """The fields of an `Evaluation` that are special to predicted classes."""
    rows, labels = sources.ensemble, subject.labels
    scores, curves, rare = _scores(sources, subject), _curves(sources, len(labels)), _rare_class(sources)
    order = " with an order" if subject.point == "median" else ""
    notes = {"predicts": f"{len(labels)} classes{order}", "uncertainty": "confidence"}
    ordering = _ordering(rows, scores)
    thresholds, trust = per_row.recommended(_thresholds(rows["confidence"], rows["correct"]), ordering, at_least=True)
    verdicts = {**_verdicts(rows, curves, labels, ordering), **trust}
    if rare is not None:
        notes["rare"] = short(labels[rare])
        found, more, sentences = _ranked(sources, rare, notes["rare"])
        scores[1:1], curves, verdicts = found, curves | more, verdicts | sentences
        thresholds, only_frequent = _of_both_classes(thresholds, rows, rare, labels)
        verdicts |= only_frequent
    names = np.array(labels, dtype=object)
    shown = {name: names[rows[name].astype(np.int64)] for name in ("actual", "predicted")}
    shown |= {name: rows[name] for name in ("row", "confidence", "truth", "entropy", "disagreement")}
    wrong = np.where(rows["correct"] == 1, 0.0, rows["nll"])
    fields = {"scores": scores, "curves": curves, "thresholds": thresholds, "verdicts": verdicts, "notes": notes}
    fields |= {"uncertain": per_row.examples(rows["entropy"], shown, columns)}
    return fields | {"wrong": per_row.examples(wrong, shown, columns)}


def _rare_class(sources: Sources) -> int | None:
    """Of two classes that both occur the rarer one, in training where that is known; else None."""
    rows, constant = sources.ensemble, sources.constant
    if "second" not in rows or not np.ptp(rows["actual"]):
        return None
    return 1 - int(constant["predicted"][0]) if constant else int(rows["actual"].mean() <= 0.5)


def _ranked(sources: Sources, rare: int, label: str) -> tuple[list[Score], dict[str, Curve], dict[str, str]]:
    """Scores, curves and verdicts of rows in the order of the probability of the rarer class."""
    ranked, positive = sources.apply(lambda rows: rows["second"] * (2 * rare - 1)), sources.ensemble["actual"] == rare
    values: Any = [[None if score is None else value(score, positive) for score in ranked]
                   for value in (_average_precision, _area)]  # fmt: skip
    differences: Any = [change for other in ranked[1:] for change in _area_difference(ranked[0], other, positive)]
    meaning = f"of {label}: mean precision over its rows, in the order of P({label}); at random its share"
    pairs = f"area under the ROC curve: in how many pairs a row of {label} gets a higher P({label}) than another row"
    scores = [Score("Average precision", meaning, "higher", *values[0], share=True)]  # type: ignore[misc]
    scores.append(Score("AUROC", pairs, "higher", *values[1], *differences, share=True))  # type: ignore[misc]
    _, rows, found = per_row.cumulated(ranked[0], positive)
    first = np.interp(_FIRST * rows[-1], np.append(0, rows), np.append(0, found)) / found[-1]
    share, n_rare = percent(found[-1] / rows[-1]), int(found[-1])
    few = f" Only {row_count(n_rare)} of {label}: such numbers are rough." if n_rare < per_row.MIN_ROWS else ""
    return scores, _ranking_curves(rows, found), {
        "roc": f"In {percent(values[1][0])} of pairs the row of {label} gets the higher probability.{few}",
        "precision": f"The average precision of {label} is {percent(values[0][0])}; at random it is {share}.{few}",
        "lift": f"The tenth ranked first holds {percent(first)} of {label}, {first / _FIRST:.1f} times its share.{few}",
    }  # fmt: skip


def _of_both_classes(lines: list[Threshold], rows: Rows, rare: int, labels: Any) -> tuple[list[Threshold], dict[str, str]]:
    """Thresholds that keep predictions of the rarer class too, as accuracy says little of others; and what is missing."""
    names_rare, missing = rows["predicted"] == rare, dict[str, str]()
    both = [line for line in lines[1:] if names_rare[rows["confidence"] >= line.threshold].any()]
    if len(lines) > 1 and not both:
        missing["trust"] = f"No threshold is recommended: each keeps only predictions of {short(labels[1 - rare])}."
    if not np.ptp(rows["predicted"]):
        never = short(labels[1 - int(rows["predicted"][0])])
        missing["never"] = (f"It never predicts `{never}`: its probability is above one half in no row; take rows in the "
                            "order of that probability, or choose a lower threshold.")  # fmt: skip
    return [lines[0], *both], missing


def _average_precision(score: Vector, positive: Any) -> float:
    """The mean precision over all positive rows, each at its place."""
    _, rows, found = per_row.cumulated(score, positive)
    return float((np.diff(found, prepend=0) * found / rows).sum() / found[-1])


def _placements(score: Vector, positive: Any) -> Vector:
    """Of each row the share of the other class that it is ranked rightly to; the mean of either class is the area."""
    from scipy.stats import rankdata  # late, as it takes a while

    places, shares = rankdata(score), np.empty(len(score))
    for side in (positive, ~positive):
        shares[side] = (places[side] - rankdata(score[side])) / (~side).sum()
    return np.where(positive, shares, 1 - shares)


def _area(score: Vector, positive: Any) -> float:
    """Under the ROC curve: the share of pairs that are ranked right."""
    return float(_placements(score, positive)[positive].mean())


def _area_difference(ours: Vector, other: Vector | None, positive: Any) -> tuple[float | None, float | None]:
    """The difference of areas and its standard error; none where rows of a class are very few.

    Where a class has fewer than 20 rows and the other is one guess for all, the error is that of a ranking by chance, which
    small samples do not understate.

    References:
        Mann & Whitney (1947); DeLong, DeLong & Clarke-Pearson (1988).
    """
    sizes = [int(side.sum()) for side in (positive, ~positive)]
    if other is None or min(sizes) < (per_row.MIN_ROWS if np.ptp(other) else _FEWEST_RANKED):
        return None, None
    sides = [(_placements(ours, positive) - _placements(other, positive))[side] for side in (positive, ~positive)]
    by_chance = (len(ours) + 1) / (12 * sizes[0] * sizes[1])
    variance = sum(side.var(ddof=1) / len(side) for side in sides)
    return float(sides[0].mean()), float(max(variance, by_chance if min(sizes) < per_row.MIN_ROWS else 0.0) ** 0.5)


def _ranking_curves(rows: Vector, found: Vector) -> dict[str, Curve]:
    """Points of the curves: spread evenly over rows and over what is found."""
    spread = [np.searchsorted(values, np.linspace(0, values[-1], _RANKING_POINTS)) for values in (rows, found)]
    at = np.unique(np.concatenate(spread))
    false, recall, share = (np.append(0, (values / values[-1])[at]) for values in (rows - found, found, rows))
    return {
        "roc": per_row.as_lists(false=false, found=recall),
        "precision": per_row.as_lists(recall=recall[1:], precision=(found / rows)[at]),
        "lift": per_row.as_lists(share=share, found=recall),
    }


def _scores(sources: Sources, subject: Subject) -> list[Score]:
    n_classes, is_median = len(subject.labels), subject.point == "median"
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
        error = sources.apply(partial(_calibration_error, adaptive=name == "ACE"))
        scores.append(Score(name, meaning, "lower", *error, share=True))
    # A constant is equally confident of every row, and detects nothing.
    ensemble, single, _ = sources._replace(constant={}).apply(_error_detection)
    if ensemble is not None:
        meaning = "area under the ROC curve: in how many pairs a wrong prediction is less confident than a right one"
        scores.append(Score("Error detection", meaning, "higher", ensemble, single, share=True))
    return scores


def _error_detection(rows: Rows) -> float | None:
    return _area(-rows["confidence"], rows["correct"] == 0) if np.ptp(rows["correct"]) else None


def _calibration_error(rows: Rows, adaptive: bool) -> float:
    return reliability(rows["confidence"], rows["correct"], N_BINS, adaptive).calibration_error


def _curves(sources: Sources, n_classes: int) -> dict[str, Curve]:
    ensemble, curves = sources.ensemble, dict[str, Curve]()
    for prefix, rows in (("", ensemble), ("single ", sources.single)):
        if rows:
            diagram = reliability(rows["confidence"], rows["correct"], N_BINS)
            shares = per_row.as_lists(confidence=diagram.confidence, accuracy=diagram.accuracy, rows=diagram.count)
            curve = accuracy_confidence_curve(rows["confidence"], rows["correct"])
            kept = per_row.as_lists(threshold=curve.threshold, accuracy=curve.accuracy, kept=curve.kept)
            kept["accuracy"] = [None if np.isnan(value) else value for value in kept["accuracy"]]
            curves |= {f"{prefix}reliability": shares, f"{prefix}accuracy": kept}
    errors = {"entropy": ensemble["entropy"], "wrong": 1 - ensemble["correct"]}
    curves["rows"] = per_row.sample_rows(ensemble, ("aleatoric", "epistemic", "correct"))
    curves["error"] = per_row.group_means(ensemble["entropy"], errors, np.mean)
    return curves | _confusions(ensemble, n_classes)


def _confusions(rows: Rows, n_classes: int) -> dict[str, Curve]:
    """How often each class is there and predicted, its recall and precision, and what is confused with what."""
    actual, predicted = (rows[name].astype(np.int64) for name in ("actual", "predicted"))
    n_actual, n_predicted = (np.bincount(classes, minlength=n_classes) for classes in (actual, predicted))
    frequent = np.argsort(-n_actual, kind="stable")[:TARGET_CLASSES]
    shares = {"actual": n_actual[frequent] / len(actual), "predicted": n_predicted[frequent] / len(actual)}
    pairs, n_pair = np.unique(actual * n_classes + predicted, return_counts=True)
    true, guess = pairs // n_classes, pairs % n_classes
    hits = np.bincount(true[true == guess], n_pair[true == guess], n_classes)
    wrong = np.flatnonzero(true != guess)
    worst = wrong[np.argsort(-n_pair[wrong], kind="stable")][:_CONFUSIONS]
    curves: dict[str, Curve] = {
        "target": per_row.as_lists(label=frequent, **shares),
        "classes": per_row.recalled(n_actual, n_predicted, hits),
        "confusions": per_row.as_lists(actual=true[worst], predicted=guess[worst], rows=n_pair[worst]),
    }
    if n_classes <= MATRIX_CLASSES:
        matrix = np.zeros((n_classes, n_classes), dtype=np.int64)
        matrix[true, guess] = n_pair
        curves["matrix"] = {str(i): matrix[i].tolist() for i in range(n_classes)}
    return curves


def _thresholds(confidence: Vector, correct: Vector) -> list[Threshold]:
    overall = float(correct.mean())
    # Per mille between a good model's accuracy and 1, else per cent.
    parts = 1000 if overall > 0.95 else 200 if overall > 0.8 else 100
    targets = np.arange(int(np.floor(overall * parts)) + 1, parts + 1) / parts
    return per_row.thresholds(confidence, correct, targets[targets > overall].tolist(), at_least=True)


def _ordering(rows: Rows, scores: list[Score]) -> Ordering | None:
    """How well confidence tells wrong predictions from right ones; None where there are too few, or only one kind."""
    n_rows, n_right = len(rows["correct"]), float(rows["correct"].sum())
    if scores[-1].name != "Error detection" or n_rows < per_row.MIN_ROWS:
        return None
    chance = 2 * float(np.sqrt((n_rows + 1) / (12 * n_right * (n_rows - n_right))))
    return Ordering(scores[-1].ensemble - 0.5, chance, 0.15)


def _verdicts(rows: Rows, curves: dict[str, Curve], labels: Any, ordering: Ordering | None) -> dict[str, str]:
    right, entropy, worst = rows["correct"], float(rows["entropy"].mean()), curves["confusions"]
    part = float(rows["epistemic"].mean()) / entropy if entropy > 0 else 0.0
    sure, first = rows["confidence"] >= 0.9, curves["target"]["label"][0]
    there, guessed = (percent(curves["target"][name][0]) for name in ("actual", "predicted"))
    verdicts = {
        "reliability": confidence_verdict(float(rows["confidence"].mean()), float(right.mean()), len(right)),
        "parts": parts_verdict(part, "entropy"),
        "target": f"{short(labels[first])} is there in {there} of the rows and predicted in {guessed}.",
    }
    if ordering is not None:
        pairs = f"In {percent(ordering.strength + 0.5)} of pairs a wrong prediction is less confident than a right one"
        verdicts["error"] = f"{pairs}: {ordering.text}."
    if sure.any():
        share, accuracy = percent(float(sure.mean())), percent(float(right[sure].mean()))
        told = f"Where its confidence is {percent(0.9, 0)} or more, in {share} of the rows"
        verdicts["accuracy"] = f"{told}, it is right in {accuracy}."
    if worst["rows"]:
        true, guess = (short(labels[worst[name][0]]) for name in ("actual", "predicted"))
        verdicts["matrix"] = f"The most frequent confusion: {true} taken for {guess}, in {row_count(worst['rows'][0])}."
    return verdicts
