"""What a perturbation promises."""

from typing import Protocol

import torch
from torch import Tensor

from deep_ensembles._random import Generators


class Loss(Protocol):
    """The loss of every sample as a function of the inputs, targets held fixed.

    A loss may have a method `gradient(inputs)` when it knows the gradient more cheaply than by differentiating.
    """

    def __call__(self, inputs: Tensor, /) -> Tensor:
        """Shape: inputs `[run, batch, *features]` → `[run, batch]`."""


class Perturbation(Protocol):
    """Moves inputs by at most ε times the scale of each input dimension.

    One may say `uses_gradient = False` if it never looks at the gradient, `uses_randomness = False` if it draws no random
    numbers, `uses_autograd = False` if it takes gradients only by `input_gradient`; each saves time.
    """

    def __call__(self, loss: Loss, inputs: Tensor, scale: Tensor, generator: Generators, /) -> Tensor:
        """The perturbed inputs, cut off from any graph.

        Arguments:
            loss: the loss per sample as a function of the inputs.
            inputs: `[run, batch, *features]`.
            scale: the range of each input dimension in the training rows, broadcastable to the inputs.
            generator: one torch generator, or one per run, for perturbations that draw random numbers.
        """


def input_gradient(loss: Loss, inputs: Tensor) -> Tensor:
    """The gradient of each sample's loss with respect to its input."""
    known = getattr(loss, "gradient", None)
    if known is not None:
        gradient: Tensor = known(inputs)
        return gradient
    with torch.enable_grad():
        leaf = inputs.detach().requires_grad_()
        return torch.autograd.grad(loss(leaf).sum(), leaf)[0]
