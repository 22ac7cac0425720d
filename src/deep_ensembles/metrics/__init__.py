"""Metrics: how good predictions were, as one number or one curve. The scoring rules' means are metrics too."""

from deep_ensembles.metrics.calibration import (
    adaptive_calibration_error,
    expected_calibration_error,
    interval_coverage,
    reliability_diagram,
)
from deep_ensembles.metrics.ood_detection import ood_detection
from deep_ensembles.metrics.scores import accuracy, brier_score, negative_log_likelihood, summed_brier_score, top_k_error
from deep_ensembles.metrics.selective import (
    accuracy_confidence_curve,
    area_under_risk_coverage,
    risk_coverage_curve,
    threshold_for_accuracy,
)

__all__ = [
    "accuracy", "accuracy_confidence_curve", "adaptive_calibration_error", "area_under_risk_coverage", "brier_score",
    "expected_calibration_error", "interval_coverage", "negative_log_likelihood", "ood_detection", "reliability_diagram",
    "risk_coverage_curve", "summed_brier_score", "threshold_for_accuracy", "top_k_error",
]  # fmt: skip
