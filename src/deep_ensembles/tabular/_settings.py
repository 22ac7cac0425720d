"""How a table is learnt: settings that can be printed, kept in a file, and read again."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from deep_ensembles._checks import check_integer, check_number, require
from deep_ensembles.table_files import TableError

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
