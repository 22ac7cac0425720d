"""Figures 3, 5 and 6: predictions for known classes and for classes never seen, their entropy and how sure they are.

The ensembles are those of `ensemble_size`. Figure 6 and the appendix's image grids look at the same cells in their own way.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from deep_ensembles import Mixture, load, metrics
from deep_ensembles._terminal import Listing
from deep_ensembles.paper import datasets
from deep_ensembles.paper.experiments import _classification, _experiment
from deep_ensembles.paper.experiments._classification import ADVERSARIAL, DROPOUT, ENSEMBLE, METHODS, mixture_of
from deep_ensembles.paper.experiments._experiment import Cell, Claim, Experiment, Outcome, Record, Selection, Summary
from deep_ensembles.paper.experiments.ensemble_size import MNIST, SETTINGS, SVHN, TINY_IMAGENET
from deep_ensembles.report.charts import Figure, Image, Line, Panel, Role, Row

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
SHORT = {"entropy": "entropy", "confidence": "confid.", "mutual information": "mut. inf.", "disagreement": "disagr."}
COLUMNS = {
    **{f"mean entropy, {classes}": f"entropy:\n{classes}" for classes in ("known", "unknown")},
    **{f"AUROC, {name}": f"AUROC:\n{short}" for name, short in SHORT.items()},
    **{f"FPR at 95 %, {name}": f"FPR95:\n{SHORT[name]}" for name in ("entropy", "mutual information")},
}
THRESHOLDS = np.linspace(0, 0.9, 10)
TARGETS = (0.8, 0.9, 0.95, 0.99)
MIXED = "mnist + notmnist"
N_SHOWN = 10
# Data set -> the experiment that trains ensembles on it, and sets whose images are all of classes they do not know.
TRAINED_BY = {experiment.datasets[0]: experiment for experiment in (MNIST, SVHN, TINY_IMAGENET)}
UNKNOWN = {"mnist": ("notmnist", "fashion-mnist"), "svhn": ("cifar10",), "tiny-imagenet": ("tiny-imagenet",)}


def trained_cells(selection: Selection) -> dict[str, list[Cell]]:
    """The cells of other experiments that hold the ensembles."""
    return {
        TRAINED_BY[dataset].name: [trained_cell(dataset, method, selection) for method in selection.methods]
        for dataset in selection.datasets
    }


def trained_cell(dataset: str, method: str, selection: Selection) -> Cell:
    """The cell whose ensemble knows this set; of Tiny-ImageNet the dogs, a group of classes in its `classes.tsv`."""
    settings = dict(SETTINGS[dataset][selection.scale])
    settings.pop("members_per_cell", None)
    if dataset == "tiny-imagenet":
        groups = datasets.class_groups(datasets.data_home() / dataset / "classes.tsv")
        settings |= DOGS[selection.scale] | {"classes": sorted(groups["dog"]), "rows": None}
    return _classification.image_cell(dataset, TRAINED_BY[dataset].networks[0], method, selection.seed, **settings)


def unknown_cells(selection: Selection, unknown_to: Mapping[str, Sequence[str]] = UNKNOWN) -> list[Cell]:
    """A cell per ensemble and set of unknown classes in the data home; there must be one."""
    cells, home = [], datasets.data_home()
    for dataset in selection.datasets:
        sums = {name: _classification.set_sums(name) for name in unknown_to[dataset] if datasets.card(name).is_here(home)}
        if not sums:
            first = unknown_to[dataset][0]
            cure = f"run: deep-ensembles data fetch {first}"
            raise datasets.DatasetError(f"{first}, the unknown classes, is not in {home}; {cure}")
        for unknown, method in product(sums, selection.methods):
            trained = trained_cell(dataset, method, selection)
            about = {"experiment": TRAINED_BY[dataset].name, "known": dataset, "unknown": unknown, "data": sums[unknown]}
            config = {**about, "trained": trained.folder, "training": dict(trained.config)}
            cells.append(Cell(f"{dataset}-{unknown}-{METHODS[method].short}", config))
    return cells


def run_unknown(cell: Cell, root: Path) -> Outcome:
    """Predict the images of unknown classes."""
    training = cell.config["training"]
    images = unknown_images(cell.config["unknown"], training["classes"])
    ensemble = load(_trained_folder(cell, root) / _classification.MODEL)
    inputs = _classification.inputs_for(training["network"], images)
    return {"images": len(images)}, {"probabilities": _classification.predict(ensemble, training, inputs)}


def probabilities(record: Record) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """An ensemble's predictions for the known test images, their labels, and its predictions for unknown classes."""
    known = replace(record, path=_trained_folder(record.cell, record.path.parent)).arrays()
    return known["probabilities"], known["label"], record.arrays()["probabilities"]


def _trained_folder(cell: Cell, root: Path) -> Path:
    """Where the ensemble of a cell was trained."""
    return root.parent / cell.config["experiment"] / cell.config["trained"]


