"""Several labels at once, each of which is there or not."""

from dataclasses import dataclass

from torch import Tensor
from torch import distributions as td

from deep_ensembles.heads._base import Classes


@dataclass(frozen=True)
class Bernoulli(Classes):
    r"""The probability of every label, $p_l = \mathrm{sigmoid}(r_l)$; labels are independent given the input.

    Shape:
        raw `[..., batch, label]` → batch `[..., batch]`, event `[label]`.

    Example:
        >>> import torch
        >>> Bernoulli()(torch.zeros(1, 3)).mean
        tensor([[0.5000, 0.5000, 0.5000]])
    """

    kind = "labels"
    support = td.constraints.boolean

    def __call__(self, raw: Tensor) -> td.Distribution:
        return td.Independent(td.Bernoulli(logits=raw, validate_args=False), 1, validate_args=False)
