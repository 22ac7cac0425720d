"""Runs an experiment cell by cell, resumes what was begun, and writes what was found."""

import csv
import io
import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

from deep_ensembles._checks import check_integer, require
from deep_ensembles._files import json_ready, write_atomically
from deep_ensembles._terminal import progress
from deep_ensembles.execution import Execution, Processes
from deep_ensembles.paper.datasets import DatasetError, card, data_home
from deep_ensembles.paper.experiments import EXPERIMENTS, SCALES, Experiment, Scale, Selection
from deep_ensembles.paper.experiments._experiment import Cell, Claim, Record, Summary, left_out, read_record, write_record
from deep_ensembles.paper.figures import save_figure


@dataclass(frozen=True)
class Reproduction:
    """What an experiment found, as text, and where it left its files."""

    summary: Summary
    text: str
    files: list[Path]


def reproduce(
    name: str,
    *,
    scale: Scale = "laptop",
    only: Sequence[str] | None = None,
    methods: Sequence[str] | None = None,
    networks: Sequence[str] | None = None,
    force: bool = False,
    out: Path = Path("runs"),
    seed: int = 0,
    execution: Execution | None = None,
) -> Reproduction:
    """Run an experiment, or what is left of it, and write tables, figures and verdicts.

    Arguments:
        name: see `EXPERIMENTS`; hyphens may stand for underscores.
        scale: see `Selection`.
        only: the data sets to use; by default all that are in the data home.
        methods: the methods to compare; by default all.
        networks: the networks to train, where an experiment has several.
        force: run finished cells again.
        out: the folder for everything, `out/<experiment>/<cell>/`.
        seed: the seed of everything.
        execution: where cells are run; by default side by side in processes, one per core.
    """
    name = name.replace("-", "_")
    require(name in EXPERIMENTS, "name", f"one of {', '.join(EXPERIMENTS)}", name)
    experiment = EXPERIMENTS[name]
    require(scale in SCALES, "scale", f"one of {', '.join(SCALES)}", scale)
    check_integer("seed", seed, low=0)
    execution = Processes() if execution is None else execution
    datasets, missing = _datasets(experiment, scale, only)
    networks = _select("networks", networks, experiment.networks, _defaults(experiment.networks, experiment, scale))
    methods = _select("methods", methods, experiment.methods, experiment.methods)
    selection = Selection(scale, datasets, methods, networks, seed)
    cells = experiment.cells(selection)  # first, so that missing data are an error before anything is trained
    for other, needed in experiment.needs(selection).items():
        _run_cells(Path(out) / other, needed, False, execution)
    records = _run_cells(Path(out) / (experiment.cells_of or name), cells, force, execution)
    summary = experiment.summarise(records, selection)
    summary.notes.extend(map(left_out, missing))
    return _write(Path(out) / name, selection, summary, records)


def _datasets(experiment: Experiment, scale: Scale, only: Sequence[str] | None) -> tuple[tuple[str, ...], list[str]]:
    """The data sets to use, and those that would be used if they were in the data home."""
    home = data_home()
    if only is not None:
        for name in only:
            if experiment.takes_folders and name not in experiment.datasets and Path(name).exists():
                continue
            folder = ", or a folder or zip of pictures that is there" * experiment.takes_folders
            require(name in experiment.datasets, "only", f"among {', '.join(experiment.datasets)}{folder}", name)
            if not card(name).is_here(home):
                raise DatasetError(f"{name} is not in {home}; run: deep-ensembles data fetch {name}")
        return tuple(dict.fromkeys(only)), []
    defaults = _defaults(experiment.datasets, experiment, scale)
    available = [name for name in defaults if card(name).is_here(home)]
    if not available:
        raise DatasetError(f"no data set of {experiment.name} is in {home}; run: deep-ensembles data fetch {defaults[0]}")
    used = tuple(experiment.choose(available))
    return used, [name for name in defaults if name not in available and used == tuple(available)]


