"""The one training loop: runs → trained members."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from deep_ensembles._random import Purpose, stream
from deep_ensembles.algorithm import Algorithm
from deep_ensembles.checkpoint import CheckpointWriter
from deep_ensembles.criterion import Criterion
from deep_ensembles.members import Factory, Members, assemble
from deep_ensembles.members.flat import copy_runs
from deep_ensembles.progress import training_progress
from deep_ensembles.rows import Block, Rows, Survey, survey
from deep_ensembles.runs import Recipe, Run
from deep_ensembles.segments import Segment, alike, cut, segments
from deep_ensembles.standardization import Standardization

_EVALUATION_ROWS = 1024
_ORDER_ROWS = 2**16
_RESTART_FACTOR = 0.1


class TrainingDiverged(RuntimeError):
    """A member's loss or weights became NaN or infinite, and restarts did not help."""


@dataclass(frozen=True)
class Trained:
    """The outcome of training.

    Arguments:
        members: the networks, in the order of the runs.
        standardization: what each network's inputs and targets were standardised with.
        history: `[2, run, epoch]`: training loss and held-out score by epoch; NaN where there is none.
    """

    members: Members
    standardization: Standardization
    history: np.ndarray


def train(
    build: Factory,
    rows: Rows,
    runs: Sequence[Run],
    algorithm: Algorithm,
    recipe: Recipe,
) -> Trained:
    """Train all runs as one stack.

    Each run's result is what it would be alone: the loss is the sum over runs of the batch mean, optimisation is
    element-wise, and order, initialisation and noise come from the run's own seed.
    """
    session = _Session(build, rows, runs, algorithm, recipe)
    session.resume()
    progress = training_progress(recipe.max_epochs, recipe.verbose, int(session.epoch.min()))
    with progress as report, torch.no_grad():
        while session.active:
            session.train_epoch()
            if report is not None:
                report(int(session.epoch.min()), len(session.active), session.latest_score())
    return session.result()


