"""scikit-learn's face: wiring only."""

from __future__ import annotations

import dataclasses
import inspect
import os
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Literal, cast, overload

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils import Tags, check_array, check_consistent_length
from sklearn.utils.class_weight import compute_sample_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, column_or_1d, validate_data
from torch import nn
from typing_extensions import Self

from deep_ensembles._checks import check_number, require
from deep_ensembles._random import RandomState
from deep_ensembles.checkpoint import Checkpoint
from deep_ensembles.ensemble import Ensemble
from deep_ensembles.fitting import fit_ensemble
from deep_ensembles.heads import Categorical, HeadFunction, Normal
from deep_ensembles.members import Factory
from deep_ensembles.mixture import Mixture
from deep_ensembles.model_files import ModelFileError, write_model
from deep_ensembles.naming import describe, restore
from deep_ensembles.networks import mlp
from deep_ensembles.optimizers import Adam, Optimizer
from deep_ensembles.perturbations import Perturbation
from deep_ensembles.recalibration import FitRecalibration, Prediction, choose
from deep_ensembles.report import Report, beside_targets, evaluate, outside_range
from deep_ensembles.runs import ComplementaryFolds, Recipe, Resampling
from deep_ensembles.schedules import Constant, Schedule
from deep_ensembles.scoring import ScoringRule, log_score

NetworkFactory = Callable[[], nn.Module] | Callable[[int, int], nn.Module]

_FLOATS = (np.float64, np.float32)


