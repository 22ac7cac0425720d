"""A table → a model, recalibrated and scored by rows that were held out."""

import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from deep_ensembles import Checkpoint, Ensemble, Mixture, recalibration
from deep_ensembles._splits import ComplementaryFolds, Split, evenly_spaced
from deep_ensembles.columns import TableError
from deep_ensembles.execution import Execution, chosen_execution
from deep_ensembles.recalibration.fits import is_stretchable
from deep_ensembles.recalibration.of_ensembles import tempered
from deep_ensembles.recipes import Choices, Task
from deep_ensembles.report import Batch, Evaluation, RowFacts, evaluate, first_member
from deep_ensembles.report.constant import fitted_constant
from deep_ensembles.selection import Fitted, fit_recipe
from deep_ensembles.settings import describe
from deep_ensembles.tabular.cuts import LEAST_ROWS, Cut, cuts_listing, forward_cuts
from deep_ensembles.tabular.data import MOST_JUDGED, Log, TableData, check_values, read_parts, tell
from deep_ensembles.tabular.evaluate import SHOWN_COLUMNS, describe_recalibration, row_times, time_column
from deep_ensembles.tabular.files import open_table
from deep_ensembles.tabular.head import Bounds, name_of
from deep_ensembles.tabular.model import Profiler, TableModel, profile_columns, sampled_keys
from deep_ensembles.tabular.settings import TableSettings
from deep_ensembles.tabular.show import chosen_listing
from deep_ensembles.training import Recipe
from deep_ensembles.training.blocks import row_keys

ENOUGH = 20  # rows to choose a recalibration by
NESTED_ROWS = 500  # below which choices flatter the rows they are made by so much that scores come from nested models
_FEW = 30
_PARTS = 5


@dataclass(frozen=True, eq=False)
class FittedTable:
    """What fitting a table gives.

    Arguments:
        model: to save.
        evaluation: of rows that were held out, by networks that have not seen them.
    """

    model: TableModel
    evaluation: Evaluation


