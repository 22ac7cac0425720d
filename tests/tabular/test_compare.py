"""Methods compared on a table."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from _made_tables import NO_INPUTS, classes_settings, houses, numbers_settings, quiet, with_column, write
from scipy import stats
from sklearn.metrics import root_mean_squared_error

from deep_ensembles import Normal
from deep_ensembles.columns import infer_schema
from deep_ensembles.recipes import Task
from deep_ensembles.tabular import Comparison, TableSettings, compare_table
from deep_ensembles.tabular import compare as _compare
from deep_ensembles.tabular.compare import OURS, SINGLE
from deep_ensembles.tabular.data import read_data
from deep_ensembles.tabular.rivals import rivals

NETWORKS = ("single network", "MC-dropout")


def compared(
    settings: TableSettings, tmp_path: Path, n: int = 100, folds: int = 3, only: Sequence[str] | None = NETWORKS
) -> tuple[Comparison, list[Any]]:
    said: list[Any] = []
    return compare_table(write(houses(n), tmp_path / "houses.parquet"), settings, folds, only=only, log=said.append), said


def test_methods_for_numbers_are_compared_in_pairs(tmp_path: Path) -> None:
    found, _ = compared(numbers_settings(members=2, max_epochs=2), tmp_path, only=(*NETWORKS, "MSE ensemble"))
    methods = {"deep ensemble", "single network", "MC-dropout", "MSE ensemble"}
    assert all(set(scores) == methods for scores in found.scores.values())
    assert all(len(folds) == 3 for scores in found.scores.values() for folds in scores.values())
    assert found.test_share == pytest.approx(0.5, abs=0.02)
    data = json.loads(json.dumps(found.as_dict(), allow_nan=False))
    for score, scores in data["scores"].items():
        assert set(data["differences"][score]) == methods - {OURS}
        for method, told in data["differences"][score].items():
            gap = np.array(scores[method]) - np.array(scores[OURS])
            error = math.sqrt((1 / 3 + found.test_share) * gap.var(ddof=1))
            assert told["mean"] == pytest.approx(gap.mean())
            assert told["corrected_se"] == pytest.approx(error)
            assert told["p_value"] == pytest.approx(2 * stats.t.sf(abs(gap.mean() / error), 2))
            assert told["lower_on"] == (gap < 0).sum()
    tables = found.listings()
    assert [table.title for table in tables] == ["All methods", *found.scores]
    assert [row[0] for row in tables[1].rows] == list(found.scores[tables[1].title])
    assert {row[0] for row in tables[0].rows} == methods == set(found.seconds)
    assert [row[0] for row in tables[0].rows if row[-2] == "–"] == [SINGLE]  # taken from the ensemble, not fitted


def test_the_scores_of_the_deep_ensemble_can_be_computed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[Any] = []

    def kept_methods(self: Any, say: Any) -> Any:
        kept.extend([self, everything(self, say)])
        return kept[1]

    everything = _compare._Methods.predictions
    monkeypatch.setattr(_compare._Methods, "predictions", kept_methods)
    found, _ = compared(numbers_settings(members=2, max_epochs=2, head="normal", recalibration="none"), tmp_path)
    methods, predictions = kept
    for fold, (train, test) in enumerate(methods.folds):
        assert not set(train) & set(test)
        y = methods.read.y[test]
        parts = predictions[OURS][fold].components
        density = stats.norm(parts.mean.numpy(), parts.stddev.numpy()).pdf(y).mean(0)
        assert found.scores["NLL (nats, lower is better)"][OURS][fold] == pytest.approx(-np.log(density).mean(), rel=1e-5)
        rmse = root_mean_squared_error(y, parts.mean.numpy().mean(0))
        assert found.scores["RMSE (lower is better)"][OURS][fold] == pytest.approx(rmse, rel=1e-5)
    assert sorted(np.concatenate([test for _, test in methods.folds])) == list(range(100))


def test_classes_are_compared_without_an_mse_ensemble(tmp_path: Path) -> None:
    found, said = compared(classes_settings(members=2, max_epochs=2), tmp_path)
    assert all(set(scores) == {OURS, "single network", "MC-dropout"} for scores in found.scores.values())
    assert "note: an MSE ensemble predicts numbers, and is left out for classes" in said
    errors = found.scores["Error (share of wrong labels, lower is better)"]
    assert all(0 <= each <= 1 for folds in errors.values() for each in folds)
    json.dumps(found.as_dict(), allow_nan=False)


@pytest.mark.parametrize("is_class", [False, True])
def test_models_that_people_know_are_compared(is_class: bool, tmp_path: Path) -> None:
    settings = (classes_settings if is_class else numbers_settings)(members=2, max_epochs=2)
    known = [name for name in rivals(is_class) if name not in ("CatBoost", "NGBoost")]
    found, _ = compared(settings, tmp_path, folds=2, only=known)
    for scores in found.scores.values():
        assert list(scores) == [OURS, *known]
        assert all(np.isfinite(values).all() for values in scores.values())
    board = found.leaderboard()
    first = found.scores["NLL (nats, lower is better)"]
    assert board.rows[0][0] == min(first, key=lambda name: float(np.mean(first[name])))
    assert all(row.count("") == 0 for row in board.rows)
    assert sum("*" in cell for row in board.rows for cell in row) == len(found.scores)


def test_rivals_are_right_where_the_truth_is_simple() -> None:
    generator = np.random.default_rng(0)
    X = generator.normal(size=(400, 2))
    task = Task(X, 3 * X[:, 0] + 0.5 * generator.normal(size=400), 0, 1, Normal())
    linear = rivals(False)["linear model"](task, 0)(X)
    assert float(linear.stddev[0]) == pytest.approx(0.5, rel=0.1)
    np.testing.assert_allclose(linear.mean.numpy(), 3 * X[:, 0], atol=0.3)
    quantiles = rivals(False)["quantile boosting"](task, 0)(X)
    inside = (quantiles.cdf(torch.from_numpy(task.targets)) - 0.5).abs() < 0.45
    assert 0.8 < float(inside.double().mean()) < 1.0


def test_a_method_that_is_not_known_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no method is called 'xgboost'; there are deep ensemble, single network"):
        compared(numbers_settings(), tmp_path, only=["xgboost"])


def test_equal_scores_are_json_all_the_same() -> None:
    found = Comparison("classification", {"Error": {OURS: [0.5, 0.5], "single network": [0.5, 0.5]}}, 0.5)
    told = json.loads(json.dumps(found.as_dict(), allow_nan=False))
    assert told["differences"]["Error"]["single network"]["p_value"] is None


def folds_of(table: pa.Table, settings: TableSettings, tmp_path: Path) -> list[tuple[np.ndarray, np.ndarray]]:
    data = read_data(write(table, tmp_path / "t.parquet"), settings, quiet)
    return _compare._folds(data, 4, settings)


def test_folds_keep_groups_together_and_time_in_order(tmp_path: Path) -> None:
    table = houses()
    owner, year = table["owner"].to_numpy(), table["year"].to_numpy()
    for train, test in folds_of(table, numbers_settings(group="owner", drop=()), tmp_path):
        assert not set(owner[train]) & set(owner[test])
    for train, test in folds_of(table, numbers_settings(time="year", drop=()), tmp_path):
        assert year[train].max() < year[test].min()
    with pytest.raises(ValueError, match="`owner` has 2 groups, too few for 4 folds"):
        folds_of(with_column(table, "owner", np.arange(200) % 2), numbers_settings(group="owner", drop=()), tmp_path)


@pytest.mark.parametrize("changes", [{"group": "owner"}, {"weights": "owner"}])
def test_groups_and_weights_are_no_inputs_of_a_comparison(changes: dict[str, str], tmp_path: Path) -> None:
    role = next(iter(changes.values()))
    drop = tuple(name for name in NO_INPUTS if name != role)
    _, said = compared(numbers_settings(members=2, max_epochs=1, drop=drop, **changes), tmp_path)
    shown = next(each for each in said if not isinstance(each, str))
    assert [role, "left out: as asked"] in [list(row) for row in shown.rows]


def test_few_groups_can_be_compared(tmp_path: Path) -> None:
    table = with_column(houses(100), "owner", np.arange(100) % 4)
    settings = numbers_settings(members=5, max_epochs=1, drop=("number", "year", "speed"), group="owner")
    found = compare_table(write(table, tmp_path / "t.parquet"), settings, 2, only=[], log=quiet)
    assert len(found.scores["RMSE (lower is better)"][OURS]) == 2
    two = write(with_column(table, "owner", np.arange(100) % 2), tmp_path / "two.parquet")
    with pytest.raises(ValueError, match="`owner` has only one group left to train on"):
        compare_table(two, settings, 2, only=[], log=quiet)


def test_weights_count_for_every_method(tmp_path: Path) -> None:
    """Rows that weigh next to nothing pull no method to their price."""
    table = houses(200)
    light = np.arange(200) % 2 == 0
    prices = np.where(light, 10_000.0 + np.arange(200), table["price"].to_numpy())
    changed = with_column(with_column(table, "price", prices), "weight", np.where(light, 1e-9, 1.0))
    settings = numbers_settings(members=2, max_epochs=20, learning_rate=0.03, weights="weight")
    data = read_data(write(changed, tmp_path / "t.parquet"), settings, quiet)
    inputs = infer_schema(data.table, "price", drop=[*NO_INPUTS, "weight"]).encode(data.table)
    folds = [(np.arange(200), np.flatnonzero(~light))]
    how = {"checkpoint": None, "execution": None, "verbose": 0}
    networks = (SINGLE, _compare.DROPOUT, _compare.MSE)
    methods = _compare._Methods(inputs, inputs, data, folds, settings, how, networks)
    for method, (prediction,) in methods.predictions(quiet).items():
        assert float(prediction.mean.mean()) < 2500, method


def test_categories_of_many_levels_are_an_input_each_for_others(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    place = np.arange(900) % 90
    table = pa.table(
        {"town": [f"town {i}" for i in place], "y": generator.normal(size=90)[place] + 0.1 * generator.normal(size=900)}
    )
    settings = TableSettings(target="y", effort="fast", members=2, max_epochs=2)
    only = ["linear model", "MC-dropout"]
    found = compare_table(write(table, tmp_path / "t.parquet"), settings, 2, only=only, log=quiet)
    assert np.mean(found.scores["RMSE (lower is better)"]["linear model"]) < 0.5
