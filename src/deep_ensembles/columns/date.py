"""Dates, with or without a time, and times of day: which pattern they are written in, and which inputs they become."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from deep_ensembles._arrow import pa, pc
from deep_ensembles.columns._column import unreadable_words
from deep_ensembles.columns._parsing import NOTHING, flags, floats, gap_words, is_date, levels_of, plain, text, unread
from deep_ensembles.columns.number import READABLE, Scaled, column_statistics

_DAY = 86400
_PARTS = ("month", "weekday", "hour")
ISO = "ISO"
_YEAR_1000, _YEAR_1900 = -30610224000.0, -2208988800.0
_ZONE = r"\d[Tt ]?\d\d:\d\d.*([Zz]|[+-]\d\d(:?\d\d)?)$"
_DAYS = ("%m/%d/%Y", "%d/%m/%Y", "%d.%m.%Y", "%m.%d.%Y", "%d-%m-%Y", "%m-%d-%Y", "%Y/%m/%d", "%Y.%m.%d", "%Y-%m-%d",
         "%d %b %Y", "%d-%b-%Y", "%d-%b-%y", "%b %d, %Y", "%b %d %Y", "%d. %b %Y", "%a, %d %b %Y", "%Y-%b-%d", "%d%b%Y",
         "%m/%d/%y", "%d/%m/%y", "%d.%m.%y")  # fmt: skip
_MONTHS, QUARTER = ("%b %Y", "%b. %Y", "%b-%Y", "%Y-%m", "%Y/%m", "%m/%Y", "%Y %b", "%Y-%b"), "YYYY-Qn"
_TIMES = ("", " %H:%M", " %H:%M:%S", "T%H:%M:%S", ", %H:%M", ", %H:%M:%S", " %I:%M %p", " %I:%M:%S %p", ", %I:%M:%S %p")
CLOCKS = ("%H:%M:%S", "%H:%M", "%I:%M:%S %p", "%I:%M %p")
PATTERNS = (ISO, "%Y%m%d", QUARTER, *_MONTHS, *CLOCKS, *(day + time for day in _DAYS for time in _TIMES))
_SHORT_YEAR = r"^(\d{1,2}/\d{1,2}/|\d\d\.\d\d\.|\d{1,2}-[A-Za-z]{3}-)\d\d(\D|$)"
_LETTERS = {"%Y": "YYYY", "%y": "YY", "%m": "MM", "%d": "DD", "%b": "Mon", "%a": "Day", "%H": "hh", "%I": "hh", "%M": "mm",
            "%S": "ss", "%p": "AM/PM"}  # fmt: skip
_MOST = 0.6  # the share of dates among words from which the others are worth a note
_SOME = 50  # different texts, by which patterns are tried
_QUARTERS = {r"^(\d{4})[ /-]?[Qq]([1-4])$": r"\1-\2", r"^[Qq]?([1-4])[Qq]?[ /.-]*(\d{4})$": r"\2-\1"}


@dataclass(frozen=True)
class Date(Scaled):
    r"""How long ago, in units of its spread, and the parts that repeat: $\sin$ and $\cos$ of month, weekday and hour.

    Clocks are UTC, and times of day are dates without a day. Missing values are at the middle and 0 in the parts that
    repeat, with an input that marks them where training had enough of them.

    Arguments:
        name: of the column.
        pattern: how dates are written in text, as for `strptime`, or ISO.
        low: the first date of training, in seconds since 1970.
        high: the last.
        middle: the median.
        scale: the spread, in seconds.
        parts: those of month, weekday and hour that varied.
        missing: how many training values were missing.
        marked: whether an input marks missing values.
        words: texts that training took as missing values, though no gaps.
        gaps: words for missing values.
        unsure: whether no value of training tells day and month apart.

    Example:
        >>> column = date("day", pa.array(["2020-01-01", "2020-01-02", "2020-01-03"]))
        >>> column.input_names
        ('day', 'day weekday sin', 'day weekday cos')
        >>> column.unseen(column.read(pa.array(["2020-01-03", "2020-01-04"]))).tolist()
        [False, True]
    """

    pattern: str
    parts: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    gaps: tuple[str, ...] = ()
    unsure: bool = False

    @property
    def value_names(self) -> tuple[str, ...]:
        return (self.name, *(f"{self.name} {part} {wave}" for part in self.parts for wave in ("sin", "cos")))

    @property
    def readable(self) -> str:
        return f"date ({pattern_in_words(self.pattern)})"

    def parse(self, values: pa.Array) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        if is_date(values.type):
            return seconds_since_1970(values), np.zeros(len(values), bool)
        texts = text(values, (*self.gaps, *self.words, *NOTHING))
        read, bad = parse_dates(texts, self.pattern)
        # Texts that are not of the pattern may be ISO dates, or clocks with or without seconds.
        for other in CLOCKS if self.pattern in CLOCKS else (ISO,):
            if bad.any() and other != self.pattern:
                standard = parse_dates(texts, other)[0]
                read, bad = np.where(bad, standard, read), bad & np.isnan(standard)
        return read, bad

    def values(self, read: NDArray[np.float64]) -> NDArray[np.float64]:
        known = ~np.isnan(read)
        turns = [2 * np.pi * np.nan_to_num(cyclic_part(read, part)) for part in self.parts]
        waves = [wave(turn) * known for turn in turns for wave in (np.sin, np.cos)]
        return np.column_stack([super().values(read), *waves])

    def description(self) -> str:
        written = "" if self.pattern == ISO else f", written {pattern_in_words(self.pattern)}"
        doubt = f" (or {pattern_in_words(_swapped(self.pattern))}: no value tells)" * self.unsure
        kind = "time of day" if self.pattern in CLOCKS else "date"
        return f"{kind}, {_shown(self.low)} to {_shown(self.high)}{written}{doubt}"


def _swapped(pattern: str) -> str:
    """The pattern with day and month the other way round."""
    return pattern.replace("%d", "%?").replace("%m", "%d").replace("%?", "%m")


@dataclass(frozen=True)
class Difference(Scaled):
    """Days from one date to another, about their median in units of their spread; missing where one of them is.

    Arguments:
        name: of the input.
        start, end: the columns of dates.
        pattern, end_pattern: how these are written in text.
        low, high, middle, scale: as in `Number`, in days.
        missing: how many training values were missing.
        marked: whether an input marks missing values.

    Example:
        >>> days = [date(name, pa.array(values)) for name, values in (("in", ["2020-01-01"]), ("out", ["2020-01-08"]))]
        >>> difference(*days, pa.table({"in": ["2020-01-01", "2020-02-01"], "out": ["2020-01-08", "2020-02-03"]})).summary()
        'days from `in` to `out`, 2 to 7'
    """

    start: str
    end: str
    pattern: str
    end_pattern: str

    @property
    def sources(self) -> tuple[str, ...]:
        return (self.start, self.end)

    def cells(self, rows: pa.RecordBatch | pa.Table) -> pa.Array:
        return pa.StructArray.from_arrays([plain(rows.column(name)) for name in self.sources], ["start", "end"])

    def parse(self, values: pa.Array) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """Days; what cannot be read is missing here, as the columns of dates say what to do about it."""
        ends = zip(("start", "end"), (self.pattern, self.end_pattern), strict=True)
        start, end = (Date(name, pattern).read(values.field(name), "missing") for name, pattern in ends)
        return (end - start) / _DAY, np.zeros(len(values), bool)

    def description(self) -> str:
        return f"days from `{self.start}` to `{self.end}`, {self.low:.6g} to {self.high:.6g}"


def difference(first: Date, second: Date, table: pa.Table) -> Difference | None:
    """Days between two columns of dates, if nearly always the same one comes first and not always by as much."""
    draft = Difference(f"{second.name} − {first.name}", first.name, second.name, first.pattern, second.pattern)
    read = draft.read(draft.cells(table))
    if (read < 0).mean() > (read > 0).mean():
        return difference(second, first, table)
    known = read[~np.isnan(read)]
    if not len(known) or np.ptp(known) == 0 or (known < 0).mean() > 0.05:
        return None
    return replace(draft, **column_statistics(draft.name, "difference", read))


def _shown(end: float) -> str:
    return str(np.datetime64(int(end), "s")).removesuffix("T00:00:00").removeprefix("1900-01-01T")


def date(name: str, values: pa.Array | pa.ChunkedArray, errors: str | None = None) -> Date:
    """A column of dates as its values show it.

    Text may have some values that are no dates, up to a tenth of the different ones; they are taken as missing, and kept
    by name.

    Arguments:
        name: of the column.
        values: of training.
        errors: `missing` for any number of values that cannot be read.

    Example:
        >>> date("born", pa.array(["31.12.1999", "1.1.2000"])).summary()
        'date, 1999-12-31 to 2000-01-01, written DD.MM.YYYY'
    """
    values = plain(values)
    column = Date(name, CLOCKS[0] if pa.types.is_time(values.type) else ISO)
    if not is_date(values.type):
        levels, counts = levels_of(text(values))
        inferred = draft_date(levels, counts, READABLE if errors is None else 0)
        pattern, gaps = inferred or (ISO, ())
        column = replace(column, pattern=pattern, gaps=gaps)
        column.read(values, errors or ("missing" if inferred else "refuse"))
        bad, swapped = column.parse(levels)[1], _swapped(pattern)
        both = swapped != pattern and swapped in PATTERNS
        unsure = both and bool(parse_dates(text(levels, gaps), swapped)[1].sum() <= bad.sum())
        column = replace(column, words=unreadable_words(levels, bad), unsure=unsure)
    read = column.read(values, "missing")
    statistics = column_statistics(name, "date", read)
    known = read[~np.isnan(read)]
    possible = _PARTS[:1] if column.pattern in (*_MONTHS, QUARTER) else _PARTS
    return replace(column, **statistics, parts=tuple(part for part in possible if np.ptp(cyclic_part(known, part)) > 0))


def cyclic_part(read: NDArray[np.float64], part: str) -> NDArray[np.float64]:
    """How much of its cycle month, weekday or hour has gone through, from 0 to 1; NaN stays.

    Example:
        >>> cyclic_part(np.array([0.0, 6 * 3600]), "hour").tolist()
        [0.0, 0.25]
    """
    if part == "hour":
        return (read % _DAY) / _DAY
    days = np.floor(read / _DAY)
    if part == "weekday":
        return ((days + 3) % 7) / 7
    known = ~np.isnan(days)
    months = np.where(known, days, 0).astype("datetime64[D]").astype("datetime64[M]").astype(np.int64) % 12
    return np.where(known, months / 12, np.nan)


def parse_dates(texts: pa.Array, pattern: str) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Dates in trimmed text as seconds since 1970, UTC unless they say otherwise, and which texts are none.

    Example:
        >>> parse_dates(pa.array(["2/1/1970", "x", None]), "%d/%m/%Y")
        (array([86400.,    nan,    nan]), array([False,  True, False]))
    """
    if pattern in (ISO, QUARTER):
        read = _iso_seconds(texts) if pattern == ISO else _quarter_seconds(texts)
        return read, unread(texts, read)
    # 1.2.3 is a version: years have four digits, or two after two more pairs.
    if shape := r"^\d{8}$" if pattern == "%Y%m%d" else _SHORT_YEAR * ("%y" in pattern):
        texts = pc.if_else(pc.match_substring_regex(texts, shape), texts, pa.scalar("", texts.type))
    read = seconds_since_1970(pc.strptime(texts, format=pattern, unit="s", error_is_null=True))
    read[read < _YEAR_1000] = np.nan
    return read, unread(texts, read)


