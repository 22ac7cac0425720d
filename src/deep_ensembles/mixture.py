"""The prediction of an ensemble: a weighted mixture of its members' distributions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.polynomial.legendre import leggauss
from torch import Tensor
from torch.distributions import Categorical, Distribution, Independent, Normal
from torch.distributions.constraints import Constraint

from deep_ensembles._distributions import exact_cdf, indexed, marginal, mixture_quantiles, padded, parameters_of, rebuilt

# Knots, in standard deviations of a component, between which densities are integrated piece by piece.
_KNOTS = (-40.0, -15.0, -8.5, -6.0, -4.5, -3.0, -2.0, -1.0, 0.0, 1.0, 2.0, 3.0, 4.5, 6.0, 8.5, 15.0, 40.0)
_NODES = 10
_CHUNK_ELEMENTS = 4_000_000
_QUANTILE_ROWS = 8192  # solved at once: what fits into a cache


class Mixture(Distribution):
    r"""Members' distributions combined as one, $p(y|x) = \sum_m w_m\, p_m(y|x)$ with $w_m = 1/M$ by default.

    With several targets the components are diagonal: `log_prob` is joint, while `cdf`, `icdf`, `mean`, `variance`,
    `aleatoric` and `epistemic` speak of each target by itself.

    References:
        Lakshminarayanan, Pritzel, Blundell (2017), section 2.4; Depeweg et al. (2018) for the decomposition.

    Arguments:
        components: the members' distributions; the first batch dimension counts the members.
        weights: one weight per member, non-negative; uniform by default. They are normalised.

    Shape:
        components `[member, *batch]`, event `[]` or `[target]`; the mixture has batch `[*batch]` and the same event.

    Example:
        >>> import torch
        >>> from torch.distributions import Normal
        >>> two = Mixture(Normal(torch.tensor([[0.0], [2.0]]), torch.tensor([[1.0], [1.0]])))
        >>> two.mean, two.variance, two.aleatoric, two.epistemic
        (tensor([1.]), tensor([2.]), tensor([1.]), tensor([1.]))
    """

    arg_constraints: ClassVar[dict[str, Constraint]] = {}

    def __init__(self, components: Distribution, weights: Tensor | None = None) -> None:
        if not components.batch_shape:
            raise ValueError("`components` must have a batch shape [member, ...], got an empty one")
        n_members = components.batch_shape[0]
        parameter = next(iter(parameters_of(components).values()))
        if weights is None:
            weights = parameter.new_full((n_members,), 1.0 / n_members)
        weights = torch.as_tensor(weights, dtype=parameter.dtype, device=parameter.device)
        if weights.shape != (n_members,) or not bool((weights >= 0).all() and 0 < weights.sum() < math.inf):
            raise ValueError(f"`weights` must be {n_members} finite numbers ≥ 0, not all 0, got {weights.tolist()}")
        self.components = components
        self.weights = weights / weights.sum()
        super().__init__(components.batch_shape[1:], components.event_shape, validate_args=False)

    def __repr__(self) -> str:
        kind = type(marginal(self.components)).__name__
        return f"Mixture({self.n_members} × {kind}, batch={list(self.batch_shape)}, event={list(self.event_shape)})"

    @property
    def n_members(self) -> int:
        """How many members the mixture has."""
        return self.components.batch_shape[0]

    @property
    def support(self) -> Constraint:
        """Where the components have mass."""
        return self.components.support  # type: ignore[return-value]

    @property
    def is_discrete(self) -> bool:
        """Whether the prediction is over classes."""
        return isinstance(self.components, Categorical)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Mixture:
        """The same mixture for a larger batch shape."""
        new, members = tuple(batch_shape), self.n_members

        def widen(parameter: Tensor) -> Tensor:
            event = self._event_of(parameter)
            padded = parameter.reshape(members, *[1] * (len(new) - len(self.batch_shape)), *parameter.shape[1:])
            return padded.expand(members, *new, *event)

        return Mixture(rebuilt(self.components, widen), self.weights)

    def member(self, index: int) -> Distribution:
        """The predictive distribution of one member."""
        return indexed(self.components, index)

    def __getitem__(self, rows: Any) -> Mixture:
        """The mixture for some rows: indexes the batch (never classes or targets), keeps all members."""
        places = torch.arange(math.prod(self.batch_shape), device=self.weights.device).reshape(self.batch_shape)[rows]

        def pick(parameter: Tensor) -> Tensor:
            return parameter.reshape(self.n_members, -1, *self._event_of(parameter))[:, places]

        return Mixture(rebuilt(self.components, pick), self.weights)

    # -- densities ------------------------------------------------------------------------------------------------

    def log_prob(self, value: Tensor) -> Tensor:
        """Exact log-density (or log-probability) of the mixture."""
        event = len(self.event_shape)
        logs = self.components.log_prob(self._per_member(value, event))
        return torch.logsumexp(logs + self._aligned(self.weights.log(), 0), dim=self._member_dim(0))

    def cdf(self, value: Tensor) -> Tensor:
        """Exact distribution function of each target."""
        event = len(self.event_shape)
        return self._average(exact_cdf(marginal(self.components), self._per_member(value, event)), event)

    def icdf(self, value: Tensor) -> Tensor:
        """Quantiles of each target, exact to rounding; for point members the least point that reaches the level."""
        value = torch.as_tensor(value, dtype=self.weights.dtype, device=self.weights.device)
        if not bool(((value >= 0) & (value <= 1)).all()):
            raise ValueError("`value` must be probabilities between 0 and 1")
        shape = self.batch_shape + self.event_shape
        levels = value.expand(np.broadcast_shapes(value.shape, shape))
        places = torch.arange(math.prod(shape), device=value.device).reshape(shape).expand(levels.shape)
        members = (self.weights > 0).nonzero()[:, 0] if not bool(self.weights.all()) else slice(None)
        single, weights = marginal(self.components), self.weights[members]
        flat = rebuilt(single, lambda parameter: parameter[members].reshape(len(weights), -1))
        solve = mixture_quantiles if bool(flat.variance.any()) else _step_quantiles
        chunks = zip(*(padded(values.reshape(-1)).split(_QUANTILE_ROWS) for values in (places, levels)), strict=True)
        parts = [solve(indexed(flat, (slice(None), rows)), weights, part) for rows, part in chunks]
        return torch.cat(parts)[: levels.numel()].reshape(levels.shape)

    def sample(self, sample_shape: Any = torch.Size()) -> Tensor:  # noqa: B008
        """Pick a member for each draw, then draw from it."""
        sample_shape = torch.Size(sample_shape)
        with torch.no_grad():
            draws = self.components.sample(sample_shape)
            shape = sample_shape + self.batch_shape
            chosen = torch.multinomial(self.weights, max(1, math.prod(shape)), replacement=True)[: math.prod(shape)]
            dim = len(sample_shape)
            index = chosen.reshape(shape + (1,) * len(self.event_shape)).expand(shape + self.event_shape)
            return draws.gather(dim, index.unsqueeze(dim)).squeeze(dim)

    # -- moments --------------------------------------------------------------------------------------------------

    @property
    def mean(self) -> Tensor:
        """Mean of the mixture, µ* of the paper."""
        return self._average(self.components.mean, len(self.event_shape))

    @property
    def variance(self) -> Tensor:
        """Variance of the mixture, σ*² of the paper: within the members plus between them."""
        return self._average(self.components.variance, len(self.event_shape)) + self._variance_of_means()

    @property
    def aleatoric(self) -> Tensor:
        """What members agree is noise: their average variance; for classes, their average entropy in nats."""
        if self.is_discrete:
            return self._average(self.components.entropy(), 0)
        return self._average(self.components.variance, len(self.event_shape))

    @property
    def epistemic(self) -> Tensor:
        """What members disagree about: the variance of their means; for classes, the mutual information in nats."""
        if self.is_discrete:
            return self.mutual_information
        return self._variance_of_means()

    def _variance_of_means(self) -> Tensor:
        return self._average((self.components.mean - self.mean).square(), len(self.event_shape))

    def moment_matched(self) -> Distribution:
        """The paper's single Gaussian with the mixture's mean and variance; for classes, the averaged probabilities."""
        if self.is_discrete:
            return Categorical(probs=self.probs)
        matched = Normal(self.mean, self.variance.sqrt())
        return Independent(matched, 1) if self.event_shape else matched

    # -- classes --------------------------------------------------------------------------------------------------

    @property
    def probs(self) -> Tensor:
        """Averaged class probabilities."""
        if not self.is_discrete:
            raise AttributeError(f"`probs` needs a prediction over classes, this is {self!r}")
        return self._average(self.components.probs, 1)  # type: ignore[attr-defined]

    @property
    def logits(self) -> Tensor:
        """Logarithms of the averaged class probabilities."""
        if not self.is_discrete:
            raise AttributeError(f"`logits` needs a prediction over classes, this is {self!r}")
        logs: Tensor = self.components.logits  # type: ignore[attr-defined]
        return torch.logsumexp(logs + self._aligned(self.weights.log(), 1), dim=self._member_dim(1))

    @property
    def confidence(self) -> Tensor:
        """Probability of the most probable class."""
        return self.probs.amax(-1)

    @property
    def mode(self) -> Tensor:
        """The most probable class."""
        return self.probs.argmax(-1)

    # -- information ----------------------------------------------------------------------------------------------

    def entropy(self) -> Tensor:
        """Entropy in nats: exact for classes, by quadrature (relative error around 1e-8) for a continuous target."""
        return self._average(self._cross_entropies(), 0)

    @property
    def mutual_information(self) -> Tensor:
        """Entropy of the mixture minus the members' average entropy, in nats; never negative."""
        return self._average(self._cross_entropies() - self.components.entropy(), 0).clamp_min(0.0)

    @property
    def disagreement(self) -> Tensor:
        r"""The paper's $\sum_m \mathrm{KL}(p_m \| p_E)$, in nats; with uniform weights M times the mutual information."""
        divergences = self._cross_entropies() - self.components.entropy()
        counted = self._aligned(self.weights > 0, 0)
        return torch.where(counted, divergences, torch.zeros_like(divergences)).sum(self._member_dim(0)).clamp_min(0.0)

    def _cross_entropies(self) -> Tensor:
        r"""$-\mathbb{E}_{p_m}[\log p_E]$ of every member, `[member, *batch]`."""
        if self.is_discrete:
            terms = self.components.probs * self.logits.clamp_min(torch.finfo(self.weights.dtype).min / 2)  # type: ignore[attr-defined]
            return -terms.sum(-1)
        if self.event_shape:
            raise NotImplementedError("entropies of several targets at once have no closed form; use `variance`")
        shape = self.components.batch_shape
        if 0 in shape:
            return self.weights.new_zeros(shape)
        flat = rebuilt(self.components, lambda parameter: parameter.expand(shape).reshape(self.n_members, -1))
        step = max(1, _CHUNK_ELEMENTS // (_NODES * len(_KNOTS) * self.n_members**2))
        chunks = [slice(i, i + step) for i in range(0, flat.batch_shape[1], step)]
        parts = [self._integrate(indexed(flat, (slice(None), rows))) for rows in chunks]
        return torch.cat(parts, dim=1).reshape(shape)

    def _integrate(self, components: Distribution) -> Tensor:
        """Gauss–Legendre between the sorted knots of all components: `[member, row]`."""
        means, deviations = components.mean.unsqueeze(-1), components.stddev.unsqueeze(-1)
        knots = means + deviations * means.new_tensor(_KNOTS)  # [member, row, knot]
        knots = knots.movedim(1, -1).flatten(0, 1).sort(0).values  # [member · knot, row]
        nodes, node_weights = (means.new_tensor(rule).reshape(-1, 1, 1) for rule in leggauss(_NODES))
        half = knots.diff(dim=0) / 2
        points = knots[:-1] + half * (nodes + 1)  # [node, interval, row]
        logs = components.log_prob(points.unsqueeze(2)).movedim(2, 0)  # [member, node, interval, row]
        mixed = torch.logsumexp(logs + self.weights.log().reshape(-1, 1, 1, 1), dim=0)
        integrand = -logs.exp() * mixed.clamp_min(torch.finfo(mixed.dtype).min)
        return (integrand * half * node_weights).sum((1, 2))

    # -- axes -----------------------------------------------------------------------------------------------------

    def _event_of(self, parameter: Tensor) -> tuple[int, ...]:
        """The shape of a parameter behind its member and batch axes: classes or targets."""
        return tuple(parameter.shape[1 + len(self.batch_shape) :])

    def _member_dim(self, event_dims: int) -> int:
        return -1 - len(self.batch_shape) - event_dims

    def _per_member(self, value: Tensor, event_dims: int) -> Tensor:
        """Insert the member axis into a value of shape `[*sample, *batch, *event]`."""
        value = torch.as_tensor(value, device=self.weights.device)
        missing = len(self.batch_shape) + event_dims - value.dim()
        value = value.reshape((1,) * max(0, missing) + tuple(value.shape))
        return value.unsqueeze(self._member_dim(event_dims))

    def _aligned(self, weights: Tensor, event_dims: int) -> Tensor:
        return weights.reshape((-1,) + (1,) * (len(self.batch_shape) + event_dims))

    def _average(self, values: Tensor, event_dims: int) -> Tensor:
        """The weighted sum over members, the one place where members are combined."""
        return (values * self._aligned(self.weights, event_dims)).sum(self._member_dim(event_dims))


def _step_quantiles(points: Distribution, weights: Tensor, levels: Tensor) -> Tensor:
    """The least of the members' points, `[member, row]`, at which their weights reach the level."""
    ordered, order = points.mean.sort(0)
    shares = weights[order].cumsum(0) * (1 + 4 * torch.finfo(weights.dtype).eps)
    first = (shares < levels).sum(0, keepdim=True).clamp_max(len(weights) - 1)
    return ordered.gather(0, first)[0]


def concatenated(mixtures: Sequence[Mixture]) -> Mixture:
    """Mixtures of as many members over different rows as one, along the first batch dimension."""
    first = mixtures[0]
    if any(not torch.equal(mixture.weights, first.weights) for mixture in mixtures):
        raise ValueError("`mixtures` must have the same member weights to be joined")
    parts = [parameters_of(mixture.components) for mixture in mixtures]
    joined = iter([torch.cat([part[name] for part in parts], dim=1) for name in parts[0]])
    return Mixture(rebuilt(first.components, lambda _: next(joined)), first.weights)


def precise(mixture: Mixture) -> Mixture:
    """The mixture on the CPU in double precision."""
    return Mixture(rebuilt(mixture.components, lambda parameter: parameter.detach().cpu().double()), mixture.weights)
