"""True and false, in the words that people use for them."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from deep_ensembles._arrow import pa, pc
from deep_ensembles.columns._column import Column, missing_values
from deep_ensembles.columns._parsing import NOTHING, flags, nulls, text

_PAIRS = (("true", "false"), ("t", "f"), ("yes", "no"), ("y", "n"), ("1", "0"), ("on", "off"), ("1.0", "0.0"),
          ("ja", "nein"), ("oui", "non"), ("sí", "no"), ("si", "no"), ("wahr", "falsch"), ("vrai", "faux"))  # fmt: skip
_TRUE, _FALSE = (sorted({pair[side] for pair in _PAIRS}) for side in (0, 1))


@dataclass(frozen=True)
class Boolean(Column):
    """1 for true, 0 for false, ½ for missing, with an input that marks missing values where training had enough of them.

    A count may have been 0 or 1 in all training rows: another number is unseen, and moved between both.

    Arguments:
        name: of the column.
        seen: the values that training had, some of False and True.
        missing: how many training values were missing.
        marked: whether an input marks missing values.

    Example:
        >>> column = boolean("paid", pa.array(["Yes", "no", "yes"]))
        >>> column.encode(pa.array([True, False, None])).tolist(), column.unseen(column.read(pa.array(["y", "?"]))).tolist()
        ([[1.0], [0.0], [0.5]], [False, True])
    """

    seen: tuple[bool, ...]

    readable = "yes or no"

    def parse(self, values: pa.Array) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        if pa.types.is_boolean(values.type):
            return np.where(nulls(values), np.nan, flags(values)), np.zeros(len(values), bool)
        words = pc.utf8_lower(text(values, NOTHING))
        true, false = (flags(pc.is_in(words, value_set=pa.array(side, words.type))) for side in (_TRUE, _FALSE))
        read, unknown = np.where(true, 1.0, np.where(false, 0.0, np.nan)), ~(true | false | nulls(words))
        if unknown.any():
            counts = unknown & flags(pc.match_substring_regex(words, r"^[+-]?\d{1,15}(\.\d{1,15})?$"))
            read[counts], unknown = words.filter(pa.array(counts)).cast(pa.float64()).to_numpy(), unknown & ~counts
        return read, unknown

    def values(self, read: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.where(np.isnan(read), 0.5, np.clip(read, 0, 1))

    def unseen_values(self, read: NDArray[np.float64]) -> NDArray[np.bool_]:
        return ~np.isin(read, self.seen)

    def description(self) -> str:
        return "yes or no" if len(self.seen) == 2 else f"yes or no, only {'yes' if self.seen[0] else 'no'}"


def boolean(name: str, values: pa.Array | pa.ChunkedArray, errors: str | None = None) -> Boolean:
    """A column of true and false as its values show it.

    Arguments:
        name: of the column.
        values: of training: booleans, 0 and 1, or words such as yes and no.
        errors: `missing` for values that cannot be read.

    Example:
        >>> boolean("paid", pa.array([1, 0, None])).summary()
        'yes or no, 1 missing'
    """
    read = Boolean(name, ()).read(values, errors or "refuse")
    seen = tuple(bool(value) for value in np.unique(read[~np.isnan(read)]))
    return Boolean(name, seen, **missing_values(int(np.isnan(read).sum()), len(read)))


def are_booleans(levels: list[str]) -> bool:
    """Whether distinct texts are one pair of words for true and false, each there.

    Example:
        >>> are_booleans(["Yes", "no"]), are_booleans(["yes", "true"])
        (True, False)
    """
    words = {level.lower() for level in levels}
    return len(words) == 2 and any(words == set(pair) for pair in _PAIRS)
