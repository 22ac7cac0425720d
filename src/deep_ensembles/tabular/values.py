"""Values of a table that its columns cannot read: refused, or taken as missing and counted, before training."""

from collections.abc import Sequence
from dataclasses import replace

from deep_ensembles.columns import Date, Number, Schema, TableError, TakenAsMissing, UnreadableValue
from deep_ensembles.tabular.data import Log, TableData


def check_values(schema: Schema, parts: Sequence[TableData], errors: str, log: Log) -> None:
    """Refuse values that columns cannot read, or log for each column how many are taken as missing.

    Arguments:
        schema: of the first part.
        parts: rows to train on, and others; messages count rows as the file does.
        errors: `refuse` or `missing`.
    """
    unreadable = TakenAsMissing()
    for column in schema.columns:
        # What training takes as missing ever after, users are told of now.
        strict = replace(column, words=()) if isinstance(column, (Date, Number)) else column
        for part in parts:
            strict.read(column.cells(part.table), in_part := TakenAsMissing())
            for error in in_part.found.values():
                row = int(part.rows[error.row - 1]) + 1
                unreadable.add(UnreadableValue(error.column, error.value, row, error.kind, error.count))
    if unreadable.found and errors == "refuse":
        first, *others = unreadable.found.values()
        names = ", ".join(f"`{error.column}`" for error in others[:3])
        more = f" (one of {first.count} such values)" * (first.count > 1) + f"; others are in {names}" * bool(names)
        raise TableError(
            f"column `{first.column}`: {first.value!r} in row {first.row} is not a {first.kind}{more}; "
            "correct it, leave it empty, or take such values as missing with --errors missing"
        )
    for note in unreadable.notes():
        log(f"note: {note}")
