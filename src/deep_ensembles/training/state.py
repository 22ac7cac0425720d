"""Per-run training state: epoch, best score, best weights."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from deep_ensembles.members import FlatStack, Members, copy_runs


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
        self.held_out: dict[int, Tensor] = {}
        self.epoch, self.updates, self.restarts, self.epochs_since_best = np.zeros((4, n), dtype=np.int64)
        self.best_score = np.full(n, np.inf)
        self.history = np.full((2, n, max_epochs), np.nan)
        self.best_parameters = FlatStack(members.parameters.views)
        self.best_buffers = {name: tensor.clone() for name, tensor in members.buffers.items()}

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
        copy_runs(members.parameters.views, self.best_parameters.views, pairs)
        copy_runs(members.buffers, self.best_buffers, pairs)

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
        buffers = {f"best buffer {name}": tensor for name, tensor in self.best_buffers.items()}
        held_out = {f"held out {run}": raw for run, raw in self.held_out.items()}
        return named | buffers | held_out | {"best parameters": self.best_parameters.flat}
