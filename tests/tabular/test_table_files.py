"""Tables in files: dialects, encodings, parts, broken files, and files that are there whole or not at all."""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from deep_ensembles.columns import TableError
from deep_ensembles.tabular.files import open_table
from deep_ensembles.tabular.writing import TABLES, check_output, writing

ROWS = [{"a": "1", "b": "x"}, {"a": "2", "b": "ü"}]


def made(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def rows(path: Any, **arguments: Any) -> list[dict[str, Any]]:
    return open_table(path).read(**arguments).to_pylist()


@pytest.mark.parametrize(
    "content",
    [
        "a,b\n1,x\n2,ü\n",
        "a;b\n1;x\n2;ü\n",
        "a\tb\n1\tx\n2\tü\n",
        "a|b\n1|x\n2|ü\n",
        "sep=;\na;b\n1;x\n2;ü\n",
        "a,b\r\n1,x\r\n2,ü",
        "a,b\r1,x\r2,ü\r",
        "\n \n,,\na,b\n\n1,x\n\n2,ü\n\n",
        '"a","b"\n"1","x"\n"2","ü"\n',
        "a,b\n1,x\n2,ü\n".encode("utf-8-sig"),
        "a,b\n1,x\n2,ü\n".encode("utf-16"),
        "a,b\n1,x\n2,ü\n".encode("utf-16-le"),
        "a,b\n1,x\n2,ü\n".encode("utf-16-be"),
        "a,b\n1,x\n2,ü\n".encode("latin-1"),
        gzip.compress("a,b\n1,x\n2,ü\n".encode(), mtime=0),
        bz2.compress("a;b\n1;x\n2;ü\n".encode("latin-1")),
    ],
    ids=lambda content: repr(content)[:24],
)
def test_dialects(tmp_path, content):
    assert rows(made(tmp_path / "table.csv", content)) == ROWS


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ('a,b\n"x\ny, z",2\n', {"a": "x\ny, z", "b": "2"}),
        ('a,b\n"say ""hi""",\n', {"a": 'say "hi"', "b": ""}),
        ("a;b\n1,5;2,5\n", {"a": "1,5", "b": "2,5"}),
        ("a, first;b\n1;2\n", {"a, first": "1", "b": "2"}),
        ("note|n\nhello, you; all|1\nbye, all|2\n", {"note": "hello, you; all", "n": "1"}),
        ('price\n"1,5"\n', {"price": "1,5"}),
        ("a,b\n NA ,007\n", {"a": " NA ", "b": "007"}),
        ("0,1\n4.9,3.0\n", {"0": "4.9", "1": "3.0"}),
    ],
)
def test_values_are_text_as_they_stand(tmp_path, content, expected):
    assert rows(made(tmp_path / "table.csv", content))[0] == expected


def test_values_of_two_encodings_and_names_of_either(tmp_path):
    content = "prénom,b\n".encode("latin-1") + "é,1\n".encode() + "è,€\n".encode("cp1252") + b"\x81,2\n"
    table = open_table(made(tmp_path / "table.csv", content))
    assert table.notes == []
    assert [list(each.values()) for each in table.read().to_pylist()] == [["é", "1"], ["è", "€"], ["\x81", "2"]]
    assert table.names == ("prénom", "b")
    assert table.notes == ["table.csv: values that are not UTF-8 are read as Windows-1252"]


def test_bytes_that_are_not_utf8_late_in_a_file(tmp_path):
    """After batches have been read."""
    content = b"a,b\n" + b"some longer text to fill blocks,1\n" * 400_000 + b"\xe9,2\n"
    seen = [batch.column("a") for batch in open_table(made(tmp_path / "table.csv", content)).batches()]
    assert len(seen) > 2
    assert sum(len(each) for each in seen) == 400_001
    assert seen[-1][-1].as_py() == "é"


def test_a_row_longer_than_a_block(tmp_path):
    long = "word " * 2_000_000
    content = "a,b\n" + "short,1\n" * 3 + f"{long},2\n" + "short,3\n"
    assert rows(made(tmp_path / "table.csv", content), columns=["b"]) == [{"b": each} for each in "11123"]
    assert rows(made(tmp_path / "table.csv", content))[3]["a"] == long


def test_a_header_longer_than_the_head_that_is_looked_at(tmp_path):
    names = [f"a rather long name of the column with the number {place}" for place in range(30_000)]
    table = open_table(made(tmp_path / "table.csv", ";".join(names) + "\n" + ";".join(["1,5"] * 30_000)))
    assert table.names == tuple(names)
    assert next(table.batches(names[-1:])).to_pylist() == [{names[-1]: "1,5"}]


