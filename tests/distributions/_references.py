"""What SciPy, or sums and integrals of its functions, say of the distribution in every head's file."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import integrate, special, stats


class Reference:
    """One distribution of a number: SciPy's, or anything with its methods `logpdf`, `cdf`, `sf`, `ppf`, `isf`."""

    def __init__(self, law: Any, kinks: Sequence[float] = ()) -> None:
        self.law, self.kinks = law, list(kinks)
        self.is_whole = hasattr(law, "pmf")
        self.cdf, self.sf = law.cdf, law.sf
        self.logpdf = law.logpmf if self.is_whole else law.logpdf

    def quantile(self, level: float) -> float:
        """From the nearer end, as a level close to 1 has few digits left."""
        if self.is_whole and level > 0.5:  # SciPy's `isf` of counts is its `ppf` of 1 - level
            return least_count(lambda k: self.sf(k) <= (1 - level) * (1 + 1e-13))
        return float(self.law.ppf(level) if level <= 0.5 else self.law.isf(1 - level))

    @property
    def mean(self) -> float:
        return float(self.law.mean())

    @property
    def variance(self) -> float:
        return float(self.law.var())

    def expectation(self, function: Callable[[Any], Any]) -> float:
        """The sum over whole numbers, or the integral, of function times probability."""
        if self.is_whole:
            counts = self._counts()
            return math.fsum(np.exp(self.logpdf(counts)) * function(counts))
        return integral(lambda y: np.exp(self.logpdf(y)) * function(y), self.knots())

    def entropy(self) -> float:
        if hasattr(self.law, "exact_entropy"):
            return float(self.law.exact_entropy())
        if getattr(getattr(self.law, "dist", None), "name", "") in ("gamma", "t", "lognorm"):  # a formula
            return float(self.law.entropy())
        return self.expectation(lambda y: -np.nan_to_num(self.logpdf(y), neginf=0.0))

    def crps(self, target: float) -> float:
        """∫ F² below the target plus ∫ (1 - F)² above it."""
        if self.is_whole:
            counts = self._counts(target)
            return math.fsum(np.where(counts < target, self.cdf(counts), self.sf(counts)) ** 2)
        knots = self.knots(target)
        below, above = [k for k in knots if k <= target], [k for k in knots if k >= target]
        return integral(lambda z: self.cdf(z) ** 2, below) + integral(lambda z: self.sf(z) ** 2, above)

    def _counts(self, *more: float) -> np.ndarray:
        """From 0, or where the mass begins, to where it ends."""
        start = max(0, math.floor(min(self.mean - 50 * math.sqrt(self.variance), *more, self.mean)))
        end = max(self.mean, *more, 1.0)
        while self.sf(end) > 1e-20:
            end += max(1.0, 0.1 * (end - start))
        return np.arange(start, math.ceil(end) + 1, dtype=float)

    def knots(self, *more: float) -> list[float]:
        levels = [10.0**-k for k in (300, 200, 100, 50, 30, 25, 20, 15, 12, 9, 6, 3, 2, 1)] + [0.3, 0.5]
        laws = [law for _, law in self.law.counted()] if isinstance(self.law, MixtureLaw) else [self.law]
        sides = [side for law in laws for side in (law.ppf, law.isf)]
        knots = {float(side(level)) for level in levels for side in sides} | {*self.kinks, *more}
        knots |= {float(end) for law in laws if hasattr(law, "support") for end in law.support()}
        return sorted(knot for knot in knots if math.isfinite(knot))


def integral(function: Callable[[Any], Any], knots: Sequence[float]) -> float:
    """Piece by piece, by SciPy's rule that takes infinite ends; between ends of one sign far apart, in the logarithm."""
    ends = np.array(sorted(set(knots)))
    low, high = ends[:-1], ends[1:]
    wide = high - low > 1e-13 * np.maximum(abs(low), abs(high))
    low, high = low[wide], high[wide]
    sign = np.where(low > 0, 1.0, np.where(high < 0, -1.0, 0.0))
    near, far = np.minimum(abs(low), abs(high)), np.maximum(abs(low), abs(high))
    far_apart = (sign != 0) & (far > 4 * near)
    pieces = [_quadrature(function, low[~far_apart], high[~far_apart])]
    for side in (-1.0, 1.0):
        chosen = far_apart & (sign == side)
        if chosen.any():
            pieces.append(
                _quadrature(lambda t, s=side: function(s * np.exp(t)) * np.exp(t), *np.log([near, far])[:, chosen])
            )
    return math.fsum(np.concatenate(pieces))


def _quadrature(function: Callable[[Any], Any], low: np.ndarray, high: np.ndarray) -> np.ndarray:
    with np.errstate(all="ignore"):
        return np.atleast_1d(
            integrate.tanhsinh(lambda y: np.nan_to_num(function(y), posinf=0.0), low, high, rtol=1e-12).integral
        )


