"""What a scoring rule promises."""

from typing import Any, Protocol

import torch
from torch import Tensor
from torch.distributions import Categorical, Distribution

from deep_ensembles._checks import require


class ScoringRule(Protocol):
    """The score of each prediction for its target; no mean is taken."""

    def __call__(self, distribution: Distribution, target: Tensor, /) -> Tensor:
        """Shape: distribution with batch `[..., batch]`, target `[..., batch, *event]` → `[..., batch]`."""


def require_numbers(rule: str, distribution: Distribution) -> None:
    """Refuse predictions over classes, whose means and variances are no numbers."""
    components = getattr(distribution, "components", distribution)
    if isinstance(components, Categorical):
        raise TypeError(f"`{rule}` needs a continuous prediction, got Categorical; use `brier` or `log_score`")


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
