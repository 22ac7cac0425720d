"""Rows that are larger than memory: surveyed in one pass, then read block by block and shuffled through a buffer."""

import math
import mmap
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from itertools import compress, zip_longest
from typing import Any

import numpy as np
import torch

from deep_ensembles._checks import require
from deep_ensembles._random import Purpose
from deep_ensembles._tensors import as_tensor
from deep_ensembles.training.data import InMemory, Moments, Seen

BUFFER_BYTES = 2**26  # of inputs that are shuffled together
SAMPLE_ROWS = 50_000
_BLOCKS_AT_ONCE = 8  # blocks that give rows to a buffer in turn
_BLOCKS_PER_BUFFER = 32  # of an array, which can be read anywhere
_PIECE_ROWS, _PIECE_NUMBERS = 2**15, 2**20


@dataclass(frozen=True, eq=False)
class Piece:
    """Some rows of a block.

    Arguments:
        inputs, targets: of the rows.
        weights: rows of weight 0 are left out; None for equal weights. All pieces of a source have weights, or none has.
        keys: 64 bits per row; rows with the same are held out together. None for those of `row_keys`.
    """

    inputs: np.ndarray
    targets: np.ndarray
    weights: np.ndarray | None = None
    keys: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.inputs)

    def take(self, rows: Any) -> "Piece":
        """Some of the rows."""
        return Piece(*(None if part is None else part[rows] for part in vars(self).values()))  # type: ignore[arg-type]

    def tensors(self) -> list[Any]:
        """Inputs, targets and weights."""
        return [None if part is None else torch.from_numpy(part) for part in (self.inputs, self.targets, self.weights)]

    @staticmethod
    def joined(pieces: "Sequence[Piece]") -> "Piece":
        """All rows of several pieces."""
        columns = zip(*(vars(piece).values() for piece in pieces), strict=True)
        return Piece(*(None if parts[0] is None else np.concatenate(parts) for parts in columns))  # type: ignore[arg-type]


class BlockSource(ABC):
    """Rows in blocks that can be read in any order, such as the row groups of Parquet files.

    Arguments:
        n_rows: how many rows there are, those of weight 0 included.
        n_blocks: how many blocks.
        numbers: those of the rows that a survey keeps in memory, in order; None for `sample_numbers`.
    """

    n_rows: int
    n_blocks: int
    numbers: np.ndarray | None = None

    @abstractmethod
    def pieces(self, block: int) -> Iterator[Piece]:
        """The rows of a block in order, some at a time."""


