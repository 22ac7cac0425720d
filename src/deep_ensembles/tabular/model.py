"""A fitted table: how its columns are read, and the ensemble that predicts from them."""

from __future__ import annotations

import dataclasses
import math
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, get_args, get_origin, get_type_hints

import torch
from torch.distributions import Categorical, Distribution, Normal

from deep_ensembles._arrow import pa
from deep_ensembles._checks import require
from deep_ensembles._files import write_model
from deep_ensembles.columns import TASKS, Schema, Target
from deep_ensembles.columns.date import PATTERNS
from deep_ensembles.ensemble import Ensemble
from deep_ensembles.recalibration import Prediction
from deep_ensembles.settings import restore
from deep_ensembles.tabular.bounds import Bounds


@dataclass(frozen=True, eq=False)
class TableModel:
    """A model of a table, made by `fit_table` or `deep-ensembles fit`.

    Arguments:
        schema: which columns become inputs, and how.
        target: the column to predict.
        ensemble: inputs → prediction.
        facts: plain data about training: rows, the constant prediction, held-out scores, settings.
    """

    schema: Schema
    target: Target
    ensemble: Ensemble
    facts: Mapping[str, Any]

    def __call__(self, rows: Any, errors: str = "refuse") -> Any:
        """The prediction for the rows of a table.

        Arguments:
            rows: a data frame of pandas or polars, or a pyarrow table; columns are found by name.
            errors: `refuse` values that cannot be read, or take them as `missing`.
        """
        table = rows if isinstance(rows, (pa.Table, pa.RecordBatch)) else pa.table(rows)
        return self.bounded(self.ensemble(self.schema.encode(table, errors)))

    def bounded(self, prediction: Prediction) -> Any:
        """What the ensemble predicts, within the bounds that the settings name, if they do."""
        named = self.facts.get("settings", {}).get("bounds")
        return prediction if named is None else Bounds.named(named)(prediction)

    @property
    def single(self) -> Ensemble:
        """The first network alone, recalibrated by the same rows."""
        return dataclasses.replace(self.ensemble.subset(1), recalibration=restore(self.facts.get("single_recalibration")))

    @property
    def labels(self) -> list[str] | None:
        """The names of the classes, as text; None for numbers."""
        return [str(label) for label in self.target.classes] or None

    @property
    def constant(self) -> Distribution:
        """What someone predicts who knows only the training targets: their mean and spread, or the shares of classes."""
        known = self.facts["constant"]
        if self.target.classes:
            return Categorical(probs=torch.tensor(known["shares"], dtype=torch.float64))
        mean, deviation = (torch.tensor(known[moment], dtype=torch.float64) for moment in ("mean", "std"))
        return Normal(mean, deviation)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a model folder (`config.json` and a file of tensors; no pickle) that `deep_ensembles.load` reads."""
        table = {"schema": self.schema.data(), "target": self.target.data(), "facts": dict(self.facts)}
        config = {"kind": "TableModel", "table": table, "ensemble": self.ensemble.config()}
        write_model(path, config, self.ensemble.tensors())

    @classmethod
    def from_file(cls, config: Mapping[str, Any], ensemble: Ensemble) -> TableModel:
        """The model that `save` described, around its ensemble, if they agree."""
        table = config["table"]
        model = cls(Schema.from_data(table["schema"]), Target.from_data(table["target"]), ensemble, table["facts"])
        _check_columns(model.schema, math.prod(ensemble.feature_shape))
        _check_target(model.target, ensemble)
        n_shares = len(model.facts["constant"].get("shares", ()))
        require(n_shares == len(model.target.classes), "constant", "one share per class", n_shares)
        rows = [model.facts["rows"][part] for part in ("trained", "held_out")]
        counted = all(type(count) is int for count in rows) and bool(model.constant.batch_shape == ())
        require(counted, "rows", "numbers", rows)
        # Whatever else does not fit shows when a row is predicted.
        empty = pa.table({name: pa.array([None], pa.string()) for name in model.schema.names})
        model.single(model.schema.encode(empty, "missing"))
        model(empty, "missing")
        return model


# What a field of a column may be, by its annotation; a tuple holds values of one type.
_FIELDS: dict[Any, Callable[[Any], bool]] = {
    str: lambda value: isinstance(value, str),
    bool: lambda value: isinstance(value, bool),
    int: lambda value: type(value) is int and 0 <= value < 2**53,
    float: lambda value: type(value) in (int, float) and abs(value) <= sys.float_info.max,
}


def _fits(value: Any, annotation: Any) -> bool:
    if get_origin(annotation) is not tuple:
        return _FIELDS[annotation](value)
    item = get_args(annotation)[0]
    kinds = get_args(item) or (item,)
    return isinstance(value, tuple) and any(all(type(part) is kind for part in value) for kind in kinds)


def _check_fields(described: Any) -> None:
    annotations = get_type_hints(type(described))
    for field in dataclasses.fields(described):
        value, annotation = getattr(described, field.name), annotations[field.name]
        require(_fits(value, annotation), field.name, f"{annotation}", value)


def _check_columns(schema: Schema, n_inputs: int) -> None:
    """Columns that a file describes must be usable, and make so many inputs."""
    require(len(set(schema.names)) == len(schema.columns), "columns", "of different names", schema.names)
    for column in schema.columns:
        _check_fields(column)
        possible = {"buckets": range(1, n_inputs + 1), "decimal": (".", ","), "pattern": PATTERNS}
        for name, values in possible.items():
            value = getattr(column, name, None)
            require(value is None or value in values, name, "one that training gives", value)
        require(getattr(column, "scale", 1) > 0, "scale", "more than 0", column)
        column.summary()
    width = sum(column.width for column in schema.columns)
    require(width == n_inputs, "columns", f"of {n_inputs} inputs", width)


def _check_target(target: Target, ensemble: Ensemble) -> None:
    """A target that a file describes must be what the ensemble predicts."""
    _check_fields(target)
    require(target.task in TASKS and target.decimal in ".,", "task", "known", target.task)
    classes = len(target.classes)
    different = len(set(target.classes)) == classes
    require(different and target.task == TASKS[bool(classes)], "classes", "one per output", classes)
    kind = getattr(ensemble.head, "kind", "classes" if classes else "numbers")
    require((kind == "classes") == bool(classes), "task", "that of the head", target.task)
    size = ensemble.head.raw_size(classes or 1) if hasattr(ensemble.head, "raw_size") else ensemble.n_outputs
    require(size == ensemble.n_outputs, "head", f"of {ensemble.n_outputs} raw outputs", size)