@dataclass
class LogitNormalLaw:
    """low + (high - low) · sigmoid(x) of a normal x."""

    loc: float
    scale: float
    low: float = 0.0
    high: float = 1.0

    def _z(self, y: Any) -> Any:
        y = np.clip(y, self.low, self.high)
        with np.errstate(divide="ignore"):
            return (np.log(y - self.low) - np.log(self.high - y) - self.loc) / self.scale

    def logpdf(self, y: Any) -> Any:
        width = self.high - self.low
        return stats.norm.logpdf(self._z(y)) - np.log((y - self.low) / width * (self.high - y) * self.scale)

    def cdf(self, y: Any) -> Any:
        return stats.norm.cdf(self._z(y))

    def sf(self, y: Any) -> Any:
        return stats.norm.sf(self._z(y))

    def ppf(self, level: float) -> float:
        return self._bounded(self.loc + self.scale * stats.norm.ppf(level))

    def isf(self, level: float) -> float:
        return self._bounded(self.loc + self.scale * stats.norm.isf(level))

    def _bounded(self, odds: float) -> float:
        width = self.high - self.low
        return self.high - width * special.expit(-odds) if odds > 0 else self.low + width * special.expit(odds)

    def over_normal(self, function: Callable[[Any], Any]) -> float:
        turns = {(odds - self.loc) / self.scale for odds in (-30, -10, -4, -2, 0, 2, 4, 10, 30)}
        spikes = {shift * self.scale + step for shift in (-2, -1, 0, 1, 2) for step in range(-10, 11, 2)}
        ends = np.array([-38.0, *sorted(z for z in turns | spikes if abs(z) < 38), 38.0])
        pieces = _quadrature(lambda z: np.exp(-z * z / 2) * function(self.loc + self.scale * z), ends[:-1], ends[1:])
        return math.fsum(pieces) / math.sqrt(2 * math.pi)

    def exact_entropy(self) -> float:
        volume = self.over_normal(lambda x: np.logaddexp(0, x) + np.logaddexp(0, -x))
        return 0.5 * math.log(2 * math.pi * math.e) + math.log(self.scale * (self.high - self.low)) - volume

    def mean(self) -> float:
        width = self.high - self.low
        if self.loc > 0:
            return self.high - width * self.over_normal(lambda x: special.expit(-x))
        return self.low + width * self.over_normal(lambda x: special.expit(x))

    def var(self) -> float:
        centre = self.over_normal(lambda x: special.expit(x))
        far = self.over_normal(lambda x: special.expit(-x))

        def distance(x: Any) -> Any:
            return (special.expit(x) - centre) if self.loc < 0 else (far - special.expit(-x))

        return (self.high - self.low) ** 2 * self.over_normal(lambda x: distance(x) ** 2)


@dataclass
class MixtureLaw:
    """A weighted sum of SciPy's distributions of one kind."""

    weights: Sequence[float]
    laws: Sequence[Any]

    def __post_init__(self) -> None:
        if hasattr(self.laws[0], "pmf"):
            self.logpmf = self.logpdf
            self.pmf = lambda y: np.exp(self.logpdf(y))

    def logpdf(self, y: Any) -> Any:
        name = "logpmf" if hasattr(self.laws[0], "pmf") else "logpdf"
        with np.errstate(divide="ignore"):
            logs = [math.log(w) + getattr(law, name)(y) for w, law in self.counted()]
        return np.logaddexp.reduce(logs)

    def cdf(self, y: Any) -> Any:
        return sum(w * law.cdf(y) for w, law in self.counted())

    def sf(self, y: Any) -> Any:
        return sum(w * law.sf(y) for w, law in self.counted())

    def ppf(self, level: float) -> float:
        return self._solved(level, self.cdf, [law.ppf(level) for _, law in self.counted()], 1)

    def isf(self, level: float) -> float:
        return self._solved(level, self.sf, [law.isf(level) for _, law in self.counted()], -1)

    def _solved(self, level: float, tail: Callable[[float], float], ends: list[float], side: int) -> float:
        """By halving the bracket of the components' quantiles."""
        low, high = min(ends), max(ends)
        is_whole = hasattr(self, "pmf")
        low = low - 1 if is_whole else low
        while high - low > (1 if is_whole else 0):
            middle = math.floor((low + high) / 2) if is_whole else low / 2 + high / 2
            if not low < middle < high:
                break
            above = tail(middle) >= level if side > 0 else tail(middle) <= level
            low, high = (low, middle) if above else (middle, high)
        return float(high)

    def mean(self) -> float:
        return sum(w * law.mean() for w, law in self.counted())

    def var(self) -> float:
        centre = self.mean()
        return sum(w * (law.var() + (law.mean() - centre) ** 2) for w, law in self.counted())

    def counted(self) -> list[tuple[float, Any]]:
        return [(w, law) for w, law in zip(self.weights, self.laws, strict=True) if w > 0]


