"""Training from Parquet block by block, beside training on the same rows in memory: rows per second, memory, score.

python -m benchmarks.larger_than_memory 1e5 1e6 1e7          # sizes of made tables; each figure in a process of its own
python -m benchmarks.larger_than_memory 5e7 --only streamed  # where memory does not hold the rows twice
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
import torch

from benchmarks.prediction_memory import _status
from deep_ensembles import ComplementaryFolds, Ensemble, ParquetRows, fit_ensemble, log_score, mlp
from deep_ensembles.training import blocks

COLUMNS, PART_ROWS, GROUP_ROWS = 20, 1_000_000, 250_000
SETTINGS = {"batch_size": 1024, "drop_last": True, "learning_rate": 0.003, "early_stopping": True, "random_state": 0}


def made(n: int, part: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows of a function of six of the columns, with noise that depends on one more; float32."""
    generator = np.random.default_rng((n, part))
    x = generator.standard_normal((min(PART_ROWS, n - part * PART_ROWS), COLUMNS), dtype=np.float32)
    mean = np.sin(2 * x[:, 0]) + x[:, 1] * x[:, 2] + np.abs(x[:, 3]) + 0.5 * x[:, 4] * (x[:, 5] > 0)
    noise = 0.1 + 0.2 / (1 + np.exp(-x[:, 6]))
    return x, (mean + noise * generator.standard_normal(len(x), dtype=np.float32)).astype(np.float32)


def write(n: int, folder: Path) -> None:
    """A folder of Parquet files of a million rows each."""
    for part in range(-(-n // PART_ROWS)):
        x, y = made(n, part)
        table = pa.table({f"x{i}": x[:, i] for i in range(COLUMNS)} | {"y": y})
        parquet.write_table(table, folder / f"{part:04}.parquet", row_group_size=GROUP_ROWS, use_dictionary=False)


def fitted(way: str, n: int, folder: Path, epochs: int, n_members: int, width: int) -> Ensemble:
    """Members of two hidden layers, with complementary folds."""
    settings = SETTINGS | {"max_epochs": epochs, "n_members": n_members, "folds": ComplementaryFolds()}
    build = partial(mlp, COLUMNS, 2, (width, width))
    if way == "streamed":
        return fit_ensemble(build, ParquetRows(folder, "y"), **settings)
    columns = parquet.read_table(folder)
    inputs = np.empty((n, COLUMNS), np.float32)
    for i in range(COLUMNS):
        inputs[:, i] = columns[f"x{i}"].to_numpy()
    targets = columns["y"].to_numpy()
    del columns
    return fit_ensemble(build, inputs, targets, **settings)


def measured(way: str, n: int, folder: str, epochs: int, n_members: int, width: int) -> str:
    """Processor seconds, seconds, megabytes at the peak, and the score of new rows."""
    torch.set_num_threads(1)
    start, before = time.perf_counter(), time.process_time()
    ensemble = fitted(way, n, Path(folder), epochs, n_members, width)
    taken, processor = time.perf_counter() - start, time.process_time() - before
    peak = _status("VmHWM")
    x, y = made(100_001, 0)
    score = float(log_score(ensemble(x), torch.from_numpy(y).double()).mean())
    return f"{way:<10}{n:>12,}{processor:>12.1f}{taken:>12.1f}{epochs * n / processor:>14,.0f}{peak:>10.0f}{score:>10.4f}"


def loss() -> None:
    """The log score of new rows, in memory and streamed, of 100 000 rows as they were made and sorted by their target.

    A buffer holds a quarter of the rows, and takes them from 8 of 20 row groups.
    """
    blocks.BUFFER_BYTES, blocks._PIECE_ROWS = 2**21, 1024
    torch.set_num_threads(1)
    (x, y), (new, truth) = made(100_000, 0), made(50_001, 0)
    for name, order in (("as made", np.arange(len(y))), ("sorted by target", np.argsort(y))):
        columns = {f"x{i}": x[order, i] for i in range(COLUMNS)} | {"y": y[order]}
        with tempfile.TemporaryDirectory() as folder:
            parquet.write_table(pa.table(columns), Path(folder, "rows.parquet"), row_group_size=5000)
            for seed in range(3):
                settings = SETTINGS | {"max_epochs": 5, "batch_size": 256, "n_members": 3, "random_state": seed}
                build = partial(mlp, COLUMNS, 2, (32, 32))
                ways = (x[order], y[order]), (ParquetRows(folder, "y"),)
                ensembles = [fit_ensemble(build, *data, folds=ComplementaryFolds(), **settings) for data in ways]
                scores = [float(log_score(e(new), torch.from_numpy(truth).double()).mean()) for e in ensembles]
                print(f"{name:<18}seed {seed}   memory {scores[0]:8.4f}   streamed {scores[1]:8.4f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sizes", nargs="*", type=float)
    parser.add_argument("--loss", action="store_true", help="compare scores instead, on 100 000 rows")
    parser.add_argument("--only", choices=("memory", "streamed"))
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--members", type=int, default=5)
    parser.add_argument("--width", type=int, default=128, help="of each of two hidden layers")
    parser.add_argument("--folder", type=Path, help="of a table that is made already, or to keep")
    options = parser.parse_args()
    if options.loss:
        loss()
        return
    names = f"{'way':<10}{'rows':>12}{'processor s':>12}{'seconds':>12}{'rows/s (cpu)':>14}{'peak MB':>10}{'NLL':>10}"
    print(names, flush=True)
    for size in map(int, options.sizes):
        folder = options.folder or Path(tempfile.mkdtemp())
        folder.mkdir(exist_ok=True)
        try:
            if not any(folder.iterdir()):
                write(size, folder)
            for way in ("memory", "streamed") if options.only is None else (options.only,):
                call = f"measured({way!r}, {size}, {str(folder)!r}, {options.epochs}, {options.members}, {options.width})"
                code = f"from benchmarks.larger_than_memory import measured; print({call})"
                subprocess.run([sys.executable, "-c", code], check=True)
        finally:
            if options.folder is None:
                shutil.rmtree(folder)


if __name__ == "__main__":
    main()
