"""Growing an ensemble: more members, more epochs, as many as pay; always what would have come at once."""

from __future__ import annotations

import pickle
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from deep_ensembles import (
    AdamW,
    Bootstrap,
    Checkpoint,
    ComplementaryFolds,
    Cosine,
    FastGradientSign,
    Grow,
    LogNormal,
    extend_ensemble,
    fit_ensemble,
    growing,
    load,
    mlp,
)  # fmt: skip
from deep_ensembles.ensemble import Ensemble
from deep_ensembles.fitting import train_further

X = torch.randn(96, 3, generator=torch.Generator().manual_seed(0))
Y = 2 * X[:, 0] + torch.randn(96, generator=torch.Generator().manual_seed(1))
BUILD = partial(mlp, 3, 2, (8,))
SETTINGS: dict[str, Any] = {"max_epochs": 3, "batch_size": 32, "random_state": 5}


class Own(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(3, 8, bias=False), nn.BatchNorm1d(8), nn.Linear(8, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(torch.tanh(self.norm(self.first(x))))


def assert_same(found: Ensemble, wanted: Ensemble) -> None:
    """Members, units, history and what is known of rows out of fold; another place in a stack may round otherwise."""
    close = partial(torch.testing.assert_close, rtol=1e-4, atol=1e-5)
    assert found.seeds == wanted.seeds
    close(found.members.parameters.views, wanted.members.parameters.views)
    close(found.members.buffers, wanted.members.buffers)
    close(found.standardization.tensors(), wanted.standardization.tensors())
    np.testing.assert_allclose(found.history, wanted.history, rtol=1e-4, atol=1e-5)
    close(found(X).log_prob(Y), wanted(X).log_prob(Y))
    assert (found.out_of_fold_members is None) == (wanted.out_of_fold_members is None)
    if wanted.out_of_fold_members is not None:
        np.testing.assert_array_equal(found.out_of_fold_members, wanted.out_of_fold_members)
        close(found.out_of_fold(X).log_prob(Y), wanted.out_of_fold(X).log_prob(Y))


@pytest.mark.parametrize("n", [1, 5])
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"folds": ComplementaryFolds()},
        {"folds": ComplementaryFolds(), "early_stopping": True, "patience": 2},
        {"early_stopping": True},
        {"resampling": Bootstrap(), "averaging": 2.0, "schedule": Cosine()},
        {"perturbation": FastGradientSign(), "sample_weight": np.arange(96) % 3},
    ],
    ids=["plain", "folds", "stopped folds", "stopped", "bagged", "adversarial"],
)
def test_members_that_are_added_are_those_of_a_larger_ensemble(settings: dict[str, Any], n: int) -> None:
    small, large = (fit_ensemble(BUILD, X, Y, n_members=count, **SETTINGS, **settings) for count in (6, 6 + n))
    weights = settings.get("sample_weight")
    assert_same(extend_ensemble(small, X, Y, n, sample_weight=weights), large)


def test_a_member_has_the_same_bits_whatever_the_size_of_its_ensemble() -> None:
    small, large = (fit_ensemble(BUILD, X, Y, n_members=count, **SETTINGS) for count in (5, 8))
    for name, stacked in large.members.parameters.views.items():
        assert torch.equal(small.members.parameters.views[name], stacked[:5])


@pytest.mark.parametrize("build", [Own, lambda: Own()], ids=["class", "lambda"])
def test_networks_of_a_user_grow_too_and_twice(build: Any) -> None:
    grown = fit_ensemble(build, X, Y, n_members=2, **SETTINGS)
    for n in (1, 2):
        grown = extend_ensemble(grown, X, Y, n)
    assert_same(grown, fit_ensemble(build, X, Y, n_members=5, **SETTINGS))


def test_censored_times_and_classes_grow() -> None:
    times = np.zeros(96, dtype=[("event", bool), ("time", float)])
    times["event"], times["time"] = np.arange(96) % 2, np.exp(0.1 * Y.numpy())
    for targets, head in ((times, LogNormal()), ((Y > 0).long(), None)):
        small, large = (fit_ensemble(BUILD, X, targets, head=head, n_members=n, **SETTINGS) for n in (2, 4))
        grown = extend_ensemble(small, X, targets, 2)
        truth = torch.ones(96, dtype=torch.long)
        torch.testing.assert_close(grown(X).log_prob(truth), large(X).log_prob(truth), rtol=1e-4, atol=1e-5)


def test_few_members_keep_the_number_of_folds_that_they_have() -> None:
    three = fit_ensemble(BUILD, X, Y, n_members=3, folds=ComplementaryFolds(), **SETTINGS)
    five = fit_ensemble(BUILD, X, Y, n_members=5, folds=ComplementaryFolds(3), **SETTINGS)
    assert_same(extend_ensemble(three, X, Y, 2), five)