class ArrayBlocks(BlockSource):
    """Rows of a memory-mapped array, whose targets and weights may be in any array.

    Arguments:
        inputs: `[row, feature, …]`.
        targets: `[row]` or `[row, target]`.
        weights: one number ≥ 0 per row.
    """

    def __init__(self, inputs: np.memmap[Any, Any], targets: Any, weights: Any = None) -> None:
        self.arrays = {"inputs": inputs, "targets": targets} | ({} if weights is None else {"sample_weight": weights})
        self.n_rows, row = len(inputs), math.prod(inputs.shape[1:])
        require(inputs.ndim >= 2, "inputs", "of shape [row, feature, …]", list(inputs.shape))
        for name, array in self.arrays.items():
            require(len(array) == self.n_rows, name, f"as long as `inputs`, {self.n_rows} rows", len(array))
        self.block_rows = max(1, min(piece_rows(row), buffer_rows(row * inputs.itemsize) // _BLOCKS_PER_BUFFER))
        self.n_blocks = math.ceil(self.n_rows / self.block_rows)

    def pieces(self, block: int) -> Iterator[Piece]:
        span = slice(block * self.block_rows, (block + 1) * self.block_rows)
        inputs, targets, *weights = (_read(name, array[span]) for name, array in self.arrays.items())
        targets = targets[:, 0] if targets.ndim == 2 and targets.shape[1] == 1 else targets
        yield Piece(inputs, targets, weights[0].astype(np.float64) if weights else None)


def _read(name: str, values: Any) -> np.ndarray:
    """A copy of these rows; the pages of a file that they came from need not stay in memory."""
    read = np.array(as_tensor(name, values).numpy())
    if isinstance(values, np.memmap) and getattr(values, "mode", "c") != "c" and hasattr(mmap, "MADV_DONTNEED"):
        values._mmap.madvise(mmap.MADV_DONTNEED)  # type: ignore[attr-defined]
    return read.astype(np.int64) if read.dtype == bool else read


def is_large_map(inputs: Any) -> bool:
    """Whether this is a memory-mapped array of more than one buffer."""
    return isinstance(inputs, np.memmap) and inputs.nbytes > BUFFER_BYTES


def piece_rows(row_numbers: int) -> int:
    """How many rows of so many numbers are read at once."""
    return max(1, min(_PIECE_ROWS, _PIECE_NUMBERS // max(1, row_numbers)))


def buffer_rows(row_bytes: int) -> int:
    """How many rows of so many bytes are shuffled together."""
    return max(1, BUFFER_BYTES // max(1, row_bytes))


def sample_numbers(n_rows: int, row_bytes: int) -> np.ndarray:
    """The numbers of some of the rows, about one drawn from each of stretches of equal length; of all where they are few."""
    n = min(n_rows, SAMPLE_ROWS, buffer_rows(row_bytes))
    return np.unique(((np.arange(n) + np.random.default_rng(0).random(n)) * n_rows / n).astype(np.int64))


def row_keys(rows: np.ndarray) -> np.ndarray:
    """64 bits for each row that are the same for equal rows, and otherwise as good as random.

    Example:
        >>> keys = row_keys(np.array([[0.0, 1.0], [1.0, 0.0], [-0.0, 1.0]]))
        >>> bool(keys[0] == keys[2]), bool(keys[0] == keys[1])
        (True, False)
    """
    flat = rows.reshape(len(rows), math.prod(rows.shape[1:]))
    flat = np.ascontiguousarray(flat + 0 if flat.dtype.kind == "f" else flat)  # no -0.0
    bits = flat.view(f"u{flat.itemsize}").astype(np.uint64)
    bits ^= bits >> np.uint64(32)  # whole numbers as float64 end in zeros, which a product would keep
    keys = bits @ np.random.default_rng(0).integers(0, 2**64, bits.shape[1], dtype=np.uint64)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB), (31, 1)):
        keys = (keys ^ (keys >> np.uint64(shift))) * np.uint64(factor)
    return keys


class Surveyed(InMemory):
    """Rows of a source as one pass shows them: a sample in memory, and the moments of all, fold by fold.

    The steps of training read the source; everything else sees the sample: what networks are tried on, quantiles, held-out
    scores. The fold of a row is that of its key, wherever it is read, and a run trains on all rows of those folds that its
    rows of the sample are from.

    Arguments:
        source: where rows are read from.
        n_folds: how many folds there are; 1 where nothing is held out.
    """

    def __init__(self, source: BlockSource, n_folds: int) -> None:
        self.source, self.n_folds = source, n_folds
        self.known = [(Moments.of(torch.empty(0)), Moments.of(torch.empty(0)))] * n_folds  # inputs and targets of each fold
        first, sample, numbers = 0, [], [np.empty(0, dtype=np.int64)]
        for piece in (piece for block in range(source.n_blocks) for piece in source.pieces(block)):
            if not first:
                drawn = sample_numbers(source.n_rows, piece.inputs[0].nbytes) if source.numbers is None else source.numbers
            chosen = drawn[slice(*np.searchsorted(drawn, (first, first + len(piece))))]
            chosen = chosen if piece.weights is None else chosen[piece.weights[chosen - first] > 0]
            sample.append(self._dealt(piece.take(chosen - first)))
            numbers.append(chosen)
            self._add(self._dealt(piece))
            first += len(piece)
        self.numbers = np.concatenate(numbers)
        require(len(self.numbers) > 0, "inputs", "at least one row with a weight above 0", "none")
        whole = Piece.joined(sample)
        super().__init__(*whole.tensors())
        self.fold_of = np.asarray(whole.keys)
        present = len(np.unique(self.fold_of))
        require(present == n_folds, "inputs", f"rows of at least {n_folds} different kinds, one per fold", present)
        n, most = sum(x.count for x, _ in self.known), buffer_rows(whole.inputs[0].nbytes)
        self.sizes = np.diff(np.linspace(0, n, math.ceil(n / most) + 1).astype(np.int64)).tolist()  # of buffers

    def _dealt(self, piece: Piece) -> Piece:
        """The rows of weight above 0, with folds as keys."""
        piece = piece if piece.weights is None else piece.take(piece.weights > 0)
        keys = row_keys(piece.inputs) if piece.keys is None else piece.keys
        return Piece(piece.inputs, piece.targets, piece.weights, (keys % np.uint64(self.n_folds)).astype(np.int64))

    def _add(self, piece: Piece) -> None:
        for fold, (x, y) in enumerate(self.known):
            part = piece.take(piece.keys == fold) if self.n_folds > 1 else piece
            inputs, targets, weights = part.tensors()
            self.known[fold] = x.merged(Moments.of(inputs, weights)), y.merged(Moments.of(targets, weights))

    def folds_of(self, rows: np.ndarray) -> np.ndarray:
        """Whether each fold has some of these rows of the sample."""
        return np.bincount(self.fold_of[rows], minlength=self.n_folds) > 0

    def moments(self, rows: np.ndarray) -> tuple[Moments, Moments, float]:
        """Those of all rows of the folds that these are from."""
        x, y = (reduce(Moments.merged, parts) for parts in zip(*compress(self.known, self.folds_of(rows)), strict=True))
        return x, y, x.weight / x.count

    def counts(self, rows: np.ndarray) -> list[int]:
        """How many rows a run takes from each buffer: the share of its folds, which is nearly as many as there are."""
        share = self.folds_of(rows).mean()
        return [max(1, round(size * share)) for size in self.sizes]

    def seen(self, folds: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Which rows of a buffer, of these folds, a run of these rows of the sample may see."""
        places = np.flatnonzero(self.folds_of(rows)[folds])
        require(len(places) > 0, "inputs", "rows of several folds in every buffer", 1, "shuffle the files once")
        return places

    def readings(self, epoch: int) -> Iterator[tuple[InMemory, Seen]]:
        """All rows, a buffer at a time: blocks come in an order of the epoch's own, a few of them in turn."""
        order = np.random.default_rng((Purpose.ORDER, epoch)).permutation(self.source.n_blocks)
        pieces = self._in_turn(order.tolist())
        held = next(pieces)
        for size in self.sizes:
            parts = [held]
            while sum(map(len, parts)) < size:
                parts.append(next(pieces))
            whole = Piece.joined(parts)
            held = Piece.joined([whole.take(slice(size, None))])  # a copy, which does not hold the whole
            inputs, targets, weights = whole.take(slice(size)).tensors()
            seen = partial(self.seen, np.asarray(whole.keys)[:size])
            yield InMemory(inputs, targets.to(self.targets.dtype), weights), seen

    def _in_turn(self, order: Sequence[int]) -> Iterator[Piece]:
        """Pieces of a few blocks in turn."""
        for start in range(0, len(order), _BLOCKS_AT_ONCE):
            for pieces in zip_longest(*map(self.source.pieces, order[start : start + _BLOCKS_AT_ONCE])):
                yield from (self._dealt(piece) for piece in pieces if piece is not None)

    def digest(self) -> bytes:
        moments = (value for both in self.known for m in both for value in (m.mean, m.deviation, m.low, m.high))
        return super().digest() + b"".join(value.numpy().tobytes() for value in moments)
