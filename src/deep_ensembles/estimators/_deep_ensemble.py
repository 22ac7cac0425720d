"""What both estimators share."""

import inspect
import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, cast

import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.utils import Tags, check_consistent_length
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, column_or_1d, validate_data
from torch import nn
from typing_extensions import Self

from deep_ensembles._checks import check_flag, require
from deep_ensembles._files import write_model
from deep_ensembles._random import RandomState
from deep_ensembles._splits import ComplementaryFolds, Resampling
from deep_ensembles._tensors import check_collected, is_structured
from deep_ensembles.ensemble import Ensemble
from deep_ensembles.estimators._inputs import columns, is_frame, is_mixed
from deep_ensembles.execution import Execution, chosen_execution
from deep_ensembles.fitting import extend_ensemble, train_further
from deep_ensembles.heads import HeadFunction
from deep_ensembles.members import Factory
from deep_ensembles.perturbations import Perturbation
from deep_ensembles.recalibration import FitRecalibration, Prediction, choose
from deep_ensembles.recipes import Auto, Choices, Task, is_auto
from deep_ensembles.report import Influences, Reasons, Report, Unseen, beside_targets, evaluate, explain, unseen_values
from deep_ensembles.scoring import ScoringRule
from deep_ensembles.selection import fit_recipe, recalibrated
from deep_ensembles.settings import describe, restore
from deep_ensembles.training import Checkpoint, Constant, Optimizer, Recipe, RobustScaling, Schedule

NetworkFactory = Callable[[], nn.Module] | Callable[[int, int], nn.Module]

FLOATS = (np.float64, np.float32)
NUMBERS = ("numbers", "counts", "vectors")  # kinds of heads that a regression may have
# What fitting finds besides the ensemble, in the order of a model file.
_FITTED = ("n_features_in_", "n_outputs_", "constant_", "classes_", "class_prior_", "feature_names_in_", "chosen_",
           "feature_range_")  # fmt: skip

# The first call of `partial_fit`: an epoch of all rows at a rate that does not fall, from which an optimiser can go on.
FIRST_EPOCH: dict[str, Any] = {
    "max_epochs": 1, "resumable": True, "early_stopping": False, "folds": None, "schedule": Constant(), "averaging": None,
    "recalibration": None, "checkpoint": None,
}  # fmt: skip


_NOT_SAVED = ("checkpoint", "execution")


