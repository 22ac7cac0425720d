"""Figure 6 and the appendix's image grids: what ensembles are sure about, among classes that they know and others.

Both look at the cells of `known_unknown_classes` in their own way.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from deep_ensembles import Mixture, metrics
from deep_ensembles._terminal import Listing
from deep_ensembles.paper import datasets
from deep_ensembles.paper.experiments import known_unknown_classes as known_unknown
from deep_ensembles.paper.experiments._classification import ADVERSARIAL, DROPOUT, ENSEMBLE, METHODS, mixture_of, of_classes
from deep_ensembles.paper.experiments._experiment import Claim, Selection, Summary, metric_rows
from deep_ensembles.paper.records import Cell, Record
from deep_ensembles.report.charts import Figure, Image, Line, Panel, Row

SIZES = (1, 5, 10)
THRESHOLDS = np.linspace(0, 0.9, 10)
TARGETS = (0.8, 0.9, 0.95, 0.99)
UNKNOWN = "notmnist"
MIXED = "mnist + notmnist"
N_SHOWN = 10


def notmnist_cells(selection: Selection) -> list[Cell]:
    """Those cells of `known_unknown_classes` that ask about notMNIST, one per ensemble."""
    cells = [cell for cell in known_unknown.unknown_cells(selection) if cell.config["unknown"] == UNKNOWN]
    if not cells:
        raise known_unknown.missing(UNKNOWN)
    return cells


def mixed(record: Record, size: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Confidence and correctness on the known test images and as many unknown ones, whose predictions are all wrong."""
    of_known, labels = known_unknown.known_probabilities(record)
    of_unknown = record.arrays()["probabilities"]
    rows = np.random.default_rng(seed).permutation(of_unknown.shape[1])[: len(labels)]
    known, unknown = mixture_of(of_known, size), mixture_of(of_unknown[:, rows], size)
    correct = np.concatenate([known.mode.numpy() == labels, np.zeros(len(rows), dtype=bool)])
    return np.concatenate([known.confidence.numpy(), unknown.confidence.numpy()]), correct


def summarise_accuracy(records: Sequence[Record], selection: Selection) -> Summary:
    """Curves, and the threshold that reaches a target accuracy with the share of cases it keeps."""
    rows: list[dict[str, Any]] = []
    panels: list[Panel] = []
    lines: list[list[str]] = []
    for size in (1, *range(5, records[0].cell.config["training"]["members"] + 1)):
        curves = []
        for record in records:
            training = record.cell.config["training"]
            method, (confidence, correct) = training["method"], mixed(record, size, selection.seed)
            curve = metrics.accuracy_confidence_curve(confidence, correct, THRESHOLDS)
            about = {"dataset": MIXED, "network": training["network"], "method": method, "members": size}
            rows += [
                {**about, "metric": f"accuracy at τ = {t:.1f}", "value": float(a), "kept": float(k)}
                for t, a, k in zip(curve.threshold, curve.accuracy, curve.kept, strict=True)
            ]
            curves.append(Line(curve.threshold, curve.accuracy, method, METHODS[method].role, markers=True))
            lines += _thresholds(method, size, confidence, correct) if size in SIZES else []
        if size in SIZES:
            title, labels = f"M = {size}", ("confidence threshold τ", "accuracy where confidence ≥ τ")
            panels.append(Panel(curves, title, *labels, (0, 0.92), (0.45, 1), legend=not panels))
    columns = ["", "M", "wanted accuracy", "threshold τ", "accuracy", "share kept"]
    listing = Listing("MNIST mixed with NotMNIST: the threshold that reaches an accuracy", columns, lines)
    description = "Accuracy on cases above a confidence threshold, for ensembles and MC-dropout."
    figures = {"accuracy_confidence": Figure([Row(panels)], description=description)}
    return Summary(rows, list(_claims(rows)), [listing], figures=figures)


def _thresholds(method: str, size: int, confidence: np.ndarray, correct: np.ndarray) -> Iterator[list[str]]:
    for target in TARGETS:
        texts = ["not reached", "–", "–"]
        if (point := metrics.threshold_for_accuracy(confidence, correct, target)) is not None:
            texts = [f"{point.threshold:.4f}", f"{point.accuracy:.1%}", f"{point.kept:.1%}"]
        yield [method, str(size), f"{target:.0%}", *texts]


