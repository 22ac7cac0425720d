"""Predictive distributions: families that torch lacks, and what it leaves out of its own."""

# isort: skip_file
from deep_ensembles.distributions._integrals import (
    changed_entropy, cross_entropies, mixed_moments, moments, ranked_probability_score,
)  # fmt: skip
from deep_ensembles.distributions._quantiles import quantiles
from deep_ensembles.distributions._structure import (
    Scaled, Scaling, alone, family, formula_of, indexed, is_whole, marginal, parameters, rebuilt, rescaled, scaling_of,
)  # fmt: skip
from deep_ensembles.distributions._tails import gamma_tails, log_density, normal_cdf, tails
from deep_ensembles.distributions.families import (
    Delta, Gamma, Interpolated, Laplace, LogitNormal, LogNormal, NegativeBinomial, NormalMixture, OpenInterval, Ordered,
    Poisson, StudentT, ZeroInflated,
)  # fmt: skip

__all__ = [
    "Delta", "Gamma", "Interpolated", "Laplace", "LogNormal", "LogitNormal", "NegativeBinomial", "NormalMixture",
    "OpenInterval", "Ordered", "Poisson", "Scaled", "Scaling", "StudentT", "ZeroInflated", "alone", "changed_entropy",
    "cross_entropies", "family", "formula_of", "gamma_tails", "indexed", "is_whole", "log_density", "marginal",
    "mixed_moments", "moments", "normal_cdf", "parameters", "quantiles", "ranked_probability_score", "rebuilt",
    "rescaled", "scaling_of", "tails",
]  # fmt: skip
