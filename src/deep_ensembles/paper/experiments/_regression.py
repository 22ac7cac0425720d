"""What the regression experiments share: the ways to train, the predictions they leave, and how these are scored."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.metrics import root_mean_squared_error

from deep_ensembles import __version__
from deep_ensembles._files import file_sum
from deep_ensembles._random import Purpose, run_seeds, stream
from deep_ensembles._splits import hold_out
from deep_ensembles.baselines.mc_dropout import fit_dropout
from deep_ensembles.fitting import CrossValidation, cross_validate
from deep_ensembles.heads import Delta, Normal, Point
from deep_ensembles.metrics import interval_coverage
from deep_ensembles.mixture import Mixture
from deep_ensembles.networks import mlp
from deep_ensembles.paper.datasets import Dataset, card, data_home, uci
from deep_ensembles.paper.experiments._experiment import Outcome, Selection, thinned
from deep_ensembles.paper.probabilistic_backpropagation import fit_runs
from deep_ensembles.paper.records import Cell
from deep_ensembles.perturbations import FastGradientSign
from deep_ensembles.scoring import ScoringRule, crps, log_score, squared_error
from deep_ensembles.training import Constant, Cosine

# What is trained once -> the methods it gives, with the number of components each one combines.
TRAININGS = {
    "pbp": {"PBP": 1},
    "mc-dropout": {"MC-dropout": 100},
    "mse": {"MSE-5": 5, "MSE-10": 10},
    "ml": {"ML-1": 1, "ML-5": 5},
    "ml-at": {"ML-1+AT": 1, "ML-5+AT": 5},
    "ml-as-written": {"ML-5 (rate 0.1)": 5},
}
METHODS = ("PBP", "MC-dropout", "MSE-5", "MSE-10", "ML-1", "ML-1+AT", "ML-5", "ML-5+AT", "ML-5 (rate 0.1)")
METRICS = ("rmse", "nll", "nll_mixture", "crps", "coverage_90")

EPOCHS, BATCH_SIZE, EPSILON = 40, 100, 0.01
# What ensembles of networks learn by; PBP and MC-dropout have ways of their own.
WAYS: dict[str, dict[str, Any]] = {
    "mse": {"head": Point(), "scoring_rule": squared_error},
    "ml": {"head": Normal()},
    "ml-at": {"head": Normal(), "perturbation": FastGradientSign(EPSILON)},
    "ml-as-written": {"head": Normal()},
}
# Adam's rate: the paper's 0.1 makes networks on standardised data diverge (it is run as written, too). Each split takes
# whichever of these an ensemble likes better on rows held out from the split's training rows.
RATES: dict[str, dict[str, Any]] = {
    "0.01": {"learning_rate": 0.01, "schedule": Constant()},
    "0.01, decayed": {"learning_rate": 0.01, "schedule": Cosine()},
}
HELD_OUT, CHOOSING_MEMBERS = 0.2, 5
DROPOUT_EPOCHS, DROPOUT_RATES = 400, (0.005, 0.01, 0.05, 0.1)


def trainings(methods: Sequence[str], known: Mapping[str, Mapping[str, int]] = TRAININGS) -> list[str]:
    """The trainings that give these methods."""
    return [name for name, gives in known.items() if any(method in gives for method in methods)]


def regression_cells(selection: Selection, settings: Callable[[str, str], Mapping[str, Any]]) -> list[Cell]:
    """One cell per data set and training, with the settings of that pair; see `regression_cell`."""
    return [
        regression_cell(dataset, training, selection.seed, **settings(dataset, training))
        for dataset in selection.datasets
        for training in trainings(selection.methods)
    ]


def regression_cell(dataset: str, training: str, seed: int, **settings: Any) -> Cell:
    """A cell for a training on all splits of a data set.

    Arguments:
        settings: `epochs`; `splits` to take only the first so many; `rows` to train on no more than so many of each.
    """
    about = card(dataset)
    config = {
        "version": __version__,
        "dataset": dataset,
        "data": None if about.file is None else file_sum(data_home() / about.file),
        "training": training,
        "methods": TRAININGS[training],
        "hidden_units": about.hidden_units,
        "batch_size": BATCH_SIZE,
        "seed": seed,
        "epochs": EPOCHS,
        "splits": about.splits,
        "rows": None,
        **settings,
    }
    if _TRAIN[training] is _with_best_rate:
        config["rates"] = {"candidates": list(RATES), "held_out": HELD_OUT, "members": CHOOSING_MEMBERS}
    # PBP's time hardly depends on the number of splits: it has them all take a step at once, on one example each.
    work = about.rows * config["epochs"] * (40 if training == "pbp" else config["splits"])
    return Cell(f"{dataset}-{training}", config, work)


def run_regression(cell: Cell, root: Path) -> Outcome:
    """Train on all splits as one stack, predict their test rows, and score."""
    config = cell.config
    dataset = uci(config["dataset"])
    splits = [(thinned(train, config["rows"]), test) for train, test in dataset.splits[: config["splits"]]]
    start = time.perf_counter()
    predictions, chosen = _TRAIN[config["training"]](dataset, splits, config)
    seconds = time.perf_counter() - start
    rows = np.concatenate([test for _, test in splits])
    arrays = {**component_arrays(predictions), "row": rows, "target": dataset.targets[rows]}
    methods = {
        name: {"scores": scores_of_splits(arrays, members), "chosen": chosen} for name, members in config["methods"].items()
    }
    share = float(np.mean([len(test) / len(train) for train, test in splits]))
    return Outcome({"methods": methods, "training_seconds": seconds, "test_share": share}, arrays)


# -- trainings --------------------------------------------------------------------------------------------------------


def train_networks(
    inputs: np.ndarray, targets: np.ndarray, folds: Any, config: Mapping[str, Any], **settings: Any
) -> CrossValidation:
    """Perceptrons of one hidden layer on all folds; `config` has `training`, `hidden_units`, `seed` and `epochs`."""
    way = WAYS[config["training"]]
    build = partial(mlp, inputs.shape[1], way["head"].raw_size(1), (config["hidden_units"],))
    common = {"cv": folds, "random_state": config["seed"], "max_epochs": config["epochs"]}
    return cross_validate(build, inputs, targets, **common, **way, **settings)


def _with_best_rate(dataset: Dataset, splits: Any, config: Mapping[str, Any]) -> tuple[list[Mixture], list[str]]:
    """Each split with the rate that scores best on rows held out from the split's training rows."""
    inner = [hold_out(train, HELD_OUT, stream(config["seed"], Purpose.VALIDATION, i)) for i, (train, _) in enumerate(splits)]
    rule: ScoringRule = WAYS[config["training"]].get("scoring_rule", log_score)
    train = partial(train_networks, dataset.inputs, dataset.targets, config=config, batch_size=config["batch_size"])
    scores = []
    for rate in RATES.values():
        tried = zip(train(inner, n_members=CHOOSING_MEMBERS, **rate).distributions, inner, strict=True)
        scores.append([float(rule(found, torch.tensor(dataset.targets[rows])).mean()) for found, (_, rows) in tried])
    chosen = [list(RATES)[i] for i in np.argmin(scores, axis=0)]
    predictions: dict[int, Mixture] = {}
    for name in dict.fromkeys(chosen):
        own = [i for i, each in enumerate(chosen) if each == name]
        trained = train([splits[i] for i in own], n_members=max(config["methods"].values()), **RATES[name])
        predictions.update(zip(own, trained.distributions, strict=True))
    return [predictions[i] for i in range(len(splits))], chosen


