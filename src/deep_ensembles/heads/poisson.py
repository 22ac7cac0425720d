"""Counts whose variance is their mean."""

from dataclasses import dataclass

from torch import Tensor
from torch.distributions import Distribution

from deep_ensembles.distributions import Poisson as Family
from deep_ensembles.heads._base import LOG_LIMIT, Counts, for_targets, split_raw


@dataclass(frozen=True)
class Poisson(Counts):
    r"""Counts with rate $\lambda = e^{r + \text{offset}}$, which is their mean and their variance.

    Arguments:
        offset: set by `fit` to about the logarithm of the mean count, where a network starts; 0 if None.

    Shape:
        raw `[..., batch, target]` → batch `[..., batch]`; event `[]` for one target, `[target]` for several.

    Example:
        >>> import torch
        >>> Poisson()(torch.tensor([[1.0]])).icdf(torch.tensor(0.9))
        tensor([5.])
    """

    offset: float | None = None
    n_parameters = 1

    def __call__(self, raw: Tensor) -> Distribution:
        (log_rate,) = split_raw(self, raw)
        return for_targets(Family, (log_rate + (self.offset or 0.0)).clamp(*LOG_LIMIT).exp())
