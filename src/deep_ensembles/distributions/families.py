"""Families of one number with every method that a prediction needs: torch's, and those that it lacks."""

import math
from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch import distributions as td
from torch.distributions import Distribution, constraints
from torch.nn import functional as F

from deep_ensembles.distributions._integrals import cross_entropies
from deep_ensembles.distributions._quantiles import quantiles
from deep_ensembles.distributions._structure import alone, rebuilt
from deep_ensembles.distributions._tails import normal_cdf, smooth_tails, tails


class Exact(Distribution):
    """What torch leaves out of some families of one number, exact in the tails too."""

    def cdf(self, value: Tensor) -> Tensor:
        """P(Y ≤ value)."""
        return tails(self, torch.as_tensor(value))[0]

    def icdf(self, value: Tensor) -> Tensor:
        """The quantile; of counts the least whole number that reaches the level."""
        like = self.mean
        return quantiles(alone(self), like.new_ones(1), torch.as_tensor(value, dtype=like.dtype, device=like.device))

    def entropy(self) -> Tensor:
        """Entropy in nats."""
        try:
            return super().entropy()
        except NotImplementedError:
            return cross_entropies(alone(self), self.mean.new_ones(1))[0]


class StudentT(Exact, td.StudentT):
    """Student's t with a location and a scale."""


class Laplace(Exact, td.Laplace):
    """The double exponential distribution."""


class LogNormal(Exact, td.LogNormal):
    """A number whose logarithm is normal."""


class Gamma(Exact, td.Gamma):
    """The gamma distribution."""


class Poisson(Exact, td.Poisson):
    """Counts whose variance is their mean."""


class NegativeBinomial(Exact, td.NegativeBinomial):
    """Counts that vary more than a Poisson's."""


class NormalMixture(Exact, td.MixtureSameFamily):
    """A mixture of normals with weights of its own for every row."""


class Ordered(Exact, td.Categorical):
    """Probabilities of classes that have an order."""

    def tails(self, value: Tensor) -> tuple[Tensor, Tensor]:
        """P(class ≤ value) and P(class > value)."""
        reached = torch.arange(self.probs.shape[-1], device=value.device) <= value.unsqueeze(-1)
        return torch.where(reached, self.probs, 0.0).sum(-1), torch.where(reached, 0.0, self.probs).sum(-1)

    @property
    def mean(self) -> Tensor:
        """The mean class number."""
        return (self.probs * torch.arange(self.probs.shape[-1]).to(self.probs)).sum(-1)

    @property
    def variance(self) -> Tensor:
        """The variance of the class number."""
        distances = torch.arange(self.probs.shape[-1]).to(self.probs) - self.mean.unsqueeze(-1)
        return (self.probs * distances.square()).sum(-1)


class OpenInterval(constraints.interval):
    """Between two bounds, without them."""

    def check(self, value: Tensor) -> Tensor:
        return (self.lower_bound < value) & (value < self.upper_bound)


