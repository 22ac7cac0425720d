"""What a table of predictions holds: options, and the one list of predicted columns with how each is computed."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from deep_ensembles._arrow import pa
from deep_ensembles._checks import check_number, require
from deep_ensembles.columns import Errors, TableError, TakenAsMissing
from deep_ensembles.recalibration import Conformal
from deep_ensembles.tabular.model import TableModel
from deep_ensembles.tabular.writing import safe_cells


@dataclass(frozen=True, kw_only=True)
class PredictionOptions:
    """What a table of predictions should hold.

    Arguments:
        coverage: the share of rows that intervals should hold.
        quantiles: levels, each a column.
        abstain_below: mark rows whose confidence is less, to hand them to a person; for classes.
        abstain_above: mark rows whose standard deviation is more; for numbers.
        keep: columns of the table to carry over.
        errors: `refuse` values that cannot be read, or take them as `missing`.
        safe_cells: put an apostrophe before text that a spreadsheet would run as a formula.
        table: the sheet of a workbook or the table of a database, where it holds several.
    """

    coverage: float = 0.9
    quantiles: tuple[float, ...] = ()
    abstain_below: float | None = None
    abstain_above: float | None = None
    keep: tuple[str, ...] = ()
    errors: Errors = "refuse"
    safe_cells: bool = False
    table: str | None = None

    def __post_init__(self) -> None:
        check_number("coverage", self.coverage, low=0, high=1, above=True, below=True)
        for level in self.quantiles:
            check_number("quantiles", level, low=0, high=1, above=True, below=True)
        check_number("abstain_below", self.abstain_below, low=0, high=1, optional=True)
        check_number("abstain_above", self.abstain_above, low=0, optional=True)
        counted = isinstance(self.errors, TakenAsMissing)
        require(counted or self.errors in ("refuse", "missing"), "errors", "refuse or missing", self.errors)

    @property
    def tail(self) -> float:
        """The probability on either side of an interval."""
        return (1 - self.coverage) / 2

    @property
    def threshold(self) -> Any:
        """Of rows to mark for a person: a confidence, or a standard deviation; None where none are marked."""
        return self.abstain_above if self.abstain_below is None else self.abstain_below


@dataclass(frozen=True, eq=False)
class _Batch:
    """Predictions for some rows: as members make them, and recalibrated."""

    model: TableModel
    options: PredictionOptions
    mixture: Any
    recalibrated: Any

    @property
    def moments(self) -> Any:
        """The distribution to take moments of: conformal is about intervals, and too rough for them."""
        return self.mixture if _is_conformal(self.model) else self.recalibrated

    def quantile(self, level: float) -> Tensor:
        return self.recalibrated.icdf(torch.tensor(level, dtype=torch.float64))

    @cached_property
    def interval(self) -> Tensor:
        """Both ends, `[2, row]`: found at once they take less time."""
        tail = self.options.tail
        return self.recalibrated.icdf(torch.tensor([[tail], [1 - tail]], dtype=torch.float64))

    @cached_property
    def probabilities(self) -> NDArray[np.float64]:
        """`[row, class]`, with sums of 1 to the last digit of double precision."""
        shares = self.recalibrated.probs.double()
        return (shares / shares.sum(-1, keepdim=True)).numpy()

    @cached_property
    def predicted(self) -> NDArray[np.int64]:
        """The number of the most probable class, or where classes have an order of the median."""
        return self.reached(0.5) if _has_median(self.model, self.options) else self.probabilities.argmax(1)

    @cached_property
    def confidence(self) -> NDArray[np.float64]:
        return np.take_along_axis(self.probabilities, self.predicted[:, None], axis=1)[:, 0]

    def reached(self, level: float) -> NDArray[np.int64]:
        """The number of the first class, in their order, by which so much of the probability is reached."""
        return (self.probabilities[:, :-1].cumsum(1) < level).sum(1)

    def labels(self, places: NDArray[np.int64]) -> pa.Array:
        return pa.array(list(self.model.target.classes)).take(pa.array(places))

    def label_sets(self) -> pa.Array:
        conformal: Any = self.model.ensemble.recalibration
        inside = conformal.prediction_set(self.recalibrated, self.options.coverage).numpy()
        names = np.array([str(label) for label in self.model.target.classes])
        return pa.array(["|".join(names[row]) for row in inside])


@dataclass(frozen=True)
class Output:
    """A column that `predict` writes; several, where its name has a part in angle brackets.

    Arguments:
        name: in the file; `<level>` and `<class>` stand for each of those.
        meaning: for people, as in docs/tables.md.
        values: `[row]`, or `[row, level]` or `[row, class]`.
        wanted: whether a model and options ask for it; always by default.
    """

    name: str
    meaning: str
    values: Callable[[_Batch], Any]
    wanted: Callable[[TableModel, PredictionOptions], bool] | None = None

    def names(self, model: TableModel, options: PredictionOptions) -> list[str]:
        """The columns of a file, none where they are not wanted."""
        if self.wanted is not None and not self.wanted(model, options):
            return []
        parts = {"<level>": [f"{level:g}" for level in options.quantiles], "<class>": list(map(str, model.target.classes))}
        start, mark, _ = self.name.partition("<")
        return [start + part for part in parts[self.name[len(start) :]]] if mark else [self.name]


def _is_conformal(model: TableModel, options: PredictionOptions | None = None) -> bool:
    return isinstance(model.ensemble.recalibration, Conformal)


def _marks_rows(model: TableModel, options: PredictionOptions) -> bool:
    return options.threshold is not None


def _has_median(model: TableModel, options: PredictionOptions) -> bool:
    return getattr(model.ensemble.head, "point", "mean") == "median"


NUMBER_OUTPUTS = (
    Output("mean", "mean of the predicted distribution", lambda batch: batch.moments.mean),
    Output("median", "with the head `quantiles`: its median", lambda batch: batch.quantile(0.5), _has_median),
    Output("std", "its standard deviation", lambda batch: batch.moments.stddev),
    Output("aleatoric_std", "the part that members agree is noise", lambda batch: batch.moments.aleatoric.sqrt()),
    Output("epistemic_std", "the part that members disagree about; `std² = aleatoric_std² + epistemic_std²`",
           lambda batch: batch.moments.epistemic.sqrt()),
    Output("lower", "start of the central interval of `--coverage` (0.9)", lambda batch: batch.interval[0]),
    Output("upper", "its end", lambda batch: batch.interval[1]),
    Output("q<level>", "a quantile per level of `--quantiles 0.1,0.5`: `q0.1`, `q0.5`",
           lambda batch: torch.stack(list(map(batch.quantile, batch.options.quantiles)), dim=-1),
           lambda model, options: bool(options.quantiles)),
    Output("abstain", "with `--abstain-above 12`: whether `std` is larger, so that a person should look at the row",
           lambda batch: batch.moments.stddev > batch.options.threshold, _marks_rows),
)  # fmt: skip


CLASS_OUTPUTS = (
    Output("label", "the most probable class, with the head `ordinal` the median",
           lambda batch: batch.labels(batch.predicted)),
    Output("confidence", "its probability", lambda batch: batch.confidence),
    Output("entropy", "of the prediction, in nats", lambda batch: batch.recalibrated.entropy()),
    Output("disagreement", "of members, in nats: the sum of their divergences from the mixture, as in the paper",
           lambda batch: batch.recalibrated.disagreement),
    Output("p_<class>", "the probability of each class", lambda batch: batch.probabilities),
    Output("lower", "with the head `ordinal`: the first class of the central interval of `--coverage` (0.9)",
           lambda batch: batch.labels(batch.reached(batch.options.tail)), _has_median),
    Output("upper", "with the head `ordinal`: its last class",
           lambda batch: batch.labels(batch.reached(1 - batch.options.tail)), _has_median),
    Output("label_set", "with conformal recalibration: the classes that `--coverage` asks for", _Batch.label_sets,
           _is_conformal),
    Output("abstain", "with `--abstain-below 0.8`: whether `confidence` is less, so that a person should look at the row",
           lambda batch: batch.confidence < batch.options.threshold, _marks_rows),
)  # fmt: skip


def _outputs(model: TableModel, options: PredictionOptions) -> Iterator[tuple[Output, list[str]]]:
    """What is written for one target, and the names of its columns."""
    outputs = CLASS_OUTPUTS if model.target.classes else NUMBER_OUTPUTS
    return ((output, names) for output in outputs if (names := output.names(model, options)))


def column_names(model: TableModel, options: PredictionOptions) -> list[str]:
    """The columns of predictions, in order; of several targets, each ends in the name of one."""
    ends = {part: f"_{part.target.name}" * bool(model.beside) for part in model.every}
    return [name + end for part, end in ends.items() for _, names in _outputs(part, options) for name in names]


def options_for(model: TableModel, **given: Any) -> PredictionOptions:
    """The options that are given; those that are for another task are refused."""
    options = PredictionOptions(**given)
    kinds = {bool(part.target.classes) for part in model.every}
    if True in kinds and options.abstain_above is not None:
        raise TableError("the model predicts classes: use --abstain-below with a confidence, not --abstain-above")
    if False in kinds and options.abstain_below is not None:
        raise TableError("the model predicts numbers: use --abstain-above with a standard deviation, not --abstain-below")
    if kinds == {True} and options.quantiles:
        raise TableError("the model predicts classes, which have no quantiles")
    return options


def needed_columns(model: TableModel, options: PredictionOptions) -> list[str]:
    """The columns of a table that predictions are made of or keep; those to keep may not be called as predictions are."""
    made = column_names(model, options)
    if clash := [name for name in options.keep if name in made]:
        raise TableError(f"`{clash[0]}` cannot be kept: predictions have a column of that name; rename it in the table")
    return list(dict.fromkeys([*(name for part in model.every for name in part.schema.names), *options.keep]))


def predict_batch(
    model: TableModel, options: PredictionOptions, numbered: tuple[int, pa.RecordBatch]
) -> tuple[pa.RecordBatch, NDArray[np.int64]]:
    """Predictions for a batch, and for each column of the model how many values training did not see."""
    (first_row, cells), columns, unseen = numbered, list[Any](), list[NDArray[np.int64]]()
    with torch.inference_mode():
        for part in model.every:
            # Columns of several targets are the same, and counted once.
            errors = "missing" if unseen and options.errors != "refuse" else options.errors
            inputs, is_unseen = part.schema.encode_with_unseen(cells, errors, first_row)
            unseen.append(is_unseen.sum(0))
            mixture, fitted = part.ensemble.mixture(inputs), part.ensemble.recalibration
            batch = _Batch(part, options, *map(part.bounded, (mixture, mixture if fitted is None else fitted(mixture))))
            for output, _ in _outputs(part, options):
                values = output.values(batch)
                columns += list(values.T) if "<" in output.name else [values]
    arrays = [values if isinstance(values, pa.Array) else pa.array(np.ascontiguousarray(values)) for values in columns]
    kept = {name: cells.column(name) for name in options.keep}
    done = pa.record_batch(kept | dict(zip(column_names(model, options), arrays, strict=True)))
    return safe_cells(done) if options.safe_cells else done, unseen[0]
