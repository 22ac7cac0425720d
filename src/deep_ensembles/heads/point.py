"""A mean and nothing else, for networks trained on squared error."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.distributions import Distribution, Independent, constraints


@dataclass(frozen=True)
class Point:
    r"""All mass on one value, $y = r$: the members of an MSE ensemble, whose spread is the only uncertainty.

    Shape:
        raw `[..., batch, target]` → batch `[..., batch]`; event `[]` for one target, `[target]` for several.

    Example:
        >>> Point()(torch.tensor([[3.0]]))
        Delta(loc: tensor([3.]))
    """

    discrete: ClassVar[bool] = False

    def raw_size(self, n_targets: int) -> int:
        return n_targets

    def __call__(self, raw: Tensor) -> Distribution:
        if raw.shape[-1] == 1:
            return Delta(raw.squeeze(-1))
        return Independent(Delta(raw), 1, validate_args=False)


class Delta(Distribution):
    """The distribution of a value that is certain."""

    arg_constraints: ClassVar[dict[str, constraints.Constraint]] = {"loc": constraints.real}
    support = constraints.real

    def __init__(self, loc: Tensor, validate_args: bool | None = None) -> None:
        self.loc = loc
        super().__init__(loc.shape, validate_args=False)

    @property
    def mean(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        return torch.zeros_like(self.loc)

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
