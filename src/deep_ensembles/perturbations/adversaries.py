"""Adversarial examples: one step uphill or several, random ones as a control, and those that need no target."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from deep_ensembles._checks import check_flag, check_integer, check_number
from deep_ensembles._random import Generators, drawn, random_signs
from deep_ensembles.perturbations._base import Divergence, Loss, Predict, input_gradient


@dataclass(frozen=True)
class _Steps:
    """What takes steps of a share of each input dimension's range, uphill by `input_gradient` or by chance."""

    epsilon: float = 0.01
    uses_autograd = False

    def __post_init__(self) -> None:
        check_number("epsilon", self.epsilon, low=0)


@dataclass(frozen=True)
class FastGradientSign(_Steps):
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

    uses_randomness = False

    def __call__(self, loss: Loss, predict: Any, inputs: Tensor, scale: Tensor, generator: Generators = None, /) -> Tensor:
        return inputs.detach().addcmul(input_gradient(loss, inputs).sign(), scale, value=self.epsilon)


@dataclass(frozen=True)
class RandomSign(_Steps):
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

    uses_gradient = False

    def __call__(self, loss: Any, predict: Any, inputs: Tensor, scale: Tensor, generator: Generators, /) -> Tensor:
        inputs = inputs.detach()
        return inputs.addcmul(random_signs(inputs, generator), scale, value=self.epsilon)


@dataclass(frozen=True)
class ProjectedGradient(_Steps):
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

    steps: int = 5
    step_size: float | None = None
    random_start: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        check_integer("steps", self.steps, low=1)
        check_flag("random_start", self.random_start)
        check_number("step_size", self.step_size, low=0, above=True, optional=True)

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
