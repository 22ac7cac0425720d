"""Run folders: what was asked, what came out, and a mark that says it is whole."""

import hashlib
import io
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from deep_ensembles._files import json_ready, write_atomically

CONFIG, RESULT, ARRAYS, DONE = "config.json", "result.json", "predictions.npz", "DONE"


@dataclass(frozen=True)
class Cell:
    """One piece of an experiment's work.

    Arguments:
        name: for people, short.
        config: plain data; everything the result depends on. Another config is another cell, so that no result is ever
            mistaken for that of other settings, and none is overwritten by it.
        cost: a rough measure of the work; the dearest cells are started first.

    Example:
        >>> Cell("yacht-ml", {"epochs": 40}).folder
        'yacht-ml-b316c1aa'
    """

    name: str
    config: Mapping[str, Any]
    cost: float = 0.0

    @property
    def folder(self) -> str:
        """The folder's name: the cell's, and the first digits of its config's hash."""
        return f"{self.name}-{hashlib.sha256(_json(self.config)).hexdigest()[:8]}"


@dataclass(frozen=True)
class Record:
    """A finished cell.

    Arguments:
        cell: what was asked.
        path: its folder.
        result: the numbers, plain data.
    """

    cell: Cell
    path: Path
    result: dict[str, Any]

    def arrays(self) -> dict[str, np.ndarray]:
        """The saved predictions."""
        with np.load(self.path / ARRAYS, allow_pickle=False) as file:
            return {name: file[name] for name in file.files}


def write_record(root: Path, cell: Cell, result: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Record:
    """Keep a finished cell under `root`; the mark comes last, so that a kill at any moment leaves it whole or unmarked.

    The mark holds the files' checksums as `sha256sum --check DONE` reads them.
    """
    path = root / cell.folder
    buffer = io.BytesIO()
    np.savez(buffer, **dict(arrays))  # type: ignore[arg-type]
    files = {CONFIG: _json(cell.config), ARRAYS: buffer.getvalue(), RESULT: _json(result)}
    (path / DONE).unlink(missing_ok=True)
    for name, content in files.items():
        write_atomically(path / name, content)
    sums = "".join(f"{hashlib.sha256(content).hexdigest()}  {name}\n" for name, content in files.items())
    write_atomically(path / DONE, sums.encode())
    return Record(cell, path, json.loads(files[RESULT]))


def read_record(root: Path, cell: Cell) -> Record | None:
    """The finished cell under `root`; None if it is not there, not whole or not what was written."""
    path = root / cell.folder
    try:
        sums = {line[66:]: line[:64] for line in (path / DONE).read_text().splitlines()}
        if set(sums) != {CONFIG, RESULT, ARRAYS} or any(file_sum(path / name) != sums[name] for name in sums):
            return None
        return Record(cell, path, json.loads((path / RESULT).read_text()))
    except (OSError, ValueError):
        return None


def file_sum(path: Path) -> str:
    """The SHA-256 of a file's content."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(2**20):
            digest.update(block)
    return digest.hexdigest()


def _json(content: Mapping[str, Any]) -> bytes:
    return (json.dumps(json_ready(content), indent=1, sort_keys=True, allow_nan=False) + "\n").encode()
