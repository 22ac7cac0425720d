"""From which confidence on a model is as accurate as wanted."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from deep_ensembles._checks import check_number
from deep_ensembles.metrics._inputs import confidence_and_correct


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
