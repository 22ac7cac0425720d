"""The PyTorch door: train an ensemble of any network, or all folds of a cross-validation, as one stack."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from deep_ensembles import scoring
from deep_ensembles._checks import check_integer, require
from deep_ensembles._random import RandomState, run_seeds, seed_sequence
from deep_ensembles._splits import cross_validation_splits
from deep_ensembles._tensors import as_tensor, check_finite, checked_events, is_dataset, is_structured, times_and_events
from deep_ensembles.ensemble import Ensemble
from deep_ensembles.execution import Execution, Training, train_runs
from deep_ensembles.growing import Grow, Origin, extended, out_of_fold, rows_key
from deep_ensembles.heads import Categorical, HeadFunction, Normal
from deep_ensembles.members import Factory
from deep_ensembles.mixture import Mixture, concatenated
from deep_ensembles.perturbations import Perturbation
from deep_ensembles.settings import describe
from deep_ensembles.training import Algorithm, Constant, Criterion, InMemory, Recipe, Rows, Run, Streamed, Trained, plan_runs
from deep_ensembles.training.blocks import ArrayBlocks, BlockSource, Surveyed, is_large_map
from deep_ensembles.training.parts import choose_inputs, pack_inputs


def fit_ensemble(
    build_network: Factory,
    inputs: Any,
    targets: Any = None,
    *,
    head: HeadFunction | None = None,
    scoring_rule: scoring.ScoringRule | None = None,
    perturbation: Perturbation | None = None,
    n_members: int | Grow = 5,
    sample_weight: Any = None,
    unlabelled: Any = None,
    random_state: RandomState = None,
    execution: Execution | None = None,
    **settings: Any,
) -> Ensemble:
    """Train an ensemble of any `nn.Module`.

    Arguments:
        build_network: makes one network; called once per member, under the member's own seed. Its output must be what
            the head takes: 2 numbers per target for `Normal`, one per class for `Categorical`.
            What it returns is copied, and never changed; parts that it leaves in `eval()` are trained in `eval()`.
        inputs: `[row, *features]` as a tensor or array; a dict or tuple of them, for a network that takes a dict (or its
            keys as arguments) or several tensors; or a map-style dataset of `(input, target)` pairs or of dicts with a
            `target`, which is then streamed; or rows larger than memory, as `ParquetRows` or an `np.memmap` of more than
            64 MB, which are read in blocks and shuffled through a buffer (see docs/scale.md). Whole numbers are standardised
            as other numbers are, unless the network takes them only as they are (tokens for an embedding); in a dict or
            tuple, only where the network refuses them.
        targets: `[row]` numbers or class numbers, or `[row, target]` numbers; or times that may be censored, as a structured
            array of flag (event) and number (time); none with a dataset.
        head: raw output → distribution; by default `Categorical()` for whole-number targets, else `Normal()`.
        scoring_rule: the training criterion; by default what the head asks for (`log_score` but for a few), and
            `censored(log_score)` for censored times.
        perturbation: `FastGradientSign(0.01)` for the paper's adversarial training, `VirtualAdversarial(0.1)` for one that
            needs no targets; none by default.
        n_members: how many networks; `Grow()` for as many as pay, or as time allows.
        sample_weight: one number ≥ 0 per row.
        unlabelled: inputs of more rows, without targets, for `VirtualAdversarial`; each step takes as many of them as rows
            with targets.
        random_state: the seed of everything; the same seed gives the same ensemble.
        execution: where members are trained: `InProcess()` (as by default), `Processes(n)` or `Ray(address)`; they are the
            same bits wherever (see docs/scale.md).
        settings: any setting of `Recipe`: `max_epochs`, `batch_size`, `learning_rate`, `early_stopping`, …

    Example:
        >>> x = torch.linspace(-1, 1, 200).unsqueeze(1)
        >>> ensemble = fit_ensemble(lambda: torch.nn.Linear(1, 2), x, 3 * x[:, 0], max_epochs=300, random_state=0)
        >>> ensemble(torch.tensor([[0.5]])).mean.round(decimals=1)
        tensor([1.5000], dtype=torch.float64)
    """
    most = n_members.at_most if isinstance(n_members, Grow) else n_members
    data = inputs, targets, sample_weight
    task = _task(build_network, data, most, settings, head, scoring_rule, perturbation)
    task = replace(task, root=seed_sequence(random_state), execution=execution)
    if unlabelled is not None:
        task = replace(task, algorithm=replace(task.algorithm, unlabelled=_unlabelled(unlabelled, task)))
    return n_members.fit(task) if isinstance(n_members, Grow) else task.ensembles(task.runs(n_members), n_members)[0]


def extend_ensemble(
    ensemble: Ensemble, inputs: Any, targets: Any = None, n: int = 1, *, sample_weight: Any = None
) -> Ensemble:
    """The ensemble with `n` more members, the same as if all had been asked for at once; without recalibration.

    Members that hold out complementary folds keep to the folds that there are: three members of three folds become five
    members of three folds, as of `ComplementaryFolds(3)`.

    Arguments:
        ensemble: what `fit_ensemble` or this returned, in this process: a file does not say how members were trained.
        inputs, targets, sample_weight: the same rows that it was trained on.
        n: how many members to add.

    Example:
        >>> x = torch.linspace(-1, 1, 200).unsqueeze(1)
        >>> three = fit_ensemble(lambda: torch.nn.Linear(1, 2), x, 3 * x[:, 0], n_members=3, max_epochs=5)
        >>> extend_ensemble(three, x, 3 * x[:, 0], 2).n_members
        5
    """
    check_integer("n", n, low=1)
    task = _task_again(ensemble, inputs, targets, sample_weight)
    same = rows_key(task.rows) == ensemble.origin.rows_key
    require(same, "inputs", "the rows that the ensemble was trained on, with their targets and weights", "others")
    return extended(task, ensemble, n)


def train_further(
    ensemble: Ensemble, inputs: Any, targets: Any, *, max_epochs: int | None = None, sample_weight: Any = None
) -> Ensemble:
    """The ensemble after more epochs on the same or other rows, in its units; without recalibration.

    Arguments:
        ensemble: as for `extend_ensemble`. If it was trained with `resumable=True` its optimiser goes on where it was: on
            the same rows, and at a constant rate, as if all epochs had been asked for at once. Else it starts afresh.
        max_epochs: in all, those before included; by default one more, at a constant rate and with no rows held out.
    """
    task, origin = _task_again(ensemble, inputs, targets, sample_weight), ensemble.origin
    done = int(origin.state["epoch"].max()) if origin.state else 0
    total = done + 1 if max_epochs is None else max_epochs
    require(total > done, "max_epochs", f"more than the {done} that there were", max_epochs)
    further: dict[str, Any] = {"schedule": Constant(), "folds": None} if max_epochs is None else {}
    recipe = replace(task.recipe, max_epochs=total, early_stopping=False, resumable=True, **further)
    task = replace(task, recipe=recipe)
    before = Trained(ensemble.members, ensemble.standardization, np.asarray(ensemble.history), [], origin.state)
    return task.ensembles(task.runs(ensemble.n_members), ensemble.n_members, before)[0]


@dataclass(frozen=True)
class CrossValidation:
    """All folds of a cross-validation.

    Arguments:
        ensembles: the ensemble of each fold, trained on the fold's training rows only.
        folds: (training rows, test rows) of each fold.
        distributions: each fold's prediction for its test rows.
    """

    ensembles: list[Ensemble]
    folds: list[tuple[np.ndarray, np.ndarray]]
    distributions: list[Mixture]

    @property
    def distribution(self) -> Mixture:
        """Out-of-fold predictions in the order of the rows; needs folds whose test rows are each row exactly once."""
        tested = np.concatenate([test for _, test in self.folds])
        if len(np.unique(tested)) < len(tested) or tested.max() + 1 != len(tested):
            raise ValueError("out-of-fold predictions need every row in exactly one test fold; use `distributions`")
        return concatenated(self.distributions)[torch.from_numpy(np.argsort(tested))]


def cross_validate(
    build_network: Factory,
    inputs: Any,
    targets: Any = None,
    *,
    cv: Any = 5,
    head: HeadFunction | None = None,
    scoring_rule: scoring.ScoringRule | None = None,
    perturbation: Perturbation | None = None,
    n_members: int = 5,
    sample_weight: Any = None,
    random_state: RandomState = None,
    execution: Execution | None = None,
    **settings: Any,
) -> CrossValidation:
    """Train the ensembles of all folds as one stack of folds × members networks and predict the held-out rows.

    Arguments:
        cv: the number of folds (shuffled by `random_state`, stratified for classes), a scikit-learn splitter, or pairs
            of row numbers (training, test).
        others: as for `fit_ensemble`.

    Example:
        >>> x = torch.linspace(-1, 1, 200).unsqueeze(1)
        >>> folds = cross_validate(lambda: torch.nn.Linear(1, 2), x, 3 * x[:, 0], n_members=2, random_state=0)
        >>> len(folds.ensembles), folds.distribution.batch_shape
        (5, torch.Size([200]))
    """
    data = inputs, targets, sample_weight
    task = _task(build_network, data, n_members, settings, head, scoring_rule, perturbation)
    require(not isinstance(task.rows, Surveyed), "inputs", "in memory to cross-validate", "rows that are streamed")
    rows, seed = task.rows, run_seeds(random_state, 1)[0] % 2**32
    folds = cross_validation_splits(cv, len(rows), classes=task.classes(), seed=seed)
    seeds = run_seeds(random_state, n_members)
    used = np.isin(np.arange(len(rows)), task.used())
    runs = [run for fold, _ in folds for run in plan_runs(fold[used[fold]], seeds, task.recipe, task.classes())]
    ensembles = replace(task, execution=execution).ensembles(runs, n_members)
    predictions = [ensemble.mixture(rows.user_inputs(test)) for ensemble, (_, test) in zip(ensembles, folds, strict=True)]
    return CrossValidation(ensembles, folds, predictions)


@dataclass(frozen=True)
class _Task:
    """What is to be learnt, from which rows, and how."""

    build: Factory
    rows: Rows
    algorithm: Algorithm
    recipe: Recipe
    root: np.random.SeedSequence | None = None
    execution: Execution | None = None

    def runs(self, n_members: int) -> list[Run]:
        """One for each member of an ensemble."""
        fold_of = self.rows.fold_of if isinstance(self.rows, Surveyed) else None
        return plan_runs(self.used(), run_seeds(self.root, n_members), self.recipe, self.classes(), fold_of)

    def used(self) -> np.ndarray:
        """The rows to train on: all with a weight above 0."""
        weights = self.rows.weights if isinstance(self.rows, InMemory) else None
        return np.arange(len(self.rows)) if weights is None else np.flatnonzero(weights.numpy() > 0)

    def classes(self) -> np.ndarray | None:
        """The class of every row, where that is known."""
        if not isinstance(self.rows, InMemory) or self.rows.targets.is_floating_point() or self.rows.targets.dim() != 1:
            return None
        kind = getattr(self.algorithm.criterion.head, "kind", "classes")
        return self.rows.targets.numpy() if kind == "classes" else None

    def ensembles(self, runs: Sequence[Run], n_members: int, start: Trained | None = None) -> list[Ensemble]:
        """Train all runs; each `n_members` of them in turn are an ensemble."""
        rows, flag = self.rows, self.recipe.standardize_inputs
        example, _, _ = rows.read(np.arange(len(rows))[:2])
        build, rows.parts, flag = choose_inputs(self.build, example, rows.parts, flag, runs[0].seed)
        recipe = replace(self.recipe, standardize_inputs=flag)
        trained = train_runs(Training(build, rows, runs, self.algorithm, recipe, start), self.execution)
        starts = range(0, len(runs), n_members)
        return [self._ensemble(trained, range(start, start + n_members), runs, example[:1]) for start in starts]

    def _ensemble(self, trained: Trained, members: Sequence[int], runs: Sequence[Run], example: Tensor) -> Ensemble:
        chosen, standardization = trained.members.select(members), trained.standardization.select(members)
        inputs = standardization.inputs(example[None], chosen.parameters.flat.dtype).to(chosen.device)
        held_out = [trained.held_out[m] for m in members]
        unseen, raw = out_of_fold(self, [runs[m] for m in members], held_out)
        task: Any = replace(self, rows=None)  # type: ignore[arg-type]
        return Ensemble(
            members=chosen,
            head=self.algorithm.criterion.head,
            standardization=standardization,
            feature_shape=tuple(example.shape[1:]),
            n_outputs=chosen(inputs.expand(len(chosen), *example.shape)).shape[-1],
            network=describe(self.build),
            seeds=tuple(runs[m].seed for m in members),
            history=trained.history[:, list(members)],
            parts=self.rows.parts,
            out_of_fold_members=unseen,
            out_of_fold_raw=raw,
            out_of_fold_rows=self.rows.numbers if isinstance(self.rows, Surveyed) else None,
            origin=Origin(task, rows_key(self.rows), held_out, trained.state) if self.root is not None else None,
        )

    def out_of_fold_scores(self, ensemble: Ensemble) -> np.ndarray:
        """Of the rows that are used, by the training criterion in the units of the targets; of rows in memory."""
        assert isinstance(self.rows, InMemory)
        used = torch.from_numpy(self.used())
        prediction = ensemble.out_of_fold(self.rows.user_inputs(np.arange(len(self.rows))))[used]
        return self.algorithm.criterion.rule(prediction, self.rows.targets[used]).double().numpy()


def _task_again(ensemble: Ensemble, inputs: Any, targets: Any, sample_weight: Any) -> _Task:
    """The task that an ensemble was trained for, with rows that are given."""
    if ensemble.origin is None:
        raise ValueError(f"`ensemble` must know how it was trained, got {ensemble!r}, which was loaded, copied or put "
                         "together from others; train it here with `fit_ensemble`")  # fmt: skip
    task = ensemble.origin.task
    return replace(task, rows=_rows(inputs, targets, sample_weight, task.recipe))


def _task(build: Factory, data: tuple[Any, Any, Any], n_members: int, settings: dict[str, Any], *how: Any) -> _Task:
    """What a user asks for, checked; `how` are head, scoring rule and perturbation."""
    check_integer("n_members", n_members, low=1)
    known = Recipe.__dataclass_fields__
    if unknown := [name for name in settings if name not in known]:
        raise TypeError(f"unknown setting `{unknown[0]}`; there are {', '.join(known)}")
    recipe = Recipe(**settings)
    if recipe.folds is not None:  # their number stays when members are added
        recipe = replace(recipe, folds=replace(recipe.folds, n_folds=recipe.folds.count(n_members)))
    rows = _rows(*data, recipe)
    return _Task(build, rows, _algorithm(rows, is_structured(data[1]), *how), recipe)


def _rows(inputs: Any, targets: Any, weights: Any, recipe: Recipe) -> Rows:
    """The rows to train on: in memory, or read as they are needed."""
    if isinstance(inputs, BlockSource) or is_dataset(inputs):
        require(targets is None and weights is None, "targets", "None with a dataset, whose items hold them", targets)
    else:
        require(targets is not None, "targets", "given unless `inputs` is a dataset", targets)
    if is_large_map(inputs):
        inputs = ArrayBlocks(inputs, targets, weights)
    if not isinstance(inputs, BlockSource):
        return Streamed(inputs, recipe.num_workers) if is_dataset(inputs) else _in_memory(inputs, targets, weights)
    for name, value in (("resampling", recipe.resampling), ("groups", getattr(recipe.folds, "groups", None))):
        require(value is None, name, "None for rows that are read in blocks", value)
    usual = min(20, max(2, round(1 / recipe.validation_fraction))) if recipe.early_stopping else 1
    return Surveyed(inputs, getattr(recipe.folds, "n_folds", usual))


def _algorithm(rows: Rows, timed: bool, head: Any, rule: Any, perturbation: Perturbation | None) -> Algorithm:
    """Loss and perturbation for these rows; whole-number targets are classes unless the head says otherwise.

    Arguments:
        timed: whether targets were given as times that may be censored, for which the rule is made one.
    """
    for name, value in (("head", head), ("scoring_rule", rule), ("perturbation", perturbation)):
        usable = value is None or (callable(value) and not isinstance(value, type))
        require(usable, name, "a function or an object or None", value)
    is_censored = getattr(rule, "is_censored", False)
    if timed and not is_censored:
        is_censored, rule = True, scoring.censored(rule or scoring.log_score)
    targets = rows.targets if isinstance(rows, InMemory) else rows.read(np.arange(min(64, len(rows))))[1]
    if head is None:
        head = Normal() if targets.is_floating_point() or is_censored else Categorical()
    if is_censored:
        _check_censored(rows, targets, head)
    if hasattr(head, "starting_at"):
        times = targets[:, 0] if is_censored else targets
        head = head.starting_at(float(times.double().mean()))
    return Algorithm(Criterion(head, rule or getattr(scoring, getattr(head, "rule", "log_score"))), perturbation)


def _check_censored(rows: Rows, targets: Tensor, head: HeadFunction) -> None:
    shape, kind = list(targets.shape[1:]), getattr(head, "kind", "numbers")
    require(shape == [2], "targets", "of shape [row, 2] (time, event) for `censored`", list(targets.shape))
    require(kind in ("numbers", "counts", "vectors"), "head", "one of numbers for censored times", head, "say `LogNormal()`")
    if isinstance(rows, InMemory):
        checked_events("targets", targets.double().numpy())


def _unlabelled(inputs: Any, task: _Task) -> InMemory:
    """Rows without targets; the target of a labelled row stands for theirs, and is never used."""
    rows, algorithm = task.rows, task.algorithm
    require(not isinstance(rows, Surveyed), "unlabelled", "None for rows that are read in blocks", inputs)
    must = f"None with `perturbation={algorithm.perturbation!r}`, which needs targets"
    require(not algorithm.needs_target, "unlabelled", must, "rows without", "pass `perturbation=VirtualAdversarial()`")
    x = check_finite("unlabelled", as_tensor("unlabelled", inputs)) if rows.parts is None else rows.parts.pack(inputs)
    example, target, _ = rows.read(np.arange(1))
    shape = f"of shape [row, {', '.join(map(str, example.shape[1:]))}] with at least one row, like `inputs`"
    require(x.shape[1:] == example.shape[1:] and len(x) > 0, "unlabelled", shape, list(x.shape))
    return InMemory(x if x.is_floating_point() else x.double(), target.expand(len(x), *target.shape[1:]))


def _in_memory(inputs: Any, targets: Any, sample_weight: Any) -> InMemory:
    x, parts = pack_inputs(inputs)
    targets = times_and_events("targets", targets) if is_structured(targets) else targets
    y = check_finite("targets", as_tensor("targets", targets))
    y = y.squeeze(-1) if y.dim() == 2 and y.shape[1] == 1 else y
    require(y.dim() in (1, 2), "targets", "of shape [row] or [row, target]", list(y.shape))
    if sample_weight is None:
        return InMemory(x, y, None, parts)
    w = check_finite("sample_weight", as_tensor("sample_weight", sample_weight)).double()
    require(w.shape == (len(x),), "sample_weight", f"one number per row ({len(x)})", list(w.shape))
    usable = bool((w >= 0).all() and w.sum() > 0)
    require(usable, "sample_weight", "numbers ≥ 0, not all 0", f"{w.min():g} … {w.max():g}")
    return InMemory(x, y, w, parts)
