"""Batches: which rows each step of each run takes, and these rows standardised for the run, on the device."""

import itertools
import math
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from deep_ensembles.training.data import Draws, InMemory, Rows, Standardization

Batch = tuple[Any, Any, Any]  # inputs and targets `[run, row, …]`, and weights, of mean 1 over a run's rows, or None
Steps = list[list[int]]  # their sizes, block by block

_BLOCK_BYTES = 8 * 2**20
_PREPARED_BYTES = 256 * 2**20


class BatchLoader:
    """Loads the batches of a training.

    Rows in memory are standardised once for each of their sets where that is small, all others as they are drawn.

    Arguments:
        rows: where they are from.
        standardization: one for each distinct set of rows that runs train on.
        mean_weights: of the rows of these sets.
        groups: the number of each run's set.
        like: a tensor of the dtype and on the device that batches should have.
    """

    def __init__(
        self, rows: Any, standardization: Standardization, mean_weights: Sequence[float], groups: Sequence[int], like: Tensor
    ) -> None:
        self.rows, self.groups, self.device, self.dtype = rows, np.asarray(groups), like.device, like.dtype
        self.precise = torch.device("cpu") if like.device.type == "mps" else like.device  # a device that has float64
        self.standardization = standardization.to(self.precise)
        self.mean_weights = torch.tensor(mean_weights, dtype=torch.float64, device=self.precise)
        self.prepared: InMemory | None = None  # all rows, set by set
        row_bytes, n = 4 * max(1, math.prod(rows.inputs.shape[1:])) if isinstance(rows, InMemory) else 0, len(mean_weights)
        self.block_rows = _BLOCK_BYTES // row_bytes if row_bytes else 0  # that are read at once; a step is not cut
        if row_bytes and (n == 1 or n * len(rows) * row_bytes <= _PREPARED_BYTES):
            whole = [self.standardized((rows.inputs, rows.targets, rows.weights), [group]) for group in range(n)]
            self.prepared = InMemory(*map(_joined, zip(*whole, strict=True)))

    def group_steps(self, n_runs: int, sizes: list[int]) -> Steps:
        """The steps of so many runs, grouped into blocks that are read at once."""
        parts: Steps = []
        filled = most = self.block_rows // n_runs
        for size in sizes:
            if filled + size > most:
                parts.append([])
                filled = 0
            parts[-1].append(size)
            filled += size
        return parts

    def blocks(
        self, index: np.ndarray, runs: Sequence[int], parts: Steps, draws: Draws | None = None, reading: Rows | None = None
    ) -> Iterator[Batch]:
        """The rows `index[run, row]`, all steps of a block as one; in training, `draws` has each run's seed and epoch.

        Arguments:
            reading: where rows are read, if these are not all of them (see `Rows.readings`).
        """
        groups, rows = self.groups[list(runs)], self.rows if reading is None else reading
        ends, draws = np.cumsum(list(map(sum, parts)))[:-1], draws or [None] * len(index)
        if self.prepared is None or rows is not self.rows:
            reads = rows.blocks(np.split(index, ends, axis=1), draws)
            return (self.standardized(read, groups.tolist()) for read in reads)
        places = index + groups[:, None] * len(self.rows)
        reads = self.prepared.blocks(np.split(places, ends, axis=1), draws)
        return (_by_run(read, len(groups), self.device) for read in reads)

    def standardized(self, read: Batch, groups: Sequence[int]) -> Batch:
        """Inputs, targets and weights as they were read, `[run · row, …]`, in the units of each run: `[run, row, …]`."""
        inputs, targets, weights = _by_run(read, len(groups), self.precise)
        inputs = self.standardization.inputs(inputs, self.dtype, groups).to(self.device)
        targets = self.standardization.targets(targets, self.dtype, groups).to(self.device)
        if weights is not None:
            weights = (weights.double() / self.mean_weights[groups].unsqueeze(1)).to(self.dtype).to(self.device)
        return inputs, targets, weights


def _by_run(read: Batch, n_runs: int, device: torch.device) -> Batch:
    """Rows `[run · row, …]` as `[run, row, …]`."""
    inputs, targets, weights = (None if part is None else part.to(device).view(n_runs, -1, *part.shape[1:]) for part in read)
    return inputs, targets, weights


def _joined(parts: Sequence[Any]) -> Any:
    """Rows `[1, row, …]` of all parts as one tensor, if there are any; one part alone is not copied."""
    if parts[0] is None:
        return None
    return parts[0][0].contiguous() if len(parts) == 1 else torch.cat([part[0] for part in parts])


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

    def after(self, done: Steps, first_step: int) -> "Segment":
        """What is left of it after some steps, where its epoch has had `first_step` steps before its rows were read."""
        n_rows, n_steps = sum(map(sum, done)), sum(map(len, done))
        step = first_step + self.first_step + n_steps
        return replace(self, first_row=self.first_row + n_rows, first_step=step, sizes=self.sizes[n_steps:])


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


def segments(counts: Sequence[int], batch_size: int, max_runs: int | None = None) -> list[Segment]:
    """Steps that all runs take together first, then what is left, range by range of runs with equally many rows.

    No batch is ever padded: batch norm in one run must not see rows that another run needed.

    Arguments:
        counts: how many rows each run has.
        max_runs: how many runs may go together; None for any number.

    Example:
        >>> [(s.start, s.stop, s.sizes) for s in segments([250, 250, 230], 100)]
        [(0, 3, [100, 100]), (0, 2, [50]), (2, 3, [30])]
        >>> [(s.start, s.stop) for s in segments([10] * 5, 10, max_runs=2)]
        [(0, 2), (2, 4), (4, 5)]
    """
    sizes = [batch_sizes(n, batch_size) for n in counts]
    shared = sum(1 for _ in itertools.takewhile(lambda step: len(set(step)) == 1, zip(*sizes, strict=False)))
    wide = [(0, len(counts), 0, shared)] + [(*ends, shared, len(sizes[ends[0]])) for ends in equal_ranges(counts)]
    return [
        Segment(first, min(first + (max_runs or stop), stop), sum(sizes[start][:step]), step, sizes[start][step:end])
        for start, stop, step, end in wide
        if step < end
        for first in range(start, stop, max_runs or stop)
    ]


def equal_ranges(keys: Sequence[Hashable]) -> list[tuple[int, int]]:
    """Ranges of consecutive equal keys.

    Example:
        >>> equal_ranges("aabccc")
        [(0, 2), (2, 3), (3, 6)]
    """
    ends = [i for i in range(1, len(keys)) if keys[i] != keys[i - 1]]
    return list(itertools.pairwise([0, *ends, len(keys)]))
