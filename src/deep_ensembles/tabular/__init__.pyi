"""The names of this room: the one list of them, for the package, type checkers and editors alike."""

from deep_ensembles.tabular.compare import Comparison, compare_table
from deep_ensembles.tabular.evaluate import evaluate_table, explain_table, scores_listing
from deep_ensembles.tabular.fit import FittedTable, fit_table, settings_of_targets
from deep_ensembles.tabular.model import TableModel
from deep_ensembles.tabular.outputs import PredictionOptions
from deep_ensembles.tabular.predict import Predicted, PredictedRow, predict_files, predict_row, predict_table
from deep_ensembles.tabular.settings import TableSettings, read_settings
from deep_ensembles.tabular.show import ModelSummary, show_model

__all__ = [
    "Comparison", "FittedTable", "ModelSummary", "Predicted", "PredictedRow", "PredictionOptions", "TableModel",
    "TableSettings", "compare_table", "evaluate_table", "explain_table", "fit_table", "predict_files", "predict_row",
    "predict_table", "read_settings", "scores_listing", "settings_of_targets", "show_model",
]  # fmt: skip
