"""From a table in a file to a model and back to a table; needs the extra `tables`."""

from deep_ensembles.tabular.compare import Comparison, compare_table
from deep_ensembles.tabular.evaluate import evaluate_table
from deep_ensembles.tabular.fit import FittedTable, fit_table, scores_table
from deep_ensembles.tabular.model import TableModel
from deep_ensembles.tabular.predict import Predicted, predict_table
from deep_ensembles.tabular.settings import TableSettings, read_settings

__all__ = [
    "Comparison",
    "FittedTable",
    "Predicted",
    "TableModel",
    "TableSettings",
    "compare_table",
    "evaluate_table",
    "fit_table",
    "predict_table",
    "read_settings",
    "scores_table",
]
