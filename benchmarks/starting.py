"""How soon things start: what the package adds to the imports that it needs, and whole commands on ten rows."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyarrow import csv

from benchmarks.measuring import Line, side_by_side

NEEDED = "import torch, sklearn.base"
OURS = f"{NEEDED}; import deep_ensembles; deep_ensembles.DeepEnsembleRegressor"
TABLE_NEEDED = "import torch, pyarrow.parquet"
COMMAND = "import sys; from deep_ensembles.cli import app; app(sys.argv[1:])"
LOADING = "import sys, deep_ensembles; deep_ensembles.load(sys.argv[1])"


def import_cost() -> list[Line]:
    """New processes, in turn; the figures are the difference of the medians, and the median."""
    ours, other, help_seconds = side_by_side(
        lambda: _python(OURS),
        lambda: _python(NEEDED),
        lambda: _run(str(Path(sys.executable).with_name("deep-ensembles")), "--help"),
        repeats=7,
    )
    return [
        Line("import_cost", ours, other, ours - other, 0.3, at_most=True, figure_unit="s"),
        Line("import_cost_help", help_seconds, None, help_seconds, 0.7, at_most=True, figure_unit="s"),
    ]


def command_start() -> list[Line]:
    """Commands on ten rows and `load`, as new processes, beside the imports that they cannot do without."""
    with tempfile.TemporaryDirectory() as folder:
        here = Path(folder)
        generator = np.random.default_rng(0)
        table = pa.table({name: generator.normal(size=60) for name in "abcy"})
        csv.write_csv(table, here / "train.csv")
        csv.write_csv(table.slice(0, 10), here / "ten.csv")
        model = here / "model"
        fit = ("fit", here / "train.csv", "--target", "y", "--out", model, "--max-epochs", "2")
        _python(COMMAND, *fit)
        times = side_by_side(
            lambda: _python(TABLE_NEEDED),
            lambda: _python(COMMAND, "predict", model, here / "ten.csv", "--out", here / "predictions.csv"),
            lambda: _python(COMMAND, "evaluate", model, here / "ten.csv", "--json"),
            lambda: _python(LOADING, model),
            repeats=7,
        )
    names = ("start_predict", "start_evaluate", "start_load")
    return [
        Line(name, ours, times[0], ours / times[0], 1.6, at_most=True) for name, ours in zip(names, times[1:], strict=True)
    ]


def _python(code: str, *arguments: str | Path) -> None:
    _run(sys.executable, "-c", code, *map(str, arguments))


def _run(*command: str) -> None:
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
