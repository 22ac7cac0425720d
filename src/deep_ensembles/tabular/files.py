"""Tables in files: one file, several, or a folder of parts; text, Parquet, or what can be made one of these."""

import os
import re
import shutil
import weakref
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from deep_ensembles._arrow import pa, parquet
from deep_ensembles._checks import check_integer
from deep_ensembles._files import location
from deep_ensembles.columns import Errors, TableError, TakenAsMissing, check_known
from deep_ensembles.tabular.sources import STANDARD, fetched, unpacked
from deep_ensembles.tabular.text import TextFile, open_text_file, unique_names

ENDINGS = (".csv", ".tsv", ".tab", ".txt", ".psv", ".parquet", ".pq", ".jsonl", ".ndjson", ".xlsx")
_PACKED = (".gz", ".bz2", ".zst")
BATCH_ROWS = 16384  # about what a cache holds of numbers per row
_ROWS_AT_ONCE, _PARQUET_BUFFER = 1 << 18, 1 << 18

Source = str | os.PathLike[str]


@dataclass(frozen=True, eq=False)
class ParquetFile:
    """One Parquet file; columns keep their types, and dictionaries are written out.

    Arguments:
        path: where.
        names: of its columns, made different.
        groups: how many rows each row group has.
        notes: what is worth saying of it.
    """

    path: Path
    names: tuple[str, ...]
    groups: tuple[int, ...]
    notes: list[str] = field(default_factory=list)

    @property
    def n_rows(self) -> int:
        """How many rows there are."""
        return sum(self.groups)

    def batches(self, columns: Sequence[str], most: int, groups: Sequence[int] | None = None) -> Iterator[pa.RecordBatch]:
        """The rows of some columns, of all row groups or some; memory holds a few batches, whatever the size of groups."""
        places = [self.names.index(name) for name in columns]
        try:
            with _opened(self.path) as file:
                stored = file.schema_arrow.names
                wanted = [stored[place] for place in places]
                are_repeated = any(stored.count(name) > 1 for name in wanted)
                for batch in file.iter_batches(most, groups, None if are_repeated else wanted):
                    chosen = (batch.column(key) for key in (places if are_repeated else wanted))
                    plain = [each.dictionary_decode() if pa.types.is_dictionary(each.type) else each for each in chosen]
                    yield pa.RecordBatch.from_arrays(plain, list(columns))
        except (pa.ArrowException, OSError) as error:
            raise TableError(f"{self.path} cannot be read ({_line(error)}); is it complete?") from error


def open_parquet_file(path: Path) -> ParquetFile:
    """Look at a Parquet file."""
    try:
        with _opened(path) as file:
            names, notes = unique_names(file.schema_arrow.names)
            sizes = tuple(file.metadata.row_group(group).num_rows for group in range(file.num_row_groups))
            return ParquetFile(path, names, sizes, [f"{path.name}: {note}" for note in notes])
    except (pa.ArrowException, OSError) as error:
        raise TableError(f"{path} is not a whole Parquet file ({_line(error)})") from error


def _opened(path: Path) -> parquet.ParquetFile:
    return parquet.ParquetFile(path, buffer_size=_PARQUET_BUFFER, pre_buffer=False)


def _line(error: BaseException) -> str:
    return str(error).strip().splitlines()[0][:200] if str(error).strip() else type(error).__name__