class LogitNormal(Exact):
    r"""The distribution of $l + (h - l)\,\mathrm{sigmoid}(x)$ for a normal x.

    Arguments:
        loc, scale: of the normal.
        low, high: the bounds l and h.

    Example:
        >>> half = LogitNormal(torch.zeros(1), torch.ones(1), torch.zeros(1), torch.ones(1))
        >>> half.mean, half.icdf(torch.tensor(0.5))
        (tensor([0.5000]), tensor([0.5000]))
    """

    arg_constraints: ClassVar[dict[str, constraints.Constraint]] = {
        "loc": constraints.real, "scale": constraints.positive, "low": constraints.real, "high": constraints.real,
    }  # fmt: skip
    scaling = "none"

    def __init__(self, loc: Tensor, scale: Tensor, low: Tensor, high: Tensor, validate_args: bool | None = None) -> None:
        self.loc, self.scale, self.low, self.high = torch.broadcast_tensors(loc, scale, low, high)
        super().__init__(self.loc.shape, validate_args=False)

    @property
    def support(self) -> constraints.Constraint:
        return OpenInterval(self.low, self.high)  # type: ignore[no-untyped-call]

    def log_prob(self, value: Tensor) -> Tensor:
        below, above = value - self.low, self.high - value
        z = (below.log() - above.log() - self.loc) / self.scale
        volume = ((self.high - self.low) / below / above / self.scale).log()
        return volume - z.square() / 2 - math.log(2 * math.pi) / 2

    def tails(self, value: Tensor) -> tuple[Tensor, Tensor]:
        z = ((value - self.low).log() - (self.high - value).log() - self.loc) / self.scale
        return normal_cdf(z), normal_cdf(-z)

    def closed_quantile(self, share: Tensor, side: Tensor) -> Tensor:
        return self._bounded(self.loc + self.scale * side * torch.special.ndtri(share))

    def sample(self, sample_shape: Any = torch.Size()) -> Tensor:  # noqa: B008
        with torch.no_grad():
            return self._bounded(td.Normal(self.loc, self.scale, validate_args=False).sample(sample_shape))

    def _bounded(self, odds: Tensor) -> Tensor:
        width = self.high - self.low
        return torch.where(odds > 0, self.high - width * torch.sigmoid(-odds), self.low + width * torch.sigmoid(odds))

    @property
    def mean(self) -> Tensor:
        return self.low + (self.high - self.low) * self._expectation(torch.sigmoid)

    @property
    def variance(self) -> Tensor:
        width = self.high - self.low
        share = (self.mean - self.low) / width
        return width.square() * self._expectation(lambda x: (torch.sigmoid(x) - share).square())

    def entropy(self) -> Tensor:
        normal = math.log(2 * math.pi * math.e) / 2 + (self.scale * (self.high - self.low)).log()
        return normal - self._expectation(lambda x: F.softplus(x) + F.softplus(-x))

    def _expectation(self, function: Callable[[Tensor], Tensor]) -> Tensor:
        r"""E[function(x)] of the normal x, by the trapezoidal rule.

        For functions smooth up to the poles of the sigmoid, $\pi/\sigma$ away, its error is $e^{-2\pi^2/(h\sigma)}$.
        """
        if not self.scale.numel():
            return torch.zeros_like(self.scale)
        step = (0.8 / self.scale.detach()).clamp_max(0.6)
        n_steps = int(((12 + 2 * self.scale.detach()) / step).max().ceil())
        z = step * torch.arange(-n_steps, n_steps + 1).to(step).reshape(-1, *[1] * step.dim())
        weights = torch.exp(z.square() / -2) * (step / math.sqrt(2 * math.pi))
        return (weights * function(self.loc + self.scale * z)).sum(0)


class ZeroInflated(Exact):
    r"""Zero with probability $\pi$, else a count of another distribution: $\pi\,\delta_0 + (1 - \pi)\,p$.

    Arguments:
        logits: the log-odds of π.
        of: the distribution p of counts ≥ 0.
    """

    arg_constraints: ClassVar[dict[str, constraints.Constraint]] = {}
    scaling = "none"

    def __init__(self, logits: Tensor, of: Distribution, validate_args: bool | None = None) -> None:
        self.logits, self.of = logits, of
        super().__init__(of.batch_shape, validate_args=False)

    @property
    def support(self) -> constraints.Constraint:
        return self.of.support  # type: ignore[return-value]

    def rebuilt(self, change: Callable[[Tensor], Tensor]) -> "ZeroInflated":
        return ZeroInflated(change(self.logits), rebuilt(self.of, change))

    def log_prob(self, value: Tensor) -> Tensor:
        counts = F.logsigmoid(-self.logits) + self.of.log_prob(value)
        return torch.where(value == 0, torch.logaddexp(F.logsigmoid(self.logits), counts), counts)

    def tails(self, value: Tensor) -> tuple[Tensor, Tensor]:
        lower, upper = smooth_tails(self.of, value)
        zero, other = torch.sigmoid(self.logits), torch.sigmoid(-self.logits)
        return zero + other * lower, other * upper

    def sample(self, sample_shape: Any = torch.Size()) -> Tensor:  # noqa: B008
        with torch.no_grad():
            counts = self.of.sample(sample_shape)
            return torch.where(torch.rand_like(counts) < torch.sigmoid(self.logits), torch.zeros_like(counts), counts)

    @property
    def mean(self) -> Tensor:
        return torch.sigmoid(-self.logits) * self.of.mean

    @property
    def variance(self) -> Tensor:
        spread = self.of.variance + torch.sigmoid(self.logits) * self.of.mean.square()
        return torch.sigmoid(-self.logits) * spread


