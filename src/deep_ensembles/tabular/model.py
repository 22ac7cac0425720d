"""A fitted table: how its columns are read, how training values were spread, and the ensemble that predicts from them."""

import hashlib
import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import safetensors.torch
import torch
from numpy.typing import NDArray
from torch.distributions import Categorical, Distribution, Normal

from deep_ensembles._arrow import pa
from deep_ensembles._checks import require
from deep_ensembles._files import write_model
from deep_ensembles._splits import evenly_spaced
from deep_ensembles.columns import TASKS, Boolean, Category, Column, Date, Schema, Target, check_fields, stored_schema
from deep_ensembles.columns.date import CLOCKS
from deep_ensembles.ensemble import Ensemble
from deep_ensembles.recalibration import Prediction
from deep_ensembles.report import Batch, ColumnFacts, Groups
from deep_ensembles.report.constant import constant_prediction
from deep_ensembles.report.segments import RARE_OR_NEW
from deep_ensembles.report.words import cell
from deep_ensembles.settings import restore
from deep_ensembles.tabular.head import Bounds

_SAMPLE_ROWS, _PARTS = 20_000, 10
_KEPT_KEYS = 1024  # of training rows, by which these are found among others
_LEAST_DIFFERENT = 0.9  # the share of different rows, below which equal rows are no wonder
_MOST_GROUPED = 100  # columns whose rows are kept by group, to look for errors in
_SHOWN = 10


@dataclass(frozen=True)
class Profile:
    """How many training rows had which level of a column or, of numbers and dates, lay in which tenth.

    Arguments:
        column: whose.
        ends: between the tenths; empty where there are levels.
        counts: rows of each group, the missing last.
    """

    column: Column
    ends: tuple[float, ...] = ()
    counts: tuple[int, ...] = ()

    @property
    def levels(self) -> tuple[str, ...]:
        """Names of groups without an order."""
        if isinstance(self.column, Boolean):
            return "no", "yes"
        return (*self.column.levels, RARE_OR_NEW) if isinstance(self.column, Category) else ()

    @property
    def n_groups(self) -> int:
        """How many groups there are, that of missing values among them."""
        return len(self.levels) + 1 if self.levels else len(self.ends) + 2

    def codes(self, read: NDArray[np.float64]) -> NDArray[np.int16]:
        """The group of each of what the column reads."""
        last = self.n_groups - 1
        places = np.clip(np.nan_to_num(read), 0, last - 1) if self.levels else np.searchsorted(self.ends, read)
        return np.where(np.isnan(read), last, places).astype(np.int16)

    def groups(self, here: NDArray[np.int64], codes: Any, is_training: bool) -> Groups:
        """What a report looks at."""
        ends = None if self.levels else tuple(map(self._text, self.ends))
        # Dates go on: that later ones are here is no change of the data.
        trained = np.array(self.counts) if is_training and not isinstance(self.column, Date) else None
        return Groups(self.column.name, (*self.levels, "missing"), ends, here, codes, trained)

    def _text(self, end: float) -> str:
        if not isinstance(self.column, Date):
            return f"{cell(end)} {getattr(self.column, 'unit', '')}".strip()
        told = str(np.datetime64(int(end), "s"))
        return told[11:16] if self.column.pattern in CLOCKS else told[:10]


def profile_columns(schema: Schema, table: Any) -> list[dict[str, Any] | None]:
    """The profiles of columns in at most 20 000 rows of a table, as plain data for a model file; None for text."""
    some = table.take(pa.array(evenly_spaced(np.arange(table.num_rows), _SAMPLE_ROWS)))
    return [_profile(column, column.read(column.cells(some), "missing")) for column in schema.columns]


def _profile(column: Column, read: NDArray[Any]) -> dict[str, Any] | None:
    if read.ndim > 1:
        return None
    profile, known = Profile(column), read[np.isfinite(read)]
    if not profile.levels and len(known):
        profile = Profile(column, tuple(np.unique(np.quantile(known, np.arange(1, _PARTS) / _PARTS)).tolist()))
    counts = np.bincount(profile.codes(read), minlength=profile.n_groups)
    return {"ends": list(profile.ends), "counts": counts.tolist()}


