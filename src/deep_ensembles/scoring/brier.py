"""The Brier score."""

from typing import Any

from torch import Tensor
from torch.distributions import Bernoulli, Distribution
from torch.nn import functional as F

from deep_ensembles.scoring._base import aligned, over_targets


def brier(distribution: Distribution, target: Tensor) -> Tensor:
    r"""Brier score as in the paper, $K^{-1}\sum_k (\delta_{k=y} - p_k)^2$: divided by the number of classes K.

    Of labels that each are there or not, the mean over them of $(y - p)^2$.

    References:
        Brier (1950); Lakshminarayanan, Pritzel, Blundell (2017), section 2.2.

    Example:
        >>> import torch
        >>> brier(torch.distributions.Categorical(torch.tensor([[0.5, 0.5]])), torch.tensor([0]))
        tensor([0.2500])
    """
    single: Any = getattr(distribution, "base_dist", distribution)
    if isinstance(single, Bernoulli) or getattr(distribution, "kind", "") == "labels":
        return over_targets(distribution, (aligned(distribution, target) - single.probs).square())
    probabilities: Tensor | None = getattr(distribution, "probs", None)
    if probabilities is None or probabilities.dim() == len(distribution.batch_shape):
        raise TypeError(f"`brier` needs a prediction over classes, got {type(distribution).__name__}")
    happened = F.one_hot(aligned(distribution, target).long(), probabilities.shape[-1]).to(probabilities.dtype)
    return (happened - probabilities).square().mean(-1)
