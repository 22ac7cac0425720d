"""The commands for tables: what they print, write and refuse."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import pytest
from _commands import DROP, QUICK, done, refused, run
from _made_tables import houses, read, with_column, write
from _processes import not_on_windows, printed, shown_by
from sklearn.datasets import load_diabetes

from deep_ensembles import DeepEnsembleRegressor, load
from deep_ensembles.training import loop

COMMANDS = [
    *(
        ["fit"],
        ["predict"],
        ["evaluate"],
        ["compare"],
        ["show"],
        ["demo"],
        ["reproduce"],
        ["data", "list"],
        ["data", "fetch"],
    ),
]
ESCAPE = "\x1b"
PROGRAM = [sys.executable, "-c", "from deep_ensembles.cli import app; app()"]


def started(*arguments: Any, env: dict[str, str] | None = None, **settings: Any) -> subprocess.Popen[str]:
    command = [*PROGRAM, *(str(each) for each in arguments)]
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True} | settings
    return subprocess.Popen(command, env={**os.environ, "OMP_NUM_THREADS": "1", **(env or {})}, **streams)


# Fit


def test_fit_prints_what_it_understood_and_what_it_is_worth(folder: Path) -> None:
    said = (folder / "price.txt").read_text(encoding="utf-8").replace("\u202f", " ")
    assert said.startswith("`price` is a number with 200 different values: regression\n")
    assert "200 rows are used; as they are few, each is judged by a model made of four fifths, without it, five" in said
    for setting, value in (("networks", "2 +as asked"), ("head", "student_t"), ("batch size", "32")):
        assert re.search(rf"^ *{setting} +{value} *$", said, re.MULTILINE)
    assert load(folder / "price-model").facts["chosen"]["batch_size"] == 32
    for column, words in (("colour", "category, 3 levels"), ("owner", "left out: as asked")):
        assert re.search(rf"^ *{column} +{words}", said, re.MULTILINE)
    for score in ("NLL", "CRPS", "RMSE", "90 % coverage"):
        assert re.search(rf"^ *{score} +\S+.* [a-z]{{4,}}", said, re.MULTILINE)
    assert re.search(r"^recalibration: \w+", said, re.MULTILINE)
    assert f"wrote  {folder / 'price-model'}" in said
    assert sorted(each.name for each in (folder / "price-model").iterdir()) == ["config.json", "model.safetensors"]


def test_held_out_scores_that_are_printed_are_those_of_the_model(folder: Path) -> None:
    said = (folder / "price.txt").read_text(encoding="utf-8")
    scores = load(folder / "price-model").facts["held_out_scores"]
    printed = re.search(r"^ *RMSE +([\d.]+)", said, re.MULTILINE)
    assert printed is not None
    assert float(printed[1]) == pytest.approx(scores["RMSE"], rel=1e-3)


def test_all_that_fit_printed_can_be_fed_back(folder: Path, tmp_path: Path) -> None:
    done("fit", folder / "houses.csv", "--config", folder / "price.txt", "--out", tmp_path / "again")
    for name in ("config.json", "model.safetensors"):
        assert (tmp_path / "again" / name).read_bytes() == (folder / "price-model" / name).read_bytes()


def test_options_stand_above_the_file_of_settings(folder: Path, tmp_path: Path) -> None:
    options = ["--members", "3", "--seed", "5", "--drop", "number,owner,year,speed,yard", "--recalibration", "none"]
    done("fit", folder / "houses.csv", "--config", folder / "price.txt", *options, "--out", tmp_path / "m")
    model = load(tmp_path / "m")
    settings = model.facts["settings"]
    assert (settings["members"], settings["seed"], settings["max_epochs"]) == (3, 5, 2)
    assert model.ensemble.n_members == 3
    assert model.ensemble.recalibration is None
    assert list(model.schema.names) == ["size", "colour"]


def test_every_option_of_fit_reaches_the_settings(folder: Path, tmp_path: Path) -> None:
    options = shlex.split(
        "--task regression --kinds owner=category,yard=drop --weights size2 --group number2 --holdout 0.3 --epsilon 0.01 "
        "--recalibration conformal --members 2 --effort fast --max-epochs 1 --time-limit 60 --seed 9 "
        "--drop number,speed,year"
    )
    table = with_column(with_column(houses(), "size2", np.arange(200) % 3 + 1), "number2", np.arange(200) % 20)
    data = write(table, tmp_path / "t.csv")
    said = done("fit", data, "--target", "price", *options, "--out", tmp_path / "m", "--report", tmp_path / "r.html").stdout
    assert "note: rows count in training as `size2` says, in scores each counts once" in said
    settings = load(tmp_path / "m").facts["settings"]
    wanted = {"task": "regression", "kinds": {"owner": "category", "yard": "drop"}, "weights": "size2", "group": "number2",
              "holdout": 0.3, "epsilon": 0.01, "recalibration": "conformal", "members": 2, "effort": "fast", "max_epochs": 1,
              "time_limit": 60.0, "seed": 9, "drop": ["number", "speed", "year"]}  # fmt: skip
    assert {name: settings[name] for name in wanted} == wanted
    assert "price: rows held out" in (tmp_path / "r.html").read_text(encoding="utf-8")


def test_a_head_is_suggested_chosen_kept_and_compared(tmp_path: Path) -> None:
    counts = np.random.default_rng(0).negative_binomial(2, 0.1, 200)
    data = write(with_column(houses(), "price", counts), tmp_path / "counts.csv")
    command = ["fit", data, "--target", "price", *DROP, *QUICK, "--recalibration", "none", "--out", tmp_path / "m"]
    suggestion = "note: `price` may ask for --head negative_binomial: it has whole numbers ≥ 0"
    assert suggestion in done(*command).stdout
    printed_lines = done(*command, "--force", "--head", "negative_binomial:min_size=0.1").stdout
    assert suggestion not in printed_lines
    assert 'head = "negative_binomial:min_size=0.1"' in printed_lines
    done("predict", tmp_path / "m", data, "--out", tmp_path / "p.csv", "--quantiles", "0.5")
    predicted = read(tmp_path / "p.csv")
    assert all(value == int(value) for name in ("lower", "q0.5", "upper") for value in predicted[name].to_pylist())
    quick = ["--members", 2, "--folds", 2, "--effort", "fast", "--only", "MSE ensemble"]
    compared = done("compare", data, "--target", "price", *DROP, *quick, "--head", "poisson").stdout
    assert len(re.findall(r"^ *with default head +-?[\d.]+", compared, re.MULTILINE)) == 5


def test_a_table_of_odd_names_is_learnt_and_printed(tmp_path: Path) -> None:
    names = ["[bold]x[/x]", 'é, "ü"', "😀", ":smile:"]
    table = houses(60).select(["size", "yard", "price", "owner"]).rename_columns(names)
    said = done("fit", write(table, tmp_path / "t.csv"), "--target", "😀", *QUICK, "--out", tmp_path / "m").stdout
    for name in (names[0], names[1], names[3]):
        assert re.search(rf"^ *{re.escape(name)} +number", said, re.MULTILINE)
    (tmp_path / "said.txt").write_text(said, encoding="utf-8")
    done("fit", tmp_path / "t.csv", "--config", tmp_path / "said.txt", "--out", tmp_path / "m2")
    assert (tmp_path / "m" / "config.json").read_bytes() == (tmp_path / "m2" / "config.json").read_bytes()


def test_a_model_that_is_there_is_replaced_and_nothing_else_is(folder: Path, tmp_path: Path) -> None:
    command = ["fit", folder / "houses.csv", "--target", "price", *DROP, *QUICK, "--force", "--out"]
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").write_text("dear")
    assert "not a model folder" in refused(*command, tmp_path / "mine")
    done(*command, tmp_path / "m", "--seed", "1")
    first = (tmp_path / "m" / "config.json").read_bytes()
    done(*command, tmp_path / "m", "--seed", "2")
    assert (tmp_path / "m" / "config.json").read_bytes() != first
    assert sorted(each.name for each in tmp_path.iterdir()) == ["m", "mine"]


# Predict


def test_predict_writes_and_says_how_many(folder: Path, tmp_path: Path) -> None:
    options = ["--coverage", "0.8", "--quantiles", "0.1,0.5", "--keep", "number, owner", "--abstain-above", "0.0001"]
    result = done("predict", folder / "price-model", folder / "new.csv", "--out", tmp_path / "p.csv", *options)
    assert result.stdout == f"wrote  {tmp_path / 'p.csv'}  (200 rows, 200 of them for a person)\n"
    assert result.stderr.startswith("note: rows with values that training did not see, by column: size 7, yard 1;")
    told = read(tmp_path / "p.csv")
    names = "number owner mean std aleatoric_std epistemic_std lower upper q0.1 q0.5 abstain"
    assert told.column_names == names.split()
    np.testing.assert_allclose(told["lower"].to_numpy(), told["q0.1"].to_numpy())
    assert told["number"].to_pylist() == houses()["number"].to_pylist()


def test_predict_writes_classes(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "new folder" / "p.parquet"
    result = done("predict", folder / "speed-model", folder / "new.csv", "--out", out, "--abstain-below", "0.9")
    names = ["label", "confidence", "entropy", "disagreement", "p_fast", "p_slow", "abstain"]
    assert read(out).column_names == names
    unsure = read(out)["confidence"].to_numpy() < 0.9
    assert read(out)["abstain"].to_pylist() == unsure.tolist()
    assert f"(200 rows, {unsure.sum()} of them for a person)" in result.stdout


def test_unknown_columns_are_ignored_with_a_note(folder: Path, tmp_path: Path) -> None:
    table = with_column(houses(20), "weather", ["fair"] * 20)
    result = done("predict", folder / "price-model", write(table, tmp_path / "t.csv"), "--out", tmp_path / "p.csv")
    assert result.stderr == "note: columns that the model does not know are ignored: weather\n"
    assert "note" not in result.stdout


def test_unreadable_values_are_refused_or_taken_as_missing(folder: Path, tmp_path: Path) -> None:
    rows = houses(20).to_pandas().astype({"size": object})
    rows.loc[4, "size"] = "huge"
    rows.to_csv(tmp_path / "t.csv", index=False)
    command = ["predict", folder / "price-model", tmp_path / "t.csv", "--out", tmp_path / "p.csv"]
    assert "column `size`: 'huge' in row 5 is not a number" in refused(*command)
    assert "`errors` must be refuse or missing, got 'forget'" in refused(*command, "--errors", "forget")
    done(*command, "--errors", "missing")
    assert read(tmp_path / "p.csv").num_rows == 20


@pytest.mark.parametrize("command", ["fit", "compare"])
def test_unreadable_values_are_found_before_training(command: str, tmp_path: Path) -> None:
    rows = houses(60).to_pandas().astype({"size": object, "price": object})
    rows.loc[[4, 20], "size"] = ["huge", "tiny"]
    rows.loc[30, "price"] = "on request"
    rows.to_csv(tmp_path / "t.csv", index=False)
    more = ["--out", tmp_path / "m", "--max-epochs", "2"] if command == "fit" else ["--folds", "2"]
    run_it = [command, tmp_path / "t.csv", "--target", "price", *DROP, *more, "--members", "2", "--effort", "fast"]
    assert "`price` is a number in nearly all rows, but 'on request' in row 31; correct it" in refused(*run_it)
    assert "`errors` must be refuse or missing, got 'forget'" in refused(*run_it, "--errors", "forget")
    said = done(*run_it, "--errors", "missing").stdout
    assert "note: 1 value of `price`, the first 'on request' in row 31, cannot be read: taken as missing\n" in said
    assert "note: 1 row without a target is left out\n" in said
    assert "note: 2 values of `size`, the first 'huge' in row 5, cannot be read: taken as missing\n" in said
    rows.loc[30, "price"] = "7"
    rows.to_csv(tmp_path / "t.csv", index=False)
    told = refused(*run_it, *(["--force"] if command == "fit" else []))
    assert told.startswith("column `size`: 'huge' in row 5 is not a number (one of 2 such values); correct it, leave it")


# Evaluate


def test_evaluate_prints_scores_and_writes_a_page(folder: Path, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    for name in ("price", "speed"):
        said = done("evaluate", folder / f"{name}-model", folder / "new.csv", "--report", page).stdout
        assert "Scores of 200 rows" in said
        assert f"wrote  {page}" in said
        assert page.stat().st_size < 3_000_000
        assert f"{name}: predictions for 200 rows" in page.read_text(encoding="utf-8")


def test_evaluate_speaks_json(folder: Path, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    result = done("evaluate", folder / "price-model", folder / "new.csv", "--json", "--report", page, "--coverage", "0.5")
    data = json.loads(result.stdout)
    done("predict", folder / "price-model", folder / "new.csv", "--out", tmp_path / "p.csv", "--coverage", "0.5")
    told, y = read(tmp_path / "p.csv"), houses(seed=1)["price"].to_numpy()
    scores = {each["name"].replace("\u202f", " "): each["ensemble"] for each in data["scores"]}
    inside = (told["lower"].to_numpy() <= y) & (y <= told["upper"].to_numpy())
    assert scores["50 % coverage"] == pytest.approx(inside.mean())
    assert scores["RMSE"] == pytest.approx(np.sqrt(((told["mean"].to_numpy() - y) ** 2).mean()), rel=1e-6)
    assert (data["task"], data["n_rows"], data["coverage"]) == ("numbers", 200, 0.5)
    assert page.exists()


def test_evaluate_says_which_rows_it_leaves_out(folder: Path, tmp_path: Path) -> None:
    prices = [None, None, *houses()["price"].to_pylist()[2:]]
    data = write(with_column(houses(), "price", prices), tmp_path / "t.csv")
    said = done("evaluate", folder / "price-model", data).stdout
    assert "note: left out are 2 rows without a value of price" in said
    assert "Scores of 198 rows" in said


# Compare


def test_evaluate_and_explain_say_what_they_leave_out_and_know_the_tables_of_a_database(
    folder: Path, tmp_path: Path
) -> None:
    (tmp_path / "new.csv").write_text(
        "Sales of May\n\n" + (folder / "new.csv").read_text(encoding="utf-8"), encoding="utf-8"
    )
    assert (
        "above the names of columns is left out: 'Sales"
        in done("evaluate", folder / "price-model", tmp_path / "new.csv").output
    )
    with closing(sqlite3.connect(tmp_path / "sales.db")) as database:
        for name in ("new", "old"):
            pd.read_csv(folder / "new.csv").to_sql(name, database, index=False)
    assert "shuffled over" in done("explain", folder / "price-model", tmp_path / "sales.db", "--table", "new").output


def test_compare_prints_tables_and_json(folder: Path, tmp_path: Path) -> None:
    config = tmp_path / "quick.toml"
    config.write_text('[settings]\ntarget = "price"\nmax_epochs = 1\nhidden_sizes = [8]\nmembers = 2\neffort = "fast"\n')
    command = ["compare", folder / "houses.csv", "--config", config, *DROP, "--folds", "2"]
    command += ["--only", "single network,MSE ensemble,random forest"]
    said = done(*command).stdout
    for method in ("deep ensemble", "single network", "MSE ensemble", "random forest"):
        assert len(re.findall(rf"^ *{method} +-?[\d.]+", said, re.MULTILINE)) == 5
    data = json.loads(done(*command, "--json").stdout)
    assert data["task"] == "regression"
    assert {len(folds) for scores in data["scores"].values() for folds in scores.values()} == {2}


# Errors: one sentence


def table_with(tmp_path: Path, content: bytes, name: str = "t.csv") -> Path:
    (tmp_path / name).write_bytes(content)
    return tmp_path / name


BAD_TABLES: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "is empty"),
    "names only": (b"x,price\n", "the table has no rows"),
    "binary": (bytes(range(256)) * 20, "is not text"),
    "excel": (b"PK\x03\x04" + bytes(100), "starts as a zip archive, but is none"),
    "half parquet": (b"PAR1" + bytes(100), "is not a whole Parquet file"),
    "no target": (b"x,y\n" + b"1,2\n" * 20, "t.csv has no column `price`; it has x, y"),
    "target missing": (b"x,price\n" + b"1,\n2,NA\n" * 20, "`price`"),
    "target constant": (b"x,price\n" + b"1,2.5\n2,2.5\n" * 20, "`price` is 2.5 in every row"),
    "one class": (b"x,price\n" + b"1,a\n2,a\n" * 20, "`price` needs at least two classes, but every row has the same, 'a'"),
    "few rows": (b"x,price\n" + b"1,2.5\n2,3.5\n" * 4, "at least 10 rows with a target are needed, got 8"),
    "dates": (b"x,price\n" + b"1,2020-01-01\n2,2021-01-02\n" * 20, "`price` holds dates"),
    "no inputs": (b"price\n" + b"2.5\n3.5\n4\n" * 20, "no column is left to learn from"),
    "constant inputs": (
        b"x,price\n" + b"1,2.5\n1,3.5\n" * 20,
        "no column is left to learn from (`x`: all its values are 1)",
    ),
    "uneven": (b"x,price\n" + b"1,2.5\n2,3.5\n" * 20 + b"1,2,3\n", "line 42: 3 values for 2 columns"),
    "numbers above": (b"1,2.5\n" + b"1,2.5\n2,3.5\n" * 20, "holds values, not column names"),
}


@pytest.mark.parametrize("kind", BAD_TABLES)
def test_bad_tables_are_refused_in_one_sentence(kind: str, tmp_path: Path) -> None:
    content, words = BAD_TABLES[kind]
    data = table_with(tmp_path, content)
    assert words in refused("fit", data, "--target", "price", "--out", tmp_path / "m", *QUICK)
    assert words in refused("compare", data, "--target", "price", "--folds", "2")
    assert [each.name for each in tmp_path.iterdir()] == ["t.csv"]


@pytest.mark.parametrize("kind", ["empty", "binary", "excel", "half parquet", "numbers above"])
def test_bad_tables_cannot_be_predicted_or_judged(kind: str, folder: Path, tmp_path: Path) -> None:
    content, words = BAD_TABLES[kind]
    data = table_with(tmp_path, content)
    assert words in refused("predict", folder / "price-model", data, "--out", tmp_path / "p.csv")
    assert words in refused("evaluate", folder / "price-model", data)
    assert [each.name for each in tmp_path.iterdir()] == ["t.csv"]


def test_what_is_not_there_is_named(folder: Path, tmp_path: Path) -> None:
    nowhere, out = tmp_path / "nowhere", ["--out", tmp_path / "p.csv"]
    assert f"{nowhere} is not there" in refused("fit", nowhere, "--target", "price", "--out", tmp_path / "m")
    assert f"{nowhere} is not there" in refused("compare", nowhere, "--target", "price")
    assert f"{nowhere} is not there" in refused("predict", folder / "price-model", nowhere, *out)
    assert f"{nowhere} is not there" in refused("evaluate", folder / "price-model", nowhere)
    assert "is not a complete model folder" in refused("predict", nowhere, folder / "new.csv", *out)
    assert "is not a complete model folder" in refused("evaluate", folder, folder / "new.csv")
    config = ["--config", nowhere]
    assert "cannot be read" in refused("fit", folder / "houses.csv", *config, "--out", tmp_path / "m")


def test_a_model_of_another_kind_is_named(folder: Path, tmp_path: Path) -> None:
    X, y = load_diabetes(return_X_y=True)
    DeepEnsembleRegressor(2, hidden_sizes=(4,), max_epochs=1, random_state=0).fit(X, y).save(tmp_path / "m")
    words = f"{tmp_path / 'm'} holds a DeepEnsembleRegressor, no model of a table; fit one with `deep-ensembles fit`"
    assert refused("predict", tmp_path / "m", folder / "new.csv", "--out", tmp_path / "p.csv") == words
    assert refused("evaluate", tmp_path / "m", folder / "new.csv") == words


def test_a_damaged_model_is_refused(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "m").mkdir()
    for name in ("config.json", "model.safetensors"):
        (tmp_path / "m" / name).write_bytes((folder / "price-model" / name).read_bytes())
    content = bytearray((tmp_path / "m" / "model.safetensors").read_bytes())
    content[-5] ^= 1
    (tmp_path / "m" / "model.safetensors").write_bytes(bytes(content))
    assert "is damaged or was changed" in refused("evaluate", tmp_path / "m", folder / "new.csv")


def test_outputs_that_cannot_be_written_are_named(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "taken.csv").mkdir()
    predict = ["predict", folder / "price-model", folder / "new.csv", "--out"]
    assert "must end in one of .csv" in refused(*predict, tmp_path / "p.xlsx")
    assert "file" in refused(*predict, tmp_path / "file" / "p.csv")
    assert "taken.csv" in refused(*predict, tmp_path / "taken.csv")
    fit = ["fit", folder / "houses.csv", "--target", "price", *DROP, *QUICK, "--out"]
    assert "file" in refused(*fit, tmp_path / "file" / "m")
    assert "exists and is not a model folder" in refused(*fit, tmp_path / "file")
    evaluate = ["evaluate", folder / "price-model", folder / "new.csv", "--report"]
    assert "file" in refused(*evaluate, tmp_path / "file" / "r.html")
    assert sorted(each.name for each in tmp_path.iterdir()) == ["file", "taken.csv"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--task", "ranking"], "`task` must be regression or classification, got 'ranking'"),
        (["--task", "classification"], "`price` has 200 classes in 200 rows"),
        (["--recalibration", "temperature"], "temperature is a recalibration of classes; this is a regression"),
        (["--recalibration", "platt"], "`recalibration` must be one of auto, none"),
        (["--kinds", "size"], "`kinds` must be like zip=category,id=drop, got 'size'"),
        (["--kinds", "size=colour"], "must be one of"),
        (["--group", "nobody"], "houses.csv has no column `nobody`; it has number, size"),
        (["--weights", "colour"], "column `colour`"),
        (["--time", "colour"], "column `colour`"),
        (["--head", "poison"], "`head` must be one of categorical, gamma, gaussian_mixture, laplace, log_normal, "),
        (["--head", "student_t:nu=3"], "has no argument 'nu'; it has degrees_of_freedom, min_degrees_of_freedom"),
        (["--head", "poisson"], "`price` must be whole numbers ≥ 0 for the head poisson, but is "),
        (
            ["--head", "ordinal", "--task", "regression"],
            "the head ordinal is for classification, but the task is regression",
        ),
    ],
)
def test_options_that_cannot_be_are_refused(options: list[str], words: str, folder: Path, tmp_path: Path) -> None:
    command = ["fit", folder / "houses.csv", "--target", "price", *DROP, *QUICK, "--out", tmp_path / "m"]
    assert words in refused(*command, *options)


@pytest.mark.parametrize(
    "options",
    ["--target pirce", "--drop Number,ownr", "--group ownr", "--time yaer", "--weights szie", "--kinds szie=number"],
)
def test_nearly_right_names_are_suggested(options: str, folder: Path, tmp_path: Path) -> None:
    target = [] if "--target" in options else ["--target", "price"]
    told = refused("fit", folder / "houses.csv", *target, *options.split(), "--out", tmp_path / "m")
    assert re.fullmatch(r"houses.csv has no column `\w+`; did you mean `(price|number|owner|year|size)`\?", told)
    keep = ["--keep", "size,ownr", "--out", tmp_path / "p.csv"]
    told = refused("predict", folder / "price-model", folder / "new.csv", *keep)
    assert told == "new.csv has no column `ownr`; did you mean `owner`?"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('[settings]\ntarget = "price"\nlayers = 3\n', "has a setting 'layers'; there are target, task"),
        ('[settings]\ntarget = "price"\nmembers = "many"\n', "`members` must be an integer ≥ 2, got 'many'"),
        ('[settings]\ntarget = "price"\nhidden_sizes = 5\n', "`hidden_sizes` must be a list of sizes, got 5"),
        ("[settings]\ntarget =\n", "are not TOML"),
        ("nothing\n", "has no line [settings]"),
    ],
)
def test_files_of_settings_that_cannot_be_are_refused(text: str, words: str, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text(text)
    command = ["fit", folder / "houses.csv", "--config", tmp_path / "c.toml", "--out", tmp_path / "m"]
    assert words in refused(*command)


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("fit t.csv --out m", "--target is needed"),
        ("fit t.csv --target price", "--out"),
        ("fit --target price --out m", "DATA"),
        ("fit t.csv --target price --out m --members -3", "--members"),
        ("fit t.csv --target price --out m --members 1", "--members"),
        ("fit t.csv --target price --out m --holdout 1", "--holdout"),
        ("fit t.csv --target price --out m --colour red", "--colour"),
        ("compare t.csv", "--target is needed"),
        ("compare t.csv --target price --folds 1", "--folds"),
        ("predict m", "DATA"),
        ("predict m t.csv", "--out"),
        ("predict m t.csv --row x=1", "--row is instead of DATA"),
        ("show", "MODEL"),
        ("predict m t.csv --out p.csv --coverage 2", "--coverage"),
        ("evaluate m", "DATA"),
        ("explain m", "explain"),
    ],
)
def test_wrong_usage_has_exit_code_2(command: str, words: str) -> None:
    result = run(*shlex.split(command))
    assert result.exit_code == 2
    assert words in result.stderr
    assert "Traceback" not in result.output
    assert result.stdout == ""


# Habits


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_help_has_an_example(command: list[str]) -> None:
    said = done(*command, "--help").stdout
    assert re.search(r"Examples?:", said)
    assert f"deep-ensembles {' '.join(command)} " in " ".join(said.replace("│", " ").split()) + " "


def test_examples_of_help_are_understood() -> None:
    """Every option in an example is one of the command's, and examples stand on a line each, to be copied."""
    for command in (["fit"], ["predict"], ["evaluate"], ["compare"]):
        said = done(*command, "--help").stdout
        for example in re.findall(rf"deep-ensembles {command[0]} .*", said):
            options = re.findall(r"--[a-z-]+", example)
            assert ("--out" in options) == (command[0] in ("fit", "predict") and "--row" not in options), example
            assert all(re.search(rf"^[│ ]*\*?[│ ]*{option}\b", said, re.MULTILINE) for option in options), example


