"""Distribution functions with all their digits in both tails, their inverse, densities that are 0 outside the support."""

import math
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch import distributions as td
from torch.autograd.function import FunctionCtx

from deep_ensembles.distributions._structure import bounds, family, formula_of, is_whole

Pair = tuple[Tensor, Tensor]


def normal_cdf(z: Tensor) -> Tensor:
    """Φ(z), exact in the lower tail too, where `torch.special.ndtr` has no digits left."""
    return torch.special.erfc(z * -math.sqrt(0.5)) * 0.5


def log_density(distribution: td.Distribution, value: Tensor) -> Tensor:
    """The logarithm of density or probability; minus infinity outside the support, where torch may say anything."""
    support: Any = distribution.support
    if support is td.constraints.real or distribution.event_shape:
        return distribution.log_prob(value)
    if 0 in distribution.batch_shape or bool((inside := support.check(value)).all()):
        return distribution.log_prob(value)
    logs = distribution.log_prob(torch.where(inside, value, _inner_point(distribution, value)))
    return torch.where(inside, logs, -torch.inf)


def tails(distribution: td.Distribution, value: Tensor) -> Pair:
    """P(Y ≤ value) and P(Y > value), each exact however small it is, differentiable in the parameters."""
    if is_whole(distribution):
        value = value.floor()
    low, high = bounds(distribution)
    if not (isinstance(low, Tensor) or isinstance(high, Tensor)) and (low, high) == (-math.inf, math.inf):
        return smooth_tails(distribution, value)
    # A whole number that is the least carries mass itself; the ends of a continuum do not.
    below = value < low if is_whole(distribution) else value <= low
    above = value >= high
    inside = torch.where(below | above, _inner_point(distribution, value), value)
    lower, upper = smooth_tails(distribution, inside)
    lower, upper = torch.where(below, 0.0, lower), torch.where(below, 1.0, upper)
    return torch.where(above, 1.0, lower), torch.where(above, 0.0, upper)


def smooth_tails(distribution: td.Distribution, value: Tensor) -> Pair:
    """The same for values inside the support; for counts at any number, by the smooth function through the whole ones."""
    if (formula := formula_of(distribution, "tails", _TAILS)) is not None:
        return formula(value)
    try:
        lower = distribution.cdf(value)
    except NotImplementedError as error:
        raise TypeError(f"the distribution function of {family(distribution)} is not known; give the distribution "
                        "a method `cdf`, or use `log_prob` and `sample` alone") from error  # fmt: skip
    return lower, 1 - lower


def _inner_point(distribution: td.Distribution, like: Tensor) -> Tensor:
    """A value inside the support, where every function is finite."""
    low, high = (torch.as_tensor(bound, dtype=like.dtype, device=like.device) for bound in bounds(distribution))
    step = torch.where(high.isfinite(), (high - low) / 2, 1.0)
    inner = torch.where(low.isfinite(), low + step, torch.where(high.isfinite(), high - 1, 0.0))
    return inner.floor() if is_whole(distribution) else inner


# -- functions that torch lacks ---------------------------------------------------------------------------------------


class _Special(torch.autograd.Function):
    """A function of SciPy, whose derivative by the last argument is given and by the others taken by differences."""

    @staticmethod
    def forward(ctx: FunctionCtx, function: Any, slope: Any, *arguments: Tensor) -> Tensor:
        ctx.save_for_backward(*arguments)
        ctx.function, ctx.slope = function, slope  # type: ignore[attr-defined]
        return _by_scipy(function, *arguments)

    @staticmethod
    def backward(ctx: Any, up: Tensor) -> tuple[Tensor | None, ...]:
        *shapes, last = ctx.saved_tensors
        by_shapes = [up * _difference(ctx.function, place, *shapes, last) if needed else None
                     for place, needed in enumerate(ctx.needs_input_grad[2:-1])]  # fmt: skip
        return None, None, *by_shapes, up * ctx.slope(*shapes, last) if ctx.needs_input_grad[-1] else None


def _by_scipy(function: str | Callable[..., Any], *arguments: Tensor) -> Tensor:
    """A function of `scipy.special` by its name, or one of NumPy arrays."""
    from scipy import special  # when it is needed: it takes time, and most predictions are of normals

    known = getattr(special, function) if isinstance(function, str) else function
    values = known(*(argument.detach().cpu().double().numpy() for argument in arguments))
    return torch.from_numpy(np.asarray(values)).to(arguments[-1])


def _difference(function: Any, place: int, *arguments: Tensor) -> Tensor:
    """A central difference of the fourth order, relative to the argument."""
    precise = [argument.detach().double() for argument in arguments]
    step = 1e-3 * precise[place].abs().clamp_min(1e-100)

    def at(steps: int) -> Tensor:
        moved = precise[place] + steps * step
        return _by_scipy(function, *precise[:place], moved, *precise[place + 1 :])

    slope = (8 * (at(1) - at(-1)) - (at(2) - at(-2))) / (12 * step)
    return slope.to(arguments[place])


