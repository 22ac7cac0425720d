"""Cells and their records: run one, write it at once or not at all, read all that are there."""

from __future__ import annotations

import hashlib
import importlib
import json
import math
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path
from statistics import median
from typing import Any

import torch
from threadpoolctl import threadpool_limits

import deep_ensembles
from benchmarks.quality.classifiers import CLASSIFIERS
from benchmarks.quality.methods import Fitted, Method
from benchmarks.quality.regressors import REGRESSORS
from benchmarks.quality.scores import classification_scores, regression_scores
from benchmarks.quality.tables import LATTICE, TABLES, Parts, Table
from deep_ensembles._files import json_ready, write_atomically

METHODS = {"regression": REGRESSORS, "classification": CLASSIFIERS}
RECORDS = Path(__file__).parent.parent / "records" / "quality"
SLOW_SECONDS, SLOW_SPLITS = 100, 5  # a peer that takes longer per split is run on the first so many alone


@dataclass(frozen=True)
class Cell:
    """One method on one split of one data set."""

    table: Table
    split: int
    method: Method

    def path(self, root: Path) -> Path:
        return root / self.table.name / self.method.name / f"{self.split}.json"

    def __str__(self) -> str:
        return f"{self.table.name}, split {self.split}, {self.method.name}"


def cells(tables: Sequence[str], methods: Sequence[str] | None, splits: Sequence[int] | None) -> Iterator[Cell]:
    """Table by table, split by split, those that a method can take."""
    for table in map(TABLES.__getitem__, tables):
        fitting = [method for method in METHODS[table.task] if methods is None or method.name in methods]
        for split in range(table.n_splits):
            if splits is None or split in splits:
                yield from (Cell(table, split, method) for method in fitting)


def why_skipped(cell: Cell, root: Path) -> str | None:
    """Why a cell is not run; None if it is to be run."""
    if cell.path(root).is_file():
        return "there"
    if cell.method.most_rows is not None and 0.9 * cell.table.rows > cell.method.most_rows:
        return f"more than {cell.method.most_rows} training rows"
    if not cell.method.ours and cell.split >= SLOW_SPLITS and is_slow(cell.table.name, cell.method.name, root):
        return f"slower than {SLOW_SECONDS} s: only the first {SLOW_SPLITS} splits"
    return None


def is_slow(table: str, method: str, root: Path) -> bool:
    """Whether a fit takes more than `SLOW_SECONDS` of processor time, by the records of the first splits."""
    records = [
        read(path) for path in (root / table / method / f"{split}.json" for split in range(SLOW_SPLITS)) if path.is_file()
    ]
    return bool(records) and median(record["seconds"]["fit_cpu"] for record in records) > SLOW_SECONDS


def run(cell: Cell, root: Path) -> dict[str, Any]:
    """Fit, predict, score, and write the record."""
    parts = cell.table.load(cell.split)
    if cell.method.package is not None:
        importlib.import_module(cell.method.package)  # which is not a part of fitting
    with _one_thread(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        clock, processor = time.perf_counter(), time.process_time()
        fitted = cell.method.fit(parts.X_train, parts.y_train, cell.split)
        seconds = {"fit": time.perf_counter() - clock, "fit_cpu": time.process_time() - processor}
        clock = time.perf_counter()
        prediction = fitted.predict(parts.X_test)
        seconds["predict"] = time.perf_counter() - clock
        scores = _scores(cell.table, prediction, parts)
    record = {**_about(cell, parts, fitted), "scores": _rounded(scores), "seconds": _rounded(seconds)}
    write_atomically(cell.path(root), (json.dumps(json_ready(record), indent=1) + "\n").encode())
    return record


@contextmanager
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with threadpool_limits(1):
            yield
    finally:
        torch.set_num_threads(before)


def _scores(table: Table, prediction: Any, parts: Parts) -> dict[str, float | None]:
    if table.task == "classification":
        return classification_scores(prediction, parts.y_test, parts.truth)
    return regression_scores(prediction, parts.y_test, LATTICE.get(table.name))


def _about(cell: Cell, parts: Parts, fitted: Fitted) -> dict[str, Any]:
    packages = ("torch", "scikit-learn", *([cell.method.package] if cell.method.package else []))
    versions = {package: metadata.version(package) for package in packages}
    versions |= {"source": source_digest()} if cell.method.ours else {}
    rows = {"train": len(parts.y_train), "test": len(parts.y_test)}
    about = {"table": cell.table.name, "split": cell.split, "method": cell.method.name, "rows": rows}
    return {**about, "versions": versions, "details": dict(fitted.details)}


@cache
def source_digest() -> str:
    """The first digits of the hash of the package's source, which tells states of it apart."""
    home = Path(deep_ensembles.__file__).parent
    content = b"".join(path.read_bytes() for path in sorted(home.rglob("*.py")))
    return hashlib.sha256(content).hexdigest()[:8]


def _rounded(values: Mapping[str, float | None]) -> dict[str, float | str | None]:
    """Seven digits are enough to compute with; JSON has no infinity, so that it is a word."""
    texts = {name: None if value is None else f"{value:.7g}" for name, value in values.items()}
    return {name: float(text) if text and math.isfinite(float(text)) else text for name, text in texts.items()}


def read(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text("utf-8"))


def read_all(root: Path) -> list[dict[str, Any]]:
    """Every record of a table and method that there is."""
    known = {(table.name, method.name) for table in TABLES.values() for method in METHODS[table.task]}
    records = [read(path) for path in sorted(root.glob("*/*/*.json"))]
    return [record for record in records if (record["table"], record["method"]) in known]
