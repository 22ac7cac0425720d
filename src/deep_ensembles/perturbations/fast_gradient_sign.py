"""Adversarial examples by the fast gradient sign method."""

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from deep_ensembles._checks import check_number
from deep_ensembles._random import Generators
from deep_ensembles.perturbations._base import Loss, input_gradient


@dataclass(frozen=True)
class FastGradientSign:
    r"""One step along the sign of the gradient, $x' = x + \epsilon\,s\,\mathrm{sign}(\nabla_x \ell(\theta, x, y))$.

    References:
        Goodfellow, Shlens, Szegedy (2015); Lakshminarayanan, Pritzel, Blundell (2017), section 2.3.

    Arguments:
        epsilon: the step as a share of each input dimension's range *s* in the training rows; the paper's is 1 %.

    Example:
        >>> import torch
        >>> x, scale = torch.tensor([[[1.0, 1.0]]]), torch.tensor([10.0, 200.0])
        >>> FastGradientSign(0.01)(lambda x: x[..., 0] - x[..., 1], None, x, scale, None)
        tensor([[[ 1.1000, -1.0000]]])
    """

    epsilon: float = 0.01
    uses_randomness = False
    uses_autograd = False

    def __post_init__(self) -> None:
        check_number("epsilon", self.epsilon, low=0)

    def __call__(self, loss: Loss, predict: Any, inputs: Tensor, scale: Tensor, generator: Generators = None, /) -> Tensor:
        return inputs.detach().addcmul(input_gradient(loss, inputs).sign(), scale, value=self.epsilon)
