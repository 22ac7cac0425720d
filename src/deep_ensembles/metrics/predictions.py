"""How good predictions were: accuracy, scores, and whether probabilities and intervals hold what they say."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor
from torch.distributions import Distribution

from deep_ensembles._checks import check_flag, check_integer, check_number, require
from deep_ensembles._random import RandomState, seed_sequence
from deep_ensembles._tensors import Vector, checked_target, has_classes, probabilities_and_labels, refuse
from deep_ensembles.distributions import is_whole, marginal, tails
from deep_ensembles.scoring import brier, log_score


def accuracy(distribution: Distribution, target: Any) -> float:
    r"""The share of cases whose most probable class is the true one, $N^{-1}\sum_n 1\{y_n = \arg\max_k p_{nk}\}$.

    Among equally probable classes the first counts as the prediction.

    Arguments:
        distribution: a prediction over classes, `Mixture` or torch's `Categorical`.
        target: the true classes.

    Shape:
        distribution with batch `[*batch]`, target `[*batch]` → a number.

    Example:
        >>> import torch
        >>> accuracy(torch.distributions.Categorical(torch.tensor([[0.9, 0.1], [0.6, 0.4]])), torch.tensor([0, 1]))
        0.5
    """
    probabilities, labels = probabilities_and_labels("accuracy", distribution, target)
    return float((probabilities.argmax(-1) == labels).double().mean())


def top_k_error(distribution: Distribution, target: Any, k: int = 5) -> float:
    r"""The share of cases whose true class is not among the k most probable; k = 1 gives one minus the accuracy.

    Among equally probable classes the first ones count as more probable.

    Arguments:
        distribution: a prediction over classes, `Mixture` or torch's `Categorical`.
        target: the true classes.
        k: how many classes may be named, at most all of them.

    Shape:
        distribution with batch `[*batch]`, target `[*batch]` → a number.

    Example:
        >>> import torch
        >>> three = torch.distributions.Categorical(torch.tensor([[0.5, 0.3, 0.2], [0.5, 0.3, 0.2]]))
        >>> top_k_error(three, torch.tensor([1, 2]), k=2)
        0.5
    """
    probabilities, labels = probabilities_and_labels("top_k_error", distribution, target)
    check_integer("k", k, low=1)
    require(k <= probabilities.shape[-1], "k", f"at most the number of classes, {probabilities.shape[-1]}", k)
    named = probabilities.argsort(dim=-1, descending=True, stable=True)[:, :k]
    return float((named != labels[:, None]).all(-1).double().mean())


def negative_log_likelihood(distribution: Distribution, target: Any) -> float:
    r"""The mean of the scoring rule `log_score`, $-N^{-1}\sum_n \log p(y_n|x_n)$, in nats.

    Of classes as well as of numbers. A mixture is evaluated through logarithms, so that a probability too small for
    its number format still counts.

    References:
        Lakshminarayanan, Pritzel, Blundell (2017), section 2.2.

    Arguments:
        distribution: the prediction.
        target: what happened.

    Shape:
        distribution with batch `[*batch]` and event `[*event]`, target `[*batch, *event]` → a number.

    Example:
        >>> import torch
        >>> round(negative_log_likelihood(torch.distributions.Normal(torch.zeros(2), torch.ones(2)), [0.0, 1.0]), 4)
        1.1689
    """
    scores = log_score(distribution, checked_target(distribution, target))
    refuse(scores.isnan(), "distribution", "without NaN", scores)
    return float(scores.double().mean())


def brier_score(distribution: Distribution, target: Any) -> float:
    r"""The mean of the scoring rule `brier`, $(NK)^{-1}\sum_n\sum_k (\delta_{k=y_n} - p_{nk})^2$, as in the paper.

    It is divided by the number of classes K and lies between 0 and 2/K; `summed_brier_score` is not divided.

    References:
        Brier (1950); Lakshminarayanan, Pritzel, Blundell (2017), section 2.2.

    Arguments:
        distribution: a prediction over classes, `Mixture` or torch's `Categorical`.
        target: the true classes.

    Shape:
        distribution with batch `[*batch]`, target `[*batch]` → a number.

    Example:
        >>> import torch
        >>> brier_score(torch.distributions.Categorical(torch.tensor([[0.5, 0.5]])), torch.tensor([0]))
        0.25
    """
    return float(brier(distribution, checked_target(distribution, target)).double().mean())


def summed_brier_score(distribution: Distribution, target: Any) -> float:
    r"""Brier's original score, $N^{-1}\sum_n\sum_k (\delta_{k=y_n} - p_{nk})^2$: K times `brier_score`, between 0 and 2.

    References:
        Brier (1950).

    Arguments:
        distribution: a prediction over classes, `Mixture` or torch's `Categorical`.
        target: the true classes.

    Shape:
        distribution with batch `[*batch]`, target `[*batch]` → a number.

    Example:
        >>> import torch
        >>> summed_brier_score(torch.distributions.Categorical(torch.tensor([[0.5, 0.5]])), torch.tensor([0]))
        0.5
    """
    probabilities, _ = probabilities_and_labels("summed_brier_score", distribution, target)
    return brier_score(distribution, target) * probabilities.shape[-1]


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
    edges = np.arange(1, n_bins) / n_bins  # the upper ends of all bins but the last
    if adaptive:
        ranks = -(-np.arange(1, n_bins) * len(confidence) // n_bins)
        edges = np.sort(confidence)[ranks - 1]
    bins = np.searchsorted(edges, confidence)
    count = np.bincount(bins)
    right, sure = (np.bincount(bins, values) for values in (correct, confidence))
    filled = count > 0
    return Reliability(sure[filled] / count[filled], right[filled] / count[filled], count[filled])


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


def interval_coverage(distribution: Distribution, target: Any, coverage: float = 0.9) -> float:
    """The share of targets inside the central interval that should hold `coverage` of them; each of several targets counts.

    The ends of an interval of counts are whole numbers and belong to it, so that it may hold more than is asked for.

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
    below, up_to = _levels("interval_coverage", distribution, target)
    inside = (up_to >= (1 - coverage) / 2) & (below <= (1 + coverage) / 2)
    return float(inside.double().mean())


