"""What a kind of column promises, and the errors it raises."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deep_ensembles._arrow import pa, pc
from deep_ensembles._checks import require
from deep_ensembles.columns._values import flags

_MOST_WORDS = 50


class UnreadableValue(ValueError):
    """A value that a column cannot read; `column`, `value` and `row` say which."""

    def __init__(self, column: str, value: str, row: int, kind: str) -> None:
        super().__init__(
            f"column `{column}`: {value!r} in row {row} is not a {kind}; correct it, leave it empty, "
            "or have unreadable values taken as missing (errors: missing)"
        )
        self.column, self.value, self.row, self.kind = column, value, row, kind


class Column(ABC):
    """A column as it was understood in training: it turns values of a table into numbers for a network.

    A kind is a frozen dataclass of plain numbers, texts and tuples. It says how values are read (`read`), which inputs they
    become (`inputs`, `input_names`) and which of them training did not see (`beyond`); the rest follows from these.
    """

    name: str

    @property
    @abstractmethod
    def input_names(self) -> tuple[str, ...]:
        """A name for each input."""

    @abstractmethod
    def read(self, values: pa.Array, errors: str = "refuse", first_row: int = 1) -> NDArray[Any]:
        """Values as the kind sees them, one entry or row each.

        Arguments:
            values: of any type that holds them: text, or what Parquet stores.
            errors: `refuse` unreadable values with an `UnreadableValue`, or take them as `missing`.
            first_row: the number of the first value in messages.
        """

    @abstractmethod
    def inputs(self, read: NDArray[Any]) -> NDArray[np.float32]:
        """Finite inputs `[row, width]` of what was read."""

    @abstractmethod
    def beyond(self, read: NDArray[Any]) -> NDArray[np.bool_]:
        """Which of what was read lies outside what training saw, `[row]`."""

    @abstractmethod
    def in_words(self) -> str:
        """What was understood, for people."""

    @property
    def width(self) -> int:
        """How many inputs the column becomes."""
        return len(self.input_names)

    def encode(self, values: pa.Array, errors: str = "refuse", first_row: int = 1) -> NDArray[np.float32]:
        """Inputs `[row, width]` of values; arguments as for `read`."""
        return self.inputs(self.read(values, errors, first_row))

    def outside(self, values: pa.Array, errors: str = "refuse", first_row: int = 1) -> NDArray[np.bool_]:
        """Which values lie outside what training saw, `[row]`; arguments as for `read`."""
        return self.beyond(self.read(values, errors, first_row))


def check_readable(column: str, kind: str, text: pa.Array, bad: NDArray[np.bool_], errors: str, first_row: int) -> None:
    """Raise for the first bad value, unless bad values are to be taken as missing."""
    require(errors in ("refuse", "missing"), "errors", "'refuse' or 'missing'", errors)
    if errors == "refuse" and bad.any():
        place = int(np.argmax(bad))
        raise UnreadableValue(column, text[place].as_py(), first_row + place, kind)


def words_among(texts: pa.Array, bad: NDArray[np.bool_]) -> tuple[str, ...]:
    """The different texts that are bad, up to a number."""
    return tuple(sorted(texts.filter(pa.array(bad)).unique().to_pylist())[:_MOST_WORDS])


def not_among(texts: pa.Array, bad: NDArray[np.bool_], words: tuple[str, ...]) -> NDArray[np.bool_]:
    """Those bad texts that are none of the words."""
    if not words or not bad.any():
        return bad
    return bad & ~flags(pc.is_in(texts, value_set=pa.array(words, texts.type)))


def enough(count: int, rows: int) -> bool:
    """Whether an input that marks `count` of so many rows is worth having: a mark of fewer than 1 in 1000 would be more
    than 30 standard deviations high, and say little."""
    return count > 0 and count * 1000 >= rows


def missing_words(count: int) -> str:
    """How many are missing, as the end of a sentence.

    Example:
        >>> missing_words(12), missing_words(0)
        (', 12 missing', '')
    """
    return f", {count} missing" if count else ""
