"""The base class of all kinds of columns, and the errors that unusable tables and values raise."""

import textwrap
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from difflib import get_close_matches
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deep_ensembles._arrow import pa
from deep_ensembles._checks import require
from deep_ensembles.columns._parsing import is_text, plain, text

_MOST_WORDS, _MOST_SHOWN = 50, 60


class TableError(ValueError):
    """A table that cannot be used; the message names the file or column, the place and the cure."""


def check_known(owner: str, wanted: Iterable[str], names: Sequence[str]) -> None:
    """Raise for the first name that is not among those of the columns, with the one that may have been meant.

    Example:
        >>> check_known("houses.csv", ["pirce"], ["size", "price"])
        Traceback (most recent call last):
        deep_ensembles.columns._column.TableError: houses.csv has no column `pirce`; did you mean `price`?
    """
    known = set(names)
    lacking = next((name for name in wanted if name not in known), None)
    if lacking is None:
        return
    by_folded = {name.casefold(): name for name in reversed(names)}
    close = get_close_matches(lacking.casefold(), by_folded, 1)
    some = textwrap.shorten(", ".join(names[:20]) + ", …" * (len(names) > 20), 200, placeholder=" …")
    hint = f"did you mean `{by_folded[close[0]]:.60}`?" if close else f"it has {some}"
    raise TableError(f"{owner} has no column `{lacking:.60}`; {hint}")


class UnreadableValue(ValueError):
    """A value that a column cannot read; `column`, `value` and `row` say which, `count` how many there are."""

    def __init__(self, column: str, value: str, row: int, kind: str, count: int = 1) -> None:
        value = value if len(value) <= _MOST_SHOWN else f"{value[:_MOST_SHOWN]}…"
        super().__init__(f"column `{column}`: {value!r} in row {row} is not a {kind}; correct it, leave it empty, "
                         "or take such values as missing with errors=\"missing\" (--errors missing)")  # fmt: skip
        self.column, self.value, self.row, self.kind, self.count = column, value, row, kind, count

    def note(self) -> str:
        """What to say where such values are taken as missing."""
        several = f"{self.count} value{'s' * (self.count > 1)} of `{self.column}`"
        return f"{several}, the first {self.value!r} in row {self.row}, cannot be read: taken as missing"


class TakenAsMissing:
    """Counts the values that columns cannot read: passed as `errors`, it takes them as missing and remembers them.

    Example:
        >>> from deep_ensembles.columns import Boolean
        >>> unreadable = TakenAsMissing()
        >>> Boolean("paid", (False, True)).read(pa.array(["yes", "perhaps", "?"]), unreadable).tolist()
        [1.0, nan, nan]
        >>> unreadable.notes()
        ["1 value of `paid`, the first 'perhaps' in row 2, cannot be read: taken as missing"]
    """

    def __init__(self) -> None:
        self.found: dict[str, UnreadableValue] = {}
        self._lock = Lock()  # batches may be read side by side

    def add(self, error: UnreadableValue) -> None:
        """Remember values of a column: how many there are, and the first by row."""
        with self._lock:
            known = self.found.get(error.column)
            first = error if known is None else min(error, known, key=lambda each: each.row)
            count = error.count + (known.count if known else 0)
            self.found[error.column] = UnreadableValue(first.column, first.value, first.row, first.kind, count)

    def notes(self) -> list[str]:
        """A line for each column, for people."""
        return [error.note() for error in self.found.values()]


Errors = str | TakenAsMissing


