"""A model and a table → a table of predictions, some rows at a time."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from deep_ensembles._arrow import pa, pc
from deep_ensembles._checks import check_integer, check_number, require
from deep_ensembles._terminal import row_progress
from deep_ensembles.columns import TableError
from deep_ensembles.mixture import Mixture
from deep_ensembles.recalibration import Conformal, Prediction
from deep_ensembles.tabular.files import TableFiles, check_ending, open_table, writing
from deep_ensembles.tabular.model import TableModel

BATCH_ROWS = 65536
Columns = dict[str, Any]
Result = TypeVar("Result")


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What a table of predictions should hold.

    Arguments:
        coverage: the share of rows that intervals should hold.
        quantiles: levels, each a column.
        abstain_below: mark rows whose confidence is less, to hand them to a person; for classes.
        abstain_above: mark rows whose standard deviation is more; for numbers.
        keep: columns of the table to carry over.
        errors: `refuse` values that cannot be read, or take them as `missing`.
    """

    coverage: float = 0.9
    quantiles: tuple[float, ...] = ()
    abstain_below: float | None = None
    abstain_above: float | None = None
    keep: tuple[str, ...] = ()
    errors: str = "refuse"

    def __post_init__(self) -> None:
        check_number("coverage", self.coverage, low=0, high=1, above=True, below=True)
        for level in self.quantiles:
            check_number("quantiles", level, low=0, high=1, above=True, below=True)
        if self.abstain_below is not None:
            check_number("abstain_below", self.abstain_below, low=0, high=1)
        if self.abstain_above is not None:
            check_number("abstain_above", self.abstain_above, low=0)
        require(self.errors in ("refuse", "missing"), "errors", "refuse or missing", self.errors)


@dataclass(frozen=True)
class Predicted:
    """What predicting a table gave.

    Arguments:
        rows: how many.
        abstained: how many are marked for a person; None where that was not asked.
        ignored: columns that the model does not know.
        outside: for columns with values that training did not see, how many rows have one.
    """

    rows: int
    abstained: int | None
    ignored: Sequence[str]
    outside: Mapping[str, int]


def predict_table(
    model: TableModel, data: Any, out: str | os.PathLike[str], *, workers: int = 1, verbose: int = 0, **asked: Any
) -> Predicted:
    """Predict all rows of a table in order, and write them to a file that takes its place when it is whole.

    Arguments:
        model: made by `fit_table`.
        data: a file, several, or a folder of parts.
        out: a file that ends in .csv, .tsv, .csv.gz, .tsv.gz or .parquet.
        workers: threads that predict side by side; worth more than 1 where torch uses one thread each.
        verbose: 1 for a progress bar on a terminal.
        asked: `coverage`, `quantiles`, `abstain_below`, `abstain_above`, `keep`, `errors`; see `Asked`.
    """
    wishes = Asked(**asked)
    _check_abstention(model, wishes)
    check_ending(Path(out))
    files = open_table(data)
    _check_names(model, files.names, wishes)
    wanted = list(dict.fromkeys([*model.schema.names, *wishes.keep]))
    rows, abstained = 0, 0
    beyond = np.zeros(len(model.schema.columns), dtype=np.int64)
    with writing(out) as table, row_progress(files.n_rows, verbose) as advance:
        for done, unseen in in_order(partial(_predicted, model, wishes), _numbered(files, wanted), workers):
            if "abstain" in done.schema.names:
                abstained += pc.sum(done.column("abstain")).as_py() or 0
            table.write(done)
            rows += done.num_rows
            beyond += unseen
            advance(done.num_rows)
    asked_to = wishes.abstain_below is not None or wishes.abstain_above is not None
    ignored = [name for name in model.schema.extra(files.names) if name not in (model.target.name, *wishes.keep)]
    outside = {name: int(count) for name, count in zip(model.schema.names, beyond, strict=True) if count}
    return Predicted(rows, abstained if asked_to else None, ignored, outside)


def _numbered(files: TableFiles, names: Sequence[str]) -> Iterator[tuple[pa.RecordBatch, int]]:
    """Batches with the number of their first row; at least one, be it empty."""
    first_row = 1
    for batch in files.batches(names, BATCH_ROWS):
        yield batch, first_row
        first_row += batch.num_rows
    if first_row == 1:
        yield pa.record_batch({name: pa.array([], pa.string()) for name in names}), 1


def in_order(function: Callable[[Any], Result], items: Iterable[Any], workers: int) -> Iterator[Result]:
    """What a function gives for items, in their order; so many are worked on side by side, and few wait."""
    check_integer("workers", workers, low=1)
    waiting: deque[Future[Result]] = deque()
    with ThreadPoolExecutor(workers) as pool:
        try:
            for item in items:
                waiting.append(pool.submit(function, item))
                if len(waiting) > workers:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for each in waiting:
                each.cancel()