def test_an_extension_goes_on_from_its_own_checkpoint(tmp_path: Path) -> None:
    kept = {**SETTINGS, "checkpoint": Checkpoint(tmp_path / "state")}
    small = fit_ensemble(BUILD, X, Y, n_members=2, **kept)
    first, again = (extend_ensemble(small, X, Y, 2) for _ in range(2))
    assert_same(first, again)
    assert len(list(tmp_path.iterdir())) == 2


def test_what_does_not_know_its_training_or_other_rows_are_refused(tmp_path: Path) -> None:
    ensemble = fit_ensemble(BUILD, X, Y, n_members=2, **SETTINGS)
    ensemble.save(tmp_path / "model")
    for stranger in (load(tmp_path / "model"), ensemble.subset(1), pickle.loads(pickle.dumps(ensemble))):
        with pytest.raises(ValueError, match="`ensemble` must know how it was trained"):
            extend_ensemble(stranger, X, Y, 1)
    for rows in ((X + 1, Y), (X, Y + 1), (X[:50], Y[:50])):
        with pytest.raises(ValueError, match="`inputs` must be the rows that the ensemble was trained on"):
            extend_ensemble(ensemble, *rows, 1)
    with pytest.raises(ValueError, match="`n` must be an integer ≥ 1, got 0"):
        extend_ensemble(ensemble, X, Y, 0)


@pytest.mark.parametrize(
    "settings",
    [{}, {"averaging": 2.0}, {"perturbation": FastGradientSign()}, {"optimizer": AdamW(), "weight_decay": 0.1},
     {"folds": ComplementaryFolds()}],
    ids=["plain", "averaged", "adversarial", "decayed", "folds"],
)  # fmt: skip
def test_further_epochs_are_those_of_a_longer_training(settings: dict[str, Any]) -> None:
    short = fit_ensemble(BUILD, X, Y, n_members=3, resumable=True, **SETTINGS, **settings)
    long = fit_ensemble(BUILD, X, Y, n_members=3, **{**SETTINGS, "max_epochs": 7}, **settings)
    once = train_further(short, X, Y, max_epochs=5)
    twice = train_further(once, X, Y, max_epochs=7)
    for name, stacked in long.members.parameters.views.items():
        assert torch.equal(twice.members.parameters.views[name], stacked)
    assert_same(twice, long)
    with pytest.raises(ValueError, match="`max_epochs` must be more than the 7 that there were, got 7"):
        train_further(twice, X, Y, max_epochs=7)


def test_other_rows_are_seen_in_the_units_of_the_first() -> None:
    first = fit_ensemble(BUILD, X, Y, n_members=2, **SETTINGS)
    moved = train_further(first, 10 * X[:5], Y[:5])
    torch.testing.assert_close(moved.standardization.tensors(), first.standardization.tensors())
    assert not torch.equal(moved(X).mean, first(X).mean)


def test_members_are_added_as_long_as_held_out_scores_improve_by_their_error() -> None:
    settings = {**SETTINGS, "folds": ComplementaryFolds(), "max_epochs": 20}
    grown = fit_ensemble(BUILD, X, Y, n_members=Grow(at_most=60), **settings)
    assert_same(grown, fit_ensemble(BUILD, X, Y, n_members=grown.n_members, **settings))

    def scores(n: int) -> torch.Tensor:
        return -fit_ensemble(BUILD, X, Y, n_members=n, **settings).out_of_fold(X).log_prob(Y)

    def pays(n: int) -> bool:
        gains = (scores(n - 5) - scores(n)).numpy()
        return bool(gains.mean() > gains.std() / len(gains) ** 0.5)

    assert 10 <= grown.n_members < 60
    assert not pays(grown.n_members)
    assert all(pays(n) for n in range(10, grown.n_members, 5))


def test_time_and_number_end_the_growing(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(0, 10_000, 10))  # ten seconds pass between looks: to train five members, and to look again
    monkeypatch.setattr(growing, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    assert fit_ensemble(BUILD, X, Y, n_members=Grow(seconds=100), **SETTINGS).n_members == 25
    assert fit_ensemble(BUILD, X, Y, n_members=Grow(at_most=7, seconds=1e9), **SETTINGS).n_members == 7
    with pytest.raises(
        ValueError, match=r"`folds` must be `ComplementaryFolds\(\)` to see whether members pay, of rows in memory"
    ):
        fit_ensemble(BUILD, X, Y, n_members=Grow(), **SETTINGS)
    for wrong in ({"at_most": 0}, {"seconds": 0.0}):
        with pytest.raises(ValueError, match="must be"):
            Grow(**wrong)
