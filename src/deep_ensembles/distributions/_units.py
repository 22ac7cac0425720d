"""The same distribution in other units: shifted, scaled, or both."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from torch import Tensor
from torch import distributions as td
from torch.distributions import Distribution, Independent, MixtureSameFamily

from deep_ensembles.distributions._structure import arguments_of, bounds, is_whole, rebuilt

Scaling = Literal["location-scale", "scale", "none"]


def rescaled(distribution: Distribution, shift: Tensor, scale: Tensor) -> Distribution:
    r"""The distribution of $\text{shift} + \text{scale}\cdot y$ for $y$ distributed as given, whatever the family.

    A family that stays itself when units change gets other parameters; any other is wrapped as `Scaled`.

    Arguments:
        distribution: batch `[member, batch]`, event `[]` or `[target]`.
        shift, scale: broadcastable to the targets, in the dtype that the result should have.

    Example:
        >>> import torch
        >>> from torch.distributions import Normal
        >>> celsius = Normal(torch.tensor([0.0]), torch.tensor([1.0]))
        >>> rescaled(celsius, torch.tensor(32.0), torch.tensor(1.8))
        Normal(loc: tensor([32.]), scale: tensor([1.8000]))
    """
    if hasattr(distribution, "rescaled"):
        return distribution.rescaled(shift, scale)
    kind: Any = type(distribution)
    if isinstance(distribution, Independent):
        inner = rescaled(distribution.base_dist, shift, scale)
        return kind(inner, distribution.reinterpreted_batch_ndims, validate_args=False)
    if isinstance(distribution, MixtureSameFamily) and not distribution.event_shape:
        components = rescaled(distribution.component_distribution, shift.unsqueeze(-1), scale.unsqueeze(-1))
        weights = rebuilt(distribution.mixture_distribution, lambda logits: logits.to(scale.dtype))
        return kind(weights, components, validate_args=False)
    scaling, changes = _change_of_units(distribution)
    if not changes or (scaling == "scale" and bool((shift != 0).any())):
        return Scaled(distribution, shift, scale)
    arguments = {name: value.to(scale.dtype) for name, value in arguments_of(distribution).items()}
    changed = {name: change(arguments[name], shift, scale) for name, change in changes.items()}
    return kind(**arguments | changed, validate_args=False)


_Change = Callable[[Tensor, Tensor, Tensor], Tensor]  # of a parameter, by shift and scale


def _moved(old: Tensor, shift: Tensor, scale: Tensor) -> Tensor:
    return shift + scale * old


def _stretched(old: Tensor, shift: Tensor, scale: Tensor) -> Tensor:
    return scale * old


def _stretched_rows(old: Tensor, shift: Tensor, scale: Tensor) -> Tensor:
    return scale.unsqueeze(-1) * old


# By family: which changes of units it survives as itself, and what becomes of its parameters.
_UNITS: dict[type[Distribution], tuple[Scaling, dict[str, _Change]]] = {
    **dict.fromkeys((td.Normal, td.Laplace, td.StudentT, td.Cauchy, td.Gumbel),
                    ("location-scale", {"loc": _moved, "scale": _stretched})),
    td.Uniform: ("location-scale", {"low": _moved, "high": _moved}),
    td.MultivariateNormal: ("location-scale", {"loc": _moved, "scale_tril": _stretched_rows}),
    td.LowRankMultivariateNormal: ("location-scale", {
        "loc": _moved, "cov_factor": _stretched_rows, "cov_diag": lambda old, shift, scale: scale.square() * old}),
    td.LogNormal: ("scale", {"loc": lambda old, shift, scale: old + scale.log()}),
    **dict.fromkeys((td.Gamma, td.Exponential), ("scale", {"rate": lambda old, shift, scale: old / scale})),
    td.InverseGamma: ("scale", {"rate": _stretched}),
    **dict.fromkeys((td.Weibull, td.HalfNormal, td.HalfCauchy, td.Pareto), ("scale", {"scale": _stretched})),
    **dict.fromkeys((td.Poisson, td.NegativeBinomial, td.Geometric, td.Binomial, td.Bernoulli, td.Categorical, td.Beta,
                     td.Kumaraswamy, td.ContinuousBernoulli), ("none", {})),
}  # fmt: skip


def _change_of_units(distribution: Distribution) -> tuple[Scaling | None, dict[str, _Change]]:
    for kind in type(distribution).__mro__:
        takes_the_same = getattr(kind, "arg_constraints", None) is type(distribution).arg_constraints
        if kind in _UNITS and takes_the_same:
            return _UNITS[kind]
    return None, {}


def scaling_of(distribution: Distribution) -> Scaling | None:
    """How the targets of a family are brought to a common scale, without a word from its head; None if that is not known."""
    if isinstance(distribution, Independent):
        return scaling_of(distribution.base_dist)
    if isinstance(distribution, MixtureSameFamily):
        return scaling_of(distribution.component_distribution)
    own: Scaling | None = getattr(distribution, "scaling", None)
    return own or _change_of_units(distribution)[0]


class Scaled(td.TransformedDistribution):
    r"""The distribution of $\text{shift} + \text{scale}\cdot y$, for families that do not stay themselves.

    Arguments:
        base: the distribution of y.
        shift, scale: broadcastable to y; the scale is more than 0.
    """

    def __init__(self, base: Distribution, shift: Tensor, scale: Tensor) -> None:
        self.shift, self.scale = shift, scale
        super().__init__(base, td.AffineTransform(shift, scale), validate_args=False)

    @property
    def support(self) -> td.constraints.Constraint:
        low, high = (self.shift + self.scale * bound for bound in bounds(self.base_dist))
        if is_whole(self.base_dist) or self.event_shape:
            return td.constraints.real
        return td.constraints.interval(low, high)

    def rebuilt(self, change: Callable[[Tensor], Tensor]) -> Scaled:
        shape = self.batch_shape + self.event_shape
        units = (change(unit.expand(shape)) for unit in (self.shift, self.scale))
        return Scaled(rebuilt(self.base_dist, change), *units)

    def rescaled(self, shift: Tensor, scale: Tensor) -> Scaled:
        return Scaled(self.base_dist, shift + scale * self.shift, scale * self.scale)

    @property
    def mean(self) -> Tensor:
        return self.shift + self.scale * self.base_dist.mean

    @property
    def variance(self) -> Tensor:
        return self.scale.square() * self.base_dist.variance

    def entropy(self) -> Tensor:
        volume = self.scale.log()
        return self.base_dist.entropy() + (volume.sum(-1) if self.event_shape else volume)
