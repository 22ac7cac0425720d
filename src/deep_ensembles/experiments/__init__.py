"""Experiments: one table or figure of the paper per file."""

from deep_ensembles.experiments import regression_calibration, toy_regression, uci_regression
from deep_ensembles.experiments._experiment import SCALES, Claim, Experiment, Outcome, Scale, Selection, Summary

EXPERIMENTS = {each.EXPERIMENT.name: each.EXPERIMENT for each in (toy_regression, uci_regression, regression_calibration)}

__all__ = ["EXPERIMENTS", "SCALES", "Claim", "Experiment", "Outcome", "Scale", "Selection", "Summary"]
