"""Numbers that people write: thousands separators, decimal commas, percent and currency signs."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from deep_ensembles._arrow import pa, pc
from deep_ensembles.columns._values import flags, floats, is_text

_SIGNS = "$€£¥₹"
_GROUPS = {".": ",\\s'’_", ",": ".\\s'’_"}
_ENDLESS = r"(?i)^\s*[+-]?inf(inity)?\s*$"


def _pattern(decimal: str) -> str:
    groups = rf"[1-9]\d{{0,2}}(?:[{_GROUPS[decimal]}]\d{{3}})+"
    number = rf"(?:(?:{groups}|\d+)(?:[{decimal}]\d*)?|[{decimal}]\d+)(?:[eE][+\-−]?\d+)?"
    signed = rf"[+\-−]?\s*[{_SIGNS}]?\s*[+\-−]?{number}\s*[%{_SIGNS}]?"
    return rf"^(?:{signed}|\({signed}\))$"


_PATTERNS = {decimal: _pattern(decimal) for decimal in _GROUPS}


def numbers(text: pa.Array, decimal: str) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Numbers in trimmed text and which texts are none; NaN for these, for null and for infinity.

    Example:
        >>> numbers(pa.array(["1.234,5", "12 %", "(7 €)", "x"]), ",")[0].tolist()
        [1234.5, 12.0, -7.0, nan]
    """
    if decimal == ".":
        try:
            return floats(text.cast(pa.float64())), np.zeros(len(text), bool)
        except pa.ArrowInvalid:
            pass
    good = pc.match_substring_regex(text, _PATTERNS[decimal])
    endless = pc.match_substring_regex(text, _ENDLESS)
    tidy = pc.if_else(good, text, pa.scalar(None, text.type))
    tidy = pc.replace_substring_regex(tidy, r"[−(]", "-")
    tidy = pc.replace_substring_regex(tidy, rf"[^0-9eE+\-{decimal}]", "")
    read = floats(pc.replace_substring(tidy, decimal, ".").cast(pa.float64()))
    return read, flags(pc.invert(pc.or_(good, endless)))


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


def count_endless(values: pa.Array) -> int:
    """How many values, numbers or text, are infinite.

    Example:
        >>> count_endless(pa.array(["1", "-inf"])), count_endless(pa.array([float("inf"), None]))
        (1, 1)
    """
    if is_text(values.type):
        return int(flags(pc.match_substring_regex(values, _ENDLESS)).sum())
    return int(flags(pc.is_inf(values)).sum()) if pa.types.is_floating(values.type) else 0


def is_padded(text: pa.Array) -> bool:
    """Whether any text is a whole number with leading zeros, so that the texts are codes."""
    text = text.filter(pc.and_(pc.starts_with(text, "0"), pc.invert(pc.starts_with(text, "0."))))
    return bool(pc.any(pc.match_substring_regex(text, r"^0\d+$")).as_py())
