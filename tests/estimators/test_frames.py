"""Frames as they are: text, categories, booleans, dates and gaps in pandas, polars and Arrow; gaps in arrays."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline

from deep_ensembles import DeepEnsembleClassifier, DeepEnsembleRegressor, load

SETTINGS: dict[str, Any] = {"n_members": 2, "effort": "fast", "max_epochs": 30, "random_state": 0}
GENERATOR = np.random.default_rng(0)
N = 150
FRAME = pd.DataFrame({
    "size": GENERATOR.normal(size=N),
    "pet": GENERATOR.choice(["cat", "dog", "emu"], N),
    "zone": pd.Categorical(GENERATOR.choice(["east", "west", "north"], N)),
    "paid": GENERATOR.choice([True, False], N),
    "day": pd.date_range("2020-01-01", periods=N),
    "age": np.where(GENERATOR.random(N) < 0.2, np.nan, GENERATOR.normal(size=N)),
}, index=range(7, 7 + N))  # fmt: skip
Y = (FRAME["size"] + 2 * (FRAME["pet"] == "cat") - 2 * (FRAME["zone"] == "west") + 0.1 * GENERATOR.normal(size=N)).to_numpy()
ARROW = pa.Table.from_pandas(FRAME, preserve_index=False)
FRAMES = {"pandas": FRAME, "polars": pl.from_arrow(ARROW), "polars enumeration": pl.from_arrow(ARROW), "Arrow": ARROW}
FRAMES["polars enumeration"] = FRAMES["polars"].cast({"zone": pl.Enum(["west", "north", "east"])})


@pytest.fixture(scope="module")
def model() -> DeepEnsembleRegressor:
    return DeepEnsembleRegressor(**SETTINGS).fit(FRAME, Y)


def test_columns_are_what_the_command_line_takes_them_for(model: DeepEnsembleRegressor) -> None:
    kinds = [type(column).__name__ for column in model.schema_.columns]
    assert kinds == ["Number", "Category", "Category", "Boolean", "Date", "Number"]
    assert model.n_features_in_ == 6
    assert list(model.feature_names_in_) == list(FRAME.columns)
    assert model.score(FRAME, Y) > 0.5


def test_categories_of_numbers_are_categories() -> None:
    frame = pd.DataFrame(
        {"zone": pd.Categorical([10, 20, 30] * 10), "code": [10, 20, 30] * 10, "empty": pd.Categorical([1] * 30)}
    )
    model = DeepEnsembleRegressor(**SETTINGS | {"max_epochs": 1}).fit(frame, np.arange(30))
    assert model.schema_.input_names == ("zone = 10", "zone = 20", "zone = 30", "code")


@pytest.mark.parametrize("kind", FRAMES)
def test_every_kind_of_frame_gives_the_same(model: DeepEnsembleRegressor, kind: str) -> None:
    frame, expected = FRAMES[kind], model.predict(FRAME)
    np.testing.assert_array_equal(model.predict(frame), expected)
    other = clone(model).fit(frame, Y)
    np.testing.assert_array_equal(other.predict(frame), expected)
    assert list(other.feature_names_in_) == list(FRAME.columns)
    assert cross_val_score(clone(model), frame, Y, cv=2).shape == (2,)


def test_lazy_frames_are_refused_with_the_cure(model: DeepEnsembleRegressor) -> None:
    lazy = FRAMES["polars"].lazy()
    cases = {"X": (lambda: clone(model).fit(lazy, Y), lambda: model.predict(lazy)),
             "y": (lambda: clone(model).fit(FRAME, lazy.select("size")),)}  # fmt: skip
    for name, calls in cases.items():
        for call in calls:
            with pytest.raises(
                TypeError, match=rf"`{name}` must be data in memory, got LazyFrame; pass `{name}.collect\(\)`"
            ):
                call()


def test_columns_are_those_of_training_in_the_same_order(model: DeepEnsembleRegressor) -> None:
    for frame in (
        FRAME[FRAME.columns[::-1]],
        FRAMES["polars"][FRAME.columns[::-1].tolist()],
        ARROW.select([5, 4, 3, 2, 1, 0]),
    ):
        with pytest.raises(ValueError, match="must be in the same order as they were in fit"):
            model.predict(frame)
    with pytest.raises(ValueError, match="now missing:\n- pet"):
        model.predict(FRAME.drop(columns="pet"))
    with pytest.raises(ValueError, match="Feature names unseen at fit time:\n- dog"):
        model.predict(FRAME.rename(columns={"pet": "dog"}))


def test_a_model_travels_with_its_columns(model: DeepEnsembleRegressor, tmp_path: Path) -> None:
    model.save(tmp_path / "model")
    for copy in (load(tmp_path / "model"), pickle.loads(pickle.dumps(model))):
        np.testing.assert_array_equal(copy.predict(FRAME), model.predict(FRAME))
        assert copy.schema_ == model.schema_
    config = tmp_path / "model" / "config.json"
    for changed in ({"missing": -1}, {"name": "colour"}, {"marked": True}):
        data = json.loads(config.read_text())
        data["fitted"]["schema_"]["columns"][0] |= changed
        config.write_text(json.dumps(data))
        with pytest.raises(ValueError, match="model"):
            load(tmp_path / "model")
        model.save(tmp_path / "model")


def test_categories_that_training_did_not_see_are_told(model: DeepEnsembleRegressor) -> None:
    new = FRAME.iloc[:4].assign(pet=["cat", "fish", "fox", None])
    with pytest.warns(UserWarning, match=r"^3 of 4 rows have a `pet` that training did not see: fish, fox, "):
        model.predict(new)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        shown = model.report(new, Y[:4]).evaluation.unseen
    assert [(column.column, column.rows) for column in shown] == [("pet", 3)]


def test_words_among_numbers_are_refused_with_what_an_estimator_offers(model: DeepEnsembleRegressor) -> None:
    frame = FRAME.astype({"size": object})
    frame.loc[9, "size"] = "large"
    with pytest.raises(ValueError, match=r"column `size`: 'large' in row 3 is not a number; correct it, or leave it empty$"):
        model.predict(frame)


def test_reports_and_explanations_name_the_columns_of_the_frame(model: DeepEnsembleRegressor, tmp_path: Path) -> None:
    model.report(FRAME, Y).save(tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert all(f"{name} " in page for name in FRAME.columns)
    assert "is missing" not in page
    driving = [influence.column for influence in model.explain(FRAME, Y).columns]
    assert sorted(driving) == sorted(FRAME.columns)
    assert {"size", "pet"} < set(driving[:3])
    assert clone(model).fit(FRAME, Y).recalibrate(FRAME, Y).predict(FRAME).shape == (N,)


def test_in_pipelines_and_searches() -> None:
    grid = {"hidden_sizes": [(4,), (5,)]}
    assert (
        GridSearchCV(DeepEnsembleRegressor(**SETTINGS), grid, cv=2).fit(FRAME, Y).best_params_["hidden_sizes"]
        in grid["hidden_sizes"]
    )
    assert make_pipeline(DeepEnsembleRegressor(**SETTINGS)).fit(FRAME, Y).predict(FRAME.tail(2)).shape == (2,)


LABELS = FRAME["pet"]
SERIES = {
    "pandas": LABELS,
    "pandas categories": LABELS.astype("category"),
    "pandas booleans": FRAME["paid"],
    "polars": pl.Series(LABELS.tolist()),
    "polars categories": pl.Series(LABELS.tolist(), dtype=pl.Categorical),
    "Arrow": pa.chunked_array([pa.array(LABELS)]),
    "Arrow categories": pa.array(LABELS).dictionary_encode(),
    "Arrow booleans": pa.array(FRAME["paid"]),
}


@pytest.mark.parametrize("kind", SERIES)
@pytest.mark.parametrize("X", [FRAME, FRAME[["size"]].to_numpy()], ids=["frame", "array"])
def test_labels_of_any_series(kind: str, X: Any) -> None:
    model = DeepEnsembleClassifier(**SETTINGS | {"max_epochs": 2}).fit(X, SERIES[kind])
    assert model.classes_.tolist() == ([False, True] if "booleans" in kind else ["cat", "dog", "emu"])
    assert 0 <= model.score(X, SERIES[kind]) <= 1


def test_gaps_of_arrays() -> None:
    X = np.column_stack([FRAME["size"], FRAME["age"]])
    model = DeepEnsembleRegressor(**SETTINGS).fit(X, Y)
    assert model.schema_.input_names == ("x0", "x1", "x1 is missing")
    assert not hasattr(model, "feature_names_in_")
    filled = np.where(np.isnan(X), np.nanmedian(X, axis=0), X)
    assert not np.array_equal(model.predict(X), model.predict(filled)), "a gap is no median"
    assert np.isfinite(model.predict(np.full((1, 2), np.nan))).all()
    with pytest.raises(ValueError, match="infinity"):
        model.predict(np.array([[np.inf, 0]]))


def test_gaps_that_training_did_not_have_are_the_middle_of_what_it_had() -> None:
    X = FRAME[["size"]].to_numpy()
    model = DeepEnsembleRegressor(**SETTINGS).fit(X, Y)
    assert model.schema_ is None
    middle = model.ensemble_.standardization.input_shift.mean(0).numpy()
    np.testing.assert_array_equal(model.predict(np.array([[np.nan]])), model.predict(middle[None]))


def test_wrong_columns() -> None:
    with pytest.raises(ValueError, match="no column is left to learn from"):
        DeepEnsembleRegressor().fit(pd.DataFrame({"a": ["x", "x"]}), [1, 2])
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        DeepEnsembleRegressor().fit(FRAME, Y[1:])


WITHOUT = """
import sys
sys.modules["pyarrow"] = None
import numpy as np, pandas as pd
from deep_ensembles import DeepEnsembleRegressor
X = pd.DataFrame({"a": [1, 2, 3, 4], "b": [True, False, True, False]})
model = DeepEnsembleRegressor(preset="paper", max_epochs=1)
assert model.fit(X, [1, 2, 3, 4]).predict(X).shape == (4,)
try:
    model.fit(X.assign(c=list("abcd")), [1, 2, 3, 4])
