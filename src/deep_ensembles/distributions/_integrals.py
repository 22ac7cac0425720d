"""Integrals over mixtures of any family of numbers: entropies and the continuous ranked probability score."""

from collections.abc import Callable

import torch
from numpy.polynomial.legendre import leggauss
from torch import Tensor
from torch.distributions import Distribution, MixtureSameFamily

from deep_ensembles.distributions._quantiles import tail_quantiles
from deep_ensembles.distributions._structure import (
    bounds,
    family,
    flattened,
    indexed,
    is_whole,
    parameters,
    rebuilt,
)  # fmt: skip
from deep_ensembles.distributions._tails import log_density, smooth_tails, tails

# Integrals are taken piece by piece between the quantiles of all members at these levels, from below and from above.
_LEVELS = (0.5, 0.3, 0.1, 0.03, 0.01, 3e-3, 1e-3, 1e-4, 1e-5, 1e-6, 1e-8, 1e-10, 1e-13, 1e-16, 1e-20, 1e-25, 1e-30)
_FAR_LEVELS = (1e-40, 1e-50, 1e-75, 1e-100, 1e-150, 1e-200, 1e-300)  # where squares may still matter
_NODES = {torch.float64: 16, torch.float32: 8}
# Where the ends of a piece are so many times as far from the origin as one another, it is cut evenly in the logarithm.
_RATIO = 2.0
_CHUNK_ELEMENTS = 4_000_000
# Counts are added one by one up to so many, and integrated beyond, where they lie close together.
_MOST_COUNTS, _FIRST_COUNTS = 8192, 512


def cross_entropies(components: Distribution, weights: Tensor) -> Tensor:
    r"""$-\mathbb{E}_{p_m}[\log p_E]$ of every member m of a mixture E, `[member, *batch]`."""

    def part(members: Distribution) -> Tensor:
        def integrand(points: Tensor, smooth: bool) -> Tensor:
            logs = members.log_prob(points.unsqueeze(-2)) if smooth else log_density(members, points.unsqueeze(-2))
            logs = logs.movedim(-2, 0)  # [member, node, piece, row]
            mixed = torch.logsumexp(logs + weights.log().reshape(-1, *[1] * points.dim()), dim=0)
            return -logs.exp() * mixed.clamp_min(torch.finfo(mixed.dtype).min)

        return _integrated(members, integrand, None, power=1)

    shape = components.batch_shape
    flat = flattened(components)
    return _by_rows(flat, lambda rows: part(indexed(flat, (slice(None), rows))), weights.new_zeros(shape))


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

        score = _integrated(members, integrand, torch.cat([y[None], corners]), power=2)
        _check_finite(members, score)
        return score

    flat, truth = flattened(components), target.expand(components.batch_shape[1:])
    corners = truth.new_empty(0, truth.numel()) if kinks is None else kinks.flatten(1)

    def of_rows(rows: Tensor) -> Tensor:
        return part(indexed(flat, (slice(None), rows)), truth.reshape(-1)[rows], corners[:, rows])

    return _by_rows(flat, of_rows, weights.new_zeros(truth.shape))


