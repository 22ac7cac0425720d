"""All mass on one value."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.distributions import Distribution, constraints


class Delta(Distribution):
    """The distribution of a value that is certain."""

    arg_constraints: ClassVar[dict[str, constraints.Constraint]] = {"loc": constraints.real}
    support = constraints.real
    scaling = "location-scale"

    def __init__(self, loc: Tensor, validate_args: bool | None = None) -> None:
        self.loc = loc
        super().__init__(loc.shape, validate_args=False)

    @property
    def mean(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        return torch.zeros_like(self.loc)

    def rescaled(self, shift: Tensor, scale: Tensor) -> Delta:
        return Delta(shift + scale * self.loc)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Delta:
        return Delta(self.loc.expand(torch.Size(batch_shape)))

    def sample(self, sample_shape: Any = torch.Size()) -> Tensor:  # noqa: B008
        return self.loc.expand(torch.Size(sample_shape) + self.loc.shape)

    def cdf(self, value: Tensor) -> Tensor:
        return (value >= self.loc).to(self.loc.dtype)

    def icdf(self, value: Tensor) -> Tensor:
        return self.loc + torch.zeros_like(value)

    def log_prob(self, value: Tensor) -> Tensor:
        raise NotImplementedError("a point prediction has no density; use `moment_matched()` of the ensemble's mixture")
