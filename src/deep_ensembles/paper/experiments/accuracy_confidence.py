"""Figure 6: accuracy on the cases that a model is sure about, when some cases are of classes it does not know."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from deep_ensembles._terminal import Listing
from deep_ensembles.metrics import accuracy_confidence_curve, threshold_for_accuracy
from deep_ensembles.paper.experiments import known_unknown_classes
from deep_ensembles.paper.experiments._classification import ADVERSARIAL, DROPOUT, ENSEMBLE, ROLES, mixture_of
from deep_ensembles.paper.experiments._experiment import Claim, Selection, Summary
from deep_ensembles.paper.experiments.known_unknown_classes import known_probabilities, not_here, unknown_cells
from deep_ensembles.paper.records import Cell, Record
from deep_ensembles.report.charts import Figure, Line, Panel, Row

SIZES = (1, 5, 10)
THRESHOLDS = np.linspace(0, 0.9, 10)
WANTED = (0.8, 0.9, 0.95, 0.99)
UNKNOWN = "notmnist"
MIXED = "mnist + notmnist"


def cells(selection: Selection) -> list[Cell]:
    """Those cells of `known_unknown_classes` that ask about notMNIST, one per ensemble."""
    found = [cell for cell in unknown_cells(selection) if cell.config["unknown"] == UNKNOWN]
    if not found:
        raise not_here(UNKNOWN)
    return found


def mixed(record: Record, size: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Confidence and correctness on the known test images and as many unknown ones, whose predictions are all wrong."""
    inside, labels = known_probabilities(record)
    outside = record.arrays()["probabilities"]
    rows = np.random.default_rng(seed).permutation(outside.shape[1])[: len(labels)]
    known, unknown = mixture_of(inside, size), mixture_of(outside[:, rows], size)
    correct = np.concatenate([known.mode.numpy() == labels, np.zeros(len(rows), dtype=bool)])
    return np.concatenate([known.confidence.numpy(), unknown.confidence.numpy()]), correct


def summarise(records: Sequence[Record], selection: Selection) -> Summary:
    """Curves, and the threshold that reaches a wanted accuracy with the share of cases it keeps."""
    rows: list[dict[str, Any]] = []
    panels: list[Panel] = []
    lines: list[list[str]] = []
    for size in (1, *range(5, records[0].cell.config["training"]["members"] + 1)):
        curves = []
        for record in records:
            training = record.cell.config["training"]
            method, (confidence, correct) = training["method"], mixed(record, size, selection.seed)
            curve = accuracy_confidence_curve(confidence, correct, THRESHOLDS)
            common = {"dataset": MIXED, "network": training["network"], "method": method, "members": size}
            rows += [
                {**common, "metric": f"accuracy at τ = {t:.1f}", "value": float(a), "kept": float(k)}
                for t, a, k in zip(curve.threshold, curve.accuracy, curve.kept, strict=True)
            ]
            curves.append(Line(curve.threshold, curve.accuracy, method, ROLES[method], markers=True))
            lines += _inverse(method, size, confidence, correct) if size in SIZES else []
        if size in SIZES:
            title, labels = f"M = {size}", ("confidence threshold τ", "accuracy where confidence ≥ τ")
            panels.append(Panel(curves, title, *labels, (0, 0.92), (0.45, 1), legend=not panels))
    columns = ["", "M", "wanted accuracy", "threshold τ", "accuracy", "share kept"]
    tables = [Listing("MNIST mixed with NotMNIST: the threshold that reaches an accuracy", columns, lines)]
    description = "Accuracy on cases above a confidence threshold, for ensembles and MC-dropout."
    figures = {"accuracy_confidence": Figure([Row(panels)], description=description)}
    return Summary(rows, list(_claims(rows)), tables, figures=figures)


def _inverse(method: str, size: int, confidence: np.ndarray, correct: np.ndarray) -> Iterator[list[str]]:
    for wanted in WANTED:
        told = ["not reached", "–", "–"]
        if (found := threshold_for_accuracy(confidence, correct, wanted)) is not None:
            told = [f"{found.threshold:.4f}", f"{found.accuracy:.1%}", f"{found.kept:.1%}"]
        yield [method, str(size), f"{wanted:.0%}", *told]


def _claims(rows: Sequence[dict[str, Any]]) -> Iterator[Claim]:
    statement = "At confidence ≥ 0.9 ensembles are more often right than MC-dropout"
    at = {(row["members"], row["method"]): row["value"] for row in rows if row["metric"] == "accuracy at τ = 0.9"}
    for size in dict.fromkeys(size for size, _ in at if size >= 5):
        for method in (ENSEMBLE, ADVERSARIAL):
            if (size, method) in at and (size, DROPOUT) in at:
                ours, other = at[size, method], at[size, DROPOUT]
                numbers = f"M = {size}: {method} {ours:.1%}, MC-dropout {other:.1%}"
                yield Claim(statement, "section 3.6", MIXED, ours > other, numbers)


EXPERIMENT = replace(
    known_unknown_classes.EXPERIMENT,
    name="accuracy_confidence",
    makes="Figure 6: accuracy against confidence on MNIST mixed with NotMNIST, and its inverse",
    takes={"smoke": "a minute", "laptop": "a minute after the ensembles are trained", "paper": "minutes after training"},
    datasets=("mnist",),
    cells=cells,
    summarise=summarise,
    cells_of=known_unknown_classes.EXPERIMENT.name,
)
