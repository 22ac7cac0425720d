"""Batches for runs: rows of the data, standardised for each run, on the device."""

from __future__ import annotations

import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Sampler

from deep_ensembles.rows import InMemory, Row, Rows, Streamed, Survey, columns
from deep_ensembles.standardization import Standardization

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
