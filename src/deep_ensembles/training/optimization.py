"""Learning rate schedules, optimisers, and the stack of parameters, gradients and moments that they update in one call."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

import torch
from torch import Tensor

from deep_ensembles._checks import check_number
from deep_ensembles.members import FlatStack, Members, copy_runs
from deep_ensembles.training.batches import equal_ranges

_AVERAGING_START = 10  # updates after which an average begins to look back further


class Schedule(Protocol):
    """The factor on the learning rate at step `step` of `total`."""

    def __call__(self, step: int, total: int, /) -> float: ...


@dataclass(frozen=True)
class Constant:
    """The same learning rate throughout, as in the paper.

    Example:
        >>> Constant()(7, 10)
        1.0
    """

    def __call__(self, step: int, total: int) -> float:
        return 1.0


@dataclass(frozen=True)
class Cosine:
    r"""A linear warm-up, then half a cosine down, $f + (1 - f)\,\tfrac12 (1 + \cos \pi t)$ for $t$ from 0 to 1.

    References:
        Loshchilov & Hutter (2017).

    Arguments:
        warmup: the share of all steps over which the rate rises to its full value.
        final: the factor *f* at the end.

    Example:
        >>> [round(Cosine(warmup=0.25)(step, 8), 3) for step in range(8)]
        [0.5, 1.0, 1.0, 0.933, 0.75, 0.5, 0.25, 0.067]
    """

    warmup: float = 0.05
    final: float = 0.0

    def __post_init__(self) -> None:
        check_number("warmup", self.warmup, low=0, high=1)
        check_number("final", self.final, low=0, high=1)

    def __call__(self, step: int, total: int) -> float:
        warm = round(self.warmup * total)
        if step < warm:
            return (step + 1) / warm
        through = (step - warm) / max(1, total - warm)
        return self.final + (1 - self.final) * 0.5 * (1 + math.cos(math.pi * min(1.0, through)))


class Optimizer(Protocol):
    """Changes parameters in place, given gradients and two moments that it keeps up to date."""

    def __call__(self, tensors: Sequence[list[Tensor]], step: Tensor, learning_rate: float, weight_decay: float, /) -> None:
        """`tensors` are parameters, gradients, first and second moments; `step` counts from 1."""


@dataclass(frozen=True)
class _FusedAdam:
    """The settings of both kinds of Adam, and the call of torch's kernel for all parameters at once."""

    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8
    kernel: ClassVar[Callable[..., None]]

    def __post_init__(self) -> None:
        check_number("beta1", self.beta1, low=0, high=1, below=True)
        check_number("beta2", self.beta2, low=0, high=1, below=True)
        check_number("epsilon", self.epsilon, low=0, above=True)

    def __call__(self, tensors: Sequence[list[Tensor]], step: Tensor, learning_rate: float, weight_decay: float) -> None:
        rates = {"lr": learning_rate, "beta1": self.beta1, "beta2": self.beta2, "weight_decay": weight_decay}
        steps = [step] * len(tensors[0])
        type(self).kernel(*tensors, [], steps, **rates, eps=self.epsilon, amsgrad=False, maximize=False)


@dataclass(frozen=True)
class Adam(_FusedAdam):
    r"""Adam; weight decay λ is the gradient of $\tfrac{\lambda}{2}\|\theta\|^2$, that is, a Gaussian prior on the weights.

    With N rows and a prior of variance τ², the maximum a posteriori estimate that the paper suggests is λ = 1/(N τ²).

    References:
        Kingma & Ba (2015); Lakshminarayanan, Pritzel, Blundell (2017), section 2.2.1.
    """

    kernel = staticmethod(torch._fused_adam_)


@dataclass(frozen=True)
class AdamW(_FusedAdam):
    """Adam with weight decay apart from the gradient: parameters shrink by learning rate × λ each step.

    References:
        Loshchilov & Hutter (2019).
    """

    kernel = staticmethod(torch._fused_adamw_)


