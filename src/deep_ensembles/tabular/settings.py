"""How a table is learnt: settings that can be printed, kept in a file, and read again."""

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np

from deep_ensembles._checks import check_integer, check_number, require
from deep_ensembles.columns import TASKS, TableError
from deep_ensembles.perturbations import FastGradientSign
from deep_ensembles.tabular.head import head_named
from deep_ensembles.training import Recipe

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

RECALIBRATIONS = ("auto", "none", "variance_scaling", "temperature", "isotonic", "conformal")
TRAINING = ("max_epochs", "patience", "learning_rate", "batch_size", "time_limit")  # settings of `Recipe`, checked there
_HEADING = "[settings]"


@dataclass(frozen=True, kw_only=True)
class TableSettings:
    """Every setting of `deep-ensembles fit`.

    Arguments:
        target: the column to predict.
        task: `regression` or `classification`; found out from the target, or the head, by default.
        head: the distribution to predict: `student_t`, `poisson`, `logit_normal:low=0,high=100`, …; by default `normal`,
            for classes `categorical`.
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
        max_epochs, patience, learning_rate, batch_size, time_limit: as in `Recipe`; by default the batch size grows with
            the table, from 32 to 512 rows.
        seed: the same seed gives the same model.
    """

    target: str
    task: str | None = None
    head: str | None = None
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
    patience: int = Recipe.patience
    learning_rate: float = 0.003
    batch_size: int | None = None
    time_limit: float | None = Recipe.time_limit
    seed: int = 0

    def __post_init__(self) -> None:
        self._check_columns()
        require(isinstance(self.hidden_sizes, (list, tuple)), "hidden_sizes", "a list of sizes", self.hidden_sizes)
        for size in self.hidden_sizes:
            check_integer("hidden_sizes", size, low=1)
        for name in ("drop", "hidden_sizes"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        require(self.task in (None, *TASKS), "task", "regression or classification", self.task)
        if self.task not in (None, known_task := self.known_task):
            raise TableError(f"the head {self.head} is for {known_task}, but the task is {self.task}; leave one of them out")
        known = f"one of {', '.join(RECALIBRATIONS)}"
        require(self.recalibration in RECALIBRATIONS, "recalibration", known, self.recalibration)
        if self.holdout is not None:
            check_number("holdout", self.holdout, low=0, high=0.9)
        check_integer("members", self.members, low=2)
        check_number("epsilon", self.epsilon, low=0)
        check_integer("seed", self.seed, low=0)
        Recipe(**self._shared())

    def _check_columns(self) -> None:
        require(isinstance(self.target, str) and self.target != "", "target", "the name of a column", self.target)
        for name in ("weights", "group", "time"):
            value = getattr(self, name)
            require(value is None or isinstance(value, str), name, "the name of a column", value)
        listed = isinstance(self.drop, (list, tuple)) and all(isinstance(name, str) for name in self.drop)
        require(listed, "drop", "a list of names of columns", self.drop)
        require(isinstance(self.kinds, Mapping), "kinds", "names of columns with their kinds", self.kinds)

    def _shared(self) -> dict[str, Any]:
        """The settings of `Recipe`, but for a batch size that is still to be chosen."""
        return {name: getattr(self, name) for name in TRAINING if (name, self.batch_size) != ("batch_size", None)}

    @property
    def chosen_head(self) -> Any:
        """The head that is named; None where none is."""
        return None if self.head is None else head_named(self.head)

    @property
    def known_task(self) -> str | None:
        """The task that the head is for, else what is asked for."""
        return self.task if self.head is None else TASKS[self.chosen_head.kind == "classes"]

    @property
    def not_inputs(self) -> tuple[str, ...]:
        """Columns that are no inputs: those to drop, weights and group; time may be one."""
        return (*self.drop, *(name for name in (self.weights, self.group) if name is not None))

    @property
    def roles(self) -> tuple[str, ...]:
        """Columns that say something of rows."""
        return tuple(name for name in (self.weights, self.group, self.time) if name is not None)

    @property
    def perturbation(self) -> FastGradientSign | None:
        """Of adversarial training."""
        return FastGradientSign(self.epsilon) if self.epsilon else None

    def training(self, n_rows: int) -> dict[str, Any]:
        """Settings of `fit_ensemble` that `fit` and `compare` share, for so many training rows."""
        # An epoch of any table should take some hundred steps.
        batch_size = 2 ** int(np.clip(np.round(np.log2(max(1, n_rows) / 100)), 5, 9))
        return {"batch_size": batch_size, "early_stopping": True, "random_state": self.seed, **self._shared()}

    def text(self) -> str:
        """As TOML, which `read_settings` reads, be it in the middle of other text.

        Example:
            >>> print(TableSettings(target="price", drop=("id",)).text().splitlines()[:3])
            ['[settings]', 'target = "price"', 'drop = ["id"]']
        """
        values = {setting.name: getattr(self, setting.name) for setting in fields(self)}
        lines = [f"{name} = {_toml(value)}" for name, value in values.items() if value is not None and value not in ((), {})]
        return "\n".join([_HEADING, *lines]) + "\n"


def _toml(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{_toml(key)} = {_toml(item)}" for key, item in value.items()) + " }"
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
        settings: dict[str, Any] = tomllib.loads("\n".join(stripped[start:end]))["settings"]
    except tomllib.TOMLDecodeError as error:
        raise TableError(f"the settings in {path} are not TOML: {error}") from error
    known = [setting.name for setting in fields(TableSettings)]
    if unknown := [name for name in settings if name not in known]:
        raise TableError(f"{path} has a setting {unknown[0]!r}; there are {', '.join(known)}")
    return settings
