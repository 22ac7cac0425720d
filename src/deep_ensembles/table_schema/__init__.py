"""What the columns of a table are, and its rows as inputs and targets; needs the extra `tables`."""

from deep_ensembles.table_schema._kinds import kind_of
from deep_ensembles.table_schema._roles import read_groups, read_times, read_weights
from deep_ensembles.table_schema._schema import Schema, schema_from, understand
from deep_ensembles.table_schema._target import Target, target_from, understand_target

__all__ = [
    "Schema",
    "Target",
    "kind_of",
    "read_groups",
    "read_times",
    "read_weights",
    "schema_from",
    "target_from",
    "understand",
    "understand_target",
]