def unknown_images(name: str, known_classes: Sequence[str] | None) -> np.ndarray:
    """Test images of unknown classes; of a set whose classes are partly known, those of the others."""
    dataset = datasets.images(name)
    return _classification.of_classes(*dataset.part("test"), dataset.classes, known_classes, others=True)[0]


def summarise(records: Sequence[Record], selection: Selection) -> Summary:
    """Detection scores and entropy histograms, pair of sets by pair of sets."""
    summary = Summary([], [], [])
    pairs: dict[tuple[str, str], list[Record]] = {}
    for record in records:
        pairs.setdefault((record.cell.config["known"], record.cell.config["unknown"]), []).append(record)
    for (known, unknown), of_pair in pairs.items():
        title = f"{known} → {unknown}" if known != unknown else "dogs → non-dogs (tiny-imagenet)"
        rows, figure_rows = _pair(title, of_pair)
        summary.rows.extend(rows)
        summary.listings.append(_listing(title, rows))
        summary.claims.extend(_claims(title, rows))
        name = "_".join(title.replace("→", "to").replace("(", "").replace(")", "").replace("-", "_").split())
        summary.figures[f"known_unknown_{name}"] = Figure(figure_rows, title)
    absent = [name for known in selection.datasets for name in UNKNOWN[known] if (known, name) not in pairs]
    summary.notes.extend(map(_experiment.left_out, absent))
    return summary


def _pair(title: str, records: Sequence[Record]) -> tuple[list[dict[str, Any]], list[Row]]:
    rows = list[dict[str, Any]]()
    panels: dict[str, list[Panel]] = {"known classes": [], "unknown classes": [], "confidence, unknown classes": []}
    for record in records:
        training = record.cell.config["training"]
        of_known, _, of_unknown = probabilities(record)
        lines: dict[str, list[Line]] = {name: [] for name in panels}
        for size, role in SIZES.items():
            if size <= len(of_unknown):
                known, unknown = mixture_of(of_known, size), mixture_of(of_unknown, size)
                about = {"dataset": title, "network": training["network"], "method": training["method"], "members": size}
                rows += [{**about, "metric": name, "value": value} for name, value in _metrics(known, unknown, size).items()]
                top = np.log(of_known.shape[-1])
                shown = ((known.entropy(), top), (unknown.entropy(), top), (unknown.confidence, 1.0))
                for layers, values in zip(lines.values(), shown, strict=True):
                    layers.append(_histogram(*values, f"M = {size}", role))
        for name, layers in lines.items():
            x_label = "confidence" if name.startswith("confidence") else "entropy (nats)"
            panels[name].append(Panel(layers, training["method"], x_label, "density", legend=not panels[name]))
    return rows, [Row(row, name, 3.1) for name, row in panels.items()]


def _histogram(values: Tensor, top: float, label: str, role: Role) -> Line:
    counts, edges = np.histogram(np.clip(values.numpy(), 0, top), bins=BINS, range=(0, top), density=True)
    return Line(np.repeat(edges, 2)[1:-1], np.repeat(counts, 2), label, role)


def _metrics(known: Mixture, unknown: Mixture, size: int) -> dict[str, float]:
    values = {"mean entropy, known": float(known.entropy().mean()), "mean entropy, unknown": float(unknown.entropy().mean())}
    for name, score in SCORES.items():
        if size > 1 or name in OF_ONE_NETWORK:
            detection = metrics.ood_detection(score(known).numpy(), score(unknown).numpy())
            values |= {f"AUROC, {name}": detection.auroc, f"FPR at 95 %, {name}": detection.fpr}
    return values


def _listing(title: str, rows: Sequence[dict[str, Any]]) -> Listing:
    lines = []
    for method, size in dict.fromkeys((row["method"], row["members"]) for row in rows):
        values = {row["metric"]: row["value"] for row in rows if (row["method"], row["members"]) == (method, size)}
        lines.append([method, str(size), *(f"{values[name]:.3f}" if name in values else "–" for name in COLUMNS)])
    return Listing(title, ["", "M", *COLUMNS.values()], lines)


def _claims(title: str, rows: Sequence[dict[str, Any]]) -> Iterator[Claim]:
    entropy = {(row["method"], row["members"]): row["value"] for row in rows if row["metric"] == "mean entropy, unknown"}
    largest = max(size for _, size in entropy)
    for method in (ENSEMBLE, ADVERSARIAL):
        ours, other = entropy.get((method, largest)), entropy.get((DROPOUT, largest))
        if ours is not None and largest > 1:
            first = entropy[method, 1]
            statement = "The entropy on unknown classes grows with the number of networks"
            yield Claim(statement, "section 3.5", title, ours > first, f"{method}: {first:.3f} → {ours:.3f} (M = {largest})")
        if ours is not None and other is not None:
            statement = "The entropy on unknown classes is above MC-dropout's"
            numbers = f"{method} {ours:.3f}, MC-dropout {other:.3f} (M = {largest})"
            yield Claim(statement, "section 3.5", title, ours > other, numbers)


