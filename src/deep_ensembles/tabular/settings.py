"""How a table is learnt: settings that can be printed, kept in a file, and read again."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deep_ensembles._arrow import pa
from deep_ensembles._checks import check_integer, check_number, require
from deep_ensembles._random import Purpose, run_seeds, stream
from deep_ensembles._splits import hold_out, hold_out_groups, hold_out_latest
from deep_ensembles._terminal import Listing
from deep_ensembles.columns import TableError, Target, read_groups, read_times, read_weights, infer_target
from deep_ensembles.tabular.files import open_table

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

RECALIBRATIONS = ("auto", "none", "variance_scaling", "temperature", "isotonic", "conformal")
_HEADING = "[settings]"


@dataclass(frozen=True, kw_only=True)
class TableSettings:
    """Every setting of `deep-ensembles fit`.

    Arguments:
        target: the column to predict.
        task: `regression` or `classification`; found out from the target by default.
        drop: columns that are no inputs.
        kinds: for columns whose kind is known: `number`, `category`, `boolean`, `date`, `text` or `drop`.
        weights: a column of weights ≥ 0.
        group: a column; rows of a group are held out together.
        time: a column; the latest rows are held out. It is an input too, unless dropped.
        holdout: the share of rows that no network sees, for scores and recalibration; 0 to use the rows that members hold
            out in turn, which is the default for fewer than 150 rows, and 0.2 for more.
        recalibration: `auto` for what held-out rows prefer, `none`, or one by name.
        members: how many networks.
        hidden_sizes: one size per hidden layer.
        epsilon: of adversarial training, in shares of each input's range; the paper's is 0.01, 0 is none.
        max_epochs, patience, learning_rate: as usual.
        batch_size: rows per step; by default it grows with the table, from 32 to 512.
        time_limit: seconds for training.
        seed: the same seed gives the same model.
    """

    target: str
    task: str | None = None
    drop: tuple[str, ...] = ()
    kinds: Mapping[str, str] = field(default_factory=dict)
    weights: str | None = None
    group: str | None = None
    time: str | None = None
    holdout: float | None = None
    recalibration: str = "auto"
    members: int = 5
    hidden_sizes: tuple[int, ...] = (100, 100)
    epsilon: float = 0.0
    max_epochs: int = 200
    patience: int = 20
    learning_rate: float = 0.003
    batch_size: int | None = None
    time_limit: float | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        self._check_columns()
        require(isinstance(self.hidden_sizes, (list, tuple)), "hidden_sizes", "a list of sizes", self.hidden_sizes)
        for size in self.hidden_sizes:
            check_integer("hidden_sizes", size, low=1)
        for name in ("drop", "hidden_sizes"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        require(self.task in (None, "regression", "classification"), "task", "regression or classification", self.task)
        require(
            self.recalibration in RECALIBRATIONS, "recalibration", f"one of {', '.join(RECALIBRATIONS)}", self.recalibration
        )
        if self.holdout is not None:
            check_number("holdout", self.holdout, low=0, high=0.9)
        check_integer("members", self.members, low=2)
        check_number("epsilon", self.epsilon, low=0)
        check_number("learning_rate", self.learning_rate, low=0, above=True)
        for name, low in (("max_epochs", 1), ("patience", 1), ("seed", 0)):
            check_integer(name, getattr(self, name), low=low)
        if self.batch_size is not None:
            check_integer("batch_size", self.batch_size, low=1)
        if self.time_limit is not None:
            check_number("time_limit", self.time_limit, low=0, above=True)

    def _check_columns(self) -> None:
        require(isinstance(self.target, str) and self.target != "", "target", "the name of a column", self.target)
        for name in ("weights", "group", "time"):
            value = getattr(self, name)
            require(value is None or isinstance(value, str), name, "the name of a column", value)
        listed = isinstance(self.drop, (list, tuple)) and all(isinstance(each, str) for each in self.drop)
        require(listed, "drop", "a list of names of columns", self.drop)
        require(isinstance(self.kinds, Mapping), "kinds", "names of columns with their kinds", self.kinds)

    @property
    def not_inputs(self) -> tuple[str, ...]:
        """Columns that only say something of rows; time may be an input too."""
        return tuple(each for each in (self.weights, self.group) if each is not None)

    @property
    def roles(self) -> tuple[str, ...]:
        """Columns that say something of rows."""
        return tuple(each for each in (self.weights, self.group, self.time) if each is not None)

    def text(self) -> str:
        """As TOML, which `read_settings` reads, be it in the middle of other text.

        Example:
            >>> print(TableSettings(target="price", drop=("id",)).text().splitlines()[:3])
            ['[settings]', 'target = "price"', 'drop = ["id"]']
        """
        shown = {each.name: getattr(self, each.name) for each in fields(self)}
        lines = [f"{name} = {_toml(value)}" for name, value in shown.items() if value is not None and value not in ((), {})]
        return "\n".join([_HEADING, *lines]) + "\n"


def _toml(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{_toml(key)} = {_toml(each)}" for key, each in value.items()) + " }"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


def read_settings(path: Path) -> dict[str, Any]:
    """The settings in a file, from its line `[settings]` to the next blank one; what `fit` prints will do."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise TableError(f"the settings in {path} cannot be read ({error})") from error
    stripped = [line.strip() for line in lines]
    if _HEADING not in stripped:
        raise TableError(f"{path} has no line {_HEADING} with settings below it")
    start = stripped.index(_HEADING)
    end = next((i for i in range(start, len(lines)) if not stripped[i]), len(lines))
    try:
        found: dict[str, Any] = tomllib.loads("\n".join(stripped[start:end]))["settings"]
    except tomllib.TOMLDecodeError as error:
        raise TableError(f"the settings in {path} are not TOML: {error}") from error
    known = [each.name for each in fields(TableSettings)]
    if unknown := [name for name in found if name not in known]:
        raise TableError(f"{path} has a setting {unknown[0]!r}; there are {', '.join(known)}")
    return found


