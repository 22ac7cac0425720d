"""The continuous ranked probability score, and the energy score, which it becomes for several targets at once."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch import distributions as td

# isort: off
from deep_ensembles.distributions import (
    Delta, Ordered, alone, family, formula_of, gamma_tails, indexed, marginal, normal_cdf,
    ranked_probability_score, tails,
)  # fmt: skip

# isort: on
from deep_ensembles.mixture import Mixture, mixture_of
from deep_ensembles.scoring._base import aligned, over_targets, require_numbers


def crps(distribution: td.Distribution, target: Tensor) -> Tensor:
    r"""Continuous ranked probability score, $\int (F(z) - 1\{y \le z\})^2\,dz$, in the target's units.

    For counts and ordered classes the integral is a sum. Closed form for normals, points, their mixtures, and single
    distributions of Laplace, Student, log-normal, gamma, Poisson and quantiles; for any other with a distribution function
    numerical integration (relative error below 1e-6), differentiable in the parameters. Averaged over targets.

    References:
        Gneiting & Raftery (2007); Grimit, Gneiting, Berrocal, Johnson (2006) for the mixture of normals; Jordan, Krüger,
        Lerch (2019) for the other forms.

    Example:
        >>> crps(td.Normal(torch.zeros(1), torch.ones(1)), torch.zeros(1))
        tensor([0.2337])
    """
    target = aligned(distribution, target)
    components = getattr(distribution, "components", distribution)
    if isinstance(components, Ordered):
        return _of_ordered(distribution.probs, target)  # type: ignore[attr-defined]
    require_numbers("crps", distribution)
    mixture = mixture_of(distribution)
    if not isinstance(mixture, Mixture):  # recalibrated
        return mixture.crps(target)
    return over_targets(distribution, _of_members(marginal(mixture.components), mixture.weights, target))


def _of_members(components: Any, weights: Tensor, target: Tensor) -> Tensor:
    """Of a mixture of members `[member, *batch]` with weights `[member]`."""
    if isinstance(components, td.MixtureSameFamily) and isinstance(components.component_distribution, td.Normal):
        normals, shares = components.component_distribution, components.mixture_distribution.probs
        shares = shares * weights.reshape(-1, *[1] * len(components.batch_shape))
        means, variances, shares = (p.movedim(-1, 0).flatten(0, 1) for p in (normals.mean, normals.variance, shares))
    elif isinstance(components, (td.Normal, Delta)):
        means, variances, shares = components.mean, components.variance, weights
    elif len(weights) == 1 and (closed := formula_of(indexed(components, 0), "crps", _CLOSED)) is not None:
        return closed(target)
    else:
        return ranked_probability_score(components, weights, target.to(weights.dtype))
    return _energy(means, variances, shares, target, _mean_distance, variances.sqrt() / math.sqrt(math.pi))


def _energy(
    means: Tensor, spreads: Tensor, weights: Tensor, target: Tensor, length: Callable[[Tensor, Tensor], Tensor], own: Tensor
) -> Tensor:
    r"""$E\|X - y\| - \frac12 E\|X - X'\|$ of a mixture of normals or points.

    Arguments:
        means, spreads: of the members, one after another.
        weights: `[member]` or `[member, *batch]`.
        length: the mean length E‖X‖ of a normal with a mean and a spread.
        own: of each member, half the mean distance of two draws, `[member, *batch]`.
    """
    score = torch.zeros_like(own[0])
    for m in range(len(means)):
        score = score + weights[m] * length(target - means[m], spreads[m]) - weights[m] ** 2 * own[m]
        for n in range(m):
            score = score - weights[m] * weights[n] * length(means[m] - means[n], spreads[m] + spreads[n])
    return score


def _mean_distance(mean: Tensor, variance: Tensor) -> Tensor:
    """E|X| of X ~ N(mean, variance), with the limit |mean| where the variance is 0."""
    certain = variance <= 0
    deviation = torch.where(certain, torch.ones_like(variance), variance).sqrt()
    z = mean / deviation
    density = torch.exp(-z.square() / 2) * math.sqrt(2 / math.pi)
    return torch.where(certain, mean.abs(), deviation * density + mean * torch.erf(z / math.sqrt(2)))


def _of_ordered(probabilities: Tensor, target: Tensor) -> Tensor:
    reached = target.unsqueeze(-1) <= torch.arange(probabilities.shape[-1], device=target.device)
    return (probabilities.cumsum(-1) - reached.to(probabilities)).square()[..., :-1].sum(-1)


def _of_laplace(d: Any, target: Tensor) -> Tensor:
    z = ((target - d.loc) / d.scale).abs()
    return d.scale * (z + torch.exp(-z) - 0.75)


def _of_student_t(d: Any, target: Tensor) -> Tensor:
    if not bool((d.df > 1.1).all()):  # near 1 the closed form is a difference of large numbers
        return ranked_probability_score(alone(d), d.df.new_ones(1), target.to(d.df.dtype))
    z, df = (target - d.loc) / d.scale, d.df
    lower, upper = tails(d, target)
    density = td.StudentT(df, validate_args=False).log_prob(z).exp()
    logs = _log_beta(df - 0.5) - 2 * _log_beta(df / 2) + df.log() / 2
    return d.scale * (z * (lower - upper) + 2 * (density * (df + z.square()) - logs.exp()) / (df - 1))


def _log_beta(b: Tensor) -> Tensor:
    """log B(½, b)."""
    return math.lgamma(0.5) + torch.lgamma(b) - torch.lgamma(b + 0.5)


def _of_log_normal(d: Any, target: Tensor) -> Tensor:
    lower, upper = tails(d, target)
    beyond = (target.clamp_min(torch.finfo(target.dtype).tiny).log() - d.loc) / d.scale - d.scale
    beyond = torch.where(target > 0, normal_cdf(beyond), 0.0) - normal_cdf(-d.scale * math.sqrt(0.5))
    return target * (lower - upper) - 2 * d.mean * beyond


def _of_gamma(d: Any, target: Tensor) -> Tensor:
    a, x = d.concentration, (d.rate * target).clamp_min(0.0)
    lower, upper = gamma_tails(a, x)
    more, less = gamma_tails(a + 1, x)
    gini = torch.exp(_log_beta(a + 0.5)) / math.pi
    return target * (lower - upper) - d.mean * (more - less + gini)


def _of_poisson(d: Any, target: Tensor) -> Tensor:
    lower, upper = tails(d, target)
    at = torch.where(target >= 0, d.log_prob(target.clamp_min(0).floor()).exp(), 0.0)
    spread = torch.special.i0e(2 * d.rate) + torch.special.i1e(2 * d.rate)
    return (target - d.rate) * (lower - upper) + d.rate * (2 * at - spread)


_CLOSED: dict[type, Callable[[Any, Tensor], Tensor]] = {
    td.Laplace: _of_laplace,
    td.StudentT: _of_student_t,
    td.LogNormal: _of_log_normal,
    td.Gamma: _of_gamma,
    td.Poisson: _of_poisson,
}


# Steps of the integral over lengths, evenly spaced in the logarithm: their error falls exponentially with their number.
_STEP, _REACH = 0.5, 20.0


def energy_score(distribution: td.Distribution, target: Tensor) -> Tensor:
    r"""Mean distance to the target less half the mean distance of two draws, $E\|X - y\| - \frac12 E\|X - X'\|$.

    Unlike the mean `crps` of several targets it sees how they depend on one another; of one target it is the `crps`. In the
    targets' units, so that targets of a greater scale count for more; training sees standardised ones. Of several targets it
    takes normals and their mixtures (relative error about 1e-8).

    References:
        Gneiting & Raftery (2007), section 4.2.

    Example:
        >>> two = torch.distributions.MultivariateNormal(torch.zeros(1, 2), torch.eye(2))
        >>> energy_score(two, torch.zeros(1, 2))
        tensor([0.3671])
    """
    if not distribution.event_shape:
        return crps(distribution, target)
    target = aligned(distribution, target)
    require_numbers("energy_score", distribution)
    mixture = mixture_of(distribution)
    means, spreads = _moments(mixture.components)
    own = _mean_length(torch.zeros_like(means), 2 * spreads) / 2
    return _energy(means, spreads, mixture.weights, target, _mean_length, own)


def _moments(members: td.Distribution) -> tuple[Tensor, Tensor]:
    """Means, and the covariance or where targets are independent their variances."""
    if isinstance(members, (td.MultivariateNormal, td.LowRankMultivariateNormal)):
        return members.mean, members.covariance_matrix
    if not isinstance(marginal(members), td.Normal):
        raise TypeError(f"`energy_score` of several targets needs normals, got {family(members)}; use `crps` or "
                        "`log_score`, or the head `MultivariateNormal`")  # fmt: skip
    return members.mean, members.variance


def _mean_length(mean: Tensor, spread: Tensor) -> Tensor:
    r"""E‖X‖ of a normal X with a covariance, or with variances alone.

    As $\|x\| = \frac{1}{2\sqrt\pi}\int_0^\infty (1 - e^{-t\|x\|^2})\,t^{-3/2}\,dt$, whose mean is known for normals.
    """
    centre, variance, across = mean.double(), spread.double(), None
    if spread.dim() > mean.dim():  # turned to where the covariance is diagonal; what lies across is 0, but not its slope
        turn = torch.linalg.eigh(variance.detach())[1]
        centre, turned = (centre.unsqueeze(-2) @ turn).squeeze(-2), turn.mT @ variance @ turn
        variance = turned.diagonal(dim1=-2, dim2=-1)
        across = turned - torch.diag_embed(variance)
    square = (centre.square() + variance).sum(-1)
    unit = torch.where(square > 0, square, 1.0).detach()
    steps = torch.arange(-_REACH, _REACH + _STEP, _STEP, dtype=centre.dtype, device=centre.device)
    steps = steps.reshape(-1, *[1] * unit.dim())
    t = (steps.exp() / unit).unsqueeze(-1)
    pull = centre / (1 + 2 * t * variance)
    logs = -(torch.log1p(2 * t * variance) / 2 + t * centre * pull).sum(-1)
    if across is not None:
        logs = logs + 2 * (t.square() * pull * (pull.unsqueeze(-2) @ across).squeeze(-2)).sum(-1)
    # Further steps are geometric series: the integrand is E‖X‖² t near 0, and 1 far out.
    further = math.exp(-(_REACH + _STEP) / 2) / (1 - math.exp(-_STEP / 2))
    total = (-torch.expm1(logs) * torch.exp(steps / -2)).sum(0) + further * (square / unit + (square > 0))
    return (total * (_STEP / (2 * math.sqrt(math.pi))) * unit.sqrt()).to(mean.dtype)
