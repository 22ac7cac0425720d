"""Tables in files → models → tables of predictions: the Python functions behind the commands."""

from __future__ import annotations

import dataclasses
import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
import torch
from _made_tables import (
    NO_INPUTS,
    classes_settings,
    fitted,
    held_out,
    houses,
    normal_mixture,
    numbers_settings,
    plain_scores,
    quiet,
    read,
    same_networks,
    with_column,
    write,
)
from scipy import stats
from sklearn.metrics import accuracy_score, log_loss, mean_absolute_error, r2_score, root_mean_squared_error

from deep_ensembles import DeepEnsembleRegressor, load
from deep_ensembles._files import ModelFileError
from deep_ensembles.fitting import fit_ensemble
from deep_ensembles.heads import Poisson
from deep_ensembles.recalibration import variance_scaling
from deep_ensembles.tabular import (
    FittedTable,
    TableSettings,
    evaluate_table,
    fit_table,
    predict_table,
    read_settings,
    settings_of_targets,
)
from deep_ensembles.tabular.data import read_data
from deep_ensembles.tabular.fit import _nested, _nested_parts
from deep_ensembles.tabular.settings import TRAINING
from deep_ensembles.training import Recipe


def told(data: Any, settings: TableSettings) -> str:
    """What fitting says."""
    said: list[Any] = []
    fit_table(data, settings, log=said.append)
    return "\n".join(each if isinstance(each, str) else each.text(400) for each in said)


# Fit: files


def test_the_same_rows_in_any_kind_of_file_give_the_same_model(tmp_path: Path) -> None:
    table, settings = houses(80), numbers_settings(max_epochs=2, members=2)
    parts = tmp_path / "parts"
    parts.mkdir()
    for number, start in enumerate((0, 30, 60)):
        write(table.slice(start, 30), parts / f"part-{number}.csv")
    first = fit_table(write(table, tmp_path / "houses.parquet"), settings, log=quiet)
    text = write(table, tmp_path / "houses.csv")
    several = sorted(parts.iterdir())
    for data in (text, write(table, tmp_path / "houses.tsv"), parts, several):
        other = fit_table(data, settings, log=quiet)
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
    found = fit_table(path, numbers_settings(target="stars", task=task, max_epochs=1), log=said.append)
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
    sizes[held] = 1e9 + np.arange(len(held))  # different, as copies would be held out together
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

    monkeypatch.setattr("deep_ensembles.selection.fit_ensemble", trained)
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
        target="y", task="regression", head="normal", members=2, hidden_sizes=(8,), max_epochs=30, effort="fast",
        recalibration="none",
    )  # fmt: skip
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


@pytest.mark.parametrize(("limit", "cut"), [(0.3, True), (600.0, False)])
def test_seconds_epochs_and_what_a_time_limit_cut_are_told(limit: float, cut: bool, tmp_path: Path) -> None:
    epochs = 100_000 if cut else 3
    settings = numbers_settings(max_epochs=epochs, patience=100_000, time_limit=limit)
    said = told(write(houses(), tmp_path / "t.parquet"), settings)
    assert re.search(rf"training took \d+ s: (\d+ to )?\d+ of at most {epochs} epochs", said)
    assert said.endswith(f"; the time limit of {limit:g} s cut epochs") is cut
    if cut:
        by_default = dataclasses.replace(settings, effort="default")
        said = told(tmp_path / "t.parquet", by_default)
        assert said.endswith(f"; the time limit of {limit:g} s cut epochs and what else to try")


def test_time_that_is_up_still_gives_a_model(tmp_path: Path) -> None:
    found = fitted(houses(), tmp_path, numbers_settings(max_epochs=100_000, patience=100_000, time_limit=0.3))
    epochs = np.isfinite(found.model.ensemble.history[0]).sum(1)
    assert 1 <= epochs.max() < 100_000
    assert math.isfinite(found.evaluation.score("RMSE").ensemble)


def test_all_of_many_rows_are_trained_on_and_judged_out_of_fold_by_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deep_ensembles.tabular.fit.NESTED_ROWS", 200)
    table, settings = houses(), numbers_settings(holdout=None, recalibration="none")
    found = fitted(table, tmp_path, settings)
    ensemble = found.model.ensemble
    assert found.model.facts["rows"] == {"trained": 200, "held_out": 0}
    assert found.evaluation.about["Each row judged by"] == f"1 of {ensemble.n_members} networks, which did not see it"
    assert found.evaluation.n_rows == 200
    means = ensemble.out_of_fold(found.model.schema.encode(table)).mean.numpy()
    price = table["price"].to_numpy()
    assert found.evaluation.score("RMSE").ensemble == pytest.approx(root_mean_squared_error(price, means), rel=1e-5)
    in_fold = root_mean_squared_error(price, found.model(table).mean.numpy())
    assert found.evaluation.score("RMSE").ensemble != pytest.approx(in_fold)


