"""Lists of runs → trained members, cut into pieces that are trained wherever an execution says."""

import math
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import nn

from deep_ensembles._terminal import progress
from deep_ensembles.execution.in_process import Execution, InProcess
from deep_ensembles.execution.processes import Processes
from deep_ensembles.members import concatenated_members
from deep_ensembles.training import Checkpoint, Standardization, Surveyed, Trained, Training, train
from deep_ensembles.training.resources import check_memory, kept_bytes, work_per_row

# Multiplications of a step, of each network and of the stack, from which a larger stack gains little.
_OVERHEAD, _FULL_STEP = 4e5, 1.8e7
_LEAST_WORK = 2e10  # multiplications of a training that is not worth cutting
_PER_SECOND = 4e9  # multiplications, of rows forward and backward
_CHECKPOINT_SECONDS = 10.0  # where the user keeps none


def pieces_of(training: Training) -> list[list[int]]:
    """The numbers of runs, cut into stacks that are trained each by itself: by the runs, never by who trains them.

    Trainings of seconds are one stack, as are rows that are read in blocks for all runs; of the others each piece is
    large enough that a larger one would gain little. Their number is a power of two, which most machines divide evenly.
    """
    (step, work), n = _work(training), len(training.runs)
    whole = work < _LEAST_WORK or isinstance(training.rows, Surveyed) or training.start or training.recipe.resumable
    wanted = 1.0 if whole else n / math.ceil(_FULL_STEP / (step + _OVERHEAD))
    parts = np.array_split(np.arange(n), min(n, 2 ** math.ceil(math.log2(max(1.0, wanted)))))
    return [part.tolist() for part in parts]


def _n_parameters(training: Training) -> int:
    """Of one network, as far as they have sizes before training."""
    parameters = [parameter for network in training.build.first for parameter in network.parameters()]
    return sum(parameter.numel() for parameter in parameters if not nn.parameter.is_lazy(parameter))


def _work(training: Training) -> tuple[float, float]:
    """Multiplications of a step of one network, and of the whole training."""
    row = work_per_row(_n_parameters(training), training.rows.read(training.runs[0].rows[:1])[0])
    n_rows, recipe = [len(run.rows) for run in training.runs], training.recipe
    return float(row * min(recipe.batch_size, max(n_rows))), float(row) * sum(n_rows) * recipe.max_epochs


def train_runs(training: Training, execution: Execution | None = None) -> Trained:
    """Train a list of runs, piece by piece; by default in this process, one piece after another."""
    pieces, recipe = list(enumerate(pieces_of(training))), training.recipe
    where = suited(execution, len(pieces), _work(training)[1])
    at_once = min(where.workers, len(pieces))
    example = training.rows.read(np.arange(1))[0]
    n_numbers = 0 if isinstance(training.rows, Surveyed) else len(training.rows) * example.numel()
    here = at_once if isinstance(where, Processes) else 1  # a cluster has memory of its own
    kept = recipe.batch_size * sum(kept_bytes(network, example) for network in training.build.first)
    check_memory(len(pieces[0][1]) * _n_parameters(training), 4.0 * n_numbers + kept, here)
    if recipe.time_limit is not None:
        recipe = replace(recipe, time_limit=recipe.time_limit / math.ceil(len(pieces) / at_once))
    done, results = dict.fromkeys(range(len(pieces)), 0), dict[int, Trained]()
    with ExitStack() as held:
        if isinstance(where, Processes) and recipe.checkpoint is None:
            folder = held.enter_context(tempfile.TemporaryDirectory())
            recipe = replace(recipe, checkpoint=Checkpoint(f"{folder}/state", every_seconds=_CHECKPOINT_SECONDS))
        n_epochs = recipe.max_epochs * len(pieces)
        update = held.enter_context(progress("training", n_epochs, "epochs", verbose=recipe.verbose))

        def report(piece: tuple[int, Any], epochs: int, note: str | None = None) -> None:
            done[piece[0]] = epochs
            update(completed=sum(done.values()), **({} if note is None else {"note": note}))

        work = partial(_train_piece, replace(training, recipe=recipe))
        for piece, trained in where(work, pieces, report):
            results[piece[0]] = trained
            report(piece, recipe.max_epochs)
    return _joined([results[number] for number, _ in pieces])


def suited(execution: Execution | None, n_pieces: int, work: float) -> Execution:
    """The execution to use for pieces of so many multiplications in all: this process where others do not pay."""
    least = getattr(execution, "least_seconds", 0.0)
    return InProcess() if execution is None or (least and (n_pieces == 1 or work / _PER_SECOND < least)) else execution


def _train_piece(training: Training, piece: tuple[int, list[int]], report: Callable[[int, str], None]) -> Trained:
    (number, runs), recipe = piece, training.recipe
    if recipe.checkpoint is not None and len(runs) < len(training.runs):
        recipe = replace(recipe, checkpoint=recipe.checkpoint.numbered(f"part-{number}"))
    return train(replace(training, runs=[training.runs[run] for run in runs], recipe=recipe), report)


def _joined(parts: Sequence[Trained]) -> Trained:
    """The outcomes of pieces as one."""
    if len(parts) == 1:
        return parts[0]
    held_out = [raw for part in parts for raw in part.held_out]
    units = Standardization.stack([part.standardization for part in parts], torch.cat)
    history = np.concatenate([part.history for part in parts], axis=1)
    return Trained(concatenated_members([part.members for part in parts]), units, history, held_out)
