"""Where each run of a training stands, and what is kept of it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from deep_ensembles.members import Members, copy_runs


class Standing:
    """A few numbers per run, and each run as it would be returned if training stopped now.

    What is kept is also where a run that diverged starts again.

    Arguments:
        members: the networks of all runs, as they start.
        max_epochs: how many epochs there may be.
    """

    def __init__(self, members: Members, max_epochs: int) -> None:
        n = len(members)
        self.epoch, self.updates = np.zeros(n, dtype=np.int64), np.zeros(n, dtype=np.int64)
        self.restarts, self.stale = np.zeros(n, dtype=np.int64), np.zeros(n, dtype=np.int64)
        self.best = np.full(n, np.inf)
        self.history = np.full((2, n, max_epochs), np.nan)
        self.parameters = members.parameters.copy()
        self.buffers = {name: tensor.clone() for name, tensor in members.buffers.items()}

    def end_epoch(
        self, runs: Sequence[int], finite: np.ndarray, losses: np.ndarray, scores: np.ndarray, stopping: np.ndarray
    ) -> np.ndarray:
        """Note the epoch of the runs that are `finite`; says which of them are now better than what is kept.

        Arguments:
            losses, scores: on training rows, and on held-out rows where `stopping`.
        """
        better = finite & (~stopping | (scores < self.best[runs]))
        self.best[runs] = np.where(better & stopping, scores, self.best[runs])
        self.stale[runs] = np.where(better, 0, self.stale[runs] + finite)
        good = np.asarray(runs)[finite]
        self.history[:, good, self.epoch[good]] = losses[finite], scores[finite]
        self.epoch[good] += 1
        return better

    def keep(self, members: Members, runs: Sequence[int], better: np.ndarray) -> None:
        """From now on the better ones of the runs, whose networks `members` are, would be returned as they are."""
        if better.all() and len(runs) == len(self.epoch):
            self.parameters.flat.copy_(members.parameters.flat)
            for name, tensor in members.buffers.items():
                self.buffers[name].copy_(tensor)
            return
        pairs = [(i, runs[i]) for i in np.flatnonzero(better).tolist()]
        copy_runs(members.parameters.views, self.parameters.views, pairs)
        copy_runs(members.buffers, self.buffers, pairs)

    def latest_score(self) -> float:
        """The mean over runs of the last score: held-out where there is one, else on training rows."""
        last = self.history[:, np.arange(len(self.epoch)), np.maximum(0, self.epoch - 1)]
        return float(np.where(np.isnan(last[1]), last[0], last[1]).mean())

    def tensors(self) -> dict[str, Tensor]:
        """All of it, as the tensors themselves."""
        arrays = ("epoch", "updates", "restarts", "stale", "best", "history")
        named = {name: torch.from_numpy(getattr(self, name)) for name in arrays}
        kept = {f"kept buffer {name}": tensor for name, tensor in self.buffers.items()}
        return named | kept | {"kept": self.parameters.flat}
