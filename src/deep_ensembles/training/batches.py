"""Batches: which rows each step of each run takes, and these rows standardised for the run, on the device."""

import copy
import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader

from deep_ensembles.training.blocks import Surveyed
from deep_ensembles.training.data import InMemory, Row, Rows, RowStatistics, Standardization, Streamed

Draws = Sequence[tuple[int, int] | None]
Steps = list[list[int]]  # their sizes, block by block
# A loader, and which of its rows a run with some rows may see, if that is not those.
Reading = tuple["BatchLoader", Callable[[np.ndarray], np.ndarray] | None]

_BLOCK_BYTES = 8 * 2**20
_PREPARED_BYTES = 256 * 2**20


@dataclass(frozen=True)
class Block:
    """A few consecutive steps of some runs: inputs `[run, row, …]`, to be split along rows into steps of `sizes`.

    Weights have mean 1 over the rows of each run.
    """

    inputs: Tensor
    targets: Tensor
    weights: Tensor | None
    sizes: list[int]


class BatchLoader(ABC):
    """Loads the batches of a training.

    Arguments:
        statistics: those of distinct sets of rows.
        groups: the number of each run's statistics.
        like: a tensor of the dtype and on the device that batches should have.
    """

    rows: Rows

    def __init__(self, statistics: Sequence[RowStatistics], groups: Sequence[int], like: Tensor) -> None:
        self.groups, self.device, self.dtype = np.asarray(groups), like.device, like.dtype
        self.standardization = Standardization.stack([known.standardization for known in statistics]).to(like.device)
        self.mean_weights = torch.tensor([known.mean_weight for known in statistics], dtype=torch.float64)

    def readings(self, epoch: int) -> Iterator[Reading]:
        """What an epoch reads one after the other; all at once, unless there is more than memory holds."""
        yield self, None

    @abstractmethod
    def group_steps(self, n_runs: int, sizes: list[int]) -> Steps:
        """The steps of so many runs, grouped into blocks that are read at once."""

    @abstractmethod
    def blocks(self, index: np.ndarray, runs: Sequence[int], parts: Steps, draws: Draws | None = None) -> Iterator[Block]:
        """The rows `index[run, row]`, block by block; in training, `draws` has each run's seed and epoch."""

    def relative(self, weights: Tensor, groups: Sequence[int]) -> Tensor:
        """Weights `[run, row]` in units of each run's mean weight."""
        return (weights.double() / self.mean_weights[list(groups)].unsqueeze(1)).to(self.device, self.dtype)


def batch_loader(rows: Rows, statistics: Sequence[RowStatistics], groups: Sequence[int], like: Tensor) -> BatchLoader:
    """The loader for this kind of rows."""
    kind: Any = _MemoryLoader if isinstance(rows, InMemory) else _StreamLoader
    return kind(rows, statistics, groups, like)


