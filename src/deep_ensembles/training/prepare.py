"""What a training starts from: statistics of the rows, networks, batches; all checked to fit together."""

import dataclasses
import functools
import hashlib
import types
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from deep_ensembles._random import seeded
from deep_ensembles.members import Factory, Members, assemble
from deep_ensembles.training.batches import BatchLoader, batch_loader
from deep_ensembles.training.data import InMemory, Rows, RowStatistics, Standardization, row_statistics
from deep_ensembles.training.loss import Criterion
from deep_ensembles.training.recipe import Recipe, Run
from deep_ensembles.training.step import Algorithm


@dataclass(frozen=True)
class Prepared:
    """Everything that a training needs besides its state.

    Arguments:
        members: one untrained network per run.
        loader: standardised rows, on the device.
        standardization: that of each run.
        unlabelled: rows without targets, standardised alike.
    """

    members: Members
    loader: BatchLoader
    standardization: Standardization
    unlabelled: BatchLoader | None = None


def prepare(build: Factory, rows: Rows, runs: Sequence[Run], algorithm: Algorithm, recipe: Recipe) -> Prepared:
    """Measure the rows of each run, build its network, and see that networks, head, rule and data fit together."""
    device = recipe.torch_device()
    discrete = algorithm.criterion.discrete
    statistics, groups = _distinct_statistics(rows, runs, recipe, discrete)
    distinct = Standardization.stack([known.standardization for known in statistics])
    inputs, targets, _ = rows.read(runs[0].rows[:4])
    inputs = distinct.inputs(inputs[None], torch.float32, slice(0, 1))[0].to(device)
    if algorithm.perturbation is not None and not inputs.is_floating_point():
        raise TypeError(f"`perturbation` needs floating-point inputs, got {inputs.dtype}")
    members = assemble(build, [run.seed for run in runs], inputs, recipe.members)
    greatest = max(known.greatest_target for known in statistics) if discrete else 0
    if discrete and isinstance(rows, InMemory):
        greatest = float(rows.targets.max())  # of held-out rows too
    targets = distinct.targets(targets[None], torch.float32, slice(0, 1))[0].to(device)
    _check_outputs(members, inputs, targets, algorithm, greatest)
    like, unlabelled = members.parameters.flat, algorithm.unlabelled
    return Prepared(
        members=members,
        loader=batch_loader(rows, statistics, groups, like),
        standardization=distinct.select(groups),
        unlabelled=None if unlabelled is None else batch_loader(unlabelled, statistics, groups, like),
    )


def fingerprint(rows: Rows, runs: Sequence[Run], algorithm: Algorithm, recipe: Recipe, members: Members) -> str:
    """What must be the same for a checkpoint to fit: data, runs, initial weights, settings."""
    digest = hashlib.sha256(rows.digest() + (b"" if algorithm.unlabelled is None else algorithm.unlabelled.digest()))
    for run in runs:
        digest.update(_row_key(run.rows) + _row_key(run.validation))
        digest.update(repr((run.seed, run.learning_rate, run.weight_decay, run.perturbation_factor)).encode())
    for tensor in (members.parameters.flat, *members.buffers.values()):
        digest.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    digest.update(repr(members.modules[0]).encode())
    names = ("max_epochs", "batch_size", "learning_rate", "schedule", "optimizer", "weight_decay", "clip_norm", "patience")
    parts = [algorithm.criterion.head, algorithm.criterion.rule, algorithm.perturbation]
    parts += [getattr(recipe, name) for name in (*names, "standardize_inputs", "standardize_targets", "max_restarts")]
    digest.update(repr([_identity(part) for part in parts]).encode())
    return digest.hexdigest()


