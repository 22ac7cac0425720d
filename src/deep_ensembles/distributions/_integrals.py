"""Integrals over mixtures of any family of numbers: entropies and the continuous ranked probability score."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import numpy as np
import torch
from numpy.polynomial import legendre
from torch import Tensor
from torch.distributions import Distribution, MixtureSameFamily, StudentT

from deep_ensembles.distributions._quantiles import quantiles, rough_tail_quantiles, tail_quantiles
from deep_ensembles.distributions._structure import alone, ends, family, flattened, indexed, is_whole, parameters, rebuilt
from deep_ensembles.distributions._tails import log_density, smooth_tails, tails

# Integrals are taken piece by piece between the quantiles of all members at these levels, from below and from above.
_LEVELS = (0.5, 0.3, 0.1, 0.03, 0.01, 3e-3, 1e-3, 1e-4, 1e-5, 1e-6, 1e-8, 1e-10, 1e-13, 1e-16, 1e-20, 1e-25, 1e-30)
_FAR_LEVELS = (1e-40, 1e-50, 1e-75, 1e-100, 1e-150, 1e-200, 1e-300)  # where squares may still matter
_NODES, _COARSE_NODES = {torch.float64: 16, torch.float32: 8}, 4
# Where the ends of a piece are so many times as far from the origin as one another, it is cut evenly in the logarithm.
_RATIO = 2.0
_CHUNK_ELEMENTS = 4_000_000
_MEMBERS_WITH_KNOTS = 4
# Counts are added one by one up to so many, and integrated beyond, where they lie close together.
_MOST_COUNTS, _FIRST_COUNTS = 8192, 512


@dataclass(frozen=True, eq=False)
class _Nodes:
    """Where a function is evaluated.

    Arguments:
        points: `[node, piece, row]`.
        smooth: whether counts are taken for a continuum there.
        pieces: where tails are to be found by adding up densities, the knots between which pieces lie, `[knot, row]`, and
            the slopes of points by the part of the piece that lies below them.
    """

    points: Tensor
    smooth: bool = False
    pieces: tuple[Tensor, Tensor] | None = None


Integrand = Callable[[Distribution, Tensor, _Nodes], Tensor]
Function = Callable[[_Nodes], Tensor]
Change = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]


def cross_entropies(components: Distribution, weights: Tensor) -> Tensor:
    r"""$-\mathbb{E}_{p_m}[\log p_E]$ of every member m of a mixture E, `[member, *batch]`."""

    def integrand(members: Distribution, rows: Tensor, nodes: _Nodes) -> Tensor:
        logs = _log_densities(members, nodes).movedim(-2, 0)  # [member, node, piece, row]
        mixed = torch.logsumexp(logs + weights.log().reshape(-1, *[1] * nodes.points.dim()), dim=0)
        return -logs.exp() * mixed.clamp_min(torch.finfo(mixed.dtype).min)

    return _integrals(components, integrand, weights.new_zeros(components.batch_shape))


def ranked_probability_score(
    components: Distribution, weights: Tensor, target: Tensor, change: Change | None = None, kinks: Tensor | None = None
) -> Tensor:
    r"""$\int (F(z) - 1\{y \le z\})^2\,dz$ of a mixture, `[*batch]`, differentiable in the parameters of its components.

    Arguments:
        change: what the tails of the mixture become, where F is not its distribution function but a function of it.
        kinks: where the changed function has corners, `[kink, *batch]`.
    """
    truth, dtype = target.expand(components.batch_shape[1:]), parameters(components)[0].dtype
    like = weights.new_zeros(truth.shape)
    if isinstance(components, StudentT):  # of which single precision leaves few digits if they are nearly normal
        components, weights = rebuilt(components, Tensor.double), weights.double()

    def integrand(members: Distribution, rows: Tensor, nodes: _Nodes) -> Tensor:
        below, above = _mixed_tails(members, weights, nodes, change)
        return torch.where(_is_below(nodes, truth.flatten()[rows]), below, above).square()

    score = _integrals(components, integrand, like, [truth[None], kinks], power=2, dtype=dtype)
    if is_whole(components) or score.dtype != torch.float64 or not score.numel():
        return score
    # Of tails so heavy that what lies outside the outermost quantiles matters, some have an infinite score.
    with torch.no_grad():
        low, high = tail_quantiles(components, _LEVELS[-1:]).double()
        outside = (high - low)[0].amax(0) * _LEVELS[-1] ** 2
    if bool((outside > 1e-7 * score.detach().double()).any()):
        raise ValueError(f"the `crps` of {family(components)} is infinite, or nearly so, for these parameters: its tails "
                         "are too heavy; use `log_score`")  # fmt: skip
    return score


def mixed_moments(
    components: Distribution, weights: Tensor, change: Change | None = None, kinks: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    r"""Mean and variance of a mixture, or with a change of its tails as above, `[*batch]` each.

    With a centre c, $\mathbb{E}[Y] = c - \int_{-\infty}^c F + \int_c^\infty (1 - F)$ and
    $\mathbb{E}[(Y - c)^2] = 2\int_{-\infty}^c (c - y)\,F + 2\int_c^\infty (y - c)(1 - F)$: sums of positive numbers,
    bounded however steep the density is. For sums over counts, $2(y - c)$ becomes $2(y - c) + 1$.
    """
    with torch.no_grad():
        centre = quantiles(components, weights, weights.new_tensor(0.5))

    def integrand(members: Distribution, rows: Tensor, nodes: _Nodes) -> Tensor:
        lower, upper = _mixed_tails(members, weights, nodes, change)
        middle = centre.flatten()[rows]
        tail = torch.where(_is_below(nodes, middle), -lower, upper)
        return torch.stack([tail, tail * (2 * (nodes.points - middle) + is_whole(members))])

    like, knots = weights.new_zeros(2, *centre.shape), [centre[None], kinks]
    shift, square = _integrals(components, integrand, like, knots, far=True, coarse=change is not None)
    return centre + shift, square - shift.square()


def moments(distribution: Distribution) -> tuple[Tensor, Tensor]:
    """Mean and variance of every row of a family that does not tell them."""
    return mixed_moments(alone(distribution), parameters(distribution)[0].new_ones(1))


def changed_entropy(
    components: Distribution, weights: Tensor, change: Change, slope: Callable[[Tensor], Tensor], kinks: Tensor | None
) -> Tensor:
    """The entropy of a mixture with a change of its tails as above, `[*batch]`, given the slope of the change at a level."""

    def integrand(members: Distribution, rows: Tensor, nodes: _Nodes) -> Tensor:
        below, above = _mixed_tails(members, weights, nodes)
        mass = _mixed_density(members, weights, nodes)
        if is_whole(members) and not nodes.smooth:
            mass = change(below, above)[0] - change(below - mass, above + mass)[0]
        else:
            mass = mass * slope(below)
        return -torch.xlogy(mass, mass)

    return _integrals(components, integrand, weights.new_zeros(components.batch_shape[1:]), [kinks], coarse=True)


def _mixed_density(members: Distribution, weights: Tensor, nodes: _Nodes) -> Tensor:
    """The density of the mixture, or of counts the probability."""
    return (_log_densities(members, nodes).exp() * weights.unsqueeze(-1)).sum(-2)


def _log_densities(members: Distribution, nodes: _Nodes) -> Tensor:
    """Of every member, `[node, piece, member, row]`."""
    points = nodes.points.unsqueeze(-2)
    return members.log_prob(points) if nodes.smooth else log_density(members, points)


def _is_below(nodes: _Nodes, value: Tensor) -> Tensor:
    """Between whole numbers a smooth function stands for steps: its middle is where the value's step is."""
    return nodes.points < (value - 0.5 if nodes.smooth else value)


