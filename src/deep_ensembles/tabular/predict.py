"""A model and a table → a table of predictions, some rows at a time; of many files, or of one row, likewise."""

import hashlib
import json
import os
import posixpath
import re
from collections import Counter, deque, namedtuple
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from deep_ensembles import __version__
from deep_ensembles._arrow import pa, pc
from deep_ensembles._checks import check_integer
from deep_ensembles._files import file_system, location, write_atomically
from deep_ensembles._terminal import Listing, progress
from deep_ensembles.columns import TableError, TakenAsMissing, check_known
from deep_ensembles.execution import Execution, InProcess
from deep_ensembles.tabular.files import BATCH_ROWS, Source, is_part, open_table, sources
from deep_ensembles.tabular.model import TableModel
from deep_ensembles.tabular.outputs import column_names, needed_columns, options_for, predict_batch
from deep_ensembles.tabular.writing import TABLES, check_output, writing

_MOST_NOTES = 20
_MOST_CLASSES = 10
Result = TypeVar("Result")
# A file to predict; where predictions go; where a note is left when they are whole; what changes with file, model or options
Part = namedtuple("Part", "source target record key")


@dataclass(frozen=True)
class Predicted:
    """What predicting a table gave.

    Arguments:
        rows: how many.
        abstained: how many are marked for a person; None where that was not asked for.
        ignored: columns that the model does not know.
        unseen: for columns with values that training did not see, how many rows have one.
        files: how many were written, or were there.
        done_before: how many of them were there.
        notes: what is worth saying of the table.
    """

    rows: int
    abstained: int | None
    ignored: Sequence[str]
    unseen: Mapping[str, int]
    files: int = 1
    done_before: int = 0
    notes: Sequence[str] = ()


def predict_table(
    model: TableModel, data: Any, out: str | os.PathLike[str], *, workers: int = 1, verbose: int = 0, **options: Any
) -> Predicted:
    """Predict all rows of a table in order, and write them to a file that takes its place when it is whole.

    Arguments:
        model: made by `fit_table`.
        data: a file, several, a folder of parts, URLs of these, or `-` for standard input.
        out: a file that ends in .csv, .tsv, .csv.gz, .tsv.gz, .jsonl or .parquet, or its URL; `-` for standard output.
        workers: threads that predict side by side; worth more than 1 where torch uses one thread each.
        verbose: 1 for a progress bar on a terminal.
        options: `coverage`, `quantiles`, `abstain_below`, `abstain_above`, `keep`, `errors`, `safe_cells`, `table`;
            see `PredictionOptions`.
    """
    chosen = options_for(model, **options)
    paths = sources(data)
    check_output(out, TABLES, inputs=paths, keep=chosen.keep)
    files = open_table(paths, chosen.table)
    chosen = replace(chosen, errors=files.counting(chosen.errors))
    files.check_columns(chosen.keep)
    for part in model.every:
        part.schema.check(files.names)
    wanted = needed_columns(model, chosen)
    rows, abstained, marks = 0, 0, [name for name in column_names(model, chosen) if name.startswith("abstain")]
    counts = np.zeros(len(model.schema.columns), dtype=np.int64)
    with writing(out) as table, progress("predicting", files.n_rows, "rows", verbose=verbose) as update:
        for done, unseen in _in_order(partial(predict_batch, model, chosen), files.numbered(wanted, BATCH_ROWS), workers):
            abstained += sum(pc.sum(done.column(name)).as_py() or 0 for name in marks)
            table.write(done)
            rows += done.num_rows
            counts += unseen
            update(advance=done.num_rows)
    ignored = [name for name in model.schema.extra(files.names) if name not in (model.target.name, *chosen.keep)]
    unseen_rows = {name: int(count) for name, count in zip(model.schema.labels, counts, strict=True) if count}
    return Predicted(rows, None if chosen.threshold is None else abstained, ignored, unseen_rows, notes=files.notes)


