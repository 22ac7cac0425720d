"""Training data as rows: in memory, or streamed from a `torch.utils.data.Dataset`."""

from __future__ import annotations

import hashlib
import itertools
import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset, Sampler, default_collate

from deep_ensembles._checks import require
from deep_ensembles.standardization import Moments, Standardization

_BLOCK_BYTES = 8 * 2**20
_CHUNK_ROWS = 8192
_PREPARED_BYTES = 256 * 2**20


@dataclass(frozen=True)
class Block:
    """A few consecutive steps of some runs: inputs `[run, row, …]`, to be cut along rows into steps of `sizes`."""

    inputs: Tensor
    targets: Tensor
    weights: Tensor | None
    sizes: list[int]


def as_tensor(name: str, values: Any) -> Tensor:
    """Numbers of any kind as a tensor on the CPU, without a copy where that is possible; the tensor is only read."""
    if isinstance(values, Tensor):
        return values.detach().cpu()
    array = np.asarray(values)
    if array.dtype.kind not in "biuf":
        raise TypeError(f"`{name}` must be numbers, got {array.dtype} in {type(values).__name__}")
    if array.dtype.byteorder == ">" or (array.dtype.kind == "u" and array.dtype.itemsize > 1) or array.dtype.itemsize > 8:
        array = array.astype(np.float64 if array.dtype.kind == "f" else np.int64)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        return torch.from_numpy(array)


class Rows(ABC):
    """Rows of inputs, targets and optional weights, read by number."""

    def __init__(self, n: int) -> None:
        require(n > 0, "inputs", "at least one row", f"{n} rows")
        self.n = n

    def __len__(self) -> int:
        return self.n

    @abstractmethod
    def read(self, rows: np.ndarray) -> tuple[Tensor, Tensor, Tensor | None]:
        """Inputs, targets and weights of some rows, as they are."""

    def chunks(self, rows: np.ndarray) -> Iterator[tuple[Tensor, Tensor, Tensor | None]]:
        """The same in pieces of bounded size."""
        for start in range(0, len(rows), _CHUNK_ROWS):
            yield self.read(rows[start : start + _CHUNK_ROWS])

    @abstractmethod
    def digest(self) -> bytes:
        """Bytes that tell this data from other data."""

    @abstractmethod
    def feed(self, standardization: Standardization, groups: Sequence[int], like: Tensor) -> Feed:
        """What a session draws batches from, in dtype and on the device of `like`; run r is of group `groups[r]`."""


class Feed(ABC):
    """Standardised rows for runs, on the device."""

    @abstractmethod
    def parts(self, n_runs: int, sizes: list[int]) -> list[list[int]]:
        """The steps of so many runs, grouped into blocks that are read at once."""

    @abstractmethod
    def blocks(self, index: np.ndarray, runs: Sequence[int], parts: list[list[int]]) -> Iterator[Block]:
        """The rows `index[run, row]`, block by block."""


class InMemory(Rows):
    """Rows of tensors or arrays.

    Arguments:
        inputs: `[row, *features]`.
        targets: `[row]` or `[row, target]`.
        weights: one number ≥ 0 per row.
    """

    def __init__(self, inputs: Tensor, targets: Tensor, weights: Tensor | None = None) -> None:
        super().__init__(len(inputs))
        for name, other in (("targets", targets), ("weights", weights)):
            if other is not None and len(other) != self.n:
                raise ValueError(f"`{name}` must be as long as `inputs` ({self.n} rows), got {len(other)} rows")
        self.inputs, self.targets, self.weights = inputs, targets, weights

    def read(self, rows: np.ndarray) -> tuple[Tensor, Tensor, Tensor | None]:
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

    def feed(self, standardization: Standardization, groups: Sequence[int], like: Tensor) -> Feed:
        return _MemoryFeed(self, standardization, groups, like)


