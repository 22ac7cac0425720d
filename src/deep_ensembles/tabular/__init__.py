"""From a table in a file to a model and back to a table; needs the extra `tables`.

Names are loaded when they are first used, so that `predict` does not wait for what only `fit` or `compare` needs.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # what type checkers and editors see of the table below
    from deep_ensembles.tabular.compare import Comparison, compare_table
    from deep_ensembles.tabular.evaluate import evaluate_table, explain_table, scores_listing
    from deep_ensembles.tabular.fit import FittedTable, fit_table, settings_of_targets
    from deep_ensembles.tabular.model import TableModel
    from deep_ensembles.tabular.outputs import PredictionOptions
    from deep_ensembles.tabular.predict import Predicted, PredictedRow, predict_files, predict_row, predict_table
    from deep_ensembles.tabular.settings import TableSettings, read_settings
    from deep_ensembles.tabular.show import ModelSummary, show_model

_NAMES = {
    "compare": ("Comparison", "compare_table"),
    "evaluate": ("evaluate_table", "explain_table", "scores_listing"),
    "fit": ("FittedTable", "fit_table", "settings_of_targets"),
    "model": ("TableModel",),
    "outputs": ("PredictionOptions",),
    "predict": ("Predicted", "PredictedRow", "predict_files", "predict_row", "predict_table"),
    "settings": ("TableSettings", "read_settings"),
    "show": ("ModelSummary", "show_model"),
}

__all__ = [
    "Comparison", "FittedTable", "ModelSummary", "Predicted", "PredictedRow", "PredictionOptions", "TableModel",
    "TableSettings", "compare_table", "evaluate_table", "explain_table", "fit_table", "predict_files", "predict_row",
    "predict_table", "read_settings", "scores_listing", "settings_of_targets", "show_model",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    home = next((home for home, names in _NAMES.items() if name in names), None)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{home}"), name)


def __dir__() -> list[str]:
    return __all__
