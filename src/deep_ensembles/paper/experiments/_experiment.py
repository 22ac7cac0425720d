"""What an experiment is: cells to run, records of what came out, and a summary of them.

A record is a folder: what was asked, what came out, and a mark that says it is whole.
"""

import hashlib
import io
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np

from deep_ensembles._files import json_ready, write_atomically
from deep_ensembles._terminal import Listing
from deep_ensembles.paper.datasets import file_sum
from deep_ensembles.report.charts import Figure

Scale: TypeAlias = Literal["smoke", "laptop", "paper"]
SCALES: tuple[Scale, ...] = ("smoke", "laptop", "paper")
Outcome: TypeAlias = tuple[dict[str, Any], dict[str, np.ndarray]]  # of a cell: numbers, and the predictions behind them
CONFIG, RESULT, ARRAYS, DONE = "config.json", "result.json", "predictions.npz", "DONE"


@dataclass(frozen=True)
class Cell:
    """One piece of an experiment's work.

    Arguments:
        name: for people, short.
        config: plain data; everything the result depends on. Another config is another cell, so that no result is ever
            mistaken for that of other settings, and none is overwritten by it.
        cost: a rough measure of the work; the dearest cells are started first.

    Example:
        >>> Cell("yacht-ml", {"epochs": 40}).folder
        'yacht-ml-b316c1aa'
    """

    name: str
    config: Mapping[str, Any]
    cost: float = 0.0

    @property
    def folder(self) -> str:
        """The folder's name: the cell's, and the first digits of its config's hash."""
        return f"{self.name}-{hashlib.sha256(_json(self.config)).hexdigest()[:8]}"


@dataclass(frozen=True)
class Record:
    """A finished cell.

    Arguments:
        cell: what was asked.
        path: its folder.
        result: the numbers, plain data.
    """

    cell: Cell
    path: Path
    result: dict[str, Any]

    def arrays(self) -> dict[str, np.ndarray]:
        """The saved predictions."""
        with np.load(self.path / ARRAYS, allow_pickle=False) as file:
            return {name: file[name] for name in file.files}


def write_record(root: Path, cell: Cell, result: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Record:
    """Keep a finished cell under `root`; the mark comes last, so that a kill at any moment leaves it whole or unmarked.

    The mark holds the files' checksums as `sha256sum --check DONE` reads them.
    """
    path = root / cell.folder
    buffer = io.BytesIO()
    np.savez(buffer, **dict(arrays))  # type: ignore[arg-type]
    files = {CONFIG: _json(cell.config), ARRAYS: buffer.getvalue(), RESULT: _json(result)}
    (path / DONE).unlink(missing_ok=True)
    for name, content in files.items():
        write_atomically(path / name, content)
    sums = "".join(f"{hashlib.sha256(content).hexdigest()}  {name}\n" for name, content in files.items())
    write_atomically(path / DONE, sums.encode())
    return Record(cell, path, json.loads(files[RESULT]))


def read_record(root: Path, cell: Cell) -> Record | None:
    """The finished cell under `root`; None if it is not there, not whole or not what was written."""
    path = root / cell.folder
    try:
        sums = {line[66:]: line[:64] for line in (path / DONE).read_text().splitlines()}
        if set(sums) != {CONFIG, RESULT, ARRAYS} or any(file_sum(path / name) != sums[name] for name in sums):
            return None
        return Record(cell, path, json.loads((path / RESULT).read_text()))
    except (OSError, ValueError):
        return None


def _json(content: Mapping[str, Any]) -> bytes:
    return (json.dumps(json_ready(content), indent=1, sort_keys=True, allow_nan=False) + "\n").encode()


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
        listings: for people.
        figures: by file name.
        notes: what a reader must know.
    """

    rows: list[dict[str, Any]]
    claims: list[Claim]
    listings: list[Listing]
    differences: list[dict[str, Any]] = field(default_factory=list)
    figures: dict[str, Figure] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Experiment:
    """A table or figure of the paper.

    Arguments:
        name: its name on the command line, there with hyphens, and of the folder for its cells.
        makes: what it reproduces.
        takes: how long, by scale.
        datasets: those it can run on.
        methods: those it compares.
        cells: the pieces of work for a selection.
        run: does the work of one cell; everything the result depends on is in the cell's config. It is given the folder of
            the experiment's cells, too: a model may be kept in the cell's folder there, and folders of other experiments
            are beside it.
        summarise: finished cells → numbers beside the paper's, verdicts, figures.
        networks: those it can train, where there are several.
        only_at_paper_scale: data sets and networks that smaller scales leave out unless the user names them.
        takes_folders: whether a folder or zip of pictures may stand for a data set.
        needs: for a selection, the cells of other experiments that must be finished first.
        cells_of: the experiment to whom the cells belong, where several share them; itself by default.
        choose: data sets in the data home → those to use by default.
    """

    name: str
    makes: str
    takes: Mapping[Scale, str]
    datasets: tuple[str, ...]
    methods: tuple[str, ...]
    cells: Callable[[Selection], list[Cell]]
    run: Callable[[Cell, Path], Outcome]
    summarise: Callable[[Sequence[Record], Selection], Summary]
    networks: tuple[str, ...] = ()
    only_at_paper_scale: tuple[str, ...] = ()
    choose: Callable[[Sequence[str]], Sequence[str]] = tuple
    takes_folders: bool = False
    needs: Callable[[Selection], Mapping[str, list[Cell]]] = lambda selection: {}
    cells_of: str = ""


def left_out(dataset: str) -> str:
    """The note on a data set that would have been used."""
    return f"{dataset} is not here and was left out; run: deep-ensembles data fetch {dataset}"
