"""Deep ensembles: neural networks that say how sure they are.

The public names, loaded when they are first used, so that importing the package costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from deep_ensembles.checkpoint import Checkpoint as Checkpoint
    from deep_ensembles.ensemble import Ensemble as Ensemble
    from deep_ensembles.estimators import DeepEnsembleClassifier as DeepEnsembleClassifier
    from deep_ensembles.estimators import DeepEnsembleRegressor as DeepEnsembleRegressor
    from deep_ensembles.fitting import CrossValidation as CrossValidation
    from deep_ensembles.fitting import cross_validate as cross_validate
    from deep_ensembles.fitting import fit_ensemble as fit_ensemble
    from deep_ensembles.heads import Categorical as Categorical
    from deep_ensembles.heads import Normal as Normal
    from deep_ensembles.heads import Point as Point
    from deep_ensembles.loading import load as load
    from deep_ensembles.members import Looped as Looped
    from deep_ensembles.members import Stacked as Stacked
    from deep_ensembles.mixture import Mixture as Mixture
    from deep_ensembles.model_files import ModelFileError as ModelFileError
    from deep_ensembles.networks import mlp as mlp
    from deep_ensembles.optimizers import Adam as Adam
    from deep_ensembles.optimizers import AdamW as AdamW
    from deep_ensembles.perturbations import FastGradientSign as FastGradientSign
    from deep_ensembles.perturbations import RandomSign as RandomSign
    from deep_ensembles.runs import Bootstrap as Bootstrap
    from deep_ensembles.runs import ComplementaryFolds as ComplementaryFolds
    from deep_ensembles.runs import Recipe as Recipe
    from deep_ensembles.runs import Subsample as Subsample
    from deep_ensembles.schedules import Constant as Constant
    from deep_ensembles.schedules import Cosine as Cosine
    from deep_ensembles.scoring import beta_nll as beta_nll
    from deep_ensembles.scoring import brier as brier
    from deep_ensembles.scoring import crps as crps
    from deep_ensembles.scoring import log_score as log_score
    from deep_ensembles.scoring import squared_error as squared_error
    from deep_ensembles.training import TrainingDiverged as TrainingDiverged

__version__ = "0.1.0"

_HOMES = {
    "Adam": "optimizers",
    "AdamW": "optimizers",
    "Bootstrap": "runs",
    "Categorical": "heads",
    "Checkpoint": "checkpoint",
    "ComplementaryFolds": "runs",
    "Constant": "schedules",
    "Cosine": "schedules",
    "CrossValidation": "fitting",
    "DeepEnsembleClassifier": "estimators",
    "DeepEnsembleRegressor": "estimators",
    "Ensemble": "ensemble",
    "FastGradientSign": "perturbations",
    "Looped": "members",
    "Mixture": "mixture",
    "ModelFileError": "model_files",
    "Normal": "heads",
    "Point": "heads",
    "RandomSign": "perturbations",
    "Recipe": "runs",
    "Stacked": "members",
    "Subsample": "runs",
    "TrainingDiverged": "training",
    "beta_nll": "scoring",
    "brier": "scoring",
    "cross_validate": "fitting",
    "crps": "scoring",
    "fit_ensemble": "fitting",
    "load": "loading",
    "log_score": "scoring",
    "mlp": "networks",
    "squared_error": "scoring",
}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
