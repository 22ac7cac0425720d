"""Figures 2 and 4: error, NLL and Brier score against the number of networks, on MNIST, SVHN and (Tiny-)ImageNet."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import product
from typing import Any, TypeAlias

import numpy as np

from deep_ensembles._terminal import Listing
from deep_ensembles.paper.experiments import _classification
from deep_ensembles.paper.experiments._classification import ADVERSARIAL, DROPOUT, ENSEMBLE, METHODS, RANDOM
from deep_ensembles.paper.experiments._experiment import Cell, Claim, Experiment, Record, Scale, Selection, Summary
from deep_ensembles.report.charts import Figure, Line, Panel, Row

Settings: TypeAlias = dict[str, dict[str, Any]]  # scale -> settings of cells, see `image_cell`
Sizes: TypeAlias = Mapping[str, Sequence[Mapping[str, Any]]]  # method -> the scores of 1, 2, … members
Paper: TypeAlias = Mapping[str, Sequence[float]]  # metric -> the paper's numbers for 1, 2, … members

# One network per cell; pictures of a folder such as ILSVRC-2012's at the size Inception was made for.
_FULL_SIZE = {"members": 10, "members_per_cell": 1, "epochs": 60, "learning_rate": 0.002, "width": 1.0, "image_size": 299}
# With `members_per_cell`, an ensemble is spread over several cells, for a cluster.
SETTINGS: dict[str, Settings] = {
    "mnist": {
        "smoke": {"members": 2, "epochs": 1, "rows": 1000, "learning_rate": 0.003},
        "laptop": {"members": 15, "epochs": 20, "learning_rate": 0.003},
        "paper": {"members": 15, "epochs": 40, "learning_rate": 0.003},
    },
    "svhn": {
        "smoke": {"members": 2, "epochs": 1, "rows": 300, "learning_rate": 0.001, "width": 0.0625},
        "laptop": {"members": 5, "epochs": 8, "learning_rate": 0.002, "width": 0.125},
        "paper": {"members": 15, "epochs": 60, "learning_rate": 0.001, "width": 1.0},
    },
    "tiny-imagenet": {
        "smoke": {"members": 2, "epochs": 1, "rows": 120, "learning_rate": 0.002, "width": 0.0625},
        "laptop": {"members": 10, "members_per_cell": 5, "epochs": 4, "learning_rate": 0.002, "width": 0.0625},
        "paper": _FULL_SIZE,
    },
}
# Two cores would train the convolutional networks for a day at the settings above.
BY_NETWORK: dict[str, Settings] = {"convnet": {"laptop": {"members": 5, "epochs": 5, "rows": 20_000}}}
# On ILSVRC-2012; other images and other classes than Tiny-ImageNet's, so only the way the numbers go compares.
IMAGENET = {
    "error": [percent / 100 for percent in (22.166, 20.462, 19.709, 19.334, 19.104, 18.986, 18.860, 18.771, 18.728, 18.675)],
    "top_5_error": [percent / 100 for percent in (6.129, 5.274, 4.955, 4.723, 4.637, 4.532, 4.485, 4.430, 4.373, 4.364)],
    "nll": [0.959, 0.867, 0.836, 0.818, 0.809, 0.803, 0.797, 0.794, 0.791, 0.789],
    "brier": [score / 1000 for score in (0.317, 0.294, 0.286, 0.282, 0.280, 0.278, 0.277, 0.276, 0.276, 0.275)],
}
TITLES = {"error": "classification error", "top_5_error": "top-5 error", "nll": "NLL", "brier": "Brier score (÷ K)"}
COLUMNS = {**TITLES, "error": "error", "brier": "Brier ÷ K"}
METRICS = ("error", "nll", "brier")
LISTED_SIZES = (1, 2, 3, 5, 10, 15)
# The method that the paper finds better, and the one it finds worse.
ORDERS = ((ADVERSARIAL, ENSEMBLE), (ADVERSARIAL, RANDOM), (ENSEMBLE, DROPOUT), (ADVERSARIAL, DROPOUT))


def ensemble_cells(settings: Settings, selection: Selection) -> list[Cell]:
    """Cells that train each network with each method."""
    cells = []
    for dataset, network, method in product(selection.datasets, selection.networks, selection.methods):
        cell = {**settings[selection.scale], **BY_NETWORK.get(network, {}).get(selection.scale, {})}
        total = cell["members"]
        cell["members"] = cell.pop("members_per_cell", total)
        seeds = [selection.seed + 1000 * group for group in range(total // cell["members"])]
        cells += [_classification.image_cell(dataset, network, method, seed, **cell) for seed in seeds]
    return cells


def summarise_sizes(
    name: str, records: Sequence[Record], selection: Selection, metrics: Sequence[str] = METRICS, paper: Paper | None = None
) -> Summary:
    """Scores of the first 1, 2, … members, beside the paper's where it prints them."""
    summary, figure_rows, paper = Summary([], [], []), [], paper or {}
    for dataset, network in product(selection.datasets, selection.networks):
        title = f"{dataset}, {network}"
        sizes = {method: _sizes(records, dataset, network, method) for method in selection.methods}
        summary.rows.extend(
            {"dataset": dataset, "network": network, "method": method, "members": scores["members"], "metric": metric,
             "value": value, "paper": paper[metric][scores["members"] - 1] if metric in paper else None}
            for method, by_size in sizes.items() for scores in by_size
            for metric, value in scores.items() if metric != "members"
        )  # fmt: skip
        summary.listings.append(_listing(title, sizes, metrics, paper))
        summary.claims.extend(_claims(title, sizes))
        figure_rows.append(_figure_row(title, sizes, metrics))
    summary.figures[name] = Figure(figure_rows)
    summary.notes.extend(f"{record.cell.name}: {record.result['training_seconds']:.0f} s of training" for record in records)
    for dataset, data in {record.cell.config["dataset"]: record.cell.config["data"] for record in records}.items():
        if isinstance(data, dict):
            summary.notes.append(f"{dataset} was read from {', '.join(data)}.")
    return summary


