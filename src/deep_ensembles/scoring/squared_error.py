"""The squared error of the mean."""

from torch import Tensor
from torch.distributions import Distribution

from deep_ensembles.scoring._base import aligned, over_targets, require_numbers


def squared_error(distribution: Distribution, target: Tensor) -> Tensor:
    r"""Squared error of the predicted mean, $(y - \mu)^2$, averaged over targets; blind to the spread.

    Example:
        >>> import torch
        >>> squared_error(torch.distributions.Normal(torch.zeros(1), torch.ones(1)), torch.tensor([3.0]))
        tensor([9.])
    """
    require_numbers("squared_error", distribution)
    return over_targets(distribution, (distribution.mean - aligned(distribution, target)).square())
