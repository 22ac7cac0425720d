"""How often the truth falls into the predicted interval."""

from __future__ import annotations

from torch import Tensor
from torch.distributions import Distribution

from deep_ensembles._checks import check_number


def interval_coverage(distribution: Distribution, target: Tensor, coverage: float = 0.9) -> float:
    """The share of targets inside the central interval that should hold `coverage` of them.

    Example:
        >>> import torch
        >>> standard = torch.distributions.Normal(torch.zeros(4), torch.ones(4))
        >>> interval_coverage(standard, torch.tensor([-3.0, -1.0, 0.0, 1.0]), coverage=0.9)
        0.75
    """
    check_number("coverage", coverage, low=0, high=1)
    below = distribution.cdf(target)
    inside = (below >= (1 - coverage) / 2) & (below <= (1 + coverage) / 2)
    return float(inside.double().mean())
