"""Deep ensembles: neural networks that say how sure they are.

The public names, loaded when they are first used, so that importing the package costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # what type checkers and editors see of the table below
    from deep_ensembles._files import ModelFileError
    from deep_ensembles._splits import Bootstrap, ComplementaryFolds, Subsample
    from deep_ensembles.ensemble import Ensemble
    from deep_ensembles.estimators import DeepEnsembleClassifier, DeepEnsembleRegressor
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
    from deep_ensembles.training.optimization import Adam, AdamW, Constant, Cosine
    from deep_ensembles.training.recipe import Recipe

__version__ = "0.1.0"

_NAMES = {
    "_files": ("ModelFileError",),
    "_splits": ("Bootstrap", "ComplementaryFolds", "Subsample"),
    "ensemble": ("Ensemble",),
    "estimators": ("DeepEnsembleClassifier", "DeepEnsembleRegressor"),
    "fitting": ("CrossValidation", "cross_validate", "extend_ensemble", "fit_ensemble"),
    "growing": ("Grow",),
    "heads": (
        "Bernoulli", "Categorical", "Gamma", "GaussianMixture", "Laplace", "LogNormal", "LogitNormal", "MultivariateNormal",
        "NegativeBinomial", "Normal", "Ordinal", "Point", "Poisson", "Quantiles", "StudentT", "ZeroInflated",
    ),
    "members": ("Looped", "Stacked"),
    "mixture": ("Mixture",),
    "networks": ("mlp", "periodic_mlp"),
    "perturbations": ("FastGradientSign", "ProjectedGradient", "RandomSign", "VirtualAdversarial"),
    "saving": ("load",),
    "scoring": (
        "beta_nll", "brier", "censored", "crps", "energy_score", "interval_score", "log_score", "pinball", "squared_error",
    ),
    "tabular.streaming": ("ParquetRows",),
    "training.checkpoint": ("Checkpoint",),
    "training.data": ("RobustScaling",),
    "training.loop": ("TrainingDiverged",),
    "training.optimization": ("Adam", "AdamW", "Constant", "Cosine"),
    "training.recipe": ("Recipe",),
}  # fmt: skip
_HOMES = {name: home for home, names in _NAMES.items() for name in names}

__all__ = [
    "Adam", "AdamW", "Bernoulli", "Bootstrap", "Categorical", "Checkpoint", "ComplementaryFolds", "Constant", "Cosine",
    "CrossValidation", "DeepEnsembleClassifier", "DeepEnsembleRegressor", "Ensemble", "FastGradientSign", "Gamma",
    "GaussianMixture", "Grow", "Laplace", "LogNormal", "LogitNormal", "Looped", "Mixture", "ModelFileError",
    "MultivariateNormal", "NegativeBinomial", "Normal", "Ordinal", "ParquetRows", "Point", "Poisson",
    "ProjectedGradient", "Quantiles", "RandomSign", "Recipe", "RobustScaling", "Stacked", "StudentT", "Subsample",
    "TrainingDiverged", "VirtualAdversarial", "ZeroInflated", "beta_nll", "brier", "censored", "cross_validate", "crps",
    "energy_score", "extend_ensemble", "fit_ensemble", "interval_score", "load", "log_score", "mlp", "periodic_mlp",
    "pinball", "squared_error",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