class _MemoryFeed(Feed):
    """Rows are standardised once per distinct standardisation where that is small, else as they are drawn."""

    def __init__(self, rows: InMemory, standardization: Standardization, groups: Sequence[int], like: Tensor) -> None:
        self.n, self.groups, self.device, self.dtype = rows.n, np.asarray(groups), like.device, like.dtype
        device = like.device
        self.standardization = standardization
        n_groups = int(self.groups.max()) + 1
        self.prepared = n_groups * rows.inputs.numel() * 4 <= _PREPARED_BYTES or n_groups == 1
        inputs = rows.inputs.to(device if device.type != "mps" else "cpu")
        if self.prepared:
            ranges = [slice(g, g + 1) for g in range(n_groups)]
            each = [standardization.inputs(inputs[None], self.dtype, only)[0] for only in ranges]
            self.inputs = torch.cat(each).to(device)
        else:
            self.inputs = inputs
        targets = rows.targets.to(self.inputs.device)
        each = [standardization.targets(targets[None], self.dtype, slice(g, g + 1))[0] for g in range(n_groups)]
        self.targets = torch.cat(each).to(device)
        self.weights = None if rows.weights is None else rows.weights.to(device, self.dtype)
        self.row_bytes = max(1, math.prod(rows.inputs.shape[1:])) * 4

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

    def blocks(self, index: np.ndarray, runs: Sequence[int], parts: list[list[int]]) -> Iterator[Block]:
        groups = self.groups[list(runs)]
        start = 0
        for part in parts:
            stop = start + sum(part)
            yield self._block(index[:, start:stop], groups, part)
            start = stop

    def _block(self, index: np.ndarray, groups: np.ndarray, sizes: list[int]) -> Block:
        shape = index.shape
        flat = torch.from_numpy(index.reshape(-1)).to(self.device)
        offset = flat
        if groups.any():
            offset = torch.from_numpy((index + groups[:, None] * self.n).reshape(-1)).to(self.device)
        inputs = self.inputs.index_select(0, offset if self.prepared else flat.to(self.inputs.device))
        inputs = inputs.view(*shape, *inputs.shape[1:])
        if not self.prepared:
            inputs = self.standardization.inputs(inputs, self.dtype, groups.tolist()).to(self.device)
        targets = self.targets.index_select(0, offset)
        weights = None if self.weights is None else self.weights[flat].view(shape)
        return Block(inputs, targets.view(*shape, *targets.shape[1:]), weights, sizes)


class Streamed(Rows):
    """Rows of a map-style dataset whose items are `(input, target)` or `(input, target, weight)`.

    Arguments:
        dataset: anything with `__len__` and `__getitem__`.
        workers: processes that read ahead.
    """

    def __init__(self, dataset: Dataset[Any], workers: int = 0) -> None:
        if isinstance(dataset, IterableDataset) or not hasattr(dataset, "__len__"):
            raise TypeError("`inputs` must be a map-style dataset (with `__len__` and `__getitem__`), got "
                            f"{type(dataset).__name__}; each member draws its own order of rows")  # fmt: skip
        super().__init__(len(dataset))
        self.dataset, self.workers = dataset, workers
        item = dataset[0]
        if not isinstance(item, (tuple, list)) or len(item) not in (2, 3):
            raise TypeError(f"items of the dataset must be (input, target) or (input, target, weight), got {type(item)}")

    def read(self, rows: np.ndarray) -> tuple[Tensor, Tensor, Tensor | None]:
        return _columns(default_collate([self.dataset[int(i)] for i in rows]))

    def chunks(self, rows: np.ndarray) -> Iterator[tuple[Tensor, Tensor, Tensor | None]]:
        batches = [part.tolist() for part in np.array_split(rows, math.ceil(len(rows) / 256))]
        for batch in DataLoader(self.dataset, batch_sampler=batches, num_workers=self.workers):
            yield _columns(batch)

    def digest(self) -> bytes:
        """The number of rows and the first few: to read all of them could take hours."""
        inputs, targets, _ = self.read(np.arange(min(16, self.n)))
        return repr(self.n).encode() + inputs.contiguous().numpy().tobytes() + targets.contiguous().numpy().tobytes()

    def feed(self, standardization: Standardization, groups: Sequence[int], like: Tensor) -> Feed:
        return _StreamFeed(self, standardization, groups, like)


