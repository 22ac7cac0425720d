"""Quantiles of mixtures of any family, exact to rounding."""

import math
from collections.abc import Sequence
from contextlib import suppress
from functools import partial

import torch
from torch import Tensor
from torch.distributions import Distribution, Normal

from deep_ensembles.distributions._structure import ends, family, flattened, indexed, is_whole, parameters, rebuilt
from deep_ensembles.distributions._tails import closed_quantile, log_density, normal_cdf, tails

_MAX_ITERATIONS = 1000
_FEW_ROWS = 256  # not worth leaving out of a computation
_CHUNK_ROWS = 8192  # solved at once: what fits into a cache
_VECTOR = 64  # numbers in the longest loop of vector instructions


def padded(rows: Tensor) -> Tensor:
    """The first row repeated until vector instructions leave no rest, which would round equal rows differently."""
    return torch.cat([rows, rows[:1].expand(-len(rows) % _VECTOR)])


def quantiles(components: Distribution, weights: Tensor, levels: Tensor) -> Tensor:
    r"""The solution of $\sum_m w_m F_m(x) = q$, for counts the least whole number that reaches the level.

    Differentiable in the parameters of the components.

    Shape:
        components `[member, *batch]`, weights `[member]`, levels broadcastable to `[*batch]` → the same.
    """
    shape = components.batch_shape[1:]
    levels = levels.expand(torch.broadcast_shapes(levels.shape, shape))
    places = torch.arange(math.prod(shape), device=levels.device).reshape(shape).expand(levels.shape)
    members = (weights > 0).nonzero()[:, 0] if not bool(weights.all()) else slice(None)
    flat, weights = flattened(components, members), weights[members]
    solve = _step_quantiles if hasattr(flat, "is_point") else _any_quantiles
    chunks = zip(*(padded(values.reshape(-1)).split(_CHUNK_ROWS) for values in (places, levels)), strict=True)
    parts = [solve(indexed(flat, (slice(None), rows)), weights[:, None], part) for rows, part in chunks]
    return torch.cat(parts)[: levels.numel()].reshape(levels.shape)


def tail_quantiles(components: Distribution, levels: Sequence[float]) -> Tensor:
    """The values of every component with these probabilities below them, then above them, `[2, level, *batch]`."""
    n_dims, n_values = len(components.batch_shape), 2 * len(levels)

    def repeat(parameter: Tensor) -> Tensor:
        rows = parameter.flatten(0, n_dims - 1)
        return rows.expand(n_values, *rows.shape).flatten(0, 1).unsqueeze(0)

    like = parameters(components)[0]
    shares = like.new_tensor(list(levels) * 2, dtype=torch.promote_types(like.dtype, torch.float32))
    side = shares.new_tensor([1.0] * len(levels) + [-1.0] * len(levels))
    shares, side = (tensor.repeat_interleave(math.prod(components.batch_shape)) for tensor in (shares, side))
    flat = rebuilt(components, repeat)
    return _solved(flat, shares.new_ones(1, 1), shares, side).reshape(2, len(levels), *components.batch_shape)


def _any_quantiles(components: Distribution, weights: Tensor, levels: Tensor) -> Tensor:
    with torch.no_grad():
        # Levels above one half are solved as the upper tail, 1 - F(x) = 1 - q, which keeps their digits.
        side = torch.where(levels > 0.5, -1.0, 1.0).to(levels)
        solution = _solved(components, weights, torch.minimum(levels, 1 - levels), side)
    moves = torch.is_grad_enabled() and any(parameter.requires_grad for parameter in parameters(components))
    if is_whole(components) or not moves:
        return solution
    below, density, _ = _tail_and_derivatives(components, weights, solution, torch.ones_like(levels))
    return solution - (below - below.detach()) * math.sqrt(2 * math.pi) / density.detach()


def _step_quantiles(points: Distribution, weights: Tensor, levels: Tensor) -> Tensor:
    """The least of the members' points at which their weights reach the level."""
    ordered, order = points.mean.sort(0)
    shares = weights[:, 0][order].cumsum(0) * (1 + 4 * torch.finfo(weights.dtype).eps)
    first = (shares < levels).sum(0, keepdim=True).clamp_max(len(weights) - 1)
    return ordered.gather(0, first)[0]


def _least_counts(components: Distribution, weights: Tensor, share: Tensor, side: Tensor) -> Tensor:
    """The least whole number with this share at or below it; where the side is -1, with no more than the share above it."""
    low, high = ends(components, share)
    least, most = low.amin(0), high.amax(0)
    if not bool(least.isfinite().all()):
        raise TypeError(f"quantiles of counts need a least value, and {family(components)} has none")
    reached = partial(_reached, components, weights, share, side, slack=4 * torch.finfo(share.dtype).eps)
    low, high = least - 1, torch.maximum(components.mean.amax(0).ceil(), least + 1)
    endless = (share <= 0) & (side < 0)
    while not bool((done := reached(high) | endless | (high >= most)).all()):
        low, high = torch.where(done, low, high), torch.where(done, high, least + 2 * (high - least))
    high = torch.minimum(high, most)
    middle = ((low + high) / 2).floor()
    # Whole numbers that the number format cannot tell apart end the search too.
    while bool((open_ := (middle > low) & (middle < high) & ~endless).any()):
        above = reached(middle)
        low, high = torch.where(above | ~open_, low, middle), torch.where(above & open_, middle, high)
        middle = ((low + high) / 2).floor()
    return torch.where(endless, most, high)


