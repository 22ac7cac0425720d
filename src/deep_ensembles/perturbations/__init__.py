"""Perturbations: where to look for a worse input nearby."""

from deep_ensembles.perturbations._base import Divergence, Loss, Perturbation, Predict, input_gradient
from deep_ensembles.perturbations.adversaries import FastGradientSign, ProjectedGradient, RandomSign, VirtualAdversarial

__all__ = [
    "Divergence", "FastGradientSign", "Loss", "Perturbation", "Predict", "ProjectedGradient", "RandomSign",
    "VirtualAdversarial", "input_gradient",
]  # fmt: skip
