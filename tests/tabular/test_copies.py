"""Rows with equal inputs: counted, and on one side of every hold-out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from _made_tables import QUICK, quiet

from deep_ensembles._splits import united
from deep_ensembles.tabular import TableSettings, fit_table
from deep_ensembles.tabular.compare import _folds
from deep_ensembles.tabular.data import TableData, read_data, read_parts, split_rows


def made(n: int = 120, seed: int = 0) -> pd.DataFrame:
    r = np.random.default_rng(seed)
    x = r.normal(size=n)
    return pd.DataFrame({"x": x, "town": r.choice(list("abcd"), n), "y": x + r.normal(size=n)})


def copied(frame: pd.DataFrame, rows: int = 30) -> pd.DataFrame:
    """The table with its first rows once more, somewhere among the others."""
    return pd.concat([frame, frame[:rows]]).sample(frac=1, random_state=0).reset_index(drop=True)


def read(
    frame: pd.DataFrame, folder: Path, lines: list[Any] | None = None, **settings: Any
) -> tuple[TableData, TableSettings]:
    frame.to_csv(folder / "t.csv", index=False)
    chosen = TableSettings(**{"target": "y", **QUICK, **settings})
    return read_data(folder / "t.csv", chosen, quiet if lines is None else lines.append), chosen


def straddles(groups: np.ndarray, parts: tuple[np.ndarray, np.ndarray]) -> bool:
    return not set(groups[parts[0]]).isdisjoint(groups[parts[1]])


def test_a_table_without_copies_says_nothing_of_them(tmp_path: Path) -> None:
    data, _ = read(made(), tmp_path)
    assert data.copies is None
    assert data.together is None
    assert data.notes == ()


def test_copies_are_counted_and_named_by_their_rows(tmp_path: Path) -> None:
    frame, lines = copied(made()), []
    data, _ = read(frame, tmp_path, lines)
    same = frame["x"].to_numpy()[:, None] == frame["x"].to_numpy()
    first = int(np.argmax(same.sum(1) > 1))
    second = int(np.flatnonzero(same[first])[1])
    note = f"60 rows equal another in all inputs, as rows {first + 1} and {second + 1} do: they are held out together"
    assert data.notes[0].startswith(note)
    assert len(data.notes[0]) < 300
    assert f"note: {data.notes[0]}" in lines
    np.testing.assert_array_equal(data.copies[:, None] == data.copies, same)


@pytest.mark.parametrize("gap", [False, True])
def test_numbers_of_rows_hide_no_copies(tmp_path: Path, gap: bool) -> None:
    frame = made()
    frame = pd.concat([frame] * 3, ignore_index=True)
    frame.insert(0, "stamp", np.cumsum(np.random.default_rng(0).integers(1, 5, len(frame))))
    if gap:
        frame["stamp"] = frame["stamp"].astype("Int64")
        frame.loc[7, "stamp"] = pd.NA
    data, _ = read(frame, tmp_path)
    assert data.notes[0].startswith(f"{len(frame)} rows equal another in all inputs but `stamp`")
    same = frame["x"].to_numpy()[:, None] == frame["x"].to_numpy()
    np.testing.assert_array_equal(data.copies[:, None] == data.copies, same)


def test_rows_alike_but_for_a_number_are_no_copies_where_targets_differ(tmp_path: Path) -> None:
    r = np.random.default_rng(0)
    frame = pd.DataFrame({"town": np.arange(300) // 3, "income": r.permutation(100_000)[:300], "y": r.normal(size=300)})
    data, _ = read(frame, tmp_path)
    assert data.copies is None


@pytest.mark.parametrize("target", ["numbers", "classes"])
@pytest.mark.parametrize("share", [0.1, 0.3])
def test_copies_do_not_straddle_a_hold_out(tmp_path: Path, target: str, share: float) -> None:
    frame = copied(made())
    if target == "classes":
        frame["y"] = np.where(frame["y"] > 0.5, "up", "down")
    data, settings = read(frame, tmp_path, holdout=share)
    parts = split_rows(data, settings)
    assert not straddles(frame["x"].to_numpy(), parts)
    assert abs(len(parts[1]) - share * len(frame)) < 10
    assert not any(straddles(frame["x"].to_numpy(), fold) for fold in _folds(data, 5, settings))


def test_copies_join_groups(tmp_path: Path) -> None:
    frame = copied(made())
    frame["house"] = np.arange(len(frame)) // 2
    data, settings = read(frame, tmp_path, group="house", holdout=0.2)
    parts = split_rows(data, settings)
    assert not straddles(frame["x"].to_numpy(), parts)
    assert not straddles(frame["house"].to_numpy(), parts)


def test_groups_that_copies_would_make_one_stay_what_they_are() -> None:
    groups = np.repeat(np.arange(4), 3)
    chain = np.array([0, 1, 2, 2, 4, 5, 5, 7, 8, 8, 10, 11])
    np.testing.assert_array_equal(united(groups, chain), groups)


def test_what_identifies_a_row_makes_no_difference(tmp_path: Path) -> None:
    frame = copied(made())
    plain, _ = read(frame, tmp_path)
    frame.insert(0, "running", np.random.default_rng(0).permutation(len(frame)) + 7)
    data, settings = read(frame, tmp_path, holdout=0.2)
    assert "running" in data.schema(settings).names
    assert "60 rows equal another in all inputs but `running`" in data.notes[0]
    np.testing.assert_array_equal(data.copies, plain.copies)
    assert not straddles(frame["x"].to_numpy(), split_rows(data, settings))
    inputs = data.schema(settings).encode(data.table)
    same = frame["x"].to_numpy()[:, None] == frame["x"].to_numpy()
    together = data.task(inputs).together
    np.testing.assert_array_equal(together[:, None] == together, same)


def test_later_copies_of_earlier_rows_are_not_judged(tmp_path: Path) -> None:
    frame = made(200)
    frame = pd.concat([frame, frame[:10]], ignore_index=True)
    frame["day"] = np.arange(len(frame)) * 1.5
    data, settings = read(frame, tmp_path, time="day")
    train, held = split_rows(data, settings)
    assert "20 rows equal another in all inputs but `day`" in data.notes[0]
    assert not straddles(frame["x"].to_numpy(), (train, held))
    np.testing.assert_array_equal(held, np.arange(168, 200))


def test_things_that_are_followed_through_time_are_judged(tmp_path: Path) -> None:
    frame = pd.concat([made(50)] * 3, ignore_index=True)
    frame["y"] += np.random.default_rng(1).normal(size=150)
    frame["day"] = np.arange(150) * 1.5
    read(frame, tmp_path)
    lines: list[Any] = []
    _, held = read_parts(tmp_path / "t.csv", TableSettings(target="y", time="day"), lines.append)
    assert len(held) == 30
    assert any("30 of 30 rows held out equal earlier ones in all but `day`" in str(line) for line in lines)


def test_few_different_rows_are_no_copies(tmp_path: Path) -> None:
    r = np.random.default_rng(0)
    frame = pd.DataFrame({"town": r.choice(list("abcd"), 200), "rooms": r.integers(1, 4, 200), "y": r.normal(size=200)})
    data, _ = read(frame, tmp_path)
    assert data.copies is None
    assert data.notes == ()


def test_the_model_keeps_the_notes(tmp_path: Path) -> None:
    data, settings = read(copied(made()), tmp_path)
    fitted = fit_table(tmp_path / "t.csv", settings, log=quiet)
    assert fitted.model.facts["notes"] == list(data.notes)


@pytest.mark.parametrize("settings", [{}, {"holdout": 0.25}])
def test_of_copies_one_is_judged(tmp_path: Path, settings: dict[str, Any]) -> None:
    """Or chance would seem to explain less than it does; rows of equal inputs that came out otherwise all count."""
    frame = made()
    frame = pd.concat([frame] * 3 + [frame[:10].assign(y=frame["y"][:10] + 1)], ignore_index=True)
    data, chosen = read(frame, tmp_path, **settings)
    assert len(data.different) == 130
    lines: list[Any] = []
    fitted = fit_table(tmp_path / "t.csv", chosen, log=lines.append)
    if settings:
        assert 20 <= fitted.evaluation.n_rows <= 50
    else:
        assert fitted.evaluation.n_rows == 130
        assert any(str(line).startswith("370 rows are used, 130 of them different; as they are few") for line in lines)


@pytest.mark.parametrize("share", [0.3, 0.05])
def test_rows_that_meet_by_chance_are_all_judged(tmp_path: Path, share: float) -> None:
    """Of few categories many rows are equal, with other outcomes: to judge each once would change the shares of classes."""
    generator = np.random.default_rng(0)
    frame = pd.DataFrame({name: generator.integers(0, 3, 3000).astype(str) for name in "abcdef"})
    frame["z"] = np.append(generator.normal(size=600), np.zeros(2400))
    frame["y"] = np.where(generator.random(3000) < share, "yes", "no")
    data, _ = read(frame, tmp_path)
    assert data.copies is not None
    assert len(data.different) == 3000


@pytest.mark.parametrize("written", ["%Y-%m-%d %H:%M", "%d.%m.%Y"])
def test_a_time_that_nobody_told_of_hides_no_copies(tmp_path: Path, written: str) -> None:
    frame = pd.concat([made()] * 3, ignore_index=True).sample(frac=1, random_state=0)
    frame["seen"] = pd.date_range("2021-01-01", periods=360, freq="5h").strftime(written)
    frame["customer_id"] = np.arange(360)[::-1] + 17
    data, _ = read(frame, tmp_path)
    assert "rows equal another in all inputs but `seen`" in data.notes[0]
    assert len(np.unique(data.copies)) == 120
    followed, _ = read(frame.assign(y=np.random.default_rng(1).normal(size=360)), tmp_path)
    assert not any("but `seen`" in note for note in followed.notes)


def test_copies_all_over_the_time_are_on_one_side_of_every_cut(tmp_path: Path) -> None:
    frame = pd.concat([made()] * 3, ignore_index=True).sample(frac=1, random_state=0)
    frame["day"] = np.arange(360) * 1.5
    data, settings = read(frame, tmp_path, time="day")
    lines: list[Any] = []
    train, held = read_parts(tmp_path / "t.csv", settings, lines.append)
    assert len(held) == 72
    assert not set(train.copies).intersection(held.copies)
    assert f"note: {288 - len(train)} earlier copies of the rows held out are not used" in lines
    assert not any("held out together" in note for note in data.notes)
    assert not any(straddles(frame["x"].to_numpy(), fold) for fold in _folds(data, 3, settings))
