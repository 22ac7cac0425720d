"""The appendix's image grids: what an ensemble is most and least sure about, among known and unknown classes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from deep_ensembles.datasets import ImageDataset, load_dataset
from deep_ensembles.experiments import known_unknown_classes
from deep_ensembles.experiments._classification import ADVERSARIAL, ENSEMBLE, chosen, mixture_of
from deep_ensembles.experiments._experiment import Experiment, Selection, Summary
from deep_ensembles.experiments._unknown import (
    KNOWN,
    known_probabilities,
    run_unknown,
    trained_cells,
    unknown_cells,
    unknown_images,
)
from deep_ensembles.panels import Figure, Image, Panel, Row
from deep_ensembles.records import Record
from deep_ensembles.tables import Table

SHOWN = 10


def summarise(records: Sequence[Record], selection: Selection) -> Summary:
    """Per ensemble and set of unknown classes, rows of images by confidence and by disagreement."""
    figures, rows = {}, []
    for record in records:
        config = record.cell.config
        dataset = load_dataset(config["known"])
        assert isinstance(dataset, ImageDataset)
        classes = config["training"]["classes"]
        names = dataset.classes if classes is None else classes
        known, labels = chosen(*dataset.part("test"), dataset.classes, classes)
        unknown, _ = unknown_images(config["unknown"], classes)
        parts = ((config["known"], known, known_probabilities(record)[0], labels),
                 (config["unknown"] + ", unknown classes", unknown, record.arrays()["probabilities"], None))  # fmt: skip
        lines = [line for name, *part in parts for line in _lines(name, names, *part)]
        title = f"{config['training']['method']} of {config['training']['members']}, {config['known']} → {config['unknown']}"
        figures[f"most_and_least_certain_{record.cell.name}".replace("-", "_")] = Figure(lines, title, 13)
        rows += _rows(config, parts)
    return Summary(rows, [], [_table(rows)], figures=figures)


def _lines(
    name: str, classes: Sequence[str], images: np.ndarray, probabilities: np.ndarray, labels: np.ndarray | None
) -> list[Row]:
    mixture = mixture_of(probabilities, len(probabilities))
    confidence, guess, differ = (np.asarray(each) for each in (mixture.confidence, mixture.mode, mixture.disagreement))
    ranks = {"highest confidence": -confidence, "lowest confidence": confidence,
             "lowest disagreement": differ, "highest disagreement": -differ}  # fmt: skip
    rows = []
    for order, rank in ranks.items():
        panels = []
        for i in np.argsort(rank, kind="stable")[:SHOWN].tolist():
            truth = "" if labels is None else f"\nis {classes[labels[i]]}"
            value = f"{differ[i]:.2f}" if "disagreement" in order else f"{confidence[i]:.0%}"
            panels.append(Panel([Image(_pixels(images[i]))], f"{classes[guess[i]]} ({value}){truth}"))
        rows.append(Row(panels, f"{name}: {order}", 1.75))
    return rows


def _pixels(image: np.ndarray) -> np.ndarray:
    return image[0] if len(image) == 1 else image.transpose(1, 2, 0)


def _rows(config: Any, parts: Any) -> list[dict[str, Any]]:
    rows = []
    for name, _, probabilities, _ in parts:
        mixture = mixture_of(probabilities, len(probabilities))
        common = {"dataset": name, "network": config["training"]["network"], "method": config["training"]["method"],
                  "members": len(probabilities)}  # fmt: skip
        rows += [
            {**common, "metric": "mean confidence", "value": float(mixture.confidence.mean())},
            {**common, "metric": "mean disagreement", "value": float(mixture.disagreement.mean())},
        ]
    return rows


def _table(rows: Sequence[dict[str, Any]]) -> Table:
    lines = []
    for confidence, disagreement in zip(rows[::2], rows[1::2], strict=True):
        about = [confidence["dataset"], confidence["method"], str(confidence["members"])]
        lines.append([*about, f"{confidence['value']:.3f}", f"{disagreement['value']:.3f}"])
    return Table("How sure, on average", ["", "method", "M", "confidence", "disagreement"], lines)


EXPERIMENT = Experiment(
    name="most_and_least_certain",
    makes="appendix: images of highest and lowest confidence and disagreement",
    takes={"smoke": "a minute", "laptop": "a minute after the ensembles are trained", "paper": "minutes after training"},
    datasets=tuple(KNOWN),
    methods=(ENSEMBLE, ADVERSARIAL),
    cells=unknown_cells,
    run=run_unknown,
    summarise=summarise,
    only_at_paper_scale=("svhn", "tiny-imagenet"),
    needs=trained_cells,
    cells_of=known_unknown_classes.EXPERIMENT.name,
)
