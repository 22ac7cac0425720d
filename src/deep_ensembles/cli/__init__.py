"""The command line: parse, call one function, print. Commands load what they need when they run, so help is quick."""

from typing import Annotated

import typer

import deep_ensembles
from deep_ensembles.cli import _paper, _tables

app = typer.Typer(help="Neural networks that say how sure they are.", no_args_is_help=True, add_completion=True)
_tables.add_to(app)
_paper.add_to(app)


@app.callback(invoke_without_command=True)
def main(
    version: Annotated[bool, typer.Option("--version", help="Print the version and leave.", is_eager=True)] = False,
) -> None:
    """Neural networks that say how sure they are."""
    if version:
        print(f"deep-ensembles {deep_ensembles.__version__}")
        raise typer.Exit
