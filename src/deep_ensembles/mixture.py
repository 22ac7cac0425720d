"""The prediction of an ensemble: a weighted mixture of its members' distributions."""

import math
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor
from torch import distributions as td

# isort: off
from deep_ensembles.distributions import (
    Ordered, alone, cross_entropies, family, indexed, is_whole, log_density, marginal, moments, parameters, quantiles,
    rebuilt, tails,
)  # fmt: skip
# isort: on

Kind = Literal["numbers", "counts", "classes", "labels", "vectors"]


def kind_of(distribution: td.Distribution) -> Kind:
    """What is predicted: numbers, counts, classes, labels that each are there or not, or numbers that may depend."""
    if isinstance(distribution, td.Categorical):
        return "classes"
    if isinstance(distribution, td.Independent):
        return "labels" if isinstance(distribution.base_dist, td.Bernoulli) else kind_of(distribution.base_dist)
    if distribution.event_shape:
        return "vectors"
    return "counts" if is_whole(distribution) else "numbers"


class Mixture(td.Distribution):
    r"""Members' distributions combined as one, $p(y|x) = \sum_m w_m\, p_m(y|x)$ with $w_m = 1/M$ by default.

    Members may be of any family of torch's, or of `deep_ensembles.distributions`. With several targets `log_prob` is joint,
    while `cdf`, `icdf`, `mean`, `variance`, `aleatoric` and `epistemic` speak of each target by itself; `target(i)` is the
    mixture for one of them.

    References:
        Lakshminarayanan, Pritzel, Blundell (2017), section 2.4; Depeweg et al. (2018) for the decomposition.

    Arguments:
        components: the members' distributions; the first batch dimension counts the members.
        weights: one weight per member, non-negative; uniform by default. They are normalised.

    Attributes:
        components, weights: as given, the weights normalised.
        n_members: how many members the mixture has.
        kind: what is predicted: "numbers", "counts", "classes", or several "labels" that each are there or not.
        is_discrete: whether the prediction is over classes.
        device: where the parameters are.

    Shape:
        components `[member, *batch]`, event `[]` or `[target]`; the mixture has batch `[*batch]` and the same event.

    Example:
        >>> import torch
        >>> from torch.distributions import Normal
        >>> two = Mixture(Normal(torch.tensor([[0.0], [2.0]]), torch.tensor([[1.0], [1.0]])))
        >>> two.mean, two.variance, two.aleatoric, two.epistemic
        (tensor([1.]), tensor([2.]), tensor([1.]), tensor([1.]))
    """

    arg_constraints: ClassVar[dict[str, td.constraints.Constraint]] = {}

    def __init__(self, components: td.Distribution, weights: Tensor | None = None) -> None:
        if not components.batch_shape:
            raise ValueError("`components` must have a batch shape [member, ...], got an empty one")
        n_members = components.batch_shape[0]
        parameter = parameters(components)[0]
        if weights is None:
            weights = parameter.new_full((n_members,), 1.0 / n_members)
        weights = torch.as_tensor(weights, dtype=parameter.dtype, device=parameter.device)
        if weights.shape != (n_members,) or not bool((weights >= 0).all() and 0 < weights.sum() < math.inf):
            raise ValueError(f"`weights` must be {n_members} finite numbers ≥ 0, not all 0, got {weights.tolist()}")
        self.components, self.weights = components, weights / weights.sum()
        self.n_members, self.device = n_members, weights.device
        kind = kind_of(components)
        self.kind: Kind = "numbers" if components.event_shape and kind != "labels" else kind
        self.is_discrete = self.kind == "classes"
        super().__init__(components.batch_shape[1:], components.event_shape, validate_args=False)

    def __repr__(self) -> str:
        shapes = f"batch={list(self.batch_shape)}, event={list(self.event_shape)}"
        return f"Mixture({self.n_members} × {family(self.components)}, {shapes})"

    @property
    def support(self) -> td.constraints.Constraint:
        """Where the components have mass."""
        return self.components.support  # type: ignore[return-value]

    def expand(self, batch_shape: Any, _instance: Any = None) -> "Mixture":
        """The same mixture for a larger batch shape."""
        return self._rows(lambda places: places.expand(tuple(batch_shape)))

    def member(self, index: int) -> td.Distribution:
        """The predictive distribution of one member."""
        return indexed(self.components, index)

    def __getitem__(self, rows: Any) -> "Mixture":
        """The mixture for some rows: indexes the batch (never classes or targets), keeps all members."""
        return self._rows(lambda places: places[rows])

    def _rows(self, choose: Callable[[Tensor], Tensor]) -> "Mixture":
        """The mixture for the rows that are chosen from their numbers, `[*batch]`."""
        places = choose(torch.arange(math.prod(self.batch_shape), device=self.device).reshape(self.batch_shape))
        n_dims = 1 + len(self.batch_shape)  # classes or targets come after
        rows = rebuilt(self.components, lambda parameter: parameter.unsqueeze(1).flatten(1, n_dims)[:, places])
        return Mixture(rows, self.weights)

    def target(self, index: int) -> "Mixture":
        """The mixture for one of several targets, by itself; for a label one over the classes 0 (not there) and 1."""
        if not self.event_shape:
            raise ValueError(f"`target` needs a prediction of several targets, got {self!r}")
        if self.kind == "labels":
            log_odds = self.components.base_dist.logits[..., index]  # type: ignore[attr-defined]
            return Mixture(td.Categorical(logits=torch.stack([torch.zeros_like(log_odds), log_odds], dim=-1)), self.weights)
        return Mixture(indexed(marginal(self.components), (..., index)), self.weights)

    # -- densities ------------------------------------------------------------------------------------------------

    def log_prob(self, value: Tensor) -> Tensor:
        """Exact log-density (or log-probability) of the mixture."""
        try:
            logs = log_density(self.components, self._per_member(value))
        except NotImplementedError as error:
            if str(error):
                raise
            raise TypeError(f"the density of {family(self.components)} is not known; "
                            "give the distribution a method `log_prob`") from error  # fmt: skip
        return torch.logsumexp(logs + self._aligned(self.weights.log(), 0), dim=self._member_dim(0))

    def cdf(self, value: Tensor) -> Tensor:
        """Exact distribution function of each target."""
        return self.tails(value)[0]

    def tails(self, value: Tensor) -> tuple[Tensor, Tensor]:
        """P(Y ≤ value) and P(Y > value) of each target, exact however small they are."""
        lower, upper = tails(self._ordered("cdf"), self._per_member(value))
        return self._average(lower), self._average(upper)

    def icdf(self, value: Tensor) -> Tensor:
        """Quantiles of each target, exact to rounding; of counts and points the least value that reaches the level."""
        levels = probabilities(value, self.weights)
        return quantiles(self._ordered("icdf"), self.weights, levels)

    def _ordered(self, wanted: str) -> td.Distribution:
        """The components of each target, if their values have an order."""
        if self.is_discrete and not isinstance(self.components, Ordered):
            raise TypeError(f"`{wanted}` needs values with an order, got {self!r}; use `probs`, or the head `Ordinal`")
        components = marginal(self.components)
        if isinstance(components, td.VonMises):
            raise TypeError(f"`{wanted}` needs values with an order, and those of VonMises are on a circle; "
                            "use `log_prob` and `sample`")  # fmt: skip
        return components

    def sample(self, sample_shape: Any = torch.Size()) -> Tensor:  # noqa: B008
        """Pick a member for each draw, then draw from it."""
        sample_shape = torch.Size(sample_shape)
        with torch.no_grad():
            try:
                draws = self.components.sample(sample_shape)
            except NotImplementedError:
                levels = torch.rand(sample_shape + self.components.batch_shape + self.event_shape).to(self.weights)
                draws = quantiles(alone(self._ordered("sample")), torch.ones_like(self.weights[:1]), levels)
            shape = sample_shape + self.batch_shape
            chosen = torch.multinomial(self.weights, max(1, math.prod(shape)), replacement=True)[: math.prod(shape)]
            dim = len(sample_shape)
            index = chosen.reshape(shape + (1,) * len(self.event_shape)).expand(shape + self.event_shape)
            return draws.gather(dim, index.unsqueeze(dim)).squeeze(dim)

    # -- moments --------------------------------------------------------------------------------------------------

    @property
    def mean(self) -> Tensor:
        """Mean of the mixture, µ* of the paper."""
        return self._average(self._means())

    @property
    def variance(self) -> Tensor:
        """Variance of the mixture, σ*² of the paper: within the members plus between them; infinite where it is."""
        within = self._variance_within()
        # Where the variance is infinite there may be no mean.
        means = torch.where(within.isinf(), 0.0, self._moment("mean"))
        return within + self._average((means - self._average(means)).square())

    @property
    def aleatoric(self) -> Tensor:
        """What members agree is noise: their average variance; for classes and labels, their average entropy in nats."""
        if self.kind in ("classes", "labels"):
            return self._average(marginal(self.components).entropy())
        return self._variance_within()

    @property
    def epistemic(self) -> Tensor:
        """What members disagree about: the variance of their means; for classes and labels, mutual information in nats."""
        if self.kind == "labels":
            return (td.Bernoulli(self.probs, validate_args=False).entropy() - self.aleatoric).clamp_min(0.0)
        if self.is_discrete:
            return self.mutual_information
        apart = self._means() - self.mean
        return self._average(torch.where(apart.isnan(), torch.inf, apart).square())

    def _means(self) -> Tensor:
        means = self._moment("mean")
        if bool(means.isnan().any()) and not any(bool(parameter.isnan().any()) for parameter in parameters(self.components)):
            raise ValueError(f"the mean of {family(self.components)} does not exist for these parameters; "
                             "use the median, `icdf(0.5)`")  # fmt: skip
        return means

    def _variance_within(self) -> Tensor:
        variances = self._moment("variance")
        return self._average(torch.where(variances.isnan(), torch.inf, variances))

    def _moment(self, name: Literal["mean", "variance"]) -> Tensor:
        """Of every member and target; what a family does not tell is integrated."""
        components = self.components if self.event_shape else self._ordered(name)
        try:
            return getattr(components, name)
        except NotImplementedError:
            return moments(marginal(components))[name == "variance"]

    def moment_matched(self) -> td.Distribution:
        """The paper's single Gaussian with the mixture's mean and variance; for classes, the averaged probabilities."""
        if self.is_discrete:
            return td.Categorical(probs=self.probs)
        if self.kind == "labels":
            return td.Independent(td.Bernoulli(self.probs), 1)
        depends = isinstance(self.components, (td.MultivariateNormal, td.LowRankMultivariateNormal))
        if self.event_shape and not (depends or isinstance(self.components, td.Independent)):
            raise TypeError(f"`moment_matched` needs the covariances of targets, which {family(self.components)} does not "
                            "tell; use the mixture itself")  # fmt: skip
        variance = self.variance
        if not bool(variance.isfinite().all()):
            raise ValueError(f"`moment_matched` needs a finite variance, and that of {family(self.components)} is infinite "
                             "for these parameters; use the mixture itself")  # fmt: skip
        if depends:
            apart = self._means() - self.mean
            between = apart.unsqueeze(-1) * apart.unsqueeze(-2)
            within: Tensor = self.components.covariance_matrix  # type: ignore[attr-defined]
            return td.MultivariateNormal(self.mean, self._average(within + between, 2))
        matched = td.Normal(self.mean, variance.sqrt())
        return td.Independent(matched, 1) if self.event_shape else matched

    # -- classes --------------------------------------------------------------------------------------------------

    @property
    def probs(self) -> Tensor:
        """Averaged probabilities of classes or labels."""
        if self.kind not in ("classes", "labels"):
            raise AttributeError(f"`probs` needs a prediction over classes, this is {self!r}")
        return self._average(getattr(self.components, "base_dist", self.components).probs, 1)  # type: ignore[union-attr]

    @property
    def logits(self) -> Tensor:
        """Logarithms of the averaged class probabilities."""
        if not self.is_discrete:
            raise AttributeError(f"`logits` needs a prediction over classes, this is {self!r}")
        logs: Tensor = self.components.logits  # type: ignore[attr-defined]
        return torch.logsumexp(logs + self._aligned(self.weights.log(), 1), dim=self._member_dim(1))

    @property
    def confidence(self) -> Tensor:
        """Probability of the most probable class; of labels, of each being what is most probable."""
        return torch.maximum(self.probs, 1 - self.probs) if self.kind == "labels" else self.probs.amax(-1)

    @property
    def mode(self) -> Tensor:
        """The most probable class; of labels, which of them are probable."""
        return self.probs > 0.5 if self.kind == "labels" else self.probs.argmax(-1)

    # -- information ----------------------------------------------------------------------------------------------

    def entropy(self) -> Tensor:
        """Entropy in nats: exact for classes, by quadrature (relative error around 1e-8) for numbers and counts."""
        return self._average(self._cross_entropies(), 0)

    @property
    def mutual_information(self) -> Tensor:
        """Entropy of the mixture minus the members' average entropy, in nats; never negative."""
        return self._average(self._cross_entropies() - self._entropies(), 0).clamp_min(0.0)

    @property
    def disagreement(self) -> Tensor:
        r"""The paper's $\sum_m \mathrm{KL}(p_m \| p_E)$, in nats; with uniform weights M times the mutual information."""
        divergences = self._cross_entropies() - self._entropies()
        return divergences[self.weights > 0].sum(0).clamp_min(0.0)

    def _cross_entropies(self) -> Tensor:
        r"""$-\mathbb{E}_{p_m}[\log p_E]$ of every member, `[member, *batch]`."""
        if self.is_discrete:
            terms = self.components.probs * self.logits.clamp_min(torch.finfo(self.weights.dtype).min / 2)  # type: ignore[attr-defined]
            return -terms.sum(-1)
        if self.event_shape:
            raise TypeError(f"the entropy of several targets of {family(self.components)} at once is not known; "
                            "take one of them with `target(i)`, or use `variance`")  # fmt: skip
        return cross_entropies(self.components, self.weights)

    def _entropies(self) -> Tensor:
        """Of every member, `[member, *batch]`."""
        try:
            return self.components.entropy()
        except NotImplementedError:
            return cross_entropies(alone(self.components), torch.ones_like(self.weights[:1]))[0]

    # -- axes -----------------------------------------------------------------------------------------------------

    def _member_dim(self, event_dims: int) -> int:
        return -1 - len(self.batch_shape) - event_dims

    def _per_member(self, value: Tensor) -> Tensor:
        """Insert the member axis into a value of shape `[*sample, *batch, *event]`."""
        value = torch.as_tensor(value, device=self.weights.device)
        missing = len(self.batch_shape + self.event_shape) - value.dim()
        value = value.reshape((1,) * max(0, missing) + tuple(value.shape))
        return value.unsqueeze(self._member_dim(len(self.event_shape)))

    def _aligned(self, weights: Tensor, event_dims: int) -> Tensor:
        return weights.reshape((-1,) + (1,) * (len(self.batch_shape) + event_dims))

    def _average(self, values: Tensor, event_dims: int | None = None) -> Tensor:
        """The weighted sum over members, the one place where members are combined; one without weight has no say."""
        event_dims = len(self.event_shape) if event_dims is None else event_dims
        weights = self._aligned(self.weights, event_dims)
        if not bool(self.weights.all()):
            values = torch.where(weights > 0, values, torch.zeros_like(values))
        return (values * weights).sum(self._member_dim(event_dims))


