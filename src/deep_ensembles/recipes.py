"""Which settings for which data: the default, chosen by out-of-fold scores, and the paper's."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import itemgetter
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from deep_ensembles._checks import require
from deep_ensembles._random import RandomState, run_seeds
from deep_ensembles._splits import ComplementaryFolds
from deep_ensembles._tensors import is_structured
from deep_ensembles.distributions import rebuilt
from deep_ensembles.ensemble import Ensemble
from deep_ensembles.fitting import fit_ensemble
from deep_ensembles.heads import GaussianMixture, HeadFunction, Normal, StudentT
from deep_ensembles.mixture import Mixture
from deep_ensembles.networks import mlp, periodic_mlp
from deep_ensembles.recalibration import Recalibration, Temperature, VarianceScaling, choose, variance_scaling
from deep_ensembles.recalibration.variance_scaling import is_stretchable
from deep_ensembles.scoring import censored, log_score
from deep_ensembles.training import Adam, Cosine, Recipe, RobustScaling

Auto = Literal["auto"]
EFFORTS = ("fast", "default", "best")

# The paper's protocol (its section 3.2): five networks of one hidden layer, 40 epochs, no rows held out.
PAPER: dict[str, Any] = {
    "n_members": 5,
    "hidden_sizes": (50,),
    "activation": "relu",
    "max_epochs": 40,
    "batch_size": 100,
    "learning_rate": 0.01,
}

_SCALES = (0.03, 0.1, 0.3, 1.0, 3.0)  # of the frequencies of waves, each about three times the one before
_PILOT_ROWS = 3000  # rows that settings are tried on, where there are many more
_TEMPERATURE_SPREAD = 0.4  # of the logarithm of temperatures, before any row is seen
_MANY = 15_000  # rows from which only the best network is trained on all of them
_MOST_EMBEDDED = 200  # columns with waves
_FEW = 20  # rows that are too few to choose anything by
_LEAST_SHARE = 0.05  # of an ensemble in a mixture of several; what has less is left out
_PRIOR_ROWS = 5.0  # how many rows equal shares are worth


def is_auto(value: Any) -> bool:
    """Whether a setting is left to the recipe."""
    return isinstance(value, str) and value == "auto"


@dataclass(frozen=True)
class Task:
    """What is to be learnt, as far as settings depend on it.

    Arguments:
        inputs: `[row, column]`.
        targets: numbers `[row]` or `[row, target]`, class numbers, labels, or times that may be censored.
        n_classes: how many classes there are; 0 for numbers.
        n_outputs: how many numbers, classes or labels a head predicts.
        default_head: the plain head for such targets.
        sample_weight, groups: of the rows; rows of a group are held out together.
    """

    inputs: np.ndarray
    targets: Any
    n_classes: int
    n_outputs: int
    default_head: HeadFunction
    sample_weight: np.ndarray | None = None
    groups: np.ndarray | None = None

    @property
    def n_rows(self) -> int:
        """How many rows count."""
        return len(self.inputs) if self.sample_weight is None else int((self.sample_weight > 0).sum())

    def together(self) -> np.ndarray:
        """The number of each row's group: rows that a user's group or equal inputs hold together."""
        equal = _equal_rows(self.inputs)
        if self.groups is None:
            return equal
        from scipy.sparse import coo_array
        from scipy.sparse.csgraph import connected_components

        named = np.unique(self.groups, return_inverse=True)[1] + equal.max() + 1
        n = int(named.max()) + 1
        links = coo_array((np.ones(len(equal)), (equal, named)), shape=(n, n))
        return np.asarray(connected_components(links, directed=False)[1])[equal]

    def subset(self, rows: np.ndarray) -> Task:
        """The same for some rows."""
        weights, groups = (None if part is None else part[rows] for part in (self.sample_weight, self.groups))
        return replace(self, inputs=self.inputs[rows], targets=self.targets[rows], sample_weight=weights, groups=groups)


def _equal_rows(inputs: np.ndarray) -> np.ndarray:
    """A number for each row, the same for equal ones."""
    rows = np.ascontiguousarray(inputs)
    return np.unique(rows.view(np.dtype((np.void, rows.dtype.itemsize * rows.shape[1]))).ravel(), return_inverse=True)[1]


@dataclass(frozen=True)
class Fitted:
    """An ensemble, and the settings that it was trained with, as plain data."""

    ensemble: Ensemble
    chosen: dict[str, Any]


@dataclass(frozen=True)
class _Candidate:
    """What is compared by out-of-fold scores: a head, and a network.

    Arguments:
        scale: of the frequencies of its waves; 0 for no waves.
        hidden_sizes: of its hidden layers; none for a linear model.
    """

    head: Any
    scale: float
    hidden_sizes: tuple[int, ...]

    @property
    def family(self) -> tuple[Any, ...]:
        """What ensembles must share to be joined into one."""
        return self.head, self.scale > 0, self.hidden_sizes


@dataclass(frozen=True, eq=False)
class _Trial:
    """A candidate, its ensemble, and the out-of-fold score of every row."""

    candidate: _Candidate
    ensemble: Ensemble
    scores: np.ndarray

    @property
    def score(self) -> float:
        """The mean over rows."""
        return float(self.scores.mean())


def fit_recipe(
    task: Task,
    explicit: Mapping[str, Any],
    *,
    preset: str | None = None,
    effort: str = "default",
    random_state: RandomState = None,
) -> Fitted:
    """Train an ensemble with the settings that the data ask for.

    Members hold out complementary folds, with equal rows and groups in one piece. Several networks and heads are tried, on
    some of the rows where these are many, and compared by the likelihood of rows that they did not see; the best are joined,
    weighted and recalibrated by the same rows.

    Arguments:
        task: data and what is known of them.
        explicit: settings that are not to be chosen: any of the estimators'.
        preset: "paper" for the paper's protocol; nothing is compared then.
        effort: "fast" tries one network, "best" more and larger ones than usual.
        random_state: the seed of everything.
    """
    require(effort in EFFORTS, "effort", f"one of {', '.join(EFFORTS)}", effort)
    require(preset in (None, "paper"), "preset", 'None or "paper"', preset)
    search = _Search(task, explicit, preset, effort, run_seeds(random_state, 2))
    trials, shares = search.run()
    ensemble = trials[0].ensemble
    if len(trials) > 1:
        ensemble = Ensemble.joined([trial.ensemble for trial in trials], shares)
    recalibration = search.recalibration(ensemble, trials)
    return Fitted(replace(ensemble, recalibration=recalibration), search.described(trials, shares, recalibration))


class _Search:
    """The candidates for a task, tried one after another."""

    def __init__(
        self, task: Task, explicit: Mapping[str, Any], preset: str | None, effort: str, seeds: Sequence[int]
    ) -> None:
        self.task, self.explicit, self.preset, self.effort, self.seeds = task, dict(explicit), preset, effort, seeds
        limit = explicit.get("time_limit")
        self.end = math.inf if limit is None else time.monotonic() + limit
        self.together = task.together() if preset is None else None
        self.n_trials = 0

    # -- settings ------------------------------------------------------------------------------------------------------

    def settings(self, task: Task, is_linear: bool = False) -> dict[str, Any]:
        """The settings of `fit_ensemble` for these rows, what is explicit among them."""
        n, d = task.n_rows, task.inputs.shape[1]
        if self.preset == "paper":
            usual: dict[str, Any] = {name: PAPER[name] for name in ("max_epochs", "batch_size", "learning_rate")}
        else:
            epochs = int(np.clip(_ROW_VISITS[self.effort] / n, 12, _EPOCHS[self.effort]))
            usual = {
                "max_epochs": epochs,
                "batch_size": batch_size(n),
                "drop_last": True,
                "learning_rate": 0.005 * min(1.0, 100 / d),
                "schedule": Cosine(),
                "averaging": 10.0,
                "clip_norm": 1.0,
                "early_stopping": True,
                "patience": max(20, epochs // 4),
                "standardize_inputs": RobustScaling(),
            }
            if is_linear or d > n:
                # Steps of Adam change all weights alike; where columns are many that finds worse weights than the gradient
                # itself, which a large ε leaves as it is. The rate is what the largest eigenvalue of such inputs allows.
                rate = 2 * n / (d**0.5 + n**0.5) ** 2 * (1.0 if task.n_classes else 0.1)
                usual |= {"optimizer": Adam(epsilon=1.0), "learning_rate": min(1.0, rate)}
                usual |= {"clip_norm": None} if task.n_classes else {}
        known = (*Recipe.__dataclass_fields__, "perturbation", "scoring_rule")
        return usual | {name: value for name, value in self.explicit.items() if name in known}

    def n_members(self, task: Task) -> int:
        """How many networks a candidate has."""
        if "n_members" in self.explicit:
            return self.explicit["n_members"]
        if self.preset == "paper":
            return PAPER["n_members"]
        return 10 if self.effort == "best" or self.is_wide(task) else 5

    def heads(self, task: Task) -> list[Any]:
        """Heads to compare, the plainest first."""
        if self.explicit.get("head") is not None:
            return [self.explicit["head"]]
        if self.preset == "paper" or task.n_classes or is_structured(task.targets):
            return [task.default_head]
        step, distinct = target_step(task.targets)
        floor = max(StudentT.min_variance, step**2 / 12)
        several: list[Any] = [StudentT(min_variance=floor)]
        if self.effort != "fast" and np.ndim(task.targets) == 1:
            several.append(Normal(min_variance=max(Normal.min_variance, floor)))
            enough = task.n_rows >= 1000 and distinct > 0.5
            several += [GaussianMixture(3, min_variance=max(GaussianMixture.min_variance, floor))] if enough else []
        return several

    def hidden_sizes(self) -> tuple[int, ...]:
        usual = PAPER["hidden_sizes"] if self.preset == "paper" else (128, 128, 128) if self.effort == "best" else (128, 128)
        return tuple(self.explicit.get("hidden_sizes", usual))

    def embedded(self, task: Task) -> list[int]:
        """Columns of more than two different values, unless there are very many."""
        sample = task.inputs[:: max(1, len(task.inputs) // 2000)]
        columns = [i for i in range(sample.shape[1]) if len(np.unique(sample[:, i])) > 2]
        return columns if len(columns) <= _MOST_EMBEDDED else []

    def build(self, candidate: _Candidate, task: Task) -> Callable[[], Any]:
        """The factory of a candidate's networks."""
        size = getattr(candidate.head, "raw_size", lambda n: n)(task.n_outputs)
        explicit, n_inputs = self.explicit, task.inputs.shape[1]
        if explicit.get("network") is not None:
            return explicit["network"](n_inputs, size)
        activation, dropout = explicit.get("activation"), explicit.get("dropout", 0.0)
        if self.preset == "paper" or explicit.get("batch_norm"):
            named = {"activation": activation or PAPER["activation"], "batch_norm": explicit.get("batch_norm", False)}
            # Where all rows fit into one batch, double precision costs nothing, and makes a row of weight 2 the same as two
            # rows to many digits.
            dtype = torch.float64 if len(task.inputs) <= self.settings(task).get("batch_size", 0) else None
            return partial(mlp, n_inputs, size, candidate.hidden_sizes, dropout=dropout, dtype=dtype, **named)
        embedded = self.embedded(task)
        columns = None if len(embedded) == n_inputs else tuple(embedded)
        waves = {"n_frequencies": 16 if candidate.scale else 0, "frequency_scale": candidate.scale or 1.0}
        named = {"activation": activation or "silu", "dropout": dropout, "columns": columns, **waves}
        return partial(periodic_mlp, n_inputs, size, candidate.hidden_sizes, **named)

    # -- trials --------------------------------------------------------------------------------------------------------

    def run(self) -> tuple[list[_Trial], list[float]]:
        """The trials to keep, and their shares in the mixture."""
        task, heads = self.task, self.heads(self.task)
        sizes, fixed = self.hidden_sizes(), self.explicit.get("network") is not None
        scales = (0.0,) if fixed or self.preset or not self.embedded(task) else _SCALES
        start = _Candidate(heads[0], scales[len(scales) // 2], sizes)
        can_choose = self.preset is None and self.settings(task).get("early_stopping") and self.n_members(task) > 1
        if not can_choose or task.n_rows < _FEW or (self.effort == "fast" and not self.is_wide(task)):
            return [self.trial(start, task)], [1.0]
        if task.n_rows <= 1.5 * _PILOT_ROWS:
            return self.best(self.search(start, heads, scales, task))
        rows = np.random.default_rng(self.seeds[1]).choice(len(task.inputs), _PILOT_ROWS, replace=False)
        trials, shares = self.best(self.search(start, heads, scales, task.subset(np.sort(rows))))
        least = max(shares) if task.n_rows > _MANY else 0.25
        wanted = [trial.candidate for trial, share in zip(trials, shares, strict=True) if share >= min(least, max(shares))]
        return self.best([self.trial(candidate, task) for candidate in wanted])

    def search(self, start: _Candidate, heads: Sequence[Any], scales: Sequence[float], task: Task) -> list[_Trial]:
        """Frequencies up and down from the first as long as that pays, then other heads, then no hidden layers."""
        trials = [self.trial(start, task)]
        middle = scales.index(start.scale)
        for direction in (1, -1):
            place, last = middle + direction, trials[0]
            while 0 <= place < len(scales) and self.has_time():
                trials.append(self.trial(replace(start, scale=scales[place]), task))
                if trials[-1].score >= last.score:
                    break
                place, last = place + direction, trials[-1]
        best = min(trials, key=lambda trial: trial.score)
        for head in heads[1:]:
            if self.has_time():
                trials.append(self.trial(replace(best.candidate, head=head), task))
                if _is_better(trials[-1].scores, best.scores):
                    trials += self.with_head(
                        head, [trial for trial in trials if trial.candidate.head == heads[0]], best, task
                    )
                    best = trials[-1]
        is_asked = self.explicit.get("network") is not None or "hidden_sizes" in self.explicit
        if not is_asked and (task.n_classes or self.is_wide(task)) and self.has_time():
            trials.append(self.trial(_Candidate(heads[0], 0.0, ()), task))
        return trials

    @staticmethod
    def is_wide(task: Task) -> bool:
        """Whether there are so many columns, or so few rows, that a linear model is hard to beat."""
        return task.n_rows < max(200, 4 * task.inputs.shape[1])

    def with_head(self, head: Any, trials: list[_Trial], best: _Trial, task: Task) -> list[_Trial]:
        """More trials of a head that turned out better: those of the other head that had a share in its mixture."""
        kept, _ = self.best(trials)
        return [self.trial(replace(trial.candidate, head=head), task) for trial in kept if trial is not best]

    def has_time(self) -> bool:
        """Whether there is time for another trial."""
        return time.monotonic() < self.end

    def trial(self, candidate: _Candidate, task: Task) -> _Trial:
        """Train a candidate's ensemble."""
        settings, n_members = self.settings(task, not candidate.hidden_sizes), self.n_members(task)
        if self.preset is None and settings.get("early_stopping") and "folds" not in self.explicit and n_members > 1:
            together = task.together()
            n_folds = min(5, n_members, int(together.max()) + 1)
            seed = self.seeds[0] % 2**32
            settings["folds"] = ComplementaryFolds(n_folds, together, seed) if n_folds > 1 else None
        if self.end < math.inf:
            settings["time_limit"] = max(0.1, self.end - time.monotonic())
        if settings.get("checkpoint") is not None and self.n_trials:
            path = settings["checkpoint"].path
            settings["checkpoint"] = replace(settings["checkpoint"], path=path.with_name(f"{path.name}-{self.n_trials}"))
        seed = run_seeds(int(self.seeds[0]), self.n_trials + 1)[-1]
        self.n_trials += 1
        build = self.build(candidate, task)
        others = {"head": candidate.head, "n_members": n_members, "sample_weight": task.sample_weight, "random_state": seed}
        ensemble = fit_ensemble(build, task.inputs, task.targets, **others, **settings)
        return _Trial(candidate, ensemble, self.scores(ensemble, task))

    def scores(self, ensemble: Ensemble, task: Task) -> np.ndarray:
        """The negative log-likelihood of every row that counts, out of fold."""
        if ensemble.out_of_fold_members is None:
            return np.zeros(1)
        return _log_scores(ensemble.out_of_fold(task.inputs), task)

    def best(self, trials: list[_Trial]) -> tuple[list[_Trial], list[float]]:
        """The family of trials with the best out-of-fold score of its mixture, and the shares of its trials in that."""
        families: dict[Any, list[_Trial]] = {}
        for trial in trials:
            families.setdefault(trial.candidate.family, []).append(trial)
        joined = []
        for members in families.values():
            scores = np.stack([trial.scores for trial in members])
            if "n_members" in self.explicit:
                shares = np.eye(len(members))[int(scores.mean(1).argmin())]
            else:
                shares = mixture_shares(-scores)
            joined.append((members, shares, -_log_mixture(-scores, shares)))
        least = min(joined, key=lambda item: float(item[2].mean()))
        for members, shares, scores in joined:
            if not _is_better(least[2], scores):
                kept = [(trial, share) for trial, share in zip(members, shares, strict=True) if share > 0]
                kept.sort(key=lambda item: -item[1])
                return [trial for trial, _ in kept], [float(share) for _, share in kept]
        raise AssertionError("the best is no worse than itself")

    # -- afterwards ----------------------------------------------------------------------------------------------------

    def recalibration(self, ensemble: Ensemble, trials: Sequence[_Trial]) -> Recalibration | None:
        """What out-of-fold predictions ask for."""
        fit = self.explicit.get("recalibration", choose if self.preset is None else None)
        if fit is None or is_structured(self.task.targets):
            return None
        is_asked = "recalibration" in self.explicit
        if not is_asked and (ensemble.out_of_fold_members is None or self.task.n_rows < _FEW):
            return None
        counted = slice(None) if self.task.sample_weight is None else np.flatnonzero(self.task.sample_weight > 0)
        mixture = ensemble.out_of_fold(self.task.inputs)
        mixture = mixture if self.task.sample_weight is None else mixture[torch.from_numpy(counted)]
        targets = torch.from_numpy(np.asarray(self.task.targets)[counted])
        if not is_asked and mixture.kind == "numbers" and is_stretchable(mixture):
            return self.stretched(ensemble, mixture, targets)
        if not is_asked and mixture.kind == "classes":
            return self.tempered(ensemble, mixture, targets)
        return fit(mixture, targets)

    def tempered(self, ensemble: Ensemble, mixture: Mixture, targets: Tensor) -> Temperature:
        """One temperature: the best for out-of-fold predictions, which few members make, put right for all.

        Its logarithm falls about linearly with the reciprocal of the number of members, from that of single members.
        """
        log = _log_temperature(mixture, targets)
        k, m = effective_members(mixture.weights), effective_members(_weights(ensemble))
        if k > 1.2:
            parts = [rebuilt(mixture.components, itemgetter(slice(i, i + 1))) for i in range(mixture.n_members)]
            singles = torch.tensor([_log_temperature(Mixture(part), targets) for part in parts]).to(mixture.weights)
            log += (float(singles @ mixture.weights) - log) * (1 / m - 1 / k) / (1 - 1 / k)
        return Temperature(math.exp(log))

    def stretched(self, ensemble: Ensemble, mixture: Mixture, targets: Tensor) -> VarianceScaling:
        r"""One factor on all deviations: the best for out-of-fold predictions, which few members make, put right for all.

        With r the variance between members in units of that within, k members have an error of $n + r/k$ and say
        $1 + r (1 - 1/k)$. The factor of out-of-fold predictions tells n, and so the factor for all members.
        """
        rows = np.linspace(0, len(self.task.inputs) - 1, min(len(self.task.inputs), 2000)).astype(np.int64)
        seen = ensemble.mixture(self.task.inputs[rows])
        k, m = effective_members(mixture.weights), effective_members(seen.weights)
        ratio = float((seen.epistemic / seen.aleatoric).clamp_max(10.0).mean()) * m / max(m - 1, 1e-9)
        factor = variance_scaling(mixture, targets).factor
        noise = max(factor**2 * (1 + ratio * (1 - 1 / k)) - ratio / k, 0.1 * factor**2)
        return VarianceScaling(((noise + ratio / m) / (1 + ratio * (1 - 1 / m))) ** 0.5)

    def described(self, trials: Sequence[_Trial], shares: Sequence[float], recalibration: Any) -> dict[str, Any]:
        """What was chosen, as plain data."""
        hidden = ("checkpoint", "verbose", "device", "time_limit")
        used = self.settings(self.task, not trials[0].candidate.hidden_sizes)
        settings = {name: value for name, value in used.items() if name not in hidden}
        plain = (bool, int, float, str, type(None))
        settings = {name: value if isinstance(value, plain) else repr(value) for name, value in settings.items()}
        first = trials[0].candidate
        return {
            "n_members": sum(trial.ensemble.n_members for trial in trials),
            "hidden_sizes": list(first.hidden_sizes),
            "head": repr(first.head),
            "frequency_scale": {str(t.candidate.scale): round(share, 3) for t, share in zip(trials, shares, strict=True)},
            "recalibration": repr(recalibration),
            **settings,
        }


_ROW_VISITS = {"fast": 1e6, "default": 4e6, "best": 8e6}
_EPOCHS = {"fast": 100, "default": 300, "best": 400}


def batch_size(n_rows: int) -> int:
    """Rows per step: few where there are few, so that an epoch has some dozen steps.

    Example:
        >>> [batch_size(n) for n in (100, 1_000, 10_000, 1_000_000)]
        [32, 64, 256, 1024]
    """
    limits = ((500, 32), (2000, 64), (8000, 128), (30_000, 256), (100_000, 512))
    return next((size for limit, size in limits if n_rows < limit), 1024)


def target_step(targets: np.ndarray) -> tuple[float, float]:
    """The step of the lattice that targets lie on, in standard deviations (0 if they lie on none), and the share of
    different values.

    Values that are rounded to a step h are uncertain by a variance of at least h²/12, whatever is known of them.

    Example:
        >>> step, distinct = target_step(np.array([3.0, 5.0, 6.0, 5.0] * 10))
        >>> round(step, 3), distinct
        (0.918, 0.075)
    """
    column = np.asarray(targets, dtype=np.float64).reshape(len(targets), -1)[:, 0]
    values, deviation = np.unique(column), float(column.std())
    distinct = len(values) / len(column)
    gaps = np.diff(values)
    if distinct > 0.25 or len(values) < 2 or deviation == 0:
        return 0.0, distinct
    steps = gaps / gaps.min()
    on_lattice = bool(np.abs(steps - steps.round()).max() < 1e-3)
    return float(gaps.min()) / deviation if on_lattice else 0.0, distinct


def mixture_shares(log_likelihoods: np.ndarray) -> np.ndarray:
    """The shares of ensembles in a mixture that make rows most probable; those of very small share get none.

    They are found by expectation maximisation from equal shares, which count like a few rows.

    Arguments:
        log_likelihoods: `[ensemble, row]`.

    Example:
        >>> mixture_shares(np.log([[0.9, 0.8, 0.7] * 50, [0.1, 0.2, 0.1] * 50]))
        array([1., 0.])
    """
    n, kept = len(log_likelihoods), np.ones(len(log_likelihoods), dtype=bool)
    while True:
        shares = np.where(kept, 1.0, 0.0) / kept.sum()
        for _ in range(500):
            with np.errstate(divide="ignore"):
                logs = log_likelihoods + np.log(shares)[:, None]
            parts = np.exp(logs - logs.max(0))
            sums = (parts / parts.sum(0)).sum(1) + np.where(kept, _PRIOR_ROWS / n, 0.0)
            shares = sums / sums.sum()
        small = kept & (shares < _LEAST_SHARE)
        if not small.any():
            return shares
        kept &= shares > shares[small].min()


def _is_better(scores: np.ndarray, others: np.ndarray) -> bool:
    """Whether scores of rows are less than others by more than a standard error."""
    gain = others - scores
    return bool(gain.mean() > gain.std() / len(gain) ** 0.5)


def _log_mixture(logs: np.ndarray, shares: np.ndarray) -> np.ndarray:
    with np.errstate(divide="ignore"):
        return np.logaddexp.reduce(logs + np.log(shares)[:, None], axis=0)


def effective_members(weights: Tensor) -> float:
    """How many members of equal weight would average as well as these.

    Example:
        >>> effective_members(torch.tensor([0.5, 0.5])), effective_members(torch.tensor([1.0, 0.0]))
        (2.0, 1.0)
    """
    return float(weights.sum().square() / weights.square().sum())


def _log_temperature(mixture: Mixture, targets: Tensor) -> float:
    """The logarithm of the most probable temperature; beforehand it is 1, give or take half."""
    from scipy.optimize import minimize_scalar

    def loss(log: float) -> float:
        scores = log_score(Temperature(math.exp(log))(mixture), targets)
        return float(scores.sum()) + 0.5 * (log / _TEMPERATURE_SPREAD) ** 2

    return float(minimize_scalar(loss, bounds=(-3.0, 3.0), method="bounded").x)


def _weights(ensemble: Ensemble) -> Tensor:
    return torch.ones(ensemble.n_members) if ensemble.weights is None else ensemble.weights


def _log_scores(mixture: Mixture, task: Task) -> np.ndarray:
    """The negative log-likelihood of every row that counts."""
    counted = np.arange(len(task.inputs)) if task.sample_weight is None else np.flatnonzero(task.sample_weight > 0)
    if is_structured(task.targets):
        from deep_ensembles._tensors import times_and_events

        return censored()(mixture, torch.from_numpy(times_and_events("y", task.targets)))[counted].double().numpy()
    scores: Tensor = log_score(mixture, torch.from_numpy(np.asarray(task.targets)))
    return scores[counted].double().numpy()
