"""The command line: parse, call one function, print. Commands load what they need when they run, so help is quick."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

import deep_ensembles

app = typer.Typer(help="Neural networks that say how sure they are.", no_args_is_help=True, add_completion=True)


def _module(name: str) -> Any:
    """A part of the package, loaded now; torch alone takes longer than `--help` may."""
    return importlib.import_module(f"deep_ensembles.{name}")


@app.callback(invoke_without_command=True)
def main(
    version: Annotated[bool, typer.Option("--version", help="Print the version and leave.", is_eager=True)] = False,
) -> None:
    """Neural networks that say how sure they are."""
    if version:
        print(f"deep-ensembles {deep_ensembles.__version__}")
        raise typer.Exit


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="The folder for models and picture.")] = Path("demo"),
    seed: Annotated[int, typer.Option(min=0, help="The same seed gives the same numbers.")] = 0,
) -> None:
    """Train on two small data sets, compare one network with an ensemble, leave models and a picture.

    Example: deep-ensembles demo --out demo
    """
    shown = _module("demo").run_demo(out, seed)
    console = Console(file=sys.stdout, width=None if sys.stdout.isatty() else 100)
    for each in shown.tables:
        table = Table(*each.columns, title=each.title, title_justify="left", title_style="bold")
        for row in each.rows:
            table.add_row(*row)
        console.print(table)
    print(f"picture  {shown.picture}")
    for model in shown.models:
        print(f"model    {model}")
