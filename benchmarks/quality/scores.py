"""One function per task scores whatever a method predicts."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch.distributions import Categorical, Distribution

from deep_ensembles import crps, log_score, metrics
from deep_ensembles.distributions import Delta, tails
from deep_ensembles.mixture import mixture_of

LEVELS = np.arange(1, 20) / 20  # at which calibration is looked at
COVERAGE = 0.9
LEAST = 1e-300  # probability of a lattice cell


def regression_scores(prediction: Distribution, y: np.ndarray, lattice: float | None = None) -> dict[str, float | None]:
    """Every score of one split; points have an RMSE alone.

    Arguments:
        lattice: the distance of neighbouring targets, where they lie on a lattice.
    """
    target = torch.from_numpy(np.asarray(y, dtype=np.float64))
    scores: dict[str, float | None] = {"rmse": float((prediction.mean - target).square().mean().sqrt())}
    if isinstance(prediction, Delta):
        return scores
    mixture = mixture_of(prediction)
    low, high = (
        mixture.icdf(torch.tensor(level, dtype=torch.float64)) for level in ((1 - COVERAGE) / 2, (1 + COVERAGE) / 2)
    )
    levels = metrics.probability_integral_transform(prediction, target)
    shares = (levels[:, None] <= LEVELS).mean(axis=0)
    scores |= {
        "nll": float(log_score(prediction, target).mean()),
        "nll_normal": _matched(mixture, target),
        "crps": float(crps(prediction, target).mean()),
        "coverage_90": metrics.interval_coverage(prediction, target, COVERAGE),
        "width_90": float((high - low).mean()),
        "calibration_error": float(np.abs(shares - LEVELS).mean()),
    }
    return (
        scores if lattice is None else scores | {"cell_log_probability": cell_log_probability(prediction, target, lattice)}
    )


def _matched(mixture: Distribution, target: Tensor) -> float | None:
    """NLL of the normal with the same mean and variance; None where there is no finite variance."""
    try:
        return float(log_score(mixture.moment_matched(), target).mean())  # type: ignore[attr-defined]
    except ValueError:
        return None


def cell_log_probability(prediction: Distribution, target: Tensor, width: float) -> float:
    """Mean logarithm of the probability of the cell of a lattice around each target."""
    (below, beyond), (up_to, above) = (tails(prediction, target + side * width / 2) for side in (-1, 1))
    inside = torch.maximum(up_to - below, beyond - above)  # whichever tail is small is exact
    return float(inside.double().clamp_min(LEAST).log().mean())


def classification_scores(
    prediction: Categorical, y: np.ndarray, truth: np.ndarray | None = None
) -> dict[str, float | None]:
    """Every score of one split, and where the truth is known its own."""
    target = torch.from_numpy(np.asarray(y, dtype=np.int64))
    scores = {
        "nll": metrics.negative_log_likelihood(prediction, target),
        "brier": metrics.brier_score(prediction, target),
        "ece": metrics.expected_calibration_error(prediction, target),
        "accuracy": metrics.accuracy(prediction, target),
    }
    if truth is None:
        return scores
    known = Categorical(probs=torch.from_numpy(truth))
    of_truth = {"nll": metrics.negative_log_likelihood, "ece": metrics.expected_calibration_error}
    return scores | {f"{name}_of_truth": metric(known, target) for name, metric in of_truth.items()}
