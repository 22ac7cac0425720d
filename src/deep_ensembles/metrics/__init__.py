"""Metrics: how good predictions were, as one number or one curve. The scoring rules' means are metrics too."""

# isort: skip_file
from deep_ensembles.metrics.predictions import (
    accuracy, adaptive_calibration_error, brier_score, expected_calibration_error, interval_coverage,
    negative_log_likelihood, probability_integral_transform, reliability_diagram, summed_brier_score, top_k_error,
)  # fmt: skip
from deep_ensembles.metrics.selective import (
    accuracy_confidence_curve, area_under_risk_coverage, ood_detection, risk_coverage_curve, threshold_for_accuracy,
)  # fmt: skip
from deep_ensembles.metrics.survival import (
    censored_brier_score, censored_negative_log_likelihood, concordance_index, integrated_brier_score,
)  # fmt: skip

__all__ = [
    "accuracy", "accuracy_confidence_curve", "adaptive_calibration_error", "area_under_risk_coverage", "brier_score",
    "censored_brier_score", "censored_negative_log_likelihood", "concordance_index", "expected_calibration_error",
    "integrated_brier_score", "interval_coverage", "negative_log_likelihood", "ood_detection",
    "probability_integral_transform", "reliability_diagram", "risk_coverage_curve", "summed_brier_score",
    "threshold_for_accuracy", "top_k_error",
]  # fmt: skip
