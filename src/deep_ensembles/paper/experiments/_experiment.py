"""What an experiment is: cells to run, and a summary of what came out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol, TypeAlias

import numpy as np

from deep_ensembles._terminal import Listing
from deep_ensembles.paper.records import Cell, Record
from deep_ensembles.report.charts import Figure

Scale: TypeAlias = Literal["smoke", "laptop", "paper"]
SCALES: tuple[Scale, ...] = ("smoke", "laptop", "paper")


@dataclass(frozen=True)
class Selection:
    """What the user asks for.

    Arguments:
        scale: "smoke" to see it work, "laptop" for the real thing within a coffee break or two, "paper" for all of it.
        datasets: the data sets, in this order.
        methods: the methods to report, in this order.
        networks: the networks, where an experiment has several.
        seed: the seed of everything.
    """

    scale: Scale
    datasets: tuple[str, ...]
    methods: tuple[str, ...]
    networks: tuple[str, ...] = ()
    seed: int = 0


@dataclass(frozen=True)
class Claim:
    """One statement of the paper, checked.

    Arguments:
        statement: in our words.
        source: where the paper says it.
        dataset: the data set it was checked on; empty for all of them together.
        holds: the verdict.
        numbers: what the verdict rests on.
    """

    statement: str
    source: str
    dataset: str
    holds: bool
    numbers: str


@dataclass(frozen=True)
class Summary:
    """What an experiment found.

    Arguments:
        rows: one plain mapping per number: dataset, method, metric, mean, …
        differences: paired differences between methods, likewise.
        claims: the paper's statements with verdicts.
        tables: for people.
        figures: by file name.
        notes: what a reader must know.
    """

    rows: list[dict[str, Any]]
    claims: list[Claim]
    tables: list[Listing]
    differences: list[dict[str, Any]] = field(default_factory=list)
    figures: dict[str, Figure] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Outcome:
    """What a cell leaves: numbers, and the predictions they were computed from."""

    result: dict[str, Any]
    arrays: dict[str, np.ndarray]


class Run(Protocol):
    """Does the work of a cell.

    Everything the result depends on is in the cell's config. `root` is where the experiment keeps its cells: a model that
    belongs to the cell may be left in its folder there, and what it needs of another experiment is found beside.
    """

    def __call__(self, cell: Cell, root: Path, /) -> Outcome: ...


@dataclass(frozen=True)
class Experiment:
    """A table or figure of the paper.

    Arguments:
        name: file name, and command-line name.
        makes: what it reproduces.
        takes: how long, by scale.
        datasets: those it can run on.
        methods: those it compares.
        cells: the work for a selection.
        run: does one cell's.
        summarise: finished cells → numbers beside the paper's, verdicts, figures.
        networks: those it can train, where there are several.
        only_at_paper_scale: data sets and networks that have to be asked for by name at a smaller scale.
        takes_folders: whether a folder or zip of pictures may stand for a data set.
        needs: for a selection, the cells of other experiments that must be finished first.
        cells_of: the experiment to whom the cells belong, where several share them; itself by default.
        choose: data sets at hand → those to use, where not all of them are.
    """

    name: str
    makes: str
    takes: Mapping[Scale, str]
    datasets: tuple[str, ...]
    methods: tuple[str, ...]
    cells: Callable[[Selection], list[Cell]]
    run: Run
    summarise: Callable[[Sequence[Record], Selection], Summary]
    networks: tuple[str, ...] = ()
    only_at_paper_scale: tuple[str, ...] = ()
    choose: Callable[[Sequence[str]], Sequence[str]] = tuple
    takes_folders: bool = False
    needs: Callable[[Selection], Mapping[str, list[Cell]]] = lambda selection: {}
    cells_of: str = ""


def measured(about: Mapping[str, Any], values: Mapping[str, float]) -> list[dict[str, Any]]:
    """A row of a summary per metric."""
    return [{**about, "metric": metric, "value": value} for metric, value in values.items()]


def thinned(rows: np.ndarray, most: int | None) -> np.ndarray:
    """At most so many rows, evenly spaced from the first to the last.

    Example:
        >>> thinned(np.arange(10), 4)
        array([0, 3, 6, 9])
    """
    return rows if most is None or len(rows) <= most else rows[np.linspace(0, len(rows) - 1, most).astype(int)]
