"""Models that the commands of several files ask."""

from __future__ import annotations

from pathlib import Path

import pytest
from _commands import DROP, QUICK, done
from _made_tables import houses, write


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Houses in files, and two models of them."""
    place = tmp_path_factory.mktemp("houses")
    write(houses(), place / "houses.csv")
    write(houses(seed=1), place / "new.csv")
    numbers = done("fit", place / "houses.csv", "--target", "price", *DROP, *QUICK, "--out", place / "price-model")
    (place / "price.txt").write_text(numbers.stdout, encoding="utf-8")
    drop = ["--drop", "number,owner,year,price"]
    done("fit", place / "houses.csv", "--target", "speed", *drop, *QUICK, "--out", place / "speed-model")
    return place
