"""Values that cannot be read when a table is learnt: found in all rows, named by row, counted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from _made_tables import held_out, houses, numbers_settings, quiet, with_column, write

from deep_ensembles.columns import TableError, infer_schema
from deep_ensembles.tabular import compare_table, fit_table
from deep_ensembles.tabular.files import open_table

SETTINGS: dict[str, Any] = {"max_epochs": 1, "members": 2}


def with_words(name: str, words: dict[int, str], n: int = 200) -> pa.Table:
    """Houses with words in some rows of a column."""
    values = ["" if value is None else str(value) for value in houses(n)[name].to_pylist()]
    for row, word in words.items():
        values[row] = word
    return with_column(houses(n), name, values)


def test_values_of_held_out_rows_are_named_by_the_row_of_the_file(tmp_path: Path) -> None:
    settings = numbers_settings(**SETTINGS)
    trained, held = held_out(houses(), tmp_path, settings)
    first, second = sorted((int(trained[7]), int(held[3])))
    data = write(with_words("size", {first: "huge", second: "tiny"}), tmp_path / "t.csv")
    with pytest.raises(TableError, match=rf"'huge' in row {first + 1} is not a number \(one of 2 such values\)"):
        fit_table(data, settings, log=quiet)
    said: list[Any] = []
    fit_table(data, numbers_settings(**SETTINGS, errors="missing"), log=said.append)
    assert f"note: 2 values of `size`, the first 'huge' in row {first + 1}, cannot be read: taken as missing" in said
    only = write(with_words("size", {int(held[3]): "tiny"}), tmp_path / "only.csv")
    with pytest.raises(TableError, match=rf"'tiny' in row {held[3] + 1} is not a number; correct it"):
        fit_table(only, settings, log=quiet)


def test_every_column_with_such_values_is_named(tmp_path: Path) -> None:
    table = with_column(with_words("size", {3: "huge"}), "yard", [*with_words("yard", {9: "wild"})["yard"].to_pylist()])
    for function in (fit_table, compare_table):
        with pytest.raises(TableError, match=r"column `size`: 'huge' in row 4 is not a number; others are in `yard`; "):
            function(write(table, tmp_path / "t.csv"), numbers_settings(**SETTINGS), log=quiet)


def test_rows_without_a_target_do_not_matter(tmp_path: Path) -> None:
    table = with_words("size", {0: "huge"})
    table = with_column(table, "price", [None, *houses()["price"].to_pylist()[1:]])
    fit_table(write(table, tmp_path / "t.csv"), numbers_settings(**SETTINGS), log=quiet)


def test_words_for_missing_values_are_no_errors(tmp_path: Path) -> None:
    fit_table(
        write(with_words("size", {0: "NA", 1: "?", 2: ""}), tmp_path / "t.csv"), numbers_settings(**SETTINGS), log=quiet
    )


@pytest.mark.parametrize(("kind", "readable"), [("number", "7"), ("date", "{}.12.2020"), ("boolean", "yes")])
def test_any_number_of_values_may_be_taken_as_missing_where_the_kind_is_known(
    kind: str, readable: str, tmp_path: Path
) -> None:
    unreadable = ("unknown to all", "never heard of")
    values = [unreadable[row % 8 == 4] if row % 4 == 0 else readable.format(1 + row % 31) for row in range(200)]
    data = write(with_column(houses(), "extra", values), tmp_path / "t.csv")
    settings = numbers_settings(**SETTINGS, kinds={"extra": kind})
    with pytest.raises(TableError, match=r"column `extra`: 'unknown to all' in row 1 is not a .*\(one of 50 such values\)"):
        fit_table(data, settings, log=quiet)
    said: list[Any] = []
    settings = numbers_settings(**SETTINGS, kinds={"extra": kind}, errors="missing")
    model = fit_table(data, settings, log=said.append).model
    assert "note: 50 values of `extra`, the first 'unknown to all' in row 1, cannot be read: taken as missing" in said
    assert model.schema.columns[-1].missing > 0


def test_long_values_are_shown_in_part(tmp_path: Path) -> None:
    data = write(with_words("size", {0: "x" * 10_000}), tmp_path / "t.csv")
    with pytest.raises(TableError, match=r"'x{60}…' in row 1") as error:
        fit_table(data, numbers_settings(**SETTINGS), log=quiet)
    assert len(str(error.value)) < 300


def test_values_taken_as_missing_are_counted_over_all_batches(tmp_path: Path) -> None:
    schema = infer_schema(houses(), "price", drop=["number", "owner"])
    files = open_table(write(with_words("size", {5: "huge", 60: "tiny", 190: "inf"}), tmp_path / "t.csv"))
    assert files.counting("refuse") == "refuse"
    for place, batch in enumerate(files.batches(schema.names, 50)):
        schema.encode(batch, files.counting("missing"), 50 * place + 1)
    assert files.notes == ["3 values of `size`, the first 'huge' in row 6, cannot be read: taken as missing"]