def fit_table(data: Any, settings: TableSettings, *, log: Log = print, checkpoint: Checkpoint | None = None,
              execution: Execution | None = None, verbose: int = 0) -> FittedTable:  # fmt: skip
    """Learn to predict a column of a table from the others.

    What the settings leave open is chosen by the recipe of the estimators. Each member holds out a fold, by which settings
    are chosen and predictions are recalibrated and scored; if rows are held out from all members, these are scored. Where
    rows are few, choices would flatter the rows they were made by: parts of them are then scored by models of the others.

    Arguments:
        data: a file, several, or a folder of parts: CSV and its relatives, or Parquet.
        settings: see `TableSettings`.
        log: called with lines and listings: what the columns are, what is left out, how rows are used.
        checkpoint: where to keep the state of training.
        execution: where networks are trained; by default in processes where that pays.
        verbose: 1 for a progress bar on a terminal.
    """
    started = time.monotonic()
    train, rest = read_parts(data, settings, log)
    check_recalibration(settings.recalibration, train.head, len(rest) or len(train))
    schema = train.schema(settings)
    train = replace(train, known_schema=schema)
    check_values(schema, (train, rest), settings.errors, log)
    log(replace(schema.listing(), title=f"Columns of the {len(train)} rows to train on") if len(rest) else schema.listing())
    is_nested = len(train.different) < NESTED_ROWS and not len(rest) and settings.time_limit is None and train.source is None
    log(_use_of_rows(train, len(rest), settings, is_nested))
    inputs = schema.encode(train.table, "missing")
    unseen = schema.encode(rest.table, "missing") if len(rest) else None
    cuts = _cuts(train, inputs, settings, log)
    how: dict[str, Any] = {"checkpoint": checkpoint, "execution": execution, "verbose": verbose}
    limit, begun = settings.time_limit, time.monotonic()
    if limit is not None:  # reading counts, but leaves half
        how["time_limit"] = max(limit / 2, limit - (begun - started))
    fitted = _trained(train.task(inputs), settings, **how)
    ensemble, seconds = fitted.ensemble, time.monotonic() - begun
    if train.source is not None:
        tell(train.source.unreadable.notes(), log)
    tries_less = limit is not None and seconds >= 0.95 * how["time_limit"] and settings.effort != "fast"
    if unseen is None or _by_recipe(settings):
        known, mixture = _out_of_fold(ensemble, inputs, train)
    else:
        known, mixture = rest, ensemble.mixture(unseen)
    ensemble, single, held = _recalibrated(ensemble, known, mixture, settings)
    facts = {
        "rows": {"trained": train.n_trained, "held_out": len(rest)},
        "constant": _constant(train, ensemble),
        "settings": asdict(settings),
        "notes": list(train.notes),
        "cuts": [asdict(cut) for cut in cuts],
        "chosen": fitted.chosen | {"recalibration": repr(ensemble.recalibration)},
        "single_recalibration": describe(single),
        "training": _training(ensemble, fitted.chosen, limit, tries_less),
        "profiles": profile_columns(schema, train.table),
        "row_keys": sampled_keys(row_keys(np.column_stack([inputs, train.y]))),
    }
    model = TableModel(schema, train.target, ensemble, facts)
    recalibrated = held.describe(ensemble.recalibration)
    log(chosen_listing(facts["chosen"] | {"head": name_of(ensemble.head)}, settings.explicit))
    log(f"recalibration: {recalibrated}")
    log(f"training took {seconds:.0f} s: {facts['training']}")
    about = {"Recalibration": recalibrated}
    if unseen is not None and known is not rest:
        rows = rest.different
        judged, batches = rest.take(rows), iter([model.batch(unseen[rows], rest.y[rows])])
    elif is_nested and (parts := _nested_parts(train, inputs, settings)):
        judged = train.take(np.concatenate([part for _, part in parts]))
        batches = (_nested(train, inputs, settings, *part) for part in parts)
    else:
        judged, batches = known.take(np.concatenate(held.parts())), held.batches()
        if mixture.n_members < ensemble.n_members:
            who = about["Each row judged by"] = f"{mixture.n_members} of {ensemble.n_members} networks, which did not see it"
            log(f"each row is judged by {who}; all together usually do a little better")
    if len(judged) < _FEW:
        without = " and are those without recalibration" if ensemble.recalibration and len(judged) < ENOUGH else ""
        log(f"note: {len(judged)} rows are few to judge by; the scores below say little{without}")
    evaluation = _evaluated(batches, judged, model, about)
    scores = {score.name: score.ensemble for score in evaluation.scores}
    shares = [score.name for score in evaluation.scores if score.share]
    return FittedTable(replace(model, facts=facts | {"held_out_scores": scores, "shares": shares}), evaluation)


def settings_of_targets(data: Any, settings: TableSettings) -> list[TableSettings]:
    """The settings for each target, which are no inputs of each other: `a,b` names two unless a column is called so.

    Arguments:
        data, settings: as for `fit_table`.
    """
    names = [name.strip() for name in settings.target.split(",")]
    if len(names) == 1 or settings.target in open_table(data, settings.table).names:
        return [settings]
    if repeated := [name for place, name in enumerate(names) if name in names[:place]]:
        raise TableError(f"`{repeated[0]}` is named twice as a target; name each once")
    limit = None if settings.time_limit is None else settings.time_limit / len(names)
    drops = {target: (*settings.drop, *(name for name in names if name != target)) for target in names}
    return [replace(settings, target=target, drop=drop, time_limit=limit) for target, drop in drops.items()]


