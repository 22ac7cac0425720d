"""Scoring rules: how good a distribution was for what happened, one value per sample, lower is better."""

from deep_ensembles.scoring._base import ScoringRule
from deep_ensembles.scoring.ranked_probability import crps, energy_score

# isort: off
from deep_ensembles.scoring.rules import (
    Censored, beta_nll, brier, censored, interval_score, log_score, pinball, squared_error,
)  # fmt: skip
# isort: on

__all__ = [
    "Censored", "ScoringRule", "beta_nll", "brier", "censored", "crps", "energy_score", "interval_score", "log_score",
    "pinball", "squared_error",
]  # fmt: skip
