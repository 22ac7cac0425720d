"""What a scoring rule promises."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor
from torch.distributions import Distribution


class ScoringRule(Protocol):
    """The score of each prediction for its target; no mean is taken."""

    def __call__(self, distribution: Distribution, target: Tensor, /) -> Tensor:
        """Shape: distribution with batch `[..., batch]`, target `[..., batch, *event]` → `[..., batch]`."""


def over_targets(distribution: Distribution, values: Tensor) -> Tensor:
    """The average over targets where there are several, so that a score keeps its meaning."""
    return values.mean(-1) if distribution.event_shape else values