def _in_order(function: Callable[[Any], Result], items: Iterable[Any], workers: int) -> Iterator[Result]:
    """What a function gives for items, in their order; so many are worked on side by side, and few wait."""
    check_integer("workers", workers, low=1)
    waiting: deque[Future[Result]] = deque()
    with ThreadPoolExecutor(workers) as pool:
        for item in items:
            waiting.append(pool.submit(function, item))
            if len(waiting) > workers:
                yield waiting.popleft().result()
        yield from (future.result() for future in waiting)


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
    chosen = options_for(model, **{name: value for name, value in options.items() if name != "workers"})
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
    return Predicted(rows, marked, records[0]["ignored"], dict(unseen), len(parts), len(parts) - len(todo), notes)


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


@dataclass(frozen=True)
class PredictedRow:
    """The prediction for one row.

    Arguments:
        target: what is predicted.
        coverage: of the interval.
        values: the columns of a table of predictions, by name.
        gaps: columns that were not given.
        unseen: columns whose value training did not see.
        unit: of numbers, where training had one.
        notes: what to know of values that were taken as missing.
    """

    target: str
    coverage: float
    values: Mapping[str, Any]
    gaps: Sequence[str]
    unseen: Sequence[str]
    unit: str = ""
    notes: Sequence[str] = ()

    def listing(self) -> Listing:
        """To print; of many classes the most probable ones."""
        shown, shares = {name: _text(value) for name, value in self.values.items()}, {}
        interval, upper = f"{100 * self.coverage:g} % interval", shown.pop("upper", "")
        if "label" in shown:
            shares = {name: self.values[name] for name in shown if name.startswith("p_")}
        likely = sorted(shares, key=lambda name: -shares[name])
        rows = [[interval, f"{value} to {upper}"] if name == "lower" else [name, value]
                for name, value in shown.items() if name not in shares]  # fmt: skip
        rows += [[name, f"{shares[name]:.4f}"] for name in likely[:_MOST_CLASSES]]
        rows += [["…", f"{len(likely) - _MOST_CLASSES} more"]] if len(likely) > _MOST_CLASSES else []
        return Listing("", ["predicted", self.target + f" in {self.unit}" * bool(self.unit)], rows)


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def predict_row(model: TableModel, row: Mapping[str, Any], out: Source | None = None, **options: Any) -> PredictedRow:
    """Predict one row; its values are read as those of a file.

    Arguments:
        model: made by `fit_table`.
        row: values by column. A column that is not there is a gap, if training had gaps in it.
        out: a file to write, as for `predict_table`.
        options: as for `predict_table`.
    """
    chosen, schema = options_for(model, **options), model.schema
    if out is not None:
        check_output(out, TABLES, keep=chosen.keep)
    targets = [part.target for part in model.every]
    check_known("the model", row, [*schema.names, *(name for name, _ in schema.dropped), targets[0].name])
    check_known("the row", chosen.keep, list(row))
    gaps = [column for column in schema.columns if not row.keys() >= set(column.sources)]
    if needed := [f"`{column.name}`" for column in gaps if not column.missing]:
        shown = ", ".join(needed[:5]) + ", …" * (len(needed) > 5)
        raise TableError(f"the row lacks {shown}, which every training row had; an empty value makes it a gap all the same")
    cells = pa.record_batch({name: pa.array([row.get(name)]) for name in needed_columns(model, chosen)})
    unreadable = TakenAsMissing()
    counted = replace(chosen, errors=unreadable) if chosen.errors == "missing" else chosen
    done, unseen = predict_batch(model, counted, (1, cells))
    if out is not None:
        with writing(out) as table:
            table.write(done)
    (values,) = done.to_pylist()
    odd = [name for name, count in zip(schema.labels, unseen, strict=True) if count]
    name, unit = ", ".join(target.name for target in targets), targets[0].unit if len(targets) == 1 else ""
    return PredictedRow(name, chosen.coverage, values, [column.name for column in gaps], odd, unit, unreadable.notes())
