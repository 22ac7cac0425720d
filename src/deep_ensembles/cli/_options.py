"""Options that commands for tables share, and how those that hold several values are read."""

from __future__ import annotations

import glob
import hashlib
from collections.abc import Callable, Iterable, Sequence
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Annotated, Any, TypeAlias, TypeVar

from typer import Argument, BadParameter, Option

import deep_ensembles
from deep_ensembles import tabular
from deep_ensembles.cli._output import comma_list

Command = TypeVar("Command", bound=Callable[..., None])
Text: TypeAlias = str | None

DIGEST = "[0-9a-f]" * 12
DATA = "A table (CSV, TSV, Parquet, JSON lines, Excel, SQLite, DuckDB), several, a folder of parts, a URL, or - for stdin."
Data = Annotated[list[str], Argument(metavar="DATA", help=DATA)]
Model = Annotated[Path, Argument(metavar="MODEL", help="A model folder that `deep-ensembles fit` wrote.")]
Table = Annotated[str | None, Option(help="The sheet of a workbook or the table of a database, where it holds several.")]
Config = Annotated[Path | None, Option(help="A file of settings; what `fit` prints will do.")]
Coverage = Annotated[float, Option(min=0, max=1, help="The share of cases that intervals should hold.")]
Errors = Annotated[str, Option(help="Values that cannot be read: refuse, or take as missing.")]
Json = Annotated[bool, Option("--json", help="Print JSON for machines, nothing else.")]
# Settings of a table by the names of `TableSettings`.
SETTINGS: dict[str, Any] = {
    "target": Annotated[Text, Option(help="The column to predict, or several: a,b. Needed unless --config has it.")],
    "task": Annotated[Text, Option(help="regression or classification; found out by default.")],
    "head": Annotated[Text, Option(
        help="The distribution to predict: poisson, logit_normal:low=0,high=100, … (docs/heads.md; chosen by default)")],
    "bounds": Annotated[Text, Option(help="Possible numbers, as in 0,100 or 0, (no largest): predictions stay inside.")],
    "table": Table,
    "drop": Annotated[Text, Option(help="Columns that are no inputs, with commas between; quote names with one.")],
    "kinds": Annotated[Text, Option(help="Kinds of columns, as in zip=category,id=drop; found out by default.")],
    "errors": Annotated[Text, Option(help="Values that cannot be read: refuse (by default), or take as missing.")],
    "weights": Annotated[Text, Option(help="A column, no input, of what rows count in training.")],
    "group": Annotated[Text, Option(help="A column, no input; rows of a group are held out together.")],
    "time": Annotated[Text, Option(help="A column; the latest rows are held out. It is an input too, unless dropped.")],
    "members": Annotated[int | None, Option(min=2, help="How many networks. (chosen by default)")],
    "effort": Annotated[Text, Option(help="fast tries one network, default several, best more and larger ones.")],
    "holdout": Annotated[float | None, Option(
        min=0, max=0.9, help="Share of rows that no network sees. (0; with --time 0.2)")],
    "recalibration": Annotated[Text, Option(
        help="auto, none, variance_scaling, temperature, isotonic or conformal. (auto by default)")],
    "epsilon": Annotated[float | None, Option(min=0, help="Adversarial training: 0.01 in the paper. (none by default)")],
    "max_epochs": Annotated[int | None, Option(min=1, help="Passes over the rows at most. (chosen by default)")],
    "time_limit": Annotated[float | None, Option(min=0, help="Seconds for training, for all that is tried.")],
    "stream": Annotated[bool | None, Option(
        "--stream/--no-stream", help="Train from Parquet that is not read whole. (where it is too large)")],
    "seed": Annotated[int | None, Option(min=0, help="The same seed gives the same model. (0 by default)")],
}  # fmt: skip
OF_FIT = ("holdout", "recalibration", "epsilon", "max_epochs", "stream")


