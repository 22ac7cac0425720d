"""Values of any type as plain arrays, trimmed text or numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from deep_ensembles._arrow import pa, pc

MISSING = (
    *("", "?", "-", "--", ".", "..", "na", "n/a", "n.a.", "#n/a", "#na", "<na>", "nan", "-nan", "nat", "null", "(null)"),
    *("none", "nil", "missing", "#value!", "#ref!", "#div/0!", "#name?", "#null!", "#num!"),
)
_LONGEST = max(map(len, MISSING))
_OFFSETS_END = 2**31 - 1


def plain(values: pa.Array | pa.ChunkedArray) -> pa.Array:
    """One array, without dictionary; text of any length."""
    kind = values.type
    if pa.types.is_dictionary(kind):
        values, kind = values.cast(kind.value_type), kind.value_type
    long = pa.types.is_string(kind) and values.nbytes > _OFFSETS_END
    if long or pa.types.is_null(kind) or pa.types.is_string_view(kind):
        values = values.cast(pa.large_string())
    return values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values


def is_text(kind: Any) -> bool:
    return pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)


def is_number(kind: Any) -> bool:
    types = pa.types
    return types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind) or types.is_duration(kind)


def is_date(kind: Any) -> bool:
    return pa.types.is_date(kind) or pa.types.is_timestamp(kind) or pa.types.is_time(kind)


def text(values: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Trimmed text, with null for missing values and the words for them; whole numbers without a fraction.

    Example:
        >>> text(pa.array([" a ", "N/A", ""])).to_pylist(), text(pa.array([3.0, None])).to_pylist()
        (['a', None, None], ['3', None])
    """
    values = plain(values)
    if not is_text(values.type):
        return _as_text(values)
    trimmed = pc.utf8_trim_whitespace(values)
    short = pc.less_equal(pc.binary_length(trimmed), _LONGEST)
    if not pc.any(short).as_py():
        return trimmed
    lost = pc.and_(short, pc.is_in(pc.utf8_lower(trimmed), value_set=pa.array(MISSING, trimmed.type)))
    return pc.if_else(lost, pa.scalar(None, trimmed.type), trimmed) if pc.any(lost).as_py() else trimmed


def _as_text(values: pa.Array) -> pa.Array:
    if pa.types.is_floating(values.type):
        exact = floats(values)
        whole = np.isnan(exact) | ((exact == np.floor(exact)) & (np.abs(exact) < 2**53))
        values = pa.array(exact, mask=np.isnan(exact))
        if whole.all():
            values = values.cast(pa.int64())
    if pa.types.is_binary(values.type) or pa.types.is_large_binary(values.type):
        return text(pa.array([each and each.decode("utf-8", "replace") for each in values.to_pylist()], pa.string()))
    return values.cast(pa.string())


def floats(values: pa.Array) -> NDArray[np.float64]:
    """Numbers as float64, NaN where missing or infinite; times of day and durations in seconds.

    Example:
        >>> floats(pa.array([1, None])).tolist()
        [1.0, nan]
    """
    kind = values.type
    if pa.types.is_time(kind) or pa.types.is_duration(kind):
        per_second = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[kind.unit]
        return floats(values.cast(pa.int32() if kind.bit_width == 32 else pa.int64())) / per_second
    read = values.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    endless = np.isinf(read)
    return np.where(endless, np.nan, read) if endless.any() else read


def nulls(values: pa.Array) -> NDArray[np.bool_]:
    """Which are null."""
    return values.is_null().to_numpy(zero_copy_only=False)


def flags(values: pa.Array) -> NDArray[np.bool_]:
    """Booleans of an array, False for null."""
    return pc.fill_null(values, False).to_numpy(zero_copy_only=False)