class DeepEnsemble(BaseEstimator):
    """What both estimators share: a recipe from parameters, the network, prediction in batches, the model file.

    Each of them knows its targets: `_target` gives them as the ensemble was trained on them, `_constant` what one would
    predict without any inputs, and `_restore_fitted` takes over what a model file holds of them, if it fits the ensemble.
    """

    schema_: Any = None  # what the columns of X are, where they hold more than numbers; needs pyarrow

    def __init__(
        self, n_members: int | Auto = "auto", *, preset: str | None = None, effort: str = "default",
        hidden_sizes: Sequence[int] | Auto = "auto", activation: str | Callable[[], nn.Module] = "auto",
        batch_norm: bool | Auto = "auto", dropout: float | Auto = "auto", network: NetworkFactory | Auto | None = "auto",
        head: HeadFunction | Auto | None = "auto", scoring_rule: ScoringRule | Auto | None = "auto",
        perturbation: Perturbation | Auto | None = "auto", max_epochs: int | Auto = "auto", batch_size: int | Auto = "auto",
        drop_last: bool | Auto = "auto", learning_rate: float | Auto = "auto", schedule: Schedule | Auto = "auto",
        optimizer: Optimizer | Auto = "auto", weight_decay: float | Auto = "auto", clip_norm: float | Auto | None = "auto",
        averaging: float | Auto | None = "auto", early_stopping: bool | Auto = "auto",
        validation_fraction: float | Auto = "auto", patience: int | Auto = "auto",
        patience_factor: float | Auto | None = "auto", folds: ComplementaryFolds | Auto | None = "auto",
        time_limit: float | None = None,
        recalibration: FitRecalibration | Auto | None = "auto", resampling: Resampling | Auto | None = "auto",
        standardize_inputs: bool | RobustScaling | Auto = "auto", standardize_targets: bool | Auto = "auto",
        checkpoint: Checkpoint | None = None, warm_start: bool = False, random_state: RandomState = None,
        device: str | torch.device = "auto", precision: str | Auto | None = "auto", n_jobs: int | Auto | None = "auto",
        execution: Execution | None = None, verbose: int = 0,
    ) -> None:  # fmt: skip
        store_arguments(self, locals())

    def _fit_members(self, task: Task, **fixed: Any) -> None:
        """Train with the settings that are given, and for the others with those that the recipe chooses."""
        explicit = {name: value for name, value in self.get_params(False).items() if not is_auto(value) or name == "device"}
        check_flag("warm_start", self.warm_start)
        explicit |= {"resumable": True} | fixed if self.warm_start else fixed
        default: Any = task.default_head
        head = default if explicit.get("head") is None else explicit["head"]
        usable = callable(head) and not isinstance(head, type)
        require(usable, "head", '"auto", None or an object such as `StudentT()`', self.head)
        kinds = (default.kind,) if task.n_classes else NUMBERS
        require(getattr(head, "kind", kinds[0]) in kinds, "head", f"one of {' or '.join(kinds)} for these targets", head)
        explicit |= {"head": head} if "head" in explicit else {}
        Recipe(**{name: value for name, value in explicit.items() if name in Recipe.__dataclass_fields__})  # checks them
        check_flag("batch_norm", explicit.get("batch_norm", False))
        if explicit.get("network") is not None:
            explicit["network"] = partial(user_network, explicit["network"])
        levels = None if self.schema_ is None else self.schema_.levels
        inputs, targets = np.ascontiguousarray(task.inputs), np.ascontiguousarray(task.targets)
        task = replace(task, inputs=inputs, targets=targets, levels=levels)
        holds_nothing_out = self.preset is not None or explicit.get("early_stopping") is False
        if explicit.get("recalibration") is not None and "folds" not in explicit and holds_nothing_out:
            explicit["folds"] = ComplementaryFolds(groups=task.groups)
        explicit["execution"] = chosen_execution(self.execution, self.n_jobs)
        choices = Choices(explicit, self.preset, self.effort)
        if self.warm_start and hasattr(self, "ensemble_"):
            self._grow(task, choices)
        else:
            fitted = fit_recipe(task, choices, self.random_state)
            self.ensemble_, self.chosen_ = fitted.ensemble, fitted.chosen
        seen = task.inputs if task.sample_weight is None else task.inputs[task.sample_weight > 0]
        self.feature_range_ = None if self.schema_ is not None else np.stack([seen.min(axis=0), seen.max(axis=0)])

    def _grow(self, task: Task, choices: Choices) -> None:
        """More members, or else more epochs, than there are; see `warm_start`."""
        ensemble, data, explicit = self.ensemble_, (task.inputs, task.targets), choices.explicit
        n, weights, most = ensemble.n_members, task.sample_weight, explicit.get("max_epochs", 0)
        wanted = explicit.get("n_members", n)
        require(wanted >= n, "n_members", f"at least the {n} that there are, with `warm_start`", wanted)
        state = {} if ensemble.origin is None else ensemble.origin.state
        if wanted > n:
            ensemble = extend_ensemble(ensemble, *data, wanted - n, sample_weight=weights)
        elif state and most > int(state["epoch"].max()):
            ensemble = train_further(ensemble, *data, max_epochs=most, sample_weight=weights)
        else:
            cure = "raise `n_members`, or `max_epochs` where members are not stopped early"
            warnings.warn(f"`warm_start` found nothing to add: {cure}", stacklevel=4)
            return
        self.ensemble_ = recalibrated(task, choices, ensemble)
        self.chosen_ |= {"n_members": wanted, "max_epochs": most or self.chosen_["max_epochs"]}

    def _train_further(self, X: Any, y: Any, sample_weight: Any) -> Self:
        """One more epoch, on these rows, with units and optimiser as they are."""
        inputs, targets = self._validated(X), self._target(y, may_be_censored=True)
        check_consistent_length(inputs, targets)
        weights, _ = weights_and_groups(inputs, sample_weight, None)
        self.ensemble_ = train_further(self.ensemble_, inputs, targets, sample_weight=weights)
        return self

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags

    def _training_inputs(self, X: Any, y: Any = "no_validation", **checks: Any) -> tuple[np.ndarray, Any]:
        """Inputs of training, and the checked targets: numbers without gaps as they are, all else through columns."""
        check_collected("X", X)
        check_collected("y", y)
        self.schema_ = None
        if is_mixed(X):
            check_consistent_length(X, y if checks else None)
            y = validate_data(self, y=y, **checks) if checks else y  # first, as it forgets the names of columns
            validate_data(self, X, skip_check_array=True)
        else:
            checked = validate_data(self, X, y, dtype=FLOATS, ensure_all_finite="allow-nan", **checks)
            X, y = checked if checks else (checked, y)
            if not np.isnan(X).any():
                return X, y
        # Networks of our own learn a vector for each category; others see an input for each.
        coded = self.preset is None and self.network in (None, "auto") and self.batch_norm in (False, "auto")
        self.schema_, X = columns().learn_frame(X, self._column_names(), coded)
        return X, y

    def _validated(self, X: Any) -> np.ndarray:
        return self._encoded(X)[0]

    def _encoded(self, X: Any) -> tuple[np.ndarray, dict[str, Any] | None, list[Any]]:
        """Inputs; where there is a schema, also the values by column, and what training did not see of them."""
        check_is_fitted(self)
        check_collected("X", X)
        if self.schema_ is not None:
            X = validate_data(self, X, reset=False, dtype=None, ensure_all_finite="allow-nan", skip_check_array=is_frame(X))
            return cast(Any, columns().encode_frame(self.schema_, X, self._column_names()))
        X = validate_data(self, X, reset=False, dtype=FLOATS, ensure_all_finite="allow-nan")
        if np.isnan(X).any():  # of which training had none: the middle of what it had
            shift = self.ensemble_.standardization.input_shift
            X = np.where(np.isnan(X), 0 if shift is None else shift.mean(0).cpu().numpy().astype(X.dtype), X)
        return X, None, []

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
        checked, values, found = self._encoded(X)
        names, ends = self._column_names(), getattr(self, "feature_range_", None)
        unseen = None if self.schema_ is None else [Unseen(*facts) for facts in found]
        unseen = unseen if ends is None else unseen_values(names, checked, *ends)
        targets = self._target(y, may_be_censored=True)
        about, labels = {"Model": type(self).__name__}, getattr(self, "classes_", None)
        if targets.ndim > 1:
            labels = None if labels is None else (0, 1)  # of each target
            n_targets = targets.shape[1]
            require(0 <= target < n_targets, "target", f"from 0 to {n_targets - 1}", target)
            about["Target"] = f"number {target} of {n_targets}, counted from 0"
        check_consistent_length(checked, targets)
        single = self.ensemble_.subset(1).batches(checked) if self.ensemble_.n_members > 1 else None
        point = getattr(self.ensemble_.head, "point", None)
        # The mean and variance of times that are too short are no match for predictions.
        has_constant = not is_structured(targets) or getattr(self, "constant_", None) is not None
        evaluation = evaluate(
            beside_targets(self.ensemble_.batches(checked), targets, single, which=target, point=point),
            constant=self._constant(target) if has_constant else None,
            coverage=coverage,
            labels=labels,
            columns=dict(zip(names, checked.T, strict=True)) if values is None else values,
            unseen=unseen,
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
        usual = self._column_names(), [[place] for place in range(checked.shape[1])]
        names, places = usual if self.schema_ is None else (self.schema_.labels, self.schema_.places)
        return explain(self.ensemble_, checked, places, names, targets, row)

    def _column_names(self) -> list[str]:
        return list(getattr(self, "feature_names_in_", [f"x{i}" for i in range(self.n_features_in_)]))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a model folder (`config.json` and a file of tensors; no pickle) that `deep_ensembles.load` reads.

        Checkpoint and execution are not kept: whoever loads the model must not work where its author did.
        """
        check_is_fitted(self)
        parameters = {name: describe(value) for name, value in self.get_params(False).items() if name not in _NOT_SAVED}
        config = {"kind": type(self).__name__, "parameters": parameters, "fitted": self._fitted_config()}
        write_model(path, {**config, "ensemble": self.ensemble_.config()}, self.ensemble_.tensors())

    @classmethod
    def from_file(cls, config: dict[str, Any], ensemble: Ensemble) -> Self:
        """The estimator that `save` described, around its ensemble."""
        model = cls(**{name: restore(value) for name, value in config["parameters"].items() if name not in _NOT_SAVED})
        fitted = config["fitted"]
        model.ensemble_, model.n_features_in_ = ensemble, fitted["n_features_in_"]
        n_features, n_inputs = model.n_features_in_, ensemble.feature_shape[0]
        if "schema_" in fitted:
            model.schema_ = columns().stored_schema(fitted["schema_"], n_inputs)
        known = type(n_features) is int and (model.schema_ is not None or (n_features,) == ensemble.feature_shape)
        require(known, "n_features_in_", f"{n_inputs}", n_features)
        model._restore_array(fitted, "feature_names_in_", object, n_features)
        require(all(isinstance(name, str) for name in model._column_names()), "feature_names_in_", "text", "others")
        lacking = [] if model.schema_ is None else set(model.schema_.names) - set(model._column_names())
        require(not lacking, "schema_", "of the columns of X", lacking)
        model._restore_array(fitted, "feature_range_", np.float64, 2, n_inputs)
        model.chosen_ = dict(fitted.get("chosen_", {}))
        model._restore_fitted(fitted)
        return model

    def _restore_array(self, fitted: dict[str, Any], name: str, dtype: Any, *shape: int) -> None:
        """Take over an array of a model file, if it is there and of this shape."""
        if name in fitted:
            setattr(self, name, np.array(fitted[name], dtype=dtype))
            require(getattr(self, name).shape == shape, name, f"of shape {list(shape)}", "another")

    def _fitted_config(self) -> dict[str, Any]:
        """What fitting has found besides the ensemble, as plain data."""
        found = {name: getattr(self, name) for name in _FITTED if getattr(self, name, None) is not None}
        found |= {} if self.schema_ is None else {"schema_": self.schema_.data()}
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
