"""What a training starts from: statistics of the rows, networks, batches; all checked to fit together."""

import dataclasses
import hashlib
import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.distributions import constraints

from deep_ensembles._checks import require
from deep_ensembles._random import seeded
from deep_ensembles._splits import evenly_spaced
from deep_ensembles.distributions import family
from deep_ensembles.heads import TargetNeeds
from deep_ensembles.members import Looped, Members, assemble
from deep_ensembles.networks.periodic_mlp import Levels, NumberEmbedding, Values, Vectors
from deep_ensembles.training.batches import BatchLoader
from deep_ensembles.training.blocks import Surveyed
from deep_ensembles.training.data import InMemory, Rows, RowStatistics, Standardization, row_statistics
from deep_ensembles.training.parts import NetworkFactory
from deep_ensembles.training.recipe import Recipe, Run
from deep_ensembles.training.step import Algorithm, Criterion

_SEEN_ROWS = 20_000  # that quantiles and repeated values are taken of


@dataclasses.dataclass(frozen=True)
class Trained:
    """The outcome of training.

    Arguments:
        members: the networks, in the order of the runs.
        standardization: what each network's inputs and targets were standardised with.
        history: `[2, run, epoch]`: training loss and held-out score by epoch; NaN where there is none.
        held_out: raw outputs of each run for its held-out rows, each half from the epoch that was best for the other; None
            of runs that have no such halves.
        state: what another training needs to go on from here, where the recipe asks for it and no run is stopped early.
    """

    members: Members
    standardization: Standardization
    history: np.ndarray
    held_out: list[Tensor | None]
    state: dict[str, Tensor] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Training:
    """A list of runs, and what they are trained on and with.

    Arguments:
        build: makes the network of each run.
        rows, runs: the data, and which rows of them each run sees.
        algorithm, recipe: what a step is, and all settings.
        start: an earlier training of the same runs to go on from, with its units, up to `max_epochs` in all.
    """

    build: NetworkFactory
    rows: Rows
    runs: Sequence[Run]
    algorithm: Algorithm
    recipe: Recipe
    start: Trained | None = None


def prepare(training: Training) -> tuple[Members, Standardization, BatchLoader, BatchLoader | None]:
    """Measure the rows of each run, build its network, and see that networks, head, rule and data fit together.

    Returns one untrained network per run, the standardisation of each run, and what loads standardised rows onto the device:
    those with targets, and those without if there are any.
    """
    rows, runs, algorithm, recipe = training.rows, training.runs, training.algorithm, training.recipe
    device, criterion = recipe.torch_device(), algorithm.criterion
    statistics, groups = _distinct_statistics(rows, runs, recipe)
    distinct = Standardization.stack([known.standardization for known in statistics])
    inputs = distinct.inputs(rows.read(runs[0].rows[:4])[0][None], torch.float32, [0])[0].to(device)
    moved = inputs.is_floating_point() if rows.parts is None else not all(rows.parts.whole)
    if algorithm.perturbation is not None and not moved:
        raise TypeError(f"`perturbation` needs floating-point inputs, got {rows.parts or inputs.dtype}")
    bf16 = recipe.precision == "bf16"
    members = assemble(training.build, [run.seed for run in runs], inputs, recipe.members or (Looped if bf16 else None))
    members.traits.bf16 = bf16
    _adapt_layers(members, rows, runs, distinct.select(groups))
    raw = _raw_outputs(members, inputs)
    needs = _target_needs(raw, rows, criterion, recipe)
    scaling, weights = needs.scaling if recipe.standardize_targets else None, [known.mean_weight for known in statistics]
    units = Standardization.stack([known.for_head(scaling, criterion.is_censored) for known in statistics])
    if training.start is not None:
        units, groups, weights = training.start.standardization, list(range(len(runs))), [weights[group] for group in groups]
    targets = units.targets(rows.read(runs[0].rows[:4])[1][None], torch.float32, [0])[0].to(device)
    _check_loss(raw, targets, criterion)
    of_runs = (units, weights, groups, members.parameters.flat)
    unlabelled = None if algorithm.unlabelled is None else BatchLoader(algorithm.unlabelled, *of_runs)
    return members, units.select(groups), BatchLoader(rows, *of_runs), unlabelled


