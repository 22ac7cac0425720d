"""A model and a table → scores of its predictions and the report, or which columns drive them and why a row is unsure."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from deep_ensembles import report
from deep_ensembles._arrow import pa
from deep_ensembles._terminal import Listing, progress
from deep_ensembles.columns import Date, Schema, TableError, kind_of, read_times
from deep_ensembles.recalibration import Conformal, Recalibration, Temperature, VarianceScaling
from deep_ensembles.report.words import row_count
from deep_ensembles.tabular.files import BATCH_ROWS, TableFiles, open_table, together
from deep_ensembles.tabular.head import check_targets
from deep_ensembles.tabular.model import Profiler, TableModel
from deep_ensembles.training.blocks import row_keys

SHOWN_COLUMNS = 30  # of rows worth a look, in reports
_EXAMPLES = 3
_EXPLAINED_ROWS, _MOST_PREDICTIONS = 1000, 60_000  # of each batch, and in all, to find out what columns are worth
_MOST_EXPLAINED = 300  # columns; of more, shuffling each would take very long
_MANY_TRAINED = 0.2  # of the rows, from which scores are no longer those of new rows
_MOST_ROWS = 20_000  # that are kept of a table; explanations take some of these


def evaluate_table(model: TableModel, data: Any, *, coverage: float = 0.9, errors: str = "refuse", explained: bool = False,
                   table: str | None = None, verbose: int = 0) -> report.Report:  # fmt: skip
    """How good predictions for the rows of a table are, given what happened.

    Arguments:
        model: made by `fit_table`.
        data: a file, several, or a folder of parts, with the column that is predicted; rows without it are left out.
        coverage: the share of rows that intervals should hold.
        errors: `refuse` values that cannot be read, or take them as `missing`.
        explained: whether to find out which columns drive predictions, too.
        table: the sheet of a workbook or the table of a database, where it holds several.
    """
    files = open_table(data, table)
    model.schema.check(files.names)
    if model.target.name not in files.names:
        raise TableError(f"the table lacks the column `{model.target.name}`, without which predictions cannot be judged")
    rows = _Rows(model, files, errors)
    with torch.inference_mode(), progress("evaluating", files.n_rows, "rows", verbose=verbose) as update:
        shown: dict[str, Any] = {name: getattr(rows, name) for name in ("columns", "unseen", "about", "facts")}
        shown |= {"constant": model.constant, "labels": model.labels, "coverage": coverage}
        evaluation = report.evaluate(rows.batches(update), **shown)
    if rows.strange:
        evaluation = _counting_wrong(evaluation, rows.strange)
    if told := rows.about.get("Rows of training"):
        evaluation = replace(evaluation, summary=f"{evaluation.summary} But {told}.")
    names = list(model.schema.labels)
    if explained and evaluation.n_rows > 1 and len(names) <= _MOST_EXPLAINED:
        inputs, targets = map(np.concatenate, zip(*rows.some, strict=True))
        few: dict[str, Any] = {"repeats": 2, "most_predictions": _MOST_PREDICTIONS}
        found = report.influences(model.predict, inputs, model.schema.places, names, targets, **few)
        evaluation, names = replace(evaluation, influences=found), [each.column for each in found.columns]
    evaluation = replace(evaluation, columns=rows.profiler.facts(names))
    return report.Report(evaluation, f"{model.target.name}: predictions for {row_count(evaluation.n_rows)}")


class _Rows:
    """Rows to score, and what the report shows of them: filled in as they are read."""

    def __init__(self, model: TableModel, files: TableFiles, errors: str) -> None:
        self.model, self.files, self.errors = model, files, files.counting(errors)
        self.about, self.profiler = _about(model, files), Profiler(model.schema, model.facts)
        self.facts = report.RowFacts(model.target.name, unit=model.target.unit)
        self.columns, self.unseen, self.strange = dict[str, Any](), list[report.Unseen](), Counter[str]()
        self.some: list[tuple[np.ndarray, np.ndarray]] = []
        self.trained = np.array(model.facts.get("row_keys", []), dtype=np.uint64)
        self.met = np.zeros(len(self.trained), dtype=bool)

    def batches(self, update: Any) -> Iterator[report.Batch]:
        """Predictions and targets; what is known of columns is complete when the last batch was asked for."""
        schema, target = self.model.schema, self.model.target
        kept, places, files = list[pa.Table](), list[np.ndarray](), self.files
        counts = np.zeros(len(schema.columns), dtype=np.int64)
        examples: list[dict[str, None]] = [{} for _ in schema.columns]
        time = time_column(schema, self.model.facts, files.names)
        shown = [*dict.fromkeys([*schema.names[:SHOWN_COLUMNS], *([] if time is None else [time])])]
        for first_row, batch in files.numbered(list(dict.fromkeys([*schema.names, *shown, target.name])), BATCH_ROWS):
            y = target.read(batch.column(target.name), first_row, "missing" if target.classes else self.errors)
            known = ~np.isnan(y)
            if target.classes:
                self.strange.update(target.unread(batch.column(target.name), y))
            rows = np.flatnonzero(known) + first_row
            check_targets(self.model.ensemble.head, target.name, y[known], rows - 1)
            inputs, unseen = schema.encode_with_unseen(batch, self.errors, first_row)
            inputs, unseen, cells = inputs[known], unseen[known], batch.filter(pa.array(known))
            places.append(rows)
            update(advance=batch.num_rows)
            if not len(inputs):
                continue
            counts += unseen.sum(0)
            for place in np.flatnonzero(unseen.any(0)).tolist():
                if len(examples[place]) < _EXAMPLES:
                    examples[place] |= schema.examples(cells, schema.columns[place], unseen[:, place])
            kept.append(pa.Table.from_batches([cells.select(shown)]))
            self.profiler.add(cells)
            codes = y[known].astype(np.int64) if target.classes else y[known]
            few = slice(None, None, 1 + len(inputs) // _EXPLAINED_ROWS)
            self.some.append((inputs[few], codes[few]))
            self.met |= np.isin(self.trained, row_keys(np.column_stack([inputs, y[known]])))
            yield self.model.batch(inputs, codes)
        if not (n_rows := sum(map(len, places))):
            what = "class that training saw" if self.strange else "value"
            raise TableError(f"no row has a {what} of `{target.name}`, so that there is nothing to judge")
        if left_out := first_row - 1 + batch.num_rows - n_rows - self.strange.total():
            self.about["Left out"] = f"{left_out} row{'s' * (left_out != 1)} without a value of {target.name}"
        if self.met.sum() > 1:
            share = min(1.0, self.met.mean() * self.model.facts["rows"]["trained"] / n_rows)
            told = f"about {share:.0%} of these rows are among those that it was trained on, which flatters scores"
            self.about |= {"Rows of training": told} if share >= _MANY_TRAINED else {}
        if files.notes:
            self.about["Files"] = " · ".join(files.notes)
        whole = together(kept)
        self.columns |= {name: whole[name] for name in schema.names[:SHOWN_COLUMNS]}
        self.unseen += report.unseen_columns(schema.columns, counts.tolist(), examples, n_rows)
        self.facts.groups, self.facts.numbers = self.profiler.groups(), np.concatenate(places)
        self.facts.times, self.facts.time = None if time is None else row_times(time, whole[time]), time or ""


def _counting_wrong(evaluation: report.Evaluation, strange: Counter[str]) -> report.Evaluation:
    """The evaluation with rows of classes that training did not see, which no prediction can name, as wrong."""
    count, accuracy = strange.total(), evaluation.scores[0]
    between = "; " if any("," in name for name in strange) else ", "
    names = between.join([*(f"{name} {rows}" for name, rows in strange.most_common(10)), *["…"] * (len(strange) > 10)])
    shown = f"{count} row{'s' * (count != 1)} of classes that training did not see ({names})"
    part = evaluation.n_rows / (evaluation.n_rows + count)
    values: Any = [None if value is None else value * part for value in accuracy.values]
    meaning = f"share of all rows; {shown} count as wrong"
    over_all = report.Score("Accuracy, all rows", meaning, "higher", *values, share=True)  # type: ignore[misc]
    told = f"{evaluation.summary} {shown} count as wrong: of all rows {over_all.text(over_all.ensemble)} are right."
    scores = (accuracy, over_all, *evaluation.scores[1:])
    return replace(evaluation, scores=scores, summary=told, about={**evaluation.about, "Unseen classes": shown})


def time_column(schema: Schema, facts: Mapping[str, Any], names: Sequence[str]) -> str | None:
    """The column by which rows follow one another: the one that training was told, or the first date."""
    told = facts.get("settings", {}).get("time")
    dates = [column.sources[0] for column in schema.columns if isinstance(column, Date)]
    return told if told in names else next(iter(dates), None)


def row_times(name: str, values: pa.ChunkedArray) -> NDArray[Any] | None:
    """The times of rows as numbers or NumPy's dates; None where some cannot be read."""
    try:
        read = read_times(name, values)
    except ValueError:
        return None
    return read.astype(np.int64).astype("datetime64[s]") if kind_of(name, values)[0] == "date" else read