def _mixed_tails(
    members: Distribution, weights: Tensor, nodes: _Nodes, change: Change | None = None
) -> tuple[Tensor, Tensor]:
    """P(Y ≤ point) and P(Y > point) of the mixture.

    Of counts by adding up, as their points are consecutive; likewise where a density is far faster than its distribution
    function, and digits of the smallest tails do not matter.
    """

    def average(points: Tensor) -> tuple[Tensor, ...]:
        pair = (smooth_tails if nodes.smooth else tails)(members, points.unsqueeze(-2))
        return tuple((tail * weights.unsqueeze(-1)).sum(-2) for tail in pair)

    if is_whole(members) and not nodes.smooth:
        mass = _mixed_density(members, weights, nodes)
        lower, upper = mass.cumsum(-2), average(nodes.points[..., -1:, :])[1] + mass.flip(-2).cumsum(-2).flip(-2) - mass
    elif nodes.pieces is not None:
        knots, slopes = nodes.pieces
        density = _mixed_density(members, weights, nodes) * slopes
        parts = torch.einsum("ij,jpr->ipr", _masses(len(density)).to(density), density)
        part, mass = parts[:-1], parts[-1]
        lower = average(knots[:1])[0] + mass.cumsum(0) - mass + part
        upper = average(knots[-1:])[1] + mass.flip(0).cumsum(0).flip(0) - part
    else:
        lower, upper = average(nodes.points)
    return (lower, upper) if change is None else change(lower, upper)