class _DeepEnsemble(BaseEstimator):
    """What both estimators share: a recipe from parameters, the network, prediction in batches, the model file."""

    ensemble_: Ensemble
    n_features_in_: int
    feature_range_: np.ndarray

    def __init__(
        self,
        n_members: int = 5,
        *,
        hidden_sizes: Sequence[int] = (50,),
        activation: str | Callable[[], nn.Module] = "relu",
        batch_norm: bool = False,
        dropout: float = 0.0,
        network: NetworkFactory | None = None,
        head: HeadFunction | None = None,
        scoring_rule: ScoringRule = log_score,
        perturbation: Perturbation | None = None,
        max_epochs: int = 100,
        batch_size: int = 100,
        learning_rate: float = 0.01,
        schedule: Schedule = Constant(),  # noqa: B008
        optimizer: Optimizer = Adam(),  # noqa: B008
        weight_decay: float = 0.0,
        clip_norm: float | None = None,
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        patience: int = 20,
        folds: ComplementaryFolds | None = None,
        time_limit: float | None = None,
        recalibration: FitRecalibration | None = None,
        resampling: Resampling | None = None,
        checkpoint: Checkpoint | None = None,
        random_state: RandomState = None,
        device: str | torch.device = "auto",
        verbose: int = 0,
    ) -> None:
        self.n_members = n_members
        self.hidden_sizes = hidden_sizes
        self.activation = activation
        self.batch_norm = batch_norm
        self.dropout = dropout
        self.network = network
        self.head = head
        self.scoring_rule = scoring_rule
        self.perturbation = perturbation
        self.max_epochs = max_epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.schedule = schedule
        self.optimizer = optimizer
        self.weight_decay = weight_decay
        self.clip_norm = clip_norm
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.patience = patience
        self.folds = folds
        self.time_limit = time_limit
        self.recalibration = recalibration
        self.resampling = resampling
        self.checkpoint = checkpoint
        self.random_state = random_state
        self.device = device
        self.verbose = verbose

    def _fit_members(self, X: np.ndarray, y: np.ndarray, sample_weight: Any, n_targets: int, default_head: Any) -> None:
        head = default_head if self.head is None else self.head
        size = getattr(head, "raw_size", None)
        settings = {name: getattr(self, name) for name in Recipe.__dataclass_fields__ if hasattr(self, name)}
        Recipe(**settings)  # to say what is wrong with a setting before anything uses it
        if self.recalibration is not None and self.folds is None:
            require(self.n_members > 1, "n_members", "at least 2 for members to hold rows out", self.n_members,
                    "or call `recalibrate` with rows the model has not seen")  # fmt: skip
            settings["folds"] = ComplementaryFolds()
        self.ensemble_ = fit_ensemble(
            self.network_factory(X.shape[1], n_targets if size is None else size(n_targets), len(X)),
            X,
            y,
            head=head,
            scoring_rule=self.scoring_rule,
            perturbation=self.perturbation,
            n_members=self.n_members,
            sample_weight=sample_weight,
            random_state=self.random_state,
            **settings,
        )
        if self.recalibration is not None:
            fitted = self.recalibration(self.ensemble_.out_of_fold(X), y)
            self.ensemble_ = dataclasses.replace(self.ensemble_, recalibration=fitted)
        seen = X if sample_weight is None else X[sample_weight > 0]
        self.feature_range_ = np.stack([seen.min(axis=0), seen.max(axis=0)])

    def network_factory(self, n_inputs: int, n_outputs: int, n_rows: int) -> Factory:
        """A function without arguments that builds a network; a user's may take (inputs, outputs) or nothing.

        Where all rows fit into one batch, double precision costs nothing, and makes a row of weight 2 the same as two
        rows to many digits.
        """
        if self.network is None:
            dtype = torch.float64 if n_rows <= self.batch_size else None
            sizes, activation = self.hidden_sizes, self.activation
            return partial(mlp, n_inputs, n_outputs, sizes, activation, self.batch_norm, self.dropout, dtype)
        if isinstance(self.network, nn.Module) or not callable(self.network):
            raise TypeError("`network` must be a function that builds a torch.nn.Module, got "
                            f"{type(self.network).__name__}; write `lambda: YourModule(...)`")  # fmt: skip
        network: Callable[..., nn.Module] = self.network
        try:
            inspect.signature(network).bind()
        except TypeError:
            return partial(network, n_inputs, n_outputs)
        return network

    def _validated(self, X: Any) -> np.ndarray:
        check_is_fitted(self)
        checked: np.ndarray = validate_data(self, X, reset=False, dtype=_FLOATS)
        return checked

    def _batches(self, X: Any) -> Iterator[Prediction]:
        checked = self._validated(X)
        return self.ensemble_.batches(checked)

    def predict_distribution(self, X: Any) -> Prediction:
        """The predictive mixture in the units of the target, recalibrated if the model is."""
        checked = self._validated(X)
        return self.ensemble_(checked)

    def recalibrate(self, X: Any, y: Any, fit: FitRecalibration = choose) -> Self:
        """Put predictions right by rows that the model was not trained on; kept in the model and its file.

        Arguments:
            X, y: rows and targets.
            fit: `variance_scaling`, `temperature`, `isotonic` or `conformal`; by default whichever the rows prefer.
        """
        checked = self._validated(X)
        self.ensemble_ = self.ensemble_.recalibrated(checked, self._target(y), fit)
        return self

    def _target(self, y: Any) -> np.ndarray:
        """Targets as the ensemble knows them."""
        raise NotImplementedError

    def report(self, X: Any, y: Any, *, coverage: float = 0.9, target: int = 0) -> Report:
        """How good predictions for the rows `X` are, given what happened: a notebook shows it, `save` writes a page.

        Arguments:
            X, y: rows that training did not see, and their targets.
            coverage: the share of rows that intervals should hold.
            target: which one, where there are several.
        """
        checked = self._validated(X)
        known = self._target(y)
        if known.ndim > 1:
            require(0 <= target < known.shape[1], "target", f"from 0 to {known.shape[1] - 1}", target)
            known = known[:, target]
        check_consistent_length(checked, known)
        names = getattr(self, "feature_names_in_", [f"x{i}" for i in range(self.n_features_in_)])
        low_high = getattr(self, "feature_range_", None)
        alone = self.ensemble_.subset(1).batches(checked) if self.ensemble_.n_members > 1 else None
        evaluation = evaluate(
            beside_targets(self.ensemble_.batches(checked), known, alone, which=target),
            constant=self._constant(target),
            coverage=coverage,
            labels=getattr(self, "classes_", None),
            columns=dict(zip(names, checked.T, strict=True)),
            outside=None if low_high is None else outside_range(names, checked, *low_high),
            about={"Model": type(self).__name__, "Columns": len(names)},
        )
        return Report(evaluation, f"{type(self).__name__} on {len(known)} rows")

    def _constant(self, target: int) -> torch.distributions.Distribution | None:
        """What someone predicts who knows the training targets alone."""
        raise NotImplementedError

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a model folder (`config.json`, `model.safetensors`; no pickle) that `deep_ensembles.load` reads."""
        check_is_fitted(self)
        parameters = {name: describe(value) for name, value in self.get_params(deep=False).items()}
        fitted = {"n_features_in_": self.n_features_in_, **self._fitted_config()}
        if hasattr(self, "feature_names_in_"):
            fitted["feature_names_in_"] = [str(name) for name in self.feature_names_in_]
        if hasattr(self, "feature_range_"):
            fitted["feature_range_"] = self.feature_range_.tolist()
        config = {"kind": type(self).__name__, "parameters": parameters, "fitted": fitted}
        write_model(path, {**config, "ensemble": self.ensemble_.config()}, self.ensemble_.tensors())

    @classmethod
    def from_file(cls, config: dict[str, Any], ensemble: Ensemble) -> Self:
        """The estimator that `save` described, around its ensemble."""
        model = cls(**{name: restore(value) for name, value in config["parameters"].items()})
        fitted = dict(config["fitted"])
        if "feature_names_in_" in fitted:
            model.feature_names_in_ = np.array(fitted.pop("feature_names_in_"), dtype=object)
        if "feature_range_" in fitted:
            model.feature_range_ = np.array(fitted.pop("feature_range_"))
        model.ensemble_ = ensemble
        model._restore_fitted(fitted)
        return model

    def _fitted_config(self) -> dict[str, Any]:
        raise NotImplementedError

    def _restore_fitted(self, fitted: dict[str, Any]) -> None:
        for name, value in fitted.items():
            setattr(self, name, value)


class DeepEnsembleRegressor(RegressorMixin, _DeepEnsemble):
    """An ensemble of networks that predict a mean and a variance, combined as a mixture.

    References:
        Lakshminarayanan, Pritzel, Blundell (2017).

    Arguments:
        n_members: how many networks.
        hidden_sizes, activation, batch_norm, dropout: of the default network, a multi-layer perceptron.
        network: a function that builds another `nn.Module`; called with (inputs, raw outputs), or with nothing if it
            takes no arguments.
        head: raw output → distribution; `Normal()` by default.
        scoring_rule: the training criterion.
        perturbation: `FastGradientSign(0.01)` for the paper's adversarial training; none by default.
        recalibration: `choose`, `variance_scaling`, `isotonic` or `conformal` to put predictions right by rows that members
            hold out (complementary folds, so that no row is lost); none by default.
        max_epochs … verbose: see `Recipe`.
        random_state: an integer for a result that can be repeated.

    Attributes:
        ensemble_: the fitted `Ensemble`.
        n_outputs_: the number of targets.

    Example:
        >>> from sklearn.datasets import load_diabetes
        >>> X, y = load_diabetes(return_X_y=True)
        >>> model = DeepEnsembleRegressor(max_epochs=20, random_state=0).fit(X, y)
        >>> mean, std = model.predict(X, return_std=True)
        >>> mean.shape, std.shape, model.predict_interval(X, coverage=0.9).shape
        ((442,), (442,), (442, 2))
    """

    n_outputs_: int

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Train on rows `X` (n, features) and numbers `y` (n,) or (n, targets)."""
        X, y = validate_data(self, X, y, multi_output=True, y_numeric=True, dtype=_FLOATS)
        if sample_weight is not None:
            sample_weight = _check_sample_weight(sample_weight, X, ensure_non_negative=True)
        self.n_outputs_ = 1 if y.ndim == 1 else y.shape[1]
        self._fit_members(X, y.astype(np.float64, copy=False), sample_weight, self.n_outputs_, Normal())
        return self

    @overload
    def predict(self, X: Any, return_std: Literal[False] = False) -> np.ndarray: ...

    @overload
    def predict(self, X: Any, return_std: Literal[True]) -> tuple[np.ndarray, np.ndarray]: ...

    def predict(self, X: Any, return_std: bool = False) -> np.ndarray | tuple[np.ndarray, np.ndarray]:
        """The mean of the mixture, and on request its standard deviation; (n,) or (n, targets)."""
        if not return_std:
            return _joined(batch.mean for batch in self._batches(X))
        pairs = [(batch.mean, batch.stddev) for batch in self._batches(X)]
        return _joined(mean for mean, _ in pairs), _joined(std for _, std in pairs)

    def predict_quantiles(self, X: Any, quantiles: Sequence[float]) -> np.ndarray:
        """Exact quantiles of the mixture, (n, quantiles); with several targets (n, quantiles, targets)."""
        levels = np.atleast_1d(np.asarray(quantiles, dtype=np.float64))
        require(levels.size > 0, "quantiles", "at least one number", quantiles)
        for level in levels:
            check_number("quantiles", float(level), low=0, high=1)
        return _joined(
            torch.stack([batch.icdf(torch.tensor(level, dtype=torch.float64)) for level in levels.tolist()], dim=1)
            for batch in self._batches(X)
        )

    def predict_interval(self, X: Any, coverage: float = 0.9) -> np.ndarray:
        """The central interval of the mixture that holds `coverage` of its mass: lower and upper end, (n, 2)."""
        check_number("coverage", coverage, low=0, high=1)
        return self.predict_quantiles(X, [(1 - coverage) / 2, (1 + coverage) / 2])

    def _target(self, y: Any) -> np.ndarray:
        known: np.ndarray = check_array(y, ensure_2d=False, dtype=np.float64, input_name="y")
        columns = known.reshape(len(known), -1)
        require(columns.shape[1] == self.n_outputs_, "y", f"{self.n_outputs_} target(s) per row", columns.shape[1])
        return columns[:, 0] if self.n_outputs_ == 1 else columns

    def _constant(self, target: int) -> torch.distributions.Distribution | None:
        shift, scale = self.ensemble_.standardization.target_shift, self.ensemble_.standardization.target_scale
        if shift is None or scale is None:
            return None
        mean, deviation = (each.cpu().reshape(self.ensemble_.n_members, -1)[:, target] for each in (shift, scale))
        return Mixture(torch.distributions.Normal(mean, deviation)).moment_matched()

    def _fitted_config(self) -> dict[str, Any]:
        return {"n_outputs_": self.n_outputs_}


