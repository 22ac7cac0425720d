"""Experiments: one table or figure of the paper per file."""

from deep_ensembles.paper.experiments import (
    accuracy_confidence,
    imagenet_ensemble_size,
    known_unknown_classes,
    mnist_ensemble_size,
    most_and_least_certain,
    regression_calibration,
    svhn_ensemble_size,
    toy_regression,
    uci_regression,
)
from deep_ensembles.paper.experiments._experiment import SCALES, Claim, Experiment, Outcome, Scale, Selection, Summary

_IN_THE_PAPERS_ORDER = (
    toy_regression,
    uci_regression,
    regression_calibration,
    mnist_ensemble_size,
    svhn_ensemble_size,
    imagenet_ensemble_size,
    known_unknown_classes,
    accuracy_confidence,
    most_and_least_certain,
)
EXPERIMENTS = {each.EXPERIMENT.name: each.EXPERIMENT for each in _IN_THE_PAPERS_ORDER}

__all__ = ["EXPERIMENTS", "SCALES", "Claim", "Experiment", "Outcome", "Scale", "Selection", "Summary"]
