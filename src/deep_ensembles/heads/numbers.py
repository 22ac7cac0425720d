"""Any number, several at once, positive numbers, and numbers between two bounds."""

from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor
from torch import distributions as td
from torch.nn import functional as F

from deep_ensembles import distributions as families
from deep_ensembles._checks import check_integer, check_number, require
from deep_ensembles.heads._base import Numbers, PointPrediction, for_targets, limited, positive, split_raw


@dataclass(frozen=True)
class Normal(Numbers):
    r"""Mean and variance, $\mu = r_1,\ \sigma^2 = \mathrm{softplus}(r_2) + \text{floor}$, one pair per target.

    References:
        Nix & Weigend (1994); Lakshminarayanan, Pritzel, Blundell (2017), section 2.2.1.

    Arguments:
        min_variance: the floor under the variance, in the units in which the network is trained (standardised).

    Shape:
        raw `[..., batch, 2 · target]` → batch `[..., batch]`; event `[]` for one target, `[target]` for several.

    Example:
        >>> import torch
        >>> Normal()(torch.tensor([[0.0, 0.5413]]))
        Normal(loc: tensor([0.]), scale: tensor([1.0000]))
    """

    min_variance: float = 1e-6

    def __call__(self, raw: Tensor) -> td.Distribution:
        mean, spread = split_raw(self, raw)
        return for_targets(td.Normal, limited(mean), (F.softplus(spread.contiguous()) + self.min_variance).sqrt())


@dataclass(frozen=True)
class Laplace(Numbers):
    r"""Median $\mu = r_1$ and scale $b = \mathrm{softplus}(r_2) + \text{floor}$ of $p(y) = e^{-|y - \mu|/b}/(2b)$.

    Its log-likelihood is the absolute error.

    Arguments:
        min_scale: the floor under the scale, in the units in which the network is trained (standardised).

    Shape:
        raw `[..., batch, 2 · target]` → batch `[..., batch]`; event `[]` for one target, `[target]` for several.

    Example:
        >>> import torch
        >>> Laplace()(torch.tensor([[0.0, 0.5413]]))
        Laplace(loc: tensor([0.]), scale: tensor([1.0010]))
    """

    min_scale: float = 1e-3

    def __call__(self, raw: Tensor) -> td.Distribution:
        loc, spread = split_raw(self, raw)
        return for_targets(families.Laplace, limited(loc), positive(spread, self.min_scale))


MOST_DEGREES = 1000.0


@dataclass(frozen=True)
class StudentT(Numbers):
    r"""Student's t with location $r_1$, scale $\sqrt{\mathrm{softplus}(r_2) + \text{floor}}$ and learned degrees of freedom.

    $\nu = \text{least} + \mathrm{softplus}(r_3)$ (at most 1000, which is nearly a normal), or fixed. The variance is
    finite for ν > 2: with `min_degrees_of_freedom` at 2 or less standard deviations may be infinite, and at 1 or less, where
    there may be no mean, the point prediction is the median.

    References:
        Lange, Little, Taylor (1989); the heavier tails of Lakshminarayanan, Pritzel, Blundell (2017), section 2.2.1.

    Arguments:
        degrees_of_freedom: a number to fix ν, None to learn it.
        min_degrees_of_freedom: ν that is learned stays above it.
        min_variance: the floor under the squared scale, in the units in which the network is trained (standardised).

    Shape:
        raw `[..., batch, 3 · target]`, 2 · target with fixed ν → batch `[..., batch]`; event `[]` or `[target]`.

    Example:
        >>> import torch
        >>> StudentT(degrees_of_freedom=4.0)(torch.tensor([[0.0, 0.5413]]))
        StudentT(df: tensor([4.]), loc: tensor([0.]), scale: tensor([1.0000]))
    """

    degrees_of_freedom: float | None = None
    min_degrees_of_freedom: float = 2.1
    min_variance: float = 1e-6

    def __post_init__(self) -> None:
        check_number("degrees_of_freedom", self.degrees_of_freedom, low=0, above=True, optional=True)
        super().__post_init__()

    @property
    def point(self) -> PointPrediction:  # type: ignore[override]
        least = self.min_degrees_of_freedom if self.degrees_of_freedom is None else self.degrees_of_freedom
        return "mean" if least > 1 else "median"

    def raw_size(self, n_targets: int) -> int:
        return (3 if self.degrees_of_freedom is None else 2) * n_targets

    def __call__(self, raw: Tensor) -> td.Distribution:
        loc, spread, *tail = split_raw(self, raw)
        scale = (F.softplus(spread) + self.min_variance).sqrt()
        return for_targets(families.StudentT, self.degrees(tail[0] if tail else loc), limited(loc), scale)

    def degrees(self, raw: Tensor) -> Tensor:
        """Degrees of freedom by their raw output, or as many as are fixed, shaped like it."""
        if self.degrees_of_freedom is not None:
            return torch.full_like(raw, self.degrees_of_freedom)
        return positive(raw, self.min_degrees_of_freedom, MOST_DEGREES)