def fingerprint(training: Training, members: Members) -> str:
    """What must be the same for a checkpoint to fit: data, runs, initial weights, settings."""
    rows, algorithm, recipe = training.rows, training.algorithm, training.recipe
    digest = hashlib.sha256(rows.digest() + (b"" if algorithm.unlabelled is None else algorithm.unlabelled.digest()))
    for run in training.runs:
        digest.update(_row_key(run.rows) + _row_key(run.validation))
        digest.update(repr((run.seed, run.learning_rate, run.weight_decay, run.perturbation_factor)).encode())
    for tensor in (members.parameters.flat, *members.buffers.values()):
        digest.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    digest.update(repr(members.modules[0]).encode())
    names = ("max_epochs", "batch_size", "drop_last", "learning_rate", "schedule", "optimizer", "weight_decay", "clip_norm",
             "averaging", "patience", "patience_factor", "standardize_inputs", "standardize_targets", "max_restarts",
             "precision")  # fmt: skip
    parts = [algorithm.criterion.head, algorithm.criterion.rule, algorithm.perturbation]
    parts += [getattr(recipe, name) for name in names]
    digest.update("\n".join(map(_identity, parts)).encode())
    return digest.hexdigest()


def _identity(part: Any) -> str:
    """What tells a setting from another, in every process the same: its repr without addresses, what a function does."""
    code = getattr(getattr(part, "func", part), "__code__", None)
    return re.sub(" at 0x[0-9a-f]+", "", repr(part)) + ("" if code is None else f"{code.co_code.hex()} {code.co_names}")


def _distinct_statistics(rows: Rows, runs: Sequence[Run], recipe: Recipe) -> tuple[list[RowStatistics], list[int]]:
    """The statistics of every distinct set of rows, and the number of each run's."""
    keys = [_row_key(run.rows) for run in runs]
    distinct = dict(zip(keys, runs, strict=True))
    scaling = recipe.standardize_inputs, recipe.standardize_targets
    statistics = [row_statistics(rows, run.rows, *scaling) for run in distinct.values()]
    return statistics, [list(distinct).index(key) for key in keys]


def _row_key(rows: np.ndarray) -> bytes:
    return hashlib.sha256(np.ascontiguousarray(rows, dtype=np.int64).tobytes()).digest()


def _adapt_layers(members: Members, rows: Rows, runs: Sequence[Run], units: Standardization) -> None:
    """Tell layers what they must know of each run: what numbers there are among its rows, and its units."""
    layers = list(members.modules[0].named_children())
    for place, (name, layer) in enumerate(layers):
        if isinstance(layer, Values) or (isinstance(layer, NumberEmbedding) and layer.sets_bins):
            before = torch.nn.Sequential(*(earlier for _, earlier in layers[:place] if not isinstance(earlier, Vectors)))
            seen = layer.values if isinstance(layer, Values) else layer.bins
            for number, run in enumerate(runs):
                x = units.inputs(rows.read(evenly_spaced(run.rows, _SEEN_ROWS))[0][None], torch.float64, [number])[0]
                for buffer, values in seen(before(x)).items():
                    members.buffers[f"{name}.{buffer}"][number].copy_(values)
        if isinstance(layer, Levels) and units.input_shift is not None and units.input_scale is not None:
            members.buffers[f"{name}.shift"].copy_(units.input_shift[:, layer.columns])
            members.buffers[f"{name}.scale"].copy_(units.input_scale[:, layer.columns])


def _raw_outputs(members: Members, inputs: Tensor) -> Tensor:
    """What the networks say of a few rows; errors are clearer now than within the first step."""
    inputs = inputs.to(members.parameters.flat.dtype) if inputs.is_floating_point() else inputs
    try:
        raw = members(inputs.expand(len(members), *inputs.shape))
    except (TypeError, AttributeError) as error:
        raise TypeError(f"the network must return a tensor [batch, raw outputs] ({error})") from error
    if raw.dim() < 3 or raw.shape[1] != len(inputs):
        raise ValueError(f"the network must return [batch, raw outputs], got {list(raw.shape[1:])} for {len(inputs)} rows")
    return raw


