"""Ways to recalibrate: one temperature or one factor, a monotone map of levels, conformal intervals and sets."""

import math
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.distributions import Distribution

from deep_ensembles._checks import check_flag, check_number, require
from deep_ensembles._tensors import has_classes
from deep_ensembles.distributions import marginal, rebuilt, rescaled, scaling_of
from deep_ensembles.mixture import Mixture, precise

# isort: off
from deep_ensembles.recalibration._base import (
    Prediction, Recalibrated, as_mixture, best_factor, held_out, levels_of, one_number,
)  # fmt: skip
# isort: on


@dataclass(frozen=True)
class Temperature:
    r"""The logits of every member divided by one number, $p_{mk} \propto \exp(r_{mk} / T)$, then averaged.

    Members keep their most probable class, and what they disagree about remains visible. Where they disagree, the most
    probable class of their average may change. Several labels at once share the temperature; classes with an order keep it.

    Arguments:
        temperature: T, more than 0; above 1 for a model that was too sure.

    Shape:
        batch `[*batch]`, event `[]` or `[label]` → a `Mixture` of the same.

    Example:
        >>> import torch
        >>> sure = torch.distributions.Categorical(torch.tensor([[0.9, 0.1]]))
        >>> Temperature(2.0)(sure).probs
        tensor([[0.7500, 0.2500]])
    """

    temperature: float

    def __post_init__(self) -> None:
        check_number("temperature", self.temperature, low=0, above=True)

    def __call__(self, distribution: Distribution) -> Mixture:
        mixture = as_mixture("temperature", distribution, "classes", "labels")
        return Mixture(rebuilt(mixture.components, lambda logits: logits / self.temperature), mixture.weights)


def temperature(distribution: Distribution, target: Any) -> Temperature:
    r"""The temperature of least negative log-likelihood of held-out rows, between 0.01 and 100.

    The likelihood is that of the average, not of each member: an ensemble is less sure than its members, so that members
    which are calibrated one by one would make it too unsure.

    References:
        Guo, Pleiss, Sun, Weinberger (2017); Rahaman & Thiery (2021) for ensembles.

    Arguments:
        distribution: predictions over classes or labels for rows that the model was not trained on.
        target: the true classes, or 0 and 1 for each label.

    Shape:
        distribution with batch `[row]` and event `[*event]`, target `[row, *event]`, at least 2 rows.

    Example:
        >>> import torch
        >>> sure = torch.distributions.Categorical(torch.tensor([[0.9, 0.1]]).expand(4, 2))
        >>> round(temperature(sure, [0, 0, 0, 1]).temperature, 4)
        2.0
    """
    mixture, truth = held_out(as_mixture("temperature", distribution, "classes", "labels"), target)
    return Temperature(best_factor(Temperature, mixture, truth))


@dataclass(frozen=True)
class VarianceScaling:
    r"""Every deviation from the predicted mean stretched (the median if there is none), $y \mapsto \mu_* + s\,(y - \mu_*)$.

    The scales of the members and the spread of their means are multiplied alike, so that the mixture keeps its mean and
    its shape, and has variance $s^2\sigma_*^2$.

    Arguments:
        factor: s, more than 0; above 1 for a model that was too sure.

    Shape:
        batch `[*batch]`, event `[]` or `[target]` → a `Mixture` of the same.

    Example:
        >>> import torch
        >>> two = Mixture(torch.distributions.Normal(torch.tensor([[0.0], [2.0]]), torch.ones(2, 1)))
        >>> wider = VarianceScaling(2.0)(two)
        >>> wider.mean, wider.variance, wider.epistemic
        (tensor([1.]), tensor([8.]), tensor([4.]))
    """

    factor: float

    def __post_init__(self) -> None:
        check_number("factor", self.factor, low=0, above=True)

    def __call__(self, distribution: Distribution) -> Mixture:
        mixture = _stretchable(distribution)
        mean = _centre(mixture)
        return Mixture(rescaled(mixture.components, (1 - self.factor) * mean, mean.new_tensor(self.factor)), mixture.weights)


def variance_scaling(distribution: Distribution, target: Any) -> VarianceScaling:
    r"""The factor of least negative log-likelihood of held-out rows; $\sqrt{\overline{z^2}}$ for a single Gaussian.

    With $z = (y - \mu_*) / \sigma_*$; for a mixture that is where the search starts. Several targets share the factor.

    References:
        Levi, Gispan, Giladi, Fetaya (2022); Laves, Ihler, Fast, Kahrs, Ortmaier (2020).

    Arguments:
        distribution: predictions of numbers for rows that the model was not trained on.
        target: what happened.

    Shape:
        distribution with batch `[row]` and event `[*event]`, target `[row, *event]`, at least 2 rows.

    Example:
        >>> import torch
        >>> sure = torch.distributions.Normal(torch.zeros(2), torch.ones(2))
        >>> round(variance_scaling(sure, [3.0, -3.0]).factor, 4)
        3.0
    """
    mixture, truth = held_out(_stretchable(distribution), target)
    start = float(((truth - _centre(mixture)).square() / mixture.variance).mean().sqrt())
    return VarianceScaling(best_factor(VarianceScaling, mixture, truth, start if 1e-150 < start < 1e150 else 1.0))


def is_stretchable(mixture: Mixture) -> bool:
    """Whether members stay what they are when they are moved and stretched, wherever that leads."""
    kind = marginal(mixture.components)
    return scaling_of(kind) == "location-scale" and not hasattr(kind.support, "lower_bound")


def _stretchable(distribution: Distribution) -> Mixture:
    mixture = as_mixture("variance_scaling", distribution, "numbers", "counts")
    if not is_stretchable(mixture):
        cure = "take one target with `target(i)` and use `isotonic`" if mixture.event_shape else "use `isotonic`"
        raise TypeError(f"`variance_scaling` needs members with a location and a scale, got {mixture!r}, "
                        f"which would leave the values that it may take; {cure}")  # fmt: skip
    return mixture


def _centre(mixture: Mixture) -> Tensor:
    """The mean, or where a member has none the median."""
    if bool(marginal(mixture.components).mean.isfinite().all()):
        return mixture.mean
    return mixture.icdf(torch.tensor(0.5))


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
        n_before, n_after = len(self.before), len(self.after)
        require(n_before == n_after, "after", f"as many levels as `before`, {n_before}", n_after)
        for name, levels in (("before", self.before), ("after", self.after)):
            increases = len(levels) > 1 and all(low < high for low, high in pairwise(levels))
            require(increases and levels[0] == 0 and levels[-1] == 1, name, "strictly increasing from 0 to 1", levels)

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
    mixture, truth = held_out(one_number("isotonic", distribution), target)
    # The shares of rows in increasing order are their own isotonic regression, once equal levels have the mean of theirs.
    levels, count = np.unique(levels_of(mixture, truth).numpy(), return_counts=True)
    n_rows = len(truth)
    shares = (np.cumsum(count) - count / 2) / n_rows
    steps = math.ceil(2 * n_rows ** (1 / 3))
    tail = 1 / steps / 2.0 ** np.arange(int(math.log2(max(1.0, n_rows / steps))), 0, -1)
    after = np.concatenate([[0.0], tail, np.arange(1, steps) / steps, 1 - tail[::-1], [1.0]])
    observed = np.interp(after, [0, *shares, 1], [0, *levels, 1])
    before = (n_rows * observed + after) / (n_rows + 1)
    return Isotonic((0.0, *before[1:-1].tolist(), 1.0), tuple(after.tolist()))


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
