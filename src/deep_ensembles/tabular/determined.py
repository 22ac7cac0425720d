"""Columns that give the target away: equal to it, a line of it, made of it and others, nearly so, or a name for it."""

import warnings
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deep_ensembles._arrow import pa
from deep_ensembles.columns import median_and_scale

Vector = NDArray[np.float64]
Line = tuple[float, float]  # slope and intercept

_AGREEMENT = 0.99  # of rows, to rounding
_FINE = 0.03  # the share of the target's spread that rounding may be; beyond, agreement would be no wonder
_LEAST_ROWS, _LEAST_DIFFERENT = 20, 5
_SAMPLE, _FIRST_LOOK = 4000, 64
_MOST_COLUMNS = 100
_NEARLY, _MOST_PARTS = 0.999, 4  # of the variance, by so many columns
_ROWS_PER_LEVEL = 10  # at least, where levels that name classes are no wonder
_OUTLYING = 10.0  # distances between quartiles from the median, from which a row says nothing of the others
_SIGNS = ("−", "+", "×", "÷", "÷")


def determined_number(y: Vector, numbers: Mapping[str, Vector]) -> list[tuple[str, str]]:
    """Formulas that give a number in nearly all rows, each with the column to drop.

    Looked for are straight lines of a column, and of the sum, difference, product or ratio of two, that hold to rounding in
    99 % of rows.

    Arguments:
        y: the target.
        numbers: other columns by name, dates among them; NaN where missing.

    Example:
        >>> r = np.random.default_rng(0)
        >>> start, end = r.uniform(size=50), r.uniform(1, 2, size=50)
        >>> determined_number(24 * (end - start), {"start": start, "end": end, "noise": r.uniform(size=50)})
        [('`end` − `start` (in other units)', 'end')]
    """
    if len(y) < _LEAST_ROWS:
        return []
    rows = np.sort(np.random.default_rng(0).permutation(len(y))[:_SAMPLE])
    names = list(numbers)[:_MOST_COLUMNS]
    values = np.array([numbers[name][rows] for name in names]).reshape(len(names), len(rows))
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of medians of nothing
        return list(_formulas(names, values, y[rows]))


def nearly_determined(y: Vector, numbers: Mapping[str, Vector]) -> tuple[list[str], float, str] | None:
    """The few columns that give nearly all that varies in a number, how much of it, and how; None where there are none.

    Looked for are weighted sums, and products of powers, that give 99.9 % of the variance of rows they were not fitted to.

    Example:
        >>> r = np.random.default_rng(0)
        >>> parts = dict(zip("abcd", r.normal(size=(4, 90))))
        >>> nearly_determined(parts["a"] + parts["b"] - parts["d"] + 0.01 * r.normal(size=90), parts)
        (['a', 'b', 'd'], 0.999..., 'a weighted sum')
    """
    rows = np.sort(np.random.default_rng(0).permutation(len(y))[:_SAMPLE])
    names = [name for name, values in numbers.items() if np.isfinite(values[rows]).mean() > 0.9]
    whole = np.array([y[rows], *(numbers[name][rows] for name in names)])
    middle, scale = np.array([median_and_scale(values[np.isfinite(values)]) for values in whole]).T[..., None]
    usual = (np.abs(whole - middle) <= _OUTLYING * scale).all(0)
    if 2 * usual.sum() < len(rows) or usual.sum() < 2 * _LEAST_ROWS:
        return None
    whole = whole[:, usual]
    with np.errstate(all="ignore"):
        for how, values in (("a weighted sum", whole), ("a product of powers", np.log(whole))):
            used = np.flatnonzero(np.isfinite(values).all(1) & (np.ptp(values, axis=1) > 0))
            if len(used) > 1 and used[0] == 0 and (found := _fewest(values[used])):
                return [names[used[place] - 1] for place in found[0]], found[1], how
    return None