def _identity(part: Any) -> Any:
    """What tells a setting from another, in every process the same: a repr may hold an address."""
    if part is None or isinstance(part, (bool, int, float, str)):
        return part
    if isinstance(part, (list, tuple)):
        return [_identity(item) for item in part]
    if isinstance(part, functools.partial):
        return [_identity(part.func), _identity(part.args), _identity(sorted(part.keywords.items()))]
    if isinstance(part, types.FunctionType):
        return [part.__qualname__, part.__code__.co_code.hex(), repr(part.__code__.co_names)]
    kind, values = type(part).__qualname__, getattr(part, "__dict__", {})
    if dataclasses.is_dataclass(part):
        return [kind, _identity(sorted(values.items()))]
    return [kind, sorted(values)]


def _distinct_statistics(
    rows: Rows, runs: Sequence[Run], recipe: Recipe, discrete: bool
) -> tuple[list[RowStatistics], list[int]]:
    """The statistics of every distinct set of rows, and the number of each run's."""
    numbers: dict[bytes, int] = {}
    statistics: list[RowStatistics] = []
    groups = []
    for run in runs:
        key = _row_key(run.rows)
        if key not in numbers:
            numbers[key] = len(statistics)
            targets = recipe.standardize_targets and not discrete
            statistics.append(row_statistics(rows, run.rows, recipe.standardize_inputs, targets))
        groups.append(numbers[key])
    return statistics, groups


def _row_key(rows: np.ndarray) -> bytes:
    return hashlib.sha256(np.ascontiguousarray(rows, dtype=np.int64).tobytes()).digest()


def _check_outputs(members: Members, inputs: Tensor, targets: Tensor, algorithm: Algorithm, greatest_class: float) -> None:
    """Errors are clearer now than within the first step."""
    inputs = inputs.to(members.parameters.flat.dtype) if inputs.is_floating_point() else inputs
    try:
        raw = members(inputs.expand(len(members), *inputs.shape))
    except (TypeError, AttributeError) as error:
        raise TypeError(f"the network must return a tensor [batch, raw outputs] ({error})") from error
    if raw.dim() < 3 or raw.shape[1] != len(inputs):
        raise ValueError(f"the network must return [batch, raw outputs], got {list(raw.shape[1:])} for {len(inputs)} rows")
    if greatest_class >= raw.shape[-1]:
        raise ValueError(f"`targets` must be classes from 0 to {raw.shape[-1] - 1}, as many as the network has outputs, "
                         f"got {greatest_class:g}; for whole numbers that are no classes pass `head=Normal()`")  # fmt: skip
    try:
        algorithm.criterion.losses(raw, targets.expand(len(members), *targets.shape))
    except RuntimeError as error:
        raise ValueError(f"{raw.shape[-1]} raw outputs do not fit the head {algorithm.criterion.head} and targets of shape "
                         f"{list(targets.shape[1:])} ({str(error).splitlines()[0]})") from error  # fmt: skip
    if algorithm.criterion.uses_autograd and not _is_scored_alone(algorithm.criterion, raw[:1], targets):
        raise ValueError("`scoring_rule` and `head` must treat every member by itself, got another loss for a member among "
                         "others than alone; take no mean or count over the first axis, which is members")  # fmt: skip


def _is_scored_alone(criterion: Criterion, raw: Tensor, targets: Tensor) -> bool:
    """Whether a member's losses are the same between two others, made up to differ from it, and by itself."""
    raw = raw.to(torch.promote_types(raw.dtype, torch.float32))
    before, after = torch.randn(2, *raw.shape, generator=torch.Generator().manual_seed(0)).to(raw)

    def losses(*members: Tensor, seed: int = 0) -> Tensor:
        with seeded(seed, raw.device):
            return criterion.losses(torch.cat(members), targets.expand(len(members), *targets.shape))

    try:
        among, again = (losses(before, raw, after, seed=seed) for seed in (0, 1))
    except RuntimeError:  # the rule holds a tensor with one row per member
        return False
    if not torch.allclose(among, again, equal_nan=True):
        return True  # the rule draws random numbers, so that nothing can be compared
    return torch.allclose(among[1:2], losses(raw), rtol=1e-4, atol=1e-5, equal_nan=True)
