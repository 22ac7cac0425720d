"""`predict --row`, `show`, and what never reaches a terminal raw."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pyarrow as pa
import pytest
from _commands import QUICK, done, refused, run
from _made_tables import houses, read, write

ESCAPE = "\x1b"


def test_one_row_is_printed(folder: Path) -> None:
    result = done("predict", folder / "price-model", "--row", "size=1, colour=red")
    for name in ("mean", "90 % interval", "aleatoric_std", "epistemic_std"):
        assert re.search(rf"^ *{name} +-?[\d.]+", result.stdout, re.MULTILINE)
    assert result.stderr == "note: not given, and filled as gaps were in training: yard\n"
    result = done("predict", folder / "speed-model", "--row", "size=1,colour=pink,yard=1")
    assert re.search(r"^ *label +(fast|slow)", result.stdout, re.MULTILINE)
    assert re.search(r"^ *p_fast +[\d.]+", result.stdout, re.MULTILINE)
    assert result.stderr == "note: training did not see the value of colour; be careful with the prediction\n"


def test_one_row_speaks_json_and_may_be_written(folder: Path, tmp_path: Path) -> None:
    command = ["predict", folder / "price-model", "--row", "size=1,colour=red,yard=2", "--json", "--out", tmp_path / "p.csv"]
    told = json.loads(done(*command).stdout)
    assert (told["target"], told["gaps"], told["unseen"]) == ("price", [], [])
    (written,) = read(tmp_path / "p.csv").to_pylist()
    assert written == pytest.approx(told["values"])


def test_one_row_is_not_told_as_rows(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "one.csv").write_text("size,colour,yard,price\n1,red,2,3\n")
    assert "(1 row)" in done("predict", folder / "price-model", tmp_path / "one.csv", "--out", tmp_path / "p.csv").output
    assert "Scores of 1 row " in done("evaluate", folder / "price-model", tmp_path / "one.csv").output


def test_predict_speaks_json_of_a_table(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "p.csv"
    told = json.loads(done("predict", folder / "price-model", folder / "new.csv", "--out", out, "--json").stdout)
    expected = {"wrote": str(out), "rows": 200, "abstained": None, "ignored": [], "unseen": {"size": 7, "yard": 1}}
    assert told == {**expected, "files": 1, "done_before": 0, "notes": [], "unit": ""}


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ("size", "`row` must be like speed=12,dist=30, got 'size'"),
        ("size=1,5,colour=red", "got '5'; quote what has a comma"),
        ("=1", "`row` must be like speed=12,dist=30"),
        ("size=1,size=2", "`row` must have each column once, got 'size' twice"),
        ("sise=1", "the model has no column `sise`; did you mean `size`?"),
        ("colour=red", "the row lacks `size`, which every training row had"),
        ("", "the row lacks `size`, `colour`"),
    ],
)
def test_rows_that_cannot_be_are_refused(row: str, words: str, folder: Path) -> None:
    assert words in refused("predict", folder / "price-model", "--row", row)


def test_names_with_commas_and_equals_signs(tmp_path: Path) -> None:
    names = ["y", "size, m²", "a=b", "a"]
    table = houses(60).select(["price", "size", "owner", "yard"]).rename_columns(names)
    done("fit", write(table, tmp_path / "t.csv"), "--target", "y", *QUICK, "--out", tmp_path / "m")
    told = json.loads(done("predict", tmp_path / "m", "--row", '"size, m²"=1,a=b=3,a=2', "--json").stdout)
    (tmp_path / "row.csv").write_text('"size, m²",a=b,a\n1,3,2\n', encoding="utf-8")
    done("predict", tmp_path / "m", tmp_path / "row.csv", "--out", tmp_path / "p.parquet")
    assert read(tmp_path / "p.parquet").to_pylist() == [told["values"]]


def test_show_tells_what_a_model_is(folder: Path) -> None:
    said = done("show", folder / "price-model").stdout
    for words in ("price (regression)", "200 rows", "Held-out scores", "What was chosen", "category, 3 levels"):
        assert words in said
    told = json.loads(done("show", folder / "price-model", "--json").stdout)
    assert (told["target"], told["rows"]) == ("price", {"trained": 200, "held_out": 0})
    assert "is not a complete model folder" in refused("show", folder)


def test_control_characters_never_reach_the_terminal(tmp_path: Path) -> None:
    evil = f"size{ESCAPE}]0;owned\x07\x9b31m\u202e"
    table = houses(60).select(["price", "size", "yard"]).rename_columns([f"price{ESCAPE}[2J", evil, "yard"])
    data = write(table, tmp_path / "t.parquet")
    fit = ["fit", data, "--target", f"price{ESCAPE}[2J", *QUICK, "--out", tmp_path / "m"]
    results = [
        done(*fit),
        run(*fit),
        done("show", tmp_path / "m"),
        run("fit", data, "--target", "pirce", "--out", tmp_path / "n"),
    ]
    (tmp_path / "said.txt").write_text(results[0].stdout, encoding="utf-8")
    results += [done("fit", data, "--config", tmp_path / "said.txt", "--out", tmp_path / "again")]
    results += [done("evaluate", tmp_path / "m", data), run("predict", tmp_path / "m", "--row", "yard=1")]
    rows = write(pa.table({evil: ["huge"], "yard": ["1"], f"new{ESCAPE}": ["x"]}), tmp_path / "bad.parquet")
    predict = ["predict", tmp_path / "m", rows, "--out", tmp_path / "p.csv"]
    results += [run(*predict), done(*predict, "--errors", "missing")]
    for result in results:
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", result.output), result.output
    assert "size\\u001b]0;owned\\u0007\\u009b31m\\u202e" in results[0].stdout
    assert "new\\u001b" in results[-1].stderr
