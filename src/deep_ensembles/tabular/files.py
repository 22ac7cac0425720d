"""Tables in files: one file, several, or a folder of parts, text or Parquet; and writing one."""

import gzip
import os
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from deep_ensembles._arrow import csv, pa, parquet, pc
from deep_ensembles._checks import check_integer
from deep_ensembles._files import check_replaceable, holds_model, replacing
from deep_ensembles.columns import TableError
from deep_ensembles.tabular.text import TextFile, open_text_file, unique_names

_ENDINGS = (".csv", ".tsv", ".tab", ".txt", ".psv", ".parquet", ".pq")
_PACKED = (".gz", ".bz2", ".zst")
TABLES, PAGES = (".csv", ".tsv", ".parquet", ".csv.gz", ".tsv.gz"), (".html",)  # endings of files to write
_FORMULA, _NUMBER = r"^[=+\-@\t\r\n]", r"^[+-]?(\d+([.,]\d*)?|[.,]\d+)([eE][+-]?\d+)?%?$"
_ROWS_AT_ONCE, _PARQUET_BUFFER = 1 << 18, 1 << 20

Source = str | os.PathLike[str]


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
                    chosen = [batch.column(key) for key in (places if everything else wanted)]
                    yield _named(list(map(_without_dictionary, chosen)), columns, batch.num_rows)
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
    return parquet.ParquetFile(path, buffer_size=_PARQUET_BUFFER, pre_buffer=False)


def _without_dictionary(values: pa.Array) -> pa.Array:
    return values.cast(values.type.value_type) if pa.types.is_dictionary(values.type) else values


def _named(columns: list[pa.Array], names: Sequence[str], rows: int) -> pa.RecordBatch:
    if columns:
        return pa.RecordBatch.from_arrays(columns, list(names))
    return pa.RecordBatch.from_struct_array(pa.array([{}] * rows, pa.struct([])))


def _line(error: BaseException) -> str:
    return str(error).strip().splitlines()[0][:200] if str(error).strip() else type(error).__name__


@dataclass(frozen=True, eq=False)
class TableFiles:
    """A table in files, read some rows at a time.

    Arguments:
        files: its parts in order, all with the same columns.
    """

    files: tuple[TextFile | ParquetFile, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The columns, each with a name of its own."""
        return self.files[0].names

    @property
    def notes(self) -> list[str]:
        """What is worth saying of the files; reading may add to it."""
        return [note for file in self.files for note in file.notes]

    @property
    def n_rows(self) -> int | None:
        """How many rows there are, where files tell without being read."""
        counts = [file.n_rows for file in self.files]
        return None if None in counts else sum(count or 0 for count in counts)

    @property
    def decimal_comma_likely(self) -> bool:
        """Whether values are separated by semicolons, as programs write where the comma is in use for decimals."""
        return any(isinstance(file, TextFile) and file.head.separator == ";" for file in self.files)

    def batches(self, columns: Sequence[str] | None = None, batch_rows: int = 65536) -> Iterator[pa.RecordBatch]:
        """The rows in order, at most `batch_rows` at a time.

        Arguments:
            columns: which, in the order wanted; all by default.
            batch_rows: the most rows at once.
        """
        check_integer("batch_rows", batch_rows, low=1)
        wanted = self._wanted(columns)
        for file in self.files:
            yield from file.batches(wanted, batch_rows)

    def read(self, columns: Sequence[str] | None = None) -> pa.Table:
        """All rows at once; columns that parts store as different types are brought to a common one, if need be text."""
        names = self._wanted(columns)
        parts = [list(file.batches(names, _ROWS_AT_ONCE)) for file in self.files]
        tables = [pa.Table.from_batches(batches) for batches in parts if batches]
        return together(tables) if tables else pa.table({name: pa.array([], pa.string()) for name in names})

    def _wanted(self, columns: Sequence[str] | None) -> tuple[str, ...]:
        wanted = self.names if columns is None else tuple(columns)
        self.check_columns(wanted)
        return wanted

    def check_columns(self, wanted: Iterable[str]) -> None:
        """Raise for the first of some names that no column has."""
        table = self.files[0].path.name if len(self.files) == 1 else "the table"
        check_known(table, wanted, self.names)


def check_known(owner: str, wanted: Iterable[str], names: Sequence[str]) -> None:
    """Raise for the first name that is not among those of the columns, with the one that may have been meant.

    Example:
        >>> check_known("houses.csv", ["pirce"], ["size", "price"])
        Traceback (most recent call last):
        deep_ensembles.columns._column.TableError: houses.csv has no column `pirce`; did you mean `price`?
    """
    known = set(names)
    lacking = next((name for name in wanted if name not in known), None)
    if lacking is None:
        return
    by_folded = {name.casefold(): name for name in reversed(names)}
    close = get_close_matches(lacking.casefold(), by_folded, 1)
    some = textwrap.shorten(", ".join(names[:20]) + ", …" * (len(names) > 20), 200, placeholder=" …")
    hint = f"did you mean `{by_folded[close[0]]:.60}`?" if close else f"it has {some}"
    raise TableError(f"{owner} has no column `{lacking:.60}`; {hint}")


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


def open_table(paths: Source | Iterable[Source]) -> TableFiles:
    """Look at a table: a file, several, or a folder of parts.

    Text (CSV and its relatives, packed or not) and Parquet are told apart by what is in them. Separator and encoding of
    text are inferred from its head; all its values are text. Files in a folder are taken in the order of their names.

    Arguments:
        paths: of files or folders.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp(), "pets.csv")
        >>> _ = path.write_text("pet;age\\ncat;3\\n")
        >>> open_table(path).read().to_pylist()
        [{'pet': 'cat', 'age': '3'}]
    """
    parts = [part for path in sources(paths) for part in _files(Path(path))]
    if not parts:
        raise TableError("a table needs at least one file, got none")
    files = tuple(map(_open, parts))
    for file in files[1:]:
        _check_same(files[0], file)
    return TableFiles(files)


def sources(paths: Source | Iterable[Source]) -> list[Source]:
    """The paths of a table as a list, be it one."""
    return [paths] if isinstance(paths, (str, os.PathLike)) else list(paths)


def _files(path: Path) -> list[Path]:
    if path.is_dir():
        parts = sorted(part for part in path.iterdir() if part.is_file() and _is_part(part.name))
        if not parts:
            raise TableError(f"the folder {path} holds no table; parts end in {', '.join(_ENDINGS)}")
        return parts
    if not path.is_file():
        raise TableError(f"{path} is not there")
    return [path]


def _is_part(name: str) -> bool:
    endings = (*_ENDINGS, *(ending + packed for ending in _ENDINGS for packed in _PACKED))
    return not name.startswith((".", "_")) and name.lower().endswith(endings)


def _open(path: Path) -> TextFile | ParquetFile:
    try:
        with open(path, "rb") as file:
            start = file.read(4)
    except OSError as error:
        raise TableError(f"{path} cannot be read ({error.strerror or error})") from error
    return open_parquet_file(path) if start == b"PAR1" or path.suffix in (".parquet", ".pq") else open_text_file(path)


def _check_same(first: TextFile | ParquetFile, other: TextFile | ParquetFile) -> None:
    if lacking := sorted(set(first.names) - set(other.names)):
        raise TableError(f"{other.path} has no column `{lacking[0]}`, which {first.path.name} has; parts must be alike")
    if more := sorted(set(other.names) - set(first.names)):
        raise TableError(f"{other.path} has a column `{more[0]}`, which {first.path.name} lacks; parts must be alike")


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
        columns = [_cast(batch.column(wanted.name), wanted) for wanted in self._schema]
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
def writing(path: Source) -> Iterator[TableWriter]:
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
    _check_ending(Path(path), TABLES)
    target = Path(path)
    with ExitStack() as stack:
        table = TableWriter(target, stack)
        yield table
        if table._writer is None:
            raise TableError(f"nothing was written to {target}")


def safe_cells(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Text that a spreadsheet would run as a formula, names of columns too, with an apostrophe before it; no numbers.

    Example:
        >>> safe_cells(pa.record_batch({"=a": ["=1+1", "-3.5", "@x", "a=b"]})).to_pydict()
        {"'=a": ["'=1+1", '-3.5', "'@x", 'a=b']}
    """
    names = _safe(pa.array(batch.schema.names, pa.string())).to_pylist()
    return pa.RecordBatch.from_arrays(list(map(_safe, batch.columns)), names)


