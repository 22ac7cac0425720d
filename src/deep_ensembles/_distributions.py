"""What torch's distributions leave out: rebuilding them with other parameters, and exact tails."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.distributions import Distribution, Independent, Normal

_MAX_ITERATIONS = 200


def marginal(distribution: Distribution) -> Distribution:
    """The distribution of each target by itself."""
    return distribution.base_dist if isinstance(distribution, Independent) else distribution


def exact_cdf(distribution: Distribution, value: Tensor) -> Tensor:
    """The distribution function; for a normal without the cancellation that torch's own has far below the mean."""
    if isinstance(distribution, Normal):
        return torch.special.ndtr((value - distribution.loc) / distribution.scale)
    return distribution.cdf(value)


def exact_icdf(distribution: Distribution, value: Tensor) -> Tensor:
    """The quantile function, as exact in the tails."""
    if isinstance(distribution, Normal):
        return distribution.loc + distribution.scale * torch.special.ndtri(value)
    return distribution.icdf(value)


def parameters_of(distribution: Distribution) -> dict[str, Tensor]:
    """The constructor arguments of a torch distribution, one form where torch accepts two (logits, not probs)."""
    inner = marginal(distribution)
    names = [name for name in inner.arg_constraints if name != "probs" or "logits" not in inner.arg_constraints]
    return {name: getattr(inner, name) for name in names}


def rebuilt(distribution: Distribution, change: Callable[[Tensor], Tensor]) -> Distribution:
    """The same kind of distribution with every parameter changed alike."""
    inner = marginal(distribution)
    kind: Callable[..., Distribution] = type(inner)
    changed = kind(**{k: change(v) for k, v in parameters_of(distribution).items()}, validate_args=False)
    if isinstance(distribution, Independent):
        return Independent(changed, distribution.reinterpreted_batch_ndims, validate_args=False)
    return changed


def indexed(distribution: Distribution, index: Any) -> Distribution:
    """Index the batch dimensions of a distribution."""
    return rebuilt(distribution, lambda parameter: parameter[index])


def invert(
    cdf: Callable[[Tensor], Tensor], density: Callable[[Tensor], Tensor], target: Tensor, low: Tensor, high: Tensor
) -> Tensor:
    """Solve cdf(x) = target with low ≤ x ≤ high: Newton steps, halving the bracket wherever one would leave it."""
    low, high = low.clone(), high.clone()
    tolerance = torch.finfo(low.dtype).eps / 2
    point = torch.where(low == high, low, low + (high - low) / 2)
    for _ in range(_MAX_ITERATIONS):
        excess = cdf(point) - target
        low = torch.where(excess < 0, point, low)
        high = torch.where(excess >= 0, point, high)
        try:
            newton = point - excess / density(point)
        except NotImplementedError:
            newton = torch.full_like(point, math.nan)
        middle = torch.where(low == high, low, low + (high - low) / 2)
        proposal = torch.where((newton > low) & (newton < high), newton, middle)
        # The distribution function itself is rounded: nearer than that there is nothing to find.
        settled = (
            (excess.abs() <= 4 * tolerance * target) | ((proposal - point).abs() <= tolerance * point.abs()) | (high <= low)
        )
        proposal = torch.where(settled, point, proposal)
        if bool((settled | (proposal == point)).all()):
            break
        point = proposal
    return point
