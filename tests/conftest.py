"""One thread, on which small networks are fastest where other programs run; and models that several files ask."""

from __future__ import annotations

import pytest
import torch
from _made_tables import classes_settings, fitted, houses, numbers_settings

from deep_ensembles.tabular import FittedTable

torch.set_num_threads(1)


@pytest.fixture(scope="session")
def numbers(tmp_path_factory: pytest.TempPathFactory) -> FittedTable:
    """A model of prices, not recalibrated."""
    return fitted(houses(), tmp_path_factory.mktemp("numbers"), numbers_settings(recalibration="none"))


@pytest.fixture(scope="session")
def classes(tmp_path_factory: pytest.TempPathFactory) -> FittedTable:
    """A model of speeds, not recalibrated."""
    return fitted(houses(), tmp_path_factory.mktemp("classes"), classes_settings(recalibration="none"))
