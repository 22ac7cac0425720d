"""Recalibrations: correct a model's distributions by rows that it was not trained on. One file per recalibration."""

from deep_ensembles.recalibration._base import FitRecalibration, Prediction, Recalibration
from deep_ensembles.recalibration._choose import choose
from deep_ensembles.recalibration._recalibrated import Recalibrated
from deep_ensembles.recalibration.conformal import Conformal, conformal
from deep_ensembles.recalibration.isotonic import Isotonic, isotonic
from deep_ensembles.recalibration.temperature import Temperature, temperature
from deep_ensembles.recalibration.variance_scaling import VarianceScaling, variance_scaling

__all__ = [
    "Conformal", "FitRecalibration", "Isotonic", "Prediction", "Recalibrated", "Recalibration", "Temperature",
    "VarianceScaling", "choose", "conformal", "isotonic", "temperature", "variance_scaling",
]  # fmt: skip
