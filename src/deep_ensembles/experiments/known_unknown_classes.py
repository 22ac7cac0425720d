"""Figures 3 and 5: the entropy of predictions for known classes and for classes never seen."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from torch import Tensor

from deep_ensembles.experiments._classification import ADVERSARIAL, DROPOUT, ENSEMBLE, mixture_of
from deep_ensembles.experiments._experiment import Claim, Experiment, Selection, Summary, measured
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
from deep_ensembles.panels import Figure, Line, Panel, Role, Row
from deep_ensembles.records import Record
from deep_ensembles.tables import Table

SIZES: dict[int, Role] = {1: "muted", 5: "other", 10: "ours"}
BINS = 40
# How unsure, higher for more; confidence counts backwards.
SCORES: dict[str, Callable[[Mixture], Tensor]] = {
    "entropy": lambda mixture: mixture.entropy(),
    "confidence": lambda mixture: -mixture.confidence,
    "mutual information": lambda mixture: mixture.mutual_information,
    "disagreement": lambda mixture: mixture.disagreement,
}
OF_ONE_NETWORK = ("entropy", "confidence")
COLUMNS = {
    "mean entropy, known": "entropy:\nknown",
    "mean entropy, unknown": "entropy:\nunknown",
    "AUROC, entropy": "AUROC:\nentropy",
    "AUROC, confidence": "AUROC:\nconfid.",
    "AUROC, mutual information": "AUROC:\nmut. inf.",
    "AUROC, disagreement": "AUROC:\ndisagr.",
    "FPR at 95 %, entropy": "FPR95:\nentropy",
    "FPR at 95 %, mutual information": "FPR95:\nmut. inf.",
}


def summarise(records: Sequence[Record], selection: Selection) -> Summary:
    """Detection scores and entropy histograms, pair of sets by pair of sets."""
    rows: list[dict[str, Any]] = []
    claims: list[Claim] = []
    tables, figures = [], {}
    pairs = dict.fromkeys((record.cell.config["known"], record.cell.config["unknown"]) for record in records)
    for known, unknown in pairs:
        own = [each for each in records if (each.cell.config["known"], each.cell.config["unknown"]) == (known, unknown)]
        title = f"{known} → {unknown}" if known != unknown else "dogs → non-dogs (tiny-imagenet)"
        found, panels = _pair(title, own)
        rows += found
        tables.append(_table(title, found))
        claims += _claims(title, found)
        words = title.replace("→", "to").replace("(", "").replace(")", "").split()
        about = f"{title}: histograms of predictive entropy for known and unknown classes, by method and ensemble size."
        figures["known_unknown_" + "_".join(words).replace("-", "_")] = Figure(panels, title, 13, about)
    missing = [each for known in selection.datasets for each in KNOWN[known].unknown if (known, each) not in pairs]
    notes = [f"{each} is not here and was left out; run: deep-ensembles data fetch {each}" for each in missing]
    return Summary(rows, claims, tables, figures=figures, notes=notes)


def _pair(title: str, records: Sequence[Record]) -> tuple[list[dict[str, Any]], list[Row]]:
    rows: list[dict[str, Any]] = []
    panels: dict[str, list[Panel]] = {"known classes": [], "unknown classes": [], "confidence, unknown classes": []}
    for record in records:
        training = record.cell.config["training"]
        inside, outside = known_probabilities(record)[0], record.arrays()["probabilities"]
        lines: dict[str, list[Line]] = {name: [] for name in panels}
        for size, role in SIZES.items():
            if size <= len(outside):
                known, unknown = mixture_of(inside, size), mixture_of(outside, size)
                about = {"dataset": title, "network": training["network"], "method": training["method"], "members": size}
                rows += measured(about, _metrics(known, unknown, size))
                label, top = f"M = {size}", np.log(inside.shape[-1])
                lines["known classes"].append(_histogram(known.entropy(), top, label, role))
                lines["unknown classes"].append(_histogram(unknown.entropy(), top, label, role))
                lines["confidence, unknown classes"].append(_histogram(unknown.confidence, 1.0, label, role))
        for name, own in lines.items():
            x_label = "confidence" if name.startswith("confidence") else "entropy (nats)"
            panels[name].append(Panel(own, training["method"], x_label, "density", legend=not panels[name]))
    return rows, [Row(own, name, 3.1) for name, own in panels.items()]


def _histogram(values: Tensor, top: float, label: str, role: Role) -> Line:
    counts, edges = np.histogram(np.clip(values.numpy(), 0, top), bins=BINS, range=(0, top), density=True)
    return Line(np.repeat(edges, 2)[1:-1], np.repeat(counts, 2), label, role)


def _metrics(known: Mixture, unknown: Mixture, size: int) -> dict[str, float]:
    metrics = {
        "mean entropy, known": float(known.entropy().mean()),
        "mean entropy, unknown": float(unknown.entropy().mean()),
    }
    for name, score in SCORES.items():
        if size > 1 or name in OF_ONE_NETWORK:
            found = ood_detection(score(known).numpy(), score(unknown).numpy())
            metrics |= {f"AUROC, {name}": found.auroc, f"FPR at 95 %, {name}": found.fpr}
    return metrics


def _table(title: str, rows: Sequence[dict[str, Any]]) -> Table:
    lines = []
    for method, size in dict.fromkeys((row["method"], row["members"]) for row in rows):
        own = {row["metric"]: row["value"] for row in rows if (row["method"], row["members"]) == (method, size)}
        lines.append([method, str(size), *(f"{own[each]:.3f}" if each in own else "–" for each in COLUMNS)])
    return Table(title, ["", "M", *COLUMNS.values()], lines)


def _claims(title: str, rows: Sequence[dict[str, Any]]) -> Iterator[Claim]:
    entropy = {(row["method"], row["members"]): row["value"] for row in rows if row["metric"] == "mean entropy, unknown"}
    largest = max(size for _, size in entropy)
    for method in (ENSEMBLE, ADVERSARIAL):
        ours = entropy.get((method, largest))
        if ours is not None and largest > 1:
            first = entropy[method, 1]
            statement = "The entropy on unknown classes grows with the number of networks"
            numbers = f"{method}: {first:.3f} → {ours:.3f} (M = {largest})"
            yield Claim(statement, "section 3.5", title, ours > first, numbers)
        if ours is not None and (DROPOUT, largest) in entropy:
            other = entropy[DROPOUT, largest]
            statement = "The entropy on unknown classes is above MC-dropout's"
            numbers = f"{method} {ours:.3f}, MC-dropout {other:.3f} (M = {largest})"
            yield Claim(statement, "section 3.5", title, ours > other, numbers)


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
