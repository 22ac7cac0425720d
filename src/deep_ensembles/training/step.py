"""One training step, Algorithm 1 of the paper: the gradient of ℓ(x) + ℓ(x′) for a batch of every run."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import torch
from torch import Tensor
from torch.distributions import Distribution

from deep_ensembles._random import Generators, torch_generators
from deep_ensembles.members import Members
from deep_ensembles.perturbations import Divergence, Perturbation
from deep_ensembles.training.data import Rows
from deep_ensembles.training.loss import Criterion


@dataclass(frozen=True)
class Algorithm:
    """What the gradient of a step depends on besides the networks: loss and perturbation.

    Arguments:
        criterion: the loss ℓ per sample.
        perturbation: how x′ is found; none for plain training on ℓ(x).
        unlabelled: more rows for a perturbation that needs no targets; theirs mean nothing.
    """

    criterion: Criterion
    perturbation: Perturbation | None
    unlabelled: Rows | None = None

    @property
    def uses_randomness(self) -> bool:
        """Whether the perturbation draws random numbers."""
        return self.perturbation is not None and getattr(self.perturbation, "uses_randomness", True)

    @property
    def needs_target(self) -> bool:
        """Whether x′ costs ℓ(x′, y), and not the divergence of its prediction from that for x."""
        return getattr(self.perturbation, "needs_target", True)

    def uses_autograd(self, members: Members) -> bool:
        """Whether anything in a step differentiates automatically; a user's own perturbation may."""
        perturbs = self.perturbation is not None and getattr(self.perturbation, "uses_autograd", True)
        return members.uses_autograd or self.criterion.uses_autograd or perturbs or not self.needs_target

    def gradient(
        self,
        members: Members,
        inputs: Tensor,
        targets: Tensor,
        coefficient: Tensor | float,
        scale: Tensor | None,
        seeds: Sequence[Sequence[int]],
        unlabelled: Tensor | None = None,
    ) -> Tensor:
        """Put the gradient into the members' buffer; returns the raw output for x.

        Arguments:
            coefficient: what each sample's loss counts for, a number or `[run, batch]`.
            scale: the range of each input dimension by run, for the perturbation.
            seeds: three per run: dropout for x, dropout for x′, the perturbation.
            unlabelled: as many inputs without targets.
        """
        units = members.training_units()
        if len(units) > 1:
            parts = (inputs, targets, coefficient, scale, seeds, unlabelled)
            return torch.cat([self.gradient(unit, *(_of_member(m, part) for part in parts)) for m, unit in enumerate(units)])
        loss = _Loss(self.criterion, members, seeds[0], targets, coefficient)
        reused = self.perturbation is not None and self.needs_target and getattr(self.perturbation, "uses_gradient", True)
        raw = loss.backward(inputs, input_gradient=reused)
        if self.perturbation is None or scale is None:
            return raw
        generators = torch_generators(seeds[2], inputs.device) if self.uses_randomness else None
        if self.needs_target:
            nearby = self._nearby(loss, inputs, raw, scale, generators)
            replace(loss, seeds=seeds[1]).backward(nearby, accumulate=True)
        else:
            self._smooth(loss, inputs, raw, scale, generators, unlabelled)
        return raw

    def _nearby(self, loss: "_Loss", inputs: Tensor, raw: Tensor, scale: Tensor, generators: Generators) -> Tensor:
        """x′ for x with this raw output; gradients and running statistics stay as they are."""
        assert self.perturbation is not None

        def predict(x: Tensor) -> Distribution:
            return self.criterion.head(raw if x is inputs and not x.requires_grad else loss.raw(x))

        nearby = self.perturbation(loss, predict, inputs, scale, generators)
        loss.restore()
        if nearby.shape != inputs.shape:
            raise ValueError(f"`perturbation` must keep the shape {list(inputs.shape)}, got {list(nearby.shape)}")
        return nearby.detach()

    def _smooth(
        self, loss: "_Loss", inputs: Tensor, raw: Tensor, scale: Tensor, generators: Generators, unlabelled: Tensor | None
    ) -> None:
        """Add the gradient of the divergence between the predictions for x, held fixed, and x′: the mean over all rows.

        Dropout is the same for both, or the divergence would be that of two networks.
        """
        coefficient = loss.coefficient
        if unlabelled is not None:
            if not isinstance(coefficient, float):  # of as many samples again, each of which counts as usual
                coefficient = torch.cat([coefficient, torch.full_like(coefficient, 1 / inputs.shape[1])], 1)
            coefficient = coefficient / 2
            inputs = torch.cat([inputs, unlabelled], 1)
            raw = loss.members.forward(inputs, loss.seeds)
        divergence, weight = Divergence(self.criterion.head(raw), generators), getattr(self.perturbation, "weight", 1.0)
        smoothness = Criterion(self.criterion.head, lambda distribution, _: weight * divergence(distribution))
        smooth = replace(loss, criterion=smoothness, coefficient=coefficient)
        smooth.backward(self._nearby(smooth, inputs, raw, scale, generators), accumulate=True)


