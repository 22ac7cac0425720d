"""Models that an earlier version saved load and predict what they did then."""

from __future__ import annotations

import csv
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from _made_tables import houses, write
from sklearn.datasets import load_diabetes, load_digits
from torch import nn

from deep_ensembles import DeepEnsembleClassifier, load
from deep_ensembles.tabular import TableModel, predict_table

MODELS = Path(__file__).parent / "models"
EXPECTED: dict[str, Any] = json.loads((MODELS / "expected.json").read_text())
NETWORKS = {"ensemble-own-network": lambda: nn.Linear(10, 2)}


def predicted(name: str) -> dict[str, Any]:
    """What a model predicts for the first three rows of the data it was made with."""
    model = load(MODELS / name, network=NETWORKS.get(name))
    digits = load_digits().data[:3]
    if name in ("ensemble-stacked", "ensemble-looped"):
        return {"probs": model(torch.from_numpy(digits.reshape(-1, 1, 8, 8).astype("float32"))).probs}
    if isinstance(model, DeepEnsembleClassifier):
        return {"probs": model.predict_proba(digits)}
    diabetes = load_diabetes().data[:3]
    prediction = model(diabetes) if name.startswith("ensemble") else model.predict_distribution(diabetes)
    low = {} if name == "ensemble-points" else {"low": prediction.icdf(torch.tensor(0.05, dtype=torch.float64))}
    return {"mean": prediction.mean, **low}


def same(text: str, expected: str) -> bool:
    """Whether two texts are about the same number, or the same."""
    try:
        return math.isclose(float(text), float(expected), rel_tol=1e-5, abs_tol=1e-6)
    except ValueError:
        return text == expected


def test_every_model_is_tried() -> None:
    assert {path.name for path in MODELS.iterdir() if path.is_dir()} == set(EXPECTED)


@pytest.mark.parametrize("name", [name for name in EXPECTED if not name.startswith("table")])
def test_an_old_model_predicts_the_same(name: str) -> None:
    found = predicted(name)
    assert found.keys() == EXPECTED[name].keys()
    for key, expected in EXPECTED[name].items():
        np.testing.assert_allclose(np.asarray(found[key]), expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", [name for name in EXPECTED if name.startswith("table")])
def test_an_old_model_of_a_table_predicts_the_same(name: str, tmp_path: Path) -> None:
    model = load(MODELS / name)
    assert isinstance(model, TableModel)
    predict_table(model, write(houses(120), tmp_path / "h.csv"), tmp_path / "p.csv")
    with open(tmp_path / "p.csv", newline="") as file:
        rows = list(csv.DictReader(file))[:3]
    for row, expected in zip(rows, EXPECTED[name], strict=True):
        assert row.keys() == expected.keys()
        for column, value in expected.items():
            assert same(row[column], value), column


def test_a_checkpoint_in_an_old_model_is_left_out() -> None:
    assert load(MODELS / "regressor-two-targets-checkpoint").checkpoint is None
