"""One training step, Algorithm 1 of the paper: the gradient of ℓ(x) + ℓ(x′) for a batch of every run."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx

from deep_ensembles._random import torch_generators
from deep_ensembles.members import Members
from deep_ensembles.perturbations import Perturbation
from deep_ensembles.training.loss import Criterion


@dataclass(frozen=True)
class Algorithm:
    """What the gradient of a step depends on besides the networks: loss and perturbation.

    Arguments:
        criterion: the loss ℓ per sample.
        perturbation: how x′ is found; none for plain training on ℓ(x).
    """

    criterion: Criterion
    perturbation: Perturbation | None

    @property
    def uses_randomness(self) -> bool:
        """Whether the perturbation draws random numbers."""
        return self.perturbation is not None and getattr(self.perturbation, "uses_randomness", True)

    def uses_autograd(self, members: Members) -> bool:
        """Whether anything in a step differentiates automatically; a user's own perturbation may."""
        perturbs = self.perturbation is not None and getattr(self.perturbation, "uses_autograd", True)
        return members.uses_autograd or self.criterion.uses_autograd or perturbs

    def gradient(
        self,
        members: Members,
        inputs: Tensor,
        targets: Tensor,
        coefficient: Tensor | float,
        scale: Tensor | None,
        seeds: Sequence[Sequence[int]],
    ) -> Tensor:
        """Put the gradient into the members' buffer; returns the raw output for x.

        Arguments:
            coefficient: what each sample's loss counts for, a number or `[run, batch]`.
            scale: the range of each input dimension by run, for the perturbation.
            seeds: three per run: dropout for x, dropout for x′, the perturbation.
        """
        units = members.training_units()
        if len(units) > 1:
            return torch.cat([
                self.gradient(
                    member,
                    inputs[m : m + 1],
                    targets[m : m + 1],
                    coefficient if isinstance(coefficient, float) else coefficient[m : m + 1],
                    None if scale is None else scale[m : m + 1],
                    [purpose[m : m + 1] for purpose in seeds],
                )
                for m, member in enumerate(units)
            ])  # fmt: skip
        loss = _Loss(self.criterion, members, targets, coefficient, seeds[0])
        perturb = self.perturbation
        raw = loss.backward(inputs, input_gradient=perturb is not None and getattr(perturb, "uses_gradient", True))
        if perturb is not None and scale is not None:
            generators = torch_generators(seeds[2], inputs.device) if self.uses_randomness else None
            nearby = perturb(loss, inputs, scale, generators)
            if nearby.shape != inputs.shape:
                raise ValueError(f"`perturbation` must keep the shape {list(inputs.shape)}, got {list(nearby.shape)}")
            again = _Loss(self.criterion, members, targets, coefficient, seeds[1])
            again.backward(nearby.detach(), accumulate=True)
        return raw


class _Loss:
    """The loss of each sample as a function of the inputs, for perturbations; keeps the last gradient."""

    def __init__(
        self, criterion: Criterion, members: Members, targets: Tensor, coefficient: Tensor | float, seeds: Sequence[int]
    ) -> None:
        self.criterion, self.members, self.targets, self.seeds = criterion, members, targets, seeds
        self.coefficient = coefficient
        self.last: tuple[Tensor, Tensor | None] | None = None

    def backward(self, inputs: Tensor, input_gradient: bool = False, accumulate: bool = False) -> Tensor:
        """Put the gradient of the weighted loss into the members' buffer; returns the raw output."""
        raw = self.members.forward(inputs, self.seeds, input_gradient)
        gradient, factor = self.criterion.raw_gradient(raw, self.targets), self.coefficient
        gradient.mul_(factor if isinstance(factor, float) else factor.reshape(*factor.shape, *[1] * (raw.dim() - 2)))
        self.last = inputs, self.members.backward(gradient, accumulate)
        return raw

    def gradient(self, inputs: Tensor) -> Tensor:
        """The gradient with respect to the inputs; free for the inputs of the training step itself."""
        if self.last is None or self.last[0] is not inputs or self.last[1] is None:
            saved = [gradient.clone() for gradient in self.members.gradient_views()]
            self.backward(inputs.detach(), input_gradient=True)
            for gradient, before in zip(self.members.gradient_views(), saved, strict=True):
                gradient.copy_(before)
        assert self.last is not None
        assert self.last[1] is not None
        return self.last[1]

    def __call__(self, inputs: Tensor) -> Tensor:
        """Losses `[run, batch]`, differentiable once with respect to the inputs."""
        losses: Tensor = _Differentiable.apply(inputs, self)  # type: ignore[no-untyped-call]
        return losses


class _Differentiable(torch.autograd.Function):
    """A loss whose gradient is the members' own backward pass."""

    @staticmethod
    def forward(ctx: FunctionCtx, inputs: Tensor, loss: _Loss) -> Tensor:
        ctx.save_for_backward(loss.gradient(inputs))
        return loss.criterion.losses(loss.members.forward(inputs.detach(), loss.seeds), loss.targets)

    @staticmethod
    def backward(ctx: FunctionCtx, up: Tensor) -> tuple[Tensor, None]:
        (gradient,) = ctx.saved_tensors  # type: ignore[attr-defined]
        return gradient * up.reshape(*up.shape, *[1] * (gradient.dim() - 2)), None
