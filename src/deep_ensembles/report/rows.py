"""Values per row → mean scores, thresholds, groups of rows, rows worth a look, unseen values."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from deep_ensembles._checks import require
from deep_ensembles.report.evaluation import Better, Example, Score, Threshold, Unseen
from deep_ensembles.report.segments import Groups
from deep_ensembles.report.words import CHANCE, CHANGED, Ordering, cell, short, with_error

Vector: TypeAlias = NDArray[np.float64]
# By name, one number per row.
Rows: TypeAlias = dict[str, Vector]
Columns: TypeAlias = Mapping[str, Any]
Value = TypeVar("Value")

# With fewer rows nothing is said about whether uncertainty orders the errors.
MIN_ROWS = 20
_SAMPLE_ROWS = 240
_GROUPS = 10
_EXAMPLE_ROWS = 10
_UNSEEN_EXAMPLES = 3
_CLEAR = 2.0  # standard errors by which early and late rows differ beyond chance


class Subject(NamedTuple):
    """What is predicted, and what a point prediction is.

    Arguments:
        kind: numbers, counts, classes or (censored) times.
        point: mean or median; of classes the mode or, where they have an order, the median.
        n_members: how many.
        coverage: the share of rows that intervals should hold.
        labels: the names of the classes; empty for numbers.
        positive: whether all predicted numbers are more than 0.
        constant: the family of the constant prediction.
        several: what else is predicted for each row, "targets" or "labels"; empty if nothing is.
        moments: of censored times, when Brier scores are taken.
    """

    kind: str
    point: str
    n_members: int
    coverage: float
    labels: tuple[str, ...] = ()
    positive: bool = False
    constant: str = ""
    several: str = ""
    moments: tuple[float, ...] = ()

    @property
    def task(self) -> Literal["numbers", "classes", "times"]:
        """Counts are numbers, too."""
        return "classes" if self.labels else "times" if self.kind == "times" else "numbers"


class Sources(NamedTuple):
    """Values per row of three kinds of predictions: the ensemble's, one member's, a constant; empty if not known."""

    ensemble: Rows
    single: Rows
    constant: Rows

    def apply(self, function: Callable[[Rows], Value]) -> tuple[Value, Value | None, Value | None]:
        """A function's value for each source; None for an empty one.

        Example:
            >>> Sources({"a": np.ones(2)}, {}, {"a": np.zeros(2)}).apply(lambda rows: float(rows["a"].sum()))
            (2.0, None, 0.0)
        """
        single, constant = (function(rows) if rows else None for rows in self[1:])
        return function(self.ensemble), single, constant

    def curves(self, function: Callable[[Rows], Value]) -> dict[str, Value]:
        """The same by the source's name, of those that are known."""
        return {name: function(rows) for name, rows in self._asdict().items() if rows}

    def mean_score(self, key: str, name: str, meaning: str, better: Better = "lower", share: bool = False) -> Score:
        """The mean over rows of one of their values, with the ensemble's differences to the member and to the constant.

        Example:
            >>> sources = Sources({"loss": np.array([1.0, 2.0])}, {"loss": np.array([2.0, 5.0])}, {})
            >>> score = sources.mean_score("loss", "Loss", "mean loss")
            >>> score.ensemble, score.single, score.constant, score.gain, score.gain_error
            (1.5, 3.5, None, -2.0, 1.0)
        """
        ensemble, single, constant = (rows.get(key) for rows in self)
        gains = (*mean_difference(ensemble, single), *mean_difference(ensemble, constant))
        values = self.apply(lambda rows: float(rows[key].mean()) if key in rows else None)
        return Score(name, meaning, better, *values, *gains, share)  # type: ignore[arg-type]


@dataclass
class RowFacts:
    """What is known of rows beside their predictions; may be filled in while batches are made.

    Arguments:
        target: the name of what is predicted.
        unit: of that, as in kg; empty if it has none.
        groups: of rows, by column: where errors are larger and what has changed since training is looked for in these; if
            there are none, in the columns that are shown.
        times: numbers or dates (NumPy's), one per row.
        time: the name of the column that these are from.
        numbers: of the rows, as people count them; from 0 if None.
        no_drift: why it cannot be judged whether columns have changed since training.
    """

    target: str = ""
    groups: list[Groups] = field(default_factory=list)
    times: NDArray[Any] | None = None
    numbers: NDArray[np.int64] | None = None
    no_drift: str = "the model keeps nothing of its training columns to compare with"
    unit: str = ""
    time: str = ""


