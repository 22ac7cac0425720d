"""Tables in files → models → tables of predictions: the Python functions behind the commands."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import torch
from _made_tables import (
    NO_INPUTS,
    classes_settings,
    fitted,
    houses,
    numbers_settings,
    quiet,
    read,
    same_networks,
    with_column,
    write,
)
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
from deep_ensembles.fitting import fit_ensemble
from deep_ensembles.model_files import ModelFileError
from deep_ensembles.report import Evaluation
from deep_ensembles.table_schema import understand
from deep_ensembles.tabular import (
    Comparison,
    FittedTable,
    TableSettings,
    _compare,
    _evaluate,
    _predict,
    compare_table,
    evaluate_table,
    fit_table,
    predict_table,
    read_settings,
)
from deep_ensembles.tabular._compare import OURS
from deep_ensembles.tabular._data import read_data, split_rows

NUMBER_COLUMNS = ["mean", "std", "aleatoric_std", "epistemic_std", "lower", "upper"]


@pytest.fixture(scope="module")
def numbers(tmp_path_factory: pytest.TempPathFactory) -> FittedTable:
    return fitted(houses(), tmp_path_factory.mktemp("numbers"), numbers_settings(recalibration="none"))


@pytest.fixture(scope="module")
def classes(tmp_path_factory: pytest.TempPathFactory) -> FittedTable:
    return fitted(houses(), tmp_path_factory.mktemp("classes"), classes_settings(recalibration="none"))


def held_out(table: pa.Table, folder: Path, settings: TableSettings) -> tuple[np.ndarray, np.ndarray]:
    """(rows trained on, rows held out) of the table."""
    data = read_data(write(table, folder / "split.parquet"), settings, quiet)
    train, held = split_rows(data, settings)
    return data.rows[train], data.rows[held]


def told(data: Any, settings: TableSettings) -> str:
    """What fitting says."""
    said: list[Any] = []
    fit_table(data, settings, say=said.append)
    return "\n".join(each if isinstance(each, str) else each.text(400) for each in said)


# Fit: files


def test_the_same_rows_in_any_kind_of_file_give_the_same_model(tmp_path: Path) -> None:
    table, settings = houses(80), numbers_settings(max_epochs=2, members=2)
    parts = tmp_path / "parts"
    parts.mkdir()
    for number, start in enumerate((0, 30, 60)):
        write(table.slice(start, 30), parts / f"part-{number}.csv")
    first = fit_table(write(table, tmp_path / "houses.parquet"), settings, say=quiet)
    text = write(table, tmp_path / "houses.csv")
    several = sorted(parts.iterdir())
    for data in (text, write(table, tmp_path / "houses.tsv"), parts, several):
        other = fit_table(data, settings, say=quiet)
        assert same_networks(first, other)
        assert other.model.ensemble.recalibration == first.model.ensemble.recalibration
        assert [column.input_names for column in other.model.schema.columns] == [
            column.input_names for column in first.model.schema.columns
        ]


def test_what_is_said_names_columns_rows_and_reasons(tmp_path: Path) -> None:
    table = with_column(houses(), "price", [None, None, *houses()["price"].to_pylist()[2:]])
    table = with_column(table, "flag", ["same"] * 200)
    said = told(write(table, tmp_path / "t.csv"), numbers_settings())
    assert "`price` is a number with 198 different values: regression" in said
    assert "2 rows without a target are left out" in said
    assert "colour" in said
    assert "category, 3 levels" in said
    assert "left out: as asked" in said
    assert "left out: all its values are 'same'" in said
    assert "198 rows are used: 158 to train on, 40 held out for scores and recalibration (chosen at random)" in said
    assert "recalibration: " in said


@pytest.mark.parametrize(
    ("task", "words", "classes"),
    [
        (None, "`stars` has only 4 different whole numbers: classification", (0, 1, 2, 3)),
        ("regression", "regression, as asked", ()),
    ],
)
def test_the_task_is_recognised_and_can_be_overruled(
    task: str | None, words: str, classes: tuple[int, ...], tmp_path: Path
) -> None:
    path = write(with_column(houses(80), "stars", [i % 4 for i in range(80)]), tmp_path / "t.csv")
    said: list[Any] = []
    found = fit_table(path, numbers_settings(target="stars", task=task, max_epochs=1), say=said.append)
    assert words in said
    assert found.model.target.classes == classes


# Fit: which rows


def test_held_out_targets_have_no_say_in_training(tmp_path: Path) -> None:
    table, settings = houses(), numbers_settings()
    _, held = held_out(table, tmp_path, settings)
    prices = table["price"].to_numpy().copy()
    prices[held] += 1000 * np.random.default_rng(1).normal(size=len(held))
    changed = fitted(with_column(table, "price", prices), tmp_path, settings)
    before = fitted(table, tmp_path, settings)
    assert len(held) == 40
    assert same_networks(before, changed)
    assert before.model.facts["constant"] == changed.model.facts["constant"]
    assert before.evaluation.score("RMSE").ensemble < 100 < changed.evaluation.score("RMSE").ensemble


def test_held_out_inputs_have_no_say_in_preprocessing(tmp_path: Path) -> None:
    table, settings = houses(), numbers_settings(recalibration="none")
    _, held = held_out(table, tmp_path, settings)
    sizes = table["size"].to_numpy().copy()
    sizes[held] = 1e9
    changed = fitted(with_column(table, "size", sizes), tmp_path, settings)
    before = fitted(table, tmp_path, settings)
    assert changed.model.schema == before.model.schema
    assert same_networks(before, changed)


def test_training_targets_do_have_a_say(tmp_path: Path) -> None:
    table, settings = houses(), numbers_settings()
    train, _ = held_out(table, tmp_path, settings)
    prices = table["price"].to_numpy().copy()
    prices[train[0]] += 1
    assert not same_networks(
        fitted(table, tmp_path, settings), fitted(with_column(table, "price", prices), tmp_path, settings)
    )


def test_classes_keep_their_shares_in_the_rows_held_out(tmp_path: Path) -> None:
    table = with_column(houses(), "speed", ["rare" if i % 10 == 0 else "usual" for i in range(200)])
    train, held = held_out(table, tmp_path, classes_settings())
    speed = np.array(table["speed"].to_pylist())
    assert [(speed[rows] == "rare").sum() for rows in (train, held)] == [16, 4]


def test_groups_are_held_out_whole(tmp_path: Path) -> None:
    table = houses()
    train, held = held_out(table, tmp_path, numbers_settings(group="owner", drop=("number", "year", "speed")))
    owner = table["owner"].to_numpy()
    assert not set(owner[train]) & set(owner[held])
    assert 30 <= len(held) <= 60
    assert sorted([*train, *held]) == list(range(200))


def test_members_hold_groups_out_whole_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table, asked = houses(), {}
    settings = numbers_settings(group="owner", drop=("number", "year", "speed"))

    def trained(*inputs: Any, **given: Any) -> Any:
        asked.update(given)
        return fit_ensemble(*inputs, **given)

    monkeypatch.setattr("deep_ensembles.tabular._fit.fit_ensemble", trained)
    fitted(table, tmp_path, settings)
    train, _ = held_out(table, tmp_path, settings)
    pairs = set(zip(asked["folds"].groups.tolist(), table["owner"].to_numpy()[train].tolist(), strict=True))
    assert len(pairs) == len({group for group, _ in pairs}) == len({owner for _, owner in pairs})


def test_the_latest_are_held_out(tmp_path: Path) -> None:
    table = houses()
    train, held = held_out(table, tmp_path, numbers_settings(time="year", drop=("number", "owner", "speed")))
    year = table["year"].to_numpy()
    assert year[train].max() < year[held].min()
    assert len(held) == 40


def test_rows_of_one_moment_stay_together(tmp_path: Path) -> None:
    table = with_column(houses(), "year", [f"2020-01-{1 + i // 30:02d}" for i in range(200)])
    train, held = held_out(table, tmp_path, numbers_settings(time="year", drop=("number", "owner", "speed")))
    assert not set(np.arange(200)[train] // 30) & set(held // 30)
    assert held.tolist() == list(range(180, 200))


def test_rows_of_weight_0_have_no_say(tmp_path: Path) -> None:
    table = houses()
    lost = np.arange(200) % 4 == 0
    weighted = with_column(table, "weight", np.where(lost, 0.0, 1.0))
    prices = np.where(lost, 1e6, table["price"].to_numpy())
    changed = with_column(with_column(weighted, "price", prices), "size", np.where(lost, -1e6, table["size"].to_numpy()))
    settings = numbers_settings(weights="weight")
    one, other = fitted(weighted, tmp_path, settings), fitted(changed, tmp_path, settings)
    assert same_networks(one, other)
    assert one.model.schema == other.model.schema
    assert one.evaluation.scores == other.evaluation.scores
    assert one.model.facts["rows"] == {"trained": 120, "held_out": 30}


def test_weights_pull_predictions(tmp_path: Path) -> None:
    """Two prices for the same inputs: the mean is the weighted one."""
    n = 400
    high = np.arange(n) % 2 == 0
    table = pa.table(
        {"x": np.random.default_rng(0).normal(size=n), "y": np.where(high, 10.0, 0.0) + 0.01, "w": 1 + 8.0 * high}
    )
    settings = TableSettings(
        target="y", task="regression", members=2, hidden_sizes=(8,), max_epochs=30, recalibration="none"
    )
    plain = fitted(table.drop_columns("w"), tmp_path, settings).model(table).mean.mean()
    weighted = fitted(table, tmp_path, TableSettings(**{**vars(settings), "weights": "w"})).model(table).mean.mean()
    assert abs(plain - 5) < 1
    assert abs(weighted - 9) < 1


def test_dropped_columns_are_not_asked_for(numbers: FittedTable) -> None:
    assert list(numbers.model.schema.names) == ["size", "colour", "yard"]
    rows = houses(5).select(["yard", "colour", "size"])
    assert numbers.model(rows).mean.shape == (5,)


def test_kinds_can_be_told(tmp_path: Path) -> None:
    drop = ("number", "year", "speed")
    found = fitted(houses(), tmp_path, numbers_settings(drop=drop, kinds={"owner": "category", "yard": "drop"}))
    kinds = {column.name: type(column).__name__ for column in found.model.schema.columns}
    assert kinds == {"size": "Number", "colour": "Category", "owner": "Category"}
    assert ("yard", "as asked") in found.model.schema.dropped


# Fit: reproducible, members, time


def test_a_seed_gives_the_same_bytes(tmp_path: Path) -> None:
    table = houses()
    for name, seed in (("one", 3), ("two", 3), ("other", 4)):
        fitted(table, tmp_path, numbers_settings(seed=seed)).model.save(tmp_path / name)
    for file in ("config.json", "model.safetensors"):
        content = {name: (tmp_path / name / file).read_bytes() for name in ("one", "two", "other")}
        assert content["one"] == content["two"] != content["other"]


def test_members_are_as_many_as_asked(tmp_path: Path) -> None:
    assert fitted(houses(60), tmp_path, numbers_settings(members=7)).model.ensemble.n_members == 7


def test_time_that_is_up_still_gives_a_model(tmp_path: Path) -> None:
    found = fitted(houses(), tmp_path, numbers_settings(max_epochs=100_000, patience=100_000, time_limit=0.3))
    epochs = np.isfinite(found.model.ensemble.history[0]).sum(1)
    assert 1 <= epochs.max() < 100_000
    assert math.isfinite(found.evaluation.score("RMSE").ensemble)


def test_without_a_hold_out_rows_are_judged_out_of_fold(tmp_path: Path) -> None:
    table, settings = houses(), numbers_settings(holdout=0.0, recalibration="none")
    found = fitted(table, tmp_path, settings)
    ensemble = found.model.ensemble
    assert found.model.facts["rows"] == {"trained": 200, "held_out": 0}
    assert found.evaluation.n_rows == 200
    means = ensemble.out_of_fold(found.model.schema.encode(table)).mean.numpy()
    price = table["price"].to_numpy()
    assert found.evaluation.score("RMSE").ensemble == pytest.approx(root_mean_squared_error(price, means))
    in_fold = root_mean_squared_error(price, found.model(table).mean.numpy())
    assert found.evaluation.score("RMSE").ensemble != pytest.approx(in_fold)


# Fit: held-out scores, computed again


def plain_scores(evaluation: Evaluation) -> dict[str, float]:
    """Scores by name, with plain spaces in them."""
    return {score.name.replace("\u202f", " "): score.ensemble for score in evaluation.scores}


def normal_mixture(found: FittedTable, rows: pa.Table) -> tuple[np.ndarray, np.ndarray]:
    """Means and deviations `[member, row]` of the networks."""
    parts = found.model.ensemble.mixture(found.model.schema.encode(rows)).components
    return parts.mean.double().numpy(), parts.stddev.double().numpy()


def test_scores_of_held_out_numbers_are_what_scipy_says(numbers: FittedTable, tmp_path: Path) -> None:
    table = houses()
    _, held = held_out(table, tmp_path, numbers_settings())
    rows, y = table.take(held), table["price"].to_numpy()[held]
    means, deviations = normal_mixture(numbers, rows)
    density = stats.norm(means, deviations).pdf(y).mean(0)
    level = stats.norm(means, deviations).cdf(y).mean(0)
    scores = plain_scores(numbers.evaluation)
    assert scores["NLL"] == pytest.approx(-np.log(density).mean(), rel=1e-6)
    assert scores["RMSE"] == pytest.approx(root_mean_squared_error(y, means.mean(0)), rel=1e-6)
    assert scores["MAE"] == pytest.approx(mean_absolute_error(y, means.mean(0)), rel=1e-6)
    assert scores["R²"] == pytest.approx(r2_score(y, means.mean(0)), rel=1e-6)
    assert scores["90 % coverage"] == pytest.approx(((level >= 0.05) & (level <= 0.95)).mean())
    single = stats.norm(means[0], deviations[0])
    assert numbers.evaluation.score("NLL").single == pytest.approx(-single.logpdf(y).mean(), rel=1e-6)
    train, _ = held_out(table, tmp_path, numbers_settings())
    trained = table["price"].to_numpy()[train]
    constant = stats.norm(trained.mean(), trained.std())
    assert numbers.evaluation.score("NLL").constant == pytest.approx(-constant.logpdf(y).mean(), rel=1e-6)
    assert list(numbers.model.facts["held_out_scores"].values()) == list(scores.values())


def test_scores_of_held_out_classes_are_what_scikit_learn_says(classes: FittedTable, tmp_path: Path) -> None:
    table = houses()
    train, held = held_out(table, tmp_path, classes_settings())
    labels = np.array(table["speed"].to_pylist())
    probabilities = classes.model(table.take(held)).probs.double().numpy()
    probabilities /= probabilities.sum(1, keepdims=True)
    truth = labels[held]
    scores = {score.name: score.ensemble for score in classes.evaluation.scores}
    named = np.array(["fast", "slow"])[probabilities.argmax(1)]
    assert scores["Accuracy"] == pytest.approx(accuracy_score(truth, named))
    assert scores["NLL"] == pytest.approx(log_loss(truth, probabilities), rel=1e-5)
    exact = truth[:, None] == np.array(["fast", "slow"])
    assert scores["Brier score"] == pytest.approx(((probabilities - exact) ** 2).mean(), rel=1e-5)
    share = (labels[train] == "fast").mean()
    assert classes.evaluation.score("NLL").constant == pytest.approx(
        log_loss(truth, np.tile([share, 1 - share], (len(held), 1)))
    )


@pytest.mark.parametrize("settings", [numbers_settings, classes_settings])
def test_ten_rows_are_enough_and_nine_are_not(settings: Any, tmp_path: Path) -> None:
    table = with_column(houses(10), "speed", ["fast", "slow"] * 5)
    assert fitted(table, tmp_path, settings()).evaluation.n_rows == 10  # each judged by the member that holds it out
    assert fitted(table, tmp_path, settings(holdout=0.2)).evaluation.n_rows == 2
    with pytest.raises(ValueError, match="at least 10 rows with a target are needed, got 9"):
        fitted(table.slice(1), tmp_path, settings())


# Fit: recalibration


@pytest.mark.parametrize("name", ["variance_scaling", "isotonic", "conformal"])
def test_a_recalibration_of_numbers_by_name_travels(name: str, tmp_path: Path) -> None:
    table = houses()
    found = fitted(table, tmp_path, numbers_settings(recalibration=name))
    found.model.save(tmp_path / "model")
    again = load(tmp_path / "model")
    assert type(again.ensemble.recalibration).__name__.lower() == name.replace("_", "")
    assert again.ensemble.recalibration == found.model.ensemble.recalibration
    levels = torch.tensor(0.95, dtype=torch.float64)
    assert torch.equal(again(table).icdf(levels), found.model(table).icdf(levels))


@pytest.mark.parametrize("name", ["temperature", "conformal"])
def test_a_recalibration_of_classes_by_name_travels(name: str, tmp_path: Path) -> None:
    found = fitted(houses(), tmp_path, classes_settings(recalibration=name))
    found.model.save(tmp_path / "model")
    again = load(tmp_path / "model")
    assert type(again.ensemble.recalibration).__name__.lower() == name
    assert torch.equal(again(houses()).probs, found.model(houses()).probs)


@pytest.mark.parametrize(
    ("settings", "name", "words"),
    [
        (numbers_settings, "temperature", "temperature is a recalibration of classes; this is a regression"),
        (classes_settings, "isotonic", "isotonic is a recalibration of numbers; this is a classification"),
        (classes_settings, "variance_scaling", "variance_scaling is a recalibration of numbers; this is a classification"),
    ],
)
def test_the_wrong_kind_of_recalibration_is_refused_before_training(
    settings: Any, name: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deep_ensembles.tabular._fit._trained", lambda *a, **b: pytest.fail("trained all the same"))
    with pytest.raises(ValueError, match=words):
        fitted(houses(), tmp_path, settings(recalibration=name))


def test_a_recalibration_is_judged_by_rows_it_was_not_fitted_on(tmp_path: Path) -> None:
    """A factor that was fitted on the same rows would look better than it is."""
    found = fitted(houses(), tmp_path, numbers_settings(recalibration="variance_scaling"))
    plain = fitted(houses(), tmp_path, numbers_settings(recalibration="none"))
    rows, y = houses().take(held_out(houses(), tmp_path, numbers_settings())[1]), "price"
    own = found.model(rows)
    refitted = -own.log_prob(torch.tensor(rows[y].to_pylist())).mean()
    assert found.evaluation.score("NLL").ensemble != pytest.approx(plain.evaluation.score("NLL").ensemble)
    assert found.evaluation.score("NLL").ensemble > float(refitted)


def test_conformal_intervals_hold_as_often_as_they_say(tmp_path: Path) -> None:
    found = fitted(houses(3000), tmp_path, numbers_settings(recalibration="conformal", members=2, max_epochs=3))
    new = houses(20_000, seed=1)
    out = tmp_path / "p.parquet"
    for coverage in (0.5, 0.9):
        predict_table(found.model, write(new, tmp_path / "new.parquet"), out, coverage=coverage)
        ends, y = read(out), new["price"].to_numpy()
        inside = ((ends["lower"].to_numpy() <= y) & (y <= ends["upper"].to_numpy())).mean()
        # 600 scores: the coverage is Beta distributed about the wanted one; four standard deviations of it.
        assert abs(inside - coverage) < 4 * math.sqrt(coverage * (1 - coverage) * (1 / 600 + 1 / 20_000))


# Model folders


def test_a_model_folder_is_json_and_tensors_and_refuses_a_changed_byte(numbers: FittedTable, tmp_path: Path) -> None:
    numbers.model.save(tmp_path / "model")
    assert sorted(each.name for each in (tmp_path / "model").iterdir()) == ["config.json", "model.safetensors"]
    json.loads((tmp_path / "model" / "config.json").read_text())
    for name in ("config.json", "model.safetensors"):
        content = (tmp_path / "model" / name).read_bytes()
        for place in (len(content) // 3, len(content) // 2, len(content) - 2):
            (tmp_path / "model" / name).write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
            with pytest.raises(ModelFileError):
                load(tmp_path / "model")
        (tmp_path / "model" / name).write_bytes(content)
    assert load(tmp_path / "model").schema == numbers.model.schema


def test_a_loaded_model_predicts_the_same(numbers: FittedTable, classes: FittedTable, tmp_path: Path) -> None:
    for name, found in (("numbers", numbers), ("classes", classes)):
        found.model.save(tmp_path / name)
        again = load(tmp_path / name)
        assert again.target == found.model.target
        assert again.facts == json.loads(json.dumps(found.model.facts))
        for file in (tmp_path / f"{name}-1.csv", tmp_path / f"{name}-2.csv"):
            model = found.model if file.stem.endswith("1") else again
            predict_table(model, write(houses(seed=2), tmp_path / "new.csv"), file)
        assert (tmp_path / f"{name}-1.csv").read_bytes() == (tmp_path / f"{name}-2.csv").read_bytes()


def test_data_frames_are_predicted_as_files_are(numbers: FittedTable) -> None:
    table = houses(30, seed=5)
    mean = numbers.model(table).mean
    for frame in (table.to_pandas(), pl.from_arrow(table), table.to_batches()[0]):
        assert torch.equal(numbers.model(frame).mean, mean)


# Settings


def test_settings_are_printed_and_read_again(tmp_path: Path) -> None:
    settings = TableSettings(
        target='die "Größe" 😀', drop=("a, b", "[c]"), kinds={"x = y": "category"}, weights="w", time_limit=1.5,
        epsilon=1e-5, hidden_sizes=(3, 4), batch_size=7, recalibration="isotonic", seed=2,
    )  # fmt: skip
    (tmp_path / "said.txt").write_text(f"wrote  here\n\n{settings.text()}\nmore = words\n", encoding="utf-8")
    assert TableSettings(**read_settings(tmp_path / "said.txt")) == settings


def test_every_setting_is_written_unless_it_is_empty() -> None:
    lines = TableSettings(target="y").text().splitlines()[1:]
    empty = {"task", "drop", "kinds", "weights", "group", "time", "holdout", "batch_size", "time_limit"}
    assert {line.split(" = ")[0] for line in lines} == set(TableSettings.__dataclass_fields__) - empty


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[settings]\ntarget = 'y'\nlayers = 3\n", "has a setting 'layers'; there are target, task,"),
        ("[settings]\ntarget = 'y'\nout = 'm'\n", "has a setting 'out'"),
        ("target = 'y'\n", r"has no line \[settings\]"),
        ("[settings]\ntarget = y\n", "are not TOML"),
    ],
)
def test_files_of_settings_that_cannot_be_read_are_named(text: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text(text)
    with pytest.raises(ValueError, match=words):
        read_settings(tmp_path / "c.toml")
    with pytest.raises(ValueError, match="cannot be read"):
        read_settings(tmp_path / "none.toml")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"target": 5}, "`target` must be the name of a column, got 5"),
        ({"drop": "id"}, "`drop` must be a list of names of columns, got 'id'"),
        ({"kinds": "id=drop"}, "`kinds` must be names of columns with their kinds"),
        ({"weights": 1}, "`weights` must be the name of a column, got 1"),
        ({"hidden_sizes": 5}, "`hidden_sizes` must be a list of sizes, got 5"),
        ({"hidden_sizes": (0,)}, "`hidden_sizes` must be an integer ≥ 1, got 0"),
        ({"members": 1}, "`members` must be an integer ≥ 2, got 1"),
        ({"members": "5"}, "`members` must be an integer ≥ 2, got '5'"),
        ({"holdout": 1.0}, "`holdout` must be a number ≥ 0 and ≤ 0.9, got 1.0"),
        ({"epsilon": -1}, "`epsilon` must be a number ≥ 0, got -1"),
        ({"max_epochs": 0}, "`max_epochs` must be an integer ≥ 1, got 0"),
        ({"learning_rate": 0}, "`learning_rate` must be a number > 0, got 0"),
        ({"batch_size": 0.5}, "`batch_size` must be an integer ≥ 1, got 0.5"),
        ({"time_limit": "1"}, "`time_limit` must be a number ≥ 0, got '1'"),
        ({"seed": -1}, "`seed` must be an integer ≥ 0, got -1"),
        ({"task": "ranking"}, "`task` must be regression or classification, got 'ranking'"),
        ({"recalibration": "platt"}, "`recalibration` must be one of auto, none"),
    ],
)
def test_settings_that_cannot_be_are_refused_by_name(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match="^" + words.replace("(", r"\(")):
        TableSettings(**{"target": "y", **changes})


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"target": "cost"}, "the table has no column `cost`; it has number, size, colour"),
        ({"drop": ("cost",)}, "the table has no column `cost`"),
        ({"kinds": {"cost": "number"}}, "the table has no column `cost`"),
        ({"group": "cost"}, "the table has no column `cost`"),
        ({"weights": "price"}, "`price` is the target and cannot be anything else"),
        ({"drop": ("price",)}, "`price` is the target and cannot be anything else"),
        ({"drop": (*NO_INPUTS, "size", "colour", "yard")}, "no column is left to learn from"),
        ({"kinds": {"size": "colour"}}, "must be one of"),
        ({"task": "classification"}, "`price` has 200 classes in 200 rows; is it the column to predict"),
        ({"target": "colour", "task": "regression"}, "'(red|green|blue)' in row 1 is not a number"),
    ],
)
def test_columns_that_cannot_be_are_refused_by_name(changes: dict[str, Any], words: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=words):
        fitted(houses(), tmp_path, numbers_settings(**changes))


# Predict


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
    np.testing.assert_allclose(columns["mean"], means.mean(0))
    np.testing.assert_allclose(columns["aleatoric_std"] ** 2, (deviations**2).mean(0))
    np.testing.assert_allclose(columns["epistemic_std"] ** 2, means.var(0))
    np.testing.assert_allclose(columns["std"] ** 2, columns["aleatoric_std"] ** 2 + columns["epistemic_std"] ** 2)
    for name, level in (("lower", 0.1), ("upper", 0.9), ("q0.25", 0.25), ("q0.5", 0.5)):
        np.testing.assert_allclose(stats.norm(means, deviations).cdf(columns[name]).mean(0), level, rtol=1e-6)
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
            np.testing.assert_allclose(told[column].to_numpy(), ends)
        parts = [told[each].to_numpy() ** 2 for each in ("std", "aleatoric_std", "epistemic_std")]
        np.testing.assert_allclose(parts[0], parts[1] + parts[2], rtol=1e-5)


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
    np.testing.assert_allclose(ours, probabilities, rtol=1e-5)
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
        np.testing.assert_allclose(read(cut)[name].to_numpy(), read(whole)[name].to_numpy(), rtol=1e-5)


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
    for name in ("p.csv", "p.parquet", "p.csv.gz"):
        (tmp_path / name).write_text("old")
        with pytest.raises(ValueError, match="row 26"):
            predict_table(numbers.model, tmp_path / "new.csv", tmp_path / name)
        assert (tmp_path / name).read_text() == "old"
    assert sorted(each.name for each in tmp_path.iterdir()) == ["new.csv", "p.csv", "p.csv.gz", "p.parquet"]


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
        ({"coverage": 1.0}, "`coverage` must be a number > 0 and < 1, got 1.0"),
        ({"quantiles": (0.0,)}, "`quantiles` must be a number > 0 and < 1, got 0.0"),
        ({"errors": "ignore"}, "`errors` must be refuse or missing, got 'ignore'"),
        ({"keep": ("cost",)}, "the table has no column `cost` to keep; it has number, size"),
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


# Evaluate


def test_an_evaluation_of_numbers_is_what_the_predictions_say(numbers: FittedTable, tmp_path: Path) -> None:
    table = houses(150, seed=7)
    data, out = write(table, tmp_path / "new.csv"), tmp_path / "p.csv"
    predict_table(numbers.model, data, out, coverage=0.8)
    found = evaluate_table(numbers.model, data, coverage=0.8).evaluation
    told, y = read(out), table["price"].to_numpy()
    scores = plain_scores(found)
    mean, lower, upper = (told[name].to_numpy() for name in ("mean", "lower", "upper"))
    assert scores["RMSE"] == pytest.approx(root_mean_squared_error(y, mean), rel=1e-6)
    assert scores["MAE"] == pytest.approx(mean_absolute_error(y, mean), rel=1e-6)
    assert scores["R²"] == pytest.approx(r2_score(y, mean), rel=1e-6)
    assert scores["80 % coverage"] == pytest.approx(((lower <= y) & (y <= upper)).mean())
    assert scores["80 % width"] == pytest.approx((upper - lower).mean(), rel=1e-6)
    assert scores["Rank correlation"] == pytest.approx(
        stats.spearmanr(told["std"].to_numpy(), np.abs(y - mean))[0], rel=1e-6
    )
    assert (found.n_rows, found.n_members, found.task) == (150, 3, "numbers")


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
    assert plain_scores(found) == pytest.approx(plain_scores(alone), rel=1e-5)
    assert found.about["Left out"] == f"{60 - len(known)} rows without a value of price"
    assert "Left out" not in alone.about
    for ours, theirs in zip(found.wrong, alone.wrong, strict=True):
        assert ours.columns["row of the table"] == str(known[theirs.row] + 1)
    nothing = write(with_column(table, "price", pa.array([None] * 60, pa.float64())), tmp_path / "none.parquet")
    with pytest.raises(ValueError, match="no row has a value of `price`, so that there is nothing to judge"):
        evaluate_table(numbers.model, nothing)


def test_a_table_without_the_target_cannot_be_judged(numbers: FittedTable, tmp_path: Path) -> None:
    data = write(houses(30).drop_columns("price"), tmp_path / "new.csv")
    with pytest.raises(ValueError, match="the table lacks the column `price`, without which predictions cannot be judged"):
        evaluate_table(numbers.model, data)


def test_labels_that_training_did_not_see_are_refused_or_left_out(classes: FittedTable, tmp_path: Path) -> None:
    speeds = ["never" if i == 11 else each for i, each in enumerate(houses(30)["speed"].to_pylist())]
    data = write(with_column(houses(30), "speed", speeds), tmp_path / "new.csv")
    with pytest.raises(ValueError, match="column `speed`: 'never' in row 12 is not a class that training saw"):
        evaluate_table(classes.model, data)
    assert evaluate_table(classes.model, data, errors="missing").evaluation.n_rows == 29


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
    found = evaluate_table(numbers.model, write(table, tmp_path / "new.parquet")).evaluation.outside
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
    assert plain_scores(evaluate_table(numbers.model, parts).evaluation) == pytest.approx(plain_scores(whole))


@pytest.mark.parametrize("kind", ["numbers", "classes"])
def test_the_page_is_small_and_names_the_target(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    model = request.getfixturevalue(kind).model
    report = evaluate_table(model, write(houses(3000, seed=8), tmp_path / "new.parquet"))
    report.save(tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert len(page.encode()) < 3_000_000
    assert f"{model.target.name}: predictions for 3000 rows" in page
    json.dumps(report.evaluation.as_dict(), allow_nan=False)


# Compare


def compared(settings: TableSettings, tmp_path: Path, n: int = 100, folds: int = 3) -> tuple[Comparison, list[Any]]:
    said: list[Any] = []
    return compare_table(write(houses(n), tmp_path / "houses.parquet"), settings, folds, say=said.append), said


def test_methods_for_numbers_are_compared_in_pairs(tmp_path: Path) -> None:
    found, _ = compared(numbers_settings(members=2, max_epochs=2), tmp_path)
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
    tables = found.tables()
    assert [table.title for table in tables] == list(found.scores)
    assert [row[0] for row in tables[0].rows] == list(found.scores[tables[0].title])


def test_the_scores_of_the_deep_ensemble_can_be_computed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[Any] = []

    def kept_methods(self: Any, say: Any) -> Any:
        kept.extend([self, everything(self, say)])
        return kept[1]

    everything = _compare._Methods.all
    monkeypatch.setattr(_compare._Methods, "all", kept_methods)
    found, _ = compared(numbers_settings(members=2, max_epochs=2), tmp_path)
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
    found = compare_table(write(table, tmp_path / "t.parquet"), settings, 2, say=quiet)
    assert len(found.scores["RMSE (lower is better)"][OURS]) == 2
    two = write(with_column(table, "owner", np.arange(100) % 2), tmp_path / "two.parquet")
    with pytest.raises(ValueError, match="`owner` has only one group left to train on in a fold"):
        compare_table(two, settings, 2, say=quiet)


def test_weights_count_for_every_method(tmp_path: Path) -> None:
    """Rows that weigh next to nothing pull no method to their price."""
    table = houses(200)
    light = np.arange(200) % 2 == 0
    prices = np.where(light, 10_000.0 + np.arange(200), table["price"].to_numpy())
    changed = with_column(with_column(table, "price", prices), "weight", np.where(light, 1e-9, 1.0))
    settings = numbers_settings(members=2, max_epochs=20, learning_rate=0.03, weights="weight")
    data = read_data(write(changed, tmp_path / "t.parquet"), settings, quiet)
    inputs = understand(data.table, "price", drop=[*NO_INPUTS, "weight"]).encode(data.table)
    folds = [(np.arange(200), np.flatnonzero(~light))]
    for method, (prediction,) in _compare._Methods(inputs, data, folds, settings, 0).all(quiet).items():
        assert float(prediction.mean.mean()) < 2500, method
