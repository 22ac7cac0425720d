"""Scoring rules: how good a distribution was for what happened, one value per sample, lower is better."""

from deep_ensembles.scoring._base import ScoringRule
from deep_ensembles.scoring.censored import Censored, censored
from deep_ensembles.scoring.crps import crps
from deep_ensembles.scoring.energy_score import energy_score
from deep_ensembles.scoring.rules import beta_nll, brier, interval_score, log_score, pinball, squared_error

__all__ = [
    "Censored", "ScoringRule", "beta_nll", "brier", "censored", "crps", "energy_score", "interval_score", "log_score",
    "pinball", "squared_error",
]  # fmt: skip
