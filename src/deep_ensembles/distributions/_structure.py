"""The parameters of a distribution, and the same distribution with other ones: other rows, precision or units."""

import inspect
import math
from collections.abc import Callable
from functools import cache, partial
from typing import Any, Literal, TypeVar

import torch
from torch import Tensor
from torch import distributions as td

T = TypeVar("T")
Scaling = Literal["location-scale", "scale", "none"]
# Where torch accepts several forms of one parameter, these are not the ones that are kept.
_OTHER_FORMS = {"logits": {"probs"}, "scale_tril": {"covariance_matrix", "precision_matrix"}}


def family(distribution: td.Distribution) -> str:
    """The name of a distribution's family, for messages."""
    if isinstance(distribution, td.Independent):
        return family(distribution.base_dist)
    return type(distribution).__name__


def marginal(distribution: td.Distribution) -> td.Distribution:
    """The distribution of each target by itself."""
    if isinstance(distribution, td.Independent):
        return distribution.base_dist
    if isinstance(distribution, (td.MultivariateNormal, td.LowRankMultivariateNormal)):
        return td.Normal(distribution.loc, distribution.variance.sqrt(), validate_args=False)
    if distribution.event_shape:
        raise TypeError(f"{family(distribution)} does not say how each of its targets is distributed by itself; "
                        "use `log_prob` and `sample`, or `MultivariateNormal`")  # fmt: skip
    return distribution


def parameters(distribution: td.Distribution) -> list[Tensor]:
    """Everything that a distribution is made from."""
    tensors: list[Tensor] = []

    def record(parameter: Tensor) -> Tensor:
        tensors.append(parameter)
        return parameter

    rebuilt(distribution, record)
    return tensors


def rebuilt(distribution: td.Distribution, change: Callable[[Tensor], Tensor]) -> td.Distribution:
    """The same kind of distribution with every parameter changed alike."""
    kind: Any = type(distribution)
    if hasattr(distribution, "rebuilt"):
        return distribution.rebuilt(change)
    if isinstance(distribution, td.Independent):
        changed = rebuilt(distribution.base_dist, change)
        return kind(changed, distribution.reinterpreted_batch_ndims, validate_args=False)
    if isinstance(distribution, td.MixtureSameFamily):
        parts = distribution.mixture_distribution, distribution.component_distribution
        return kind(*(rebuilt(part, change) for part in parts), validate_args=False)
    if kind is td.TransformedDistribution:
        transforms = [_changed(transform, change) for transform in distribution.transforms]  # type: ignore[attr-defined]
        base = rebuilt(distribution.base_dist, change)  # type: ignore[attr-defined]
        return td.TransformedDistribution(base, transforms, validate_args=False)
    arguments = {name: change(value) for name, value in arguments_of(distribution).items()}
    return kind(**arguments, **_settings_of(distribution), validate_args=False)


def arguments_of(distribution: td.Distribution) -> dict[str, Tensor]:
    """The arguments of the constructor by name, in one form where torch accepts several."""
    names = set(distribution.arg_constraints)
    names -= {other for form, others in _OTHER_FORMS.items() if form in names for other in others}
    if not names:
        raise TypeError(f"{family(distribution)} does not name its parameters; give the class `arg_constraints`, "
                        "one entry per argument of its constructor, as torch's distributions have")  # fmt: skip
    return {name: torch.as_tensor(getattr(distribution, name)) for name in sorted(names)}


def _settings_of(distribution: td.Distribution) -> dict[str, Any]:
    """Arguments of the constructor that are the same for every row, such as the number of trials of a multinomial."""
    kind: Any = type(distribution)
    names = _other_arguments(kind, frozenset(distribution.arg_constraints))
    settings = {name: getattr(distribution, name, None) for name in names}
    if any(value is None or (isinstance(value, Tensor) and value.dim() > 0) for value in settings.values()):
        raise TypeError(f"{family(distribution)} cannot be taken apart by rows, as its `arg_constraints` name only some of "
                        "its parameters; give the class a method `rebuilt(change)`")  # fmt: skip
    return settings


@cache
def _other_arguments(kind: Any, parameters: frozenset[str]) -> list[str]:
    """What a constructor takes beside its parameters: arguments without a default, and whole numbers."""
    others = [a for a in inspect.signature(kind).parameters.values() if a.name not in {*parameters, "validate_args"}]
    named = [a for a in others if a.kind is a.POSITIONAL_OR_KEYWORD]
    return [a.name for a in named if a.default is a.empty or isinstance(a.default, int)]


def _changed(transform: td.Transform, change: Callable[[Tensor], Tensor]) -> td.Transform:
    if isinstance(transform, td.ComposeTransform):
        return td.ComposeTransform([_changed(part, change) for part in transform.parts])
    tensors = {name: value for name, value in vars(transform).items() if isinstance(value, Tensor)}
    if not tensors:
        return transform
    if not isinstance(transform, td.AffineTransform):
        raise TypeError(f"a {type(transform).__name__} with tensors cannot be taken apart by rows; "
                        "write the distribution as a class with `arg_constraints`")  # fmt: skip
    shift, scale = (change(unit) if isinstance(unit, Tensor) else unit for unit in (transform.loc, transform.scale))
    return td.AffineTransform(shift, scale)


