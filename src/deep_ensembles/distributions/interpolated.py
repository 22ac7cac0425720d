"""A distribution given by its quantiles at some levels."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.distributions import constraints

from deep_ensembles.distributions.families import Exact


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
        super().__init__(self.values.shape[:-1], validate_args=False)

    def rescaled(self, shift: Tensor, scale: Tensor) -> Interpolated:
        return Interpolated(shift.unsqueeze(-1) + scale.unsqueeze(-1) * self.values, self.levels)

    @property
    def kinks(self) -> Tensor:
        """Where the density jumps, `[*batch, level]`."""
        return self.values

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

    def closed_quantile(self, level: Tensor, upper: bool) -> Tensor:
        lower, higher = (1 - level, level) if upper else (level, 1 - level)
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
            return self.closed_quantile(levels.clamp_min(torch.finfo(levels.dtype).tiny), False)

    @property
    def mean(self) -> Tensor:
        middle = self.values[..., self.values.shape[-1] // 2]
        return middle + self._moments(middle)[0]

    @property
    def variance(self) -> Tensor:
        return self._moments(self.mean)[1]

    def entropy(self) -> Tensor:
        logs, outside = self.densities.log(), torch.stack([self.levels[..., 0], 1 - self.levels[..., -1]], dim=-1)
        return (outside * (1 - logs[..., [0, -1]])).sum(-1) - (self.levels.diff(dim=-1) * logs).sum(-1)

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
