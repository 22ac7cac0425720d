"""The PyTorch door: train an ensemble of any network, or all folds of a cross-validation, as one stack."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from sklearn.model_selection import BaseCrossValidator, KFold, StratifiedKFold
from torch import Tensor
from torch.distributions import Distribution
from torch.utils.data import Dataset

from deep_ensembles._checks import check_integer, require
from deep_ensembles._random import RandomState, run_seeds
from deep_ensembles.algorithm import Algorithm
from deep_ensembles.criterion import Criterion
from deep_ensembles.ensemble import Ensemble
from deep_ensembles.heads import Categorical, Normal
from deep_ensembles.members import Factory
from deep_ensembles.mixture import Mixture, concatenated
from deep_ensembles.naming import describe
from deep_ensembles.perturbations import Perturbation
from deep_ensembles.rows import InMemory, Rows, Streamed, as_tensor
from deep_ensembles.runs import Recipe, Run, plan_runs
from deep_ensembles.scoring import ScoringRule, log_score
from deep_ensembles.training import Trained, train

Head = Callable[[Tensor], Distribution]


def fit_ensemble(
    build_network: Factory,
    inputs: Any,
    targets: Any = None,
    *,
    head: Head | None = None,
    scoring_rule: ScoringRule = log_score,
    perturbation: Perturbation | None = None,
    n_members: int = 5,
    sample_weight: Any = None,
    random_state: RandomState = None,
    **settings: Any,
) -> Ensemble:
    """Train an ensemble of any `nn.Module`.

    Arguments:
        build_network: makes one network; called once per member, under the member's own seed. Its output must be what
            the head takes: 2 numbers per target for `Normal`, one per class for `Categorical`.
        inputs: `[row, *features]` as a tensor or array; or a map-style dataset of `(input, target)` pairs, which is
            then streamed.
        targets: `[row]` numbers or class numbers, or `[row, target]` numbers; none with a dataset.
        head: raw output → distribution; by default `Categorical()` for whole-number targets, else `Normal()`.
        scoring_rule: the training criterion.
        perturbation: `FastGradientSign(0.01)` for the paper's adversarial training; none by default.
        n_members: how many networks.
        sample_weight: one number ≥ 0 per row.
        random_state: the seed of everything; the same seed gives the same ensemble.
        settings: any setting of `Recipe`: `max_epochs`, `batch_size`, `learning_rate`, `early_stopping`, …

    Example:
        >>> x = torch.linspace(-1, 1, 200).unsqueeze(1)
        >>> ensemble = fit_ensemble(lambda: torch.nn.Linear(1, 2), x, 3 * x[:, 0], random_state=0)
        >>> ensemble(torch.tensor([[0.5]])).mean.round(decimals=1)
        tensor([1.5000], dtype=torch.float64)
    """
    check_integer("n_members", n_members, low=1)
    recipe = _recipe(settings)
    rows, head, classes = _prepare(inputs, targets, sample_weight, head, recipe)
    seeds = run_seeds(random_state, n_members)
    runs = plan_runs(_used(rows), seeds, recipe, classes)
    trained = train(build_network, rows, runs, Algorithm(Criterion(head, scoring_rule), perturbation), recipe)
    return _ensemble(trained, range(n_members), runs, rows, head, build_network)


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
    cv: int | BaseCrossValidator | Iterable[tuple[Any, Any]] = 5,
    head: Head | None = None,
    scoring_rule: ScoringRule = log_score,
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
    recipe = _recipe(settings)
    rows, head, classes = _prepare(inputs, targets, sample_weight, head, recipe)
    folds = _folds(cv, len(rows), classes, random_state)
    seeds = run_seeds(random_state, n_members)
    used = np.isin(np.arange(len(rows)), _used(rows))
    runs = [run for train_rows, _ in folds for run in plan_runs(train_rows[used[train_rows]], seeds, recipe, classes)]
    trained = train(build_network, rows, runs, Algorithm(Criterion(head, scoring_rule), perturbation), recipe)
    ensembles = [
        _ensemble(trained, range(k * n_members, (k + 1) * n_members), runs, rows, head, build_network)
        for k in range(len(folds))
    ]
    predictions = [ensemble(rows.read(test)[0]) for ensemble, (_, test) in zip(ensembles, folds, strict=True)]
    return CrossValidation(ensembles, folds, predictions)


def _recipe(settings: dict[str, Any]) -> Recipe:
    known = Recipe.__dataclass_fields__
    unknown = [name for name in settings if name not in known]
    if unknown:
        raise TypeError(f"unknown setting `{unknown[0]}`; there are {', '.join(known)}")
    return Recipe(**settings)


def _ensemble(
    trained: Trained, members: Sequence[int], runs: Sequence[Run], rows: Rows, head: Head, build: Factory
) -> Ensemble:
    chosen, standardization = trained.members.select(members), trained.standardization.select(members)
    example, _, _ = rows.read(np.arange(1))
    raw = chosen(
        standardization.inputs(example[None], chosen.parameters.flat.dtype)
        .to(chosen.device)
        .expand(len(chosen), *example.shape)
    )
    return Ensemble(
        members=chosen,
        head=head,
        standardization=standardization,
        feature_shape=tuple(example.shape[1:]),
        n_outputs=raw.shape[-1],
        network=describe(build),
        seeds=tuple(runs[m].seed for m in members),
        history=trained.history[:, list(members)],
    )


def _prepare(
    inputs: Any, targets: Any, sample_weight: Any, head: Head | None, recipe: Recipe
) -> tuple[Rows, Head, np.ndarray | None]:
    """Rows, head, and the class of every row where that is known."""
    if isinstance(inputs, Dataset) and not isinstance(inputs, Tensor):
        require(targets is None and sample_weight is None, "targets", "None with a dataset, whose items hold them", targets)
        rows: Rows = Streamed(inputs, recipe.num_workers)
        _, first, _ = rows.read(np.arange(1))
    else:
        require(targets is not None, "targets", "given unless `inputs` is a dataset", targets)
        rows = _in_memory(inputs, targets, sample_weight)
        first = rows.targets
    if head is None:
        head = Normal() if first.is_floating_point() else Categorical()
    if not getattr(head, "discrete", False):
        if isinstance(rows, InMemory) and not rows.targets.is_floating_point():
            rows.targets = rows.targets.double()
        return rows, head, None
    if first.is_floating_point() or first.dim() != 1 or bool((first < 0).any()):
        raise ValueError("`targets` must be class numbers 0, 1, … (integers ≥ 0), one per row, "
                         f"got {first.dtype} of shape {list(first.shape)}")  # fmt: skip
    return rows, head, rows.targets.numpy() if isinstance(rows, InMemory) else None


def _in_memory(inputs: Any, targets: Any, sample_weight: Any) -> InMemory:
    x, y = _tensor("inputs", inputs), _tensor("targets", targets)
    y = y.squeeze(-1) if y.dim() == 2 and y.shape[1] == 1 else y
    require(x.dim() >= 2, "inputs", "of shape [row, feature, …]", list(x.shape), "for one feature reshape to (-1, 1)")
    require(y.dim() in (1, 2), "targets", "of shape [row] or [row, target]", list(y.shape))
    if sample_weight is None:
        return InMemory(x, y)
    w = _tensor("sample_weight", sample_weight).double()
    require(w.shape == (len(x),), "sample_weight", f"one number per row ({len(x)})", list(w.shape))
    require(bool((w >= 0).all()) and bool(w.sum() > 0), "sample_weight", "numbers ≥ 0, not all 0", "others")
    return InMemory(x, y, w)


def _tensor(name: str, values: Any) -> Tensor:
    tensor = as_tensor(name, values)
    tensor = tensor.long() if tensor.dtype == torch.bool else tensor
    if tensor.is_floating_point() and not bool(tensor.isfinite().all()):
        raise ValueError(f"`{name}` must be finite, got NaN or infinity")
    return tensor


def _used(rows: Rows) -> np.ndarray:
    """The rows to train on: all with a weight above 0."""
    weights = rows.weights if isinstance(rows, InMemory) else None
    return np.arange(len(rows)) if weights is None else np.flatnonzero(weights.numpy() > 0)


def _folds(
    cv: int | BaseCrossValidator | Iterable[tuple[Any, Any]], n: int, classes: np.ndarray | None, random_state: RandomState
) -> list[tuple[np.ndarray, np.ndarray]]:
    if isinstance(cv, int):
        check_integer("cv", cv, low=2)
        require(cv <= n, "cv", f"at most the number of rows ({n})", cv)
        seed = run_seeds(random_state, 1)[0] % 2**32
        splitter = KFold if classes is None else StratifiedKFold
        cv = splitter(cv, shuffle=True, random_state=seed)
    pairs = cv if not hasattr(cv, "split") else cv.split(np.zeros((n, 1)), classes)
    folds = [(np.asarray(train_rows), np.asarray(test)) for train_rows, test in pairs]
    require(bool(folds) and all(len(a) and len(b) for a, b in folds), "cv", "folds with rows to train and to test on", cv)
    return folds
