"""The door of `deep_ensembles.tabular`: its names, pinned, and that it loads only what is used."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from deep_ensembles import tabular

NAMES = [
    "Comparison",
    "FittedTable",
    "ModelSummary",
    "Predicted",
    "PredictedRow",
    "PredictionOptions",
    "TableModel",
    "TableSettings",
    "compare_table",
    "evaluate_table",
    "explain_table",
    "fit_table",
    "predict_files",
    "predict_row",
    "predict_table",
    "read_settings",
    "scores_listing",
    "settings_of_targets",
    "show_model",
]
# What only fitting or comparing needs.
FITTING = ("fitting", "baselines", "estimators", "tabular.settings", "tabular.data", "tabular.fit", "tabular.compare")
# What takes longer to load than ten rows to predict.
HEAVY = ("sklearn", "scipy", "sympy", "rich", "jinja2", "matplotlib")


def test_names_are_pinned_and_documented() -> None:
    assert tabular.__all__ == dir(tabular) == NAMES
    assert all(getattr(tabular, name).__doc__ for name in NAMES)


def test_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="nonsense"):
        _ = tabular.nonsense


@pytest.mark.parametrize("name", ["predict", "evaluate", "model", "show"])
def test_using_a_model_loads_nothing_of_fitting(name: str) -> None:
    code = f"import json, sys, deep_ensembles.tabular.{name}; print(json.dumps(list(sys.modules)))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(json.loads(out.stdout))
    assert f"deep_ensembles.tabular.{name}" in loaded
    assert loaded.isdisjoint(f"deep_ensembles.{part}" for part in FITTING)
    assert loaded.isdisjoint(HEAVY)
    assert ("torch" in loaded) == (name != "show")
