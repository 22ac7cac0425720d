"""Columns that are no inputs but say something of rows: weights, groups and times."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from deep_ensembles._arrow import pa
from deep_ensembles.columns import date, number
from deep_ensembles.columns._values import is_date, is_text, plain, text
from deep_ensembles.columns.number import are_numbers
from deep_ensembles.table_files import TableError


def read_weights(name: str, values: pa.Array | pa.ChunkedArray) -> NDArray[np.float64]:
    """Weights of rows: numbers ≥ 0, none missing, not all 0.

    Example:
        >>> read_weights("w", pa.array(["1", "0.5"])).tolist()
        [1.0, 0.5]
    """
    weights = _complete(name, "weight", number(name, values).read(plain(values)))
    if (weights < 0).any():
        place = int(np.argmax(weights < 0))
        raise TableError(f"weights must be ≥ 0, but `{name}` is {weights[place]:g} in row {place + 1}")
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


def read_times(name: str, values: pa.Array | pa.ChunkedArray) -> NDArray[np.float64]:
    """Numbers, or dates in seconds since 1970, by which rows can be put in order; none missing.

    Example:
        >>> read_times("day", pa.array(["1970-01-02", "1970-01-01"])).tolist()
        [86400.0, 0.0]
    """
    values = plain(values)
    dated = is_date(values.type) or (is_text(values.type) and not are_numbers(text(values)))
    column = date(name, values) if dated else number(name, values)
    return _complete(name, "time", column.read(values))


def _complete(name: str, what: str, read: NDArray[np.float64]) -> NDArray[np.float64]:
    if np.isnan(read).any():
        raise TableError(f"every row needs a {what}, but `{name}` is missing in row {int(np.argmax(np.isnan(read))) + 1}")
    return read
