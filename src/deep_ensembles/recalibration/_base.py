"""The interface of a recalibration, and what is needed to fit one."""

import math
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor
from torch.distributions import Distribution

from deep_ensembles._checks import require
from deep_ensembles._tensors import checked_target, refuse
from deep_ensembles.distributions import family, rebuilt
from deep_ensembles.mixture import Mixture, mixture_of, precise
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


def as_mixture(name: str, distribution: Distribution, *kinds: str) -> Mixture:
    """A prediction of one of these kinds as a mixture: of one member where it is none yet."""
    known = isinstance(distribution, Distribution) and not isinstance(distribution, Recalibrated)
    if not known or not (distribution.batch_shape or isinstance(distribution, Mixture)):
        described = repr(distribution) if isinstance(distribution, Recalibrated) else type(distribution).__name__
        raise TypeError(f"`distribution` must be a Mixture or a batch of one of torch's, got {described}")
    mixture: Mixture = mixture_of(distribution)
    if mixture.kind not in kinds:
        cure = "temperature" if mixture.kind in ("classes", "labels") else "isotonic"
        wanted = "of numbers" if "numbers" in kinds else "over classes"
        raise TypeError(f"`{name}` needs a prediction {wanted}, got {mixture!r}; use `{cure}`")
    if family(mixture.components) == "Delta":
        raise TypeError(f"`{name}` needs members that have a density, got {mixture!r}; use its `moment_matched()`")
    return mixture


def one_number(name: str, distribution: Distribution) -> Mixture:
    """A prediction of one number per row, with a density; in double precision where there is one, for levels near 1."""
    mixture = as_mixture(name, distribution, "numbers", "counts")
    if mixture.event_shape:
        raise TypeError(f"`{name}` needs a prediction of one number, got {mixture!r}; use `variance_scaling`, or take one "
                        "target with `target(i)`")  # fmt: skip
    if mixture.weights.device.type == "mps":
        return mixture
    return Mixture(rebuilt(mixture.components, Tensor.double), mixture.weights)


def held_out(mixture: Mixture, target: Any, least: int = 2) -> tuple[Mixture, Tensor]:
    """Predictions and targets of at least so many held-out rows, on the CPU in double precision."""
    require(len(mixture.batch_shape) == 1, "distribution", "one prediction per row", tuple(mixture.batch_shape))
    mixture = precise(mixture)
    checked = checked_target(mixture, target)
    require(len(checked) >= least, "target", f"at least {least} rows", len(checked))
    truth = checked if mixture.is_discrete else checked.double()
    inside = mixture.support.check(truth)
    inside = inside.any(0) if inside.dim() > 1 else inside
    refuse(~inside, "target", f"a value that {family(mixture.components)} can take", checked)
    scores = log_score(mixture, truth)
    refuse(scores.isnan(), "distribution", "without NaN", scores)
    return mixture, truth


def levels_of(mixture: Mixture, target: Tensor) -> Tensor:
    r"""The level of each target in its distribution, F(y), in increasing order.

    A count y stands for all levels between F(y - 1) and F(y): one of them is drawn, always the same (the randomised
    probability integral transform), whatever the order of the rows.

    References:
        Czado, Gneiting, Held (2009).
    """
    upper = mixture.cdf(target)
    if mixture.kind != "counts":
        return upper.sort().values
    lower = mixture.cdf(target - 1)
    order = np.lexsort((lower.numpy(), upper.numpy()))
    draws = torch.from_numpy(np.random.default_rng(0).uniform(size=len(order)))
    return torch.lerp(lower[order], upper[order], draws).sort().values


def best_factor(make: Callable[[float], Recalibration], mixture: Mixture, target: Tensor, start: float = 1.0) -> float:
    """The factor of least negative log-likelihood near the start; never worse than the start or than 1."""
    from scipy.optimize import minimize_scalar  # late, as it takes half a second

    def loss(logarithm: float) -> float:
        return float(log_score(make(math.exp(logarithm))(mixture), target).mean())

    middle = math.log(start)
    require(math.isfinite(loss(middle)), "distribution", "of positive density at every target", "a density of 0")
    optimum = minimize_scalar(loss, bounds=(middle - _REACH, middle + _REACH), method="bounded", options={"xatol": 1e-8})
    return math.exp(min((float(optimum.x), middle, 0.0), key=loss))