except ImportError as error:
    print(error)
"""


def test_without_pyarrow_numbers_work_and_text_says_what_to_install() -> None:
    run = subprocess.run([sys.executable, "-c", WITHOUT], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "tables need pyarrow: pip install 'deep-ensembles[tables]'"


def test_categories_of_many_levels_are_learnt_and_unseen_ones_are_less_sure(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    effects, place = generator.normal(size=90), np.arange(600) % 90
    frame = pd.DataFrame({"town": [f"town {i}" for i in place], "size": generator.normal(size=600)})
    y = 2 * effects[place] + frame["size"] + 0.1 * generator.normal(size=600)
    model = DeepEnsembleRegressor(**SETTINGS | {"max_epochs": 60}).fit(frame, y)
    assert model.schema_.levels == {0: 91}
    assert model.score(frame, y) > 0.8
    with pytest.warns(UserWarning, match="`town`"):
        _, unseen = model.predict(frame.assign(town="elsewhere"), return_std=True)
    assert np.median(unseen) > 2 * np.median(model.predict(frame, return_std=True)[1])
    model.save(tmp_path / "model")
    np.testing.assert_array_equal(load(tmp_path / "model").predict(frame), model.predict(frame))
    paper = DeepEnsembleRegressor(preset="paper", max_epochs=1).fit(frame, y)
    assert paper.schema_.levels == {}
    assert paper.ensemble_.feature_shape == (91,)
