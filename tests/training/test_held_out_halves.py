"""What was chosen on a row does not flatter it: each half of a fold is predicted at the epoch that the other half chose."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

from deep_ensembles import ComplementaryFolds, Ensemble, fit_ensemble, log_score, mlp

N, EPOCHS = 40, 12
X = torch.randn(N, 2, generator=torch.Generator().manual_seed(0)).double()
Y = X[:, 0] + torch.randn(N, generator=torch.Generator().manual_seed(1)).double()
FOLDS = ComplementaryFolds(2, random_state=3)


def fitted(**settings: Any) -> Ensemble:
    settings = {"learning_rate": 0.1, "batch_size": 10, "n_members": 2, "random_state": 0, "folds": FOLDS, **settings}
    return fit_ensemble(partial(mlp, 2, 2, (20,), dtype=torch.float64), X, Y, **settings)


def test_each_half_is_predicted_at_the_epoch_that_the_other_chose() -> None:
    honest = fitted(early_stopping=True, patience=100, max_epochs=EPOCHS)
    predicted = honest.out_of_fold(X).components.mean[0]
    by_epoch = [fitted(max_epochs=epoch + 1).mixture(X).components for epoch in range(EPOCHS)]
    means = torch.stack([components.mean for components in by_epoch])  # [epoch, member, row]
    losses = torch.stack([log_score(components, Y.expand(2, N)) for components in by_epoch])
    chosen = []
    for member, fold in enumerate(FOLDS(np.arange(N), 2, np.random.default_rng())):
        halves = [torch.from_numpy(half) for half in FOLDS.halves(fold)]
        for own, other in (halves, halves[::-1]):
            epoch = int(losses[:, member, other].mean(1).argmin())
            torch.testing.assert_close(predicted[own], means[epoch, member, own], rtol=1e-6, atol=1e-6)
            chosen.append(epoch)
    assert len(set(chosen)) > 1, "the case is too easy: every half chose the same epoch"


def test_members_themselves_are_kept_at_the_best_epoch_of_the_whole_fold() -> None:
    honest = fitted(early_stopping=True, patience=100, max_epochs=EPOCHS)
    held_out = honest.history[1]
    assert held_out.shape == (2, EPOCHS)
    for member in (0, 1):
        best = fitted(max_epochs=int(held_out[member].argmin()) + 1).mixture(X).components.mean[member]
        torch.testing.assert_close(honest.mixture(X).components.mean[member], best, rtol=1e-6, atol=1e-6)


def test_out_of_fold_predictions_are_no_better_than_the_truth_allows() -> None:
    """Noise alone: with many epochs to choose from, the fold's own best epoch looks better than the honest choice."""
    noise = torch.randn(N, generator=torch.Generator().manual_seed(2)).double()
    gains = []
    for seed in range(5):
        settings = {"folds": FOLDS, "early_stopping": True, "patience": 100, "max_epochs": 30, "learning_rate": 0.05}
        build = partial(mlp, 2, 2, (20,), dtype=torch.float64)
        ensemble = fit_ensemble(build, X, noise, n_members=2, batch_size=10, random_state=seed, **settings)
        honest = float(log_score(ensemble.out_of_fold(X), noise).mean())
        flattered = float(np.nanmin(ensemble.history[1], axis=1).mean() + np.log(float(noise.std(correction=0))))
        gains.append(honest - flattered)
    assert np.mean(gains) > 0


def test_without_early_stopping_there_is_nothing_to_choose() -> None:
    ensemble = fitted(max_epochs=3)
    assert ensemble.out_of_fold_raw is None
    unseen = torch.from_numpy(ensemble.out_of_fold_members[0])
    expected = ensemble.mixture(X).components.mean[unseen, torch.arange(N)]
    torch.testing.assert_close(ensemble.out_of_fold(X).components.mean[0], expected)


def test_rows_of_no_weight_are_predicted_too() -> None:
    weight = np.r_[np.zeros(5), np.ones(N - 5)]
    ensemble = fitted(early_stopping=True, max_epochs=3, sample_weight=weight)
    assert bool(ensemble.out_of_fold(X).mean.isfinite().all())


@pytest.mark.parametrize("n_members", [2, 3, 4])
def test_more_members_than_folds(n_members: int) -> None:
    ensemble = fitted(early_stopping=True, max_epochs=3, n_members=n_members)
    assert ensemble.out_of_fold(X).n_members == n_members // 2
