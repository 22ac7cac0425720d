"""What holds for all tests: threads, `hypothesis`, and models that several files ask."""

from __future__ import annotations

import os

import hypothesis
import pytest
import torch
from _made_tables import classes_settings, fitted, houses, numbers_settings

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
