"""Ensembles trained elsewhere, asked about classes they have never seen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from deep_ensembles.datasets import DatasetError, card, class_groups, data_home
from deep_ensembles.datasets import images as image_set
from deep_ensembles.experiments import imagenet_ensemble_size, mnist_ensemble_size, svhn_ensemble_size
from deep_ensembles.experiments._classification import (
    ADVERSARIAL,
    DROPOUT,
    ENSEMBLE,
    MODEL,
    SHORT,
    chosen,
    image_cell,
    inputs_for,
    predict,
    set_sums,
)
from deep_ensembles.experiments._experiment import Outcome, Selection
from deep_ensembles.loading import load
from deep_ensembles.records import ARRAYS, Cell, Record

METHODS = (ENSEMBLE, ADVERSARIAL, DROPOUT)
# Dogs are few: batches of 20 make 45 steps of an epoch of Tiny-ImageNet's 900; batches of 100 do about as well.
DOGS = {
    "smoke": {"members": 2, "epochs": 1, "batch_size": 20},
    "laptop": {"members": 5, "epochs": 10, "batch_size": 20},
    "paper": {"members": 10, "epochs": 60},
}


@dataclass(frozen=True)
class Known:
    """What ensembles were trained on.

    Arguments:
        experiment: whose cells they are.
        settings: scale → the settings of these cells.
        network: the one of its networks that is asked.
        unknown: data sets whose images are all of classes they do not know.
    """

    experiment: str
    settings: Mapping[str, Mapping[str, Any]]
    network: str
    unknown: tuple[str, ...]


# By data set; dogs are the classes of that group in Tiny-ImageNet's `classes.tsv`.
KNOWN = {
    "mnist": Known("mnist_ensemble_size", mnist_ensemble_size.SETTINGS, "mlp-3", ("notmnist", "fashion-mnist")),
    "svhn": Known("svhn_ensemble_size", svhn_ensemble_size.SETTINGS, "vgg", ("cifar10",)),
    "tiny-imagenet": Known("imagenet_ensemble_size", imagenet_ensemble_size.SETTINGS, "inception", ("tiny-imagenet",)),
}


def trained_cells(selection: Selection) -> dict[str, list[Cell]]:
    """The cells of other experiments that hold the ensembles."""
    return {
        KNOWN[dataset].experiment: [trained_cell(dataset, method, selection) for method in selection.methods]
        for dataset in selection.datasets
    }


def trained_cell(dataset: str, method: str, selection: Selection) -> Cell:
    """The cell whose ensemble knows this set; of Tiny-ImageNet, its dogs."""
    settings = dict(KNOWN[dataset].settings[selection.scale])
    settings.pop("members_per_cell", None)
    if dataset == "tiny-imagenet":
        dogs = sorted(class_groups(data_home() / "tiny-imagenet" / "classes.tsv")["dog"])
        settings |= DOGS[selection.scale] | {"classes": dogs, "rows": None}
    return image_cell(dataset, KNOWN[dataset].network, method, selection.seed, **settings)


def unknown_cells(selection: Selection) -> list[Cell]:
    """A cell per ensemble and set of unknown classes that is here; there must be one."""
    cells = []
    for dataset in selection.datasets:
        unknown = KNOWN[dataset].unknown
        here = {each: set_sums(each) for each in unknown if card(each).is_here(data_home())}
        if not here:
            raise not_here(unknown[0])
        for each, data in here.items():
            for method in selection.methods:
                trained = trained_cell(dataset, method, selection)
                about = {"experiment": KNOWN[dataset].experiment, "known": dataset, "unknown": each, "data": data}
                config = {**about, "trained": trained.folder, "training": dict(trained.config)}
                cells.append(Cell(f"{dataset}-{each}-{SHORT[method]}", config))
    return cells


def not_here(unknown: str) -> DatasetError:
    """That a set of unknown classes is missing."""
    return DatasetError(f"{unknown}, the unknown classes, is not in {data_home()}; run: deep-ensembles data fetch {unknown}")


def run_unknown(cell: Cell, root: Path) -> Outcome:
    """Predict the images of unknown classes."""
    training = cell.config["training"]
    images = unknown_images(cell.config["unknown"], training["classes"])
    ensemble = load(_trained_folder(cell, root) / MODEL)
    probabilities = predict(ensemble, training, inputs_for(training["network"], images))
    return Outcome({"images": len(images)}, {"probabilities": probabilities})


def known_probabilities(record: Record) -> tuple[np.ndarray, np.ndarray]:
    """(probabilities, labels) of the known test images of the ensemble that a record has asked about unknown ones."""
    with np.load(_trained_folder(record.cell, record.path.parent) / ARRAYS, allow_pickle=False) as file:
        return file["probabilities"], file["label"]


def _trained_folder(cell: Cell, root: Path) -> Path:
    """Where the ensemble that a cell asks was trained."""
    return root.parent / cell.config["experiment"] / cell.config["trained"]


def unknown_images(name: str, known_classes: Sequence[str] | None) -> np.ndarray:
    """Test images of unknown classes; of a set whose classes are partly known, those of the others."""
    dataset = image_set(name)
    return chosen(*dataset.part("test"), dataset.classes, known_classes, others=True)[0]
