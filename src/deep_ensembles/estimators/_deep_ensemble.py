"""What both estimators share."""

import inspect
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, cast

import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.utils import check_consistent_length
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, column_or_1d, validate_data
from torch import nn
from typing_extensions import Self

from deep_ensembles._checks import check_flag, require
from deep_ensembles._files import write_model
from deep_ensembles._random import RandomState
from deep_ensembles._splits import ComplementaryFolds, Resampling
from deep_ensembles._tensors import is_structured
from deep_ensembles.ensemble import Ensemble
from deep_ensembles.heads import HeadFunction
from deep_ensembles.members import Factory
from deep_ensembles.perturbations import Perturbation
from deep_ensembles.recalibration import FitRecalibration, Prediction, choose
from deep_ensembles.recipes import Auto, Task, is_auto
from deep_ensembles.report import Influences, Reasons, Report, beside_targets, evaluate, explain, unseen_values
from deep_ensembles.scoring import ScoringRule
from deep_ensembles.selection import fit_recipe
from deep_ensembles.settings import describe, restore
from deep_ensembles.training import Checkpoint, Optimizer, Recipe, RobustScaling, Schedule

NetworkFactory = Callable[[], nn.Module] | Callable[[int, int], nn.Module]

FLOATS = (np.float64, np.float32)
NUMBERS = ("numbers", "counts", "vectors")  # kinds of heads that a regression may have
# What fitting finds besides the ensemble, in the order of a model file.
_FITTED = ("n_features_in_", "n_outputs_", "constant_", "classes_", "class_prior_", "feature_names_in_", "chosen_",
           "feature_range_")  # fmt: skip