def test_names_are_made_whole_and_different(tmp_path):
    table = open_table(made(tmp_path / "table.csv", "x,x,, x ,x_2\n1,2,3,4,5\n"))
    assert table.names == ("x", "x_3", "column_3", "x_4", "x_2")
    assert table.notes == [
        "table.csv: a second column `x` is called `x_3`",
        "table.csv: column 3 has no name and is called `column_3`",
        "table.csv: a second column `x` is called `x_4`",
    ]
    assert list(table.read().to_pylist()[0].values()) == list("12345")


def test_parquet_with_names_twice(tmp_path):
    twice = pa.Table.from_arrays([pa.array([1]), pa.array([2]), pa.array([3])], ["x", "x", "x.y"])
    pq.write_table(twice, tmp_path / "table.parquet")
    table = open_table(tmp_path / "table.parquet")
    assert table.names == ("x", "x_2", "x.y")
    assert table.read(["x_2", "x.y", "x"]).to_pylist() == [{"x_2": 2, "x.y": 3, "x": 1}]


def test_parquet_keeps_types_and_writes_dictionaries_out(tmp_path):
    table = pa.table(
        {
            "i": pa.array([1, None], pa.int16()),
            "d": pa.array(["1.50", None]).cast(pa.decimal128(9, 2)),
            "t": pa.array([0, None], pa.timestamp("ns", "Europe/Berlin")),
            "l": pa.array([[1], None]),
            "c": pa.array(["x", None]).dictionary_encode(),
        }
    )
    pq.write_table(table, tmp_path / "table.parquet")
    again = open_table(tmp_path / "table.parquet").read()
    assert again.drop(["c"]).schema.types == table.drop(["c"]).schema.types
    assert again.schema.field("c").type == pa.string()
    assert again.to_pylist() == table.to_pylist()


@pytest.mark.parametrize("library", [pd.DataFrame, pl.DataFrame], ids=["pandas", "polars"])
def test_files_of_other_libraries(tmp_path, library):
    frame = library({"a": [1, 2], "b": ["x", "ü"]})
    for name in ("write_parquet", "to_parquet"):
        if hasattr(frame, name):
            getattr(frame, name)(tmp_path / "table.parquet")
    assert rows(tmp_path / "table.parquet") == [{"a": 1, "b": "x"}, {"a": 2, "b": "ü"}]


def test_folders_and_lists_of_parts(tmp_path):
    made(tmp_path / "part-2.csv", "b;a\n4;3\n")
    made(tmp_path / "part-1.csv.gz", gzip.compress(b"a,b\n1,2\n"))
    made(tmp_path / "_SUCCESS", "")
    made(tmp_path / ".part-0.csv.crc", "x")
    made(tmp_path / "notes.md", "# no table")
    table = open_table(tmp_path)
    assert table.read().to_pylist() == [{"a": "1", "b": "2"}, {"a": "3", "b": "4"}]
    assert table.n_rows is None
    assert table.decimal_comma_likely
    assert rows([tmp_path / "part-2.csv", str(tmp_path / "part-1.csv.gz")])[0] == {"b": "4", "a": "3"}


def test_parts_of_different_types_meet(tmp_path):
    pq.write_table(pa.table({"a": [1], "b": ["x"], "c": [1]}), tmp_path / "1.parquet")
    pq.write_table(pa.table({"a": [2.5], "b": ["y"], "c": ["z"]}), tmp_path / "2.parquet")
    table = open_table(tmp_path)
    assert table.n_rows == 2
    assert table.read().to_pydict() == {"a": [1.0, 2.5], "b": ["x", "y"], "c": ["1", "z"]}
    assert [batch.schema.field("a").type for batch in table.batches()] == [pa.int64(), pa.float64()]


