"""A look at the rows before training: each flaw is named with its row, and ordinary tables are left in peace."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from _made_tables import QUICK, quiet
from sklearn import datasets

from deep_ensembles import load
from deep_ensembles.tabular import TableSettings, fit_table
from deep_ensembles.tabular.data import read_data
from deep_ensembles.tabular.determined import determined_number

N = 200
HEADS = ("may ask for", "are held out together")


def shops(seed: int = 0) -> pd.DataFrame:
    r = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "shop": [f"s{i}" for i in range(N)],
            "units": r.integers(1, 100, N),
            "staff": r.integers(1, 9, N),
            "warmth": r.normal(15, 8, N).round(1),
            "kind": r.choice(list("abc"), N),
            "sales": r.lognormal(5, 0.5, N).round(2),
        }
    )


def notes(frame: pd.DataFrame, folder: Path, target: str = "sales", **settings: Any) -> list[str]:
    """What is said before training, but for copies and heads."""
    frame.to_csv(folder / "t.csv", index=False)
    data = read_data(folder / "t.csv", TableSettings(target=target, **settings), quiet)
    assert all(len(note) <= 300 for note in data.notes)
    return [note for note in data.notes if not any(words in note for words in HEADS)]


def with_total(frame: pd.DataFrame, name: str, summed: list[str]) -> pd.DataFrame:
    total = frame.iloc[[0]].assign(shop=name, warmth=np.nan, kind=None, **{column: frame[column].sum() for column in summed})
    return pd.concat([frame, total], ignore_index=True)


@pytest.mark.parametrize("name", ["Total", "all of them"])
def test_a_total_is_known_by_its_numbers(tmp_path: Path, name: str) -> None:
    (note,) = notes(with_total(shops(), name, ["units", "staff", "sales"]), tmp_path)
    assert note.startswith("row 201 looks like a total: its numbers are the sums of the other rows' in 3 of 3 columns")
    assert "delete it from the file" in note


def test_a_total_is_known_by_what_it_says(tmp_path: Path) -> None:
    frame = with_total(shops(), "Grand total", ["sales"])
    frame.loc[N, "sales"] *= 1.3  # of more shops than are here
    assert notes(frame, tmp_path)[0].startswith(
        "row 201 looks like a total: it says 'Grand total', and its numbers are large"
    )
    frame = shops()
    frame.loc[7, "shop"] = "Total"  # a shop of that name, as large as the others
    assert notes(frame, tmp_path) == []


def test_numbers_that_stand_for_missing_values(tmp_path: Path) -> None:
    frame = shops()
    frame.loc[[3, 8, 90], "warmth"] = -999
    frame.loc[[7, 9], "units"] = 9999
    frame.loc[[1, 2], "sales"] = -1
    said = notes(frame, tmp_path)
    assert [note.split(", row")[0] for note in said] == [
        "`sales` is -1 in 2 rows",
        "`units` is 9999 in 2 rows",
        "`warmth` is -999 in 3 rows",
    ]
    assert "row 4 first, far from all others" in said[2]
    assert "leave such cells empty" in said[2]
    frame = shops()
    frame["labour"] = np.random.default_rng(0).integers(25, 4774, N)
    frame.loc[::9, "labour"] = -999
    assert notes(frame, tmp_path)[0].startswith(
        f"`labour` is -999 in {len(range(0, N, 9))} rows, row 1 first, and more than 0 in all"
    )


def test_numbers_that_only_look_like_it(tmp_path: Path) -> None:
    frame = shops()
    frame["change"] = np.random.default_rng(0).integers(-5, 100, N)
    frame["score"] = np.random.default_rng(1).choice([-1, 1], N)
    frame["points"] = np.random.default_rng(1).choice([70, 80, 90, 99], N)
    assert notes(frame, tmp_path) == []


def test_a_target_far_away(tmp_path: Path) -> None:
    frame = shops()
    frame.loc[17, "sales"] = 2.5e8
    (note,) = notes(frame, tmp_path)
    assert note.startswith("`sales` is 2.5e+08 in row 18 (")
    assert "times the median" in note
    frame.loc[18, "sales"] = 3e8
    assert notes(frame, tmp_path)[0].startswith("`sales` is 3e+08 in row 19 (")
    assert "1 more rows are as far away" in notes(frame, tmp_path)[0]


def test_dates_of_which_some_are_none_are_told(tmp_path: Path) -> None:
    days = pd.date_range("2020-01-01", periods=N).strftime("%m/%d/%Y").to_numpy(dtype=object)
    days[7::9] = days[7::9] + " - 12/31/2020"
    said = notes(shops().assign(day=days), tmp_path)
    assert any(note.startswith("`day` is a date in most rows, but not '01/08/2020 - 12/31/2020' in row 8") for note in said)
    assert not any("is a date" in note for note in notes(shops(), tmp_path))


R = np.random.default_rng(5)
DAYS = R.integers(1, 60, N)
START = pd.Timestamp("2020-01-01") + pd.to_timedelta(R.integers(0, 900, N), unit="D")
PRICE = R.uniform(1, 20, N).round(2)
LEAKS: dict[str, tuple[Callable[[pd.DataFrame], pd.DataFrame], str, str]] = {
    "equal": (lambda f: f.assign(copy=f["sales"]), "sales", "`sales` is `copy` in"),
    "line": (lambda f: f.assign(gross=(1.19 * f["sales"]).round(2)), "sales", "`sales` is 0.8403"),
    "line with a shift": (lambda f: f.assign(kelvin=f["warmth"] + 273.15), "warmth", "`warmth` is 1 × `kelvin` − 273.15 in"),
    "product": (lambda f: f.assign(p=PRICE, sales=(PRICE * f["units"]).round(2)), "sales", "`sales` is `units` × `p` in"),
    "ratio": (lambda f: f.assign(p=(f["sales"] / f["units"]).round(2)), "p", "`p` is `sales` ÷ `units` in"),
    "other ratio": (lambda f: f.assign(p=f["units"] / f["sales"]), "p", "`p` is `units` ÷ `sales` in"),
    "difference": (lambda f: f.assign(left=f["units"] - f["sales"]), "left", "`left` is `units` − `sales` in"),
    "other difference": (lambda f: f.assign(left=f["sales"] - f["units"]), "left", "`left` is `sales` − `units` in"),
    "sum": (lambda f: f.assign(both=f["sales"] + f["units"]), "both", "`both` is `units` + `sales` in"),
    "dates": (
        lambda f: f.assign(start=START, end=START + pd.to_timedelta(DAYS, unit="D"), days=DAYS + 1),
        "days",
        "`days` is `end` − `start` (in other units) in",
    ),
    "class": (
        lambda f: f.assign(code=f["kind"].map({"a": 4, "b": 7, "c": 1})),
        "kind",
        "`code` names the classes of `kind`",
    ),
    "levels of a class": (
        lambda f: f.assign(code=[f"{kind}{i % 4}" for i, kind in enumerate(f["kind"])]),
        "kind",
        "`code` names the classes of `kind`",
    ),
    "threshold": (
        lambda f: f.assign(is_warm=f["warmth"] > 14),
        "is_warm",
        "`warmth` up to 13.8 is one class of `is_warm` and above the other",
    ),
    "lookup": (
        lambda f: f.assign(product=[f"p{i % 60}" for i in range(N)], sales=PRICE[np.arange(N) % 60]),
        "sales",
        "rows of the same `product` have the same `sales` ('p0'",
    ),
}


@pytest.mark.parametrize("name", list(LEAKS))
def test_a_column_that_gives_the_target_away(tmp_path: Path, name: str) -> None:
    change, target, start = LEAKS[name]
    said = notes(change(shops()), tmp_path, target)
    assert said[0].startswith(start)
    assert "--drop " in said[0]
    if name == "product":
        frame = change(shops())
        frame.loc[[3], "sales"] += 9  # one row in two hundred is another matter
        assert notes(frame, tmp_path, target)[0].startswith(start)
        frame.loc[:20, "sales"] += 9
        assert notes(frame, tmp_path, target) == []


@pytest.mark.parametrize("noise", [0.03, 0.1])
def test_what_is_correlated_gives_nothing_away(tmp_path: Path, noise: float) -> None:
    frame = shops()
    frame["twin"] = frame["sales"] * (1 + noise * np.random.default_rng(0).normal(size=N))
    frame["rough"] = frame["twin"].round(-1)
    assert notes(frame, tmp_path) == []


@pytest.mark.parametrize("name", ["diabetes", "wine", "iris", "breast_cancer"])
def test_ordinary_tables_are_left_in_peace(tmp_path: Path, name: str) -> None:
    assert notes(getattr(datasets, f"load_{name}")(as_frame=True).frame, tmp_path, "target") == []


@pytest.mark.parametrize("seed", range(5))
def test_heavy_tails_and_walks_are_left_in_peace(tmp_path: Path, seed: int) -> None:
    r = np.random.default_rng(seed)
    made = {"t": r.standard_t(3, 800), "money": r.lognormal(0, 1.5, 800), "walk": r.normal(size=800).cumsum(), "zero": 0.0}
    frame = pd.DataFrame({**made, "zero": np.where(r.random(800) < 0.9, 0, r.gamma(2, 5, 800)), "n": r.poisson(2, 800)})
    for target in frame.columns:
        assert notes(frame.round(3), tmp_path, target, task="regression") == []


def test_few_notes_the_worst_first(tmp_path: Path) -> None:
    frame = shops()
    for i in range(10):
        frame[f"c{i}"] = np.random.default_rng(i).normal(size=N)
        frame.loc[[2, 3], f"c{i}"] = 9999
    frame["copy"] = frame["sales"]
    said = notes(frame, tmp_path)
    assert len(said) == 8
    assert said[0].startswith("`sales` is `copy`")
    assert said[-1] == "4 more like these"


def test_a_large_table_takes_about_a_second() -> None:
    r = np.random.default_rng(0)
    numbers = {f"c{i}": r.normal(size=100_000) for i in range(50)}
    y = r.normal(size=100_000)
    start = time.process_time()
    assert list(determined_number(y, numbers)) == []
    assert time.process_time() - start < 3  # a third of a second on a machine of its own


def test_notes_are_said_before_training_and_kept(tmp_path: Path) -> None:
    frame, lines = shops(), []
    frame["copy"] = frame["sales"]
    frame.to_csv(tmp_path / "t.csv", index=False)
    fitted = fit_table(tmp_path / "t.csv", TableSettings(target="sales", **QUICK), log=lines.append)
    said = [line for line in lines if isinstance(line, str) and "`copy`" in line]
    assert said == [f"note: {fitted.model.facts['notes'][0]}"]
    assert lines.index(said[0]) < next(i for i, line in enumerate(lines) if "rows are used" in str(line))
    fitted.model.save(tmp_path / "model")
    assert load(tmp_path / "model").facts["notes"] == fitted.model.facts["notes"]
    assert "copy" in fitted.model.schema.names  # nothing is dropped on its own


NEARLY = {
    r"99.9\d% of what varies in `sales` is a weighted sum of `seen` ": lambda f, noise: f["sales"] + 1.5 * noise,
    r"weighted sum of `staff`, `warmth`, `seen` ": lambda f, noise: f["sales"] - f["warmth"] - 3 * f["staff"],
    r"product of powers of `units`, `staff`, `seen` ": lambda f, noise: f["sales"] / f["units"] / f["staff"],
}


@pytest.mark.parametrize("words", NEARLY)
def test_leaks_with_noise_and_through_several_columns(tmp_path: Path, words: str) -> None:
    frame = shops()
    (note,) = notes(frame.assign(seen=NEARLY[words](frame, np.random.default_rng(1).normal(size=N))), tmp_path)
    assert re.search(words, note)
    assert f"({frame['sales'][0]:.6g} in row 1), which need not be learnt: --drop " in note


def test_a_total_row_makes_no_leak_of_columns(tmp_path: Path) -> None:
    """One row that is far away in all columns would explain nearly all that varies."""
    assert not any("need not be learnt" in note for note in notes(with_total(shops(), "all", ["units", "sales"]), tmp_path))