@cache
def _masses(n_nodes: int) -> Tensor:
    """The integrals up to every Gauss–Legendre node of a piece, and of all of it, by the values there, `[end, node]`."""
    nodes = legendre.leggauss(n_nodes)[0]
    polynomials = np.linalg.inv(legendre.legvander(nodes, n_nodes - 1))  # each 1 at one node and 0 at the others
    return torch.from_numpy(legendre.legval(np.append(nodes, 1.0), legendre.legint(polynomials, lbnd=-1)).T / 2)


def _integrals(
    components: Distribution, integrand: Integrand, like: Tensor, extra: Sequence[Tensor | None] = (), **accuracy: Any
) -> Tensor:
    """The integrals, or for counts the sums, of a function over all values, in pieces of bounded work.

    Arguments:
        components: `[member, *batch]`.
        integrand: of some rows' members `[member, row]`, the numbers of these rows, and points; keeps the rows.
        like: of the shape of the result, `[..., *batch]`.
        extra: knots beside those of the members, `[knot, *batch]` each; None stands for none.
        accuracy: see `_integrated`.
    """
    flat = flattened(components)
    n_members, n_rows = flat.batch_shape
    if n_rows == 0:
        return like
    given = (part.detach().reshape(-1, n_rows) for part in extra if part is not None)
    knots = torch.cat([like.new_empty(0, n_rows), *given])
    if is_whole(flat):  # rows of about as many counts come together
        order = flat.variance.detach().amax(0).argsort()
        groups = order.tensor_split([n_rows // 2, n_rows * 3 // 4, n_rows * 15 // 16])
    else:
        with torch.no_grad():
            alike = _alike(flat)
        groups = alike.nonzero()[:, 0], (~alike).nonzero()[:, 0]
    size = max(1, _CHUNK_ELEMENTS // (2 * 16 * len(_LEVELS) * n_members**2))
    # From the start: what is kept of each piece would leave holes in memory.
    whole = like.new_empty(like.numel() // n_rows, n_rows, dtype=torch.promote_types(like.dtype, torch.float32))
    for rows in (piece for group in groups for piece in group.split(size) if len(piece)):
        members = indexed(flat, (slice(None), rows))
        part = _integrated(members, partial(integrand, members, rows), knots[:, rows], **accuracy)
        whole[:, rows] = part.to(whole.dtype)
    return whole.reshape(like.shape)


def _integrated(
    members: Distribution,
    function: Function,
    extra: Tensor,
    power: int = 1,
    far: bool = False,
    coarse: bool = False,
    dtype: torch.dtype | None = None,
) -> Tensor:
    """The integrals of some rows.

    Arguments:
        power: of the probabilities outside, to which the function falls; in single precision little of it is seen.
        far: whether what is hardly ever seen may still matter.
        coarse: whether a relative error of some 1e-3 will do.
        dtype: of which precision the result is to be; that of the members unless it is given.
    """
    dtype = torch.promote_types(dtype or parameters(members)[0].dtype, torch.float32)
    least = (1e-13 if dtype == torch.float32 else 1e-24) ** (1 / power)
    if is_whole(members):
        return _summed(members, function, extra, least)
    levels = _LEVELS if dtype == torch.float64 else tuple(level for level in _LEVELS if level >= least)
    with torch.no_grad():
        knots = _knots(members, extra, _LEVELS + _FAR_LEVELS if far else levels, coarse)
        adds_up = isinstance(members, StudentT) and not far and bool(_alike(members).all())
    n_nodes = _COARSE_NODES if coarse else _NODES.get(dtype, 16)
    return _by_pieces(knots, _origins(members, knots), function, n_nodes, adds_up=adds_up)


def _knots(members: Distribution, extra: Tensor, levels: tuple[float, ...] = _LEVELS, coarse: bool = False) -> Tensor:
    """Quantiles of every member, ends of its support, kinks of its density and extra ones, in order, `[knot, row]`."""
    inner = members
    while isinstance(inner, MixtureSameFamily):  # whose components may be far narrower than it is
        inner = inner.component_distribution
    quantiles = rough_tail_quantiles(inner, levels).flatten(0, 1)  # [level, member, row, …]
    quantiles = quantiles.movedim(2, -1).flatten(0, -2)
    median = quantiles[0]
    n_members = members.batch_shape[0]
    # Members that are nearly the same need no more knots than one of them; and many need no more than a few.
    step = n_members if coarse or bool(_alike(members).all()) else n_members // _MEMBERS_WITH_KNOTS
    if step > 1:
        quantiles = quantiles.sort(0).values[::step]
    low, high = ends(members, quantiles)
    limits = [end for end in (low, high, (low + high) / 2) if bool(end.isfinite().all())]
    kinks = [members.kinks.movedim(-1, 0).flatten(0, 1)] if hasattr(members, "kinks") else []
    knots = torch.cat([quantiles, *limits, *kinks, extra.to(quantiles)])
    return torch.where(knots.isfinite(), knots, median).sort(0).values


def _alike(members: Distribution) -> Tensor:
    """Whether the members of each row have about the same middle and spread."""
    low, high = rough_tail_quantiles(members, (0.1,))[:, 0]  # [member, row]
    spread = high - low
    near = (low + high).amax(0) - (low + high).amin(0) <= 4 * spread.amin(0)
    return near & (spread.amax(0) <= 4 * spread.amin(0))


def _origins(members: Distribution, knots: Tensor) -> Tensor:
    """For every piece, the point around which its densities may change as a power: an end of the support, or the middle."""
    low, high = ends(members, knots)
    low, high = low.amin(0), high.amax(0)
    middle = knots[len(knots) // 2]
    start = torch.where(low.isfinite(), low, middle)
    upper_half = high.isfinite() & (knots[:-1] >= torch.where(low.isfinite(), low / 2 + high / 2, middle))
    return torch.where(upper_half, high, start)


def _by_pieces(
    knots: Tensor, origins: Tensor, function: Function, n_nodes: int, smooth: bool = False, adds_up: bool = False
) -> Tensor:
    """Gauss–Legendre between neighbouring knots, in the distance from the origin or in its logarithm."""
    nodes, node_weights = (knots.new_tensor(part).reshape(-1, 1, 1) / 2 for part in legendre.leggauss(n_nodes))
    share = nodes + 0.5
    start, end = knots[:-1], knots[1:]
    near, far = start - origins, end - origins
    # Close to the middle, unlike to an end of the support, nothing changes as a power.
    middle, some = len(knots) // 2, len(knots) // 16 + 1
    width = knots[min(middle + some, len(knots) - 1)] - knots[max(middle - some, 0)]
    apart = torch.minimum(near.abs(), far.abs()) > 0.01 * torch.where(origins == knots[middle], width, 0.0)
    geometric = (near * far > 0) & (torch.maximum(near / far, far / near) > _RATIO) & apart
    growth = torch.where(geometric, far / near, torch.ones_like(near)).log()
    distance = near * torch.exp(growth * share)
    points = torch.where(geometric, origins + distance, start + (end - start) * share)
    slopes = torch.where(geometric, distance * growth, end - start)
    lengths = slopes * node_weights
    values = function(_Nodes(points, smooth, (knots, slopes) if adds_up else None))
    # At an end of the support a density may be infinite; a node falls there only by rounding.
    counted = (lengths > 0) & (points != origins)
    return torch.where(counted, values * lengths, torch.zeros_like(values)).sum((-3, -2))


def _summed(members: Distribution, function: Function, extra: Tensor, least_share: float) -> Tensor:
    """The sum over all whole numbers that matter; in rows where they are many, an integral over all but the first."""
    with torch.no_grad():
        first, last = tail_quantiles(members, (least_share,))[:, 0]
        first, last = torch.cat([first, extra.floor()]).amin(0), torch.cat([last, extra.ceil()]).amax(0)
        wide = last - first >= _MOST_COUNTS
        n_counts = int(torch.where(wide, _FIRST_COUNTS, last - first + 1).max())
    counts = torch.arange(n_counts, device=first.device).to(first).unsqueeze(-1)
    points = first + counts  # [count, row]
    values = function(_Nodes(points.unsqueeze(0)))
    kept = (points <= last) & (~wide | (counts < _FIRST_COUNTS))
    total = torch.where(kept, values, torch.zeros_like(values)).sum((-3, -2))
    if not bool(wide.any()):
        return total
    with torch.no_grad():
        knots = (_knots(members, extra) - 0.5).clamp_min(first + _FIRST_COUNTS - 0.5)
    return total + torch.where(wide, _by_pieces(knots, first.expand_as(knots[1:]), function, 16, smooth=True), 0.0)
