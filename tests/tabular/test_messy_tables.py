"""Forty messy tables: claims hold on fresh rows, flaws are named, files stay as they are."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent.parent
MOST_ERRORS = 3.8  # standard errors of the largest of so many differences, in 99 of 100 cases
FEW = ("numbers 150 · copies", "numbers 60 · sentinels", "chance 100 · copies", "numbers 30")


@pytest.fixture(scope="module")
def messy() -> Iterator[Any]:
    sys.path.insert(0, str(ROOT))
    from benchmarks import messy_tables

    yield messy_tables
    sys.path.remove(str(ROOT))


def check(messy: Any, table: Any, folder: Path, **settings: Any) -> list[Any]:
    result = messy.outcome(table, folder, **settings)
    assert result.claims
    assert result.kinds_of_notes == table.notes, table.name
    for claim in result.claims:
        assert abs(claim.z) < MOST_ERRORS, (table.name, claim)
    said = result.evaluation.summary + " ".join(result.evaluation.verdicts.values())
    assert "nan" not in said
    if table.law in (messy.no_signal, messy.chance):
        assert "It is better than a constant" not in said, table.name
    assert (folder / "train.csv").read_text() == table.rows(0, new=False).to_csv(index=False)
    assert sorted(path.name for path in folder.iterdir()) == ["fresh.csv", "train.csv"]
    return list(result.claims)


@pytest.mark.parametrize("name", FEW)
def test_claims_hold_on_fresh_rows(name: str, messy: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messy, "FRESH_ROWS", 500)
    (table,) = [table for table in messy.FORTY if table.name == name]
    check(messy, table, tmp_path, max_epochs=10, hidden_sizes=(32,))


def test_there_are_forty(messy: Any) -> None:
    assert len({table.name for table in messy.FORTY}) == 40
    assert {flaw for table in messy.FORTY for flaw in table.flaws} == set(messy.FLAWS)


@pytest.mark.slow
@pytest.mark.parametrize("number", range(40))
def test_claims_hold_on_fresh_rows_of_all_forty(number: int, messy: Any, tmp_path: Path) -> None:
    check(messy, messy.FORTY[number], tmp_path, max_epochs=40)