def test_parts_must_have_the_same_columns(tmp_path):
    made(tmp_path / "1.csv", "a,b\n1,2\n")
    other = made(tmp_path / "2.csv", "a\n1\n")
    with pytest.raises(TableError, match=r"2.csv has no column `b`, which 1.csv has; parts must be alike$"):
        open_table(tmp_path)
    with pytest.raises(TableError, match=r"1.csv has a column `b`, which 2.csv lacks; parts must be alike$"):
        open_table([other, tmp_path / "1.csv"])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", r"table.csv is empty; a table has a line of column names and rows below it"),
        (" \n\n,,\n", r"table.csv is empty"),
        (
            "a,b\n1,2\n3\n",
            r"table.csv, line 3: 1 value for 2 columns; quote values that contain ',', or mend or delete the line",
        ),
        ("a;b\n1;2\n3;4;5\n", r"table.csv, line 3: 3 values for 2 columns; quote values that contain ';'"),
        ('a,b\n"x\ny",2\n3,4,5\n', r"table.csv, line 4: 3 values for 2 columns"),
        ("\n\na,b\n1,2\n3\n", r"table.csv, line 5: 1 value for 2 columns"),
        ('a,b\n1,2\n"3,4\n5,6\n', r"table.csv, line 4: 1 value for 2 columns"),
        ("5.1,3.5\n4.9,3.0\n", r"the first line \(5.1, 3.5\) holds values, not column names; add a line of names above it"),
        ("7,12,3\n4.9,3.0,1\n", r"the first line \(7, 12, 3\) holds values"),
        (
            b"PK\x03\x04 and more",
            r"table.csv starts as a zip archive, but is none",
        ),
        (bytes(range(256)), r"table.csv is not text: its first bytes hold zeros"),
        (b"PAR1 and no more", r"table.csv is not a whole Parquet file"),
        (
            gzip.compress(b"a,b\n" + bytes(range(32, 127)) * 99, mtime=0)[:60],
            r"table.csv cannot be unpacked .*; is it complete\?",
        ),
    ],
)
def test_broken_files_are_named_with_the_place(tmp_path, content, message):
    with pytest.raises(TableError, match=message):
        open_table(made(tmp_path / "table.csv", content)).read()


def test_a_packed_file_that_ends_early(tmp_path):
    text = "a,b\n" + "".join(f"{row},{row * row % 1237}\n" for row in range(400_000))
    whole = gzip.compress(text.encode())
    with pytest.raises(TableError, match=r"table.csv.gz cannot be read to its end .*; is it complete\?"):
        open_table(made(tmp_path / "table.csv.gz", whole[: len(whole) * 9 // 10])).read()


def test_a_first_line_that_may_be_values(tmp_path):
    table = open_table(made(tmp_path / "iris.csv", "5.1,3.5,1.4,setosa\n4.9,3.0,1.3,setosa\n"))
    assert table.notes == [
        "iris.csv: the first line (5.1, 3.5, 1.4, setosa) is taken for column names, but looks like values"
    ]


def test_missing_files_and_columns(tmp_path):
    with pytest.raises(TableError, match=r"no.csv is not there$"):
        open_table(tmp_path / "no.csv")
    with pytest.raises(TableError, match=r"holds no table; parts end in .csv, "):
        open_table(tmp_path)
    with pytest.raises(TableError, match="at least one file, got none"):
        open_table([])
    table = open_table(made(tmp_path / "table.csv", "a,b\n1,2\n"))
    with pytest.raises(TableError, match=r"table.csv has no column `c`; it has a, b$"):
        table.read(["a", "c", "d"])
    with pytest.raises(ValueError, match="`batch_rows` must be an integer ≥ 1, got 0"):
        next(table.batches(batch_rows=0))


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("pirce", "did you mean `price`?"),
        ("PRICE", "did you mean `price`?"),
        ("Size (m²)", "did you mean `size [m²]`?"),
        ("zip_code", "did you mean `zip code`?"),
        ("owner", "it has price, size [m²], zip code"),
    ],
)
def test_a_name_that_is_nearly_right_is_suggested(name, words, tmp_path):
    table = open_table(made(tmp_path / "houses.csv", "price,size [m²],zip code\n1,2,3\n"))
    with pytest.raises(TableError, match=rf"^houses.csv has no column `{re.escape(name)}`; {re.escape(words)}$"):
        table.check_columns(["price", name])


def test_what_is_said_of_names_is_short(tmp_path):
    names = [f"column number {i} of a very long table" for i in range(500)]
    table = open_table(made(tmp_path / "houses.csv", ",".join(names) + "\n" + ",".join("1" * 500) + "\n"))
    with pytest.raises(TableError, match=r"^houses.csv has no column `x+`; it has column number 0 ") as error:
        table.check_columns(["x" * 1000])
    assert len(str(error.value)) < 350


def test_a_header_alone_is_a_table_without_rows(tmp_path):
    table = open_table(made(tmp_path / "table.csv", "a,b\n"))
    assert table.names == ("a", "b")
    assert list(table.batches()) == []
    assert (table.read().num_rows, table.read().column_names) == (0, ["a", "b"])


def test_one_giant_row_group_comes_in_batches(tmp_path):
    pq.write_table(pa.table({"a": np.arange(300_000)}), tmp_path / "table.parquet", row_group_size=300_000)
    batches = list(open_table(tmp_path / "table.parquet").batches(batch_rows=65536))
    assert max(batch.num_rows for batch in batches) <= 65536
    assert np.concatenate([batch.column("a").to_numpy() for batch in batches]).tolist() == list(range(300_000))


texts = st.text(st.characters(codec="utf-8", exclude_characters="\x00\r"), max_size=6)
tables = st.integers(1, 4).flatmap(
    lambda width: st.lists(st.lists(texts, min_size=width, max_size=width), min_size=1, max_size=6)
)


@given(values=tables, batch_rows=st.integers(1, 4), separator=st.sampled_from(",;\t|"))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=50)
def test_what_python_writes_is_read_in_any_batches(tmp_path, values, batch_rows, separator):
    names = [f"c{place}" for place in range(len(values[0]))]
    buffer = io.StringIO(newline="")
    writer = csv.writer(buffer, delimiter=separator, quoting=csv.QUOTE_ALL, lineterminator="\n")
    writer.writerows([names, *values])
    path = made(tmp_path / f"table.{'tsv' if separator == chr(9) else 'csv'}", buffer.getvalue())
    batches = list(open_table(path).batches(names[::-1], batch_rows))
    assert all(0 < batch.num_rows <= batch_rows for batch in batches)
    assert [[row[name] for name in names] for batch in batches for row in batch.to_pylist()] == values


