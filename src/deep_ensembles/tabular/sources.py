"""Tables from elsewhere, brought here as files of text or Parquet: URLs, standard input, zip, JSON, Excel, databases."""

import atexit
import csv
import io
import itertools
import json
import os
import posixpath
import shutil
import sqlite3
import sys
import zipfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from datetime import datetime, time
from functools import lru_cache
from pathlib import Path
from tempfile import mkstemp
from typing import Any
from urllib.parse import quote

from deep_ensembles._arrow import pa
from deep_ensembles._files import file_system
from deep_ensembles.columns import TableError

STANDARD = "-"  # input or output
_INSTALL = {"python_calamine": "excel", "duckdb": "duckdb"}


@lru_cache(1)
def _kept(stream: Any) -> str:
    """A file of all that a stream holds, which can be read only once; it is gone when the program ends."""
    number, path = mkstemp()
    atexit.register(os.unlink, path)
    with os.fdopen(number, "wb") as file:
        shutil.copyfileobj(stream, file)
    return path


def fetched(source: str, folder: Path, is_part: Callable[[str], bool]) -> list[Path]:
    """Copies of what a URL names, a file or a folder of parts, or of standard input."""
    if source == STANDARD:
        (folder / "standard input").symlink_to(_kept(sys.stdin.buffer))
        return [folder / "standard input"]
    try:
        system, path = file_system(source)
        inside = system.ls(path, detail=False) if system.isdir(path) else []
        files = sorted(file for file in inside if is_part(posixpath.basename(file))) or [path]
        copies = {file: folder / posixpath.basename(file) for file in files}
        for file, copy in copies.items():
            system.get_file(file, str(copy))
    except ImportError as error:
        raise TableError(f"{source} needs a package that is not there: {error}") from error
    except (OSError, ValueError) as error:
        raise TableError(f"{source} cannot be read ({str(error) or type(error).__name__:.200})") from error
    return list(copies.values())


def unpacked(path: Path, table: str | None, folder: Path) -> list[Path]:
    """The file itself, if it is one of text or Parquet, or such files made of it in a folder.

    Arguments:
        table: which sheet of a workbook or table of a database; needed where there are several.
    """
    with open(path, "rb") as file:
        start = file.read(16)
    made = folder / path.name
    try:
        if start.startswith(b"PK\x03\x04") and not _is_workbook(path):
            return _members(path, folder)
        if start.startswith((b"PK\x03\x04", b"\xd0\xcf\x11\xe0")):
            _write(made, _sheet(path, table))
        elif start.startswith(b"SQLite format 3"):
            _write(made, _sqlite(path, table))
        elif start[8:12] == b"DUCK":
            _copy_duckdb(path, table, made)
        elif any(ending in path.name.lower() for ending in (".json", ".ndjson")) or start.lstrip()[:1] in (b"{", b"["):
            _write(made, _json(path))
        elif table is not None:
            raise TableError(f"{path} is a table itself, neither a workbook nor a database: leave out --table {table}")
        else:
            return [path]
    except zipfile.BadZipFile as error:
        raise TableError(f"{path} starts as a zip archive, but is none ({error}); is it complete?") from error
    except ImportError as error:
        raise TableError(f"{path} needs {error.name}: pip install 'deep-ensembles[{_INSTALL[error.name or '']}]'") from error
    return [made]


def _is_workbook(path: Path) -> bool:
    """Whether a zip archive is one; standard input and URLs may have no ending that says so."""
    if path.suffix.lower().startswith((".xls", ".ods")):
        return True
    with zipfile.ZipFile(path) as archive:
        return not {"xl/workbook.xml", "xl/workbook.bin", "content.xml"}.isdisjoint(archive.namelist())


def _members(path: Path, folder: Path) -> list[Path]:
    with zipfile.ZipFile(path) as archive:
        names = [name for name in archive.namelist() if not name.endswith("/") and not name.startswith("__MACOSX")]
        return [Path(archive.extract(name, folder)) for name in sorted(names)]


