"""What uncertainty is good for: leaving uncertain cases to a person, and telling unknown cases from known ones."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from deep_ensembles._checks import check_number
from deep_ensembles._tensors import Vector, confidence_and_correct, paired, refuse, vector


@dataclass(frozen=True, eq=False)
class AccuracyByConfidence:
    """At each threshold: the accuracy of the cases kept (NaN if there is none), and their share of all cases."""

    threshold: Vector
    accuracy: Vector
    kept: Vector


def accuracy_confidence_curve(confidence: Any, correct: Any, thresholds: Any = None) -> AccuracyByConfidence:
    r"""Accuracy on the cases of confidence $\max_k p_k \ge \tau$, and the share of such cases, for every threshold τ.

    `threshold_for_accuracy` answers the opposite question.

    References:
        Lakshminarayanan, Pritzel, Blundell (2017), section 3.6.

    Arguments:
        confidence: probability of the predicted class, `Mixture.confidence`.
        correct: whether the prediction was right. Cases of unknown classes count as wrong.
        thresholds: between 0 and 1; by default 0, 0.01, …, 1.

    Shape:
        confidence and correct `[case]`, thresholds `[threshold]` → arrays `[threshold]`.

    Example:
        >>> curve = accuracy_confidence_curve([0.5, 0.9, 0.9], [False, True, False], thresholds=[0.0, 0.9, 1.0])
        >>> curve.accuracy.round(2).tolist(), curve.kept.round(2).tolist()
        ([0.33, 0.5, nan], [1.0, 0.67, 0.0])
    """
    sure, right = confidence_and_correct(confidence, correct)
    threshold = vector("thresholds", np.arange(101) / 100 if thresholds is None else thresholds)
    refuse((threshold < 0) | (threshold > 1), "thresholds", "between 0 and 1", threshold)
    dropped = np.searchsorted(sure, threshold)
    kept, hits = len(sure) - dropped, np.append(right[::-1].cumsum()[::-1], 0.0)[dropped]
    accuracy = np.divide(hits, kept, out=np.full(len(threshold), np.nan), where=kept > 0)
    return AccuracyByConfidence(threshold, accuracy, kept / len(sure))


class Threshold(NamedTuple):
    """A confidence from which on predictions are trusted, the accuracy of those, and their share of all cases."""

    threshold: float
    accuracy: float
    kept: float


def threshold_for_accuracy(confidence: Any, correct: Any, wanted: float) -> Threshold | None:
    r"""The smallest confidence τ for which the cases of confidence ≥ τ reach the wanted accuracy; none if no τ does.

    τ is one of the confidences that occur, so that as many cases as possible are kept; cases of equal confidence are kept
    or dropped together. Accuracy need not grow with τ: a larger threshold may miss what this one reaches.

    References:
        Lakshminarayanan, Pritzel, Blundell (2017), section 3.6.

    Arguments:
        confidence: probability of the predicted class, `Mixture.confidence`.
        correct: whether the prediction was right.
        wanted: the accuracy that the application demands, between 0 and 1.

    Shape:
        confidence and correct `[case]` → three numbers, or none.

    Example:
        >>> threshold_for_accuracy([0.5, 0.7, 0.9, 0.9], [False, False, True, True], wanted=0.6)
        Threshold(threshold=0.7, accuracy=0.6666666666666666, kept=0.75)
    """
    check_number("wanted", wanted, low=0, high=1)
    sure, right = confidence_and_correct(confidence, correct)
    _, first = np.unique(sure, return_index=True)
    kept = len(sure) - first
    accuracy = right[::-1].cumsum()[::-1][first] / kept
    reached = np.flatnonzero(accuracy >= wanted)[:1]
    return next((Threshold(float(sure[first[i]]), float(accuracy[i]), float(kept[i] / len(sure))) for i in reached), None)


@dataclass(frozen=True, eq=False)
class RiskByCoverage:
    """The mean loss (risk) of the surest cases, for every share of all cases (coverage): 1/N, 2/N, …, 1."""

    coverage: Vector
    risk: Vector


def risk_coverage_curve(uncertainty: Any, loss: Any) -> RiskByCoverage:
    r"""Mean loss of the n surest cases, $r(n/N) = n^{-1}\sum_{i \le n} \ell_{(i)}$ with cases ordered by uncertainty.

    Where cases are equally uncertain, the risk is its mean over all their orders.

    References:
        El-Yaniv & Wiener (2010); Geifman, Uziel, El-Yaniv (2019).

    Arguments:
        uncertainty: higher means less sure: one minus confidence, entropy, standard deviation, …
        loss: what a prediction cost: 1 where it was wrong and 0 else, a squared error, …

    Shape:
        uncertainty and loss `[case]` → arrays `[case]`.

    Example:
        >>> risk_coverage_curve([0.1, 0.4, 0.4], loss=[0.0, 0.0, 1.0]).risk.round(2).tolist()
        [0.0, 0.25, 0.33]
    """
    unsure, cost = paired(uncertainty=uncertainty, loss=loss)
    _, group, count = np.unique(unsure, return_inverse=True, return_counts=True)
    # Averaged over orders, each of some tied cases costs their mean.
    ordered = np.repeat(np.bincount(group, cost) / count, count)
    used = np.arange(1, len(cost) + 1)
    return RiskByCoverage(used / len(cost), ordered.cumsum() / used)


def area_under_risk_coverage(uncertainty: Any, loss: Any) -> float:
    r"""Area under the risk–coverage curve, $N^{-1}\sum_n r(n/N)$: small if losses are small and uncertainty foretells them.

    An uncertainty that says nothing (all equal) gives the mean loss.

    References:
        Geifman, Uziel, El-Yaniv (2019).

    Arguments:
        uncertainty: higher means less sure: one minus confidence, entropy, standard deviation, …
        loss: what a prediction cost: 1 where it was wrong and 0 else, a squared error, …

    Shape:
        uncertainty and loss `[case]` → a number.

    Example:
        >>> area_under_risk_coverage([0.1, 0.2, 0.3, 0.4], loss=[0.0, 0.0, 0.0, 1.0])
        0.0625
    """
    return float(risk_coverage_curve(uncertainty, loss).risk.mean())


@dataclass(frozen=True)
class Detection:
    """Areas under the curves of a detector of unknown cases, and its false alarms at the wanted recall."""

    auroc: float
    aupr: float
    aupr_known: float
    fpr: float


def ood_detection(known: Any, unknown: Any, recall: float = 0.95) -> Detection:
    r"""Out-of-distribution detection by a threshold on uncertainty, with unknown cases as the positive class.

    - `auroc`: $P(u_\mathrm{unknown} > u_\mathrm{known}) + \frac12 P(u_\mathrm{unknown} = u_\mathrm{known})$.
    - `aupr`: average precision of finding the unknown; `aupr_known`: of finding the known by low uncertainty. Both depend
      on how many cases of each kind there are: chance is the share of the positive kind.
    - `fpr`: the smallest share of known cases that are flagged where at least `recall` of the unknown are. Some texts
      take the known as positive instead; that figure is `ood_detection(-unknown, -known).fpr`.

    Cases of equal score are flagged together, as in scikit-learn, whose functions are used.

    References:
        Hendrycks & Gimpel (2017); Liang, Li, Srikant (2018).

    Arguments:
        known: uncertainty (entropy, disagreement, one minus confidence, …) of cases like the training data; higher means
            more unknown.
        unknown: the same of cases unlike it.
        recall: the share of unknown cases to be found, for `fpr`.

    Shape:
        known `[case]`, unknown `[other case]` → four numbers.

    Example:
        >>> ood_detection(known=[0.1, 0.2, 0.6], unknown=[0.5, 0.8, 0.9]).fpr
        0.3333333333333333
    """
    from sklearn.metrics import average_precision_score, roc_auc_score, roc_curve  # late, as it takes a second

    check_number("recall", recall, low=0, high=1, above=True)
    scores = [vector("known", known), vector("unknown", unknown)]
    score, is_unknown = np.concatenate(scores), np.repeat([False, True], [len(part) for part in scores])
    # Points on a straight piece of the curve are kept: the wanted recall may lie there.
    false_alarms, detected, _ = roc_curve(is_unknown, score, drop_intermediate=False)
    return Detection(
        auroc=float(roc_auc_score(is_unknown, score)),
        aupr=float(average_precision_score(is_unknown, score)),
        aupr_known=float(average_precision_score(~is_unknown, -score)),
        fpr=float(false_alarms[np.searchsorted(detected, recall)]),
    )