def _quarter_seconds(texts: pa.Array) -> NDArray[np.float64]:
    """The first day of quarters such as 2020-Q4, Q4 2020 and 4Q2020."""
    read = np.full(len(texts), np.nan)
    for pattern, order in _QUARTERS.items():
        found = flags(pc.and_(pc.match_substring_regex(texts, pattern), pc.match_substring_regex(texts, "[Qq]")))
        tidy = pc.replace_substring_regex(texts.filter(pa.array(found)), pattern, order).to_pylist()
        months = [3 * (4 * int(text[:4]) + int(text[5])) - 3 - 12 * 1970 for text in tidy]
        read[found] = np.array(months, "datetime64[M]").astype("datetime64[s]").astype(np.float64)
    return read


def _iso_seconds(texts: pa.Array) -> NDArray[np.float64]:
    looks = pc.match_substring_regex(
        texts, r"^[+-]?\d{4}-\d\d-\d\d([Tt ]\d\d(:\d\d(:\d\d(\.\d{1,9})?)?)?\s?([Zz]|[+-]\d\d(:?\d\d)?)?)?$"
    )
    tidy = pc.replace_substring_regex(pc.if_else(looks, texts, pa.scalar(None, texts.type)), r"\s([Zz+-])", r"\1")
    tidy = pc.replace_substring_regex(pc.utf8_upper(tidy), r"(\.\d{1,6})\d*", r"\1")
    zoned = pc.match_substring_regex(tidy, _ZONE)
    nothing = pa.scalar(None, tidy.type)
    naive = _cast(pc.if_else(zoned, nothing, tidy), pa.timestamp("us"))
    aware = _cast(pc.if_else(zoned, tidy, nothing), pa.timestamp("us", "UTC"))
    return np.where(np.isnan(naive), aware, naive)


