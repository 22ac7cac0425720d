"""Tables written as they come, whole or not at all."""

from __future__ import annotations

import gzip
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from deep_ensembles._arrow import csv, pa, parquet
from deep_ensembles._files import replacing
from deep_ensembles.table_files._head import TableError

_FORMATS = (".csv", ".tsv", ".parquet", ".csv.gz", ".tsv.gz")


class TableWriter:
    """Takes record batches, all with the columns of the first, whose types they are brought to."""

    def __init__(self, path: Path, stack: ExitStack) -> None:
        self._path, self._stack = path, stack
        self._writer: Any = None
        self._schema = pa.schema([])
        self.n_rows = 0

    def write(self, batch: pa.RecordBatch) -> None:
        """Append rows."""
        if self._writer is None:
            self._writer = self._stack.enter_context(_begin(self._path, batch.schema, self._stack))
            self._schema = batch.schema
        columns = [_cast(batch.column(each.name), each) for each in self._schema]
        self._writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=self._schema))
        self.n_rows += batch.num_rows


def _cast(values: pa.Array, wanted: pa.Field) -> pa.Array:
    try:
        return values if values.type == wanted.type else values.cast(wanted.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise TableError(
            f"`{wanted.name}` holds {wanted.type} at first and {values.type} later, which one file cannot hold together"
        ) from error


@contextmanager
def writing(path: str | os.PathLike[str]) -> Iterator[TableWriter]:
    """A table to write; its format is the file's ending: .csv, .tsv, .csv.gz, .tsv.gz or .parquet.

    The file takes its place when all is written; if anything fails, nothing has changed.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp(), "ages.csv")
        >>> with writing(path) as table:
        ...     table.write(pa.record_batch({"age": [3]}))
        >>> path.read_text()
        '"age"\\n3\\n'
    """
    target = Path(path)
    check_ending(target)
    with ExitStack() as stack:
        table = TableWriter(target, stack)
        yield table
        if table._writer is None:
            raise TableError(f"nothing was written to {target}")


def check_ending(path: Path) -> None:
    """The ending names a format that can be written."""
    if not path.name.lower().endswith(_FORMATS):
        raise TableError(f"{path} must end in one of {', '.join(_FORMATS)}, which says how it is written")


def _begin(path: Path, schema: pa.Schema, stack: ExitStack) -> Any:
    file = stack.enter_context(replacing(path))
    name = path.name.lower()
    if name.endswith(".parquet"):
        # Looking for repeated numbers costs more time than it saves space.
        words = [field.name for field in schema if not pa.types.is_floating(field.type)]
        return parquet.ParquetWriter(file, schema, compression="snappy", use_dictionary=words)
    if name.endswith(".gz"):
        file = stack.enter_context(gzip.GzipFile("", "wb", 6, file, mtime=0))  # type: ignore[assignment]
    separator = "\t" if ".tsv" in name else ","
    return csv.CSVWriter(file, schema, write_options=csv.WriteOptions(delimiter=separator))
