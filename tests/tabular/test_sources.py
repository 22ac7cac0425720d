"""Tables in every kind of file that people have: the same rows come out, and nothing that is read is written over."""

from __future__ import annotations

import datetime
import gzip
import io
import json
import sqlite3
import sys
import zipfile
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from deep_ensembles import load
from deep_ensembles._files import file_system
from deep_ensembles.columns import TableError
from deep_ensembles.tabular import predict_table
from deep_ensembles.tabular.files import open_table
from deep_ensembles.tabular.writing import TABLES, check_output

ROWS = [
    {"city": f"Bern {row}", "size": row + 0.5, "rooms": row, "sold": row % 2 == 0, "day": f"2020-01-{row:02}"}
    for row in range(1, 8)
]
NAMES = list(ROWS[0])
CSV = "\n".join([",".join(NAMES), *(",".join(str(value) for value in row.values()) for row in ROWS)]) + "\n"
MODEL = Path(__file__).parents[1] / "models" / "table-numbers"


def in_sqlite(path: Path) -> None:
    database = sqlite3.connect(path)
    database.execute(f"CREATE TABLE flats ({', '.join(NAMES)})")
    database.executemany("INSERT INTO flats VALUES (?, ?, ?, ?, ?)", [list(row.values()) for row in ROWS])
    database.execute("CREATE VIEW large AS SELECT * FROM flats WHERE size > 3")
    database.commit()
    database.close()


def in_duckdb(path: Path) -> None:
    duckdb = pytest.importorskip("duckdb")
    database = duckdb.connect(str(path))
    database.register("rows", pa.Table.from_pylist(ROWS))
    database.execute("CREATE TABLE flats AS SELECT * FROM rows")
    database.close()


def in_excel(path: Path) -> None:
    """A title above the names, a note below the rows, and another sheet."""
    openpyxl = pytest.importorskip("openpyxl")
    pytest.importorskip("python_calamine")
    book = openpyxl.Workbook()
    sheet = book.active
    sheet.title = "flats"
    days = [{**row, "day": datetime.datetime.fromisoformat(row["day"])} for row in ROWS]
    for cells in (["Flats of 2020"], [], NAMES, *(list(row.values()) for row in days), [], ["Source: us"]):
        sheet.append(cells)
    book.create_sheet("notes").append(["hello"])
    book.create_sheet("empty")
    book.save(path)


def in_zip(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("flats.csv", CSV)


WRITERS = {
    "t.csv": lambda path: path.write_text(CSV),
    "t.csv.gz": lambda path: path.write_bytes(gzip.compress(CSV.encode())),
    "t.zip": in_zip,
    "t.parquet": lambda path: parquet.write_table(pa.Table.from_pylist(ROWS), path),
    "t.jsonl": lambda path: path.write_text("\n".join(map(json.dumps, ROWS))),
    "t.ndjson": lambda path: path.write_text("\n\n".join(map(json.dumps, ROWS))),
    "t.json": lambda path: path.write_text(json.dumps(ROWS, indent=2)),
    "t.jsonl.gz": lambda path: path.write_bytes(gzip.compress("\n".join(map(json.dumps, ROWS)).encode())),
    "t.sqlite": in_sqlite,
    "t.duckdb": in_duckdb,
    "t.xlsx": in_excel,
}


def written(name: str, folder: Path) -> Path:
    WRITERS[name](folder / name)
    return folder / name


def read(source, table=None) -> list[dict[str, str]]:
    """Rows as text, with one word for each truth."""
    words = {"1": "true", "0": "false", "True": "true", "False": "false"}
    rows = open_table(source, table).read().to_pylist()
    texts = [{name: str(value) for name, value in row.items()} for row in rows]
    return [{**row, "sold": words.get(row["sold"], row["sold"])} for row in texts]


EXPECTED = [{name: str(value).lower() if name == "sold" else str(value) for name, value in row.items()} for row in ROWS]


@pytest.mark.parametrize("name", WRITERS)
def test_every_kind_of_file_holds_the_same_rows(name, tmp_path):
    table = "flats" if name in ("t.sqlite", "t.xlsx") else None
    assert read(written(name, tmp_path), table) == EXPECTED


@pytest.mark.parametrize("name", ["t.csv", "t.parquet", "t.jsonl", "t.csv.gz", "t.xlsx", "t.zip", "t.sqlite"])
def test_urls_folders_of_them_and_standard_input(name, tmp_path, monkeypatch):
    path, table = written(name, tmp_path), "flats" if name in ("t.sqlite", "t.xlsx") else None
    system, place = file_system(f"memory://{tmp_path.name}/{name}")
    system.pipe(place, path.read_bytes())
    assert read(f"memory://{tmp_path.name}/{name}", table) == EXPECTED
    assert name in ("t.sqlite", "t.zip") or read(f"memory://{tmp_path.name}", table) == EXPECTED
    assert read(path.as_uri(), table) == EXPECTED
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(path.read_bytes())))
    assert read("-", table) == EXPECTED