@pytest.mark.parametrize("recalibration", ["auto", "isotonic"])
def test_few_rows_are_judged_by_models_made_without_them(recalibration: str, tmp_path: Path) -> None:
    """Neither members nor what is chosen by them sees the rows that they are judged by."""
    table, settings = houses(60), numbers_settings(holdout=None, recalibration=recalibration, head="normal")
    data = read_data(write(table, tmp_path / "t.parquet"), settings, quiet)
    inputs = data.schema(settings).encode(data.table)
    parts = _nested_parts(data, inputs, settings)
    np.testing.assert_array_equal(np.sort(np.concatenate([part for _, part in parts])), np.arange(60))
    rows, part = parts[2]
    assert not set(rows) & set(part)
    judged = _nested(data, inputs, settings, rows, part)
    changed = data.y.copy()
    changed[part] += 100 * np.arange(len(part))
    again = _nested(dataclasses.replace(data, y=changed), inputs, settings, rows, part)
    assert torch.equal(judged.prediction.mean, again.prediction.mean)
    assert torch.equal(judged.prediction.cdf(judged.target), again.prediction.cdf(judged.target))
    errors = [_nested(data, inputs, settings, *part) for part in parts]
    mean = np.mean([error for each in errors for error in (each.prediction.mean - each.target).abs().tolist()])
    assert fitted(table, tmp_path, settings).evaluation.score("MAE").ensemble == pytest.approx(mean, rel=1e-5)


# Fit: held-out scores, computed again


def test_scores_of_held_out_numbers_are_what_scipy_says(numbers: FittedTable, tmp_path: Path) -> None:
    table = houses()
    _, held = held_out(table, tmp_path, numbers_settings())
    rows, y = table.take(held), table["price"].to_numpy()[held]
    means, deviations = normal_mixture(numbers, rows)
    density = stats.norm(means, deviations).pdf(y).mean(0)
    level = stats.norm(means, deviations).cdf(y).mean(0)
    scores = plain_scores(numbers.evaluation)
    assert scores["NLL"] == pytest.approx(-np.log(density).mean(), rel=1e-5, abs=1e-6)
    assert scores["RMSE"] == pytest.approx(root_mean_squared_error(y, means.mean(0)), rel=1e-5)
    assert scores["MAE"] == pytest.approx(mean_absolute_error(y, means.mean(0)), rel=1e-5)
    assert scores["R²"] == pytest.approx(r2_score(y, means.mean(0)), rel=1e-5, abs=1e-6)
    assert scores["90 % coverage"] == pytest.approx(((level >= 0.05) & (level <= 0.95)).mean())
    single = stats.norm(means[0], deviations[0])
    assert numbers.evaluation.score("NLL").single == pytest.approx(-single.logpdf(y).mean(), rel=1e-5, abs=1e-6)
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
    assert (
        fitted(table, tmp_path, settings(holdout=None)).evaluation.n_rows == 10
    )  # each judged by the member that holds it out
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
    monkeypatch.setattr("deep_ensembles.tabular.fit.fit_recipe", lambda *a, **b: pytest.fail("trained all the same"))
    with pytest.raises(ValueError, match=words):
        fitted(houses(), tmp_path, settings(recalibration=name))


def test_a_recalibration_needs_two_rows(tmp_path: Path) -> None:
    settings = numbers_settings(recalibration="conformal", holdout=0.1, max_epochs=1)
    with pytest.raises(ValueError, match="conformal needs at least 2 rows held out, got 1"):
        fitted(houses(10), tmp_path, settings)
    said: list[Any] = []
    found = fit_table(write(houses(20), tmp_path / "t.csv"), settings, log=said.append)
    assert found.evaluation.n_rows == 2
    assert "note: 2 rows are few to judge by; the scores below say little and are those without recalibration" in said


def test_a_recalibration_is_judged_by_rows_it_was_not_fitted_on(tmp_path: Path) -> None:
    settings = numbers_settings(recalibration="variance_scaling")
    found = fitted(houses(), tmp_path, settings)
    rows = houses().take(held_out(houses(), tmp_path, settings)[1])
    y = torch.tensor(rows["price"].to_pylist(), dtype=torch.float64)
    mixture = found.model.ensemble.mixture(found.model.schema.encode(rows))
    losses = []
    for part in range(5):
        own = torch.arange(len(y)) % 5 == part
        losses.append(-variance_scaling(mixture[~own], y[~own])(mixture[own]).log_prob(y[own]))
    told = found.evaluation.score("NLL").ensemble
    assert told == pytest.approx(float(torch.cat(losses).mean()), rel=1e-5, abs=1e-6)
    same_rows = -found.model(rows).log_prob(y).mean()
    assert told > float(same_rows) + 1e-4


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
        target='die "Größe" 😀', drop=("a, b", "[c]"), kinds={"x = 😀": "category"}, weights="w", time_limit=1.5,
        epsilon=1e-5, hidden_sizes=(3, 4), batch_size=7, recalibration="isotonic", seed=2,
    )  # fmt: skip
    (tmp_path / "said.txt").write_text(f"wrote  here\n\n{settings.text()}\nmore = words\n", encoding="utf-8")
    assert TableSettings(**read_settings(tmp_path / "said.txt")) == settings


