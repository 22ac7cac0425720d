"""Predictions and what happened as one number: accuracy, top-k error, log-likelihood, Brier scores."""

from typing import Any

from torch.distributions import Distribution

from deep_ensembles._checks import check_integer, require
from deep_ensembles._tensors import checked_target, probabilities_and_labels, refuse
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
