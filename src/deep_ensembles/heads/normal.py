"""A normal distribution whose mean and variance are both learned."""

from dataclasses import dataclass

from torch import Tensor
from torch import distributions as td
from torch.nn import functional as F

from deep_ensembles.heads._base import Numbers, for_targets, limited, split_raw


@dataclass(frozen=True)
class Normal(Numbers):
    r"""Mean and variance, $\mu = r_1,\ \sigma^2 = \mathrm{softplus}(r_2) + \text{floor}$, one pair per target.

    References:
        Nix & Weigend (1994); Lakshminarayanan, Pritzel, Blundell (2017), section 2.2.1.

    Arguments:
        min_variance: the floor under the variance, in the units in which the network is trained (standardised).

    Shape:
        raw `[..., batch, 2 · target]` → batch `[..., batch]`; event `[]` for one target, `[target]` for several.

    Example:
        >>> import torch
        >>> Normal()(torch.tensor([[0.0, 0.5413]]))
        Normal(loc: tensor([0.]), scale: tensor([1.0000]))
    """

    min_variance: float = 1e-6

    def __call__(self, raw: Tensor) -> td.Distribution:
        mean, variance = self.moments(raw)
        return for_targets(td.Normal, mean, variance.sqrt())

    def moments(self, raw: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and variance of every target, each `[..., batch, target]`."""
        mean, spread = split_raw(self, raw)
        return limited(mean), F.softplus(spread.contiguous()) + self.min_variance
