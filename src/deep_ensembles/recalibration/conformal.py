"""Conformal prediction: intervals and sets that hold the truth as often as they promise."""

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from torch import Tensor
from torch.distributions import Distribution

from deep_ensembles._checks import check_flag, check_number, require
from deep_ensembles._tensors import has_classes
from deep_ensembles.mixture import precise
from deep_ensembles.recalibration._base import Prediction, as_mixture, held_out, levels_of, one_number
from deep_ensembles.recalibration._recalibrated import Recalibrated

# The least distance between two levels of a recalibrated prediction.
_GAP = 1e-12


@dataclass(frozen=True)
class Conformal:
    r"""Predictions as wide as N held-out rows demand: the truth is inside with probability ≥ coverage.

    A row's score is how far out the truth was, $|F(y) - \frac12|$ for numbers and $1 - p_y$ for classes; inside is what
    scores no more than the $\lceil (N+1)\,\text{coverage} \rceil$-th smallest score. This holds over the
    draw of held-out and new rows together, if they are exchangeable, for any model and any N. If coverage is above
    $N/(N+1)$, no finite interval can promise it: it is infinite, and a set holds every class.

    As a function it gives numbers a `Recalibrated` distribution whose central intervals promise the same for coverages
    between $1/(N+1)$ and $N/(N+1)$, so long as F is not 0 or 1 by rounding; its density follows single rows and is rough.
    Of a count, F(y) is a level drawn between F(y - 1) and F(y), and intervals of whole numbers hold at least as much.
    Class probabilities it returns as they are.

    Arguments:
        scores: the scores of held-out rows, in increasing order.
        discrete: whether they are of classes.

    Shape:
        batch `[*batch]` → a prediction of the same; an interval `[*batch, 2]`; a prediction set `[*batch, class]`.

    Example:
        >>> import torch
        >>> standard = torch.distributions.Normal(torch.zeros(1), torch.ones(1))
        >>> guarded = Conformal((0.1, 0.2, 0.3, 0.4))
        >>> [guarded.interval(standard, coverage).round(decimals=2).tolist() for coverage in (0.8, 0.9)]
        [[[-1.28, 1.28]], [[-inf, inf]]]
    """

    scores: tuple[float, ...]
    discrete: bool = False

    def __post_init__(self) -> None:
        check_flag("discrete", self.discrete)
        for score in self.scores:
            check_number("scores", score, low=0, high=1.0 if self.discrete else 0.5)
        require(len(self.scores) >= 2, "scores", "at least 2", len(self.scores))
        require(sorted(self.scores) == list(self.scores), "scores", "in increasing order", self.scores)

    def __call__(self, distribution: Distribution) -> Prediction:
        if self.discrete:
            return as_mixture("conformal", distribution, "classes")
        # The score of rank k at coverage (k-1)/(N+1): straight lines between such points never fall below the scores.
        n_rows = len(self.scores)
        ranks = np.arange(2, n_rows + 1)
        apart = np.maximum.accumulate(np.array(self.scores[1:]) - _GAP * ranks) + _GAP * ranks
        before = np.minimum(apart, 0.5 - _GAP * (n_rows + 1 - ranks))
        after = (ranks - 1) / (n_rows + 1) / 2
        levels = ([0.0, *(0.5 - half[::-1]), *(0.5 + half), 1.0] for half in (before, after))
        return Recalibrated(one_number("conformal", distribution), *levels)

    def interval(self, distribution: Distribution, coverage: float = 0.9) -> Tensor:
        """The ends of the interval of levels ½ ± the score that the coverage demands."""
        require(not self.discrete, "interval", "of a recalibration of numbers", self, "use `prediction_set`")
        mixture = one_number("conformal", distribution)
        outer = min(self.threshold(coverage), 0.5)
        ends = mixture.weights.new_tensor([0.5 - outer, 0.5 + outer])
        return mixture.icdf(ends.reshape(2, *[1] * len(mixture.batch_shape))).movedim(0, -1)

    def prediction_set(self, distribution: Distribution, coverage: float = 0.9) -> Tensor:
        """Which classes are improbable by no more than the coverage demands; none may be, where all are improbable."""
        require(self.discrete, "prediction_set", "of a recalibration of classes", self, "use `interval`")
        mixture = as_mixture("conformal", distribution, "classes")
        # In the precision of the scores, so that equal predictions are treated alike.
        return (1 - precise(mixture).probs <= self.threshold(coverage)).to(mixture.weights.device)

    def threshold(self, coverage: float) -> float:
        """The score that bounds the inside; infinite where there are too few rows for the coverage."""
        check_number("coverage", coverage, low=0, high=1, above=True)
        # The decimal that was written: in binary, 100 · 0.07 exceeds 7.
        rank = math.ceil((len(self.scores) + 1) * Fraction(str(float(coverage))))
        return self.scores[rank - 1] if rank <= len(self.scores) else math.inf


def conformal(distribution: Distribution, target: Any) -> Conformal:
    r"""The scores of held-out rows, by which intervals or prediction sets get a guarantee; see `Conformal`.

    References:
        Vovk, Gammerman, Shafer (2005); Chernozhukov, Wüthrich, Zhu (2021) for levels; Sadinle, Lei, Wasserman (2019)
        for classes.

    Arguments:
        distribution: predictions for rows that the model was not trained on.
        target: what happened.

    Shape:
        distribution with batch `[row]`, target `[row]`, at least 2 rows.

    Example:
        >>> import torch
        >>> three = torch.distributions.Categorical(torch.tensor([[0.5, 0.4, 0.1], [0.8, 0.1, 0.1]]))
        >>> conformal(three, [1, 0]).prediction_set(three, coverage=0.6).tolist()
        [[True, True, False], [True, False, False]]
    """
    discrete = isinstance(distribution, Distribution) and has_classes(distribution)
    prediction = as_mixture("conformal", distribution, "classes") if discrete else one_number("conformal", distribution)
    mixture, truth = held_out(prediction, target)
    scores = 1 - mixture.probs.gather(-1, truth[:, None])[:, 0] if discrete else (levels_of(mixture, truth) - 0.5).abs()
    return Conformal(tuple(scores.clamp(0, 1.0 if discrete else 0.5).sort().values.tolist()), discrete)