class DeepEnsembleClassifier(ClassifierMixin, _DeepEnsemble):
    """An ensemble of networks that predict class probabilities, averaged.

    References:
        Lakshminarayanan, Pritzel, Blundell (2017).

    Arguments:
        class_weight: "balanced", or a dictionary of class → weight; multiplies `sample_weight`.
        others: as for `DeepEnsembleRegressor`; `head` is `Categorical()` by default, a recalibration of classes is
            `choose`, `temperature` or `conformal`.

    Attributes:
        ensemble_: the fitted `Ensemble`.
        classes_: the labels, in the order of the columns of `predict_proba`.
        class_prior_: the share of each class in training.

    Example:
        >>> from sklearn.datasets import load_iris
        >>> X, y = load_iris(return_X_y=True)
        >>> model = DeepEnsembleClassifier(max_epochs=50, random_state=0).fit(X, y)
        >>> model.predict_proba(X).shape, model.score(X, y) > 0.95
        ((150, 3), True)
    """

    classes_: np.ndarray
    class_prior_: np.ndarray

    def __init__(
        self,
        n_members: int = 5,
        *,
        hidden_sizes: Sequence[int] = (50,),
        activation: str | Callable[[], nn.Module] = "relu",
        batch_norm: bool = False,
        dropout: float = 0.0,
        network: NetworkFactory | None = None,
        head: HeadFunction | None = None,
        scoring_rule: ScoringRule = log_score,
        perturbation: Perturbation | None = None,
        class_weight: str | dict[Any, float] | None = None,
        max_epochs: int = 100,
        batch_size: int = 100,
        learning_rate: float = 0.01,
        schedule: Schedule = Constant(),  # noqa: B008
        optimizer: Optimizer = Adam(),  # noqa: B008
        weight_decay: float = 0.0,
        clip_norm: float | None = None,
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        patience: int = 20,
        folds: ComplementaryFolds | None = None,
        time_limit: float | None = None,
        recalibration: FitRecalibration | None = None,
        resampling: Resampling | None = None,
        checkpoint: Checkpoint | None = None,
        random_state: RandomState = None,
        device: str | torch.device = "auto",
        verbose: int = 0,
    ) -> None:
        super().__init__(
            n_members,
            hidden_sizes=hidden_sizes,
            activation=activation,
            batch_norm=batch_norm,
            dropout=dropout,
            network=network,
            head=head,
            scoring_rule=scoring_rule,
            perturbation=perturbation,
            max_epochs=max_epochs,
            batch_size=batch_size,
            learning_rate=learning_rate,
            schedule=schedule,
            optimizer=optimizer,
            weight_decay=weight_decay,
            clip_norm=clip_norm,
            early_stopping=early_stopping,
            validation_fraction=validation_fraction,
            patience=patience,
            folds=folds,
            time_limit=time_limit,
            recalibration=recalibration,
            resampling=resampling,
            checkpoint=checkpoint,
            random_state=random_state,
            device=device,
            verbose=verbose,
        )
        self.class_weight = class_weight

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Train on rows `X` (n, features) and labels `y` (n,) of any type."""
        X, y = validate_data(self, X, y, dtype=_FLOATS)
        y = column_or_1d(y, warn=True)
        check_classification_targets(y)
        self.classes_, codes = np.unique(y, return_inverse=True)
        require(len(self.classes_) > 1, "y", "labels of at least two classes", f"one class ({self.classes_[0]!r})")
        if sample_weight is not None:
            sample_weight = _check_sample_weight(sample_weight, X, ensure_non_negative=True)
        self.class_prior_ = np.bincount(codes, sample_weight) / (
            len(codes) if sample_weight is None else sample_weight.sum()
        )
        if self.class_weight is not None:
            weight = compute_sample_weight(self.class_weight, y)
            sample_weight = weight if sample_weight is None else weight * sample_weight
        self._fit_members(X, codes.astype(np.int64), sample_weight, len(self.classes_), Categorical())
        return self

    def predict_distribution(self, X: Any) -> Mixture:
        """The predictive mixture over classes, recalibrated if the model is."""
        return cast(Mixture, super().predict_distribution(X))

    def _mixtures(self, X: Any) -> Iterator[Mixture]:
        return cast(Iterator[Mixture], self._batches(X))

    def predict_proba(self, X: Any) -> np.ndarray:
        """Averaged class probabilities, (n, classes)."""
        probabilities = _joined(batch.probs for batch in self._mixtures(X)).astype(np.float64)
        return probabilities / probabilities.sum(axis=1, keepdims=True)

    def predict_log_proba(self, X: Any) -> np.ndarray:
        """Logarithms of the averaged class probabilities, (n, classes)."""
        return _joined(batch.logits for batch in self._mixtures(X)).astype(np.float64)

    def predict(self, X: Any) -> np.ndarray:
        """The most probable label, (n,)."""
        chosen = self.predict_proba(X).argmax(axis=1)
        labels: np.ndarray = self.classes_[chosen]
        return labels

    def _target(self, y: Any) -> np.ndarray:
        labels = column_or_1d(y, warn=True)
        unknown = np.setdiff1d(labels, self.classes_)
        require(len(unknown) == 0, "y", "labels that the model knows", unknown[:3].tolist())
        return np.searchsorted(self.classes_, labels)

    def _fitted_config(self) -> dict[str, Any]:
        values = self.classes_.tolist()
        if not all(isinstance(value, (bool, int, float, str)) for value in values):
            kinds = sorted({type(value).__name__ for value in values})
            raise ModelFileError(f"labels must be strings, numbers or booleans to be saved, got {', '.join(kinds)}")
        prior = {"class_prior_": self.class_prior_.tolist()} if hasattr(self, "class_prior_") else {}
        return {"classes_": {"dtype": self.classes_.dtype.str, "values": values}, **prior}

    def _constant(self, target: int) -> torch.distributions.Distribution | None:
        if not hasattr(self, "class_prior_"):
            return None
        return torch.distributions.Categorical(probs=torch.from_numpy(self.class_prior_))

    def _restore_fitted(self, fitted: dict[str, Any]) -> None:
        classes = fitted.pop("classes_")
        self.classes_ = np.array(classes["values"], dtype=np.dtype(classes["dtype"]))
        if "class_prior_" in fitted:
            self.class_prior_ = np.array(fitted.pop("class_prior_"))
        super()._restore_fitted(fitted)


def _joined(parts: Iterator[torch.Tensor]) -> np.ndarray:
    joined: np.ndarray = np.concatenate([part.cpu().numpy() for part in parts])
    return joined
