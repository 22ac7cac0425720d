"""The one training loop: a list of runs → trained members."""

import itertools
import math
import time
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from deep_ensembles._random import Purpose, stream
from deep_ensembles.members import Members, copy_members
from deep_ensembles.training.batches import Batch, Segment, Steps, batch_sizes, segments
from deep_ensembles.training.checkpoint import CheckpointWriter, postponed_interrupts
from deep_ensembles.training.data import Rows, Seen
from deep_ensembles.training.prepare import Trained, Training, fingerprint, prepare
from deep_ensembles.training.recipe import Run
from deep_ensembles.training.resources import limited_threads, work_per_row
from deep_ensembles.training.state import Stack, TrainingState, UpdateGroup

_CACHED_PARAMETERS = 1_250_000
_EVALUATION_ROWS = 1024
_ORDER_ROWS = 2**16
_PROBE_ROWS = 4
_RESTART_FACTOR = 0.1


class TrainingDiverged(RuntimeError):
    """A member's loss or weights became NaN or infinite, and restarts did not help."""


def train(training: Training, report: Callable[[int, str], None] = lambda done, note: None) -> Trained:
    """Train all runs as one stack.

    Each run's result is what it would be alone: the loss is the sum over runs of the batch mean, optimisation is
    element-wise, and order, initialisation and noise come from the run's own seed.

    Arguments:
        report: called after every epoch with the number of epochs that are done, and how it stands.
    """
    session, recipe = _Session(training), training.recipe
    if training.start is not None:
        session.go_on(training.start)
    session.resume()
    # Where nothing differentiates automatically, torch need not even keep count of changes: an eighth less time.
    by_hand = not training.algorithm.uses_autograd(session.members)
    example = training.rows.read(training.runs[0].rows[:1])[0]
    threads = limited_threads(work_per_row(session.members.parameters.flat.numel(), example) * recipe.batch_size)
    interrupts = postponed_interrupts(session.writer is not None)
    with threads, interrupts as session.interrupted, torch.inference_mode(by_hand), torch.no_grad():
        while session.active:
            session.train_epoch()
            report(session.epochs_done(), f"members {len(session.active)}  score {session.state.latest_score():.4f}")
    return session.result()


