"""The mean Brier score, divided by the number of classes."""

from __future__ import annotations

from typing import Any

from torch.distributions import Distribution

from deep_ensembles.metrics._inputs import checked_target
from deep_ensembles.scoring import brier


def brier_score(distribution: Distribution, target: Any) -> float:
    r"""The mean of the scoring rule `brier`, $(NK)^{-1}\sum_n\sum_k (\delta_{k=y_n} - p_{nk})^2$, as in the paper.

    It is divided by the number of classes K and lies between 0 and 2/K; `summed_brier_score` is not divided.

    References:
        Brier (1950); Lakshminarayanan, Pritzel, Blundell (2017), section 2.2.

    Arguments:
        distribution: a prediction over classes, `Mixture` or torch's `Categorical`.
        target: the true classes.

    Shape:
        distribution with batch `[*batch]`, target `[*batch]` → a number.

    Example:
        >>> import torch
        >>> brier_score(torch.distributions.Categorical(torch.tensor([[0.5, 0.5]])), torch.tensor([0]))
        0.25
    """
    return float(brier(distribution, checked_target(distribution, target)).double().mean())
