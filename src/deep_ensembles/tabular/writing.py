"""Tables that are written: CSV, JSON lines or Parquet, whole or not at all; and what must not be written over."""

import gzip
import io
import json
import os
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

from deep_ensembles._arrow import csv, pa, parquet, pc
from deep_ensembles._files import check_replaceable, holds_model, json_ready, location, replacing
from deep_ensembles._terminal import printable
from deep_ensembles.columns import TableError
from deep_ensembles.tabular.files import Source, open_table
from deep_ensembles.tabular.sources import STANDARD

TABLES, PAGES = (".csv", ".tsv", ".parquet", ".jsonl", ".csv.gz", ".tsv.gz"), (".html",)  # endings of files to write
_PREDICTED = ({"aleatoric_std", "epistemic_std"}, {"entropy", "disagreement"})  # columns that predictions have
_PREDICTION = re.compile(
    r"(mean|median|(aleatoric_|epistemic_)?std|lower|upper|q[\d.e-]+|abstain|label(_set)?|confidence|entropy|disagreement)(_|$)|p_"
)
_FORMULA, _NUMBER = r"^[=+\-@\t\r\n]", r"^[+-]?(\d+([.,]\d*)?|[.,]\d+)([eE][+-]?\d+)?%?$"


class _Terminal(io.RawIOBase):
    """Standard output that people read: what a terminal would obey is written out."""

    def writable(self) -> bool:
        return True

    def write(self, content: Any) -> int:
        sys.stdout.write(printable(bytes(content).decode(errors="replace")))
        return len(content)


class TableWriter:
    """Takes record batches, all with the columns of the first, whose types they are brought to."""

    def __init__(self, path: Path | str, stack: ExitStack) -> None:
        self._path, self._stack = path, stack
        self._writer: Any = None
        self._schema = pa.schema([])

    def write(self, batch: pa.RecordBatch) -> None:
        """Append rows."""
        if self._writer is None:
            self._writer = self._stack.enter_context(_begin(self._path, batch.schema, self._stack))
            self._schema = batch.schema
        columns = [_cast(batch.column(wanted.name), wanted) for wanted in self._schema]
        rows = pa.RecordBatch.from_arrays(columns, schema=self._schema)
        if hasattr(self._writer, "write_batch"):
            self._writer.write_batch(rows)
        else:
            lines = (json.dumps(json_ready(row), ensure_ascii=False, default=str) + "\n" for row in rows.to_pylist())
            self._writer.write("".join(lines).encode())


