"""Values of a table that its columns cannot read: refused, or taken as missing and counted, before training."""

from collections.abc import Sequence
from dataclasses import replace

from deep_ensembles.columns import Column, Date, Number, Schema, TableError, UnreadableValue
from deep_ensembles.tabular.data import Log, TableData


def check_values(schema: Schema, parts: Sequence[TableData], errors: str, log: Log) -> None:
    """Refuse values that columns cannot read, or log for each column how many are taken as missing.

    Arguments:
        schema: of the first part.
        parts: rows to train on, and others; messages count rows as the file does.
        errors: `refuse` or `missing`.
    """
    unreadable = [error for column in schema.columns if (error := _unreadable(column, parts))]
    if unreadable and errors == "refuse":
        first, others = unreadable[0], ", ".join(f"`{error.column}`" for error in unreadable[1:4])
        more = f" (one of {first.count} such values)" * (first.count > 1) + f"; others are in {others}" * bool(others)
        raise TableError(
            f"column `{first.column}`: {first.value!r} in row {first.row} is not a {first.kind}{more}; "
            "correct it, leave it empty, or take such values as missing with --errors missing"
        )
    for error in unreadable:
        values = f"{error.count} value{'s' * (error.count > 1)} of `{error.column}`"
        log(f"note: {values}, the first {error.value!r} in row {error.row}, cannot be read: taken as missing")


def _unreadable(column: Column, parts: Sequence[TableData]) -> UnreadableValue | None:
    """The first value that a column cannot read, and how many there are."""
    if isinstance(column, (Date, Number)):
        # Where it took no words as missing, it could read all values of the first part.
        parts, column = parts if column.words else parts[1:], replace(column, words=())
    found = [error for part in parts if (error := _unreadable_in(part, column))]
    first = min(found, key=lambda error: error.row, default=None)
    return first and UnreadableValue(column.name, first.value, first.row, first.kind, sum(error.count for error in found))


def _unreadable_in(part: TableData, column: Column) -> UnreadableValue | None:
    """The same for some rows, by the number of the row in the file."""
    try:
        column.read(column.cells(part.table))
    except UnreadableValue as error:
        row = int(part.rows[error.row - 1]) + 1
        return UnreadableValue(column.name, error.value, row, error.kind, error.count)
    return None
