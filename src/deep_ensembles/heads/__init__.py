"""Heads: raw network outputs → a predictive distribution, by what they predict."""

from deep_ensembles.heads._base import Head, HeadFunction, TargetNeeds
from deep_ensembles.heads.discrete import Bernoulli, Categorical, NegativeBinomial, Ordinal, Poisson, ZeroInflated

# isort: off
from deep_ensembles.heads.numbers import (
    Gamma, GaussianMixture, Laplace, LogitNormal, LogNormal, MultivariateNormal, Normal, Point, Quantiles, StudentT,
)  # fmt: skip
# isort: on

__all__ = [
    "Bernoulli", "Categorical", "Gamma", "GaussianMixture", "Head", "HeadFunction", "Laplace", "LogNormal",
    "LogitNormal", "MultivariateNormal", "NegativeBinomial", "Normal", "Ordinal", "Point", "Poisson", "Quantiles",
    "StudentT", "TargetNeeds", "ZeroInflated",
]  # fmt: skip
