"""Kinds of columns: how a table's values become inputs of a network. One file per kind; needs the extra `tables`.

Model files hold columns as plain data of their own (`column_data`, `column_from`), so that no model without a table needs
pyarrow.
"""

from deep_ensembles.columns._column import Column, UnreadableValue
from deep_ensembles.columns._stored import FITS, KINDS, column_data, column_from
from deep_ensembles.columns.boolean import Boolean, boolean
from deep_ensembles.columns.category import Category, category
from deep_ensembles.columns.date import Date, date
from deep_ensembles.columns.number import Number, number
from deep_ensembles.columns.text import Text, text

__all__ = [
    "FITS",
    "KINDS",
    "Boolean",
    "Category",
    "Column",
    "Date",
    "Number",
    "Text",
    "UnreadableValue",
    "boolean",
    "category",
    "column_data",
    "column_from",
    "date",
    "number",
    "text",
]
