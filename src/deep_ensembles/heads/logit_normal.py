"""Numbers between two bounds: shares, grades, percentages."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.distributions import Distribution, constraints

from deep_ensembles._checks import check_number, require
from deep_ensembles.distributions import LogitNormal as Family
from deep_ensembles.distributions import OpenInterval
from deep_ensembles.heads._base import Numbers, for_targets, limited, positive, split_raw

_LIMIT, _MOST_VARIANCE = 30.0, 100.0


@dataclass(frozen=True)
class LogitNormal(Numbers):
    r"""The log-odds $\log\frac{y - l}{h - y}$ have mean $r_1$ and variance $\mathrm{softplus}(r_2) + \text{floor}$.

    Arguments:
        low, high: the bounds l and h of the target; targets on a bound are refused, as their density would be 0.
        min_variance: the floor under the variance of the log-odds, which is at most 100.

    Shape:
        raw `[..., batch, 2 · target]` → batch `[..., batch]`; event `[]` for one target, `[target]` for several.

    Example:
        >>> LogitNormal(low=0.0, high=100.0)(torch.tensor([[0.0, 0.5413]])).mean
        tensor([50.])
    """

    low: float = 0.0
    high: float = 1.0
    min_variance: float = 1e-6
    scaling = "none"

    def __post_init__(self) -> None:
        check_number("low", self.low)
        check_number("high", self.high)
        require(self.low < self.high, "high", f"more than `low`, {self.low}", self.high)
        super().__post_init__()

    @property
    def support(self) -> constraints.Constraint:  # type: ignore[override]
        return OpenInterval(self.low, self.high)

    def __call__(self, raw: Tensor) -> Distribution:
        loc, spread = split_raw(self, raw)
        scale = positive(spread, self.min_variance, _MOST_VARIANCE).sqrt()
        bounds = (torch.full_like(loc, bound) for bound in (self.low, self.high))
        return for_targets(Family, limited(loc, _LIMIT), scale, *bounds)
