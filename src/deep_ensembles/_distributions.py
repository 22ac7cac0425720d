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
    cdf: Callable[[Tensor], Tensor], density: Callable[[Tensor], Tensor], target: Tensor, bracket: tuple[Tensor, ...]
) -> Tensor:
    r"""Solve cdf(x) = target: Newton steps, halving the bracket wherever one would leave it.

    The steps solve $\Phi^{-1}(F(x)) = \Phi^{-1}(q)$, which is a straight line for a normal and nearly one for most mixtures.

    Arguments:
        bracket: a lower bound, where to begin, an upper bound.
    """
    low, start, high = bracket
    eps = torch.finfo(low.dtype).eps
    wanted = torch.special.ndtri(target)
    point = torch.where(low == high, low, start)
    for _ in range(_MAX_ITERATIONS):
        found = cdf(point)
        low, high = torch.where(found < target, point, low), torch.where(found >= target, point, high)
        proposal = _newton(found, wanted, point, density)
        middle = torch.where(low == high, low, low + (high - low) / 2)
        proposal = torch.where((proposal >= low) & (proposal <= high), proposal, middle)
        exact = (found - target).abs() <= 7 * eps * target  # as exact as F itself is
        settled = exact | (high <= low) | ((proposal - point).abs() <= 2 * eps * point.abs())
        point = torch.where(exact, point, proposal)
        if bool(settled.all()):
            break
    return point


def _newton(found: Tensor, wanted: Tensor, point: Tensor, density: Callable[[Tensor], Tensor]) -> Tensor:
    """Where the tangent in Φ⁻¹(F) has the wanted height; NaN or infinite where there is none."""
    height = torch.special.ndtri(found)
    try:
        return point - (height - wanted) * torch.exp(-height.square() / 2) / (math.sqrt(2 * math.pi) * density(point))
    except NotImplementedError:
        return torch.full_like(point, math.nan)
