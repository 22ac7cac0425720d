"""Whole numbers ≥ 0, classes with or without an order, and several labels at once."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch import distributions as td
from torch.nn import functional as F

from deep_ensembles import distributions as families
from deep_ensembles._checks import require
from deep_ensembles.heads._base import LOG_LIMIT, Classes, Counts, for_targets, limited, positive, split_raw


@dataclass(frozen=True)
class Poisson(Counts):
    r"""Counts with rate $\lambda = e^{r + \text{offset}}$, which is their mean and their variance.

    Arguments:
        offset: set by `fit` to about the logarithm of the mean count, where a network starts; 0 if None.

    Shape:
        raw `[..., batch, target]` → batch `[..., batch]`; event `[]` for one target, `[target]` for several.

    Example:
        >>> import torch
        >>> Poisson()(torch.tensor([[1.0]])).icdf(torch.tensor(0.9))
        tensor([5.])
    """

    offset: float | None = None
    n_parameters = 1

    def __call__(self, raw: Tensor) -> td.Distribution:
        (log_rate,) = split_raw(self, raw)
        return for_targets(families.Poisson, (log_rate + (self.offset or 0.0)).clamp(*LOG_LIMIT).exp())


@dataclass(frozen=True)
class NegativeBinomial(Counts):
    r"""Counts with mean $\mu = e^{r_1 + \text{offset}}$ and variance $\mu + \mu^2/n$, where n is learned too.

    $n = \mathrm{softplus}(r_2) + \text{floor}$: the smaller, the more counts vary.

    Arguments:
        offset: set by `fit` to about the logarithm of the mean count, where a network starts; 0 if None.
        min_size: the floor under n; n is at most 1e6, where the counts are Poisson's.

    Shape:
        raw `[..., batch, 2 · target]` → batch `[..., batch]`; event `[]` for one target, `[target]` for several.

    Example:
        >>> import torch
        >>> NegativeBinomial()(torch.tensor([[0.0, 0.5413]])).variance.round(decimals=1)
        tensor([2.])
    """

    offset: float | None = None
    min_size: float = 1e-2

    def __call__(self, raw: Tensor) -> td.Distribution:
        log_mean, form = split_raw(self, raw)
        size = positive(form, self.min_size, 1e6)
        log_odds = (log_mean + (self.offset or 0.0)).clamp(*LOG_LIMIT) - size.log()
        return for_targets(lambda n, logits, **how: families.NegativeBinomial(n, logits=logits, **how), size, log_odds)


@dataclass(frozen=True)
class ZeroInflated(Counts):
    r"""Zero with probability $\pi = \mathrm{sigmoid}(r_1)$, else a count of another head's distribution.

    Arguments:
        of: `NegativeBinomial()`, `Poisson()`, or another head of counts.

    Shape:
        raw `[..., batch, target + raw of the other head]` → batch `[..., batch]`; event `[]` or `[target]`.

    Example:
        >>> import torch
        >>> ZeroInflated(Poisson())(torch.tensor([[0.0, 1.0]])).mean
        tensor([1.3591])
    """

    of: Poisson | NegativeBinomial = NegativeBinomial()

    def __post_init__(self) -> None:
        require(getattr(self.of, "kind", None) == "counts", "of", "a head of counts such as `Poisson()`", self.of)

    def starting_at(self, mean: float) -> "ZeroInflated":
        """The same with the offset of the other head."""
        return replace(self, of=self.of.starting_at(mean))

    def raw_size(self, n_targets: int) -> int:
        return n_targets + self.of.raw_size(n_targets)

    def __call__(self, raw: Tensor) -> td.Distribution:
        n_targets = raw.shape[-1] // self.raw_size(1)
        zeros, counts = limited(raw[..., :n_targets], 100.0), self.of(raw[..., n_targets:])
        if isinstance(counts, td.Independent):
            return td.Independent(families.ZeroInflated(zeros, counts.base_dist), 1, validate_args=False)
        return families.ZeroInflated(zeros.squeeze(-1), counts)


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

    def __call__(self, raw: Tensor) -> families.Ordered:
        steps = F.softplus(raw[..., 1:]) + 1e-3
        thresholds = F.pad(steps.cumsum(-1), (1, 0)) + limited(raw[..., :1], 50.0)
        below, above = F.logsigmoid(thresholds), F.logsigmoid(-thresholds)
        # P(k) = P(≤ k) - P(≤ k-1), as logarithms: log σ(b) + log σ(-a) + log(1 - e^(a-b)).
        inner = below[..., 1:] + above[..., :-1] + (-(-steps).expm1()).log()
        return families.Ordered(logits=torch.cat([below[..., :1], inner, above[..., -1:]], dim=-1), validate_args=False)
