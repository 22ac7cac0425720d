"""The rows of a table to learn from: what is read, which rows are used, and which of them are held out."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deep_ensembles import Categorical, Normal, columns
from deep_ensembles._arrow import pa
from deep_ensembles._random import Purpose, run_seeds, stream
from deep_ensembles._splits import Split, hold_out, united
from deep_ensembles._terminal import Listing
from deep_ensembles.recipes import Task
from deep_ensembles.tabular.files import open_table
from deep_ensembles.tabular.head import check_targets, suggested_bounds, suggested_head
from deep_ensembles.tabular.settings import TableSettings
from deep_ensembles.tabular.streaming import TableBlocks, is_streamed, read_sample, strictly
from deep_ensembles.tabular.suspicions import Suspicions, find_copies

Log = Callable[[str | Listing], None]
LEAST_ROWS = 10
MOST_JUDGED = 20_000
_UNEQUAL = 0.2  # of the rows of equal inputs that would differ in their targets by chance, up to which they are copies


@dataclass(frozen=True, eq=False)
class TableData:
    """The rows of a table that have a target.

    Arguments:
        table: all their columns.
        target: what is predicted.
        y: numbers, or codes of classes.
        head: what kind of distribution is predicted.
        rows: their numbers in the table as it was read, from 0.
        weights, groups, times: what columns say of rows; None where there is none.
        decimal: the likely decimal mark.
        copies: a number for each row, the same for rows of (nearly) equal inputs; None where there are none.
        notes: what a person should look at before training.
        known_schema: what the columns of all rows are; None for some rows.
        source: all rows, to train on, where these are a sample of them.
    """

    table: pa.Table
    target: columns.Target
    y: NDArray[Any]
    head: Any
    rows: NDArray[np.int64]
    weights: NDArray[np.float64] | None
    groups: NDArray[np.int64] | None
    times: NDArray[np.float64] | None
    decimal: str
    copies: NDArray[np.int64] | None = None
    notes: tuple[str, ...] = ()
    known_schema: columns.Schema | None = None
    source: TableBlocks | None = None

    def __len__(self) -> int:
        return len(self.y)

    @property
    def n_trained(self) -> int:
        """How many rows there are to train on."""
        return len(self) if self.source is None else self.source.n_rows

    def task(self, inputs: NDArray[np.float32]) -> Task:
        """What the recipe needs to know."""
        n_classes = len(self.target.classes)
        levels = None if self.known_schema is None else self.known_schema.levels
        known = self.weights, self.together, levels, self.source
        return Task(inputs, self.y, n_classes, n_classes or 1, self.head, *known)

    @cached_property
    def different(self) -> NDArray[np.int64]:
        """The rows to judge by: of copies with the same target the first alone, as all of them would feign certainty.

        All rows where those of equal inputs differ in their targets nearly as any others do: there inputs are so few that
        rows meet by chance.
        """
        if self.copies is None:
            return np.arange(len(self))
        _, first, group, counts = np.unique(self.copies, return_index=True, return_inverse=True, return_counts=True)
        value = np.unique(self.y, axis=0, return_inverse=True)[1].reshape(-1)
        n_unequal = (value != value[first][group]).sum()
        n_by_chance = counts[counts > 1].sum() * (1 - np.square(np.bincount(value) / len(self)).sum())
        if n_unequal > _UNEQUAL * n_by_chance:
            return np.arange(len(self))
        return np.sort(np.unique(np.column_stack([self.copies, value]), axis=0, return_index=True)[1])

    @cached_property
    def together(self) -> NDArray[np.int64] | None:
        """The number of each row's group: rows that groups or copies hold together; None where there are neither."""
        if self.groups is None or self.copies is None:
            return self.copies if self.groups is None else self.groups
        return united(self.groups, self.copies)

    def take(self, rows: NDArray[np.int64]) -> "TableData":
        """Some rows."""
        known = {field.name: getattr(self, field.name) for field in fields(self)}
        arrays: Any = {name: values[rows] for name, values in known.items() if isinstance(values, np.ndarray)}
        schema = self.known_schema if len(rows) == len(self) else None
        return replace(self, table=self.table.take(pa.array(rows)), known_schema=schema, **arrays)

    def schema(self, settings: TableSettings, coded: bool = True) -> columns.Schema:
        """What columns are, inferred from the rows; `coded` as in `infer_schema`."""
        if self.known_schema is not None and coded:
            return self.known_schema
        known: dict[str, Any] = {"kinds": settings.kinds, "decimal": self.decimal, "errors": "missing", "coded": coded}
        return columns.infer_schema(self.table, settings.target, drop=settings.not_inputs, **known)


