"""Two processes beside one on one thread: networks of 3 × 200 units, and the default for 10 000 × 10 rows."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch

from benchmarks.made_data import regression
from benchmarks.measuring import Line, side_by_side, speedup
from deep_ensembles import DeepEnsembleRegressor, Normal, fit_ensemble, mlp
from deep_ensembles.execution import Execution, InProcess, Processes


def processes() -> list[Line]:
    """Seconds of the whole fit; workers are warm, as of a second fit."""
    torch.set_num_threads(1)
    X, y = regression(10_000, 10)
    list(Processes(2)(abs, range(2)))
    compute = side_by_side(partial(_members, X, y, Processes(2)), partial(_members, X, y, InProcess()))
    default = side_by_side(partial(_default, X, y, Processes(2)), partial(_default, X, y, InProcess()), repeats=1)
    return [speedup("processes_3x200", compute, wanted=1.7), speedup("processes_default", default, wanted=1.6)]


def _members(X: Any, y: Any, execution: Execution) -> None:
    network = partial(mlp, 10, 2, (200, 200, 200))
    fit_ensemble(network, X, y, head=Normal(), n_members=6, max_epochs=20, random_state=0, execution=execution)


def _default(X: Any, y: Any, execution: Execution) -> None:
    DeepEnsembleRegressor(random_state=0, execution=execution).fit(X, y)
