"""A mean and nothing else, for networks trained on squared error."""

from dataclasses import dataclass

from torch import Tensor
from torch.distributions import Distribution

from deep_ensembles.distributions import Delta
from deep_ensembles.heads._base import Numbers, for_targets


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

    def __call__(self, raw: Tensor) -> Distribution:
        return for_targets(Delta, raw)
