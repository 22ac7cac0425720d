"""How often the truth falls into the predicted interval."""

from __future__ import annotations

from typing import Any

from torch.distributions import Distribution

from deep_ensembles._checks import check_number
from deep_ensembles._distributions import exact_cdf, marginal
from deep_ensembles.metrics._inputs import checked_target, has_classes, refuse


def interval_coverage(distribution: Distribution, target: Any, coverage: float = 0.9) -> float:
    """The share of targets inside the central interval that should hold `coverage` of them; each of several targets counts.

    Arguments:
        distribution: a prediction of numbers.
        target: what happened.
        coverage: the probability between the two ends of the interval, as much being left below as above it.

    Shape:
        distribution with batch `[*batch]` and event `[*event]`, target `[*batch, *event]` → a number.

    Example:
        >>> import torch
        >>> standard = torch.distributions.Normal(torch.zeros(4), torch.ones(4))
        >>> interval_coverage(standard, torch.tensor([-3.0, -1.0, 0.0, 1.0]), coverage=0.9)
        0.75
    """
    check_number("coverage", coverage, low=0, high=1)
    if has_classes(distribution):
        raise TypeError(f"`interval_coverage` needs a prediction of numbers, got {type(distribution).__name__} over classes")
    below = exact_cdf(marginal(distribution), checked_target(distribution, target))
    refuse(below.isnan(), "distribution", "without NaN", below)
    inside = (below >= (1 - coverage) / 2) & (below <= (1 + coverage) / 2)
    return float(inside.double().mean())
