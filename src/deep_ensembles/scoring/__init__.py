"""Scoring rules: how good a distribution was for what happened, one value per sample, lower is better."""

from deep_ensembles.scoring._base import ScoringRule
from deep_ensembles.scoring.beta_nll import beta_nll
from deep_ensembles.scoring.brier import brier
from deep_ensembles.scoring.censored import Censored, censored
from deep_ensembles.scoring.crps import crps
from deep_ensembles.scoring.energy_score import energy_score
from deep_ensembles.scoring.interval_score import interval_score
from deep_ensembles.scoring.log_score import log_score
from deep_ensembles.scoring.pinball import pinball
from deep_ensembles.scoring.squared_error import squared_error

__all__ = [
    "Censored", "ScoringRule", "beta_nll", "brier", "censored", "crps", "energy_score", "interval_score", "log_score",
    "pinball", "squared_error",
]  # fmt: skip
