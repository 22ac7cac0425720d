"""What the image experiments share: their methods, the ensembles they all reuse, and scores by ensemble size."""

import hashlib
import inspect
import os
import pkgutil
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from deep_ensembles import Checkpoint, Cosine, Ensemble, Mixture, __version__, fit_ensemble, metrics, mlp, networks
from deep_ensembles._checks import require
from deep_ensembles._splits import evenly_spaced
from deep_ensembles.images import ImageFolder
from deep_ensembles.paper import datasets
from deep_ensembles.paper.experiments._experiment import Cell, Outcome
from deep_ensembles.perturbations import FastGradientSign, Perturbation, RandomSign
from deep_ensembles.report.charts import Role

EPSILON, BATCH_SIZE = 0.01, 100
MODEL, CHECKPOINT = "model", "checkpoint.safetensors"
READERS, BATCH_ROWS = min(4, os.cpu_count() or 1), 500  # processes that read a folder; images predicted at once


@dataclass(frozen=True)
class Method:
    """How an ensemble is trained, and how it is shown.

    Arguments:
        short: its name in names of folders.
        cost: of its training, relative to the plain ensemble's.
        role: its colour in figures.
        perturbation: what training adds to the inputs.
        dropout: the dropout rate; where there is one, a single network is trained and asked again for every member.
    """

    short: str
    cost: float
    role: Role
    perturbation: Perturbation | None = None
    dropout: float = 0.0


ENSEMBLE, RANDOM, ADVERSARIAL, DROPOUT = "ensemble", "ensemble + random sign", "ensemble + adversarial", "MC-dropout"
METHODS = {
    ENSEMBLE: Method("plain", 1.0, "ours"),
    RANDOM: Method("random", 2.0, "third", RandomSign(EPSILON)),
    ADVERSARIAL: Method("adversarial", 2.5, "other", FastGradientSign(EPSILON)),
    DROPOUT: Method("dropout", 0.1, "fourth", dropout=0.1),
}


def image_cell(dataset: str, network: str, method: str, seed: int, **settings: Any) -> Cell:
    """A cell that trains all members of an ensemble on images.

    Arguments:
        dataset: a set's name, or a folder (or zip) of class folders in `train` and `val`.
        settings: `members`, `epochs`, `learning_rate`; `rows` to train on no more than so many images; `classes` to train on
            some; `width` of the network; `image_size` to bring the pictures of a folder to.
    """
    data = folder_sum(Path(dataset)) if is_folder(dataset) else set_sums(dataset)
    about = {"version": __version__, "dataset": dataset, "data": data, "network": network, "method": method, "seed": seed}
    config = {**about, "batch_size": BATCH_SIZE, "rows": None, "classes": None, "width": None, **settings}
    part = "" if config["classes"] is None else f"-{len(config['classes'])}-classes"
    name = f"{Path(dataset).stem}-{network.replace(':', '.')}-{METHODS[method].short}{part}"
    return Cell(name, config, METHODS[method].cost)


def is_folder(dataset: str) -> bool:
    """Whether this is a folder or zip of pictures; the name of a data set is not, even where a folder is called so."""
    path, names = Path(dataset), {card.name for card in datasets.cards()}
    return dataset not in names and (path.is_dir() or (path.suffix == ".zip" and path.is_file()))


def set_sums(dataset: str) -> dict[str, str]:
    """Checksums of the files of a set that are in the data home."""
    card, home = datasets.card(dataset), datasets.data_home()
    files = {home / part for part in (*card.parts, card.file) if part is not None and (home / part).is_file()}
    return {path.name: datasets.file_sum(path) for path in sorted(files)}


def folder_sum(path: Path) -> str:
    """A hash of the names and sizes of a folder's files: reading a million pictures would take too long."""
    if path.is_file():
        return datasets.file_sum(path)
    files = sorted((str(file.relative_to(path)), file.stat().st_size) for file in path.rglob("*") if file.is_file())
    return hashlib.sha256(repr(files).encode()).hexdigest()


