"""The methods of regression: ours, and what a user would pick instead."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import torch
from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestRegressor
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.preprocessing import StandardScaler
from torch.distributions import Normal

from benchmarks.quality.laplace import fit_laplace
from benchmarks.quality.methods import Fitted, Method, held_out, silence
from deep_ensembles import DeepEnsembleRegressor
from deep_ensembles._files import json_ready
from deep_ensembles.baselines import MCDropout
from deep_ensembles.distributions import Delta, Interpolated

MOST_TREES, NGBOOST_TREES, PATIENCE = 5000, 2000, 50  # NGBoost: as in its paper
LEVELS = np.array([0.05, *np.arange(1, 10) / 10, 0.95])
TAIL_LEVELS = np.array([0.005, 0.0075, 0.01, 0.015, 0.02, 0.03, 0.04])  # beyond the outermost of them, both sides
N_FOREST, GP_ROWS = 300, 1500
SHARES = np.linspace(0, 1, 5)  # of a forest's variance that follows the spread of its trees


def fit_ours(X: np.ndarray, y: np.ndarray, seed: int, **settings: Any) -> Fitted:
    model = DeepEnsembleRegressor(random_state=seed, n_jobs=None, **settings).fit(X, y)
    return Fitted(model.predict_distribution, {"chosen": _plain(getattr(model, "chosen_", None))})


def _plain(chosen: Any) -> Any:
    """What a recipe chose, with words for what is no plain data."""
    if isinstance(chosen, dict):
        return {str(key): _plain(value) for key, value in chosen.items()}
    return json_ready(chosen) if isinstance(chosen, (int, float, str, bool, type(None))) else str(chosen)


def fit_mc_dropout(X: np.ndarray, y: np.ndarray, seed: int) -> Fitted:
    model = MCDropout(random_state=seed).fit(X, y)
    return Fitted(model.predict_distribution, {"rate": model.model_.rate})


def fit_ngboost(X: np.ndarray, y: np.ndarray, seed: int) -> Fitted:
    from ngboost import NGBRegressor

    settings: dict[str, Any] = {"random_state": seed, "verbose": False}
    X_fit, X_held, y_fit, y_held = held_out(X, y, seed)
    with silence():
        trial = NGBRegressor(n_estimators=NGBOOST_TREES, early_stopping_rounds=PATIENCE, **settings)
        trial.fit(X_fit, y_fit, X_val=X_held, Y_val=y_held)
        trees = (trial.best_val_loss_itr or 0) + 1
        model = NGBRegressor(n_estimators=trees, **settings).fit(X, y)
    return Fitted(lambda new: _normal(*(model.pred_dist(new).params[name] for name in ("loc", "scale"))), {"trees": trees})


def fit_catboost(X: np.ndarray, y: np.ndarray, seed: int) -> Fitted:
    from catboost import CatBoostRegressor

    settings: dict[str, Any] = {
        "loss_function": "RMSEWithUncertainty", "random_seed": seed, "thread_count": 1, "verbose": False,
        "allow_writing_files": False,
    }  # fmt: skip
    X_fit, X_held, y_fit, y_held = held_out(X, y, seed)
    trial = CatBoostRegressor(iterations=MOST_TREES, **settings)
    trial.fit(X_fit, y_fit, eval_set=(X_held, y_held), early_stopping_rounds=PATIENCE)
    trees, rate = trial.tree_count_, trial.get_all_params()["learning_rate"]
    model = CatBoostRegressor(iterations=trees, learning_rate=rate, **settings).fit(X, y)

    def predict(new: np.ndarray) -> Normal:
        mean, variance = model.predict(new, prediction_type="RMSEWithUncertainty").T
        return _normal(mean, np.sqrt(variance))

    return Fitted(predict, {"trees": trees})


def fit_quantiles(X: np.ndarray, y: np.ndarray, seed: int) -> Fitted:
    """One boosting per level; between levels straight lines, beyond them exponential tails."""
    settings: dict[str, Any] = {"max_iter": MOST_TREES, "early_stopping": True, "random_state": seed}
    models = [HistGradientBoostingRegressor(loss="quantile", quantile=level, **settings).fit(X, y) for level in LEVELS]

    def quantiles(rows: np.ndarray) -> np.ndarray:
        return np.sort(np.stack([model.predict(rows) for model in models], axis=1), axis=1)

    shortest = 0.2 * _tail_lengths(quantiles(X)).mean(axis=1)
    least = 1e-3 * (float(y.std()) or 1.0)
    return Fitted(lambda new: interpolated(quantiles(new), shortest, least), {"trees": [model.n_iter_ for model in models]})


def interpolated(values: np.ndarray, shortest: np.ndarray, least: float) -> Interpolated:
    """Quantiles `[row, level]` as a distribution, continued on both sides by the tails of a Laplace.

    A tail's length is that of an exponential from the median through the outermost quantile.

    Arguments:
        shortest: the least length of the lower and of the upper tail.
        least: the least distance of neighbouring quantiles, which may be equal.
    """
    lower, upper = np.maximum(_tail_lengths(values), shortest[:, None])
    beyond = np.log(LEVELS[0] / TAIL_LEVELS)
    below, above = values[:, :1] - lower[:, None] * beyond, values[:, -1:] + upper[:, None] * beyond[::-1]
    points = np.concatenate([below, values, above], axis=1)
    steps = np.maximum(np.diff(points, axis=1), least)
    points = np.concatenate([points[:, :1], points[:, :1] + steps.cumsum(axis=1)], axis=1)
    levels = np.concatenate([TAIL_LEVELS, LEVELS, 1 - TAIL_LEVELS[::-1]])
    return Interpolated(torch.from_numpy(points), torch.from_numpy(levels))


def _tail_lengths(values: np.ndarray) -> np.ndarray:
    """`[side, row]`: of exponentials that start at the median with half the mass."""
    middle = values[:, len(LEVELS) // 2]
    return np.stack([middle - values[:, 0], values[:, -1] - middle]) / np.log(0.5 / LEVELS[0])


def fit_forest(X: np.ndarray, y: np.ndarray, seed: int) -> Fitted:
    """A normal around the mean of the trees, whose variance is on average that of out-of-bag residuals."""
    forest = RandomForestRegressor(N_FOREST, bootstrap=True, random_state=seed).fit(X, y)
    mean, spread = _out_of_bag(forest, X)
    seen = np.isfinite(mean)
    residuals, spread = np.square(y - mean)[seen], spread[seen]
    noise, per_spread = residuals.mean(), residuals.mean() / max(float(spread.mean()), 1e-300)

    def variance(spread: np.ndarray, share: float) -> np.ndarray:
        return np.maximum((1 - share) * noise + share * per_spread * spread, 1e-3 * noise + 1e-300)

    losses = [float((np.log(variance(spread, share)) + residuals / variance(spread, share)).mean()) for share in SHARES]
    share = float(SHARES[int(np.argmin(losses))])

    def predict(new: np.ndarray) -> Normal:
        trees = np.stack([tree.predict(new.astype(np.float32)) for tree in forest.estimators_])
        return _normal(trees.mean(0), np.sqrt(variance(trees.var(0), share)))

    return Fitted(predict, {"share": share})


def _out_of_bag(forest: RandomForestRegressor, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance, for each training row, of the trees that did not see it; NaN where all but one did."""
    rows, moments = X.astype(np.float32), np.zeros((3, len(X)))
    for tree, sample in zip(forest.estimators_, forest.estimators_samples_, strict=True):
        unseen = np.ones(len(X), dtype=bool)
        unseen[sample] = False
        predicted = tree.predict(rows[unseen])
        moments[:, unseen] += [np.ones(len(predicted)), predicted, np.square(predicted)]
    count = np.where(moments[0] > 1, moments[0], np.nan)
    mean = moments[1] / count
    return mean, np.maximum(moments[2] / count - mean**2, 0.0)


