"""The energy score: the continuous ranked probability score of several targets at once."""

import math

import torch
from torch import Tensor
from torch.distributions import Distribution, LowRankMultivariateNormal, MultivariateNormal, Normal

from deep_ensembles.distributions import family, marginal
from deep_ensembles.mixture import mixture_of
from deep_ensembles.scoring._base import aligned, require_numbers
from deep_ensembles.scoring.crps import crps

# Steps of the integral over lengths, evenly spaced in the logarithm: their error falls exponentially with their number.
_STEP, _REACH = 0.5, 20.0


def energy_score(distribution: Distribution, target: Tensor) -> Tensor:
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
    moments = [_moments(mixture.member(m)) for m in range(mixture.n_members)]
    weighted = list(zip(mixture.weights, moments, strict=True))
    certain = target, torch.zeros_like(moments[0][1])
    away = torch.stack([w * _distance(one, certain) for w, one in weighted]).sum(0)
    return away - torch.stack([w * v * _distance(one, two) for w, one in weighted for v, two in weighted]).sum(0) / 2


Moments = tuple[Tensor, Tensor]


def _moments(member: Distribution) -> Moments:
    """Means, and the covariance or where targets are independent their variances."""
    if isinstance(member, (MultivariateNormal, LowRankMultivariateNormal)):
        return member.mean, member.covariance_matrix
    if not isinstance(marginal(member), Normal):
        raise TypeError(f"`energy_score` of several targets needs normals, got {family(member)}; use `crps` or "
                        "`log_score`, or the head `MultivariateNormal`")  # fmt: skip
    return member.mean, member.variance


def _distance(one: Moments, two: Moments) -> Tensor:
    """The mean distance of two normals."""
    return _mean_length(one[0] - two[0], one[1] + two[1])


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
