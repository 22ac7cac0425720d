"""More members of an ensemble that is there: how it was trained, and for how long members are added."""

import hashlib
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from deep_ensembles._checks import check_integer, check_number, require
from deep_ensembles.ensemble import Ensemble
from deep_ensembles.training import InMemory, Rows, Run

_STEP = 5  # members that are added at a time: one for each of the usual folds
_KEY_ROWS = 16  # that tell rows from others


class Origin(NamedTuple):
    """How an ensemble was trained, for more members of the same kind, or more epochs of these.

    Arguments:
        task: of `fitting`, without its rows and with the number of folds that there are.
        rows_key: tells its rows from others.
        held_out: see `Trained`.
        state: see `Trained`.
    """

    task: Any
    rows_key: str
    held_out: list[Tensor | None]
    state: dict[str, Tensor]


@dataclass(frozen=True)
class Grow:
    """A number of members that is found while they are trained: some are added as long as that pays.

    With `folds=ComplementaryFolds()`, out-of-fold predictions are scored by the training criterion, and no more members are
    added once the last ones have improved the mean score by less than its standard error. What comes out is what
    `fit_ensemble` gives for that number.

    Arguments:
        at_most: how many members there may be.
        seconds: no more are added where that would take longer in all, going by the last ones.

    Example:
        >>> import torch
        >>> from deep_ensembles import ComplementaryFolds, fit_ensemble
        >>> x = torch.linspace(-1, 1, 200).unsqueeze(1)
        >>> settings = {"max_epochs": 5, "random_state": 0, "folds": ComplementaryFolds()}
        >>> fit_ensemble(lambda: torch.nn.Linear(1, 2), x, 3 * x[:, 0], n_members=Grow(at_most=10), **settings).n_members
        10
    """

    at_most: int = 100
    seconds: float | None = None

    def __post_init__(self) -> None:
        check_integer("at_most", self.at_most, low=1)
        check_number("seconds", self.seconds, low=0, above=True, optional=True)

    def fit(self, task: Any) -> Ensemble:
        """The ensemble for a task of `fitting`.

        Members are added one for each fold at a time, so that every row is predicted by one more that has not seen it.
        """
        folds, end = task.recipe.folds, math.inf if self.seconds is None else time.monotonic() + self.seconds
        is_judged = folds is not None and isinstance(task.rows, InMemory)
        require(is_judged or self.seconds is not None, "folds", "`ComplementaryFolds()` to see whether members pay, of rows "
                "in memory", folds, "or give `Grow` the `seconds`")  # fmt: skip
        step = min(self.at_most, _STEP if folds is None else folds.n_folds)
        start = time.monotonic()
        ensemble = task.ensembles(task.runs(step), step)[0]
        scores, pays = task.out_of_fold_scores(ensemble) if is_judged else np.zeros(1), True
        while pays and ensemble.n_members < self.at_most and 2 * time.monotonic() - start < end:
            start = time.monotonic()
            ensemble = extended(task, ensemble, min(step, self.at_most - ensemble.n_members))
            if is_judged:
                before, scores = scores, task.out_of_fold_scores(ensemble)
                pays = is_better(scores, before)
        return ensemble


def is_better(scores: np.ndarray, others: np.ndarray) -> bool:
    """Whether scores of rows are less than others by more than a standard error."""
    gain = others - scores
    return bool(gain.mean() > gain.std() / len(gain) ** 0.5)


def rows_key(rows: Rows) -> str:
    """A hash of the number of rows and, of those in memory, of some that are evenly spaced."""
    some = rows.read(np.linspace(0, len(rows) - 1, _KEY_ROWS).astype(np.int64)) if isinstance(rows, InMemory) else ()
    known = [values.double().numpy().tobytes() for values in some if values is not None]
    return hashlib.sha256(b"".join([str(len(rows)).encode(), *known])).hexdigest()


def out_of_fold(task: Any, runs: Sequence[Run], held_out: Sequence[Any]) -> tuple[np.ndarray | None, Tensor | None]:
    """As many members that have not seen a row as every row has, `[k, row]`, and what they said of it, `[k, row, raw]`.

    Neither without folds, or where some row has none; no raw outputs where members were not stopped on the rows that they
    held out, else as of the epoch that was best for the other half of these; NaN for rows that are not used.
    """
    if task.recipe.folds is None:
        return None, None
    n_rows = len(task.rows)
    unseen = np.stack([np.isin(np.arange(n_rows), run.rows, invert=True) for run in runs])
    chosen = np.argsort(~unseen, axis=0, kind="stable")[: int(unseen.sum(0).min())]
    if not len(chosen) or any(raw is None for raw in held_out):
        return chosen if len(chosen) else None, None
    raw = held_out[0].new_full((len(runs), n_rows, *held_out[0].shape[1:]), torch.nan)
    for number, run in enumerate(runs):
        raw[number, run.validation] = held_out[number]
    return chosen, raw[torch.from_numpy(chosen), torch.arange(n_rows)]


def extended(task: Any, ensemble: Ensemble, n: int) -> Ensemble:
    """The ensemble with more members; what is known of rows out of fold is put together anew."""
    first, origin = ensemble.n_members, ensemble.origin
    if task.recipe.checkpoint is not None:
        task = replace(task, recipe=replace(task.recipe, checkpoint=task.recipe.checkpoint.numbered(first)))
    runs = task.runs(first + n)
    more = task.ensembles(runs[first:], n)[0].to(ensemble.members.device)
    held_out = origin.held_out + more.origin.held_out
    unseen, raw = out_of_fold(task, runs, held_out)
    parts = {"out_of_fold_members": unseen, "out_of_fold_raw": raw, "network": ensemble.network, "weights": None}
    parts["origin"] = origin._replace(held_out=held_out, state={})
    return replace(Ensemble.joined([ensemble, more], [first, n]), **parts)
