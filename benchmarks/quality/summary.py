"""Records → means over splits, paired differences and ranks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks.quality.methods import Method
from benchmarks.quality.records import METHODS
from benchmarks.quality.tables import TABLES
from deep_ensembles.report.splits import over_splits, paired

SIGNIFICANT = 0.05
HIGHER_IS_BETTER = ("accuracy", "cell_log_probability")
Scores = dict[int, float]  # split → score


class Results:
    """Every score of every table and method, by split.

    Arguments:
        records: as they were read.
    """

    def __init__(self, records: Sequence[Mapping[str, Any]]) -> None:
        self._scores: dict[tuple[str, str, str], Scores] = defaultdict(dict)
        self.rows: dict[str, dict[str, int]] = {}
        self.sources: set[str] = set()
        self.n_records = len(records)
        for record in records:
            self._take(record)

    def _take(self, record: Mapping[str, Any]) -> None:
        table, method, split = record["table"], record["method"], record["split"]
        self.rows[table] = record["rows"]
        self.sources |= {record["versions"]["source"]} if "source" in record["versions"] else set()
        for name, value in (record["scores"] | record["seconds"]).items():
            if value is not None:
                self._scores[table, method, name][split] = float(value)

    def values(self, table: str, method: str, score: str) -> Scores:
        return self._scores.get((table, method, score), {})

    def over_splits(self, table: str, method: str, score: str) -> dict[str, float | int] | None:
        """Mean, deviation and number of splits; None without a record."""
        values = self.values(table, method, score)
        return over_splits(list(values.values())) if values else None

    def mean(self, table: str, method: str, score: str) -> float | None:
        numbers = self.over_splits(table, method, score)
        return None if numbers is None else float(numbers["mean"])

    def gap(self, table: str, method: str, other: str, score: str) -> dict[str, float | int] | None:
        """A method minus another on the splits that both have, with a test corrected for rows that splits share."""
        first, second = (self.values(table, name, score) for name in (method, other))
        common = sorted(first.keys() & second.keys())
        if not common:
            return None
        rows = self.rows[table]
        share = 0.0 if TABLES[table].is_fresh else rows["test"] / rows["train"]
        return paired([first[split] for split in common], [second[split] for split in common], share)

    def methods(self, task: str, table: str | None = None) -> list[Method]:
        """Those with a record, of a table or of any."""
        tables = [table] if table else [name for name, known in TABLES.items() if known.task == task]
        return [m for m in METHODS[task] if any(self.values(name, m.name, "fit") for name in tables)]

    def best_peer(self, table: str, score: str) -> str | None:
        """The peer with the best mean."""
        sign = -1 if score in HIGHER_IS_BETTER else 1
        means = {m.name: self.mean(table, m.name, score) for m in METHODS[TABLES[table].task] if not m.ours}
        known = {name: sign * mean for name, mean in means.items() if mean is not None}
        return min(known, key=lambda name: known[name]) if known else None

    def ranks(self, tables: Sequence[str], task: str, score: str) -> dict[str, tuple[float, int]]:
        """Each method's mean rank and on how many tables, by means over the splits that all methods of a table share."""
        sign, places = (-1 if score in HIGHER_IS_BETTER else 1), defaultdict(list)
        for table in tables:
            scored = {m.name: self.values(table, m.name, score) for m in METHODS[task]}
            scored = {name: values for name, values in scored.items() if values}
            common = set.intersection(*(set(values) for values in scored.values())) if scored else set()
            if common:
                means = [sign * float(np.mean([values[split] for split in common])) for values in scored.values()]
                for name, place in zip(scored, _ranked(means), strict=True):
                    places[name].append(place)
        return {name: (float(np.mean(found)), len(found)) for name, found in places.items()}


def _ranked(values: Sequence[float]) -> list[float]:
    """Ranks from 1; equal values share the mean of theirs."""
    numbers = np.array(values)
    return [float((numbers < value).sum() + ((numbers == value).sum() + 1) / 2) for value in numbers]


def is_significant(gap: Mapping[str, float | int]) -> bool:
    return bool(gap["p_value"] < SIGNIFICANT)
