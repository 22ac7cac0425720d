"""Standardisation: networks are trained on numbers of mean 0 and deviation 1, users see the units of their data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields

import torch
from torch import Tensor


@dataclass(frozen=True)
class Moments:
    """Mean, standard deviation, least and greatest value of each dimension over some rows, in float64."""

    weight: float
    mean: Tensor
    deviation: Tensor
    low: Tensor
    high: Tensor

    @classmethod
    def of(cls, rows: Tensor, weights: Tensor | None = None) -> Moments:
        """Moments of rows `[row, *dimensions]`; a row of weight 2 counts as two rows."""
        rows = rows.double()
        if weights is not None:
            rows, weights = rows[weights > 0], weights[weights > 0]
        if not len(rows):
            nothing = rows.new_zeros(rows.shape[1:])
            return cls(0.0, nothing, nothing, nothing + torch.inf, nothing - torch.inf)
        low, high = rows.amin(0), rows.amax(0)
        if weights is None:
            weights = rows.new_ones(len(rows))
        total = float(weights.double().sum())
        shares = (weights.double() / total).reshape(-1, *[1] * (rows.dim() - 1))
        mean = (rows * shares).sum(0)
        centred = rows - mean
        greatest = centred.abs().amax(0)
        unit = torch.where(greatest > 0, greatest, torch.ones_like(greatest))  # squares must neither under- nor overflow
        deviation = unit * ((centred / unit).square() * shares).sum(0).sqrt()
        return cls(total, mean, deviation, low, high)

    def merged(self, other: Moments) -> Moments:
        """Moments of both sets of rows together, exact for huge offsets (Chan, Golub, LeVeque 1983)."""
        weight = self.weight + other.weight
        share = other.weight / weight if weight else 0.0
        step = other.mean - self.mean
        inside = torch.hypot(self.deviation * (1 - share) ** 0.5, other.deviation * share**0.5)
        deviation = torch.hypot(inside, step * (share * (1 - share)) ** 0.5)
        low, high = torch.minimum(self.low, other.low), torch.maximum(self.high, other.high)
        return Moments(weight, self.mean + step * share, deviation, low, high)

    def pooled(self) -> Moments:
        """The same for channels (the first dimension), their other dimensions pooled; shaped to broadcast."""
        if self.mean.dim() < 2:
            return self
        dims = tuple(range(1, self.mean.dim()))
        mean = self.mean.mean(dims, keepdim=True)
        variance = (self.deviation.square() + (self.mean - mean).square()).mean(dims, keepdim=True)
        return Moments(
            self.weight, mean, variance.sqrt(), self.low.amin(dims, keepdim=True), self.high.amax(dims, keepdim=True)
        )

    def scale(self) -> Tensor:
        """The deviation, 1 where all values are the same, so that constant columns do not divide by zero."""
        constant = self.high <= self.low
        return torch.where(constant, torch.ones_like(self.deviation), self.deviation)


@dataclass(frozen=True)
class Standardization:
    """How each run's numbers are brought to mean 0 and deviation 1, from its own training rows alone.

    Shape:
        `[run, *features]` for inputs, `[run, *targets]` for targets; or None where numbers are taken as they are.
        `input_range` is the range of each input dimension in the units that the network sees.
    """

    input_shift: Tensor | None = None
    input_scale: Tensor | None = None
    input_range: Tensor | None = None
    target_shift: Tensor | None = None
    target_scale: Tensor | None = None

    @classmethod
    def stack(cls, runs: Sequence[Standardization]) -> Standardization:
        """The standardisations of single runs as one."""
        lists = {f.name: [getattr(run, f.name) for run in runs] for f in fields(cls)}
        return cls(**{name: None if values[0] is None else torch.stack(values) for name, values in lists.items()})

    def select(self, runs: Sequence[int]) -> Standardization:
        """The standardisations of some runs."""
        return self._mapped(lambda tensor: tensor[list(runs)])

    def to(self, device: torch.device) -> Standardization:
        """The same on a device; float32 where the device has no float64."""
        dtype = torch.float32 if device.type == "mps" else torch.float64
        return self._mapped(lambda tensor: tensor.to(device, dtype))

    def _mapped(self, change: Callable[[Tensor], Tensor]) -> Standardization:
        return Standardization(**{name: change(tensor) for name, tensor in self.tensors().items()})

    def tensors(self) -> dict[str, Tensor]:
        """What there is, by name."""
        return {f.name: t for f in fields(self) if (t := getattr(self, f.name)) is not None}

    @property
    def shared(self) -> bool:
        """Whether all runs see the same numbers for the same input."""
        if self.input_shift is None or self.input_scale is None:
            return True
        return bool((self.input_shift == self.input_shift[:1]).all() and (self.input_scale == self.input_scale[:1]).all())

    def inputs(self, x: Tensor, dtype: torch.dtype, runs: slice | Sequence[int] = slice(None)) -> Tensor:
        """Inputs `[run or 1, batch, *features]` as the networks of these runs see them.

        Floating-point inputs come out in `dtype`; whole numbers that are not standardised (say, token numbers) stay.
        """
        if self.input_shift is not None and self.input_scale is not None:
            precise = torch.promote_types(x.dtype, torch.float32) if x.is_floating_point() else torch.float64
            shift, scale = (unit[runs].unsqueeze(1).to(precise) for unit in (self.input_shift, self.input_scale))
            x = (x.to(precise) - shift) / scale
        return x.to(dtype) if x.is_floating_point() else x

    def targets(self, y: Tensor, dtype: torch.dtype, runs: slice | Sequence[int] = slice(None)) -> Tensor:
        """Targets `[run or 1, batch, *targets]` in the units of the loss; class numbers stay as they are."""
        if self.target_shift is not None and self.target_scale is not None:
            precise = self.target_shift.dtype
            y = (y.to(precise) - self.target_shift[runs].unsqueeze(1)) / self.target_scale[runs].unsqueeze(1)
        return y.to(dtype) if y.is_floating_point() else y