def _special(function: str | Callable[..., Any], slope: Callable[..., Tensor], *arguments: Tensor) -> Tensor:
    return _Special.apply(function, slope, *torch.broadcast_tensors(*arguments))  # type: ignore[no-untyped-call]


def student_t_cdf(df: Tensor, z: Tensor) -> Tensor:
    """Of a Student's t with location 0 and scale 1, exact in the lower tail."""
    return _special("stdtr", lambda df, z: td.StudentT(df, validate_args=False).log_prob(z).exp(), df, z)


# SciPy's incomplete gamma functions stop adding terms too early for larger shapes than this.
_LARGE_SHAPE = 1e5
# Coefficients of the powers of η in the first term of Temme's expansion; the second is below 1e-8 for such shapes.
_TEMME = (-1 / 3, 1 / 12, -2 / 135, 1 / 864, 1 / 2835, -139 / 777600, 1 / 25515)


def _gammainc(a: Any, x: Any, side: int = 1) -> Any:
    """P(a, x), or with the side -1 Q(a, x); for large a by Temme's expansion (1979; DLMF 8.12)."""
    from scipy import special

    values = (special.gammainc if side > 0 else special.gammaincc)(a, x)
    large = (a > _LARGE_SHAPE) & (abs(x / a - 1) < 0.25)
    if not large.any():
        return values
    shape, distance = np.where(large, a, 1.0), np.where(large, x / a - 1, 0.0)
    eta = np.sign(distance) * np.sqrt(2 * np.maximum(distance - np.log1p(distance), 0.0))
    rest = np.exp(-shape * eta**2 / 2) / np.sqrt(2 * np.pi * shape) * np.polynomial.polynomial.polyval(eta, _TEMME)
    return np.where(large, special.erfc(-side * eta * np.sqrt(shape / 2)) / 2 - side * rest, values)


def gamma_tails(concentration: Tensor, x: Tensor) -> Pair:
    """Of a gamma distribution with rate 1: the regularised incomplete gamma functions."""

    def density(concentration: Tensor, x: Tensor) -> Tensor:
        return torch.exp(torch.xlogy(concentration - 1, x) - x - torch.lgamma(concentration))

    lower = _special(_gammainc, density, concentration, x)
    return lower, _special(partial(_gammainc, side=-1), lambda *at: -density(*at), concentration, x)


def beta_tails(a: Tensor, b: Tensor, x: Tensor, rest: Tensor) -> Pair:
    """The regularised incomplete beta functions of x and of the rest, 1 - x."""

    def density(a: Tensor, b: Tensor, x: Tensor) -> Tensor:
        return td.Beta(a, b, validate_args=False).log_prob(x).exp()

    return _special("betainc", density, a, b, x), _special("betainc", density, b, a, rest)


# -- families of torch ------------------------------------------------------------------------------------------------


def _normal(d: Any, value: Tensor) -> Pair:
    z = (value - d.loc) / d.scale
    return normal_cdf(z), normal_cdf(-z)


def _symmetric(d: Any, value: Tensor, lower_tail: Callable[[Tensor], Tensor]) -> Pair:
    """From the distribution function for location 0 and scale 1, which is exact in the lower tail."""
    z = (value - d.loc) / d.scale
    is_low = z < 0
    outer = lower_tail(z * torch.where(is_low, 1.0, -1.0))  # |z| would have no slope at 0
    return torch.where(is_low, outer, 1 - outer), torch.where(is_low, 1 - outer, outer)


def _folded(d: Any, value: Tensor) -> Pair:
    lower, upper = tails(d.base_dist, value)
    return lower - upper, 2 * upper


def _is_monotone(transform: Any) -> bool:
    """Whether a transform always rises or always falls, and says which."""
    with suppress(AttributeError, NotImplementedError):  # torch's own raise the latter
        return bool(transform.bijective) and transform.sign is not None
    return False


def _transformed(d: Any, value: Tensor) -> Pair:
    """By the tails of what was transformed."""
    for transform in d.transforms:
        if not _is_monotone(transform):
            raise TypeError(f"the distribution function of a {family(d)} by {type(transform).__name__} is not known, as "
                            "that neither always rises nor always falls; use `log_prob` and `sample` alone")  # fmt: skip
    whole = td.ComposeTransform(d.transforms)
    falls = torch.as_tensor(whole.sign) < 0
    lower, upper = tails(d.base_dist, whole.inv(value))
    return torch.where(falls, upper, lower), torch.where(falls, lower, upper)


def _by_hazard(hazard: Tensor) -> Pair:
    """From the cumulative hazard, -log P(Y > value)."""
    return -torch.expm1(-hazard), torch.exp(-hazard)


