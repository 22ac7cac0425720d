"""The settings of training, optimisers and schedules among them, described once, and the runs that follow them."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Protocol

import numpy as np
import torch
from torch import Tensor

from deep_ensembles._checks import check_flag, check_integer, check_number, require
from deep_ensembles._random import Purpose, stream
from deep_ensembles._splits import ComplementaryFolds, PerRow, Resampling, hold_out
from deep_ensembles.members import Members
from deep_ensembles.training.batches import batch_sizes
from deep_ensembles.training.checkpoint import Checkpoint
from deep_ensembles.training.data import RobustScaling

_LEAST_PATIENCE = 30  # epochs, as scores go up and down


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


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How networks are trained; every setting of `fit_ensemble` and `cross_validate`.

    Arguments:
        max_epochs, batch_size, learning_rate: as usual. The last batch of an epoch may be smaller.
        drop_last: leave out a last batch that would be smaller; its rows are others in each epoch.
        schedule: `Constant()` or `Cosine(warmup)`.
        optimizer: `Adam()` or `AdamW()`.
        weight_decay: λ of λ/2 · ‖θ‖², added to the mean loss (`Adam`): a prior N(0, τ²) on every parameter, biases too, for
            λ = 1/(N τ²) with N rows, in the units that the network sees; so that training ends at the most probable weights.
        clip_norm: the greatest gradient norm of a run; longer gradients are shortened to it.
        averaging: judge and keep averages of the weights over so many epochs (an exponential average), not the latest.
        early_stopping: hold out rows per member and keep each member's best epoch on them.
        validation_fraction: the share of rows each member holds out for that, its own choice of rows.
        folds: `ComplementaryFolds()` to let members hold out complementary folds instead, with or without early stopping;
            `Ensemble.out_of_fold` then predicts every training row by members that never saw it.
        patience: stop a member after so many epochs without improvement.
        patience_factor: stop it sooner: after so many times the epochs up to its best one, at least 30, without improvement.
        time_limit: stop all members after the epoch that exceeds so many seconds, and keep what is best so far; rows larger
            than memory are stopped within an epoch.
        resampling: `None` for all rows (as in the paper), `Bootstrap()` or `Subsample(fraction)`.
        standardize_inputs: train on inputs of mean 0 and deviation 1 per dimension (per channel for images), or with
            `RobustScaling()` of median 0 and usual interquartile range.
        standardize_targets: the same for the targets of a regression.
        max_restarts: how often a member that diverged is taken back to its last good state, at a tenth of its rate.
        checkpoint: where to keep the state, to survive a crash.
        resumable: keep what the optimiser knows with the ensemble, to train its members for more epochs later.
        members: insist on `Stacked` or `Looped` instead of the fastest way that works.
        device: "auto" (a GPU if there is one), or a torch device.
        precision: "bf16" for training passes in bfloat16 where torch's autocast has it, one network after another; weights,
            losses and predictions stay as they are. None for that of the network.
        num_workers: processes that read ahead from a streamed dataset.
        verbose: 0 for silence, 1 for a progress bar on a terminal, 2 to leave it there.
    """

    max_epochs: int = 100
    batch_size: int = 100
    drop_last: bool = False
    learning_rate: float = 0.01
    schedule: Schedule = field(default_factory=Constant)
    optimizer: Optimizer = field(default_factory=Adam)
    weight_decay: float = 0.0
    clip_norm: float | None = None
    averaging: float | None = None
    early_stopping: bool = False
    validation_fraction: float = 0.1
    patience: int = 20
    patience_factor: float | None = None
    folds: ComplementaryFolds | None = None
    time_limit: float | None = None
    resampling: Resampling | None = None
    standardize_inputs: bool | RobustScaling = True
    standardize_targets: bool | RobustScaling = True
    max_restarts: int = 3
    checkpoint: Checkpoint | None = None
    resumable: bool = False
    members: type[Members] | None = None
    device: str | torch.device = "auto"
    precision: str | None = None
    num_workers: int = 0
    verbose: int = 0

    def __post_init__(self) -> None:
        least = {"max_epochs": 1, "batch_size": 1, "patience": 1, "max_restarts": 0, "num_workers": 0, "verbose": 0}
        for name, low in least.items():
            check_integer(name, getattr(self, name), low=low)
        require(self.precision in (None, "bf16"), "precision", 'None or "bf16"', self.precision)
        for name, example in (("schedule", "Cosine()"), ("optimizer", "Adam()"), ("resampling", "Bootstrap()")):
            value = getattr(self, name)
            usable = callable(value) and not isinstance(value, type)
            require(usable or (name == "resampling" and value is None), name, f"an object such as `{example}`", value)
        is_kind = self.members is None or (isinstance(self.members, type) and issubclass(self.members, Members))
        require(is_kind, "members", "None, `Stacked` or `Looped`", self.members)
        is_checkpoint = isinstance(self.checkpoint, Checkpoint | None)
        require(is_checkpoint, "checkpoint", "None or a `Checkpoint(path)`", self.checkpoint)
        check_number("learning_rate", self.learning_rate, low=0, above=True)
        check_number("weight_decay", self.weight_decay, low=0)
        check_number("validation_fraction", self.validation_fraction, low=0, above=True, high=0.99)
        for name in ("clip_norm", "averaging", "patience_factor", "time_limit"):
            check_number(name, getattr(self, name), low=0, above=True, optional=True)
        require(isinstance(self.folds, ComplementaryFolds | None), "folds", "None or `ComplementaryFolds()`", self.folds)
        for name in ("drop_last", "early_stopping", "resumable", "standardize_inputs", "standardize_targets"):
            if not (name.startswith("standardize") and isinstance(getattr(self, name), RobustScaling)):
                check_flag(name, getattr(self, name))

    def waits(self, best: np.ndarray) -> np.ndarray:
        """For how many epochs without improvement members go on that had so many up to their best one."""
        if self.patience_factor is None:
            return np.full_like(best, self.patience)
        return np.minimum(self.patience, np.maximum(_LEAST_PATIENCE, self.patience_factor * best))

    def batch_sizes(self, n_rows: int) -> list[int]:
        """The sizes of the batches of an epoch."""
        sizes = batch_sizes(n_rows, self.batch_size)
        return [self.batch_size] * (n_rows // self.batch_size) if self.drop_last and n_rows >= self.batch_size else sizes

    def torch_device(self) -> torch.device:
        """The device that `device` names."""
        if self.device != "auto":
            try:
                return torch.empty(0, device=self.device).device
            except (RuntimeError, AssertionError, TypeError) as error:
                reason = str(error).splitlines()[0]
                raise ValueError(f'`device` must be "auto" or one that is here, got {self.device!r} ({reason})') from error
        if torch.cuda.is_available():
            return torch.device("cuda")
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")


@dataclass(frozen=True)
class Run:
    """One network to train.

    Arguments:
        rows: the numbers of the rows it may learn from.
        seed: everything random about it.
        validation: the numbers of the rows it is stopped on; none for no early stopping.
        n_first_half: how many of these come first as one half, for predictions of each half at the epoch that the other
            chose; 0 where they are not wanted.
        learning_rate, weight_decay: its own instead of the recipe's.
        perturbation_factor: a factor on the perturbation's ε.
    """

    rows: np.ndarray
    seed: int
    validation: np.ndarray = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    n_first_half: int = 0
    learning_rate: float | None = None
    weight_decay: float | None = None
    perturbation_factor: float = 1.0


def plan_runs(
    rows: np.ndarray, seeds: Sequence[int], recipe: Recipe, classes: PerRow = None, fold_of: PerRow = None
) -> list[Run]:
    """One run per seed over the same rows; held-out rows and resampling are each run's own.

    Arguments:
        classes: the class of every row of the data, to hold out the same share of each class.
        fold_of: the fold of every row where that is given: each run then holds out one of them, if it holds out any.
    """
    runs: list[Run] = []
    strata = None if classes is None else classes[rows]
    folds: list[np.ndarray] = []
    if fold_of is not None and fold_of.any():
        folds = [rows[fold_of[rows] == fold] for fold in range(int(fold_of.max()) + 1)]
    elif recipe.folds is not None:
        folds = recipe.folds(rows, len(seeds), stream(seeds[0], Purpose.VALIDATION), strata)
    for seed in seeds:
        train, held_out, n_first_half = rows, np.empty(0, dtype=np.int64), 0
        if folds:
            fold = folds[len(runs) % len(folds)]
            train = np.setdiff1d(rows, fold)
            if recipe.early_stopping:
                first, second = (recipe.folds or ComplementaryFolds()).halves(fold, classes)
                held_out, n_first_half = np.concatenate([first, second]), len(first) if len(second) else 0
        elif recipe.early_stopping:
            train, held_out = hold_out(rows, recipe.validation_fraction, stream(seed, Purpose.VALIDATION), strata)
        if recipe.resampling is not None:
            train = recipe.resampling(train, stream(seed, Purpose.RESAMPLING))
        runs.append(Run(train, seed, held_out, n_first_half))
    return runs
