"""Which kind of column values make."""

from __future__ import annotations

import re

import numpy as np
from numpy.typing import NDArray

from deep_ensembles._arrow import pa, pc
from deep_ensembles.columns._calendar import date_pattern
from deep_ensembles.columns._numerals import is_padded, plain_numbers
from deep_ensembles.columns._values import flags, floats, is_date, is_number, is_text, nulls, plain, text
from deep_ensembles.columns.boolean import are_booleans
from deep_ensembles.columns.category import MOST_LEVELS
from deep_ensembles.columns.number import READABLE, written

DROP = "drop"
_IDENTIFIER = re.compile(
    r"(?i)(^|[_ .-])(id|ids|idx|index|key|uuid|guid|no|nr|row|rownames|row_?number|unnamed: ?\d+)$|^column_\d+$"
)
_CAMEL_IDENTIFIER = re.compile(r"[a-z](Id|ID)$")
_FRAME_INDEX = re.compile(r"__index_level_\d+__")
_FEW_ROWS = 10
_MANY_LEVELS = 1000


def kind_of(name: str, values: pa.Array | pa.ChunkedArray, decimal: str = ".") -> tuple[str, str]:
    """The kind of a column, or `drop`, and why.

    Arguments:
        name: of the column; a column of different whole numbers that is called an id is dropped.
        values: of training.
        decimal: the decimal mark where the text does not tell, as in 1,234.

    Example:
        >>> kind_of("x", pa.array(["1", "2.5"])), kind_of("x", pa.array([7, 7]))
        (('number', ''), ('drop', 'all its values are 7'))
    """
    return judged(name, plain(values), decimal)[:2]


def judged(name: str, values: pa.Array, decimal: str) -> tuple[str, str, pa.Array]:
    """As `kind_of`, and the values: as numbers, if it was found on the way that all are plainly written ones."""
    kind = values.type
    if _FRAME_INDEX.fullmatch(name):
        return DROP, "it is the index of a data frame", values
    if values.null_count == len(values):
        return DROP, "it has no values", values
    if is_text(kind):
        quick = plain_numbers(values)
        if quick is not None and not is_padded(values) and not _are_flags(quick):
            return *_kind_of_numbers(name, quick), values if np.isnan(quick).any() else pa.array(quick)
        return *_kind_of_text(name, values, decimal), values
    if is_number(kind):
        return *_kind_of_numbers(name, floats(values)), values
    if not (pa.types.is_boolean(kind) or is_date(kind)):
        return DROP, f"values of type {kind} cannot be inputs", values
    if not values.null_count and len(values.unique()) == 1:
        return DROP, f"all its values are {values[0].as_py()}", values
    return ("date" if is_date(kind) else "boolean"), "", values


def is_identifier(name: str, read: NDArray[np.float64]) -> bool:
    """Whether a column is called an id and holds whole numbers that are all different."""
    if not (_IDENTIFIER.search(name) or _CAMEL_IDENTIFIER.search(name)) or len(read) < _FEW_ROWS or np.isnan(read).any():
        return False
    return bool((read == np.floor(read)).all()) and len(np.unique(read)) == len(read)


def _kind_of_numbers(name: str, read: NDArray[np.float64]) -> tuple[str, str]:
    known = read[~np.isnan(read)]
    if not len(known):
        return DROP, "it has no values"
    low, high = known.min(), known.max()
    if low == high and len(known) == len(read):
        return DROP, f"all its values are {low:g}"
    if is_identifier(name, read):
        return DROP, "it numbers the rows: all its values are different"
    return "number", ""


def _kind_of_text(name: str, values: pa.Array, decimal: str) -> tuple[str, str]:
    """Goes by the different texts, which are often few, and how many rows each has."""
    counted = values.value_counts()
    texts, counts = text(counted.field("values")), counted.field("counts").to_numpy(zero_copy_only=False)
    lost = nulls(texts)
    levels, counts = texts.filter(pa.array(~lost)), counts[~lost]
    if not len(levels):
        return DROP, "it has no values"
    read, _, bad = written(levels, decimal)
    rows = int(counts.sum())
    if counts[bad].sum() <= (1 - READABLE) * rows and not is_padded(levels):
        if len(levels) == 2 and are_booleans(levels.to_pylist()):
            return "boolean", ""
        once = bool((counts == 1).all()) and not lost.any()
        return _kind_of_numbers(name, read if once else np.append(np.repeat(read, 2), np.nan if lost.any() else read[:0]))
    different = levels.unique()
    if len(different) == 1:
        return ("category", "") if lost.any() else (DROP, f"all its values are {different[0].as_py()!r}")
    if len(different) <= 4 and are_booleans(different.to_pylist()):
        return "boolean", ""
    return ("date", "") if date_pattern(different, READABLE) else _kind_of_words(different, rows)


def _are_flags(read: NDArray[np.float64]) -> bool:
    known = read[~np.isnan(read)]
    return bool(np.isin(known, (0, 1)).all())


def _kind_of_words(levels: pa.Array, rows: int) -> tuple[str, str]:
    wordy = flags(pc.match_substring_regex(levels, r"\pL\pM*[\pP]*\s+[\pP]*\pL")).mean() > 0.5
    nearly_all_differ = rows >= _FEW_ROWS and len(levels) >= 0.9 * rows
    if nearly_all_differ and not wordy:
        return DROP, "it names the rows: nearly all its values are different"
    if nearly_all_differ or (wordy and len(levels) > max(MOST_LEVELS, rows / 10)) or len(levels) > _MANY_LEVELS:
        return "text", ""
    return "category", ""