def probabilities(values: Any, like: Tensor) -> Tensor:
    """Levels of a distribution function as a tensor like this one, if they are between 0 and 1."""
    levels = torch.as_tensor(values, dtype=like.dtype, device=like.device)
    if not bool(((levels >= 0) & (levels <= 1)).all()):
        raise ValueError("`value` must be probabilities between 0 and 1")
    return levels


def concatenated(mixtures: Sequence[Mixture]) -> Mixture:
    """Mixtures of as many members over different rows as one, along the first batch dimension."""
    first = mixtures[0]
    if any(not torch.equal(mixture.weights, first.weights) for mixture in mixtures):
        raise ValueError("`mixtures` must have the same member weights to be joined")
    parts = [parameters(mixture.components) for mixture in mixtures]
    joined = iter([torch.cat(same, dim=1) for same in zip(*parts, strict=True)])
    return Mixture(rebuilt(first.components, lambda _: next(joined)), first.weights)


def precise(mixture: Mixture) -> Mixture:
    """The mixture on the CPU in double precision."""
    return Mixture(rebuilt(mixture.components, lambda parameter: parameter.detach().cpu().double()), mixture.weights)


def mixture_of(distribution: td.Distribution) -> Any:
    """The prediction itself if it is an ensemble's, recalibrated or not; any other as a mixture of one member."""
    if hasattr(distribution, "n_members"):
        return distribution
    return Mixture(alone(distribution))
