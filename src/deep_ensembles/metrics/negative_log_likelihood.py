"""The mean negative log-likelihood."""

from __future__ import annotations

from typing import Any

from torch.distributions import Distribution

from deep_ensembles.metrics._inputs import checked_target, refuse
from deep_ensembles.scoring import log_score


def negative_log_likelihood(distribution: Distribution, target: Any) -> float:
    r"""The mean of the scoring rule `log_score`, $-N^{-1}\sum_n \log p(y_n|x_n)$, in nats.

    Of classes as well as of numbers. A mixture is evaluated through logarithms, so that a probability too small for
    its number format still counts.

    References:
        Lakshminarayanan, Pritzel, Blundell (2017), section 2.2.

    Arguments:
        distribution: the prediction.
        target: what happened.

    Shape:
        distribution with batch `[*batch]` and event `[*event]`, target `[*batch, *event]` → a number.

    Example:
        >>> import torch
        >>> round(negative_log_likelihood(torch.distributions.Normal(torch.zeros(2), torch.ones(2)), [0.0, 1.0]), 4)
        1.1689
    """
    scores = log_score(distribution, checked_target(distribution, target))
    refuse(scores.isnan(), "distribution", "without NaN", scores)
    return float(scores.double().mean())
