"""The public names: the one list of them, for the package, type checkers and editors alike."""

from deep_ensembles._files import ModelFileError
from deep_ensembles._splits import Bootstrap, ComplementaryFolds, Subsample
from deep_ensembles.ensemble import Ensemble
from deep_ensembles.estimators import DeepEnsembleClassifier, DeepEnsembleRegressor
from deep_ensembles.execution import InProcess, Processes
from deep_ensembles.execution.ray import Ray
from deep_ensembles.fitting import CrossValidation, cross_validate, extend_ensemble, fit_ensemble
from deep_ensembles.growing import Grow

# isort: off
from deep_ensembles.heads import (
    Bernoulli, Categorical, Gamma, GaussianMixture, Laplace, LogitNormal, LogNormal, MultivariateNormal,
    NegativeBinomial, Normal, Ordinal, Point, Poisson, Quantiles, StudentT, ZeroInflated,
)  # fmt: skip

# isort: on
from deep_ensembles.members import Looped, Stacked
from deep_ensembles.mixture import Mixture
from deep_ensembles.networks import mlp, periodic_mlp
from deep_ensembles.perturbations import FastGradientSign, ProjectedGradient, RandomSign, VirtualAdversarial
from deep_ensembles.saving import load

# isort: off
from deep_ensembles.scoring import (
    beta_nll, brier, censored, crps, energy_score, interval_score, log_score, pinball, squared_error,
)  # fmt: skip

# isort: on
from deep_ensembles.tabular.streaming import ParquetRows
from deep_ensembles.training.checkpoint import Checkpoint
from deep_ensembles.training.data import RobustScaling
from deep_ensembles.training.loop import TrainingDiverged
from deep_ensembles.training.recipe import Adam, AdamW, Constant, Cosine, Recipe

__version__: str
_HOMES: dict[str, str]

__all__ = [
    "Adam", "AdamW", "Bernoulli", "Bootstrap", "Categorical", "Checkpoint", "ComplementaryFolds", "Constant", "Cosine",
    "CrossValidation", "DeepEnsembleClassifier", "DeepEnsembleRegressor", "Ensemble", "FastGradientSign", "Gamma",
    "GaussianMixture", "Grow", "InProcess", "Laplace", "LogNormal", "LogitNormal", "Looped", "Mixture", "ModelFileError",
    "MultivariateNormal", "NegativeBinomial", "Normal", "Ordinal", "ParquetRows", "Point", "Poisson", "Processes",
    "ProjectedGradient", "Quantiles", "RandomSign", "Ray", "Recipe", "RobustScaling", "Stacked", "StudentT", "Subsample",
    "TrainingDiverged", "VirtualAdversarial", "ZeroInflated", "beta_nll", "brier", "censored", "cross_validate", "crps",
    "energy_score", "extend_ensemble", "fit_ensemble", "interval_score", "load", "log_score", "mlp", "periodic_mlp",
    "pinball", "squared_error",
]  # fmt: skip
