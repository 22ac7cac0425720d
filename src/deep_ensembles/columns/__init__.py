"""What the columns of a frame are and become: kinds of columns (one file each), schema, target; needs the extra `tables`.

Model files hold columns as plain data of their own (`column_data`, `column_from`), so that no model without a table needs
pyarrow.
"""

from deep_ensembles.columns._column import Column, Errors, TableError, TakenAsMissing, UnreadableValue, check_known
from deep_ensembles.columns._frames import arrow_table, encode_frame, learn_frame

# isort: off
from deep_ensembles.columns._schema import (
    FITS, KINDS, Schema, check_fields, column_data, column_from, identifies_rows, infer_schema, kind_of, nearly_all_differ,
    stored_schema,
)  # fmt: skip
from deep_ensembles.columns._target import (
    TASKS, Target, infer_target, read_groups, read_times, read_weights, skewness,
)  # fmt: skip

# isort: on
from deep_ensembles.columns.boolean import Boolean, boolean
from deep_ensembles.columns.category import Category, category
from deep_ensembles.columns.date import Date, date, not_dates
from deep_ensembles.columns.number import Number, median_and_scale, number, table_decimal
from deep_ensembles.columns.text import Text, text

__all__ = [
    "FITS", "KINDS", "TASKS", "Boolean", "Category", "Column", "Date", "Errors", "Number", "Schema",
    "TableError", "TakenAsMissing", "Target", "Text", "UnreadableValue", "arrow_table", "boolean", "category",
    "check_fields", "check_known", "column_data", "column_from", "date", "encode_frame", "identifies_rows",
    "infer_schema", "infer_target", "kind_of", "learn_frame", "median_and_scale", "nearly_all_differ", "not_dates",
    "number", "read_groups", "read_times", "read_weights", "skewness", "stored_schema", "table_decimal", "text",
]  # fmt: skip