def _cuts(train: TableData, inputs: NDArray[np.float32], settings: TableSettings, log: Log) -> list[Cut]:
    """Where rows have a time, how models of earlier ones did later; not where rows are few or time is short."""
    if train.times is None or len(train) < LEAST_ROWS or settings.time_limit is not None:
        return []
    cuts = forward_cuts(train, inputs, lambda task: fit_by_recipe(task, settings, "fast").ensemble)
    log(cuts_listing(cuts))
    return cuts


def _nested_parts(train: TableData, inputs: NDArray[np.float32], settings: TableSettings) -> list[Split]:
    """(rows to train on, rows to judge) for each of some parts: classes evenly, copies and groups together."""
    together, rows = train.task(inputs).together, np.arange(len(train))
    if len(np.unique(together)) < 2 * _PARTS:
        return []
    strata = train.y.astype(np.int64) if train.target.classes else None
    folds = ComplementaryFolds(_PARTS, together, settings.seed)
    parts = folds(rows, _PARTS, np.random.default_rng(settings.seed), strata)
    return [(np.setdiff1d(rows, part), np.intersect1d(part, train.different)) for part in parts]


def _nested(train: TableData, inputs: NDArray[np.float32], settings: TableSettings, rows: Any, part: Any) -> Batch:
    """Some rows as they are predicted by what is made of others, from the first choice to the recalibration."""
    known = train.take(rows)
    ensemble = _trained(known.task(inputs[rows]), settings).ensemble
    ensemble, single, _ = _recalibrated(ensemble, *_out_of_fold(ensemble, inputs[rows], known), settings)
    facts = {"settings": asdict(settings), "single_recalibration": describe(single)}
    return TableModel(train.schema(settings), train.target, ensemble, facts).batch(inputs[part], train.y[part])


def _by_recipe(settings: TableSettings) -> bool:
    """Whether the recipe recalibrates; where rows are the latest, these say what it must allow for, not folds of earlier."""
    return settings.recalibration == "auto" and settings.time is None


def _trained(task: Task, settings: TableSettings, **others: Any) -> Fitted:
    return fit_by_recipe(task, settings, **others, **({} if _by_recipe(settings) else {"recalibration": None}))


def _recalibrated(
    ensemble: Ensemble, known: TableData, mixture: Mixture, settings: TableSettings
) -> "tuple[Ensemble, recalibration.Recalibration | None, HeldOut]":
    """The ensemble, the recalibration of its first member, and the predictions that both were recalibrated by."""
    kept: dict[str, Any] = {"groups": known.together, "times": known.times, "bounds": settings.chosen_bounds}
    held = HeldOut.of(ensemble, mixture, known.y, settings.recalibration, **kept)
    ensemble = ensemble if _by_recipe(settings) else replace(ensemble, recalibration=held.fit_all())
    return ensemble, held.fit_all(single=True), held


def _training(ensemble: Ensemble, chosen: Mapping[str, Any], limit: float | None, tries_less: bool) -> str:
    """How many epochs there were, and what a time limit cut; without seconds, which the same model need not share."""
    losses, scores = np.asarray(ensemble.history)
    epochs, most = np.isfinite(losses).sum(1), chosen["max_epochs"]
    best = np.where(np.isfinite(scores), scores, np.inf).argmin(1) + 1
    recipe = Recipe(patience=chosen.get("patience", most), patience_factor=chosen.get("patience_factor"))
    is_cut = limit is not None and ((epochs < most) & (epochs - best < recipe.waits(best))).any()
    cut = " and ".join(["epochs"] * bool(is_cut) + ["what else to try"] * tries_less)
    told = f"; the time limit of {limit:g} s cut {cut}" if cut else ""
    done = f"{epochs.max()}" if epochs.min() == epochs.max() else f"{epochs.min()} to {epochs.max()}"
    return f"{done} of at most {most} epochs{told}"


