"""A model and a table → a table of predictions."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from _made_tables import classes_settings, fitted, houses, normal_mixture, numbers_settings, read, with_column, write
from scipy import stats
from typer.testing import CliRunner

from deep_ensembles import load
from deep_ensembles.cli import app
from deep_ensembles.columns import TableError
from deep_ensembles.tabular import FittedTable, evaluate_table, predict_table
from deep_ensembles.tabular import outputs as _outputs
from deep_ensembles.tabular import predict as _predict

NUMBER_COLUMNS = ["mean", "std", "aleatoric_std", "epistemic_std", "lower", "upper"]
DOCUMENTATION = Path(__file__).parents[2] / "docs" / "tables.md"


@pytest.mark.parametrize("outputs", [_outputs.NUMBER_OUTPUTS, _outputs.CLASS_OUTPUTS], ids=["numbers", "classes"])
def test_every_predicted_column_is_in_the_documentation_and_the_help(outputs: tuple[_outputs.Output, ...]) -> None:
    rows = [f"| `{output.name}` | {output.meaning} |" for output in outputs]
    assert "\n".join(rows) + "\n\n" in DOCUMENTATION.read_text("utf-8")
    words = re.findall(r"[\w<>]+", CliRunner().invoke(app, ["predict", "--help"], env={"COLUMNS": "200"}).output)
    always = [output.name for output in outputs if output.wanted is None]
    assert [word for word in words[words.index(always[0]) :] if word in always][: len(always)] == always


def test_numbers_are_predicted_with_the_promised_columns(numbers: FittedTable, tmp_path: Path) -> None:
    table = with_column(houses(50, seed=3), "weather", ["fair"] * 50)
    limit = float(numbers.model(table).stddev.median())
    data, out = write(table, tmp_path / "new.parquet"), tmp_path / "p.parquet"
    asked: Any = {"coverage": 0.8, "quantiles": (0.25, 0.5), "abstain_above": limit, "keep": ("number",)}
    found = predict_table(numbers.model, data, out, **asked)
    told = read(out)
    assert told.column_names == ["number", *NUMBER_COLUMNS, "q0.25", "q0.5", "abstain"]
    assert told["number"].to_pylist() == table["number"].to_pylist()
    columns = {name: told[name].to_numpy() for name in told.column_names[1:]}
    means, deviations = normal_mixture(numbers, table)
    np.testing.assert_allclose(columns["mean"], means.mean(0), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(columns["aleatoric_std"] ** 2, (deviations**2).mean(0), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(columns["epistemic_std"] ** 2, means.var(0), rtol=1e-4, atol=1e-6)
    parts = columns["aleatoric_std"] ** 2 + columns["epistemic_std"] ** 2
    np.testing.assert_allclose(columns["std"] ** 2, parts, rtol=1e-5, atol=1e-6)
    for name, level in (("lower", 0.1), ("upper", 0.9), ("q0.25", 0.25), ("q0.5", 0.5)):
        np.testing.assert_allclose(stats.norm(means, deviations).cdf(columns[name]).mean(0), level, rtol=1e-4, atol=1e-6)
    np.testing.assert_array_equal(columns["abstain"], columns["std"] > limit)
    assert (found.rows, found.abstained, list(found.ignored)) == (50, int(columns["abstain"].sum()), ["weather"])
    assert 20 <= columns["abstain"].sum() <= 25


def test_recalibrated_numbers_come_from_the_recalibrated_distribution(tmp_path: Path) -> None:
    table = houses(50, seed=3)
    data, out = write(table, tmp_path / "new.parquet"), tmp_path / "p.parquet"
    for name in ("variance_scaling", "isotonic", "conformal"):
        model = fitted(houses(), tmp_path, numbers_settings(recalibration=name)).model
        predict_table(model, data, out)
        told, ours = read(out), model(table)
        for column, level in (("lower", 0.05), ("upper", 0.95)):
            ends = ours.icdf(torch.tensor(level, dtype=torch.float64)).numpy()
            np.testing.assert_allclose(told[column].to_numpy(), ends, rtol=1e-5, atol=1e-6)
        parts = [told[each].to_numpy() ** 2 for each in ("std", "aleatoric_std", "epistemic_std")]
        np.testing.assert_allclose(parts[0], parts[1] + parts[2], rtol=1e-5, atol=1e-6)


def test_classes_are_predicted_with_the_promised_columns(classes: FittedTable, tmp_path: Path) -> None:
    table = houses(50, seed=3)
    limit = float(classes.model(table).probs.max(-1).values.median())
    data, out = write(table, tmp_path / "new.parquet"), tmp_path / "p.parquet"
    found = predict_table(classes.model, data, out, abstain_below=limit, keep=("owner", "size"))
    told = read(out)
    names = ["owner", "size", "label", "confidence", "entropy", "disagreement", "p_fast", "p_slow", "abstain"]
    assert told.column_names == names
    members = classes.model.ensemble.mixture(classes.model.schema.encode(table)).components.probs.double().numpy()
    probabilities = members.mean(0)
    ours = np.stack([told["p_fast"], told["p_slow"]], 1)
    np.testing.assert_allclose(ours, probabilities, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(ours.sum(1), 1, rtol=1e-12)
    assert told["label"].to_pylist() == np.array(["fast", "slow"])[ours.argmax(1)].tolist()
    np.testing.assert_array_equal(told["confidence"].to_numpy(), ours.max(1))
    np.testing.assert_allclose(told["entropy"].to_numpy(), stats.entropy(probabilities, axis=1), rtol=1e-4, atol=1e-6)
    disagreement = stats.entropy(members, np.broadcast_to(probabilities, members.shape), axis=2).sum(0)
    np.testing.assert_allclose(told["disagreement"].to_numpy(), disagreement, rtol=1e-3, atol=1e-6)
    np.testing.assert_array_equal(told["abstain"].to_numpy(), ours.max(1) < limit)
    assert 0 < found.abstained == int(told["abstain"].to_numpy().sum()) < 50


def test_order_is_kept_across_batches_and_files(
    numbers: FittedTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = houses(100, seed=4)
    whole, cut = tmp_path / "whole.csv", tmp_path / "cut.csv"
    data = write(table, tmp_path / "new.parquet")
    predict_table(numbers.model, data, whole, keep=("number",))
    monkeypatch.setattr(_predict, "BATCH_ROWS", 7)
    parts = [write(table.slice(0, 33), tmp_path / "b.csv"), write(table.slice(33), tmp_path / "a.parquet")]
    predict_table(numbers.model, parts, cut, keep=("number",))
    assert read(cut)["number"].to_pylist() == table["number"].to_pylist()
    for name in NUMBER_COLUMNS:
        np.testing.assert_allclose(read(cut)[name].to_numpy(), read(whole)[name].to_numpy(), rtol=1e-5, atol=1e-6)


def test_columns_may_stand_in_any_order_and_others_are_ignored(numbers: FittedTable, tmp_path: Path) -> None:
    table = houses(30, seed=4)
    mixed = with_column(table, "weather", ["fair"] * 30).select(["weather", "speed", "colour", "price", "yard", "size"])
    for name, rows in (("plain", table.select(["size", "colour", "yard"])), ("mixed", mixed)):
        predicted = predict_table(numbers.model, write(rows, tmp_path / f"{name}-data.csv"), tmp_path / f"{name}.csv")
        # The target and what was left out in training are no surprise.
        assert list(predicted.ignored) == {"plain": [], "mixed": ["weather"]}[name]
    assert (tmp_path / "plain.csv").read_bytes() == (tmp_path / "mixed.csv").read_bytes()


def test_columns_stored_as_other_types_are_read_alike(numbers: FittedTable, tmp_path: Path) -> None:
    table = houses(30, seed=4).select(["size", "colour", "yard"])
    table = with_column(table, "size", np.arange(30) % 5)
    predict_table(numbers.model, write(table, tmp_path / "a.parquet"), tmp_path / "a.csv")
    other = pa.table({
        "size": table["size"].cast(pa.string()), "colour": table["colour"].dictionary_encode(),
        "yard": table["yard"].cast(pa.string()),
    })  # fmt: skip
    predict_table(numbers.model, write(other, tmp_path / "b.parquet"), tmp_path / "b.csv")
    assert (tmp_path / "a.csv").read_bytes() == (tmp_path / "b.csv").read_bytes()


def test_a_missing_column_is_named(numbers: FittedTable, tmp_path: Path) -> None:
    data = write(houses(30).drop_columns(["size", "yard"]), tmp_path / "new.csv")
    with pytest.raises(ValueError, match="the table lacks the columns `size`, `yard`, which the model was trained with"):
        predict_table(numbers.model, data, tmp_path / "p.csv")
    assert [each.name for each in tmp_path.iterdir()] == ["new.csv"]


def test_unseen_categories_and_missing_values_are_predicted(numbers: FittedTable, tmp_path: Path) -> None:
    table = pa.table({"size": [0.1, None], "colour": ["mauve", None], "yard": [None, 1.0]})
    assert predict_table(numbers.model, write(table, tmp_path / "new.parquet"), tmp_path / "p.csv").rows == 2
    assert np.isfinite(read(tmp_path / "p.csv")["mean"].to_numpy()).all()


def test_unreadable_numbers_are_refused_by_name_and_row_or_missing(
    numbers: FittedTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_predict, "BATCH_ROWS", 7)
    rows = houses(30).select(["size", "colour", "yard"]).to_pandas().astype({"size": object})
    rows.loc[16, "size"] = "huge"
    rows.to_csv(tmp_path / "new.csv", index=False)
    out = tmp_path / "p.csv"
    with pytest.raises(ValueError, match="column `size`: 'huge' in row 17 is not a number"):
        predict_table(numbers.model, tmp_path / "new.csv", out)
    assert not out.exists()
    predict_table(numbers.model, tmp_path / "new.csv", out, errors="missing")
    rows.loc[16, "size"] = None
    rows.to_csv(tmp_path / "gap.csv", index=False)
    predict_table(numbers.model, tmp_path / "gap.csv", tmp_path / "gap-p.csv")
    assert out.read_bytes() == (tmp_path / "gap-p.csv").read_bytes()


@pytest.mark.parametrize("ending", [".csv", ".parquet"])
def test_a_table_without_rows_gives_one_without_rows(
    numbers: FittedTable, classes: FittedTable, ending: str, tmp_path: Path
) -> None:
    data = write(houses(3).slice(0, 0), tmp_path / f"new{ending}")
    out = tmp_path / f"p{ending}"
    assert predict_table(numbers.model, data, out, keep=("number",), abstain_above=1).rows == 0
    assert read(out).column_names == ["number", *NUMBER_COLUMNS, "abstain"]
    assert predict_table(classes.model, data, out, keep=("number",)).rows == 0
    assert read(out).column_names == ["number", "label", "confidence", "entropy", "disagreement", "p_fast", "p_slow"]
    assert read(out).num_rows == 0


def test_an_error_midway_leaves_the_old_file_and_nothing_else(
    numbers: FittedTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_predict, "BATCH_ROWS", 7)
    rows = houses(30).to_pandas().astype({"size": object})
    rows.loc[25, "size"] = "huge"
    rows.to_csv(tmp_path / "new.csv", index=False)
    good = write(houses(5), tmp_path / "good.parquet")
    for name in ("p.csv", "p.parquet", "p.csv.gz"):
        predict_table(numbers.model, good, tmp_path / name)
        old = (tmp_path / name).read_bytes()
        with pytest.raises(ValueError, match="row 26"):
            predict_table(numbers.model, tmp_path / "new.csv", tmp_path / name)
        assert (tmp_path / name).read_bytes() == old
    names = ["good.parquet", "new.csv", "p.csv", "p.csv.gz", "p.parquet"]
    assert sorted(each.name for each in tmp_path.iterdir()) == names


def test_text_and_parquet_outputs_are_equal(classes: FittedTable, numbers: FittedTable, tmp_path: Path) -> None:
    data = write(houses(40, seed=6), tmp_path / "new.parquet")
    for model in (classes.model, numbers.model):
        for name in ("p.csv", "p.tsv", "p.csv.gz", "p.parquet"):
            predict_table(model, data, tmp_path / name, keep=("number", "size"))
        stored = pd.read_parquet(tmp_path / "p.parquet")
        for name in ("p.csv", "p.tsv", "p.csv.gz"):
            text = pd.read_csv(tmp_path / name, sep="\t" if "tsv" in name else ",")
            pd.testing.assert_frame_equal(text, stored, check_dtype=False, rtol=1e-6)


ODD = {
    "words": ['a, "b"', "c d", "😀 é", "e|f", "'"],
    "markup": ["[red]", "[/red]", "<b>", "&amp;", "p_"],
    "numbers": [-3, 0, 7, 12, 100],
    "padded": ["001", "010", "100", "200", "300"],
    "booleans": [False, True],
}


@pytest.mark.parametrize("kind", ODD)
def test_classes_of_any_name_come_back_as_they_were(kind: str, tmp_path: Path) -> None:
    names = ODD[kind]
    labels = [names[i % len(names)] for i in range(200)]
    table = with_column(houses(), "speed", labels)
    model = fitted(table, tmp_path, classes_settings(recalibration="conformal", task="classification")).model
    model.save(tmp_path / "model")
    model = load(tmp_path / "model")
    assert sorted(model.target.classes) == sorted(names)
    for ending in (".csv", ".parquet"):
        out = tmp_path / f"p{ending}"
        predict_table(model, write(table, tmp_path / "new.parquet"), out, coverage=0.999)
        told = pd.read_csv(out, dtype={"label": str}) if ending == ".csv" else read(out).to_pandas()
        assert [each for each in told.columns if each.startswith("p_")] == [f"p_{name}" for name in model.target.classes]
        known = {str(name).lower() for name in names}
        assert {str(each).lower() for each in told["label"]} <= known
    assert type(read(tmp_path / "p.parquet")["label"][0].as_py()) is type(names[0])
    assert evaluate_table(model, tmp_path / "new.parquet").evaluation.n_rows == 200


def test_label_sets_hold_the_truth_as_often_as_asked(tmp_path: Path) -> None:
    settings = classes_settings(recalibration="conformal", members=2, max_epochs=3)
    model = fitted(houses(3000), tmp_path, settings).model
    new, out = houses(20_000, seed=1), tmp_path / "p.parquet"
    predict_table(model, write(new, tmp_path / "new.parquet"), out, coverage=0.9)
    sets = [set(filter(None, each.split("|"))) for each in read(out)["label_set"].to_pylist()]
    inside = np.mean([label in own for label, own in zip(new["speed"].to_pylist(), sets, strict=True)])
    assert abs(inside - 0.9) < 4 * math.sqrt(0.09 * (1 / 600 + 1 / 20_000))
    probabilities = np.stack([read(out)["p_fast"], read(out)["p_slow"]], 1)
    threshold = model.ensemble.recalibration.threshold(0.9)
    clear = np.abs(1 - probabilities - threshold).min(1) > 1e-6
    wanted = [{n for n, p in zip(("fast", "slow"), row, strict=True) if 1 - p <= threshold} for row in probabilities]
    assert clear.sum() > 19_000
    assert all(own == due for own, due, sure in zip(sets, wanted, clear, strict=True) if sure)


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"abstain_below": 0.5}, "the model predicts numbers: use --abstain-above"),
        ({"abstain_above": float("nan")}, "`abstain_above` must be a number ≥ 0, got nan"),
        ({"abstain_below": 80}, "`abstain_below` must be a number ≥ 0 and ≤ 1, got 80"),
        ({"coverage": 1.0}, "`coverage` must be a number > 0 and < 1, got 1.0"),
        ({"quantiles": (0.0,)}, "`quantiles` must be a number > 0 and < 1, got 0.0"),
        ({"errors": "ignore"}, "`errors` must be refuse or missing, got 'ignore'"),
        ({"keep": ("cost",)}, "new.csv has no column `cost`; it has number, size"),
        ({"keep": ("mean",)}, "`mean` cannot be kept: predictions have a column of that name"),
    ],
)
def test_wishes_that_cannot_be_are_refused(asked: Any, words: str, numbers: FittedTable, tmp_path: Path) -> None:
    data = write(with_column(houses(20), "mean", [1.0] * 20), tmp_path / "new.csv")
    with pytest.raises(ValueError, match=words):
        predict_table(numbers.model, data, tmp_path / "p.csv", **asked)


def test_wishes_of_numbers_are_none_of_classes(classes: FittedTable, tmp_path: Path) -> None:
    data = write(houses(20), tmp_path / "new.csv")
    with pytest.raises(ValueError, match="the model predicts classes: use --abstain-below"):
        predict_table(classes.model, data, tmp_path / "p.csv", abstain_above=1.0)
    with pytest.raises(ValueError, match="the model predicts classes, which have no quantiles"):
        predict_table(classes.model, data, tmp_path / "p.csv", quantiles=(0.5,))


def test_quantiles_are_for_those_of_several_targets_that_have_them(
    numbers: FittedTable, classes: FittedTable, tmp_path: Path
) -> None:
    both = replace(numbers.model, beside=(classes.model,))
    predict_table(both, write(houses(20), tmp_path / "new.csv"), tmp_path / "p.csv", quantiles=(0.1,))
    assert [name for name in read(tmp_path / "p.csv").column_names if name.startswith("q")] == ["q0.1_price"]


def test_parts_that_store_a_kept_column_as_other_types_are_brought_together(numbers: FittedTable, tmp_path: Path) -> None:
    table = houses(20)
    parts = [
        with_column(table, "number", pa.array(range(20), pa.int64())),
        with_column(table, "number", pa.array(range(20), pa.int32())),
    ]
    files = [write(part, tmp_path / f"{i}.parquet") for i, part in enumerate(parts)]
    predict_table(numbers.model, files, tmp_path / "p.parquet", keep=("number",))
    assert read(tmp_path / "p.parquet")["number"].to_pylist() == [*range(20), *range(20)]
    with pytest.raises(ValueError, match="`number` holds int64 at first and string later"):
        predict_table(numbers.model, [files[0], write(table, tmp_path / "2.parquet")], tmp_path / "p.csv", keep=("number",))


@pytest.mark.parametrize("workers", [2, 5])
def test_workers_change_nothing(workers: int, numbers: FittedTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_predict, "BATCH_ROWS", 7)
    data = write(houses(100, seed=4), tmp_path / "new.parquet")
    for name, number in (("one.csv", 1), ("several.csv", workers)):
        predict_table(numbers.model, data, tmp_path / name, workers=number, keep=("number",), abstain_above=0.0)
    assert (tmp_path / "one.csv").read_bytes() == (tmp_path / "several.csv").read_bytes()


def test_workers_stop_at_the_first_row_that_cannot_be_read(
    numbers: FittedTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_predict, "BATCH_ROWS", 7)
    rows = houses(100).to_pandas().astype({"size": object})
    rows.loc[[50, 51, 90], "size"] = "huge"
    rows.to_csv(tmp_path / "new.csv", index=False)
    with pytest.raises(ValueError, match="'huge' in row 51 "):
        predict_table(numbers.model, tmp_path / "new.csv", tmp_path / "p.csv", workers=3)
    assert [each.name for each in tmp_path.iterdir()] == ["new.csv"]


def test_a_table_is_not_overwritten_by_its_predictions(numbers: FittedTable, tmp_path: Path) -> None:
    path = write(houses(20), tmp_path / "new.csv")
    before = path.read_bytes()
    with pytest.raises(TableError, match="is read by the same command"):
        predict_table(numbers.model, path, tmp_path / "." / "new.csv")
    assert path.read_bytes() == before
