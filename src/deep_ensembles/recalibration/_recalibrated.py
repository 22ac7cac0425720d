"""A mixture of numbers whose levels are mapped to other levels, and its moments."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.polynomial.legendre import leggauss
from numpy.typing import NDArray
from torch import Tensor
from torch.distributions import Distribution, Normal
from torch.distributions.constraints import Constraint

from deep_ensembles._checks import check_number, require
from deep_ensembles.distributions import by_pieces, family, normal_cdf, ranked_probability_score, rebuilt
from deep_ensembles.mixture import Mixture

Vector = NDArray[np.float64]
# Integrals are taken between the mixture's quantiles at these levels and their mirror images; further out, where tails may
# be heavy, between these multiples of the distance from the middle.
_LEVELS = (*(part / 40 for part in range(20, 1, -1)), 0.035, 0.02, 0.01, 5e-3, 2e-3, 5e-4, 1e-4, 1e-5, 1e-6, 1e-9, 1e-13)
_MULTIPLES = (2.0, 4.0, 10.0, 1e2, 1e3, 1e6, 1e12, 1e24, 1e48, 1e96, 1e144)
_NODES = 4
# Counts are added one by one up to so many, and by blocks beyond.
_MOST_COUNTS = 2048
_CHUNK_ELEMENTS = 4_000_000
# Maps of so many levels are smooth enough for a shorter way to moments.
_FEW_LEVELS = 128


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

    arg_constraints: ClassVar[dict[str, Constraint]] = {}
    is_discrete = False

    def __init__(self, mixture: Mixture, before: Sequence[float], after: Sequence[float]) -> None:
        self.mixture, self.before, self.after = mixture, tuple(before), tuple(after)
        super().__init__(mixture.batch_shape, mixture.event_shape, validate_args=False)

    def __repr__(self) -> str:
        return f"Recalibrated({self.mixture!r}, {len(self.before)} levels)"

    @property
    def n_members(self) -> int:
        """How many members the mixture has."""
        return self.mixture.n_members

    @property
    def device(self) -> torch.device:
        """Where the parameters are."""
        return self.mixture.device

    @property
    def kind(self) -> str:
        """What is predicted: numbers or counts."""
        return self.mixture.kind

    @property
    def support(self) -> Constraint:
        """Where the mixture has mass."""
        return self.mixture.support

    def expand(self, batch_shape: Any, _instance: Any = None) -> Recalibrated:
        """The same prediction for a larger batch shape."""
        return Recalibrated(self.mixture.expand(batch_shape), self.before, self.after)

    def __getitem__(self, rows: Any) -> Recalibrated:
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
        lower, upper = self.mixture.tails(value)
        mirrored = ([1 - level for level in reversed(levels)] for levels in (self.before, self.after))
        return self._changed(lower), _mapped(upper, *mirrored)

    def icdf(self, value: Tensor) -> Tensor:
        """Quantiles; of counts the least whole number that reaches the level."""
        weights = self.mixture.weights
        levels = torch.as_tensor(value, dtype=weights.dtype, device=weights.device)
        if not bool(((levels >= 0) & (levels <= 1)).all()):
            raise ValueError("`value` must be probabilities between 0 and 1")
        quantile = self.mixture.icdf(_mapped(levels, self.after, self.before))
        if self.kind != "counts":
            return quantile
        # The way back through the map rounds: a count less may reach the level already.
        slack = 64 * torch.finfo(weights.dtype).eps
        return torch.where((levels > 0) & (self.cdf(quantile - 1) >= levels * (1 - slack)), quantile - 1, quantile)

    def _changed(self, levels: Tensor) -> Tensor:
        return _mapped(levels, self.before, self.after)

    def crps(self, target: Tensor) -> Tensor:
        """The continuous ranked probability score."""
        mixture, kinks = self.mixture, None
        if len(self.before) <= _FEW_LEVELS:
            levels = mixture.weights.new_tensor(self.before[1:-1])
            kinks = mixture.icdf(levels.reshape(-1, *[1] * len(self.batch_shape)))
        return ranked_probability_score(
            mixture.components, mixture.weights, target.to(mixture.weights), self._changed, kinks
        )

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
        return self._by_rows(_entropies)[0]

    @property
    def mutual_information(self) -> Tensor:
        """Entropy minus the members' average entropy, in nats."""
        return self.mixture.mutual_information

    @property
    def disagreement(self) -> Tensor:
        """The sum of the members' divergences from their mixture, in nats."""
        return self.mixture.disagreement

    @property
    def _log_slopes(self) -> Vector:
        return np.log(np.diff(self.after) / np.diff(self.before))

    @functools.cached_property
    def _moments(self) -> tuple[Tensor, Tensor]:
        if isinstance(self.mixture.components, Normal) and len(self.before) <= _FEW_LEVELS and len(self.batch_shape) == 1:
            centre = self.mixture.mean
            first, second = mapped_moments(self.mixture, self.before, self.after)
            return centre + first, second - first.square()
        mean, variance = self._by_rows(_sums if self.kind == "counts" else _by_pieces)[:2]
        return mean, torch.where(self.mixture.variance.isinf(), torch.inf, variance)

    def _by_rows(self, integrate: Callable[[Recalibrated], Tensor]) -> Tensor:
        """Integrals `[integral, *batch]`, some rows at a time."""
        n_rows, n_dims, members = math.prod(self.batch_shape), len(self.batch_shape), self.n_members
        flat = rebuilt(self.mixture.components, lambda part: part.reshape(members, n_rows, *part.shape[1 + n_dims :]))
        whole = Recalibrated(Mixture(flat, self.mixture.weights), self.before, self.after)
        chunks = torch.arange(n_rows, device=self.device).split(max(1, _CHUNK_ELEMENTS // (_MOST_COUNTS * members)))
        parts = [integrate(whole[rows]) for rows in chunks] if n_rows else [self.mixture.weights.new_zeros(2, 0)]
        return torch.cat(parts, dim=1).reshape(-1, *self.batch_shape)


def _levels(mixture: Mixture) -> Tensor:
    """Levels from one tail to the other, as far out as the number format tells them from 0 and 1."""
    levels = [level for level in _LEVELS if level > 4 * torch.finfo(mixture.weights.dtype).eps]
    return mixture.weights.new_tensor([*reversed(levels), *(1 - level for level in levels[1:])])


def _by_pieces(rows: Recalibrated) -> Tensor:
    r"""Mean and variance of numbers, `[2, row]`.

    With a centre c, $\mathbb{E}[Y] = c - \int_{-\infty}^c G + \int_c^\infty (1 - G)$ and
    $\mathbb{E}[(Y - c)^2] = 2\int_{-\infty}^c (c - y)\,G + 2\int_c^\infty (y - c)(1 - G)$: sums of positive numbers,
    bounded however steep the density is.
    """
    inner = rows.mixture.icdf(_levels(rows.mixture).unsqueeze(-1))
    centre, most = inner[len(inner) // 2], torch.finfo(inner.dtype).max ** 0.4
    far = [times for times in _MULTIPLES if times < most]
    outer = [centre + times * (end - centre) for end in (inner[0], inner[-1]) for times in far]
    knots = torch.stack([*reversed(outer[: len(far)]), *inner, *outer[len(far) :]])

    def tail_moments(points: Tensor, smooth: bool) -> Tensor:
        lower, upper = rows.tails(points)
        distance = points - centre
        tail = torch.where(distance < 0, lower, upper).nan_to_num(0.0)
        return torch.stack([tail * distance.sign(), 2 * tail * distance.abs()])

    shift, square = by_pieces(knots, centre.expand_as(knots[1:]), tail_moments, n_nodes=_NODES)
    return torch.stack([centre + shift, square - shift.square()])


def _entropies(rows: Recalibrated) -> Tensor:
    r"""Of numbers $-\int \log f(F^{-1}(u))\,g'(u)\,du - \int g' \log g'$: the map's part is a sum, the other is smooth."""
    if rows.kind == "counts":
        return _sums(rows)[2:]
    knots = _levels(rows.mixture)
    if len(rows.before) <= _FEW_LEVELS:
        knots = torch.cat([knots, knots.new_tensor(rows.before[1:-1])]).sort().values
    nodes, shares = (knots.new_tensor(rule) / 2 for rule in leggauss(_NODES))
    levels = (knots[:-1, None] + knots.diff()[:, None] * (nodes + 0.5)).flatten()
    weights = (knots.diff()[:, None] * shares).flatten() * knots.new_tensor(rows._log_slopes).exp()[
        _piece(levels, knots.new_tensor(rows.before))
    ]
    logs = rows.mixture.log_prob(rows.mixture.icdf(levels.unsqueeze(-1)))
    return (-(weights.unsqueeze(-1) * logs).sum(0) - float(np.diff(rows.after) @ rows._log_slopes))[None]


def _sums(rows: Recalibrated) -> Tensor:
    """Mean, variance and entropy of counts, `[3, row]`; where they are many, those beyond the first in even blocks."""
    mixture, levels = rows.mixture, _levels(rows.mixture)
    first, last = (mixture.icdf(level) for level in (levels[0], levels[-1]))
    n_counts = min(_MOST_COUNTS, int((last - first).max()) + 1)
    points = first + torch.arange(n_counts, device=first.device).to(first).unsqueeze(-1)
    below = mixture.log_prob(points).exp().cumsum(0) + mixture.cdf(first - 1)
    if bool((last > points[-1]).any()):
        shares = torch.linspace(0, 1, _MOST_COUNTS // 4, device=first.device).to(first).unsqueeze(-1)[1:]
        reach = (last - points[-1]).clamp_min(0)
        far = torch.cat([points[-1] + reach * shares, mixture.icdf(levels.unsqueeze(-1)).maximum(points[-1])])
        far = far.floor().sort(0).values
        points, below = torch.cat([points, far]), torch.cat([below, mixture.cdf(far)])
    changed = rows._changed(below.clamp_max(1.0))
    mass = torch.cat([changed[:1], changed.diff(dim=0).clamp_min(0)])
    widths = torch.cat([torch.ones_like(points[:1]), points.diff(dim=0)]).clamp_min(1)
    middles = points - (widths - 1) / 2
    mean = (mass * middles).sum(0)
    variance = (mass * ((middles - mean).square() + (widths.square() - 1) / 12)).sum(0)
    return torch.stack([mean, variance, -torch.xlogy(mass, mass / widths).sum(0)])


def check_levels(before: Sequence[float], after: Sequence[float]) -> None:
    """Both must be as many numbers, strictly increasing from 0 to 1."""
    require(len(before) == len(after), "after", f"as many levels as `before`, {len(before)}", len(after))
    for name, levels in (("before", before), ("after", after)):
        for level in levels:
            check_number(name, level, low=0, high=1)
        increases = all(low < high for low, high in pairwise(levels))
        require(increases and levels[0] == 0 and levels[-1] == 1, name, "strictly increasing from 0 to 1", levels)


def _piece(levels: Tensor, knots: Tensor) -> Tensor:
    """The number of the piece that each level lies on."""
    return torch.bucketize(levels.contiguous(), knots[1:-1])


def _mapped(levels: Tensor, before: Sequence[float], after: Sequence[float]) -> Tensor:
    """Piecewise linear interpolation."""
    start, end = (levels.new_tensor(knots) for knots in (before, after))
    piece = _piece(levels, start)
    share = ((levels - start[piece]) / start.diff()[piece]).nan_to_num(0.0).clamp(0, 1)
    return torch.lerp(end[piece], end[piece + 1], share)


_GRID_POINTS = (64, 256)
_GRID_REACH = 5.5
# A grid will do where its step is at most this share of the narrowest member's deviation, or less where the map is rough.
_STEP = 0.35
_GRID_ELEMENTS, _EXACT_ROWS, _ENTRIES = 2**17, 512, 2**16


def mapped_moments(mixture: Mixture, before: Sequence[float], after: Sequence[float]) -> Tensor:
    """First and second moment about the mixture's mean, `[2, row]`, of normals seen through a map of levels."""
    means, scales = mixture.components.loc - mixture.mean, mixture.components.scale  # type: ignore[attr-defined]
    low, high = (means - _GRID_REACH * scales).amin(0), (means + _GRID_REACH * scales).amax(0)
    needed = (high - low) / (_STEP * scales.amin(0)) * _roughness(before, after) ** 0.5 + 1  # points
    moments = means.new_empty(2, means.shape[1])
    for fewer, points in pairwise((0, *_GRID_POINTS)):
        for rows in ((needed > fewer) & (needed <= points)).nonzero()[:, 0].split(_GRID_ELEMENTS // points):
            members = means[:, rows], scales[:, rows]
            moments[:, rows] = _on_a_grid(points, mixture.weights, members, tuple(before), tuple(after))
    for rows in (~(needed <= _GRID_POINTS[-1])).nonzero()[:, 0].split(_EXACT_ROWS):
        moments[:, rows] = _exactly(mixture[rows], means[:, rows], scales[:, rows], before, after)
    return moments


@functools.lru_cache(8)
def _map_at_equal_steps(before: tuple[float, ...], after: tuple[float, ...]) -> Tensor:
    """The map at so many equal steps that looking it up is as good as computing it, and quicker than finding the piece."""
    entries = (np.arange(_ENTRIES + 1) + 0.5) / _ENTRIES
    return torch.from_numpy(np.interp(entries, before, after).astype(np.float32))


def _roughness(before: Sequence[float], after: Sequence[float]) -> float:
    """The greatest change of slope, by the density that it meets; at least 1. The error of a grid grows with it."""
    changes = np.abs(np.diff(np.diff(after) / np.diff(before)))
    density = np.exp(-(torch.special.ndtri(torch.tensor(before[1:-1], dtype=torch.float64)).numpy() ** 2) / 2)
    return float(max(1.0, 3 * np.max(changes * density, initial=0.0)))


def _on_a_grid(
    n_points: int, weights: Tensor, members: tuple[Tensor, Tensor], before: tuple[float, ...], after: tuple[float, ...]
) -> Tensor:
    r"""By $\mathbb{E}[Y] = b - \int_a^b G$ and $\mathbb{E}[Y^2] = b^2 - 2\int_a^b yG$, trapezoids in units of the spread.

    The trapezoidal rule is exact for smooth functions that end flat, as G does; yG ends with slope 1, which adds
    $h^2/12$. What is left is due to the kinks of the map: some 1e-3 of the spread.
    """
    means, scales = members
    unit = ((means.square() + scales.square()) * weights.unsqueeze(1)).sum(0).sqrt()
    centres, widths = (means / unit).float(), (scales / unit).float()
    low, high = (centres - _GRID_REACH * widths).amin(0), (centres + _GRID_REACH * widths).amax(0)
    share = torch.linspace(0, 1, n_points, dtype=torch.float32, device=means.device).unsqueeze(1)
    points = torch.lerp(low, high, share)  # [point, row]
    levels = torch.full_like(points, 0.5)
    steepness = 1 / (widths * math.sqrt(2))
    for weight, offset, slope in zip(weights.tolist(), -centres * steepness, steepness, strict=True):
        levels.add_(torch.addcmul(offset, points, slope).erf_(), alpha=weight / 2)
    mapped = _map_at_equal_steps(before, after).to(means.device)[levels.mul_(_ENTRIES).long()]
    mapped[0], mapped[-1] = mapped[0] / 2, 0.5
    step = (high - low) / (n_points - 1)
    first = high - mapped.sum(0) * step
    second = high.square() - 2 * (mapped * points).sum(0) * step + step.square() / 6
    return torch.stack([first * unit, second * unit.square()]).to(means.dtype)


def _exactly(mixture: Mixture, means: Tensor, scales: Tensor, before: Sequence[float], after: Sequence[float]) -> Tensor:
    r"""Piece by piece of the map.

    On a piece of slope s the moments are s times the mixture's between two of its quantiles a, and with
    $z = (a - \mu)/\sigma$ they are, below a, $\mu\Phi(z) - \sigma\varphi(z)$ and
    $(\mu^2 + \sigma^2)\Phi(z) - \sigma(\mu + a)\varphi(z)$.
    """
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