class DeepEnsemble(BaseEstimator):
    """What both estimators share: a recipe from parameters, the network, prediction in batches, the model file.

    Each of them knows its targets: `_target` gives them as the ensemble was trained on them, `_constant` what one would
    predict without any inputs, and `_restore_fitted` takes over what a model file holds of them, if it fits the ensemble.
    """

    def __init__(
        self,
        n_members: int | Auto = "auto",
        *,
        preset: str | None = None,
        effort: str = "default",
        hidden_sizes: Sequence[int] | Auto = "auto",
        activation: str | Callable[[], nn.Module] = "auto",
        batch_norm: bool | Auto = "auto",
        dropout: float | Auto = "auto",
        network: NetworkFactory | Auto | None = "auto",
        head: HeadFunction | Auto | None = "auto",
        scoring_rule: ScoringRule | Auto | None = "auto",
        perturbation: Perturbation | Auto | None = "auto",
        max_epochs: int | Auto = "auto",
        batch_size: int | Auto = "auto",
        drop_last: bool | Auto = "auto",
        learning_rate: float | Auto = "auto",
        schedule: Schedule | Auto = "auto",
        optimizer: Optimizer | Auto = "auto",
        weight_decay: float | Auto = "auto",
        clip_norm: float | Auto | None = "auto",
        averaging: float | Auto | None = "auto",
        early_stopping: bool | Auto = "auto",
        validation_fraction: float | Auto = "auto",
        patience: int | Auto = "auto",
        folds: ComplementaryFolds | Auto | None = "auto",
        time_limit: float | None = None,
        recalibration: FitRecalibration | Auto | None = "auto",
        resampling: Resampling | Auto | None = "auto",
        standardize_inputs: bool | RobustScaling | Auto = "auto",
        standardize_targets: bool | Auto = "auto",
        checkpoint: Checkpoint | None = None,
        random_state: RandomState = None,
        device: str | torch.device = "auto",
        verbose: int = 0,
    ) -> None:
        store_arguments(self, locals())

    def _fit_members(self, task: Task) -> None:
        """Train with the settings that are given, and for the others with those that the recipe chooses."""
        explicit = {name: value for name, value in self.get_params(False).items() if not is_auto(value) or name == "device"}
        default: Any = task.default_head
        head = default if explicit.get("head") is None else explicit["head"]
        usable = callable(head) and not isinstance(head, type)
        require(usable, "head", '"auto", None or an object such as `StudentT()`', self.head)
        kinds = (default.kind,) if task.n_classes else NUMBERS
        require(getattr(head, "kind", kinds[0]) in kinds, "head", f"one of {' or '.join(kinds)} for these targets", head)
        if "head" in explicit:
            explicit["head"] = head
        Recipe(**{name: value for name, value in explicit.items() if name in Recipe.__dataclass_fields__})  # checks them
        if "batch_norm" in explicit:
            check_flag("batch_norm", explicit["batch_norm"])
        if explicit.get("network") is not None:
            explicit["network"] = partial(user_network, explicit["network"])
        task = replace(task, inputs=np.ascontiguousarray(task.inputs), targets=np.ascontiguousarray(task.targets))
        holds_nothing_out = self.preset is not None or explicit.get("early_stopping") is False
        if explicit.get("recalibration") is not None and "folds" not in explicit and holds_nothing_out:
            explicit["folds"] = ComplementaryFolds(groups=task.groups)
        fitted = fit_recipe(task, explicit, preset=self.preset, effort=self.effort, random_state=self.random_state)
        self.ensemble_, self.chosen_ = fitted.ensemble, fitted.chosen
        seen = task.inputs if task.sample_weight is None else task.inputs[task.sample_weight > 0]
        self.feature_range_ = np.stack([seen.min(axis=0), seen.max(axis=0)])

    def _validated(self, X: Any) -> np.ndarray:
        check_is_fitted(self)
        return validate_data(self, X, reset=False, dtype=FLOATS)

    def _batches(self, X: Any) -> Iterator[Any]:
        checked = self._validated(X)
        return self.ensemble_.batches(checked)

    def predict_distribution(self, X: Any) -> Prediction:
        """The predictive mixture in the units of the target, recalibrated if the model is."""
        checked = self._validated(X)
        return self.ensemble_(checked)

    def recalibrate(self, X: Any, y: Any, fit: FitRecalibration = choose) -> Self:
        """Correct the predicted probabilities by rows that the model was not trained on; saved with the model.

        Arguments:
            X, y: rows and targets.
            fit: `variance_scaling`, `temperature`, `isotonic` or `conformal`; by default whichever the rows prefer.
        """
        checked = self._validated(X)
        self.ensemble_ = self.ensemble_.recalibrated(checked, self._target(y), fit)
        return self

    def report(self, X: Any, y: Any, *, coverage: float = 0.9, target: int = 0) -> Report:
        """How good predictions for the rows `X` are, given what happened: a notebook shows it, `save` writes a page.

        Arguments:
            X, y: rows that training did not see, and their targets; times may be censored, given as in `fit`.
            coverage: the share of rows that intervals should hold.
            target: which one, where there are several.
        """
        checked = self._validated(X)
        targets = self._target(y, may_be_censored=True)
        about, labels = {"Model": type(self).__name__}, getattr(self, "classes_", None)
        if targets.ndim > 1:
            labels = None if labels is None else (0, 1)  # of each target
            n_targets = targets.shape[1]
            require(0 <= target < n_targets, "target", f"from 0 to {n_targets - 1}", target)
            about["Target"] = f"number {target} of {n_targets}, counted from 0"
        check_consistent_length(checked, targets)
        names = self._column_names()
        low_high = getattr(self, "feature_range_", None)
        single = self.ensemble_.subset(1).batches(checked) if self.ensemble_.n_members > 1 else None
        point = getattr(self.ensemble_.head, "point", None)
        # The mean and variance of times that are too short are no match for predictions.
        has_constant = not is_structured(targets) or getattr(self, "constant_", None) is not None
        evaluation = evaluate(
            beside_targets(self.ensemble_.batches(checked), targets, single, which=target, point=point),
            constant=self._constant(target) if has_constant else None,
            coverage=coverage,
            labels=labels,
            columns=dict(zip(names, checked.T, strict=True)),
            unseen=None if low_high is None else unseen_values(names, checked, *low_high),
            about={**about, "Columns": len(names)},
        )
        return Report(evaluation, f"{type(self).__name__} on {len(targets)} rows")

    def explain(self, X: Any, y: Any = None, *, row: int | None = None) -> Influences | Reasons:
        """Which columns drive predictions and their spread; or why one row is unsure, beside the others.

        Arguments:
            X: rows, best those that training did not see.
            y: their targets; without them only the spread is explained.
            row: the number of the row to explain, from 0.
        """
        checked, targets = self._validated(X), None if y is None else self._target(y)
        require(targets is None or targets.ndim == 1, "y", "one target per row", "several")
        columns = [[place] for place in range(checked.shape[1])]
        return explain(self.ensemble_, checked, columns, self._column_names(), targets, row)

    def _column_names(self) -> list[str]:
        return list(getattr(self, "feature_names_in_", [f"x{i}" for i in range(self.n_features_in_)]))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a model folder (`config.json` and a file of tensors; no pickle) that `deep_ensembles.load` reads.

        The checkpoint is not kept: whoever loads the model must not write where its author did.
        """
        check_is_fitted(self)
        parameters = {name: describe(value) for name, value in self.get_params(deep=False).items() if name != "checkpoint"}
        config = {"kind": type(self).__name__, "parameters": parameters, "fitted": self._fitted_config()}
        write_model(path, {**config, "ensemble": self.ensemble_.config()}, self.ensemble_.tensors())

    @classmethod
    def from_file(cls, config: dict[str, Any], ensemble: Ensemble) -> Self:
        """The estimator that `save` described, around its ensemble."""
        model = cls(**{name: restore(value) for name, value in config["parameters"].items() if name != "checkpoint"})
        fitted = config["fitted"]
        model.ensemble_, model.n_features_in_ = ensemble, fitted["n_features_in_"]
        n_features = ensemble.feature_shape[0]
        known = type(model.n_features_in_) is int and (model.n_features_in_,) == ensemble.feature_shape
        require(known, "n_features_in_", f"{n_features}", model.n_features_in_)
        if "feature_names_in_" in fitted:
            names = fitted["feature_names_in_"]
            all_text = isinstance(names, list) and all(isinstance(name, str) for name in names)
            require(all_text and len(names) == n_features, "feature_names_in_", f"{n_features} names", names)
            model.feature_names_in_ = np.array(names, dtype=object)
        if "feature_range_" in fitted:
            model.feature_range_ = np.array(fitted["feature_range_"], dtype=np.float64)
            shape = model.feature_range_.shape
            require(shape == (2, n_features), "feature_range_", f"of shape {(2, n_features)}", shape)
        if "chosen_" in fitted:
            require(isinstance(fitted["chosen_"], dict), "chosen_", "settings by name", fitted["chosen_"])
            model.chosen_ = fitted["chosen_"]
        model._restore_fitted(fitted)
        return model

    def _fitted_config(self) -> dict[str, Any]:
        """What fitting has found besides the ensemble, as plain data."""
        found = {name: getattr(self, name) for name in _FITTED if getattr(self, name, None) is not None}
        return {name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in found.items()}

    def _check_head(self, n_targets: Any, kinds: Sequence[str]) -> None:
        """A head must be for what the estimator predicts, and for so many."""
        head, outputs = self.ensemble_.head, self.ensemble_.n_outputs
        size = head.raw_size(n_targets) if hasattr(head, "raw_size") else outputs
        fits = type(n_targets) is int and size == outputs and getattr(head, "kind", kinds[0]) in kinds
        require(fits, "head", f"of {n_targets} {kinds[0]}", head)


def user_network(network: NetworkFactory, n_inputs: int, n_outputs: int) -> Factory:
    """A function without arguments that builds a user's network, which may take (inputs, outputs) or nothing."""
    if isinstance(network, nn.Module) or not callable(network):
        raise TypeError("`network` must be a function that builds a torch.nn.Module, got "
                        f"{type(network).__name__}; write `lambda: YourModule(...)`")  # fmt: skip
    try:
        inspect.signature(network).bind()
    except TypeError:
        return partial(cast(Callable[[int, int], nn.Module], network), n_inputs, n_outputs)
    return cast(Factory, network)


def weights_and_groups(X: np.ndarray, sample_weight: Any, groups: Any) -> tuple[np.ndarray | None, np.ndarray | None]:
    """The weight of each row and the number of its group, where they are given."""
    if sample_weight is not None:
        sample_weight = _check_sample_weight(sample_weight, X, ensure_non_negative=True)
    if groups is not None:
        groups = column_or_1d(groups)
        check_consistent_length(X, groups)
        groups = np.unique(groups, return_inverse=True)[1]
    return sample_weight, groups


def store_arguments(estimator: BaseEstimator, arguments: dict[str, Any]) -> None:
    """Keep the arguments of a constructor, its `locals()`, as attributes of the same names."""
    vars(estimator).update((name, value) for name, value in arguments.items() if name != "self")


def concatenated(parts: Iterator[torch.Tensor]) -> np.ndarray:
    """Parts of rows as one array."""
    return np.concatenate([part.cpu().numpy() for part in parts])
