"""Recalibrations: correct a model's distributions by rows that it was not trained on."""

from deep_ensembles.recalibration._base import FitRecalibration, Prediction, Recalibrated, Recalibration
from deep_ensembles.recalibration._choose import choose

# isort: off
from deep_ensembles.recalibration.fits import (
    Conformal, Isotonic, Temperature, VarianceScaling, conformal, isotonic, temperature, variance_scaling,
)  # fmt: skip
# isort: on

__all__ = [
    "Conformal", "FitRecalibration", "Isotonic", "Prediction", "Recalibrated", "Recalibration", "Temperature",
    "VarianceScaling", "choose", "conformal", "isotonic", "temperature", "variance_scaling",
]  # fmt: skip