def test_every_setting_is_written_unless_it_is_empty() -> None:
    lines = TableSettings(target="y").text().splitlines()[1:]
    assert {line.split(" = ")[0] for line in lines} == {"target", "errors", "recalibration", "effort", "seed"}


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
        ({"effort": "huge"}, "`effort` must be one of fast, default, best, got 'huge'"),
        ({"learning_rate": 0}, "`learning_rate` must be a number > 0, got 0"),
        ({"batch_size": 0.5}, "`batch_size` must be an integer ≥ 1, got 0.5"),
        ({"time_limit": 0}, "`time_limit` must be a number > 0, got 0"),
        ({"seed": -1}, "`seed` must be an integer ≥ 0, got -1"),
        ({"task": "ranking"}, "`task` must be regression or classification, got 'ranking'"),
        ({"recalibration": "platt"}, "`recalibration` must be one of auto, none"),
    ],
)
def test_settings_that_cannot_be_are_refused_by_name(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match="^" + words.replace("(", r"\(")):
        TableSettings(**{"target": "y", **changes})


def test_settings_of_training_are_those_of_the_recipe() -> None:
    """Every setting that a table shares with `Recipe`, by name, reaches it; `members` is a number here and a type there."""
    recipe, table = (dataclasses.fields(kind) for kind in (Recipe, TableSettings))
    shared = {setting.name for setting in recipe} & {setting.name for setting in table} - {"members"}
    assert set(TRAINING) == shared
    given = {"max_epochs": 3, "patience": 4, "learning_rate": 0.5, "batch_size": 6, "time_limit": 7.0}
    others = {"members": 8, "hidden_sizes": [9], "epsilon": 0.0, "head": "poisson", "recalibration": "none"}
    explicit = TableSettings(target="y", **given, **others).explicit
    expected = {"n_members": 8, "hidden_sizes": (9,), "perturbation": None, "head": Poisson(), "recalibration": None}
    assert explicit == given | expected
    assert TableSettings(target="y").explicit == {}


def test_what_is_asked_for_wins_and_the_rest_is_chosen_and_kept(tmp_path: Path) -> None:
    found = fitted(houses(60), tmp_path, TableSettings(target="price", drop=NO_INPUTS, max_epochs=3, effort="fast"))
    chosen = found.model.facts["chosen"]
    assert chosen["max_epochs"] == 3
    assert (chosen["n_members"], chosen["batch_size"]) == (found.model.ensemble.n_members, 32)
    assert chosen["recalibration"] == repr(found.model.ensemble.recalibration)
    found.model.save(tmp_path / "model")
    assert load(tmp_path / "model").facts["chosen"] == chosen


def test_a_table_is_learnt_as_the_estimator_learns_it(tmp_path: Path) -> None:
    """One recipe: the same inputs and settings give the same networks."""
    found = fitted(houses(60), tmp_path, TableSettings(target="price", drop=NO_INPUTS, max_epochs=3, seed=1))
    inputs = found.model.schema.encode(houses(60))
    model = DeepEnsembleRegressor(max_epochs=3, random_state=1).fit(inputs, houses(60)["price"].to_numpy())
    assert torch.equal(model.ensemble_(inputs).mean, found.model.ensemble(inputs).mean)
    assert model.chosen_ == found.model.facts["chosen"]


def test_rows_that_no_network_sees_judge_the_model_as_it_is(tmp_path: Path) -> None:
    settings = numbers_settings()
    found = fitted(houses(), tmp_path, settings)
    rows = houses().take(held_out(houses(), tmp_path, settings)[1])
    write(rows, tmp_path / "rest.parquet")
    again = evaluate_table(found.model, tmp_path / "rest.parquet").evaluation
    assert {score.name: score for score in again.scores} == {score.name: score for score in found.evaluation.scores}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"target": "cost"}, "fitted.parquet has no column `cost`; it has number, size, colour"),
        ({"drop": ("cost",)}, "has no column `cost`"),
        ({"kinds": {"cost": "number"}}, "has no column `cost`"),
        ({"group": "cost"}, "has no column `cost`"),
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


def test_a_target_named_twice_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="`price` is named twice as a target; name each once"):
        settings_of_targets(write(houses(20), tmp_path / "t.parquet"), numbers_settings(target="price, speed,price"))
