"""Positive numbers, and numbers between two bounds."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.distributions import Distribution, constraints

from deep_ensembles import distributions as families
from deep_ensembles._checks import check_number, require
from deep_ensembles.heads._base import Numbers, for_targets, limited, positive, split_raw


@dataclass(frozen=True)
class Gamma(Numbers):
    r"""Mean $\mathrm{softplus}(r_1)$ and shape $\mathrm{softplus}(r_2)$, each above a floor.

    The standard deviation is the mean divided by the root of the shape. Targets are divided by their mean for training.

    Arguments:
        min_mean, min_shape: the floors under both; shapes are at most 1e6.

    Shape:
        raw `[..., batch, 2 · target]` → batch `[..., batch]`; event `[]` for one target, `[target]` for several.

    Example:
        >>> import torch
        >>> Gamma()(torch.tensor([[0.5413, 0.5413]])).mean
        tensor([1.0001])
    """

    min_mean: float = 1e-4
    min_shape: float = 1e-2
    scaling = "scale"
    support = constraints.positive

    def __call__(self, raw: Tensor) -> Distribution:
        centre, form = split_raw(self, raw)
        mean, shape = positive(centre, self.min_mean), positive(form, self.min_shape, 1e6)
        return for_targets(families.Gamma, shape, shape / mean)


# Wider bounds would let means overflow.
_LIMIT, _MOST_VARIANCE, _MOST_VARIANCE_OF_ODDS = 30.0, 25.0, 100.0


@dataclass(frozen=True)
class LogNormal(Numbers):
    r"""The logarithm of the target has mean $r_1$ and variance $\mathrm{softplus}(r_2) + \text{floor}$ (at most 25).

    Targets are divided by their mean for training.

    Arguments:
        min_variance: the floor under the variance of the logarithm.

    Shape:
        raw `[..., batch, 2 · target]` → batch `[..., batch]`; event `[]` for one target, `[target]` for several.

    Example:
        >>> import torch
        >>> LogNormal()(torch.tensor([[0.0, 0.5413]])).mean
        tensor([1.6487])
    """

    min_variance: float = 1e-6
    scaling = "scale"
    support = constraints.positive

    def __call__(self, raw: Tensor) -> Distribution:
        loc, spread = split_raw(self, raw)
        scale = positive(spread, self.min_variance, _MOST_VARIANCE).sqrt()
        return for_targets(families.LogNormal, limited(loc, _LIMIT), scale)


@dataclass(frozen=True)
class LogitNormal(Numbers):
    r"""The log-odds $\log\frac{y - l}{h - y}$ have mean $r_1$ and variance $\mathrm{softplus}(r_2) + \text{floor}$.

    Arguments:
        low, high: the bounds l and h of the target; targets on a bound are refused, as their density would be 0.
        min_variance: the floor under the variance of the log-odds, which is at most 100.

    Shape:
        raw `[..., batch, 2 · target]` → batch `[..., batch]`; event `[]` for one target, `[target]` for several.

    Example:
        >>> LogitNormal(low=0.0, high=100.0)(torch.tensor([[0.0, 0.5413]])).mean.round(decimals=2)
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
        return families.OpenInterval(self.low, self.high)

    def __call__(self, raw: Tensor) -> Distribution:
        loc, spread = split_raw(self, raw)
        scale = positive(spread, self.min_variance, _MOST_VARIANCE_OF_ODDS).sqrt()
        bounds = (torch.full_like(loc, bound) for bound in (self.low, self.high))
        return for_targets(families.LogitNormal, limited(loc, _LIMIT), scale, *bounds)
