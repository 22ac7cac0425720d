"""Heads: raw network outputs → a predictive distribution, by what they predict."""

from deep_ensembles.heads._base import Head, HeadFunction, TargetNeeds
from deep_ensembles.heads.bounded import Gamma, LogitNormal, LogNormal
from deep_ensembles.heads.discrete import Bernoulli, Categorical, NegativeBinomial, Ordinal, Poisson, ZeroInflated
from deep_ensembles.heads.numbers import GaussianMixture, Laplace, MultivariateNormal, Normal, Point, Quantiles, StudentT

__all__ = [
    "Bernoulli", "Categorical", "Gamma", "GaussianMixture", "Head", "HeadFunction", "Laplace", "LogNormal",
    "LogitNormal", "MultivariateNormal", "NegativeBinomial", "Normal", "Ordinal", "Point", "Poisson", "Quantiles",
    "StudentT", "TargetNeeds", "ZeroInflated",
]  # fmt: skip
