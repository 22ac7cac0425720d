"""Columns that are no inputs but say something of rows: weights, groups and times."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from deep_ensembles._arrow import pa, pc
from deep_ensembles.columns import date, number
from deep_ensembles.columns._values import is_date, is_text, plain, text
from deep_ensembles.columns.number import are_numbers
from deep_ensembles.table_files import TableError


def read_weights(
    name: str, values: pa.Array | pa.ChunkedArray, rows: NDArray[np.int64] | None = None
) -> NDArray[np.float64]:
    """Weights of rows: numbers ≥ 0, none missing, not all 0.

    Arguments:
        rows: the numbers of those that count, from 0; all by default.

    Example:
        >>> read_weights("w", pa.array(["1", "0.5"])).tolist()
        [1.0, 0.5]
    """
    known, rows = _of_rows(values, rows)
    weights = _complete(name, "weight", number(name, known).read(known), rows)
    if (weights < 0).any():
        place = int(np.argmax(weights < 0))
        raise TableError(f"weights must be ≥ 0, but `{name}` is {weights[place]:g} in row {rows[place] + 1}")
    if not weights.any():
        raise TableError(f"weights must not all be 0, but those of `{name}` are")
    return weights


def read_groups(name: str, values: pa.Array | pa.ChunkedArray) -> NDArray[np.int64]:
    """Codes of groups from 0 in the order of their first rows; rows without a group are one of their own.

    Example:
        >>> read_groups("house", pa.array(["b", "a", None, "b"])).tolist()
        [0, 1, 2, 0]
    """
    codes = text(values).dictionary_encode("encode")
    if len(codes.dictionary) < 2:
        raise TableError(f"groups must be at least two, but `{name}` has {len(codes.dictionary)}")
    return codes.indices.to_numpy(zero_copy_only=False).astype(np.int64)


def read_times(name: str, values: pa.Array | pa.ChunkedArray, rows: NDArray[np.int64] | None = None) -> NDArray[np.float64]:
    """Numbers, or dates in seconds since 1970, by which rows can be put in order; none missing.

    Arguments:
        rows: the numbers of those that count, from 0; all by default.

    Example:
        >>> read_times("day", pa.array(["1970-01-02", "1970-01-01"])).tolist()
        [86400.0, 0.0]
    """
    known, rows = _of_rows(values, rows)
    dated = is_date(known.type) or (is_text(known.type) and not are_numbers(text(known)))
    column = date(name, known) if dated else number(name, known)
    return _complete(name, "time", column.read(known), rows)


def _of_rows(values: pa.Array | pa.ChunkedArray, rows: NDArray[np.int64] | None) -> tuple[pa.Array, NDArray[np.int64]]:
    """The column with other rows' values made missing, so that messages count the rows of the whole table; and the rows."""
    whole = plain(values)
    if rows is None:
        return whole, np.arange(len(whole))
    counts = np.zeros(len(whole), dtype=bool)
    counts[rows] = True
    return pc.if_else(pa.array(counts), whole, pa.scalar(None, whole.type)), rows


def _complete(name: str, what: str, read: NDArray[np.float64], rows: NDArray[np.int64]) -> NDArray[np.float64]:
    own = read[rows]
    if np.isnan(own).any():
        row = rows[int(np.argmax(np.isnan(own)))] + 1
        raise TableError(f"every row needs a {what}, but `{name}` is missing in row {row}")
    return own
