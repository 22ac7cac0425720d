"""What the regression experiments share: their methods, how these are trained, what they predict, and how it is scored."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from sklearn.metrics import root_mean_squared_error

from deep_ensembles import Constant, Cosine, FastGradientSign, Mixture, __version__, heads, metrics, mlp, scoring
from deep_ensembles._random import Purpose, run_seeds, stream
from deep_ensembles._splits import evenly_spaced, hold_out
from deep_ensembles.baselines.mc_dropout import fit_dropout
from deep_ensembles.distributions import Delta
from deep_ensembles.fitting import CrossValidation, cross_validate
from deep_ensembles.paper import datasets
from deep_ensembles.paper.experiments._experiment import Cell, Outcome, Selection
from deep_ensembles.paper.probabilistic_backpropagation import fit_runs
from deep_ensembles.report.splits import over_splits

METRICS = ("rmse", "nll", "nll_mixture", "crps", "coverage_90")
EPOCHS, BATCH_SIZE, EPSILON = 40, 100, 0.01
# Adam's rate: the paper's 0.1 makes networks on standardised data diverge (it is run as written, too). Each split takes
# whichever of these an ensemble likes better on rows held out from the split's training rows.
RATES: dict[str, dict[str, Any]] = {
    "0.01": {"learning_rate": 0.01, "schedule": Constant()},
    "0.01, decayed": {"learning_rate": 0.01, "schedule": Cosine()},
}
Scores: TypeAlias = Mapping[tuple[str, str], Mapping[str, list[float]]]  # (data set, method) -> metric -> one per split
HELD_OUT, CHOOSING_MEMBERS = 0.2, 5
DROPOUT_EPOCHS, DROPOUT_RATES = 400, (0.005, 0.01, 0.05, 0.1)


def regression_cells(settings: Callable[..., Mapping[str, Any]], selection: Selection) -> list[Cell]:
    """One cell per data set and training, with the settings of a scale for that pair; see `regression_cell`."""
    pairs = product(selection.datasets, trainings(selection.methods))
    return [regression_cell(*pair, selection.seed, **settings(selection.scale, *pair)) for pair in pairs]


def regression_cell(dataset: str, training: str, seed: int, **settings: Any) -> Cell:
    """A cell for a training on all splits of a data set.

    Arguments:
        settings: `epochs`; `splits` to take only the first so many; `rows` to train on no more than so many of each.
    """
    card = datasets.card(dataset)
    data = None if card.file is None else datasets.file_sum(datasets.data_home() / card.file)
    methods = {name: method.members for name, method in METHODS.items() if method.training == training}
    about = {"version": __version__, "dataset": dataset, "data": data, "training": training, "methods": methods}
    sizes = {"hidden_units": card.hidden_units, "batch_size": BATCH_SIZE, "epochs": EPOCHS, "splits": card.splits}
    config = {**about, "seed": seed, **sizes, "rows": None, **settings}
    if TRAININGS[training].train is _with_best_rate:
        config["rates"] = {"candidates": list(RATES), "held_out": HELD_OUT, "members": CHOOSING_MEMBERS}
    # PBP's time hardly depends on the number of splits: it has them all take a step at once, on one example each.
    work = card.rows * config["epochs"] * (40 if training == "pbp" else config["splits"])
    return Cell(f"{dataset}-{training}", config, work)


def run_regression(cell: Cell, root: Path) -> Outcome:
    """Train on all splits as one stack, predict their test rows, and score."""
    config = cell.config
    dataset = datasets.uci(config["dataset"])
    splits = [(evenly_spaced(train, config["rows"]), test) for train, test in dataset.splits[: config["splits"]]]
    start = time.perf_counter()
    predictions, choice = TRAININGS[config["training"]].train(dataset, splits, config)
    seconds = time.perf_counter() - start
    rows = np.concatenate([test for _, test in splits])
    arrays = {**component_arrays(predictions), "row": rows, "target": dataset.targets[rows]}
    scores = {name: scores_of_splits(arrays, members) for name, members in config["methods"].items()}
    methods = {name: {"scores": of_method, "chosen": choice} for name, of_method in scores.items()}
    share = float(np.mean([len(test) / len(train) for train, test in splits]))
    return {"methods": methods, "training_seconds": seconds, "test_share": share}, arrays


def train_networks(
    inputs: np.ndarray, targets: np.ndarray, folds: Any, config: Mapping[str, Any], **settings: Any
) -> CrossValidation:
    """Perceptrons of one hidden layer on all folds; `config` has `training`, `hidden_units`, `seed` and `epochs`."""
    training = TRAININGS[config["training"]].settings
    build = partial(mlp, inputs.shape[1], training["head"].raw_size(1), (config["hidden_units"],))
    common = {"cv": folds, "random_state": config["seed"], "max_epochs": config["epochs"]}
    return cross_validate(build, inputs, targets, **common, **training, **settings)


def _with_best_rate(dataset: datasets.Dataset, splits: Any, config: Mapping[str, Any]) -> tuple[list[Mixture], list[str]]:
    """Each split with the rate that scores best on rows held out from the split's training rows."""
    inner = [hold_out(train, HELD_OUT, stream(config["seed"], Purpose.VALIDATION, i)) for i, (train, _) in enumerate(splits)]
    rule: scoring.ScoringRule = TRAININGS[config["training"]].settings.get("scoring_rule", scoring.log_score)
    train = partial(train_networks, dataset.inputs, dataset.targets, config=config, batch_size=config["batch_size"])
    scores = []
    for rate in RATES.values():
        predictions = train(inner, n_members=CHOOSING_MEMBERS, **rate).distributions
        held_out = [torch.tensor(dataset.targets[rows]) for _, rows in inner]
        scores.append([float(rule(*pair).mean()) for pair in zip(predictions, held_out, strict=True)])
    choice = [list(RATES)[i] for i in np.argmin(scores, axis=0)]
    by_split: dict[int, Mixture] = {}
    for name in dict.fromkeys(choice):
        numbers = [i for i, rate_name in enumerate(choice) if rate_name == name]
        trained = train([splits[i] for i in numbers], n_members=max(config["methods"].values()), **RATES[name])
        by_split.update(zip(numbers, trained.distributions, strict=True))
    return [by_split[i] for i in range(len(splits))], choice


