"""A number between two bounds whose log-odds are normal."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import torch
from numpy.polynomial.legendre import leggauss
from torch import Tensor
from torch.distributions import constraints
from torch.distributions.constraints import Constraint
from torch.nn import functional as F

from deep_ensembles.distributions._tails import normal_cdf
from deep_ensembles.distributions.families import Exact

# Between these standard normal numbers, and around the log-odds of 0, expectations are integrated piece by piece.
_STEPS = tuple(range(-12, 13, 2))
_ODDS = (-40.0, -20.0, -8.0, -3.0, -1.0, 0.0, 1.0, 3.0, 8.0, 20.0, 40.0)
_NODES = 16


class OpenInterval(constraints.interval):
    """Between two bounds, without them."""

    def __init__(self, low: float | Tensor, high: float | Tensor) -> None:
        super().__init__(low, high)  # type: ignore[no-untyped-call]

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

    arg_constraints: ClassVar[dict[str, Constraint]] = {
        "loc": constraints.real, "scale": constraints.positive, "low": constraints.real, "high": constraints.real,
    }  # fmt: skip
    scaling = "none"

    def __init__(self, loc: Tensor, scale: Tensor, low: Tensor, high: Tensor, validate_args: bool | None = None) -> None:
        self.loc, self.scale, self.low, self.high = torch.broadcast_tensors(loc, scale, low, high)
        super().__init__(self.loc.shape, validate_args=False)

    @property
    def support(self) -> Constraint:
        return OpenInterval(self.low, self.high)

    def log_prob(self, value: Tensor) -> Tensor:
        below, above = value - self.low, self.high - value
        z = (below.log() - above.log() - self.loc) / self.scale
        volume = ((self.high - self.low) / below / above / self.scale).log()
        return volume - z.square() / 2 - math.log(2 * math.pi) / 2

    def tails(self, value: Tensor) -> tuple[Tensor, Tensor]:
        z = ((value - self.low).log() - (self.high - value).log() - self.loc) / self.scale
        return normal_cdf(z), normal_cdf(-z)

    def closed_quantile(self, level: Tensor, upper: bool) -> Tensor:
        z = torch.special.ndtri(level)
        return self._bounded(self.loc + self.scale * (-z if upper else z))

    def sample(self, sample_shape: Any = torch.Size()) -> Tensor:  # noqa: B008
        with torch.no_grad():
            shape = torch.Size(sample_shape) + self.loc.shape
            return self._bounded(torch.normal(self.loc.expand(shape), self.scale.expand(shape)))

    def _bounded(self, odds: Tensor) -> Tensor:
        width = self.high - self.low
        return torch.where(odds > 0, self.high - width * torch.sigmoid(-odds), self.low + width * torch.sigmoid(odds))

    @property
    def mean(self) -> Tensor:
        # From the nearer bound, so that a mean close to it keeps its digits.
        share = torch.where(self.loc > 0, self._expectation(lambda x: -F.softplus(x)), self._expectation(_log_sigmoid))
        width = self.high - self.low
        return torch.where(self.loc > 0, self.high - width * share, self.low + width * share)

    @property
    def variance(self) -> Tensor:
        share = ((self.mean - self.low) / (self.high - self.low)).detach()

        def squared_distance(x: Tensor) -> Tensor:
            return 2 * (torch.sigmoid(x) - share).abs().clamp_min(1e-150).log()

        rest = (self.mean - self.low) / (self.high - self.low) - share  # 0, but with a gradient
        return (self.high - self.low).square() * (self._expectation(squared_distance) - rest.square())

    def entropy(self) -> Tensor:
        normal = math.log(2 * math.pi * math.e) / 2 + (self.scale * (self.high - self.low)).log()
        return normal - self._expectation(lambda x: (F.softplus(x) + F.softplus(-x)).log())

    def _expectation(self, log_function: Any) -> Tensor:
        """E[exp(log_function(x))] of the normal x."""
        loc, scale = self.loc, self.scale
        with torch.no_grad():
            steps = loc.new_tensor(_STEPS).reshape(-1, *[1] * loc.dim())
            odds = loc.new_tensor(_ODDS).reshape(-1, *[1] * loc.dim())
            shifted = [steps + sign * power * scale for power in (0, 1, 2) for sign in ((1, -1) if power else (1,))]
            turns = ((odds - loc) / scale).clamp(-12 - 2 * scale, 12 + 2 * scale)
            knots = torch.cat([*shifted, turns]).sort(0).values
        nodes, weights = (loc.new_tensor(rule).reshape(-1, *[1] * knots.dim()) for rule in leggauss(_NODES))
        half = knots.diff(dim=0) / 2
        z = knots[:-1] + half * (nodes + 1)
        logs = log_function(loc + scale * z) - z.square() / 2 - math.log(2 * math.pi) / 2
        return (logs.exp() * half * weights).sum((0, 1))


def _log_sigmoid(x: Tensor) -> Tensor:
    return -F.softplus(-x)
