"""Execution: where pieces of work are done. Ray is reached as `deep_ensembles.execution.ray.Ray`, for it needs an extra."""

from deep_ensembles.execution.in_process import Execution, InProcess
from deep_ensembles.execution.processes import Processes

__all__ = ["Execution", "InProcess", "Processes"]
