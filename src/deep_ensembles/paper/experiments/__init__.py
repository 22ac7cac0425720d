"""Experiments: a table or figure of the paper per file, or some of one kind."""

# isort: skip_file
from deep_ensembles.paper.experiments._experiment import ARRAYS, SCALES, Experiment, Scale, Selection
from deep_ensembles.paper.experiments.ensemble_size import MNIST, SVHN, TINY_IMAGENET
from deep_ensembles.paper.experiments import known_unknown_classes as known_unknown
from deep_ensembles.paper.experiments.regression_calibration import REGRESSION_CALIBRATION
from deep_ensembles.paper.experiments.toy_regression import TOY_REGRESSION
from deep_ensembles.paper.experiments.uci_regression import UCI_REGRESSION

_IN_THE_PAPERS_ORDER = (
    *(TOY_REGRESSION, UCI_REGRESSION, REGRESSION_CALIBRATION, MNIST, SVHN, TINY_IMAGENET),
    *(known_unknown.KNOWN_UNKNOWN_CLASSES, known_unknown.ACCURACY_CONFIDENCE, known_unknown.MOST_AND_LEAST_CERTAIN),
)
EXPERIMENTS = {experiment.name: experiment for experiment in _IN_THE_PAPERS_ORDER}

__all__ = ["ARRAYS", "EXPERIMENTS", "SCALES", "Experiment", "Scale", "Selection"]
