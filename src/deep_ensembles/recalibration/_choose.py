"""Choose a recalibration by cross-validation on held-out rows."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.distributions import Distribution

from deep_ensembles._checks import require
from deep_ensembles._random import RandomState, seed_sequence
from deep_ensembles._splits import random_parts
from deep_ensembles.mixture import Mixture
from deep_ensembles.recalibration._base import Recalibration, as_mixture, held_out
from deep_ensembles.recalibration.fits import conformal, is_stretchable, isotonic, temperature, variance_scaling
from deep_ensembles.scoring import log_score

_FITS: dict[str, Any] = {"none": None} | {fit.__name__: fit for fit in (variance_scaling, temperature, isotonic, conformal)}
_FOLDS = 5


def choose(
    distribution: Distribution,
    target: Any,
    names: Sequence[str] | None = None,
    random_state: RandomState = 0,
    groups: Any = None,
) -> Recalibration | None:
    """The recalibration of least negative log-likelihood in a cross-validation over held-out rows, fitted on all of them.

    Those within one standard error of the best (of the difference, row by row) are tied; the first of them is taken: name
    the simplest first.

    Arguments:
        distribution: predictions for rows that the model was not trained on.
        target: what happened.
        names: which to compare; by default "none", "variance_scaling" where it does not leave the values that the family may
            take (counts, positive or bounded numbers), and, for one target, "isotonic", or "none" and "temperature" for
            classes and labels. "conformal" is about intervals and seldom wins.
        random_state: which rows form a fold.
        groups: the group of each row; rows of a group stay in one fold.

    Shape:
        distribution with batch `[row]` and event `[*event]`, target `[row, *event]`, at least 10 rows → what was fitted,
        None for "none".

    Example:
        >>> sure = torch.distributions.Normal(torch.zeros(20), torch.ones(20))
        >>> choose(sure, torch.arange(-10.0, 10.0))
        VarianceScaling(factor=5.78...)
    """
    mixture = as_mixture("choose", distribution, "numbers", "counts", "classes", "labels")
    mixture, truth = held_out(mixture, target, 2 * _FOLDS)
    compared = _default(mixture) if names is None else tuple(names)
    fits = not isinstance(names, str) and len(compared) > 0 and set(compared) <= set(_FITS)
    require(fits, "names", f"of {', '.join(_FITS)}", names)
    generator = np.random.default_rng(seed_sequence(random_state))
    parts = random_parts(_FOLDS, len(truth), None if groups is None else np.asarray(groups), generator)
    folds = [torch.from_numpy(part) for part in parts]
    scores = {name: torch.cat([_score(_FITS[name], mixture, truth, fold) for fold in folds]) for name in compared}
    best = scores[min(scores, key=lambda name: float(scores[name].mean()))]
    excess = {name: score - best for name, score in scores.items()}
    fit = _FITS[next(name for name, values in excess.items() if values.mean() <= values.std() / len(values) ** 0.5)]
    return None if fit is None else fit(mixture, truth)


def _default(mixture: Mixture) -> tuple[str, ...]:
    """What can be compared for such a prediction, the simplest first."""
    if mixture.kind in ("classes", "labels"):
        return ("none", "temperature")
    stretched = ("variance_scaling",) if is_stretchable(mixture) else ()
    return ("none", *stretched) if mixture.event_shape else ("none", *stretched, "isotonic")


def _score(fit: Any, mixture: Mixture, target: Tensor, fold: Tensor) -> Tensor:
    """The score of every row of a fold, recalibrated by the others."""
    others = torch.ones(len(target), dtype=torch.bool)
    others[fold] = False
    prediction = mixture[fold] if fit is None else fit(mixture[others], target[others])(mixture[fold])
    return log_score(prediction, target[fold])
