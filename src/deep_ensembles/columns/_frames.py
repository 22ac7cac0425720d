"""Frames of pandas, polars and Arrow, and arrays, as Arrow tables; what a schema has to say of them."""

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deep_ensembles._arrow import pa, pc
from deep_ensembles.columns._column import TableError, UnreadableValue
from deep_ensembles.columns._parsing import plain
from deep_ensembles.columns._schema import Schema, infer_schema
from deep_ensembles.columns.category import Category


def arrow_table(data: Any, names: Sequence[str]) -> pa.Table:
    """The columns of a frame or an array as an Arrow table; values of several types become text.

    Arguments:
        data: a data frame of pandas or polars, an Arrow table, or an array `[row, column]`.
        names: of its columns.

    Example:
        >>> arrow_table(np.array([[1.0, np.nan]]), ["a", "b"]).to_pydict()
        {'a': [1.0], 'b': [None]}
    """
    if hasattr(data, "iloc"):
        parts = [_arrow_array(data.iloc[:, place]) for place in range(len(names))]
    elif isinstance(data, np.ndarray):
        parts = [_arrow_array(column) for column in data.T]
    else:
        parts = pa.table(data).columns
    for name, values in zip(names, parts, strict=True):
        if pa.types.is_floating(values.type) and pc.any(pc.is_inf(values)).as_py():
            raise ValueError(f"`X` must be finite or missing, but column `{name}` contains infinity")
    return pa.table(parts, names=list(names))


def _arrow_array(values: Any) -> pa.Array | pa.ChunkedArray:
    try:
        return pa.array(values, from_pandas=True)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError):
        return pa.array([None if value is None or value != value else str(value) for value in values], pa.string())


def learn_frame(data: Any, names: Sequence[str], coded: bool) -> tuple[Schema, NDArray[np.float32]]:
    """What the columns of training rows are, and the inputs that they become; see `arrow_table` and `infer_schema`.

    Columns whose type says that they are categories are some, even of numbers.
    """
    table = arrow_table(data, names)
    kinds = {field.name: "category" for field in table.schema if pa.types.is_dictionary(field.type)}
    kinds = {name: kind for name, kind in kinds.items() if len(plain(table[name]).drop_null().unique()) > 1}
    schema = infer_schema(table, kinds=kinds, errors="missing", coded=coded)
    return schema, schema.encode(table, "missing")


def encode_frame(schema: Schema, data: Any, names: Sequence[str]) -> tuple[NDArray[np.float32], dict[str, Any], list[Any]]:
    """Inputs of new rows, values by column, and of columns with values that training did not see name, summary, count, share
    and examples; a warning tells of categories among them."""
    table = arrow_table(data, names)
    try:
        inputs, unseen = schema.encode_with_unseen(table)
    except UnreadableValue as error:  # whose message names a setting that estimators do not have
        place = f"column `{error.column}`: {error.value!r} in row {error.row}"
        raise TableError(f"{place} is not a {error.kind}; correct it, or leave it empty") from None
    found = []
    for column, chosen in zip(schema.columns, unseen.T, strict=True):
        if n := int(chosen.sum()):
            examples = tuple(schema.examples(table, column, chosen))
            found.append((column.name, column.summary(), n, n / len(unseen), examples))
            if isinstance(column, Category):
                note = f"{n} of {len(unseen)} rows have a `{column.name}` that training did not see: {', '.join(examples)}"
                warnings.warn(note, UserWarning, stacklevel=5)
    return inputs, {name: table[name] for name in schema.names}, sorted(found, key=lambda facts: -facts[2])
