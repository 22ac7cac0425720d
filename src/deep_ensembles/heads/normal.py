"""A normal distribution whose mean and variance are both learned."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.distributions import Distribution, Independent
from torch.distributions import Normal as TorchNormal
from torch.nn import functional as F

from deep_ensembles._checks import check_number

# Beyond this many standard deviations of the target, squares of errors over the least variance overflow in float32.
MEAN_LIMIT = 1e13


@dataclass(frozen=True)
class Normal:
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
    discrete: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_number("min_variance", self.min_variance, low=0, above=True)

    def raw_size(self, n_targets: int) -> int:
        return 2 * n_targets

    def __call__(self, raw: Tensor) -> Distribution:
        mean, variance = self.moments(raw)
        deviation = variance.sqrt()
        if mean.shape[-1] == 1:
            return TorchNormal(mean.squeeze(-1), deviation.squeeze(-1), validate_args=False)
        return Independent(TorchNormal(mean, deviation, validate_args=False), 1, validate_args=False)

    def moments(self, raw: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and variance of every target, each `[..., batch, target]`."""
        if raw.shape[-1] % 2:
            raise ValueError(f"`raw` must have a mean and a variance per target, got {raw.shape[-1]} outputs; "
                             "give the network 2 outputs per target")  # fmt: skip
        mean, spread = raw.chunk(2, dim=-1)
        limit = min(MEAN_LIMIT, torch.finfo(raw.dtype).max)
        return mean.clamp(-limit, limit), F.softplus(spread.contiguous()) + self.min_variance
