"""The negative log-likelihood."""

from torch import Tensor
from torch.distributions import Distribution

from deep_ensembles.scoring._base import aligned


def log_score(distribution: Distribution, target: Tensor) -> Tensor:
    r"""Negative log-likelihood in nats, $-\log p(y)$; for classes the cross-entropy. Several targets: their joint one.

    References:
        Lakshminarayanan, Pritzel, Blundell (2017), equation 1.

    Example:
        >>> import torch
        >>> log_score(torch.distributions.Normal(torch.zeros(1), torch.ones(1)), torch.zeros(1))
        tensor([0.9189])
    """
    return -distribution.log_prob(aligned(distribution, target))