MOST_LOGIT = 100.0


@dataclass(frozen=True)
class GaussianMixture(Numbers):
    r"""Several normals, $\sum_k \pi_k\,N(\mu_k, \sigma_k^2)$, for targets with several likely values.

    Weights are $\pi = \mathrm{softmax}(r_1)$, means $\mu = r_2$, variances $\mathrm{softplus}(r_3) + \text{floor}$.

    References:
        Bishop (1994).

    Arguments:
        k: how many normals.
        min_variance: the floor under their variances, in the units in which the network is trained (standardised).

    Shape:
        raw `[..., batch, 3 · k · target]` → batch `[..., batch]`; event `[]` for one target, `[target]` for several.

    Example:
        >>> import torch
        >>> GaussianMixture(2)(torch.tensor([[0.0, 0.0, -1.0, 1.0, 0.5413, 0.5413]])).variance
        tensor([2.0001])
    """

    k: int = 3
    min_variance: float = 1e-4

    def __post_init__(self) -> None:
        check_integer("k", self.k, low=1)
        super().__post_init__()

    def raw_size(self, n_targets: int) -> int:
        return 3 * self.k * n_targets

    def __call__(self, raw: Tensor) -> td.Distribution:
        split_raw(self, raw)
        weights, means, spreads = raw.unflatten(-1, (3, self.k, -1)).movedim(-1, -2).unbind(-3)  # [..., target, k]
        parameters = limited(weights, MOST_LOGIT), limited(means), (F.softplus(spreads) + self.min_variance).sqrt()
        return for_targets(_mixture, *parameters, own_dims=1)


def _mixture(logits: Tensor, loc: Tensor, scale: Tensor, validate_args: bool) -> td.Distribution:
    weights = td.Categorical(logits=logits, validate_args=False)
    return families.NormalMixture(weights, td.Normal(loc, scale, validate_args=False), validate_args=False)


@dataclass(frozen=True)
class Quantiles(Numbers):
    r"""Quantiles that never cross: the middle one is $r_1$, the others are $\mathrm{softplus}(r_k) + \text{floor}$ apart.

    They become a distribution by straight lines between them and exponential tails beyond (see `Interpolated`). Train it
    with the scoring rule `pinball`, which looks at these levels alone; `log_score` and `crps` work too. Members are averaged
    as distribution functions.

    References:
        Koenker & Bassett (1978).

    Arguments:
        levels: at least two, increasing, between 0 and 1.
        min_gap: the floor under the distance of neighbours, in the units in which the network is trained (standardised).

    Shape:
        raw `[..., batch, level · target]` → batch `[..., batch]`; event `[]` for one target, `[target]` for several.

    Example:
        >>> Quantiles((0.1, 0.5, 0.9))(torch.tensor([[0.0, 0.5413, 0.5413]])).values
        tensor([[-1.0001,  0.0000,  1.0001]])
    """

    levels: tuple[float, ...] = (0.01, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)
    min_gap: float = 1e-4
    point = "median"
    rule = "pinball"

    def __post_init__(self) -> None:
        object.__setattr__(self, "levels", tuple(self.levels))
        for level in self.levels:
            check_number("levels", level, low=0, high=1, above=True, below=True)
        increasing = len(self.levels) >= 2 and list(self.levels) == sorted(set(self.levels))
        require(increasing, "levels", "at least two, increasing", self.levels)
        super().__post_init__()

    def raw_size(self, n_targets: int) -> int:
        return len(self.levels) * n_targets

    def __call__(self, raw: Tensor) -> td.Distribution:
        middle, *rest = split_raw(self, raw)
        below = (len(self.levels) - 1) // 2
        centre, gaps = limited(middle).unsqueeze(-1), positive(torch.stack(rest, dim=-1), self.min_gap)
        lower = (centre - gaps[..., :below].cumsum(-1)).flip(-1)
        values = torch.cat([lower, centre, centre + gaps[..., below:].cumsum(-1)], dim=-1)  # [..., target, level]
        return for_targets(partial(families.Interpolated, levels=raw.new_tensor(self.levels)), values, own_dims=1)


