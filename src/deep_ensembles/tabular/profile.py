"""What training saw of each column, in a few counts, and the rows of another table beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deep_ensembles._arrow import pa
from deep_ensembles._checks import require
from deep_ensembles.columns import Boolean, Category, Column, Date, Schema
from deep_ensembles.columns.date import CLOCKS
from deep_ensembles.report import ColumnFacts, Groups
from deep_ensembles.report.words import cell

_SAMPLE_ROWS, _PARTS = 20_000, 10
_MOST_GROUPED = 100  # columns whose rows are kept by group, to look for errors in
_SHOWN = 10


@dataclass(frozen=True)
class Profile:
    """How many training rows had which level of a column or, of numbers and dates, lay in which tenth.

    Arguments:
        column: whose.
        ends: between the tenths; empty where there are levels.
        counts: rows of each group, the missing last.
    """

    column: Column
    ends: tuple[float, ...] = ()
    counts: tuple[int, ...] = ()

    @property
    def levels(self) -> tuple[str, ...]:
        """Names of groups without an order."""
        if isinstance(self.column, Boolean):
            return "no", "yes"
        return (*self.column.levels, "another") if isinstance(self.column, Category) else ()

    @property
    def n_groups(self) -> int:
        """How many groups there are, that of missing values among them."""
        return len(self.levels) + 1 if self.levels else len(self.ends) + 2

    def codes(self, read: NDArray[np.float64]) -> NDArray[np.int16]:
        """The group of each of what the column reads."""
        last = self.n_groups - 1
        places = np.clip(np.nan_to_num(read), 0, last - 1) if self.levels else np.searchsorted(self.ends, read)
        return np.where(np.isnan(read), last, places).astype(np.int16)

    def count(self, codes: NDArray[np.int16]) -> NDArray[np.int64]:
        """How many rows each group has."""
        return np.bincount(codes, minlength=self.n_groups)

    def groups(self, here: NDArray[np.int64], codes: Any, is_training: bool) -> Groups:
        """What a report looks at."""
        ends = None if self.levels else tuple(map(self._text, self.ends))
        # Dates go on: that later ones are here is no change of the data.
        trained = np.array(self.counts) if is_training and not isinstance(self.column, Date) else None
        return Groups(self.column.name, (*self.levels, "missing"), ends, here, codes, trained)

    def _text(self, end: float) -> str:
        if not isinstance(self.column, Date):
            return cell(end)
        told = str(np.datetime64(int(end), "s"))
        return told[11:16] if self.column.pattern in CLOCKS else told[:10]


def profile_columns(schema: Schema, table: Any) -> list[Profile | None]:
    """The profiles of columns in at most 20 000 rows of a table; None for text."""
    rows = np.unique(np.linspace(0, table.num_rows - 1, min(table.num_rows, _SAMPLE_ROWS)).astype(np.int64))
    some = table.take(pa.array(rows))
    return [_profile(column, column.read(column.cells(some), "missing")) for column in schema.columns]


def _profile(column: Column, read: NDArray[Any]) -> Profile | None:
    if read.ndim > 1:
        return None
    profile, known = Profile(column), read[np.isfinite(read)]
    if not profile.levels and len(known):
        profile = Profile(column, tuple(np.unique(np.quantile(known, np.arange(1, _PARTS) / _PARTS)).tolist()))
    return Profile(column, profile.ends, tuple(profile.count(profile.codes(read)).tolist()))


def profile_data(profiles: Sequence[Profile | None]) -> list[dict[str, Any] | None]:
    """Plain data for a model file."""
    return [None if each is None else {"ends": list(each.ends), "counts": list(each.counts)} for each in profiles]


def profiles_from(schema: Schema, facts: Mapping[str, Any]) -> list[Profile | None] | None:
    """The profiles that a model file describes, if they are of these columns; None where it has none, as older ones."""
    data = facts.get("profiles")
    if data is None:
        return None
    require(len(data) == len(schema.columns), "profiles", "one per column", len(data))
    return [None if each is None else _checked(column, each) for column, each in zip(schema.columns, data, strict=True)]


def _checked(column: Column, data: Mapping[str, Any]) -> Profile:
    profile = Profile(column, tuple(map(float, data["ends"])), tuple(data["counts"]))
    sizes = len(profile.counts) == profile.n_groups and not (profile.ends and profile.levels)
    numbers = all(type(count) is int and 0 <= count < 2**53 for count in profile.counts)
    rising = bool(np.isfinite(profile.ends).all() and (np.diff(profile.ends) > 0).all())
    require(sizes and numbers and rising, "profiles", "those of the columns", column.name)
    return profile


class Profiler:
    """The rows of a table in the groups of training, batch by batch; for older models in groups of the first batch."""

    def __init__(self, schema: Schema, facts: Mapping[str, Any]) -> None:
        self.schema, self.profiles = schema, profiles_from(schema, facts)
        self.is_training = self.profiles is not None
        self.counts: list[Any] = [0] * len(schema.columns)
        self.codes: list[list[NDArray[np.int16]]] = [[] for _ in schema.columns]

    def add(self, batch: Any) -> None:
        """Count the rows of a batch."""
        self.profiles = profile_columns(self.schema, batch) if self.profiles is None else self.profiles
        for place, profile in enumerate(self.profiles):
            if profile is not None:
                codes = profile.codes(profile.column.read(profile.column.cells(batch), "missing"))
                self.counts[place] = self.counts[place] + profile.count(codes)
                self.codes[place] += [codes] if place < _MOST_GROUPED else []

    def groups(self) -> list[Groups]:
        """What a report looks at, of the columns that are not text."""
        parts = zip(self.profiles or (), self.counts, self.codes, strict=True)
        return [profile.groups(here, np.concatenate(codes) if codes else None, self.is_training)
                for profile, here, codes in parts if profile is not None]  # fmt: skip

    def facts(self, names: Sequence[str]) -> list[ColumnFacts]:
        """What the first of these columns are taken for, and how often they are missing here."""
        known = {column.name: (column, counts) for column, counts in zip(self.schema.columns, self.counts, strict=True)}
        shown = [(name, *known[name]) for name in names[:_SHOWN]]
        return [ColumnFacts(name, column.summary(), float(counts[-1] / counts.sum()) if np.ndim(counts) else 0.0)
                for name, column, counts in shown]  # fmt: skip
