"""Commands of the paper: its data, its tables and figures; and the demo."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from deep_ensembles._terminal import Listing
from deep_ensembles.cli._output import Processes, Ray, chosen_execution, comma_list, show, user_errors

if TYPE_CHECKING:
    from deep_ensembles.paper.datasets import Card
    from deep_ensembles.paper.experiments import Scale

data = typer.Typer(help="Data sets: which are known, which are here, and how to get the others.", no_args_is_help=True)


def demo(
    out: Annotated[Path, typer.Option(help="The folder for models and picture.")] = Path("demo"),
    seed: Annotated[int, typer.Option(min=0, help="The same seed gives the same numbers.")] = 0,
) -> None:
    """Train on two small data sets, compare one network with an ensemble, leave models, a picture and reports.

    Example: deep-ensembles demo --out demo
    """
    from deep_ensembles.cli.demo import run_demo

    with user_errors(lambda: f"stopped; what is in {out} by now stays there"):
        found = run_demo(out, seed)
    for content in found:
        show(content)


def reproduce(
    name: Annotated[str, typer.Argument(help="The experiment, or `list` to see what there is.")],
    scale: Annotated[str, typer.Option(help="smoke: to see it work; laptop: the real thing; paper: all of it.")] = "laptop",
    only: Annotated[str | None, typer.Option(help="Data sets, with commas between them.")] = None,
    methods: Annotated[str | None, typer.Option(help="Methods, with commas between them.")] = None,
    networks: Annotated[str | None, typer.Option(help="Networks, with commas between them, if there are several.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Run again what is finished.")] = False,
    out: Annotated[Path, typer.Option(help="The folder for records, tables and figures.")] = Path("runs"),
    seed: Annotated[int, typer.Option(min=0, help="The same seed gives the same numbers.")] = 0,
    processes: Processes = None,
    ray: Ray = None,
) -> None:
    """Reproduce a table or figure of the paper, its numbers beside ours. A run that was stopped goes on where it was.

    Examples: deep-ensembles reproduce list; deep-ensembles reproduce uci-regression --only yacht --methods ML-1,ML-5
    """
    if name == "list":
        from deep_ensembles.paper.experiments import EXPERIMENTS, SCALES

        times = {name: [about.takes[scale] for scale in SCALES] for name, about in EXPERIMENTS.items()}
        rows = [(name.replace("_", "-"), EXPERIMENTS[name].makes, *takes) for name, takes in times.items()]
        show(Listing("", ("name", "makes", *SCALES), rows))
        return
    with user_errors(lambda: "stopped; the same command goes on where it was"):
        from deep_ensembles.paper.reproduce import reproduce as run

        chosen = {"only": comma_list(only), "methods": comma_list(methods), "networks": comma_list(networks)}
        execution = chosen_execution(processes, ray)
        result = run(name, scale=cast("Scale", scale), **chosen, force=force, out=out, seed=seed, execution=execution)
    show(result.text)
    for file in result.files:
        show(f"wrote  {file}")


@data.command("list")
def data_list() -> None:
    """Show every data set that is known: its size, whether it is here, and where.

    Example: deep-ensembles data list
    """
    from deep_ensembles.paper.datasets import cards, data_home

    home = data_home()
    columns = ("name", "rows", "features", "splits", "here", "where")
    show(Listing("", columns, [_about(card, home) for card in cards()]))
    show(f"data home  {home}")


@data.command("fetch")
def data_fetch(
    names: Annotated[list[str], typer.Argument(metavar="NAME...", help="Data sets; see `deep-ensembles data list`.")],
) -> None:
    """Download data sets as they were published, check them, and convert them. What is here already is left alone.

    Example: deep-ensembles data fetch concrete yacht
    """
    with user_errors():
        from deep_ensembles.paper.datasets import card, data_home
        from deep_ensembles.paper.fetch import fetch

        home, wanted = data_home(), [card(name) for name in names]
        for dataset in wanted:
            show(f"{dataset.name}  {fetch(dataset, home) or 'needs no file'}")


def _about(card: "Card", home: Path) -> tuple[str, ...]:
    features = "×".join(map(str, card.shape)) or str(card.features)
    here = "yes" if card.is_whole(home) else "part" if card.is_here(home) else "no"
    where = f"{Path(card.file).parent}/" if card.shape and card.file else card.file or "made on the spot"
    return card.name, str(card.rows), features, str(card.splits), here, where


def add_to(app: typer.Typer) -> None:
    """Give the application these commands."""
    app.command()(reproduce)
    app.command()(demo)
    app.add_typer(data, name="data")
