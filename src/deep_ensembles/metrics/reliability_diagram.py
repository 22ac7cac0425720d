"""How often predictions of about the same confidence are right."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch.distributions import Distribution

from deep_ensembles._checks import check_flag, check_integer
from deep_ensembles.metrics._inputs import Vector, probabilities_and_labels


@dataclass(frozen=True, eq=False)
class Reliability:
    """Mean confidence, accuracy and number of cases of every bin that holds any, from the least sure to the surest."""

    confidence: Vector
    accuracy: Vector
    count: NDArray[np.int64]

    @property
    def calibration_error(self) -> float:
        r"""Mean distance of accuracy from confidence, $\sum_b \frac{n_b}{N}\,|a_b - c_b|$, over bins."""
        return float(np.average(np.abs(self.accuracy - self.confidence), weights=self.count))


def reliability_diagram(distribution: Distribution, target: Any, n_bins: int = 15, adaptive: bool = False) -> Reliability:
    r"""Cases gathered in bins of confidence, the probability of the most probable class, with their accuracy.

    Bins are closed above, $(\frac{b-1}{B}, \frac{b}{B}]$. Adaptive ones end at the cases of rank
    $\lceil bN/B \rceil$: as many cases in each, but cases of the same confidence stay together.

    References:
        Guo, Pleiss, Sun, Weinberger (2017); Nguyen & O'Connor (2015) for adaptive bins.

    Arguments:
        distribution: a prediction over classes, `Mixture` or torch's `Categorical`.
        target: the true classes.
        n_bins: how many bins; those without a case are left out.
        adaptive: whether bins hold equally many cases instead of being equally wide.

    Shape:
        distribution with batch `[*batch]`, target `[*batch]` → arrays `[bin]`.

    Example:
        >>> import torch
        >>> sure = torch.tensor([[0.75, 0.25], [0.25, 0.75], [1.0, 0.0]])
        >>> diagram = reliability_diagram(torch.distributions.Categorical(sure), torch.tensor([0, 0, 0]), n_bins=4)
        >>> diagram.confidence.tolist(), diagram.accuracy.tolist(), diagram.count.tolist()
        ([0.75, 1.0], [0.5, 1.0], [2, 1])
    """
    check_integer("n_bins", n_bins, low=1)
    check_flag("adaptive", adaptive)
    probabilities, labels = probabilities_and_labels("reliability_diagram", distribution, target)
    highest, predicted = probabilities.max(-1)
    return reliability(highest.double().numpy(), (predicted == labels).numpy(), n_bins, adaptive)


def reliability(confidence: Vector, correct: Any, n_bins: int, adaptive: bool = False) -> Reliability:
    """The same from each case's confidence and whether its prediction was right."""
    bins = np.searchsorted(_edges(confidence, n_bins, adaptive), confidence)
    count = np.bincount(bins)
    right, sure = (np.bincount(bins, values) for values in (correct, confidence))
    filled = count > 0
    return Reliability(sure[filled] / count[filled], right[filled] / count[filled], count[filled])


def _edges(confidence: Vector, n_bins: int, adaptive: bool) -> Vector:
    """The upper ends of all bins but the last, which has none."""
    inner = np.arange(1, n_bins)
    if not adaptive:
        return inner / n_bins
    ranks = -(-inner * len(confidence) // n_bins)
    return np.sort(confidence)[ranks - 1]
