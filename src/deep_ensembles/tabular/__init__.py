"""From a table in a file to a model and back to a table; needs the extra `tables`.

The names are listed once, in `__init__.pyi`, as those of the package are. They are loaded when they are first used, so that
`predict` does not wait for what only `fit` or `compare` needs.
"""

import ast
import importlib
from typing import Any

with open(f"{__path__[0]}/__init__.pyi", encoding="utf-8") as _stub:
    _IMPORTS = [node for node in ast.parse(_stub.read()).body if isinstance(node, ast.ImportFrom)]
_HOMES = {alias.name: str(node.module).removeprefix(f"{__name__}.") for node in _IMPORTS for alias in node.names}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
