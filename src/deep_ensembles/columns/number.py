"""Numbers, as such or as text; scaled by median and quartiles, so that outliers do not matter."""

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from deep_ensembles._arrow import pa, pc
from deep_ensembles.columns import _parsing as parsing
from deep_ensembles.columns._column import Column, check_readable, missing_values, unreadable_words
from deep_ensembles.columns._units import infer_numbers, parse_numbers

READABLE = 0.9  # the share of texts that must be numbers or dates for the column to be of that kind
_HEAVY_TAIL, _LARGEST_INPUT = 20.0, 1e6


@dataclass(frozen=True)
class Number(Column):
    """A number about its median in units of its spread; see `robust_scale` for heavy tails and outliers.

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
        words: texts that training took as missing values, though no gaps.
        infinite: how many of the missing were infinite numbers.
        unit: of numbers in text, as in 450 kg; numbers without one are taken to have it.
        converted: other units of training, converted to that one; empty for numbers without.
        others: units that do not convert, whose numbers are missing here, and in a column of their own.
        gaps: words for missing values.
        source: the column of the table, where it is not the name.

    Example:
        >>> column = number("age", pa.array(["20", "30", "n/a", "40"]))
        >>> column.encode(pa.array([40, None])).tolist(), column.unseen(column.read(pa.array([41.0, 20.0]))).tolist()
        ([[1.0, 0.0], [0.0, 1.0]], [True, False])
    """

    low: float
    high: float
    middle: float
    scale: float
    decimal: str = "."
    words: tuple[str, ...] = ()
    infinite: int = 0
    unit: str = ""
    converted: tuple[str, ...] = ()
    others: tuple[str, ...] = ()
    gaps: tuple[str, ...] = ()
    source: str = ""

    @property
    def sources(self) -> tuple[str, ...]:
        return (self.source or self.name,)

    def read(self, values: pa.Array, errors: str = "refuse", first_row: int = 1) -> NDArray[np.float64]:
        values = parsing.plain(values)
        may_be_plain = (self.decimal == "." and not self.others) or not parsing.is_text(values.type)
        if may_be_plain and (quick := quick_numbers(values)) is not None:
            return quick
        texts = parsing.text(values, (*self.gaps, *self.words))
        found = parse_numbers(texts, self.decimal, self.unit, self.others)
        check_readable(self.name, "number" + f" in {self.unit}" * bool(self.unit), texts, found.bad, errors, first_row)
        return found.read

    def values(self, read: NDArray[np.float64]) -> NDArray[np.float64]:
        return robust_scale(read, self.middle, self.scale, (self.low, self.high))

    def unseen_values(self, read: NDArray[np.float64]) -> NDArray[np.bool_]:
        return (read < self.low) | (read > self.high)

    @property
    def unit_in_words(self) -> str:
        """The unit, and those that were converted; empty for none."""
        also = [name or "none" for name in self.converted]
        return f" in {self.unit}" * bool(self.unit) + f" (converted from {', '.join(also)})" * bool(also)

    def description(self) -> str:
        comma = ", decimal comma" * (self.decimal == ",")
        return f"number{self.unit_in_words}, {self.low:.6g} to {self.high:.6g}{comma}"

    def summary(self) -> str:
        words = [*self.gaps, *self.words]
        special = [*map(repr, words[:3]), *([f"{self.infinite} infinite"] if self.infinite else [])]
        return super().summary() + (f" ({', '.join(special)} among them)" if special else "")


def number(name: str, values: pa.Array | pa.ChunkedArray, decimal: str = ".", errors: str | None = None) -> Number:
    """A column of numbers as its values show it.

    Text may have some values that are no numbers, up to a tenth; they are taken as missing, and kept by name.

    Arguments:
        name: of the column.
        values: of training.
        decimal: the decimal mark where the text does not tell, as in 1,234.
        errors: `missing` for any number of values that cannot be read.

    Example:
        >>> number("price", pa.array(["1.234,50", "7,25"])).summary()
        'number, 7.25 to 1234.5, decimal comma'
    """
    return numbers_apart(name, values, decimal, errors)[0]


def numbers_apart(
    name: str, values: pa.Array | pa.ChunkedArray, decimal: str = ".", errors: str | None = None
) -> tuple[Number, ...]:
    """As `number`; where there are several units that do not convert, a column for each.

    Example:
        >>> [column.summary() for column in numbers_apart("pay", pa.array(["5 USD", "7 USD", "9 EUR", "2 EUR"]))]
        ['number in USD, 5 to 7, 2 missing', 'number in EUR, 2 to 9, 2 missing']
    """
    values = parsing.plain(values)
    if (read := quick_numbers(values)) is not None:
        return (_finished(Number(name, 0.0, 0.0, 0.0, 1.0), values, read),)
    column = draft_number(name, *parsing.levels_of(parsing.text(values)), decimal).column
    texts = parsing.text(values, column.gaps)
    bad = parse_numbers(texts, column.decimal, column.unit, column.others).bad
    check_readable(name, "number", texts, bad, errors or ("missing" if _few(bad, ~parsing.nulls(texts)) else "refuse"), 1)
    column, units = replace(column, words=unreadable_words(texts, bad)), {column.unit, *column.others}
    columns = [column] if len(units) == 1 else [
        replace(column, name=f"{name} in {unit}", source=name, unit=unit, others=tuple(sorted(units - {unit})))
        for unit in (column.unit, *column.others)
    ]  # fmt: skip
    return tuple(_finished(one, values, one.read(values)) for one in columns)


