"""Numbers, as such or as text; scaled by median and quartiles, so that outliers do not matter."""

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from deep_ensembles._arrow import pa, pc
from deep_ensembles.columns import _parsing as parsing
from deep_ensembles.columns._column import Column, missing_values, unreadable_words
from deep_ensembles.columns._units import infer_numbers, parse_numbers

READABLE = 0.9  # the share of texts that must be numbers or dates for the column to be of that kind
_HEAVY_TAIL, _LARGEST_INPUT = 20.0, 1e6


@dataclass(frozen=True)
class Number(Column):
    """A number about its median in units of its spread; see `robust_scale` for heavy tails and outliers.

    Missing values become the median, with an input that marks them where training had enough of them; infinite ones cannot
    be read.

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
        unit: of numbers in text, as in 450 kg; numbers without one are taken to have it.
        converted: other units of training, converted to that one; empty for numbers without.
        gaps: words for missing values.

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
    unit: str = ""
    converted: tuple[str, ...] = ()
    gaps: tuple[str, ...] = ()

    @property
    def readable(self) -> str:
        return "number" + f" in {self.unit}" * bool(self.unit)

    def parse_each(self, values: pa.Array) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        quick = parsing.plain_numbers(values) if self.decimal == "." or not parsing.is_text(values.type) else None
        return super().parse_each(values) if quick is None else (quick, np.zeros(len(quick), bool))

    def parse(self, values: pa.Array) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        decimal = self.decimal if parsing.is_text(values.type) else "."
        return parse_numbers(parsing.text(values, (*self.gaps, *self.words)), decimal, self.unit)

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
        words = ", ".join(map(repr, (*self.gaps, *self.words)[:3]))
        return super().summary() + f" ({words} among them)" * bool(words)


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
    values = parsing.plain(values)
    column = Number(name, 0.0, 0.0, 0.0, 1.0)
    if parsing.plain_numbers(values) is None:
        if parsing.is_text(values.type):
            column = draft_number(name, *parsing.levels_of(parsing.text(values)), decimal).column
        there = ~parsing.nulls(parsing.text(values, column.gaps))
        bad = column.parse_each(values)[1]
        column.read(values, errors or ("missing" if few(bad, there) else "refuse"))
        column = replace(column, words=unreadable_words(values, bad))
    return replace(column, **column_statistics(name, "number", column.read(values, "missing")))


class Draft(NamedTuple):
    """A column of numbers without statistics, the numbers of different texts, whether nearly all texts are some, and units
    that do not convert into that of the column."""

    column: Number
    read: NDArray[np.float64]
    is_number: bool
    others: tuple[str, ...]


def draft_number(name: str, levels: pa.Array, counts: NDArray[np.int64], decimal: str = ".", clocks: bool = False) -> Draft:
    """What different texts say of a column of numbers.

    Arguments:
        counts: how many rows have each text.
        decimal: the decimal mark where the text does not tell, as in 1,234.
        clocks: whether 1:23:45 is a duration even if no text has more than a day.
    """
    found = infer_numbers(levels, decimal, counts, clocks)
    gaps = parsing.gap_words(levels, counts, found.bad)
    counts = counts * ~parsing.flags(pc.is_in(levels, pa.array(gaps, levels.type)))
    column = Number(name, 0.0, 0.0, 0.0, 1.0, decimal=found.decimal, unit=found.unit, converted=found.converted, gaps=gaps)
    return Draft(column, found.read, few(found.bad, counts) and bool(counts.any()), found.others)


def few(bad: NDArray[np.bool_], counts: NDArray[Any]) -> bool:
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
