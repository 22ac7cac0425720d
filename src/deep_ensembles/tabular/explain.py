"""A model and a table → which columns drive its predictions, or why one row is unsure."""

from collections.abc import Callable
from typing import Any

import numpy as np

from deep_ensembles.columns import TableError
from deep_ensembles.report import Influences, Reasons, explain
from deep_ensembles.tabular.files import open_table
from deep_ensembles.tabular.model import TableModel

_MOST_ROWS = 20_000  # that are kept of a table; explanations take some of these


def explain_table(
    model: TableModel,
    data: Any,
    *,
    row: int | None = None,
    errors: str = "refuse",
    table: str | None = None,
    log: Callable[[str], None] = lambda note: None,
) -> Influences | Reasons:
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
    inputs, targets, first_row, reading = [], [], 1, files.counting(errors)
    for batch in files.batches(wanted):
        inputs.append(schema.encode(batch, reading, first_row))
        if has_target:
            targets.append(target.read(batch.column(target.name), first_row, "missing" if target.classes else reading))
        first_row += batch.num_rows
        if row is None and first_row > _MOST_ROWS:
            break
    for note in files.notes:
        log(note)
    rows, known = np.concatenate(inputs), np.concatenate(targets) if has_target else None
    if row is not None:
        if not 1 <= row < first_row:
            raise TableError(f"`row` must be from 1 to {first_row - 1}, got {row}")
        return explain(model.ensemble, rows, schema.places, schema.labels, row=row - 1)
    if known is not None:
        rows, known = rows[~np.isnan(known)], known[~np.isnan(known)]
        known = known.astype(np.int64) if target.classes else known
    if len(rows) < 2:
        raise TableError("explanations need at least 2 rows" + f" with a value of `{target.name}`" * has_target)
    return explain(lambda inputs: model.bounded(model.ensemble(inputs)), rows, schema.places, schema.labels, known)