@dataclass(frozen=True, eq=False)
class TableFiles:
    """A table in files, read some rows at a time.

    Arguments:
        files: its parts in order, all with the same columns.
        folder: a temporary one, for parts that were brought here.
        unreadable: values that were taken as missing, see `counting`.
    """

    files: tuple[TextFile | ParquetFile, ...]
    folder: str
    unreadable: TakenAsMissing = field(default_factory=TakenAsMissing)

    @property
    def names(self) -> tuple[str, ...]:
        """The columns, each with a name of its own."""
        return self.files[0].names

    @property
    def notes(self) -> list[str]:
        """What is worth saying of the files; reading may add to it."""
        return [*(note for file in self.files for note in file.notes), *self.unreadable.notes()]

    def counting(self, errors: Errors) -> Errors:
        """What columns read with, so that values that are taken as missing are counted among the notes."""
        return self.unreadable if errors == "missing" else errors

    @property
    def n_rows(self) -> int | None:
        """How many rows there are, where files tell without being read."""
        counts = [file.n_rows for file in self.files]
        return None if None in counts else sum(count or 0 for count in counts)

    @property
    def decimal_comma_likely(self) -> bool:
        """Whether values are separated by semicolons, as programs write where the comma is in use for decimals."""
        return any(isinstance(file, TextFile) and file.separator == ";" for file in self.files)

    def batches(self, columns: Sequence[str] | None = None, batch_rows: int = 65536) -> Iterator[pa.RecordBatch]:
        """The rows in order, at most `batch_rows` at a time.

        Arguments:
            columns: which, in the order wanted; all by default.
            batch_rows: the most rows at once.
        """
        return (batch for _, batch in self.numbered(columns, batch_rows) if batch.num_rows)

    def numbered(self, columns: Sequence[str] | None, batch_rows: int = 65536) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Batches with the number of their first row, from 1, at least one, be it empty; arguments as for `batches`."""
        check_integer("batch_rows", batch_rows, low=1)
        wanted, first_row = self.names if columns is None else tuple(columns), 1
        self.check_columns(wanted)
        with _without_folder(self.folder):
            for batch in chain.from_iterable(file.batches(wanted, batch_rows) for file in self.files):
                yield first_row, batch
                first_row += batch.num_rows
        if first_row == 1:
            yield 1, pa.record_batch({name: pa.array([], pa.string()) for name in wanted})

    def read(self, columns: Sequence[str] | None = None) -> pa.Table:
        """All rows at once; columns that parts store as different types are brought to a common one, if need be text."""
        return together([pa.Table.from_batches([batch]) for _, batch in self.numbered(columns, _ROWS_AT_ONCE)])

    def check_columns(self, wanted: Iterable[str]) -> None:
        """Raise for the first of some names that no column has."""
        table = self.files[0].path.name if len(self.files) == 1 else "the table"
        check_known(table, wanted, self.names)


def together(tables: Sequence[pa.Table]) -> pa.Table:
    """Tables with the same columns, one below the other.

    Example:
        >>> together([pa.table({"a": [1], "b": [1]}), pa.table({"a": [0.5], "b": ["x"]})]).to_pydict()
        {'a': [1.0, 0.5], 'b': ['1', 'x']}
    """
    names = tables[0].column_names
    common = pa.schema([_common([table.schema.field(name) for table in tables]) for name in names])
    return pa.concat_tables([table.select(names).cast(common) for table in tables])


def _common(fields: Sequence[pa.Field]) -> pa.Field:
    try:
        return pa.unify_schemas([pa.schema([one]) for one in fields], promote_options="permissive").field(0)
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        return pa.field(fields[0].name, pa.string())


def open_table(paths: Source | Iterable[Source], table: str | None = None) -> TableFiles:
    """Look at a table: a file, several, or a folder of parts, here or at a URL, or `-` for standard input.

    Text (CSV and its relatives, packed or not), Parquet, JSON, workbooks and databases are told apart by what is in them.
    Separator, encoding and header of text are inferred from its head; all its values are text. Files in a folder are
    taken in the order of their names.

    Arguments:
        paths: of files or folders.
        table: which sheet of a workbook or table of a database; needed where there are several.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp(), "pets.csv")
        >>> _ = path.write_text("pet;age\\ncat;3\\n")
        >>> open_table(path).read().to_pylist()
        [{'pet': 'cat', 'age': '3'}]
    """
    folder = mkdtemp()
    try:
        with _without_folder(folder):
            numbered = enumerate(sources(paths))
            parts = [part for number, path in numbered for part in _parts(path, table, Path(folder, str(number)))]
            if not parts:
                raise TableError("a table needs at least one file, got none")
            found = TableFiles(tuple(map(_open, parts)), folder)
            for file in found.files[1:]:
                _check_same(found.files[0], file)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    weakref.finalize(found, shutil.rmtree, folder, ignore_errors=True)
    return found


@contextmanager
def _without_folder(folder: str) -> Iterator[None]:
    """Errors that name files as users know them, not as copies in a temporary folder."""
    try:
        yield
    except TableError as error:
        raise TableError(re.sub(rf"{re.escape(folder)}/\d+/(made/)?", "", str(error))) from error


def _parts(source: Source, table: str | None, folder: Path) -> list[Path]:
    """The files of text or Parquet that a path or URL names, or that are made of what it names."""
    place: Any = os.fspath(source) if os.fspath(source) == STANDARD else location(source)
    made = folder / "made"
    made.mkdir(parents=True)
    files = _files(place) if isinstance(place, Path) else fetched(place, folder, is_part)
    try:
        return [part for file in files for part in unpacked(file, table, made)]
    except OSError as error:
        raise TableError(f"{source} cannot be read ({error.strerror or error})") from error


def sources(paths: Source | Iterable[Source]) -> list[Source]:
    """The paths of a table as a list, be it one."""
    return [paths] if isinstance(paths, (str, os.PathLike)) else list(paths)


def _files(path: Path) -> list[Path]:
    if path.is_dir():
        parts = sorted(part for part in path.iterdir() if part.is_file() and is_part(part.name))
        if not parts:
            raise TableError(f"the folder {path} holds no table; parts end in {', '.join(ENDINGS)}")
        return parts
    if not path.is_file():
        raise TableError(f"{path} is not there")
    return [path]


def is_part(name: str) -> bool:
    """Whether a file of this name in a folder is a part of a table."""
    endings = (*ENDINGS, *(ending + packed for ending in ENDINGS for packed in _PACKED))
    return not name.startswith((".", "_")) and name.lower().endswith(endings)


def _open(path: Path) -> TextFile | ParquetFile:
    with open(path, "rb") as file:
        start = file.read(4)
    return open_parquet_file(path) if start == b"PAR1" or path.suffix in (".parquet", ".pq") else open_text_file(path)


def _check_same(first: TextFile | ParquetFile, other: TextFile | ParquetFile) -> None:
    if lacking := sorted(set(first.names) - set(other.names)):
        raise TableError(f"{other.path} has no column `{lacking[0]}`, which {first.path.name} has; parts must be alike")
    if more := sorted(set(other.names) - set(first.names)):
        raise TableError(f"{other.path} has a column `{more[0]}`, which {first.path.name} lacks; parts must be alike")
