"""A table of 336 000 rows and 18 mixed columns: time and memory, by stage; `python -m benchmarks.large_table`.

Numbers, categories of 3 to 4000 levels, dates, gaps. Each command runs on one thread, in its own process, as peak memory
is that of a process; stages are told apart by the functions that do them. Where training is done by worker processes, its
processor time is theirs; their peak memory is told beside that of the command.
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from joblib.externals.loky import get_reusable_executor
from pyarrow import csv

ROWS = 336_000
LEVELS = (3, 7, 25, 120, 900, 4000)

# What is timed, by the module and the name that it is called by.
STAGES = {
    "reading": ("deep_ensembles.tabular.files", "TableFiles.read"),
    "understanding columns": ("deep_ensembles.columns", "infer_schema"),
    "looking for copies": ("deep_ensembles.tabular.data", "find_copies"),
    "looking for what is wrong": ("deep_ensembles.tabular.suspicions", "Suspicions.notes"),
    "encoding": ("deep_ensembles.columns", "Schema.encode"),
    "encoding with what is unseen": ("deep_ensembles.columns", "Schema.encode_with_unseen"),
    "training": ("deep_ensembles.tabular.fit", "fit_recipe"),
    "predicting": ("deep_ensembles.ensemble", "Ensemble.mixture"),
    "scoring": ("deep_ensembles.tabular.fit", "evaluate"),
    "judging": ("deep_ensembles.report", "evaluate"),
    "explaining": ("deep_ensembles.report", "influences"),
    "drawing": ("deep_ensembles.report", "Report.save"),
    "writing": ("deep_ensembles.tabular.writing", "TableWriter.write"),
}


def made(n_rows: int, seed: int = 0) -> pa.Table:
    """18 columns and the target: 8 numbers, 6 categories, 2 dates, a boolean, a count, 7 % of all values missing."""
    r = np.random.default_rng(seed)
    numbers = r.normal(size=(8, n_rows))
    levels = [np.minimum(r.zipf(1.3, n_rows) - 1, n - 1) for n in LEVELS]
    days, months = r.integers(0, 2000, n_rows), r.integers(0, 60, n_rows)
    start = np.datetime64("2018-01-01")
    found: dict[str, Any] = {f"x{i}": values.round(3) for i, values in enumerate(numbers)}
    found |= {f"level{n}": np.char.add(f"c{n}-", codes.astype(str)) for n, codes in zip(LEVELS, levels, strict=True)}
    found |= {"opened": start + days, "changed": start + days + r.integers(1, 90, n_rows)}
    found |= {"member": r.random(n_rows) < 0.4, "visits": r.poisson(3, n_rows)}
    gaps = {name: pa.array(values, mask=r.random(n_rows) < 0.07) for name, values in found.items()}
    effect = np.random.default_rng(1).normal(size=4000)
    signal = np.sin(2 * numbers[0]) + numbers[1] * numbers[2] + 0.5 * effect[levels[5]] + 0.3 * levels[0] + np.sin(months)
    noise = (0.3 + 0.3 * np.abs(numbers[3])) * r.normal(size=n_rows)
    return pa.table(gaps).append_column("price", pa.array((100 + 10 * (signal + noise)).round(2)))


Stage = tuple[float, float, float]


def measured(arguments: Sequence[str]) -> dict[str, Stage]:
    """Processor and wall seconds, and the peak memory in GB at the end of each stage of a command, and of all of it."""
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    process = context.Process(target=_run, args=(list(arguments), queue))
    process.start()
    process.join()
    if process.exitcode:
        raise RuntimeError(f"{arguments[0]} ended with exit code {process.exitcode}")
    found: dict[str, Stage] = queue.get()
    return found


def _run(arguments: list[str], queue: Any) -> None:
    import torch

    torch.set_num_threads(1)
    spent: dict[str, Stage] = {}
    for stage, (module, name) in STAGES.items():
        owner: Any = import_module(module)
        *parents, last = name.split(".")
        for parent in parents:
            owner = getattr(owner, parent)
        setattr(owner, last, _timed(stage, getattr(owner, last), spent))
    from deep_ensembles.cli import app

    start = time.perf_counter()
    try:
        app(arguments)
    except SystemExit as ended:
        print(f"exit code {ended.code}, {time.perf_counter() - start:.0f} seconds", file=sys.stderr)
    spent["all"] = (time.process_time(), time.perf_counter() - start, _peak())
    get_reusable_executor().shutdown()  # a process that has ended is one whose memory is known
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    queue.put(spent | {"the largest worker": (ended.ru_utime + ended.ru_stime, 0.0, ended.ru_maxrss / 1e6)})


def _timed(stage: str, function: Callable[..., Any], spent: dict[str, Stage]) -> Callable[..., Any]:
    def timed(*given: Any, **others: Any) -> Any:
        start, clock = time.process_time(), time.perf_counter()
        try:
            return function(*given, **others)
        finally:
            before = spent.get(stage, (0.0, 0.0, 0.0))
            spent[stage] = before[0] + time.process_time() - start, before[1] + time.perf_counter() - clock, _peak()

    return timed


def _peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--time-limit", type=float, default=240)
    parser.add_argument("--effort", default="default")
    parser.add_argument("--folder", type=Path, default=None, help="where the table and a model are kept")
    parser.add_argument("--only", default="fit,predict,evaluate")
    options = parser.parse_args()
    folder = options.folder or Path(tempfile.mkdtemp())
    folder.mkdir(exist_ok=True, parents=True)
    data, model = folder / "large.csv", folder / f"model-{options.effort}"
    if not data.exists():
        csv.write_csv(made(options.rows), data)
    limit = ["--effort", options.effort, "--time-limit", str(options.time_limit), "--force"]
    commands = {
        "fit": ["fit", str(data), "--target", "price", "--out", str(model), *limit],
        "predict": ["predict", str(model), str(data), "--out", str(folder / "predictions.parquet")],
        "evaluate": ["evaluate", str(model), str(data), "--report", str(folder / "report.html")],
    }
    for command in options.only.split(","):
        found = measured(commands[command])
        print(f"\n{command}")
        print(f"  {'':30}{'processor':>11}{'wall':>11}{'peak':>11}")
        for stage, (seconds, wall, peak) in found.items():
            print(f"  {stage:30}{seconds:9.1f} s{wall:9.1f} s{peak:8.2f} GB")
        rates = [f"{options.rows / seconds:,.0f}" for seconds in found["all"][:2]]
        print(f"  rows a second: {rates[0]} of processor time, {rates[1]} of wall time")


if __name__ == "__main__":
    main()