# Beyond this many units of the target, squares of errors overflow where one target all but tells another.
_LIMIT = 1e10


@dataclass(frozen=True)
class MultivariateNormal(Numbers):
    r"""Means and covariance $LL^\top$ of targets, L triangular with $L_{ii}^2 = \mathrm{softplus}(r) + \text{floor}$.

    With a rank, the covariance is $WW^\top + D$, W with so many columns and D diagonal: far fewer outputs for many targets.

    References:
        Dorta, Vicente, Agapito, Campbell, Simpson (2018).

    Arguments:
        rank: the number of columns of W; None for a full covariance.
        min_variance: the floor under the diagonal, in the units in which the network is trained (standardised).

    Shape:
        raw `[..., batch, d + d(d+1)/2]`, or `[..., batch, d · (2 + rank)]` → batch `[..., batch]`, event `[d]`; for one
        target raw `[..., batch, 2]`, event `[]`.

    Example:
        >>> MultivariateNormal()(torch.zeros(1, 5)).covariance_matrix
        tensor([[[0.6931, 0.0000],
                 [0.0000, 0.6931]]])
    """

    rank: int | None = None
    min_variance: float = 1e-6
    kind = "vectors"

    def __post_init__(self) -> None:
        check_integer("rank", self.rank, low=1, optional=True)
        super().__post_init__()

    def raw_size(self, n_targets: int) -> int:
        if n_targets == 1:
            return 2
        return n_targets * (2 + self.rank) if self.rank else n_targets + n_targets * (n_targets + 1) // 2

    def __call__(self, raw: Tensor) -> td.Distribution:
        possible = [n for n in range(1, raw.shape[-1] + 1) if self.raw_size(n) == raw.shape[-1]]
        if not possible:
            raise ValueError(f"`raw` must have `raw_size(n_targets)` outputs for {self}, got {raw.shape[-1]}")
        n_targets = possible[0]
        loc, spread, rest = raw.split([n_targets, n_targets, raw.shape[-1] - 2 * n_targets], dim=-1)
        loc, variance = limited(loc, _LIMIT), (F.softplus(spread) + self.min_variance)
        if n_targets == 1:
            return td.Normal(loc.squeeze(-1), variance.sqrt().squeeze(-1), validate_args=False)
        if self.rank:
            factor = limited(rest, 1e3).unflatten(-1, (n_targets, self.rank))
            return td.LowRankMultivariateNormal(loc, factor, variance, validate_args=False)
        row, column = torch.tril_indices(n_targets, n_targets, -1, device=raw.device)
        most = 1e3 * variance.sqrt()[..., row]  # a correlation within a millionth of 1
        triangle = torch.diag_embed(variance.sqrt())
        triangle[..., row, column] = torch.maximum(torch.minimum(rest, most), -most)
        return td.MultivariateNormal(loc, scale_tril=triangle, validate_args=False)


@dataclass(frozen=True)
class Point(Numbers):
    r"""All mass on one value, $y = r$: the members of an MSE ensemble, whose spread is the only uncertainty.

    Shape:
        raw `[..., batch, target]` → batch `[..., batch]`; event `[]` for one target, `[target]` for several.

    Example:
        >>> import torch
        >>> Point()(torch.tensor([[3.0]]))
        Delta(loc: tensor([3.]))
    """

    rule = "squared_error"
    n_parameters = 1

    def __call__(self, raw: Tensor) -> td.Distribution:
        return for_targets(families.Delta, raw)


