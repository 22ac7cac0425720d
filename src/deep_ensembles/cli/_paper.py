"""Commands of the paper: its data, its tables and figures; and the demo."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from deep_ensembles.cli._talk import listed, module, one_sentence, say

data = typer.Typer(help="Data sets: which are known, which are here, and how to get the others.", no_args_is_help=True)


def demo(
    out: Annotated[Path, typer.Option(help="The folder for models and picture.")] = Path("demo"),
    seed: Annotated[int, typer.Option(min=0, help="The same seed gives the same numbers.")] = 0,
) -> None:
    """Train on two small data sets, compare one network with an ensemble, leave models, a picture and reports.

    Example: deep-ensembles demo --out demo
    """
    with one_sentence():
        shown = module("cli.demo").run_demo(out, seed)
    for table in shown.tables:
        say(table)
    say(f"picture  {shown.picture}")
    for model in shown.models:
        say(f"model    {model}")
    for report in shown.reports:
        say(f"report   {report}  (open it in a browser)")


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
        experiments = module("paper.experiments").EXPERIMENTS.values()
        rows = [(each.name.replace("_", "-"), each.makes, *(each.takes[scale] for scale in ("smoke", "laptop", "paper")))
                for each in experiments]  # fmt: skip
        say(module("_terminal").Listing("", ("name", "makes", "smoke", "laptop", "paper"), rows))
        return
    with one_sentence("stopped; the same command goes on where it was"):
        names = {"only": listed(only), "methods": listed(methods), "networks": listed(networks)}
        execution = module("execution").Processes(jobs) if cluster is None else module("execution.ray").Ray(cluster)
        how = {"scale": scale, "force": force, "out": out, "seed": seed, "execution": execution}
        found = module("paper.reproduce").reproduce(name, **names, **how)
    say(found.text)
    for file in found.files:
        say(f"wrote  {file}")


@data.command("list")
def data_list() -> None:
    """Show every data set that is known: its size, whether it is here, and where.

    Example: deep-ensembles data list
    """
    datasets = module("paper.datasets")
    home = datasets.data_home()
    columns = ("name", "rows", "features", "splits", "here", "where")
    say(module("_terminal").Listing("", columns, [_about(card, home) for card in datasets.cards()]))
    say(f"data home  {home}")


@data.command("fetch")
def data_fetch(
    names: Annotated[list[str], typer.Argument(metavar="NAME...", help="Data sets; see `deep-ensembles data list`.")],
) -> None:
    """Download data sets as they were published, check them, and convert them. What is here already is left alone.

    Example: deep-ensembles data fetch concrete yacht
    """
    with one_sentence():
        datasets, fetching = module("paper.datasets"), module("paper.datasets._fetch")
        home, wanted = datasets.data_home(), [datasets.card(name) for name in names]
        for card in wanted:
            say(f"{card.name}  {fetching.fetch(card, home) or 'needs no file'}")


def _about(card: Any, home: Path) -> tuple[str, ...]:
    features = "×".join(map(str, card.shape)) or str(card.features)
    here = "yes" if card.is_whole(home) else "part" if card.is_here(home) else "no"
    where = f"{Path(card.file).parent}/" if card.shape else card.file or "made on the spot"
    return card.name, str(card.rows), features, str(card.splits), here, where


def add_to(app: typer.Typer) -> None:
    """Give the application these commands."""
    app.command()(reproduce)
    app.command()(demo)
    app.add_typer(data, name="data")
