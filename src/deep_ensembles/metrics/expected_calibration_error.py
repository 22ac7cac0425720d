"""How far confidence is from accuracy, in bins of equal width."""

from __future__ import annotations

from typing import Any

from torch.distributions import Distribution

from deep_ensembles.metrics.reliability_diagram import reliability_diagram


def expected_calibration_error(distribution: Distribution, target: Any, n_bins: int = 15) -> float:
    r"""Mean distance of accuracy from confidence, $\sum_b \frac{n_b}{N}\,|a_b - c_b|$, over bins of equal width.

    With finitely many cases even the truth has a small error, larger the more bins there are.

    References:
        Naeini, Cooper, Hauskrecht (2015); Guo, Pleiss, Sun, Weinberger (2017).

    Arguments:
        distribution: a prediction over classes, `Mixture` or torch's `Categorical`.
        target: the true classes.
        n_bins: how many bins between 0 and 1; see `reliability_diagram`.

    Shape:
        distribution with batch `[*batch]`, target `[*batch]` → a number.

    Example:
        >>> import torch
        >>> expected_calibration_error(torch.distributions.Categorical(torch.tensor([[0.75, 0.25]])), torch.tensor([0]))
        0.25
    """
    return reliability_diagram(distribution, target, n_bins).calibration_error
