"""Adversarial examples that need no target: where the prediction itself changes most."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from deep_ensembles._checks import check_integer, check_number
from deep_ensembles._random import Generators, drawn
from deep_ensembles.perturbations._base import Divergence, Predict, input_gradient

_PROBE = 1e-3  # the length of the step whose divergence is differentiated, in the units of ε


@dataclass(frozen=True)
class VirtualAdversarial:
    r"""One step in the direction that changes the prediction most, $x' = x + \epsilon\,s \circ d$ with $\|d\| = 1$.

    That direction is the first eigenvector of the Hessian of $\mathrm{KL}(p(\cdot|x)\,\|\,p(\cdot|x + s \circ d))$ at d = 0,
    found by power iteration from a random one: each takes one gradient, no second derivative.
    Training adds the divergence between the predictions for x, held fixed, and x′ instead of ℓ(x′, y), so that rows without
    targets help: `fit_ensemble(..., unlabelled=inputs)`.

    References:
        Miyato, Maeda, Koyama, Nakae, Ishii (2015), Distributional smoothing with virtual adversarial training.

    Arguments:
        epsilon: the Euclidean length of the step, each input dimension in units of its range *s* in the training rows.
        power_iterations: more of them find the direction more exactly.
        weight: the factor on the divergence in the training loss.

    Example:
        >>> from torch.distributions import Normal
        >>> x, generator = torch.zeros(1, 1, 2), torch.Generator().manual_seed(0)
        >>> scale, predict = torch.tensor([10.0, 10.0]), lambda x: Normal(3 * x[..., 0], 1.0)
        >>> VirtualAdversarial(0.1)(None, predict, x, scale, generator).abs()
        tensor([[[1., 0.]]])
    """

    epsilon: float = 0.1
    power_iterations: int = 1
    weight: float = 1.0
    needs_target = False

    def __post_init__(self) -> None:
        check_number("epsilon", self.epsilon, low=0)
        check_integer("power_iterations", self.power_iterations, low=1)
        check_number("weight", self.weight, low=0)

    def __call__(self, loss: Any, predict: Predict, inputs: Tensor, scale: Tensor, generator: Generators, /) -> Tensor:
        with torch.no_grad():
            divergence = Divergence(predict(inputs), generator)
        inputs = inputs.detach()
        varies = (scale > 0).to(inputs.dtype)
        direction = _normalized(drawn("normal_", inputs, generator) * varies, torch.zeros_like(inputs))
        for _ in range(self.power_iterations):
            probe = inputs.addcmul(direction, scale, value=_PROBE)
            gradient = input_gradient(lambda x: divergence(predict(x)), probe)
            direction = _normalized(gradient * scale, direction)
        return inputs.addcmul(direction, scale, value=self.epsilon)


def _normalized(vectors: Tensor, otherwise: Tensor) -> Tensor:
    """Vectors `[run, batch, *features]` of length 1; others in place of those that have no direction."""
    features = tuple(range(2, vectors.dim()))
    greatest = vectors.abs().amax(features, keepdim=True)
    vectors = vectors / greatest  # squares must neither under- nor overflow
    unit = vectors / vectors.square().sum(features, keepdim=True).sqrt()
    return torch.where((greatest > 0) & greatest.isfinite(), unit, otherwise)
