"""Batches for runs: rows of the data, standardised for each run, on the device."""

from __future__ import annotations

import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Sampler

from deep_ensembles.training.data import InMemory, Row, Rows, Streamed, Survey, columns
from deep_ensembles.training.standardization import Standardization

Draws: TypeAlias = Sequence[tuple[int, int]]

_BLOCK_BYTES = 8 * 2**20
_PREPARED_BYTES = 256 * 2**20


@dataclass(frozen=True)
class Block:
    """A few consecutive steps of some runs: inputs `[run, row, …]`, to be cut along rows into steps of `sizes`.

    Weights have mean 1 over the rows of each run.
    """

    inputs: Tensor
    targets: Tensor
    weights: Tensor | None
    sizes: list[int]


class Feed(ABC):
    """Where a training session draws its batches from.

    Arguments:
        surveys: what distinct sets of rows say about themselves.
        groups: the number of each run's survey.
        like: a tensor of the dtype and on the device that batches should have.
    """

    def __init__(self, surveys: Sequence[Survey], groups: Sequence[int], like: Tensor) -> None:
        self.groups, self.device, self.dtype = np.asarray(groups), like.device, like.dtype
        self.standardization = Standardization.stack([each.standardization for each in surveys]).to(like.device)
        self.mean_weights = torch.tensor([each.mean_weight for each in surveys], dtype=torch.float64)

    @abstractmethod
    def parts(self, n_runs: int, sizes: list[int]) -> list[list[int]]:
        """The steps of so many runs, grouped into blocks that are read at once."""

    @abstractmethod
    def blocks(
        self, index: np.ndarray, runs: Sequence[int], parts: list[list[int]], draws: Draws | None = None
    ) -> Iterator[Block]:
        """The rows `index[run, row]`, block by block; in training, `draws` has each run's seed and epoch."""

    def relative(self, weights: Tensor, groups: Sequence[int]) -> Tensor:
        """Weights `[run, row]` in units of each run's mean weight."""
        return (weights.double() / self.mean_weights[list(groups)].unsqueeze(1)).to(self.device, self.dtype)


def feed_of(rows: Rows, surveys: Sequence[Survey], groups: Sequence[int], like: Tensor) -> Feed:
    """The feed that fits the kind of rows."""
    if isinstance(rows, InMemory):
        return _MemoryFeed(rows, surveys, groups, like)
    assert isinstance(rows, Streamed)
    return _StreamFeed(rows, surveys, groups, like)


