"""How far confidence is from accuracy, in bins of equally many cases."""

from __future__ import annotations

from typing import Any

from torch.distributions import Distribution

from deep_ensembles.metrics.reliability_diagram import reliability_diagram


def adaptive_calibration_error(distribution: Distribution, target: Any, n_bins: int = 15) -> float:
    r"""Mean distance of accuracy from confidence, $\sum_b \frac{n_b}{N}\,|a_b - c_b|$, over equally full bins.

    Unlike `expected_calibration_error` it does not put nearly all cases of a confident network into one bin.

    References:
        Nguyen & O'Connor (2015); Mukhoti et al. (2020).

    Arguments:
        distribution: a prediction over classes, `Mixture` or torch's `Categorical`.
        target: the true classes.
        n_bins: how many bins; cases of the same confidence share one, see `reliability_diagram`.

    Shape:
        distribution with batch `[*batch]`, target `[*batch]` → a number.

    Example:
        >>> import torch
        >>> two = torch.distributions.Categorical(torch.tensor([[0.75, 0.25], [0.5, 0.5]]))
        >>> adaptive_calibration_error(two, torch.tensor([0, 1]), n_bins=2)
        0.375
    """
    return reliability_diagram(distribution, target, n_bins, adaptive=True).calibration_error