KNOWN_UNKNOWN_CLASSES = Experiment(
    name="known_unknown_classes",
    makes="Figures 3 and 5: entropy of known and unknown classes, and how well they are told apart",
    takes={"smoke": "a minute", "laptop": "2 minutes after the ensembles are trained (dogs: half an hour)",
           "paper": "minutes after training"},
    datasets=tuple(UNKNOWN),
    methods=(ENSEMBLE, ADVERSARIAL, DROPOUT),
    cells=unknown_cells,
    run=run_unknown,
    summarise=summarise,
    only_at_paper_scale=("svhn", "tiny-imagenet"),
    needs=trained_cells,
)  # fmt: skip


def mixed(record: Record, size: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Confidence and correctness on the known test images and as many unknown ones, whose predictions are all wrong."""
    of_known, labels, of_unknown = probabilities(record)
    rows = np.random.default_rng(seed).permutation(of_unknown.shape[1])[: len(labels)]
    known, unknown = mixture_of(of_known, size), mixture_of(of_unknown[:, rows], size)
    correct = np.concatenate([known.mode.numpy() == labels, np.zeros(len(rows), dtype=bool)])
    return np.concatenate([known.confidence.numpy(), unknown.confidence.numpy()]), correct


def summarise_accuracy(records: Sequence[Record], selection: Selection) -> Summary:
    """Curves, and the threshold that reaches a target accuracy with the share of cases it keeps."""
    rows, panels, lines = list[dict[str, Any]](), list[Panel](), list[list[str]]()
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
    figures = {"accuracy_confidence": Figure([Row(panels)])}
    return Summary(rows, list(_accuracy_claims(rows)), [listing], figures=figures)


def _thresholds(method: str, size: int, confidence: np.ndarray, correct: np.ndarray) -> Iterator[list[str]]:
    for target in TARGETS:
        texts = ["not reached", "–", "–"]
        if (point := metrics.threshold_for_accuracy(confidence, correct, target)) is not None:
            texts = [f"{point.threshold:.4f}", f"{point.accuracy:.1%}", f"{point.kept:.1%}"]
        yield [method, str(size), f"{target:.0%}", *texts]


def _accuracy_claims(rows: Sequence[dict[str, Any]]) -> Iterator[Claim]:
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
    summary, lines = Summary([], [], []), []
    for record in records:
        known, unknown, training = (record.cell.config[key] for key in ("known", "unknown", "training"))
        dataset, wanted = datasets.images(known), training["classes"]
        images, labels = _classification.of_classes(*dataset.part("test"), dataset.classes, wanted)
        of_known, _, of_unknown = probabilities(record)
        about, figure_rows = {key: training[key] for key in ("network", "method", "members")}, list[Row]()
        for name, pixels, predicted, truth in (
            (known, images, of_known, labels),
            (f"{unknown}, unknown classes", unknown_images(unknown, wanted), of_unknown, None),
        ):
            mixture = mixture_of(predicted, training["members"])
            figure_rows += _image_rows(name, wanted or dataset.classes, pixels, mixture, truth)
            means = {"confidence": float(mixture.confidence.mean()), "disagreement": float(mixture.disagreement.mean())}
            summary.rows.extend(
                {"dataset": name, **about, "metric": f"mean {metric}", "value": mean} for metric, mean in means.items()
            )
            lines.append([name, about["method"], str(about["members"]), *(f"{mean:.3f}" for mean in means.values())])
        title = f"{about['method']} of {about['members']}, {known} → {unknown}"
        file = f"most_and_least_certain_{record.cell.name}".replace("-", "_")
        summary.figures[file] = Figure(figure_rows, title)
    summary.listings.append(Listing("How sure, on average", ["", "method", "M", "confidence", "disagreement"], lines))
    return summary


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
    KNOWN_UNKNOWN_CLASSES,
    name="accuracy_confidence",
    makes="Figure 6: accuracy against confidence on MNIST mixed with NotMNIST, and its inverse",
    takes={"smoke": "a minute", "laptop": "a minute after the ensembles are trained", "paper": "minutes after training"},
    datasets=("mnist",),
    cells=partial(unknown_cells, unknown_to={"mnist": ("notmnist",)}),
    summarise=summarise_accuracy,
    cells_of=KNOWN_UNKNOWN_CLASSES.name,
)
MOST_AND_LEAST_CERTAIN = replace(
    ACCURACY_CONFIDENCE,
    name="most_and_least_certain",
    makes="appendix: images of highest and lowest confidence and disagreement",
    datasets=KNOWN_UNKNOWN_CLASSES.datasets,
    methods=(ENSEMBLE, ADVERSARIAL),
    cells=KNOWN_UNKNOWN_CLASSES.cells,
    summarise=summarise_images,
)
