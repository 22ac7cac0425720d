"""A model and a table that has the target → how good predictions are."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from _made_tables import classes_settings, houses, normal_mixture, plain_scores, quiet, read, with_column, write
from scipy import stats
from sklearn.metrics import (
    accuracy_score,
    brier_score_loss,
    log_loss,
    mean_absolute_error,
    r2_score,
    roc_auc_score,
    root_mean_squared_error,
)

from deep_ensembles import load
from deep_ensembles.recalibration import VarianceScaling
from deep_ensembles.tabular import FittedTable, evaluate_table, fit_table, predict_table
from deep_ensembles.tabular import evaluate as _evaluate
from deep_ensembles.tabular.model import profiles_from, sampled_keys


def test_spreads_that_stay_are_not_told_as_wider() -> None:
    told = {factor: _evaluate.describe_recalibration(VarianceScaling(factor)) for factor in (1.001, 1.2)}
    assert told[1.001] == "variance scaling; held-out rows ask for no change"
    assert told[1.2] == "variance scaling; held-out rows ask for spreads 1.2 times as wide"


def test_an_evaluation_of_numbers_is_what_the_predictions_say(numbers: FittedTable, tmp_path: Path) -> None:
    table = houses(150, seed=7)
    data, out = write(table, tmp_path / "new.csv"), tmp_path / "p.csv"
    predict_table(numbers.model, data, out, coverage=0.8)
    found = evaluate_table(numbers.model, data, coverage=0.8).evaluation
    told, y = read(out), table["price"].to_numpy()
    scores = plain_scores(found)
    mean, lower, upper = (told[name].to_numpy() for name in ("mean", "lower", "upper"))
    assert scores["RMSE"] == pytest.approx(root_mean_squared_error(y, mean), rel=1e-5)
    assert scores["MAE"] == pytest.approx(mean_absolute_error(y, mean), rel=1e-5)
    assert scores["R²"] == pytest.approx(r2_score(y, mean), rel=1e-5, abs=1e-6)
    assert scores["80 % coverage"] == pytest.approx(((lower <= y) & (y <= upper)).mean())
    assert scores["80 % width"] == pytest.approx((upper - lower).mean(), rel=1e-5)
    assert scores["Rank correlation"] == pytest.approx(
        stats.spearmanr(told["std"].to_numpy(), np.abs(y - mean))[0], rel=1e-6
    )
    assert (found.n_rows, found.n_members, found.task) == (150, 3, "numbers")
    means, _ = normal_mixture(numbers, table)
    assert found.score("RMSE").single == pytest.approx(root_mean_squared_error(y, means[0]), rel=1e-5)


def test_an_evaluation_of_classes_is_what_the_predictions_say(classes: FittedTable, tmp_path: Path) -> None:
    table = houses(150, seed=7)
    data, out = write(table, tmp_path / "new.csv"), tmp_path / "p.csv"
    predict_table(classes.model, data, out)
    found = evaluate_table(classes.model, data).evaluation
    told, truth = read(out), table["speed"].to_pylist()
    scores, probabilities = plain_scores(found), np.stack([told["p_fast"], told["p_slow"]], 1)
    assert scores["Accuracy"] == pytest.approx(accuracy_score(truth, told["label"].to_pylist()))
    assert scores["NLL"] == pytest.approx(log_loss(truth, probabilities), rel=1e-5)
    assert scores["Brier score"] == pytest.approx(brier_score_loss(truth, probabilities[:, 1], pos_label="slow"), rel=1e-5)
    wrong = np.array(truth) != np.array(told["label"].to_pylist())
    assert scores["Error detection"] == pytest.approx(roc_auc_score(wrong, -told["confidence"].to_numpy()), rel=1e-6)


def test_rows_without_a_target_are_left_out_and_said(
    numbers: FittedTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_evaluate, "BATCH_ROWS", 7)
    table = houses(60, seed=7)
    gaps = [None if i % 3 == 0 or i < 20 else price for i, price in enumerate(table["price"].to_pylist())]
    data = write(with_column(table, "price", gaps), tmp_path / "new.parquet")
    known = [i for i, price in enumerate(gaps) if price is not None]
    found = evaluate_table(numbers.model, data).evaluation
    alone = evaluate_table(numbers.model, write(table.take(known), tmp_path / "known.parquet")).evaluation
    assert plain_scores(found) == pytest.approx(plain_scores(alone), rel=1e-5, abs=1e-6)
    assert found.about["Left out"] == f"{60 - len(known)} rows without a value of price"
    assert "Left out" not in alone.about
    for ours, theirs in zip(found.wrong, alone.wrong, strict=True):
        assert ours.row == known[theirs.row - 1] + 1
    nothing = write(with_column(table, "price", pa.array([None] * 60, pa.float64())), tmp_path / "none.parquet")
    with pytest.raises(ValueError, match="no row has a value of `price`, so that there is nothing to judge"):
        evaluate_table(numbers.model, nothing)


def test_a_table_without_the_target_cannot_be_judged(numbers: FittedTable, tmp_path: Path) -> None:
    data = write(houses(30).drop_columns("price"), tmp_path / "new.csv")
    with pytest.raises(ValueError, match="the table lacks the column `price`, without which predictions cannot be judged"):
        evaluate_table(numbers.model, data)


def test_labels_that_training_did_not_see_are_wrong_and_listed(classes: FittedTable, tmp_path: Path) -> None:
    rows = houses(30)
    speeds = ["never" if i in (11, 12) else each for i, each in enumerate(rows["speed"].to_pylist())]
    data = write(with_column(rows, "speed", speeds), tmp_path / "new.csv")
    report = evaluate_table(classes.model, data)
    evaluation = report.evaluation
    by_name = {score.name: score for score in evaluation.scores}
    assert evaluation.n_rows == 28
    assert "With 2 rows of classes that training did not see (never 2), " in report.html
    assert by_name["Accuracy, all rows"].ensemble == pytest.approx(by_name["Accuracy"].ensemble * 28 / 30)
    assert evaluation.about["Unseen classes"] == "2 rows of classes that training did not see (never 2)"
    assert "2 rows of classes that training did not see (never 2) count as wrong: of all rows" in evaluation.summary
    assert "Left out" not in evaluation.about
    strangers = write(with_column(rows, "speed", ["never"] * 30), tmp_path / "strangers.csv")
    with pytest.raises(ValueError, match="no row has a class that training saw of `speed`"):
        evaluate_table(classes.model, strangers)


@pytest.mark.parametrize("kind", ["numbers", "classes"])
def test_rows_that_the_model_was_trained_on_are_noticed(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    model = request.getfixturevalue(kind).model
    table, new = houses(), houses(300, seed=8)
    mixed = pa.concat_tables([table.slice(0, 100), new])
    parts = {"old": table, "few": table.slice(20, 30), "mixed": mixed, "new": new}
    reports = {name: evaluate_table(model, write(part, tmp_path / f"{name}.csv")) for name, part in parts.items()}
    told = {name: report.evaluation.about.get("Rows of training") for name, report in reports.items()}
    assert told["new"] is None
    # A fifth of the rows was held out.
    assert told["old"] == "about 80% of these rows are among those that it was trained on, which flatters scores"
    assert int(str(told["few"]).removeprefix("about ").partition("%")[0]) > 50
    assert 15 <= int(str(told["mixed"]).removeprefix("about ").partition("%")[0]) <= 30  # about 80 of 400
    assert str(told["old"]) in reports["old"].evaluation.summary
    assert str(told["old"]) in reports["old"].html


def test_equal_rows_are_no_wonder_where_training_had_many() -> None:
    assert sampled_keys(np.arange(1000, dtype=np.uint64) % 500) == []
    assert 100 <= len(sampled_keys(np.arange(9000, dtype=np.uint64))) <= 1100


def test_values_outside_the_training_range_are_counted_by_column(
    numbers: FittedTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_evaluate, "BATCH_ROWS", 7)
    low, high = (getattr(numbers.model.schema.columns[0], end) for end in ("low", "high"))
    table = pa.table({
        "size": [high, high + 1, low, low - 1, 0.0, high + 9] * 5,
        "colour": ["red", "green", "blue", "mauve", "red", "red"] * 5,
        "yard": [None, 1.0, 2.0, 3.0, 1.0, 2.0] * 5,
        "price": np.linspace(0, 1, 30),
    })  # fmt: skip
    found = evaluate_table(numbers.model, write(table, tmp_path / "new.parquet")).evaluation.unseen
    assert found is not None
    assert [(each.column, each.rows, each.share) for each in found] == [
        ("size", 15, 0.5),
        ("colour", 5, pytest.approx(1 / 6)),
    ]
    assert found[1].examples == ("mauve",)


def test_parts_may_store_columns_as_other_types(numbers: FittedTable, tmp_path: Path) -> None:
    table = with_column(houses(40), "size", np.arange(40) % 3)
    whole = evaluate_table(numbers.model, write(table, tmp_path / "whole.parquet")).evaluation
    other = with_column(table.slice(20), "size", [str(each) for each in table["size"].to_pylist()[20:]])
    parts = [write(table.slice(0, 20), tmp_path / "1.parquet"), write(other, tmp_path / "2.parquet")]
    expected = pytest.approx(plain_scores(whole), rel=1e-5, abs=2e-3)  # ranks of nearly equal spreads may swap
    assert plain_scores(evaluate_table(numbers.model, parts).evaluation) == expected


@pytest.mark.parametrize("kind", ["numbers", "classes"])
def test_the_page_is_small_and_names_the_target(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    model = request.getfixturevalue(kind).model
    report = evaluate_table(model, write(houses(3000, seed=8), tmp_path / "new.parquet"))
    report.save(tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert len(page.encode()) < 3_000_000
    assert f"{model.target.name}: predictions for 3000 rows" in page
    json.dumps(report.evaluation.as_dict(), allow_nan=False)


@pytest.mark.parametrize("kind", ["numbers", "classes"])
@pytest.mark.parametrize("n", [1, 2])
def test_a_row_or_two_can_be_judged(kind: str, n: int, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    report = evaluate_table(request.getfixturevalue(kind).model, write(houses(n, seed=9), tmp_path / "new.parquet"))
    assert report.evaluation.n_rows == n
    assert "these rows are too few" in report.evaluation.verdicts["drift"]
    json.dumps(report.evaluation.as_dict(), allow_nan=False)
    report.save(tmp_path / "report.html")


def test_predictions_that_are_all_right_can_be_judged(classes: FittedTable, tmp_path: Path) -> None:
    table = houses(50, seed=9)
    predict_table(classes.model, write(table, tmp_path / "new.parquet"), tmp_path / "p.parquet")
    table = with_column(table, "speed", read(tmp_path / "p.parquet")["label"].to_pylist())
    found = evaluate_table(classes.model, write(table, tmp_path / "right.parquet")).evaluation
    assert found.score("Accuracy").ensemble == 1
    assert len(found.wrong) == 0


def test_truth_written_as_text_or_stored_as_such_is_the_same(tmp_path: Path) -> None:
    flags = [each == "fast" for each in houses()["speed"].to_pylist()]
    stored = write(with_column(houses(), "speed", flags), tmp_path / "stored.parquet")
    written = write(with_column(houses(), "speed", [str(each) for each in flags]), tmp_path / "written.csv")
    settings = classes_settings(max_epochs=1)
    for learnt in (stored, written):
        model = fit_table(learnt, settings, log=quiet).model
        first, second = (evaluate_table(model, data).evaluation for data in (stored, written))
        assert first.scores == second.scores


def test_columns_that_changed_since_training_are_named(numbers: FittedTable, tmp_path: Path) -> None:
    """By what the model keeps of its training columns, in a file too; a model without says that it cannot be judged."""
    numbers.model.save(tmp_path / "model")
    model = load(tmp_path / "model")
    table = houses(200, seed=9)
    same = evaluate_table(model, write(table, tmp_path / "same.csv")).evaluation
    assert same.drifts is not None
    assert same.drifts.large == 0
    moved = with_column(table, "size", np.asarray(table["size"]) + 2.0)
    changed = evaluate_table(model, write(moved, tmp_path / "moved.csv")).evaluation.drifts
    assert changed is not None
    assert (changed.large, changed.most[0].column) == (1, "size")
    old = replace(model, facts={name: value for name, value in model.facts.items() if name != "profiles"})
    unknown = evaluate_table(old, write(moved, tmp_path / "old.csv")).evaluation
    assert unknown.drifts is None
    assert "cannot be judged" in unknown.verdicts["drift"]
    assert unknown.segments is not None


@pytest.mark.parametrize("change", [
    lambda profiles: profiles.pop(),
    lambda profiles: profiles[0]["counts"].pop(),
    lambda profiles: profiles[0]["ends"].reverse(),
    lambda profiles: profiles[0].update(counts=[-1] * len(profiles[0]["counts"])),
])  # fmt: skip
def test_counts_of_other_columns_are_refused(numbers: FittedTable, change: Callable[[Any], Any]) -> None:
    facts = copy.deepcopy(dict(numbers.model.facts))
    change(facts["profiles"])
    with pytest.raises(ValueError, match="`profiles` must be"):
        profiles_from(numbers.model.schema, facts)
