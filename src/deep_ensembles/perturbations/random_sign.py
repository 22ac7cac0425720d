"""Random corners of the ε-box, the control for adversarial training."""

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from deep_ensembles._checks import check_number
from deep_ensembles._random import Generators, random_signs


@dataclass(frozen=True)
class RandomSign:
    r"""A step in a random direction of signs, $x' = x + \epsilon\,s\,u$ with $u \in \{-1, 1\}^D$ uniform.

    References:
        Lakshminarayanan, Pritzel, Blundell (2017), section 3.4 (the control experiment "R").

    Arguments:
        epsilon: the step as a share of each input dimension's range *s* in the training rows.

    Example:
        >>> import torch
        >>> x, scale = torch.zeros(1, 1, 4), torch.tensor([10.0, 10.0, 10.0, 0.0])
        >>> RandomSign(0.1)(None, None, x, scale, torch.Generator().manual_seed(0)).abs()
        tensor([[[1., 1., 1., 0.]]])
    """

    epsilon: float = 0.01
    uses_gradient = False
    uses_autograd = False

    def __post_init__(self) -> None:
        check_number("epsilon", self.epsilon, low=0)

    def __call__(self, loss: Any, predict: Any, inputs: Tensor, scale: Tensor, generator: Generators, /) -> Tensor:
        inputs = inputs.detach()
        return inputs.addcmul(random_signs(inputs, generator), scale, value=self.epsilon)
