"""A model and the values of one row → its prediction."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from deep_ensembles._arrow import pa
from deep_ensembles._terminal import Listing
from deep_ensembles.columns import TableError, check_known
from deep_ensembles.tabular.model import TableModel
from deep_ensembles.tabular.predict import PredictionOptions, check_names, check_task, predict_batch
from deep_ensembles.tabular.writing import TABLES, check_output, writing

_MOST_CLASSES = 10


@dataclass(frozen=True)
class PredictedRow:
    """The prediction for one row.

    Arguments:
        target: what is predicted.
        coverage: of the interval.
        values: the columns of a table of predictions, by name.
        gaps: columns that were not given.
        unseen: columns whose value training did not see.
        unit: of numbers, where training had one.
    """

    target: str
    coverage: float
    values: Mapping[str, Any]
    gaps: Sequence[str]
    unseen: Sequence[str]
    unit: str = ""

    def listing(self) -> Listing:
        """To print; of many classes the most probable ones."""
        shown, shares = {name: _text(value) for name, value in self.values.items()}, {}
        if "lower" in shown:
            interval = f"{shown['lower']} to {shown.pop('upper')}"
            names = {"lower": f"{100 * self.coverage:g} % interval"}
            shown = {names.get(name, name): value for name, value in (shown | {"lower": interval}).items()}
        if "label" in shown:
            shares = {name: self.values[name] for name in shown if name.startswith("p_")}
        likely = sorted(shares, key=lambda name: -shares[name])
        rows = [[name, value] for name, value in shown.items() if name not in shares]
        rows += [[name, f"{shares[name]:.4f}"] for name in likely[:_MOST_CLASSES]]
        rows += [["…", f"{len(likely) - _MOST_CLASSES} more"]] if len(likely) > _MOST_CLASSES else []
        return Listing("", ["predicted", self.target + f" in {self.unit}" * bool(self.unit)], rows)


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def predict_row(
    model: TableModel, row: Mapping[str, Any], out: str | os.PathLike[str] | None = None, **options: Any
) -> PredictedRow:
    """Predict one row; its values are read as those of a file.

    Arguments:
        model: made by `fit_table`.
        row: values by column. A column that is not there is a gap, if training had gaps in it.
        out: a file to write, as for `predict_table`.
        options: as for `predict_table`.
    """
    chosen, schema = PredictionOptions(**options), model.schema
    check_task(model, chosen)
    if out is not None:
        check_output(out, TABLES)
    targets = [part.target for part in model.every]
    check_known("the model", row, [*schema.names, *(name for name, _ in schema.dropped), targets[0].name])
    check_known("the row", chosen.keep, list(row))
    gaps = [column for column in schema.columns if not row.keys() >= set(column.sources)]
    if needed := [f"`{column.name}`" for column in gaps if not column.missing]:
        shown = ", ".join(needed[:5]) + ", …" * (len(needed) > 5)
        raise TableError(f"the row lacks {shown}, which every training row had; an empty value makes it a gap all the same")
    wanted = dict.fromkeys([*(name for part in model.every for name in part.schema.names), *chosen.keep])
    check_names(model, list(wanted), chosen)
    cells = pa.record_batch({name: pa.array([row.get(name)]) for name in wanted})
    done, unseen = predict_batch(model, chosen, (cells, 1))
    if out is not None:
        with writing(out) as table:
            table.write(done)
    (values,) = done.to_pylist()
    odd = [name for name, count in zip(schema.labels, unseen, strict=True) if count]
    name, unit = ", ".join(target.name for target in targets), targets[0].unit if len(targets) == 1 else ""
    return PredictedRow(name, chosen.coverage, values, [column.name for column in gaps], odd, unit)
