"""What the image experiments share: trained ensembles that every one of them reuses, and scores by ensemble size."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.distributions import Categorical

from deep_ensembles import __version__
from deep_ensembles._files import file_sum
from deep_ensembles.checkpoint import Checkpoint
from deep_ensembles.datasets import ImageDataset, card, data_home, load_dataset
from deep_ensembles.ensemble import Ensemble
from deep_ensembles.experiments._experiment import Outcome
from deep_ensembles.fitting import fit_ensemble
from deep_ensembles.loading import load
from deep_ensembles.metrics import accuracy, brier_score, negative_log_likelihood, top_k_error
from deep_ensembles.mixture import Mixture
from deep_ensembles.networks import convnet, inception, mlp, vgg
from deep_ensembles.perturbations import FastGradientSign, Perturbation, RandomSign
from deep_ensembles.records import Cell
from deep_ensembles.schedules import Cosine

ENSEMBLE, RANDOM, ADVERSARIAL, DROPOUT = "ensemble", "ensemble + random sign", "ensemble + adversarial", "MC-dropout"
METHODS = (ENSEMBLE, RANDOM, ADVERSARIAL, DROPOUT)
EPSILON, DROPOUT_RATE, BATCH_SIZE = 0.01, 0.1, 100
PERTURBATIONS: Mapping[str, Perturbation] = {RANDOM: RandomSign(EPSILON), ADVERSARIAL: FastGradientSign(EPSILON)}
SHORT = {ENSEMBLE: "plain", RANDOM: "random", ADVERSARIAL: "adversarial", DROPOUT: "dropout"}
MODEL, CHECKPOINT = "model", "checkpoint.safetensors"
ROLES = {ENSEMBLE: "ours", ADVERSARIAL: "other", RANDOM: "third", DROPOUT: "fourth"}


def image_cell(dataset: str, network: str, method: str, seed: int, **settings: Any) -> Cell:
    """A cell that trains all members of an ensemble on images.

    Arguments:
        settings: `members`, `epochs`, `learning_rate`; `rows` to train on no more than so many images; `classes` to train on
            some; `width` of the network.
    """
    about, home = card(dataset), data_home()
    files = [home / part for part in (*about.parts, about.file) if part is not None and (home / part).is_file()]
    config = {
        "version": __version__,
        "dataset": dataset,
        "data": {path.name: file_sum(path) for path in sorted(set(files))},
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
    name = f"{dataset}-{network}-{SHORT[method]}" + (
        "" if config["classes"] is None else f"-{len(config['classes'])}-classes"
    )
    return Cell(name, config, work)


def train_images(cell: Cell, folder: Path) -> Outcome:
    """Train, keep the model in the cell's folder, predict the test images, and score every ensemble size."""
    config = cell.config
    dataset = load_dataset(config["dataset"])
    assert isinstance(dataset, ImageDataset)
    images, labels = chosen(*dataset.part("train"), dataset.classes, config["classes"])
    rows = slice(None) if config["rows"] is None else np.linspace(0, len(labels) - 1, config["rows"]).astype(int)
    path = folder / cell.folder
    start = time.perf_counter()
    ensemble = fit_ensemble(
        _factory(config, images.shape[1:], int(labels.max()) + 1),
        inputs_for(config["network"], images[rows]),
        torch.from_numpy(labels[rows]),
        n_members=1 if config["method"] == DROPOUT else config["members"],
        perturbation=PERTURBATIONS.get(config["method"]),
        random_state=config["seed"],
        max_epochs=config["epochs"],
        batch_size=config["batch_size"],
        learning_rate=config["learning_rate"],
        schedule=Cosine(),
        standardize_inputs=False,
        checkpoint=Checkpoint(path / CHECKPOINT),
    )
    seconds = time.perf_counter() - start
    ensemble.save(path / MODEL)
    (path / CHECKPOINT).unlink(missing_ok=True)
    images, labels = chosen(*dataset.part("test"), dataset.classes, config["classes"])
    probabilities = predict(ensemble, config, images)
    return Outcome({"sizes": scores_by_size(probabilities, labels), "training_seconds": seconds},
                   {"probabilities": probabilities, "label": labels})  # fmt: skip


def _factory(config: Mapping[str, Any], shape: Sequence[int], n_classes: int) -> Any:
    dropout = DROPOUT_RATE if config["method"] == DROPOUT else 0.0
    if config["network"].startswith("mlp"):
        layers = (200,) * int(config["network"].removeprefix("mlp-"))
        return partial(mlp, int(np.prod(shape)), n_classes, layers, batch_norm=True, dropout=dropout)
    build = {"convnet": convnet, "vgg": vgg, "inception": inception}[config["network"]]
    width = {} if config["width"] is None else {"width": config["width"]}
    return partial(build, n_classes, in_channels=shape[0], image_size=shape[1], dropout=dropout, **width)


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


def predict(ensemble: Ensemble, config: Mapping[str, Any], images: np.ndarray) -> np.ndarray:
    """Probabilities `[member, image, class]` in float32; of MC-dropout, a draw each."""
    parts = []
    for start in range(0, len(images), 2000):
        inputs = inputs_for(config["network"], images[start : start + 2000])
        if config["method"] == DROPOUT:
            mixture = ensemble.sampled(inputs, config["members"], config["seed"] + start)
        else:
            mixture = ensemble(inputs)
        parts.append(mixture.components.probs.float().numpy())  # type: ignore[attr-defined]
    return np.concatenate(parts, axis=1)


def saved_ensemble(folder: Path, cell: Cell) -> Ensemble:
    """The ensemble that a finished cell has trained."""
    return load(folder / cell.folder / MODEL)


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