class _Session:
    """A training under way: the stack of runs that are still trained, and the state of all."""

    def __init__(self, training: Training) -> None:
        self.members, self.standardization, self.loader, self.unlabelled = prepare(training)
        self.runs, self.algorithm, self.recipe = training.runs, training.algorithm, training.recipe
        recipe, point = training.recipe, training.recipe.checkpoint
        self.writer = None if point is None else CheckpointWriter(point, fingerprint(training, self.members))
        self.interrupted: Callable[[], bool] = lambda: False
        self.end = math.inf if recipe.time_limit is None else time.monotonic() + recipe.time_limit
        self.state = TrainingState(self.members, recipe.max_epochs)
        self.position = 0  # blocks of the current epoch that are done
        unlabelled = 0 if self.unlabelled is None else len(self.unlabelled.rows)
        self._permuted = lru_cache(len(self.runs) * (3 if unlabelled else 1))(partial(_permuted, self.runs, unlabelled))
        self._activate(list(range(len(self.runs))), Stack(self.members, recipe))
        raw = self.members(self._probe)[0, 0].cpu()
        for r, run in enumerate(self.runs):
            if run.n_first_half:
                self.state.held_out[r] = raw.new_zeros(len(run.validation), *raw.shape)

    def _activate(self, active: list[int], stack: Stack) -> None:
        """Train these runs from now on."""
        self.active, self.stack = active, stack
        device = stack.members.device
        # On a CPU, a stack that outgrows the cache is trained part by part; a GPU is given all it can take.
        size = stack.members.parameters.flat.numel() // max(1, len(stack.members))
        self._max_runs = max(1, _CACHED_PARAMETERS // max(1, size)) if device.type == "cpu" else len(self.runs)
        precise = torch.float32 if device.type == "mps" else torch.float64
        self.loss = torch.zeros(len(active), dtype=precise, device=device)  # summed over the rows of the current epoch
        self._early_stopping = np.array([len(self.runs[r].validation) > 0 for r in active], dtype=bool)
        if active:
            index = np.stack([np.resize(self.runs[r].rows, _PROBE_ROWS) for r in active])
            ((self._probe, _, _),) = self.loader.blocks(index, active, [[_PROBE_ROWS]])

    # -- one epoch ------------------------------------------------------------------------------------------------

    def train_epoch(self) -> None:
        """One pass of every active run over its rows, and what is due at the end of an epoch."""
        skip, first_step, first, n_rows = self.position, 0, self.active[0], np.zeros(len(self.active))
        started = time.monotonic()
        # Every epoch that a run is trained counts as one or is undone, so that this is the same number for all.
        readings = self.loader.rows.readings(int(self.state.epoch[first] + self.state.restarts[first]))
        for number, (reading, seen) in enumerate(readings):
            orders = [self._order(r) if seen is None else self._buffer_order(r, number, seen) for r in self.active]
            sizes = [self._batch_sizes(r)[number] for r in self.active]
            for segment in segments([sum(of_run) for of_run in sizes], self.recipe.batch_size, self._max_runs):
                parts = self.loader.group_steps(segment.stop - segment.start, segment.sizes)
                done, parts = parts[:skip], parts[skip:]
                skip -= len(done)
                if parts:
                    self._train_segment(reading, segment.after(done, first_step), orders, parts)
            first_step += len(sizes[0])
            n_rows += [sum(of_run) for of_run in sizes]
            if time.monotonic() >= self.end:
                break
        self._end_epoch(n_rows)
        now = time.monotonic()
        if now + (0.0 if number else now - started) >= self.end:  # one reading is not cut off, so it must fit
            self.active = []

    def _order(self, r: int) -> np.ndarray:
        """The rows of a run in the order of its current epoch; orders are drawn for a few epochs at once."""
        ahead = min(16, max(1, _ORDER_ROWS // len(self.runs[r].rows)))
        number, within = divmod(int(self.state.epoch[r]), ahead)
        return self._permuted(r, Purpose.ORDER, number, ahead)[within]

    def _buffer_order(self, r: int, number: int, seen: Seen) -> np.ndarray:
        """The rows of a run in a buffer in random order; as many as planned, so that some come twice where they are few."""
        run, epoch = self.runs[r], int(self.state.epoch[r])
        order = stream(run.seed, Purpose.ORDER, epoch, number).permutation(seen(run.rows))
        return np.resize(order, self.loader.rows.counts(run.rows)[number])

    def _unlabelled_order(self, r: int, n_unlabelled: int) -> np.ndarray:
        """Rows without targets for a run's current epoch, as many as it has rows; none comes again before all have come."""
        n = len(self.runs[r].rows)
        repeats = math.ceil(n / n_unlabelled)
        number, first = divmod(int(self.state.epoch[r]) * n, repeats * n_unlabelled)
        passes = [self._permuted(r, Purpose.UNLABELLED, part, repeats).ravel() for part in (number, number + 1)]
        return np.concatenate(passes)[first : first + n]

    def _unlabelled(self, segment: Segment, parts: Steps) -> Iterator[Tensor | None]:
        """Inputs without targets for each step, None where there are none."""
        if self.unlabelled is None:
            return itertools.repeat(None)
        runs = self.active[segment.start : segment.stop]
        index = np.stack([self._unlabelled_order(r, len(self.unlabelled.rows))[segment.rows] for r in runs])
        blocks = zip(self.unlabelled.blocks(index, runs, parts), parts, strict=True)
        return (of_step for (inputs, _, _), sizes in blocks for of_step in inputs.split(sizes, 1))

    def _train_segment(self, reading: Rows, segment: Segment, orders: Sequence[np.ndarray], parts: Steps) -> None:
        """Train runs, whose rows of the reading are in these orders, on the rows of a segment, block by block."""
        span, step = slice(segment.start, segment.stop), segment.first_step
        runs, window = self.active[span], self.stack.window(segment.start, segment.stop)
        update = self.stack.updater(segment.start, [self._update_group(r) for r in runs])
        scale, seeds = self._perturbation_scale(runs), self._noise_seeds(runs, window)
        unlabelled = self._unlabelled(segment, parts)
        draws = [(self.runs[r].seed, int(self.state.epoch[r])) for r in runs]
        index = np.stack([order[segment.rows] for order in orders[span]])
        blocks = self.loader.blocks(index, runs, parts, draws, reading)
        for (inputs, targets, weights), sizes in zip(blocks, parts, strict=True):
            raws = []
            for batch in _batches(inputs, targets, weights, sizes):
                raws.append(self.algorithm.gradient(window, *batch, scale, seeds(step), next(unlabelled)))
                update(step)
                step += 1
            losses = self.algorithm.criterion.losses(torch.cat(raws, dim=1), targets)  # each as it was before its step
            losses = losses if weights is None else losses * weights
            self.loss[span] += losses.sum(1, dtype=self.loss.dtype)
            self.state.updates[runs] += len(sizes)
            self.position += 1
            self._save(None)

    def _update_group(self, r: int) -> UpdateGroup:
        run, recipe, state = self.runs[r], self.recipe, self.state
        rate = recipe.learning_rate if run.learning_rate is None else run.learning_rate
        decay = recipe.weight_decay if run.weight_decay is None else run.weight_decay
        rate *= _RESTART_FACTOR ** int(state.restarts[r])
        return UpdateGroup(rate, decay, int(state.updates[r]), int(state.epoch[r]), self._n_steps(r))

    def _batch_sizes(self, r: int) -> list[list[int]]:
        """The sizes of the batches of an epoch, reading by reading."""
        return [self.recipe.batch_sizes(n) for n in self.loader.rows.counts(self.runs[r].rows)]

    def _n_steps(self, r: int) -> int:
        return sum(map(len, self._batch_sizes(r)))

    def _perturbation_scale(self, runs: Sequence[int]) -> Tensor | None:
        ranges = self.standardization.input_range
        if self.algorithm.perturbation is None or ranges is None:
            return None
        factors = [self.runs[r].perturbation_factor for r in runs]
        scale = ranges[list(runs)] * torch.tensor(factors, dtype=ranges.dtype).reshape(-1, *[1] * (ranges.dim() - 1))
        return scale.unsqueeze(1).to(self.stack.members.parameters.flat)

    def _noise_seeds(self, runs: Sequence[int], window: Members) -> Callable[[int], list[list[int]]]:
        """Seeds by step, three per run: dropout for x, dropout for x′, the perturbation."""
        unused = [[0] * len(runs)] * 3
        if not window.traits.needs_seeds and not self.algorithm.uses_randomness:
            return lambda step: unused
        streams = [stream(self.runs[r].seed, Purpose.NOISE, int(self.state.epoch[r])) for r in runs]
        seeds = [s.integers(0, 2**62, (self._n_steps(r), 3)) for r, s in zip(runs, streams, strict=True)]
        return lambda step: np.stack([of_run[step] for of_run in seeds], axis=1).tolist()

    # -- between epochs -------------------------------------------------------------------------------------------

    def _end_epoch(self, n_rows: np.ndarray) -> None:
        """Score every run, keep the best weights, restart what diverged, drop what is finished, write a checkpoint."""
        losses = self.loss.cpu().double().numpy() / n_rows
        scores = self._held_out_scores() if self._early_stopping.any() else np.full(len(self.active), np.nan)
        finite = np.isfinite(losses) & self._finite(probes=bool(np.isnan(scores).any()))
        finite &= np.isfinite(scores) | ~self._early_stopping
        if not finite.all():
            self._restart(np.flatnonzero(~finite).tolist())
        better = self.state.end_epoch(self.active, finite, losses, scores, self._early_stopping)
        self.state.keep_best(self.stack.evaluated(), self.active, better)
        self.position = 0
        self.loss.zero_()
        self._drop_finished()
        self._save(int(self.state.epoch.max()))

    def _finite(self, probes: bool) -> np.ndarray:
        """Whether each active run is finite: its parameters, its buffers, and with `probes` its output for a few rows."""
        members, finite = self.stack.evaluated(), np.ones(len(self.active), dtype=bool)
        tensors = [*([members(self._probe)] if probes else []), *members.buffers.values()]
        for stack in (self.stack.members.parameters, members.parameters):
            tensors += [] if bool(stack.flat.sum().isfinite()) else stack.views.values()  # one sum shows most of the time
        for tensor in tensors:
            finite &= tensor.reshape(len(tensor), -1).isfinite().all(1).cpu().numpy()
        return finite

    def _held_out_scores(self) -> np.ndarray:
        """The mean score of each active run on the rows it holds out; NaN where it holds out none.

        Runs that hold out fewer rows than others see some twice, which do not count: one pass costs less than several.
        """
        loader, members = self.loader, self.stack.evaluated()
        counts = [len(self.runs[r].validation) for r in self.active]
        kept = [self.runs[r].validation if n else self.runs[r].rows for r, n in zip(self.active, counts, strict=True)]
        index = np.stack([np.resize(rows, max(counts)) for rows in kept])
        parts = loader.group_steps(len(counts), batch_sizes(max(counts), _EVALUATION_ROWS))
        found = []
        for inputs, targets, weights in loader.blocks(index, self.active, parts):
            raw = members(inputs)
            losses = self.algorithm.criterion.losses(raw, targets).cpu().double()
            found.append((losses, torch.ones_like(losses) if weights is None else weights.cpu().double(), raw.cpu()))
        whole = [torch.cat(part, 1) for part in zip(*found, strict=True)]
        of_runs = enumerate(zip(self.active, counts, strict=True))
        return np.array([self._held_out_score(r, *(part[i, :n] for part in whole)) for i, (r, n) in of_runs])

    def _held_out_score(self, r: int, losses: Tensor, weights: Tensor, raw: Tensor) -> float:
        """The mean score of a run; the halves of its held-out rows decide which predictions to keep of each other."""
        n_first = self.runs[r].n_first_half
        if n_first:
            halves = (slice(0, n_first), slice(n_first, None))
            scores = [float((losses[half] * weights[half]).sum() / weights[half].sum()) for half in halves]
            self.state.keep_held_out(r, raw, scores, n_first)
        return float((losses * weights).sum() / weights.sum())

    def _restart(self, diverged: list[int]) -> None:
        """Take runs back to their best weights, at a lower learning rate."""
        state = self.state
        for i in diverged:
            r = self.active[i]
            state.restarts[r] += 1
            state.updates[r] = 0
            if state.restarts[r] > self.recipe.max_restarts:
                rate = self._update_group(r).learning_rate / _RESTART_FACTOR
                raise TrainingDiverged(
                    f"member {r} diverged in epoch {int(state.epoch[r]) + 1} (its loss or weights are not finite), and "
                    f"{self.recipe.max_restarts} restarts at lower learning rates, down to {rate:.3g}, did not help; "
                    "lower `learning_rate`, set `clip_norm`, or check the data for extreme values")  # fmt: skip
        self.stack.restore(state.best, [(self.active[i], i) for i in diverged])

    def _drop_finished(self) -> None:
        """Train on with the unfinished runs only, so that the stack shrinks as runs stop."""
        epoch, waited = self.state.epoch[self.active], self.state.epochs_since_best[self.active]
        done = epoch >= self.recipe.max_epochs
        done |= self._early_stopping & (waited >= self.recipe.waits(epoch - waited))
        if done.any():
            remaining = np.flatnonzero(~done).tolist()
            stack = self.stack.select(remaining) if remaining else self.stack
            self._activate([self.active[i] for i in remaining], stack)

    def epochs_done(self) -> int:
        """How far the slowest run that is still trained has come."""
        return int(self.state.epoch[self.active].min()) if self.active else self.recipe.max_epochs

    def result(self) -> Trained:
        """Every run with its best weights."""
        members, kept = self.members, self._resumable_state()
        copy_members(self.state.best, members)
        return Trained(members, self.standardization, self.state.history, self.state.held_out, kept)

    def _resumable_state(self) -> dict[str, Tensor]:
        """What another training needs to go on from here, before the best weights take the place of the last."""
        is_last = len(self.stack.members) == len(self.runs) and not any(len(run.validation) for run in self.runs)
        if not (self.recipe.resumable and is_last):
            return {}
        counters = {name: self.state.tensors()[name] for name in ("epoch", "updates", "restarts")}
        return {name: tensor.clone() for name, tensor in (self.stack.tensors() | counters).items()}

    def go_on(self, start: Trained) -> None:
        """Take over networks, and what the optimiser knew of them if that was kept."""
        self.stack.restore(start.members, [(run, run) for run in self.active])
        for name, tensor in start.state.items():
            self._tensors()[name].copy_(tensor)
        done = start.history.shape[2] if start.state else 0
        self.state.history[:, :, :done] = start.history[:, :, :done]
        self.state.keep_best(self.stack.evaluated(), self.active, np.ones(len(self.active), dtype=bool))

    # -- checkpoints ------------------------------------------------------------------------------------------------

    def _tensors(self) -> dict[str, Tensor]:
        """What a checkpoint holds, as the tensors themselves."""
        return {"loss": self.loss} | self.state.tensors() | (self.stack.tensors() if self.active else {})

    def _save(self, epoch: int | None) -> None:
        """Write a checkpoint where there is one to keep: if it is time to (see `CheckpointWriter.due`), or the last one."""
        interrupted = self.interrupted()
        if self.writer is not None and (interrupted or not self.active or self.writer.due(epoch)):
            self.writer.write(self._tensors(), {"active": self.active, "position": self.position})
        if interrupted:
            raise KeyboardInterrupt

    def resume(self) -> None:
        """Go on from the checkpoint, if there is one to go on from."""
        saved = self.writer.read(self.stack.members.device) if self.writer is not None else None
        if saved is None:
            return
        tensors, facts = saved
        if (active := facts["active"]) != self.active:
            self._activate(active, self.stack.select(active) if active else self.stack)
        self.position = facts["position"]
        for name, tensor in self._tensors().items():
            tensor.copy_(tensors[name])


def _batches(inputs: Tensor, targets: Tensor, weights: Tensor | None, sizes: list[int]) -> Iterator[Batch]:
    """Inputs, targets and the factor that makes a sum of losses the batch's (weighted) mean: the one place."""
    factors: list[Any] = [1.0 / size for size in sizes]
    if weights is not None:
        factors = [of_batch / of_batch.shape[1] for of_batch in weights.split(sizes, 1)]
    return zip(inputs.split(sizes, 1), targets.split(sizes, 1), factors, strict=True)


def _permuted(runs: Sequence[Run], n_unlabelled: int, r: int, purpose: Purpose, number: int, times: int) -> np.ndarray:
    """The rows of a run, or those without targets, in so many random orders `[time, row]`."""
    rows = np.arange(n_unlabelled) if purpose is Purpose.UNLABELLED else runs[r].rows
    return stream(runs[r].seed, purpose, number).permuted(np.broadcast_to(rows, (times, len(rows))), axis=1)