def indexed(distribution: td.Distribution, index: Any) -> td.Distribution:
    """Index the batch dimensions of a distribution."""
    return rebuilt(distribution, lambda parameter: parameter[index])


def formula_of(distribution: td.Distribution, method: str, table: dict[type, Callable[..., T]]) -> Callable[..., T] | None:
    """A method of the distribution, or what a table says of the nearest of the classes that it is of."""
    known = (partial(table[kind], distribution) for kind in type(distribution).__mro__ if kind in table)
    return getattr(distribution, method) if hasattr(distribution, method) else next(known, None)


def alone(distribution: td.Distribution) -> td.Distribution:
    """A distribution `[*batch]` as the only member of a mixture, `[1, *batch]`."""
    return rebuilt(distribution, lambda parameter: parameter.unsqueeze(0))


def flattened(distribution: td.Distribution, members: Any = slice(None)) -> td.Distribution:
    """A distribution `[member, *batch]` as `[member, row]`, of these members."""
    n_dims = len(distribution.batch_shape)
    return rebuilt(distribution, lambda parameter: parameter[members].unsqueeze(1).flatten(1, n_dims))


def bounds(distribution: td.Distribution) -> tuple[Tensor | float, Tensor | float]:
    """The least and the greatest value that a distribution of one number gives mass to; infinite where there is none."""
    support: Any = distribution.support
    if support is td.constraints.boolean:
        return 0.0, 1.0
    return getattr(support, "lower_bound", -math.inf), getattr(support, "upper_bound", math.inf)


def ends(distribution: td.Distribution, like: Tensor) -> tuple[Tensor, Tensor]:
    """The same for every row, as tensors like this one."""
    low, high = (torch.as_tensor(end).to(like).expand(distribution.batch_shape) for end in bounds(distribution))
    return low, high


def is_whole(distribution: td.Distribution) -> bool:
    """Whether all mass is on whole numbers."""
    return bool(getattr(distribution.support, "is_discrete", False))


# -- other units ------------------------------------------------------------------------------------------------------


def rescaled(distribution: td.Distribution, shift: Tensor, scale: Tensor) -> td.Distribution:
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
    if isinstance(distribution, td.Independent):
        inner = rescaled(distribution.base_dist, shift, scale)
        return kind(inner, distribution.reinterpreted_batch_ndims, validate_args=False)
    if isinstance(distribution, td.MixtureSameFamily) and not distribution.event_shape:
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
_UNITS: dict[type[td.Distribution], tuple[Scaling, dict[str, _Change]]] = {
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


def _change_of_units(distribution: td.Distribution) -> tuple[Scaling | None, dict[str, _Change]]:
    kinds = [kind for kind in type(distribution).__mro__ if kind in _UNITS]
    takes_the_same = kinds and kinds[0].arg_constraints is type(distribution).arg_constraints
    return _UNITS[kinds[0]] if takes_the_same else (None, {})


def scaling_of(distribution: td.Distribution) -> Scaling | None:
    """How the targets of a family are brought to a common scale, without a word from its head; None if that is not known."""
    if isinstance(distribution, td.Independent):
        return scaling_of(distribution.base_dist)
    if isinstance(distribution, td.MixtureSameFamily):
        return scaling_of(distribution.component_distribution)
    own: Scaling | None = getattr(distribution, "scaling", None)
    return own or _change_of_units(distribution)[0]


class Scaled(td.TransformedDistribution):
    r"""The distribution of $\text{shift} + \text{scale}\cdot y$, for families that do not stay themselves.

    Arguments:
        base: the distribution of y.
        shift, scale: broadcastable to y; the scale is more than 0.
    """

    def __init__(self, base: td.Distribution, shift: Tensor, scale: Tensor) -> None:
        self.shift, self.scale = shift, scale
        super().__init__(base, td.AffineTransform(shift, scale), validate_args=False)

    @property
    def support(self) -> td.constraints.Constraint:
        low, high = (self.shift + self.scale * bound for bound in bounds(self.base_dist))
        if is_whole(self.base_dist) or self.event_shape:
            return td.constraints.real
        return td.constraints.interval(low, high)

    def rebuilt(self, change: Callable[[Tensor], Tensor]) -> "Scaled":
        shape = self.batch_shape + self.event_shape
        units = (change(unit.expand(shape)) for unit in (self.shift, self.scale))
        return Scaled(rebuilt(self.base_dist, change), *units)

    @property
    def mean(self) -> Tensor:
        return self.shift + self.scale * self.base_dist.mean

    @property
    def variance(self) -> Tensor:
        return self.scale.square() * self.base_dist.variance
