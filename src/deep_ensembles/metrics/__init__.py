"""Metrics: how good predictions were, as one number or one curve. The scoring rules' means are metrics too."""

from deep_ensembles.metrics.accuracy import accuracy
from deep_ensembles.metrics.accuracy_confidence_curve import accuracy_confidence_curve
from deep_ensembles.metrics.adaptive_calibration_error import adaptive_calibration_error
from deep_ensembles.metrics.area_under_risk_coverage import area_under_risk_coverage
from deep_ensembles.metrics.brier_score import brier_score
from deep_ensembles.metrics.expected_calibration_error import expected_calibration_error
from deep_ensembles.metrics.interval_coverage import interval_coverage
from deep_ensembles.metrics.negative_log_likelihood import negative_log_likelihood
from deep_ensembles.metrics.ood_detection import ood_detection
from deep_ensembles.metrics.reliability_diagram import reliability_diagram
from deep_ensembles.metrics.risk_coverage_curve import risk_coverage_curve
from deep_ensembles.metrics.summed_brier_score import summed_brier_score
from deep_ensembles.metrics.threshold_for_accuracy import threshold_for_accuracy
from deep_ensembles.metrics.top_k_error import top_k_error

__all__ = [
    "accuracy",
    "accuracy_confidence_curve",
    "adaptive_calibration_error",
    "area_under_risk_coverage",
    "brier_score",
    "expected_calibration_error",
    "interval_coverage",
    "negative_log_likelihood",
    "ood_detection",
    "reliability_diagram",
    "risk_coverage_curve",
    "summed_brier_score",
    "threshold_for_accuracy",
    "top_k_error",
]
