"""What holds for all tests: threads, `hypothesis`, and models that several files ask."""

from __future__ import annotations

import os
from pathlib import Path

import hypothesis
import pytest
import torch
from _commands import DROP, QUICK, done
from _made_tables import classes_settings, fitted, houses, numbers_settings, write

from deep_ensembles.tabular import FittedTable

# Small networks are fastest on one thread where other programs run; `make test-portable` tries two.
torch.set_num_threads(int(os.environ.get("DEEP_ENSEMBLES_TEST_THREADS", "1")))

# A busy machine must not fail a test, and a test that fails must fail again.
hypothesis.settings.register_profile(
    "any machine", deadline=None, derandomize=True, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("any machine")


@pytest.fixture(scope="session")
def numbers(tmp_path_factory: pytest.TempPathFactory) -> FittedTable:
    """A model of prices by normals, not recalibrated."""
    return fitted(houses(), tmp_path_factory.mktemp("numbers"), numbers_settings(head="normal", recalibration="none"))


@pytest.fixture(scope="session")
def classes(tmp_path_factory: pytest.TempPathFactory) -> FittedTable:
    """A model of speeds, not recalibrated."""
    return fitted(houses(), tmp_path_factory.mktemp("classes"), classes_settings(recalibration="none"))


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Houses in files, and two models of them that commands made."""
    place = tmp_path_factory.mktemp("houses")
    write(houses(), place / "houses.csv")
    write(houses(seed=1), place / "new.csv")
    numbers = done("fit", place / "houses.csv", "--target", "price", *DROP, *QUICK, "--out", place / "price-model")
    (place / "price.txt").write_text(numbers.stdout, encoding="utf-8")
    drop = ["--drop", "number,owner,year,price"]
    done("fit", place / "houses.csv", "--target", "speed", *drop, *QUICK, "--out", place / "speed-model")
    return place
