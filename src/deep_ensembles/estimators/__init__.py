"""scikit-learn's face: wiring only."""

from deep_ensembles.estimators._deep_ensemble import NetworkFactory, store_arguments, user_network
from deep_ensembles.estimators.classifier import DeepEnsembleClassifier
from deep_ensembles.estimators.regressor import DeepEnsembleRegressor

__all__ = ["DeepEnsembleClassifier", "DeepEnsembleRegressor", "NetworkFactory", "store_arguments", "user_network"]
