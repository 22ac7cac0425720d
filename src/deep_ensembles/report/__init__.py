"""How good predictions are: an evaluation as plain data, and a page made from it."""

from deep_ensembles.report.evaluate import Batch, beside_targets, evaluate, first_member
from deep_ensembles.report.evaluation import ColumnFacts, Evaluation, Score, Unseen
from deep_ensembles.report.explain import Influences, Reasons, explain, influences
from deep_ensembles.report.page import Report
from deep_ensembles.report.rows import RowFacts, unseen_columns, unseen_values
from deep_ensembles.report.segments import Groups

__all__ = [
    "Batch", "ColumnFacts", "Evaluation", "Groups", "Influences", "Reasons", "Report", "RowFacts", "Score", "Unseen",
    "beside_targets", "evaluate", "explain", "first_member", "influences", "unseen_columns", "unseen_values",
]  # fmt: skip
