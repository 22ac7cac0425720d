"""Execution: where work is done. `Ray` needs an extra and is imported from `deep_ensembles.execution.ray`."""

from deep_ensembles.execution.in_process import Execution, InProcess
from deep_ensembles.execution.processes import Processes

__all__ = ["Execution", "InProcess", "Processes"]
