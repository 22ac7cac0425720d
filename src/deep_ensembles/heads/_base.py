"""What a head promises, and how its distribution comes back to the target's own units."""

from collections.abc import Callable
from typing import Protocol, runtime_checkable

from torch import Tensor
from torch.distributions import Distribution, Independent

HeadFunction = Callable[[Tensor], Distribution]


@runtime_checkable
class Head(Protocol):
    """Turns raw network outputs `[..., batch, raw]` into a distribution with batch shape `[..., batch]`."""

    @property
    def discrete(self) -> bool:
        """Whether targets are classes (0 … K-1) rather than numbers."""

    def raw_size(self, n_targets: int) -> int:
        """How many raw outputs a network needs for `n_targets` numbers or classes."""

    def __call__(self, raw: Tensor) -> Distribution:
        """The predictive distribution of a raw output."""


def rescaled(distribution: Distribution, shift: Tensor, scale: Tensor) -> Distribution:
    r"""The distribution of $\text{shift} + \text{scale}\cdot y$ for $y$ distributed as given.

    Works for every location–scale family of torch: the location is scaled and shifted, the scale is scaled (never
    shifted), other parameters stay.

    Arguments:
        distribution: batch `[member, batch]`, event `[]` or `[target]`.
        shift, scale: broadcastable to the location, in the dtype that the result should have.

    Example:
        >>> import torch
        >>> from torch.distributions import Normal
        >>> celsius = Normal(torch.tensor([0.0]), torch.tensor([1.0]))
        >>> rescaled(celsius, torch.tensor(32.0), torch.tensor(1.8))
        Normal(loc: tensor([32.]), scale: tensor([1.8000]))
    """
    if isinstance(distribution, Independent):
        inner = rescaled(distribution.base_dist, shift, scale)
        return Independent(inner, distribution.reinterpreted_batch_ndims, validate_args=False)
    arguments = {name: getattr(distribution, name) for name in distribution.arg_constraints}
    if "loc" not in arguments:
        kind = type(distribution).__name__
        raise TypeError(f"`head` must give a location–scale distribution to standardise targets, got {kind}; "
                        "pass `standardize_targets=False`")  # fmt: skip
    arguments["loc"] = shift + scale * arguments["loc"]
    if "scale" in arguments:
        arguments["scale"] = scale * arguments["scale"]
    return type(distribution)(**arguments, validate_args=False)
