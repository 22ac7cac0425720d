"""What changes while runs are trained: the stack of their tensors, and how far each has come with its best weights."""

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from deep_ensembles.members import Members, copy_members
from deep_ensembles.training.batches import equal_ranges
from deep_ensembles.training.recipe import Recipe

_AVERAGING_START = 10  # updates after which an average begins to look back further
_MOMENTS = ("first moment", "second moment")


class UpdateGroup(NamedTuple):
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
        recipe: how they are updated, and whether weights are averaged.
    """

    def __init__(self, members: Members, recipe: Recipe) -> None:
        self.members, self.recipe = members, recipe
        self.averaged = members if recipe.averaging is None else members.select(range(len(members)))
        self.gradients = members.prepare()
        self.stacks = {"parameters": members.parameters} | {name: self.gradients.zeros_like() for name in _MOMENTS}
        self.stacks |= {} if recipe.averaging is None else {"averages": self.averaged.parameters}
        self.window = functools.cache(members.window)  # members start … stop-1, as views

    def updater(self, start: int, groups: Sequence[UpdateGroup]) -> Callable[[int], None]:
        """A function that makes update *n* of an epoch: clip gradients, then one call of the optimiser per group.

        Arguments:
            groups: of the runs from `start` on.
        """
        updates = [self._group_updater(start + a, start + b, groups[a]) for a, b in equal_ranges(groups)]
        if self.recipe.clip_norm is not None:
            views = (view[start : start + len(groups)] for view in self.gradients.views.values())
            gradients = [view.reshape(len(groups), -1) for view in views]
            together = torch.empty_like(torch.cat(gradients, 1))  # new memory in each step would cost more than the norm
            updates.insert(0, functools.partial(_clip, gradients, self.recipe.clip_norm, together))

        def update(step: int) -> None:
            for part in updates:
                part(step)

        return update

    def _group_updater(self, start: int, stop: int, group: UpdateGroup) -> Callable[[int], None]:
        recipe, per_epoch = self.recipe, group.steps_per_epoch
        parameters, *others = self.stacks.values()
        is_whole = (start, stop) == (0, len(self.members))
        tensors = [
            [stack.flat] if is_whole else [view[start:stop] for view in stack.views.values()]
            for stack in (parameters, self.gradients, *others)
        ]
        counts = itertools.count(group.updates)

        def update(step: int) -> None:
            before = next(counts)
            factor = recipe.schedule(group.epoch * per_epoch + step, per_epoch * recipe.max_epochs)
            count = torch.full((), before + 1.0, device=self.members.device)
            recipe.optimizer(tensors[:4], count, group.learning_rate * factor, group.weight_decay)
            if recipe.averaging is not None:
                early = _AVERAGING_START / (_AVERAGING_START + before)
                torch._foreach_lerp_(tensors[4], tensors[0], max(1 / (1 + recipe.averaging * per_epoch), early))

        return update

    def restore(self, stored: Members, pairs: Sequence[tuple[int, int]]) -> None:
        """Take runs back to a stored state, with fresh moments: pairs of (stored run, run of the stack)."""
        for members in (self.members, self.averaged):
            copy_members(stored, members, pairs)
        for view in (view for name in _MOMENTS for view in self.stacks[name].views.values()):
            view[[run for _, run in pairs]] = 0.0

    def evaluated(self) -> Members:
        """The networks to judge and to keep: averages where there are any, with the latest running statistics."""
        for name, tensor in self.members.buffers.items():
            self.averaged.buffers[name].copy_(tensor)
        return self.averaged

    def select(self, runs: Sequence[int]) -> "Stack":
        """A smaller stack with copies of some runs, moments included."""
        smaller = Stack(self.members.select(runs), self.recipe)
        for name, stack in self.stacks.items():
            for part, view in stack.views.items():
                smaller.stacks[name].views[part].copy_(view[list(runs)])
        return smaller

    def tensors(self) -> dict[str, Tensor]:
        """What a checkpoint holds of it, as the tensors themselves."""
        buffers = {f"buffer {name}": tensor for name, tensor in self.members.buffers.items()}
        return {name: stack.flat for name, stack in self.stacks.items()} | buffers


def _clip(gradients: list[Tensor], limit: float, together: Tensor, step: int) -> None:
    """Shorten the gradient of every run, in parts `[run, numbers]`, to a Euclidean norm of at most `limit`."""
    norms = torch.linalg.vector_norm(torch.cat(gradients, 1, out=together), dim=1, keepdim=True)
    if norms.is_cpu and float(norms.max()) <= limit:  # a GPU would have to wait for the answer
        return
    torch._foreach_mul_(gradients, [(limit / norms).clamp_max_(1.0)] * len(gradients))


class TrainingState:
    """Counters, scores and losses of every run, and its best weights: what is returned if training stops now.

    Without early stopping, the best are the latest. They are also where a run that diverged starts again.

    Where a run has two halves of held-out rows, it also keeps what was predicted for each half in the epoch that was best
    for the other: predictions that no choice of an epoch has flattered.

    Arguments:
        members: the networks of all runs, as they start.
        max_epochs: how many epochs there may be.
    """

    def __init__(self, members: Members, max_epochs: int) -> None:
        n = len(members)
        self.best_by_half = np.full((n, 2), np.inf)
        self.held_out: list[Any] = [None] * n
        self.epoch, self.updates, self.restarts, self.epochs_since_best = np.zeros((4, n), dtype=np.int64)
        self.best_score = np.full(n, np.inf)
        self.history = np.full((2, n, max_epochs), np.nan)
        self.best = members.select(range(n))

    def end_epoch(
        self, runs: Sequence[int], finite: np.ndarray, losses: np.ndarray, scores: np.ndarray, stopping: np.ndarray
    ) -> np.ndarray:
        """Count the epoch of the runs that are `finite`; returns which of them are now better than before.

        Arguments:
            losses, scores: on training rows, and on held-out rows where `stopping`.
        """
        better = finite & (~stopping | (scores < self.best_score[runs]))
        self.best_score[runs] = np.where(better & stopping, scores, self.best_score[runs])
        self.epochs_since_best[runs] = np.where(better, 0, self.epochs_since_best[runs] + finite)
        good = np.asarray(runs)[finite]
        self.history[:, good, self.epoch[good]] = losses[finite], scores[finite]
        self.epoch[good] += 1
        return better

    def keep_best(self, members: Members, runs: Sequence[int], better: np.ndarray) -> None:
        """Take over the weights of those runs that are `better`; `members` are the networks of `runs`."""
        is_all = better.all() and len(runs) == len(self.epoch)
        pairs = None if is_all else [(i, runs[i]) for i in np.flatnonzero(better).tolist()]
        copy_members(members, self.best, pairs)

    def keep_held_out(self, run: int, raw: Tensor, scores: Sequence[float], n_first: int) -> None:
        """Take over predictions `[row, …]` of each half of a run's held-out rows where the other half scores best so far."""
        for half, rows in ((0, slice(n_first, None)), (1, slice(0, n_first))):
            if scores[half] < self.best_by_half[run, half]:
                self.best_by_half[run, half] = scores[half]
                self.held_out[run][rows] = raw[rows]

    def latest_score(self) -> float:
        """The mean over runs of the last score: held-out where there is one, else on training rows."""
        last = self.history[:, np.arange(len(self.epoch)), np.maximum(0, self.epoch - 1)]
        return float(np.where(np.isnan(last[1]), last[0], last[1]).mean())

    def tensors(self) -> dict[str, Tensor]:
        """What a checkpoint holds of it, as the tensors themselves."""
        arrays = ("epoch", "updates", "restarts", "epochs_since_best", "best_score", "best_by_half", "history")
        named = {name: torch.from_numpy(getattr(self, name)) for name in arrays}
        buffers = {f"best buffer {name}": tensor for name, tensor in self.best.buffers.items()}
        held_out = {f"held out {run}": raw for run, raw in enumerate(self.held_out) if raw is not None}
        return named | buffers | held_out | {"best parameters": self.best.parameters.flat}
