"""Positive numbers whose logarithm is normal: prices, incomes, durations."""

from dataclasses import dataclass

from torch import Tensor
from torch.distributions import Distribution, constraints

from deep_ensembles.distributions import LogNormal as Family
from deep_ensembles.heads._base import Numbers, for_targets, limited, positive, split_raw

# Wider bounds would let means overflow.
_LIMIT, _MOST_VARIANCE = 30.0, 25.0


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
        return for_targets(Family, limited(loc, _LIMIT), positive(spread, self.min_variance, _MOST_VARIANCE).sqrt())
