"""What the three experiments on ensemble size share: cells that train, and scores against M, method by method."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any, TypeAlias

import numpy as np

from deep_ensembles._terminal import Listing
from deep_ensembles.paper.experiments._classification import (
    ADVERSARIAL,
    DROPOUT,
    ENSEMBLE,
    RANDOM,
    ROLES,
    image_cell,
    scores_by_size,
)
from deep_ensembles.paper.experiments._experiment import Claim, Selection, Summary
from deep_ensembles.paper.records import Cell, Record
from deep_ensembles.report.charts import Figure, Line, Panel, Row

TITLES = {"error": "classification error", "top_5_error": "top-5 error", "nll": "NLL", "brier": "Brier score (÷ K)"}
HEADS = {**TITLES, "error": "error", "brier": "Brier ÷ K"}
METRICS = ("error", "nll", "brier")
LISTED = (1, 2, 3, 5, 10, 15)
# The method that the paper finds better, and the one it finds worse.
ORDERS = ((ADVERSARIAL, ENSEMBLE), (ADVERSARIAL, RANDOM), (ENSEMBLE, DROPOUT), (ADVERSARIAL, DROPOUT))

Settings: TypeAlias = Mapping[str, Mapping[str, Any]]  # scale -> settings of cells, see `image_cell`
Sizes: TypeAlias = Mapping[str, Sequence[Mapping[str, Any]]]  # method -> the scores of 1, 2, … members
Paper: TypeAlias = Mapping[str, Sequence[float]]  # metric -> the paper's numbers for 1, 2, … members


def ensemble_cells(settings: Settings, selection: Selection, by_network: Mapping[str, Settings] | None = None) -> list[Cell]:
    """Cells that train each network with each method.

    Arguments:
        settings: with `members_per_cell`, an ensemble is spread over several cells, for a cluster.
        by_network: network → the settings that it has instead.
    """
    cells = []
    for dataset, network, method in product(selection.datasets, selection.networks, selection.methods):
        instead = (by_network or {}).get(network, {}).get(selection.scale, {})
        own = {**settings[selection.scale], **instead}
        together = own.pop("members_per_cell", own["members"])
        for group in range(own["members"] // together):
            seed = selection.seed + 1000 * group
            cells.append(image_cell(dataset, network, method, seed, **{**own, "members": together}))
    return cells


def summarise_sizes(
    name: str,
    records: Sequence[Record],
    selection: Selection,
    metrics: Sequence[str] = METRICS,
    paper: Paper | None = None,
) -> Summary:
    """Scores of the first 1, 2, … members, beside the paper's where it prints them, as rows, tables and a figure by name."""
    rows, tables, panels, paper = [], [], [], paper or {}
    claims: list[Claim] = []
    for dataset, network in product(selection.datasets, selection.networks):
        title = f"{dataset}, {network}"
        sizes = {method: _sizes(records, dataset, network, method) for method in selection.methods}
        rows += [
            {"dataset": dataset, "network": network, "method": method, "members": each["members"], "metric": metric,
             "value": value, "paper": paper[metric][each["members"] - 1] if metric in paper else None}
            for method, found in sizes.items() for each in found
            for metric, value in each.items() if metric != "members"
        ]  # fmt: skip
        tables.append(_table(title, sizes, metrics, paper))
        panels.append(_figure_row(title, sizes, metrics))
        claims += _claims(title, sizes)
    notes = [f"{record.cell.name}: {record.result['training_seconds']:.0f} s of training" for record in records]
    for dataset, data in {each.cell.config["dataset"]: each.cell.config["data"] for each in records}.items():
        notes += [f"{dataset} was read from {', '.join(data)}."] if isinstance(data, dict) else []
    figure = Figure(panels, description="Scores against the number of networks, a line per method.")
    return Summary(rows, claims, tables, figures={name: figure}, notes=notes)


def _sizes(records: Sequence[Record], *wanted: str) -> list[dict[str, Any]]:
    """Scores by ensemble size of a data set, network and method; of several cells, of all their members together."""
    own = [each for each in records if tuple(each.cell.config[key] for key in ("dataset", "network", "method")) == wanted]
    if len(own) == 1:
        return own[0].result["sizes"]
    parts = [record.arrays() for record in own]
    return scores_by_size(np.concatenate([part["probabilities"] for part in parts]), parts[0]["label"])


def _table(title: str, sizes: Sizes, metrics: Sequence[str], paper: Paper) -> Listing:
    printed = [metric for metric in metrics if metric in paper]
    lines = [
        [
            method,
            str(each["members"]),
            *(_number(metric, each[metric]) for metric in metrics),
            *(_number(metric, paper[metric][each["members"] - 1]) for metric in printed),
        ]
        for method, found in sizes.items()
        for each in found
        if each["members"] in LISTED or paper
    ]
    heads = [*(HEADS[metric] for metric in metrics), *(f"paper's\n{HEADS[metric]}" for metric in printed)]
    return Listing(title, ["", "M", *heads], lines)


def _number(metric: str, value: float) -> str:
    return f"{value:.2%}" if "error" in metric else f"{value:.5f}" if metric == "brier" else f"{value:.4f}"


def _figure_row(title: str, sizes: Sizes, metrics: Sequence[str]) -> Row:
    panels, x_label = [], "number of networks" + " (MC-dropout: of samples)" * (DROPOUT in sizes)
    for metric in metrics:
        lines = [
            Line([each["members"] for each in found], [each[metric] for each in found], method, ROLES[method], markers=True)
            for method, found in sizes.items()
        ]
        panels.append(Panel(lines, TITLES[metric], x_label, legend=metric == metrics[0]))
    return Row(panels, title, 4.2)


def _claims(dataset: str, sizes: Sizes) -> Iterator[Claim]:
    for metric in METRICS:
        for method, found in sizes.items():
            if method != DROPOUT:
                first, last = found[0][metric], found[-1][metric]
                statement = f"{TITLES[metric]} falls with the number of networks"
                numbers = f"{method}: {_number(metric, first)} → {_number(metric, last)} (M = {len(found)})"
                yield Claim(statement, "section 3.4", dataset, last < first, numbers)
        for better, worse in ORDERS:
            if better in sizes and worse in sizes:
                yield _order(dataset, metric, better, worse, sizes)


def _order(dataset: str, metric: str, better: str, worse: str, sizes: Sizes) -> Claim:
    """Whether one method is below another at every size from 5 on (or at the largest, if there are fewer)."""
    least = min(5, len(sizes[better]))
    pairs = [(a[metric], b[metric]) for a, b in zip(sizes[better], sizes[worse], strict=True) if a["members"] >= least]
    wins, (ours, theirs) = sum(a < b for a, b in pairs), pairs[-1]
    last = f"{_number(metric, ours)} and {_number(metric, theirs)} at the largest M"
    statement = f"{TITLES[metric]}: {better} is below {worse} at M ≥ {least}"
    return Claim(statement, "section 3.4", dataset, wins == len(pairs), f"at {wins} of {len(pairs)} sizes; {last}")
