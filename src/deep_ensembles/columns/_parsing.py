"""Arrow values of any type → plain arrays, trimmed text, plain numbers; which texts are codes, and which are gaps."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from deep_ensembles._arrow import pa, pc

MISSING = ("", "?", "-", "--", ".", "..", "na", "n/a", "n.a.", "#n/a", "#na", "<na>", "nan", "-nan", "nat", "null", "(null)",
           "missing", "#value!", "#ref!", "#div/0!", "#name?", "#null!", "#num!")  # fmt: skip
NOTHING = ("none", "None", "NONE", "nil", "Nil", "NIL")  # gaps where numbers or dates are read, and levels elsewhere
# Words that are gaps where other values are numbers or dates, and levels elsewhere.
_GAPS = (*NOTHING,
         "n/d", "n.d.", "nd", "no data", "n/k", "unknown", "not known", "not available", "not applicable", "not specified",
         "not reported", "unspecified", "undefined", "no answer", "no value", "tbd", "tba", "k.a.", "k. a.", "keine angabe",
         "keine angaben", "ohne angabe", "unbekannt", "inconnu", "desconocido", "sin datos", "s/d", "blank", "empty", "\\n",
         "*", "#", "/", "–", "—", "---", "...", "…")  # fmt: skip
_LONGEST = max(map(len, MISSING))
_LARGEST_OFFSET = 2**31 - 1  # of Arrow's plain strings


def plain(values: pa.Array | pa.ChunkedArray) -> pa.Array:
    """One array, without dictionary; text of any length."""
    kind = values.type
    if pa.types.is_dictionary(kind) and pa.types.is_string_view(kind.value_type):  # of polars; nothing casts it as a whole
        chunks = values.chunks if isinstance(values, pa.ChunkedArray) else [values]
        words = [chunk.dictionary.cast(pa.large_string()).take(chunk.indices) for chunk in chunks]
        values, kind = pa.chunked_array(words, pa.large_string()), pa.large_string()
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


def text(values: pa.Array | pa.ChunkedArray, gaps: tuple[str, ...] = ()) -> pa.Array:
    """Trimmed text, with null for missing values, the words for them and other gaps; whole numbers without a fraction.

    Example:
        >>> text(pa.array([" a ", "N/A", ""])).to_pylist(), text(pa.array([3.0, None])).to_pylist()
        (['a', None, None], ['3', None])
    """
    values = plain(values)
    trimmed = pc.utf8_trim_whitespace(values) if is_text(values.type) else _as_text(values)
    short = pc.less_equal(pc.binary_length(trimmed), _LONGEST)
    if is_text(values.type) and pc.any(short).as_py():
        trimmed = _without(trimmed, pc.and_(short, pc.is_in(pc.utf8_lower(trimmed), pa.array(MISSING, trimmed.type))))
    return _without(trimmed, pc.is_in(trimmed, pa.array(gaps, trimmed.type))) if gaps else trimmed


def _without(texts: pa.Array, missing: pa.Array) -> pa.Array:
    return pc.if_else(missing, pa.scalar(None, texts.type), texts) if pc.any(missing).as_py() else texts


def levels_of(texts: pa.Array) -> tuple[pa.Array, NDArray[np.int64]]:
    """The different texts that are there, and how many rows have each."""
    counted = texts.drop_null().value_counts()
    return counted.field("values"), counted.field("counts").to_numpy(zero_copy_only=False)


def gap_words(levels: pa.Array, counts: NDArray[np.int64], bad: NDArray[np.bool_]) -> tuple[str, ...]:
    """Those of different texts that are gaps, as the others are numbers or dates: words such as n/d, and one more without a
    digit that is repeated beside at least 10 values.

    Example:
        >>> gap_words(pa.array(["unknown", "huge", "1"]), np.array([3, 1, 5]), np.array([True, True, False]))
        ('unknown',)
    """
    known = flags(pc.is_in(pc.utf8_lower(levels), pa.array(_GAPS, levels.type))) & bad
    words = bad & ~known & flags(pc.match_substring_regex(levels, r"^\PN*\pL\PN*\pL\PN*$"))
    if words.sum() == 1 and (~bad).sum() >= 10 and counts[words] >= max(2, 0.01 * counts.sum()):
        known |= words
    return tuple(levels.filter(pa.array(known)).to_pylist())


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
    """Numbers as float64, NaN where missing; times of day and durations in seconds, timestamps in seconds since 1970.

    Example:
        >>> floats(pa.array([1, None])).tolist()
        [1.0, nan]
    """
    kind = values.type
    if pa.types.is_time(kind) or pa.types.is_duration(kind) or pa.types.is_timestamp(kind):
        per_second = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[kind.unit]
        return floats(values.cast(pa.int32() if kind.bit_width == 32 else pa.int64())) / per_second
    return values.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)


def nulls(values: pa.Array) -> NDArray[np.bool_]:
    """Which are null."""
    return values.is_null().to_numpy(zero_copy_only=False)


def unread(texts: pa.Array, read: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Which texts are there, but were not read as a number."""
    return np.isnan(read) & ~nulls(texts)


def flags(values: pa.Array) -> NDArray[np.bool_]:
    """Booleans of an array, False for null."""
    return pc.fill_null(values, False).to_numpy(zero_copy_only=False)


def plain_numbers(values: pa.Array) -> NDArray[np.float64] | None:
    """Finite numbers, as such or in text if all values are empty or written as programs write them, which is quick to see;
    None where there is anything else.

    Example:
        >>> plain_numbers(pa.array(["1.5", "", "2e3"])), plain_numbers(pa.array(["1,5"]))
        (array([1.5e+00,     nan, 2.0e+03]), None)
    """
    if is_text(values.type):
        try:
            values = _without(values, pc.equal(pc.binary_length(values), 0)).cast(pa.float64())
        except pa.ArrowInvalid:
            return None
    elif not (is_number(values.type) or pa.types.is_boolean(values.type)):
        return None
    read = floats(values)
    return None if np.isinf(read).any() else read


def are_codes(text: pa.Array) -> bool:
    """Whether texts that could be numbers are codes: any is a whole number with leading zeros, is like a phone number, or is
    like 3E5 where none has a decimal mark or a signed exponent.

    Example:
        >>> [are_codes(pa.array(texts)) for texts in (["7", "08"], ["3E5", "812"], ["3e5", "0.1"], ["+49 170 123 456"])]
        [True, True, False, True]
    """
    if pc.any(pc.match_substring_regex(text, r"^0\d+$|^\+\d+( \d+){2,}$")).as_py():
        return True
    exponents = pc.any(pc.match_substring_regex(text, r"^\d+[eE]\d+$")).as_py()
    return bool(exponents and not pc.any(pc.match_substring_regex(text, r"\.\d|,\d|[eE][+-]")).as_py())
