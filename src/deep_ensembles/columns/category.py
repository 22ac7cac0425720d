"""Categories: one of several levels."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from deep_ensembles._arrow import pa, pc
from deep_ensembles.columns._column import Column, frequent_enough, missing_values
from deep_ensembles.columns._parsing import levels_of, nulls, text

MOST_LEVELS = 200
_MOST_RARE = 10_000
_FEW_LEVELS, _MOST_CODED = 80, 2000  # that have an input each, and that have a number at most, where categories may be coded


@dataclass(frozen=True)
class Category(Column):
    """One input per frequent level, one for all rarer ones together and one for missing values, where training had them.

    A level that training did not see counts among the rarer ones; where there are none it is 0 in every input, as are
    missing values that training did not have.

    Coded, the column is one input, for networks that learn a vector for each level (see `Levels`): frequent levels are
    numbered from 1, and 0 stands for all others and for missing values.

    Arguments:
        name: of the column.
        levels: the frequent ones, as text, most frequent first.
        rare: the others of training.
        with_rare: whether they have an input.
        all_known: whether `levels` and `rare` are all that training saw; there is an end to what is kept.
        coded: whether levels are numbers in one input.
        missing: how many training values were missing.
        marked: whether an input marks missing values.

    Example:
        >>> column = category("pet", pa.array(["cat", "cat", "dog", "dog", None]))
        >>> column.encode(pa.array(["dog", "fish", "NA"])).tolist()
        [[0.0, 1.0, 0.0], [0.0, 0.0, 0.0], [0.0, 0.0, 1.0]]
        >>> column.unseen(column.read(pa.array(["dog", "fish"]))).tolist()
        [False, True]
    """

    levels: tuple[str, ...]
    rare: tuple[str, ...] = ()
    with_rare: bool = False
    all_known: bool = True
    coded: bool = False

    @property
    def value_names(self) -> tuple[str, ...]:
        if self.coded:
            return (self.name,)
        return (*(f"{self.name} = {level}" for level in self.levels), *(f"{self.name} is another",) * self.with_rare)

    def parse(self, values: pa.Array) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """The place among frequent, then rare levels; behind both for those that training did not see."""
        texts, known = text(values), (*self.levels, *self.rare)
        places = pc.fill_null(pc.index_in(texts, value_set=pa.array(known, texts.type)), len(known))
        read = np.where(nulls(texts), np.nan, places.to_numpy(zero_copy_only=False))
        return read, np.zeros(len(read), bool)

    def values(self, read: NDArray[np.float64]) -> NDArray[np.float32]:
        rows, n_levels = np.flatnonzero(~np.isnan(read)), len(self.levels)
        if self.coded:
            return np.where(read < n_levels, read + 1, 0).astype(np.float32)
        encoded = np.zeros((len(read), n_levels + 1), np.float32)
        encoded[rows, np.minimum(read[rows], n_levels).astype(np.int64)] = 1
        return encoded[:, : n_levels + self.with_rare]

    def unseen_values(self, read: NDArray[np.float64]) -> NDArray[np.bool_]:
        return (read == len(self.levels) + len(self.rare)) & self.all_known

    def description(self) -> str:
        shown = ", ".join(self.levels[:3]) + (", …" if len(self.levels) > 3 else "")
        several = f"{len(self.levels)} level{'s' * (len(self.levels) != 1)} ({shown})"
        more = "" if self.all_known else "more than "
        rarer = f" and {more}{len(self.rare)} rarer" if self.rare else ""
        return f"category, {several}{rarer}"


def category(name: str, values: pa.Array | pa.ChunkedArray, coded: bool = False) -> Category:
    """A column of categories as its values show it.

    Up to 200 levels have an input of their own, the most frequent ones, each with at least 2 rows and 1 row in 1000.

    Arguments:
        name: of the column.
        values: of training, of any type: numbers count as the text they are written as.
        coded: whether more than 80 levels may be numbers in one input: up to 2000, be they rare.

    Example:
        >>> category("zip", pa.array(["00123", "00123", "45678"])).summary()
        'category, 1 level (00123) and 1 rarer'
    """
    texts = text(values)
    different, rows = levels_of(texts)
    counts = sorted(zip(rows.tolist(), different.to_pylist(), strict=True), key=lambda pair: (-pair[0], pair[1]))
    if not counts:
        raise ValueError(f"column `{name}` has no value in it; leave it out")
    coded = coded and len(counts) > _FEW_LEVELS
    levels = [level for count, level in counts[:MOST_LEVELS] if count >= 2 and frequent_enough(count, len(texts))]
    if coded or not levels:
        levels = [level for _, level in counts[: _MOST_CODED if coded else MOST_LEVELS]]
    rare = [level for _, level in counts[len(levels) :]]
    rare_rows = sum(count for count, _ in counts[len(levels) :])
    with_rare = not coded and rare_rows > 1 and frequent_enough(rare_rows, len(texts))
    all_known = len(rare) <= _MOST_RARE
    missing = missing_values(texts.null_count, len(texts))
    return Category(name, tuple(levels), tuple(rare[:_MOST_RARE]), with_rare, all_known, coded, **missing)
