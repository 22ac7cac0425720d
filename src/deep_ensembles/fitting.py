"""The PyTorch door: train an ensemble of any network, or all folds of a cross-validation, as one stack."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from deep_ensembles import scoring
from deep_ensembles._checks import check_integer, require
from deep_ensembles._random import RandomState, run_seeds
from deep_ensembles._splits import cross_validation_splits
from deep_ensembles._tensors import as_tensor, check_finite, checked_events, is_dataset, is_structured, times_and_events
from deep_ensembles.ensemble import Ensemble
from deep_ensembles.heads import Categorical, HeadFunction, Normal
from deep_ensembles.members import Factory
from deep_ensembles.mixture import Mixture, concatenated
from deep_ensembles.perturbations import Perturbation
from deep_ensembles.settings import describe
from deep_ensembles.training import Algorithm, Criterion, InMemory, Recipe, Rows, Run, Streamed, Trained, plan_runs, train
from deep_ensembles.training.parts import choose_inputs, pack_inputs


def fit_ensemble(
    build_network: Factory,
    inputs: Any,
    targets: Any = None,
    *,
    head: HeadFunction | None = None,
    scoring_rule: scoring.ScoringRule | None = None,
    perturbation: Perturbation | None = None,
    n_members: int = 5,
    sample_weight: Any = None,
    unlabelled: Any = None,
    random_state: RandomState = None,
    **settings: Any,
) -> Ensemble:
    """Train an ensemble of any `nn.Module`.

    Arguments:
        build_network: makes one network; called once per member, under the member's own seed. Its output must be what
            the head takes: 2 numbers per target for `Normal`, one per class for `Categorical`.
            What it returns is copied, and never changed; parts that it leaves in `eval()` are trained in `eval()`.
        inputs: `[row, *features]` as a tensor or array; a dict or tuple of them, for a network that takes a dict (or its
            keys as arguments) or several tensors; or a map-style dataset of `(input, target)` pairs or of dicts with a
            `target`, which is then streamed. Whole numbers are standardised as other numbers are, unless the network takes
            them only as they are (tokens for an embedding); in a dict or tuple, only where the network refuses them.
        targets: `[row]` numbers or class numbers, or `[row, target]` numbers; or times that may be censored, as a structured
            array of flag (event) and number (time); none with a dataset.
        head: raw output → distribution; by default `Categorical()` for whole-number targets, else `Normal()`.
        scoring_rule: the training criterion; by default what the head asks for (`log_score` but for a few), and
            `censored(log_score)` for censored times.
        perturbation: `FastGradientSign(0.01)` for the paper's adversarial training, `VirtualAdversarial(0.1)` for one that
            needs no targets; none by default.
        n_members: how many networks.
        sample_weight: one number ≥ 0 per row.
        unlabelled: inputs of more rows, without targets, for `VirtualAdversarial`; each step takes as many of them as rows
            with targets.
        random_state: the seed of everything; the same seed gives the same ensemble.
        settings: any setting of `Recipe`: `max_epochs`, `batch_size`, `learning_rate`, `early_stopping`, …

    Example:
        >>> x = torch.linspace(-1, 1, 200).unsqueeze(1)
        >>> ensemble = fit_ensemble(lambda: torch.nn.Linear(1, 2), x, 3 * x[:, 0], max_epochs=300, random_state=0)
        >>> ensemble(torch.tensor([[0.5]])).mean.round(decimals=1)
        tensor([1.5000], dtype=torch.float64)
    """
    check_integer("n_members", n_members, low=1)
    task = _task(build_network, inputs, targets, sample_weight, head, scoring_rule, perturbation, settings)
    if unlabelled is not None:
        task = replace(task, algorithm=replace(task.algorithm, unlabelled=_unlabelled(unlabelled, task)))
    runs = plan_runs(task.used(), run_seeds(random_state, n_members), task.recipe, task.classes())
    return task.ensembles(runs, n_members)[0]


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
    check_integer("n_members", n_members, low=1)
    task = _task(build_network, inputs, targets, sample_weight, head, scoring_rule, perturbation, settings)
    rows, seed = task.rows, run_seeds(random_state, 1)[0] % 2**32
    folds = cross_validation_splits(cv, len(rows), classes=task.classes(), seed=seed)
    seeds = run_seeds(random_state, n_members)
    used = np.isin(np.arange(len(rows)), task.used())
    runs = [run for fold, _ in folds for run in plan_runs(fold[used[fold]], seeds, task.recipe, task.classes())]
    ensembles = task.ensembles(runs, n_members)
    predictions = [ensemble.mixture(rows.user_inputs(test)) for ensemble, (_, test) in zip(ensembles, folds, strict=True)]
    return CrossValidation(ensembles, folds, predictions)


@dataclass(frozen=True)
class _Task:
    """What is to be learnt, from which rows, and how."""

    build: Factory
    rows: Rows
    algorithm: Algorithm
    recipe: Recipe

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

    def ensembles(self, runs: Sequence[Run], n_members: int) -> list[Ensemble]:
        """Train all runs as one stack; each `n_members` of them in turn are an ensemble."""
        rows, flag = self.rows, self.recipe.standardize_inputs
        example, _, _ = rows.read(np.arange(len(rows))[:2])
        build, rows.parts, flag = choose_inputs(self.build, example, rows.parts, flag, runs[0].seed)
        trained = train(build, rows, runs, self.algorithm, replace(self.recipe, standardize_inputs=flag))
        starts = range(0, len(runs), n_members)
        return [self._ensemble(trained, range(start, start + n_members), runs, example[:1]) for start in starts]

    def _ensemble(self, trained: Trained, members: Sequence[int], runs: Sequence[Run], example: Tensor) -> Ensemble:
        chosen, standardization = trained.members.select(members), trained.standardization.select(members)
        if self.algorithm.criterion.is_censored:
            standardization = standardization.of_first_target()
        inputs = standardization.inputs(example[None], chosen.parameters.flat.dtype).to(chosen.device)
        unseen = self._unseen([runs[m].rows for m in members])
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
            out_of_fold_raw=None if unseen is None else self._held_out(trained, members, runs, unseen),
        )

    def _unseen(self, trained_on: Sequence[np.ndarray]) -> np.ndarray | None:
        """`[k, row]`: as many members that have not seen a row as every row has; None if a row has none."""
        if self.recipe.folds is None:
            return None
        unseen = np.stack([np.isin(np.arange(len(self.rows)), rows, invert=True) for rows in trained_on])
        least = int(unseen.sum(0).min())
        return np.argsort(~unseen, axis=0, kind="stable")[:least] if least else None

    def _held_out(self, trained: Trained, members: Sequence[int], runs: Sequence[Run], unseen: np.ndarray) -> Tensor | None:
        """`[k, row, raw]`: what those members said of the rows that they were stopped on, where each half of these was
        predicted at the epoch that was best for the other; None where members were not stopped, NaN for unused rows."""
        if any(m not in trained.held_out for m in members):
            return None
        example = trained.held_out[members[0]]
        raw = example.new_full((len(members), len(self.rows), *example.shape[1:]), torch.nan)
        for number, m in enumerate(members):
            raw[number, runs[m].validation] = trained.held_out[m]
        return raw[torch.from_numpy(unseen), torch.arange(len(self.rows))]


def _task(
    build: Factory, inputs: Any, targets: Any, weights: Any, head: Any, scoring_rule: Any, perturbation: Any, settings: Any
) -> _Task:
    """What a user asks for, checked."""
    known = Recipe.__dataclass_fields__
    if unknown := [name for name in settings if name not in known]:
        raise TypeError(f"unknown setting `{unknown[0]}`; there are {', '.join(known)}")
    recipe = Recipe(**settings)
    if is_dataset(inputs):
        require(targets is None and weights is None, "targets", "None with a dataset, whose items hold them", targets)
        rows: Rows = Streamed(inputs, recipe.num_workers)
    else:
        require(targets is not None, "targets", "given unless `inputs` is a dataset", targets)
        rows = _in_memory(inputs, targets, weights)
    return _Task(build, rows, _algorithm(rows, is_structured(targets), head, scoring_rule, perturbation), recipe)


def _algorithm(
    rows: Rows, timed: bool, head: HeadFunction | None, rule: scoring.ScoringRule | None, perturbation: Perturbation | None
) -> Algorithm:
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
    rows, perturbation = task.rows, task.algorithm.perturbation
    if task.algorithm.needs_target:
        raise ValueError(f"`unlabelled` must be None with `perturbation={perturbation!r}`, which needs targets, "
                         "got rows without; pass `perturbation=VirtualAdversarial()`")  # fmt: skip
    x = _tensor("unlabelled", inputs) if rows.parts is None else rows.parts.pack(inputs)
    example, target, _ = rows.read(np.arange(1))
    shape = f"of shape [row, {', '.join(map(str, example.shape[1:]))}] with at least one row, like `inputs`"
    require(x.shape[1:] == example.shape[1:] and len(x) > 0, "unlabelled", shape, list(x.shape))
    return InMemory(x if x.is_floating_point() else x.double(), target.expand(len(x), *target.shape[1:]))


def _in_memory(inputs: Any, targets: Any, sample_weight: Any) -> InMemory:
    x, parts = pack_inputs(inputs)
    y = _tensor("targets", times_and_events("targets", targets) if is_structured(targets) else targets)
    y = y.squeeze(-1) if y.dim() == 2 and y.shape[1] == 1 else y
    require(y.dim() in (1, 2), "targets", "of shape [row] or [row, target]", list(y.shape))
    if sample_weight is None:
        return InMemory(x, y, None, parts)
    w = _tensor("sample_weight", sample_weight).double()
    require(w.shape == (len(x),), "sample_weight", f"one number per row ({len(x)})", list(w.shape))
    usable = bool((w >= 0).all() and w.sum() > 0)
    require(usable, "sample_weight", "numbers ≥ 0, not all 0", f"{w.min():g} … {w.max():g}")
    return InMemory(x, y, w, parts)


def _tensor(name: str, values: Any) -> Tensor:
    tensor = check_finite(name, as_tensor(name, values))
    return tensor.long() if tensor.dtype == torch.bool else tensor