@pytest.mark.slow
def test_help_of_every_command_does_without_torch() -> None:
    code = """
import sys
from typer.testing import CliRunner
from deep_ensembles.cli import app
for command in %r:
    assert CliRunner().invoke(app, [*command, "--help"]).exit_code == 0
print([name for name in ("torch", "pyarrow", "sklearn", "scipy") if name in sys.modules])
"""
    assert printed(code % COMMANDS).strip() == "[]"


@pytest.mark.slow
def test_a_saved_model_predicts_the_same_in_another_process(folder: Path, tmp_path: Path) -> None:
    done("predict", folder / "price-model", folder / "new.csv", "--out", tmp_path / "here.csv")
    process = started("predict", folder / "price-model", folder / "new.csv", "--out", tmp_path / "there.csv")
    said, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    assert said == f"wrote  {tmp_path / 'there.csv'}  (200 rows)\n"
    here, there = (pd.read_csv(tmp_path / name) for name in ("here.csv", "there.csv"))
    pd.testing.assert_frame_equal(here, there, rtol=1e-9)


@pytest.mark.slow
def test_bad_data_gives_no_traceback_in_a_real_process(folder: Path, tmp_path: Path) -> None:
    data = table_with(tmp_path, BAD_TABLES["target constant"][0])
    process = started("fit", data, "--target", "price", "--out", tmp_path / "m")
    said, errors = process.communicate(timeout=300)
    assert process.returncode == 1
    assert said == ""
    assert errors == "error: `price` is 2.5 in every row, so that there is nothing to learn\n"


