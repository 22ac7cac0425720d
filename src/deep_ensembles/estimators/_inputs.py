"""What users pass as X: numbers as they are; gaps, and frames of anything else, as the columns of a table."""

import re
from typing import Any

_NUMBERS = re.compile(r"(?i)(sparse\[)?(u?int|float|double|half|bool)")  # types as pandas, polars and Arrow call them


def is_frame(X: Any) -> bool:
    """Whether it is a data frame of pandas or polars, or an Arrow table."""
    return hasattr(X, "columns") and hasattr(X, "shape")


def is_mixed(X: Any) -> bool:
    """Whether it is a frame with columns of anything but numbers and booleans."""
    return is_frame(X) and not all(map(_NUMBERS.match, map(str, X.dtypes if hasattr(X, "dtypes") else X.schema.types)))


def columns() -> Any:
    """What turns columns of any kind into inputs; it needs pyarrow, an extra, and is imported for data that need it."""
    from deep_ensembles import columns

    return columns
