"""A table, read and understood: inputs, targets and roles of its rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deep_ensembles._arrow import pa
from deep_ensembles._random import Purpose, run_seeds, stream
from deep_ensembles.runs import hold_out
from deep_ensembles.table_files import TableError, open_table
from deep_ensembles.table_schema import Target, read_groups, read_times, read_weights, understand_target
from deep_ensembles.tables import Table
from deep_ensembles.tabular._settings import TableSettings

Say = Callable[[str | Table], None]
LEAST_ROWS = 10
_FEW_ROWS, _MOST_HELD_OUT = 150, 20_000


@dataclass(frozen=True, eq=False)
class TableData:
    """The rows of a table that have a target.

    Arguments:
        table: all their columns.
        target: what is predicted.
        y: numbers, or codes of classes.
        rows: their numbers in the table as it was read, from 0.
        weights, groups, times: what columns say of rows; None where there is none.
        decimal: the likely decimal mark.
    """

    table: pa.Table
    target: Target
    y: NDArray[Any]
    rows: NDArray[np.int64]
    weights: NDArray[np.float64] | None
    groups: NDArray[np.int64] | None
    times: NDArray[np.float64] | None
    decimal: str

    def __len__(self) -> int:
        return len(self.y)

    def select(self, rows: NDArray[np.int64]) -> pa.Table:
        """Some rows."""
        return self.table.take(pa.array(rows))


def read_data(data: Any, settings: TableSettings, say: Say) -> TableData:
    """Read a table whole, and say what its target is and which rows are left out."""
    files = open_table(data)
    _check_columns(files.names, settings)
    whole = files.read()
    for note in files.notes:
        say(f"note: {note}")
    decimal = "," if files.decimal_comma_likely else "."
    target, y, kept = understand_target(settings.target, whole[settings.target], settings.task, decimal)
    table = whole.filter(pa.array(kept))
    say(target.reason)
    for note in target.notes:
        say(f"note: {note}")
    rows = np.flatnonzero(kept)
    weights = None if settings.weights is None else read_weights(settings.weights, whole[settings.weights], rows)
    if weights is not None:
        say(f"note: rows count in training as `{settings.weights}` says, in scores each counts once")
    if weights is not None and not weights.all():
        counted = weights > 0
        say(f"note: {(~counted).sum()} rows of weight 0 are left out")
        table, y, rows, weights = table.filter(pa.array(counted)), y[counted], rows[counted], weights[counted]
    if len(y) < LEAST_ROWS:
        raise TableError(f"at least {LEAST_ROWS} rows with a target are needed, got {len(y)}")
    groups = None if settings.group is None else read_groups(settings.group, table[settings.group])
    times = None if settings.time is None else read_times(settings.time, whole[settings.time], rows)
    return TableData(table, target, y, rows, weights, groups, times, decimal)


def _check_columns(names: tuple[str, ...], settings: TableSettings) -> None:
    asked = (settings.target, *settings.roles, *settings.drop, *settings.kinds)
    if lacking := [name for name in asked if name not in names]:
        shown = ", ".join(names[:20]) + (", …" if len(names) > 20 else "")
        raise TableError(f"the table has no column `{lacking[0]}`; it has {shown}")
    if settings.target in settings.roles or settings.target in settings.drop:
        raise TableError(f"`{settings.target}` is the target and cannot be anything else")


def split_rows(data: TableData, settings: TableSettings) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(rows to train on, rows held out): the latest, or whole groups, or a random share of each class."""
    n = len(data)
    rows = np.arange(n)
    share = settings.holdout
    if share is None:
        share = 0.0 if n < _FEW_ROWS and data.times is None and data.groups is None else 0.2
    wanted = min(round(share * n), _MOST_HELD_OUT)
    if wanted == 0:
        return rows, rows[:0]
    if data.times is not None:
        held = np.zeros(n, dtype=bool)
        # Rows of the same moment stay together: those later than the last one that is trained on.
        held[data.times > np.sort(data.times)[n - wanted - 1]] = True
        if not held.any():
            raise TableError(f"`{settings.time}` is the same in the latest rows, so that none can be held out")
        return rows[~held], rows[held]
    generator = stream(run_seeds(settings.seed, 1)[0], Purpose.VALIDATION, 1)
    if data.groups is not None:
        order = generator.permutation(int(data.groups.max()) + 1)
        sizes = np.bincount(data.groups)[order]
        enough = int(np.searchsorted(np.cumsum(sizes), wanted)) + 1
        held = np.isin(data.groups, order[: min(enough, len(order) - 1)])
        return rows[~held], rows[held]
    strata = data.y.astype(np.int64) if data.target.classes else None
    return hold_out(rows, wanted / n, generator, strata)
