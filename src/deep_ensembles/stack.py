"""Members under optimisation: parameters, gradients and moments of the runs that are being trained."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from deep_ensembles.members import Members
from deep_ensembles.members.flat import FlatStack, copy_runs
from deep_ensembles.optimizers import Optimizer
from deep_ensembles.segments import alike


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
