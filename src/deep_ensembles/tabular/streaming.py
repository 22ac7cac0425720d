"""Tables larger than memory: a sample of rows to look at, and row groups of Parquet files to train from."""

import zlib
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deep_ensembles._arrow import pa, pc
from deep_ensembles.columns import Column, Date, Number, Schema, TableError, TakenAsMissing, Target, number
from deep_ensembles.recipes import LEAST_DIFFERENT
from deep_ensembles.tabular.files import ParquetFile, TableFiles, open_table, together
from deep_ensembles.tabular.settings import TableSettings
from deep_ensembles.training.blocks import BlockSource, Piece, piece_rows, row_keys, sample_numbers
from deep_ensembles.training.resources import memory_limit

_SHARE = 8  # the part of memory that the numbers of a table may fill to be read whole: training holds several copies
_MOST_VALUES = 1000  # different texts of a column that are looked for


def is_streamed(files: TableFiles, settings: TableSettings) -> bool:
    """Whether a table is trained on block by block: as asked, or if it is of Parquet and too large for memory."""
    is_parquet = all(isinstance(file, ParquetFile) for file in files.files)
    holds_out = settings.time is not None or bool(settings.holdout)
    if settings.stream and not is_parquet:
        raise TableError("only Parquet files can be streamed; write the table as Parquet, in parts")
    if settings.stream and holds_out:
        raise TableError("a table that is streamed holds rows out in turn only; leave out --time, --holdout or --stream")
    if settings.stream is not None:
        return settings.stream
    return is_parquet and not holds_out and 8 * (files.n_rows or 0) * len(files.names) > memory_limit() / _SHARE


@dataclass(frozen=True, eq=False)
class TableSample:
    """What one pass over a table keeps of it.

    Arguments:
        table: sampled rows, and below them rows of values that those lack: the least and the largest of each column, a gap,
            other texts.
        numbers: of the sampled rows in the whole table, from 0.
        gaps: columns in which values are missing.
    """

    table: pa.Table
    numbers: NDArray[np.int64]
    gaps: frozenset[str]


def read_sample(files: TableFiles) -> TableSample:
    """A sample of the rows, evenly spread, and rows that show what else there is."""
    n_rows = files.n_rows or 0
    numbers = sample_numbers(n_rows, 8 * len(files.names)) if n_rows else np.empty(0, np.int64)
    sampled, others = [], {}
    known: dict[str, dict[str, Any]] = {name: {} for name in files.names}
    for first_row, batch in files.numbered(None):
        first = first_row - 1
        places = numbers[slice(*np.searchsorted(numbers, (first, first + batch.num_rows)))] - first
        sampled.append(pa.Table.from_batches([batch.take(pa.array(places))]))
        for name, values in zip(files.names, batch.columns, strict=True):
            for why, value in _news(values, known[name]).items():
                known[name][why] = value
                place = pc.index(pc.is_null(values, nan_is_null=True), True) if value is None else pc.index(values, value)
                row = max(0, place.as_py())
                others[name, why] = first + row, pa.Table.from_batches([batch.take(pa.array([row]))])
    more = {number: row for number, row in others.values() if not (numbers == number).any()}
    gaps = frozenset(name for name in files.names if "gap" in known[name])
    return TableSample(together([*sampled, *more.values()]), numbers, gaps)


def _news(values: pa.Array, known: dict[str, Any]) -> dict[str, Any]:
    """What no value before showed: the least, the largest, a gap (None), a text."""
    found: dict[str, Any] = {}
    if "gap" not in known and pc.any(pc.is_null(values, nan_is_null=True)).as_py():
        found["gap"] = None
    if pa.types.is_string(values.type) or pa.types.is_large_string(values.type):
        texts = values.unique().drop_null() if len(known) < _MOST_VALUES else ()
        return found | {f"= {text}": text for text in texts if f"= {text}" not in known}
    if not pa.types.is_primitive(values.type) or values.null_count == len(values):
        return found
    ends = ((end, value, pc.less if end == "min" else pc.greater) for end, value in pc.min_max(values).items())
    return found | {end: value for end, value, beyond in ends if end not in known or beyond(value, known[end]).as_py()}


class _RowGroups(BlockSource):
    """The row groups of Parquet files.

    Arguments:
        files: of Parquet.
        columns: that are read.
        width: how many inputs a row has.
    """

    def __init__(self, files: TableFiles, columns: Sequence[str], width: int) -> None:
        parts = [file for file in files.files if isinstance(file, ParquetFile)]
        self.groups = [(file, group) for file in parts for group in range(len(file.groups))]
        self.starts = np.cumsum([0, *(file.groups[group] for file, group in self.groups)]).tolist()
        self.n_blocks, self.n_rows = len(self.groups), self.starts[-1]
        self.columns, self.width = [*dict.fromkeys(columns)], width

    def pieces(self, block: int) -> Iterator[Piece]:
        (file, group), first = self.groups[block], self.starts[block]
        for batch in file.batches(self.columns, piece_rows(self.width), [group]):
            yield self.piece(batch, first)
            first += batch.num_rows

    @abstractmethod
    def piece(self, batch: pa.RecordBatch, first: int) -> Piece:
        """Rows as they are trained on, from their number on."""


