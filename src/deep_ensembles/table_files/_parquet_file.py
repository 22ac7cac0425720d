"""Parquet files, a few rows at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from deep_ensembles._arrow import pa, parquet
from deep_ensembles.table_files._head import TableError
from deep_ensembles.table_files._names import unique_names

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
