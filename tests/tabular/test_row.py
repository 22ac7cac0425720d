"""One row predicted: the same numbers as in a file, gaps where training had some."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from _made_tables import houses, read, write

from deep_ensembles.columns import TableError
from deep_ensembles.tabular import FittedTable, predict_row, predict_table

ROW = {"size": " 1.5 ", "colour": "red", "yard": "2"}


@pytest.mark.parametrize("task", ["numbers", "classes"])
def test_a_row_is_predicted_as_in_a_file(task: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    model = request.getfixturevalue(task).model
    (tmp_path / "row.csv").write_text("size,colour,yard\n 1.5 ,red,2\n")
    predict_table(model, tmp_path / "row.csv", tmp_path / "p.parquet", coverage=0.8)
    predicted = predict_row(model, ROW, tmp_path / "row.parquet", coverage=0.8)
    assert read(tmp_path / "p.parquet").to_pylist() == [predicted.values] == read(tmp_path / "row.parquet").to_pylist()
    assert (predicted.gaps, predicted.unseen) == ([], [])


def test_a_column_with_gaps_may_be_left_out(numbers: FittedTable) -> None:
    """`yard` had gaps in training, `size` and `colour` had none."""
    predicted = predict_row(numbers.model, {"size": "1", "colour": "red"})
    assert predicted.gaps == ["yard"]
    assert predicted.values == predict_row(numbers.model, {"size": "1", "colour": "red", "yard": ""}).values
    with pytest.raises(TableError, match=r"^the row lacks `size`, `colour`, which every training row had; "):
        predict_row(numbers.model, {"yard": "1"})
    assert predict_row(numbers.model, {"size": "", "colour": "red"}).unseen == ["size"]


@pytest.mark.parametrize(
    ("row", "options", "words"),
    [
        ({"sise": "1"}, {}, "the model has no column `sise`; did you mean `size`\\?"),
        ({**ROW, "size": "huge"}, {}, "column `size`: 'huge' in row 1 is not a number"),
        (ROW, {"abstain_below": 0.5}, "the model predicts numbers: use --abstain-above"),
        (ROW, {"keep": ("ownr",)}, "the row has no column `ownr`"),
    ],
)
def test_rows_that_cannot_be_are_refused(
    row: dict[str, str], options: dict[str, Any], words: str, numbers: FittedTable
) -> None:
    with pytest.raises(ValueError, match=words):
        predict_row(numbers.model, row, **options)


def test_values_need_not_be_text(numbers: FittedTable) -> None:
    values = {"size": 1.5, "colour": "red", "yard": 2}
    assert predict_row(numbers.model, values).values == predict_row(numbers.model, ROW).values
    assert predict_row(numbers.model, {**ROW, "size": "huge"}, errors="missing").unseen == ["size"]
    (told,) = predict_row(numbers.model, {**ROW, "yard": "huge"}, errors="missing").notes
    assert told == "1 value of `yard`, the first 'huge' in row 1, cannot be read: taken as missing"


def test_known_columns_that_are_no_inputs_are_ignored_or_kept(numbers: FittedTable) -> None:
    row = {**ROW, "owner": "7", "price": "3"}
    assert predict_row(numbers.model, row).values == predict_row(numbers.model, ROW).values
    assert next(iter(predict_row(numbers.model, row, keep=("owner",)).values.items())) == ("owner", "7")


def test_the_listing_is_small(numbers: FittedTable, classes: FittedTable) -> None:
    lines = predict_row(numbers.model, ROW, coverage=0.8, quantiles=(0.5,), abstain_above=0.0).listing().rows
    assert [name for name, _ in lines] == [
        *("mean", "std", "aleatoric_std", "epistemic_std", "80 % interval", "q0.5", "abstain"),
    ]
    assert lines[-1] == ["abstain", "yes"]
    lines = predict_row(classes.model, ROW).listing().rows
    assert [name for name, _ in lines][:4] == ["label", "confidence", "entropy", "disagreement"]
    shares = [float(value) for name, value in lines[4:]]
    assert shares == sorted(shares, reverse=True)
    assert sum(shares) == pytest.approx(1, abs=1e-3)


def test_nothing_is_written_over_a_model(numbers: FittedTable, tmp_path: Path) -> None:
    numbers.model.save(tmp_path / "m")
    with pytest.raises(TableError, match="is inside the model folder"):
        predict_row(numbers.model, ROW, tmp_path / "m" / "p.csv")


def test_cells_that_spreadsheets_would_run_are_made_safe_on_request(numbers: FittedTable, tmp_path: Path) -> None:
    table = houses(8).drop_columns(["number"])
    cells = ["=1+1", "+cmd", "-x", "@sum", "\t=1", "-3.5", "plain", None]
    table = table.append_column("=note", [cells])
    for ending in (".parquet", ".csv"):
        data, out = write(table, tmp_path / f"t{ending}"), tmp_path / "p.parquet"
        predict_table(numbers.model, data, out, keep=("=note",))
        assert read(out)["=note"].to_pylist()[:7] == cells[:7]
        predict_table(numbers.model, data, out, keep=("=note",), safe_cells=True)
        safe = ["'=1+1", "'+cmd", "'-x", "'@sum", "'\t=1", "-3.5", "plain"]
        assert read(out)["'=note"].to_pylist()[:7] == safe