def _claims(rows: Sequence[dict[str, Any]]) -> Iterator[Claim]:
    statement = "At confidence ≥ 0.9 ensembles are more often right than MC-dropout"
    accuracy = {(row["members"], row["method"]): row["value"] for row in rows if row["metric"] == "accuracy at τ = 0.9"}
    for size in dict.fromkeys(size for size, _ in accuracy if size >= 5):
        for method in (ENSEMBLE, ADVERSARIAL):
            if (size, method) in accuracy and (size, DROPOUT) in accuracy:
                ours, other = accuracy[size, method], accuracy[size, DROPOUT]
                numbers = f"M = {size}: {method} {ours:.1%}, MC-dropout {other:.1%}"
                yield Claim(statement, "section 3.6", MIXED, ours > other, numbers)


def summarise_images(records: Sequence[Record], selection: Selection) -> Summary:
    """Per ensemble and set of unknown classes, rows of images by confidence and by disagreement."""
    figures: dict[str, Figure] = {}
    rows: list[dict[str, Any]] = []
    lines: list[list[str]] = []
    for record in records:
        known, unknown, training = (record.cell.config[key] for key in ("known", "unknown", "training"))
        dataset, classes = datasets.images(known), training["classes"]
        images, labels = of_classes(*dataset.part("test"), dataset.classes, classes)
        of_known, of_unknown = known_unknown.known_probabilities(record)[0], record.arrays()["probabilities"]
        about = {key: training[key] for key in ("network", "method", "members")}
        figure_rows: list[Row] = []
        for name, pixels, probabilities, truth in (
            (known, images, of_known, labels),
            (f"{unknown}, unknown classes", known_unknown.unknown_images(unknown, classes), of_unknown, None),
        ):
            mixture = mixture_of(probabilities, training["members"])
            figure_rows += _image_rows(name, classes or dataset.classes, pixels, mixture, truth)
            means = {"mean confidence": float(mixture.confidence.mean()),
                     "mean disagreement": float(mixture.disagreement.mean())}  # fmt: skip
            rows += metric_rows({"dataset": name, **about}, means)
            lines.append([name, about["method"], str(about["members"]), *(f"{mean:.3f}" for mean in means.values())])
        title = f"{about['method']} of {about['members']}, {known} → {unknown}"
        figures[f"most_and_least_certain_{record.cell.name}".replace("-", "_")] = Figure(figure_rows, title, 13)
    listing = Listing("How sure, on average", ["", "method", "M", "confidence", "disagreement"], lines)
    return Summary(rows, [], [listing], figures=figures)


def _image_rows(
    name: str, classes: Sequence[str], images: np.ndarray, mixture: Mixture, labels: np.ndarray | None
) -> Iterator[Row]:
    confidence, guess, disagreement = (t.numpy() for t in (mixture.confidence, mixture.mode, mixture.disagreement))
    ranks = {"highest confidence": -confidence, "lowest confidence": confidence,
             "lowest disagreement": disagreement, "highest disagreement": -disagreement}  # fmt: skip
    for order, rank in ranks.items():
        panels = []
        for i in np.argsort(rank, kind="stable")[:N_SHOWN].tolist():
            truth = "" if labels is None else f"\nis {classes[labels[i]]}"
            value = f"{disagreement[i]:.2f}" if "disagreement" in order else f"{confidence[i]:.0%}"
            pixels = images[i][0] if len(images[i]) == 1 else images[i].transpose(1, 2, 0)
            panels.append(Panel([Image(pixels)], f"{classes[guess[i]]} ({value}){truth}"))
        yield Row(panels, f"{name}: {order}", 1.75)


ACCURACY_CONFIDENCE = replace(
    known_unknown.KNOWN_UNKNOWN_CLASSES,
    name="accuracy_confidence",
    makes="Figure 6: accuracy against confidence on MNIST mixed with NotMNIST, and its inverse",
    takes={"smoke": "a minute", "laptop": "a minute after the ensembles are trained", "paper": "minutes after training"},
    datasets=("mnist",),
    cells=notmnist_cells,
    summarise=summarise_accuracy,
    cells_of=known_unknown.KNOWN_UNKNOWN_CLASSES.name,
)
MOST_AND_LEAST_CERTAIN = replace(
    ACCURACY_CONFIDENCE,
    name="most_and_least_certain",
    makes="appendix: images of highest and lowest confidence and disagreement",
    datasets=known_unknown.KNOWN_UNKNOWN_CLASSES.datasets,
    methods=(ENSEMBLE, ADVERSARIAL),
    cells=known_unknown.KNOWN_UNKNOWN_CLASSES.cells,
    summarise=summarise_images,
)
