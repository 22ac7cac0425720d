"""What an open folder holds: the public objects of its files; the function where its result is offered too."""

from __future__ import annotations

import re
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest


def found(folder: ModuleType) -> list[Any]:
    """The objects of a folder, as parameters of a test; of a file that is named for one of its objects, that one."""
    return [pytest.param(getattr(folder, name), id=_file_name(name)) for name in sorted(_names(folder), key=_file_name)]


def is_exported(folder: ModuleType, thing: Any) -> bool:
    """Whether the folder itself offers the object, so that files and command lines can name it."""
    return thing.__name__ in folder.__all__ and getattr(folder, thing.__name__) is thing


def _names(folder: ModuleType) -> Iterator[str]:
    files: dict[str, list[str]] = {}
    for name in folder.__all__:
        room, _, file = getattr(getattr(folder, name), "__module__", "").rpartition(".")
        if room == folder.__name__ and not file.startswith("_"):
            files.setdefault(file, []).append(name)
    for file, names in files.items():
        functions = {_file_name(name) for name in names if name.islower()}
        distinct = [name for name in names if name.islower() or _file_name(name) not in functions]
        yield from [name for name in distinct if _file_name(name) == file] or distinct


def _file_name(name: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()