def _target_needs(raw: Tensor, rows: Rows, criterion: Criterion, recipe: Recipe) -> TargetNeeds:
    """What the head says of its targets, once all of them have been seen to fit."""
    distribution = criterion.head(raw)
    needs = TargetNeeds.of(criterion.head, distribution)
    if needs.scaling is None and recipe.standardize_targets:
        raise TypeError(f"`head` gives {family(distribution)}, which cannot be brought back to the targets' units; say "
                        'how by `scaling = "location-scale"`, "scale" or "none" on the head, or pass '
                        "`standardize_targets=False`")  # fmt: skip
    if needs.kind != "classes" and isinstance(rows, InMemory) and not rows.targets.is_floating_point():
        rows.targets = rows.targets.double()
    if needs.kind == "classes":
        last = distribution.probs.shape[-1] - 1  # type: ignore[attr-defined]
        needs = dataclasses.replace(needs, support=constraints.integer_interval(0, last))
        cure = "for whole numbers that are no classes pass `head=Poisson()` or `head=Normal()`"
        _check_targets(rows, needs, False, f"class numbers from 0 to {last} for which the network has outputs", cure)
    elif needs.support is not constraints.real:
        must = f"{support_in_words(needs.support)} for {criterion.head}"
        cure = "leave such rows out, or take another head: `Normal()` takes any"
        _check_targets(rows, needs, criterion.is_censored, must, cure)
    return needs


def _check_targets(rows: Rows, needs: TargetNeeds, is_censored: bool, must: str, cure: str) -> None:
    for start, targets in _target_chunks(rows):
        are_classes = targets.dim() == 1 and not targets.is_floating_point()
        require(needs.kind != "classes" or are_classes, "targets", "class numbers 0, 1, … (integers ≥ 0), one per row",
                f"{targets.dtype} of shape {list(targets.shape)}")  # fmt: skip
        values = targets[:, 0] if is_censored else targets
        wrong = (~needs.support.check(values)).nonzero()
        if len(wrong):
            place = tuple(wrong[0].tolist())
            raise ValueError(f"`targets` must be {must}, got {values[place]:g} in row {start + place[0]}; {cure}")


def _target_chunks(rows: Rows) -> Iterator[tuple[int, Tensor]]:
    """All targets with the number of the first: at once from memory, in pieces from a stream."""
    if isinstance(rows, InMemory):
        yield 0, rows.targets
        if isinstance(rows, Surveyed):
            _, y, _ = rows.moments(np.arange(len(rows)))
            yield 0, torch.stack([y.low, y.high]).to(rows.targets.dtype)
        return
    start = 0
    for _, targets, _ in rows.chunks(np.arange(len(rows))):
        yield start, targets
        start += len(targets)


def support_in_words(support: Any) -> str:
    """What a target may be, for people: "numbers above 0"."""
    low, high = getattr(support, "lower_bound", None), getattr(support, "upper_bound", None)
    if support is constraints.boolean:
        return "0 or 1"
    kind = "whole numbers" if support.is_discrete else "numbers"
    if high is not None:
        return f"{kind} between {low:g} and {high:g}"
    return f"{kind} above {low:g}" if type(support) is type(constraints.positive) else f"{kind} ≥ {low:g}"


def _check_loss(raw: Tensor, targets: Tensor, criterion: Criterion) -> None:
    try:
        criterion.losses(raw, targets.expand(len(raw), *targets.shape))
    except NotImplementedError as error:
        reason = str(error) or "give its distribution what it lacks, such as `mean` or `cdf`, or take `log_score`"
        raise TypeError(f"`scoring_rule` does not fit the head {criterion.head}: {reason}") from error
    except (RuntimeError, ValueError) as error:
        if isinstance(error, ValueError) and "the prediction's shape" not in str(error):
            raise
        raise ValueError(f"{raw.shape[-1]} raw outputs do not fit the head {criterion.head} and targets of shape "
                         f"{list(targets.shape[1:])} ({(str(error).splitlines() or ['?'])[0]})") from error  # fmt: skip
    if criterion.uses_autograd and not _is_scored_alone(criterion, raw[:1], targets):
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
