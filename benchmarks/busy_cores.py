"""A small fit beside one busy process per core, and alone."""

from __future__ import annotations

import subprocess
import sys
from contextlib import ExitStack
from functools import partial
from statistics import median

import joblib
import torch

from benchmarks.made_data import regression
from benchmarks.measuring import Line, seconds
from deep_ensembles import DeepEnsembleRegressor, Normal, fit_ensemble, mlp


def busy_cores() -> list[Line]:
    """With as many threads as there are cores at first, as a program that sets nothing has."""
    threads = torch.get_num_threads()
    torch.set_num_threads(joblib.cpu_count())
    X, y = regression(500, 8)
    network = partial(mlp, 8, 2, (50,))
    fits = {
        "busy_cores_paper": partial(fit_ensemble, network, X, y, head=Normal(), max_epochs=40, random_state=0),
        "busy_cores_fast": partial(DeepEnsembleRegressor(effort="fast", random_state=0).fit, X, y),
    }
    try:
        alone = [_median(fit) for fit in fits.values()]
        with ExitStack() as held:
            for _ in range(joblib.cpu_count()):
                other = held.enter_context(subprocess.Popen([sys.executable, "-c", "while True: pass"]))
                held.callback(other.kill)
            beside = [_median(fit) for fit in fits.values()]
    finally:
        torch.set_num_threads(threads)
    return [Line(name, b, a, b / a, 2.2, at_most=True) for name, a, b in zip(fits, alone, beside, strict=True)]


def _median(fit: partial[object]) -> float:
    """Of a fit, over rounds of several, as one alone may fall into one turn of the scheduler's."""
    fit()
    return median(seconds(lambda: [fit() for _ in range(5)]) / 5 for _ in range(5))
