"""What the image experiments share: trained ensembles that every one of them reuses, and scores by ensemble size."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.distributions import Categorical

from deep_ensembles import __version__
from deep_ensembles._files import file_sum
from deep_ensembles._pictures import ClassFolders
from deep_ensembles.ensemble import Ensemble
from deep_ensembles.fitting import fit_ensemble
from deep_ensembles.images import ImageFolder
from deep_ensembles.metrics import accuracy, brier_score, negative_log_likelihood, top_k_error
from deep_ensembles.mixture import Mixture
from deep_ensembles.networks import mlp
from deep_ensembles.paper.datasets import DatasetError, card, cards, data_home
from deep_ensembles.paper.datasets import images as image_set
from deep_ensembles.paper.experiments._experiment import Outcome, thinned
from deep_ensembles.paper.records import Cell
from deep_ensembles.perturbations import FastGradientSign, Perturbation, RandomSign
from deep_ensembles.report.charts import Role
from deep_ensembles.settings import network_named
from deep_ensembles.training import Checkpoint, Cosine

ENSEMBLE, RANDOM, ADVERSARIAL, DROPOUT = "ensemble", "ensemble + random sign", "ensemble + adversarial", "MC-dropout"
METHODS = (ENSEMBLE, RANDOM, ADVERSARIAL, DROPOUT)
EPSILON, DROPOUT_RATE, BATCH_SIZE = 0.01, 0.1, 100
PERTURBATIONS: Mapping[str, Perturbation] = {RANDOM: RandomSign(EPSILON), ADVERSARIAL: FastGradientSign(EPSILON)}
SHORT = {ENSEMBLE: "plain", RANDOM: "random", ADVERSARIAL: "adversarial", DROPOUT: "dropout"}
MODEL, CHECKPOINT = "model", "checkpoint.safetensors"
READERS, BATCH_ROWS = min(4, os.cpu_count() or 1), 500  # processes that read a folder; images predicted at once
ROLES: Mapping[str, Role] = {ENSEMBLE: "ours", ADVERSARIAL: "other", RANDOM: "third", DROPOUT: "fourth"}


def image_cell(dataset: str, network: str, method: str, seed: int, **settings: Any) -> Cell:
    """A cell that trains all members of an ensemble on images.

    Arguments:
        dataset: a set's name, or a folder (or zip) of class folders in `train` and `val`.
        settings: `members`, `epochs`, `learning_rate`; `rows` to train on no more than so many images; `classes` to train on
            some; `width` of the network; `image_size` to bring the pictures of a folder to.
    """
    config = {
        "version": __version__,
        "dataset": dataset,
        "data": folder_sum(Path(dataset)) if is_folder(dataset) else set_sums(dataset),
        "network": network,
        "method": method,
        "batch_size": BATCH_SIZE,
        "seed": seed,
        "rows": None,
        "classes": None,
        "width": None,
        **settings,
    }
    work = {ENSEMBLE: 1.0, RANDOM: 2.0, ADVERSARIAL: 2.5, DROPOUT: 0.1}[method]
    part = "" if config["classes"] is None else f"-{len(config['classes'])}-classes"
    return Cell(f"{Path(dataset).stem}-{network.replace(':', '.')}-{SHORT[method]}{part}", config, work)


def is_folder(dataset: str) -> bool:
    """Whether a data set is given as a folder or zip of pictures; a set's name is a name, whatever lies around."""
    if any(each.name == dataset for each in cards()):
        return False
    return Path(dataset).is_dir() or (Path(dataset).suffix == ".zip" and Path(dataset).is_file())


def set_sums(dataset: str) -> dict[str, str]:
    """Checksums of the files of a set that are in the data home."""
    about, home = card(dataset), data_home()
    files = {home / part for part in (*about.parts, about.file) if part is not None and (home / part).is_file()}
    return {path.name: file_sum(path) for path in sorted(files)}


def folder_sum(path: Path) -> str:
    """A hash of the names and sizes of a folder's files, which is all of a million pictures that can be read at once."""
    if path.is_file():
        return file_sum(path)
    files = sorted((str(each.relative_to(path)), each.stat().st_size) for each in path.rglob("*") if each.is_file())
    return hashlib.sha256(repr(files).encode()).hexdigest()


@dataclass(frozen=True)
class Pictures:
    """A part of a data set, as a network takes it.

    Arguments:
        inputs: a tensor, or an `ImageFolder` that is read bit by bit.
        labels: class numbers.
        shape: of an image.
        n_classes: how many there are.
    """

    inputs: Tensor | ImageFolder
    labels: np.ndarray
    shape: tuple[int, ...]
    n_classes: int


def pictures(config: Mapping[str, Any], part: str) -> Pictures:
    """The "train" or "test" part of the data set of a cell; broken pictures of a folder are named and left out."""
    if is_folder(config["dataset"]):
        return _folder_pictures(config, part)
    dataset = image_set(config["dataset"])
    images, labels = chosen(*dataset.part(part), dataset.classes, config["classes"])
    if part == "train" and config["rows"] is not None:
        rows = thinned(np.arange(len(labels)), config["rows"])
        images, labels = images[rows], labels[rows]
    n_classes = len(config["classes"] or dataset.classes)
    return Pictures(inputs_for(config["network"], images), labels, images.shape[1:], n_classes)


def _folder_pictures(config: Mapping[str, Any], part: str) -> Pictures:
    """Of a folder; classes are those of its training pictures, of which the test pictures may be of some only."""
    path, size, train = config["dataset"], config.get("image_size", 64), part == "train"
    classes = _folder_classes(path)
    folder = ImageFolder(path, "train" if train else "val", image_size=size, augment=train, broken="skip")
    if train:
        folder.files = [folder.files[row] for row in thinned(np.arange(len(folder)), config["rows"])]
    numbers = [classes.index(folder.classes[number]) for _, number in folder.files]
    return Pictures(folder, np.array(numbers), (3, size, size), len(classes))


