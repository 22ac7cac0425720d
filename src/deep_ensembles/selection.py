"""Trains what a recipe leaves open, compares it by out-of-fold scores, joins and recalibrates the best."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch.nn.parameter import is_lazy

from deep_ensembles import scoring
from deep_ensembles._checks import require
from deep_ensembles._random import RandomState, run_seeds, seeded
from deep_ensembles._splits import ComplementaryFolds
from deep_ensembles._tensors import is_structured, times_and_events
from deep_ensembles._terminal import progress
from deep_ensembles.distributions import Delta, marginal
from deep_ensembles.ensemble import Ensemble
from deep_ensembles.execution import InProcess, suited
from deep_ensembles.fitting import fit_ensemble
from deep_ensembles.growing import is_better
from deep_ensembles.heads import Categorical, Normal
from deep_ensembles.perturbations import FastGradientSign
from deep_ensembles.recalibration import Recalibration, VarianceScaling, choose, variance_scaling
from deep_ensembles.recalibration.fits import is_stretchable
from deep_ensembles.recalibration.of_ensembles import stretched, tempered
from deep_ensembles.recipes import EPSILON, SMALL_ROWS, Candidate, Choices, Task, repeated_columns, target_step
from deep_ensembles.training.resources import limited_threads

_PILOT_ROWS = 3000  # that networks are tried on, where there are many more
_MANY_ROWS = 50_000  # from which only the best network is trained to the end, not the best two
_PILOT_MEMBERS, _PILOT_PART = 3, 0.5  # members of a trial, and its part of the epochs
_PILOT_EPOCHS = 150  # at most, where only some of the rows are tried
_FEW_ROWS = 200  # below which so much is left to chance that four networks are trained to the end, not two
_FOLD_ROWS, _MOST_FOLDS = 20, 20  # rows that a fold has at least, and folds at most, where there are more than 5
_MAIN_PART = 0.6  # of the time limit that is left for the best networks
_FEW = 20  # rows that are too few to choose anything by
_LEAST_SHARE = 0.1  # of an ensemble in a mixture of several; what has less is left out
_STAGES = 3  # of trials that a search takes about, by which it is seen whether processes pay
_PRIOR_ROWS = 5.0  # how many rows equal shares are worth


@dataclass(frozen=True)
class Fitted:
    """An ensemble, and the settings that it was trained with, as plain data."""

    ensemble: Ensemble
    chosen: dict[str, Any]


def fit_recipe(task: Task, choices: Choices, random_state: RandomState = None) -> Fitted:
    """Train an ensemble with the settings that the data ask for.

    Members hold out complementary folds, with equal rows and groups in one piece. Several networks and heads are tried, on
    some of the rows where these are many, and compared by the likelihood of rows that they did not see; the best are joined,
    weighted and recalibrated by the same rows.

    Arguments:
        task: data and what is known of them.
        choices: which settings are given, and how the others are chosen.
        random_state: the seed of everything.
    """
    search = _Search(task, choices, random_state)
    trials, shares = search.run()
    ensemble = trials[0].ensemble
    if len(trials) > 1:
        ensemble = Ensemble.joined([trial.ensemble for trial in trials], shares)
    with limited_threads(1000.0 * task.n_rows):
        recalibration = search.recalibration(ensemble)
    return Fitted(replace(ensemble, recalibration=recalibration), search.described(trials, shares, recalibration))


def recalibrated(task: Task, choices: Choices, ensemble: Ensemble) -> Ensemble:
    """An ensemble that was trained further, with what its out-of-fold predictions ask for; arguments as above."""
    return replace(ensemble, recalibration=_Search(task, choices, 0).recalibration(ensemble))


@dataclass(frozen=True, eq=False)
class _Trial:
    """A candidate, its ensemble, and the out-of-fold score of every row."""

    candidate: Candidate
    ensemble: Ensemble
    scores: np.ndarray

    @property
    def score(self) -> float:
        """The mean over rows."""
        return float(self.scores.mean())


class _Search:
    """The candidates for a task, trained in stages and compared."""

    def __init__(self, task: Task, choices: Choices, random_state: RandomState) -> None:
        self.task, self.choices, self.random_state = task, choices, random_state
        self.seeds = run_seeds(random_state, 2)
        limit = choices.explicit.get("time_limit")
        self.end = math.inf if limit is None else time.time() + limit  # of the clock that machines of a cluster share
        self.n_trials = 0

    def run(self) -> tuple[list[_Trial], list[float]]:
        """The trials to keep, and their shares in the mixture."""
        task, choices = self.task, self.choices
        heads, scales, sizes = choices.candidates(task)
        start = Candidate(heads[0], scales[len(scales) // 4], sizes, has_bins=scales[0] > 0)
        holds_out = choices.training(task).get("early_stopping") and choices.explicit.get("folds", "auto") is not None
        is_open = len(heads) > 1 or scales[0] > 0 or choices.tries_adversary(task) or choices.tries_linear(task)
        can_choose = is_open and choices.preset is None and holds_out and choices.n_members(task) > 1
        if not can_choose or task.n_rows < _FEW or (choices.effort == "fast" and task.inputs.shape[1] <= task.n_rows):
            return self.train([start], task, needed=1), [1.0]
        rows = task.counted
        if task.n_rows > SMALL_ROWS:
            rows = np.random.default_rng(self.seeds[1]).choice(rows, _PILOT_ROWS, replace=False)
        end, self.end = self.end, self.end - _MAIN_PART * (self.end - time.time()) if self.end < math.inf else math.inf
        trials, _ = self.best(self.search(start, heads, scales, task.subset(np.sort(rows))))
        self.end = end
        best = list(dict.fromkeys(replace(trial.candidate, is_constant=False) for trial in trials))
        is_one = task.n_rows >= _MANY_ROWS or "n_members" in choices.explicit
        n = 1 if is_one else 2 if task.n_rows >= _FEW_ROWS else 4
        finalists = dict.fromkeys([*best[:n], *self.linear(best[0].head)])
        return self.best(self.with_constants(self.train([*finalists], task, needed=1), task))

    def linear(self, head: Any) -> list[Candidate]:
        """A network without hidden layers, where one is tried."""
        return [Candidate(head, 0.0, ())] if self.choices.tries_linear(self.task) else []

    def search(self, start: Candidate, heads: Sequence[Any], scales: Sequence[float], task: Task) -> list[_Trial]:
        """Trials in stages; candidates of a stage may be trained side by side.

        First bins, waves of the middle frequency without them, and bins with vectors for numbers that repeat: if these are
        better than both, all others have them too. Then waves of other frequencies. Then, for the best of these, adversarial
        training, other heads and no hidden layers, beside the next frequency where an end was better than the middle; last,
        if another head is better, the other networks with it.
        """
        waves = [replace(start, scale=scale, has_bins=False) for scale in scales[1:-1]]
        repeated = repeated_columns(self.task.inputs, self.task.levels) if waves else ()
        valued = [replace(start, repeated=repeated)] if repeated else []
        trials, waves = self.train([start, *waves[1:2], *valued], task, needed=1), waves[:1] + waves[2:]
        if trials[-1].candidate.repeated:
            *trials, last = trials
            if is_better(last.scores, _best(trials).scores):
                trials, waves = [last], [replace(last.candidate, scale=scale, has_bins=False) for scale in scales[1:-1]]
        trials += self.train(waves, task)
        bare = self.choices.heads(self.task, has_floor=False)
        if bare != heads and any(self.beats_rounding(trial, task) for trial in trials):
            return self.search(replace(start, head=bare[0]), bare, scales, task)
        best = _best(trials)
        adversarial = [replace(best.candidate, epsilon=EPSILON)] if self.choices.tries_adversary(self.task) else []
        others = [replace(best.candidate, head=head) for head in heads[1:] if self.may_win(head, best, task)]
        more = self.train([*adversarial, *_next_frequencies(trials, scales), *others, *self.linear(heads[0])], task)
        better = [trial for trial in more if trial.candidate.head != heads[0] and is_better(trial.scores, best.scores)]
        if better:
            head = _best(better).candidate.head
            usual, _ = self.best([*trials, *(trial for trial in more if trial.candidate.head == heads[0])])
            more += self.train([replace(trial.candidate, head=head) for trial in usual if trial is not best], task)
        return self.with_constants([*trials, *more], task)

    def with_constants(self, trials: list[_Trial], task: Task) -> list[_Trial]:
        """Of classes, beside each family of trials members that say the shares of classes."""
        if self.choices.explicit.get("network") is not None or not isinstance(trials[0].candidate.head, Categorical):
            return trials
        families = {trial.candidate.family: trial for trial in trials}
        return trials + [self.constant(trial, task) for trial in families.values()]

    def train(self, candidates: Sequence[Candidate], task: Task, needed: int = 0) -> list[_Trial]:
        """Trials of candidates, side by side where that pays; so many are `needed` even if there is no time left."""
        if not candidates:
            return []
        builds, first = [self.choices.build(candidate, task) for candidate in candidates], self.n_trials
        settings = [self.settings(candidate, task, first + i) for i, candidate in enumerate(candidates)]
        self.n_trials += len(candidates)
        execution, verbose = self.choices.explicit.get("execution"), settings[0].get("verbose", 0)
        work = list(map(partial(_work, task.n_rows), builds, settings))
        where = suited(execution, len(candidates), _STAGES * sum(work))
        spreads = where.workers > 1 and len(candidates) > 1
        inside = {"verbose": 0} if spreads else {"execution": execution}
        items = [(i, builds[i], settings[i] | inside, i < needed) for i in range(len(candidates))]
        if spreads and self.end == math.inf:
            items.sort(key=lambda item: work[item[0]], reverse=True)  # so that none is left over that takes long
        data = (task.inputs, task.targets) if task.source is None else (task.source,)
        ensembles = dict[int, Ensemble | None]()
        with progress("comparing", len(items), "networks", verbose=verbose if spreads else 0) as update:
            for item, ensemble in (where if spreads else InProcess())(partial(_fit, data, self.end), items):
                ensembles[item[0]] = ensemble
                update(advance=1)
        pairs = [(candidate, ensembles[i]) for i, candidate in enumerate(candidates)]
        return [_Trial(candidate, made, self.scores(made, task)) for candidate, made in pairs if made is not None]

    def settings(self, candidate: Candidate, task: Task, number: int) -> dict[str, Any]:
        """The settings of `fit_ensemble` for a candidate."""
        choices = self.choices
        settings, n_members = choices.training(task, not candidate.hidden_sizes), choices.n_members(task)
        if task is not self.task:
            n_members = min(n_members, _PILOT_MEMBERS)
            most = math.inf if task.n_rows == self.task.n_rows else _PILOT_EPOCHS
            settings["max_epochs"] = min(most, math.ceil(_PILOT_PART * settings["max_epochs"]))
        if choices.preset is None and settings["early_stopping"] and "folds" not in choices.explicit and n_members > 1:
            together = task.together if task.source is None else None  # blocks deal out folds by themselves
            most = min(_MOST_FOLDS, max(5, task.n_rows // _FOLD_ROWS))
            n_folds = min(most, n_members, most if together is None else len(np.unique(together[task.counted])))
            settings["folds"] = ComplementaryFolds(n_folds, together, self.seeds[0] % 2**32) if n_folds > 1 else None
        if settings.get("checkpoint") is not None and number:
            settings["checkpoint"] = settings["checkpoint"].numbered(number)
        seed = run_seeds(self.seeds[0], number + 1)[-1] if choices.preset is None else self.random_state
        settings |= {"head": candidate.head, "n_members": n_members, "random_state": seed}
        settings |= {"perturbation": FastGradientSign(candidate.epsilon)} if candidate.epsilon else {}
        return settings | ({"sample_weight": task.sample_weight} if task.source is None else {})

    def may_win(self, head: Any, trial: _Trial, task: Task) -> bool:
        """Whether a head is worth a trial beside one: not normals, if they would be worse around the same predictions.

        These are the normals with the mean and variance of out-of-fold predictions, times the factor that suits them best.
        """
        if not isinstance(head, Normal) or self.rule(trial.ensemble) is not scoring.log_score:
            return True
        counted = torch.from_numpy(task.counted)
        normals = trial.ensemble.out_of_fold(task.inputs)[counted].moment_matched()
        targets = torch.from_numpy(task.targets)[counted]
        return not is_better(trial.scores, scoring.log_score(variance_scaling(normals, targets)(normals), targets).numpy())

    def beats_rounding(self, trial: _Trial, task: Task) -> bool:
        """Whether out-of-fold errors are smaller than those of rounding to the step between targets.

        Half of those would be above a quarter of the step. If so, targets were not rounded, and no more noise has to be
        assumed than there is. Rows of the most frequent target do not count, as it may be easy to tell.
        """
        values, counts = np.unique(self.task.targets, return_counts=True)
        step = target_step(self.task.targets)[0] * float(np.std(self.task.targets))
        targets = task.targets[task.counted]
        errors = np.abs(trial.ensemble.out_of_fold(task.inputs).mean.numpy()[task.counted] - targets)
        return bool(np.median(errors[targets != values[counts.argmax()]]) < 0.8 * step / 4)

    def constant(self, trial: _Trial, task: Task) -> _Trial:
        """Members that say the shares of classes among their own rows, whatever a row is; of the architecture of a trial.

        A share of them in the mixture draws probabilities towards those shares, as far as out-of-fold rows ask for that.
        """
        ensemble = trial.ensemble
        assert ensemble.out_of_fold_members is not None
        n, rows = ensemble.n_members, np.ones(len(task.inputs)) if task.sample_weight is None else task.sample_weight
        seen = (ensemble.out_of_fold_members != np.arange(n)[:, None, None]).all(1)
        counts = np.stack([np.bincount(task.targets, rows * of_member, task.n_classes) for of_member in seen])
        raw = torch.from_numpy(np.log(counts + _PRIOR_ROWS / task.n_classes)).to(ensemble.members.parameters.flat)
        members = ensemble.members.select(range(n))
        members.parameters.flat.zero_()
        list(members.parameters.views.values())[-1].copy_(raw)  # the bias of the last layer
        kept = None if ensemble.out_of_fold_raw is None else raw[torch.from_numpy(ensemble.out_of_fold_members)]
        ensemble = replace(ensemble, members=members, out_of_fold_raw=kept)
        return _Trial(replace(trial.candidate, is_constant=True), ensemble, self.scores(ensemble, task))

    def scores(self, ensemble: Ensemble, task: Task) -> np.ndarray:
        """The score of every row that counts, out of fold: its negative log-likelihood unless members learnt another."""
        if ensemble.out_of_fold_members is None:
            return np.zeros(1)
        mixture = ensemble.out_of_fold(task.inputs)
        if is_structured(task.targets):
            targets, rule = torch.from_numpy(times_and_events("y", task.targets)), scoring.censored()
        else:
            targets, rule = torch.from_numpy(np.asarray(task.targets)), self.rule(ensemble)
            targets = targets.double() if mixture.kind == "labels" else targets
        return rule(mixture, targets)[torch.from_numpy(task.counted)].double().numpy()

    def rule(self, ensemble: Ensemble) -> Any:
        """The scoring rule that candidates are compared by."""
        asked = self.choices.explicit.get("scoring_rule")
        return getattr(scoring, getattr(ensemble.head, "rule", "log_score")) if asked is None else asked

    def best(self, trials: list[_Trial]) -> tuple[list[_Trial], list[float]]:
        """The family of trials with the best out-of-fold score of its mixture, and the shares of its trials in that."""
        families: dict[Any, list[_Trial]] = {}
        for trial in trials:
            families.setdefault(trial.candidate.family, []).append(trial)
        joined = []
        for members in families.values():
            scores = np.stack([trial.scores for trial in members])
            is_likelihood = self.rule(members[0].ensemble) is scoring.log_score
            if "n_members" in self.choices.explicit or not is_likelihood:
                best = int(scores.mean(1).argmin())
                joined.append((members, np.eye(len(members))[best], scores[best]))
            else:
                shares = mixture_shares(-scores)
                joined.append((members, shares, -np.logaddexp.reduce(_weighted(-scores, shares), axis=0)))
        least = min(joined, key=lambda item: float(item[2].mean()))
        members, shares, _ = next(item for item in joined if not is_better(least[2], item[2]))
        kept = sorted(((float(share), i) for i, share in enumerate(shares) if share > 0), reverse=True)
        return [members[i] for _, i in kept], [share for share, _ in kept]

    def recalibration(self, ensemble: Ensemble) -> Recalibration | None:
        """What out-of-fold predictions ask for."""
        task, explicit = self.task, self.choices.explicit
        asked = explicit.get("recalibration")
        if "recalibration" not in explicit:
            is_point = isinstance(marginal(ensemble.head(torch.zeros(1, ensemble.n_outputs))), Delta)
            unknown = ensemble.out_of_fold_members is None or is_structured(task.targets) or is_point
            if self.choices.preset is not None or unknown or task.n_rows < _FEW:
                return None
        elif asked is None:
            return None
        elif ensemble.out_of_fold_members is None:
            require(ensemble.n_members > 1, "n_members", "at least 2 for members to hold rows out", ensemble.n_members,
                    "or call `recalibrate` with rows the model has not seen")  # fmt: skip
        counted = torch.from_numpy(task.counted)
        mixture, targets = ensemble.out_of_fold(task.inputs)[counted], torch.from_numpy(np.asarray(task.targets))[counted]
        if asked is not None:
            return asked(mixture, targets)
        weights = torch.ones(ensemble.n_members) if ensemble.weights is None else ensemble.weights
        is_number = mixture.kind == "numbers" and is_stretchable(mixture)
        if not is_number and mixture.kind != "classes":
            return choose(mixture, targets, groups=None if task.groups is None else np.asarray(task.groups)[task.counted])
        known = (mixture, targets, weights, lambda rows: ensemble.mixture(task.inputs[task.counted[rows]]))
        if not is_number:
            return tempered(*known)
        factor = stretched(*known).factor
        has_floor = getattr(ensemble.head, "min_variance", 0.0) > getattr(type(ensemble.head), "min_variance", 0.0)
        return VarianceScaling(max(1.0, factor) if has_floor else factor)  # the floor must not be undercut

    def described(self, trials: Sequence[_Trial], shares: Sequence[float], recalibration: Any) -> dict[str, Any]:
        """What was chosen, as plain data."""
        first, is_own = trials[0].candidate, self.choices.explicit.get("network") is not None
        hidden = ("checkpoint", "verbose", "device", "time_limit", "resumable")
        used, plain = self.choices.training(self.task, not first.hidden_sizes).items(), (int, float, str, type(None))
        settings = {name: value if isinstance(value, plain) else repr(value) for name, value in used if name not in hidden}
        networks = {trial.candidate.network: round(share, 3) for trial, share in zip(trials, shares, strict=True)}
        return {
            "n_members": sum(trial.ensemble.n_members for trial in trials),
            "hidden_sizes": None if is_own else list(first.hidden_sizes),
            "networks": networks if first.scale else None,
            "head": repr(first.head),
            **settings,
            "recalibration": repr(recalibration),
        }


def _fit(data: tuple[Any, ...], end: float, item: tuple[int, Any, dict[str, Any], bool]) -> Ensemble | None:
    """Train the ensemble of a candidate, unless there is no time left for it and it is not needed."""
    _, build, settings, is_needed = item
    left = end - time.time()
    if left <= 0 and not is_needed:
        return None
    return fit_ensemble(build, *data, **settings | ({"time_limit": max(0.1, left)} if left < math.inf else {}))


def _best(trials: Sequence[_Trial]) -> _Trial:
    return min(trials, key=lambda trial: trial.score)


def _work(n_rows: int, build: Any, settings: Mapping[str, Any]) -> float:
    """About how many multiplications the training of an ensemble takes."""
    with seeded(0):
        sizes = [parameter.numel() for parameter in build().parameters() if not is_lazy(parameter)]
    passes = 1 if settings.get("perturbation") is None else 2
    return float(sum(sizes)) * n_rows * settings["max_epochs"] * settings["n_members"] * passes


def _next_frequencies(trials: Sequence[_Trial], scales: Sequence[float]) -> list[Candidate]:
    """Waves of the frequency beyond the better end of those that were tried, if it was better than the middle."""
    waves = {trial.candidate.scale: trial for trial in trials if trial.candidate.scale and not trial.candidate.has_bins}
    if len(waves) < len(scales) - 2 or not waves:
        return []
    low, middle, high = (waves[scale] for scale in sorted(waves))
    end, scale = (low, scales[0]) if low.score < high.score else (high, scales[-1])
    return [replace(middle.candidate, scale=scale)] if end.score < middle.score else []


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
            logs = _weighted(log_likelihoods, shares)
            parts = np.exp(logs - logs.max(0))
            sums = (parts / parts.sum(0)).sum(1) + np.where(kept, _PRIOR_ROWS / n, 0.0)
            shares = sums / sums.sum()
        small = kept & (shares < _LEAST_SHARE)
        if not small.any():
            return shares
        kept &= shares > shares[small].min()


def _weighted(logs: np.ndarray, shares: np.ndarray) -> np.ndarray:
    """Log-likelihoods `[ensemble, row]` with the share of each ensemble."""
    with np.errstate(divide="ignore"):
        return logs + np.log(shares)[:, None]