def fit_gaussian_process(X: np.ndarray, y: np.ndarray, seed: int) -> Fitted:
    units = StandardScaler().fit(X)
    kernel = ConstantKernel(1.0, (1e-3, 1e4)) * RBF(np.ones(X.shape[1]), (1e-2, 1e4)) + WhiteKernel(0.1, (1e-7, 1e1))
    process = GaussianProcessRegressor(kernel, normalize_y=True, n_restarts_optimizer=1, random_state=seed)
    with silence():  # it warns of lengths at their bounds, which belong to inputs without influence
        process.fit(units.transform(X), y)
    return Fitted(
        lambda new: _normal(*process.predict(units.transform(new), return_std=True)), {"kernel": str(process.kernel_)}
    )


def fit_pytabkit(X: np.ndarray, y: np.ndarray, seed: int, name: str) -> Fitted:
    """A point prediction by one of pytabkit's networks with its default settings."""
    import pytabkit

    with silence():
        model = getattr(pytabkit, name)(device="cpu", random_state=seed, n_threads=1, verbosity=0).fit(X, y)

    def predict(new: np.ndarray) -> Delta:
        with silence():
            return Delta(torch.as_tensor(np.asarray(model.predict(new), dtype=np.float64)))

    return Fitted(predict)


def _normal(mean: np.ndarray, deviation: np.ndarray) -> Normal:
    return Normal(*(torch.from_numpy(np.array(part, dtype=np.float64)) for part in (mean, deviation)))


