"""Rows in groups by the values of a column: where errors are larger, and which columns have changed since training."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from deep_ensembles.report.words import FEW_ROWS, cell, count, number, percent, row_count, short

LEAST_ROWS = 20  # of a segment, and of all the others
_PARTS = 5  # about as many segments are made of an ordered column
_LEAST_EXPECTED = 5.0  # rows of a group, for the test of drift
_MOST_LISTED = 20
_CHANCE = 0.05
WORTH_TELLING = 1.1  # times the error elsewhere, from which a segment is called bad
LARGE_DRIFT = 0.1  # of the rows
RARE_OR_NEW = "a rare or new value"  # levels of few rows, and those that training did not see


class Groups(NamedTuple):
    """A column's rows in groups.

    Arguments:
        column: its name.
        names: levels; of an ordered column only what stands behind the ordered groups, as for missing values.
        ends: of an ordered column, as text, what lies between one group and the next; a value on an end is below it.
        here: how many rows each group has.
        codes: the group of each row, from 0; None where only counts are kept.
        trained: how many each had in a sample of training; None where that is not known.
    """

    column: str
    names: tuple[str, ...]
    ends: tuple[str, ...] | None
    here: NDArray[np.int64]
    codes: NDArray[np.integer[Any]] | None = None
    trained: NDArray[np.int64] | None = None

    def joined(self, counts: NDArray[Any], least: float) -> dict[str, list[int]]:
        """Groups by name, where neighbours, or levels of few rows, are joined until each has at least so many.

        Example:
            >>> groups = Groups("age", ("missing",), ("20", "40"), np.array([5, 1, 4, 0]))
            >>> groups.joined(groups.here, 5), groups.joined(groups.here, 1)["above 20, up to 40"]
            ({'up to 20': [0], 'above 20': [1, 2]}, [1])
        """
        if self.ends is None:
            few = [place for place, name in enumerate(self.names) if counts[place] < least or name == RARE_OR_NEW]
            kept = {name: [place] for place, name in enumerate(self.names) if place not in few}
            return kept | ({RARE_OR_NEW: few} if counts[few].sum() >= max(least, 1) else {})
        n_ordered = len(self.ends) + 1
        parts: list[list[int]] = [[]]
        for place in range(n_ordered):
            parts[-1].append(place)
            if counts[parts[-1]].sum() >= least and counts[place + 1 : n_ordered].sum() >= least:
                parts.append([])
        others = {name: [n_ordered + place] for place, name in enumerate(self.names) if counts[n_ordered + place] >= least}
        return {self._between(part): part for part in parts} | {name: part for name, part in others.items() if counts[part]}

    def _between(self, part: list[int]) -> str:
        ends = ("", *(self.ends or ()), "")
        low, high = ends[part[0]], ends[part[-1] + 1]
        return ", ".join([f"above {low}"] * bool(low) + [f"up to {high}"] * bool(high)) or "any"


def grouped(column: str, values: Any) -> Groups | None:
    """Values of a column in groups: numbers by tenths, others by level; None where levels are very many.

    Example:
        >>> grouped("pet", ["cat", "dog", "cat"]).here.tolist()
        [2, 1]
    """
    array = np.asarray(values)
    if array.dtype.kind in "fiu":
        known = array.astype(np.float64)
        is_known = np.isfinite(known)
        ends = np.unique(np.quantile(known[is_known], np.arange(1, 10) / 10)) if is_known.any() else np.empty(0)
        codes = np.where(is_known, np.searchsorted(ends, known), len(ends) + 1)
        here = np.bincount(codes, minlength=len(ends) + 2)
        return Groups(column, ("missing",), tuple(map(cell, ends.tolist())), here, codes)
    levels, codes = np.unique(array.astype(str), return_inverse=True)
    return Groups(column, tuple(levels.tolist()), None, np.bincount(codes), codes) if len(levels) <= FEW_ROWS else None


@dataclass(frozen=True)
class Segment:
    """The rows of one group.

    Arguments:
        column, group: which.
        rows: how many.
        error, error_error: their mean error, with its standard error.
        elsewhere: the mean error of all other rows.
        claim: their mean of what was promised: the share inside intervals, or of classes the mean confidence.
        p_value: of a test whether the error is larger than elsewhere, corrected for all segments looked at.
        is_clear: whether it is larger beyond chance, and by a tenth at least.
    """

    column: str
    group: str
    rows: int
    error: float
    error_error: float
    elsewhere: float
    claim: float
    p_value: float
    is_clear: bool


@dataclass(frozen=True)
class Segments:
    """Where errors are larger: how many segments of how many columns were looked at, how many are clear, and the worst."""

    tried: int
    columns: int
    clear: int
    worst: tuple[Segment, ...]

    def verdict(self, is_class: bool) -> str:
        """What they say, in a sentence."""
        if not self.clear:
            return f"In none of {count(self.tried)} segments are errors larger than elsewhere by a tenth, and beyond chance."
        worst = self.worst[0]
        told = "{} are wrong, elsewhere {}" if is_class else "it is off by {} on average, elsewhere by {}"
        errs = told.format(*(percent(each) if is_class else number(each, 3) for each in (worst.error, worst.elsewhere)))
        return f"Errors are largest where `{short(worst.column)}` is {short(worst.group)} ({row_count(worst.rows)}): {errs}."


def segments(groups: Sequence[Groups], error: Any, claim: Any) -> Segments | None:
    """Where the errors of rows are larger than elsewhere, the worst first; None where rows are too few.

    Each group is compared with all other rows by a one-sided t test, of errors and of their ranks, which no outlier hides.
    Its standard error is the larger one of that for equal and that for unequal variances: the first is right where a small
    group has no spread, the second where one outlier is all that it has. Wrong classes are counted exactly. p-values are
    corrected for the number of segments.

    References:
        Fisher (1935); Welch (1947); Benjamini & Hochberg (1995); Conover & Iman (1981).
    """
    from scipy import stats  # late, as it takes a while

    found, n_rows, ranks, is_share = [], len(error), stats.rankdata(error), bool(np.isin(error, (0, 1)).all())
    known = [(each, each.codes) for each in groups if each.codes is not None]
    for each, codes in known:
        columns = (None, error, error**2, claim, ranks, ranks**2)
        sums = np.stack([np.bincount(codes, values, len(each.here)) for values in columns])
        least = max(LEAST_ROWS, n_rows // _PARTS) if each.ends is not None else LEAST_ROWS
        for name, part in each.joined(each.here, least).items():
            inside = sums[:, part].sum(1)
            if LEAST_ROWS <= inside[0] <= n_rows - LEAST_ROWS:
                overall = sums.sum(1)
                facts, statistic = _compared(inside, overall)
                if is_share:
                    chance = stats.hypergeom.sf(inside[1] - 1, n_rows, overall[1], inside[0])
                else:
                    _, of_ranks = _compared(inside[[0, 4, 5, 3]], overall[[0, 4, 5, 3]])
                    chance = min(1.0, 2 * stats.t.cdf(-max(statistic, of_ranks), inside[0] - 1))
                found.append((each.column, name, *facts, chance))
    if not found:
        return None
    chances = stats.false_discovery_control([each[-1] for each in found])
    worst = [Segment(*each[:-1], float(chance), bool(chance < _CHANCE and each[3] >= WORTH_TELLING * each[5]))
             for each, chance in zip(found, chances, strict=True)]  # fmt: skip
    worst.sort(key=lambda segment: (not segment.is_clear, -segment.error))
    return Segments(len(found), len(known), sum(each.is_clear for each in worst), tuple(worst[:_MOST_LISTED]))


def _compared(inside: Any, overall: Any) -> tuple[tuple[int, float, float, float, float], float]:
    """Rows, mean error and its standard error, mean error elsewhere and mean claim; and the t statistic, from sums.

    Arguments:
        inside, overall: rows, and the sums of errors, of their squares and of claims: of the segment and of all rows.
    """
    parts = map(_moments, (inside, overall - inside, overall))
    (rows, mean, variance), (others, elsewhere, other_variance), (_, _, both) = parts
    spread = max(both * (1 / rows + 1 / others), variance / rows + other_variance / others) ** 0.5
    statistic = (mean - elsewhere) / spread if spread > 0 else -np.inf
    return (int(rows), mean, (variance / rows) ** 0.5, elsewhere, float(inside[3] / rows)), statistic


def _moments(sums: Any) -> tuple[float, float, float]:
    """Rows, mean and variance."""
    rows, mean = float(sums[0]), float(sums[1] / sums[0])
    return rows, mean, max(float(sums[2]) / rows - mean**2, 0.0) * rows / max(rows - 1, 1)


@dataclass(frozen=True)
class Drift:
    """How a column differs from training.

    Arguments:
        column: which.
        moved: the share of rows that would have to be in other groups for the column to be as in training.
        group: the one whose share has changed most.
        before, here: its share in training and here.
        p_value: of a chi-squared test of equal shares, corrected for all columns looked at.
        is_clear: whether it differs beyond chance.
    """

    column: str
    moved: float
    group: str
    before: float
    here: float
    p_value: float
    is_clear: bool


@dataclass(frozen=True)
class Drifts:
    """Columns that differ from training: how many were looked at, differ beyond chance, differ by much; the most first."""

    columns: int
    clear: int
    large: int
    most: tuple[Drift, ...]

    def verdict(self, n_rows: int) -> str:
        """What they say, in a sentence."""
        n_told = self.large or self.clear
        if not n_told:
            few = f"; {row_count(n_rows)} would show only large changes" if n_rows < FEW_ROWS else ""
            return f"No column of {count(self.columns)} has changed since training beyond chance{few}."
        most, how = self.most[0], "much since training" if self.large else "since training beyond chance, but little"
        shares = f"was {percent(most.before)} of the rows in training and is {percent(most.here)} here"
        changed = f"{count(n_told)} of {count(self.columns)} columns {'has' if n_told == 1 else 'have'} changed {how}."
        return f"{changed} Most of all `{short(most.column)}`: {short(most.group)} {shares}."


def drifts(groups: Sequence[Groups]) -> Drifts | None:
    """Which columns have other values than in training, the most changed first; None where nothing is known of training.

    The shares of groups are compared by a chi-squared test of two samples, with groups joined that are too small for it, and
    p-values are corrected for the number of columns. How large a change is says the total variation distance: where rows are
    many every change is beyond chance.
    """
    from scipy import stats  # late, as it takes a while

    found = []
    for each in groups:
        if each.trained is None or not each.here.sum() or not each.trained.sum():
            continue
        both = (each.trained + each.here).astype(np.float64)
        smaller = min(each.trained.sum(), each.here.sum()) / both.sum()
        parts = each.joined(both * smaller, _LEAST_EXPECTED)
        if len(parts) > 1:
            counts = np.array([[part_of[part].sum() for part in parts.values()] for part_of in (each.trained, each.here)])
            before, here = counts / counts.sum(1, keepdims=True)
            place = int(np.argmax(np.abs(here - before)))
            chance = stats.chi2_contingency(counts, correction=False).pvalue
            moved, group = float(np.abs(here - before).sum() / 2), list(parts)[place]
            found.append((each.column, moved, group, float(before[place]), float(here[place]), chance))
    if not found:
        return None
    chances = stats.false_discovery_control([each[-1] for each in found]).tolist()
    most = [Drift(*each[:-1], chance, chance < _CHANCE) for each, chance in zip(found, chances, strict=True)]
    most.sort(key=lambda drift: (not drift.is_clear, -drift.moved))
    clear = [drift for drift in most if drift.is_clear]
    return Drifts(len(most), len(clear), sum(drift.moved >= LARGE_DRIFT for drift in clear), tuple(most[:_MOST_LISTED]))
