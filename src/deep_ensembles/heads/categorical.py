"""Class probabilities by softmax."""

from dataclasses import dataclass

from torch import Tensor
from torch import distributions as td

from deep_ensembles.heads._base import Classes


@dataclass(frozen=True)
class Categorical(Classes):
    r"""Class probabilities $p_k = \exp r_k / \sum_j \exp r_j$.

    Shape:
        raw `[..., batch, class]` → batch `[..., batch]`.

    Example:
        >>> import torch
        >>> Categorical()(torch.zeros(1, 4)).probs
        tensor([[0.2500, 0.2500, 0.2500, 0.2500]])
    """

    def __call__(self, raw: Tensor) -> td.Categorical:
        return td.Categorical(logits=raw, validate_args=False)
