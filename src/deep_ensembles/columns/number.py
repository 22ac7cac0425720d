"""Numbers, as such or as text, with units or without; scaled by median and quartiles, so that outliers do not matter."""

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from deep_ensembles._arrow import pa, pc
from deep_ensembles.columns import _parsing as parsing
from deep_ensembles.columns._column import Column, missing_values, unreadable_words

READABLE = 0.9  # the share of texts that must be numbers or dates for the column to be of that kind
_HEAVY_TAIL, _LARGEST_INPUT = 20.0, 1e6
# Units of a line convert; a number says how many of a common unit each is.
_CONVERTIBLE = tuple(
    {name: float(factor) for name, factor in (pair.split("=") for pair in line.split())}
    for line in (
        "mg=1e-6 g=1e-3 kg=1 t=1e3 oz=0.028349523125 lb=0.45359237",
        "mm=1e-3 cm=1e-2 m=1 km=1e3 in=0.0254 ft=0.3048 yd=0.9144 mi=1609.344 mile=1609.344",
        "ms=1e-3 s=1 sec=1 second=1 m=60 min=60 minute=60 h=3600 hr=3600 hour=3600 d=86400 day=86400 w=604800 week=604800",
        "mo=1 month=1 y=12 yr=12 year=12", "ml=1e-3 cl=1e-2 dl=0.1 l=1 L=1 hl=100",
        "cm²=1e-4 m²=1 m2=1 sqm=1 ha=1e4 km²=1e6 km2=1e6", "W=1 kW=1e3 MW=1e6 GW=1e9", "Wh=1 kWh=1e3 MWh=1e6 GWh=1e9",
        "J=1 kJ=1e3 MJ=1e6", "cal=1 kcal=1e3", "Hz=1 kHz=1e3 MHz=1e6 GHz=1e9", "Pa=1 hPa=100 mbar=100 kPa=1e3 bar=1e5",
        "mV=1e-3 V=1 kV=1e3", "mA=1e-3 A=1", "km/h=1 kmh=1 kph=1 m/s=3.6 mph=1.609344", "°C=1", "°F=1", "%=1 ‰=0.1",
        "B=1 KB=1e3 kB=1e3 MB=1e6 GB=1e9 TB=1e12",
    )
)  # fmt: skip
_TIMES = _CONVERTIBLE[2]
_SIGNS = {"$": "USD", "US$": "USD", "€": "EUR", "£": "GBP", "¥": "JPY", "₹": "INR"}
_CURRENCIES = ("AUD", "BRL", "CAD", "CHF", "CNY", "CZK", "DKK", "EUR", "GBP", "HKD", "INR", "JPY", "KRW", "MXN", "NOK",
               "NZD", "PLN", "RUB", "SEK", "SGD", "TRY", "USD", "ZAR")  # fmt: skip
_MANY = {"k": 1e3, "K": 1e3, "thousand": 1e3, "Tsd.": 1e3, "M": 1e6, "mn": 1e6, "million": 1e6, "Mio": 1e6, "Mio.": 1e6,
         "B": 1e9, "bn": 1e9, "billion": 1e9, "Mrd": 1e9, "Mrd.": 1e9}  # fmt: skip
_KNOWN = {*_SIGNS, *_CURRENCIES, *(unit for units in _CONVERTIBLE for unit in units)}
_FOLDED = {unit.casefold(): unit for unit in sorted(_KNOWN)}
_WITHOUT_SAYING = ("", "%", *sorted(set(_SIGNS.values())))  # what a column without a unit reads all the same
_LOOKED_AT, _MOST_ASKED = 1000, 200  # rows, and columns, that tell the decimal mark of a table
_GROUPS = {".": ",\\s'’_", ",": ".\\s'’_"}
_PART = r"(?:(?P<{}>\d+(?:[.,]\d+)?)\s*{})?[\s,]*"
_WORDS = ("w(?:ee)?k?s?", "d(?:ays?)?", "h(?:(?:ou)?rs?)?", "m(?:in(?:ute)?s?)?", "s(?:ec(?:ond)?s?)?")
_DURATION = "(?i)^-?P?{}{}T?{}{}{}$".format(*(_PART.format(word[0], word) for word in _WORDS))
_CLOCK = r"^-?(?:(?P<d>\d+) days?,? )?(?P<h>\d+):(?P<m>[0-5]\d):(?P<s>[0-5]\d(?:[.,]\d+)?)$"


