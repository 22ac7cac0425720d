"""A table → a model, recalibrated and scored by rows that no network has seen."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.distributions import Laplace, Normal, StudentT

from deep_ensembles import heads, recalibration
from deep_ensembles._arrow import pa
from deep_ensembles._splits import ComplementaryFolds, regular_parts
from deep_ensembles.columns import TableError
from deep_ensembles.ensemble import Ensemble
from deep_ensembles.fitting import fit_ensemble
from deep_ensembles.mixture import Mixture
from deep_ensembles.networks import mlp
from deep_ensembles.report import Batch, Evaluation, evaluate, first_member
from deep_ensembles.settings import describe
from deep_ensembles.tabular.data import Log, TableData, read_parts
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
    train, rest = read_parts(data, settings, log)
    judged = rest if len(rest) else train
    check_recalibration(settings.recalibration, train.head, len(judged))
    schema = train.schema(settings)
    log(schema.listing())
    log(_use_of_rows(len(train), len(rest), settings))
    inputs = schema.encode(train.table)
    ensemble = _trained(inputs, train, settings, checkpoint=checkpoint, verbose=verbose)
    mixture = ensemble.mixture(schema.encode(rest.table)) if len(rest) else ensemble.out_of_fold(inputs)
    held = HeldOut(mixture, judged.y, settings.recalibration, judged.groups, judged.times, train.head.point)
    recalibrated = replace(ensemble, recalibration=held.fit_all())
    facts = {
        "rows": {"trained": len(train), "held_out": len(rest)},
        "constant": _constant(train),
        "settings": asdict(settings),
    }
    model = TableModel(schema, train.target, recalibrated, facts)
    evaluation = _evaluated(held, judged, model)
    log(f"recalibration: {held.describe(recalibrated.recalibration)}")
    if len(judged) < _FEW:
        without = " and are those without recalibration" if recalibrated.recalibration and len(judged) < ENOUGH else ""
        log(f"note: {len(judged)} rows are few to judge by; the scores below say little{without}")
    single = held.fit_all(single=True) if mixture.n_members > 1 else None
    scores = {score.name: score.ensemble for score in evaluation.scores}
    facts |= {"held_out_scores": scores, "single_recalibration": describe(single)}
    return FittedTable(replace(model, facts=facts), evaluation)


def _use_of_rows(n_train: int, n_held: int, settings: TableSettings) -> str:
    how = "chosen at random"
    if settings.time is not None:
        how = f"the latest by `{settings.time}`"
    elif settings.group is not None:
        how = f"whole groups of `{settings.group}`"
    if not n_held:
        return f"{n_train} rows are used; each is judged by the networks that hold it out"
    held_out = f"{n_held} held out for scores and recalibration ({how})"
    return f"{n_train + n_held} rows are used: {n_train} to train on, {held_out}"


def _trained(inputs: NDArray[np.float32], train: TableData, settings: TableSettings, **others: Any) -> Ensemble:
    n_folds = min(5, settings.members, len(train) if train.groups is None else len(np.unique(train.groups)))
    if n_folds < 2:
        raise TableError(f"`{settings.group}` has only one group left to train on, and members must hold some out")
    build = partial(mlp, inputs.shape[1], train.n_outputs, settings.hidden_sizes)
    others |= {"folds": ComplementaryFolds(n_folds, train.groups), **settings.training(len(train))}
    others |= {"n_members": settings.members, "perturbation": settings.perturbation, "sample_weight": train.weights}
    others |= {"head": train.head}
    return fit_ensemble(build, inputs, train.y, **others)


def _evaluated(held: HeldOut, judged: TableData, model: TableModel) -> Evaluation:
    """Scores of rows that neither the networks nor the recalibration they are scored with have seen."""
    order = np.concatenate(held.parts())
    shown = judged.table.select(model.schema.names[:SHOWN_COLUMNS]).take(pa.array(order))
    about = {
        "Predicted": f"{model.target.name} ({model.target.task})",
        "Recalibration": held.describe(model.ensemble.recalibration),
    }
    columns = {"row of the table": judged.rows[order] + 1, **dict(zip(shown.column_names, shown.columns, strict=True))}
    return evaluate(held.batches(), constant=model.constant, labels=model.labels, columns=columns, about=about)


def _constant(train: TableData) -> dict[str, Any]:
    if not train.target.classes:
        return {"mean": float(train.y.mean()), "std": float(train.y.std()) or 1.0}
    return {"shares": (np.bincount(train.y.astype(np.int64), minlength=len(train.target.classes)) / len(train)).tolist()}


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Predictions for rows that no network has seen.

    Arguments:
        mixture: the predictions as members make them.
        target: what happened.
        name: of the recalibration, or `auto` for the one that these rows prefer, or `none`.
        groups, times: of the rows; None where there are none.
        point: the point prediction that is scored.
    """

    mixture: Mixture
    target: NDArray[Any]
    name: str
    groups: NDArray[np.int64] | None = None
    times: NDArray[np.float64] | None = None
    point: str | None = None

    def fit(self, mixture: Mixture, rows: NDArray[np.int64]) -> recalibration.Recalibration | None:
        """What some of the rows ask for; never one that moves the mean where rows are the latest, as that would pass off
        what has changed for what is uncertain."""
        target = torch.from_numpy(self.target[rows])
        if self.name == "none" or (self.name == "auto" and len(rows) < ENOUGH // 2):
            return None
        if self.name != "auto":
            fitted: recalibration.Recalibration = getattr(recalibration, self.name)(mixture[torch.from_numpy(rows)], target)
            return fitted
        groups = None if self.groups is None else self.groups[rows]
        if groups is not None and len(np.unique(groups)) < 2:
            return None
        return recalibration.choose(mixture[torch.from_numpy(rows)], target, self._compared(mixture), groups=groups)

    def _compared(self, mixture: Mixture) -> tuple[str, ...] | None:
        """Recalibrations to choose from, None for the usual ones: a family without a scale has no spread to stretch."""
        if mixture.is_discrete:
            return None
        stretched = isinstance(mixture.components, (Laplace, Normal, StudentT))
        if self.times is not None:
            return ("none", "variance_scaling") if stretched else ("none",)
        return None if stretched else ("none", "isotonic")

    def fit_all(self, single: bool = False) -> recalibration.Recalibration | None:
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
            yield Batch(ensemble, torch.from_numpy(self.target[part]), member, self.point)

    def _recalibrate(self, mixture: Mixture, part: NDArray[np.int64], by: NDArray[np.int64]) -> Any:
        fitted = self.fit(mixture, by) if len(by) >= 2 else None
        prediction = mixture[torch.from_numpy(part)]
        return prediction if fitted is None else fitted(prediction)

    def describe(self, fitted: recalibration.Recalibration | None) -> str:
        """What a recalibration does, and why there is none."""
        if fitted is None and self.name == "auto" and len(self.target) < ENOUGH:
            return f"none; {len(self.target)} rows are too few to tell"
        if fitted is None:
            return "none, as asked" if self.name == "none" else "none, as held-out rows ask for none"
        return describe_recalibration(fitted)


def check_recalibration(name: str, head: Any, n_rows: int) -> None:
    """Refuse one that is not for the task or the head, or for so few rows."""
    if n_rows < 2 and name not in ("auto", "none"):
        raise TableError(
            f"{name} needs at least 2 rows held out, got {n_rows}; hold out more, or none for all to take turns"
        )
    classes = head.kind == "classes"
    if name in (("variance_scaling", "isotonic") if classes else ("temperature",)):
        raise TableError(f"{name} is a recalibration of {'numbers' if classes else 'classes'}; "
                         f"this is a {'classification' if classes else 'regression'}")  # fmt: skip
    if name == "variance_scaling" and not isinstance(head, (heads.Laplace, heads.Normal, heads.StudentT)):
        raise TableError("variance_scaling stretches the spread of the heads normal, student_t and laplace; "
                         "for others take isotonic, conformal or auto")  # fmt: skip
