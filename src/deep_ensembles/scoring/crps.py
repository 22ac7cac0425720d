"""The continuous ranked probability score."""

from __future__ import annotations

import math

import torch
from numpy.polynomial.legendre import leggauss
from torch import Tensor
from torch.distributions import Distribution, Independent, Normal

from deep_ensembles.heads import Delta
from deep_ensembles.mixture import Mixture
from deep_ensembles.scoring._base import over_targets, require_numbers

_NODES = 64


def crps(distribution: Distribution, target: Tensor) -> Tensor:
    r"""Continuous ranked probability score, $\int (F(z) - 1\{y \le z\})^2\,dz$, in the target's units.

    Closed form for a normal, a point and mixtures of them; for anything else with a `cdf`, numerical integration
    (differentiable in the distribution's parameters). Averaged over targets.

    References:
        Gneiting & Raftery (2007); Grimit, Gneiting, Berrocal, Johnson (2006) for the mixture of normals.

    Example:
        >>> crps(Normal(torch.zeros(1), torch.ones(1)), torch.zeros(1))
        tensor([0.2337])
    """
    require_numbers("crps", distribution)
    if isinstance(distribution, Mixture):
        return over_targets(distribution, _of_mixture(distribution, target))
    marginal = distribution.base_dist if isinstance(distribution, Independent) else distribution
    return over_targets(distribution, _of_single(marginal, target))


def _of_single(distribution: Distribution, target: Tensor) -> Tensor:
    if isinstance(distribution, Delta):
        return (target - distribution.loc).abs()
    if isinstance(distribution, Normal):
        spread = distribution.scale.square()
        return _expected_distance(target - distribution.loc, spread) - distribution.scale / math.sqrt(math.pi)
    return _by_quadrature(distribution, target)


def _of_mixture(mixture: Mixture, target: Tensor) -> Tensor:
    components = mixture.components
    marginal = components.base_dist if isinstance(components, Independent) else components
    if not isinstance(marginal, (Normal, Delta)):
        return _of_single(marginal, target) if mixture.n_members == 1 else _by_quadrature(mixture, target)
    means, variances = marginal.mean, marginal.variance
    weights = mixture.weights
    score = torch.zeros_like(target - means[0])
    for m in range(mixture.n_members):
        score = score + weights[m] * _expected_distance(target - means[m], variances[m])
        score = score - weights[m] ** 2 * variances[m].sqrt() / math.sqrt(math.pi)
        for n in range(m):
            between = _expected_distance(means[m] - means[n], variances[m] + variances[n])
            score = score - weights[m] * weights[n] * between
    return score


def _expected_distance(mean: Tensor, variance: Tensor) -> Tensor:
    """E|X| of X ~ N(mean, variance), with the limit |mean| where the variance is 0."""
    certain = variance <= 0
    deviation = torch.where(certain, torch.ones_like(variance), variance).sqrt()
    z = mean / deviation
    density = torch.exp(-z.square() / 2) * math.sqrt(2 / math.pi)
    return torch.where(certain, mean.abs(), deviation * density + mean * torch.erf(z / math.sqrt(2)))


def _by_quadrature(distribution: Distribution, target: Tensor) -> Tensor:
    r"""With m the mean: $\int_{-\infty}^m F^2 + \int_m^\infty (1-F)^2 + \int_m^y (2F - 1)$, each by Gauss–Legendre.

    The half lines are mapped to (0, 1) by z = m ± s·t/(1-t), s the standard deviation.
    """
    middle, spread = distribution.mean.detach(), distribution.stddev.detach()
    nodes, weights = leggauss(_NODES)
    shape = (-1,) + (1,) * torch.broadcast_tensors(middle, target)[0].dim()
    t = middle.new_tensor((nodes + 1) / 2).reshape(shape)
    w = middle.new_tensor(weights / 2).reshape(shape)
    reach, stretch = spread * t / (1 - t), spread / (1 - t).square()
    below = (distribution.cdf(middle - reach).square() * stretch * w).sum(0)
    above = ((1 - distribution.cdf(middle + reach)).square() * stretch * w).sum(0)
    distance = (target - middle).abs() / spread
    end = distance / (1 + distance)
    part = spread * (t * end) / (1 - t * end)
    side = torch.where(target >= middle, 1.0, -1.0).to(middle)
    between = (2 * distribution.cdf(middle + side * part) - 1) * spread / (1 - t * end).square() * end
    return below + above + side * (between * w).sum(0)