class _Session:
    """The state of a training: a handful of tensors and one number or two per run."""

    def __init__(
        self,
        build: Factory,
        rows: Rows,
        runs: Sequence[Run],
        algorithm: Algorithm,
        recipe: Recipe,
    ) -> None:
        self.runs, self.algorithm, self.recipe = list(runs), algorithm, recipe
        self.device = recipe.torch_device()
        discrete = getattr(algorithm.criterion.head, "discrete", False)
        surveys, groups = _surveys(rows, runs, recipe, discrete)
        distinct = Standardization.stack([each.standardization for each in surveys])
        self.standardization = distinct.select(groups)
        self.mean_weight = np.array([surveys[g].mean_weight for g in groups])
        self.everyone = self._assemble(build, rows)
        self.feed = rows.feed(distinct.to(self.device), groups, self.everyone.parameters.flat)
        greatest = max(each.greatest_target for each in surveys)
        _check_outputs(self.everyone, self.example, algorithm.criterion, greatest if discrete else 0)
        self.kept = self.everyone.parameters.zeros_like()
        self.kept.flat.copy_(self.everyone.parameters.flat)
        self.kept_buffers = {name: tensor.clone() for name, tensor in self.everyone.buffers.items()}

        n, epochs = len(self.runs), recipe.max_epochs
        self.epoch, self.steps = np.zeros(n, dtype=np.int64), np.zeros(n, dtype=np.int64)
        self.restarts, self.stale = np.zeros(n, dtype=np.int64), np.zeros(n, dtype=np.int64)
        self.best = np.full(n, np.inf)
        self.history = np.full((2, n, epochs), np.nan)
        self.position = 0  # blocks of the current epoch that are done
        self._orders: dict[int, tuple[int, np.ndarray]] = {}
        self.active: list[int] = []
        self._activate(list(range(n)), self.everyone)
        digest = _fingerprint(self.runs, self.standardization, self.everyone, recipe)
        self.writer = CheckpointWriter(recipe.checkpoint, digest) if recipe.checkpoint else None

    def _assemble(self, build: Factory, rows: Rows) -> Members:
        x, y, _ = rows.read(self.runs[0].rows[:4])
        inputs = self.standardization.inputs(x[None], torch.float32, slice(0, 1))[0].to(self.device)
        if self.algorithm.perturbation is not None and not inputs.is_floating_point():
            raise TypeError(f"`perturbation` needs floating-point inputs, got {inputs.dtype}")
        self.example = inputs, self.standardization.targets(y[None], torch.float32, slice(0, 1))[0].to(self.device)
        return assemble(build, [run.seed for run in self.runs], inputs, self.recipe.members)

    def _activate(self, active: list[int], members: Members) -> None:
        """Train these runs from now on; moments start at zero."""
        self.active, self.members = active, members
        self.loss = torch.zeros(len(active), dtype=_precise(self.device), device=self.device)  # of the current epoch
        self._stopping = np.array([len(self.runs[r].validation) > 0 for r in active], dtype=bool)
        self._row_weight = np.array([len(self.runs[r].rows) * self.mean_weight[r] for r in active])
        if not active:
            return
        self.gradients = members.prepare()
        self.first, self.second = self.gradients.zeros_like(), self.gradients.zeros_like()
        self._windows: dict[tuple[int, int], Members] = {}

    # -- one epoch ------------------------------------------------------------------------------------------------

    def train_epoch(self) -> None:
        """One pass of every active run over its rows, then judge where each of them stands."""
        orders = [self._order(r) for r in self.active]
        skip = self.position
        for segment in segments([len(order) for order in orders], self.recipe.batch_size):
            parts = self.feed.parts(segment.stop - segment.start, segment.sizes)
            if skip >= len(parts):
                skip -= len(parts)
                continue
            columns = slice(segment.column, segment.column + sum(segment.sizes))
            index = np.stack([order[columns] for order in orders[segment.start : segment.stop]])
            self._train_segment(segment, index, parts, skip)
            skip = 0
        self._judge()

    def _order(self, r: int) -> np.ndarray:
        """The rows of a run in the order of its current epoch; orders are drawn for a few epochs at once."""
        run, epoch = self.runs[r], int(self.epoch[r])
        ahead = min(16, max(1, _ORDER_ROWS // len(run.rows)))
        number, within = divmod(epoch, ahead)
        if r not in self._orders or self._orders[r][0] != number:
            rows = np.broadcast_to(run.rows, (ahead, len(run.rows)))
            self._orders[r] = number, stream(run.seed, Purpose.ORDER, number).permuted(rows, axis=1)
        return self._orders[r][1][within]

    def _train_segment(self, segment: Segment, index: np.ndarray, parts: list[list[int]], skip: int) -> None:
        start, stop = segment.start, segment.stop
        runs = self.active[start:stop]
        first_row = sum(map(sum, parts[:skip]))
        step = segment.step + sum(map(len, parts[:skip]))
        window = self._window(start, stop)
        update = self._updater(start, stop)
        scale = self._perturbation_scale(runs)
        noise = self._noise(runs, window)
        for block in self.feed.blocks(index[:, first_row:], runs, parts[skip:]):
            raws = []
            for inputs, targets, coefficient in self._steps(block, runs):
                raws.append(self.algorithm.gradient(window, inputs, targets, coefficient, scale, noise(step)))
                update(step)
                step += 1
            self._record(block, torch.cat(raws, dim=1), start)
            if self.writer is not None and self.writer.due(None):
                self._write()

    def _steps(self, block: Block, runs: Sequence[int]) -> Iterator[tuple[Tensor, Tensor, Tensor | float]]:
        """Inputs, targets and the factor that makes a sum of losses the batch's (weighted) mean: the one place."""
        weights: Sequence[Tensor | None] = [None] * len(block.sizes)
        if block.weights is not None:
            mean = torch.as_tensor(self.mean_weight[list(runs)]).to(block.weights)
            weights = (block.weights / mean[:, None]).split(block.sizes, dim=1)
        batches = zip(block.inputs.split(block.sizes, 1), block.targets.split(block.sizes, 1), weights, strict=True)
        for inputs, targets, weight in batches:
            size = inputs.shape[1]
            yield inputs, targets, 1.0 / size if weight is None else weight / size

    def _perturbation_scale(self, runs: Sequence[int]) -> Tensor | None:
        if self.algorithm.perturbation is None or self.standardization.input_range is None:
            return None
        factors = [self.runs[r].perturbation_factor for r in runs]
        scale = self.standardization.input_range[list(runs)].to(self.kept.flat.dtype)
        scale = scale * torch.as_tensor(factors, dtype=scale.dtype).reshape(-1, *[1] * (scale.dim() - 1))
        return scale.unsqueeze(1).to(self.device)

    def _noise(self, runs: Sequence[int], window: Members) -> Callable[[int], list[list[int]]]:
        """Seeds by step, three per run: dropout for x, dropout for x′, the perturbation."""
        silent = [[0] * len(runs)] * 3
        if not window.noisy and not self.algorithm.noisy:
            return lambda step: silent
        streams = [stream(self.runs[r].seed, Purpose.NETWORK_NOISE, int(self.epoch[r])) for r in runs]
        steps = [len(cut(len(self.runs[r].rows), self.recipe.batch_size)) for r in runs]
        seeds = [own.integers(0, 2**62, size=(n, 3)) for own, n in zip(streams, steps, strict=True)]
        return lambda step: np.stack([own[step] for own in seeds], axis=1).tolist()

    # -- updates --------------------------------------------------------------------------------------------------

    def _updater(self, start: int, stop: int) -> Callable[[int], None]:
        """What one step does to runs start … stop-1: clip, then one fused call per group of runs that move alike."""
        paces = [self._pace(r) for r in self.active[start:stop]]
        groups = [self._group(start + a, start + b) for a, b in alike(paces)]

        def update(step: int) -> None:
            if self.recipe.clip_norm is not None:
                self._clip(start, stop, self.recipe.clip_norm)
            for group in groups:
                group(step)

        return update

    def _pace(self, r: int) -> tuple[float, float, int, int, int]:
        run, recipe = self.runs[r], self.recipe
        rate = recipe.learning_rate if run.learning_rate is None else run.learning_rate
        decay = recipe.weight_decay if run.weight_decay is None else run.weight_decay
        per_epoch = len(cut(len(run.rows), recipe.batch_size))
        return rate * _RESTART_FACTOR ** int(self.restarts[r]), decay, int(self.steps[r]), int(self.epoch[r]), per_epoch

    def _group(self, start: int, stop: int) -> Callable[[int], None]:
        rate, decay, steps, epoch, per_epoch = self._pace(self.active[start])
        schedule, optimizer, total = self.recipe.schedule, self.recipe.optimizer, per_epoch * self.recipe.max_epochs
        stacks = (self.members.parameters, self.gradients, self.first, self.second)
        if (start, stop) == (0, len(self.active)):
            tensors = [[stack.flat] for stack in stacks]
        else:
            tensors = [[view[start:stop] for view in stack.views.values()] for stack in stacks]
        counts = iter(torch.arange(steps + 1.0, steps + per_epoch + 1.0, device=self.device))

        def update(step: int) -> None:
            optimizer(tensors, next(counts), rate * schedule(epoch * per_epoch + step, total), decay)

        return update

    def _clip(self, start: int, stop: int, limit: float) -> None:
        factor = (limit / (self.gradients.norms(start, stop) + 1e-12)).clamp_max(1.0)
        for view in self.gradients.views.values():
            view[start:stop].mul_(factor.reshape(-1, *[1] * (view.dim() - 1)))

    def _window(self, start: int, stop: int) -> Members:
        if (start, stop) not in self._windows:
            self._windows[start, stop] = self.members.window(start, stop)
        return self._windows[start, stop]

    # -- judging --------------------------------------------------------------------------------------------------

    def _record(self, block: Block, raw: Tensor, start: int) -> None:
        """Note the losses of a block of steps, before each step, for runs from `start` on."""
        losses = self.algorithm.criterion.losses(raw, block.targets)
        losses = losses if block.weights is None else losses * block.weights
        self.loss[start : start + len(losses)] += losses.sum(1, dtype=self.loss.dtype)
        self.steps[self.active[start : start + len(losses)]] += len(block.sizes)
        self.position += 1

    def _judge(self) -> None:
        """Keep what is good, take back what diverged, let go of what is finished, write a checkpoint."""
        active = self.active
        losses = self.loss.cpu().double().numpy() / self._row_weight
        scores = self._held_out_scores()
        finite = self.members.parameters.finite().numpy() & np.isfinite(losses) & (np.isfinite(scores) | ~self._stopping)
        better = finite & (~self._stopping | (scores < self.best[active]))
        if not finite.all():
            self._restart(np.flatnonzero(~finite).tolist())
        self._keep(better)
        good = np.array(active)[finite]
        self.history[0, good, self.epoch[good]] = losses[finite]
        self.history[1, good, self.epoch[good]] = scores[finite]
        self.best[active] = np.where(better & self._stopping, scores, self.best[active])
        self.stale[active] = np.where(better, 0, self.stale[active] + finite)
        self.epoch[good] += 1
        self.position = 0
        self.loss.zero_()
        self._let_go()
        if self.writer is not None and (not self.active or self.writer.due(int(self.epoch.max()))):
            self._write()

    def _keep(self, better: np.ndarray) -> None:
        """From now on these runs would be returned as they are."""
        if better.all() and len(self.active) == len(self.runs):
            self.kept.flat.copy_(self.members.parameters.flat)
            for name, tensor in self.members.buffers.items():
                self.kept_buffers[name].copy_(tensor)
            return
        pairs = [(int(i), self.active[i]) for i in np.flatnonzero(better)]
        copy_runs(self.members.parameters.views, self.kept.views, pairs)
        copy_runs(self.members.buffers, self.kept_buffers, pairs)

    def _held_out_scores(self) -> np.ndarray:
        """The mean score of each active run on the rows it holds out; NaN where it holds out none."""
        if not self._stopping.any():
            return np.full(len(self.active), np.nan)
        total, weight = torch.zeros(2, len(self.active), dtype=torch.float64)
        for segment in segments([len(self.runs[r].validation) for r in self.active], _EVALUATION_ROWS):
            span = slice(segment.start, segment.stop)
            runs, window = self.active[span], self._window(segment.start, segment.stop)
            columns = slice(segment.column, segment.column + sum(segment.sizes))
            index = np.stack([self.runs[r].validation[columns] for r in runs])
            for block in self.feed.blocks(index, runs, self.feed.parts(len(runs), segment.sizes)):
                losses = self.algorithm.criterion.losses(window(block.inputs), block.targets).cpu().double()
                weights = torch.ones_like(losses) if block.weights is None else block.weights.cpu().double()
                total[span] += (losses * weights).sum(1)
                weight[span] += weights.sum(1)
        return (total / weight).numpy()

    def _restart(self, diverged: list[int]) -> None:
        """Take runs back to the state that is kept, with fresh moments, at a lower learning rate."""
        for i in diverged:
            r = self.active[i]
            self.restarts[r] += 1
            self.steps[r] = 0
            if self.restarts[r] > self.recipe.max_restarts:
                rate = self._pace(r)[0] / _RESTART_FACTOR
                raise TrainingDiverged(
                    f"member {r} diverged in epoch {int(self.epoch[r]) + 1} (its loss or weights are not finite), and "
                    f"{self.recipe.max_restarts} restarts at lower learning rates, down to {rate:.3g}, did not help; "
                    "lower `learning_rate`, set `clip_norm`, or check the data for extreme values"
                )
        pairs = [(self.active[i], i) for i in diverged]
        copy_runs(self.kept.views, self.members.parameters.views, pairs)
        copy_runs(self.kept_buffers, self.members.buffers, pairs)
        for moment in (self.first, self.second):
            for view in moment.views.values():
                view[diverged] = 0.0

    def _let_go(self) -> None:
        """Train on with the unfinished runs only, so that the stack shrinks as runs stop."""
        recipe = self.recipe
        done = (self.epoch[self.active] >= recipe.max_epochs) | (
            self._stopping & (self.stale[self.active] >= recipe.patience)
        )
        if not done.any():
            return
        going = np.flatnonzero(~done).tolist()
        first, second = self.first, self.second
        members = self.members.select(going) if going else self.members
        self._activate([self.active[i] for i in going], members)
        if going:
            self.first.flat.copy_(first.select(going).flat)
            self.second.flat.copy_(second.select(going).flat)

    def latest_score(self) -> float:
        """The mean over runs of the last score: held-out where there is one, else on training rows."""
        last = [self.history[:, r, max(0, self.epoch[r] - 1)] for r in range(len(self.runs))]
        return float(np.mean([row[0] if np.isnan(row[1]) else row[1] for row in last]))

    def result(self) -> Trained:
        """Every run at the state that was kept for it."""
        self.everyone.parameters.flat.copy_(self.kept.flat)
        everyone = range(len(self.runs))
        copy_runs(self.kept_buffers, self.everyone.buffers, [(r, r) for r in everyone])
        return Trained(self.everyone.select(everyone), self.standardization, self.history)

    # -- surviving ------------------------------------------------------------------------------------------------

    def _tensors(self) -> dict[str, Tensor]:
        """What a checkpoint holds, as the tensors themselves."""
        tensors = {"kept": self.kept.flat, "loss": self.loss}
        tensors |= {f"kept buffer {name}": tensor for name, tensor in self.kept_buffers.items()}
        if self.active:
            stacks = {"parameters": self.members.parameters, "first": self.first, "second": self.second}
            tensors |= {name: stack.flat for name, stack in stacks.items()}
            tensors |= {f"buffer {name}": tensor for name, tensor in self.members.buffers.items()}
        arrays = ("epoch", "steps", "restarts", "stale", "best", "history")
        return tensors | {name: torch.from_numpy(getattr(self, name)) for name in arrays}

    def _write(self) -> None:
        assert self.writer is not None
        self.writer.write(self._tensors(), {"active": self.active, "position": self.position})

    def resume(self) -> None:
        """Go on from the checkpoint, if there is one to go on from."""
        state = self.writer.read(self.device) if self.writer is not None else None
        if state is None:
            return
        tensors, facts = state
        active: list[int] = facts["active"]
        if active != self.active:
            self._activate(active, self.everyone.select(active) if active else self.everyone)
        self.position = facts["position"]
        for name, tensor in self._tensors().items():
            tensor.copy_(tensors[name])


def _precise(device: torch.device) -> torch.dtype:
    return torch.float32 if device.type == "mps" else torch.float64


def _surveys(rows: Rows, runs: Sequence[Run], recipe: Recipe, discrete: bool) -> tuple[list[Survey], list[int]]:
    """One survey per distinct set of rows, and the number of each run's."""
    known: dict[bytes, int] = {}
    found: list[Survey] = []
    groups = []
    for run in runs:
        key = hashlib.sha256(np.ascontiguousarray(run.rows).tobytes()).digest()
        if key not in known:
            known[key] = len(found)
            targets = recipe.standardize_targets and not discrete
            found.append(survey(rows, run.rows, recipe.standardize_inputs, targets))
        groups.append(known[key])
    return found, groups


def _check_outputs(members: Members, example: Sequence[Tensor], criterion: Criterion, greatest_class: float) -> None:
    """Networks, head and scoring rule must fit together; better said now than within the first step."""
    inputs, targets = example
    inputs = inputs.to(members.parameters.flat.dtype) if inputs.is_floating_point() else inputs
    raw = members(inputs.expand(len(members), *inputs.shape))
    if greatest_class >= raw.shape[-1]:
        raise ValueError(f"`targets` must be classes from 0 to {raw.shape[-1] - 1}, as many as the network has outputs, "
                         f"got {greatest_class:g}")  # fmt: skip
    criterion.losses(raw, targets.expand(len(members), *targets.shape))


def _fingerprint(runs: Sequence[Run], standardization: Standardization, members: Members, recipe: Recipe) -> str:
    """What must be the same for a checkpoint to fit: runs, data (by its moments), initial weights, settings."""
    digest = hashlib.sha256()
    for run in runs:
        digest.update(np.ascontiguousarray(run.rows).tobytes() + np.ascontiguousarray(run.validation).tobytes())
        digest.update(repr((run.seed, run.learning_rate, run.weight_decay, run.perturbation_factor)).encode())
    for tensor in (*standardization.tensors().values(), members.parameters.flat):
        digest.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    names = ("max_epochs", "batch_size", "learning_rate", "schedule", "optimizer", "weight_decay", "clip_norm", "patience")
    digest.update(repr([getattr(recipe, name) for name in names]).encode())
    return digest.hexdigest()