def _fewest(values: Vector) -> tuple[list[int], float] | None:
    """The fewest columns `[column, row]` that give the first, found by leaving out what is missed least, and the share of
    its variance in rows of the other half."""
    values = (values - values.mean(1, keepdims=True)) / values.std(1, keepdims=True)
    order = np.argsort(-np.abs(values[1:] @ values[0]))[: min(_MOST_COLUMNS, values.shape[1] // 8)] + 1
    kept, found = np.sort(order).tolist(), None
    fit, judge = (half @ half.T / half.shape[1] for half in (values[:, ::2], values[:, 1::2]))
    while kept:
        inverse = np.linalg.inv(fit[np.ix_(kept, kept)] + 1e-9 * np.eye(len(kept)))  # of columns that say the same too
        weights = inverse @ fit[kept, 0]
        rest = judge[0, 0] - 2 * weights @ judge[kept, 0] + weights @ judge[np.ix_(kept, kept)] @ weights
        share = 1 - float(rest / judge[0, 0])
        if not share >= _NEARLY:
            break
        found = kept.copy(), min(share, 1.0)
        kept.pop(int(np.argmin(weights**2 / np.diag(inverse))))
    return found if found is not None and len(found[0]) <= _MOST_PARTS else None


def _formulas(names: list[str], values: Vector, y: Vector) -> Iterator[tuple[str, str]]:
    first = _rows_in_halves(y)
    alone = {i: line for i in _nearly_straight(values[:, first], y[first]) if (line := _line(values[i], y)) is not None}
    for i, line in alone.items():
        yield _formula(f"`{names[i]}`", line), names[i]
    left = [i for i in range(len(names)) if i not in alone]
    for n, i in enumerate(left):
        others = left[n + 1 :]
        for place in _nearly_straight(_combined(values[i, first], values[others][:, first]), y[first]):
            sign, j = place // len(others), others[place % len(others)]
            if (line := _line(_combined(values[i], values[[j]])[sign], y)) is not None:
                turned = sign == 4 or (sign == 0 and line[0] < 0)
                a, b = (j, i) if turned else (i, j)
                slope = abs(line[0]) if sign == 0 else line[0]
                yield _formula(f"`{names[a]}` {_SIGNS[sign]} `{names[b]}`", (slope, line[1])), names[a]


def _rows_in_halves(y: Vector) -> NDArray[np.int64]:
    """Some rows, those of small y before as many of large y."""
    places = np.linspace(0, len(y) - 1, min(_FIRST_LOOK, len(y) // 2 * 2)).round().astype(np.int64)
    return np.argsort(y, kind="stable")[places]


def _combined(one: Vector, others: Vector) -> Vector:
    """Difference, sum, product and both ratios of a column and each of others, `[5 · other, row]`."""
    return np.concatenate([one - others, one + others, one * others, one / others, others / one])


def _nearly_straight(values: Vector, y: Vector) -> list[int]:
    """Which columns `[column, row]` are nearly on a line with y, whose small values come first."""
    values = np.where(np.isfinite(values), values, np.nan)
    enough, slope = np.isfinite(values).sum(1) > len(y) // 2, _median_slope(values, y)
    rest = y - slope[:, None] * values
    error = np.nanmedian(np.abs(rest - np.nanmedian(rest, axis=1, keepdims=True)), axis=1)
    return np.flatnonzero(enough & (error <= 2 * _FINE * y.std()) & (slope != 0)).tolist()


def _median_slope(values: Vector, y: Vector) -> Vector:
    """The usual slope from columns `[..., row]` to y, whose small values come first, between its halves."""
    half = len(y) // 2
    slopes = (y[half:] - y[:half]) / (values[..., half:] - values[..., :half])
    return np.nanmedian(np.where(np.isfinite(slopes), slopes, np.nan), axis=-1)


def _line(x: Vector, y: Vector) -> Line | None:
    """The line from x to y that holds to rounding in nearly all rows; None where there is none."""
    known = np.isfinite(x)
    if 2 * known.sum() < len(y) or known.sum() < _LEAST_ROWS:
        return None
    x, y = x[known], y[known]
    first = _rows_in_halves(y)
    slope = float(_median_slope(x[first], y[first]))
    intercept = float(np.median(y - slope * x))
    exact = 1e-7 * np.maximum(np.abs(y), np.abs(slope * x))
    for _ in range(3):
        error = np.abs(y - slope * x - intercept)
        near = error <= np.maximum(4 * np.median(error), exact)
        apart = x[near] - x[near].mean()
        slope = float((apart * y[near]).sum() / ((apart**2).sum() or 1.0))
        intercept = float(y[near].mean() - slope * x[near].mean())
    error = np.abs(y - slope * x - intercept)
    spread = np.subtract(*np.quantile(y, (0.75, 0.25))) or y.std()
    steps = (0.0, _step(y), _step(y) + abs(slope) * _step(x))
    for step in steps:  # which the line, being fitted, may exceed a little
        if step / 2 <= _FINE * spread and _holds(error <= 0.6 * step + exact, x, y):
            return slope, intercept if abs(intercept) > 0.6 * step + 1e-7 * spread else 0.0
    return None


def _holds(hold: NDArray[np.bool_], x: Vector, y: Vector) -> bool:
    """Whether nearly all rows agree, those too whose target is not the most frequent one."""
    values, counts = np.unique(y, return_counts=True)
    rest = hold[y != values[np.argmax(counts)]]
    varied = min(len(np.unique(y[hold])), len(np.unique(x[hold]))) >= _LEAST_DIFFERENT
    return bool(varied and hold.mean() >= _AGREEMENT and rest.mean() >= _AGREEMENT)


def _step(values: Vector) -> float:
    """The power of ten that values are rounded to; 0 where it is smaller than a millionth."""
    for power in range(6, -7, -1):
        units = values / 10.0**power
        if (np.abs(units - units.round()) <= 1e-6 * np.maximum(1, np.abs(units) * 1e-6)).mean() >= _AGREEMENT:
            return float(10.0**power)
    return 0.0


def _formula(made: str, line: Line) -> str:
    slope, intercept = line
    if abs(slope - 1) < 1e-4 and not intercept:
        return made
    if " " in made.split("`")[2]:
        return f"{made} (in other units)"
    shift = f" {'+' if intercept > 0 else '−'} {abs(intercept):.6g}" if intercept else ""
    return f"{slope:.6g} × {made}{shift}"


def looked_up(y: NDArray[Any], values: pa.ChunkedArray, n_classes: int) -> bool:
    """Whether a column names the target: each level a class, or for numbers levels that repeat with the same number.

    Arguments:
        y: the target, or codes of classes.
        values: of the column.
        n_classes: 0 for numbers.

    Example:
        >>> looked_up(np.array([0, 1] * 20), pa.chunked_array([["no", "yes"] * 20]), 2)
        True
    """
    codes = values.combine_chunks().dictionary_encode("encode")
    levels, n_levels = codes.indices.to_numpy(zero_copy_only=False).astype(np.int64), len(codes.dictionary)
    if len(y) < _LEAST_ROWS or n_levels < 2:
        return False
    if n_classes:
        if n_levels > max(2 * n_classes, len(y) // _ROWS_PER_LEVEL):
            return False
        counts = np.bincount(levels * n_classes + y, minlength=n_levels * n_classes).reshape(n_levels, n_classes)
        named = counts.argmax(1)[levels]  # of each class nearly all rows must be
        return bool(np.mean([(named[y == label] == label).mean() for label in np.unique(y)]) >= _AGREEMENT)
    order = np.argsort(levels, kind="stable")
    same_level, same_number = (part[order][1:] == part[order][:-1] for part in (levels, y))
    chance = float(np.square(np.unique(y, return_counts=True)[1] / len(y)).sum())
    enough = chance < 0.1 and same_level.sum() >= max(_LEAST_ROWS, len(y) / 20)
    return bool(enough and same_number[same_level].mean() >= _AGREEMENT)


def dividing_end(y: NDArray[Any], values: Vector) -> float | None:
    """The number up to which nearly all rows are of one of two classes, and above of the other; None where there is none.

    Example:
        >>> dividing_end(np.repeat([1, 0], 30), np.arange(60.0))
        29.0
    """
    order, n_ones = np.argsort(values, kind="stable"), int(y.sum())
    if np.isnan(values).any() or min(n_ones, len(y) - n_ones) < _LEAST_ROWS:
        return None
    ones_below = np.cumsum(y[order]) / n_ones
    zeros_below = np.cumsum(1 - y[order]) / (len(y) - n_ones)
    apart = np.where(np.append(np.diff(values[order]) > 0, False), np.abs(ones_below - zeros_below), 0.0)
    best = int(np.argmax(apart))
    return float(values[order][best]) if (1 + apart[best]) / 2 >= _AGREEMENT else None
