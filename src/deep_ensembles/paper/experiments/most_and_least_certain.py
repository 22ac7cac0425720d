"""The appendix's image grids: what an ensemble is most and least sure about, among known and unknown classes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from deep_ensembles._terminal import Listing
from deep_ensembles.mixture import Mixture
from deep_ensembles.paper.datasets import images as image_set
from deep_ensembles.paper.experiments import known_unknown_classes
from deep_ensembles.paper.experiments._classification import ADVERSARIAL, ENSEMBLE, chosen, mixture_of
from deep_ensembles.paper.experiments._experiment import Selection, Summary, measured
from deep_ensembles.paper.experiments.known_unknown_classes import known_probabilities, unknown_images
from deep_ensembles.paper.records import Record
from deep_ensembles.report.charts import Figure, Image, Panel, Row

SHOWN = 10


def summarise(records: Sequence[Record], selection: Selection) -> Summary:
    """Per ensemble and set of unknown classes, rows of images by confidence and by disagreement."""
    figures: dict[str, Figure] = {}
    rows: list[dict[str, Any]] = []
    lines: list[list[str]] = []
    for record in records:
        known, unknown, training = (record.cell.config[key] for key in ("known", "unknown", "training"))
        dataset, classes = image_set(known), training["classes"]
        images, labels = chosen(*dataset.part("test"), dataset.classes, classes)
        about = {key: training[key] for key in ("network", "method", "members")}
        panels: list[Row] = []
        for name, shown, probabilities, truth in (
            (known, images, known_probabilities(record)[0], labels),
            (f"{unknown}, unknown classes", unknown_images(unknown, classes), record.arrays()["probabilities"], None),
        ):
            mixture = mixture_of(probabilities, training["members"])
            panels += _image_rows(name, classes or dataset.classes, shown, mixture, truth)
            means = {"mean confidence": float(mixture.confidence.mean()),
                     "mean disagreement": float(mixture.disagreement.mean())}  # fmt: skip
            rows += measured({"dataset": name, **about}, means)
            lines.append([name, about["method"], str(about["members"]), *(f"{mean:.3f}" for mean in means.values())])
        title = f"{about['method']} of {about['members']}, {known} → {unknown}"
        figures[f"most_and_least_certain_{record.cell.name}".replace("-", "_")] = Figure(panels, title, 13)
    table = Listing("How sure, on average", ["", "method", "M", "confidence", "disagreement"], lines)
    return Summary(rows, [], [table], figures=figures)


def _image_rows(
    name: str, classes: Sequence[str], images: np.ndarray, mixture: Mixture, labels: np.ndarray | None
) -> Iterator[Row]:
    confidence, guess, differ = (np.asarray(each) for each in (mixture.confidence, mixture.mode, mixture.disagreement))
    ranks = {"highest confidence": -confidence, "lowest confidence": confidence,
             "lowest disagreement": differ, "highest disagreement": -differ}  # fmt: skip
    for order, rank in ranks.items():
        panels = []
        for i in np.argsort(rank, kind="stable")[:SHOWN].tolist():
            truth = "" if labels is None else f"\nis {classes[labels[i]]}"
            value = f"{differ[i]:.2f}" if "disagreement" in order else f"{confidence[i]:.0%}"
            pixels = images[i][0] if len(images[i]) == 1 else images[i].transpose(1, 2, 0)
            panels.append(Panel([Image(pixels)], f"{classes[guess[i]]} ({value}){truth}"))
        yield Row(panels, f"{name}: {order}", 1.75)


EXPERIMENT = replace(
    known_unknown_classes.EXPERIMENT,
    name="most_and_least_certain",
    makes="appendix: images of highest and lowest confidence and disagreement",
    takes={"smoke": "a minute", "laptop": "a minute after the ensembles are trained", "paper": "minutes after training"},
    methods=(ENSEMBLE, ADVERSARIAL),
    summarise=summarise,
    cells_of=known_unknown_classes.EXPERIMENT.name,
)
