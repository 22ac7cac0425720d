"""Figures 3 and 5: the entropy of predictions for known classes and for classes never seen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from deep_ensembles.experiments._classification import ADVERSARIAL, DROPOUT, ENSEMBLE, mixture_of
from deep_ensembles.experiments._experiment import Claim, Experiment, Selection, Summary
from deep_ensembles.experiments._unknown import (
    KNOWN,
    METHODS,
    known_probabilities,
    run_unknown,
    trained_cells,
    unknown_cells,
)
from deep_ensembles.metrics import ood_detection
from deep_ensembles.mixture import Mixture
from deep_ensembles.panels import Figure, Line, Panel, Row
from deep_ensembles.records import Record
from deep_ensembles.tables import Table

SIZES = (1, 5, 10)
BINS = 40
SCORES = ("entropy", "confidence", "mutual information", "disagreement")
ROLES = ("muted", "other", "ours")


def uncertainty(mixture: Mixture, score: str) -> np.ndarray:
    """How unsure, higher for more; confidence counts backwards."""
    values = {
        "entropy": lambda: mixture.entropy(),
        "confidence": lambda: -mixture.confidence,
        "mutual information": lambda: mixture.mutual_information,
        "disagreement": lambda: mixture.disagreement,
    }[score]()
    return np.asarray(values)


def summarise(records: Sequence[Record], selection: Selection) -> Summary:
    """Detection scores and entropy histograms, pair of sets by pair of sets."""
    rows: list[dict[str, Any]] = []
    tables, claims, figures = [], [], {}
    pairs = dict.fromkeys((record.cell.config["known"], record.cell.config["unknown"]) for record in records)
    for known, unknown in pairs:
        own = [each for each in records if (each.cell.config["known"], each.cell.config["unknown"]) == (known, unknown)]
        title = f"{known} → {unknown}" if known != unknown else "dogs → non-dogs (tiny-imagenet)"
        found, panels = _pair(title, own)
        rows += found
        tables.append(_table(title, found))
        claims += _claims(title, found)
        words = title.replace("→", "to").replace("(", "").replace(")", "").split()
        figures["known_unknown_" + "_".join(words).replace("-", "_")] = Figure(panels, title, 13, _describe(title))
    missing = [each for known in selection.datasets for each in KNOWN[known].unknown if (known, each) not in pairs]
    notes = [f"{each} is not here and was left out; run: deep-ensembles data fetch {each}" for each in missing]
    return Summary(rows, claims, tables, figures=figures, notes=notes)


def _describe(title: str) -> str:
    return f"{title}: histograms of predictive entropy for known and unknown classes, by method and ensemble size."


def _pair(title: str, records: Sequence[Record]) -> tuple[list[dict[str, Any]], list[Row]]:
    rows: list[dict[str, Any]] = []
    panels: dict[str, list[Panel]] = {"known classes": [], "unknown classes": [], "confidence, unknown classes": []}
    for record in records:
        method = record.cell.config["training"]["method"]
        inside, _ = known_probabilities(record)
        outside = record.arrays()["probabilities"]
        sizes = [size for size in SIZES if size <= len(outside)]
        lines: dict[str, list[Line]] = {name: [] for name in panels}
        for size in sizes:
            known, unknown = mixture_of(inside, size), mixture_of(outside, size)
            rows += _rows(title, record, size, known, unknown)
            role, top = ROLES[SIZES.index(size)], np.log(inside.shape[-1])
            for name, values, limit in (
                ("known classes", known.entropy(), top),
                ("unknown classes", unknown.entropy(), top),
                ("confidence, unknown classes", unknown.confidence, 1.0),
            ):
                lines[name].append(_histogram(values, limit, f"M = {size}", role))
        for name, own in lines.items():
            label = "confidence" if name.startswith("confidence") else "entropy (nats)"
            panels[name].append(Panel(own, method, label, "density", legend=not panels[name]))
    return rows, [Row(own, name, 3.1) for name, own in panels.items()]


def _histogram(values: torch.Tensor, top: float, label: str, role: Any) -> Line:
    counts, edges = np.histogram(np.clip(values.numpy(), 0, top), bins=BINS, range=(0, top), density=True)
    return Line(np.repeat(edges, 2)[1:-1], np.repeat(counts, 2), label, role)


def _rows(title: str, record: Record, size: int, known: Mixture, unknown: Mixture) -> list[dict[str, Any]]:
    training = record.cell.config["training"]
    common = {"dataset": title, "network": training["network"], "method": training["method"], "members": size}
    rows = [
        {**common, "metric": "mean entropy, known", "value": float(known.entropy().mean())},
        {**common, "metric": "mean entropy, unknown", "value": float(unknown.entropy().mean())},
    ]
    for score in SCORES:
        if size > 1 or score in ("entropy", "confidence"):
            found = ood_detection(uncertainty(known, score), uncertainty(unknown, score))
            rows.append({**common, "metric": f"AUROC, {score}", "value": found.auroc})
            rows.append({**common, "metric": f"FPR at 95 %, {score}", "value": found.fpr})
    return rows


def _table(title: str, rows: Sequence[dict[str, Any]]) -> Table:
    columns = {"mean entropy, known": "entropy:\nknown", "mean entropy, unknown": "entropy:\nunknown"}
    short = zip(SCORES, ("entropy", "confid.", "mut. inf.", "disagr."), strict=True)
    columns |= {f"AUROC, {score}": f"AUROC:\n{name}" for score, name in short}
    columns |= {"FPR at 95 %, entropy": "FPR95:\nentropy", "FPR at 95 %, mutual information": "FPR95:\nmut. inf."}
    lines = []
    for method, size in dict.fromkeys((row["method"], row["members"]) for row in rows):
        own = {row["metric"]: row["value"] for row in rows if (row["method"], row["members"]) == (method, size)}
        lines.append([method, str(size), *(f"{own[each]:.3f}" if each in own else "–" for each in columns)])
    return Table(title, ["", "M", *columns.values()], lines)


def _claims(title: str, rows: Sequence[dict[str, Any]]) -> list[Claim]:
    entropy = {(row["method"], row["members"]): row["value"] for row in rows if row["metric"] == "mean entropy, unknown"}
    largest = max(size for _, size in entropy)
    claims = []
    for method in (ENSEMBLE, ADVERSARIAL):
        if (method, 1) in entropy and largest > 1:
            first, last = entropy[method, 1], entropy[method, largest]
            numbers = f"{method}: {first:.3f} → {last:.3f} (M = {largest})"
            statement = "The entropy on unknown classes grows with the number of networks"
            claims.append(Claim(statement, "section 3.5", title, last > first, numbers))
        if (method, largest) in entropy and (DROPOUT, largest) in entropy:
            ours, other = entropy[method, largest], entropy[DROPOUT, largest]
            statement = "The entropy on unknown classes is above MC-dropout's"
            numbers = f"{method} {ours:.3f}, MC-dropout {other:.3f} (M = {largest})"
            claims.append(Claim(statement, "section 3.5", title, ours > other, numbers))
    return claims


EXPERIMENT = Experiment(
    name="known_unknown_classes",
    makes="Figures 3 and 5: entropy of known and unknown classes, and how well they are told apart",
    takes={
        "smoke": "a minute",
        "laptop": "2 minutes after the ensembles are trained (dogs: half an hour)",
        "paper": "minutes after training",
    },
    datasets=tuple(KNOWN),
    methods=METHODS,
    cells=unknown_cells,
    run=run_unknown,
    summarise=summarise,
    only_at_paper_scale=("svhn", "tiny-imagenet"),
    needs=trained_cells,
)
