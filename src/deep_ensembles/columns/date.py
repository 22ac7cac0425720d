"""Dates, with or without a time, and times of day."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from deep_ensembles._arrow import pa
from deep_ensembles.columns._calendar import CLOCKS, ISO, date_pattern, instants, readable_seconds, spelled
from deep_ensembles.columns._column import Column, check_readable, words_among
from deep_ensembles.columns._spread import moderate, spread_of
from deep_ensembles.columns._values import is_date, plain, text

READABLE = 0.9
_DAY = 86400
_PARTS = ("month", "weekday", "hour")


@dataclass(frozen=True)
class Date(Column):
    r"""How long ago, in units of its spread, and the parts that come round: $\sin$ and $\cos$ of month, weekday and hour.

    Clocks are UTC, and times of day are dates without a day. Missing values are at the middle and 0 in every round part,
    with an input that marks them where training had enough of them.

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
        words: texts that training took as missing values.

    Example:
        >>> column = date("day", pa.array(["2020-01-01", "2020-01-02", "2020-01-03"]))
        >>> column.input_names
        ('day', 'day weekday sin', 'day weekday cos')
        >>> column.outside(pa.array(["2020-01-03", "2020-01-04"])).tolist()
        [False, True]
    """

    name: str
    pattern: str
    low: float
    high: float
    middle: float
    scale: float
    parts: tuple[str, ...] = ()
    missing: int = 0
    marked: bool = False
    words: tuple[str, ...] = ()

    @property
    def value_names(self) -> tuple[str, ...]:
        return (self.name, *(f"{self.name} {part} {wave}" for part in self.parts for wave in ("sin", "cos")))

    def read(self, values: pa.Array, errors: str = "refuse", first_row: int = 1) -> NDArray[np.float64]:
        values = plain(values)
        if is_date(values.type):
            return instants(values)
        texts = text(values)
        read, bad = readable_seconds(texts, self.pattern)
        check_readable(self.name, f"date ({spelled(self.pattern)})", texts, bad, errors, first_row, self.words)
        return read

    def values(self, read: NDArray[np.float64]) -> NDArray[np.float64]:
        known = ~np.isnan(read)
        turns = [2 * np.pi * np.nan_to_num(round_part(read, part)) for part in self.parts]
        waves = [wave(turn) * known for turn in turns for wave in (np.sin, np.cos)]
        return np.column_stack([moderate(read, self.middle, self.scale, (self.low, self.high)), *waves])

    def unseen(self, read: NDArray[np.float64]) -> NDArray[np.bool_]:
        return (read < self.low) | (read > self.high)

    def described(self) -> str:
        written = "" if self.pattern == ISO else f", written {spelled(self.pattern)}"
        return f"date, {_shown(self.low)} to {_shown(self.high)}{written}"


def _shown(end: float) -> str:
    return str(np.datetime64(int(end), "s")).removesuffix("T00:00:00").removeprefix("1900-01-01T")


def date(name: str, values: pa.Array | pa.ChunkedArray) -> Date:
    """A column of dates as its values show it.

    Text may have some values that are no dates, up to a tenth of the different ones; they are taken as missing, and kept
    by name.

    Arguments:
        name: of the column.
        values: of training.

    Example:
        >>> date("born", pa.array(["31.12.1999", "1.1.2000"])).in_words()
        'date, 1999-12-31 to 2000-01-01, written DD.MM.YYYY'
    """
    values = plain(values)
    words: tuple[str, ...] = ()
    if is_date(values.type):
        read, pattern = instants(values), CLOCKS[0] if pa.types.is_time(values.type) else ISO
    else:
        texts = text(values)
        found = date_pattern(texts.unique(), READABLE)
        pattern = found or ISO
        read, bad = readable_seconds(texts, pattern)
        check_readable(name, "date", texts, bad, "missing" if found else "refuse", 1)
        words = words_among(texts, bad)
    spread = spread_of(name, "date", read)
    known = read[~np.isnan(read)]
    parts = tuple(part for part in _PARTS if np.ptp(round_part(known, part)) > 0)
    return Date(name, pattern, **spread, parts=parts, words=words)


def round_part(read: NDArray[np.float64], part: str) -> NDArray[np.float64]:
    """How far month, weekday or hour have come round, from 0 to 1; NaN stays.

    Example:
        >>> round_part(np.array([0.0, 6 * 3600]), "hour").tolist()
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