def _cast(values: pa.Array, wanted: pa.Field) -> pa.Array:
    try:
        return values if values.type == wanted.type else values.cast(wanted.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        kinds = f"{wanted.type} at first and {values.type} later"
        raise TableError(f"`{wanted.name}` holds {kinds}, which one file cannot hold together") from error


@contextmanager
def writing(path: Source) -> Iterator[TableWriter]:
    """A table to write; its format is the file's ending: .csv, .tsv, .csv.gz, .tsv.gz, .jsonl or .parquet; `-` is CSV to
    standard output.

    The file takes its place when all is written; if anything fails, nothing has changed.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp(), "ages.csv")
        >>> with writing(path) as table:
        ...     table.write(pa.record_batch({"age": [3]}))
        >>> path.read_text()
        '"age"\\n3\\n'
    """
    target = location(path)
    if os.fspath(path) != STANDARD:
        _check_ending(Path(target), TABLES)
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


def check_output(
    path: Source,
    endings: Sequence[str] = (),
    *,
    inputs: Iterable[Source] = (),
    replace: bool = False,
    keep: Sequence[str] = (),
) -> None:
    """Refuse a place to write where something would be lost, or would be in the way of what is read there.

    Arguments:
        path: of a file; or, without endings, of a model folder.
        endings: those that a file of its kind has: `TABLES` or `PAGES`.
        inputs: what the command reads, and other folders that it writes; nothing is written over or into them.
        replace: whether a model that is there may be replaced.
        keep: columns that predictions have from their table; a file with others of its own is not replaced.
    """
    if endings == TABLES and os.fspath(path) == STANDARD:
        return
    if endings and not Path(path).name:
        raise TableError(f"{path} names no file")
    target, places = location(path), [location(read) for read in inputs]
    if isinstance(target, str):
        _check_elsewhere(target, endings, places)
        return
    if endings:
        _check_ending(target, endings)
        if target.is_symlink():
            raise TableError(f"{path} is a link to another file; write to a file of its own")
        if target.exists() and not target.is_file():
            raise TableError(f"{path} is {'a folder' if target.is_dir() else 'a device'}; name a file to write")
    place = target.resolve()
    for read in (place for place in places if isinstance(place, Path)):
        if place == read.resolve() or (target.exists() and read.exists() and _holds(read, target)):
            raise TableError(f"{path} is read by the same command; write to another place")
        if read.resolve() in place.parents:
            raise TableError(f"{path} is inside {read}, which is read or written as a whole; write to another folder")
    if inside := [folder for folder in place.parents if holds_model(folder)]:
        raise TableError(f"{path} is inside the model folder {inside[0]}, which holds nothing else; write to another one")
    folder = next((folder for folder in place.parents if folder.exists()), place)
    if not (folder.is_dir() and os.access(folder, os.W_OK)):
        raise TableError(f"{path} cannot be written: {folder} is {'read-only' if folder.is_dir() else 'not a folder'}")
    if endings and target.exists():
        _check_replaceable(path, target, endings, keep)
    if not endings:
        check_replaceable(target)
        if holds_model(target) and not replace:
            raise TableError(f"{path} holds a model already; write to another folder, or replace it with --force")


def _check_replaceable(path: Source, target: Path, endings: Sequence[str], keep: Sequence[str]) -> None:
    """Refuse to replace a file unless it is empty, or a report or predictions like those to come with no column more."""
    with open(target, "rb") as file:
        start = file.read(2000)
    names: Sequence[str] = ()
    if start and endings == TABLES:
        with suppress(TableError):
            names = open_table(target).names
    is_page = endings == PAGES and b'name="generator" content="deep-ensembles"' in start
    are_predictions = any(all(any(name.startswith(each) for name in names) for each in wanted) for wanted in _PREDICTED)
    if start and not (is_page or are_predictions):
        what = "report" if endings == PAGES else "predictions"
        raise TableError(f"{path} is there and holds no {what}; name another file, or delete it first")
    if own := [name for name in names if name.removeprefix("'") not in keep and not _PREDICTION.match(name)]:
        raise TableError(f"{path} has a column `{own[0]}`, which would be lost; name another file, or delete it first")


def _check_elsewhere(place: str, endings: Sequence[str], inputs: Sequence[Path | str]) -> None:
    if not endings:
        raise TableError(f"{place} is elsewhere; a model is written to a folder of this machine")
    _check_ending(Path(place), endings)
    if read := [read for read in map(str, inputs) if f"{place}/".startswith(f"{read.rstrip('/')}/")]:
        raise TableError(f"{place} is read by the same command ({read[0]}); write to another place")


def _holds(read: Path, target: Path) -> bool:
    """Whether a file is one that is read, maybe by another name: a link, or a part of a folder."""
    parts = read.iterdir() if read.is_dir() else [read]
    return any(part.exists() and target.samefile(part) for part in parts)


def _check_ending(path: Path, endings: Sequence[str]) -> None:
    if not path.name.lower().endswith(tuple(endings)):
        known = f"one of {', '.join(endings)}, which says how it is written" if len(endings) > 1 else endings[0]
        raise TableError(f"{path} must end in {known}")


def _standard_output() -> Any:
    return _Terminal() if sys.stdout.isatty() else sys.stdout.buffer


def _begin(path: Path | str, schema: pa.Schema, stack: ExitStack) -> Any:
    name = Path(path).name.lower()
    file: Any = _standard_output() if name == STANDARD else stack.enter_context(replacing(path))
    if name.endswith(".jsonl"):
        return nullcontext(file)
    if name.endswith(".parquet"):
        # Looking for repeated numbers costs more time than it saves space.
        words = [field.name for field in schema if not pa.types.is_floating(field.type)]
        return parquet.ParquetWriter(file, schema, compression="snappy", use_dictionary=words)
    if name.endswith(".gz"):
        file = stack.enter_context(gzip.GzipFile("", "wb", 6, file, mtime=0))
    return csv.CSVWriter(file, schema, write_options=csv.WriteOptions(delimiter="\t" if ".tsv" in name else ","))