def _of_member(m: int, part: Any) -> Any:
    """What belongs to one member, of tensors `[member, …]` and lists of seeds; other things belong to all."""
    if isinstance(part, Tensor):
        return part[m : m + 1]
    return [purpose[m : m + 1] for purpose in part] if isinstance(part, Sequence) else part


@dataclass
class _Loss:
    """The loss of each sample as a function of the inputs, which perturbations may differentiate once.

    What their passes change besides is kept, and put back by `restore`.
    """

    criterion: Criterion
    members: Members
    seeds: Sequence[int]
    targets: Tensor
    coefficient: Tensor | float
    _saved: list[tuple[Tensor, Tensor]] = field(default_factory=list, init=False)
    _last: Tensor | None = field(default=None, init=False)  # inputs of a pass that is not yet differentiated
    _step: tuple[Tensor, Tensor | None] | None = field(default=None, init=False)

    def backward(self, inputs: Tensor, input_gradient: bool = False, accumulate: bool = False) -> Tensor:
        """The training step itself: put the gradient of the weighted loss into the members' buffer; the raw output."""
        raw = self.members.forward(inputs, self.seeds, input_gradient)
        self._step = inputs, self.members.backward(self._raw_gradient(raw), accumulate)
        return raw

    def _raw_gradient(self, raw: Tensor) -> Tensor:
        gradient, factor = self.criterion.raw_gradient(raw, self.targets), self.coefficient
        return gradient.mul_(factor if isinstance(factor, float) else factor.reshape(*factor.shape, *[1] * (raw.dim() - 2)))

    def __call__(self, inputs: Tensor) -> Tensor:
        """Losses `[run, batch]`, differentiable once with respect to the inputs."""
        return self.criterion.losses(self.raw(inputs), self.targets)

    def gradient(self, inputs: Tensor) -> Tensor:
        """The gradient with respect to the inputs; free for the inputs of the training step itself."""
        if self._step is not None and self._step[0] is inputs and self._step[1] is not None:
            return self._step[1]
        inputs = inputs.detach()
        return self.input_gradient(inputs, self._raw_gradient(self.forward(inputs)))

    def raw(self, inputs: Tensor) -> Tensor:
        """Raw outputs `[run, batch, raw]`, differentiable once."""
        return _Differentiable.apply(inputs, self)  # type: ignore[no-untyped-call]

    def forward(self, inputs: Tensor) -> Tensor:
        """A pass that `input_gradient` may follow."""
        if not self._saved:
            self._saved = [(tensor, tensor.clone()) for tensor in self.members.changing_views()]
        self._last = inputs
        return self.members.forward(inputs, self.seeds, input_gradient=True)

    def input_gradient(self, inputs: Tensor, raw_gradient: Tensor) -> Tensor:
        """The gradient with respect to the inputs."""
        if self._last is not inputs:
            self.forward(inputs)
        self._last = None  # members forget a pass once it is differentiated
        return cast(Tensor, self.members.backward(raw_gradient))

    def restore(self) -> None:
        """Put back the parameters' gradients and the running statistics."""
        for tensor, before in self._saved:
            tensor.copy_(before)
        self._saved = []


class _Differentiable(torch.autograd.Function):
    """A forward pass whose gradient is the members' own backward pass."""

    @staticmethod
    def forward(ctx: Any, inputs: Tensor, loss: _Loss) -> Tensor:
        ctx.inputs, ctx.loss = inputs.detach(), loss
        return loss.forward(ctx.inputs)

    @staticmethod
    def backward(ctx: Any, raw_gradient: Tensor) -> tuple[Tensor, None]:
        return ctx.loss.input_gradient(ctx.inputs, raw_gradient), None
