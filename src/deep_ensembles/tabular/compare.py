"""Methods compared on a table by cross-validation: the folds of each method are trained as one stack."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from deep_ensembles import metrics
from deep_ensembles._checks import check_integer
from deep_ensembles._files import json_ready
from deep_ensembles._splits import ComplementaryFolds, cross_validation_splits, over_splits, paired
from deep_ensembles._terminal import Listing
from deep_ensembles.baselines.mc_dropout import fit_dropout
from deep_ensembles.columns import TableError
from deep_ensembles.fitting import CrossValidation, cross_validate
from deep_ensembles.heads import Categorical, Normal, Point
from deep_ensembles.networks import mlp
from deep_ensembles.scoring import crps, squared_error
from deep_ensembles.tabular.data import Log, TableData, read_data
from deep_ensembles.tabular.settings import TableSettings

OURS, SINGLE, MSE, DROPOUT = "deep ensemble", "single network", "MSE ensemble", "MC-dropout"
DEFAULT = "with {} head"  # another deep ensemble, where a head is chosen
_DROPOUT_RATE, _SAMPLES = 0.1, 50
Fold = tuple[NDArray[np.int64], NDArray[np.int64]]


@dataclass(frozen=True)
class Comparison:
    """Scores by method and fold.

    Arguments:
        task: `regression` or `classification`.
        scores: score → method → a number per fold.
        test_share: test rows per training row.
    """

    task: str
    scores: Mapping[str, Mapping[str, Sequence[float]]]
    test_share: float

    def listings(self) -> list[Listing]:
        """One listing per score: mean over folds, and the paired difference to the deep ensemble."""
        return [self._listing(score, methods) for score, methods in self.scores.items()]

    def _listing(self, score: str, methods: Mapping[str, Sequence[float]]) -> Listing:
        rows, differences = [], self._differences(methods)
        for method, values in methods.items():
            folds, gap = over_splits(values), differences.get(method)
            cells = [method, f"{folds['mean']:.4f}", f"{folds['sd']:.4f}", "", "", ""]
            if gap is not None:
                worse = f"{gap['splits'] - gap['lower_on']} of {gap['splits']}"
                cells[3:] = f"{gap['mean']:+.4f} ± {gap['corrected_se']:.4f}", f"{gap['p_value']:.2g}", worse
            rows.append(cells)
        return Listing(score, ["", "mean", "sd over folds", "minus deep ensemble", "p", "higher on folds"], rows)

    def _differences(self, methods: Mapping[str, Sequence[float]]) -> dict[str, dict[str, float | int]]:
        others = {method: values for method, values in methods.items() if method != OURS}
        return {method: paired(values, methods[OURS], self.test_share) for method, values in others.items()}

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON: the numbers of each fold and paired differences to the deep ensemble."""
        differences = {score: self._differences(methods) for score, methods in self.scores.items()}
        content: dict[str, Any] = json_ready({"task": self.task, "scores": self.scores, "differences": differences})
        return content


def compare_table(data: Any, settings: TableSettings, n_folds: int = 5, *, log: Log = print, verbose: int = 0) -> Comparison:
    """Compare a deep ensemble with one network, MC-dropout and, for numbers, an ensemble trained on squared error.

    Arguments:
        data: a file, several, or a folder of parts.
        settings: as for `fit_table`; no rows are held out beyond the folds, and nothing is recalibrated. With a head, a
            deep ensemble with the default one is compared too.
        n_folds: of the cross-validation; whole groups, or later rows, if a column says so.
        log: called with lines and listings: what the columns are, how rows are used.
        verbose: 1 for a progress bar on a terminal.
    """
    check_integer("folds", n_folds, low=2)
    read = read_data(data, settings, log)
    schema = read.schema(settings)
    log(schema.listing())
    folds = _folds(read, n_folds, settings)
    predictions = _Methods(schema.encode(read.table), read, folds, settings, verbose).predictions(log)
    targets = [torch.from_numpy(read.y[test]) for _, test in folds]
    measures = _CLASS_SCORES if read.target.classes else _COUNT_SCORES if read.head.kind == "counts" else _NUMBER_SCORES
    scores = {
        name: {method: list(map(measure, folds_of_method, targets)) for method, folds_of_method in predictions.items()}
        for name, measure in measures.items()
    }
    test_share = float(np.mean([len(test) / len(train) for train, test in folds]))
    return Comparison(read.target.task, scores, test_share)


_NUMBER_SCORES: Mapping[str, Callable[[Any, torch.Tensor], float]] = {
    "NLL (nats, lower is better)": metrics.negative_log_likelihood,
    "RMSE (lower is better)": lambda prediction, target: float((prediction.mean - target).square().mean().sqrt()),
    "CRPS (lower is better)": lambda prediction, target: float(crps(prediction, target).mean()),
    "Distance of a 90 % interval's coverage from 90 % (lower is better)": lambda prediction, target: abs(
        metrics.interval_coverage(prediction, target, 0.9) - 0.9
    ),
}