_TREES = f"by early stopping ({PATIENCE} rounds) on 20 % of the training rows, then all rows are fitted with as many"
REGRESSORS: tuple[Method, ...] = (
    Method("ours", "ours", fit_ours, "`DeepEnsembleRegressor(random_state=split)`.", ours=True),
    Method(
        "ours-fast", "ours, fast", partial(fit_ours, effort="fast"),
        '`DeepEnsembleRegressor(effort="fast", random_state=split)`.',
        takes=(DeepEnsembleRegressor, "effort"), ours=True,
    ),
    Method(
        "paper", "ours, paper", partial(fit_ours, preset="paper"),
        '`DeepEnsembleRegressor(preset="paper", random_state=split)`.',
        takes=(DeepEnsembleRegressor, "preset"), ours=True,
    ),
    Method(
        "ngboost", "NGBoost", fit_ngboost,
        f"Normal, defaults; up to {NGBOOST_TREES} trees {_TREES}.", package="ngboost",
    ),
    Method(
        "catboost", "CatBoost", fit_catboost,
        f"`RMSEWithUncertainty`, defaults; up to {MOST_TREES} trees {_TREES}.", package="catboost",
    ),
    Method(
        "quantile-boosting", "quantile boosting", fit_quantiles,
        (
            "scikit-learn's `HistGradientBoostingRegressor`, one per level (5, 10, 20, …, 90, 95 %) with its own early "
            "stopping on 10 % of the rows; crossing quantiles are sorted, equal ones pushed apart by .001 standard "
            "deviations of the target, straight lines between them; beyond, the tails of a Laplace through median and "
            "outermost quantile, no shorter than a fifth of their mean over the training rows."
        ),
    ),
    Method(
        "forest", "random forest", fit_forest,
        (
            f"{N_FOREST} trees; a normal around their mean whose variance is partly constant and partly proportional to "
            "the spread of the trees, on average that of out-of-bag residuals; how much of each: by out-of-bag likelihood."
        ),
    ),
    Method(
        "gaussian-process", "Gaussian process", fit_gaussian_process,
        (
            "Exact, one length per input and white noise, standardised, by marginal likelihood from two starts; "
            f"up to {GP_ROWS} training rows."
        ),
        most_rows=GP_ROWS,
    ),
    Method(
        "mc-dropout", "MC-dropout", fit_mc_dropout,
        "`MCDropout(random_state=split)`; rate and noise by held-out likelihood.",
    ),
    Method(
        "laplace", "Laplace", fit_laplace,
        (
            "One network (50-50 units, early stopping on 10 % of the rows) trained on squared error; Bayesian linear "
            "regression on its last hidden layer, prior and noise by evidence."
        ),
    ),
    Method(
        "realmlp", "RealMLP", partial(fit_pytabkit, name="RealMLP_TD_Regressor"),
        "Points alone, by pytabkit with its tuned defaults and its own early stopping.", package="pytabkit",
    ),
    Method(
        "tabm", "TabM", partial(fit_pytabkit, name="TabM_D_Regressor"),
        "Points alone, by pytabkit with its defaults and its own early stopping.", package="pytabkit",
    ),
)  # fmt: skip
