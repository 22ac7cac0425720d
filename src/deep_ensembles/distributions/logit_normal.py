"""A number between two bounds whose log-odds are normal."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.distributions import constraints
from torch.nn import functional as F

from deep_ensembles.distributions._tails import normal_cdf
from deep_ensembles.distributions.families import Exact


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

    arg_constraints: ClassVar[dict[str, constraints.Constraint]] = {
        "loc": constraints.real, "scale": constraints.positive, "low": constraints.real, "high": constraints.real,
    }  # fmt: skip
    scaling = "none"

    def __init__(self, loc: Tensor, scale: Tensor, low: Tensor, high: Tensor, validate_args: bool | None = None) -> None:
        self.loc, self.scale, self.low, self.high = torch.broadcast_tensors(loc, scale, low, high)
        super().__init__(self.loc.shape, validate_args=False)

    @property
    def support(self) -> constraints.Constraint:
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
        side = torch.where(self.loc > 0, -1.0, 1.0).to(self.loc)
        share, width = self._expectation(lambda x: F.logsigmoid(side * x)), self.high - self.low
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
        r"""E[exp(log_function(x))] of the normal x, by the trapezoidal rule.

        For functions smooth up to the poles of the sigmoid, $\pi/\sigma$ away, its error is $e^{-2\pi^2/(h\sigma)}$.
        """
        loc, scale = self.loc, self.scale
        if not scale.numel():
            return torch.zeros_like(scale)
        step = (0.8 / scale.detach()).clamp_max(0.6)
        n_steps = int(((12 + 2 * scale.detach()) / step).max().ceil())
        numbers = torch.arange(-n_steps, n_steps + 1, device=loc.device).to(loc).reshape(-1, *[1] * loc.dim())
        z = numbers * step
        logs = log_function(loc + scale * z) - z.square() / 2 - math.log(2 * math.pi) / 2
        return logs.exp().sum(0) * step