class _StreamFeed(Feed):
    def __init__(self, rows: Streamed, standardization: Standardization, groups: Sequence[int], like: Tensor) -> None:
        self.standardization, self.groups = standardization, np.asarray(groups)
        self.device, self.dtype = like.device, like.dtype
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

    def blocks(self, index: np.ndarray, runs: Sequence[int], parts: list[list[int]]) -> Iterator[Block]:
        ends = np.cumsum([0, *(size for part in parts for size in part)])
        steps = [index[:, a:b] for a, b in itertools.pairwise(ends)]
        self.sampler.batches = [step.reshape(-1).tolist() for step in steps]
        groups = self.groups[list(runs)].tolist()
        for step, batch in zip(steps, self.loader, strict=True):
            inputs, targets, weights = _columns(batch)
            shape = step.shape
            inputs = self.standardization.inputs(inputs.view(*shape, *inputs.shape[1:]), self.dtype, groups)
            targets = self.standardization.targets(targets.view(*shape, *targets.shape[1:]), self.dtype, groups)
            weights = None if weights is None else weights.to(self.device, self.dtype).view(shape)
            inputs, targets = inputs.to(self.device), targets.to(self.device)
            yield Block(inputs, targets, weights, [shape[1]])


class _Batches(Sampler[list[int]]):
    """Lists of row numbers that can be exchanged between epochs, so that workers live on."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []

    def __iter__(self) -> Iterator[list[int]]:
        return iter(self.batches)

    def __len__(self) -> int:
        return len(self.batches)


def _columns(batch: Sequence[Tensor]) -> tuple[Tensor, Tensor, Tensor | None]:
    inputs, targets = batch[0], batch[1]
    targets = targets.squeeze(-1) if targets.dim() == 2 and targets.shape[1] == 1 else targets
    return inputs, targets, batch[2] if len(batch) == 3 else None


@dataclass(frozen=True)
class Survey:
    """What a run's own rows say: its standardisation, the mean weight, and the greatest target."""

    standardization: Standardization
    mean_weight: float
    greatest_target: float


def survey(rows: Rows, index: np.ndarray, standardize_inputs: bool, standardize_targets: bool) -> Survey:
    """Look once at the rows that a run trains on."""
    x, y, total = _moments(rows, index)
    if not bool(x.mean.isfinite().all()) or not bool(y.mean.isfinite().all()):
        raise ValueError("`inputs` and `targets` must be finite, got NaN or infinity")
    parts = {"input_range": x.high - x.low}
    if standardize_inputs:
        pooled = x.pooled()
        shift, scale = pooled.mean.expand_as(x.mean), pooled.scale().expand_as(x.mean)
        parts = {"input_range": (x.high - x.low) / scale, "input_shift": shift, "input_scale": scale}
    if standardize_targets:
        scale = y.scale()
        if not bool(((scale > 1e-140) & (scale < 1e140)).all()):
            raise ValueError("`targets` must have a standard deviation between 1e-140 and 1e140, "
                             f"got {scale.tolist()}; change their unit")  # fmt: skip
        parts |= {"target_shift": y.mean, "target_scale": scale}
    return Survey(Standardization(**parts), total / len(index), float(y.high.max()))


def _moments(rows: Rows, index: np.ndarray) -> tuple[Moments, Moments, float]:
    """Moments of inputs and targets, and the sum of weights, in one pass."""
    x: Moments | None = None
    y: Moments | None = None
    total = 0.0
    for inputs, targets, weights in rows.chunks(index):
        own_x, own_y = Moments.of(inputs, weights), Moments.of(targets, weights)
        x, y = (own_x, own_y) if x is None or y is None else (x.merged(own_x), y.merged(own_y))
        total += float(len(inputs) if weights is None else weights.double().sum())
    assert x is not None
    assert y is not None
    return x, y, total