@dataclass(frozen=True)
class Scaled(Column):
    """A column of values about their median in units of their spread; see `robust_scale` for heavy tails and outliers.

    Arguments:
        low: the least value of training.
        high: the largest.
        middle: the median.
        scale: the spread.
    """

    _: KW_ONLY
    low: float = 0.0
    high: float = 0.0
    middle: float = 0.0
    scale: float = 1.0

    def values(self, read: NDArray[np.float64]) -> NDArray[np.float64]:
        return robust_scale(read, self.middle, self.scale, (self.low, self.high))

    def unseen_values(self, read: NDArray[np.float64]) -> NDArray[np.bool_]:
        return (read < self.low) | (read > self.high)


@dataclass(frozen=True)
class Number(Scaled):
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
        return parse_numbers(parsing.text(values, (*self.gaps, *self.words, *parsing.NOTHING)), decimal, self.unit)

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
    column = Number(name)
    if parsing.plain_numbers(values) is None or dots_are_groups(values, decimal):
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
    """What different texts say of a column of numbers: the unit that most have, to which others are converted.

    Arguments:
        levels: the texts, trimmed.
        counts: how many rows have each text.
        decimal: the decimal mark where the text does not tell, as in 1,234.
        clocks: whether 1:23:45 is a duration even if no text has more than a day.

    Example:
        >>> draft = draft_number("mass", pa.array(["450 g", "1.2 kg", "3 kg", "2", "5 USD"]), np.ones(5, int))
        >>> draft.read.tolist(), draft.column.unit, draft.column.converted, draft.others
        ([0.45, 1.2, 3.0, 2.0, nan], 'kg', ('', 'g'), ('USD',))
    """
    marks = r"[.,]" if decimal == "," else ","
    mark = decimal_mark(levels, decimal) if pc.any(pc.match_substring_regex(levels, marks)).as_py() else "."
    read, codes, units = _split(levels, mark)
    rows = np.bincount(codes, np.where(np.isnan(read), 0, counts), len(units))
    totals = {unit: float(total) for unit, total in zip(units, rows, strict=True) if total}
    unit = max((unit for unit in totals if unit), key=lambda unit: totals[unit], default="")
    factors = _factors(unit, totals)
    unit = "min" if unit == "m" and "h" in factors else unit
    read = read * np.array([factors.get(other, np.nan) for other in units])[codes]
    converted = tuple(sorted(other for other in totals if other != unit and (other == "" or factors.get(other, 1) != 1)))
    # Where most texts are no numbers, or words are no known units, people did not mix units.
    mixed = 2 * sum(totals.values()) > counts.sum() and totals.keys() <= {"", *_KNOWN}
    others = tuple(sorted(other for other in totals if other not in factors)) if mixed else ()
    if parsing.unread(levels, read).any() and np.isnan(lasting := _durations(levels, clocks)).sum() < np.isnan(read).sum():
        unit = next((unit for unit in ("day", "h", "min") if np.nanmedian(lasting) >= _TIMES[unit]), "s")
        read, converted, others = lasting / _TIMES[unit], (), ()
    bad = parsing.unread(levels, read)
    gaps = parsing.gap_words(levels, counts, bad)
    counts = counts * ~parsing.flags(pc.is_in(levels, pa.array(gaps, levels.type)))
    column = Number(name, decimal=mark, unit=unit, converted=converted, gaps=gaps)
    return Draft(column, read, few(bad, counts) and bool(counts.any()), others)


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


