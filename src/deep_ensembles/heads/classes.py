"""Classes, with or without an order, and several labels at once."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch import distributions as td
from torch.nn import functional as F

from deep_ensembles.distributions import Ordered
from deep_ensembles.heads._base import Classes, limited


@dataclass(frozen=True)
class Categorical(Classes):
    r"""Class probabilities $p_k = \exp r_k / \sum_j \exp r_j$.

    Shape:
        raw `[..., batch, class]` → batch `[..., batch]`.

    Example:
        >>> import torch
        >>> Categorical()(torch.zeros(1, 4)).probs
        tensor([[0.2500, 0.2500, 0.2500, 0.2500]])
    """

    def __call__(self, raw: Tensor) -> td.Categorical:
        return td.Categorical(logits=raw, validate_args=False)


@dataclass(frozen=True)
class Bernoulli(Classes):
    r"""The probability of every label, $p_l = \mathrm{sigmoid}(r_l)$; labels are independent given the input.

    Shape:
        raw `[..., batch, label]` → batch `[..., batch]`, event `[label]`.

    Example:
        >>> import torch
        >>> Bernoulli()(torch.zeros(1, 3)).mean
        tensor([[0.5000, 0.5000, 0.5000]])
    """

    kind = "labels"
    support = td.constraints.boolean

    def __call__(self, raw: Tensor) -> td.Distribution:
        return td.Independent(td.Bernoulli(logits=raw, validate_args=False), 1, validate_args=False)


@dataclass(frozen=True)
class Ordinal(Classes):
    r"""Cumulative log-odds, $P(y \le k) = \mathrm{sigmoid}(c_k)$, that grow with k.

    $c_0 = r_0$ and $c_k = c_{k-1} + \mathrm{softplus}(r_k) + 10^{-3}$. The point prediction is the median class (but
    `DeepEnsembleClassifier.predict` names the most probable, as scikit-learn wants it). The rule `crps` counts how far off a
    class is.

    References:
        McCullagh (1980).

    Shape:
        raw `[..., batch, class - 1]` → batch `[..., batch]`.

    Example:
        >>> Ordinal()(torch.tensor([[-1.0, 1.0]])).probs
        tensor([[0.2689, 0.3090, 0.4221]])
    """

    point = "median"

    def raw_size(self, n_targets: int) -> int:
        return max(1, n_targets - 1)

    def __call__(self, raw: Tensor) -> Ordered:
        steps = F.softplus(raw[..., 1:]) + 1e-3
        thresholds = F.pad(steps.cumsum(-1), (1, 0)) + limited(raw[..., :1], 50.0)
        below, above = F.logsigmoid(thresholds), F.logsigmoid(-thresholds)
        # P(k) = P(≤ k) - P(≤ k-1), as logarithms: log σ(b) + log σ(-a) + log(1 - e^(a-b)).
        inner = below[..., 1:] + above[..., :-1] + (-(-steps).expm1()).log()
        return Ordered(logits=torch.cat([below[..., :1], inner, above[..., -1:]], dim=-1), validate_args=False)