@pytest.mark.slow
def test_a_reader_that_leaves_early_stops_nothing(folder: Path, tmp_path: Path) -> None:
    command = ["fit", folder / "houses.csv", "--target", "price", *DROP, *QUICK, "--out", tmp_path / "m"]
    with started(*command) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == "`price` is a number with 200 different values: regression\n"
        process.stdout.close()
        assert process.stderr.read() == ""
    assert process.returncode == 0
    for name in ("config.json", "model.safetensors"):
        assert (tmp_path / "m" / name).read_bytes() == (folder / "price-model" / name).read_bytes()


LONG = ["--members", "2", "--max-epochs", "3000", "--seed", "1", "--effort", "fast"]


@not_on_windows
@pytest.mark.slow
def test_ctrl_c_leaves_a_checkpoint_from_which_the_same_command_goes_on(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "long.toml"
    config.write_text('[settings]\ntarget = "price"\nhidden_sizes = [8]\npatience = 3000\nholdout = 0.2\n')
    command = ["fit", folder / "houses.csv", "--config", config, *DROP, *LONG, "--out"]
    process = started(*command, tmp_path / "stopped")
    assert process.stdout is not None
    while "rows are used" not in process.stdout.readline():
        assert process.poll() is None
    time.sleep(2)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=300)
    assert process.returncode == 1
    assert errors == f"stopped; the same command goes on from what it left beside {tmp_path / 'stopped'}\n"
    (left,) = [each.name for each in tmp_path.iterdir() if each != config]
    assert re.fullmatch(r"\.stopped\.[0-9a-f]{12}\.checkpoint", left)
    starts: list[int] = []
    resume = loop._Session.resume

    def noted(session: Any) -> None:
        resume(session)
        starts.append(session.epochs_done())

    monkeypatch.setattr(loop._Session, "resume", noted)
    done(*command, tmp_path / "stopped")
    done(*command, tmp_path / "calm")
    assert 0 < starts[0] < 3000
    assert not any(starts[1:])  # of what else is tried, and of all that the calm command does
    for name in ("config.json", "model.safetensors"):
        assert (tmp_path / "stopped" / name).read_bytes() == (tmp_path / "calm" / name).read_bytes()
    assert sorted(each.name for each in tmp_path.iterdir()) == ["calm", "long.toml", "stopped"]


