"""Methods compared on a table by cross-validation."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from deep_ensembles import Categorical, Checkpoint, Ensemble, Normal, crps, metrics, squared_error
from deep_ensembles._checks import check_integer
from deep_ensembles._files import json_ready
from deep_ensembles._splits import Split, cross_validation_splits
from deep_ensembles._terminal import Listing
from deep_ensembles.baselines.mc_dropout import fit_dropout
from deep_ensembles.columns import TableError
from deep_ensembles.execution import Execution
from deep_ensembles.recipes import Task
from deep_ensembles.report.splits import over_splits, paired
from deep_ensembles.selection import Fitted
from deep_ensembles.tabular.data import Log, TableData, check_values, read_data, without_copies
from deep_ensembles.tabular.fit import HeldOut, check_recalibration, fit_by_recipe
from deep_ensembles.tabular.rivals import Rival, rivals
from deep_ensembles.tabular.settings import TRAINING, TableSettings

OURS, SINGLE, MSE, DROPOUT = "deep ensemble", "single network", "MSE ensemble", "MC-dropout"
DEFAULT = "with default head"  # another deep ensemble, where a head is asked for
_DROPOUT_RATE, _SAMPLES = 0.1, 50
_DROPOUT: dict[str, Any] = {"hidden_sizes": (100, 100), "learning_rate": 0.003, "early_stopping": True}


@dataclass(frozen=True)
class Comparison:
    """Scores by method and fold.

    Arguments:
        task: `regression` or `classification`.
        scores: score → method → a number per fold.
        test_share: test rows per training row.
        seconds: method → seconds to train on a fold and to predict its test rows; what methods share counts for the first.
    """

    task: str
    scores: Mapping[str, Mapping[str, Sequence[float]]]
    test_share: float
    seconds: Mapping[str, tuple[float, float]] = field(default_factory=dict)

    def listings(self) -> list[Listing]:
        """All methods and scores, then by score the paired differences to the deep ensemble."""
        return [self.leaderboard(), *(self._listing(score, methods) for score, methods in self.scores.items())]

    def leaderboard(self) -> Listing:
        """Means over folds, the best first by the first score; of each score the best has a star."""
        names = list(self.scores)
        means = {score: {method: float(np.mean(values)) for method, values in self.scores[score].items()} for score in names}
        ranked = sorted(means[names[0]], key=means[names[0]].__getitem__)
        best = {score: min(means[score], key=means[score].__getitem__) for score in names}
        seconds = {method: [f"{value:.2g}" for value in pair] for method, pair in self.seconds.items()}
        if SINGLE in seconds:
            seconds[SINGLE][0] = "–"  # it is taken from the deep ensemble, whose fit it needs
        rows = [[method, *(f"{means[score][method]:.4f}{'*' * (best[score] == method)}" for score in names),
                 *seconds.get(method, ())] for method in ranked]  # fmt: skip
        heads = [name.partition(" (")[0].replace("Distance of a 90 % interval's coverage from 90 %", "|coverage − 90 %|")
                 for name in names]  # fmt: skip
        times = ["seconds to fit", "to predict"] if self.seconds else []
        return Listing("All methods", ["", *heads, *times], rows, "means over folds, lower is better; *: the best")

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
        return dict(json_ready({**vars(self), "differences": differences}))


def compare_table(data: Any, settings: TableSettings, n_folds: int = 5, *, only: Sequence[str] | None = None,
                  log: Log = print, checkpoint: Checkpoint | None = None, execution: Execution | None = None,
                  verbose: int = 0) -> Comparison:  # fmt: skip
    """Compare a deep ensemble with other networks and with models that people know.

    Those are one network, MC-dropout, for numbers an ensemble trained on squared error, scikit-learn's linear models, random
    forest and gradient boosting, and CatBoost and NGBoost where they are installed.

    Arguments:
        data: a file, several, or a folder of parts.
        settings: as for `fit_table`; the deep ensemble is trained and recalibrated as there, and no rows are held out
            beyond the folds. With a head, a deep ensemble with the default one is compared too.
        n_folds: of the cross-validation; whole groups, or later rows, if a column says so.
        only: names of methods to compare the deep ensemble with; all by default.
        log: called with lines and listings: what the columns are, how rows are used.
        checkpoint, execution, verbose: as for `fit_table`.
    """
    check_integer("folds", n_folds, low=2)
    read = read_data(data, replace(settings, stream=False), log)
    check_recalibration(settings.recalibration, read.head, len(read))
    schema = read.schema(settings)
    check_values(schema, [read], settings.errors, log)
    log(schema.listing())
    folds = _folds(read, n_folds, settings)
    how = {"checkpoint": checkpoint, "execution": execution, "verbose": verbose}
    inputs, dense = (known.encode(read.table, "missing") for known in (schema, read.schema(settings, coded=False)))
    methods = _Methods(inputs, dense, read, folds, settings, how, only)
    predictions = methods.predictions(log)
    targets = [torch.from_numpy(read.y[test]) for _, test in folds]
    scores = {name: {method: list(map(measure, predicted, targets)) for method, predicted in predictions.items()}
              for name, measure in _SCORES[read.head.kind].items()}  # fmt: skip
    test_share = float(np.mean([len(test) / len(train) for train, test in folds]))
    return Comparison(read.target.task, scores, test_share, methods.seconds)


def _count_nll(prediction: Any, target: torch.Tensor) -> float:
    """Of the unit cell around each count where the prediction is a density, so that both are probabilities."""
    if getattr(prediction, "kind", "numbers") == "counts":
        return metrics.negative_log_likelihood(prediction, target)
    shares = prediction.cdf(target + 0.5) - prediction.cdf(target - 0.5)
    return float(-shares.clamp_min(torch.finfo(shares.dtype).tiny).log().mean())


_Scores = dict[str, Callable[[Any, torch.Tensor], float]]
_NLL: _Scores = {"NLL (nats, lower is better)": metrics.negative_log_likelihood}
_OF_NUMBERS: _Scores = {
    "RMSE (lower is better)": lambda prediction, target: float((prediction.mean - target).square().mean().sqrt()),
    "CRPS (lower is better)": lambda prediction, target: float(crps(prediction, target).mean()),
    "Distance of a 90 % interval's coverage from 90 % (lower is better)":
        lambda prediction, target: abs(metrics.interval_coverage(prediction, target, 0.9) - 0.9),
}  # fmt: skip
_SCORES: Mapping[str, _Scores] = {
    "numbers": _NLL | _OF_NUMBERS,
    "counts": {"NLL (nats, of a unit around each count, lower is better)": _count_nll} | _OF_NUMBERS,
    "classes": _NLL | {
        "Error (share of wrong labels, lower is better)": lambda *given: 1 - metrics.accuracy(*given),
        "Brier score (÷ classes, lower is better)": metrics.brier_score,
        "Expected calibration error (lower is better)": metrics.expected_calibration_error,
    },
}  # fmt: skip


def _folds(read: TableData, n_folds: int, settings: TableSettings) -> list[Split]:
    n = len(read)
    if read.times is None and read.groups is not None and (n_groups := len(np.unique(read.groups))) < n_folds:
        raise TableError(f"`{settings.group}` has {n_groups} groups, too few for {n_folds} folds")
    common = read.target.classes and np.bincount(read.y.astype(np.int64)).min() >= n_folds
    classes = read.y if common else None
    if read.times is not None:
        return [without_copies(*fold, read) for fold in cross_validation_splits(n_folds, n, times=read.times)]
    return cross_validation_splits(n_folds, n, classes=classes, groups=read.together, seed=settings.seed)


@dataclass(frozen=True, eq=False)
class _Methods:
    """Each method trained on all folds, and its predictions for each fold's test rows.

    A method is a function that trains a model for the fold of a number. `dense` are inputs for methods that learn no
    vectors of categories.
    """

    inputs: NDArray[np.float32]
    dense: NDArray[np.float32]
    read: TableData
    folds: list[Split]
    settings: TableSettings
    how: Mapping[str, Any]
    only: Sequence[str] | None = None
    seconds: dict[str, tuple[float, float]] = field(default_factory=dict)
    ours: list[Fitted] = field(default_factory=list)

    def predictions(self, log: Log) -> dict[str, list[Any]]:
        """Predictions by method; the deep ensemble first."""
        methods = self._methods()
        by_name = {name.lower(): name for name in methods if name != DEFAULT}
        if unknown := [name for name in self.only or () if name.lower() not in by_name]:
            raise TableError(f"no method is called {unknown[0]!r}; there are {', '.join(by_name.values())}")
        wanted = methods if self.only is None else {OURS, DEFAULT, *(by_name[name.lower()] for name in self.only)}
        log(f"{len(self.read)} rows in {len(self.folds)} folds; training each method on every fold")
        if self.read.target.classes:
            log("note: an MSE ensemble predicts numbers, and is left out for classes")
        return {name: self._tested(name, train) for name, train in methods.items() if name in wanted}

    def _methods(self) -> dict[str, Callable[[int], Any]]:
        """All methods by name."""
        is_class = bool(self.read.target.classes)
        methods: dict[str, Callable[[int], Any]] = {OURS: self._deep_ensemble, SINGLE: self._single}
        methods[DROPOUT] = self._dropout_of_classes if is_class else lambda fold: self._dropout_of_numbers[fold]
        if self.settings.head is not None:
            usual = replace(self, read=replace(self.read, head=Categorical() if is_class else Normal()),
                            settings=replace(self.settings, head=None, task=self.read.target.task), ours=[])  # fmt: skip
            methods[DEFAULT] = usual._deep_ensemble
        methods |= {} if is_class else {MSE: self._mse_ensemble}
        return methods | {name: partial(self._rival, rival) for name, rival in rivals(is_class).items()}

    def _tested(self, name: str, train: Callable[[int], Callable[[Any], Any]]) -> list[Any]:
        """What a method's model of each fold predicts for its test rows, within the bounds."""
        start, n = time.perf_counter(), len(self.folds)
        models = list(map(train, range(n)))
        trained, is_class = time.perf_counter(), bool(self.read.target.classes)
        inputs = self.dense if name in (*rivals(is_class), *[DROPOUT] * (not is_class)) else self.inputs
        predictions = [model(inputs[test]) for model, (_, test) in zip(models, self.folds, strict=True)]
        self.seconds[name] = (trained - start) / n, (time.perf_counter() - trained) / n
        bounds = self.settings.chosen_bounds
        return predictions if bounds is None else list(map(bounds, predictions))

    def _task(self, fold: int) -> Task:
        """The training rows of a fold."""
        return self.read.task(self.inputs).subset(self.folds[fold][0])

    def _fitted(self, fold: int, effort: str | None = None, **others: Any) -> Fitted:
        """By the recipe, in the fold's share of the time."""
        others |= {**self.how, "checkpoint": self._checkpoint(fold)}
        if self.settings.time_limit is not None:
            others["time_limit"] = self.settings.time_limit / len(self.folds)
        return fit_by_recipe(self._task(fold), self.settings, effort, **others)

    def _checkpoint(self, fold: int = 0) -> Checkpoint | None:
        """Where the state of the method that is trained now is kept."""
        point: Checkpoint | None = self.how["checkpoint"]
        return None if point is None else point.numbered(f"{len(self.seconds)}-{fold}")

    def _deep_ensemble(self, fold: int) -> Ensemble:
        self.ours.append(self._fitted(fold))
        return self.ours[fold].ensemble

    def _single(self, fold: int) -> Ensemble:
        """The first network, recalibrated if the ensemble is."""
        ensemble, task = self.ours[fold].ensemble, self._task(fold)
        if ensemble.recalibration is None:
            return ensemble.subset(1)
        unseen = ensemble.out_of_fold(task.inputs)
        held = HeldOut.of(ensemble, unseen, task.targets, self.settings.recalibration, groups=task.groups)
        return replace(ensemble.subset(1), recalibration=held.fit_all(single=True))

    def _mse_ensemble(self, fold: int) -> Callable[[Any], Any]:
        mse = self._fitted(fold, "fast", head=Normal(), scoring_rule=squared_error, recalibration=None)
        return partial(_from_means, mse.ensemble)

    def _rival(self, rival: Rival, fold: int) -> Callable[[Any], Any]:
        return rival(replace(self._task(fold), inputs=self.dense[self.folds[fold][0]]), self.settings.seed)

    def _dropout_of_classes(self, fold: int) -> Callable[[Any], Any]:
        trained = self._fitted(fold, "fast", n_members=1, dropout=_DROPOUT_RATE, recalibration=None)
        return partial(trained.ensemble.sampled, n_samples=_SAMPLES, random_state=self.settings.seed)

    @cached_property
    def _dropout_of_numbers(self) -> Sequence[Callable[[Any], Any]]:
        """All folds as one stack, for as many epochs as a deep ensemble."""
        given = {name: value for name, value in self.settings.explicit.items() if name in (*TRAINING, "hidden_sizes")}
        usual = {name: self.ours[0].chosen[name] for name in ("max_epochs", "patience", "batch_size")} | _DROPOUT
        others = {"sample_weight": self.read.weights, **self.how, "checkpoint": self._checkpoint()}
        how: dict[str, Any] = {"random_state": self.settings.seed, "n_samples": _SAMPLES, **usual, **given, **others}
        return fit_dropout(self.dense, self.read.y, [train for train, _ in self.folds], **how)


def _from_means(ensemble: Ensemble, inputs: Any) -> torch.distributions.Normal:
    """The normal of members' means, whose spread is the only uncertainty of an ensemble on squared error."""
    mixture = ensemble.mixture(inputs)
    return torch.distributions.Normal(mixture.mean, mixture.epistemic.sqrt().clamp_min(torch.finfo(torch.float32).tiny))
