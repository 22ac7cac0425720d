"""How often the most probable class is the true one."""

from __future__ import annotations

from typing import Any

from torch.distributions import Distribution

from deep_ensembles.metrics._inputs import probabilities_and_labels


def accuracy(distribution: Distribution, target: Any) -> float:
    r"""The share of cases whose most probable class is the true one, $N^{-1}\sum_n 1\{y_n = \arg\max_k p_{nk}\}$.

    Among equally probable classes the first counts as the prediction.

    Arguments:
        distribution: a prediction over classes, `Mixture` or torch's `Categorical`.
        target: the true classes.

    Shape:
        distribution with batch `[*batch]`, target `[*batch]` → a number.

    Example:
        >>> import torch
        >>> accuracy(torch.distributions.Categorical(torch.tensor([[0.9, 0.1], [0.6, 0.4]])), torch.tensor([0, 1]))
        0.5
    """
    probabilities, labels = probabilities_and_labels("accuracy", distribution, target)
    return float((probabilities.argmax(-1) == labels).double().mean())
