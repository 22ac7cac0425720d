"""The interface of a recalibration, and what is needed to fit one."""

import math
from collections.abc import Callable
from typing import Any, Protocol

from torch import Tensor
from torch.distributions import Distribution

from deep_ensembles._checks import require
from deep_ensembles._tensors import checked_target, has_classes, refuse
from deep_ensembles.distributions import Delta, rebuilt
from deep_ensembles.mixture import Mixture, precise
from deep_ensembles.recalibration._recalibrated import Recalibrated
from deep_ensembles.scoring import log_score

Prediction = Mixture | Recalibrated
# A factor is looked for between a hundredth of the start and a hundred times it.
_REACH = math.log(100.0)


class Recalibration(Protocol):
    """A frozen dataclass of plain numbers, fitted on held-out rows, that corrects new predictions."""

    def __call__(self, distribution: Distribution, /) -> Prediction:
        """The recalibrated prediction, of the same shape."""


FitRecalibration = Callable[[Distribution, Any], Recalibration | None]


def as_mixture(name: str, distribution: Distribution, *, classes: bool) -> Mixture:
    """A prediction of the right kind as a mixture: of one member where it is none yet."""
    if isinstance(distribution, Distribution) and has_classes(distribution) != classes:
        kind = "over classes" if classes else "of numbers"
        raise TypeError(f"`{name}` needs a prediction {kind}, got {_described(distribution)}")
    if isinstance(distribution, Mixture):
        return distribution
    if not isinstance(distribution, Distribution) or not distribution.arg_constraints or not distribution.batch_shape:
        raise TypeError(f"`distribution` must be a Mixture or a batch of one of torch's, got {_described(distribution)}")
    return Mixture(rebuilt(distribution, lambda parameter: parameter[None]))


def one_number(name: str, distribution: Distribution) -> Mixture:
    """A prediction of one number per row, with a density; in double precision where there is one, for levels near 1."""
    mixture = as_mixture(name, distribution, classes=False)
    if mixture.event_shape:
        raise TypeError(f"`{name}` needs a prediction of one number, got {_described(mixture)}; use `variance_scaling`")
    if isinstance(mixture.components, Delta):
        raise TypeError(f"`{name}` needs members that have a density, got {_described(mixture)}; use its `moment_matched()`")
    if mixture.weights.device.type == "mps":
        return mixture
    return Mixture(rebuilt(mixture.components, Tensor.double), mixture.weights)


def held_out(mixture: Mixture, target: Any, least: int = 2) -> tuple[Mixture, Tensor]:
    """Predictions and targets of at least so many held-out rows, on the CPU in double precision."""
    require(len(mixture.batch_shape) == 1, "distribution", "one prediction per row", tuple(mixture.batch_shape))
    mixture = precise(mixture)
    checked = checked_target(mixture, target)
    require(len(checked) >= least, "target", f"at least {least} rows", len(checked))
    scores = log_score(mixture, checked)
    refuse(scores.isnan(), "distribution", "without NaN", scores)
    return mixture, checked if mixture.is_discrete else checked.double()


def best_factor(make: Callable[[float], Recalibration], mixture: Mixture, target: Tensor, start: float = 1.0) -> float:
    """The factor of least negative log-likelihood near the start; never worse than the start or than 1."""
    from scipy.optimize import minimize_scalar  # late, as it takes half a second

    def loss(logarithm: float) -> float:
        return float(log_score(make(math.exp(logarithm))(mixture), target).mean())

    middle = math.log(start)
    require(math.isfinite(loss(middle)), "distribution", "of positive density at every target", "a density of 0")
    bounds = (middle - _REACH, middle + _REACH)
    optimum = minimize_scalar(loss, bounds=bounds, method="bounded", options={"xatol": 1e-8})
    return math.exp(min((float(optimum.x), middle, 0.0), key=loss))


def _described(value: Any) -> str:
    return repr(value) if isinstance(value, Mixture) else type(value).__name__