def _use_of_rows(train: TableData, n_held: int, settings: TableSettings, is_nested: bool) -> str:
    n_different = len(train.different)
    used = f"{train.n_trained} rows are used" + f", {n_different} of them different" * (n_different < len(train))
    if is_nested:
        return f"{used}; as they are few, each is judged by a model made of four fifths, without it, five trainings more"
    if not n_held:
        each = "each" if train.source is None else "each of the sample"
        return f"{used}; {each} is judged by the networks that hold it out"
    how = "chosen at random" if settings.group is None else f"whole groups of `{settings.group}`"
    how = how if settings.time is None else f"the latest by `{settings.time}`"
    held_out = f"{n_held} held out for scores and recalibration ({how})"
    return f"{len(train) + n_held} rows are used: {len(train)} to train on, {held_out}"


def fit_by_recipe(task: Task, settings: TableSettings, effort: str | None = None, **others: Any) -> Fitted:
    """Train with what is set, and for the rest with what the recipe chooses.

    Arguments:
        effort: another one than is set.
        others: settings that stand above those of the table.
    """
    if task.groups is not None and not task.together.any():
        raise TableError(f"`{settings.group}` has only one group left to train on, or its groups have equal rows in common, "
                         "and members must hold some out")  # fmt: skip
    others["execution"] = chosen_execution(others.get("execution"), "auto")
    return fit_recipe(task, Choices(settings.explicit | others, effort=effort or settings.effort), settings.seed)


def _out_of_fold(ensemble: Ensemble, inputs: NDArray[np.float32], train: TableData) -> tuple[TableData, Mixture]:
    """Training rows, not too many, and what members predict for them that hold them out."""
    rows = evenly_spaced(train.different, MOST_JUDGED)
    return train.take(rows), ensemble.out_of_fold(inputs)[torch.from_numpy(rows)]


def _evaluated(batches: Iterator[Batch], judged: TableData, model: TableModel, about: dict[str, str]) -> Evaluation:
    """Scores of rows that neither the networks nor the recalibration they are scored with have seen."""
    about = {"Predicted": f"{model.target.name} ({model.target.task})"} | about
    columns = {name: judged.table[name] for name in model.schema.names[:SHOWN_COLUMNS]}
    time, is_new = time_column(model.schema, model.facts, judged.table.column_names), model.facts["rows"]["held_out"] > 0
    profiler = Profiler(model.schema, model.facts if is_new else {})
    profiler.add(judged.table)
    times, same = None if time is None else row_times(time, judged.table[time]), "these rows are those of training"
    facts = RowFacts(model.target.name, profiler.groups(), times, judged.rows + 1, same, model.target.unit, time or "")
    shown: dict[str, Any] = {"columns": columns, "about": about, "facts": facts, "labels": model.labels}
    return replace(evaluate(batches, constant=model.constant, **shown), columns=profiler.facts(model.schema.labels))