def sampled_keys(keys: NDArray[np.uint64]) -> list[int]:
    """Those of some training rows (see `row_keys`), for a model file; none where many rows are equal to others."""
    if len(np.unique(keys)) < _LEAST_DIFFERENT * len(keys):
        return []
    return keys[:: 1 + len(keys) // _KEPT_KEYS].tolist()


def profiles_from(schema: Schema, facts: Mapping[str, Any]) -> list[Profile | None] | None:
    """The profiles that a model file describes, if they are of these columns; None where it has none, as older ones."""
    data = facts.get("profiles")
    if data is None:
        return None
    require(len(data) == len(schema.columns), "profiles", "one per column", len(data))
    return [None if each is None else _checked(column, each) for column, each in zip(schema.columns, data, strict=True)]


def _checked(column: Column, data: Mapping[str, Any]) -> Profile:
    profile = Profile(column, tuple(map(float, data["ends"])), tuple(data["counts"]))
    sizes = len(profile.counts) == profile.n_groups and not (profile.ends and profile.levels)
    numbers = all(type(count) is int and 0 <= count < 2**53 for count in profile.counts)
    rising = bool(np.isfinite(profile.ends).all() and (np.diff(profile.ends) > 0).all())
    require(sizes and numbers and rising, "profiles", "those of the columns", column.name)
    return profile


class Profiler:
    """The rows of a table in the groups of training, batch by batch; for older models in groups of the first batch."""

    def __init__(self, schema: Schema, facts: Mapping[str, Any]) -> None:
        self.schema, self.profiles = schema, profiles_from(schema, facts)
        self.is_training = self.profiles is not None
        self.counts: list[Any] = [0] * len(schema.columns)
        self.codes: list[list[NDArray[np.int16]]] = [[] for _ in schema.columns]

    def add(self, batch: Any) -> None:
        """Count the rows of a batch."""
        if self.profiles is None:
            self.profiles = profiles_from(self.schema, {"profiles": profile_columns(self.schema, batch)})
        for place, (column, known) in enumerate(zip(self.schema.columns, self.profiles or (), strict=True)):
            read, profile = column.read(column.cells(batch), "missing"), known or Profile(column)
            codes = profile.codes(read if read.ndim == 1 else read[:, 0])  # of text only gaps are counted
            self.counts[place] = self.counts[place] + np.bincount(codes, minlength=profile.n_groups)
            self.codes[place] += [codes] if known and place < _MOST_GROUPED else []

    def groups(self) -> list[Groups]:
        """What a report looks at, of the columns that are not text."""
        parts = zip(self.profiles or (), self.counts, self.codes, strict=True)
        return [profile.groups(here, np.concatenate(codes) if codes else None, self.is_training)
                for profile, here, codes in parts if profile is not None]  # fmt: skip

    def facts(self, names: Sequence[str]) -> list[ColumnFacts]:
        """What the first of these columns are taken for, and how often they are missing here."""
        known = {column.name: (column, counts) for column, counts in zip(self.schema.columns, self.counts, strict=True)}
        shown = [(name, *known[name]) for name in names[:_SHOWN]]
        return [ColumnFacts(name, column.summary(), float(counts[-1] / counts.sum()) if np.ndim(counts) else 0.0)
                for name, column, counts in shown]  # fmt: skip


@dataclass(frozen=True, eq=False)
class TableModel:
    """A model of a table, made by `fit_table` or `deep-ensembles fit`.

    Arguments:
        schema: which columns become inputs, and how.
        target: the column to predict.
        ensemble: inputs → prediction.
        facts: plain data about training: rows, the constant prediction, held-out scores, settings.
        beside: models of other targets of the same table.
    """

    schema: Schema
    target: Target
    ensemble: Ensemble
    facts: Mapping[str, Any]
    beside: "tuple[TableModel, ...]" = ()

    @property
    def every(self) -> "tuple[TableModel, ...]":
        """The models of all targets."""
        return replace(self, beside=()), *self.beside

    def __call__(self, rows: Any, errors: str = "refuse") -> Any:
        """The prediction for the rows of a table; of several targets one each, by name.

        Arguments:
            rows: a data frame of pandas or polars, or a pyarrow table; columns are found by name.
            errors: `refuse` values that cannot be read, or take them as `missing`.
        """
        table = rows if isinstance(rows, (pa.Table, pa.RecordBatch)) else pa.table(rows)
        if self.beside:
            return {model.target.name: model(table, errors) for model in self.every}
        return self.predict(self.schema.encode(table, errors))

    def bounded(self, prediction: Prediction) -> Any:
        """What the ensemble predicts, within the bounds that the settings name, if they do."""
        named = self.facts.get("settings", {}).get("bounds")
        return prediction if named is None else Bounds.named(named)(prediction)

    def predict(self, inputs: NDArray[np.float32]) -> Any:
        """What all networks predict for inputs, recalibrated and within the bounds."""
        return self.bounded(self.ensemble(inputs))

    @property
    def single(self) -> Ensemble:
        """The first network alone, recalibrated by the same rows."""
        return replace(self.ensemble.subset(1), recalibration=restore(self.facts.get("single_recalibration")))

    def batch(self, inputs: NDArray[np.float32], y: NDArray[Any]) -> Batch:
        """What all networks predict for inputs, and the first alone, beside what happened: for a report."""
        one = self.bounded(self.single(inputs)) if self.ensemble.n_members > 1 else None
        point = getattr(self.ensemble.head, "point", None)
        return Batch(self.predict(inputs), torch.from_numpy(y), one, point)

    @property
    def labels(self) -> list[str] | None:
        """The names of the classes, as text; None for numbers."""
        return [str(label) for label in self.target.classes] or None

    @property
    def constant(self) -> Distribution:
        """What someone predicts who knows only training targets: the same distribution for all, or the shares of classes."""
        known = self.facts["constant"]
        if self.target.classes:
            return Categorical(probs=torch.tensor(known["shares"], dtype=torch.float64))
        if known.get("raw") is not None:
            return constant_prediction(self.ensemble, known["raw"], 0)  # type: ignore[return-value]
        mean, deviation = (torch.tensor(known[moment], dtype=torch.float64) for moment in ("mean", "std"))
        return Normal(mean, deviation)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a model folder (`config.json` and a file of tensors; no pickle) that `deep_ensembles.load` reads."""
        write_model(path, self._config(), self._tensors())

    def fingerprint(self) -> str:
        """A text that is another for every other model."""
        config, tensors = json.dumps(self._config(), sort_keys=True).encode(), self._tensors()
        stored = safetensors.torch.save({name: tensor.cpu().contiguous() for name, tensor in tensors.items()})
        return hashlib.sha256(config + stored).hexdigest()

    def _config(self) -> dict[str, Any]:
        table = {"schema": self.schema.data(), "target": self.target.data(), "facts": dict(self.facts)}
        config = {"kind": "TableModel", "table": table, "ensemble": self.ensemble.config()}
        return config | ({"beside": [model._config() for model in self.beside]} if self.beside else {})

    def _tensors(self) -> dict[str, torch.Tensor]:
        """Those of the ensemble, and of models beside it with their number before the name."""
        beside = [(f"{number}|{name}", tensor) for number, model in enumerate(self.beside, 1)
                  for name, tensor in model.ensemble.tensors().items()]  # fmt: skip
        return self.ensemble.tensors() | dict(beside)

    @classmethod
    def from_file(cls, config: Mapping[str, Any], ensemble: Ensemble) -> "TableModel":
        """The model that `save` described, around its ensemble, if they agree."""
        table = config["table"]
        schema = stored_schema(table["schema"], math.prod(ensemble.feature_shape))
        model = cls(schema, Target.from_data(table["target"]), ensemble, table["facts"])
        _check_target(model.target, ensemble)
        n_shares = len(model.facts["constant"].get("shares", ()))
        require(n_shares == len(model.target.classes), "constant", "one share per class", n_shares)
        rows = [model.facts["rows"][part] for part in ("trained", "held_out")]
        counted = all(type(count) is int for count in rows) and bool(model.constant.batch_shape == ())
        require(counted, "rows", "numbers", rows)
        profiles_from(model.schema, model.facts)
        keys = model.facts.get("row_keys", [])
        require(all(type(key) is int and 0 <= key < 2**64 for key in keys), "row_keys", "numbers of 64 bits", keys[:1])
        # Whatever else does not fit shows when a row is predicted.
        empty = pa.table({name: pa.array([None], pa.string()) for name in model.schema.names})
        model.single(model.schema.encode(empty, "missing"))
        model(empty, "missing")
        return model


def _check_target(target: Target, ensemble: Ensemble) -> None:
    """A target that a file describes must be what the ensemble predicts."""
    check_fields(target)
    require(target.task in TASKS and target.decimal in ".,", "task", "known", target.task)
    classes = len(target.classes)
    different = len(set(target.classes)) == classes
    require(different and target.task == TASKS[bool(classes)], "classes", "one per output", classes)
    kind = getattr(ensemble.head, "kind", "classes" if classes else "numbers")
    require((kind == "classes") == bool(classes), "task", "that of the head", target.task)
    size = ensemble.head.raw_size(classes or 1) if hasattr(ensemble.head, "raw_size") else ensemble.n_outputs
    require(size == ensemble.n_outputs, "head", f"of {ensemble.n_outputs} raw outputs", size)
