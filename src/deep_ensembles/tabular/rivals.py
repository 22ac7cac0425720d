"""Models that people know, as rivals in a comparison: scikit-learn's, and CatBoost and NGBoost where they are installed."""

from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch
from sklearn import ensemble, linear_model, model_selection, pipeline, preprocessing
from torch.distributions import Categorical, Distribution, Normal

from deep_ensembles.distributions import Interpolated
from deep_ensembles.recipes import Task

Predict = Callable[[np.ndarray], Distribution]
Rival = Callable[[Task, int], Predict]

_LEVELS = np.array([0.025, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.975])
_LEAST_GAP = 1e-3  # between neighbouring quantiles, in standard deviations of the target
_FOLDS, _TREES = 5, 200


def rivals(is_class: bool) -> dict[str, Rival]:
    """Those that can be trained here, by name.

    Example:
        >>> list(rivals(is_class=True))[:3]
        ['logistic regression', 'random forest', 'gradient boosting']
    """
    known = {name: partial(_classifier, build) for name, build in _CLASSIFIERS.items()} if is_class else _REGRESSORS
    absent = [name for name in ("CatBoost", "NGBoost") if not find_spec(name.lower())]
    return {name: rival for name, rival in known.items() if name not in absent}


def _classifier(build: Callable[[int], Any], task: Task, seed: int) -> Predict:
    model = build(seed)
    model.fit(task.inputs, task.targets, **_weights(model, task))
    classes = np.asarray(model.classes_, dtype=np.int64)

    def predict(inputs: np.ndarray) -> Distribution:
        shares = np.full((len(inputs), task.n_classes), 1e-6)  # of classes that no training row has, too
        shares[:, classes] = np.maximum(model.predict_proba(inputs), 1e-6)
        return Categorical(probs=torch.from_numpy(shares))

    return predict


def _weights(model: Any, task: Task) -> dict[str, np.ndarray]:
    """The weights of rows as `fit` takes them, of a pipeline for its last step."""
    step = f"{model.steps[-1][0]}__" if isinstance(model, pipeline.Pipeline) else ""
    return {} if task.sample_weight is None else {f"{step}sample_weight": task.sample_weight}


def _with_residuals(model: Any, task: Task) -> Predict:
    """A normal around point predictions, as wide as residuals of rows that were held out."""
    folds, weights = min(_FOLDS, len(task.inputs)), _weights(model, task)
    held_out = model_selection.cross_val_predict(model, task.inputs, task.targets, cv=folds, params=weights or None)
    return _normal(model.fit(task.inputs, task.targets, **weights).predict, task.targets - held_out)


def _normal(predict: Callable[[np.ndarray], Any], residuals: np.ndarray) -> Predict:
    deviation = float(np.sqrt(np.mean(np.square(residuals)))) or 1e-9
    return lambda inputs: _of(predict(inputs), np.full(len(inputs), deviation))


def _of(mean: Any, deviation: Any) -> Normal:
    loc, scale = (torch.from_numpy(np.array(part, dtype=np.float64)) for part in (mean, deviation))
    return Normal(loc, scale)


def _scaled(model: Any) -> pipeline.Pipeline:
    return pipeline.make_pipeline(preprocessing.StandardScaler(), model)


def _forest(task: Task, seed: int) -> Predict:
    forest = ensemble.RandomForestRegressor(_TREES, random_state=seed, oob_score=True)
    forest.fit(task.inputs, task.targets, sample_weight=task.sample_weight)
    return _normal(forest.predict, task.targets - forest.oob_prediction_)


def _quantiles(task: Task, seed: int) -> Predict:
    """One model per level; straight lines between, exponential tails beyond."""
    boosting = partial(ensemble.HistGradientBoostingRegressor, loss="quantile", random_state=seed)
    models = [boosting(quantile=level).fit(task.inputs, task.targets, task.sample_weight) for level in _LEVELS]
    gap = _LEAST_GAP * (float(np.std(task.targets)) or 1.0)

    def predict(inputs: np.ndarray) -> Distribution:
        values = np.sort(np.stack([model.predict(inputs) for model in models], axis=1), axis=1)
        steps = np.maximum(np.diff(values, axis=1), gap)
        values = np.concatenate([values[:, :1], values[:, :1] + steps.cumsum(axis=1)], axis=1)
        return Interpolated(torch.from_numpy(values), torch.from_numpy(_LEVELS))

    return predict


def _catboost(task: Task, seed: int) -> Predict:
    from catboost import CatBoostRegressor

    model = CatBoostRegressor(loss_function="RMSEWithUncertainty", random_seed=seed, **_QUIET)
    model.fit(task.inputs, task.targets, sample_weight=task.sample_weight)

    def predict(inputs: np.ndarray) -> Distribution:
        mean, variance = model.predict(inputs, prediction_type="RMSEWithUncertainty").T
        return _of(mean, np.sqrt(variance))

    return predict


def _catboost_classifier(seed: int) -> Any:
    from catboost import CatBoostClassifier

    return CatBoostClassifier(random_seed=seed, **_QUIET)


def _ngboost(task: Task, seed: int) -> Predict:
    from ngboost import NGBRegressor

    model = NGBRegressor(random_state=seed, verbose=False).fit(task.inputs, task.targets, sample_weight=task.sample_weight)
    return lambda inputs: _of(*(model.pred_dist(inputs).params[name] for name in ("loc", "scale")))


_QUIET: dict[str, Any] = {"verbose": False, "allow_writing_files": False}  # for CatBoost
_CLASSIFIERS: dict[str, Callable[[int], Any]] = {
    "logistic regression": lambda seed: _scaled(linear_model.LogisticRegression(max_iter=2000)),
    "random forest": lambda seed: ensemble.RandomForestClassifier(_TREES, random_state=seed),
    "gradient boosting": lambda seed: ensemble.HistGradientBoostingClassifier(random_state=seed),
    "CatBoost": _catboost_classifier,
}
_REGRESSORS: dict[str, Rival] = {
    "linear model": lambda task, seed: _with_residuals(_scaled(linear_model.RidgeCV(np.logspace(-3, 4, 15))), task),
    "random forest": _forest,
    "gradient boosting": lambda task, seed: _with_residuals(ensemble.HistGradientBoostingRegressor(random_state=seed), task),
    "quantile boosting": _quantiles, "CatBoost": _catboost, "NGBoost": _ngboost,
}  # fmt: skip