def moments(distribution: Distribution) -> tuple[Tensor, Tensor]:
    """Mean and variance of every row of a continuous family that does not tell them."""
    flat = rebuilt(distribution, lambda parameter: parameter.flatten(0, len(distribution.batch_shape) - 1).unsqueeze(0))
    with torch.no_grad():
        knots = _knots(flat, None, _LEVELS + _FAR_LEVELS)
        centre = knots[len(knots) // 2]

    def moment(power: int, about: Tensor) -> Tensor:
        def integrand(points: Tensor, smooth: bool) -> Tensor:
            return (points - about) ** power * log_density(flat, points.unsqueeze(-2)).exp()[..., 0, :]

        return by_pieces(knots, _origins(flat, knots), integrand)

    mean = centre + moment(1, centre)
    return mean.reshape(distribution.batch_shape), moment(2, mean).reshape(distribution.batch_shape)


def _mixed_tails(members: Distribution, weights: Tensor, points: Tensor, smooth: bool) -> tuple[Tensor, Tensor]:
    """P(Y ≤ point) and P(Y > point) of the mixture; of counts by adding up, as their points are consecutive."""

    def average(values: Tensor) -> Tensor:
        return (values * weights.unsqueeze(-1)).sum(-2)

    if smooth or not is_whole(members):
        lower, upper = (smooth_tails if smooth else tails)(members, points.unsqueeze(-2))
        return average(lower), average(upper)
    mass = average(log_density(members, points.unsqueeze(-2)).exp())
    last = points[..., -1:, :].unsqueeze(-2)
    with torch.no_grad():
        after = average(tails(members, last)[1])
    if torch.is_grad_enabled() and bool((after > 1e-6).any()):  # a gradient takes time, and mostly nothing is left
        after = average(tails(members, last)[1])
    return mass.cumsum(-2), after + mass.flip(-2).cumsum(-2).flip(-2) - mass


def _check_finite(members: Distribution, score: Tensor) -> None:
    """Refuse tails so heavy that what lies outside the outermost quantiles matters: beyond some, the score is infinite."""
    if is_whole(members) or score.dtype != torch.float64:
        return
    with torch.no_grad():
        low, high = tail_quantiles(members, _LEVELS[-1:]).double()
        outside = (high - low)[0].amax(0) * _LEVELS[-1] ** 2
    if bool((outside > 1e-7 * score.detach().double()).any()):
        raise ValueError(f"the `crps` of {family(members)} is infinite, or nearly so, for these parameters: its tails are "
                         "too heavy; use `log_score`")  # fmt: skip


def _by_rows(members: Distribution, function: Callable[[Tensor], Tensor], like: Tensor) -> Tensor:
    """A function of row numbers, in pieces of bounded work; of counts, rows of about as many come together."""
    n_members, n_rows = members.batch_shape
    if n_rows == 0:
        return like
    rows = torch.arange(n_rows, device=like.device)
    size = max(1, _CHUNK_ELEMENTS // (2 * 16 * len(_LEVELS) * n_members**2))
    groups: tuple[Tensor, ...] = (rows,)
    if not is_whole(members) and n_members > 1:
        with torch.no_grad():
            alike = _alike(members)
        groups = rows[alike], rows[~alike]
    elif is_whole(members):
        order = members.variance.detach().amax(0).argsort()
        groups = order.tensor_split([n_rows // 2, n_rows * 3 // 4, n_rows * 15 // 16])
    pieces = [piece for group in groups for piece in group.split(size) if len(piece)]
    values = torch.cat([function(piece) for piece in pieces], dim=-1)
    return values[..., torch.cat(pieces).argsort()].reshape(like.shape)


Integrand = Callable[[Tensor, bool], Tensor]


def _integrated(members: Distribution, integrand: Integrand, extra: Tensor | None, power: int) -> Tensor:
    """The integral, or for counts the sum, of a function of points `[node, piece, row]` that keeps the rows.

    Arguments:
        extra: knots beside those of the members, `[knot, row]`.
        power: of the probabilities outside, to which the function falls; in single precision little of it is seen.
    """
    dtype = torch.promote_types(parameters(members)[0].dtype, torch.float32)
    least = (1e-13 if dtype == torch.float32 else 1e-24) ** (1 / power)
    if is_whole(members):
        return _summed(members, integrand, extra, least)
    with torch.no_grad():
        levels = _LEVELS if dtype == torch.float64 else tuple(level for level in _LEVELS if level >= least)
        knots = _knots(members, extra, levels)
    return by_pieces(knots, _origins(members, knots), integrand)


def _knots(members: Distribution, extra: Tensor | None, levels: tuple[float, ...] = _LEVELS) -> Tensor:
    """Quantiles of every member, ends of its support, kinks of its density and extra ones, in order, `[knot, row]`."""
    inner = members
    while isinstance(inner, MixtureSameFamily):  # whose components may be far narrower than it is
        inner = inner.component_distribution
    quantiles = tail_quantiles(inner, levels).flatten(0, 1)  # [level, member, row, …]
    quantiles = quantiles.movedim(2, -1).flatten(0, -2)
    median = quantiles[0]
    if members.batch_shape[0] > 1 and bool(_alike(members).all()):
        # Members that are nearly the same need no more knots than one of them.
        quantiles = quantiles.sort(0).values[:: members.batch_shape[0]]
    parts = [quantiles]
    low, high = (torch.as_tensor(end).to(quantiles).expand(members.batch_shape) for end in bounds(members))
    parts += [end for end in (low, high, (low + high) / 2) if bool(end.isfinite().all())]
    kinks: Tensor | None = getattr(members, "kinks", None)
    parts += [] if kinks is None else [kinks.movedim(-1, 0).flatten(0, 1)]
    parts += [] if extra is None else [extra.detach().to(parts[0])]
    knots = torch.cat(parts)
    return torch.where(knots.isfinite(), knots, median).sort(0).values


def _alike(members: Distribution) -> Tensor:
    """Whether the members of each row have about the same middle and spread."""
    low, high = tail_quantiles(members, (0.1,))[:, 0]  # [member, row]
    spread = high - low
    near = (low + high).amax(0) - (low + high).amin(0) <= 4 * spread.amin(0)
    return near & (spread.amax(0) <= 4 * spread.amin(0))


def _origins(members: Distribution, knots: Tensor) -> Tensor:
    """For every piece, the point around which its densities may change as a power: an end of the support, or the middle."""
    low, high = (torch.as_tensor(end).to(knots).expand(members.batch_shape) for end in bounds(members))
    low, high = low.amin(0), high.amax(0)
    middle = knots[len(knots) // 2]
    start = torch.where(low.isfinite(), low, middle)
    upper_half = high.isfinite() & (knots[:-1] >= torch.where(low.isfinite(), low / 2 + high / 2, middle))
    return torch.where(upper_half, high, start)


def _width(knots: Tensor) -> Tensor:
    """Of the middle of the distribution."""
    middle, some = len(knots) // 2, len(knots) // 16 + 1
    return knots[min(middle + some, len(knots) - 1)] - knots[max(middle - some, 0)]


def by_pieces(
    knots: Tensor, origins: Tensor, integrand: Integrand, smooth: bool = False, n_nodes: int | None = None
) -> Tensor:
    """Gauss–Legendre between neighbouring knots, in the distance from the origin or in its logarithm."""
    rule = leggauss(n_nodes or _NODES.get(knots.dtype, 16))
    nodes, node_weights = (knots.new_tensor(part).reshape(-1, 1, 1) / 2 for part in rule)
    share = nodes + 0.5
    start, end = knots[:-1], knots[1:]
    near, far = start - origins, end - origins
    # A knot may differ from the origin by rounding alone, unless that is an end of the support, or 0.
    apart = torch.minimum(near.abs(), far.abs()) > 1e-9 * torch.where(origins == knots[len(knots) // 2], _width(knots), 0.0)
    geometric = (near * far > 0) & (torch.maximum(near / far, far / near) > _RATIO) & apart
    growth = torch.where(geometric, far / near, torch.ones_like(near)).log()
    distance = near * torch.exp(growth * share)
    points = torch.where(geometric, origins + distance, start + (end - start) * share)
    lengths = torch.where(geometric, distance * growth, end - start) * node_weights
    values = integrand(points, smooth)
    # At an end of the support a density may be infinite; a node falls there only by rounding.
    counted = (lengths > 0) & (points != origins)
    return torch.where(counted, values * lengths, torch.zeros_like(values)).sum((-3, -2))


def _summed(members: Distribution, integrand: Integrand, extra: Tensor | None, least_share: float) -> Tensor:
    """The sum over all whole numbers that matter; in rows where they are many, an integral over all but the first."""
    with torch.no_grad():
        first, last = tail_quantiles(members, (least_share,))[:, 0]
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
    return total + torch.where(wide, by_pieces(knots, first.expand_as(knots[1:]), integrand, smooth=True), 0.0)
