"""The mean Brier score, summed over classes."""

from __future__ import annotations

from typing import Any

from torch.distributions import Distribution

from deep_ensembles.metrics.brier_score import brier_score


def summed_brier_score(distribution: Distribution, target: Any) -> float:
    r"""Brier's original score, $N^{-1}\sum_n\sum_k (\delta_{k=y_n} - p_{nk})^2$: K times `brier_score`, between 0 and 2.

    References:
        Brier (1950).

    Arguments:
        distribution: a prediction over classes, `Mixture` or torch's `Categorical`.
        target: the true classes.

    Shape:
        distribution with batch `[*batch]`, target `[*batch]` → a number.

    Example:
        >>> import torch
        >>> summed_brier_score(torch.distributions.Categorical(torch.tensor([[0.5, 0.5]])), torch.tensor([0]))
        0.5
    """
    score = brier_score(distribution, target)
    return score * int(distribution.probs.shape[-1])  # type: ignore[attr-defined]