@dataclass(frozen=True)
class Pictures:
    """A part of a data set, as a network takes it.

    Arguments:
        inputs: a tensor, or an `ImageFolder` that is read in training.
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
    dataset = datasets.images(config["dataset"])
    images, labels = of_classes(*dataset.part(part), dataset.classes, config["classes"])
    if part == "train" and config["rows"] is not None:
        rows = evenly_spaced(np.arange(len(labels)), config["rows"])
        images, labels = images[rows], labels[rows]
    n_classes = len(config["classes"] or dataset.classes)
    return Pictures(inputs_for(config["network"], images), labels, images.shape[1:], n_classes)


def _folder_pictures(config: Mapping[str, Any], part: str) -> Pictures:
    """A part of a folder; the test pictures may show some of the classes of the training pictures only."""
    path, size, train = config["dataset"], config.get("image_size", 64), part == "train"
    classes = _folder_classes(path)
    folder = ImageFolder(path, "train" if train else "val", image_size=size, augment=train, broken="skip")
    if train:
        folder.files = [folder.files[row] for row in evenly_spaced(np.arange(len(folder)), config["rows"])]
    numbers = [classes.index(folder.classes[number]) for _, number in folder.files]
    return Pictures(folder, np.array(numbers), (3, size, size), len(classes))


def _folder_classes(path: str) -> tuple[str, ...]:
    """The classes to learn; those that have test pictures must be among them."""
    classes, tested = (ImageFolder(path, part).classes for part in ("train", "val"))
    unseen = [name for name in tested if name not in classes]
    if unseen:
        problem = f"has pictures of class {unseen[0]} in 'val', but none in 'train' to learn it from"
        raise datasets.DatasetError(f"{path} {problem}")
    if len(classes) < 2:
        raise datasets.DatasetError(f"{path} must have at least two classes to tell apart, got {', '.join(classes)}")
    return classes


def train_images(cell: Cell, root: Path) -> Outcome:
    """Train, keep the model in the cell's folder, predict the test images, and score every ensemble size."""
    config, path = cell.config, root / cell.folder
    ensemble, seconds = _train(config, path)
    ensemble.save(path / MODEL)
    (path / CHECKPOINT).unlink(missing_ok=True)
    test = pictures(config, "test")
    probabilities = predict(ensemble, config, test.inputs)
    result = {"sizes": scores_by_size(probabilities, test.labels), "training_seconds": seconds}
    return result, {"probabilities": probabilities, "label": test.labels}


def _train(config: Mapping[str, Any], path: Path) -> tuple[Ensemble, float]:
    """The ensemble, and how many seconds its training took; the training images do not stay in memory."""
    train, method = pictures(config, "train"), METHODS[config["method"]]
    streamed = isinstance(train.inputs, ImageFolder)
    targets, readers = (None, READERS) if streamed else (torch.from_numpy(train.labels), 0)
    settings: dict[str, Any] = {name: config[name] for name in ("batch_size", "learning_rate")}
    settings |= {"n_members": 1 if method.dropout else config["members"], "max_epochs": config["epochs"]}
    settings |= {"schedule": Cosine(), "perturbation": method.perturbation, "standardize_inputs": False}
    settings |= {"random_state": config["seed"], "checkpoint": Checkpoint(path / CHECKPOINT), "num_workers": readers}
    start = time.perf_counter()
    ensemble = fit_ensemble(_factory(config, train.shape, train.n_classes), train.inputs, targets, **settings)
    return ensemble, time.perf_counter() - start