_ANEW = "nothing was written, and the same command starts anew"
_GOES_ON = "the same command goes on where it was, from what it left in this folder"


@pytest.mark.parametrize(
    ("command", "left", "message"),
    [
        ("predict", False, "nothing was written"),
        ("evaluate", False, "nothing was written"),
        ("compare", False, _ANEW),
        ("compare", True, _GOES_ON),
    ],
)
def test_ctrl_c_promises_what_is_kept(
    command: str, left: bool, message: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(*inputs: Any, **given: Any) -> None:
        if left:
            given["checkpoint"].path.write_text("state")
        raise KeyboardInterrupt

    monkeypatch.chdir(tmp_path)

    monkeypatch.setattr(f"deep_ensembles.tabular.{command}.{command}_table", stopped)
    more = ["--out", tmp_path / "p.csv"] if command == "predict" else []
    first = [] if command == "compare" else [folder / "price-model"]
    target = ["--target", "price"] if command == "compare" else []
    result = run(command, *first, folder / "new.csv", *more, *target)
    assert result.exit_code == 1
    assert result.stderr == f"stopped; {message}\n"


def test_a_pipe_gets_no_escape_codes(folder: Path) -> None:
    assert ESCAPE not in (folder / "price.txt").read_text(encoding="utf-8")
    assert ESCAPE not in done("evaluate", folder / "price-model", folder / "new.csv").output


@not_on_windows
@pytest.mark.slow
@pytest.mark.parametrize("no_color", ["", "1"])
def test_a_terminal_gets_colours_unless_it_wants_none(no_color: str, folder: Path) -> None:
    command = [*PROGRAM, "evaluate", str(folder / "price-model"), str(folder / "new.csv")]
    shown = shown_by(command, terminal=True, stream="stdout", TERM="xterm-256color", NO_COLOR=no_color)
    assert "RMSE" in shown
    assert (ESCAPE in shown) is not bool(no_color)


@pytest.mark.slow
def test_shells_can_complete() -> None:
    env = {"_DEEP_ENSEMBLES_COMPLETE": "complete_bash", "COMP_WORDS": "deep-ensembles ev", "COMP_CWORD": "1"}
    code = "import sys; sys.argv[0] = 'deep-ensembles'; from deep_ensembles.cli import app; app(prog_name='deep-ensembles')"
    assert printed(code, **env).split() == ["evaluate"]
    assert "_DEEP_ENSEMBLES_COMPLETE=complete_bash" in printed(code, _DEEP_ENSEMBLES_COMPLETE="source_bash")


PEAK = """
import resource, sys
from pathlib import Path
from deep_ensembles import load
from deep_ensembles.tabular import predict_table
found = predict_table(load(sys.argv[1]), sys.argv[2], sys.argv[3], keep=("number",))
print(found.rows, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
"""


def large_table(path: Path, millions: int) -> Path:
    """A Parquet file of houses, written a million rows at a time."""
    million = houses(1000).select(["number", "size", "colour", "yard"])
    million = pa.concat_tables([million] * 1000)
    with pa.parquet.ParquetWriter(path, million.schema) as writer:
        for _ in range(millions):
            writer.write_table(million)
    return path


@not_on_windows
@pytest.mark.slow
def test_memory_does_not_grow_with_rows(folder: Path, tmp_path: Path) -> None:
    peaks = []
    for millions in (1, 4):
        data, out = large_table(tmp_path / f"{millions}.parquet", millions), tmp_path / "p.parquet"
        rows, peak = map(int, printed(PEAK, folder / "price-model", data, out).split())
        assert rows == pa.parquet.read_metadata(out).num_rows == millions * 1_000_000
        peaks.append(peak)
    assert peaks[1] - peaks[0] < 150


def test_only_the_state_of_this_model_is_cleared_away(folder: Path, tmp_path: Path) -> None:
    others = [".m[1].v2.0123456789ab.checkpoint", ".m.0123456789ab.checkpoint", "notes.checkpoint"]
    for name in (*others, ".m[1].0123456789ab.checkpoint"):
        (tmp_path / name).write_text("state")
    done("fit", folder / "houses.csv", "--target", "price", *DROP, *QUICK, "--out", tmp_path / "m[1]")
    assert sorted(each.name for each in tmp_path.iterdir()) == sorted([*others, "m[1]"])


@not_on_windows
@pytest.mark.slow
def test_ctrl_c_in_predict_leaves_nothing_behind(folder: Path, tmp_path: Path) -> None:
    data = large_table(tmp_path / "large.parquet", 3)
    before = "mean,std,aleatoric_std,epistemic_std"
    (tmp_path / "p.csv").write_text(before)
    with started("predict", folder / "price-model", data, "--out", tmp_path / "p.csv") as process:
        while not any(each.suffix == ".tmp" for each in tmp_path.iterdir()):
            assert process.poll() is None
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=300)
    assert process.returncode == 1
    assert errors == "stopped; nothing was written\n"
    assert (tmp_path / "p.csv").read_text() == before
    assert sorted(each.name for each in tmp_path.iterdir()) == ["large.parquet", "p.csv"]


