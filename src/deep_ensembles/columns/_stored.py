"""The kinds by name, and columns as plain data for model files."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from deep_ensembles.columns._column import Column
from deep_ensembles.columns.boolean import Boolean, boolean
from deep_ensembles.columns.category import Category, category
from deep_ensembles.columns.date import Date, date
from deep_ensembles.columns.number import Number, number
from deep_ensembles.columns.text import Text, text

KINDS: dict[str, type[Column]] = {kind.__name__.lower(): kind for kind in (Boolean, Category, Date, Number, Text)}
FITS: dict[str, Callable[..., Column]] = {fit.__name__: fit for fit in (boolean, category, date, number, text)}


def column_data(column: Column) -> dict[str, Any]:
    """A column as plain data for JSON, from which `column_from` makes an equal one.

    Example:
        >>> column_data(Boolean("paid", (False, True)))
        {'kind': 'boolean', 'name': 'paid', 'seen': [False, True], 'missing': 0, 'marked': False}
    """
    fields = {each.name: getattr(column, each.name) for each in dataclasses.fields(column)}  # type: ignore[arg-type]
    plain = {name: list(value) if isinstance(value, tuple) else value for name, value in fields.items()}
    return {"kind": type(column).__name__.lower(), **plain}


def column_from(data: Mapping[str, Any]) -> Column:
    """The column that `column_data` described; unknown kinds are an error."""
    kind = data.get("kind")
    if kind not in KINDS:
        raise ValueError(f"the model file names a column of kind {kind!r}, which this version does not know")
    fields = {name: tuple(value) if isinstance(value, list) else value for name, value in data.items() if name != "kind"}
    return KINDS[kind](**fields)