def _cast(texts: pa.Array, kind: pa.DataType) -> NDArray[np.float64]:
    """Seconds of those texts that are dates; each by itself where some are none, as the 30th of February."""
    try:
        return seconds_since_1970(texts.cast(kind))
    except pa.ArrowInvalid:
        if len(texts) == 1:
            return np.array([np.nan])
        return np.concatenate([_cast(texts[place : place + 1], kind) for place in range(len(texts))])


def seconds_since_1970(values: pa.Array) -> NDArray[np.float64]:
    """Dates and timestamps as seconds since 1970, NaN where missing; times of day are of the first day of 1900."""
    if pa.types.is_time(values.type):
        return floats(values) + _YEAR_1900
    if pa.types.is_date(values.type):
        values = values.cast(pa.timestamp("s" if pa.types.is_date32(values.type) else "ms"))
    return floats(values)


def pattern_in_words(pattern: str) -> str:
    """A pattern as people write it.

    Example:
        >>> pattern_in_words("%d/%m/%Y %H:%M")
        'DD/MM/YYYY hh:mm'
    """
    for sign, letters in _LETTERS.items():
        pattern = pattern.replace(sign, letters)
    return pattern


def draft_date(levels: pa.Array, counts: NDArray[np.int64], readable: float) -> tuple[str, tuple[str, ...]] | None:
    """The pattern by which most of different texts are dates, and which are gaps; None if no pattern reads nearly all.

    Month before day is taken where slashes leave both open, day before month elsewhere.

    Arguments:
        counts: how many rows have each text.
        readable: the share of texts, without gaps, that must be dates.

    Example:
        >>> [draft_date(pa.array(["3/4/2020", other]), np.ones(2, int), 0.98) for other in ("13/4/2020", "n/d")]
        [('%d/%m/%Y', ()), ('%m/%d/%Y', ('n/d',))]
    """
    some = levels[:_SOME]
    has_digits = pc.any(pc.match_substring_regex(some, r"\d")).as_py()
    patterns = [pattern for pattern in PATTERNS if has_digits and not parse_dates(some, pattern)[1].all()]
    if not patterns:
        return None
    bad = {pattern: parse_dates(levels, pattern)[1] for pattern in patterns}
    best = min(patterns, key=lambda pattern: bad[pattern].sum())
    gaps = gap_words(levels, counts, bad[best])
    there = ~flags(pc.is_in(levels, pa.array(gaps, levels.type)))
    return (best, gaps) if there.any() and bad[best][there].mean() <= 1 - readable else None


def not_dates(values: pa.Array | pa.ChunkedArray) -> NDArray[np.bool_] | None:
    """Which of some words are no dates, where most are; None elsewhere.

    Example:
        >>> not_dates(pa.array(["1/2/2020", "3/4/2020", None, "1/2/2020 - 5/6/2020"])).tolist()
        [False, False, False, True]
    """
    texts = text(values)
    draft = draft_date(*levels_of(texts), _MOST)
    return None if draft is None else parse_dates(texts, draft[0])[1]