def _sizes(records: Sequence[Record], *key: str) -> list[dict[str, Any]]:
    """Scores by ensemble size of a data set, network and method, of all members of its cells together."""
    cells = [record for record in records if tuple(record.cell.config[k] for k in ("dataset", "network", "method")) == key]
    parts = [record.arrays() for record in cells]
    return _classification.scores_by_size(np.concatenate([part["probabilities"] for part in parts]), parts[0]["label"])


def _listing(title: str, sizes: Sizes, metrics: Sequence[str], paper: Paper) -> Listing:
    printed = [metric for metric in metrics if metric in paper]
    lines = [
        [method, str(scores["members"]), *(_number(metric, scores[metric]) for metric in metrics),
         *(_number(metric, paper[metric][scores["members"] - 1]) for metric in printed)]
        for method, by_size in sizes.items() for scores in by_size
        if scores["members"] in LISTED_SIZES or paper
    ]  # fmt: skip
    columns = [*(COLUMNS[metric] for metric in metrics), *(f"paper's\n{COLUMNS[metric]}" for metric in printed)]
    return Listing(title, ["", "M", *columns], lines)


def _number(metric: str, value: float) -> str:
    return f"{value:.2%}" if "error" in metric else f"{value:.5f}" if metric == "brier" else f"{value:.4f}"


def _figure_row(title: str, sizes: Sizes, metrics: Sequence[str]) -> Row:
    panels, x_label = [], "number of networks" + " (MC-dropout: of samples)" * (DROPOUT in sizes)
    for metric in metrics:
        values = {method: [scores[metric] for scores in by_size] for method, by_size in sizes.items()}
        lines = [Line(range(1, len(y) + 1), y, name, METHODS[name].role, markers=True) for name, y in values.items()]
        panels.append(Panel(lines, TITLES[metric], x_label, legend=metric == metrics[0]))
    return Row(panels, title, 4.2)


def _claims(dataset: str, sizes: Sizes) -> Iterator[Claim]:
    for metric in METRICS:
        for method, by_size in sizes.items():
            if method != DROPOUT:
                first, last = by_size[0][metric], by_size[-1][metric]
                statement = f"{TITLES[metric]} falls with the number of networks"
                numbers = f"{method}: {_number(metric, first)} → {_number(metric, last)} (M = {len(by_size)})"
                yield Claim(statement, "section 3.4", dataset, last < first, numbers)
        for better, worse in ORDERS:
            if better in sizes and worse in sizes:
                yield _order(dataset, metric, better, worse, sizes)


def _order(dataset: str, metric: str, better: str, worse: str, sizes: Sizes) -> Claim:
    """Whether one method is below another at every size from 5 on (or at the largest, if there are fewer)."""
    least = min(5, len(sizes[better]))
    pairs = [(a[metric], b[metric]) for a, b in zip(sizes[better], sizes[worse], strict=True) if a["members"] >= least]
    wins, (ours, theirs) = sum(a < b for a, b in pairs), pairs[-1]
    last = f"{_number(metric, ours)} and {_number(metric, theirs)} at the largest M"
    statement = f"{TITLES[metric]}: {better} is below {worse} at M ≥ {least}"
    return Claim(statement, "section 3.4", dataset, wins == len(pairs), f"at {wins} of {len(pairs)} sizes; {last}")


def _experiment(
    name: str, dataset: str, networks: tuple[str, ...], makes: str, takes: Mapping[Scale, str], **listed: Any
) -> Experiment:
    """Every ensemble size on a data set, or on a folder in its place; scales below the paper's use the first network only.

    Arguments:
        listed: of `summarise_sizes`; where the paper prints numbers, they are of plain ensembles.
    """
    work = (partial(ensemble_cells, SETTINGS[dataset]), _classification.train_images)
    methods, summarise = (ENSEMBLE,) if "paper" in listed else tuple(METHODS), partial(summarise_sizes, name, **listed)
    return Experiment(name, makes, takes, (dataset,), methods, *work, summarise, networks, networks[1:], takes_folders=True)


MNIST = _experiment(
    *("mnist_ensemble_size", "mnist", ("mlp-3", "mlp-2", "convnet")),
    makes="Figure 2 (a): MNIST against ensemble size, 3-layer MLP; appendix: 2-layer MLP, convnet",
    takes={"smoke": "seconds", "laptop": "20 minutes a network", "paper": "hours"},
)
SVHN = _experiment(
    *("svhn_ensemble_size", "svhn", ("vgg",)),
    makes="Figure 2 (b): SVHN against ensemble size, VGG-style network",
    takes={"smoke": "a minute", "laptop": "30 minutes", "paper": "days without a GPU"},
)
TINY_IMAGENET = _experiment(
    *("imagenet_ensemble_size", "tiny-imagenet", ("inception",)),
    makes="Figure 4 (a table): ImageNet against ensemble size, Inception; here on Tiny-ImageNet at 64 pixels",
    takes={"smoke": "a minute", "laptop": "15 minutes", "paper": "days without a GPU"},
    metrics=tuple(TITLES),
    paper=IMAGENET,
)
