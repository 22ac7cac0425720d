"""Rows worth a look, and columns that left the range of training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from deep_ensembles._checks import require
from deep_ensembles.report._facts import Vector
from deep_ensembles.report.evaluation import Example, Outside
from deep_ensembles.report.wording import cell

_ROWS = 10
_EXAMPLES = 3

Columns = Mapping[str, Any]


def examples(badness: Vector, values: Mapping[str, Sequence[Any] | Vector], columns: Columns | None) -> list[Example]:
    """The worst rows by some measure, the worst first.

    Arguments:
        badness: by which rows are ordered; rows of 0 or less are not shown.
        values: what is told of each row, by name.
        columns: the cells, by column; anything that NumPy makes an array of one value per row.

    Example:
        >>> examples(np.array([1.0, 3.0, 0.0]), {"error": [1.0, 3.0, 0.0]}, {"age": [20, 30, 40]})[0]
        Example(row=1, values={'error': 3.0}, columns={'age': '30'})
    """
    worst = [int(i) for i in np.argsort(-badness, kind="stable")[:_ROWS] if badness[i] > 0]
    cells = {str(name): _picked(str(name), column, worst, len(badness)) for name, column in (columns or {}).items()}
    return [
        Example(row, {name: _one(each, row) for name, each in values.items()}, {name: cells[name][place] for name in cells})
        for place, row in enumerate(worst)
    ]


def outside_range(names: Sequence[Any], values: np.ndarray, low: Any, high: Any) -> list[Outside]:
    """Columns of numbers with values below or above what training saw, those with most such rows first.

    Arguments:
        names: of the columns.
        values: the numbers of the rows.
        low, high: the range of each column in training.

    Shape:
        values `[row, column]`, low and high `[column]`.

    Example:
        >>> outside_range(["age"], np.array([[20.0], [99.0]]), [18.0], [65.0])
        [Outside(column='age', seen='18 to 65', rows=1, share=0.5, examples=('99',))]
    """
    found = []
    for place, name in enumerate(names):
        column, least, most = values[:, place], float(low[place]), float(high[place])
        beyond = np.maximum(least - column, column - most)
        out = np.flatnonzero(beyond > 0)
        if len(out):
            farthest = out[np.argsort(-beyond[out], kind="stable")]
            shown = tuple(dict.fromkeys(cell(each) for each in column[farthest[:100]].tolist()))[:_EXAMPLES]
            seen = f"{cell(least)} to {cell(most)}"
            found.append(Outside(str(name), seen, len(out), len(out) / len(column), shown))
    return sorted(found, key=lambda each: -each.rows)


def _picked(name: str, column: Any, rows: list[int], n_rows: int) -> list[str]:
    array = column if hasattr(column, "take") else np.asarray(column)
    require(len(array) == n_rows, "columns", f"{n_rows} values each, one per row", f"{len(array)} of {name!r}")
    return [cell(value) for value in np.asarray(array.take(rows)).tolist()] if rows else []


def _one(values: Any, row: int) -> float | str | None:
    value = values[row]
    return value if isinstance(value, str) or value is None else float(value)