@dataclass(frozen=True)
class UpdateGroup:
    """What an update of a run depends on besides its tensors; consecutive runs of equal values are updated in one call.

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
    """Members with their gradients, the moments that the optimiser keeps of these, and averages of the weights.

    Arguments:
        members: the networks.
        averaging: the number of epochs that weights are averaged over, exponentially; None to keep no averages.
    """

    def __init__(self, members: Members, averaging: float | None = None) -> None:
        self.members, self.averaging = members, averaging
        self.averaged = members if averaging is None else members.select(range(len(members)))
        self.gradients = members.prepare()
        self.first_moment, self.second_moment = self.gradients.zeros_like(), self.gradients.zeros_like()
        self._windows: dict[tuple[int, int], Members] = {}

    def window(self, start: int, stop: int) -> Members:
        """Members start … stop-1, as views."""
        if (start, stop) not in self._windows:
            self._windows[start, stop] = self.members.window(start, stop)
        return self._windows[start, stop]

    def updater(
        self,
        start: int,
        groups: Sequence[UpdateGroup],
        optimizer: Optimizer,
        schedule: Callable[[UpdateGroup, int], float],
        clip_norm: float | None,
    ) -> Callable[[int], None]:
        """A function that makes update *n* of an epoch: clip gradients, then one call of the optimiser per group.

        Arguments:
            groups: of the runs from `start` on.
            schedule: the factor on the learning rate, from group and step.
        """
        updates = [self._update(start + a, start + b, groups[a], optimizer, schedule) for a, b in equal_ranges(groups)]
        gradients = [view[start : start + len(groups)].reshape(len(groups), -1) for view in self.gradients.views.values()]

        def update(step: int) -> None:
            if clip_norm is not None:
                _clip(gradients, clip_norm)
            for update_group in updates:
                update_group(step)

        return update

    def _update(
        self, start: int, stop: int, group: UpdateGroup, optimizer: Optimizer, schedule: Callable[[UpdateGroup, int], float]
    ) -> Callable[[int], None]:
        stacks: tuple[FlatStack, ...] = (self.members.parameters, self.gradients, self.first_moment, self.second_moment)
        if (start, stop) == (0, len(self.members)):
            *tensors, averages = [[stack.flat] for stack in (*stacks, self.averaged.parameters)]
        else:
            whole = (*stacks, self.averaged.parameters)
            *tensors, averages = [[view[start:stop] for view in stack.views.values()] for stack in whole]
        updates = torch.arange(group.updates + 1.0, group.updates + group.steps_per_epoch + 1.0, device=self.members.device)
        counts, n_before = iter(updates), itertools.count(group.updates)

        def update(step: int) -> None:
            optimizer(tensors, next(counts), group.learning_rate * schedule(group, step), group.weight_decay)
            if self.averaging is not None:
                early = _AVERAGING_START / (_AVERAGING_START + next(n_before))
                share = max(1 / (1 + self.averaging * group.steps_per_epoch), early)
                torch._foreach_lerp_(averages, tensors[0], share)

        return update

    def restore(
        self, parameters: Mapping[str, Tensor], buffers: Mapping[str, Tensor], pairs: Sequence[tuple[int, int]]
    ) -> None:
        """Take runs back to a stored state, with fresh moments: pairs of (stored run, run of the stack)."""
        copy_runs(parameters, self.members.parameters.views, pairs)
        copy_runs(buffers, self.members.buffers, pairs)
        if self.averaging is not None:
            copy_runs(parameters, self.averaged.parameters.views, pairs)
        for moment in (self.first_moment, self.second_moment):
            for view in moment.views.values():
                view[[run for _, run in pairs]] = 0.0

    def evaluated(self) -> Members:
        """The networks to judge and to keep: averages where there are any, with the latest running statistics."""
        if self.averaging is not None:
            for name, tensor in self.members.buffers.items():
                self.averaged.buffers[name].copy_(tensor)
        return self.averaged

    def select(self, runs: Sequence[int]) -> Stack:
        """A smaller stack with copies of some runs, moments included."""
        smaller = Stack(self.members.select(runs), self.averaging)
        if self.averaging is not None:
            smaller.averaged.parameters.flat.copy_(self.averaged.parameters.select(runs).flat)
        smaller.first_moment.flat.copy_(self.first_moment.select(runs).flat)
        smaller.second_moment.flat.copy_(self.second_moment.select(runs).flat)
        return smaller

    def tensors(self) -> dict[str, Tensor]:
        """What a checkpoint holds of it, as the tensors themselves."""
        stacks = {"parameters": self.members.parameters, "first moment": self.first_moment}
        stacks["second moment"] = self.second_moment
        stacks |= {} if self.averaging is None else {"averages": self.averaged.parameters}
        named = {f"buffer {name}": tensor for name, tensor in self.members.buffers.items()}
        return {name: stack.flat for name, stack in stacks.items()} | named


def _clip(gradients: list[Tensor], limit: float) -> None:
    """Shorten the gradient of every run, in parts `[run, numbers]`, to a Euclidean norm of at most `limit`."""
    norms = torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(part, dim=1) for part in gradients]), dim=0)
    factor = (limit / (norms + 1e-12)).clamp_max_(1.0).unsqueeze(1)
    torch._foreach_mul_(gradients, [factor] * len(gradients))
