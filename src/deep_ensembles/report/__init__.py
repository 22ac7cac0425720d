"""What people look at: evaluations as plain data, and the figures and pages made from them."""

from deep_ensembles.report._facts import Batch
from deep_ensembles.report.evaluate import beside_targets, evaluate, first_member, one_target
from deep_ensembles.report.evaluation import Evaluation, Outside
from deep_ensembles.report.examples import outside_range
from deep_ensembles.report.page import Report

__all__ = [
    "Batch",
    "Evaluation",
    "Outside",
    "Report",
    "beside_targets",
    "evaluate",
    "first_member",
    "one_target",
    "outside_range",
]