def mean_difference(ensemble: Any, other: Vector | None) -> tuple[float | None, float | None]:
    """The mean difference over rows and its standard error; None where there is no finite one."""
    if other is None or not np.isfinite(difference := ensemble - other).all():
        return None, None
    n_rows = len(difference)
    error = float(difference.std(ddof=1) / math.sqrt(n_rows)) if n_rows > 1 else None
    return float(difference.mean()), error


def thresholds(values: Vector, metric: Vector, targets: Sequence[float], at_least: bool) -> list[Threshold]:
    """For each target, the threshold that keeps the most rows while their mean metric meets it; first of all, every row.

    What it reaches is told by rows that did not choose it: each half of the rows, drawn always alike, is judged by the
    threshold that the other half chooses. If all rows that the threshold keeps are worse than that, these tell. Rows of
    equal values are kept or dropped together. Targets that no threshold meets, or that leave fewer than 20 rows to judge
    by, are left out.

    Arguments:
        values: confidences or, unless `at_least`, uncertainties; thresholds are values that occur.
        metric: its mean over the kept rows has to meet the target.
        targets: the wanted means.
        at_least: whether thresholds and targets are lower bounds (a confidence, an accuracy), not upper ones (an error).

    Example:
        >>> rising = np.arange(100.0)
        >>> for line in thresholds(rising, rising, [20.0, 0.5], at_least=False):
        ...     print(line.wanted, line.threshold, line.rows, round(line.reached, 1), round(line.error, 1))
        49.5 99.0 100 49.5 2.9
        20.0 40.0 41 20.0 1.9
    """
    sign, n_rows = (1.0 if at_least else -1.0), len(values)
    half = np.random.default_rng(0).permutation(n_rows) % 2 == 0
    orders = [cumulated(sign * values[part], sign * metric[part]) for part in (np.ones(n_rows, bool), half, ~half)]
    lines = [Threshold(float(metric.mean()), float(sign * (sign * values).min()), *_judged(metric, at_least), 1.0, n_rows)]
    for target in targets:
        whole, *halves = (ordered[place[-1]] if len(place := np.flatnonzero(sums / kept >= sign * target)) else None
                          for ordered, kept, sums in orders)  # fmt: skip
        if whole is None:
            continue
        others = zip(halves, (~half, half), strict=True)
        trusted = [metric[other & (sign * values >= least)] for least, other in others if least is not None]
        judged, kept = np.concatenate([*trusted, metric[:0]]), metric[sign * values >= whole]
        rows = len(kept)
        if min(len(judged), rows) >= MIN_ROWS:
            worse = min(judged, kept, key=lambda part: float(sign * part.mean()))
            lines.append(Threshold(target, float(sign * whole), *_judged(worse, at_least), rows / n_rows, rows))
    return lines


def cumulated(values: Vector, metric: NDArray[Any]) -> tuple[Vector, Vector, Vector]:
    """Different values, the largest first; how many rows have at least that, and the sum of their metric.

    Example:
        >>> [part.tolist() for part in cumulated(np.array([0.1, 0.9, 0.9]), np.array([True, True, False]))]
        [[0.9, 0.1], [2.0, 3.0], [1.0, 2.0]]
    """
    order = np.argsort(-values, kind="stable")
    ordered = values[order]
    last = np.flatnonzero(np.append(ordered[1:] != ordered[:-1], True)[: len(values)])
    return ordered[last], last + np.float64(1), metric[order].cumsum()[last].astype(np.float64)


def _judged(metric: Vector, is_share: bool) -> tuple[float, float]:
    """The mean and its standard error; where all of some rows are right, one more might be wrong."""
    root = math.sqrt(len(metric))
    spread = float(metric.std(ddof=1)) if len(metric) > 1 else math.inf
    return float(metric.mean()), max(spread, 1 / root if is_share else 0.0) / root


