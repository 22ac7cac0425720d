"""The continuous ranked probability score."""

import copy
import math

import torch
from numpy.polynomial.legendre import leggauss
from torch import Tensor
from torch.distributions import Distribution, Normal

from deep_ensembles._distributions import marginal
from deep_ensembles.heads import Delta
from deep_ensembles.mixture import Mixture
from deep_ensembles.scoring._base import over_targets, require_numbers

# Knots in standard deviations, and nodes between two of them.
_KNOTS = (-40.0, -15.0, -8.0, -5.0, -3.0, -2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 2.0, 3.0, 5.0, 8.0, 15.0, 40.0)
_NODES = 16


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
    return over_targets(distribution, _of_single(marginal(distribution), target))


def _of_single(distribution: Distribution, target: Tensor) -> Tensor:
    if isinstance(distribution, Delta):
        return (target - distribution.loc).abs()
    if isinstance(distribution, Normal):
        spread = distribution.scale.square()
        return _expected_distance(target - distribution.loc, spread) - distribution.scale / math.sqrt(math.pi)
    return _by_quadrature(distribution, target)


def _of_mixture(mixture: Mixture, target: Tensor) -> Tensor:
    components = marginal(mixture.components)
    if not isinstance(components, (Normal, Delta)):
        return _by_quadrature(mixture, target)
    means, variances = components.mean, components.variance
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
    """The definition, by Gauss–Legendre between knots around the mean of each component, the target among them."""
    components = getattr(distribution, "components", distribution)
    middle, spread = components.mean.detach(), components.stddev.detach()
    if not bool(spread.isfinite().all()):
        raise ValueError(f"`crps` needs a distribution of finite variance, got {type(components).__name__}")
    target = target + torch.zeros_like(distribution.mean)
    knots = (middle + spread * middle.new_tensor(_KNOTS).reshape(-1, *[1] * middle.dim())).reshape(-1, *target.shape)
    low, high = _bounds(components, target)
    ends = [each.expand_as(target)[None] for each in (target, low, high) if bool(each.isfinite().all())]
    knots = torch.cat([knots.clamp(torch.minimum(low, target), torch.maximum(high, target)), *ends]).sort(0).values
    nodes, weights = (middle.new_tensor(each).reshape(-1, *[1] * knots.dim()) for each in leggauss(_NODES))
    half = knots.diff(dim=0) / 2
    points = knots[:-1] + half * (nodes + 1)  # [node, interval, *batch]
    inside = torch.where((points > low) & (points < high), points, distribution.mean.detach().expand_as(points))
    below = torch.where(points <= low, 0.0, torch.where(points >= high, 1.0, _unvalidated(distribution).cdf(inside)))
    return ((below - (points >= target).to(below)).square() * half * weights).sum((0, 1))


def _unvalidated(distribution: Distribution) -> Distribution:
    """A copy that takes arguments as they are: torch refuses its own rounding at the ends of a support."""
    free = copy.copy(distribution)
    free._validate_args = False
    for part in ("base_dist", "components"):
        if hasattr(free, part):
            setattr(free, part, _unvalidated(getattr(free, part)))
    return free


def _bounds(distribution: Distribution, like: Tensor) -> tuple[Tensor, Tensor]:
    """Where the mass of a distribution lies; infinite where it has no bound."""
    support = getattr(distribution, "support", None)
    bounds = getattr(support, "lower_bound", -math.inf), getattr(support, "upper_bound", math.inf)
    low, high = (torch.as_tensor(bound, dtype=like.dtype, device=like.device) for bound in bounds)
    return low, high
