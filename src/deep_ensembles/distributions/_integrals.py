"""Integrals over mixtures of any family of numbers: entropies and the continuous ranked probability score."""

from collections.abc import Callable

import torch
from numpy.polynomial.legendre import leggauss
from torch import Tensor
from torch.distributions import Distribution

from deep_ensembles.distributions._quantiles import tail_quantiles
from deep_ensembles.distributions._structure import bounds, flattened, indexed, is_whole
from deep_ensembles.distributions._tails import log_density, smooth_tails, tails

# Integrals are taken piece by piece between the quantiles of all members at these levels, from below and from above.
_LEVELS = (0.5, 0.3, 0.1, 0.03, 0.01, 3e-3, 1e-3, 1e-4, 1e-5, 1e-6, 1e-8, 1e-10, 1e-13, 1e-16, 1e-20, 1e-25, 1e-30)
_NODES = 16
# Where the ends of a piece are so many times as far from the origin as one another, it is cut evenly in the logarithm.
_RATIO = 2.0
_CHUNK_ELEMENTS = 4_000_000
# Counts are added one by one up to so many, and integrated beyond, where they lie close together.
_MOST_COUNTS, _FIRST_COUNTS, _LEAST_SHARE = 8192, 64, 1e-20


def cross_entropies(components: Distribution, weights: Tensor) -> Tensor:
    r"""$-\mathbb{E}_{p_m}[\log p_E]$ of every member m of a mixture E, `[member, *batch]`."""

    def part(members: Distribution) -> Tensor:
        def integrand(points: Tensor, smooth: bool) -> Tensor:
            logs = members.log_prob(points.unsqueeze(-2)) if smooth else log_density(members, points.unsqueeze(-2))
            logs = logs.movedim(-2, 0)  # [member, node, piece, row]
            mixed = torch.logsumexp(logs + weights.log().reshape(-1, *[1] * points.dim()), dim=0)
            return -logs.exp() * mixed.clamp_min(torch.finfo(mixed.dtype).min)

        return _integrated(members, integrand, None)

    shape = components.batch_shape
    flat = flattened(components)
    parts = [part(indexed(flat, (slice(None), rows))) for rows in _split(torch.arange(flat.batch_shape[1]), flat)]
    return torch.cat(parts, dim=1).reshape(shape) if parts else weights.new_zeros(shape)


def ranked_probability_score(
    components: Distribution,
    weights: Tensor,
    target: Tensor,
    change: Callable[[Tensor], Tensor] | None = None,
    kinks: Tensor | None = None,
) -> Tensor:
    r"""$\int (F(z) - 1\{y \le z\})^2\,dz$ of a mixture, `[*batch]`, differentiable in the parameters of its components.

    Arguments:
        change: what levels of the mixture become, where F is not its distribution function but a function of it.
        kinks: where the changed function has corners, `[kink, *batch]`.
    """

    def part(members: Distribution, y: Tensor, corners: Tensor) -> Tensor:
        def integrand(points: Tensor, smooth: bool) -> Tensor:
            below, above = _mixed_tails(members, weights, points, smooth)
            if change is not None:
                below = change(below)
                above = 1 - below
            # Between whole numbers a smooth function stands for steps: its middle is where the target's step is.
            return torch.where(points < (y - 0.5 if smooth else y), below, above).square()

        return _integrated(members, integrand, torch.cat([y[None], corners]))

    flat, truth = flattened(components), target.expand(components.batch_shape[1:])
    places = torch.arange(truth.numel(), device=truth.device)
    corners = truth.new_empty(0, truth.numel()) if kinks is None else kinks.flatten(1)
    parts = [
        part(indexed(flat, (slice(None), rows)), truth.reshape(-1)[rows], corners[:, rows]) for rows in _split(places, flat)
    ]
    return torch.cat(parts).reshape(truth.shape) if parts else weights.new_zeros(truth.shape)


def _mixed_tails(members: Distribution, weights: Tensor, points: Tensor, smooth: bool) -> tuple[Tensor, Tensor]:
    """P(Y ≤ point) and P(Y > point) of the mixture; of counts by adding up, as their points are consecutive."""
    if smooth or not is_whole(members):
        lower, upper = (smooth_tails if smooth else tails)(members, points.unsqueeze(-2))
        return (lower * weights.unsqueeze(-1)).sum(-2), (upper * weights.unsqueeze(-1)).sum(-2)
    mass = (log_density(members, points.unsqueeze(-2)).exp() * weights.unsqueeze(-1)).sum(-2)
    return mass.cumsum(-2), mass.flip(-2).cumsum(-2).flip(-2) - mass


