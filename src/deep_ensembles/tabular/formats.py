"""Tables of text: CSV and its relatives, a block at a time."""

from __future__ import annotations

import csv as python_csv
import io
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from deep_ensembles._arrow import csv, pa, parquet, pc
from deep_ensembles.columns import TableError
from deep_ensembles.tabular.head import Head, check_header, decode, open_text, read_head, unique_names

_BLOCK, _BLOCK_PER_COLUMN = 1 << 23, 1 << 14
_LARGEST_BLOCK = 1 << 28


@dataclass(frozen=True, eq=False)
class TextFile:
    """One file of text; every value is read as text, trimmed by nobody.

    Arguments:
        path: where.
        head: how it is written.
        names: of its columns, made different.
        notes: what is worth saying of it.
        n_rows: not known without reading.
    """

    path: Path
    head: Head
    names: tuple[str, ...]
    notes: list[str] = field(default_factory=list)
    n_rows: int | None = None

    def batches(self, columns: Sequence[str], batch_rows: int) -> Iterator[pa.RecordBatch]:
        """The rows of some columns."""
        try:
            for batch in self._blocks(columns):
                for start in range(0, batch.num_rows, batch_rows):
                    yield batch.slice(start, batch_rows)
        except (pa.ArrowInvalid, pa.ArrowKeyError) as error:
            raise _uneven(self, str(error)) from error
        except UnicodeError as error:
            raise TableError(f"{self.path} is not whole {self.head.encoding.upper()} text ({error})") from error
        except OSError as error:
            raise TableError(f"{self.path} cannot be read to its end ({error}); is it complete?") from error

    def _blocks(self, columns: Sequence[str], size: int = 0, done: int = 0, raw: bool = False) -> Iterator[pa.RecordBatch]:
        """Batches after the rows done; where larger blocks or bytes turn out to be needed, the rest is read so."""
        size = size or max(_BLOCK, _BLOCK_PER_COLUMN * len(self.names))
        try:
            for batch in _skipping(self._reader(columns, size, raw), done):
                yield self._decoded(batch) if raw else batch
                done += batch.num_rows
        except pa.ArrowInvalid as error:
            if "straddling" in str(error) and size < _LARGEST_BLOCK:
                yield from self._blocks(columns, min(8 * size, _LARGEST_BLOCK), done, raw)
            elif "UTF8" in str(error) and not raw:
                yield from self._blocks(columns, size, done, raw=True)
            else:
                raise

    def _reader(self, columns: Sequence[str], block: int, raw: bool) -> Iterator[pa.RecordBatch]:
        kind = pa.binary() if raw else pa.string()
        with open_text(self.path, self.head) as stream:
            yield from csv.open_csv(
                stream,
                csv.ReadOptions(
                    column_names=list(self.names), block_size=block, skip_rows=self.head.skipped, skip_rows_after_names=1
                ),
                csv.ParseOptions(delimiter=self.head.separator, newlines_in_values=True),
                csv.ConvertOptions(column_types=dict.fromkeys(self.names, kind), include_columns=list(columns)),
            )

    def _decoded(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays([self._text(values) for values in batch.columns], batch.schema.names)

    def _text(self, values: pa.Array) -> pa.Array:
        """Values that are not UTF-8 are Windows-1252, and where they can't be, Latin-1."""
        try:
            return values.cast(pa.string())
        except pa.ArrowInvalid:
            note = f"{self.path.name}: values that are not UTF-8 are read as Windows-1252"
            if note not in self.notes:
                self.notes.append(note)
            levels = values.dictionary_encode()
            texts = pa.array([decode(each) for each in levels.dictionary.to_pylist()], pa.string())
            return pc.take(texts, levels.indices)


def open_text_file(path: Path) -> TextFile:
    """Look at a file of text."""
    head = read_head(path)
    names, notes = unique_names(head.header)
    return TextFile(path, head, names, [*(f"{path.name}: {note}" for note in notes), *check_header(path, head.header)])


def _skipping(batches: Iterator[pa.RecordBatch], rows: int) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        skipped = min(rows, batch.num_rows)
        rows -= skipped
        if batch.num_rows > skipped or not skipped:
            yield batch.slice(skipped)


def _uneven(file: TextFile, reason: str) -> TableError:
    """The first line whose number of values is not that of the names."""
    wanted = len(file.names)
    with open_text(file.path, file.head) as stream:
        lines = io.TextIOWrapper(stream, encoding="utf-8", errors="replace", newline="")
        rows = python_csv.reader(lines, delimiter=file.head.separator)
        with suppress(python_csv.Error):
            for row in rows:
                if row and len(row) != wanted and rows.line_num > file.head.skipped:
                    cure = f"quote values that contain {file.head.separator!r}, or mend the line"
                    there = f"{file.path}, line {rows.line_num}"
                    return TableError(f"{there}: {len(row)} value{'s' * (len(row) != 1)} for {wanted} columns; {cure}")
    first = reason.splitlines()[0][:200]
    return TableError(f"{file.path} cannot be read as a table ({first}); is a quotation mark left open?")


_BUFFER = 1 << 20


@dataclass(frozen=True, eq=False)
class ParquetFile:
    """One Parquet file; columns keep their types, and dictionaries are written out.

    Arguments:
        path: where.
        names: of its columns, made different.
        n_rows: how many there are.
        notes: what is worth saying of it.
    """

    path: Path
    names: tuple[str, ...]
    n_rows: int
    notes: list[str] = field(default_factory=list)

    def batches(self, columns: Sequence[str], batch_rows: int) -> Iterator[pa.RecordBatch]:
        """The rows of some columns; memory holds a few batches, whatever the size of row groups."""
        places = [self.names.index(name) for name in columns]
        try:
            with _opened(self.path) as file:
                stored = file.schema_arrow.names
                wanted = [stored[place] for place in places]
                everything = not wanted or any(stored.count(name) > 1 for name in wanted)
                for batch in file.iter_batches(batch_rows, columns=None if everything else wanted):
                    found = [batch.column(place if everything else name) for place, name in zip(places, wanted, strict=True)]
                    yield _named([_plain(each) for each in found], columns, batch.num_rows)
        except (pa.ArrowException, OSError) as error:
            raise TableError(f"{self.path} cannot be read ({_line(error)}); is it complete?") from error


def open_parquet_file(path: Path) -> ParquetFile:
    """Look at a Parquet file."""
    try:
        with _opened(path) as file:
            names, notes = unique_names(file.schema_arrow.names)
            return ParquetFile(path, names, file.metadata.num_rows, [f"{path.name}: {note}" for note in notes])
    except (pa.ArrowException, OSError) as error:
        raise TableError(f"{path} is not a whole Parquet file ({_line(error)})") from error


def _opened(path: Path) -> parquet.ParquetFile:
    return parquet.ParquetFile(path, buffer_size=_BUFFER, pre_buffer=False)


def _plain(values: pa.Array) -> pa.Array:
    return values.cast(values.type.value_type) if pa.types.is_dictionary(values.type) else values


def _named(columns: list[pa.Array], names: Sequence[str], rows: int) -> pa.RecordBatch:
    if columns:
        return pa.RecordBatch.from_arrays(columns, list(names))
    return pa.RecordBatch.from_struct_array(pa.array([{}] * rows, pa.struct([])))


def _line(error: BaseException) -> str:
    return str(error).strip().splitlines()[0][:200] if str(error).strip() else type(error).__name__