def _as_written(dataset: datasets.Dataset, splits: Any, config: Mapping[str, Any]) -> tuple[list[Mixture], Any]:
    how = {"n_members": max(config["methods"].values()), "batch_size": config["batch_size"], "learning_rate": 0.1}
    return train_networks(dataset.inputs, dataset.targets, splits, config, **how).distributions, "0.1"


def _dropout(dataset: datasets.Dataset, splits: Any, config: Mapping[str, Any]) -> tuple[list[Mixture], Any]:
    shape = {"hidden_sizes": (config["hidden_units"],), "n_samples": max(config["methods"].values()), "rates": DROPOUT_RATES}
    run = {"random_state": config["seed"], "max_epochs": config["epochs"], "batch_size": config["batch_size"]}
    how = {**shape, **run, **RATES["0.01, decayed"], "validation_fraction": HELD_OUT}
    models = fit_dropout(dataset.inputs, dataset.targets, [train for train, _ in splits], **how)
    predictions = [model(dataset.inputs[test]) for model, (_, test) in zip(models, splits, strict=True)]
    return predictions, [{"rate": model.rate, "deviation": model.deviation} for model in models]


def _backpropagation(dataset: datasets.Dataset, splits: Any, config: Mapping[str, Any]) -> tuple[list[Mixture], Any]:
    seeds, rows = run_seeds(config["seed"], len(splits)), [train for train, _ in splits]
    shape = {"n_hidden": config["hidden_units"], "n_epochs": config["epochs"]}
    posterior = fit_runs(dataset.inputs, dataset.targets, rows, seeds, **shape)
    return [posterior[i](dataset.inputs[test]) for i, (_, test) in enumerate(splits)], None


class Training(NamedTuple):
    """How networks are trained, for one method or several.

    Arguments:
        train: (data set, splits, config) → a prediction per split, and what was chosen on held-out rows.
        settings: of `cross_validate`, for trainings that call it.
    """

    train: Callable[..., tuple[list[Mixture], Any]]
    settings: Mapping[str, Any] = {}


