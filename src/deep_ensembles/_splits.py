"""Every way to split rows (hold some out, resample, folds; by class, group or time)."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from deep_ensembles._checks import check_integer, check_number, require

Split = tuple[np.ndarray, np.ndarray]
PerRow = np.ndarray | None  # the class, group or time of every row, where there is one


class Resampling(Protocol):
    """Which of its rows a member is trained on."""

    def __call__(self, rows: np.ndarray, generator: np.random.Generator, /) -> np.ndarray: ...


@dataclass(frozen=True)
class Bootstrap:
    """As many rows as there are, drawn with replacement: bagging. About 63 % of the rows are seen."""

    def __call__(self, rows: np.ndarray, generator: np.random.Generator) -> np.ndarray:
        return np.sort(generator.choice(rows, size=len(rows), replace=True))


@dataclass(frozen=True)
class Subsample:
    """A share of the rows, drawn without replacement."""

    fraction: float = 0.8

    def __post_init__(self) -> None:
        check_number("fraction", self.fraction, low=0, above=True, high=1)

    def __call__(self, rows: np.ndarray, generator: np.random.Generator) -> np.ndarray:
        return np.sort(generator.choice(rows, size=max(1, round(self.fraction * len(rows))), replace=False))


@dataclass(frozen=True, eq=False)
class ComplementaryFolds:
    """Every member holds out a fold of its own, so that each row is predicted by members that never saw it.

    Arguments:
        n_folds: how many folds; by default 5, or as many as there are members if those are fewer.
        groups: the group of every row; rows of a group are held out together.
        random_state: a seed for the folds alone, so that several ensembles can have the same; by default the first member's.
    """

    n_folds: int | None = None
    groups: PerRow = None
    random_state: int | None = None

    def __post_init__(self) -> None:
        check_integer("n_folds", self.n_folds, low=2, optional=True)
        check_integer("random_state", self.random_state, low=0, optional=True)

    def __call__(
        self, rows: np.ndarray, n_members: int, generator: np.random.Generator, strata: PerRow = None
    ) -> list[np.ndarray]:
        """The folds of some rows, each in order; with `strata`, the class of each row, the same share of each."""
        generator = generator if self.random_state is None else np.random.default_rng(self.random_state)
        count, n_grouped = self.count(n_members), len(rows) if self.groups is None else len(self.groups)
        require(self.groups is None or n_grouped > int(rows.max()), "groups", "one per row", n_grouped)
        kinds = np.arange(len(rows)) if self.groups is None else np.asarray(self.groups)[rows]
        n_kinds = len(np.unique(kinds))
        require(n_kinds >= count, "n_folds", f"at most the number of rows or groups ({n_kinds})", count)
        return _dealt(rows, count, kinds, strata, generator)

    def count(self, n_members: int) -> int:
        """How many folds so many members have."""
        count = min(5, n_members) if self.n_folds is None else self.n_folds
        require(2 <= count <= n_members, "n_folds", f"from 2 to the number of members ({n_members})", count)
        return count

    def halves(self, fold: np.ndarray, classes: PerRow = None) -> Split:
        """A fold in two: every other row or group (of each class)."""
        kinds = fold if self.groups is None else np.asarray(self.groups)[fold]
        first, second = _dealt(fold, 2, kinds, None if classes is None else classes[fold])
        return first, second


def _dealt(
    rows: np.ndarray, n_parts: int, kinds: np.ndarray, strata: PerRow, generator: np.random.Generator | None = None
) -> list[np.ndarray]:
    """Rows in so many parts, those of a kind together, and of each class the same share; shuffled, or else in order."""
    _, first, kind = np.unique(kinds, return_index=True, return_inverse=True)
    order = np.arange(len(first)) if generator is None else generator.permutation(len(first))
    if strata is not None:
        order = order[np.argsort(strata[first[order]], kind="stable")]
    part_of = np.empty(len(first), dtype=np.int64)
    part_of[order] = np.arange(len(first)) % n_parts
    return [rows[part_of[kind] == part] for part in range(n_parts)]


def hold_out(rows: np.ndarray, fraction: float, generator: np.random.Generator, strata: PerRow = None) -> Split:
    """(rows to train on, rows held out), each in order; with `strata`, the class of each row, the same share of each."""
    if len(rows) < 2:
        raise ValueError("at least 2 rows are needed to hold some out, got 1 sample")
    n_held_out = min(len(rows) - 1, max(1, round(fraction * len(rows))))
    order, picks = generator.permutation(len(rows)), np.arange(n_held_out)
    if strata is not None:
        order = order[np.argsort(strata[order], kind="stable")]
        # Rows of one class now stand together: evenly spaced picks take the same share of each.
        picks = np.floor((picks + generator.random()) * len(rows) / n_held_out).astype(np.int64)
    mask = np.zeros(len(rows), dtype=bool)
    mask[order[np.minimum(picks, len(rows) - 1)]] = True
    return rows[~mask], rows[mask]


def cross_validation_splits(
    cv: Any, n_rows: int, *, classes: PerRow = None, groups: PerRow = None, times: PerRow = None, seed: int = 0
) -> list[Split]:
    """(rows to train on, rows to test on) of each fold.

    Arguments:
        cv: the number of folds, a splitter of scikit-learn, or pairs of row numbers or masks.
        classes: the class of each row; folds have the same share of each.
        groups: the group of each row; rows of a group are tested together.
        times: the time of each row; each fold is tested on the rows that come next.
        seed: of the order in which rows are dealt to folds.
    """
    order = np.arange(n_rows)
    if isinstance(cv, (int, np.integer)):
        check_integer("cv", cv, low=2)
        require(bool(cv <= n_rows), "cv", f"at most the number of rows ({n_rows})", cv)
        order = order if times is None else np.argsort(times, kind="stable")
        cv = _splitter(int(cv), classes, groups, times, seed)
    pairs: Iterable[tuple[Any, Any]] = cv if not hasattr(cv, "split") else cv.split(np.zeros((n_rows, 1)), classes, groups)
    splits = [(order[_row_numbers(train, n_rows)], order[_row_numbers(test, n_rows)]) for train, test in pairs]
    require(bool(splits) and all(len(a) and len(b) for a, b in splits), "cv", "folds with rows to train and to test on", cv)
    return splits


def _splitter(cv: int, classes: PerRow, groups: PerRow, times: PerRow, seed: int) -> Any:
    from sklearn import model_selection  # when it is needed: it takes a second

    if times is not None:
        return model_selection.TimeSeriesSplit(cv)
    name = "GroupKFold" if groups is not None else "KFold" if classes is None else "StratifiedKFold"
    return getattr(model_selection, name)(cv, shuffle=True, random_state=seed)


def _row_numbers(rows: Any, n: int) -> np.ndarray:
    rows = np.asarray(rows)
    if rows.dtype == bool:
        require(rows.shape == (n,), "cv", f"masks of all {n} rows, or row numbers", list(rows.shape))
        rows = np.flatnonzero(rows)
    rows = rows.astype(np.int64)
    inside = bool(rows.ndim == 1 and ((rows >= 0) & (rows < n)).all())
    require(inside, "cv", f"row numbers from 0 to {n - 1}", rows)
    return rows


def random_parts(n_parts: int, n_rows: int, groups: PerRow, generator: np.random.Generator) -> list[np.ndarray]:
    """Row numbers in so many parts of about equal size, dealt at random; rows of a group stay together."""
    kinds = np.arange(n_rows) if groups is None else np.unique(groups, return_inverse=True)[1]
    order = generator.permutation(int(kinds.max()) + 1)
    require(len(order) > 1, "groups", "at least 2 different ones", len(order))
    return [np.flatnonzero(np.isin(kinds, part)) for part in np.array_split(order, min(n_parts, len(order)))]


def united(groups: np.ndarray, others: np.ndarray) -> np.ndarray:
    """The number of each row's group, where rows of either kind of group are together; by the first kind alone where that
    would make one group of half of the rows.

    Example:
        >>> united(np.array([0, 0, 1, 2, 3, 4]), np.array([0, 1, 0, 3, 4, 5])).tolist()
        [0, 0, 0, 1, 2, 3]
    """
    from scipy.sparse import coo_array  # late, as SciPy takes a while
    from scipy.sparse.csgraph import connected_components

    first, second = (np.unique(kind, return_inverse=True)[1] for kind in (groups, others))
    n = int(first.max()) + 1
    links = coo_array((np.ones(len(first)), (first, second + n)), shape=(n + int(second.max()) + 1,) * 2)
    found: np.ndarray = connected_components(links, directed=False)[1][first]
    return found if np.bincount(found).max() <= len(found) / 2 else groups


def evenly_spaced(rows: np.ndarray, at_most: int | None) -> np.ndarray:
    """All rows, or so many of them from the first to the last.

    Example:
        >>> evenly_spaced(np.arange(10), 4)
        array([0, 3, 6, 9])
    """
    return rows if at_most is None or len(rows) <= at_most else rows[np.linspace(0, len(rows) - 1, at_most).astype(int)]
