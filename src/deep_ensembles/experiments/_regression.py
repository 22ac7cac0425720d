"""What the regression experiments share: the ways to train, the predictions they leave, and how these are scored."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.metrics import root_mean_squared_error

from deep_ensembles import __version__
from deep_ensembles._files import file_sum
from deep_ensembles._random import Purpose, run_seeds, stream
from deep_ensembles.baselines.mc_dropout import fit_dropout
from deep_ensembles.baselines.probabilistic_backpropagation import fit_runs
from deep_ensembles.datasets import Dataset, card, data_home, uci
from deep_ensembles.experiments._experiment import Outcome
from deep_ensembles.fitting import CrossValidation, cross_validate
from deep_ensembles.heads import Delta, Point
from deep_ensembles.metrics import interval_coverage
from deep_ensembles.mixture import Mixture
from deep_ensembles.networks import mlp
from deep_ensembles.perturbations import FastGradientSign
from deep_ensembles.records import Cell
from deep_ensembles.runs import hold_out
from deep_ensembles.schedules import Constant, Cosine
from deep_ensembles.scoring import crps, log_score, squared_error

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
# Adam's rate: the paper's 0.1 makes networks on standardised data diverge (it is run as written, too). Each split takes
# whichever of these an ensemble likes better on rows held out from the split's training rows.
RATES = (("0.01", 0.01, Constant()), ("0.01, decayed", 0.01, Cosine()))
HELD_OUT, CHOOSING_MEMBERS = 0.2, 5
DROPOUT_EPOCHS, DROPOUT_RATES = 400, (0.005, 0.01, 0.05, 0.1)


def trainings(methods: Sequence[str]) -> list[str]:
    """The trainings that give these methods."""
    return [name for name, gives in TRAININGS.items() if any(method in gives for method in methods)]


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
    if training in ("ml", "ml-at", "mse"):
        config["rates"] = {"candidates": [name for name, _, _ in RATES], "held_out": HELD_OUT, "members": CHOOSING_MEMBERS}
    # PBP's time hardly depends on the number of splits: it has them all take a step at once, on one example each.
    work = about.rows * config["epochs"] * (40 if training == "pbp" else config["splits"])
    return Cell(f"{dataset}-{training}", config, work)


def run_regression(cell: Cell, out: Path) -> Outcome:
    """Train on all splits as one stack, predict their test rows, and score."""
    config = cell.config
    dataset = uci(config["dataset"])
    splits = [(_thinned(train, config["rows"]), test) for train, test in dataset.splits[: config["splits"]]]
    start = time.perf_counter()
    predictions, chosen = _TRAIN[config["training"]](dataset, splits, config)
    seconds = time.perf_counter() - start
    arrays = _arrays(predictions, dataset.targets, splits)
    methods = {
        name: {"scores": scores_of_splits(arrays, members), "chosen": chosen} for name, members in config["methods"].items()
    }
    share = float(np.mean([len(test) / len(train) for train, test in splits]))
    return Outcome({"methods": methods, "training_seconds": seconds, "test_share": share}, arrays)


# -- trainings --------------------------------------------------------------------------------------------------------


def _likelihood(dataset: Dataset, splits: Any, config: Mapping[str, Any], **settings: Any) -> tuple[list[Mixture], Any]:
    return _with_best_rate(dataset, splits, config, n_outputs=2, **settings)


def _points(dataset: Dataset, splits: Any, config: Mapping[str, Any]) -> tuple[list[Mixture], Any]:
    return _with_best_rate(dataset, splits, config, n_outputs=1, head=Point(), scoring_rule=squared_error)


def _as_written(dataset: Dataset, splits: Any, config: Mapping[str, Any]) -> tuple[list[Mixture], Any]:
    members = max(config["methods"].values())
    return _train(dataset, splits, config, 2, members, learning_rate=0.1).distributions, "0.1"


def _with_best_rate(
    dataset: Dataset, splits: Any, config: Mapping[str, Any], n_outputs: int, **settings: Any
) -> tuple[list[Mixture], list[str]]:
    """Each split with the rate that scores best on rows held out from the split's training rows."""
    inner = [hold_out(train, HELD_OUT, stream(config["seed"], Purpose.VALIDATION, i)) for i, (train, _) in enumerate(splits)]
    rule = settings.get("scoring_rule", log_score)
    scores = np.empty((len(RATES), len(splits)))
    for i, (_, rate, schedule) in enumerate(RATES):
        tried = _train(
            dataset, inner, config, n_outputs, CHOOSING_MEMBERS, learning_rate=rate, schedule=schedule, **settings
        )
        for j, (prediction, (_, held_out)) in enumerate(zip(tried.distributions, tried.folds, strict=True)):
            scores[i, j] = float(rule(prediction, torch.tensor(dataset.targets[held_out])).mean())
    best = scores.argmin(0)
    predictions: list[Mixture | None] = [None] * len(splits)
    members = max(config["methods"].values())
    for i, (_, rate, schedule) in enumerate(RATES):
        own = np.flatnonzero(best == i)
        if not len(own):
            continue
        folds = [splits[j] for j in own]
        trained = _train(dataset, folds, config, n_outputs, members, learning_rate=rate, schedule=schedule, **settings)
        for place, prediction in zip(own.tolist(), trained.distributions, strict=True):
            predictions[place] = prediction
    return [each for each in predictions if each is not None], [RATES[i][0] for i in best]


