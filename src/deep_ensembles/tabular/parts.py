"""Many files, each to a file of predictions of its own; what is finished is not done again."""

from __future__ import annotations

import hashlib
import json
import os
import posixpath
import re
from collections import Counter, namedtuple
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from deep_ensembles import __version__
from deep_ensembles._files import file_system, location, write_atomically
from deep_ensembles._terminal import progress
from deep_ensembles.columns import TableError
from deep_ensembles.execution import Execution, InProcess
from deep_ensembles.tabular.files import Source, is_part, sources
from deep_ensembles.tabular.model import TableModel
from deep_ensembles.tabular.predict import Predicted, PredictionOptions, check_task, predict_table
from deep_ensembles.tabular.writing import TABLES

_MOST_NOTES = 20
# A file to predict; where predictions go; where a note is left when they are whole; what changes with file, model or options
Part = namedtuple("Part", "source target record key")


def predict_files(
    model: TableModel, data: Any, out: Source, *, execution: Execution | None = None, verbose: int = 0, **options: Any
) -> Predicted:
    """Predict many files, each to a file of the same name in a folder, rows in order.

    A file takes its place when it is whole. Files that are there, of the same data, model and options, are left as they are,
    so that the same command goes on after it was stopped.

    Arguments:
        model: made by `fit_table`.
        data: files, folders of them, patterns such as `parts/*.parquet`, or URLs of any of these.
        out: the folder, or its URL.
        execution: where files are predicted: in this process by default.
        verbose: 1 for a progress bar on a terminal.
        options: as for `predict_table`, `workers` among them.
    """
    chosen = PredictionOptions(**{name: value for name, value in options.items() if name != "workers"})
    check_task(model, chosen)
    parts = _parts(data, out, (model.fingerprint(), chosen, __version__))
    todo = [part for part in parts if _record(part) is None]
    with progress("predicting", len(parts), "files", verbose=verbose, start=len(parts) - len(todo)) as update:
        for _ in (execution or InProcess())(partial(_predict_part, model, options), todo):
            update(advance=1)
    records = [_record(part) or {} for part in parts]
    rows, abstained = (sum(record[name] or 0 for record in records) for name in ("rows", "abstained"))
    unseen = sum((Counter(record["unseen"]) for record in records), Counter[str]())
    marked = None if chosen.threshold is None else abstained
    named = [(posixpath.basename(part.source), record.get("notes", ())) for part, record in zip(parts, records, strict=True)]
    notes = [f"{name}: {note.removeprefix(f'{name}: ')}" for name, several in named for note in several][:_MOST_NOTES]
    done_before = len(parts) - len(todo)
    return Predicted(rows, marked, records[0]["ignored"], dict(unseen), len(parts), done_before, notes)


def _predict_part(model: TableModel, options: dict[str, Any], part: Part) -> None:
    """Predict one file, wherever this is run, and note that it is done."""
    try:
        done = predict_table(model, part.source, part.target, **options)
    except ValueError as error:
        raise TableError(f"{part.source}: {error}") from error
    system, path = file_system(part.target)
    record = {"key": part.key, "bytes": system.size(path), **asdict(done)}
    write_atomically(location(part.record), json.dumps(record).encode())


def _record(part: Part) -> dict[str, Any] | None:
    """What was noted of a file whose predictions are whole; None where there is something to do."""
    with suppress(OSError, ValueError):
        (system, path), (_, target) = file_system(part.record), file_system(part.target)
        record: dict[str, Any] = json.loads(system.cat_file(path))
        if record["key"] == part.key and system.size(target) == record["bytes"]:
            return record
    return None


def _parts(data: Any, out: Source, asked: tuple[Any, ...]) -> list[Part]:
    """The files to predict, in the order of their names, and where predictions of each go; no file is written over."""
    folder, parts = _address(*file_system(out)), dict[str, Part]()
    for left in Path(folder).rglob(f".*.{'[0-9a-f]' * 32}.tmp"):  # by a process that was killed
        left.unlink()
    for pattern in sources(data):
        system, path = file_system(pattern)
        root, files = posixpath.dirname(path), [path] if system.isfile(path) else []
        if system.isdir(path):
            root, files = path.rstrip("/"), system.ls(path, detail=False)
        elif not files:
            root, files = posixpath.dirname(re.split(r"[*?\[]", path)[0]), system.glob(path)
        files = [file for file in files if file == path or is_part(posixpath.basename(file))]
        if not files:
            raise TableError(f"{pattern} names no table")
        for file in sorted(files):
            source, name = _address(system, file), posixpath.relpath(file, root)
            name = name if name.lower().endswith(TABLES) else f"{name}.csv"
            if source.startswith(f"{folder}/") or name in parts:
                raise TableError(f"{source}: {folder} holds it, or another {name} is read too; write to another folder")
            key = hashlib.sha256(repr((source, system.ukey(file), *asked)).encode()).hexdigest()
            parts[name] = Part(source, f"{folder}/{name}", f"{folder}/_predicted/{name}.json", key)
    return list(parts.values())


def _address(system: Any, path: str) -> str:
    """A path that is the same for every process, or a URL."""
    full = str(system.unstrip_protocol(path.rstrip("/")))
    return os.path.realpath(path) if full.startswith("file:") else full
