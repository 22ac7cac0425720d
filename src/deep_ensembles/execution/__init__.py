"""Execution: where work is done. `Ray` needs an extra and is imported from `deep_ensembles.execution.ray`."""

from deep_ensembles.execution._runs import suited, train_runs
from deep_ensembles.execution.in_process import Execution, InProcess, Report
from deep_ensembles.execution.processes import Processes, chosen_execution
from deep_ensembles.training import Training

__all__ = ["Execution", "InProcess", "Processes", "Report", "Training", "chosen_execution", "suited", "train_runs"]