def _of_trials(d: Any, value: Tensor, failures: Tensor) -> Pair:
    """Of the number of successes until as many failures, or among as many trials as leave them."""
    return beta_tails(failures, value + 1, torch.sigmoid(-d.logits), torch.sigmoid(d.logits))


def _same_family(d: Any, value: Tensor) -> Pair:
    lower, upper = tails(d.component_distribution, value.unsqueeze(-1))
    weights = d.mixture_distribution.probs
    return (lower * weights).sum(-1), (upper * weights).sum(-1)


_TAILS: dict[type, Callable[[Any, Tensor], Pair]] = {
    td.Normal: _normal,
    td.Laplace: lambda d, value: _symmetric(d, value, lambda z: torch.exp(z) / 2),
    td.Cauchy: lambda d, value: _symmetric(d, value, lambda z: torch.atan2(torch.ones_like(z), -z) / math.pi),
    td.StudentT: lambda d, value: _symmetric(d, value, partial(student_t_cdf, d.df)),
    td.LogNormal: lambda d, value: _normal(d.base_dist, value.log()),
    td.Gumbel: lambda d, value: _by_hazard(torch.exp((d.loc - value) / d.scale))[::-1],
    **dict.fromkeys((td.HalfNormal, td.HalfCauchy), _folded),
    td.Uniform: lambda d, value: ((value - d.low) / (d.high - d.low), (d.high - value) / (d.high - d.low)),
    td.Exponential: lambda d, value: _by_hazard(d.rate * value),
    td.Geometric: lambda d, value: _by_hazard(torch.nn.functional.softplus(d.logits) * (value + 1)),
    td.Gamma: lambda d, value: gamma_tails(d.concentration, d.rate * value),
    td.Beta: lambda d, value: beta_tails(d.concentration1, d.concentration0, value, 1 - value),
    td.Poisson: lambda d, value: gamma_tails(value + 1, d.rate)[::-1],
    td.NegativeBinomial: lambda d, value: _of_trials(d, value, d.total_count),
    td.Binomial: lambda d, value: _of_trials(d, value, (d.total_count - value).clamp_min(1e-300)),
    td.Bernoulli: lambda d, value: (torch.where(value < 1, torch.sigmoid(-d.logits), 1.0),
                                    torch.where(value < 1, torch.sigmoid(d.logits), 0.0)),
    td.MixtureSameFamily: _same_family,
    td.TransformedDistribution: _transformed,
}  # fmt: skip


# -- quantiles that a formula gives, or a function of SciPy -----------------------------------------------------------


def closed_quantile(distribution: td.Distribution, share: Tensor, side: Tensor) -> Tensor | None:
    """The value with a probability ≤ ½ below it, or above it where the side is -1, where a formula gives it; else None."""
    formula = formula_of(distribution, "closed_quantile", _QUANTILES)
    return None if formula is None else formula(share, side)


def _student_t_quantile(d: Any, share: Tensor, side: Tensor) -> Tensor:
    """By SciPy, and far out, where that gives up and the tail is a power, from the power."""
    quantile = -_by_scipy("stdtrit", d.df, share).abs()
    factor = torch.lgamma(d.df / 2 + 0.5) - torch.lgamma(d.df / 2 + 1) - math.log(2 * math.sqrt(math.pi))
    power = -d.df.sqrt() * torch.exp((factor - share.log()) / d.df)
    return d.loc + d.scale * side * torch.where(quantile < -1e20, power, quantile)


def _gamma_quantile(d: Any, share: Tensor, side: Tensor) -> Tensor | None:
    if bool((d.concentration > _LARGE_SHAPE).any()):
        return None
    below, above = (_by_scipy(name, d.concentration, share) for name in ("gammaincinv", "gammainccinv"))
    return torch.where(side > 0, below, above) / d.rate


def _transformed_quantile(d: Any, share: Tensor, side: Tensor) -> Tensor | None:
    if not all(map(_is_monotone, d.transforms)):
        return None
    whole = td.ComposeTransform(d.transforms)
    quantile = closed_quantile(d.base_dist, share, side * whole.sign)
    return None if quantile is None else whole(quantile)


_QUANTILES: dict[type, Callable[[Any, Tensor, Tensor], Tensor | None]] = {
    td.Normal: lambda d, share, side: d.loc + d.scale * side * torch.special.ndtri(share),
    td.Laplace: lambda d, share, side: d.loc + d.scale * side * (2 * share).log(),
    td.StudentT: _student_t_quantile,
    td.Exponential: lambda d, share, side: torch.where(side > 0, -torch.log1p(-share), -share.log()) / d.rate,
    td.Uniform: lambda d, share, side: torch.where(side > 0, d.low, d.high) + side * share * (d.high - d.low),
    td.Gamma: _gamma_quantile,
    td.TransformedDistribution: _transformed_quantile,
}
