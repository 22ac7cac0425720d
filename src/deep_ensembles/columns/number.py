"""Numbers, as such or as text."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from deep_ensembles._arrow import pa, pc
from deep_ensembles.columns._column import Column, check_readable, enough, missing_words, not_among, words_among
from deep_ensembles.columns._numerals import count_endless, decimal_mark, numbers, plain_numbers
from deep_ensembles.columns._spread import middle_and_scale, moderate
from deep_ensembles.columns._values import flags, floats, is_number, is_text, plain, text

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
    def input_names(self) -> tuple[str, ...]:
        return (self.name, f"{self.name} is missing") if self.marked else (self.name,)

    def read(self, values: pa.Array, errors: str = "refuse", first_row: int = 1) -> NDArray[np.float64]:
        values = plain(values)
        if is_number(values.type) or pa.types.is_boolean(values.type):
            return floats(values)
        if self.decimal == "." and is_text(values.type) and (quick := plain_numbers(values)) is not None:
            return quick
        texts = text(values)
        read, bad = numbers(texts, self.decimal)
        check_readable(self.name, "number", texts, not_among(texts, bad, self.words), errors, first_row)
        return read

    def inputs(self, read: NDArray[np.float64]) -> NDArray[np.float32]:
        encoded = np.empty((len(read), self.width), np.float32)
        encoded[:, 0] = moderate(read, self.middle, self.scale, (self.low, self.high))
        if self.marked:
            encoded[:, 1] = np.isnan(read)
        return encoded

    def beyond(self, read: NDArray[np.float64]) -> NDArray[np.bool_]:
        outside = (read < self.low) | (read > self.high)
        return outside if self.missing else outside | np.isnan(read)

    def in_words(self) -> str:
        mark = ", decimal comma" if self.decimal == "," else ""
        special = [*map(repr, self.words[:3]), *([f"{self.infinite} infinite"] if self.infinite else [])]
        among = f" ({', '.join(special)} among them)" if special else ""
        return f"number, {self.low:.6g} to {self.high:.6g}{mark}{missing_words(self.missing)}{among}"


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
    if is_number(values.type) or pa.types.is_boolean(values.type):
        read, decimal = floats(values), "."
    elif is_text(values.type) and (quick := plain_numbers(values)) is not None:
        read, decimal = quick, "."
    else:
        texts = text(values)
        read, decimal, bad = written(texts, decimal)
        few = bad.sum() <= (1 - READABLE) * (len(texts) - texts.null_count)
        check_readable(name, "number", texts, bad, "missing" if few else "refuse", 1)
        words = words_among(texts, bad)
    known = read[~np.isnan(read)]
    if not len(known):
        raise ValueError(f"column `{name}` has no number in it; leave it out")
    missing = len(read) - len(known)
    middle, scale = middle_and_scale(known)
    marked = enough(missing, len(read))
    infinite = count_endless(values) if missing > values.null_count else 0
    ends = float(known.min()), float(known.max())
    return Number(name, *ends, middle, scale, missing, marked, decimal, words, infinite)


def written(texts: pa.Array, tie: str = ".") -> tuple[NDArray[np.float64], str, NDArray[np.bool_]]:
    """Numbers in trimmed text, the decimal mark that they are read with, and which texts are none."""
    read, bad = numbers(texts, ".")
    with_comma = pc.any(pc.match_substring(texts, ",")).as_py()
    if not with_comma or decimal_mark(texts, tie) == ".":
        return read, ".", bad
    read, bad = numbers(texts, ",")
    return read, ",", bad


def are_numbers(texts: pa.Array, tie: str = ".") -> bool:
    """Whether nearly all texts that are there are numbers."""
    bad = written(texts, tie)[2]
    return len(texts) > texts.null_count and bool(bad.sum() <= (1 - READABLE) * flags(texts.is_valid()).sum())
