"""Baselines: what deep ensembles are compared with. One file per method."""

from deep_ensembles.baselines.mc_dropout import MCDropout
from deep_ensembles.baselines.mse_ensemble import mse_ensemble
from deep_ensembles.baselines.probabilistic_backpropagation import ProbabilisticBackpropagation
from deep_ensembles.baselines.single_network import single_network

__all__ = ["MCDropout", "ProbabilisticBackpropagation", "mse_ensemble", "single_network"]
