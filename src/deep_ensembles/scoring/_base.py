"""What a scoring rule promises."""

from typing import Any, Protocol

import torch
from torch import Tensor
from torch.distributions import Bernoulli, Categorical, Distribution

from deep_ensembles._checks import require
from deep_ensembles.distributions import family, is_whole, parameters


class ScoringRule(Protocol):
    """The score of each prediction for its target; no mean is taken."""

    def __call__(self, distribution: Distribution, target: Tensor, /) -> Tensor:
        """Shape: distribution with batch `[..., batch]`, target `[..., batch, *event]` → `[..., batch]`."""


def require_numbers(rule: str, distribution: Distribution) -> None:
    """Refuse predictions over classes, whose means and variances are no numbers."""
    components = getattr(distribution, "components", distribution)
    if isinstance(components, Categorical):
        raise TypeError(f"`{rule}` needs a continuous prediction, got Categorical; use `brier` or `log_score`")


def require_quantiles(rule: str, single: Distribution) -> None:
    """Refuse a family of one target whose quantiles mean nothing, or, in training, do not move with its parameters."""
    if isinstance(single, Bernoulli):
        raise TypeError(f"`{rule}` needs a prediction of numbers, got labels; use `brier` or `log_score`")
    if torch.is_grad_enabled() and is_whole(single) and any(each.requires_grad for each in parameters(single)):
        raise TypeError(f"`{rule}` can train with quantiles that move with the parameters alone, and those of "
                        f"{family(single)}, which are whole numbers, jump; train with `crps` or `log_score`")  # fmt: skip


def aligned(distribution: Distribution, target: Any) -> Tensor:
    """The target as a tensor, unless broadcasting would score every prediction with every target."""
    target = torch.as_tensor(target)
    shape = distribution.batch_shape + distribution.event_shape
    if target.shape != shape:
        try:
            fits = torch.broadcast_shapes(target.shape, shape) in (shape, target.shape)
        except RuntimeError:
            fits = False
        require(fits, "target", f"of the prediction's shape {list(shape)}", list(target.shape))
    return target


def over_targets(distribution: Distribution, values: Tensor) -> Tensor:
    """The average over targets where there are several, so that a score keeps its meaning."""
    return values.mean(-1) if distribution.event_shape else values