def _either(words: Iterable[str]) -> str:
    escaped = [word.replace(".", r"\.").replace("$", r"\$") for word in sorted(words, key=lambda word: (-len(word), word))]
    return f"(?:{'|'.join(escaped)})"


def _pattern(decimal: str) -> str:
    """Currency, number, thousands or millions, unit; a word that is no known unit stands apart from the number."""
    groups = rf"[1-9]\d{{0,2}}(?:[{_GROUPS[decimal]}]\d{{3}})+"
    number = rf"(?:(?:{groups}|\d+)(?:[{decimal}]\d*)?|[{decimal}]\d+)(?:[eE][+\-−]?\d+)?"
    currency, word = _either([*_SIGNS, *_CURRENCIES]), r"[\pL°/][^\s\d()]{0,14}(?: \pL{1,9}\.?)?"
    many = rf"(?P<many>[kKMB]|\s?{_either(word for word in _MANY if len(word) > 1)})"
    unit = rf"{many}(?:\s*(?P<of>{currency})|\s+(?P<things>{word}))?|\s*(?P<known>{_either(_KNOWN)}s?)|\s+(?P<word>{word})"
    signed = rf"[+\-−]?\s*(?P<before>{currency})?\s*[+\-−]?(?P<number>{number})(?:{unit})?"
    return rf"^\(?{signed}\)?$"


_PATTERNS = {decimal: _pattern(decimal) for decimal in _GROUPS}


