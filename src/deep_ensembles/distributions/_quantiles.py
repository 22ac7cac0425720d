"""Quantiles of mixtures of any family, exact to rounding."""

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch.distributions import Distribution, MixtureSameFamily, Normal, StudentT

from deep_ensembles.distributions._structure import ends, flattened, indexed, is_whole, parameters, rebuilt
from deep_ensembles.distributions._tails import closed_quantile, log_density, normal_cdf, student_t_cdf, tails

_MAX_ITERATIONS = 1000
_CHUNK_ELEMENTS = 2**15  # members times rows that are solved at once: what fits into a cache
_VECTOR = 64  # numbers in the longest loop of vector instructions
_QUICK_STEPS = (2, 4)  # of a first attempt, which nearly always is enough, and of a second


Values = tuple[Tensor, Tensor, Tensor]


@dataclass(frozen=True, eq=False)
class _Equation:
    """What is solved for x in every row: the share of a mixture at or below x, or above it where the side is -1.

    Shape:
        components `[member, row]`, weights `[member, row]` or `[member, 1]`, share and side `[row]`.
    """

    components: Distribution
    weights: Tensor
    share: Tensor
    side: Tensor

    def average(self, values: Tensor) -> Tensor:
        """Over members."""
        return (values * self.weights).sum(0)

    @cached_property
    def curve(self) -> Any:
        """Of families whose quantiles a few steps mostly lead to; None of others."""
        return next((curve(self.components) for kind, curve in _CURVES.items() if isinstance(self.components, kind)), None)

    def at(self, point: Tensor, exact: bool = True) -> Values:
        """The share that a point has, the density f there, and f'/f, 0 where it is not told."""
        if self.curve is not None:
            tail, density, bend = self.curve(point, self.side, exact)
        else:
            tail = torch.where(self.side > 0, *tails(self.components, point))
            density = log_density(self.components, point).exp()
            bend = torch.zeros_like(density)
        mixed = self.average(density)
        return self.average(tail), mixed, self.average(density * bend) / mixed

    def is_reached(self, point: Tensor, slack: float = 0.0) -> Tensor:
        """Whether the solution does not lie above the point."""
        lower, upper = (self.average(tail) for tail in tails(self.components, point))
        return torch.where(self.side > 0, lower >= self.share * (1 - slack), upper <= self.share * (1 + slack))


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
    flat, weights = _unnested(flattened(components, members), weights[members].unsqueeze(1))
    rows, wanted = padded(places.reshape(-1)), padded(levels.reshape(-1))
    found = (_step_quantiles if hasattr(flat, "is_point") else _solved)(flat, weights, rows, wanted)
    return found[: levels.numel()].reshape(levels.shape)


def padded(rows: Tensor) -> Tensor:
    """The first row repeated until vector instructions leave no rest, which would round equal rows differently."""
    return torch.cat([rows, rows[:1].expand(-len(rows) % _VECTOR)])


def _unnested(components: Distribution, weights: Tensor) -> tuple[Distribution, Tensor]:
    """A mixture of members that are mixtures themselves as one of all their components, each row with its own weights."""
    if not isinstance(components, MixtureSameFamily):
        return components, weights
    shares = components.mixture_distribution.probs.movedim(-1, 1)  # [member, component, row]
    inner = rebuilt(components.component_distribution, lambda parameter: parameter.movedim(2, 1).flatten(0, 1))
    return _unnested(inner, (weights.unsqueeze(1) * shares).flatten(0, 1))


def _step_quantiles(points: Distribution, weights: Tensor, rows: Tensor, levels: Tensor) -> Tensor:
    """The least of the members' points at which their weights reach the level."""
    ordered, order = points.mean[:, rows].sort(0)
    shares = weights[:, 0][order].cumsum(0) * (1 + 4 * torch.finfo(weights.dtype).eps)
    first = (shares < levels).sum(0, keepdim=True).clamp_max(len(weights) - 1)
    return ordered.gather(0, first)[0]