def _split(rows: Tensor, members: Distribution) -> tuple[Tensor, ...]:
    """Row numbers in pieces of bounded work."""
    elements = 2 * _NODES * len(_LEVELS) * members.batch_shape[0] ** 2
    return rows.split(max(1, _CHUNK_ELEMENTS // elements)) if len(rows) else ()


Integrand = Callable[[Tensor, bool], Tensor]


def _integrated(members: Distribution, integrand: Integrand, extra: Tensor | None) -> Tensor:
    """The integral, or for counts the sum, of a function of points `[node, piece, row]` that keeps the rows."""
    if is_whole(members):
        return _summed(members, integrand, extra)
    with torch.no_grad():
        knots = _knots(members, extra)
    return _by_pieces(knots, _origins(members, knots), integrand)


def _knots(members: Distribution, extra: Tensor | None) -> Tensor:
    """Quantiles of every member, ends of its support, kinks of its density and extra ones, in order, `[knot, row]`."""
    parts = [tail_quantiles(members, level, upper) for level in _LEVELS for upper in (False, True)]
    ends = [torch.as_tensor(end).to(parts[0]).expand_as(parts[0]) for end in bounds(members)]
    parts += [end for end in ends if bool(end.isfinite().all())]
    kinks: Tensor | None = getattr(members, "kinks", None)
    parts += [] if kinks is None else [kinks.movedim(-1, 0).flatten(0, 1)]
    parts += [] if extra is None else [extra.detach().to(parts[0])]
    largest = torch.finfo(parts[0].dtype).max / 4
    return torch.cat(parts).clamp(-largest, largest).sort(0).values


def _origins(members: Distribution, knots: Tensor) -> Tensor:
    """For every piece, the point around which its densities may change as a power: an end of the support, or the middle."""
    low, high = (torch.as_tensor(end).to(knots).expand(members.batch_shape) for end in bounds(members))
    low, high = low.amin(0), high.amax(0)
    middle = knots[len(knots) // 2]
    start = torch.where(low.isfinite(), low, middle)
    upper_half = high.isfinite() & (knots[:-1] >= torch.where(low.isfinite(), low / 2 + high / 2, middle))
    return torch.where(upper_half, high, start)


def _by_pieces(knots: Tensor, origins: Tensor, integrand: Integrand, smooth: bool = False) -> Tensor:
    """Gauss–Legendre between neighbouring knots, in the distance from the origin or in its logarithm."""
    nodes, node_weights = (knots.new_tensor(rule).reshape(-1, 1, 1) / 2 for rule in leggauss(_NODES))
    share = nodes + 0.5
    start, end = knots[:-1], knots[1:]
    near, far = start - origins, end - origins
    geometric = (near * far > 0) & (torch.maximum(near / far, far / near) > _RATIO)
    growth = torch.where(geometric, far / near, torch.ones_like(near)).log()
    distance = near * torch.exp(growth * share)
    points = torch.where(geometric, origins + distance, start + (end - start) * share)
    lengths = torch.where(geometric, distance * growth, end - start) * node_weights
    values = integrand(points, smooth)
    return torch.where(lengths > 0, values * lengths, torch.zeros_like(values)).sum((-3, -2))


def _summed(members: Distribution, integrand: Integrand, extra: Tensor | None) -> Tensor:
    """The sum over all whole numbers that matter; in rows where they are many, an integral over all but the first."""
    with torch.no_grad():
        first, last = (tail_quantiles(members, _LEAST_SHARE, upper) for upper in (False, True))
        first, last = first.amin(0), last.amax(0)
        if extra is not None:
            first, last = torch.minimum(first, extra.amin(0).floor()), torch.maximum(last, extra.amax(0).ceil())
        wide = last - first >= _MOST_COUNTS
        n_counts = int(torch.where(wide, _FIRST_COUNTS, last - first + 1).max())
    counts = torch.arange(n_counts, device=first.device).to(first).unsqueeze(-1)
    points = first + counts  # [count, row]
    values = integrand(points.unsqueeze(0), False)
    kept = (points <= last) & (~wide | (counts < _FIRST_COUNTS))
    total = torch.where(kept, values, torch.zeros_like(values)).sum((-3, -2))
    if not bool(wide.any()):
        return total
    with torch.no_grad():
        knots = (_knots(members, extra) - 0.5).clamp_min(first + _FIRST_COUNTS - 0.5)
    return total + torch.where(wide, _by_pieces(knots, first.expand_as(knots[1:]), integrand, smooth=True), 0.0)
