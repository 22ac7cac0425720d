"""Training data as rows, in memory or streamed from a `Dataset`; what they say of themselves; the units of each run."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, default_collate

from deep_ensembles._checks import require
from deep_ensembles._splits import evenly_spaced
from deep_ensembles._tensors import check_kind
from deep_ensembles.training.parts import InputParts, split_item

Read = tuple[Tensor, Tensor, Tensor | None]  # inputs, targets and weights of some rows
Seen = Callable[[np.ndarray], np.ndarray]  # rows of a run → the places that it may see
Draws = Sequence[tuple[int, int] | None]  # the seed and the epoch of each run


@dataclass(frozen=True)
class Moments:
    """Mean, standard deviation, least and greatest value of each dimension over so many rows, in float64."""

    weight: float
    mean: Tensor
    deviation: Tensor
    low: Tensor
    high: Tensor
    count: int = 0

    @classmethod
    def of(cls, rows: Tensor, weights: Tensor | None = None) -> Moments:
        """Moments of rows `[row, *dimensions]`; a row of weight 2 counts as two rows."""
        rows, count = rows.double(), len(rows)
        if weights is not None:
            rows, weights = rows[weights > 0], weights[weights > 0].double()
        if not len(rows):
            nothing = rows.new_zeros(rows.shape[1:])
            return cls(0.0, nothing, nothing, nothing + torch.inf, nothing - torch.inf, count)
        weights = rows.new_ones(len(rows)) if weights is None else weights
        total = float(weights.sum())
        shares = (weights / total).reshape(-1, *[1] * (rows.dim() - 1))
        mean = (rows * shares).sum(0)
        centred = rows - mean
        greatest = centred.abs().amax(0)
        unit = torch.where(greatest > 0, greatest, torch.ones_like(greatest))  # squares must neither under- nor overflow
        deviation = unit * ((centred / unit).square() * shares).sum(0).sqrt()
        return cls(total, mean, deviation, rows.amin(0), rows.amax(0), count)

    def merged(self, other: Moments) -> Moments:
        """Moments of both sets of rows together, exact for huge offsets (Chan, Golub, LeVeque 1983)."""
        weight = self.weight + other.weight
        share = other.weight / weight if weight else 0.0
        step = other.mean - self.mean
        inside = torch.hypot(self.deviation * (1 - share) ** 0.5, other.deviation * share**0.5)
        deviation = torch.hypot(inside, step * (share * (1 - share)) ** 0.5)
        low, high = torch.minimum(self.low, other.low), torch.maximum(self.high, other.high)
        return Moments(weight, self.mean + step * share, deviation, low, high, self.count + other.count)

    def part(self, span: slice, shape: tuple[int, ...]) -> Moments:
        """Those of some dimensions, in a shape of their own."""
        mean, deviation, low, high = (part[span].reshape(shape) for part in (self.mean, self.deviation, self.low, self.high))
        return Moments(self.weight, mean, deviation, low, high, self.count)

    def pooled(self) -> Moments:
        """The same for channels (the first dimension), their other dimensions pooled; shaped to broadcast."""
        if self.mean.dim() < 2:
            return self
        dims = tuple(range(1, self.mean.dim()))
        mean = self.mean.mean(dims, keepdim=True)
        variance = (self.deviation.square() + (self.mean - mean).square()).mean(dims, keepdim=True)
        low, high = self.low.amin(dims, keepdim=True), self.high.amax(dims, keepdim=True)
        return Moments(self.weight, mean, variance.sqrt(), low, high, self.count)

    def scale(self) -> Tensor:
        """The deviation, 1 where all values are the same, so that constant columns do not divide by zero."""
        return torch.where(self.high <= self.low, torch.ones_like(self.deviation), self.deviation)


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
    def stack(cls, parts: Sequence[Standardization], join: Callable[..., Tensor] = torch.stack) -> Standardization:
        """The standardisations of single runs as one, or with `torch.cat` those of several sets of runs."""
        return cls(**{name: join([part.tensors()[name] for part in parts]) for name in parts[0].tensors()})

    def select(self, runs: Sequence[int]) -> Standardization:
        """The standardisations of some runs."""
        return Standardization(**{name: tensor[list(runs)] for name, tensor in self.tensors().items()})

    def to(self, device: torch.device) -> Standardization:
        """The same on a device."""
        return Standardization(**{name: tensor.to(device) for name, tensor in self.tensors().items()})

    def tensors(self) -> dict[str, Tensor]:
        """What there is, by name."""
        return {f.name: t for f in fields(self) if (t := getattr(self, f.name)) is not None}

    @property
    def shared(self) -> bool:
        """Whether all runs see the same numbers for the same input."""
        units = [unit for unit in (self.input_shift, self.input_scale) if unit is not None]
        return all(torch.equal(unit, unit[:1].expand_as(unit)) for unit in units)

    def inputs(self, x: Tensor, dtype: torch.dtype, runs: slice | Sequence[int] = slice(None)) -> Tensor:
        """Inputs `[run or 1, batch, *features]` as the networks of these runs see them.

        Floating-point inputs come out in `dtype`; whole numbers that are not standardised (say, token numbers) stay.
        """
        precise = torch.promote_types(x.dtype, torch.float32) if x.is_floating_point() else torch.float64
        return _standardized(x, (self.input_shift, self.input_scale), runs, precise, dtype)

    def targets(self, y: Tensor, dtype: torch.dtype, runs: slice | Sequence[int] = slice(None)) -> Tensor:
        """Targets `[run or 1, batch, *targets]` in the units of the loss; class numbers stay as they are.

        Where there is one unit for two of them, they are a time and whether it was an event's, which has none.
        """
        units = (self.target_shift, self.target_scale)
        if self.target_shift is None or y.dim() < self.target_shift.dim() + 2:
            return _standardized(y, units, runs, torch.float64, dtype)
        return torch.stack([_standardized(y[..., 0], units, runs, torch.float64, dtype), y[..., 1].to(dtype)], dim=-1)


def _standardized(values: Tensor, units: tuple[Any, Any], runs: Any, precise: torch.dtype, dtype: torch.dtype) -> Tensor:
    """Values minus a shift, in units of a scale, where there are any; whole numbers without units stay."""
    if units[0] is not None:
        shift, scale = (unit[runs].unsqueeze(1).to(precise) for unit in units)
        values = (values.to(precise) - shift) / scale
    return values.to(dtype) if values.is_floating_point() else values


_CHUNK_NUMBERS = 2**20  # a few copies in float64 are made of a chunk


class Row(int):
    """A row number that also says what a dataset's item is drawn for, so that its randomness can be reproduced.

    `draw` is (the run's seed, its epoch) in training, and None elsewhere: nothing random is wanted there.
    """

    draw: tuple[int, int] | None

    def __new__(cls, number: int, draw: tuple[int, int] | None = None) -> Row:
        row = super().__new__(cls, number)
        row.draw = draw
        return row


class Rows(ABC):
    """Rows of inputs, targets and optional weights, read by number.

    Arguments:
        n: how many.
        parts: what the numbers of a row are, where networks take several tensors.
    """

    chunk_rows = 8192  # that are looked at together, at most

    def __init__(self, n: int, parts: InputParts | None = None) -> None:
        require(n > 0, "inputs", "at least one row", f"{n} rows")
        self.n, self.parts = n, parts

    def __len__(self) -> int:
        return self.n

    @abstractmethod
    def read(self, rows: np.ndarray) -> Read:
        """Inputs, targets and weights of some rows, in the units of the user."""

    def blocks(self, blocks: Sequence[np.ndarray], draws: Draws) -> Iterator[Read]:
        """Blocks of rows `[run, row]` as `[run · row, …]`; in training, `draws` has what a run's are drawn for."""
        yield from (self.read(block.ravel()) for block in blocks)

    def user_inputs(self, rows: np.ndarray) -> Any:
        """Inputs of some rows as a user passes them to an ensemble."""
        inputs = self.read(rows)[0]
        return inputs if self.parts is None else self.parts.unpack(inputs)

    def chunks(self, rows: np.ndarray) -> Iterator[Read]:
        """The same in pieces of bounded size: large rows, such as pictures, are fewer."""
        size = max(1, min(self.chunk_rows, _CHUNK_NUMBERS // max(1, self.read(rows[:1])[0].numel())))
        yield from self.blocks(np.split(rows[None], range(size, len(rows), size), axis=1), [None])

    def moments(self, rows: np.ndarray) -> tuple[Moments, Moments, float]:
        """Moments of inputs and of targets, and the mean weight, in one pass."""
        x = y = Moments.of(torch.empty(0))
        for inputs, targets, weights in self.chunks(rows):
            x, y = x.merged(Moments.of(inputs, weights)), y.merged(Moments.of(targets, weights))
        return x, y, x.weight / x.count

    def readings(self, epoch: int) -> Iterator[tuple[Rows, Seen | None]]:
        """What an epoch reads one after the other, and where a run sees it if that is not by its rows; here all at once."""
        yield self, None

    def counts(self, rows: np.ndarray) -> list[int]:
        """How many rows a run of these takes in an epoch, reading by reading."""
        return [len(rows)]

    @abstractmethod
    def digest(self) -> bytes:
        """Bytes that tell this data from other data."""


class InMemory(Rows):
    """Rows of tensors or arrays.

    Arguments:
        inputs: `[row, *features]`; packed where there are parts.
        targets: `[row]` or `[row, target]`.
        weights: one number ≥ 0 per row.
    """

    def __init__(self, inputs: Tensor, targets: Tensor, weights: Tensor | None = None, parts: Any = None) -> None:
        super().__init__(len(inputs), parts)
        require(len(targets) == self.n, "targets", f"as long as `inputs`, {self.n} rows", len(targets))
        self.inputs, self.targets, self.weights = inputs, targets, weights

    def read(self, rows: np.ndarray) -> Read:
        index = torch.from_numpy(np.asarray(rows, dtype=np.int64)).to(self.inputs.device)
        weights = None if self.weights is None else self.weights.index_select(0, index)
        return self.inputs.index_select(0, index), self.targets.index_select(0, index), weights

    def digest(self) -> bytes:
        digest = hashlib.sha256()
        for tensor in (self.inputs, self.targets, self.weights):
            if tensor is not None:
                digest.update(repr(tuple(tensor.shape)).encode())
                digest.update(tensor.contiguous().numpy().data)
        return digest.digest()


class Streamed(Rows):
    """Rows of a map-style dataset whose items are `(input, target)`, `(input, target, weight)` or dicts (see `split_item`).

    Arguments:
        dataset: anything with `__len__` and `__getitem__`.
        workers: processes that read ahead.
    """

    chunk_rows = 256

    def __init__(self, dataset: Dataset[Any], workers: int = 0) -> None:
        check_kind(dataset)
        super().__init__(len(dataset))  # type: ignore[arg-type]
        self.dataset, self.workers = dataset, workers
        self.parts = InputParts.of_item(split_item(_first_item(dataset))[0])

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_ahead"}

    @cached_property
    def _ahead(self) -> tuple[list[Any], DataLoader[Any]]:
        """Batches of rows, exchanged between epochs so that workers live on, and what reads them ahead."""
        batches: list[Any] = []
        workers: dict[str, Any] = {"num_workers": self.workers, "persistent_workers": self.workers > 0}
        return batches, DataLoader(self.dataset, batch_sampler=batches, pin_memory=torch.cuda.is_available(), **workers)

    def blocks(self, blocks: Sequence[np.ndarray], draws: Draws) -> Iterator[Read]:
        batches, loader = self._ahead
        of_blocks = (zip(block, draws, strict=True) for block in blocks)
        batches[:] = [[Row(row, draw) for rows, draw in block for row in rows] for block in of_blocks]
        yield from map(self.unpack_batch, loader)

    def read(self, rows: np.ndarray) -> Read:
        return self.unpack_batch(default_collate([self.dataset[Row(row)] for row in rows]))

    def unpack_batch(self, batch: Any) -> Read:
        """Inputs, targets and weights of a collated batch of the dataset's items."""
        inputs, targets, weights = split_item(batch)
        targets = targets.squeeze(-1) if targets.dim() == 2 and targets.shape[1] == 1 else targets
        return inputs if self.parts is None else self.parts.pack(inputs), targets, weights

    def digest(self) -> bytes:
        """The number of rows and the first few: to read all could take hours."""
        inputs, targets, _ = self.read(np.arange(min(16, self.n)))
        return repr(self.n).encode() + inputs.contiguous().numpy().tobytes() + targets.contiguous().numpy().tobytes()


def _first_item(dataset: Any) -> Any:
    try:
        return dataset[Row(0)]
    except (LookupError, TypeError, AttributeError, NotImplementedError) as error:
        raise TypeError(f"`inputs` must be a map-style dataset with rows 0, 1, …, got {type(dataset).__name__}, whose row 0 "
                        f"cannot be read ({type(error).__name__}: {str(error)[:80]})") from error  # fmt: skip


@dataclass(frozen=True)
class RowStatistics:
    """What is measured on the rows that a run trains on.

    Arguments:
        standardization: of inputs, and of targets by location and scale.
        mean_weight: of a row.
        targets: their moments.
    """

    standardization: Standardization
    mean_weight: float
    targets: Moments

    def for_head(self, scaling: str | None, is_censored: bool) -> Standardization:
        """The standardisation that a head's `scaling` asks for: of location and scale, of the scale alone, or of neither.

        Where targets are times and whether they were events', there is a unit for the times alone.
        """
        y, shift, scale = self.targets, self.standardization.target_shift, self.standardization.target_scale
        if scaling not in ("location-scale", "scale") or shift is None or scale is None:
            return replace(self.standardization, target_shift=None, target_scale=None)
        if is_censored:
            y, shift, scale = y.part(slice(0, 1), ()), shift[0], scale[0]
        if scaling == "scale":
            mean = torch.where(y.low >= 0, y.mean, torch.hypot(y.mean, y.deviation))
            shift, scale = torch.zeros_like(shift), torch.where(mean > 0, mean, torch.ones_like(mean))
        usable = bool(((scale > 1e-140) & (scale < 1e140)).all())
        require(usable, "targets", "of a standard deviation between 1e-140 and 1e140", scale.tolist(), "change their unit")
        return replace(self.standardization, target_shift=shift, target_scale=scale)


@dataclass(frozen=True)
class RobustScaling:
    """Numbers minus their median, in units of their interquartile range: outliers do not squeeze the others together.

    For normal numbers the unit is the standard deviation, and so it is where more than half of the rows share a value.

    Arguments:
        n_rows: how many rows, evenly spaced, quantiles are taken of.
    """

    n_rows: int = 50_000

    def __call__(self, rows: Rows, index: np.ndarray, usual: Moments, of_targets: bool = False) -> tuple[Tensor, Tensor]:
        """Median and unit of each dimension of inputs or targets; `usual` are their moments."""
        inputs, targets, _ = rows.read(evenly_spaced(index, self.n_rows))
        values = (targets if of_targets else inputs).double().numpy()
        low, median, high = torch.from_numpy(np.quantile(values, (0.25, 0.5, 0.75), axis=0))
        scale = (high - low) / 1.349
        return median, torch.where(scale > 0, scale, usual.scale())


Scaling = bool | RobustScaling


def row_statistics(rows: Rows, index: np.ndarray, of_inputs: Scaling, of_targets: Scaling = True) -> RowStatistics:
    """Measure the rows that a run trains on, in one pass; quantiles take another."""
    x, y, mean_weight = rows.moments(index)
    if not bool(x.mean.isfinite().all()) or not bool(y.mean.isfinite().all()):
        raise ValueError("`inputs` and `targets` must be finite, got NaN or infinity")
    shift, scale, reach = _input_units(x, rows.parts)
    if isinstance(of_inputs, RobustScaling) and x.mean.dim() == 1 and rows.parts is None:
        shift, scale = of_inputs(rows, index, x)
    inputs: tuple[Any, Any, Any] = (shift, scale, reach / scale) if of_inputs else (None, None, reach)
    units = of_targets(rows, index, y, of_targets=True) if isinstance(of_targets, RobustScaling) else (y.mean, y.scale())
    return RowStatistics(Standardization(*inputs, units[0], units[1]), mean_weight, y)


def _input_units(x: Moments, parts: InputParts | None) -> tuple[Tensor, Tensor, Tensor]:
    """Shift, scale and range of input dimensions; of whole-number parts 0, 1 and 0, so that nothing changes them."""
    if parts is None:
        pooled = x.pooled()
        return pooled.mean.expand_as(x.mean), pooled.scale().expand_as(x.mean), x.high - x.low
    units = torch.zeros_like(x.mean), torch.ones_like(x.mean), torch.zeros_like(x.mean)
    for span, shape, whole in zip(parts.spans(), parts.shapes, parts.whole, strict=True):
        if not whole:
            for unit, values in zip(units, _input_units(x.part(span, shape), None), strict=True):
                unit[span] = values.reshape(-1)
    return units