def _as_written(dataset: Dataset, splits: Any, config: Mapping[str, Any]) -> tuple[list[Mixture], Any]:
    how = {"n_members": max(config["methods"].values()), "batch_size": config["batch_size"], "learning_rate": 0.1}
    return train_networks(dataset.inputs, dataset.targets, splits, config, **how).distributions, "0.1"


def _dropout(dataset: Dataset, splits: Any, config: Mapping[str, Any]) -> tuple[list[Mixture], Any]:
    models = fit_dropout(
        dataset.inputs,
        dataset.targets,
        [train for train, _ in splits],
        rates=DROPOUT_RATES,
        hidden_sizes=(config["hidden_units"],),
        n_samples=max(config["methods"].values()),
        validation_fraction=HELD_OUT,
        random_state=config["seed"],
        max_epochs=config["epochs"],
        batch_size=config["batch_size"],
        **RATES["0.01, decayed"],
    )
    predictions = [model(dataset.inputs[test]) for model, (_, test) in zip(models, splits, strict=True)]
    return predictions, [{"rate": model.rate, "deviation": model.deviation} for model in models]


def _backpropagation(dataset: Dataset, splits: Any, config: Mapping[str, Any]) -> tuple[list[Mixture], Any]:
    seeds, rows = run_seeds(config["seed"], len(splits)), [train for train, _ in splits]
    shape = {"n_hidden": config["hidden_units"], "n_epochs": config["epochs"]}
    posterior = fit_runs(dataset.inputs, dataset.targets, rows, seeds, **shape)
    return [posterior[i](dataset.inputs[test]) for i, (_, test) in enumerate(splits)], None


