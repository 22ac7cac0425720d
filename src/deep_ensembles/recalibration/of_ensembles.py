"""One number for an ensemble, from out-of-fold predictions that few of its members make, put right for all of them."""

import math
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from deep_ensembles._splits import evenly_spaced
from deep_ensembles.distributions import indexed, marginal
from deep_ensembles.mixture import Mixture
from deep_ensembles.recalibration._base import best_factor
from deep_ensembles.recalibration.fits import Temperature, VarianceScaling, variance_scaling

_ROWS_TO_COMPARE = 2000  # by which it is seen how members differ
_LEAST_SEVERAL = 1.2  # members that predict a row out of fold, to see how they differ
_TEMPERATURE_SPREAD = 0.4  # of the logarithm of temperatures, before any row is seen
_MOST_SHARPENED = math.log(0.8)  # that the temperature of an ensemble is below that of single members, as a logarithm


def effective_members(weights: Tensor) -> float:
    """How many members of equal weight would average as well as these.

    Example:
        >>> effective_members(torch.tensor([0.5, 0.5])), effective_members(torch.tensor([1.0, 0.0]))
        (2.0, 1.0)
    """
    return float(weights.sum().square() / weights.square().sum())


def tempered(
    mixture: Mixture, targets: Tensor, weights: Tensor, predict: Callable[[np.ndarray], Mixture] | None = None
) -> Temperature:
    """One temperature for the probabilities of classes.

    The logarithm of the best one falls about linearly with the reciprocal of the number of members, from that of single
    members. Where single members predict out of fold, that cannot be seen: then all members together are made as sure as
    single ones should be. They could be surer, as they are more often right.

    Arguments:
        mixture: out-of-fold predictions.
        targets: what came.
        weights: of all members of the ensemble.
        predict: from numbers of these rows to predictions of all members, to see how they differ; not needed where one
            member is all there is.
    """
    log = _log_temperature(mixture, targets)
    k, m = effective_members(mixture.weights), effective_members(weights)
    if k >= _LEAST_SEVERAL:
        parts = [indexed(mixture.components, slice(i, i + 1)) for i in range(mixture.n_members)]
        singles = torch.tensor([_log_temperature(Mixture(part), targets) for part in parts]).to(mixture.weights)
        log += (float(singles @ mixture.weights) - log) * (1 / m - 1 / k) / (1 - 1 / k)
    elif m > 1 and predict is not None:
        log += _sharpening(predict(_some(mixture)), log)
    return Temperature(math.exp(log))


def _sharpening(mixture: Mixture, log: float) -> float:
    """What to add to the logarithm of a temperature, so that a mixture has the mean entropy that members have with it."""
    from scipy.optimize import brentq  # late, as it takes half a second

    singles = Temperature(math.exp(log))(mixture)
    wanted = float((singles.entropy() - singles.mutual_information).mean())

    def excess(shift: float) -> float:
        return float(Temperature(math.exp(log + shift))(mixture).entropy().mean()) - wanted

    if excess(0.0) <= 0:
        return 0.0
    if excess(_MOST_SHARPENED) >= 0:
        return _MOST_SHARPENED
    return float(brentq(excess, _MOST_SHARPENED, 0.0, xtol=1e-4))


def stretched(
    mixture: Mixture, targets: Tensor, weights: Tensor, predict: Callable[[np.ndarray], Mixture]
) -> VarianceScaling:
    r"""One factor on all deviations.

    With r the variance between members in units of that within, k members have an error of $n + r/k$ and say
    $1 + r (1 - 1/k)$. The factor of out-of-fold predictions tells n, and so the factor for all members.

    Arguments:
        mixture, targets, weights, predict: as for `tempered`.
    """
    factor = variance_scaling(mixture, targets).factor
    k, m = effective_members(mixture.weights), effective_members(weights)
    if not bool(marginal(mixture.components).variance.isfinite().all()):  # as of very heavy tails
        return VarianceScaling(factor)
    several, between, n = mixture, mixture.epistemic, k
    if k < _LEAST_SEVERAL:
        # Where all members but one have seen a row they differ too little, and that one differs too much from them: the
        # variance between members that have not seen it is taken to be halfway.
        several, everyone, n = mixture[_some(mixture)], predict(_some(mixture)), m
        between = (everyone.epistemic + (several.mean - everyone.mean).square()) / 2
    ratio = float((between / several.aleatoric).clamp_max(10.0).mean()) * n / max(n - 1, 1e-9)
    noise = max(factor**2 * (1 + ratio * (1 - 1 / k)) - ratio / k, 0.1 * factor**2)
    return VarianceScaling(((noise + ratio / m) / (1 + ratio * (1 - 1 / m))) ** 0.5)


def _some(mixture: Mixture) -> np.ndarray:
    return evenly_spaced(np.arange(mixture.batch_shape[0]), _ROWS_TO_COMPARE)


def _log_temperature(mixture: Mixture, targets: Tensor) -> float:
    """The logarithm of the most probable temperature; beforehand it is 1, give or take half."""
    return math.log(best_factor(Temperature, mixture, targets, spread=_TEMPERATURE_SPREAD))
