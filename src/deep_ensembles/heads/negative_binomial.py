"""Counts that vary more than a Poisson's."""

from dataclasses import dataclass

from torch import Tensor
from torch.distributions import Distribution

from deep_ensembles.distributions import NegativeBinomial as Family
from deep_ensembles.heads._base import LOG_LIMIT, Counts, for_targets, positive, split_raw


@dataclass(frozen=True)
class NegativeBinomial(Counts):
    r"""Counts with mean $\mu = e^{r_1 + \text{offset}}$ and variance $\mu + \mu^2/n$, where n is learned too.

    $n = \mathrm{softplus}(r_2) + \text{floor}$: the smaller, the more counts vary.

    Arguments:
        offset: set by `fit` to about the logarithm of the mean count, where a network starts; 0 if None.
        min_size: the floor under n; n is at most 1e6, where the counts are Poisson's.

    Shape:
        raw `[..., batch, 2 · target]` → batch `[..., batch]`; event `[]` for one target, `[target]` for several.

    Example:
        >>> import torch
        >>> NegativeBinomial()(torch.tensor([[0.0, 0.5413]])).variance.round(decimals=1)
        tensor([2.])
    """

    offset: float | None = None
    min_size: float = 1e-2

    def __call__(self, raw: Tensor) -> Distribution:
        log_mean, form = split_raw(self, raw)
        size = positive(form, self.min_size, 1e6)
        log_odds = (log_mean + (self.offset or 0.0)).clamp(*LOG_LIMIT) - size.log()
        return for_targets(lambda n, logits, validate_args: Family(n, logits=logits, validate_args=False), size, log_odds)