def _about(model: TableModel, files: TableFiles) -> dict[str, Any]:
    """Facts about model and data, the bounds of predictions, and what looked wrong in the training rows."""
    rows, named, notes = model.facts["rows"], model.facts.get("settings", {}).get("bounds"), model.facts.get("notes")
    about = {
        "Data": ", ".join(str(file.path.name) for file in files.files[:3]) + ", …" * (len(files.files) > 3),
        "Predicted": f"{model.target.label} ({model.target.task})",
        "Columns used": f"{len(model.schema.columns)}, as {len(model.schema.input_names)} inputs",
        "Trained on": f"{rows['trained']} rows" + f"; {rows['held_out']} more were held out" * bool(rows["held_out"]),
        "Recalibration": describe_recalibration(model.ensemble.recalibration),
    }
    about |= {} if named is None else {"Bounds": f"{named}; predictions are moved inside"}
    return about | ({"Noted in training rows": " · ".join(map(str, notes))} if notes else {})


def describe_recalibration(fitted: Recalibration | None) -> str:
    """What a recalibration does, for people."""
    if fitted is None:
        return "none"
    if isinstance(fitted, VarianceScaling):
        factor = f"{fitted.factor:.3g}"
        asked = "no change" if factor == "1" else f"spreads {factor} times as wide"
        return f"variance scaling; held-out rows ask for {asked}"
    if isinstance(fitted, Temperature):
        return f"temperature {fitted.temperature:.3g}; above 1 makes probabilities less sure"
    if isinstance(fitted, Conformal):
        return f"conformal; intervals hold as often as they say, by {len(fitted.scores)} held-out rows"
    return "isotonic; predicted levels are replaced by those that held-out rows showed"