def _safe(values: pa.Array) -> pa.Array:
    types = pa.types
    if not any(is_kind(values.type) for is_kind in (types.is_string, types.is_large_string, types.is_binary)):
        return values
    runs = pc.and_(pc.match_substring_regex(values, _FORMULA), pc.invert(pc.match_substring_regex(values, _NUMBER)))
    mark, nothing = (pa.scalar(sign, pa.string()).cast(values.type) for sign in ("'", ""))
    return pc.if_else(runs, pc.binary_join_element_wise(mark, values, nothing), values)


def check_output(path: Source, endings: Sequence[str] = (), *, inputs: Iterable[Source] = (), replace: bool = False) -> None:
    """Refuse a place to write where something would be lost, or would be in the way of what is read there.

    Arguments:
        path: of a file; or, without endings, of a model folder.
        endings: those that a file of its kind has: `TABLES` or `PAGES`.
        inputs: what the command reads, and other folders that it writes; nothing is written over or into them.
        replace: whether a model that is there may be replaced.
    """
    target = Path(path)
    if endings:
        _check_ending(target, endings)
        if target.is_symlink():
            raise TableError(f"{path} is a link to another file; write to a file of its own")
        if target.exists() and not target.is_file():
            raise TableError(f"{path} is {'a folder' if target.is_dir() else 'a device'}; name a file to write")
    place = target.resolve()
    for read in map(Path, inputs):
        if place == read.resolve() or (target.exists() and read.exists() and _holds(read, target)):
            raise TableError(f"{path} is read by the same command; write to another place")
        if read.resolve() in place.parents:
            raise TableError(f"{path} is inside {read}, which is read or written as a whole; write to another folder")
    if inside := [folder for folder in place.parents if holds_model(folder)]:
        raise TableError(f"{path} is inside the model folder {inside[0]}, which holds nothing else; write to another one")
    folder = next((folder for folder in place.parents if folder.exists()), place)
    if not (folder.is_dir() and os.access(folder, os.W_OK)):
        raise TableError(f"{path} cannot be written: {folder} is {'read-only' if folder.is_dir() else 'not a folder'}")
    if not endings:
        check_replaceable(target)
        if holds_model(target) and not replace:
            raise TableError(f"{path} holds a model already; write to another folder, or replace it with --force")


def _holds(read: Path, target: Path) -> bool:
    """Whether a file is one that is read, maybe by another name: a link, or a part of a folder."""
    parts = read.iterdir() if read.is_dir() else [read]
    return any(part.exists() and target.samefile(part) for part in parts)


def _check_ending(path: Path, endings: Sequence[str]) -> None:
    if not path.name.lower().endswith(tuple(endings)):
        known = f"one of {', '.join(endings)}, which says how it is written" if len(endings) > 1 else endings[0]
        raise TableError(f"{path} must end in {known}")


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