def takes_settings(*left_out: str) -> Callable[[Command], Command]:
    """Give a command an option for every setting, but those left out; it gets them as its `**options`."""

    def declare(command: Command) -> Command:
        *own, _ = signature(command, eval_str=True).parameters.values()
        kind, names = Parameter.KEYWORD_ONLY, [name for name in SETTINGS if name not in left_out]
        settings = [Parameter(name, kind, default=None, annotation=SETTINGS[name]) for name in names]
        needed = [parameter for parameter in own if parameter.default is Parameter.empty]
        others = [parameter for parameter in own if parameter not in needed]
        every = [*needed, *settings, *others]
        command.__signature__ = Signature([each.replace(kind=kind) for each in every])  # type: ignore[attr-defined]
        return command

    return declare


def pairs(text: str | None) -> dict[str, str] | None:
    """Kinds by column, as in zip=category,id=drop."""
    if text is None:
        return None
    parts = [item.rpartition("=") for item in comma_list(text) or []]
    if any(not name or not kind for name, _, kind in parts):
        raise ValueError(f"`kinds` must be like zip=category,id=drop, got {text!r}")
    return {name.strip(): kind.strip() for name, _, kind in parts}


def cells(text: str, model: tabular.TableModel) -> dict[str, str]:
    """The values of a row by column, as in speed=12,dist=30."""
    found: dict[str, str] = {}
    for item in comma_list(text) or []:
        # A name may have an equals sign in it.
        known = next((name for name in model.schema.names if item.startswith(f"{name}=")), item.partition("=")[0])
        name = known.strip()
        if not name or len(known) == len(item):
            raise ValueError(f'`row` must be like speed=12,dist=30, got {item!r}; quote what has a comma, as in "size=1,5"')
        if name in found:
            raise ValueError(f"`row` must have each column once, got {name!r} twice")
        found[name] = item[len(known) + 1 :].strip()
    return found


def numbers(text: str | None) -> tuple[float, ...]:
    """Numbers with commas between them."""
    try:
        return tuple(map(float, comma_list(text) or ()))
    except ValueError as error:
        raise ValueError(f"`quantiles` must be numbers with commas between them, got {text!r}") from error


def settings_from(config: Path | None, options: dict[str, Any]) -> tabular.TableSettings:
    """Settings of the command line over those of a file."""
    known = {} if config is None else tabular.read_settings(config)
    options = options | {"drop": comma_list(options["drop"]), "kinds": pairs(options["kinds"])}
    known |= {name: value for name, value in options.items() if value is not None}
    if "target" not in known:
        raise BadParameter("--target is needed")
    return tabular.TableSettings(**known)


def table_model(path: Path) -> tabular.TableModel:
    """The model of a table that a folder holds."""
    model = deep_ensembles.load(path)
    if not isinstance(model, tabular.TableModel):
        raise ValueError(f"{path} holds a {type(model).__name__}, no model of a table; fit one with `deep-ensembles fit`")
    return model


def state_path(out: Path, data: list[str], settings: tabular.TableSettings, *others: Any) -> Path:
    """Where the state of a training is kept: beside the model, and apart for other settings or data."""
    seen = [(name, path.stat().st_size, path.stat().st_mtime_ns) for name in data if (path := Path(name)).exists()]
    digest = hashlib.sha256(f"{settings.text()}{seen}{others or ''}".encode()).hexdigest()
    return out.absolute().with_name(f".{out.absolute().name}.{digest[:12]}.checkpoint")


def kept(states: Iterable[Path]) -> list[Path]:
    """The files that a stopped training has left at these paths, and beside them."""
    return [path for state in states for path in state.parent.glob(f"{glob.escape(state.name)}*")]


def stopped_text(states: Iterable[Path], goes_on: str, written: Sequence[Path] = ()) -> str:
    """What to say of a training that was stopped: what is there, and whether the same command can go on from it."""
    if written:
        return f"stopped; {written[0]} was written before, and is whole"
    return f"stopped; {goes_on}" if kept(states) else "stopped; nothing was written, and the same command starts anew"
