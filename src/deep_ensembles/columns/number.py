"""Numbers, as such or as text."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from deep_ensembles._arrow import pa, pc
from deep_ensembles.columns._column import Column, check_readable, words_among
from deep_ensembles.columns._numerals import count_endless, decimal_mark, numbers, plain_numbers
from deep_ensembles.columns._spread import moderate, spread_of
from deep_ensembles.columns._values import floats, is_number, is_text, plain, text

READABLE = 0.9


@dataclass(frozen=True)
class Number(Column):
    """A number about its median in units of its spread; see `moderate` for heavy tails and absurd values.

    Missing and infinite values become the median, with an input that marks them where training had enough of them.

    Arguments:
        name: of the column.
        low: the least value of training.
        high: the largest.
        middle: the median.
        scale: the spread.
        missing: how many training values were missing.
        marked: whether an input marks missing values.
        decimal: the decimal mark of numbers in text.
        words: texts that training took as missing values.
        infinite: how many of the missing were infinite numbers.

    Example:
        >>> column = number("age", pa.array(["20", "30", "n/a", "40"]))
        >>> column.encode(pa.array([40, None])).tolist(), column.outside(pa.array([41.0, 20.0])).tolist()
        ([[1.0, 0.0], [0.0, 1.0]], [True, False])
    """

    name: str
    low: float
    high: float
    middle: float
    scale: float
    missing: int = 0
    marked: bool = False
    decimal: str = "."
    words: tuple[str, ...] = ()
    infinite: int = 0

    @property
    def value_names(self) -> tuple[str, ...]:
        return (self.name,)

    def read(self, values: pa.Array, errors: str = "refuse", first_row: int = 1) -> NDArray[np.float64]:
        values = plain(values)
        may_be_plain = self.decimal == "." or not is_text(values.type)
        if may_be_plain and (quick := _plainly_written(values)) is not None:
            return quick
        texts = text(values)
        read, bad = numbers(texts, self.decimal)
        check_readable(self.name, "number", texts, bad, errors, first_row, self.words)
        return read

    def values(self, read: NDArray[np.float64]) -> NDArray[np.float64]:
        return moderate(read, self.middle, self.scale, (self.low, self.high))

    def unseen(self, read: NDArray[np.float64]) -> NDArray[np.bool_]:
        return (read < self.low) | (read > self.high)

    def described(self) -> str:
        return f"number, {self.low:.6g} to {self.high:.6g}{', decimal comma' if self.decimal == ',' else ''}"

    def in_words(self) -> str:
        special = [*map(repr, self.words[:3]), *([f"{self.infinite} infinite"] if self.infinite else [])]
        return super().in_words() + (f" ({', '.join(special)} among them)" if special else "")


def number(name: str, values: pa.Array | pa.ChunkedArray, decimal: str = ".") -> Number:
    """A column of numbers as its values show it.

    Text may have some values that are no numbers, up to a tenth; they are taken as missing, and kept by name.

    Arguments:
        name: of the column.
        values: of training.
        decimal: the decimal mark where the text does not tell, as in 1,234.

    Example:
        >>> number("price", pa.array(["1.234,50", "7,25"])).in_words()
        'number, 7.25 to 1234.5, decimal comma'
    """
    values = plain(values)
    words: tuple[str, ...] = ()
    read, mark = _plainly_written(values), "."
    if read is None:
        texts = text(values)
        read, mark, bad = written(texts, decimal)
        check_readable(name, "number", texts, bad, "missing" if _are_few(bad, texts) else "refuse", 1)
        words = words_among(texts, bad)
    spread = spread_of(name, "number", read)
    infinite = count_endless(values) if spread["missing"] > values.null_count else 0
    return Number(name, **spread, decimal=mark, words=words, infinite=infinite)


def _plainly_written(values: pa.Array) -> NDArray[np.float64] | None:
    """Values that are numbers already, or that programs wrote as text; else None."""
    if is_number(values.type) or pa.types.is_boolean(values.type):
        return floats(values)
    return plain_numbers(values) if is_text(values.type) else None


def written(texts: pa.Array, tie: str = ".") -> tuple[NDArray[np.float64], str, NDArray[np.bool_]]:
    """Numbers in trimmed text, the decimal mark that they are read with, and which texts are none."""
    mark = decimal_mark(texts, tie) if pc.any(pc.match_substring(texts, ",")).as_py() else "."
    read, bad = numbers(texts, mark)
    return read, mark, bad


def are_numbers(texts: pa.Array) -> bool:
    """Whether nearly all texts that are there are numbers."""
    return len(texts) > texts.null_count and _are_few(written(texts)[2], texts)


def _are_few(bad: NDArray[np.bool_], texts: pa.Array) -> bool:
    return bool(bad.sum() <= (1 - READABLE) * (len(texts) - texts.null_count))
