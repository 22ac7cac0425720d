"""Tables of 9 numbers from file to file: seconds to fit 45 000 rows, and rows predicted a second from Parquet."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from benchmarks.measuring import Line

ROWS, NEW_ROWS = 45_000, 4_000_000


def tables() -> list[Line]:
    """Whole commands, with the start of Python, reading and writing; they use all cores, as commands do."""
    with tempfile.TemporaryDirectory() as folder:
        here = Path(folder)
        _write(here / "train.parquet", ROWS, target=True)
        _write(here / "new.parquet", NEW_ROWS, target=False)
        fit = _seconds("fit", here / "train.parquet", "--target", "y", "--out", here / "model")
        predict = _seconds("predict", here / "model", here / "new.parquet", "--out", here / "out.parquet")
    rate = NEW_ROWS / predict / 1000
    return [
        Line("tables_fit", fit, None, fit, 180, at_most=True, unit="s", figure_unit="s"),
        Line("tables_predict", predict, None, rate, 200, unit="s", figure_unit="k/s"),
    ]


def _seconds(*arguments: str | Path) -> float:
    code = "import sys; from deep_ensembles.cli import app; app(sys.argv[1:])"
    start = time.perf_counter()
    environment = {"PATH": "", "HOME": tempfile.gettempdir()}
    command = [sys.executable, "-c", code, *map(str, arguments)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=environment)
    return time.perf_counter() - start


def _write(path: Path, n_rows: int, *, target: bool) -> None:
    """Two modes of noise that no Gaussian describes, so that a recalibration is chosen that costs the most."""
    generator = np.random.default_rng(0)
    with parquet.ParquetWriter(path, _columns(generator, 1, target).schema) as writer:
        for start in range(0, n_rows, 100_000):
            writer.write_batch(_columns(generator, min(100_000, n_rows - start), target))


def _columns(generator: np.random.Generator, n_rows: int, target: bool) -> pa.RecordBatch:
    x = generator.normal(size=(9, n_rows))
    found = {f"x{i}": column for i, column in enumerate(x)}
    if target:
        signal = np.sin(x[0]) + x[1] * x[2] + 0.5 * x[3] ** 2
        found["y"] = signal + np.where(generator.random(n_rows) < 0.7, 0.3, 2.0) * generator.exponential(size=n_rows)
    return pa.record_batch(found)
