"""Baselines: what deep ensembles are compared with. One file per method."""

from deep_ensembles.baselines.mc_dropout import MCDropout
from deep_ensembles.baselines.variants import mse_ensemble, single_network

__all__ = ["MCDropout", "mse_ensemble", "single_network"]
