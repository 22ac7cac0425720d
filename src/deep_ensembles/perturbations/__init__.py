"""Perturbations: where to look for a worse input nearby. One file per kind."""

from deep_ensembles.perturbations._base import Divergence, Loss, Perturbation, Predict, input_gradient
from deep_ensembles.perturbations.fast_gradient_sign import FastGradientSign
from deep_ensembles.perturbations.projected_gradient import ProjectedGradient
from deep_ensembles.perturbations.random_sign import RandomSign
from deep_ensembles.perturbations.virtual_adversarial import VirtualAdversarial

__all__ = [
    "Divergence", "FastGradientSign", "Loss", "Perturbation", "Predict", "ProjectedGradient", "RandomSign",
    "VirtualAdversarial", "input_gradient",
]  # fmt: skip
