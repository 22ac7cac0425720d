"""Which columns drive predictions and how unsure they are; and of one row, which columns make it unsure."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch

from deep_ensembles._checks import check_integer, require
from deep_ensembles._splits import evenly_spaced
from deep_ensembles._terminal import Listing
from deep_ensembles.recalibration import Prediction
from deep_ensembles.report.words import count, number, percent, with_error
from deep_ensembles.scoring import log_score

_MOST_ROWS, _MOST_PREDICTIONS = 2000, 300_000  # rows that columns are permuted in, and rows predicted for that in all
_AT_ONCE = 20_000  # rows predicted in one go, on the way from usual rows to one

Predict = Callable[[np.ndarray], Prediction]


def explain(predict: Predict, inputs: np.ndarray, columns: Sequence[Sequence[int]], names: Sequence[str],
            targets: np.ndarray | None = None, row: int | None = None) -> "Influences | Reasons":  # fmt: skip
    """Which columns drive predictions; or, of one of the rows beside the others, which make it unsure (see below).

    Arguments:
        row: its number, from 0.
    """
    if row is None:
        return influences(predict, inputs, columns, names, targets)
    require(0 <= row < len(inputs), "row", f"from 0 to {len(inputs) - 1}", row)
    return reasons(predict, inputs[row], inputs, columns, names)


@dataclass(frozen=True)
class Influence:
    """What happens if a column is shuffled: means over rows, with their standard errors.

    Arguments:
        error: how much the absolute error (numbers) or the log loss (classes) grows; None without targets.
        spread: how much the predicted standard deviation or entropy moves, up or down.
    """

    column: str
    error: float | None
    error_error: float | None
    spread: float
    spread_error: float


@dataclass(frozen=True)
class Influences:
    """All columns, the most important first.

    Arguments:
        columns: one by one.
        is_class: whether classes are predicted, not numbers.
        n_rows: rows that columns were shuffled in.
        error: of the predictions as they are; None without targets.
        spread: the mean predicted one.
    """

    columns: tuple[Influence, ...]
    is_class: bool
    n_rows: int
    error: float | None
    spread: float

    @property
    def names(self) -> tuple[str, str]:
        """What is called error and spread."""
        return ("log loss", "entropy") if self.is_class else ("absolute error", "standard deviation")

    def listing(self, most: int = 20) -> Listing:
        """The first columns, to print."""
        error, spread = self.names
        heads = ["column", *([f"{error} grows by"] if self.error is not None else []), f"{spread} moves by"]
        rows = [[each.column, *([] if each.error is None else [with_error(each.error, each.error_error or 0.0)]),
                 with_error(each.spread, each.spread_error)] for each in self.columns[:most]]  # fmt: skip
        without = "" if self.error is None else f"the mean {error} is {number(self.error)}, "
        more = f"; {count(len(self.columns) - most)} more columns matter less" if len(self.columns) > most else ""
        note = f"each column shuffled over {count(self.n_rows)} rows; {without}the mean {spread} {number(self.spread)}{more}"
        return Listing("Which columns drive predictions", heads, rows, note)

    def as_dict(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)


def influences(predict: Predict, inputs: np.ndarray, columns: Sequence[Sequence[int]], names: Sequence[str],
               targets: np.ndarray | None = None, *, repeats: int = 5, most_predictions: int = _MOST_PREDICTIONS,
               random_state: int = 0) -> Influences:  # fmt: skip
    """Permutation importance for the error and for the spread.

    Rows should be ones that the model has not seen. Columns that say the same share their influence: each alone may seem
    to matter little.

    References:
        Breiman (2001).

    Arguments:
        predict: inputs → prediction.
        inputs: `[row, input]`; of many rows some are taken, evenly spaced.
        columns: the inputs of each column.
        names: of the columns.
        targets: what happened; None if that is not known.
        repeats: how often a column is shuffled.
        most_predictions: about how many rows are predicted in all; where columns are many, fewer rows are taken.
        random_state: the seed of that.
    """
    check_integer("repeats", repeats, low=1)
    most = max(100, min(_MOST_ROWS, most_predictions // (repeats * max(1, len(columns)))))
    rows = evenly_spaced(np.arange(len(inputs)), most)
    require(len(rows) > 1, "inputs", "at least 2 rows", len(inputs))
    inputs, generator = inputs[rows], np.random.default_rng(random_state)
    known = None if targets is None else torch.from_numpy(np.asarray(targets)[rows])
    is_class, error, spread = _measured(predict, inputs, known)
    found = []
    for name, places in zip(names, columns, strict=True):
        errors, spreads = np.zeros((2, len(rows)))
        for _ in range(repeats):
            changed = inputs.copy()
            changed[:, list(places)] = inputs[generator.permutation(len(rows))][:, list(places)]
            _, moved_error, moved_spread = _measured(predict, changed, known)
            errors += 0.0 if error is None or moved_error is None else (moved_error - error) / repeats
            spreads += np.abs(moved_spread - spread) / repeats
        means: Any = [*((None, None) if error is None else _mean(errors)), *_mean(spreads)]
        found.append(Influence(name, *means))
    found.sort(key=lambda each: -(each.spread if each.error is None else each.error))
    overall = None if error is None else float(error.mean())
    return Influences(tuple(found), is_class, len(rows), overall, float(spread.mean()))


def _mean(values: np.ndarray) -> tuple[float, float]:
    """With its standard error."""
    return float(values.mean()), float(values.std(ddof=1) / len(values) ** 0.5)


def _measured(predict: Predict, inputs: np.ndarray, targets: Any) -> tuple[bool, np.ndarray | None, np.ndarray]:
    """Whether classes are predicted, and error and spread of every row."""
    with torch.inference_mode():
        prediction: Any = predict(inputs)
        is_class = prediction.kind == "classes"
        spread = (prediction.entropy() if is_class else prediction.stddev).double().numpy()
        if targets is None:
            return is_class, None, spread
        error = log_score(prediction, targets) if is_class else (prediction.mean - targets).abs()
        return is_class, error.double().numpy(), spread


@dataclass(frozen=True)
class Contribution:
    """What a column adds to the noise that a prediction states, and to the disagreement of its members; may be negative."""

    column: str
    aleatoric: float
    aleatoric_error: float
    epistemic: float
    epistemic_error: float


@dataclass(frozen=True)
class Reasons:
    """Why a row is unsure: its uncertainty is that of usual rows plus what its columns add.

    Arguments:
        contributions: of all columns, the greatest first.
        usual: aleatoric and epistemic uncertainty of background rows, on average.
        row: the same of the row.
        unit: of the numbers.
    """

    contributions: tuple[Contribution, ...]
    usual: tuple[float, float]
    row: tuple[float, float]
    unit: str

    def listing(self, most: int = 20) -> Listing:
        """The first columns, to print."""
        rows = [["usual rows", *(number(value, 3) for value in self.usual)]]
        rows += [[each.column, with_error(each.aleatoric, each.aleatoric_error),
                  with_error(each.epistemic, each.epistemic_error)] for each in self.contributions[:most]]  # fmt: skip
        left = self.contributions[most:]
        if left:
            sums = sum(each.aleatoric for each in left), sum(each.epistemic for each in left)
            rows.append([f"{len(left)} more columns", *(number(value, 3) for value in sums)])
        rows.append(["this row", *(number(value, 3) for value in self.row)])
        part = self.row[1] / sum(self.row) if sum(self.row) > 0 else 0.0
        note = f"in {self.unit}; lines add up to the last; of this row's uncertainty {percent(part)} is ignorance"
        return Listing("Why this row is unsure", ["column", "noise (aleatoric)", "ignorance (epistemic)"], rows, note)

    def as_dict(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)


def reasons(predict: Predict, row: np.ndarray, background: np.ndarray, columns: Sequence[Sequence[int]],
            names: Sequence[str], *, n_orders: int = 400, random_state: int = 0) -> Reasons:  # fmt: skip
    """Shapley values of the columns of a row, for both parts of its uncertainty.

    A background row is turned into the row column by column, in random order; what a column changes, on average over
    orders and background rows, is its contribution. Each order is also walked backwards, which makes errors smaller.

    References:
        Štrumbelj & Kononenko (2014).

    Arguments:
        predict: inputs → prediction.
        row: its inputs.
        background: inputs of usual rows.
        columns: the inputs of each column.
        names: of the columns.
        n_orders: how many orders are tried; errors fall with its root.
        random_state: the seed of that.
    """
    check_integer("n_orders", n_orders, low=2)
    generator, d = np.random.default_rng(random_state), len(columns)
    place = np.array([np.isin(np.arange(len(row)), list(inputs)) for inputs in columns])
    n_pairs, size = n_orders // 2, max(1, _AT_ONCE // (2 * (d + 1)))
    added, ends, unit = np.empty((n_pairs, 2, d, 2)), np.empty((n_pairs, 2, 2)), ""
    for first in range(0, n_pairs, size):
        n = min(size, n_pairs - first)
        starts = background[generator.integers(len(background), size=n)]
        walks = np.array([(order, order[::-1]) for order in (generator.permutation(d) for _ in range(n))])
        taken = np.zeros((n, 2, d + 1, len(row)), dtype=bool)
        taken[:, :, 1:] = np.logical_or.accumulate(place[walks], axis=2)
        hybrids = np.where(taken, row, starts[:, None, None])
        parts, unit = _parts(predict, hybrids.reshape(-1, len(row)))
        values = parts.reshape(n, 2, d + 1, 2)
        np.put_along_axis(added[first : first + n], walks[..., None], np.diff(values, axis=2), axis=2)
        ends[first : first + n] = values[:, 0, [0, -1]]
    pairs = added.mean(1)
    mean, error = np.mean(pairs, axis=0), np.std(pairs, axis=0, ddof=1) / len(pairs) ** 0.5
    usual, whole = np.mean(ends, axis=0)
    ranked = np.argsort(-np.abs(mean).sum(1), kind="stable")
    numbers = np.stack([mean, error], -1).reshape(d, 4).tolist()  # noise, its error, ignorance, its error
    found = tuple(Contribution(names[i], *numbers[i]) for i in ranked)
    return Reasons(found, (float(usual[0]), float(usual[1])), (float(whole[0]), float(whole[1])), unit)


def _parts(predict: Predict, inputs: np.ndarray) -> tuple[np.ndarray, str]:
    """Aleatoric and epistemic uncertainty `[row, part]`, and their unit."""
    with torch.inference_mode():
        prediction: Any = predict(inputs)
        parts = torch.stack([prediction.aleatoric, prediction.epistemic], -1).double().numpy()
    return parts, "nats of entropy" if prediction.kind == "classes" else "variance, the square of the target's unit"