def messy_text(n: int) -> str:
    """As a spreadsheet in a country of decimal commas writes: semicolons, dates, words for what is missing."""
    r = np.random.default_rng(0)
    lines = ["Größe;Größe;gebaut;Garten;Notiz;fest;Preis"]
    for i in range(n):
        size = r.uniform(1000, 3000)
        price = "" if i == 3 else f"{2 * size + r.normal():.2f}".replace(".", ",")
        day = f"{1 + i % 28:02d}.{1 + i % 12:02d}.{1950 + i % 50}"
        note = f"schönes Haus, Nummer {i} am Weg {i * 7919 % 101}"
        written = f"{size:.1f}".replace(".", ",")
        lines.append(f"{written};{i % 5};{day};{['ja', 'nein', 'k.A.'][i % 3]};{note};immer;{price}")
    return "\r\n".join(lines) + "\r\n"


def test_a_messy_file_goes_all_the_way(tmp_path: Path) -> None:
    data = table_with(tmp_path, messy_text(120).encode("cp1252"))
    said = done("fit", data, "--target", "Preis", *QUICK, "--out", tmp_path / "m").stdout
    assert "note: t.csv: a second column `Größe` is called `Größe_2`" in said
    assert "note: t.csv: values that are not UTF-8 are read as Windows-1252" in said
    assert "note: 1 row without a target is left out" in said
    for column, words in (
        ("Größe", "number, .*decimal comma"),
        ("gebaut", "date"),
        ("fest", "left out: all its values are"),
    ):
        assert re.search(rf"^ *{column} +{words}", said, re.MULTILINE), column
    assert "119 rows are used" in said
    out = tmp_path / "p.parquet"
    done("predict", tmp_path / "m", data, "--out", out, "--keep", "Größe,Notiz")
    assert read(out)["Notiz"][0].as_py() == "schönes Haus, Nummer 0 am Weg 0"
    assert read(out).num_rows == 120
    said = done("evaluate", tmp_path / "m", data, "--report", tmp_path / "r.html").stdout
    assert "note: left out are 1 row without a value of Preis" in said
    assert "Preis" in (tmp_path / "r.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("cells", "options", "words"),
    [
        ({"w": "-1"}, ["--weights", "w"], "`w` is -1 in row 31"),
        ({"w": ""}, ["--weights", "w"], "`w` is missing in row 31"),
        ({"w": "heavy"}, ["--weights", "w"], "`w` is missing in row 31"),
        ({"day": ""}, ["--time", "day"], "`day` is missing in row 31"),
    ],
)
def test_rows_in_messages_are_those_of_the_file(
    tmp_path: Path, cells: dict[str, str], options: list[str], words: str
) -> None:
    rows = [{"x": f"{i}.5", "w": "1", "day": f"2020-01-{i % 28 + 1:02d}", "y": f"{i * 1.5}"} for i in range(60)]
    for i in range(10):  # without a target, and nothing that is said of them matters
        rows[i] |= {"y": "", "w": "none", "day": "some day"}
    rows[30] |= cells
    text = "\n".join([",".join(rows[0]), *(",".join(row.values()) for row in rows)])
    data = table_with(tmp_path, text.encode())
    told = refused("fit", data, "--target", "y", *options, *QUICK, "--out", tmp_path / "m")
    assert words in told


