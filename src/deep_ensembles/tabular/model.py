"""A fitted table: how its columns are read, and the ensemble that predicts from them."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import safetensors.torch
import torch
from torch.distributions import Categorical, Distribution, Normal

from deep_ensembles._arrow import pa
from deep_ensembles._checks import require
from deep_ensembles._files import write_model
from deep_ensembles.columns import TASKS, Schema, Target, check_fields, stored_schema
from deep_ensembles.ensemble import Ensemble
from deep_ensembles.recalibration import Prediction
from deep_ensembles.settings import restore
from deep_ensembles.tabular.head import Bounds
from deep_ensembles.tabular.profile import profiles_from


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
    beside: tuple[TableModel, ...] = ()

    @property
    def every(self) -> tuple[TableModel, ...]:
        """The models of all targets."""
        return dataclasses.replace(self, beside=()), *self.beside

    def __call__(self, rows: Any, errors: str = "refuse") -> Any:
        """The prediction for the rows of a table; of several targets one each, by name.

        Arguments:
            rows: a data frame of pandas or polars, or a pyarrow table; columns are found by name.
            errors: `refuse` values that cannot be read, or take them as `missing`.
        """
        table = rows if isinstance(rows, (pa.Table, pa.RecordBatch)) else pa.table(rows)
        if self.beside:
            return {model.target.name: model(table, errors) for model in self.every}
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
    def from_file(cls, config: Mapping[str, Any], ensemble: Ensemble) -> TableModel:
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