class Delta(Exact):
    """The distribution of a value that is certain."""

    arg_constraints: ClassVar[dict[str, constraints.Constraint]] = {"loc": constraints.real}
    support = constraints.real
    scaling = "location-scale"
    is_point = True

    def __init__(self, loc: Tensor, validate_args: bool | None = None) -> None:
        self.loc = loc
        super().__init__(loc.shape, validate_args=False)

    @property
    def mean(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        return torch.zeros_like(self.loc)

    def rescaled(self, shift: Tensor, scale: Tensor) -> "Delta":
        return Delta(shift + scale * self.loc)

    def sample(self, sample_shape: Any = torch.Size()) -> Tensor:  # noqa: B008
        return self.loc.expand(torch.Size(sample_shape) + self.loc.shape)

    def tails(self, value: Tensor) -> tuple[Tensor, Tensor]:
        lower = (value >= self.loc).to(self.loc.dtype)
        return lower, 1 - lower

    def log_prob(self, value: Tensor) -> Tensor:
        raise NotImplementedError("a point prediction has no density; use `moment_matched()` of the ensemble's mixture")


class Interpolated(Exact):
    r"""Straight lines between given points of the distribution function, and exponential tails beyond them.

    The tails begin with the density of the outermost lines: below the first point $(v_1, p_1)$, where the line has
    density $d_1$, $F(y) = p_1 \exp(d_1 (y - v_1)/p_1)$; above the last one likewise.

    Arguments:
        values: quantiles, strictly increasing.
        levels: theirs, strictly increasing between 0 and 1.

    Shape:
        both `[*batch, level]`, at least two levels.

    Example:
        >>> known = Interpolated(torch.tensor([[0.0, 1.0, 3.0]]), torch.tensor([0.25, 0.5, 0.75]))
        >>> known.cdf(torch.tensor([2.0])), known.mean
        (tensor([0.6250]), tensor([1.6250]))
    """

    arg_constraints: ClassVar[dict[str, constraints.Constraint]] = dict.fromkeys(
        ("values", "levels"), constraints.real_vector
    )
    support = constraints.real
    scaling = "location-scale"

    def __init__(self, values: Tensor, levels: Tensor, validate_args: bool | None = None) -> None:
        self.values, self.levels = torch.broadcast_tensors(values, levels.to(values.dtype))
        self.kinks = self.values  # where the density jumps
        super().__init__(self.values.shape[:-1], validate_args=False)

    def rescaled(self, shift: Tensor, scale: Tensor) -> "Interpolated":
        return Interpolated(shift.unsqueeze(-1) + scale.unsqueeze(-1) * self.values, self.levels)

    @property
    def densities(self) -> Tensor:
        """Between neighbouring values, `[*batch, level - 1]`; values are taken to differ by more than rounding."""
        rounding = 4 * torch.finfo(self.values.dtype).eps * self.values.detach().abs().amax(-1, keepdim=True)
        return self.levels.diff(dim=-1) / self.values.diff(dim=-1).clamp_min(rounding)

    @property
    def _tail_lengths(self) -> tuple[Tensor, Tensor]:
        """The mean distances of the lower and of the upper tail from where they begin."""
        densities = self.densities
        return self.levels[..., 0] / densities[..., 0], (1 - self.levels[..., -1]) / densities[..., -1]

    def log_prob(self, value: Tensor) -> Tensor:
        start, level, density, first, last = self._line((value.unsqueeze(-1) >= self.values).sum(-1))
        further = density * (value - start)
        return density.log() + torch.where(first, further / level, torch.where(last, further / (level - 1), 0.0))

    def tails(self, value: Tensor) -> tuple[Tensor, Tensor]:
        start, level, density, first, last = self._line((value.unsqueeze(-1) >= self.values).sum(-1))
        further = density * (value - start)
        lowest = level * torch.exp((further / level).clamp_max(0))
        highest = (1 - level) * torch.exp((further / (level - 1)).clamp_max(0))
        lower = torch.where(first, lowest, torch.where(last, 1 - highest, level + further))
        return lower, torch.where(last, highest, 1 - lower)

    def closed_quantile(self, share: Tensor, side: Tensor) -> Tensor:
        lower, higher = torch.where(side > 0, share, 1 - share), torch.where(side > 0, 1 - share, share)
        start, reached, density, first, last = self._line((lower.unsqueeze(-1) >= self.levels).sum(-1))
        lowest, highest = reached * (lower / reached).log(), (reached - 1) * (higher / (1 - reached)).log()
        return start + torch.where(first, lowest, torch.where(last, highest, lower - reached)) / density

    def _line(self, passed: Tensor) -> tuple[Tensor, ...]:
        """Beyond so many of the points: the last of them, its level, the density, and whether all or none are still to come.

        Below the first point, what continues it; above the last one, what continues that.
        """
        n_levels = self.values.shape[-1]
        point = (passed - 1).clamp_min(0)
        places = (self.values, point), (self.levels, point), (self.densities, point.clamp_max(n_levels - 2))
        parts = [part.expand(*at.shape, -1).gather(-1, at.unsqueeze(-1)).squeeze(-1) for part, at in places]
        return *parts, passed == 0, passed == n_levels

    def crps(self, target: Tensor) -> Tensor:
        """Squares of straight lines between the values, of exponentials outside, and of 1 - F from the target on."""
        start, end, low, high = self.values[..., :-1], self.values[..., 1:], self.levels[..., :-1], self.levels[..., 1:]
        turn = torch.minimum(torch.maximum(target.unsqueeze(-1), start), end)
        level = low + (turn - start) * self.densities
        lines = _squared_line(turn - start, low, level) + _squared_line(end - turn, 1 - level, 1 - high)
        below, above = self._tail_lengths
        outside = _squared_tail(start[..., 0] - target, low[..., 0], below)
        return lines.sum(-1) + outside + _squared_tail(target - end[..., -1], 1 - high[..., -1], above)

    def sample(self, sample_shape: Any = torch.Size()) -> Tensor:  # noqa: B008
        with torch.no_grad():
            levels = torch.rand(torch.Size(sample_shape) + self.batch_shape).to(self.values)
            return self.closed_quantile(levels.clamp_min(torch.finfo(levels.dtype).tiny), torch.ones_like(levels))

    @property
    def mean(self) -> Tensor:
        middle = self.values[..., self.values.shape[-1] // 2]
        return middle + self._moments(middle)[0]

    @property
    def variance(self) -> Tensor:
        return self._moments(self.mean)[1]

    def _moments(self, centre: Tensor) -> tuple[Tensor, Tensor]:
        """First and second moment about a centre."""
        values = self.values - centre.unsqueeze(-1)
        start, end, mass = values[..., :-1], values[..., 1:], self.levels.diff(dim=-1)
        first = (mass * (start + end)).sum(-1) / 2
        second = (mass * (start.square() + start * end + end.square())).sum(-1) / 3
        below, above = self._tail_lengths
        tails = (self.levels[..., 0], values[..., 0], -below), (1 - self.levels[..., -1], values[..., -1], above)
        for share, value, length in tails:
            first = first + share * (value + length)
            second = second + share * ((value + length).square() + length.square())
        return first, second


def _squared_line(length: Tensor, start: Tensor, end: Tensor) -> Tensor:
    return length * (start.square() + start * end + end.square()) / 3


def _squared_tail(distance: Tensor, share: Tensor, length: Tensor) -> Tensor:
    """∫ F² of F = share · e^(-z/length) up to a target so far outside, and ∫ (1 - F)² from there on."""
    distance = distance.clamp_min(0.0)
    reached = share * torch.exp(-distance / length)
    return distance - 2 * length * (share - reached) + length * share.square() / 2
