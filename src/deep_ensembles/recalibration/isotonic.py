"""A monotone map of predicted levels."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch.distributions import Distribution

from deep_ensembles.recalibration._base import held_out, levels_of, one_number
from deep_ensembles.recalibration._recalibrated import Recalibrated, check_levels


@dataclass(frozen=True)
class Isotonic:
    r"""Predicted levels replaced by those that were observed, $G(y) = g(F(y))$; see `Recalibrated`.

    Mean and median move with the levels.

    Arguments:
        before: levels of the prediction, strictly increasing from 0 to 1.
        after: what they become, strictly increasing from 0 to 1; straight lines in between.

    Shape:
        batch `[*batch]` → a `Recalibrated` of the same.

    Example:
        >>> import torch
        >>> standard = torch.distributions.Normal(torch.zeros(1), torch.ones(1))
        >>> Isotonic((0.0, 0.25, 1.0), (0.0, 0.5, 1.0))(standard).icdf(torch.tensor(0.5))
        tensor([-0.6745], dtype=torch.float64)
    """

    before: tuple[float, ...]
    after: tuple[float, ...]

    def __post_init__(self) -> None:
        check_levels(self.before, self.after)

    def __call__(self, distribution: Distribution) -> Recalibrated:
        return Recalibrated(one_number("isotonic", distribution), self.before, self.after)


def isotonic(distribution: Distribution, target: Any) -> Isotonic:
    r"""The share of held-out rows below each predicted level, $g(p) = \hat P(F(Y) \le p)$, by isotonic regression.

    That share follows every single row. For a density the map keeps $\lceil 2\sqrt[3]{N} \rceil$ steps of equal
    share (Rice's rule), the outer ones halved again and again down to one row, so that tails are put right too. It is drawn
    towards the identity by the weight of one row in N + 1, which bounds its slope. A count stands for all levels between
    F(y - 1) and F(y), of which one is drawn, always the same.

    References:
        Kuleshov, Fenner, Ermon (2018).

    Arguments:
        distribution: predictions of numbers or counts for rows that the model was not trained on.
        target: what happened.

    Shape:
        distribution with batch `[row]`, target `[row]`, at least 2 rows.

    Example:
        >>> import torch
        >>> standard = torch.distributions.Normal(torch.zeros(4), torch.ones(4))
        >>> [round(level, 2) for level in isotonic(standard, [0.0, 0.5, 1.0, 1.5]).before]
        [0.0, 0.53, 0.71, 0.86, 1.0]
    """
    from sklearn.isotonic import IsotonicRegression  # when it is needed: it takes seconds, and loading a model does not

    mixture, truth = held_out(one_number("isotonic", distribution), target)
    levels = levels_of(mixture, truth).numpy()
    n_rows = len(levels)
    fitted = IsotonicRegression().fit(levels, (np.arange(n_rows) + 0.5) / n_rows)
    steps = math.ceil(2 * n_rows ** (1 / 3))
    tail = 1 / steps / 2.0 ** np.arange(int(math.log2(max(1.0, n_rows / steps))), 0, -1)
    after = np.concatenate([[0.0], tail, np.arange(1, steps) / steps, 1 - tail[::-1], [1.0]])
    observed = np.interp(after, [0, *fitted.y_thresholds_, 1], [0, *fitted.X_thresholds_, 1])
    before = (n_rows * observed + after) / (n_rows + 1)
    return Isotonic((0.0, *before[1:-1].tolist(), 1.0), tuple(after.tolist()))
