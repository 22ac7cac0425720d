"""What an open folder holds: one public object per file, named like the file; the function where its result is too."""

from __future__ import annotations

import importlib
import pkgutil
from types import ModuleType
from typing import Any

import pytest


def found(folder: ModuleType) -> list[Any]:
    """The object of every file of a folder, as parameters of a test; the file's name is the test's id."""
    names = [each.name for each in pkgutil.iter_modules(folder.__path__) if not each.name.startswith("_")]
    return [pytest.param(_object(folder, name), id=name) for name in sorted(names)]


def is_exported(folder: ModuleType, thing: Any) -> bool:
    """Whether the folder itself offers the object, so that files and command lines can name it."""
    return thing.__name__ in folder.__all__ and getattr(folder, thing.__name__) is thing


def _object(folder: ModuleType, name: str) -> Any:
    module = importlib.import_module(f"{folder.__name__}.{name}")
    class_name = "".join(word.capitalize() for word in name.split("_"))
    objects = [vars(module)[each] for each in (name, class_name) if each in vars(module)]
    if not objects:
        raise LookupError(f"{module.__name__} must hold an object called {name} or {class_name}")
    return objects[0]
