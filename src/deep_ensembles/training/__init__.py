"""The engine: a list of runs → trained members. `Recipe` describes the settings, `train` is the one loop."""

from deep_ensembles.training.blocks import Surveyed
from deep_ensembles.training.checkpoint import Checkpoint
from deep_ensembles.training.data import InMemory, RobustScaling, Rows, Standardization, Streamed
from deep_ensembles.training.loop import TrainingDiverged, train
from deep_ensembles.training.prepare import Trained, Training
from deep_ensembles.training.recipe import Adam, AdamW, Constant, Cosine, Optimizer, Recipe, Run, Schedule, plan_runs
from deep_ensembles.training.step import Algorithm, Criterion

__all__ = [
    "Adam", "AdamW", "Algorithm", "Checkpoint", "Constant", "Cosine", "Criterion", "InMemory", "Optimizer", "Recipe",
    "RobustScaling", "Rows", "Run", "Schedule", "Standardization", "Streamed", "Surveyed", "Trained", "Training",
    "TrainingDiverged", "plan_runs", "train",
]  # fmt: skip
