"""How often the true class is not among the most probable ones."""

from __future__ import annotations

from typing import Any

from torch.distributions import Distribution

from deep_ensembles._checks import check_integer, require
from deep_ensembles.metrics._inputs import probabilities_and_labels


def top_k_error(distribution: Distribution, target: Any, k: int = 5) -> float:
    r"""The share of cases whose true class is not among the k most probable; k = 1 gives one minus the accuracy.

    Among equally probable classes the first ones count as more probable.

    Arguments:
        distribution: a prediction over classes, `Mixture` or torch's `Categorical`.
        target: the true classes.
        k: how many classes may be named, at most all of them.

    Shape:
        distribution with batch `[*batch]`, target `[*batch]` → a number.

    Example:
        >>> import torch
        >>> three = torch.distributions.Categorical(torch.tensor([[0.5, 0.3, 0.2], [0.5, 0.3, 0.2]]))
        >>> top_k_error(three, torch.tensor([1, 2]), k=2)
        0.5
    """
    probabilities, labels = probabilities_and_labels("top_k_error", distribution, target)
    check_integer("k", k, low=1)
    require(k <= probabilities.shape[-1], "k", f"at most the number of classes, {probabilities.shape[-1]}", k)
    named = probabilities.argsort(dim=-1, descending=True, stable=True)[:, :k]
    return float((named != labels[:, None]).all(-1).double().mean())
