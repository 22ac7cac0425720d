"""Models of earlier rows are judged by the rows that came next."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from deep_ensembles.tabular import TableSettings, fit_table
from deep_ensembles.tabular.cuts import Cut, cuts_listing, drift

QUICK: dict[str, Any] = {"effort": "fast", "max_epochs": 15, "members": 2}


def fitted(frame: pd.DataFrame, tmp_path: Path, **changes: Any) -> tuple[dict[str, Any], list[Any]]:
    frame.to_csv(tmp_path / "t.csv", index=False)
    said: list[Any] = []
    settings = TableSettings(**{"target": "y", "time": "day", **QUICK, **changes})
    return dict(fit_table(tmp_path / "t.csv", settings, log=said.append).model.facts), said


def rows(n: int, jump: float) -> pd.DataFrame:
    generator = np.random.default_rng(0)
    x = generator.normal(size=n)
    noise = generator.normal(size=n) * np.where(np.arange(n) > n // 2, jump, 1.0)
    return pd.DataFrame({"day": pd.date_range("2020-01-01", periods=n), "x": x, "y": 2 * x + 0.5 * noise})


def test_rows_with_a_time_are_judged_by_forward_cuts(tmp_path: Path) -> None:
    facts, said = fitted(rows(400, 8.0), tmp_path)
    cuts = facts["cuts"]
    assert [(cut["before"], cut["after"]) for cut in cuts] == [(80, 80), (160, 80), (240, 80)]
    shown = next(each for each in said if getattr(each, "title", "") == "Forward cuts in time")
    assert "beyond chance" in shown.note
    assert "assumption" in shown.note
    assert cuts[-1]["error"] > 2 * cuts[0]["error"]


def test_no_cuts_without_a_time_or_with_few_rows_or_little_time(tmp_path: Path) -> None:
    assert fitted(rows(400, 1.0), tmp_path, time=None)[0]["cuts"] == []
    assert fitted(rows(100, 1.0), tmp_path)[0]["cuts"] == []
    assert fitted(rows(400, 1.0), tmp_path, time_limit=5.0)[0]["cuts"] == []


def test_classes_have_shares_of_wrong_rows(tmp_path: Path) -> None:
    frame = rows(300, 1.0)
    cuts = fitted(frame.assign(y=np.where(frame["x"] > 0, "up", "down")), tmp_path)[0]["cuts"]
    assert all(cut["coverage"] is None and 0 <= cut["error"] <= 1 for cut in cuts)


@pytest.mark.parametrize(
    ("errors", "words"), [((1.0, 1.1, 1.05), "no more than chance"), ((1.0, 1.1, 2.0), "beyond chance")]
)
def test_drift_is_named_only_beyond_chance(errors: tuple[float, ...], words: str) -> None:
    cuts = [Cut(100 * i, 100, error, 0.1, 1.0, 0.9) for i, error in enumerate(errors, start=1)]
    assert words in drift(cuts)
    assert "errors differ most between the cut after 100 rows (1.00 ± 0.10) and that after" in drift(cuts)
    assert len(cuts_listing(cuts).rows) == 3
