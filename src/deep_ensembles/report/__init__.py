"""How good predictions are: an evaluation as plain data, and a page made from it."""

from deep_ensembles.report.evaluate import Batch, beside_targets, evaluate, first_member
from deep_ensembles.report.evaluation import Evaluation, Unseen
from deep_ensembles.report.explain import Influences, Reasons, explain, influences
from deep_ensembles.report.page import Report
from deep_ensembles.report.rows import unseen_values

__all__ = [
    "Batch", "Evaluation", "Influences", "Reasons", "Report", "Unseen", "beside_targets", "evaluate", "explain",
    "first_member", "influences", "unseen_values",
]  # fmt: skip
