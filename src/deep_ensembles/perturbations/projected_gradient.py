"""Adversarial examples by several steps uphill inside the ε-box."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from deep_ensembles._checks import check_flag, check_integer, check_number
from deep_ensembles._random import Generators, drawn
from deep_ensembles.perturbations._base import Loss, input_gradient


@dataclass(frozen=True)
class ProjectedGradient:
    r"""Steps along the sign of the gradient, each cut off at the box, $x \leftarrow \mathrm{clip}_{x_0 \pm \epsilon s}(x + a s\,\mathrm{sign} \nabla_x \ell)$.

    A stronger adversary than one step, at the price of a forward and a backward pass for each.

    References:
        Madry, Makelov, Schmidt, Tsipras, Vladu (2018).

    Arguments:
        epsilon: half the width of the box as a share of each input dimension's range *s* in the training rows.
        steps: how many steps.
        step_size: the length *a* of a step, as a share of the range; 2.5 ε / steps by default.
        random_start: start at a random point of the box instead of at x.

    Example:
        >>> x, scale = torch.tensor([[[1.0, 1.0]]]), torch.tensor([10.0, 200.0])
        >>> ProjectedGradient(0.01, random_start=False)(lambda x: x[..., 0] - x[..., 1], None, x, scale, None)
        tensor([[[ 1.1000, -1.0000]]])
    """  # noqa: E501

    epsilon: float = 0.01
    steps: int = 5
    step_size: float | None = None
    random_start: bool = True
    uses_autograd = False

    def __post_init__(self) -> None:
        check_number("epsilon", self.epsilon, low=0)
        check_integer("steps", self.steps, low=1)
        check_flag("random_start", self.random_start)
        if self.step_size is not None:
            check_number("step_size", self.step_size, low=0, above=True)

    @property
    def uses_randomness(self) -> bool:
        return self.random_start

    def __call__(self, loss: Loss, predict: Any, inputs: Tensor, scale: Tensor, generator: Generators, /) -> Tensor:
        step = 2.5 * self.epsilon / self.steps if self.step_size is None else self.step_size
        centre, box = inputs.detach(), self.epsilon * scale
        low, high = centre - box, centre + box
        if self.random_start:
            inputs = centre.addcmul(drawn("uniform_", centre, generator, -1.0, 1.0), box)
        for _ in range(self.steps):
            uphill = input_gradient(loss, inputs).sign()
            inputs = torch.clamp(inputs.detach().addcmul(uphill, scale, value=step), low, high)
        return inputs
