"""Figures 3 and 5: the entropy of predictions for known classes and for classes never seen.

The ensembles are those of other experiments; what they say of unknown classes is kept here for other experiments to look at.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from deep_ensembles._terminal import Listing
from deep_ensembles.metrics import ood_detection
from deep_ensembles.mixture import Mixture
from deep_ensembles.paper.datasets import DatasetError, card, class_groups, data_home
from deep_ensembles.paper.datasets import images as image_set
from deep_ensembles.paper.experiments import imagenet_ensemble_size, mnist_ensemble_size, svhn_ensemble_size
from deep_ensembles.paper.experiments._classification import (
    ADVERSARIAL,
    DROPOUT,
    ENSEMBLE,
    MODEL,
    SHORT,
    chosen,
    image_cell,
    inputs_for,
    mixture_of,
    predict,
    set_sums,
)
from deep_ensembles.paper.experiments._experiment import Claim, Experiment, Outcome, Selection, Summary, measured
from deep_ensembles.paper.records import ARRAYS, Cell, Record
from deep_ensembles.report.charts import Figure, Line, Panel, Role, Row
from deep_ensembles.saving import load

# Dogs are few: batches of 20 make 45 steps of an epoch of Tiny-ImageNet's 900; batches of 100 do about as well.
DOGS = {
    "smoke": {"members": 2, "epochs": 1, "batch_size": 20},
    "laptop": {"members": 5, "epochs": 10, "batch_size": 20},
    "paper": {"members": 10, "epochs": 60},
}
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


# -- what came out ----------------------------------------------------------------------------------------------------


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


def _table(title: str, rows: Sequence[dict[str, Any]]) -> Listing:
    lines = []
    for method, size in dict.fromkeys((row["method"], row["members"]) for row in rows):
        own = {row["metric"]: row["value"] for row in rows if (row["method"], row["members"]) == (method, size)}
        lines.append([method, str(size), *(f"{own[each]:.3f}" if each in own else "–" for each in COLUMNS)])
    return Listing(title, ["", "M", *COLUMNS.values()], lines)


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
    methods=(ENSEMBLE, ADVERSARIAL, DROPOUT),
    cells=unknown_cells,
    run=run_unknown,
    summarise=summarise,
    only_at_paper_scale=("svhn", "tiny-imagenet"),
    needs=trained_cells,
)