def _check_abstention(model: TableModel, asked: Asked) -> None:
    if model.target.classes and asked.abstain_above is not None:
        raise TableError("the model predicts classes: use --abstain-below with a confidence, not --abstain-above")
    if not model.target.classes and asked.abstain_below is not None:
        raise TableError("the model predicts numbers: use --abstain-above with a standard deviation, not --abstain-below")
    if model.target.classes and asked.quantiles:
        raise TableError("the model predicts classes, which have no quantiles")


def _check_names(model: TableModel, names: Sequence[str], asked: Asked) -> None:
    model.schema.check(names)
    if lacking := [name for name in asked.keep if name not in names]:
        raise TableError(f"the table has no column `{lacking[0]}` to keep; it has {', '.join(names[:20])}")
    made = column_names(model, asked)
    if clash := [name for name in asked.keep if name in made]:
        raise TableError(f"`{clash[0]}` cannot be kept: predictions have a column of that name; rename it in the table")


def column_names(model: TableModel, asked: Asked) -> list[str]:
    """The columns of predictions, in order."""
    abstain = ["abstain"] if asked.abstain_below is not None or asked.abstain_above is not None else []
    if model.target.classes:
        sets = ["label_set"] if isinstance(model.ensemble.recalibration, Conformal) else []
        return ["label", "confidence", "entropy", "disagreement", *(f"p_{c}" for c in model.target.classes), *sets, *abstain]
    quantiles = [_quantile_name(level) for level in asked.quantiles]
    return ["mean", "std", "aleatoric_std", "epistemic_std", "lower", "upper", *quantiles, *abstain]


def _quantile_name(level: float) -> str:
    return f"q{level:g}"


def _predicted(
    model: TableModel, asked: Asked, numbered: tuple[pa.RecordBatch, int]
) -> tuple[pa.RecordBatch, NDArray[np.int64]]:
    """Predictions for a batch, and for each column of the model how many values training did not see."""
    batch, first_row = numbered
    with torch.inference_mode():
        inputs, beyond = model.schema.encode_with_unseen(batch, asked.errors, first_row)
        mixture = model.ensemble.mixture(inputs)
        fitted = model.ensemble.recalibration
        prediction = mixture if fitted is None else fitted(mixture)
        if isinstance(prediction, Mixture) and prediction.is_discrete:
            columns = _class_columns(model, prediction, asked)
        else:
            columns = _number_columns(mixture, prediction, fitted, asked)
    kept = {name: batch.column(name) for name in asked.keep}
    found = pa.record_batch({name: _array(each) for name, each in {**kept, **columns}.items()})
    return found, beyond.sum(0)


def _number_columns(mixture: Mixture, prediction: Prediction, fitted: Any, asked: Asked) -> Columns:
    # Conformal is about intervals: its distribution is too rough for moments.
    smooth = mixture if isinstance(fitted, Conformal) else prediction
    tail = (1 - asked.coverage) / 2
    levels = [tail, 1 - tail, *asked.quantiles]
    ends = [prediction.icdf(torch.tensor(level, dtype=torch.float64)) for level in levels]
    columns = {
        "mean": smooth.mean,
        "std": smooth.stddev,
        "aleatoric_std": smooth.aleatoric.sqrt(),
        "epistemic_std": smooth.epistemic.sqrt(),
        "lower": ends[0],
        "upper": ends[1],
        **{_quantile_name(level): end for level, end in zip(asked.quantiles, ends[2:], strict=True)},
    }
    found: Columns = {name: each.numpy() for name, each in columns.items()}
    if asked.abstain_above is not None:
        found["abstain"] = found["std"] > asked.abstain_above
    return found


def _class_columns(model: TableModel, mixture: Mixture, asked: Asked) -> Columns:
    shares = mixture.probs.double()
    probabilities = (shares / shares.sum(-1, keepdim=True)).numpy()
    labels = pa.array(list(model.target.classes))
    best = probabilities.argmax(1)
    found: Columns = {
        "label": labels.take(pa.array(best)),
        "confidence": probabilities[np.arange(len(best)), best],
        "entropy": mixture.entropy().numpy(),
        "disagreement": mixture.disagreement.numpy(),
        **{f"p_{name}": probabilities[:, place] for place, name in enumerate(model.target.classes)},
    }
    fitted = model.ensemble.recalibration
    if isinstance(fitted, Conformal):
        inside = fitted.prediction_set(mixture, asked.coverage).numpy()
        names = np.array([str(each) for each in model.target.classes])
        found["label_set"] = pa.array(["|".join(names[row]) for row in inside])
    if asked.abstain_below is not None:
        found["abstain"] = found["confidence"] < asked.abstain_below
    return found


def _array(values: NDArray[Any] | pa.Array) -> pa.Array:
    return values if isinstance(values, pa.Array) else pa.array(np.ascontiguousarray(values))
