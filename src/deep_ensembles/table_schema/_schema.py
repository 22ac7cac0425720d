"""A table as it was understood in training, and its rows as inputs of a network."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deep_ensembles._arrow import pa
from deep_ensembles._checks import require
from deep_ensembles.columns import FITS, Column, column_data, column_from, number
from deep_ensembles.columns._values import plain
from deep_ensembles.table_files import TableError
from deep_ensembles.table_schema._kinds import DROP, judged
from deep_ensembles.tables import Table

_SHOWN = 50


@dataclass(frozen=True)
class Schema:
    """Columns that become inputs, those that do not, and why.

    Arguments:
        columns: in the order of the inputs.
        dropped: names of columns that were left out, each with the reason.

    Example:
        >>> schema = understand(pa.table({"size": [1.0, 2.0, 4.0], "unit": ["m", "m", "m"]}))
        >>> schema.input_names, schema.dropped
        (('size',), (('unit', "all its values are 'm'"),))
        >>> schema.encode(pa.table({"size": ["2", ""]})).tolist()
        [[0.0], [0.0]]
    """

    columns: tuple[Column, ...]
    dropped: tuple[tuple[str, str], ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The columns that a table must have."""
        return tuple(column.name for column in self.columns)

    @property
    def input_names(self) -> tuple[str, ...]:
        """A name for each input."""
        return tuple(name for column in self.columns for name in column.input_names)

    def extra(self, names: Iterable[str]) -> list[str]:
        """Those names that are of no use to the model: neither its columns nor ones that it dropped."""
        known = {*self.names, *(name for name, _ in self.dropped)}
        return [name for name in names if name not in known]

    def check(self, names: Iterable[str]) -> None:
        """Raise unless all columns are among the names."""
        found = set(names)
        if lacking := [name for name in self.names if name not in found]:
            more = f" and {len(lacking) - 20} more" if lacking[20:] else ""
            shown = f"{'s' * (len(lacking) > 1)} {', '.join(f'`{name}`' for name in lacking[:20])}{more}"
            raise TableError(f"the table lacks the column{shown}, which the model was trained with")

    def encode(self, rows: pa.RecordBatch | pa.Table, errors: str = "refuse", first_row: int = 1) -> NDArray[np.float32]:
        """Inputs of rows; columns are found by name, in any order, and others are ignored.

        Arguments:
            rows: a record batch or a table.
            errors: `refuse` values that cannot be read, or take them as `missing`.
            first_row: the number of the first row in messages.

        Shape:
            `[row, input]`
        """
        return self.encode_with_outside(rows, errors, first_row)[0]

    def encode_with_outside(
        self, rows: pa.RecordBatch | pa.Table, errors: str = "refuse", first_row: int = 1
    ) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
        """Inputs of rows, and which values lie outside what training saw; arguments as for `encode`.

        Shape:
            `[row, input]` and `[row, column]`
        """
        self.check(rows.schema.names)
        places = [0, *accumulate(column.width for column in self.columns)]
        inputs = np.empty((rows.num_rows, places[-1]), np.float32)
        beyond = np.empty((rows.num_rows, len(self.columns)), bool)
        for index, column in enumerate(self.columns):
            read = column.read(rows.column(column.name), errors, first_row)
            inputs[:, places[index] : places[index + 1]] = column.inputs(read)
            beyond[:, index] = column.beyond(read)
        return inputs, beyond

    def table(self) -> Table:
        """What was understood of each column, to print."""
        kept = _shown([[column.name, column.in_words()] for column in self.columns])
        left_out = _shown([[name, f"left out: {reason}"] for name, reason in self.dropped])
        note = f"{len(self.columns)} columns make {len(self.input_names)} inputs"
        note += f"; left out: {len(self.dropped)}" if self.dropped else ""
        return Table("Columns", ["column", "understood as"], kept + left_out, note, words=["understood as"])

    def data(self) -> dict[str, Any]:
        """Plain data for JSON, from which `schema_from` makes an equal schema."""
        return {"columns": list(map(column_data, self.columns)), "dropped": list(map(list, self.dropped))}


def _shown(lines: list[list[str]]) -> list[list[str]]:
    return [*lines[:_SHOWN], ["…", f"{len(lines) - _SHOWN} more"]] if len(lines) > _SHOWN + 1 else lines


def schema_from(data: Mapping[str, Any]) -> Schema:
    """The schema that `Schema.data` described."""
    dropped = tuple((name, reason) for name, reason in data["dropped"])
    return Schema(tuple(column_from(each) for each in data["columns"]), dropped)


def understand(
    table: pa.Table,
    target: str | None = None,
    *,
    drop: Sequence[str] = (),
    kinds: Mapping[str, str] | None = None,
    decimal: str = ".",
) -> Schema:
    """Find out what the columns of a table are.

    Arguments:
        table: the training rows.
        target: a column that is not an input.
        drop: more columns that are none.
        kinds: for columns whose kind is known: `number`, `category`, `boolean`, `date`, `text` or `drop`.
        decimal: the decimal mark of numbers in text where their column does not tell, as in 1,234.

    Example:
        >>> print(understand(pa.table({"age": ["7", "9"], "pet": ["cat", "dog"]}), "pet").columns[0].in_words())
        number, 7 to 9
    """
    kinds = kinds or {}
    _check_asked(table.column_names, target, drop, kinds)
    names = [name for name in table.column_names if name != target]

    def fitted(name: str) -> Column | str:
        if name in drop:
            return "as asked"
        values = plain(table[name])
        kind, reason, values = (kinds[name], "as asked", values) if name in kinds else judged(name, values, decimal)
        if kind == DROP:
            return reason
        return number(name, values, decimal) if kind == "number" else FITS[kind](name, values)

    with ThreadPoolExecutor() as pool:
        found = dict(zip(names, pool.map(fitted, names), strict=True))
    columns = tuple(each for each in found.values() if isinstance(each, Column))
    dropped = tuple((name, each) for name, each in found.items() if isinstance(each, str))
    if not columns:
        reasons = "; ".join(f"`{name}`: {reason}" for name, reason in dropped[:5])
        raise TableError(f"no column is left to learn from ({reasons or 'the table has no other'})")
    return Schema(columns, dropped)


def _check_asked(names: Sequence[str], target: str | None, drop: Sequence[str], kinds: Mapping[str, str]) -> None:
    asked = [*drop, *kinds] if target is None else [target, *drop, *kinds]
    if unknown := [name for name in asked if name not in set(names)]:
        shown = ", ".join(names[:20]) + (", …" if len(names) > 20 else "")
        raise TableError(f"the table has no column {', '.join(f'`{name}`' for name in unknown)}; it has {shown}")
    for name, kind in kinds.items():
        require(kind in (*FITS, DROP), f"kinds[{name!r}]", f"one of {', '.join((*sorted(FITS), DROP))}", kind)
