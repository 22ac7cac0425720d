"""5 members of 50 hidden units on 927 × 8 rows, 40 epochs of batches of 100, beside the plain loop."""

from __future__ import annotations

from benchmarks.made_data import regression
from benchmarks.measuring import Line, side_by_side, speedup
from benchmarks.plain_loop import regression_ensemble
from deep_ensembles import DeepEnsembleRegressor, FastGradientSign

EPSILON = 0.01


def small_ensemble() -> list[Line]:
    """Gaussian negative log-likelihood."""
    X, y = regression(927, 8)
    times = side_by_side(lambda: our_ensemble().fit(X, y), lambda: regression_ensemble(X, y))
    return [speedup("small_ensemble", times, wanted=12)]


def small_ensemble_adversarial() -> list[Line]:
    """The same at x and x′."""
    X, y = regression(927, 8)
    ours = our_ensemble(FastGradientSign(EPSILON))
    times = side_by_side(lambda: ours.fit(X, y), lambda: regression_ensemble(X, y, EPSILON))
    return [speedup("small_ensemble_adversarial", times, wanted=7)]


def our_ensemble(perturbation: FastGradientSign | None = None) -> DeepEnsembleRegressor:
    return DeepEnsembleRegressor(
        n_members=5, max_epochs=40, batch_size=100, learning_rate=0.01, perturbation=perturbation, random_state=0
    )