PIECES = st.sampled_from(
    [b'"', b",", b"\n", b"\r", b";", b"\x00", b"\xff", b"\xe9", b" ", b"a", b"1", b"1,2\n", b'"x\ny",3\n']
)


@given(content=st.lists(PIECES, max_size=12).map(b"".join), start=st.sampled_from([b"a,b\n1,2\n", b"\xff\xfea\x00", b""]))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_any_bytes_are_a_table_or_a_clear_error(tmp_path, content, start):
    path = made(tmp_path / "table.csv", start + content)
    complaint = None
    try:
        table = open_table(path)
        whole = table.read()
    except TableError as error:
        complaint = str(error)
    if complaint is not None:
        assert complaint.startswith(str(path))
        return
    assert whole.column_names == list(table.names)
    assert len(set(table.names)) == len(table.names) > 0
    assert sum(batch.num_rows for batch in table.batches(batch_rows=1)) == whole.num_rows


@pytest.mark.parametrize("ending", [".csv", ".tsv", ".csv.gz", ".parquet"])
@given(values=st.lists(st.tuples(texts, st.integers(-(2**53), 2**53)), min_size=1, max_size=6))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=20)
def test_what_is_written_is_read(tmp_path, ending, values):
    path = tmp_path / f"table{ending}"
    with writing(path) as table:
        for text, number in values:
            table.write(pa.record_batch({"text": pa.array([text]), "number": pa.array([number])}))
    assert [(row["text"], int(row["number"])) for row in rows(path)] == values


@pytest.mark.parametrize("ending", [".csv", ".tsv.gz", ".parquet"])
def test_nothing_is_left_where_writing_fails(tmp_path, ending):
    path = made(tmp_path / f"table{ending}", b"the old one")

    def fail() -> None:
        with writing(path) as table:
            table.write(pa.record_batch({"a": [1]}))
            raise RuntimeError("power cut")

    with pytest.raises(RuntimeError, match="power cut"):
        fail()
    assert path.read_bytes() == b"the old one"
    assert [each.name for each in tmp_path.iterdir()] == [path.name]


def test_what_cannot_be_written(tmp_path):
    with (
        pytest.raises(TableError, match=r"table.xlsx must end in one of .csv, .tsv, .parquet"),
        writing(tmp_path / "table.xlsx"),
    ):
        pass
    with pytest.raises(TableError, match="nothing was written to"), writing(tmp_path / "table.csv"):
        pass
    check_output(tmp_path / "Table.CSV.GZ", TABLES)
    assert list(tmp_path.iterdir()) == []


def test_without_pyarrow_the_error_says_what_to_install():
    code = "import sys; sys.modules['pyarrow'] = None; from deep_ensembles.tabular import predict_table"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert out.returncode == 1
    assert out.stderr.endswith("ImportError: tables need pyarrow: pip install 'deep-ensembles[tables]'\n")