def recommended(lines: list[Threshold], ordering: Ordering | None, at_least: bool) -> tuple[list[Threshold], dict[str, str]]:
    """The thresholds that are worth naming, and if there are none but that of all rows a verdict (`trust`) that says why."""
    everything, *others = lines
    better = [line for line in others if (line.reached - everything.reached) * (1 if at_least else -1) > 0]
    is_ordered = ordering is not None and ordering.strength > ordering.chance
    if is_ordered and better:
        return [everything, *better], {}
    why = "the predictions that it is surest of are no better than the others, beyond chance"
    if ordering is None:
        why = "too few rows tell, or all predictions are equally sure or equally wrong"
    elif is_ordered:
        why = "none that keeps enough rows makes what it keeps better"
    return [everything], {"trust": f"No threshold is recommended: {why}."}


def over_time(times: NDArray[Any], values: Vector, is_share: bool, name: str) -> tuple[dict[str, list[Any]], str] | None:
    """Means over groups of equally many rows, from the earliest on, and whether early and late rows differ.

    None where rows are few, or the latest third of them did not come after the earliest one.

    Arguments:
        times: numbers or dates, one per row.
        values: predicted minus actual, or whether a row is wrong.
        is_share: which of these.
        name: of the times.
    """
    order = np.argsort(times, kind="stable")
    early, _, late = np.array_split(order, 3)
    if len(order) < 3 * MIN_ROWS or not times[early[-1]] < times[late[0]]:
        return None
    groups = np.array_split(order, min(_GROUPS, len(order) // MIN_ROWS))
    means = [_judged(values[group], is_share) for group in groups]
    curve: dict[str, list[Any]] = {"time": [_time_text(times[group[0]]) for group in groups]}
    curve |= {"mean": [mean for mean, _ in means], "error": [error for _, error in means]}
    (first, first_error), (last, last_error) = (_judged(values[part], is_share) for part in (early, late))
    chance = CHANGED if abs(last - first) > _CLEAR * math.hypot(first_error, last_error) else CHANCE
    told = [with_error(value, error, is_share) for value, error in ((first, first_error), (last, last_error))]
    what = "the share of wrong predictions is" if is_share else "predicted minus actual is, on average,"
    since, rows = _time_text(times[late[0]]), "rows" + f" by `{short(name)}`" * bool(name)
    return curve, f"In the earliest third of the {rows} {what} {told[0]}, in the latest (from {since}) {told[1]}: {chance}."


def _time_text(time: Any) -> str:
    return str(time)[:10] if isinstance(time, np.datetime64) else cell(float(time))


def sample_rows(rows: Rows, names: Sequence[str]) -> dict[str, list[float]]:
    """Values to draw as points: of all rows if they are few, else of a random sample that is always the same."""
    n_rows = len(rows["actual"])
    sample = np.sort(np.random.default_rng(0).choice(n_rows, min(n_rows, _SAMPLE_ROWS), replace=False))
    return as_lists(**{name: rows[name][sample] for name in ("row", *names)})


def group_means(uncertainty: Vector, rows: Rows, mean: Callable[[Vector], Any]) -> dict[str, list[float]]:
    """Means over groups of equally many rows (give or take one), from the least uncertain on."""
    groups = np.array_split(np.argsort(uncertainty, kind="stable"), min(_GROUPS, len(uncertainty)))
    means = {name: [float(mean(values[group])) for group in groups] for name, values in rows.items()}
    return means | {"rows": [len(group) for group in groups]}


def histogram(values: Vector, n_bins: int, ends: tuple[float, float] = (0.0, 1.0)) -> dict[str, list[float]]:
    """The share of rows in each of some equally wide bins between two ends."""
    counts, edges = np.histogram(values, n_bins, ends)
    return as_lists(edge=edges, share=counts / len(values))


def as_lists(**columns: NDArray[Any]) -> dict[str, list[Any]]:
    """Arrays as plain data."""
    return {name: values.tolist() for name, values in columns.items()}


def recalled(rows: NDArray[Any], guesses: NDArray[Any], hits: NDArray[Any]) -> dict[str, list[Any]]:
    """Of each class or label its rows, the share of them found, and the share of its predictions that are right.

    Example:
        >>> recalled(np.array([4, 0]), np.array([5, 1]), np.array([3, 0]))
        {'rows': [4, 0], 'recall': [0.75, None], 'precision': [0.6, 0.0]}
    """
    shares = ([float(hit / n) if n else None for hit, n in zip(hits, totals, strict=True)] for totals in (rows, guesses))
    return dict(zip(("rows", "recall", "precision"), (rows.tolist(), *shares), strict=True))


def examples(rank_by: Vector, values: Mapping[str, Sequence[Any] | Vector], columns: Columns | None) -> list[Example]:
    """The rows that rank highest, the first first.

    Arguments:
        rank_by: the more, the sooner a row is shown; rows of 0 or less are not shown.
        values: the number of a row, `row`, and what is shown of it, by name.
        columns: the cells, by column; anything that NumPy makes an array of one value per row.

    Example:
        >>> examples(np.array([1.0, 3.0, 0.0]), {"row": [0, 1, 2], "error": [1.0, 3.0, 0.0]}, {"age": [20, 30, 40]})[0]
        Example(row=1, values={'error': 3.0}, columns={'age': '30'})
    """
    top = [int(row) for row in np.argsort(-rank_by, kind="stable")[:_EXAMPLE_ROWS] if rank_by[row] > 0]
    cells = {str(name): _cells(str(name), column, top, len(rank_by)) for name, column in (columns or {}).items()}
    found = []
    for place, row in enumerate(top):
        shown = {name: each if isinstance(each := column[row], str) else float(each) for name, column in values.items()}
        found.append(Example(int(shown.pop("row")), shown, {name: texts[place] for name, texts in cells.items()}))
    return found


def _cells(name: str, column: Any, rows: list[int], n_rows: int) -> list[str]:
    array = column if hasattr(column, "take") else np.asarray(column)
    require(len(array) == n_rows, "columns", f"{n_rows} values each, one per row", f"{len(array)} of {name!r}")
    return [cell(value) for value in np.asarray(array.take(rows)).tolist()] if rows else []


def unseen_values(names: Sequence[Any], values: np.ndarray, low: Any, high: Any) -> list[Unseen]:
    """Columns of numbers with values below or above what training saw, those with the most such rows first.

    Arguments:
        names: of the columns.
        values: the numbers of the rows.
        low, high: the range of each column in training.

    Shape:
        values `[row, column]`, low and high `[column]`.

    Example:
        >>> unseen_values(["age"], np.array([[20.0], [99.0]]), [18.0], [65.0])
        [Unseen(column='age', seen='18 to 65', rows=1, share=0.5, examples=('99',))]
    """
    columns = []
    for name, column, least, most in zip(names, values.T, map(float, low), map(float, high), strict=True):
        distance = np.maximum(least - column, column - most)
        rows = np.flatnonzero(distance > 0)
        if len(rows):
            farthest = column[rows[np.argsort(-distance[rows], kind="stable")[:100]]]
            shown = tuple(dict.fromkeys(map(cell, farthest.tolist())))[:_UNSEEN_EXAMPLES]
            columns.append(Unseen(str(name), f"{cell(least)} to {cell(most)}", len(rows), len(rows) / len(column), shown))
    return sorted(columns, key=lambda column: -column.rows)


def unseen_columns(columns: Sequence[Any], counts: Sequence[int], examples: Sequence[Any], n_rows: int) -> list[Unseen]:
    """Columns of any kind with values that training did not see, those with the most such rows first.

    Arguments:
        columns: of a schema.
        counts, examples: how many rows of each column have such values, and some of these.
        n_rows: how many rows there are.
    """
    found = [Unseen(column.name, column.summary(), int(count), int(count) / n_rows, tuple(shown))
             for column, count, shown in zip(columns, counts, examples, strict=True) if count]  # fmt: skip
    return sorted(found, key=lambda column: -column.rows)
