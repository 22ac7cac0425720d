"""Heads: raw network outputs → a predictive distribution. One file per head."""

from deep_ensembles.heads._base import Head, HeadFunction, TargetNeeds
from deep_ensembles.heads.bernoulli import Bernoulli
from deep_ensembles.heads.categorical import Categorical
from deep_ensembles.heads.gamma import Gamma
from deep_ensembles.heads.gaussian_mixture import GaussianMixture
from deep_ensembles.heads.laplace import Laplace
from deep_ensembles.heads.log_normal import LogNormal
from deep_ensembles.heads.logit_normal import LogitNormal
from deep_ensembles.heads.multivariate_normal import MultivariateNormal
from deep_ensembles.heads.negative_binomial import NegativeBinomial
from deep_ensembles.heads.normal import Normal
from deep_ensembles.heads.ordinal import Ordinal
from deep_ensembles.heads.point import Point
from deep_ensembles.heads.poisson import Poisson
from deep_ensembles.heads.quantiles import Quantiles
from deep_ensembles.heads.student_t import StudentT
from deep_ensembles.heads.zero_inflated import ZeroInflated

__all__ = [
    "Bernoulli", "Categorical", "Gamma", "GaussianMixture", "Head", "HeadFunction", "Laplace", "LogNormal",
    "LogitNormal", "MultivariateNormal", "NegativeBinomial", "Normal", "Ordinal", "Point", "Poisson", "Quantiles",
    "StudentT", "TargetNeeds", "ZeroInflated",
]  # fmt: skip