@dataclass(frozen=True)
class Gamma(Numbers):
    r"""Mean $\mathrm{softplus}(r_1)$ and shape $\mathrm{softplus}(r_2)$, each above a floor.

    The standard deviation is the mean divided by the root of the shape. Targets are divided by their mean for training.

    Arguments:
        min_mean, min_shape: the floors under both; shapes are at most 1e6.

    Shape:
        raw `[..., batch, 2 · target]` → batch `[..., batch]`; event `[]` for one target, `[target]` for several.

    Example:
        >>> Gamma()(torch.tensor([[0.5413, 0.5413]])).mean
        tensor([1.0001])
    """

    min_mean: float = 1e-4
    min_shape: float = 1e-2
    scaling = "scale"
    support = td.constraints.positive

    def __call__(self, raw: Tensor) -> td.Distribution:
        centre, form = split_raw(self, raw)
        mean, shape = positive(centre, self.min_mean), positive(form, self.min_shape, 1e6)
        return for_targets(families.Gamma, shape, shape / mean)


# Of logarithms and log-odds; wider bounds would let means overflow.
_MOST_LOG, _MOST_LOG_VARIANCE, _MOST_ODDS_VARIANCE = 30.0, 25.0, 100.0


@dataclass(frozen=True)
class LogNormal(Numbers):
    r"""The logarithm of the target has mean $r_1$ and variance $\mathrm{softplus}(r_2) + \text{floor}$ (at most 25).

    Targets are divided by their mean for training.

    Arguments:
        min_variance: the floor under the variance of the logarithm.

    Shape:
        raw `[..., batch, 2 · target]` → batch `[..., batch]`; event `[]` for one target, `[target]` for several.

    Example:
        >>> LogNormal()(torch.tensor([[0.0, 0.5413]])).mean
        tensor([1.6487])
    """

    min_variance: float = 1e-6
    scaling = "scale"
    support = td.constraints.positive

    def __call__(self, raw: Tensor) -> td.Distribution:
        loc, spread = split_raw(self, raw)
        scale = positive(spread, self.min_variance, _MOST_LOG_VARIANCE).sqrt()
        return for_targets(families.LogNormal, limited(loc, _MOST_LOG), scale)


@dataclass(frozen=True)
class LogitNormal(Numbers):
    r"""The log-odds $\log\frac{y - l}{h - y}$ have mean $r_1$ and variance $\mathrm{softplus}(r_2) + \text{floor}$.

    Arguments:
        low, high: the bounds l and h of the target; targets on a bound are refused, as their density would be 0.
        min_variance: the floor under the variance of the log-odds, which is at most 100.

    Shape:
        raw `[..., batch, 2 · target]` → batch `[..., batch]`; event `[]` for one target, `[target]` for several.

    Example:
        >>> LogitNormal(low=0.0, high=100.0)(torch.tensor([[0.0, 0.5413]])).mean.round(decimals=2)
        tensor([50.])
    """

    low: float = 0.0
    high: float = 1.0
    min_variance: float = 1e-6
    scaling = "none"

    def __post_init__(self) -> None:
        check_number("low", self.low)
        check_number("high", self.high)
        require(self.low < self.high, "high", f"more than `low`, {self.low}", self.high)
        super().__post_init__()

    @property
    def support(self) -> td.constraints.Constraint:  # type: ignore[override]
        return families.OpenInterval(self.low, self.high)  # type: ignore[no-untyped-call]

    def __call__(self, raw: Tensor) -> td.Distribution:
        loc, spread = split_raw(self, raw)
        scale = positive(spread, self.min_variance, _MOST_ODDS_VARIANCE).sqrt()
        bounds = (torch.full_like(loc, bound) for bound in (self.low, self.high))
        return for_targets(families.LogitNormal, limited(loc, _MOST_LOG), scale, *bounds)
