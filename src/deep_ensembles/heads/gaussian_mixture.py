"""A mixture density network: several normals per row, for targets with several likely values."""

from dataclasses import dataclass

from torch import Tensor
from torch.distributions import Categorical, Distribution, Normal
from torch.nn import functional as F

from deep_ensembles._checks import check_integer
from deep_ensembles.distributions import NormalMixture
from deep_ensembles.heads._base import Numbers, for_targets, limited, split_raw

MOST_LOGIT = 100.0


@dataclass(frozen=True)
class GaussianMixture(Numbers):
    r"""Several normals, $\sum_k \pi_k\,N(\mu_k, \sigma_k^2)$, for targets with several likely values.

    Weights are $\pi = \mathrm{softmax}(r_1)$, means $\mu = r_2$, variances $\mathrm{softplus}(r_3) + \text{floor}$.

    References:
        Bishop (1994).

    Arguments:
        k: how many normals.
        min_variance: the floor under their variances, in the units in which the network is trained (standardised).

    Shape:
        raw `[..., batch, 3 · k · target]` → batch `[..., batch]`; event `[]` for one target, `[target]` for several.

    Example:
        >>> import torch
        >>> GaussianMixture(2)(torch.tensor([[0.0, 0.0, -1.0, 1.0, 0.5413, 0.5413]])).variance
        tensor([2.0001])
    """

    k: int = 3
    min_variance: float = 1e-4

    def __post_init__(self) -> None:
        check_integer("k", self.k, low=1)
        super().__post_init__()

    def raw_size(self, n_targets: int) -> int:
        return 3 * self.k * n_targets

    def __call__(self, raw: Tensor) -> Distribution:
        split_raw(self, raw)
        weights, means, spreads = raw.unflatten(-1, (3, self.k, -1)).movedim(-1, -2).unbind(-3)  # [..., target, k]
        parameters = limited(weights, MOST_LOGIT), limited(means), (F.softplus(spreads) + self.min_variance).sqrt()
        return for_targets(_mixture, *parameters, own_dims=1)


def _mixture(logits: Tensor, loc: Tensor, scale: Tensor, validate_args: bool) -> Distribution:
    weights = Categorical(logits=logits, validate_args=False)
    return NormalMixture(weights, Normal(loc, scale, validate_args=False), validate_args=False)