def _train(
    dataset: Dataset, splits: Any, config: Mapping[str, Any], n_outputs: int, n_members: int, **settings: Any
) -> CrossValidation:
    return cross_validate(
        partial(mlp, dataset.inputs.shape[1], n_outputs, (config["hidden_units"],)),
        dataset.inputs,
        dataset.targets,
        cv=splits,
        n_members=n_members,
        random_state=config["seed"],
        max_epochs=config["epochs"],
        batch_size=config["batch_size"],
        **settings,
    )


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
        learning_rate=0.01,
        schedule=Cosine(),
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
    "mse": _points,
    "ml": _likelihood,
    "ml-at": partial(_likelihood, perturbation=FastGradientSign(EPSILON)),
    "ml-as-written": _as_written,
}


def _thinned(rows: np.ndarray, most: int | None) -> np.ndarray:
    """At most so many rows, evenly spaced."""
    return rows if most is None or len(rows) <= most else rows[np.linspace(0, len(rows) - 1, most).astype(int)]


# -- predictions and scores -------------------------------------------------------------------------------------------


def _arrays(predictions: Sequence[Mixture], targets: np.ndarray, splits: Any) -> dict[str, np.ndarray]:
    """All splits' test rows one after the other: `split`, `row`, `target` `[n]`; `mean`, `std` `[component, n]`."""
    components = [prediction.components for prediction in predictions]
    tests = [test for _, test in splits]
    return {
        "split": np.repeat(np.arange(len(tests)), [len(test) for test in tests]),
        "row": np.concatenate(tests),
        "target": np.concatenate([targets[test] for test in tests]),
        "mean": np.concatenate([each.mean.double().numpy() for each in components], axis=1),
        "std": np.concatenate([each.stddev.double().numpy() for each in components], axis=1),
    }


def mixture_of(arrays: Mapping[str, np.ndarray], members: int, rows: Any = slice(None)) -> Mixture:
    """The mixture of the first so many components for some of the saved rows."""
    mean, std = (torch.from_numpy(arrays[name][:members, rows]) for name in ("mean", "std"))
    return Mixture(torch.distributions.Normal(mean, std) if bool(std.any()) else Delta(mean))


def scores_of_splits(arrays: Mapping[str, np.ndarray], members: int) -> dict[str, list[float] | None]:
    """Every metric of every split, computed from the saved predictions."""
    splits = range(int(arrays["split"].max()) + 1)
    each = []
    for split in splits:
        rows = np.flatnonzero(arrays["split"] == split)
        each.append(scores(mixture_of(arrays, members, rows), torch.from_numpy(arrays["target"][rows])))
    return {metric: [score[metric] for score in each] if metric in each[0] else None for metric in METRICS}


def scores(prediction: Mixture, target: torch.Tensor) -> dict[str, float]:
    """RMSE, NLL of the moment-matched Gaussian and of the mixture, CRPS, and the share inside the 90 % interval.

    Networks that predict points have no density of their own: they are scored as the Gaussian with their mean and
    empirical variance throughout.
    """
    gaussian = prediction.moment_matched()
    has_density = isinstance(prediction.components, torch.distributions.Normal)
    found = {
        "rmse": float(root_mean_squared_error(target, prediction.mean)),
        "nll": float(log_score(gaussian, target).mean()),
        "nll_mixture": float(log_score(prediction, target).mean()) if has_density else float("nan"),
        "crps": float(crps(prediction if has_density else gaussian, target).mean()),
        "coverage_90": interval_coverage(prediction if has_density else gaussian, target, 0.9),
    }
    return found if has_density else {name: value for name, value in found.items() if name != "nll_mixture"}
