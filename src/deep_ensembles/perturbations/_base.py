"""What a perturbation promises, and how far two predictions are apart."""

from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

import torch
from torch import Tensor
from torch.distributions import Distribution, kl_divergence

from deep_ensembles._random import Generators, seeded
from deep_ensembles.distributions import indexed

_DRAWS = 16


# The loss of every sample, `[run, batch]`, as a function of the inputs, `[run, batch, *features]`, targets held fixed. It
# may have a method `gradient(inputs)` when it knows the gradient, up to a factor > 0 for each sample, more cheaply than by
# differentiating.
Loss = Callable[[Tensor], Tensor]
# The predicted distribution, of batch `[run, batch]`, as a function of the inputs.
Predict = Callable[[Tensor], Distribution]


class Perturbation(Protocol):
    """Moves inputs by at most ε times the scale of each input dimension.

    One may say `uses_gradient = False` if it never looks at the gradient, `uses_randomness = False` if it draws no random
    numbers, `uses_autograd = False` if it takes gradients only by `input_gradient`; each saves time. One that says
    `needs_target = False` smooths: x′ costs the divergence of its prediction from that for x, times its `weight`, instead of
    ℓ(x′, y).
    """

    def __call__(self, loss: Loss, predict: Predict, inputs: Tensor, scale: Tensor, generator: Generators, /) -> Tensor:
        """The perturbed inputs, cut off from any graph.

        Arguments:
            loss: what x′ costs as a function of the inputs, per sample, differentiable once.
            predict: the predicted distribution as a function of the inputs, differentiable once.
            inputs: `[run, batch, *features]`.
            scale: the range of each input dimension in the training rows, broadcastable to the inputs.
            generator: one torch generator, or one per run, for perturbations that draw random numbers.
        """


def input_gradient(loss: Loss, inputs: Tensor) -> Tensor:
    """The gradient of each sample's loss with respect to its input."""
    if hasattr(loss, "gradient"):
        return loss.gradient(inputs)
    with torch.enable_grad():
        leaf = inputs.detach().requires_grad_()
        return torch.autograd.grad(loss(leaf).sum(), leaf)[0]


class Divergence:
    r"""How far predictions are from a fixed one, $\mathrm{KL}(p\,\|\,q)$ for each sample; least, and flat, where q is p.

    Exact for families that torch knows. For others it is the mean of $\tfrac12 (\log p(y) - \log q(y))^2$ over a few y drawn
    from p and kept: the same to second order, and flat at p whichever y are drawn. Between points, which have no density, it
    is the squared distance, averaged over targets.

    Arguments:
        fixed: p, without a graph.
        generator: for y: one torch generator, or one per run.

    Example:
        >>> from torch.distributions import Normal
        >>> Divergence(Normal(torch.zeros(1, 1), 1.0))(Normal(torch.full((1, 1), 0.2), 1.0))
        tensor([[0.0200]])
    """

    def __init__(self, fixed: Distribution, generator: Generators = None) -> None:
        self.fixed, self.generator = fixed, generator
        self._known: tuple[Tensor, Tensor] | None = None

    def __call__(self, other: Distribution) -> Tensor:
        with suppress(NotImplementedError):
            return kl_divergence(self.fixed, other)
        with suppress(NotImplementedError):
            if self._known is None:
                values = _draws(self.fixed, self.generator)
                self._known = values, self.fixed.log_prob(values)
            values, logs = self._known
            return (other.log_prob(values) - logs).square().mean(0) / 2
        distance = (other.mean - self.fixed.mean).square()
        return distance.reshape(*other.batch_shape, -1).mean(-1)


def _draws(distribution: Distribution, generator: Generators) -> Tensor:
    """A few values of each sample; with one generator per run, those of a run do not depend on the others."""
    if generator is None or isinstance(generator, torch.Generator):
        device = None if generator is None else generator.device
        with seeded(int(torch.randint(2**62, (), generator=generator, device=device)), device):
            return distribution.sample(torch.Size((_DRAWS,)))
    runs = (indexed(distribution, slice(r, r + 1)) for r in range(len(generator)))
    return torch.cat([_draws(run, of_run) for run, of_run in zip(runs, generator, strict=True)], dim=1)