def _folder_classes(path: str) -> tuple[str, ...]:
    """The classes to learn; those that have test pictures must be among them."""
    classes, tested = (ClassFolders(path, part).classes for part in ("train", "val"))
    strange = [each for each in tested if each not in classes]
    if strange:
        raise DatasetError(f"{path} has pictures of class {strange[0]} in 'val', but none in 'train' to learn it from")
    if len(classes) < 2:
        raise DatasetError(f"{path} must have at least two classes to tell apart, got {', '.join(classes)}")
    return classes


def train_images(cell: Cell, root: Path) -> Outcome:
    """Train, keep the model in the cell's folder, predict the test images, and score every ensemble size."""
    config, path = cell.config, root / cell.folder
    ensemble, seconds = _trained(config, path)
    ensemble.save(path / MODEL)
    (path / CHECKPOINT).unlink(missing_ok=True)
    test = pictures(config, "test")
    probabilities = predict(ensemble, config, test.inputs)
    return Outcome({"sizes": scores_by_size(probabilities, test.labels), "training_seconds": seconds},
                   {"probabilities": probabilities, "label": test.labels})  # fmt: skip


def _trained(config: Mapping[str, Any], path: Path) -> tuple[Ensemble, float]:
    """The ensemble, and how many seconds its training took; the training images are let go of."""
    train = pictures(config, "train")
    streamed = isinstance(train.inputs, ImageFolder)
    start = time.perf_counter()
    ensemble = fit_ensemble(
        _factory(config, train.shape, train.n_classes),
        train.inputs,
        None if streamed else torch.from_numpy(train.labels),
        n_members=1 if config["method"] == DROPOUT else config["members"],
        perturbation=PERTURBATIONS.get(config["method"]),
        random_state=config["seed"],
        max_epochs=config["epochs"],
        batch_size=config["batch_size"],
        learning_rate=config["learning_rate"],
        schedule=Cosine(),
        standardize_inputs=False,
        checkpoint=Checkpoint(path / CHECKPOINT),
        num_workers=READERS if streamed else 0,
    )
    return ensemble, time.perf_counter() - start


def _factory(config: Mapping[str, Any], shape: Sequence[int], n_classes: int) -> Any:
    name, dropout = config["network"], DROPOUT_RATE if config["method"] == DROPOUT else 0.0
    if ":" in name:
        return _users_own(name, n_classes)
    if name.startswith("mlp"):
        layers = (200,) * int(name.removeprefix("mlp-"))
        return partial(mlp, int(np.prod(shape)), n_classes, layers, batch_norm=True, dropout=dropout)
    width = {} if config["width"] is None else {"width": config["width"]}
    return partial(network_named(name), n_classes, in_channels=shape[0], image_size=shape[1], dropout=dropout, **width)


def _users_own(name: str, n_classes: int) -> Any:
    """A factory named `package.module:function`, told the number of classes by the name that it has for it."""
    factory = network_named(name)
    known = [each for each in ("num_classes", "n_classes", "n_outputs") if each in signature(factory).parameters]
    return partial(factory, **{known[0]: n_classes}) if known else factory


def inputs_for(network: str, images: np.ndarray) -> Tensor:
    """Images `[image, channel, height, width]` as a network takes them: in [0, 1], and flat for perceptrons."""
    values = torch.from_numpy(np.ascontiguousarray(images)).float().div_(255)
    return values.flatten(1) if network.startswith("mlp") else values


def chosen(
    images: np.ndarray, labels: np.ndarray, names: Sequence[str], wanted: Sequence[str] | None, others: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """The images of some classes, numbered in the order wanted; or those of all other classes, their numbers kept."""
    if wanted is None:
        return images, labels
    numbers = np.array([names.index(each) for each in wanted])
    inside = np.isin(labels, numbers)
    if others:
        return images[~inside], labels[~inside]
    place = np.zeros(len(names), dtype=np.int64)
    place[numbers] = np.arange(len(numbers))
    return images[inside], place[labels[inside]]


def predict(ensemble: Ensemble, config: Mapping[str, Any], inputs: Tensor | ImageFolder) -> np.ndarray:
    """Probabilities `[member, image, class]` in float32; of MC-dropout, a draw each."""
    if config["method"] == DROPOUT:
        mixture = ensemble.sampled(inputs, config["members"], config["seed"], BATCH_ROWS)
    else:
        mixture = ensemble.mixture(inputs, BATCH_ROWS)
    return mixture.components.probs.float().numpy()  # type: ignore[attr-defined]


def mixture_of(probabilities: np.ndarray, members: int) -> Mixture:
    """The ensemble of the first so many members."""
    logits = torch.from_numpy(probabilities[:members]).double().clamp_min(1e-38).log()
    return Mixture(Categorical(logits=logits, validate_args=False))


def scores_by_size(probabilities: np.ndarray, labels: np.ndarray) -> list[dict[str, float]]:
    """Of the first 1, 2, … members: error, top-5 error, NLL and Brier score (÷ K)."""
    target, found = torch.from_numpy(labels), []
    for members in range(1, len(probabilities) + 1):
        mixture = mixture_of(probabilities, members)
        found.append({
            "members": members,
            "error": 1 - accuracy(mixture, target),
            "top_5_error": top_k_error(mixture, target, min(5, probabilities.shape[-1])),
            "nll": negative_log_likelihood(mixture, target),
            "brier": brier_score(mixture, target),
        })  # fmt: skip
    return found
