"""A table → a model, with scores of rows that no network has seen."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from deep_ensembles import recalibration
from deep_ensembles._arrow import pa
from deep_ensembles._splits import ComplementaryFolds, regular_parts
from deep_ensembles._terminal import Listing
from deep_ensembles.columns import TableError, infer_schema
from deep_ensembles.ensemble import Ensemble
from deep_ensembles.fitting import fit_ensemble
from deep_ensembles.mixture import Mixture
from deep_ensembles.networks import mlp
from deep_ensembles.perturbations import FastGradientSign
from deep_ensembles.recalibration import Conformal, Recalibration, Temperature, VarianceScaling, choose
from deep_ensembles.report import Batch, evaluate, first_member
from deep_ensembles.report.evaluation import Evaluation
from deep_ensembles.settings import describe
from deep_ensembles.tabular.model import TableModel
from deep_ensembles.tabular.settings import Say, TableData, TableSettings, read_data, split_rows
from deep_ensembles.training import Checkpoint

_FEW = 30
_SHOWN_COLUMNS = 30


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
    data: Any, settings: TableSettings, *, say: Say = print, checkpoint: Checkpoint | None = None, verbose: int = 0
) -> FittedTable:
    """Learn to predict a column of a table from the others.

    Some rows are held out, by which predictions are judged and recalibrated. Each member holds out a fold of the others, to
    know when to stop.

    Arguments:
        data: a file, several, or a folder of parts: CSV and its relatives, or Parquet.
        settings: see `TableSettings`.
        say: is told what was understood, found and left out.
        checkpoint: where to keep the state of training.
        verbose: 1 for a progress bar on a terminal.
    """
    read = read_data(data, settings, say)
    train_rows, held_rows = split_rows(read, settings)
    check_recalibration(settings.recalibration, bool(read.target.classes), len(held_rows) or len(train_rows))
    train = read.select(train_rows)
    schema = infer_schema(
        train, settings.target, drop=[*settings.drop, *settings.not_inputs], kinds=settings.kinds, decimal=read.decimal
    )
    if not schema.columns:
        raise TableError("no column is left to predict from: " + "; ".join(f"`{a}`: {b}" for a, b in schema.dropped))
    say(schema.listing())
    say(_used(read, train_rows, held_rows, settings))
    inputs = schema.encode(train)
    groups = None if read.groups is None else read.groups[train_rows]
    ensemble = _trained(inputs, read, train_rows, settings, groups=groups, checkpoint=checkpoint, verbose=verbose)
    rows = held_rows if len(held_rows) else train_rows
    cells = read.select(rows).select(schema.names)
    judged = ensemble.mixture(schema.encode(cells)) if len(held_rows) else ensemble.out_of_fold(inputs)
    groups = None if read.groups is None else read.groups[rows]
    times = None if read.times is None else read.times[rows]
    held = HeldOut(judged, read.y[rows], settings.recalibration, groups, times)
    recalibrated = dataclasses.replace(ensemble, recalibration=held.fit_all())
    model = TableModel(schema, read.target, recalibrated, _facts(read, train_rows, held_rows, settings))
    evaluation = _judged(held, read.rows[rows], cells, model)
    say(f"recalibration: {held.in_words(recalibrated.recalibration)}")
    if len(rows) < _FEW:
        without = " and are those without recalibration" if recalibrated.recalibration and len(rows) < ENOUGH else ""
        say(f"note: {len(rows)} rows are few to judge by; the scores below say little{without}")
    told = {"held_out_scores": {score.name: score.ensemble for score in evaluation.scores}}
    told["single_recalibration"] = describe(held.fit_all(single=True) if judged.n_members > 1 else None)
    return FittedTable(dataclasses.replace(model, facts={**model.facts, **told}), evaluation)


def _used(read: TableData, train: NDArray[np.int64], held: NDArray[np.int64], settings: TableSettings) -> str:
    how = "chosen at random"
    if settings.time is not None:
        how = f"the latest by `{settings.time}`"
    elif settings.group is not None:
        how = f"whole groups of `{settings.group}`"
    if not len(held):
        return f"{len(train)} rows are used; each is judged by the networks that hold it out"
    return f"{len(read)} rows are used: {len(train)} to train on, {len(held)} held out for scores and recalibration ({how})"


def network_outputs(read: TableData) -> int:
    """Raw outputs that a network needs."""
    return len(read.target.classes) or 2


def batch_size(n_rows: int, settings: TableSettings) -> int:
    """Rows per step: so that an epoch of any table takes some hundred steps, but no fewer rows than 32 or more than 512."""
    wanted = 2 ** int(np.clip(np.round(np.log2(max(1, n_rows) / 100)), 5, 9))
    return settings.batch_size or wanted


def recipe(n_rows: int, settings: TableSettings) -> dict[str, Any]:
    """The settings of training that `fit` and `compare` share."""
    return {
        "max_epochs": settings.max_epochs,
        "batch_size": batch_size(n_rows, settings),
        "learning_rate": settings.learning_rate,
        "patience": settings.patience,
        "time_limit": settings.time_limit,
        "random_state": settings.seed,
    }


def _trained(
    inputs: NDArray[np.float32],
    read: TableData,
    rows: NDArray[np.int64],
    settings: TableSettings,
    *,
    groups: NDArray[np.int64] | None,
    checkpoint: Checkpoint | None,
    verbose: int,
) -> Ensemble:
    n_folds = min(5, settings.members, len(rows) if groups is None else len(np.unique(groups)))
    if n_folds < 2:
        raise TableError(f"`{settings.group}` has only one group left to train on, and members must hold some out")
    return fit_ensemble(
        partial(mlp, inputs.shape[1], network_outputs(read), settings.hidden_sizes),
        inputs,
        read.y[rows],
        n_members=settings.members,
        sample_weight=None if read.weights is None else read.weights[rows],
        perturbation=FastGradientSign(settings.epsilon) if settings.epsilon else None,
        early_stopping=True,
        folds=ComplementaryFolds(n_folds, groups),
        checkpoint=checkpoint,
        verbose=verbose,
        **recipe(len(rows), settings),
    )


def _judged(held: HeldOut, rows: NDArray[np.int64], cells: pa.Table, model: TableModel) -> Evaluation:
    """Scores of rows that neither networks nor the recalibration they are judged with have seen."""
    order = np.concatenate(held.parts())
    shown = cells.take(pa.array(order)).select(cells.column_names[:_SHOWN_COLUMNS])
    return evaluate(
        held.batches(),
        constant=model.constant,
        labels=[str(label) for label in model.target.classes] or None,
        columns={"row of the table": rows[order] + 1, **{name: shown[name] for name in shown.column_names}},
        about={
            "Predicted": f"{model.target.name} ({model.target.task})",
            "Recalibration": held.in_words(model.ensemble.recalibration),
        },
    )


def scores_table(evaluation: Evaluation, title: str) -> Listing:
    """Scores beside those of one network and of a constant, each with its meaning."""
    rows = [
        [score.name, *(score.text(each) for each in (score.ensemble, score.single, score.constant)), score.meaning]
        for score in evaluation.scores
    ]
    return Listing(title, ["score", "ensemble", "one network", "constant", "meaning"], rows, words=["meaning"])


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
        "settings": dataclasses.asdict(settings),
    }


ENOUGH = 20
_PARTS = 5


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
        """Parts of the rows, each judged with what others ask for: spread out, or whole groups, or one after the other."""
        n = len(self.target)
        if n < ENOUGH:
            return [np.arange(n)]
        return regular_parts(_PARTS, n, self.groups, self.times)

    def batches(self) -> Iterator[Batch]:
        """Each part recalibrated by the others, or where rows are the latest by those before it."""
        parts, single = self.parts(), first_member(self.mixture) if self.mixture.n_members > 1 else None
        for number, part in enumerate(parts):
            others = parts[:number] if self.times is not None else [each for each in parts if each is not part]
            rows = np.concatenate(others) if others else np.empty(0, dtype=np.int64)
            own = self._put_right(self.mixture, part, rows)
            alone = None if single is None else self._put_right(single, part, rows)
            yield Batch(own, torch.from_numpy(self.target[part]), alone)

    def _put_right(self, mixture: Mixture, part: NDArray[np.int64], by: NDArray[np.int64]) -> Any:
        fitted = self.fit(mixture, by) if len(by) >= 2 else None
        own = mixture[torch.from_numpy(part)]
        return own if fitted is None else fitted(own)

    def in_words(self, fitted: Recalibration | None) -> str:
        """What a recalibration does, and why there is none."""
        if fitted is None and self.name == "auto" and len(self.target) < ENOUGH:
            return f"none; {len(self.target)} rows are too few to tell"
        if fitted is None:
            return "none, as asked" if self.name == "none" else "none, as held-out rows ask for none"
        return in_words(fitted)


def in_words(fitted: Recalibration | None) -> str:
    """What a recalibration does, for people."""
    if fitted is None:
        return "none"
    if isinstance(fitted, VarianceScaling):
        return f"variance scaling; held-out rows ask for spreads {fitted.factor:.3g} times as wide"
    if isinstance(fitted, Temperature):
        return f"temperature {fitted.temperature:.3g}; above 1 makes probabilities less sure"
    if isinstance(fitted, Conformal):
        return f"conformal; intervals hold as often as they say, by {len(fitted.scores)} held-out rows"
    return "isotonic; predicted levels are replaced by those that held-out rows showed"


def check_recalibration(name: str, classes: bool, n_rows: int) -> None:
    """Refuse one that is not for the task, or for so few rows."""
    if n_rows < 2 and name not in ("auto", "none"):
        raise TableError(
            f"{name} needs at least 2 rows held out, got {n_rows}; hold out more, or none for all to take turns"
        )
    if name in (("variance_scaling", "isotonic") if classes else ("temperature",)):
        raise TableError(f"{name} is a recalibration of {'numbers' if classes else 'classes'}; "
                         f"this is a {'classification' if classes else 'regression'}")  # fmt: skip