class Method(NamedTuple):
    """Which training a method needs, and how many of the trained components it combines."""

    training: str
    members: int


TRAININGS = {
    "pbp": Training(_backpropagation),
    "mc-dropout": Training(_dropout),
    "mse": Training(_with_best_rate, {"head": heads.Point(), "scoring_rule": scoring.squared_error}),
    "ml": Training(_with_best_rate, {"head": heads.Normal()}),
    "ml-at": Training(_with_best_rate, {"head": heads.Normal(), "perturbation": FastGradientSign(EPSILON)}),
    "ml-as-written": Training(_as_written, {"head": heads.Normal()}),
}
# In the order of the paper's tables, which print the first seven.
METHODS = {
    "PBP": Method("pbp", 1),
    "MC-dropout": Method("mc-dropout", 100),
    "MSE-5": Method("mse", 5),
    "MSE-10": Method("mse", 10),
    "ML-1": Method("ml", 1),
    "ML-1+AT": Method("ml-at", 1),
    "ML-5": Method("ml", 5),
    "ML-5+AT": Method("ml-at", 5),
    "ML-5 (rate 0.1)": Method("ml-as-written", 5),
}


def trainings(methods: Sequence[str]) -> list[str]:
    """The trainings that give these methods."""
    needed = {METHODS[method].training for method in methods}
    return [training for training in TRAININGS if training in needed]


def score_rows(scores: Scores, printed: Callable[..., Mapping[str, float | None]]) -> list[dict[str, Any]]:
    """A mapping per data set, method and metric: mean and spread over splits beside what the paper prints."""
    return [{"dataset": dataset, "method": method, "metric": name, **over_splits(values), **printed(name, dataset, method)}
            for (dataset, method), metrics in scores.items() for name, values in metrics.items() if values]  # fmt: skip


def component_arrays(predictions: Sequence[Mixture]) -> dict[str, np.ndarray]:
    """The splits' predictions one after the other: `split` `[n]`; `mean`, `std` `[component, n]`."""
    components = [prediction.components for prediction in predictions]
    return {
        "split": np.repeat(np.arange(len(components)), [part.mean.shape[1] for part in components]),
        "mean": np.concatenate([part.mean.double().numpy() for part in components], axis=1),
        "std": np.concatenate([part.stddev.double().numpy() for part in components], axis=1),
    }


def mixtures(arrays: Mapping[str, np.ndarray], members: int) -> Iterator[tuple[Mixture, np.ndarray]]:
    """Split by split, the mixture of the first so many components, and which of the saved rows it is about."""
    for split in range(arrays["split"].max() + 1):
        rows = np.flatnonzero(arrays["split"] == split)
        mean, std = (torch.from_numpy(arrays[name][:members, rows]) for name in ("mean", "std"))
        yield Mixture(torch.distributions.Normal(mean, std) if bool(std.any()) else Delta(mean)), rows


def scores_of_splits(arrays: Mapping[str, np.ndarray], members: int) -> dict[str, list[float] | None]:
    """Every metric of every split, computed from the saved predictions."""
    by_split = [scores(mixture, torch.from_numpy(arrays["target"][rows])) for mixture, rows in mixtures(arrays, members)]
    return {metric: [split[metric] for split in by_split] if metric in by_split[0] else None for metric in METRICS}


def scores(prediction: Mixture, target: torch.Tensor) -> dict[str, float]:
    """RMSE, NLL of the moment-matched Gaussian and of the mixture, CRPS, and the share inside the 90 % interval.

    Networks that predict points have no density of their own: they are scored as the Gaussian with their mean and
    empirical variance throughout.
    """
    gaussian = prediction.moment_matched()
    has_density = isinstance(prediction.components, torch.distributions.Normal)
    scored = prediction if has_density else gaussian
    values = {
        "rmse": float(root_mean_squared_error(target, prediction.mean)),
        "nll": float(scoring.log_score(gaussian, target).mean()),
        "crps": float(scoring.crps(scored, target).mean()),
        "coverage_90": metrics.interval_coverage(scored, target, 0.9),
    }
    return values | {"nll_mixture": float(scoring.log_score(prediction, target).mean())} if has_density else values
