"""Tables of text: CSV and its relatives. `open_text_file` looks at the first bytes, `TextFile` reads a block at a time."""

import csv as python_csv
import io
import itertools
import re
import textwrap
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from deep_ensembles._arrow import csv, pa, pc
from deep_ensembles.columns import TableError

_HEAD = 1 << 20
_BLOCK, _BLOCK_PER_COLUMN = 1 << 23, 1 << 14
_LARGEST_BLOCK = 1 << 28
_NUMBER = re.compile(r"^\s*[+-]?(\d+([.,]\d*)?|[.,]\d+)([eE][+-]?\d+)?\s*$")
_ROWS = 100
_SEPARATORS = (",", ";", "\t", "|")
_COMPRESSIONS = {b"\x1f\x8b": "gzip", b"BZh": "bz2", b"\x28\xb5\x2f\xfd": "zstd"}
_NOT_TABLES = {b"PK\x03\x04": "a zip archive", b"%PDF": "a PDF", b"\x89HDF": "an HDF5 file", b"ARROW1": "an Arrow file"}


def open_text_file(path: Path) -> "TextFile":
    """Look at the beginning of a file of text: how it is written, and what its columns are called."""
    compression, raw = _first_bytes(path)
    encoding = _encoding(path, raw)
    # As Latin-1 every byte is a character, so that nothing is lost before single names are decoded.
    eight_bit = encoding == "utf-8"
    text = raw.removeprefix(b"\xef\xbb\xbf").decode("latin-1") if eight_bit else raw.decode(encoding, errors="replace")
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    if not text.strip(' \t\n,;|"'):
        raise TableError(f"{path} is empty; a table has a line of column names and rows below it")
    filled = re.sub(r'\A([ \t,;|"]*\n)*', "", text)  # from the first line on that says something
    text, skipped = filled, text.count("\n") - filled.count("\n")
    declared = text[4:5] if text[:4].lower() == "sep=" and text[5:6] == "\n" else ""
    if declared:
        text, skipped = text[6:], skipped + 1
    if len(raw) >= _HEAD:  # where it was cut, the last line is not whole
        text = text[: text.rfind("\n") + 1]
    separator = declared or _separator(text, "\t" if ".tsv" in path.name.lower() else ",")
    rows = list(itertools.islice(_rows(text, separator), _ROWS))
    cells = [[_decode(cell.encode("latin-1")) if eight_bit else cell for cell in row] for row, _ in rows]
    n_titles = _count_titles(cells)
    header = cells[n_titles] if cells else []
    names, notes = unique_names(header)
    if titles := " ".join(filter(None, itertools.chain(*cells[:n_titles]))):
        notes.append(f"what stands above the names of columns is left out: {textwrap.shorten(titles, 80)!r}")
    notes = [*(f"{path.name}: {note}" for note in notes), *_check_header(path, header)]
    return TextFile(path, names, compression, encoding, separator, skipped + (rows[n_titles][1] if n_titles else 0), notes)


def _first_bytes(path: Path) -> tuple[str | None, bytes]:
    """How a file is compressed, and what it begins with, at least a line."""
    with open(path, "rb") as file:
        start = file.read(8)
    for magic, kind in _NOT_TABLES.items():
        if start.startswith(magic):
            raise TableError(f"{path} is {kind}, not a table of text or Parquet; export it as CSV or Parquet")
    compression = next((name for magic, name in _COMPRESSIONS.items() if start.startswith(magic)), None)
    with pa.input_stream(str(path), compression=compression) as stream:
        try:
            raw = stream.read(_HEAD)
            return compression, raw if b"\n" in raw or b"\r" in raw else raw + stream.read(64 * _HEAD)
        except OSError as error:
            raise TableError(f"{path} cannot be unpacked ({error}); is it complete?") from error