@pytest.mark.parametrize(
    ("name", "table", "words"),
    [
        ("t.sqlite", None, "t.sqlite holds several tables; choose one with --table: flats, large$"),
        ("t.sqlite", "houses", "t.sqlite has no table 'houses'; choose one with --table: flats, large$"),
        ("t.xlsx", None, "t.xlsx holds several tables; choose one with --table: flats, notes$"),
        ("t.csv", "flats", "t.csv is a table itself, neither a workbook nor a database: leave out --table flats$"),
    ],
)
def test_several_tables_are_named(name, table, words, tmp_path):
    with pytest.raises(TableError, match=words):
        open_table(written(name, tmp_path), table)
    assert len(read(written("t.zip", tmp_path))) == 7


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("t.jsonl", b'{"a": 1}\n{"a": \n', r"t.jsonl: record 2 is no JSON object"),
        ("t.json", b"[1, 2]", r"t.json: record 1 is no JSON object"),
        ("t.json", b"", r"t.json is empty"),
        ("t.zip", b"PK\x03\x04nothing", r"t.zip starts as a zip archive, but is none"),
        ("t.xlsx", b"PK\x03\x04nothing", r"t.xlsx cannot be read as a workbook|needs python_calamine"),
        ("t.sqlite", b"SQLite format 3\x00" + b"x" * 100, r"t.sqlite cannot be read as a database"),
    ],
)
def test_broken_files_are_named_without_a_temporary_folder(name, content, words, tmp_path):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(TableError, match=words) as caught:
        open_table(tmp_path / name)
    assert "/made/" not in str(caught.value)
    with pytest.raises(TableError, match=r"^memory://nothing.csv cannot be read"):
        open_table("memory://nothing.csv")


def test_records_in_records_and_records_with_other_names(tmp_path):
    (tmp_path / "t.json").write_text('{"rows": [{"a": {"b": 1, "c": [1, 2]}}, {"d": null, "a": {"b": true}}]}')
    rows = open_table(tmp_path / "t.json").read().to_pylist()
    assert rows == [{"a.b": "1", "a.c": "[1, 2]", "d": ""}, {"a.b": "true", "a.c": "", "d": ""}]


def test_copies_are_gone_afterwards(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    files = open_table(written("t.jsonl", tmp_path))
    assert list((tmp_path / "temporary").iterdir())
    del files
    with pytest.raises(TableError):
        open_table(tmp_path / "not there")
    assert not list((tmp_path / "temporary").iterdir())


@pytest.mark.parametrize(
    ("above", "skipped"),
    [
        ("Flats of 2020\n", "Flats of 2020"),
        ("Flats of 2020\nall of them,,,,\n\n", "Flats of 2020 all of them"),
        ("Flats, by the office\n", "Flats by the office"),
        ('"A title\nin two lines"\n', "A title in two lines"),
    ],
)
def test_titles_are_left_out_and_said(above, skipped, tmp_path):
    (tmp_path / "t.csv").write_text(above + CSV)
    files = open_table(tmp_path / "t.csv")
    assert read(tmp_path / "t.csv") == EXPECTED
    assert files.notes == [f"t.csv: what stands above the names of columns is left out: '{skipped}'"]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("a\n1,2\n3,4\n", "line 2: 2 values for 1 column|holds values"),  # R leaves out the name of row names
        (f"{CSV}Bern 9,4\n", "line 9: 2 values for 5 columns"),
        (CSV.replace("Bern 4,", "a remark: in the middle\nBern 4,"), "line 5: 1 value for 5 columns"),
        (f"{CSV}Total: 7\n", "line 9: 1 value for 5 columns; quote values that contain ',', or mend or delete the line"),
    ],
)
def test_what_may_be_a_broken_row_is_no_title(content, words, tmp_path):
    (tmp_path / "t.csv").write_text(content)
    with pytest.raises(TableError, match=words):
        open_table(tmp_path / "t.csv").read()


def test_names_may_be_left_out_and_are_no_title(tmp_path):
    (tmp_path / "t.csv").write_text(",y\n0,1.5\n1,2.5\n")
    assert open_table(tmp_path / "t.csv").names == ("column_1", "y")


def test_predictions_as_json_lines_to_a_url_and_to_standard_output(tmp_path, capfdbinary):
    model = load(MODEL)
    data = tmp_path / "new.jsonl"
    data.write_text("\n".join(json.dumps(dict.fromkeys(model.schema.names)) for _ in range(3)))
    predict_table(model, data, tmp_path / "p.jsonl", errors="missing")
    lines = [json.loads(line) for line in (tmp_path / "p.jsonl").read_text().splitlines()]
    place = f"memory://{tmp_path.name}/p.csv"
    predict_table(model, data, place)
    predict_table(model, data, "-")
    table = capfdbinary.readouterr().out
    system, path = file_system(place)
    assert system.cat(path) == table
    (tmp_path / "p.csv").write_bytes(table)
    means = [float(row["mean"]) for row in open_table(tmp_path / "p.csv").read().to_pylist()]
    assert means == [line["mean"] for line in lines]
    assert list(lines[0])[:2] == ["mean", "std"]


def test_cells_have_no_power_over_a_terminal(tmp_path, monkeypatch):
    model, shown = load(MODEL), io.StringIO()
    monkeypatch.setattr(shown, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(sys, "stdout", shown)
    (tmp_path / "new.jsonl").write_text(json.dumps({**dict.fromkeys(model.schema.names), "what": "\x1b[31mred"}))
    predict_table(model, tmp_path / "new.jsonl", "-", errors="missing", keep=("what",))
    assert "\\u001b[31mred" in shown.getvalue()
    assert "\x1b" not in shown.getvalue()


@pytest.mark.parametrize(
    ("out", "inputs", "words"),
    [
        ("memory://a/new.csv", ["memory://a/new.csv"], "is read by the same command"),
        ("memory://a/parts/p.csv", ["memory://a/parts/"], "is read by the same command"),
        ("memory://a/p.txt", [], "must end in one of"),
        ("new.jsonl", ["file:///new.jsonl"], ""),
        ("t.sqlite", ["t.sqlite"], "must end in one of"),
    ],
)
def test_what_is_read_is_not_written_over(out, inputs, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    if not words:
        Path(out).write_text("{}")
        inputs, words = [Path(out).absolute().as_uri()], "is read by the same command"
    with pytest.raises(TableError, match=words):
        check_output(out, TABLES, inputs=inputs)
    check_output("-", TABLES, inputs=inputs)