def _defaults(names: Sequence[str], experiment: Experiment, scale: Scale) -> list[str]:
    """What is used at a scale unless the user names something."""
    return [name for name in names if scale == "paper" or name not in experiment.only_at_paper_scale]


def _select(setting: str, wanted: Sequence[str] | None, known: Sequence[str], defaults: Sequence[str]) -> tuple[str, ...]:
    """The known names that the user wants, in the order and spelling in which they are known."""
    if wanted is None:
        return tuple(defaults)
    spelling = {name.lower(): name for name in known}
    if setting == "networks" and known:
        spelling |= {name.lower(): name for name in wanted if ":" in name}  # factories to import
    for name in wanted:
        require(name.lower() in spelling, setting, f"among {'; '.join(known)}", name)
    keys = {name.lower() for name in wanted}
    return tuple(name for key, name in spelling.items() if key in keys)


def _run_cells(root: Path, cells: Sequence[Cell], force: bool, execution: Execution) -> list[Record]:
    """Run what is left of an experiment's cells, whose folder has its name; all of them, finished."""
    todo = [cell for cell in cells if force or read_record(root, cell) is None]
    todo.sort(key=lambda cell: -cell.cost)
    with progress(root.name, len(cells), "cells", start=len(cells) - len(todo)) as update:
        for cell, _ in execution(partial(_run_cell, root.name, root), todo):
            update(advance=1, note=cell.name)
    return [record for cell in cells if (record := read_record(root, cell)) is not None]


def _run_cell(name: str, root: Path, cell: Cell) -> None:
    start = time.perf_counter()
    result, arrays = EXPERIMENTS[name].run(cell, root)
    write_record(root, cell, {**result, "seconds": round(time.perf_counter() - start, 2)}, arrays)


def _write(root: Path, selection: Selection, summary: Summary, records: Sequence[Record]) -> Reproduction:
    notes = "".join(f"  · {note}\n" for note in summary.notes)
    text = "\n".join([*(listing.text() for listing in summary.listings), _verdicts(summary.claims), notes])
    paths = [(record.path, record.result["seconds"]) for record in records]
    cells = [{"experiment": path.parent.name, "folder": path.name, "seconds": seconds} for path, seconds in paths]
    results = {"rows": summary.rows, "differences": summary.differences, "claims": list(map(asdict, summary.claims))}
    whole = {"experiment": root.name, **asdict(selection), **results, "notes": summary.notes, "cells": cells}
    files = {"summary.json": json.dumps(json_ready(whole), indent=1, ensure_ascii=False),
             "summary.csv": _csv(summary.rows), "summary.txt": text}  # fmt: skip
    if summary.differences:
        files["differences.csv"] = _csv(summary.differences)
    for name, content in files.items():
        write_atomically(root / name, content.encode())
    pairs = product(summary.figures.items(), ("svg", "png"))
    figures = [save_figure(figure, root / f"{name}.{kind}") for (name, figure), kind in pairs]
    return Reproduction(summary, text, [*(root / name for name in files), *figures])


def _csv(rows: Sequence[dict[str, Any]]) -> str:
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, list(dict.fromkeys(key for row in rows for key in row)), lineterminator="\n")
    writer.writeheader()
    writer.writerows(json_ready(rows))
    return buffer.getvalue()


def _verdicts(claims: Sequence[Claim]) -> str:
    """Statement by statement: on how many data sets it holds, and the numbers."""
    lines, width = ["The paper's statements"], max((len(claim.dataset) for claim in claims), default=0)
    for statement in dict.fromkeys(claim.statement for claim in claims):
        same = [claim for claim in claims if claim.statement == statement]
        holds, total = sum(claim.holds for claim in same), len(same)
        verdict = "holds" if holds == total else f"holds on {holds} of {total}" if holds else "does not hold"
        lines.append(f"\n  {verdict}: {statement} ({same[0].source})")
        lines.extend(f"    {'✓' if claim.holds else '✗'} {claim.dataset:<{width}}  {claim.numbers}" for claim in same)
    return "\n".join(lines) + "\n" if claims else ""