def _count_nll(prediction: Any, target: torch.Tensor) -> float:
    """Of the unit cell around each count where the prediction is a density, so that both are probabilities."""
    if getattr(prediction, "kind", "numbers") == "counts":
        return metrics.negative_log_likelihood(prediction, target)
    shares = prediction.cdf(target + 0.5) - prediction.cdf(target - 0.5)
    return float(-shares.clamp_min(torch.finfo(shares.dtype).tiny).log().mean())


_COUNT_SCORES = {
    "NLL (nats, of a unit around each count, lower is better)": _count_nll,
    **dict(list(_NUMBER_SCORES.items())[1:]),
}
_CLASS_SCORES: Mapping[str, Callable[[Any, torch.Tensor], float]] = {
    "NLL (nats, lower is better)": metrics.negative_log_likelihood,
    "Error (share of wrong labels, lower is better)": lambda prediction, target: 1 - metrics.accuracy(prediction, target),
    "Brier score (÷ classes, lower is better)": metrics.brier_score,
    "Expected calibration error (lower is better)": metrics.expected_calibration_error,
}


def _folds(read: TableData, n_folds: int, settings: TableSettings) -> list[Fold]:
    n = len(read)
    if read.times is None and read.groups is not None and (n_groups := len(np.unique(read.groups))) < n_folds:
        raise TableError(f"`{settings.group}` has {n_groups} groups, too few for {n_folds} folds")
    common = read.target.classes and np.bincount(read.y.astype(np.int64)).min() >= n_folds
    classes = read.y if common else None
    return cross_validation_splits(n_folds, n, classes=classes, groups=read.groups, times=read.times, seed=settings.seed)


@dataclass(frozen=True, eq=False)
class _Methods:
    """Each method trained on all folds, and its predictions for each fold's test rows."""

    inputs: NDArray[np.float32]
    read: TableData
    folds: list[Fold]
    settings: TableSettings
    verbose: int

    def predictions(self, log: Log) -> dict[str, list[Any]]:
        """Predictions by method; the deep ensemble first."""
        log(f"{len(self.read)} rows in {len(self.folds)} folds; training each method on all folds as one stack")
        classes, n_members = bool(self.read.target.classes), self.settings.members
        head = self.read.head
        ours = self._trained(n_members, self.read.n_outputs, head=head)
        predictions: dict[str, list[Any]] = {OURS: ours.distributions}
        predictions[SINGLE] = self._tested([ensemble.subset(1).mixture for ensemble in ours.ensembles])
        predictions[DROPOUT] = self._tested(self._dropout_of_classes() if classes else self._dropout_of_numbers())
        default = Categorical() if classes else Normal()
        if type(head) is not type(default):
            n_outputs = default.raw_size(len(self.read.target.classes) or 1)
            usual = self._trained(n_members, n_outputs, head=default).distributions
            predictions[DEFAULT.format(type(default).__name__.lower())] = usual
        if classes:
            log("note: an MSE ensemble predicts numbers, and is left out for classes")
        else:
            mse = self._trained(n_members, 1, head=Point(), scoring_rule=squared_error).distributions
            predictions[MSE] = [mixture.moment_matched() for mixture in mse]
        return predictions

    def _tested(self, models: Sequence[Callable[[Any], Any]]) -> list[Any]:
        """What the model of each fold predicts for its test rows."""
        return [model(self.inputs[test]) for model, (_, test) in zip(models, self.folds, strict=True)]

    def _training(self) -> dict[str, Any]:
        """Settings that all methods share."""
        common = {"sample_weight": self.read.weights, "verbose": self.verbose}
        return {**common, **self.settings.training(len(self.folds[0][0]))}

    def _trained(self, n_members: int, n_outputs: int, dropout: float = 0.0, **settings: Any) -> CrossValidation:
        build = partial(mlp, self.inputs.shape[1], n_outputs, self.settings.hidden_sizes, dropout=dropout)
        folds = ComplementaryFolds(self._member_folds(n_members), self.read.groups) if n_members > 1 else None
        settings |= {"perturbation": self.settings.perturbation, "folds": folds, **self._training()}
        return cross_validate(build, self.inputs, self.read.y, cv=self.folds, n_members=n_members, **settings)

    def _member_folds(self, n_members: int) -> int:
        """How many folds members take turns to hold out: no more than there are groups."""
        groups = self.read.groups
        fewest = n_members if groups is None else min(len(np.unique(groups[train])) for train, _ in self.folds)
        if fewest < 2:
            raise TableError(f"`{self.settings.group}` has only one group left to train on in a fold; members need two")
        return min(5, n_members, fewest)

    def _dropout_of_classes(self) -> list[Any]:
        trained = self._trained(1, self.read.n_outputs, _DROPOUT_RATE, head=self.read.head)
        how: dict[str, Any] = {"n_samples": _SAMPLES, "random_state": self.settings.seed}
        return [partial(ensemble.sampled, **how) for ensemble in trained.ensembles]

    def _dropout_of_numbers(self) -> list[Any]:
        settings = {"hidden_sizes": self.settings.hidden_sizes, "n_samples": _SAMPLES, **self._training()}
        return [*fit_dropout(self.inputs, self.read.y, [train for train, _ in self.folds], **settings)]
