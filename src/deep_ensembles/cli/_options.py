"""Options that commands for tables share, and how those that hold several values are read."""

from __future__ import annotations

import glob
import hashlib
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, BadParameter, Context, Option

from deep_ensembles.cli._output import comma_list

if TYPE_CHECKING:
    from deep_ensembles.tabular import TableModel, TableSettings

DIGEST = "[0-9a-f]" * 12
DATA = "A table (CSV, TSV, Parquet, JSON lines, Excel, SQLite, DuckDB), several, a folder of parts, a URL, or - for stdin."
Data = Annotated[list[str], Argument(metavar="DATA", help=DATA)]
Model = Annotated[Path, Argument(metavar="MODEL", help="A model folder that `deep-ensembles fit` wrote.")]
Target = Annotated[str | None, Option(help="The column to predict, or several: a,b. Needed unless --config has it.")]
Task = Annotated[str | None, Option(help="regression or classification; found out by default.")]
Head = Annotated[
    str | None,
    Option(help="The distribution to predict: poisson, logit_normal:low=0,high=100, … (docs/heads.md; chosen by default)"),
]
Bounds = Annotated[str | None, Option(help="Possible numbers, as in 0,100 or 0, (no largest): predictions stay inside.")]
Table = Annotated[str | None, Option(help="The sheet of a workbook or the table of a database, where it holds several.")]
Drop = Annotated[str | None, Option(help="Columns that are no inputs, with commas between; quote names with one.")]
Kinds = Annotated[str | None, Option(help="Kinds of columns, as in zip=category,id=drop; found out by default.")]
Weights = Annotated[str | None, Option(help="A column, no input, of what rows count in training.")]
Group = Annotated[str | None, Option(help="A column, no input; rows of a group are held out together.")]
Time = Annotated[str | None, Option(help="A column; the latest rows are held out. It is an input too, unless dropped.")]
Effort = Annotated[str | None, Option(help="fast tries one network, default several, best more and larger ones.")]
Members = Annotated[int | None, Option(min=2, help="How many networks. (chosen by default)")]
TimeLimit = Annotated[float | None, Option(min=0, help="Seconds for training, for all that is tried.")]
Seed = Annotated[int | None, Option(min=0, help="The same seed gives the same model. (0 by default)")]
Config = Annotated[Path | None, Option(help="A file of settings; what `fit` prints will do.")]
Coverage = Annotated[float, Option(min=0, max=1, help="The share of cases that intervals should hold.")]
Errors = Annotated[str, Option(help="Values that cannot be read: refuse, or take as missing.")]
FitErrors = Annotated[str | None, Option(help="Values that cannot be read: refuse (by default), or take as missing.")]
Recalibration = Annotated[
    str | None, Option(help="auto, none, variance_scaling, temperature, isotonic or conformal. (auto by default)")
]
Json = Annotated[bool, Option("--json", help="Print JSON for machines, nothing else.")]


def pairs(text: str | None) -> dict[str, str] | None:
    """Kinds by column, as in zip=category,id=drop."""
    if text is None:
        return None
    parts = [item.rpartition("=") for item in comma_list(text) or []]
    if any(not name or not kind for name, _, kind in parts):
        raise ValueError(f"`kinds` must be like zip=category,id=drop, got {text!r}")
    return {name.strip(): kind.strip() for name, _, kind in parts}


def cells(text: str, model: TableModel) -> dict[str, str]:
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


def settings_from(context: Context) -> TableSettings:
    """Settings of the command line, by the names of `TableSettings`, over those of a file."""
    from deep_ensembles.tabular import TableSettings, read_settings

    options = context.params | {"drop": comma_list(context.params["drop"]), "kinds": pairs(context.params["kinds"])}
    known = {} if options["config"] is None else read_settings(options["config"])
    known |= {field.name: value for field in fields(TableSettings) if (value := options.get(field.name)) is not None}
    if "target" not in known:
        raise BadParameter("--target is needed")
    return TableSettings(**known)


def table_model(path: Path) -> TableModel:
    """The model of a table that a folder holds."""
    from deep_ensembles.saving import load
    from deep_ensembles.tabular import TableModel

    model = load(path)
    if not isinstance(model, TableModel):
        raise ValueError(f"{path} holds a {type(model).__name__}, no model of a table; fit one with `deep-ensembles fit`")
    return model


def stopped_text(out: Path, written: list[Path]) -> str:
    """What to say of a fit that was stopped: what is there, and what the same command can go on from."""
    if written:
        return f"stopped; {out} was written before, and is whole"
    if any(out.absolute().parent.glob(f".{glob.escape(out.name)}.{DIGEST}.checkpoint*")):
        return f"stopped; the same command goes on from what it left beside {out}"
    return "stopped; nothing was written, and the same command starts anew"


def state_path(out: Path, data: list[str], settings: TableSettings, *others: Any) -> Path:
    """Where the state of a training is kept: beside the model, and apart for other settings or data."""
    seen = [(name, path.stat().st_size, path.stat().st_mtime_ns) for name in data if (path := Path(name)).exists()]
    digest = hashlib.sha256(f"{settings.text()}{seen}{others or ''}".encode()).hexdigest()
    return out.absolute().with_name(f".{out.absolute().name}.{digest[:12]}.checkpoint")
