"""Counts with more zeros than their family has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.distributions import Distribution, constraints
from torch.nn import functional as F

from deep_ensembles.distributions._structure import rebuilt
from deep_ensembles.distributions._tails import smooth_tails
from deep_ensembles.distributions.families import Exact


class ZeroInflated(Exact):
    r"""Zero with probability $\pi$, else a count of another distribution: $\pi\,\delta_0 + (1 - \pi)\,p$.

    Arguments:
        logits: the log-odds of π.
        of: the distribution p of counts ≥ 0.
    """

    arg_constraints: ClassVar[dict[str, constraints.Constraint]] = {}
    scaling = "none"

    def __init__(self, logits: Tensor, of: Distribution, validate_args: bool | None = None) -> None:
        self.logits, self.of = logits, of
        super().__init__(of.batch_shape, validate_args=False)

    @property
    def support(self) -> constraints.Constraint:
        return self.of.support  # type: ignore[return-value]

    def rebuilt(self, change: Callable[[Tensor], Tensor]) -> ZeroInflated:
        return ZeroInflated(change(self.logits), rebuilt(self.of, change))

    def log_prob(self, value: Tensor) -> Tensor:
        counts = F.logsigmoid(-self.logits) + self.of.log_prob(value)
        return torch.where(value == 0, torch.logaddexp(F.logsigmoid(self.logits), counts), counts)

    def tails(self, value: Tensor) -> tuple[Tensor, Tensor]:
        lower, upper = smooth_tails(self.of, value)
        zero, other = torch.sigmoid(self.logits), torch.sigmoid(-self.logits)
        return zero + other * lower, other * upper

    def sample(self, sample_shape: Any = torch.Size()) -> Tensor:  # noqa: B008
        with torch.no_grad():
            counts = self.of.sample(sample_shape)
            return torch.where(torch.rand_like(counts) < torch.sigmoid(self.logits), torch.zeros_like(counts), counts)

    @property
    def mean(self) -> Tensor:
        return torch.sigmoid(-self.logits) * self.of.mean

    @property
    def variance(self) -> Tensor:
        spread = self.of.variance + torch.sigmoid(self.logits) * self.of.mean.square()
        return torch.sigmoid(-self.logits) * spread
