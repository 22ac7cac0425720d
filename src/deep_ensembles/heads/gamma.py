"""Positive numbers whose spread grows with their mean: amounts, waiting times."""

from dataclasses import dataclass

from torch import Tensor
from torch.distributions import Distribution, constraints

from deep_ensembles.distributions import Gamma as Family
from deep_ensembles.heads._base import Numbers, for_targets, positive, split_raw


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
        return for_targets(Family, shape, shape / mean)