@dataclass
class ZeroInflatedLaw:
    """Zero with some probability, else a count of another law."""

    zero: float
    of: Any

    def pmf(self, k: Any) -> Any:
        return np.exp(self.logpmf(k))

    def logpmf(self, k: Any) -> Any:
        return np.where(np.asarray(k) == 0, np.log(self.zero + (1 - self.zero) * self.of.pmf(0)),
                        math.log1p(-self.zero) + self.of.logpmf(k))  # fmt: skip

    def cdf(self, k: Any) -> Any:
        return self.zero * (np.asarray(k) >= 0) + (1 - self.zero) * self.of.cdf(k)

    def sf(self, k: Any) -> Any:
        return (1 - self.zero) * np.where(np.asarray(k) >= 0, self.of.sf(k), 1 / (1 - self.zero))

    def ppf(self, level: float) -> float:
        return float(self.of.ppf(max(0.0, (level - self.zero) / (1 - self.zero)))) if level > self.zero else 0.0

    def isf(self, level: float) -> float:
        return max(0.0, float(self.of.isf(min(1.0, level / (1 - self.zero)))))

    def mean(self) -> float:
        return float((1 - self.zero) * self.of.mean())

    def var(self) -> float:
        return float((1 - self.zero) * (self.of.var() + self.zero * self.of.mean() ** 2))


@dataclass
class NegativeBinomialLaw:
    """By size and mean; SciPy's takes a probability, which close to 1 has few digits left."""

    size: float
    average: float

    def __post_init__(self) -> None:
        self.success, self.failure = self.average / (self.size + self.average), self.size / (self.size + self.average)

    def pmf(self, k: Any) -> Any:
        return np.exp(self.logpmf(k))

    def logpmf(self, k: Any) -> Any:
        ways = -special.betaln(self.size, np.asarray(k) + 1.0) - np.log(self.size + k)
        return ways - self.size * math.log1p(self.average / self.size) + k * math.log(self.success)

    def cdf(self, k: Any) -> Any:
        return np.where(np.asarray(k) < 0, 0.0, special.betainc(self.size, np.maximum(k, 0) + 1.0, self.failure))

    def sf(self, k: Any) -> Any:
        return np.where(np.asarray(k) < 0, 1.0, special.betainc(np.maximum(k, 0) + 1.0, self.size, self.success))

    def ppf(self, level: float) -> float:
        return least_count(lambda k: self.cdf(k) >= level * (1 - 1e-13))

    def isf(self, level: float) -> float:
        return least_count(lambda k: self.sf(k) <= level * (1 + 1e-13))

    def mean(self) -> float:
        return self.average

    def var(self) -> float:
        return self.average + self.average**2 / self.size


def least_count(reached: Callable[[float], Any]) -> float:
    """The least whole number ≥ 0 from which on a condition holds."""
    low, high = -1.0, 0.0
    while not reached(high):
        low, high = high, 2 * high + 1
    while high - low > 1:
        middle = math.floor((low + high) / 2)
        low, high = (low, middle) if reached(middle) else (middle, high)
    return float(high)


@dataclass
class InterpolatedLaw:
    """Straight lines between points of the distribution function, exponential tails beyond."""

    values: np.ndarray
    levels: np.ndarray

    def __post_init__(self) -> None:
        self.densities = np.diff(self.levels) / np.diff(self.values)
        self.below, self.above = self.levels[0] / self.densities[0], (1 - self.levels[-1]) / self.densities[-1]

    def logpdf(self, y: Any) -> Any:
        y = np.asarray(y)
        piece = np.clip(np.searchsorted(self.values, y, side="right") - 1, 0, len(self.densities) - 1)
        tail = np.minimum(0, (y - self.values[0]) / self.below) + np.minimum(0, (self.values[-1] - y) / self.above)
        return np.log(self.densities[piece]) + tail

    def cdf(self, y: Any) -> Any:
        inner = np.interp(y, self.values, self.levels)
        inner = np.where(y < self.values[0], self.levels[0] * np.exp(np.minimum(0, y - self.values[0]) / self.below), inner)
        return np.where(y > self.values[-1], 1 - self.sf_tail(y), inner)

    def sf_tail(self, y: Any) -> Any:
        return (1 - self.levels[-1]) * np.exp(np.minimum(0, self.values[-1] - y) / self.above)

    def sf(self, y: Any) -> Any:
        return np.where(y > self.values[-1], self.sf_tail(y), 1 - self.cdf(y))

    def ppf(self, level: float) -> float:
        if level < self.levels[0]:
            return float(self.values[0] + self.below * math.log(level / self.levels[0]))
        if level > self.levels[-1]:
            return float(self.values[-1] - self.above * math.log((1 - level) / (1 - self.levels[-1])))
        return float(np.interp(level, self.levels, self.values))

    def isf(self, level: float) -> float:
        if level < 1 - self.levels[-1]:
            return float(self.values[-1] - self.above * math.log(level / (1 - self.levels[-1])))
        return self.ppf(1 - level)

    def _moment(self, power: int, centre: float) -> float:
        law = Reference(self, self.values)
        return law.expectation(lambda y: (y - centre) ** power)

    def mean(self) -> float:
        middle = float(self.values[len(self.values) // 2])
        return middle + self._moment(1, middle)

    def var(self) -> float:
        return self._moment(2, self.mean())
