"""Rules of the density, the mean, class probabilities and quantiles, and of times that are only known to exceed a value."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.distributions import Bernoulli, Distribution, LogNormal, Normal
from torch.nn import functional as F

from deep_ensembles._checks import check_number, require
from deep_ensembles.distributions import Interpolated, NormalMixture, family, is_whole, marginal, parameters, tails
from deep_ensembles.mixture import Mixture, mixture_of
from deep_ensembles.scoring._base import ScoringRule, aligned, over_targets, require_numbers


def log_score(distribution: Distribution, target: Tensor) -> Tensor:
    r"""Negative log-likelihood in nats, $-\log p(y)$; for classes the cross-entropy. Several targets: their joint one.

    References:
        Lakshminarayanan, Pritzel, Blundell (2017), equation 1.

    Example:
        >>> import torch
        >>> log_score(torch.distributions.Normal(torch.zeros(1), torch.ones(1)), torch.zeros(1))
        tensor([0.9189])
    """
    return -distribution.log_prob(aligned(distribution, target))


def beta_nll(distribution: Distribution, target: Tensor, beta: float = 0.5) -> Tensor:
    r"""Log-likelihood weighted by the predicted variance, $\lfloor\sigma^{2\beta}\rfloor\,(-\log p(y))$.

    $\lfloor\cdot\rfloor$ stops the gradient, so for each input the optimum is the log score's; samples that the network
    has given up on (large variance) keep pulling at the mean. β = 0 is the log score. Made for training: as a
    metric use `log_score`. Several targets share the mean of their variances. Another β:
    `functools.partial(beta_nll, beta=1.0)`.

    References:
        Seitzer, Tavakoli, Antic, Martius (2022).

    Example:
        >>> import torch
        >>> beta_nll(torch.distributions.Normal(torch.zeros(1), torch.full((1,), 2.0)), torch.zeros(1))
        tensor([3.2242])
    """
    require_numbers("beta_nll", distribution)
    variance = over_targets(distribution, distribution.variance.detach())
    return variance.pow(beta) * log_score(distribution, target)


def squared_error(distribution: Distribution, target: Tensor) -> Tensor:
    r"""Squared error of the predicted mean, $(y - \mu)^2$, averaged over targets; blind to the spread.

    Example:
        >>> import torch
        >>> squared_error(torch.distributions.Normal(torch.zeros(1), torch.ones(1)), torch.tensor([3.0]))
        tensor([9.])
    """
    require_numbers("squared_error", distribution)
    return over_targets(distribution, (distribution.mean - aligned(distribution, target)).square())


def brier(distribution: Distribution, target: Tensor) -> Tensor:
    r"""Brier score as in the paper, $K^{-1}\sum_k (\delta_{k=y} - p_k)^2$: divided by the number of classes K.

    Of labels that each are there or not, the mean over them of $(y - p)^2$.

    References:
        Brier (1950); Lakshminarayanan, Pritzel, Blundell (2017), section 2.2.

    Example:
        >>> import torch
        >>> brier(torch.distributions.Categorical(torch.tensor([[0.5, 0.5]])), torch.tensor([0]))
        tensor([0.2500])
    """
    single: Any = getattr(distribution, "base_dist", distribution)
    if isinstance(single, Bernoulli) or getattr(distribution, "kind", "") == "labels":
        return over_targets(distribution, (aligned(distribution, target) - single.probs).square())
    probabilities: Tensor | None = getattr(distribution, "probs", None)
    if probabilities is None or probabilities.dim() == len(distribution.batch_shape):
        raise TypeError(f"`brier` needs a prediction over classes, got {type(distribution).__name__}")
    happened = F.one_hot(aligned(distribution, target).long(), probabilities.shape[-1]).to(probabilities.dtype)
    return (happened - probabilities).square().mean(-1)


_LEVELS = tuple(i / 20 for i in range(1, 20))


def pinball(distribution: Distribution, target: Tensor, levels: Sequence[float] | None = None) -> Tensor:
    r"""Mean pinball loss of quantiles, $\frac1L\sum_\ell (y - q_\ell)(\tau_\ell - 1\{y < q_\ell\})$, in the target's units.

    Over ever more evenly spaced levels, twice the loss becomes the `crps`. Averaged over targets. Of counts it is a metric
    alone: their quantiles jump, so that a network learns nothing from them. Other levels:
    `functools.partial(pinball, levels=(0.1, 0.5, 0.9))`.

    References:
        Koenker & Bassett (1978); Gneiting & Raftery (2007), section 6.1.

    Arguments:
        levels: between 0 and 1; by default those of the head `Quantiles`, for other heads 0.05, 0.1, …, 0.95.

    Example:
        >>> standard = torch.distributions.Normal(torch.zeros(1), torch.ones(1))
        >>> pinball(standard, torch.ones(1), levels=(0.5,))
        tensor([0.5000])
    """
    require_numbers("pinball", distribution)
    shares, values = _quantiles(distribution, levels)
    above = aligned(distribution, target) - values
    losses = (shares.to(above) - 0.5) * above + above.abs() / 2  # where it is 0, the slope between both sides'
    return over_targets(distribution, losses.mean(0))


def _quantiles(distribution: Distribution, levels: Sequence[float] | None) -> tuple[Tensor, Tensor]:
    """Levels and their quantiles, both broadcastable to `[level, ..., batch, *event]`."""
    single = marginal(getattr(distribution, "components", distribution))
    if levels is None and isinstance(single, Interpolated):
        if not hasattr(distribution, "n_members"):
            return single.levels.movedim(-1, 0), single.values.movedim(-1, 0)
        levels = single.levels.reshape(-1, single.levels.shape[-1])[0].tolist()
    _require_quantiles(single)
    levels = _LEVELS if levels is None else levels
    require(len(levels) > 0, "levels", "at least one number", levels)
    for level in levels:
        check_number("levels", level, low=0, high=1, above=True, below=True)
    shape = distribution.batch_shape + distribution.event_shape
    shares = torch.tensor(levels, dtype=torch.float64).reshape(-1, *[1] * len(shape))
    return shares, mixture_of(distribution).icdf(shares)


def _require_quantiles(single: Distribution) -> None:
    """Refuse a family of one target whose quantiles mean nothing, or, in training, do not move with its parameters."""
    if isinstance(single, Bernoulli):
        raise TypeError("`pinball` needs a prediction of numbers, got labels; use `brier` or `log_score`")
    learns = torch.is_grad_enabled() and not hasattr(single, "n_members")  # what is recalibrated is trained no longer
    if learns and is_whole(single) and any(parameter.requires_grad for parameter in parameters(single)):
        raise TypeError("`pinball` can train with quantiles that move with the parameters alone, and those of "
                        f"{family(single)}, which are whole numbers, jump; train with `crps` or `log_score`")  # fmt: skip


def interval_score(distribution: Distribution, target: Tensor, coverage: float = 0.9) -> Tensor:
    r"""Width of the central interval $[l, u]$ plus a fine for missing it, $(u - l) + \frac2\alpha((l - y)_+ + (y - u)_+)$.

    With α = 1 - `coverage`, in the target's units; averaged over targets. Another coverage:
    `functools.partial(interval_score, coverage=0.5)`.

    References:
        Winkler (1972); Gneiting & Raftery (2007), section 6.2.

    Arguments:
        coverage: the probability between both ends, as much being left below as above.

    Example:
        >>> import torch
        >>> interval_score(torch.distributions.Uniform(torch.zeros(1), torch.ones(1)), torch.tensor([0.5]), coverage=0.5)
        tensor([0.5000])
    """
    check_number("coverage", coverage, low=0, high=1, above=True, below=True)
    missed = 1 - coverage
    return pinball(distribution, target, levels=(missed / 2, 1 - missed / 2)) * (4 / missed)


@dataclass(frozen=True)
class Censored:
    """A scoring rule for right-censored targets; made by `censored`."""

    rule: ScoringRule
    is_censored = True

    def __post_init__(self) -> None:
        if self.rule is not log_score:
            name = getattr(self.rule, "__name__", repr(self.rule))
            raise TypeError(f"`censored` takes `log_score` alone, got {name}: where nobody knows when events would be "
                            "censored, other rules are not proper; pass `scoring_rule=log_score`")  # fmt: skip

    def __call__(self, distribution: Distribution, target: Tensor, /) -> Tensor:
        require_numbers("censored", distribution)
        if distribution.event_shape:
            raise TypeError(f"`censored` needs one time per row, got {family(distribution)} of several targets; "
                            "take `head=LogNormal()`, or another for one number")  # fmt: skip
        time, is_event = target[..., 0], target[..., 1] > 0.5
        # What is not counted must not be infinite: its slope would be NaN.
        survival = _log_survival(distribution, time)
        return torch.where(is_event, self.rule(distribution, time), -torch.where(is_event, 0.0, survival))


def censored(rule: ScoringRule = log_score) -> Censored:
    r"""The rule for right-censored targets: $-\log p(t)$ of an event, $-\log P(Y > t)$ where only $Y > t$ is known.

    That is the right-censored likelihood: proper as long as what ends the watching says nothing of the time to come.
    `fit_ensemble` and the estimators take it by themselves where targets are a structured array, as scikit-survival's. Other
    rules are refused: the censored CRPS (Avati et al. 2020) prefers times that are too short (Rindt et al. 2022).

    References:
        Rindt, Hu, Steinsaltz, Sejdinovic (2022).

    Arguments:
        rule: `log_score`.

    Shape:
        of the rule it returns: distribution with batch `[..., batch]` of one number, target `[..., batch, 2]` (the time, and
        1 for an event or 0 for a time that was only exceeded) → `[..., batch]`.

    Example:
        >>> year = torch.distributions.Exponential(torch.ones(2))
        >>> censored(log_score)(year, torch.tensor([[3.0, 1.0], [3.0, 0.0]]))
        tensor([3., 3.])
    """
    return Censored(rule)


def _log_survival(distribution: Any, time: Tensor) -> Tensor:
    """log P(Y > time), of normals however unlikely; of others at least the logarithm of the least number there is."""
    if isinstance(distribution, Mixture):
        n_dims = time.dim() - len(distribution.batch_shape)
        logs = _log_survival(distribution.components, time.unsqueeze(n_dims))
        weights = distribution.weights.log().reshape(-1, *[1] * len(distribution.batch_shape))
        return torch.logsumexp(logs + weights, dim=n_dims)
    if isinstance(distribution, NormalMixture):
        logs = _log_survival(distribution.component_distribution, time.unsqueeze(-1))
        return torch.logsumexp(logs + distribution.mixture_distribution.logits, dim=-1)
    if isinstance(distribution, Normal):
        return torch.special.log_ndtr((distribution.loc - time) / distribution.scale)
    if isinstance(distribution, LogNormal):
        return _log_survival(distribution.base_dist, time.clamp_min(torch.finfo(time.dtype).tiny).log())
    above = tails(distribution, time)[1]
    return above.clamp_min(torch.finfo(above.dtype).tiny).log()
