"""A fitted table: how its columns are read, and the ensemble that predicts from them."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.distributions import Categorical, Distribution, Normal

from deep_ensembles._arrow import pa
from deep_ensembles._files import write_model
from deep_ensembles.columns import Schema, Target, schema_from, target_from
from deep_ensembles.ensemble import Ensemble
from deep_ensembles.recalibration import Prediction
from deep_ensembles.settings import restore


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

    def __call__(self, rows: Any, errors: str = "refuse") -> Prediction:
        """The prediction for the rows of a table.

        Arguments:
            rows: a data frame of pandas or polars, or a pyarrow table; columns are found by name.
            errors: `refuse` values that cannot be read, or take them as `missing`.
        """
        table = rows if isinstance(rows, (pa.Table, pa.RecordBatch)) else pa.table(rows)
        return self.ensemble(self.schema.encode(table, errors))

    @property
    def single(self) -> Ensemble:
        """The first network alone, recalibrated by the same rows."""
        return dataclasses.replace(self.ensemble.subset(1), recalibration=restore(self.facts.get("single_recalibration")))

    @property
    def constant(self) -> Distribution:
        """What someone predicts who knows only the training targets: their mean and spread, or the shares of classes."""
        known = self.facts["constant"]
        if self.target.classes:
            return Categorical(probs=torch.tensor(known["shares"], dtype=torch.float64))
        mean, deviation = (torch.tensor(known[each], dtype=torch.float64) for each in ("mean", "std"))
        return Normal(mean, deviation)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a model folder (`config.json`, `model.safetensors`; no pickle) that `deep_ensembles.load` reads."""
        table = {"schema": self.schema.data(), "target": self.target.data(), "facts": dict(self.facts)}
        config = {"kind": "TableModel", "table": table, "ensemble": self.ensemble.config()}
        write_model(path, config, self.ensemble.tensors())

    @classmethod
    def from_file(cls, config: Mapping[str, Any], ensemble: Ensemble) -> TableModel:
        """The model that `save` described, around its ensemble."""
        table = config["table"]
        return cls(schema_from(table["schema"]), target_from(table["target"]), ensemble, table["facts"])