class ParquetRows(_RowGroups):
    """Rows of Parquet files for `fit_ensemble`, read as they are needed: they may be larger than memory.

    Row groups are the blocks that are read in random order; many, of some hundred thousand rows, are best.

    Arguments:
        path: a file, several, or a folder of parts.
        target: the column to predict; whole numbers are classes, unless the head says otherwise.
        columns: the inputs, numbers or flags; by default all columns but target and weights.
        weights: a column of numbers ≥ 0; rows of weight 0 are left out.

    Example:
        >>> import tempfile
        >>> import pyarrow.parquet as parquet
        >>> path = tempfile.mkdtemp() + "/part.parquet"
        >>> parquet.write_table(pa.table({"x": [1.0, 2.0], "y": [3.0, 5.0]}), path)
        >>> next(ParquetRows(path, "y").pieces(0)).inputs
        array([[1.],
               [2.]])
    """

    def __init__(self, path: Any, target: str, columns: Sequence[str] | None = None, weights: str | None = None) -> None:
        files = open_table(path)
        others = [name for name in files.names if name not in (target, weights)]
        self.inputs, self.target, self.weights = list(others if columns is None else columns), target, weights
        names = [*self.inputs, target, *([] if weights is None else [weights])]
        files.check_columns(names)
        super().__init__(files, names, len(self.inputs))
        if not self.groups:
            raise TableError(f"`path` must be Parquet files with rows, got {path}")

    def piece(self, batch: pa.RecordBatch, first: int) -> Piece:
        read = {name: batch.column(name).to_numpy(zero_copy_only=False) for name in self.columns}
        if other := next((name for name, values in read.items() if values.dtype.kind not in "biuf"), None):
            raise TableError(f"`{other}` must be numbers to train on; `deep-ensembles fit` takes any column")
        inputs = np.stack([read[name] for name in self.inputs], axis=1)
        targets = read[self.target].astype(np.float64 if read[self.target].dtype.kind == "f" else np.int64)
        weights = None if self.weights is None else read[self.weights].astype(np.float64)
        return Piece(inputs if inputs.dtype.kind == "f" else inputs.astype(np.float64), targets, weights)


class TableBlocks(_RowGroups):
    """A table of Parquet files as inputs and targets.

    Arguments:
        files: of Parquet.
        sample: what was read of them.
        schema, target: what the columns are and become.
        settings: which columns are weights and groups, and what is done with values that cannot be read.
    """

    def __init__(
        self, files: TableFiles, sample: TableSample, schema: Schema, target: Target, settings: TableSettings
    ) -> None:
        super().__init__(files, [*schema.names, target.name, *settings.roles], len(schema.input_names))
        self.schema, self.target, self.settings, self.numbers = schema, target, settings, sample.numbers
        self.is_weighted = target.name in sample.gaps or settings.weights is not None
        self.unreadable, self.n_counted = TakenAsMissing(), 0
        keys = row_keys(schema.encode(sample.table, "missing"))
        # Where most rows share their inputs with many others, as of a few categories, equal inputs are no copies.
        self.by_number = len(np.unique(keys)) < LEAST_DIFFERENT * len(keys)

    def piece(self, batch: pa.RecordBatch, first: int) -> Piece:
        settings, n = self.settings, batch.num_rows
        if settings.errors == "missing" and first >= self.n_counted:  # the first reading, which is in order
            for column in self.schema.columns:
                strictly(column).read(column.cells(batch), self.unreadable, first + 1)
            self.n_counted = first + n
        inputs = self.schema.encode(batch, settings.errors, first + 1)
        targets = self.target.read(batch.column(self.target.name), first + 1, settings.errors)
        weights = np.isfinite(targets).astype(np.float64) if self.is_weighted else None
        if weights is not None and settings.weights is not None:
            own = batch.column(settings.weights)
            weights *= np.nan_to_num(number(settings.weights, own).read(own)).clip(0)
        targets = np.nan_to_num(targets).astype(np.int64 if self.target.classes else np.float64)
        keys = row_keys(np.arange(first, first + n)[:, None]) if self.by_number else None
        return Piece(inputs, targets, weights, keys if settings.group is None else _text_keys(batch.column(settings.group)))


def strictly(column: Column) -> Column:
    """The column without words that training takes as missing ever after, which users are to be told of first."""
    return replace(column, words=()) if isinstance(column, (Date, Number)) else column


def _text_keys(values: pa.Array) -> NDArray[np.uint64]:
    """64 bits for each value, the same for equal ones in every block."""
    codes = values.cast(pa.string()).dictionary_encode("encode")
    sums = np.array([zlib.crc32(str(text).encode()) for text in codes.dictionary.to_pylist()])
    return row_keys(sums[codes.indices.to_numpy(zero_copy_only=False), None])