Say = Callable[[str | Listing], None]
LEAST_ROWS = 10
_FEW_ROWS, _MOST_HELD_OUT = 150, 20_000


@dataclass(frozen=True, eq=False)
class TableData:
    """The rows of a table that have a target.

    Arguments:
        table: all their columns.
        target: what is predicted.
        y: numbers, or codes of classes.
        rows: their numbers in the table as it was read, from 0.
        weights, groups, times: what columns say of rows; None where there is none.
        decimal: the likely decimal mark.
    """

    table: pa.Table
    target: Target
    y: NDArray[Any]
    rows: NDArray[np.int64]
    weights: NDArray[np.float64] | None
    groups: NDArray[np.int64] | None
    times: NDArray[np.float64] | None
    decimal: str

    def __len__(self) -> int:
        return len(self.y)

    def select(self, rows: NDArray[np.int64]) -> pa.Table:
        """Some rows."""
        return self.table.take(pa.array(rows))


def read_data(data: Any, settings: TableSettings, say: Say) -> TableData:
    """Read a table whole, and say what its target is and which rows are left out."""
    files = open_table(data)
    _check_columns(files.names, settings)
    whole = files.read()
    for note in files.notes:
        say(f"note: {note}")
    decimal = "," if files.decimal_comma_likely else "."
    target, y, kept = infer_target(settings.target, whole[settings.target], settings.task, decimal)
    table = whole.filter(pa.array(kept))
    say(target.reason)
    for note in target.notes:
        say(f"note: {note}")
    rows = np.flatnonzero(kept)
    weights = None if settings.weights is None else read_weights(settings.weights, whole[settings.weights], rows)
    if weights is not None:
        say(f"note: rows count in training as `{settings.weights}` says, in scores each counts once")
    if weights is not None and not weights.all():
        counted = weights > 0
        say(f"note: {(~counted).sum()} rows of weight 0 are left out")
        table, y, rows, weights = table.filter(pa.array(counted)), y[counted], rows[counted], weights[counted]
    if len(y) < LEAST_ROWS:
        raise TableError(f"at least {LEAST_ROWS} rows with a target are needed, got {len(y)}")
    groups = None if settings.group is None else read_groups(settings.group, table[settings.group])
    times = None if settings.time is None else read_times(settings.time, whole[settings.time], rows)
    return TableData(table, target, y, rows, weights, groups, times, decimal)


def _check_columns(names: tuple[str, ...], settings: TableSettings) -> None:
    asked = (settings.target, *settings.roles, *settings.drop, *settings.kinds)
    if lacking := [name for name in asked if name not in names]:
        shown = ", ".join(names[:20]) + (", …" if len(names) > 20 else "")
        raise TableError(f"the table has no column `{lacking[0]}`; it has {shown}")
    if settings.target in settings.roles or settings.target in settings.drop:
        raise TableError(f"`{settings.target}` is the target and cannot be anything else")


def split_rows(data: TableData, settings: TableSettings) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(rows to train on, rows held out): the latest, or whole groups, or a random share of each class."""
    n = len(data)
    rows = np.arange(n)
    share = settings.holdout
    if share is None:
        share = 0.0 if n < _FEW_ROWS and data.times is None and data.groups is None else 0.2
    wanted = min(round(share * n), _MOST_HELD_OUT)
    if wanted == 0:
        return rows, rows[:0]
    if data.times is not None:
        train, held_out = hold_out_latest(data.times, wanted)
        if not len(held_out):
            raise TableError(f"`{settings.time}` is the same in the latest rows, so that none can be held out")
        return train, held_out
    generator = stream(run_seeds(settings.seed, 1)[0], Purpose.VALIDATION, 1)
    if data.groups is not None:
        return hold_out_groups(data.groups, wanted, generator)
    strata = data.y.astype(np.int64) if data.target.classes else None
    return hold_out(rows, wanted / n, generator, strata)
