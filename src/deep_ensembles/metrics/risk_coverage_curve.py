"""What predictions cost if only the surest are used."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from deep_ensembles.metrics._inputs import Vector, paired


@dataclass(frozen=True, eq=False)
class RiskByCoverage:
    """The mean loss (risk) of the surest cases, for every share of all cases (coverage): 1/N, 2/N, …, 1."""

    coverage: Vector
    risk: Vector


def risk_coverage_curve(uncertainty: Any, loss: Any) -> RiskByCoverage:
    r"""Mean loss of the n surest cases, $r(n/N) = n^{-1}\sum_{i \le n} \ell_{(i)}$ with cases ordered by uncertainty.

    Where cases are equally uncertain, the risk is its mean over all their orders.

    References:
        El-Yaniv & Wiener (2010); Geifman, Uziel, El-Yaniv (2019).

    Arguments:
        uncertainty: higher means less sure: one minus confidence, entropy, standard deviation, …
        loss: what a prediction cost: 1 where it was wrong and 0 else, a squared error, …

    Shape:
        uncertainty and loss `[case]` → arrays `[case]`.

    Example:
        >>> risk_coverage_curve([0.1, 0.4, 0.4], loss=[0.0, 0.0, 1.0]).risk.round(2).tolist()
        [0.0, 0.25, 0.33]
    """
    unsure, cost = paired(uncertainty=uncertainty, loss=loss)
    _, group, count = np.unique(unsure, return_inverse=True, return_counts=True)
    # Averaged over orders, each of some tied cases costs their mean.
    ordered = np.repeat(np.bincount(group, cost) / count, count)
    used = np.arange(1, len(cost) + 1)
    return RiskByCoverage(used / len(cost), ordered.cumsum() / used)