def _count_titles(rows: list[list[str]]) -> int:
    """How many rows stand above the names: shorter ones, or ones of which only the first cell is filled, if what comes next
    looks like names.

    Example:
        >>> _count_titles([["Sales 2020"], ["day", "shop", "sold"], ["1", "A", "3"]]), _count_titles([["a"], ["1", "2"]])
        (1, 0)
    """
    usual = Counter(map(len, rows)).most_common(1)[0][0] if rows else 0

    def is_title(row: list[str]) -> bool:
        filled = [place for place, cell in enumerate(row) if cell.strip()]
        return len(filled) <= max(1, usual // 2) and (len(row) < usual or (usual > 2 and filled == [0]))

    titles = len(list(itertools.takewhile(is_title, rows)))
    named = rows[titles] if titles < len(rows) - 1 else ["0"]
    return 0 if any(_NUMBER.match(cell) for cell in named) or len(named) != usual else titles


def _decode(raw: bytes) -> str:
    """Text from UTF-8 if it can be, else from Windows-1252, else from Latin-1."""
    for encoding in ("utf-8", "cp1252"):
        with suppress(UnicodeDecodeError):
            return raw.decode(encoding)
    return raw.decode("latin-1")


def _encoding(path: Path, raw: bytes) -> str:
    if raw.startswith((b"\xff\xfe", b"\xfe\xff")):
        return "utf-16"
    even, odd, half = raw[:4096:2].count(0), raw[1:4096:2].count(0), len(raw[:4096:2])
    if even == odd == 0:
        return "utf-8"
    if max(even, odd) > 0.4 * half and min(even, odd) < 0.05 * half + 1:
        return "utf-16-be" if even > odd else "utf-16-le"
    raise TableError(f"{path} is not text: its first bytes hold zeros; export it as CSV or Parquet")


def _separator(text: str, usual: str) -> str:
    """The one that cuts the first rows into the most equal numbers of values, at least two."""
    likely = []
    for separator in _SEPARATORS:
        lengths = [len(row) for row, _ in itertools.islice(_rows(text, separator), _ROWS)]
        common, rows = Counter(lengths).most_common(1)[0] if lengths else (0, 0)
        if common > 1:
            likely.append((rows / len(lengths), separator == usual and rows == len(lengths), common, separator))
    return max(likely)[3] if likely else usual


def _rows(text: str, separator: str) -> Iterator[tuple[list[str], int]]:
    """Rows that are not blank, each with the number of lines before it."""
    lines, reader = 0, python_csv.reader(io.StringIO(text, newline=""), delimiter=separator)
    with suppress(python_csv.Error):
        for row in reader:
            if any(row):
                yield row, lines
            lines = reader.line_num


def unique_names(names: Sequence[str | None]) -> tuple[tuple[str, ...], list[str]]:
    """Names for columns, and what was changed to make them whole and different.

    Example:
        >>> unique_names(["x", " x", ""])
        (('x', 'x_2', 'column_3'), ['a second column `x` is called `x_2`', 'column 3 has no name and is called `column_3`'])
    """
    given = [" ".join((name or "").split()) for name in names]
    taken, changed = set(given), []
    unique: dict[str, None] = {}
    for place, name in enumerate(given, start=1):
        new = name
        if not name or name in unique:
            start = name or f"column_{place}"
            free = itertools.chain([start], (f"{start}_{number}" for number in itertools.count(2)))
            new = next(word for word in free if word not in taken)
            why = f"a second column `{name}`" if name else f"column {place} has no name and"
            changed.append(f"{why} is called `{new}`")
            taken.add(new)
        unique[new] = None
    return tuple(unique), changed


def _check_header(path: Path, header: Sequence[str]) -> list[str]:
    """Refuse a first line of numbers, which is no header unless it counts columns; doubt one that is mostly numbers."""
    cells = [cell.strip() for cell in header if cell.strip()]
    numbers = [cell for cell in cells if _NUMBER.match(cell)]
    if not numbers or _counts(numbers):
        return []
    shown = ", ".join(cells[:4]) + (", …" if len(cells) > 4 else "")
    if len(numbers) == len(cells):
        raise TableError(f"{path}: the first line ({shown}) holds values, not column names; add a line of names above it")
    if len(numbers) * 2 >= len(cells) and any(not cell.isdigit() for cell in numbers):
        return [f"{path.name}: the first line ({shown}) is taken for column names, but looks like values"]
    return []


def _counts(numbers: Sequence[str]) -> bool:
    """Whether these are whole numbers that go up by one, as programs name columns."""
    if len(numbers) < 2 or not all(number.isdigit() for number in numbers):
        return numbers in (["0"], ["1"])
    return all(int(after) - int(before) == 1 for before, after in itertools.pairwise(numbers))


@dataclass(frozen=True, eq=False)
class TextFile:
    """One file of text; every value is read as text, not trimmed.

    Arguments:
        path: where.
        names: of its columns, made different.
        compression: of the file, or None.
        encoding: `utf-8`, in which single values may be Windows-1252 all the same, or one of UTF-16.
        separator: between values.
        skipped: how many lines stand before the names of columns.
        notes: what is worth saying of it.
        n_rows: not known without reading.
    """

    path: Path
    names: tuple[str, ...]
    compression: str | None
    encoding: str
    separator: str
    skipped: int
    notes: list[str]
    n_rows: int | None = None

    def batches(self, columns: Sequence[str], most: int) -> Iterator[pa.RecordBatch]:
        """The rows of some columns."""
        try:
            for batch in self._blocks(columns):
                for start in range(0, batch.num_rows, most):
                    yield batch.slice(start, most)
        except (pa.ArrowInvalid, pa.ArrowKeyError) as error:
            raise self._uneven(str(error)) from error
        except UnicodeError as error:
            raise TableError(f"{self.path} is not whole {self.encoding.upper()} text ({error})") from error
        except OSError as error:
            raise TableError(f"{self.path} cannot be read to its end ({error}); is it complete?") from error

    def _blocks(self, columns: Sequence[str], size: int = 0, done: int = 0) -> Iterator[pa.RecordBatch]:
        """Batches after the rows done; where larger blocks turn out to be needed, the rest is read so."""
        size, seen = size or max(_BLOCK, _BLOCK_PER_COLUMN * len(self.names)), 0
        try:
            for batch in self._reader(columns, size):
                new = batch.slice(min(max(0, done - seen), batch.num_rows))
                yield pa.RecordBatch.from_arrays([self._text(values) for values in new.columns], batch.schema.names)
                seen += batch.num_rows
                done = max(done, seen)
        except pa.ArrowInvalid as error:
            if "straddling" not in str(error) or size >= _LARGEST_BLOCK:
                raise
            yield from self._blocks(columns, min(8 * size, _LARGEST_BLOCK), done)

    def _reader(self, columns: Sequence[str], block: int) -> Iterator[pa.RecordBatch]:
        parse = csv.ParseOptions(delimiter=self.separator, newlines_in_values=True)
        convert = csv.ConvertOptions(column_types=dict.fromkeys(self.names, pa.binary()), include_columns=list(columns))
        read = csv.ReadOptions(column_names=list(self.names), block_size=block, skip_rows=self.skipped)
        read.skip_rows_after_names = 1
        with self._stream() as stream:
            yield from csv.open_csv(stream, read, parse, convert)

    def _stream(self) -> pa.NativeFile:
        """The bytes, unpacked and in UTF-8 where the encoding is known for the whole file."""
        stream = pa.input_stream(str(self.path), compression=self.compression)
        return stream if self.encoding == "utf-8" else pa.transcoding_input_stream(stream, self.encoding, "utf-8")

    def _text(self, values: pa.Array) -> pa.Array:
        """Values that are not UTF-8 are Windows-1252, and where they can't be, Latin-1."""
        try:
            return values.cast(pa.string())
        except pa.ArrowInvalid:
            note = f"{self.path.name}: values that are not UTF-8 are read as Windows-1252"
            if note not in self.notes:
                self.notes.append(note)
            levels = values.dictionary_encode()
            return pc.take(pa.array([_decode(raw) for raw in levels.dictionary.to_pylist()], pa.string()), levels.indices)

    def _uneven(self, reason: str) -> TableError:
        """The first line whose number of values is not that of the names."""
        wanted = len(self.names)
        with self._stream() as stream:
            lines = io.TextIOWrapper(stream, encoding="utf-8", errors="replace", newline="")
            rows = python_csv.reader(lines, delimiter=self.separator)
            with suppress(python_csv.Error):
                for row in rows:
                    if row and len(row) != wanted and rows.line_num > self.skipped:
                        cure = f"quote values that contain {self.separator!r}, or mend or delete the line"
                        there = f"{self.path}, line {rows.line_num}"
                        return TableError(f"{there}: {len(row)} value{'s' * (len(row) != 1)} for {wanted} columns; {cure}")
        first = reason.splitlines()[0][:200]
        return TableError(f"{self.path} cannot be read as a table ({first}); is a quotation mark left open?")