def _finished(column: Number, values: pa.Array, read: NDArray[np.float64]) -> Number:
    statistics = column_statistics(column.name, "number", read)
    infinite = parsing.count_infinite(values) if statistics["missing"] > values.null_count else 0
    return replace(column, **statistics, infinite=infinite)


class Draft(NamedTuple):
    """A column of numbers without statistics, the numbers of different texts, which are neither that nor gaps, and whether
    these are few."""

    column: Number
    read: NDArray[np.float64]
    bad: NDArray[np.bool_]
    is_number: bool


def draft_number(name: str, levels: pa.Array, counts: NDArray[np.int64], decimal: str = ".", clocks: bool = False) -> Draft:
    """What different texts say of a column of numbers.

    Arguments:
        counts: how many rows have each text.
        decimal: the decimal mark where the text does not tell, as in 1,234.
        clocks: whether 1:23:45 is a duration even if no text has more than a day.
    """
    found = infer_numbers(levels, decimal, counts, clocks)
    gaps = parsing.gap_words(levels, counts, found.bad)
    there = ~parsing.flags(pc.is_in(levels, pa.array(gaps, levels.type)))
    column = Number(name, 0.0, 0.0, 0.0, 1.0, decimal=found.decimal, unit=found.unit, converted=found.converted, gaps=gaps)
    bad, counts = found.bad & there, counts * there
    if found.others and not _few(bad, counts):
        apart = parse_numbers(levels, found.decimal, found.unit, found.others).bad & there
        if _few(apart, counts):
            column, bad = replace(column, others=found.others, converted=()), apart
    return Draft(column, found.read, bad, _few(bad, counts) and bool(counts.any()))


def quick_numbers(values: pa.Array) -> NDArray[np.float64] | None:
    """Values that are numbers already, or that programs wrote as text; else None."""
    if parsing.is_number(values.type) or pa.types.is_boolean(values.type):
        return parsing.floats(values)
    return parsing.plain_numbers(values) if parsing.is_text(values.type) else None


def are_numbers(texts: pa.Array) -> bool:
    """Whether nearly all texts that are there are numbers."""
    return draft_number("", *parsing.levels_of(texts)).is_number


def _few(bad: NDArray[np.bool_], counts: NDArray[Any]) -> bool:
    """Whether bad values are few among all that are there."""
    return bool(counts[bad].sum() <= (1 - READABLE) * counts.sum())


def median_and_scale(values: NDArray[np.float64]) -> tuple[float, float]:
    """The median, and the distance between the quartiles; where that is 0, the mean distance from the median.

    Example:
        >>> median_and_scale(np.array([1.0, 2, 3, 4, 100]))
        (3.0, 2.0)
    """
    first, middle, third = np.quantile(values / 4, (0.25, 0.5, 0.75)) * 4
    spread = third - first
    if not spread > 0:
        spread = np.abs(values / 4 - middle / 4).mean() * 4
    return float(middle), float(spread) if 0 < spread < np.inf else 1.0


def column_statistics(name: str, kind: str, read: NDArray[np.float64]) -> dict[str, Any]:
    """What numbers and dates keep of their training values: range, median and scale, and how many are missing."""
    known = read[~np.isnan(read)]
    if not len(known):
        raise ValueError(f"column `{name}` has no {kind} in it; leave it out")
    middle, scale = median_and_scale(known)
    ends = {"low": float(known.min()), "high": float(known.max())}
    return {**ends, "middle": middle, "scale": scale, **missing_values(len(read) - len(known), len(read))}


def robust_scale(values: NDArray[np.float64], middle: float, scale: float, ends: tuple[float, float]) -> NDArray[np.float64]:
    r"""Values about their middle in units of their scale, $z = (x - m) / s$, compressed and bounded.

    Where training had values of $|z| > 20$, $\operatorname{arsinh} z$ takes the place of z: a signed logarithm.
    What lies more than the length of the training range outside it is moved to there, so that no single outlier decides
    what a network predicts. NaN, for missing, becomes the middle, 0.

    Arguments:
        values: in float64, so that large offsets keep their digits.
        middle: m.
        scale: s.
        ends: the least and the largest value of training.

    Example:
        >>> robust_scale(np.array([3.0, 5.0, np.nan, 1e30]), 3.0, 2.0, (1.0, 7.0)).tolist()
        [0.0, 1.0, 0.0, 5.0]
    """
    with np.errstate(over="ignore"):
        low, high = ((end - middle) / scale for end in ends)
        inputs = values - middle
        inputs /= scale
    if max(abs(low), abs(high)) > _HEAVY_TAIL:
        low, high = float(np.arcsinh(low)), float(np.arcsinh(high))
        np.arcsinh(inputs, out=inputs)
    low, high = max(low, -_LARGEST_INPUT), min(high, _LARGEST_INPUT)
    np.clip(inputs, 2 * low - high, 2 * high - low, out=inputs)
    np.copyto(inputs, 0, where=np.isnan(inputs))
    return inputs