def _reached(
    components: Distribution, weights: Tensor, share: Tensor, side: Tensor, point: Tensor, slack: float = 0.0
) -> Tensor:
    """Whether the solution does not lie above the point."""
    lower, upper = (_weighted_sum(weights, tail) for tail in tails(components, point))
    return torch.where(side > 0, lower >= share * (1 - slack), upper <= share * (1 + slack))


def _bracket(components: Distribution, weights: Tensor, share: Tensor, side: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Two values between which the solution lies, and a first guess of it."""
    known = closed_quantile(components, share, side)
    if known is not None:
        low, high = known.amin(0), known.amax(0)
        guess = _weighted_sum(weights, known)
    else:
        low, high = _widened(components, weights, share, side)
        guess = _middle(low, high)
    low, high = torch.where((share <= 0) & (side < 0), high, low), torch.where((share <= 0) & (side > 0), low, high)
    return low, high, guess.clamp(low, high)


def _widened(components: Distribution, weights: Tensor, share: Tensor, side: Tensor) -> tuple[Tensor, Tensor]:
    """A bracket found by going out from the members' means, further and further."""
    low, high = ends(components, share)
    least, most = low.amin(0), high.amax(0)
    least_of_all = least.expand(components.batch_shape)
    middle, spread = torch.where(least_of_all.isfinite(), least_of_all + 1, 0.0), torch.ones_like(least_of_all)
    with suppress(NotImplementedError):
        mean, deviation = components.mean, components.stddev
        middle, spread = torch.where(mean.isfinite(), mean, middle), torch.where(deviation.isfinite(), deviation, spread)
    spread = spread.clamp_min(torch.finfo(share.dtype).tiny)
    low, high, step = (middle - spread).amin(0), (middle + spread).amax(0), spread.amax(0)
    low, high = torch.maximum(low, least), torch.minimum(high, most)
    largest = torch.finfo(share.dtype).max

    reached = partial(_reached, components, weights, share, side)
    while not bool((done := ~reached(low) | (low <= least) | (low <= -largest)).all()):
        low, step = torch.where(done, low, torch.maximum(low - step, least).clamp_min(-largest)), step * 2
    step = spread.amax(0)
    while not bool((done := reached(high) | (high >= most) | (high >= largest)).all()):
        high, step = torch.where(done, high, torch.minimum(high + step, most).clamp_max(largest)), step * 2
    return torch.where(share <= 0, least, low), torch.where(share <= 0, most, high)


def _solved(components: Distribution, weights: Tensor, share: Tensor, side: Tensor) -> Tensor:
    """Narrow the bracket of the members' quantiles row by row; rows that are done leave the computation."""
    if is_whole(components):
        return _least_counts(components, weights, share, side)
    low, high, solution = _bracket(components, weights, share, side)
    wanted = torch.special.ndtri(share)
    largest, eps = torch.finfo(low.dtype).max, torch.finfo(low.dtype).eps
    width, noise = (high - low).clamp_max(largest), eps * (2 - 2 * wanted)
    done = ~(low < high)
    low, high = torch.where(done, low, low.clamp_min(-largest)), torch.where(done, high, high.clamp_max(largest))
    state: tuple[Tensor, ...] = (solution.clone(), low, high, width, eps**0.5 * width, wanted, noise, side)
    rows = torch.arange(len(share), device=share.device)
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
    near = size <= torch.minimum(point.abs() * eps + noise * inverse_slope, flat)
    exact = (excess == 0) | (excess.abs() <= eps**0.5) & near
    proposal = point - step / (1 - step * (bend + side * height / inverse_slope) * 0.5).clamp(0.5, 2)
    inside = (proposal > low) & (proposal < high) & (size * 2 <= last)
    done, stuck = exact, ~(inside | exact)
    if bool(stuck.any()):
        proposal = torch.where(stuck, _middle(low, high), proposal)
        closed = stuck & ~((proposal > low) & (proposal < high))
        proposal, done = torch.where(closed, high, proposal), exact | closed
    proposal = torch.where(exact, point, proposal)
    return (proposal, low, high, (proposal - point).abs(), flat, wanted, noise, side), done


def _tail_and_derivatives(components: Distribution, weights: Tensor, point: Tensor, side: Tensor) -> tuple[Tensor, ...]:
    """P(Y ≤ point), or P(Y > point) where the side is -1; the density times √(2π); and f'/f, which only normals tell."""
    if isinstance(components, Normal):
        z = (point - components.loc) / components.scale
        beyond, densities = normal_cdf(z * side), torch.exp(z.square() * -0.5) / components.scale
        density = _weighted_sum(weights, densities)
        bend = _weighted_sum(weights, densities * z / components.scale) / -density
    else:
        lower, upper = tails(components, point)
        beyond = torch.where(side > 0, lower, upper)
        density = _weighted_sum(weights, log_density(components, point).exp()) * math.sqrt(2 * math.pi)
        bend = torch.zeros_like(point)
    return _weighted_sum(weights, beyond), density, bend


def _weighted_sum(weights: Tensor, values: Tensor) -> Tensor:
    """Over members."""
    return (values * weights).sum(0)


def _middle(low: Tensor, high: Tensor) -> Tensor:
    """Halfway; between numbers of one sign but different magnitude, halfway between their logarithms."""
    arithmetic, tiny = low / 2 + high / 2, torch.finfo(low.dtype).tiny
    geometric = low.abs().clamp_min(tiny).sqrt() * high.abs().clamp_min(tiny).sqrt() * arithmetic.sign()
    return torch.where((low.sign() * high.sign() >= 0) & (4 * geometric.abs() < arithmetic.abs()), geometric, arithmetic)
