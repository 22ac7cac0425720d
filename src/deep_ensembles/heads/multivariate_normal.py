"""Several targets at once, with their correlations."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch import distributions as td
from torch.nn import functional as F

from deep_ensembles._checks import check_integer
from deep_ensembles.heads._base import Numbers, limited

# Beyond this many units of the target, squares of errors overflow where one target all but tells another.
_LIMIT = 1e10


@dataclass(frozen=True)
class MultivariateNormal(Numbers):
    r"""Means and covariance $LL^\top$ of targets, L triangular with $L_{ii}^2 = \mathrm{softplus}(r) + \text{floor}$.

    With a rank, the covariance is $WW^\top + D$, W with so many columns and D diagonal: far fewer outputs for many targets.

    References:
        Dorta, Vicente, Agapito, Campbell, Simpson (2018).

    Arguments:
        rank: the number of columns of W; None for a full covariance.
        min_variance: the floor under the diagonal, in the units in which the network is trained (standardised).

    Shape:
        raw `[..., batch, d + d(d+1)/2]`, or `[..., batch, d · (2 + rank)]` → batch `[..., batch]`, event `[d]`; for one
        target raw `[..., batch, 2]`, event `[]`.

    Example:
        >>> MultivariateNormal()(torch.zeros(1, 5)).covariance_matrix
        tensor([[[0.6931, 0.0000],
                 [0.0000, 0.6931]]])
    """

    rank: int | None = None
    min_variance: float = 1e-6
    kind = "vectors"

    def __post_init__(self) -> None:
        if self.rank is not None:
            check_integer("rank", self.rank, low=1)
        super().__post_init__()

    def raw_size(self, n_targets: int) -> int:
        if n_targets == 1:
            return 2
        return n_targets * (2 + self.rank) if self.rank else n_targets + n_targets * (n_targets + 1) // 2

    def __call__(self, raw: Tensor) -> td.Distribution:
        possible = [n for n in range(1, raw.shape[-1] + 1) if self.raw_size(n) == raw.shape[-1]]
        if not possible:
            raise ValueError(f"`raw` must have `raw_size(n_targets)` outputs for {self}, got {raw.shape[-1]}")
        n_targets = possible[0]
        loc, spread, rest = raw.split([n_targets, n_targets, raw.shape[-1] - 2 * n_targets], dim=-1)
        loc, variance = limited(loc, _LIMIT), (F.softplus(spread) + self.min_variance)
        if n_targets == 1:
            return td.Normal(loc.squeeze(-1), variance.sqrt().squeeze(-1), validate_args=False)
        if self.rank:
            factor = limited(rest, 1e3).unflatten(-1, (n_targets, self.rank))
            return td.LowRankMultivariateNormal(loc, factor, variance, validate_args=False)
        row, column = torch.tril_indices(n_targets, n_targets, -1, device=raw.device)
        most = 1e3 * variance.sqrt()[..., row]  # a correlation within a millionth of 1
        triangle = torch.diag_embed(variance.sqrt())
        triangle[..., row, column] = torch.maximum(torch.minimum(rest, most), -most)
        return td.MultivariateNormal(loc, scale_tril=triangle, validate_args=False)
