"""Classes, as scikit-learn predicts them."""

import inspect
import warnings
from typing import Any

import numpy as np
import torch
from sklearn.base import ClassifierMixin
from sklearn.utils import Tags, check_array
from sklearn.utils.class_weight import compute_sample_weight
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import check_is_fitted, column_or_1d
from typing_extensions import Self

from deep_ensembles._checks import require
from deep_ensembles._files import ModelFileError
from deep_ensembles._tensors import is_structured
from deep_ensembles.estimators._deep_ensemble import FIRST_EPOCH, DeepEnsemble, concatenated, weights_and_groups
from deep_ensembles.heads import Bernoulli, Categorical, Ordinal
from deep_ensembles.recipes import Auto, Task

_LONGEST_LABEL = 2**16  # bytes that a model file may ask for


class DeepEnsembleClassifier(ClassifierMixin, DeepEnsemble):
    """An ensemble of networks that predict class probabilities, averaged.

    References:
        Lakshminarayanan, Pritzel, Blundell (2017).

    Arguments:
        class_weight: "balanced", or a dictionary of class → weight; multiplies `sample_weight`.
        others: as for `DeepEnsembleRegressor`; `head` is `Categorical()` by itself, `Bernoulli()` for several labels
            at once (a matrix of 0 and 1), and may be `Ordinal()` for classes with an order, that of the sorted labels. A
            recalibration of classes is `choose`, `temperature` or `conformal`.

    Attributes:
        ensemble_: the fitted `Ensemble`.
        chosen_: the settings that it was trained with, as plain data.
        classes_: the labels, in the order of the columns of `predict_proba`.
        class_prior_: the share of each class in training.

    Example:
        >>> from sklearn.datasets import load_iris
        >>> X, y = load_iris(return_X_y=True)
        >>> model = DeepEnsembleClassifier(effort="fast", random_state=0).fit(X, y)
        >>> model.predict_proba(X).shape, model.score(X, y) > 0.95
        ((150, 3), True)
    """

    def __init__(
        self, n_members: int | Auto = "auto", *, class_weight: str | dict[Any, float] | None = None, **settings: Any
    ) -> None:
        super().__init__(n_members, **settings)
        self.class_weight = class_weight

    # What scikit-learn, `help` and notebooks take for the settings: the common ones, and the one that is its own.
    _common, _own = inspect.signature(DeepEnsemble.__init__), inspect.signature(__init__).parameters["class_weight"]
    __init__.__signature__ = _common.replace(parameters=[*_common.parameters.values(), _own])  # type: ignore[attr-defined]

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = self.head in (None, "auto") or getattr(self.head, "kind", "classes") == "labels"
        return tags

    def fit(self, X: Any, y: Any, sample_weight: Any = None, groups: Any = None) -> Self:
        """Train on rows `X` (n, features) and labels `y` (n,) of any type, or several at once: (n, labels) of 0 and 1.

        Arguments:
            sample_weight: one number ≥ 0 per row.
            groups: the group of each row; rows of a group are held out together.
        """
        return self._fit(X, y, sample_weight, groups)

    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> Self:
        """Train for one more epoch, on these rows, with units, networks and optimiser as the calls before left them.

        The first call chooses settings and units by its rows: give it many. Nothing is held out, compared or recalibrated.

        Arguments:
            classes: all labels that there will be; needed in the first call.
            sample_weight: one number ≥ 0 per row.
        """
        if not hasattr(self, "ensemble_"):
            require(classes is not None, "classes", "all labels that there will be, in the first call", classes)
            return self._fit(X, y, sample_weight, None, np.unique(classes), **FIRST_EPOCH)
        same = classes is None or np.array_equal(np.unique(classes), self.classes_)
        require(same, "classes", f"those of the first call, {self.classes_[:5].tolist()}", classes)
        return self._train_further(X, y, self._weighted(y, sample_weight))

    def _fit(self, X: Any, y: Any, sample_weight: Any, groups: Any, classes: np.ndarray | None = None, **fixed: Any) -> Self:
        require(not is_structured(y), "y", "labels", "a structured array", "for censored times use `DeepEnsembleRegressor`")
        X, y = self._training_inputs(X, y, multi_output=True)
        sample_weight, groups = weights_and_groups(X, sample_weight, groups)
        if type_of_target(y) == "multilabel-indicator":
            codes = np.asarray(y.todense() if hasattr(y, "todense") else y)
            self.classes_ = np.arange(codes.shape[1])
        else:
            codes = self._fit_classes(y, classes)
        shares = codes if codes.ndim == 2 else np.arange(len(self.classes_)) == codes[:, None]
        self.class_prior_ = np.average(shares, axis=0, weights=sample_weight)
        sample_weight = self._weighted(y, sample_weight)
        default = Bernoulli() if codes.ndim == 2 else Categorical()
        codes, n = codes.astype(np.int64 if codes.ndim == 1 else np.float64), len(self.classes_)
        self._fit_members(Task(X, codes, n, n, default, sample_weight, groups), **fixed)
        return self

    def _weighted(self, y: Any, sample_weight: Any) -> Any:
        if self.class_weight is None:
            return sample_weight
        weight = compute_sample_weight(self.class_weight, y)
        return weight if sample_weight is None else weight * sample_weight

    def _fit_classes(self, y: Any, classes: np.ndarray | None) -> np.ndarray:
        labels = column_or_1d(y, warn=True)
        check_classification_targets(labels)
        self.classes_ = np.unique(labels) if classes is None else classes
        codes = self._codes(labels)
        if isinstance(self.head, Ordinal) and self.classes_.dtype.kind not in "biuf":
            order = " < ".join(map(str, self.classes_[:4]))
            warnings.warn(f"`Ordinal` takes the order of sorted labels, {order}; give numbers for another", stacklevel=3)
        require(len(self.classes_) > 1, "y", "labels of at least two classes", f"one class ({self.classes_[0]!r})")
        return codes

    @property
    def _is_multilabel(self) -> bool:
        return getattr(self.ensemble_.head, "kind", "classes") == "labels"

    def predict_proba(self, X: Any) -> np.ndarray:
        """Averaged class probabilities, (n, classes); with several labels at once the probability of each, (n, labels)."""
        probabilities = concatenated(batch.probs for batch in self._batches(X)).astype(np.float64)
        return probabilities if self._is_multilabel else probabilities / probabilities.sum(axis=1, keepdims=True)

    def predict_log_proba(self, X: Any) -> np.ndarray:
        """Logarithms of the averaged probabilities, shaped like them."""
        check_is_fitted(self)
        if self._is_multilabel:
            return np.log(self.predict_proba(X))
        return concatenated(batch.logits for batch in self._batches(X)).astype(np.float64)

    def predict(self, X: Any) -> np.ndarray:
        """The most probable label, (n,); with several at once 0 or 1 each, (n, labels)."""
        probabilities = self.predict_proba(X)
        if self._is_multilabel:
            return (probabilities > 0.5).astype(np.int64)
        return self.classes_[probabilities.argmax(axis=1)]

    def _target(self, y: Any, may_be_censored: bool = False) -> np.ndarray:
        if self._is_multilabel:
            codes: np.ndarray = check_array(y, input_name="y").astype(np.int64)
            fits = codes.shape[1] == len(self.classes_) and np.isin(codes, (0, 1)).all()
            require(bool(fits), "y", f"{len(self.classes_)} columns of 0 and 1, one per label", codes.shape)
            return codes
        return self._codes(column_or_1d(y, warn=True))

    def _codes(self, labels: np.ndarray) -> np.ndarray:
        unknown = np.setdiff1d(labels, self.classes_)
        require(len(unknown) == 0, "y", "labels that the model knows", unknown[:3].tolist())
        return np.searchsorted(self.classes_, labels)

    def _fitted_config(self) -> dict[str, Any]:
        fitted = super()._fitted_config()
        values = fitted["classes_"]
        if not all(isinstance(value, (bool, int, float, str)) for value in values):
            kinds = sorted({type(value).__name__ for value in values})
            raise ModelFileError(f"labels must be strings, numbers or booleans to be saved, got {', '.join(kinds)}")
        return fitted | {"classes_": {"dtype": self.classes_.dtype.str, "values": values}}

    def _constant(self, target: int) -> torch.distributions.Distribution | None:
        if not hasattr(self, "class_prior_"):
            return None
        shares = self.class_prior_
        shares = np.array([1 - shares[target], shares[target]]) if self._is_multilabel else shares
        return torch.distributions.Categorical(probs=torch.from_numpy(shares))

    def _restore_fitted(self, fitted: dict[str, Any]) -> None:
        values, dtype = fitted["classes_"]["values"], np.dtype(fitted["classes_"]["dtype"])
        require(dtype.kind in "biufUO" and dtype.itemsize <= _LONGEST_LABEL, "classes_", "numbers or text", dtype)
        plain = isinstance(values, list) and all(isinstance(value, (bool, int, float, str)) for value in values)
        require(plain and len(set(values)) == len(values), "classes_", "different labels", values)
        self._check_head(len(values), ("classes", "labels"))
        self.classes_ = np.array(values, dtype=dtype)
        self._restore_array(fitted, "class_prior_", np.float64, len(values))
