"""Scores of times that are only known to exceed a value."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.distributions import Distribution, LogNormal, Normal

from deep_ensembles.distributions import NormalMixture, family, tails
from deep_ensembles.mixture import Mixture
from deep_ensembles.scoring._base import ScoringRule, require_numbers
from deep_ensembles.scoring.rules import log_score


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
        logarithm = time.clamp_min(torch.finfo(time.dtype).tiny).log()
        return torch.special.log_ndtr((distribution.loc - logarithm) / distribution.scale)
    above = tails(distribution, time)[1]
    return above.clamp_min(torch.finfo(above.dtype).tiny).log()