def parse_numbers(text: pa.Array, decimal: str, unit: str = "") -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Finite numbers in trimmed text in a unit that is known, and which texts are none. Where no unit is known, currency and
    percent signs are dropped.

    Example:
        >>> parse_numbers(pa.array(["1.234,5", "12 %", "(7 €)", "x"]), ",")[0].tolist()
        [1234.5, 12.0, -7.0, nan]
        >>> parse_numbers(pa.array(["2", "1h 30m", "45 min", "3 kg"]), ".", "h")[0].tolist()
        [2.0, 1.5, 0.75, nan]
    """
    if decimal == "." and (quick := parsing.plain_numbers(text)) is not None:
        return quick, np.zeros(len(text), bool)
    read, codes, units = _split(text, decimal)
    factors = dict.fromkeys(_WITHOUT_SAYING, 1.0) if unit == "" else _factors(unit)
    read = read * np.array([factors.get(name, np.nan) for name in units])[codes]
    if unit in _TIMES and np.isnan(read).any():
        read = np.where(np.isnan(read), _durations(text) / _TIMES[unit], read)
    return read, parsing.unread(text, read)


def _factors(unit: str, totals: Mapping[str, float] = {}) -> dict[str, float]:
    """What units convert with into one, numbers without a unit too; of several kinds that fit, that which most rows have."""
    kinds = [kind for kind in _CONVERTIBLE if unit in kind] or [{unit: 1.0}]
    kind = max(kinds, key=lambda kind: sum(rows for name, rows in totals.items() if name in kind))
    return {"": 1.0} | {name: factor / kind[unit] for name, factor in kind.items()}


def _split(text: pa.Array, decimal: str) -> tuple[NDArray[np.float64], NDArray[np.int64], list[str]]:
    """Numbers, NaN where there is none; and the unit of each text, as a place in a list of units that is never empty."""
    pieces = pc.extract_regex(text, _PATTERNS[decimal])
    number, many = pieces.field("number"), pc.utf8_trim_whitespace(pieces.field("many"))
    digits = pc.replace_substring_regex(pc.replace_substring(number, "−", "-"), rf"[^0-9eE+\-{decimal}]", "")
    filled = pc.if_else(pieces.is_valid(), pc.replace_substring(digits, decimal, "."), pa.scalar(None, text.type))
    factors = np.array([*_MANY.values(), 1.0])[pc.index_in(many, pa.array(list(_MANY), many.type)).fill_null(len(_MANY))]
    negative = parsing.flags(pc.match_substring_regex(text, r"^[^0-9]*[-−(]"))
    parts = [*map(pieces.field, ("before", "of", "known", "things", "word")), pa.scalar(" ", text.type)]
    codes = pc.utf8_trim_whitespace(pc.binary_join_element_wise(*parts)).dictionary_encode()
    read = parsing.floats(filled.cast(pa.float64())) * factors * np.where(negative, -1, 1)
    read[np.isinf(read)] = np.nan
    # 2B may be a flat: B is a billion of money, or where digits follow a decimal mark.
    read[parsing.flags(pc.match_substring_regex(text, r"^\d+B$|^\([^)]*$|^[^(]*\)$"))] = np.nan
    places = codes.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    return read, places, [*map(_canonical, codes.dictionary.to_pylist()), ""]


def _canonical(written: str) -> str:
    """The name of a unit that is written in several ways: $ and USD, KG and kg, room and rooms."""
    return " ".join(dict.fromkeys(map(_canonical_word, written.split())))


def _canonical_word(word: str) -> str:
    singular = word.rstrip("s.") or word
    names = (word, singular, _FOLDED.get(word.casefold()), _FOLDED.get(singular.casefold()))
    known = (name for name in names if name in _KNOWN)
    return _SIGNS.get(word) or next(known, singular.lower() if len(word) > 3 else word)


def _durations(text: pa.Array, clocks: bool = True) -> NDArray[np.float64]:
    """Seconds of texts such as 2h 5m, PT5M, 3 days or 1:23:45; NaN where there are none."""
    seconds = np.full(len(text), np.nan)
    for pattern in (_DURATION, _CLOCK):
        pieces = pc.extract_regex(text, pattern)
        found = parsing.flags(pc.and_(pieces.is_valid(), pc.match_substring_regex(text, r"\d")))
        empty = {part.name: pc.replace_substring(pieces.field(part.name), ",", ".") for part in pieces.type}
        filled = {part: pc.if_else(pc.equal(values, ""), "0", values).cast(pa.float64()) for part, values in empty.items()}
        total = sum(_TIMES[part] * parsing.floats(values) for part, values in filled.items())
        seconds = np.where(found, total, seconds)
    if not clocks and pc.any(pc.match_substring(text, ":")).as_py() and not np.nanmax(seconds, initial=0) >= 86400:
        return np.full(len(text), np.nan)  # times of day
    return np.where(parsing.flags(pc.starts_with(text, "-")), -seconds, seconds)


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


def dots_are_groups(values: pa.Array, decimal: str) -> bool:
    """Whether texts such as 1.608 mean thousands: the decimal mark is a comma, and no text tells otherwise, as 0.5 would."""
    if decimal == "." or not parsing.is_text(values.type) or not pc.any(pc.match_substring(values, ".")).as_py():
        return False
    return decimal_mark(parsing.levels_of(parsing.text(values))[0], ",") == ","


def table_decimal(table: pa.Table, likely: str) -> str:
    """The decimal mark of a table of text: that of the columns that tell, if they agree; else the likely one.

    Example:
        >>> table_decimal(pa.table({"width": ["45,2", "38,75"], "people": ["8.808", "1.200"]}), ".")
        ','
    """
    texts = (table[name].slice(0, _LOOKED_AT) for name in table.column_names if parsing.is_text(table[name].type))
    marked = (values for values in texts if pc.any(pc.match_substring_regex(values, "[.,]")).as_py())
    votes = set()
    for values in itertools.islice(marked, _MOST_ASKED):
        levels, _ = parsing.levels_of(parsing.text(values))
        marks = [mark for mark in _PATTERNS if decimal_mark(levels, mark) == mark]
        reads = pc.sum(pc.match_substring_regex(levels, _PATTERNS[marks[0]])).as_py() or 0
        votes |= {marks[0]} if len(marks) == 1 and 2 * reads > len(levels) else set()
    return votes.pop() if len(votes) == 1 else likely
