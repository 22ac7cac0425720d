"""Columns that a model file describes: all that they say of themselves is looked at before it is used."""

import dataclasses
import sys
from collections.abc import Callable, Mapping
from typing import Any, get_args, get_origin, get_type_hints

from deep_ensembles._arrow import pa
from deep_ensembles._checks import require
from deep_ensembles.columns._schema import Schema
from deep_ensembles.columns.date import PATTERNS

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


def check_fields(described: Any) -> None:
    """Raise unless the fields of a column or target are what their annotations say."""
    annotations = get_type_hints(type(described))
    for field in dataclasses.fields(described):
        value, annotation = getattr(described, field.name), annotations[field.name]
        require(_fits(value, annotation), field.name, f"{annotation}", value)


def stored_schema(data: Mapping[str, Any], n_inputs: int) -> Schema:
    """The schema that a file describes (see `Schema.data`), if it is usable and makes so many inputs."""
    schema = Schema.from_data(data)
    require(len(set(schema.labels)) == len(schema.columns), "columns", "of different names", schema.labels)
    for column in schema.columns:
        check_fields(column)
        possible = {"buckets": range(1, n_inputs + 1), "decimal": (".", ","), "pattern": PATTERNS, "end_pattern": PATTERNS}
        for name, values in possible.items():
            value = getattr(column, name, None)
            require(value is None or value in values, name, "one that training gives", value)
        require(getattr(column, "scale", 1) > 0, "scale", "more than 0", column)
        column.summary()
    width = sum(column.width for column in schema.columns)
    require(width == n_inputs, "columns", f"of {n_inputs} inputs", width)
    # Whatever else does not fit shows when a row is read.
    schema.encode(pa.table({name: pa.array([None], pa.string()) for name in schema.names}), "missing")
    return schema
