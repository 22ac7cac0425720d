"""Numbers, as scikit-learn predicts them."""

from collections.abc import Sequence
from typing import Any, Literal, overload

import numpy as np
import torch
from sklearn.base import RegressorMixin
from sklearn.utils import Tags, check_array, check_consistent_length
from typing_extensions import Self

from deep_ensembles._checks import check_number, require
from deep_ensembles._tensors import is_structured, times_and_events
from deep_ensembles.estimators._deep_ensemble import FIRST_EPOCH, NUMBERS, DeepEnsemble, concatenated, weights_and_groups
from deep_ensembles.heads import Normal
from deep_ensembles.metrics import concordance_index
from deep_ensembles.recalibration import Prediction
from deep_ensembles.recipes import Task
from deep_ensembles.report.constant import constant_prediction, fitted_constant


class DeepEnsembleRegressor(RegressorMixin, DeepEnsemble):
    """An ensemble of networks that predict distributions of numbers, combined as a mixture.

    Settings are "auto" unless they are given: they follow from the data, several networks and heads are compared by the
    likelihood of rows that members hold out, and the same rows recalibrate the result. `None` turns a part off.

    References:
        Lakshminarayanan, Pritzel, Blundell (2017).

    Arguments:
        n_members: how many networks.
        preset: "paper" for the paper's protocol: 5 networks of 50 units, 40 epochs, nothing held out or compared.
        effort: "fast" trains one ensemble unless rows are few, "best" more and larger networks than "default".
        hidden_sizes, activation, batch_norm, dropout: of the default network, `periodic_mlp`; `mlp` with batch norm or by
            the preset.
        network: a function that builds another `nn.Module`; called with (inputs, raw outputs), or with nothing if it
            takes no arguments.
        head: raw output → distribution; by default the best of `StudentT()`, `Normal()` and, for many rows,
            `GaussianMixture(3)`; `None` for `Normal()`. `LogNormal()` or `Gamma()` for positive numbers, `Poisson()` or
            `NegativeBinomial()` for counts, `MultivariateNormal()` for several targets, …
        scoring_rule: the training criterion; by default what the head asks for (`log_score` but for a few), and
            `censored(log_score)` for censored times.
        perturbation: `FastGradientSign(0.01)` for the paper's adversarial training; none by default.
        recalibration: `choose`, `variance_scaling`, `isotonic` or `conformal` to correct predictions by rows that members
            hold out (complementary folds, so that no row is lost); `None` for none.
        max_epochs … verbose: see `Recipe`.
        warm_start: let a second `fit` on the same rows add members up to a larger `n_members` and keep those that there are,
            or train them for more epochs up to a larger `max_epochs` unless they were stopped early.
        random_state: an integer for a result that can be repeated.
        n_jobs: processes to train in where that pays; "auto" for one per core, None for one or what
            `joblib.parallel_config` says. Members are the same bits whatever it is.
        execution: `InProcess()`, `Processes(n)` or `Ray(address)`; it wins over `n_jobs` (see docs/scale.md).

    Attributes:
        ensemble_: the fitted `Ensemble`.
        chosen_: the settings that it was trained with, as plain data.
        n_outputs_: the number of targets.
        constant_: raw outputs that make the training targets most probable without inputs, for `report`; None for normals,
            unless times are censored.

    Example:
        >>> from sklearn.datasets import load_diabetes
        >>> X, y = load_diabetes(return_X_y=True)
        >>> model = DeepEnsembleRegressor(effort="fast", random_state=0).fit(X, y)
        >>> mean, std = model.predict(X, return_std=True)
        >>> mean.shape, std.shape, model.predict_interval(X, coverage=0.9).shape
        ((442,), (442,), (442, 2))
    """

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def fit(self, X: Any, y: Any, sample_weight: Any = None, groups: Any = None) -> Self:
        """Train on rows `X` (n, features) and numbers `y` (n,) or (n, targets).

        Times that are only known to exceed a value are given as scikit-survival gives them: a structured array of a flag
        (whether it was an event) and a number (the time), (n,).

        Arguments:
            sample_weight: one number ≥ 0 per row.
            groups: the group of each row; rows of a group are held out together.
        """
        return self._fit(X, y, sample_weight, groups)

    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Train for one more epoch, on these rows, with units, networks and optimiser as the calls before left them.

        The first call chooses settings and units by its rows: give it many. Nothing is held out, compared or recalibrated.
        """
        if not hasattr(self, "ensemble_"):
            return self._fit(X, y, sample_weight, None, **FIRST_EPOCH)
        return self._train_further(X, y, sample_weight)

    def _fit(self, X: Any, y: Any, sample_weight: Any, groups: Any, **fixed: Any) -> Self:
        if is_structured(y):
            require(self.recalibration in (None, "auto"), "recalibration", "None for censored times", self.recalibration,
                    "call `recalibrate` with rows whose times are all known")  # fmt: skip
            times_and_events("y", y)
            check_consistent_length(X, y)
            X, _ = self._training_inputs(X)
        else:
            X, y = self._training_inputs(X, y, multi_output=True, y_numeric=True)
            y = np.ascontiguousarray(y[:, 0] if y.ndim == 2 and y.shape[1] == 1 else y, dtype=np.float64)
        sample_weight, groups = weights_and_groups(X, sample_weight, groups)
        self.n_outputs_ = 1 if y.ndim == 1 else y.shape[1]
        self._fit_members(Task(X, y, 0, self.n_outputs_, Normal(), sample_weight, groups), **fixed)
        self.constant_ = fitted_constant(self.ensemble_, y, sample_weight)
        return self

    @overload
    def predict(self, X: Any, return_std: Literal[False] = False) -> np.ndarray: ...

    @overload
    def predict(self, X: Any, return_std: Literal[True]) -> tuple[np.ndarray, np.ndarray]: ...

    def predict(self, X: Any, return_std: bool = False) -> np.ndarray | tuple[np.ndarray, np.ndarray]:
        """The point prediction, and on request the standard deviation of the mixture; (n,) or (n, targets).

        The point is the mean, or the median where the head says so (`Quantiles`, a Student-t that may have no mean).
        """
        if not return_std:
            return concatenated(self._point(batch) for batch in self._batches(X))
        pairs = [(self._point(batch), batch.stddev) for batch in self._batches(X)]
        return concatenated(point for point, _ in pairs), concatenated(std for _, std in pairs)

    def _point(self, batch: Prediction) -> torch.Tensor:
        is_median = getattr(self.ensemble_.head, "point", "mean") == "median"
        return batch.icdf(torch.tensor(0.5, dtype=torch.float64)) if is_median else batch.mean

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """R², the share of the variance explained; of censored times (see `fit`) the concordance index."""
        if not is_structured(y):
            return super().score(X, y, sample_weight)
        require(sample_weight is None, "sample_weight", "None for censored times", sample_weight)
        return concordance_index(-self.predict(X), *times_and_events("y", y).T)

    def predict_quantiles(self, X: Any, quantiles: Sequence[float]) -> np.ndarray:
        """Exact quantiles of the mixture, (n, quantiles); with several targets (n, quantiles, targets)."""
        levels = np.atleast_1d(np.asarray(quantiles, dtype=np.float64))
        require(levels.size > 0, "quantiles", "at least one number", quantiles)
        for level in levels:
            check_number("quantiles", float(level), low=0, high=1)
        points = torch.tensor(levels)
        return concatenated(torch.stack([batch.icdf(point) for point in points], dim=1) for batch in self._batches(X))

    def predict_interval(self, X: Any, coverage: float = 0.9) -> np.ndarray:
        """The central interval that holds `coverage` of the mass: lower and upper end, (n, 2); or (n, 2, targets)."""
        check_number("coverage", coverage, low=0, high=1)
        return self.predict_quantiles(X, [(1 - coverage) / 2, (1 + coverage) / 2])

    def _target(self, y: Any, may_be_censored: bool = False) -> np.ndarray:
        if is_structured(y):
            require(may_be_censored, "y", "times that are all known", "censored ones", "use `score` or `report`")
            require(self.n_outputs_ == 1, "y", f"{self.n_outputs_} targets per row", "censored times, which are one")
            times_and_events("y", y)
            return np.asarray(y)
        targets: np.ndarray = check_array(y, ensure_2d=False, dtype=np.float64, input_name="y")
        columns = targets.reshape(len(targets), -1)
        require(columns.shape[1] == self.n_outputs_, "y", f"{self.n_outputs_} target(s) per row", columns.shape[1])
        return columns[:, 0] if self.n_outputs_ == 1 else columns

    def _constant(self, target: int) -> torch.distributions.Distribution | None:
        return constant_prediction(self.ensemble_, getattr(self, "constant_", None), target)

    def _restore_fitted(self, fitted: dict[str, Any]) -> None:
        self.n_outputs_ = fitted["n_outputs_"]
        self._check_head(self.n_outputs_, NUMBERS)
        self.constant_ = fitted.get("constant_")
        if self.constant_ is not None:
            known = isinstance(self.constant_, list) and all(type(value) is float for value in self.constant_)
            require(known and len(self.constant_) == self.ensemble_.n_outputs, "constant_", "raw outputs", self.constant_)
