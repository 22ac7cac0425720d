"""Perturbations: where to look for a worse input nearby. One file per kind."""

from deep_ensembles.perturbations._base import Loss, Perturbation, input_gradient
from deep_ensembles.perturbations.fast_gradient_sign import FastGradientSign
from deep_ensembles.perturbations.random_sign import RandomSign

__all__ = ["FastGradientSign", "Loss", "Perturbation", "RandomSign", "input_gradient"]
