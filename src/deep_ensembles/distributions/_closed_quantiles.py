"""Quantiles that a formula gives, or a function of SciPy."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch import distributions as td
from torch.distributions import Distribution

from deep_ensembles.distributions._structure import by_family
from deep_ensembles.distributions._tails import LARGE_SHAPE, by_scipy, direction
from deep_ensembles.distributions._units import Scaled


def closed_quantile(distribution: Distribution, level: Tensor, upper: bool = False) -> Tensor | None:
    """The value with this probability below it (above it, if `upper`), where a formula gives it; else None."""
    if isinstance(distribution, Scaled):
        inner = closed_quantile(distribution.base, level, upper)
        return None if inner is None else distribution.shift + distribution.scale * inner
    if hasattr(distribution, "closed_quantile"):
        return distribution.closed_quantile(level, upper)
    formula = by_family(_QUANTILES, distribution)
    return None if formula is None else formula(distribution, level, upper)


def _z(level: Tensor, upper: bool) -> Tensor:
    z = torch.special.ndtri(level)
    return -z if upper else z


def _laplace_quantile(d: Any, level: Tensor, upper: bool) -> Tensor:
    outer = torch.where(level < 0.5, (2 * level).log(), -(2 - 2 * level).log())
    return d.loc + d.scale * (-outer if upper else outer)


def _hazard_of(level: Tensor, upper: bool) -> Tensor:
    """The cumulative hazard at which a share of the mass is below, or above."""
    return -level.log() if upper else -torch.log1p(-level)


def _inverse(function: str, level: Tensor, *arguments: Tensor) -> Tensor:
    from scipy import special

    return by_scipy(getattr(special, function), *torch.broadcast_tensors(*arguments, level))


def _continuous_bernoulli_quantile(d: Any, level: Tensor, upper: bool) -> Tensor:
    if upper:
        return 1 - td.ContinuousBernoulli(logits=-d.logits, validate_args=False).icdf(level)
    return d.icdf(level)


def _generalized_pareto_quantile(d: Any, level: Tensor, upper: bool) -> Tensor:
    hazard, bend = _hazard_of(level, upper), torch.where(d.concentration == 0, 1.0, d.concentration)
    return d.loc + d.scale * torch.where(d.concentration == 0, hazard, torch.expm1(bend * hazard) / bend)


def _gamma_quantile(d: Any, level: Tensor, upper: bool) -> Tensor | None:
    if bool((d.concentration > LARGE_SHAPE).any()):
        return None
    return _inverse("gammainccinv" if upper else "gammaincinv", level, d.concentration) / d.rate


def _fisher_quantile(d: Any, level: Tensor, upper: bool) -> Tensor:
    odds = [_inverse("betainccinv" if upper is side else "betaincinv", level, *shapes)
            for side, shapes in ((True, (d.df1 / 2, d.df2 / 2)), (False, (d.df2 / 2, d.df1 / 2)))]  # fmt: skip
    return odds[0] / odds[1] * d.df2 / d.df1


def _transformed_quantile(d: Any, level: Tensor, upper: bool) -> Tensor | None:
    signs = [direction(d, transform) for transform in d.transforms]
    falls = torch.as_tensor(math.prod(signs[1:], start=signs[0]) if signs else 1.0) < 0
    parts = [closed_quantile(d.base_dist, level, side) for side in (upper, not upper)]
    if parts[0] is None or parts[1] is None:
        return None
    value = torch.where(falls, parts[1], parts[0])
    for transform in d.transforms:
        value = transform(value)
    return value


_QUANTILES: dict[type, Callable[[Any, Tensor, bool], Tensor | None]] = {
    td.Normal: lambda d, level, upper: d.loc + d.scale * _z(level, upper),
    td.Laplace: _laplace_quantile,
    td.StudentT: lambda d, level, upper: d.loc + d.scale * (-1 if upper else 1) * _inverse("stdtrit", level, d.df),
    td.LogNormal: lambda d, level, upper: torch.exp(d.loc + d.scale * _z(level, upper)),
    td.Cauchy: lambda d, level, upper: d.loc + d.scale * (1 if upper else -1) / torch.tan(math.pi * level),
    td.Gumbel: lambda d, level, upper: d.loc - d.scale * _hazard_of(level, not upper).log(),
    td.HalfNormal: lambda d, level, upper: d.scale * (
        -torch.special.ndtri(level / 2) if upper else torch.erfinv(level) * math.sqrt(2)),
    td.Uniform: lambda d, level, upper: (
        d.high - (d.high - d.low) * level if upper else d.low + (d.high - d.low) * level),
    td.Exponential: lambda d, level, upper: _hazard_of(level, upper) / d.rate,
    td.Weibull: lambda d, level, upper: d.scale * _hazard_of(level, upper) ** (1 / d.concentration),
    td.Pareto: lambda d, level, upper: d.scale * (_hazard_of(level, upper) / d.alpha).exp(),
    td.Kumaraswamy: lambda d, level, upper: (
        -torch.expm1(-_hazard_of(level, upper) / d.concentration0)) ** (1 / d.concentration1),
    td.HalfCauchy: lambda d, level, upper: d.scale * torch.tan(math.pi / 2 * level) ** (-1 if upper else 1),
    td.ContinuousBernoulli: _continuous_bernoulli_quantile,
    td.GeneralizedPareto: _generalized_pareto_quantile,
    td.Gamma: _gamma_quantile,
    td.FisherSnedecor: _fisher_quantile,
    td.TransformedDistribution: _transformed_quantile,
    td.Beta: lambda d, level, upper: _inverse(
        "betainccinv" if upper else "betaincinv", level, d.concentration1, d.concentration0),
}  # fmt: skip
