"""Class probabilities by softmax."""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor
from torch.distributions import Categorical as TorchCategorical


@dataclass(frozen=True)
class Categorical:
    r"""Class probabilities $p_k = \exp r_k / \sum_j \exp r_j$.

    Shape:
        raw `[..., batch, class]` → batch `[..., batch]`.

    Example:
        >>> import torch
        >>> Categorical()(torch.zeros(1, 4)).probs
        tensor([[0.2500, 0.2500, 0.2500, 0.2500]])
    """

    discrete: ClassVar[bool] = True

    def raw_size(self, n_targets: int) -> int:
        return n_targets

    def __call__(self, raw: Tensor) -> TorchCategorical:
        return TorchCategorical(logits=raw, validate_args=False)
