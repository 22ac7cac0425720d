"""Pickled batches of images, read without running anything; the only file that knows pickle."""

from __future__ import annotations

import io
import pickle
from typing import Any

from deep_ensembles.datasets._dataset import DatasetError

# What an array needs; NumPy has moved one of them.
_ARRAYS = {
    ("numpy.core.multiarray", "_reconstruct"),
    ("numpy._core.multiarray", "_reconstruct"),
    ("numpy", "ndarray"),
    ("numpy", "dtype"),
}


class Inert:
    """Stands for an array or a dtype: it does nothing but keep what the pickle says of it."""

    state: Any = None

    def __init__(self, *args: Any) -> None:
        self.args = args

    def __setstate__(self, state: Any) -> None:
        self.state = state


class _Reader(pickle.Unpickler):
    """Where a pickle asks for a function or class, arrays get one that does nothing, and everything else is refused."""

    def find_class(self, module: str, name: str) -> type[Inert]:
        if (module, name) not in _ARRAYS:
            raise DatasetError(f"it asks to run {module}.{name}; no array needs that, and it was not run")
        return Inert


def read_inert(content: bytes, file: str) -> Any:
    """What was pickled, text as bytes and arrays as `Inert` objects whose `state` ends in their bytes."""
    try:
        return _Reader(io.BytesIO(content), encoding="bytes").load()
    except Exception as error:
        raise DatasetError(f"{file} is damaged or not a batch of images ({error})") from error
