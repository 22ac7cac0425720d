"""The methods of classification: ours, and what a user would pick instead."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch.distributions import Categorical

from benchmarks.quality.methods import Fitted, Method, held_out
from deep_ensembles import DeepEnsembleClassifier

LEAST = 1e-15  # what probabilities are clipped at
N_FOREST, LEAVES = 500, (1, 3, 10)
MOST_TREES, PATIENCE = 1000, 50
STRENGTHS = np.logspace(-4, 3, 8)


def fit_ours(X: np.ndarray, y: np.ndarray, seed: int, **settings: Any) -> Fitted:
    return _fitted(DeepEnsembleClassifier(random_state=seed, n_jobs=None, **settings).fit(X, y))


def fit_class_shares(X: np.ndarray, y: np.ndarray, seed: int) -> Fitted:
    return _fitted(DummyClassifier(strategy="prior").fit(X, y))


def fit_logistic(X: np.ndarray, y: np.ndarray, seed: int) -> Fitted:
    """The strength of the penalty with the best log-likelihood on five inner folds."""
    folds = StratifiedKFold(min(5, int(np.bincount(y)[np.unique(y)].min())), shuffle=True, random_state=seed)
    model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=2000))
    grid = {"logisticregression__C": STRENGTHS}
    search = GridSearchCV(model, grid, scoring="neg_log_loss", cv=folds).fit(X, y)
    return _fitted(search.best_estimator_, C=float(search.best_params_["logisticregression__C"]))


def fit_forest(X: np.ndarray, y: np.ndarray, seed: int) -> Fitted:
    """Leaves as large as out-of-bag likelihood likes best; never quite certain, as a finite number of trees cannot be."""
    forests = [
        RandomForestClassifier(N_FOREST, min_samples_leaf=leaf, oob_score=True, random_state=seed).fit(X, y)
        for leaf in LEAVES
    ]
    n_classes = len(forests[0].classes_)

    def doubted(probabilities: np.ndarray) -> np.ndarray:
        return (N_FOREST * probabilities + 1 / n_classes) / (N_FOREST + 1)

    place = np.arange(len(y)), np.searchsorted(forests[0].classes_, y)
    losses = [-np.log(doubted(np.nan_to_num(forest.oob_decision_function_))[place]).mean() for forest in forests]
    best = int(np.argmin(losses))
    return _fitted(forests[best], doubted, leaf=LEAVES[best])


def fit_boosting(X: np.ndarray, y: np.ndarray, seed: int) -> Fitted:
    model = HistGradientBoostingClassifier(early_stopping=True, max_iter=MOST_TREES, random_state=seed).fit(X, y)
    return _fitted(model, trees=model.n_iter_)


def fit_catboost(X: np.ndarray, y: np.ndarray, seed: int) -> Fitted:
    from catboost import CatBoostClassifier

    loss = "Logloss" if len(np.unique(y)) == 2 else "MultiClass"
    settings = {
        "random_seed": seed,
        "thread_count": 1,
        "verbose": False,
        "allow_writing_files": False,
        "loss_function": loss,
    }
    X_fit, X_held, y_fit, y_held = held_out(X, y, seed, stratify=True)
    trial = CatBoostClassifier(iterations=MOST_TREES, **settings)
    trial.fit(X_fit, y_fit, eval_set=(X_held, y_held), early_stopping_rounds=PATIENCE)
    trees, rate = trial.tree_count_, trial.get_all_params()["learning_rate"]
    return _fitted(CatBoostClassifier(iterations=trees, learning_rate=rate, **settings).fit(X, y), trees=trees)


def _fitted(
    model: Any, change: Callable[[np.ndarray], np.ndarray] = lambda probabilities: probabilities, **details: Any
) -> Fitted:
    """What a classifier of scikit-learn's kind predicts for classes 0, 1, …; one that it never saw has probability 0."""

    def predict(new: np.ndarray) -> Categorical:
        return clipped(np.asarray(change(model.predict_proba(new)), dtype=np.float64), model.classes_)

    return Fitted(predict, details)


def clipped(probabilities: np.ndarray, classes: np.ndarray) -> Categorical:
    """Probabilities of these class numbers, none below `LEAST`, as a distribution over the classes from 0 on."""
    whole = np.zeros((len(probabilities), int(np.max(classes)) + 1))
    whole[:, np.asarray(classes, dtype=np.int64)] = probabilities
    whole = np.maximum(whole, LEAST)
    return Categorical(probs=torch.from_numpy(whole / whole.sum(1, keepdims=True)))


CLASSIFIERS = (
    Method("ours", "ours", fit_ours, "`DeepEnsembleClassifier(random_state=split)`.", ours=True),
    Method(
        "ours-fast", "ours, fast", partial(fit_ours, effort="fast"),
        '`DeepEnsembleClassifier(effort="fast", random_state=split)`.',
        takes=(DeepEnsembleClassifier, "effort"), ours=True,
    ),
    Method(
        "logistic", "logistic regression", fit_logistic,
        "Standardised; C from 1e-4 to 1e3 by the likelihood of five inner folds.",
    ),
    Method(
        "forest", "random forest", fit_forest,
        (
            f"{N_FOREST} trees, leaves of at least 1, 3 or 10 rows by out-of-bag likelihood; "
            "one more tree that says all classes are equal."
        ),
    ),
    Method(
        "boosting", "gradient boosting", fit_boosting,
        "scikit-learn's `HistGradientBoostingClassifier`, early stopping on 10 % of the rows.",
    ),
    Method(
        "catboost", "CatBoost", fit_catboost,
        (
            f"Defaults; up to {MOST_TREES} trees by early stopping ({PATIENCE} rounds) on 20 % of the training rows, "
            "then all rows are fitted with as many."
        ),
        package="catboost",
    ),
    Method(
        "class-shares", "class shares", fit_class_shares,
        "The share of each class in the training rows, whatever the inputs.",
    ),
)  # fmt: skip