def _constant(train: TableData, ensemble: Ensemble) -> dict[str, Any]:
    """What the same prediction for every row is made of: of numbers the raw outputs of the head that suit them best."""
    if not train.target.classes:
        raw = fitted_constant(ensemble, train.y, train.weights)
        return {"mean": float(train.y.mean()), "std": float(train.y.std()) or 1.0, "raw": raw}
    return {"shares": (np.bincount(train.y.astype(np.int64), minlength=len(train.target.classes)) / len(train)).tolist()}


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Predictions for rows by networks that have not seen them.

    Arguments:
        mixture: the predictions as members make them.
        target: what happened.
        name: of the recalibration, or `auto` for the one that these rows prefer, or `none`.
        groups, times: of the rows; None where there are none.
        point: the point prediction that is scored.
        bounds: of predictions; None where there are none.
    """

    mixture: Mixture
    target: NDArray[Any]
    name: str
    groups: NDArray[np.int64] | None = None
    times: NDArray[np.float64] | None = None
    point: str | None = None
    bounds: Bounds | None = None

    @classmethod
    def of(cls, ensemble: Ensemble, mixture: Mixture, target: NDArray[Any], name: str, **others: Any) -> "HeldOut":
        """Of an ensemble, judged with a recalibration of the kind that it has, where that was chosen."""
        kinds = {recalibration.VarianceScaling: "variance_scaling", recalibration.Temperature: "temperature"}
        name = kinds.get(type(ensemble.recalibration), name) if name == "auto" else name
        return cls(mixture, target, name, **others, point=getattr(ensemble.head, "point", None))

    def fit(self, mixture: Mixture, rows: NDArray[np.int64]) -> recalibration.Recalibration | None:
        """What some of the rows ask for; never one that moves the mean where rows are the latest, as that would pass off
        what has changed for what is uncertain."""
        if self.name == "none" or (self.name == "auto" and len(rows) < ENOUGH // 2):
            return None
        known = mixture[torch.from_numpy(rows)], torch.from_numpy(self.target[rows])
        if self.name == "temperature":  # not near 0 where all of few rows are right
            return tempered(*known, mixture.weights)
        if self.name != "auto":
            return getattr(recalibration, self.name)(*known)
        groups = None if self.groups is None else self.groups[rows]
        if groups is not None and len(np.unique(groups)) < 2:
            return None
        is_ordered = self.times is not None and not mixture.is_discrete
        names = ("none", *["variance_scaling"] * is_stretchable(mixture)) if is_ordered else None
        return recalibration.choose(*known, names, groups=groups)

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
        if self.times is not None:
            return np.array_split(np.argsort(self.times, kind="stable"), _PARTS)
        kinds = np.arange(n) if self.groups is None else np.unique(self.groups, return_inverse=True)[1]
        return [rows for part in range(_PARTS) if len(rows := np.flatnonzero(kinds % _PARTS == part))]

    def batches(self) -> Iterator[Batch]:
        """Each part recalibrated by the others, or where rows are the latest by those before it."""
        parts, single = self.parts(), first_member(self.mixture) if self.mixture.n_members > 1 else None
        for number, part in enumerate(parts):
            later = [] if self.times is not None else parts[number + 1 :]
            others = np.concatenate([part[:0], *parts[:number], *later])
            member = None if single is None else self._recalibrate(single, part, others)
            ensemble = self._recalibrate(self.mixture, part, others)
            yield Batch(ensemble, torch.from_numpy(self.target[part]), member, self.point)

    def _recalibrate(self, mixture: Mixture, part: NDArray[np.int64], by: NDArray[np.int64]) -> Any:
        fitted = self.fit(mixture, by) if len(by) >= 2 else None
        prediction: Any = mixture[torch.from_numpy(part)]
        prediction = prediction if fitted is None else fitted(prediction)
        return prediction if self.bounds is None else self.bounds(prediction)

    def describe(self, fitted: recalibration.Recalibration | None) -> str:
        """What a recalibration does, and why there is none."""
        if fitted is None and self.name == "auto" and len(self.target) < ENOUGH:
            return f"none; {len(self.target)} rows are too few to tell"
        if fitted is None:
            return "none, as asked" if self.name == "none" else "none, as none was clearly better on held-out rows"
        return describe_recalibration(fitted)


def check_recalibration(name: str, head: Any, n_rows: int) -> None:
    """Refuse one that is not for the task or the head, or for so few rows."""
    if n_rows < 2 and name not in ("auto", "none"):
        cure = "hold out more, or none for all to take turns"
        raise TableError(f"{name} needs at least 2 rows held out, got {n_rows}; {cure}")
    if head.kind == "classes" and name in ("variance_scaling", "isotonic"):
        raise TableError(f"{name} is a recalibration of numbers; this is a classification")
    if head.kind != "classes" and name == "temperature":
        raise TableError("temperature is a recalibration of classes; this is a regression")
    if name == "variance_scaling" and (head.kind != "numbers" or head.scaling != "location-scale"):
        raise TableError("variance_scaling stretches spreads, which leads to values that this head cannot have; "
                         "take isotonic, conformal or auto")  # fmt: skip