@dataclass(frozen=True)
class Column(ABC):
    """A column as training saw it: it turns values of a table into inputs of a network.

    A kind is a frozen dataclass of plain numbers, texts and tuples. It says how values are read (`parse`), which inputs they
    become (`values`, `value_names`), which of them training did not see (`unseen_values`), and what it is (`description`).
    Missing values are the same for every kind: an input marks them where training had enough of them.

    Arguments:
        name: of the column.
        missing: how many training values were missing.
        marked: whether an input marks missing values.
    """

    name: str
    _: KW_ONLY
    missing: int = 0
    marked: bool = False

    @property
    def sources(self) -> tuple[str, ...]:
        """The columns of a table that it is read from; by default the one of its name."""
        return (self.name,)

    def cells(self, rows: pa.RecordBatch | pa.Table) -> pa.Array | pa.ChunkedArray:
        """What `read` reads of a table."""
        return rows.column(self.sources[0])

    @property
    def value_names(self) -> tuple[str, ...]:
        """A name for each input but the one that marks missing values; by default there is one other input."""
        return (self.name,)

    @abstractmethod
    def parse(self, values: pa.Array) -> tuple[NDArray[Any], NDArray[np.bool_]]:
        """Values as the kind sees them, one number or row of numbers each, NaN where missing; and which cannot be read."""

    @property
    def readable(self) -> str:
        """What values must be, in messages."""
        return type(self).__name__.lower()

    def read(self, values: pa.Array, errors: Errors = "refuse", first_row: int = 1) -> NDArray[Any]:
        """Values as the kind sees them, one number or row of numbers each; NaN where missing. Each text is parsed once.

        Arguments:
            values: of any type that holds them: text, or what Parquet stores.
            errors: `refuse` unreadable values with an `UnreadableValue`, or take them as `missing`; see `TakenAsMissing`.
            first_row: the number of the first value in messages.
        """
        is_counted = isinstance(errors, TakenAsMissing)
        require(is_counted or errors in ("refuse", "missing"), "errors", "'refuse' or 'missing'", errors)
        values = plain(values)
        read, bad = self.parse_each(values)
        if errors != "missing" and bad.any():
            place = int(np.argmax(bad))
            value = text(values.slice(place, 1))[0].as_py()
            error = UnreadableValue(self.name, value, first_row + place, self.readable, int(bad.sum()))
            if not isinstance(errors, TakenAsMissing):
                raise error
            errors.add(error)
        return read

    def parse_each(self, values: pa.Array) -> tuple[NDArray[Any], NDArray[np.bool_]]:
        """As `parse`, where different texts are few."""
        if not is_text(values.type):
            return self.parse(values)
        levels = values.dictionary_encode("encode")
        read, bad = self.parse(levels.dictionary)
        codes = levels.indices.to_numpy(zero_copy_only=False)
        return read[codes], bad[codes]

    @abstractmethod
    def values(self, read: NDArray[Any]) -> NDArray[Any]:
        """Finite inputs, one or a row of them for each of what was read, whether missing or not."""

    @abstractmethod
    def unseen_values(self, read: NDArray[Any]) -> NDArray[np.bool_]:
        """Which of what was read training did not see, `[row]`; what it says of missing values is not looked at."""

    @abstractmethod
    def description(self) -> str:
        """Kind, range or levels, for people."""

    @property
    def input_names(self) -> tuple[str, ...]:
        """A name for each input."""
        return (*self.value_names, *(f"{self.name} is missing",) * self.marked)

    @property
    def width(self) -> int:
        """How many inputs the column becomes."""
        return len(self.input_names)

    def summary(self) -> str:
        """The description, and how many values are missing."""
        return self.description() + (f", {self.missing} missing" if self.missing else "")

    def inputs(self, read: NDArray[Any]) -> NDArray[np.float32]:
        """Finite inputs `[row, width]` of what was read."""
        marks = [is_missing(read)] if self.marked else []
        return np.column_stack([self.values(read), *marks]).astype(np.float32, copy=False)

    def unseen(self, read: NDArray[Any]) -> NDArray[np.bool_]:
        """Which of what was read training did not see, `[row]`: missing values too, where it had none."""
        return np.where(is_missing(read), self.missing == 0, self.unseen_values(read))

    def encode(self, values: pa.Array, errors: Errors = "refuse", first_row: int = 1) -> NDArray[np.float32]:
        """Inputs `[row, width]` of values; arguments as for `read`."""
        return self.inputs(self.read(values, errors, first_row))


def is_missing(read: NDArray[Any]) -> NDArray[np.bool_]:
    """Which of what a column read is missing, `[row]`."""
    return np.isnan(read if read.ndim == 1 else read[:, 0])


def unreadable_words(values: pa.Array, bad: NDArray[np.bool_]) -> tuple[str, ...]:
    """The different values that cannot be read, as text, at most 50."""
    return tuple(sorted(text(values.filter(pa.array(bad))).unique().to_pylist())[:_MOST_WORDS])


def missing_values(count: int, rows: int) -> dict[str, Any]:
    """What a column of so many rows keeps of its missing values: how many there are, and whether an input marks them."""
    return {"missing": count, "marked": frequent_enough(count, rows)}


def frequent_enough(count: int, rows: int) -> bool:
    """Whether so many of the rows are worth an input that marks them: a mark of fewer than 1 row in 1000 would be more than
    30 standard deviations high, and say little."""
    return count > 0 and count * 1000 >= rows


def fields_from(data: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a dataclass from JSON, whose lists were tuples."""
    return {name: tuple(value) if isinstance(value, list) else value for name, value in data.items()}