def scores_listing(evaluation: report.Evaluation, title: str) -> Listing:
    """Scores beside those of one network and of a constant, each with its meaning."""
    rows = [[score.name, *map(score.text, score.values), score.meaning] for score in evaluation.scores]
    return Listing(title, ["score", "ensemble", "one network", "constant", "meaning"], rows, words=["meaning"])


def explain_table(model: TableModel, data: Any, *, row: int | None = None, errors: str = "refuse", table: str | None = None,
                  log: Callable[[str], None] = lambda note: None) -> report.Influences | report.Reasons:  # fmt: skip
    """Which columns drive predictions for the rows of a table, and how unsure they are.

    Arguments:
        model: made by `fit_table`.
        data: a file, several, or a folder of parts; with the column that is predicted, errors are explained too.
        row: why this row is unsure, counted from 1 as in the file.
        errors: `refuse` values that cannot be read, or take them as `missing`.
        table: the sheet of a workbook or the table of a database, where it holds several.
        log: called with what is worth saying of the table, as how many values were taken as missing.
    """
    files, schema, target = open_table(data, table), model.schema, model.target
    schema.check(files.names)
    has_target = target.name in files.names
    wanted = [*schema.names, *([target.name] if has_target else [])]
    inputs, targets, reading = [], [], files.counting(errors)
    for first_row, batch in files.numbered(wanted):
        inputs.append(schema.encode(batch, reading, first_row))
        if has_target:
            targets.append(target.read(batch.column(target.name), first_row, "missing" if target.classes else reading))
        if row is None and first_row + batch.num_rows > _MOST_ROWS:
            break
    for note in files.notes:
        log(note)
    rows, known = np.concatenate(inputs), np.concatenate(targets) if has_target else None
    if row is not None and not 1 <= row <= len(rows):
        raise TableError(f"`row` must be from 1 to {len(rows)}, got {row}")
    if row is None and known is not None:
        rows, known = rows[~np.isnan(known)], known[~np.isnan(known)]
        known = known.astype(np.int64) if target.classes else known
    if row is None and len(rows) < 2:
        raise TableError("explanations need at least 2 rows" + f" with a value of `{target.name}`" * has_target)
    place = None if row is None else row - 1
    return report.explain(model.predict, rows, schema.places, schema.labels, known, place)