def _solved(components: Distribution, weights: Tensor, rows: Tensor, levels: Tensor) -> Tensor:
    """The quantiles of these rows: nearly all by a few quick steps if there is a way, all others by narrowing them down."""

    def equation(places: Tensor) -> _Equation:
        # Levels above one half are solved as the upper tail, 1 - F(x) = 1 - q, which keeps their digits.
        level, row = levels[places], rows[places]
        share, side = torch.minimum(level, 1 - level), torch.where(level > 0.5, -1.0, 1.0).to(level)
        own = weights if weights.shape[1] == 1 else weights[:, row]
        return _Equation(indexed(components, (slice(None), row)), own, share, side)

    places = left = torch.arange(len(rows), device=rows.device)
    solution, size = torch.empty_like(levels), _VECTOR * max(1, _CHUNK_ELEMENTS // (_VECTOR * len(weights)))
    with torch.no_grad():
        for n_steps in _QUICK_STEPS if isinstance(components, tuple(_CURVES)) else ():
            is_last = torch.ones_like(rows, dtype=torch.bool)
            for some in left.split(size):
                solution[some], is_last[some] = _by_quick_steps(equation(some), n_steps)
            left = padded((~is_last).nonzero()[:, 0])
        for some in left.split(size):
            solution[some] = _narrowed_down(equation(some))
    moves = torch.is_grad_enabled() and any(parameter.requires_grad for parameter in parameters(components))
    if is_whole(components) or not moves:
        return solution
    share, density, _ = (whole := equation(places)).at(solution)
    return solution - whole.side * (share - share.detach()) / density.detach()


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
    alone = _Equation(rebuilt(components, repeat), shares.new_ones(1, 1), shares, side)
    return _narrowed_down(alone).reshape(2, len(levels), *components.batch_shape)


def rough_tail_quantiles(components: Distribution, levels: Sequence[float]) -> Tensor:
    """About the same, of Student's t by a formula that is close where variances are finite."""
    if not isinstance(components, StudentT) or bool((components.df <= 2).any()):
        return tail_quantiles(components, levels)
    wanted = torch.special.ndtri(components.df.new_tensor(levels)).reshape(-1, *[1] * components.df.dim())
    distance = _StudentTCurve(components).distances(wanted)
    return torch.stack([components.loc - distance, components.loc + distance])


def _by_quick_steps(equation: _Equation, n_steps: int) -> tuple[Tensor, Tensor]:
    """A few of Halley's steps, and whether the last was so short that the next, of about its cube, is lost in rounding.

    They start where a normal with the spread of the members has the level; only the last needs the exact curve.
    """
    curve, share, side = equation.curve, equation.share, equation.side
    wanted = torch.special.ndtri(share)
    centre = equation.average(curve.loc)
    squares = curve.distances(wanted).square() + (wanted * (curve.loc - centre)).square()
    point = centre - side * equation.average(squares).sqrt()
    for _ in range(n_steps):
        point = _step(wanted, side, point, *equation.at(point, exact=False))[0]
    tail, density, bend = equation.at(point)
    step = (tail - share) * side / density
    is_last = step.abs() <= torch.finfo(point.dtype).eps ** 0.4 * curve.scale.amin(0)
    return point - step / (1 - step * bend * 0.5), is_last


def _least_counts(equation: _Equation) -> Tensor:
    """The least whole number with this share at or below it; where the side is -1, with no more than the share above it."""
    slack = 4 * torch.finfo(equation.share.dtype).eps
    low, high = _widened(equation, slack)
    low, high = low.floor() - 1, high.ceil()
    middle = ((low + high) / 2).floor()
    # Whole numbers that the number format cannot tell apart end the search too.
    while bool((open_ := (middle > low) & (middle < high)).any()):
        above = equation.is_reached(middle, slack)
        low, high = torch.where(above | ~open_, low, middle), torch.where(above & open_, middle, high)
        middle = ((low + high) / 2).floor()
    return high


def _bracket(equation: _Equation) -> tuple[Tensor, Tensor, Tensor]:
    """Two values between which the solution lies, and a first guess of it."""
    known = closed_quantile(equation.components, equation.share, equation.side)
    if known is None:
        low, high = _widened(equation)
        return low, high, _middle(low, high).clamp(low, high)
    low, high = known.amin(0), known.amax(0)
    # Of nothing, the end of the member that reaches furthest.
    low = torch.where((equation.share <= 0) & (equation.side < 0), high, low)
    high = torch.where((equation.share <= 0) & (equation.side > 0), low, high)
    return low, high, equation.average(known).clamp(low, high)


def _widened(equation: _Equation, slack: float = 0.0) -> tuple[Tensor, Tensor]:
    """A bracket found by going out from the members' means, further and further; an end where the share is 0."""
    components, share, largest = equation.components, equation.share, torch.finfo(equation.share.dtype).max
    low, high = ends(components, share)
    least, most = low.amin(0), high.amax(0)
    least_of_all = least.expand(components.batch_shape)
    middle, spread = torch.where(least_of_all.isfinite(), least_of_all + 1, 0.0), torch.ones_like(least_of_all)
    with suppress(NotImplementedError):
        mean, deviation = components.mean, components.stddev
        middle, spread = torch.where(mean.isfinite(), mean, middle), torch.where(deviation.isfinite(), deviation, spread)
    spread = spread.clamp_min(torch.finfo(share.dtype).tiny)
    low, high = torch.maximum((middle - spread).amin(0), least), torch.minimum((middle + 2 * spread).amax(0), most)
    low = torch.where(least.isfinite() & is_whole(components), least, low)  # halving leads quickly from there
    step, nothing = spread.amax(0), share <= 0
    while not bool((done := nothing | ~equation.is_reached(low, slack) | (low <= least) | (low <= -largest)).all()):
        low, step = torch.where(done, low, torch.maximum(low - step, least).clamp_min(-largest)), step * 2
    step = spread.amax(0)
    while not bool((done := nothing | equation.is_reached(high, slack) | (high >= most) | (high >= largest)).all()):
        high, step = torch.where(done, high, torch.minimum(high + step, most).clamp_max(largest)), step * 2
    end = torch.where(equation.side > 0, least, most)
    return torch.where(nothing, end, low), torch.where(nothing, end, high)


def _narrowed_down(equation: _Equation) -> Tensor:
    """Narrow the bracket of the members' quantiles until every row is solved as nearly as rounding allows.

    Where a step leaves the bracket or is not half as long as the last, the bracket is halved: between members of very
    different spread, steps alone may go round in circles.
    """
    if is_whole(equation.components):
        return _least_counts(equation)
    low, high, point = _bracket(equation)
    largest, eps = torch.finfo(low.dtype).max, torch.finfo(low.dtype).eps
    last, done = (high - low).clamp_max(largest), ~(low < high)
    flat, wanted = eps**0.5 * last, torch.special.ndtri(equation.share)
    low, high = torch.where(done, low, low.clamp_min(-largest)), torch.where(done, high, high.clamp_max(largest))
    for _ in range(_MAX_ITERATIONS):
        if bool(done.all()):
            break
        proposal, step, excess, inverse_slope = _step(wanted, equation.side, point, *equation.at(point))
        above, size = excess >= 0, step.abs()
        low, high = torch.where(above, low, point), torch.where(above, point, high)
        # Where F is flat, its rounding moves the solution far: there the bracket alone decides.
        rounding = point.abs() * eps + eps * (2 - 2 * wanted) * inverse_slope
        done = (excess == 0) | (excess.abs() <= eps**0.5) & (size <= torch.minimum(rounding, flat))
        proposal = torch.where(done, point, proposal)
        stuck = ~(done | (proposal > low) & (proposal < high) & (size * 2 <= last))
        if bool(stuck.any()):
            proposal = torch.where(stuck, _middle(low, high), proposal)
            closed = stuck & ~((proposal > low) & (proposal < high))
            proposal, done = torch.where(closed, high, proposal), done | closed
        point, last = proposal, (proposal - point).abs()
    return point


def _step(wanted: Tensor, side: Tensor, point: Tensor, tail: Tensor, density: Tensor, bend: Tensor) -> tuple[Tensor, ...]:
    r"""Halley's step for $\Phi^{-1}(F(x)) = \Phi^{-1}(q)$, a straight line for a normal and nearly one for most mixtures.

    Returns:
        the next point, Newton's step, the difference of both sides, and by how much a point moves with that.
    """
    height = torch.special.ndtri(tail)
    excess = (height - wanted) * side
    inverse_slope = torch.exp(height.square() * -0.5) / (density * math.sqrt(2 * math.pi))
    step = excess * inverse_slope
    proposal = point - step / (1 - step * (bend + side * height / inverse_slope) * 0.5).clamp(0.5, 2)
    return proposal, step, excess, inverse_slope


def _middle(low: Tensor, high: Tensor) -> Tensor:
    """Halfway; between numbers of one sign but different magnitude, halfway between their logarithms."""
    arithmetic, tiny = low / 2 + high / 2, torch.finfo(low.dtype).tiny
    geometric = low.abs().clamp_min(tiny).sqrt() * high.abs().clamp_min(tiny).sqrt() * arithmetic.sign()
    return torch.where((low.sign() * high.sign() >= 0) & (4 * geometric.abs() < arithmetic.abs()), geometric, arithmetic)


# -- the families whose quantiles are asked for most ------------------------------------------------------------------


class _NormalCurve:
    """Of each member P(Y ≤ point), or P(Y > point) where the side is -1; the density f; and f'/f."""

    def __init__(self, components: Normal) -> None:
        self.loc, self.scale = components.loc, components.scale

    def distances(self, wanted: Tensor) -> Tensor:
        """How far from the location a level is that is so many deviations from the mean of a normal."""
        return self.scale * wanted

    def __call__(self, point: Tensor, side: Tensor, exact: bool = True) -> Values:
        z = (point - self.loc) / self.scale
        density = torch.exp(z.square() * -0.5) / (self.scale * math.sqrt(2 * math.pi))
        return normal_cdf(z * side), density, z / -self.scale


# Terms of a series that ends in a t of twice as many more degrees of freedom, which is nearly a normal.
_TERMS = 4


class _StudentTCurve:
    r"""Student's, exact by SciPy, or ten times as quick with a relative error of 1e-8.

    With $x = 1/(1 + z^2/\nu)$ the tail is that of $\nu + 2n$ degrees of freedom at the same x, plus
    $\frac12 \sqrt{1 - x}\,x^{\nu/2} \sum_{k<n} c_k x^k$ with $c_k = \Gamma(\frac{\nu+1}{2} + k)/(\sqrt\pi\,\Gamma(\frac\nu2 + k + 1))$
    (DLMF 8.17.20); for more than 2n degrees of freedom Hill's normal approximation is close.

    References:
        Hill (1970), algorithm 395; Gaver & Kafadar (1984) for quantiles.
    """  # noqa: E501

    def __init__(self, components: StudentT) -> None:
        self.df, self.loc, self.scale = components.df, components.loc, components.scale
        half = self.df * 0.5
        self.first = torch.exp(torch.lgamma(half + 0.5) - torch.lgamma(half + 1)) / (2 * math.sqrt(math.pi))
        self.top = self.first * self.df.sqrt() / self.scale  # the greatest density
        self.growth = [(half + (k + 0.5)) / (half + (k + 1)) for k in range(_TERMS - 1)]

    def distances(self, wanted: Tensor) -> Tensor:
        """About how far from the location a level is that is so many deviations from the mean of a normal."""
        rate = ((self.df - 1.5) / (self.df - 1).square()).clamp(0.0, 0.5)
        return self.scale * (self.df * torch.expm1(wanted.square() * rate)).sqrt()

    def __call__(self, point: Tensor, side: Tensor, exact: bool = True) -> Values:
        z = (point - self.loc) / self.scale
        square = z.square() / self.df
        logarithm, x = torch.log1p(square), 1 / (1 + square)
        power = torch.exp(logarithm * self.df * -0.5)
        density = self.top * power * x.sqrt()
        bend = (1 + 1 / self.df) * z * x / -self.scale
        if exact:
            return student_t_cdf(self.df, z * side), density, bend
        series: Tensor | float = 1.0
        for growth in reversed(self.growth):
            series = 1 + x * growth * series
        outer = self.first * (square * x).sqrt() * power * series + self._remainder(logarithm)
        return torch.where(z * side < 0, outer, 1 - outer), density, bend

    def _remainder(self, logarithm: Tensor) -> Tensor:
        degrees = self.df + (2 * _TERMS - 0.5)
        y, b = degrees * logarithm, 48 * degrees.square()
        fraction = (((-0.4 * y - 3.3) * y - 24) * y - 85.5) / (0.8 * y.square() + 100 + b)
        return normal_cdf(((fraction + y + 3) / b + 1) * -y.sqrt())


_CURVES: dict[type, Any] = {Normal: _NormalCurve, StudentT: _StudentTCurve}
