"""Arrow values of any type → plain arrays, trimmed text, numbers.

Numbers in text may have currency signs, percent signs, thousands separators and a decimal comma.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from deep_ensembles._arrow import pa, pc

MISSING = (
    *("", "?", "-", "--", ".", "..", "na", "n/a", "n.a.", "#n/a", "#na", "<na>", "nan", "-nan", "nat", "null", "(null)"),
    *("none", "nil", "missing", "#value!", "#ref!", "#div/0!", "#name?", "#null!", "#num!"),
)
_LONGEST = max(map(len, MISSING))
_LARGEST_OFFSET = 2**31 - 1  # of Arrow's plain strings
_SIGNS = "$€£¥₹"
_GROUPS = {".": ",\\s'’_", ",": ".\\s'’_"}
_INFINITY = r"(?i)^\s*[+-]?inf(inity)?\s*$"


def _pattern(decimal: str) -> str:
    groups = rf"[1-9]\d{{0,2}}(?:[{_GROUPS[decimal]}]\d{{3}})+"
    number = rf"(?:(?:{groups}|\d+)(?:[{decimal}]\d*)?|[{decimal}]\d+)(?:[eE][+\-−]?\d+)?"
    signed = rf"[+\-−]?\s*[{_SIGNS}]?\s*[+\-−]?{number}\s*[%{_SIGNS}]?"
    return rf"^(?:{signed}|\({signed}\))$"


_PATTERNS = {decimal: _pattern(decimal) for decimal in _GROUPS}


def plain(values: pa.Array | pa.ChunkedArray) -> pa.Array:
    """One array, without dictionary; text of any length."""
    kind = values.type
    if pa.types.is_dictionary(kind):
        values, kind = values.cast(kind.value_type), kind.value_type
    long = pa.types.is_string(kind) and values.nbytes > _LARGEST_OFFSET
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
    missing = pc.and_(short, pc.is_in(pc.utf8_lower(trimmed), value_set=pa.array(MISSING, trimmed.type)))
    return pc.if_else(missing, pa.scalar(None, trimmed.type), trimmed) if pc.any(missing).as_py() else trimmed


def _as_text(values: pa.Array) -> pa.Array:
    if pa.types.is_floating(values.type):
        exact = floats(values)
        whole = np.isnan(exact) | ((exact == np.floor(exact)) & (np.abs(exact) < 2**53))
        values = pa.array(exact, mask=np.isnan(exact))
        if whole.all():
            values = values.cast(pa.int64())
    if pa.types.is_binary(values.type) or pa.types.is_large_binary(values.type):
        return text(pa.array([raw and raw.decode("utf-8", "replace") for raw in values.to_pylist()], pa.string()))
    return values.cast(pa.string())


def floats(values: pa.Array) -> NDArray[np.float64]:
    """Numbers as float64, NaN where missing or infinite; times of day and durations in seconds,
    timestamps in seconds since 1970.

    Example:
        >>> floats(pa.array([1, None])).tolist()
        [1.0, nan]
    """
    kind = values.type
    if pa.types.is_time(kind) or pa.types.is_duration(kind) or pa.types.is_timestamp(kind):
        per_second = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[kind.unit]
        return floats(values.cast(pa.int32() if kind.bit_width == 32 else pa.int64())) / per_second
    read = values.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    infinite = np.isinf(read)
    return np.where(infinite, np.nan, read) if infinite.any() else read


def nulls(values: pa.Array) -> NDArray[np.bool_]:
    """Which are null."""
    return values.is_null().to_numpy(zero_copy_only=False)


def flags(values: pa.Array) -> NDArray[np.bool_]:
    """Booleans of an array, False for null."""
    return pc.fill_null(values, False).to_numpy(zero_copy_only=False)


def parse_numbers(text: pa.Array, decimal: str) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Numbers in trimmed text and which texts are none; NaN for these, for null and for infinity.

    Example:
        >>> parse_numbers(pa.array(["1.234,5", "12 %", "(7 €)", "x"]), ",")[0].tolist()
        [1234.5, 12.0, -7.0, nan]
    """
    if decimal == ".":
        try:
            return floats(text.cast(pa.float64())), np.zeros(len(text), bool)
        except pa.ArrowInvalid:
            pass
    good = pc.match_substring_regex(text, _PATTERNS[decimal])
    infinite = pc.match_substring_regex(text, _INFINITY)
    tidy = pc.if_else(good, text, pa.scalar(None, text.type))
    tidy = pc.replace_substring_regex(tidy, r"[−(]", "-")
    tidy = pc.replace_substring_regex(tidy, rf"[^0-9eE+\-{decimal}]", "")
    read = floats(pc.replace_substring(tidy, decimal, ".").cast(pa.float64()))
    return read, flags(pc.invert(pc.or_(good, infinite)))


def decimal_mark(text: pa.Array, tie: str = ".") -> str:
    """The decimal mark under which most texts are numbers.

    Arguments:
        text: trimmed.
        tie: the mark where both read as many, as in 1,234.

    Example:
        >>> decimal_mark(pa.array(["1,234", "0,5"])), decimal_mark(pa.array(["1,234"]))
        (',', '.')
    """
    counts = {mark: pc.sum(pc.match_substring_regex(text, pattern)).as_py() or 0 for mark, pattern in _PATTERNS.items()}
    return tie if counts["."] == counts[","] else max(counts, key=lambda mark: counts[mark])


def plain_numbers(values: pa.Array) -> NDArray[np.float64] | None:
    """Numbers in text if all values are empty or written as programs write them, which is quick to see; else None.

    Example:
        >>> plain_numbers(pa.array(["1.5", "", "2e3"])), plain_numbers(pa.array(["1,5"]))
        (array([1.5e+00,     nan, 2.0e+03]), None)
    """
    try:
        return floats(values.cast(pa.float64()))
    except pa.ArrowInvalid:
        empty = pc.equal(pc.binary_length(values), 0)
    try:
        return floats(pc.if_else(empty, pa.scalar(None, values.type), values).cast(pa.float64()))
    except pa.ArrowInvalid:
        return None


def count_infinite(values: pa.Array) -> int:
    """How many values, numbers or text, are infinite.

    Example:
        >>> count_infinite(pa.array(["1", "-inf"])), count_infinite(pa.array([float("inf"), None]))
        (1, 1)
    """
    if is_text(values.type):
        return int(flags(pc.match_substring_regex(values, _INFINITY)).sum())
    return int(flags(pc.is_inf(values)).sum()) if pa.types.is_floating(values.type) else 0


def is_padded(text: pa.Array) -> bool:
    """Whether any text is a whole number with leading zeros, so that the texts are codes."""
    text = text.filter(pc.and_(pc.starts_with(text, "0"), pc.invert(pc.starts_with(text, "0."))))
    return bool(pc.any(pc.match_substring_regex(text, r"^0\d+$")).as_py())