def _factory(config: Mapping[str, Any], shape: Sequence[int], n_classes: int) -> Any:
    """The function that builds a member; one of the user's is told the number of classes by the name it has for it."""
    name, dropout = config["network"], METHODS[config["method"]].dropout
    if ":" in name:
        parameters = inspect.signature(factory := network_named(name)).parameters
        known = [word for word in ("num_classes", "n_classes", "n_outputs") if word in parameters]
        return partial(factory, **{known[0]: n_classes}) if known else factory
    if name.startswith("mlp"):
        layers = (200,) * int(name.removeprefix("mlp-"))
        return partial(mlp, int(np.prod(shape)), n_classes, layers, batch_norm=True, dropout=dropout)
    width = {} if config["width"] is None else {"width": config["width"]}
    return partial(network_named(name), n_classes, in_channels=shape[0], image_size=shape[1], dropout=dropout, **width)


def network_named(text: str) -> Callable[..., nn.Module]:
    """A network factory that a user names: one of the package's by its file name, or any as `package.module:function`.

    What is named is imported, which runs its code: for names that users write, never for names in a file.

    Example:
        >>> network_named("vgg").__name__, network_named("torch.nn:Linear").__name__
        ('vgg', 'Linear')
    """
    form = f"one of {', '.join(networks.__all__)}, or text like package.module:function"
    if text in networks.__all__:
        return getattr(networks, text)
    named = isinstance(text, str) and re.fullmatch(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*", text)
    require(bool(named), "network", form, text)
    try:
        factory = pkgutil.resolve_name(text)
    except (ImportError, AttributeError) as error:
        raise ValueError(f"`network` must name something that can be imported, got {text!r} ({error})") from error
    require(callable(factory), "network", "a function that makes a module", text)
    return factory


def inputs_for(network: str, images: np.ndarray) -> Tensor:
    """Images `[image, channel, height, width]` as a network takes them: in [0, 1], and flat for perceptrons."""
    values = torch.from_numpy(np.ascontiguousarray(images)).float().div_(255)
    return values.flatten(1) if network.startswith("mlp") else values


def of_classes(
    images: np.ndarray, labels: np.ndarray, names: Sequence[str], wanted: Sequence[str] | None, others: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """The images of some classes, numbered in the order wanted; or those of all other classes, their numbers kept."""
    if wanted is None:
        return images, labels
    numbers = np.array([names.index(name) for name in wanted])
    inside = np.isin(labels, numbers)
    if others:
        return images[~inside], labels[~inside]
    place = np.zeros(len(names), dtype=np.int64)
    place[numbers] = np.arange(len(numbers))
    return images[inside], place[labels[inside]]


def predict(ensemble: Ensemble, config: Mapping[str, Any], inputs: Tensor | ImageFolder) -> np.ndarray:
    """Probabilities `[member, image, class]` in float32; each member of MC-dropout is a draw."""
    if METHODS[config["method"]].dropout:
        mixture = ensemble.sampled(inputs, config["members"], config["seed"], BATCH_ROWS)
    else:
        mixture = ensemble.mixture(inputs, BATCH_ROWS)
    return mixture.components.probs.float().numpy()  # type: ignore[attr-defined]


def mixture_of(probabilities: np.ndarray, members: int) -> Mixture:
    """The ensemble of the first so many members."""
    logits = torch.from_numpy(probabilities[:members]).double().clamp_min(1e-38).log()
    return Mixture(torch.distributions.Categorical(logits=logits, validate_args=False))


def scores_by_size(probabilities: np.ndarray, labels: np.ndarray) -> list[dict[str, float]]:
    """Of the first 1, 2, … members: error, top-5 error, NLL and Brier score (÷ K)."""
    target, top, scores = torch.from_numpy(labels), min(5, probabilities.shape[-1]), []
    for members in range(1, len(probabilities) + 1):
        mixture = mixture_of(probabilities, members)
        errors = {"error": 1 - metrics.accuracy(mixture, target), "top_5_error": metrics.top_k_error(mixture, target, top)}
        nll, brier = metrics.negative_log_likelihood(mixture, target), metrics.brier_score(mixture, target)
        scores.append({"members": members, **errors, "nll": nll, "brier": brier})
    return scores
