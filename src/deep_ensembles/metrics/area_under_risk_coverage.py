"""What predictions cost on average over all shares that could be used."""

from __future__ import annotations

from typing import Any

from deep_ensembles.metrics.risk_coverage_curve import risk_coverage_curve


def area_under_risk_coverage(uncertainty: Any, loss: Any) -> float:
    r"""Area under the risk–coverage curve, $N^{-1}\sum_n r(n/N)$: small if losses are small and uncertainty foretells them.

    An uncertainty that says nothing (all equal) gives the mean loss.

    References:
        Geifman, Uziel, El-Yaniv (2019).

    Arguments:
        uncertainty: higher means less sure: one minus confidence, entropy, standard deviation, …
        loss: what a prediction cost: 1 where it was wrong and 0 else, a squared error, …

    Shape:
        uncertainty and loss `[case]` → a number.

    Example:
        >>> area_under_risk_coverage([0.1, 0.2, 0.3, 0.4], loss=[0.0, 0.0, 0.0, 1.0])
        0.0625
    """
    return float(risk_coverage_curve(uncertainty, loss).risk.mean())