def probability_integral_transform(distribution: Distribution, target: Any, random_state: RandomState = 0) -> Vector:
    r"""Each target as a level of its predicted distribution, $F(y)$: evenly spread between 0 and 1 for the truth.

    Of counts, whose levels jump, a random one of those at the target: $F(y - 1) + u\,p(y)$ with u between 0 and 1.

    References:
        Dawid (1984); Czado, Gneiting, Held (2009) for counts.

    Arguments:
        distribution: a prediction of numbers.
        target: what happened.
        random_state: the seed of u.

    Shape:
        distribution with batch `[*batch]` and event `[*event]`, target `[*batch, *event]` → an array of the target's shape.

    Example:
        >>> import torch
        >>> standard = torch.distributions.Normal(torch.zeros(3), torch.ones(3))
        >>> probability_integral_transform(standard, [-1.0, 0.0, 1.0]).round(2).tolist()
        [0.16, 0.5, 0.84]
    """
    below, up_to = (part.detach().cpu().double().numpy() for part in
                    _levels("probability_integral_transform", distribution, target))  # fmt: skip
    draws = np.random.default_rng(seed_sequence(random_state)).random(up_to.shape)
    return below + draws * (up_to - below)


def _levels(metric: str, distribution: Distribution, target: Any) -> tuple[Tensor, Tensor]:
    """P(Y < target) and P(Y ≤ target), which differ for counts."""
    if has_classes(distribution):
        raise TypeError(f"`{metric}` needs a prediction of numbers, got {type(distribution).__name__} over classes")
    single, value = marginal(distribution), checked_target(distribution, target)
    value = value if value.is_floating_point() else value.double()
    up_to, _ = tails(single, value)
    refuse(up_to.isnan(), "distribution", "without NaN", up_to)
    return tails(single, value - 1)[0] if is_whole(single) else up_to, up_to