class _MemoryFeed(Feed):
    """Rows are standardised once per survey where that is small, else as they are drawn."""

    def __init__(self, rows: InMemory, surveys: Sequence[Survey], groups: Sequence[int], like: Tensor) -> None:
        super().__init__(surveys, groups, like)
        self.n, self.weights = rows.n, rows.weights
        self.row_bytes = max(1, math.prod(rows.inputs.shape[1:])) * 4
        ranges = [slice(g, g + 1) for g in range(len(surveys))]
        self.prepared = len(surveys) == 1 or len(surveys) * rows.n * self.row_bytes <= _PREPARED_BYTES
        self.inputs = rows.inputs.to("cpu" if self.device.type == "mps" else self.device)
        targets = rows.targets.to(self.inputs.device)
        if self.prepared:
            each = [self.standardization.inputs(self.inputs[None], self.dtype, only)[0] for only in ranges]
            self.inputs = _joined(each).to(self.device)
        each = [self.standardization.targets(targets[None], self.dtype, only)[0] for only in ranges]
        self.targets = _joined(each).to(self.device)

    def parts(self, n_runs: int, sizes: list[int]) -> list[list[int]]:
        rows = max(1, _BLOCK_BYTES // (self.row_bytes * n_runs))
        parts: list[list[int]] = []
        filled = rows
        for size in sizes:
            if filled + size > rows:
                parts.append([])
                filled = 0
            parts[-1].append(size)
            filled += size
        return parts

    def blocks(
        self, index: np.ndarray, runs: Sequence[int], parts: list[list[int]], draws: Draws | None = None
    ) -> Iterator[Block]:
        groups = self.groups[list(runs)]
        start = 0
        for part in parts:
            stop = start + sum(part)
            yield self._block(index[:, start:stop], groups, part)
            start = stop

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


class _StreamFeed(Feed):
    """Rows are read ahead by a data loader, each step when it comes."""

    def __init__(self, rows: Streamed, surveys: Sequence[Survey], groups: Sequence[int], like: Tensor) -> None:
        super().__init__(surveys, groups, like)
        self.sampler = _Batches()
        self.loader = DataLoader(
            rows.dataset,
            batch_sampler=self.sampler,
            num_workers=rows.workers,
            persistent_workers=rows.workers > 0,
            pin_memory=like.device.type == "cuda",
        )

    def parts(self, n_runs: int, sizes: list[int]) -> list[list[int]]:
        return [[size] for size in sizes]

    def blocks(
        self, index: np.ndarray, runs: Sequence[int], parts: list[list[int]], draws: Draws | None = None
    ) -> Iterator[Block]:
        ends = np.cumsum([0, *(size for part in parts for size in part)])
        steps = [index[:, a:b] for a, b in itertools.pairwise(ends)]
        drawn: Sequence[tuple[int, int] | None] = draws or [None] * len(index)
        self.sampler.batches = [
            [row for own, draw in zip(step, drawn, strict=True) for row in Row.many(own, draw)] for step in steps
        ]
        groups = self.groups[list(runs)].tolist()
        for step, batch in zip(steps, self.loader, strict=True):
            inputs, targets, weights = columns(batch)
            shape = step.shape
            inputs, targets = inputs.to(self.device), targets.to(self.device)
            inputs = self.standardization.inputs(inputs.view(*shape, *inputs.shape[1:]), self.dtype, groups)
            targets = self.standardization.targets(targets.view(*shape, *targets.shape[1:]), self.dtype, groups)
            relative = None if weights is None else self.relative(weights.view(shape), groups)
            yield Block(inputs, targets, relative, [shape[1]])


class _Batches(Sampler[list[Row]]):
    """Lists of row numbers that can be exchanged between epochs, so that workers live on."""

    def __init__(self) -> None:
        self.batches: list[list[Row]] = []

    def __iter__(self) -> Iterator[list[Row]]:
        return iter(self.batches)

    def __len__(self) -> int:
        return len(self.batches)


@dataclass(frozen=True)
class Segment:
    """Consecutive runs that take the same steps: from row `column` and step `step` of their epoch, in `sizes`."""

    start: int
    stop: int
    column: int
    step: int
    sizes: list[int]

    @property
    def columns(self) -> slice:
        """The rows of the epoch that the segment covers."""
        return slice(self.column, self.column + sum(self.sizes))


def cut(n: int, size: int) -> list[int]:
    """Batch sizes for n rows; a last batch of a single row joins the one before it (batch norm needs two).

    Example:
        >>> cut(250, 100), cut(201, 100), cut(1, 100)
        ([100, 100, 50], [100, 101], [1])
    """
    sizes = [size] * (n // size) + ([n % size] if n % size else [])
    if size > 1 and len(sizes) > 1 and sizes[-1] == 1:
        sizes[-2:] = [sizes[-2] + 1]
    return sizes


def segments(counts: Sequence[int], batch_size: int) -> list[Segment]:
    """Steps that all runs take together first, then what is left, range by range of runs that are alike.

    No batch is ever padded: batch norm in one run must not see rows that another run needed.

    Example:
        >>> [(s.start, s.stop, s.sizes) for s in segments([250, 250, 230], 100)]
        [(0, 3, [100, 100]), (0, 2, [50]), (2, 3, [30])]
    """
    sizes = [cut(n, batch_size) for n in counts]
    shared = len(sizes[0])
    while any(own[:shared] != sizes[0][:shared] for own in sizes):
        shared -= 1
    found = [Segment(0, len(counts), 0, 0, sizes[0][:shared])] if shared else []
    for start, stop in alike(counts):
        if rest := sizes[start][shared:]:
            found.append(Segment(start, stop, sum(sizes[start][:shared]), shared, rest))
    return found


def narrowed(wide: Sequence[Segment], runs: int) -> list[Segment]:
    """The same steps with at most so many runs at a time.

    Example:
        >>> [(s.start, s.stop) for s in narrowed(segments([10] * 5, 10), 2)]
        [(0, 2), (2, 4), (4, 5)]
    """
    return [
        replace(segment, start=start, stop=min(start + runs, segment.stop))
        for segment in wide
        for start in range(segment.start, segment.stop, runs)
    ]


def alike(keys: Sequence[Hashable]) -> list[tuple[int, int]]:
    """Ranges of consecutive equal keys.

    Example:
        >>> alike("aabccc")
        [(0, 2), (2, 3), (3, 6)]
    """
    ends = [i for i in range(1, len(keys)) if keys[i] != keys[i - 1]]
    return list(itertools.pairwise([0, *ends, len(keys)]))
