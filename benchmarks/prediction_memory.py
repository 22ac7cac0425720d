"""The memory that predictions for a million rows of 9 features take above the rows themselves."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import torch

from benchmarks.made_data import regression
from benchmarks.measuring import Line
from benchmarks.small_ensemble import our_ensemble
from deep_ensembles import DeepEnsembleRegressor

PREDICTIONS = {
    "predict": lambda model, X: model.predict(X, return_std=True),
    "predict_interval": lambda model, X: model.predict_interval(X),
}


def prediction_memory() -> list[Line]:
    """Each in a new process; the figure is the peak above what was resident just before, results included."""
    return [_line(name, float(_measured(name))) for name in PREDICTIONS]


def _line(name: str, megabytes: float) -> Line:
    suffix = name.removeprefix("predict")
    return Line(f"prediction_memory{suffix}", megabytes, None, megabytes, 400, at_most=True, unit="MB", figure_unit="MB")


def _measured(name: str) -> str:
    command = [sys.executable, "-m", "benchmarks.prediction_memory", name]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def megabytes_above(name: str) -> float:
    """Peak minus what is resident before, in this process; a few rows first, so that code is loaded already."""
    model: DeepEnsembleRegressor = our_ensemble().fit(*regression(927, 9))
    X = np.random.default_rng(0).normal(size=(1_000_000, 9))
    PREDICTIONS[name](model, X[:1000])
    before = _status("VmRSS")
    PREDICTIONS[name](model, X)
    return _status("VmHWM") - before


def _status(field: str) -> float:
    """A field of Linux's account of this process, in MB; unlike `ru_maxrss` it knows nothing of the parent."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(field))


if __name__ == "__main__":
    torch.set_num_threads(1)
    print(megabytes_above(sys.argv[1]))