def read_data(data: Any, settings: TableSettings, log: Log) -> TableData:
    """Read a table whole, or a sample of one that is streamed; log what its target is and which rows are left out."""
    files = open_table(data, settings.table)
    files.check_columns((settings.target, *settings.roles, *settings.drop, *settings.kinds))
    if settings.target in settings.roles or settings.target in settings.drop:
        raise columns.TableError(f"`{settings.target}` is the target and cannot be anything else")
    sample = read_sample(files) if is_streamed(files, settings) else None
    whole = files.read() if sample is None else sample.table
    if 0 < len(whole) < LEAST_ROWS:
        raise columns.TableError(f"at least {LEAST_ROWS} rows with a target are needed, got {len(whole)}")
    said = "note" if sample is None else "note on the sample"
    if sample is not None:
        log(f"the {files.n_rows} rows are read from the files while they are trained on, some at a time; what columns are, "
            f"settings, recalibration and scores go by a sample of {len(sample.numbers)} rows")  # fmt: skip
    tell(files.notes, log)
    decimal = columns.table_decimal(whole, "," if files.decimal_comma_likely else ".")
    target, y, kept = _target_of(whole[settings.target], settings, decimal)
    head = settings.chosen_head or (Categorical() if target.classes else Normal())
    log(target.reason)
    tell(target.notes, log, said)
    table, rows = whole.filter(pa.array(kept)), np.flatnonzero(kept)
    weights = None if settings.weights is None else columns.read_weights(settings.weights, whole[settings.weights], rows)
    if weights is not None:
        log(f"note: rows count in training as `{settings.weights}` says, in scores each counts once")
    if weights is not None and not weights.all():
        counted = weights > 0
        log(f"{said}: {(~counted).sum()} rows of weight 0 are left out")
        table, y, rows, weights = table.filter(pa.array(counted)), y[counted], rows[counted], weights[counted]
    if len(y) < LEAST_ROWS:
        raise columns.TableError(f"at least {LEAST_ROWS} rows with a target are needed, got {len(y)}")
    check_targets(head, settings.target, y, rows)
    if settings.chosen_bounds is not None:
        settings.chosen_bounds.check(head, settings.target, y, rows)
    groups = None if settings.group is None else columns.read_groups(settings.group, table[settings.group])
    times = None if settings.time is None else columns.read_times(settings.time, whole[settings.time], rows)
    read = TableData(table, target, y, head, rows, weights, groups, times, decimal)
    read = _looked_at(replace(read, known_schema=read.schema(settings)), settings)
    tell(read.notes, log, said)
    if sample is None:
        return read
    source = TableBlocks(files, sample, read.schema(settings), target, settings)
    sampled = read.take(np.flatnonzero(read.rows < len(sample.numbers)))
    return replace(sampled, rows=sample.numbers[sampled.rows], known_schema=read.known_schema, source=source)


def _looked_at(data: TableData, settings: TableSettings) -> TableData:
    """The rows with their copies and with notes on what looks wrong, which nothing is done about."""
    schema = data.schema(settings)
    copies, told = find_copies(data.table, schema, data.rows, settings.target, settings.time)
    notes = Suspicions(data.table, schema, data.target, data.y, data.rows, copies).notes()
    return replace(data, copies=copies, notes=(*notes, *told, *_notes_on_head(data.target, data.y, settings)))


def _target_of(values: Any, settings: TableSettings, decimal: str) -> tuple[columns.Target, NDArray[Any], NDArray[np.bool_]]:
    try:
        return columns.infer_target(settings.target, values, settings.known_task, decimal, settings.errors)
    except columns.UnreadableValue as error:
        if settings.head is None and settings.bounds is None:
            raise
        asked, cure = f"the bounds {settings.bounds!r} need", "leave them out for classes"
        if settings.head is not None:
            asked = f"the head {settings.head} needs"
            cure = "for classes take categorical or ordinal, or leave the head out"
        value = f"`{settings.target}` is {error.value!r} in row {error.row}"
        raise columns.TableError(f"{asked} numbers, but {value}; {cure}") from error


def _notes_on_head(target: columns.Target, y: NDArray[Any], settings: TableSettings) -> list[str]:
    """The head that the target looks made for, where none is chosen; the order of classes, where it counts."""
    numbers = all(type(label) is int for label in target.classes)
    if settings.head is None:
        levels = np.array(target.classes) if target.classes else None
        suggested = suggested_head(y, levels) if numbers else None
        # Heads of bounded numbers take none on a bound; counts and positive numbers have theirs.
        open_ended = not target.classes and settings.bounds is None and suggested is None
        options = ("--head", suggested), ("--bounds", suggested_bounds(y) if open_ended else None)
        return [f"`{target.name}` may ask for {option} {found[0]}: {found[1]}" for option, found in options if found]
    if settings.chosen_head.point != "median" or not target.classes:
        return []
    shown = " < ".join(map(str, target.classes[:10])) + " < …" * (len(target.classes) > 10)
    cure = "" if numbers else "; if that is not their order, number them, as in 1 low, 2 high"
    return [f"classes are taken in the order {shown}{cure}"]


