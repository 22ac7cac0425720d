"""The shape that the three experiments on ensemble size share: scores against M, method by method."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from deep_ensembles.experiments._classification import (
    ADVERSARIAL,
    DROPOUT,
    ENSEMBLE,
    RANDOM,
    ROLES,
    image_cell,
    scores_by_size,
    train_images,
)
from deep_ensembles.experiments._experiment import Claim, Experiment, Outcome, Selection, Summary
from deep_ensembles.panels import Figure, Line, Panel, Row
from deep_ensembles.records import Cell, Record
from deep_ensembles.tables import Table

TITLES = {"error": "classification error", "top_5_error": "top-5 error", "nll": "NLL", "brier": "Brier score (÷ K)"}
HEADS = {"error": "error", "top_5_error": "top-5 error", "nll": "NLL", "brier": "Brier ÷ K"}
LISTED = (1, 2, 3, 5, 10, 15)


def ensemble_size(
    name: str,
    makes: str,
    takes: dict[Any, str],
    dataset: str,
    methods: Sequence[str],
    networks: Sequence[str],
    settings: Mapping[str, Mapping[str, Any]],
    **others: Any,
) -> Experiment:
    """An experiment that trains each network with each method, and scores the first 1, 2, … members.

    Arguments:
        settings: scale → the settings of its cells, see `image_cell`; with `members_per_cell`, an ensemble is spread over
            several cells, for a cluster.
        others: `by_network`, network → scale → the settings that it has instead; `metrics` to show; `paper`, its numbers by
            metric; and settings of `Experiment`.
    """
    metrics, paper = others.pop("metrics", ("error", "nll", "brier")), others.pop("paper", {})
    by_network = others.pop("by_network", {})
    return Experiment(
        name=name,
        makes=makes,
        takes=takes,
        datasets=(dataset,),
        takes_folders=True,
        methods=tuple(methods),
        networks=tuple(networks),
        cells=partial(_cells, settings, by_network),
        run=partial(_run, name),
        summarise=partial(_summarise, name, metrics, paper),
        **others,
    )


def _cells(
    settings: Mapping[str, Mapping[str, Any]], by_network: Mapping[str, Mapping[str, Any]], selection: Selection
) -> list[Cell]:
    cells = []
    for dataset, network, method in product(selection.datasets, selection.networks, selection.methods):
        own = {**settings[selection.scale], **by_network.get(network, {}).get(selection.scale, {})}
        together = own.pop("members_per_cell", own["members"])
        for group in range(own["members"] // together):
            seed = selection.seed + 1000 * group
            cells.append(image_cell(dataset, network, method, seed, **{**own, "members": together}))
    return cells


def _run(name: str, cell: Cell, out: Path) -> Outcome:
    return train_images(cell, out / name)


def _summarise(
    name: str, metrics: Sequence[str], paper: dict[str, Sequence[float]], records: Sequence[Record], selection: Selection
) -> Summary:
    rows, tables, figure_rows, claims = [], [], [], []
    for dataset, network in product(selection.datasets, selection.networks):
        own = [each for each in records if (each.cell.config["dataset"], each.cell.config["network"]) == (dataset, network)]
        methods = dict.fromkeys(record.cell.config["method"] for record in own)
        sizes = {each: _sizes([record for record in own if record.cell.config["method"] == each]) for each in methods}
        for method, found in sizes.items():
            for each in found:
                known = {metric: values[each["members"] - 1] for metric, values in paper.items()
                         if each["members"] <= len(values)}  # fmt: skip
                rows += [
                    {"dataset": dataset, "network": network, "method": method, "members": each["members"],
                     "metric": metric, "value": value, "paper": known.get(metric)}
                    for metric, value in each.items() if metric != "members"
                ]  # fmt: skip
        tables.append(_table(f"{dataset}, {network}", sizes, metrics, paper))
        figure_rows.append(_figure_row(f"{dataset}, {network}", sizes, metrics))
        claims += _claims(f"{dataset}, {network}", sizes)
    description = "Scores against the number of networks, a line per method."
    notes = [f"{record.cell.name}: {record.result['training_seconds']:.0f} s of training" for record in records]
    for dataset in selection.datasets:
        data = next(each.cell.config["data"] for each in records if each.cell.config["dataset"] == dataset)
        notes += [f"{dataset} was read from {', '.join(data)}."] if isinstance(data, dict) else []
    return Summary(rows, claims, tables, figures={name: Figure(figure_rows, description=description)}, notes=notes)


def _sizes(records: Sequence[Record]) -> list[dict[str, Any]]:
    """Scores by ensemble size; of several cells, of all their members together."""
    if len(records) == 1:
        return records[0].result["sizes"]
    parts = [record.arrays() for record in records]
    return scores_by_size(np.concatenate([part["probabilities"] for part in parts]), parts[0]["label"])


def _table(title: str, sizes: dict[str, Any], metrics: Sequence[str], paper: dict[str, Sequence[float]]) -> Table:
    lines = []
    for method, found in sizes.items():
        for each in found:
            if each["members"] in LISTED or paper:
                told = [_number(metric, each[metric]) for metric in metrics]
                known = [_number(metric, paper[metric][each["members"] - 1]) for metric in metrics if metric in paper]
                lines.append([method, str(each["members"]), *told, *known])
    known = [f"paper's\n{HEADS[metric]}" for metric in metrics if metric in paper]
    return Table(title, ["", "M", *(HEADS[metric] for metric in metrics), *known], lines)


def _number(metric: str, value: float) -> str:
    return f"{value:.2%}" if "error" in metric else f"{value:.5f}" if metric == "brier" else f"{value:.4f}"


def _figure_row(title: str, sizes: dict[str, Any], metrics: Sequence[str]) -> Row:
    panels, x_label = [], "number of networks" + " (MC-dropout: of samples)" * (DROPOUT in sizes)
    for metric in metrics:
        lines = [
            Line([each["members"] for each in found], [each[metric] for each in found], method, ROLES[method], markers=True)  # type: ignore[arg-type]
            for method, found in sizes.items()
        ]
        panels.append(Panel(lines, TITLES[metric], x_label, legend=metric == metrics[0]))
    return Row(panels, title, 4.2)


def _claims(dataset: str, sizes: dict[str, Any]) -> list[Claim]:
    claims = []
    for metric in ("error", "nll", "brier"):
        for method, found in sizes.items():
            if method != DROPOUT:
                first, last = found[0][metric], found[-1][metric]
                statement = f"{TITLES[metric]} falls with the number of networks"
                numbers = f"{method}: {_number(metric, first)} → {_number(metric, last)} (M = {len(found)})"
                claims.append(Claim(statement, "section 3.4", dataset, last < first, numbers))
        orders = ((ADVERSARIAL, ENSEMBLE), (ADVERSARIAL, RANDOM), (ENSEMBLE, DROPOUT), (ADVERSARIAL, DROPOUT))
        for better, worse in orders:
            if better in sizes and worse in sizes:
                claims.append(_order(dataset, metric, better, worse, sizes))
    return claims


def _order(dataset: str, metric: str, better: str, worse: str, sizes: dict[str, Any]) -> Claim:
    """Whether one method is below another at every size from 5 on (or at the largest, if there are fewer)."""
    least = min(5, len(sizes[better]))
    pairs = [(a, b) for a, b in zip(sizes[better], sizes[worse], strict=True) if a["members"] >= least]
    wins = sum(a[metric] < b[metric] for a, b in pairs)
    last = f"{_number(metric, pairs[-1][0][metric])} and {_number(metric, pairs[-1][1][metric])} at the largest M"
    statement = f"{TITLES[metric]}: {better} is below {worse} at M ≥ {least}"
    return Claim(statement, "section 3.4", dataset, wins == len(pairs), f"at {wins} of {len(pairs)} sizes; {last}")