def _write(path: Path, rows: Iterable[Iterable[Any]]) -> None:
    with open(path, "w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows(map(_text, row) for row in rows)


def _text(value: Any) -> str:
    """A value as a file of text holds it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return str(int(value))
    if isinstance(value, datetime) and value.time() == time():
        return str(value.date())
    if isinstance(value, (list, dict)):
        return json.dumps(value, ensure_ascii=False)
    return "" if value is None else str(value)


def _chosen(path: Path, names: list[str], table: str | None) -> str:
    if table in names or (table is None and len(names) == 1):
        return table or names[0]
    shown = ", ".join(names[:10]) + ", …" * (len(names) > 10)
    wanted = f"holds {'several tables' if names else 'no table'}" if table is None else f"has no table {table!r}"
    raise TableError(f"{path} {wanted}" + f"; choose one with --table: {shown}" * bool(names))


def _sheet(path: Path, table: str | None) -> Iterator[list[Any]]:
    """The rows of a sheet that say something, without notes below them."""
    from python_calamine import CalamineError, CalamineWorkbook

    try:
        workbook = CalamineWorkbook.from_path(path)
        sheets = {name: workbook.get_sheet_by_name(name).to_python() for name in workbook.sheet_names}
    except CalamineError as error:
        raise TableError(f"{path} cannot be read as a workbook ({error})") from error
    sheet = sheets[_chosen(path, [name for name, rows in sheets.items() if rows], table)]
    rows = [row for row in sheet if any(value != "" for value in row)]
    while len(rows) > 2 and len(rows[0]) > 2 and sum(value != "" for value in rows[-1]) == 1:
        rows.pop()
    yield from rows


def _sqlite(path: Path, table: str | None) -> Iterator[Iterable[Any]]:
    try:
        with closing(sqlite3.connect(f"file:{quote(str(path.absolute()))}?mode=ro", uri=True)) as database:
            found = database.execute("SELECT name FROM sqlite_master WHERE type IN ('table', 'view') ORDER BY name")
            name = _chosen(path, [name for (name,) in found if not name.startswith("sqlite_")], table)
            cursor = database.execute(f"SELECT * FROM {_quoted(name)}")
            yield [column[0] for column in cursor.description]
            yield from cursor
    except sqlite3.Error as error:
        raise TableError(f"{path} cannot be read as a database ({error})") from error


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _copy_duckdb(path: Path, table: str | None, made: Path) -> None:
    import duckdb

    try:
        with closing(duckdb.connect(str(path), read_only=True)) as database:
            name = _chosen(path, [name for (name,) in database.execute("SHOW TABLES").fetchall()], table)
            place = str(made).replace("'", "''")
            database.execute(f"COPY (SELECT * FROM {_quoted(name)}) TO '{place}' (FORMAT parquet)")
    except duckdb.Error as error:
        raise TableError(f"{path} cannot be read as a database ({error!s:.200})") from error


def _json(path: Path) -> Iterator[Iterable[Any]]:
    """Records, one in a line or all in a list; records inside them are columns such as `address.city`."""
    names = dict.fromkeys(name for record in _records(path) for name in record)
    if not names:
        raise TableError(f"{path} is empty; a table has records with names and values")
    yield names
    for record in _records(path):
        yield [record.get(name) for name in names]


def _records(path: Path) -> Iterator[dict[str, Any]]:
    done = 0
    try:
        with pa.input_stream(str(path)) as stream:
            lines = filter(str.strip, io.TextIOWrapper(stream, encoding="utf-8-sig"))
            first, second = next(lines, ""), next(lines, "")
            content = itertools.chain([first, second], lines)
            # All in one list or object, unless each line is an object.
            in_lines = first.rstrip().endswith("}") and second
            records = map(json.loads, content) if in_lines else json.loads("".join(content) or "[]")
            if isinstance(records, dict):
                records = next((value for value in records.values() if isinstance(value, list)), [records])
            for record in records:
                yield dict(_flat(record))
                done += 1
    except (ValueError, AttributeError, TypeError) as error:
        raise TableError(f"{path}: record {done + 1} is no JSON object with names and values ({error})") from error


def _flat(record: dict[str, Any], start: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in record.items():
        if isinstance(value, dict) and value:
            yield from _flat(value, f"{start}{name}.")
        else:
            yield f"{start}{name}", value
