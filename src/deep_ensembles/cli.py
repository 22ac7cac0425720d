"""The command line: parse, call one function, print. Commands load what they need when they run, so help is quick."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

import deep_ensembles

app = typer.Typer(help="Neural networks that say how sure they are.", no_args_is_help=True, add_completion=True)
data = typer.Typer(help="Data sets: which are known, which are here, and how to get the others.", no_args_is_help=True)
app.add_typer(data, name="data")


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
    with _one_sentence():
        shown = _module("demo").run_demo(out, seed)
    _print_tables(shown.tables)
    print(f"picture  {shown.picture}")
    for model in shown.models:
        print(f"model    {model}")


@app.command()
def reproduce(
    name: Annotated[str, typer.Argument(help="The experiment, or `list` to see what there is.")],
    scale: Annotated[str, typer.Option(help="smoke: to see it work; laptop: the real thing; paper: all of it.")] = "laptop",
    only: Annotated[str | None, typer.Option(help="Data sets, with commas between them.")] = None,
    methods: Annotated[str | None, typer.Option(help="Methods, with commas between them.")] = None,
    networks: Annotated[str | None, typer.Option(help="Networks, with commas between them, if there are several.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Run again what is finished.")] = False,
    out: Annotated[Path, typer.Option(help="The folder for records, tables and figures.")] = Path("runs"),
    seed: Annotated[int, typer.Option(min=0, help="The same seed gives the same numbers.")] = 0,
    jobs: Annotated[int | None, typer.Option(min=1, help="Cells to run side by side; by default one per core.")] = None,
    cluster: Annotated[str | None, typer.Option(help="A Ray cluster to run cells on: its address, or auto.")] = None,
) -> None:
    """Reproduce a table or figure of the paper, its numbers beside ours. A run that was stopped goes on where it was.

    Examples: deep-ensembles reproduce list; deep-ensembles reproduce uci-regression --only yacht --methods ML-1,ML-5
    """
    if name == "list":
        experiments = _module("experiments").EXPERIMENTS.values()
        rows = [(each.name.replace("_", "-"), each.makes, *(each.takes[scale] for scale in ("smoke", "laptop", "paper")))
                for each in experiments]  # fmt: skip
        _print_tables([_module("tables").Table("", ("name", "makes", "smoke", "laptop", "paper"), rows)])
        return
    with _one_sentence():
        names = {"only": _listed(only), "methods": _listed(methods), "networks": _listed(networks)}
        execution = _module("execution").Processes(jobs) if cluster is None else _module("execution.ray").Ray(cluster)
        how = {"scale": scale, "force": force, "out": out, "seed": seed, "execution": execution}
        found = _module("reproduce").reproduce(name, **names, **how)
    print(found.text)
    for file in found.files:
        print(f"wrote  {file}")


def _listed(text: str | None) -> list[str] | None:
    return None if text is None else [each.strip() for each in text.split(",") if each.strip()]


@data.command("list")
def data_list() -> None:
    """Show every data set that is known: its size, whether it is here, and where.

    Example: deep-ensembles data list
    """
    datasets = _module("datasets")
    home = datasets.data_home()
    columns = ("name", "rows", "features", "splits", "here", "where")
    _print_tables([_module("tables").Table("", columns, [_about(card, home) for card in datasets.cards()])])
    print(f"data home  {home}")


@data.command("fetch")
def data_fetch(
    names: Annotated[list[str], typer.Argument(metavar="NAME...", help="Data sets; see `deep-ensembles data list`.")],
) -> None:
    """Download data sets as they were published, check them, and convert them. What is here already is left alone.

    Example: deep-ensembles data fetch concrete yacht
    """
    with _one_sentence():
        datasets, fetching = _module("datasets"), _module("datasets._fetch")
        home, wanted = datasets.data_home(), [datasets.card(name) for name in names]
        for card in wanted:
            print(f"{card.name}  {fetching.fetch(card, home) or 'needs no file'}")


def _about(card: Any, home: Path) -> tuple[str, ...]:
    features = "×".join(map(str, card.shape)) or str(card.features)
    here = "yes" if card.is_whole(home) else "part" if card.is_here(home) else "no"
    where = f"{Path(card.file).parent}/" if card.shape else card.file or "made on the spot"
    return card.name, str(card.rows), features, str(card.splits), here, where


def _print_tables(tables: Iterable[Any]) -> None:
    console = Console(file=sys.stdout, width=None if sys.stdout.isatty() else 120)
    for table in tables:
        console.print(table.rich())


@contextmanager
def _one_sentence() -> Iterator[None]:
    """What the user can mend is said in one sentence, with exit code 1."""
    try:
        yield
    except (ImportError, OSError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        raise typer.Exit(1) from error
    except KeyboardInterrupt as error:
        print("stopped; the same command goes on where it was", file=sys.stderr)
        raise typer.Exit(130) from error
