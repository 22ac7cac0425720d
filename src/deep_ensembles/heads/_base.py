"""What a head promises, and what is known of the targets of a head that does not say."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Protocol, get_args, runtime_checkable

import torch
from torch import Tensor
from torch.distributions import Distribution, Independent, constraints
from torch.nn import functional as F

from deep_ensembles._checks import check_number, require
from deep_ensembles.distributions import Scaling, marginal, parameters, scaling_of
from deep_ensembles.mixture import Kind, kind_of

HeadFunction = Callable[[Tensor], Distribution]
PointPrediction = Literal["mean", "median", "mode"]
# Beyond this many units of the target, squares of errors over the least variance overflow in float32.
LIMIT = 1e13
# Counts are between a millionth and a billion on average: beyond, sums over them would take for ever.
LOG_LIMIT = (-14.0, 21.0)


@runtime_checkable
class Head(Protocol):
    """Turns raw network outputs `[..., batch, raw]` into a distribution with batch shape `[..., batch]`.

    Beside that it says what it needs, as attributes:

    - `kind`: what targets are: "numbers", "counts" (whole numbers ≥ 0), "classes" (0 … K-1), "labels" (each there or not),
      or "vectors" (numbers that depend on one another);
    - `scaling`: how the network sees them: "location-scale" (mean 0, deviation 1), "scale" (mean 1), or "none";
    - `support`: the values that a target may take, as one of `torch.distributions.constraints`;
    - `point`: the point prediction: "mean", "median" or "mode";
    - `rule`: the name of the scoring rule that it is trained with unless another is given: "log_score", "pinball", …

    A class that names `Head` as its base has what most heads for numbers need.
    """

    kind: Kind = "numbers"
    scaling: Scaling = "location-scale"
    support: constraints.Constraint = constraints.real
    point: PointPrediction = "mean"
    rule: str = "log_score"

    def raw_size(self, n_targets: int) -> int:
        """How many raw outputs a network needs for `n_targets` numbers, labels or classes."""

    def __call__(self, raw: Tensor) -> Distribution:
        """The predictive distribution of a raw output."""


class Numbers(Head):
    """A head whose family has as many parameters for each target, some of them with a floor."""

    n_parameters: ClassVar[int] = 2  # of the family, for each target

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if name.startswith("min_"):
                check_number(name, value, low=0, above=True)

    def raw_size(self, n_targets: int) -> int:
        """How many raw outputs a network needs."""
        return self.n_parameters * n_targets


class Counts(Numbers):
    """What heads for counts need."""

    kind: Kind = "counts"
    scaling: Scaling = "none"
    support: constraints.Constraint = constraints.nonnegative_integer

    def starting_at(self, mean: float) -> Any:
        """The same with an offset for this mean count, to the nearest whole logarithm, unless it has one already."""
        known = getattr(self, "offset", 0.0)
        return self if known is not None else replace(self, offset=float(round(math.log(max(mean, 1.0)))))  # type: ignore[type-var]


class Classes(Counts):
    """What heads for classes need."""

    kind: Kind = "classes"
    point: PointPrediction = "mode"
    n_parameters: ClassVar[int] = 1


@dataclass(frozen=True)
class TargetNeeds:
    """What a head says of its targets, or what its distribution tells where it does not; see `Head`."""

    kind: Kind
    scaling: Scaling | None
    support: Any
    point: PointPrediction

    @classmethod
    def of(cls, head: Any, distribution: Distribution) -> "TargetNeeds":
        """Of a head that gave this distribution; the scaling is None where nobody knows it."""
        parameters(distribution)  # can be taken apart by rows, or says why not
        kind = getattr(head, "kind", None) or kind_of(distribution)
        usual: PointPrediction = "mode" if kind in ("classes", "labels") else "mean"
        needs = cls(
            kind=kind,
            scaling=getattr(head, "scaling", None) or scaling_of(distribution),
            support=getattr(head, "support", None) or _support_of(distribution),
            point=getattr(head, "point", None) or usual,
        )
        points = (usual, "median") if kind != "labels" else (usual,)
        for name, known in (("kind", get_args(Kind)), ("scaling", (*get_args(Scaling), None)), ("point", points)):
            value = getattr(needs, name)
            require(value in known, f"head.{name}", f"one of {', '.join(map(repr, known))}", value)
        bounded = kind == "numbers" and hasattr(_support_of(distribution), "lower_bound")
        require(not (bounded and needs.scaling == "location-scale"), "head.scaling", 'one of "scale" or "none" where values '
                "have a bound", needs.scaling)  # fmt: skip
        return needs


def _support_of(distribution: Distribution) -> Any:
    """Of one target, if it is the same for every row; else of any number."""
    try:
        support: Any = marginal(distribution).support
    except TypeError:
        return constraints.real
    return constraints.real if any(isinstance(bound, Tensor) for bound in vars(support).values()) else support


def split_raw(head: Any, raw: Tensor) -> Sequence[Tensor]:
    """The raw outputs of each parameter, `[..., batch, target]`; the first ones are all targets' first parameter."""
    n_parameters = head.raw_size(1)
    if raw.shape[-1] == 0 or raw.shape[-1] % n_parameters:
        raise ValueError(f"`raw` must have {n_parameters} outputs per target for {type(head).__name__}, "
                         f"got {raw.shape[-1]}; give the network `head.raw_size(n_targets)` outputs")  # fmt: skip
    return raw.chunk(n_parameters, dim=-1)


def for_targets(make: Callable[..., Distribution], *parameters: Tensor, own_dims: int = 0) -> Distribution:
    """One distribution per row of parameters `[..., batch, target, *own]`: of one number, or of several independent ones."""
    dim = -1 - own_dims
    if parameters[0].shape[dim] == 1:
        return make(*(parameter.squeeze(dim) for parameter in parameters), validate_args=False)
    return Independent(make(*parameters, validate_args=False), 1, validate_args=False)


def limited(raw: Tensor, limit: float = LIMIT) -> Tensor:
    """A raw output kept within what can be computed with."""
    limit = min(limit, torch.finfo(raw.dtype).max)
    return raw.clamp(-limit, limit)


def positive(raw: Tensor, least: float, most: float = LIMIT) -> Tensor:
    """softplus(raw) + least, at most so much."""
    return (F.softplus(raw) + least).clamp_max(min(most, torch.finfo(raw.dtype).max))
