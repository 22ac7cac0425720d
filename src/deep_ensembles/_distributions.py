"""What torch's distributions leave out: rebuilding them with other parameters, exact tails, quantiles of mixtures."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.distributions import Distribution, Independent, Normal

_MAX_ITERATIONS = 1000
_FEW_ROWS = 256  # not worth leaving out of a computation
_VECTOR = 64  # numbers in the longest loop of vector instructions


def marginal(distribution: Distribution) -> Distribution:
    """The distribution of each target by itself."""
    return distribution.base_dist if isinstance(distribution, Independent) else distribution


def normal_cdf(z: Tensor) -> Tensor:
    """Φ(z), exact in the lower tail too, where `torch.special.ndtr` has no digits left."""
    return torch.special.erfc(z * -math.sqrt(0.5)) * 0.5


def exact_cdf(distribution: Distribution, value: Tensor) -> Tensor:
    """The distribution function; for a normal with all its digits, however small it is."""
    if isinstance(distribution, Normal):
        return normal_cdf((value - distribution.loc) / distribution.scale)
    return distribution.cdf(value)


def exact_icdf(distribution: Distribution, level: Tensor) -> Tensor:
    """The quantile function, as exact in the tails."""
    if isinstance(distribution, Normal):
        return distribution.loc + distribution.scale * torch.special.ndtri(level)
    return distribution.icdf(level)


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


def padded(rows: Tensor) -> Tensor:
    """The first row repeated until vector instructions leave no rest, which would round equal rows differently."""
    return torch.cat([rows, rows[:1].expand(-len(rows) % _VECTOR)])


def mixture_quantiles(components: Distribution, weights: Tensor, levels: Tensor) -> Tensor:
    r"""The solution of $\sum_m w_m F_m(x) = q$ in every row, differentiable in the parameters of the components.

    Shape:
        components `[member, row]`, weights `[member]`, all above 0, levels `[row]`, `padded` → `[row]`.
    """
    with torch.no_grad():
        solution = _solved(components, weights[:, None], levels)
    if not (torch.is_grad_enabled() and any(value.requires_grad for value in parameters_of(components).values())):
        return solution
    below, density, _ = _tail_and_derivatives(components, weights[:, None], solution, torch.ones_like(levels))
    return solution - (below - below.detach()) * math.sqrt(2 * math.pi) / density.detach()


def _solved(components: Distribution, weights: Tensor, levels: Tensor) -> Tensor:
    """Narrow the bracket of the members' quantiles row by row; rows that are done leave the computation."""
    quantiles = exact_icdf(components, levels)
    low, high = quantiles.amin(0), quantiles.amax(0)
    low, high = torch.where(levels >= 1, high, low), torch.where(levels <= 0, low, high)
    solution = _weighted_sum(weights, quantiles).clamp(low, high)
    # Levels above one half are solved as the upper tail, 1 - F(x) = 1 - q, which keeps their digits.
    side = torch.where(levels > 0.5, -1.0, 1.0).to(low)
    wanted = torch.special.ndtri(torch.minimum(levels, 1 - levels))
    largest, eps = torch.finfo(low.dtype).max, torch.finfo(low.dtype).eps
    width, noise = (high - low).clamp_max(largest), eps * (2 - 2 * wanted)
    done = ~(low < high)
    low, high = torch.where(done, low, low.clamp_min(-largest)), torch.where(done, high, high.clamp_max(largest))
    state: tuple[Tensor, ...] = (solution.clone(), low, high, width, eps**0.5 * width, wanted, noise, side)
    rows = torch.arange(len(levels), device=levels.device)
    for _ in range(_MAX_ITERATIONS):
        n_done = int(done.sum())
        if n_done == len(rows):
            break
        if n_done > max(_FEW_ROWS, len(rows) // 8):
            solution[rows] = state[0]
            left = padded((~done).nonzero()[:, 0])
            rows, components = rows[left], indexed(components, (slice(None), left))
            state = tuple(part[left] for part in state)
        state, done = _narrowed(components, weights, state)
    solution[rows] = state[0]
    return solution


def _narrowed(components: Distribution, weights: Tensor, state: tuple[Tensor, ...]) -> tuple[tuple[Tensor, ...], Tensor]:
    r"""One step towards the solution, and whether it is reached as nearly as rounding allows.

    Halley's steps solve $\Phi^{-1}(F(x)) = \Phi^{-1}(q)$, a straight line for a normal and nearly one for most mixtures.
    Where a step leaves the bracket or is not half as long as the last, the bracket is halved: between members of very
    different spread, steps alone may go round in circles.
    """
    point, low, high, last, flat, wanted, noise, side = state
    eps = torch.finfo(point.dtype).eps
    tail, density, bend = _tail_and_derivatives(components, weights, point, side)
    height = torch.special.ndtri(tail)
    excess = (height - wanted) * side
    above = excess >= 0
    low, high = torch.where(above, low, point), torch.where(above, point, high)
    inverse_slope = torch.exp(height.square() * -0.5) / density
    step = excess * inverse_slope
    size = step.abs()
    # Where F is flat, its rounding moves the solution far: there the bracket alone decides.
    exact = (excess.abs() <= eps**0.5) & (size <= torch.minimum(point.abs() * eps + noise * inverse_slope, flat))
    exact = exact | (excess == 0)
    proposal = point - step / (1 - step * (bend + side * height / inverse_slope) * 0.5).clamp(0.5, 2)
    inside = (proposal > low) & (proposal < high) & (size * 2 <= last)
    done, stuck = exact, ~(inside | exact)
    if bool(stuck.any()):
        proposal = torch.where(stuck, _middle(low, high), proposal)
        closed = stuck & ~((proposal > low) & (proposal < high))
        proposal, done = torch.where(closed, high, proposal), exact | closed
    proposal = torch.where(exact, point, proposal)
    return (proposal, low, high, (proposal - point).abs(), flat, wanted, noise, side), done


def _tail_and_derivatives(
    components: Distribution, weights: Tensor, point: Tensor, side: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """P(Y ≤ point), or P(Y > point) where the side is -1; the density times √(2π); and f'/f, which only normals tell."""
    if isinstance(components, Normal):
        z = (point - components.loc) / components.scale
        tails, densities = normal_cdf(z * side), torch.exp(z.square() * -0.5) / components.scale
        density = _weighted_sum(weights, densities)
        bend = _weighted_sum(weights, densities * z / components.scale) / -density
    else:
        below = components.cdf(point)
        tails = torch.where(side > 0, below, 1 - below)
        density = _weighted_sum(weights, components.log_prob(point).exp()) * math.sqrt(2 * math.pi)
        bend = torch.zeros_like(point)
    return _weighted_sum(weights, tails), density, bend


def _weighted_sum(weights: Tensor, values: Tensor) -> Tensor:
    """Over members."""
    return (values * weights).sum(0)


def _middle(low: Tensor, high: Tensor) -> Tensor:
    """Halfway; between numbers of one sign but different magnitude, halfway between their logarithms."""
    arithmetic, tiny = low / 2 + high / 2, torch.finfo(low.dtype).tiny
    geometric = low.abs().clamp_min(tiny).sqrt() * high.abs().clamp_min(tiny).sqrt() * arithmetic.sign()
    return torch.where((low.sign() * high.sign() >= 0) & (4 * geometric.abs() < arithmetic.abs()), geometric, arithmetic)