class _MemoryLoader(BatchLoader):
    """Rows are standardised once per distinct statistics where that is small, else as they are drawn."""

    def __init__(self, rows: InMemory, statistics: Sequence[RowStatistics], groups: Sequence[int], like: Tensor) -> None:
        super().__init__(statistics, groups, like)
        self.rows, self.row_bytes, n = rows, max(1, math.prod(rows.inputs.shape[1:])) * 4, len(statistics)
        self._take(rows, prepared=n == 1 or n * rows.n * self.row_bytes <= _PREPARED_BYTES)

    def readings(self, epoch: int) -> Iterator[Reading]:
        if not isinstance(self.rows, Surveyed):
            yield self, None
            return
        for buffer, folds in self.rows.buffers(epoch):
            loader = copy.copy(self)
            loader._take(buffer, prepared=False)
            yield loader, partial(self.rows.seen, folds)

    def _take(self, rows: InMemory, prepared: bool) -> None:
        self.n, self.weights, self.prepared = rows.n, rows.weights, prepared
        ranges = [slice(g, g + 1) for g in range(len(self.mean_weights))]
        self.inputs = rows.inputs.to("cpu" if self.device.type == "mps" else self.device)
        targets = rows.targets.to(self.inputs.device)
        if self.prepared:
            inputs = [self.standardization.inputs(self.inputs[None], self.dtype, group)[0] for group in ranges]
            self.inputs = _joined(inputs).to(self.device)
        parts = [self.standardization.targets(targets[None], self.dtype, group)[0] for group in ranges]
        self.targets = _joined(parts).to(self.device)

    def group_steps(self, n_runs: int, sizes: list[int]) -> Steps:
        rows = max(1, _BLOCK_BYTES // (self.row_bytes * n_runs))
        parts: Steps = []
        filled = rows
        for size in sizes:
            if filled + size > rows:
                parts.append([])
                filled = 0
            parts[-1].append(size)
            filled += size
        return parts

    def blocks(self, index: np.ndarray, runs: Sequence[int], parts: Steps, draws: Draws | None = None) -> Iterator[Block]:
        ends = itertools.accumulate(map(sum, parts), initial=0)
        for (start, stop), part in zip(itertools.pairwise(ends), parts, strict=True):
            yield self._block(index[:, start:stop], self.groups[list(runs)], part)

    def _block(self, index: np.ndarray, groups: np.ndarray, sizes: list[int]) -> Block:
        shape = index.shape
        flat = torch.from_numpy(index.reshape(-1))
        offset = torch.from_numpy((index + groups[:, None] * self.n).reshape(-1)) if groups.any() else flat
        offset = offset.to(self.device)
        inputs = self.inputs.index_select(0, offset if self.prepared else flat.to(self.inputs.device))
        inputs = inputs.view(*shape, *inputs.shape[1:])
        if not self.prepared:
            inputs = self.standardization.inputs(inputs, self.dtype, groups.tolist()).to(self.device)
        targets = self.targets.index_select(0, offset)
        weights = None if self.weights is None else self.relative(self.weights[flat].view(shape), groups.tolist())
        return Block(inputs, targets.view(*shape, *targets.shape[1:]), weights, sizes)


def _joined(parts: Sequence[Tensor]) -> Tensor:
    """All parts as one tensor, row by row in memory; one alone that is so already is only read, and not copied."""
    return parts[0].contiguous() if len(parts) == 1 else torch.cat(list(parts))


class _StreamLoader(BatchLoader):
    """Rows are read ahead by a data loader, each step when it comes."""

    def __init__(self, rows: Streamed, statistics: Sequence[RowStatistics], groups: Sequence[int], like: Tensor) -> None:
        super().__init__(statistics, groups, like)
        self.rows: Streamed = rows
        self.batches: list[list[Row]] = []  # exchanged between epochs, so that workers live on
        workers, pinned = rows.workers, like.device.type == "cuda"
        self.data_loader = DataLoader(
            rows.dataset, batch_sampler=self.batches, num_workers=workers, persistent_workers=workers > 0, pin_memory=pinned
        )

    def group_steps(self, n_runs: int, sizes: list[int]) -> Steps:
        return [[size] for size in sizes]

    def blocks(self, index: np.ndarray, runs: Sequence[int], parts: Steps, draws: Draws | None = None) -> Iterator[Block]:
        steps = np.split(index, np.cumsum(list(itertools.chain(*parts)))[:-1], axis=1)
        drawn = draws or [None] * len(index)
        self.batches[:] = [
            [row for rows, draw in zip(step, drawn, strict=True) for row in Row.many(rows, draw)] for step in steps
        ]
        groups = self.groups[list(runs)].tolist()
        for shape, batch in zip((step.shape for step in steps), self.data_loader, strict=True):
            inputs, targets, weights = self.rows.unpack_batch(batch)
            inputs, targets = inputs.to(self.device), targets.to(self.device)
            inputs = self.standardization.inputs(inputs.view(*shape, *inputs.shape[1:]), self.dtype, groups)
            targets = self.standardization.targets(targets.view(*shape, *targets.shape[1:]), self.dtype, groups)
            relative = None if weights is None else self.relative(weights.view(shape), groups)
            yield Block(inputs, targets, relative, [shape[1]])


@dataclass(frozen=True)
class Segment:
    """Consecutive runs that take the same steps: batches of `sizes` rows, from a row and a step of their epoch on."""

    start: int
    stop: int
    first_row: int
    first_step: int
    sizes: list[int]

    @property
    def rows(self) -> slice:
        """The rows of the epoch that the segment covers."""
        return slice(self.first_row, self.first_row + sum(self.sizes))


def batch_sizes(n: int, size: int) -> list[int]:
    """Batch sizes for n rows; a last batch of a single row joins the one before it (batch norm needs two).

    Example:
        >>> batch_sizes(250, 100), batch_sizes(201, 100), batch_sizes(1, 100)
        ([100, 100, 50], [100, 101], [1])
    """
    sizes = [size] * (n // size) + ([n % size] if n % size else [])
    if size > 1 and len(sizes) > 1 and sizes[-1] == 1:
        sizes[-2:] = [sizes[-2] + 1]
    return sizes


def segments(counts: Sequence[int], batch_size: int) -> list[Segment]:
    """Steps that all runs take together first, then what is left, range by range of runs with equally many rows.

    No batch is ever padded: batch norm in one run must not see rows that another run needed.

    Example:
        >>> [(s.start, s.stop, s.sizes) for s in segments([250, 250, 230], 100)]
        [(0, 3, [100, 100]), (0, 2, [50]), (2, 3, [30])]
    """
    sizes = [batch_sizes(n, batch_size) for n in counts]
    shared = len(sizes[0])
    while any(other[:shared] != sizes[0][:shared] for other in sizes):
        shared -= 1
    result = [Segment(0, len(counts), 0, 0, sizes[0][:shared])] if shared else []
    for start, stop in equal_ranges(counts):
        if rest := sizes[start][shared:]:
            result.append(Segment(start, stop, sum(sizes[start][:shared]), shared, rest))
    return result


def split_segments(wide: Sequence[Segment], max_runs: int) -> list[Segment]:
    """The same steps for at most so many runs at a time.

    Example:
        >>> [(s.start, s.stop) for s in split_segments(segments([10] * 5, 10), 2)]
        [(0, 2), (2, 4), (4, 5)]
    """
    return [
        replace(segment, start=start, stop=min(start + max_runs, segment.stop))
        for segment in wide
        for start in range(segment.start, segment.stop, max_runs)
    ]


def equal_ranges(keys: Sequence[Hashable]) -> list[tuple[int, int]]:
    """Ranges of consecutive equal keys.

    Example:
        >>> equal_ranges("aabccc")
        [(0, 2), (2, 3), (3, 6)]
    """
    ends = [i for i in range(1, len(keys)) if keys[i] != keys[i - 1]]
    return list(itertools.pairwise([0, *ends, len(keys)]))
