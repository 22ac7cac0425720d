"""How accurate predictions are where the model is confident."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from deep_ensembles.metrics._inputs import Vector, confidence_and_correct, refuse, vector


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
