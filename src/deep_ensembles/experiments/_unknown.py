"""Ensembles trained elsewhere, asked about classes they have never seen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from deep_ensembles.datasets import DatasetError, ImageDataset, card, class_groups, data_home, load_dataset
from deep_ensembles.experiments import imagenet_ensemble_size, mnist_ensemble_size, svhn_ensemble_size
from deep_ensembles.experiments._classification import (
    ADVERSARIAL,
    DROPOUT,
    ENSEMBLE,
    SHORT,
    chosen,
    image_cell,
    inputs_for,
    predict,
    saved_ensemble,
    set_sums,
)
from deep_ensembles.experiments._experiment import Outcome, Selection
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
        dataset, network: of these cells.
        unknown: data sets whose images are all of classes they do not know.
    """

    experiment: str
    dataset: str
    network: str
    unknown: tuple[str, ...]


# By the name under which a user picks them; dogs are the classes of that group in Tiny-ImageNet's `classes.tsv`.
KNOWN = {
    "mnist": Known("mnist_ensemble_size", "mnist", "mlp-3", ("notmnist", "fashion-mnist")),
    "svhn": Known("svhn_ensemble_size", "svhn", "vgg", ("cifar10",)),
    "tiny-imagenet": Known("imagenet_ensemble_size", "tiny-imagenet", "inception", ("tiny-imagenet",)),
}


def trained_cells(selection: Selection) -> dict[str, list[Cell]]:
    """The cells of other experiments that hold the ensembles."""
    needed: dict[str, list[Cell]] = {}
    for dataset in selection.datasets:
        needed.setdefault(KNOWN[dataset].experiment, []).extend(
            trained_cell(dataset, method, selection) for method in selection.methods
        )
    return needed


def trained_cell(dataset: str, method: str, selection: Selection) -> Cell:
    """The cell whose ensemble knows this set; of Tiny-ImageNet, its dogs."""
    known = KNOWN[dataset]
    modules = {"mnist": mnist_ensemble_size, "svhn": svhn_ensemble_size, "tiny-imagenet": imagenet_ensemble_size}
    settings: dict[str, Any] = dict(modules[dataset].SETTINGS[selection.scale])
    settings.pop("members_per_cell", None)
    if dataset == "tiny-imagenet":
        settings |= DOGS[selection.scale] | {"classes": dog_classes(), "rows": None}
    return image_cell(dataset, known.network, method, selection.seed, **settings)


def dog_classes() -> list[str]:
    """The classes of dogs, by WordNet id."""
    return sorted(class_groups(data_home() / "tiny-imagenet" / "classes.tsv")["dog"])


def unknown_cells(selection: Selection) -> list[Cell]:
    """A cell per ensemble and set of unknown classes that is here; there must be one."""
    cells = []
    for dataset in selection.datasets:
        unknown = KNOWN[dataset].unknown
        here = [each for each in unknown if card(each).is_here(data_home())]
        if not here:
            raise not_here(unknown[0])
        for each in here:
            cells += [_cell(dataset, each, set_sums(each), method, selection) for method in selection.methods]
    return cells


def not_here(unknown: str) -> DatasetError:
    """That a set of unknown classes is missing."""
    return DatasetError(f"{unknown}, the unknown classes, is not in {data_home()}; run: deep-ensembles data fetch {unknown}")


def _cell(dataset: str, unknown: str, data: dict[str, str], method: str, selection: Selection) -> Cell:
    trained = trained_cell(dataset, method, selection)
    config = {"trained": trained.folder, "experiment": KNOWN[dataset].experiment, "known": dataset, "unknown": unknown,
              "data": data, "training": dict(trained.config)}  # fmt: skip
    return Cell(f"{dataset}-{unknown}-{SHORT[method]}", config)


def run_unknown(cell: Cell, out: Path) -> Outcome:
    """Predict the images of unknown classes."""
    config = cell.config
    training = Cell(config["trained"].rsplit("-", 1)[0], config["training"])
    classes = config["training"]["classes"]
    images, _ = unknown_images(config["unknown"], classes)
    n_classes = len(load_dataset(config["known"]).classes) if classes is None else len(classes)  # type: ignore[union-attr]
    ensemble = saved_ensemble(out / config["experiment"], training, images.shape[1:], n_classes)
    inputs = inputs_for(config["training"]["network"], images)
    return Outcome({"images": len(images)}, {"probabilities": predict(ensemble, config["training"], inputs)})


def known_probabilities(record: Record) -> tuple[np.ndarray, np.ndarray]:
    """(probabilities, labels) of the known test images of the ensemble that a record has asked about unknown ones."""
    path = record.path.parent.parent / record.cell.config["experiment"] / record.cell.config["trained"] / ARRAYS
    with np.load(path, allow_pickle=False) as file:
        return file["probabilities"], file["label"]


def unknown_images(name: str, known_classes: Sequence[str] | None) -> tuple[np.ndarray, np.ndarray]:
    """Test images of unknown classes; of a set whose classes are partly known, those of the others."""
    dataset = load_dataset(name)
    assert isinstance(dataset, ImageDataset)
    return chosen(*dataset.part("test"), dataset.classes, known_classes, others=True)