_TRAIN: dict[str, Callable[..., tuple[list[Mixture], Any]]] = {
    "pbp": _backpropagation,
    "mc-dropout": _dropout,
    "mse": _with_best_rate,
    "ml": _with_best_rate,
    "ml-at": _with_best_rate,
    "ml-as-written": _as_written,
}


# -- predictions and scores -------------------------------------------------------------------------------------------


def component_arrays(predictions: Sequence[Mixture]) -> dict[str, np.ndarray]:
    """The splits' predictions one after the other: `split` `[n]`; `mean`, `std` `[component, n]`."""
    components = [prediction.components for prediction in predictions]
    return {
        "split": np.repeat(np.arange(len(components)), [each.mean.shape[1] for each in components]),
        "mean": np.concatenate([each.mean.double().numpy() for each in components], axis=1),
        "std": np.concatenate([each.stddev.double().numpy() for each in components], axis=1),
    }


def mixtures(arrays: Mapping[str, np.ndarray], members: int) -> Iterator[tuple[Mixture, np.ndarray]]:
    """Split by split, the mixture of the first so many components, and which of the saved rows it is about."""
    for split in range(arrays["split"].max() + 1):
        rows = np.flatnonzero(arrays["split"] == split)
        mean, std = (torch.from_numpy(arrays[name][:members, rows]) for name in ("mean", "std"))
        yield Mixture(torch.distributions.Normal(mean, std) if bool(std.any()) else Delta(mean)), rows


def scores_of_splits(arrays: Mapping[str, np.ndarray], members: int) -> dict[str, list[float] | None]:
    """Every metric of every split, computed from the saved predictions."""
    each = [scores(found, torch.from_numpy(arrays["target"][rows])) for found, rows in mixtures(arrays, members)]
    return {metric: [score[metric] for score in each] if metric in each[0] else None for metric in METRICS}


def scores(prediction: Mixture, target: torch.Tensor) -> dict[str, float]:
    """RMSE, NLL of the moment-matched Gaussian and of the mixture, CRPS, and the share inside the 90 % interval.

    Networks that predict points have no density of their own: they are scored as the Gaussian with their mean and
    empirical variance throughout.
    """
    gaussian = prediction.moment_matched()
    has_density = isinstance(prediction.components, torch.distributions.Normal)
    scored = prediction if has_density else gaussian
    found = {
        "rmse": float(root_mean_squared_error(target, prediction.mean)),
        "nll": float(log_score(gaussian, target).mean()),
        "crps": float(crps(scored, target).mean()),
        "coverage_90": interval_coverage(scored, target, 0.9),
    }
    return found | {"nll_mixture": float(log_score(prediction, target).mean())} if has_density else found
