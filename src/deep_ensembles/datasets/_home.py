"""Where data sets live on this machine."""

from __future__ import annotations

import os
import sys
from pathlib import Path

VARIABLE = "DEEP_ENSEMBLES_DATA"


def data_home(home: str | os.PathLike[str] | None = None) -> Path:
    """The folder of all data sets: `home`, else `$DEEP_ENSEMBLES_DATA`, else a folder in the user's cache.

    The folder need not exist.

    Example:
        >>> data_home("somewhere").name
        'somewhere'
    """
    chosen = home or os.environ.get(VARIABLE)
    return Path(chosen).expanduser() if chosen else _user_cache() / "deep-ensembles"


def _user_cache() -> Path:
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
