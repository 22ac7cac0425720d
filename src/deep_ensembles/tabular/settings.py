"""How a table is learnt: settings that can be printed, kept in a file, and read again."""

import json
import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from deep_ensembles import FastGradientSign, Recipe, recalibration
from deep_ensembles._checks import check_integer, check_number, require
from deep_ensembles.columns import TASKS, TableError
from deep_ensembles.networks.mlp import checked_sizes
from deep_ensembles.recipes import EFFORTS
from deep_ensembles.tabular.head import Bounds, head_named

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

    Settings of training that are None are left to the recipe, which chooses them for the table (see `fit_recipe`).

    Arguments:
        target: the column to predict.
        task: `regression` or `classification`; found out from the target, or the head, by default.
        head: the distribution to predict: `student_t`, `poisson`, `logit_normal:low=0,high=100`, …; by default the bell
            that suits the rows best, for classes `categorical`.
        bounds: the least and the largest possible number, between which predictions stay: `0,100`, or `0,` for no largest.
        table: the sheet of a workbook or the table of a database, where it holds several.
        drop: columns that are no inputs.
        kinds: for columns whose kind is known: `number`, `category`, `boolean`, `date`, `text` or `drop`.
        errors: `refuse` values that cannot be read, or take them as `missing`.
        weights: a column of weights ≥ 0.
        group: a column; rows of a group are held out together.
        time: a column; the latest rows are held out. It is an input too, unless dropped.
        holdout: the share of rows that no network sees; by default 0, as rows that members hold out in turn are judged as
            honestly, and with a time 0.2.
        recalibration: `auto` for what rows ask for that were held out, `none`, or one by name.
        effort: `fast` tries one network, `default` several, `best` more and larger ones.
        members: how many networks.
        hidden_sizes: one size per hidden layer.
        epsilon: of adversarial training, in shares of each input's range; the paper's is 0.01, 0 is none.
        max_epochs, patience, learning_rate, batch_size: as in `Recipe`.
        time_limit: seconds for all that is tried; None for as long as it takes.
        stream: train from Parquet files block by block, not from memory; by default where the table is too large for that.
        seed: the same seed gives the same model.
    """

    target: str
    task: str | None = None
    head: str | None = None
    bounds: str | None = None
    table: str | None = None
    drop: tuple[str, ...] = ()
    kinds: Mapping[str, str] = field(default_factory=dict)
    errors: str = "refuse"
    weights: str | None = None
    group: str | None = None
    time: str | None = None
    holdout: float | None = None
    recalibration: str = "auto"
    effort: str = "default"
    members: int | None = None
    hidden_sizes: tuple[int, ...] | None = None
    epsilon: float | None = None
    max_epochs: int | None = None
    patience: int | None = None
    learning_rate: float | None = None
    batch_size: int | None = None
    time_limit: float | None = None
    stream: bool | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        self._check_columns()
        object.__setattr__(self, "drop", tuple(self.drop))
        if self.hidden_sizes is not None:
            require(isinstance(self.hidden_sizes, (list, tuple)), "hidden_sizes", "a list of sizes", self.hidden_sizes)
            object.__setattr__(self, "hidden_sizes", tuple(checked_sizes(self.hidden_sizes)))
        require(self.errors in ("refuse", "missing"), "errors", "refuse or missing", self.errors)
        require(self.task in (None, *TASKS), "task", "regression or classification", self.task)
        if self.task not in (None, known_task := self.known_task):
            asked = f"the head {self.head} is" if self.head else f"bounds {self.bounds} are"
            raise TableError(f"{asked} for {known_task}, but the task is {self.task}; leave one of them out")
        known = f"one of {', '.join(RECALIBRATIONS)}"
        require(self.recalibration in RECALIBRATIONS, "recalibration", known, self.recalibration)
        require(self.effort in EFFORTS, "effort", f"one of {', '.join(EFFORTS)}", self.effort)
        check_number("holdout", self.holdout, low=0, high=0.9, optional=True)
        check_integer("members", self.members, low=2, optional=True)
        check_number("epsilon", self.epsilon, low=0, optional=True)
        check_integer("seed", self.seed, low=0)
        Recipe(**self._given(TRAINING))

    def _check_columns(self) -> None:
        require(isinstance(self.target, str) and self.target != "", "target", "the name of a column", self.target)
        for name in ("weights", "group", "time", "table"):
            value, what = getattr(self, name), "table" if name == "table" else "column"
            require(value is None or isinstance(value, str), name, f"the name of a {what}", value)
        listed = isinstance(self.drop, (list, tuple)) and all(isinstance(name, str) for name in self.drop)
        require(listed, "drop", "a list of names of columns", self.drop)
        require(isinstance(self.kinds, Mapping), "kinds", "names of columns with their kinds", self.kinds)

    def _given(self, names: Iterable[str]) -> dict[str, Any]:
        """Those of some settings that are not left to the recipe."""
        return {name: value for name in names if (value := getattr(self, name)) is not None}

    @property
    def chosen_head(self) -> Any:
        """The head that is named; None where none is."""
        return None if self.head is None else head_named(self.head)

    @property
    def chosen_bounds(self) -> Bounds | None:
        """The bounds that are named; None where none are."""
        return None if self.bounds is None else Bounds.named(self.bounds)

    @property
    def known_task(self) -> str | None:
        """The task that the head is for, or that of numbers where these have bounds, else what is asked for."""
        if self.head is not None:
            return TASKS[self.chosen_head.kind == "classes"]
        return self.task if self.chosen_bounds is None else TASKS[0]

    @property
    def not_inputs(self) -> tuple[str, ...]:
        """Columns that are no inputs: those to drop, weights and group; time may be one."""
        return (*self.drop, *(name for name in (self.weights, self.group) if name is not None))

    @property
    def roles(self) -> tuple[str, ...]:
        """Columns that say something of rows."""
        return tuple(name for name in (self.weights, self.group, self.time) if name is not None)

    @property
    def explicit(self) -> dict[str, Any]:
        """The settings of `fit_recipe` that it is not to choose."""
        given, others = self._given((*TRAINING, "hidden_sizes")), {"n_members": self.members, "head": self.chosen_head}
        given |= {name: value for name, value in others.items() if value is not None}
        if self.epsilon is not None:
            given["perturbation"] = FastGradientSign(self.epsilon) if self.epsilon else None
        if self.recalibration != "auto":
            given["recalibration"] = getattr(recalibration, self.recalibration, None)
        return given

    def text(self) -> str:
        """As TOML, which `read_settings` reads, be it in the middle of other text.

        Example:
            >>> print(TableSettings(target="price", drop=("id",)).text().splitlines()[:3])
            ['[settings]', 'target = "price"', 'drop = ["id"]']
        """
        lines = [f"{name} = {_toml(value)}" for name, value in vars(self).items() if value not in (None, (), {})]
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
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise TableError(f"the settings in {path} cannot be read ({error})") from error
    found = re.search(rf"^[ \t]*{re.escape(_HEADING)}[ \t]*$(\n.*\S.*)*", text, re.MULTILINE)
    if found is None:
        raise TableError(f"{path} has no line {_HEADING} with settings below it")
    try:
        settings: dict[str, Any] = tomllib.loads(found[0])["settings"]
    except tomllib.TOMLDecodeError as error:
        raise TableError(f"the settings in {path} are not TOML: {error}") from error
    known = [setting.name for setting in fields(TableSettings)]
    if unknown := [name for name in settings if name not in known]:
        raise TableError(f"{path} has a setting {unknown[0]!r}; there are {', '.join(known)}")
    return settings
