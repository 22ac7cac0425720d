"""Algorithm 1 of the paper: the gradient of ℓ(x) + ℓ(x′) for a batch of every run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx

from deep_ensembles._random import torch_generators
from deep_ensembles.members import FlatStack, Members, copy_runs
from deep_ensembles.perturbations import Perturbation
from deep_ensembles.training.batches import alike
from deep_ensembles.training.loss import Criterion
from deep_ensembles.training.optimization import Optimizer


@dataclass(frozen=True)
class Algorithm:
    """Criterion and perturbation, which is all that the gradient of a step depends on besides the networks.

    Arguments:
        criterion: the loss ℓ per sample.
        perturbation: how x′ is found; none for plain training on ℓ(x).
    """

    criterion: Criterion
    perturbation: Perturbation | None

    @property
    def noisy(self) -> bool:
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
                    [own[m : m + 1] for own in seeds],
                )
                for m, member in enumerate(units)
            ])  # fmt: skip
        loss = _Loss(self.criterion, members, targets, coefficient, seeds[0])
        perturb = self.perturbation
        raw = loss.backward(inputs, input_gradient=perturb is not None and getattr(perturb, "uses_gradient", True))
        if perturb is not None and scale is not None:
            generators = torch_generators(seeds[2], inputs.device) if self.noisy else None
            nearby = perturb(loss, inputs, scale, generators)
            if nearby.shape != inputs.shape:
                raise ValueError(f"`perturbation` must keep the shape {list(inputs.shape)}, got {list(nearby.shape)}")
            again = _Loss(self.criterion, members, targets, coefficient, seeds[1])
            again.backward(nearby.detach(), accumulate=True)
        return raw


class _Loss:
    """The loss of each sample as a function of the inputs, for perturbations; remembers the gradient it has seen."""

    def __init__(
        self, criterion: Criterion, members: Members, targets: Tensor, coefficient: Tensor | float, seeds: Sequence[int]
    ) -> None:
        self.criterion, self.members, self.targets, self.seeds = criterion, members, targets, seeds
        self.coefficient = coefficient
        self.seen: tuple[Tensor, Tensor | None] | None = None

    def backward(self, inputs: Tensor, input_gradient: bool = False, accumulate: bool = False) -> Tensor:
        """Put the gradient of the weighted loss into the members' buffer; returns the raw output."""
        raw = self.members.forward(inputs, self.seeds, input_gradient)
        gradient, factor = self.criterion.raw_gradient(raw, self.targets), self.coefficient
        gradient.mul_(factor if isinstance(factor, float) else factor.reshape(*factor.shape, *[1] * (raw.dim() - 2)))
        self.seen = inputs, self.members.backward(gradient, accumulate)
        return raw

    def gradient(self, inputs: Tensor) -> Tensor:
        """The gradient with respect to the inputs; free for the inputs of the training step itself."""
        if self.seen is None or self.seen[0] is not inputs or self.seen[1] is None:
            saved = [gradient.clone() for gradient in self.members.gradient_views()]
            self.backward(inputs.detach(), input_gradient=True)
            for gradient, before in zip(self.members.gradient_views(), saved, strict=True):
                gradient.copy_(before)
        assert self.seen is not None
        assert self.seen[1] is not None
        return self.seen[1]

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


@dataclass(frozen=True)
class Pace:
    """How a run moves: runs of equal pace are updated by one call.

    Arguments:
        learning_rate: before the schedule.
        weight_decay: as the optimiser understands it.
        updates: how many updates its moments have seen.
        epoch: the epoch it is in.
        steps_per_epoch: how many steps an epoch has.
    """

    learning_rate: float
    weight_decay: float
    updates: int
    epoch: int
    steps_per_epoch: int


class Stack:
    """The stack that an optimiser works on."""

    def __init__(self, members: Members) -> None:
        self.members = members
        self.gradients = members.prepare()
        self.first, self.second = self.gradients.zeros_like(), self.gradients.zeros_like()
        self._windows: dict[tuple[int, int], Members] = {}

    def window(self, start: int, stop: int) -> Members:
        """Members start … stop-1, as views."""
        if (start, stop) not in self._windows:
            self._windows[start, stop] = self.members.window(start, stop)
        return self._windows[start, stop]

    def updater(
        self,
        start: int,
        paces: Sequence[Pace],
        optimizer: Optimizer,
        schedule: Callable[[Pace, int], float],
        clip_norm: float | None,
    ) -> Callable[[int], None]:
        """What step *n* of an epoch does to the runs from `start` on: clip, then one call per group of equal pace.

        Arguments:
            schedule: the factor on the learning rate, from pace and step.
        """
        groups = [self._group(start + a, start + b, paces[a], optimizer, schedule) for a, b in alike(paces)]

        def update(step: int) -> None:
            if clip_norm is not None:
                self._clip(start, start + len(paces), clip_norm)
            for group in groups:
                group(step)

        return update

    def _group(
        self, start: int, stop: int, pace: Pace, optimizer: Optimizer, schedule: Callable[[Pace, int], float]
    ) -> Callable[[int], None]:
        stacks: tuple[FlatStack, ...] = (self.members.parameters, self.gradients, self.first, self.second)
        if (start, stop) == (0, len(self.members)):
            tensors = [[stack.flat] for stack in stacks]
        else:
            tensors = [[view[start:stop] for view in stack.views.values()] for stack in stacks]
        updates = torch.arange(pace.updates + 1.0, pace.updates + pace.steps_per_epoch + 1.0, device=self.members.device)
        counts = iter(updates)

        def update(step: int) -> None:
            optimizer(tensors, next(counts), pace.learning_rate * schedule(pace, step), pace.weight_decay)

        return update

    def _clip(self, start: int, stop: int, limit: float) -> None:
        factor = (limit / (self.gradients.norms(start, stop) + 1e-12)).clamp_max(1.0)
        for view in self.gradients.views.values():
            view[start:stop].mul_(factor.reshape(-1, *[1] * (view.dim() - 1)))

    def put_back(
        self, parameters: Mapping[str, Tensor], buffers: Mapping[str, Tensor], pairs: Sequence[tuple[int, int]]
    ) -> None:
        """Take runs of the stack back to stored states, with fresh moments: pairs of (stored run, run of the stack)."""
        copy_runs(parameters, self.members.parameters.views, pairs)
        copy_runs(buffers, self.members.buffers, pairs)
        for moment in (self.first, self.second):
            for view in moment.views.values():
                view[[run for _, run in pairs]] = 0.0

    def select(self, runs: Sequence[int]) -> Stack:
        """A smaller stack with copies of some runs, moments included."""
        smaller = Stack(self.members.select(runs))
        smaller.first.flat.copy_(self.first.select(runs).flat)
        smaller.second.flat.copy_(self.second.select(runs).flat)
        return smaller

    def tensors(self) -> dict[str, Tensor]:
        """All state, as the tensors themselves."""
        stacks = {"parameters": self.members.parameters, "first": self.first, "second": self.second}
        named = {f"buffer {name}": tensor for name, tensor in self.members.buffers.items()}
        return {name: stack.flat for name, stack in stacks.items()} | named