def split_rows(data: TableData, settings: TableSettings) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(rows to train on, rows held out): the latest, or whole groups, or a random share of each class; copies together."""
    n, rows, usual = len(data), np.arange(len(data)), 0.0 if data.times is None else 0.2
    share = usual if settings.holdout is None else settings.holdout
    wanted = min(round(share * n), MOST_JUDGED)
    if wanted == 0:
        return rows, rows[:0]
    if data.times is not None:
        is_held = data.times > np.sort(data.times)[n - wanted - 1]  # rows of the same time stay together
        if not is_held.any():
            raise columns.TableError(f"`{settings.time}` is the same in the latest rows, so that none can be held out")
        return without_copies(rows[~is_held], rows[is_held], data)
    generator = stream(run_seeds(settings.seed, 1)[0], Purpose.VALIDATION, 1)
    # One row of each set of copies is drawn, and takes the others along; or whole groups until there are about so many rows.
    together = rows if data.together is None else data.together
    _, first, place = np.unique(together, return_index=True, return_inverse=True)
    if data.groups is not None:
        order = generator.permutation(len(first))
        enough = int(np.searchsorted(np.cumsum(np.bincount(place)[order]), wanted)) + 1
        drawn = order[: min(enough, len(order) - 1)]
    else:
        strata = data.y[first].astype(np.int64) if data.target.classes else None
        drawn = hold_out(np.arange(len(first)), wanted / n, generator, strata)[1]
    is_held = np.isin(place, drawn)
    return rows[~is_held], rows[is_held]


def without_copies(train: NDArray[np.int64], held_out: NDArray[np.int64], data: TableData) -> Split:
    """Later rows that are copies of earlier ones, which training sees, are trained on too and not judged.

    Where they are most of those held out, training goes without the earlier ones instead; but where their targets differ,
    the table follows the same things through time, and they are no copies.
    """
    if data.copies is None:
        return train, held_out
    seen = np.isin(data.copies[held_out], data.copies[train])
    if 2 * seen.sum() <= len(held_out):
        return np.sort(np.concatenate([train, held_out[seen]])), held_out[~seen]
    apart = train[~np.isin(data.copies[train], data.copies[held_out])]
    is_copied = len(data.different) < len(data) and len(apart) >= LEAST_ROWS
    return apart if is_copied else train, held_out


def read_parts(data: Any, settings: TableSettings, log: Log) -> tuple[TableData, TableData]:
    """Read a table whole: (what to train on, what is held out)."""
    read = read_data(data, settings, log)
    train, held_out = split_rows(read, settings)
    if unused := len(read) - len(train) - len(held_out):
        log(f"note: {unused} earlier copies of the rows held out are not used")
    if read.copies is not None and (seen := np.isin(read.copies[held_out], read.copies[train]).sum()):
        log(f"note: {seen} of {len(held_out)} rows held out equal earlier ones in all but `{settings.time}`: the table "
            "follows the same things through time, and scores are for those, not for new ones")  # fmt: skip
    return read.take(train), read.take(held_out)


def check_values(schema: columns.Schema, parts: Sequence[TableData], errors: str, log: Log) -> None:
    """Refuse values that columns cannot read, or log for each column how many are taken as missing.

    Arguments:
        schema: of the first part.
        parts: rows to train on, and others; messages count rows as the file does.
        errors: `refuse` or `missing`.
    """
    unreadable = columns.TakenAsMissing()
    for column in schema.columns:
        for part in parts:
            strictly(column).read(column.cells(part.table), in_part := columns.TakenAsMissing())
            for error in in_part.found.values():
                row = int(part.rows[error.row - 1]) + 1
                unreadable.add(columns.UnreadableValue(error.column, error.value, row, error.kind, error.count))
    if unreadable.found and errors == "refuse":
        first, *others = unreadable.found.values()
        names = ", ".join(f"`{error.column}`" for error in others[:3])
        more = f" (one of {first.count} such values)" * (first.count > 1) + f"; others are in {names}" * bool(names)
        raise columns.TableError(f"column `{first.column}`: {first.value!r} in row {first.row} is not a {first.kind}{more}; "
                         "correct it, leave it empty, or take such values as missing with --errors missing")  # fmt: skip
    if parts[0].source is None:  # of a stream all rows are counted as they are read
        tell(unreadable.notes(), log)


def tell(notes: Sequence[str], log: Log, what: str = "note") -> None:
    """Say what is worth knowing of a table, a line each."""
    for note in notes:
        log(f"{what}: {note}")
