"""Experiments: a table or figure of the paper per file, or some of one kind."""

from deep_ensembles.paper.experiments._experiment import SCALES, Claim, Experiment, Scale, Selection, Summary, left_out
from deep_ensembles.paper.experiments.confidence import ACCURACY_CONFIDENCE, MOST_AND_LEAST_CERTAIN
from deep_ensembles.paper.experiments.ensemble_size import MNIST, SVHN, TINY_IMAGENET
from deep_ensembles.paper.experiments.known_unknown_classes import KNOWN_UNKNOWN_CLASSES
from deep_ensembles.paper.experiments.regression_calibration import REGRESSION_CALIBRATION
from deep_ensembles.paper.experiments.toy_regression import TOY_REGRESSION
from deep_ensembles.paper.experiments.uci_regression import UCI_REGRESSION

_IN_THE_PAPERS_ORDER = (
    *(TOY_REGRESSION, UCI_REGRESSION, REGRESSION_CALIBRATION, MNIST, SVHN, TINY_IMAGENET),
    *(KNOWN_UNKNOWN_CLASSES, ACCURACY_CONFIDENCE, MOST_AND_LEAST_CERTAIN),
)
EXPERIMENTS = {experiment.name: experiment for experiment in _IN_THE_PAPERS_ORDER}

__all__ = ["EXPERIMENTS", "SCALES", "Claim", "Experiment", "Scale", "Selection", "Summary", "left_out"]