def test_columns_whose_names_have_commas(tmp_path: Path) -> None:
    r = np.random.default_rng(0)
    names = ["y", "size, m²", "rooms", "owner, first"]
    data = write(pa.table({name: r.normal(size=60) for name in names}), tmp_path / "t.csv")
    drop = ["--drop", '"owner, first", rooms']
    said = done("fit", data, "--target", "y", *drop, "--kinds", '"size, m²"=number', *QUICK, "--out", tmp_path / "m").stdout
    assert re.search(r"\b1 columns? makes? 1 input", said)
    done("predict", tmp_path / "m", data, "--out", tmp_path / "p.parquet", "--keep", 'rooms,"size, m²"')
    assert read(tmp_path / "p.parquet").column_names[:2] == ["rooms", "size, m²"]


def test_thousands_of_columns_are_learnt(tmp_path: Path) -> None:
    r = np.random.default_rng(0)
    table = pa.table({"y": r.normal(size=40), **{f"x{i}": r.normal(size=40) for i in range(2000)}})
    data = write(table, tmp_path / "wide.csv")
    said = done("fit", data, "--target", "y", *QUICK, "--out", tmp_path / "m").stdout
    assert "2000 columns make 2000 inputs" in said
    assert len(said.splitlines()) < 200
    done("predict", tmp_path / "m", data, "--out", tmp_path / "p.csv")
    done("evaluate", tmp_path / "m", data, "--report", tmp_path / "r.html")
    assert (tmp_path / "r.html").stat().st_size < 3_000_000
