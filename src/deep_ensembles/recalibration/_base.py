"""A mixture whose levels are mapped to other levels; the interface of a recalibration, and what fitting one needs."""

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Protocol

import numpy as np
import torch
from torch import Tensor
from torch.distributions import Distribution, Normal, constraints

from deep_ensembles._checks import require
from deep_ensembles._tensors import Vector, checked_target, refuse

# isort: off
from deep_ensembles.distributions import (
    changed_entropy, family, mixed_moments, normal_cdf, ranked_probability_score, rebuilt,
)  # fmt: skip

# isort: on
from deep_ensembles.mixture import Mixture, mixture_of, precise, probabilities
from deep_ensembles.scoring import log_score

# Maps of so many levels are smooth enough for a shorter way to moments.
_FEW_LEVELS = 128
_ROWS_AT_ONCE = 512  # whose pieces a cache holds


class Recalibrated(Distribution):
    r"""A mixture F of numbers seen through a map of its levels, $G(y) = g(F(y))$, with g piecewise linear.

    Hence $G^{-1}(q) = F^{-1}(g^{-1}(q))$ and the density $f(y)\,g'(F(y))$; a count k has probability
    $G(k) - G(k - 1)$. Moments and entropy are numerical integrals, of counts sums (relative error about 1e-3, of the
    entropy of separate peaks 1e-2). Where the
    mixture has no mean or an infinite variance, neither has this. Mutual information and disagreement are the mixture's: an
    invertible map of the target leaves them as they are. The variance is split into aleatoric and epistemic as the
    mixture's is; where it is infinite, the epistemic part is the mixture's.

    Arguments:
        mixture: the prediction to recalibrate, of one number or count per row.
        before: levels of the mixture, strictly increasing from 0 to 1.
        after: what they become, strictly increasing from 0 to 1.

    Example:
        >>> standard = Mixture(Normal(torch.zeros(1, 1), torch.ones(1, 1)))
        >>> wide = Recalibrated(standard, before=(0.0, 0.1, 0.9, 1.0), after=(0.0, 0.4, 0.6, 1.0))
        >>> wide.cdf(torch.zeros(1)), wide.icdf(torch.tensor(0.6))
        (tensor([0.5000]), tensor([1.2816]))
    """

    arg_constraints: ClassVar[dict[str, constraints.Constraint]] = {}
    is_discrete = False

    def __init__(self, mixture: Mixture, before: Sequence[float], after: Sequence[float]) -> None:
        self.mixture, self.before, self.after = mixture, tuple(before), tuple(after)
        self.n_members, self.device, self.kind = mixture.n_members, mixture.device, mixture.kind
        super().__init__(mixture.batch_shape, mixture.event_shape, validate_args=False)

    def __repr__(self) -> str:
        return f"Recalibrated({self.mixture!r}, {len(self.before)} levels)"

    @property
    def support(self) -> constraints.Constraint:
        """Where the mixture has mass."""
        return self.mixture.support

    def expand(self, batch_shape: Any, _instance: Any = None) -> "Recalibrated":
        """The same prediction for a larger batch shape."""
        return Recalibrated(self.mixture.expand(batch_shape), self.before, self.after)

    def __getitem__(self, rows: Any) -> "Recalibrated":
        """The prediction for some rows."""
        return Recalibrated(self.mixture[rows], self.before, self.after)

    def log_prob(self, value: Tensor) -> Tensor:
        """Logarithm of the density, of counts of the probability."""
        levels, logs = self.mixture.cdf(value), self.mixture.log_prob(value)
        slopes, knots = levels.new_tensor(self._log_slopes), levels.new_tensor(self.before)
        piece = _piece(levels, knots)
        if self.kind != "counts":
            return logs + slopes[piece]
        before = self.mixture.cdf(torch.as_tensor(value) - 1)
        # On one piece of the map its slope keeps all digits; across several the difference of levels has enough.
        jump = (self._changed(levels) - self._changed(before)).log().maximum(logs + slopes.min())
        return torch.where((_piece(before, knots) == piece) | logs.isinf(), logs + slopes[piece], jump)

    def cdf(self, value: Tensor) -> Tensor:
        """Distribution function."""
        return self._changed(self.mixture.cdf(value))

    def tails(self, value: Tensor) -> tuple[Tensor, Tensor]:
        """P(Y ≤ value) and P(Y > value), each exact however small it is."""
        return self._changed_tails(*self.mixture.tails(value))

    def icdf(self, value: Tensor) -> Tensor:
        """Quantiles; of counts the least whole number that reaches the level."""
        levels = probabilities(value, self.mixture.weights)
        quantile = self.mixture.icdf(_mapped(levels, self.after, self.before))
        if self.kind != "counts":
            return quantile
        # The way back through the map rounds: a count less may reach the level already.
        slack = 64 * torch.finfo(levels.dtype).eps
        return torch.where((levels > 0) & (self.cdf(quantile - 1) >= levels * (1 - slack)), quantile - 1, quantile)

    def _changed(self, levels: Tensor) -> Tensor:
        return _mapped(levels, self.before, self.after)

    def _changed_tails(self, lower: Tensor, upper: Tensor) -> tuple[Tensor, Tensor]:
        mirrored = ([1 - level for level in reversed(levels)] for levels in (self.before, self.after))
        return self._changed(lower), _mapped(upper, *mirrored)

    @property
    def _log_slopes(self) -> Vector:
        return np.log(np.diff(self.after) / np.diff(self.before))

    @property
    def _kinks(self) -> Tensor | None:
        """Where the distribution function has corners, `[kink, *batch]`, or some of them; of counts they do not matter."""
        if self.kind == "counts":
            return None
        levels = self.mixture.weights.new_tensor(self.before[1:-1])[:: 1 + len(self.before) // _FEW_LEVELS]
        return self.mixture.icdf(levels.reshape(-1, *[1] * len(self.batch_shape)))

    def crps(self, target: Tensor) -> Tensor:
        """The continuous ranked probability score."""
        components, weights = self.mixture.components, self.mixture.weights
        kinks = self._kinks if len(self.before) <= _FEW_LEVELS else None
        return ranked_probability_score(components, weights, target.to(weights), self._changed_tails, kinks)

    def sample(self, sample_shape: Any = torch.Size()) -> Tensor:  # noqa: B008
        """Quantiles at random levels."""
        weights = self.mixture.weights
        shape = torch.Size(sample_shape) + self.batch_shape
        with torch.no_grad():
            levels = torch.rand(shape, dtype=weights.dtype, device=weights.device)
            return self.icdf(levels.clamp_min(torch.finfo(weights.dtype).eps / 2))

    @property
    def mean(self) -> Tensor:
        """Mean."""
        _ = self.mixture.mean  # says so where there is none
        return self._moments[0]

    @property
    def variance(self) -> Tensor:
        """Variance; infinite where the mixture's is."""
        return self._moments[1]

    @property
    def aleatoric(self) -> Tensor:
        """The part of the variance that members agree on, by the mixture's proportions."""
        return self._part(self.mixture.aleatoric)

    @property
    def epistemic(self) -> Tensor:
        """The part of the variance that members disagree about, by the mixture's proportions."""
        return self._part(self.mixture.epistemic)

    def _part(self, part: Tensor) -> Tensor:
        variance = self.mixture.variance
        return torch.where(variance.isinf(), part, self.variance * (part / variance))

    def moment_matched(self) -> Distribution:
        """The single Gaussian with this mean and variance."""
        if not bool(self.variance.isfinite().all()):
            raise ValueError(f"`moment_matched` needs a finite variance, and that of {family(self.mixture.components)} is "
                             "infinite for these parameters; use the prediction itself")  # fmt: skip
        return Normal(self.mean, self.stddev)

    def entropy(self) -> Tensor:
        """Entropy in nats."""

        def slope(levels: Tensor) -> Tensor:
            return levels.new_tensor(self._log_slopes).exp()[_piece(levels, levels.new_tensor(self.before))]

        return changed_entropy(self.mixture.components, self.mixture.weights, self._changed_tails, slope, self._kinks)

    @property
    def mutual_information(self) -> Tensor:
        """Entropy minus the members' average entropy, in nats."""
        return self.mixture.mutual_information

    @property
    def disagreement(self) -> Tensor:
        """The sum of the members' divergences from their mixture, in nats."""
        return self.mixture.disagreement

    @functools.cached_property
    def _moments(self) -> tuple[Tensor, Tensor]:
        mixture, few = self.mixture, len(self.before) <= _FEW_LEVELS
        if isinstance(mixture.components, Normal) and few and len(self.batch_shape) == 1:
            parts = (mixture[rows] for rows in torch.arange(len(mixture.mean), device=self.device).split(_ROWS_AT_ONCE))
            first, second = torch.cat([_moments_of_normals(part, self.before, self.after) for part in parts], 1)
            return mixture.mean + first, second - first.square()
        mean, variance = mixed_moments(mixture.components, mixture.weights, self._changed_tails, self._kinks)
        return mean, torch.where(mixture.variance.isinf(), torch.inf, variance)


def _piece(levels: Tensor, knots: Tensor) -> Tensor:
    """The number of the piece that each level lies on."""
    return torch.bucketize(levels.contiguous(), knots[1:-1])


def _mapped(levels: Tensor, before: Sequence[float], after: Sequence[float]) -> Tensor:
    """Piecewise linear interpolation."""
    start, end = (levels.new_tensor(knots) for knots in (before, after))
    piece = _piece(levels, start)
    share = ((levels - start[piece]) / start.diff()[piece]).nan_to_num(0.0).clamp(0, 1)
    return torch.lerp(end[piece], end[piece + 1], share)


def _moments_of_normals(mixture: Mixture, before: Sequence[float], after: Sequence[float]) -> Tensor:
    r"""First and second moment about the mixture's mean, `[2, row]`, of normals seen through a map, piece by piece of it.

    On a piece of slope s the moments are s times the mixture's between two of its quantiles a, and with
    $z = (a - \mu)/\sigma$ they are, below a, $\mu\Phi(z) - \sigma\varphi(z)$ and
    $(\mu^2 + \sigma^2)\Phi(z) - \sigma(\mu + a)\varphi(z)$.
    """
    means, scales = mixture.components.loc - mixture.mean, mixture.components.scale  # type: ignore[attr-defined]
    levels, values = (mixture.weights.new_tensor(knots) for knots in (before, after))
    ends = (mixture.icdf(levels[1:-1, None]) - mixture.mean).unsqueeze(1)  # [level, 1, row]
    z = (ends - means) / scales  # [level, member, row]
    below, density = normal_cdf(z), torch.exp(-z.square() / 2) / math.sqrt(2 * math.pi)
    first = means * below - scales * density
    second = (means.square() + scales.square()) * below - scales * (means + ends) * density
    whole = torch.stack([means, means.square() + scales.square()]).unsqueeze(1)  # [moment, 1, member, row]
    parts = torch.cat([torch.zeros_like(whole), torch.stack([first, second]), whole], dim=1)
    averaged = (parts * mixture.weights.unsqueeze(-1)).sum(2)  # [moment, level, row]
    return (averaged.diff(dim=1) * (values.diff() / levels.diff()).unsqueeze(-1)).sum(1)


Prediction = Mixture | Recalibrated
# A factor is looked for between a hundredth of the start and a hundred times it.
_REACH = math.log(100.0)


class Recalibration(Protocol):
    """A frozen dataclass of plain numbers, fitted on held-out rows, that corrects new predictions."""

    def __call__(self, distribution: Distribution, /) -> Prediction:
        """The recalibrated prediction, of the same shape."""


FitRecalibration = Callable[[Distribution, Any], Recalibration | None]


def as_mixture(name: str, distribution: Distribution, *kinds: str) -> Mixture:
    """A prediction of one of these kinds as a mixture: of one member where it is none yet."""
    known = isinstance(distribution, Distribution) and not isinstance(distribution, Recalibrated)
    if not known or not (distribution.batch_shape or isinstance(distribution, Mixture)):
        described = repr(distribution) if isinstance(distribution, Recalibrated) else type(distribution).__name__
        raise TypeError(f"`distribution` must be a Mixture or a batch of one of torch's, got {described}")
    mixture: Mixture = mixture_of(distribution)
    if mixture.kind not in kinds:
        cure = "temperature" if mixture.kind in ("classes", "labels") else "isotonic"
        wanted = "of numbers" if "numbers" in kinds else "over classes"
        raise TypeError(f"`{name}` needs a prediction {wanted}, got {mixture!r}; use `{cure}`")
    if family(mixture.components) == "Delta":
        raise TypeError(f"`{name}` needs members that have a density, got {mixture!r}; use its `moment_matched()`")
    return mixture


def one_number(name: str, distribution: Distribution) -> Mixture:
    """A prediction of one number per row, with a density; in double precision where there is one, for levels near 1."""
    mixture = as_mixture(name, distribution, "numbers", "counts")
    if mixture.event_shape:
        raise TypeError(f"`{name}` needs a prediction of one number, got {mixture!r}; use `variance_scaling`, or take one "
                        "target with `target(i)`")  # fmt: skip
    if mixture.weights.device.type == "mps":
        return mixture
    return Mixture(rebuilt(mixture.components, Tensor.double), mixture.weights)


def held_out(mixture: Mixture, target: Any, least: int = 2) -> tuple[Mixture, Tensor]:
    """Predictions and targets of at least so many held-out rows, on the CPU in double precision."""
    require(len(mixture.batch_shape) == 1, "distribution", "one prediction per row", tuple(mixture.batch_shape))
    mixture = precise(mixture)
    checked = checked_target(mixture, target)
    require(len(checked) >= least, "target", f"at least {least} rows", len(checked))
    truth = checked if mixture.is_discrete else checked.double()
    inside = mixture.support.check(truth)
    inside = inside.any(0) if inside.dim() > 1 else inside
    refuse(~inside, "target", f"a value that {family(mixture.components)} can take", checked)
    scores = log_score(mixture, truth)
    refuse(scores.isnan(), "distribution", "without NaN", scores)
    return mixture, truth


def levels_of(mixture: Mixture, target: Tensor) -> Tensor:
    r"""The level of each target in its distribution, F(y), in increasing order.

    A count y stands for all levels between F(y - 1) and F(y): one of them is drawn, always the same (the randomised
    probability integral transform), whatever the order of the rows.

    References:
        Czado, Gneiting, Held (2009).
    """
    upper = mixture.cdf(target)
    if mixture.kind != "counts":
        return upper.sort().values
    lower = mixture.cdf(target - 1)
    order = np.lexsort((lower.numpy(), upper.numpy()))
    draws = torch.from_numpy(np.random.default_rng(0).uniform(size=len(order)))
    return torch.lerp(lower[order], upper[order], draws).sort().values


def best_factor(
    make: Callable[[float], Recalibration], mixture: Mixture, target: Tensor, start: float = 1.0, spread: float = math.inf
) -> float:
    """The factor of least negative log-likelihood near the start; never worse than the start or than 1.

    Arguments:
        spread: of the logarithm of factors about 0, before any row is seen.
    """
    from scipy.optimize import minimize_scalar  # late, as it takes half a second

    def loss(logarithm: float) -> float:
        scores = log_score(make(math.exp(logarithm))(mixture), target)
        return float(scores.mean()) + 0.5 * (logarithm / spread) ** 2 / len(scores)

    middle = math.log(start)
    require(math.isfinite(loss(middle)), "distribution", "of positive density at every target", "a density of 0")
    optimum = minimize_scalar(loss, bounds=(middle - _REACH, middle + _REACH), method="bounded", options={"xatol": 1e-8})
    return math.exp(min((float(optimum.x), middle, 0.0), key=loss))
