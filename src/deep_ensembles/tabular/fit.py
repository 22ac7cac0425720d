"""A table → a model, recalibrated and scored by rows that no network has seen."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from deep_ensembles import recalibration
from deep_ensembles._arrow import pa
from deep_ensembles._splits import ComplementaryFolds, regular_parts
from deep_ensembles.columns import TableError
from deep_ensembles.ensemble import Ensemble
from deep_ensembles.fitting import fit_ensemble
from deep_ensembles.mixture import Mixture
from deep_ensembles.networks import mlp
from deep_ensembles.recalibration import Recalibration, choose
from deep_ensembles.report import Batch, Evaluation, evaluate, first_member
from deep_ensembles.settings import describe
from deep_ensembles.tabular.data import Log, TableData, read_data, split_rows
from deep_ensembles.tabular.evaluate import SHOWN_COLUMNS, describe_recalibration
from deep_ensembles.tabular.model import TableModel
from deep_ensembles.tabular.settings import TableSettings
from deep_ensembles.training import Checkpoint

ENOUGH = 20  # rows to choose a recalibration by
_FEW = 30
_PARTS = 5


@dataclass(frozen=True, eq=False)
class FittedTable:
    """What fitting a table gives.

    Arguments:
        model: to save.
        evaluation: of rows that no network has seen.
    """

    model: TableModel
    evaluation: Evaluation


def fit_table(
    data: Any, settings: TableSettings, *, log: Log = print, checkpoint: Checkpoint | None = None, verbose: int = 0
) -> FittedTable:
    """Learn to predict a column of a table from the others.

    Some rows are held out, by which predictions are scored and recalibrated. Each member holds out a fold of the others, to
    know when to stop.

    Arguments:
        data: a file, several, or a folder of parts: CSV and its relatives, or Parquet.
        settings: see `TableSettings`.
        log: called with lines and listings: what the columns are, what is left out, how rows are used.
        checkpoint: where to keep the state of training.
        verbose: 1 for a progress bar on a terminal.
    """
    read = read_data(data, settings, log)
    train_rows, held_rows = split_rows(read, settings)
    check_recalibration(settings.recalibration, bool(read.target.classes), len(held_rows) or len(train_rows))
    schema = read.schema(settings, train_rows)
    log(schema.listing())
    log(_use_of_rows(read, train_rows, held_rows, settings))
    inputs = schema.encode(read.select(train_rows))
    ensemble = _trained(inputs, read, train_rows, settings, checkpoint=checkpoint, verbose=verbose)
    rows = held_rows if len(held_rows) else train_rows
    cells = read.select(rows).select(schema.names)
    mixture = ensemble.mixture(schema.encode(cells)) if len(held_rows) else ensemble.out_of_fold(inputs)
    groups = None if read.groups is None else read.groups[rows]
    times = None if read.times is None else read.times[rows]
    held = HeldOut(mixture, read.y[rows], settings.recalibration, groups, times)
    recalibrated = replace(ensemble, recalibration=held.fit_all())
    model = TableModel(schema, read.target, recalibrated, _facts(read, train_rows, held_rows, settings))
    evaluation = _evaluated(held, read.rows[rows], cells, model)
    log(f"recalibration: {held.describe(recalibrated.recalibration)}")
    if len(rows) < _FEW:
        without = " and are those without recalibration" if recalibrated.recalibration and len(rows) < ENOUGH else ""
        log(f"note: {len(rows)} rows are few to judge by; the scores below say little{without}")
    facts = {
        **model.facts,
        "held_out_scores": {score.name: score.ensemble for score in evaluation.scores},
        "single_recalibration": describe(held.fit_all(single=True) if mixture.n_members > 1 else None),
    }
    return FittedTable(replace(model, facts=facts), evaluation)


def _use_of_rows(read: TableData, train: NDArray[np.int64], held: NDArray[np.int64], settings: TableSettings) -> str:
    how = "chosen at random"
    if settings.time is not None:
        how = f"the latest by `{settings.time}`"
    elif settings.group is not None:
        how = f"whole groups of `{settings.group}`"
    if not len(held):
        return f"{len(train)} rows are used; each is judged by the networks that hold it out"
    return f"{len(read)} rows are used: {len(train)} to train on, {len(held)} held out for scores and recalibration ({how})"


def _trained(
    inputs: NDArray[np.float32],
    read: TableData,
    rows: NDArray[np.int64],
    settings: TableSettings,
    *,
    checkpoint: Checkpoint | None,
    verbose: int,
) -> Ensemble:
    groups = None if read.groups is None else read.groups[rows]
    n_folds = min(5, settings.members, len(rows) if groups is None else len(np.unique(groups)))
    if n_folds < 2:
        raise TableError(f"`{settings.group}` has only one group left to train on, and members must hold some out")
    return fit_ensemble(
        partial(mlp, inputs.shape[1], read.n_outputs, settings.hidden_sizes),
        inputs,
        read.y[rows],
        n_members=settings.members,
        sample_weight=None if read.weights is None else read.weights[rows],
        perturbation=settings.perturbation,
        folds=ComplementaryFolds(n_folds, groups),
        checkpoint=checkpoint,
        verbose=verbose,
        **settings.training(len(rows)),
    )


def _evaluated(held: HeldOut, rows: NDArray[np.int64], cells: pa.Table, model: TableModel) -> Evaluation:
    """Scores of rows that neither the networks nor the recalibration they are scored with have seen."""
    order = np.concatenate(held.parts())
    shown = cells.take(pa.array(order)).select(cells.column_names[:SHOWN_COLUMNS])
    return evaluate(
        held.batches(),
        constant=model.constant,
        labels=[str(label) for label in model.target.classes] or None,
        columns={"row of the table": rows[order] + 1, **{name: shown[name] for name in shown.column_names}},
        about={
            "Predicted": f"{model.target.name} ({model.target.task})",
            "Recalibration": held.describe(model.ensemble.recalibration),
        },
    )


def _facts(read: TableData, train: NDArray[np.int64], held: NDArray[np.int64], settings: TableSettings) -> dict[str, Any]:
    y = read.y[train]
    if read.target.classes:
        shares = np.bincount(y.astype(np.int64), minlength=len(read.target.classes)) / len(y)
        constant: dict[str, Any] = {"shares": shares.tolist()}
    else:
        constant = {"mean": float(y.mean()), "std": float(y.std()) or 1.0}
    return {
        "rows": {"trained": len(train), "held_out": len(held)},
        "constant": constant,
        "settings": asdict(settings),
    }


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Predictions for rows that no network has seen.

    Arguments:
        mixture: the predictions as members make them.
        target: what happened.
        name: of the recalibration, or `auto` for the one that these rows prefer, or `none`.
        groups, times: of the rows; None where there are none.
    """

    mixture: Mixture
    target: NDArray[Any]
    name: str
    groups: NDArray[np.int64] | None = None
    times: NDArray[np.float64] | None = None

    def fit(self, mixture: Mixture, rows: NDArray[np.int64]) -> Recalibration | None:
        """What some of the rows ask for; never one that moves the mean where rows are the latest, as that would pass off
        what has changed for what is uncertain."""
        target = torch.from_numpy(self.target[rows])
        if self.name == "none" or (self.name == "auto" and len(rows) < ENOUGH // 2):
            return None
        if self.name != "auto":
            fitted: Recalibration = getattr(recalibration, self.name)(mixture[torch.from_numpy(rows)], target)
            return fitted
        careful = ("none", "variance_scaling") if self.times is not None and not mixture.is_discrete else None
        groups = None if self.groups is None else self.groups[rows]
        if groups is not None and len(np.unique(groups)) < 2:
            return None
        return choose(mixture[torch.from_numpy(rows)], target, careful, groups=groups)

    def fit_all(self, single: bool = False) -> Recalibration | None:
        """What all rows ask for, of the ensemble or of its first member."""
        if self.name == "auto" and len(self.target) < ENOUGH:
            return None
        return self.fit(first_member(self.mixture) if single else self.mixture, np.arange(len(self.target)))

    def parts(self) -> list[NDArray[np.int64]]:
        """Parts of the rows, each scored with what others ask for: spread out, or whole groups, or one after the other."""
        n = len(self.target)
        if n < ENOUGH:
            return [np.arange(n)]
        return regular_parts(_PARTS, n, self.groups, self.times)

    def batches(self) -> Iterator[Batch]:
        """Each part recalibrated by the others, or where rows are the latest by those before it."""
        parts, single = self.parts(), first_member(self.mixture) if self.mixture.n_members > 1 else None
        for number, part in enumerate(parts):
            others = parts[:number] if self.times is not None else [other for other in parts if other is not part]
            rows = np.concatenate(others) if others else np.empty(0, dtype=np.int64)
            ensemble = self._recalibrate(self.mixture, part, rows)
            member = None if single is None else self._recalibrate(single, part, rows)
            yield Batch(ensemble, torch.from_numpy(self.target[part]), member)

    def _recalibrate(self, mixture: Mixture, part: NDArray[np.int64], by: NDArray[np.int64]) -> Any:
        fitted = self.fit(mixture, by) if len(by) >= 2 else None
        prediction = mixture[torch.from_numpy(part)]
        return prediction if fitted is None else fitted(prediction)

    def describe(self, fitted: Recalibration | None) -> str:
        """What a recalibration does, and why there is none."""
        if fitted is None and self.name == "auto" and len(self.target) < ENOUGH:
            return f"none; {len(self.target)} rows are too few to tell"
        if fitted is None:
            return "none, as asked" if self.name == "none" else "none, as held-out rows ask for none"
        return describe_recalibration(fitted)


def check_recalibration(name: str, classes: bool, n_rows: int) -> None:
    """Refuse one that is not for the task, or for so few rows."""
    if n_rows < 2 and name not in ("auto", "none"):
        raise TableError(
            f"{name} needs at least 2 rows held out, got {n_rows}; hold out more, or none for all to take turns"
        )
    if name in (("variance_scaling", "isotonic") if classes else ("temperature",)):
        raise TableError(f"{name} is a recalibration of {'numbers' if classes else 'classes'}; "
                         f"this is a {'classification' if classes else 'regression'}")  # fmt: skip
