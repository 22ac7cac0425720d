"""Deep ensembles: neural networks that say how sure they are.

The public names are listed once, in `__init__.pyi`, which type checkers and editors read as well. They are loaded when they
are first used, so that importing the package costs nothing.
"""

import ast
import importlib
from typing import Any

__version__ = "0.1.0"

with open(f"{__path__[0]}/__init__.pyi", encoding="utf-8") as _stub:
    _IMPORTS = [node for node in ast.parse(_stub.read()).body if isinstance(node, ast.ImportFrom)]
# Public name → the module that has it.
_HOMES = {alias.name: str(node.module).removeprefix(f"{__name__}.") for node in _IMPORTS for alias in node.names}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
