"""A peak with exponential tails, for targets whose median matters."""

from dataclasses import dataclass

from torch import Tensor
from torch.distributions import Distribution

from deep_ensembles.distributions import Laplace as Family
from deep_ensembles.heads._base import Numbers, for_targets, limited, positive, split_raw


@dataclass(frozen=True)
class Laplace(Numbers):
    r"""Median $\mu = r_1$ and scale $b = \mathrm{softplus}(r_2) + \text{floor}$ of $p(y) = e^{-|y - \mu|/b}/(2b)$.

    Its log-likelihood is the absolute error.

    Arguments:
        min_scale: the floor under the scale, in the units in which the network is trained (standardised).

    Shape:
        raw `[..., batch, 2 · target]` → batch `[..., batch]`; event `[]` for one target, `[target]` for several.

    Example:
        >>> import torch
        >>> Laplace()(torch.tensor([[0.0, 0.5413]]))
        Laplace(loc: tensor([0.]), scale: tensor([1.0010]))
    """

    min_scale: float = 1e-3

    def __call__(self, raw: Tensor) -> Distribution:
        loc, spread = split_raw(self, raw)
        return for_targets(Family, limited(loc), positive(spread, self.min_scale))
