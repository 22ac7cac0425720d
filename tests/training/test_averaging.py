"""Averages of weights over epochs, and batches that are all of one size."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from deep_ensembles import Adam, Ensemble, Recipe, fit_ensemble, mlp

X = torch.randn(45, 3, generator=torch.Generator().manual_seed(0))
Y = X[:, 0] - X[:, 1]
NETWORK = partial(mlp, 3, 2, (6,))


class Recording:
    """Adam that remembers the weights of all runs after each update."""

    def __init__(self) -> None:
        self.weights: list[Tensor] = []

    def __call__(self, tensors: Any, *others: Any) -> None:
        Adam()(tensors, *others)
        (flat,) = tensors[0]
        self.weights.append(flat.clone())


def fitted(**settings: Any) -> tuple[Ensemble, list[Tensor]]:
    recording = Recording()
    settings = {"n_members": 2, "max_epochs": 6, "batch_size": 10, "random_state": 0, "optimizer": recording, **settings}
    return fit_ensemble(NETWORK, X, Y, **settings), recording.weights


@pytest.mark.parametrize("epochs", [0.5, 2.0, 10.0])
def test_is_an_exponential_average(epochs: float) -> None:
    """Over so many epochs of steps once there are as many; before, over about a tenth of what was."""
    ensemble, weights = fitted(averaging=epochs, drop_last=True)
    steps = 4
    assert len(weights) == 6 * steps
    average = torch.zeros_like(weights[0]).double()
    for n, latest in enumerate(weights):
        share = max(1 / (1 + epochs * steps), 10 / (10 + n))
        average += share * (latest.double() - average)
    torch.testing.assert_close(ensemble.members.parameters.flat.double(), average, rtol=1e-4, atol=1e-6)
    assert not torch.allclose(ensemble.members.parameters.flat, weights[-1], rtol=1e-4, atol=1e-6)


def test_blocks_and_remainders_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    """An epoch that is read in several blocks, with a last batch of another size, is averaged like one."""
    whole, _ = fitted(averaging=2.0)
    monkeypatch.setattr("deep_ensembles.training.batches._BLOCK_BYTES", 500)
    rows = fitted(averaging=2.0)[0]
    torch.testing.assert_close(rows.members.parameters.flat, whole.members.parameters.flat, rtol=1e-5, atol=1e-6)


def test_training_itself_does_not_see_the_average() -> None:
    for one, two in zip(fitted(averaging=2.0)[1], fitted()[1], strict=True):
        assert torch.equal(one, two)


def test_none_is_the_latest() -> None:
    ensemble, weights = fitted(averaging=None)
    assert torch.equal(ensemble.members.parameters.flat, weights[-1])


def test_a_member_is_averaged_alone() -> None:
    """Whatever the number of its neighbours, and when they stop."""
    settings = {"averaging": 2.0, "early_stopping": True, "patience": 1, "max_epochs": 30, "learning_rate": 0.1}
    several = fit_ensemble(NETWORK, X, Y, n_members=4, random_state=0, **settings)
    for m in (0, 1):
        first = fit_ensemble(NETWORK, X, Y, n_members=m + 1, random_state=0, **settings)
        one, other = (each.subset([m]).mixture(X).mean for each in (several, first))
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("n", "sizes"), [(45, [10, 10, 10, 10]), (40, [10] * 4), (7, [7]), (11, [10])])
def test_a_smaller_last_batch_is_dropped(n: int, sizes: list[int]) -> None:
    assert Recipe(batch_size=10, drop_last=True).batch_sizes(n) == sizes
    assert sum(Recipe(batch_size=10).batch_sizes(n)) == n


def test_dropped_rows_are_others_in_each_epoch() -> None:
    """An epoch that leaves out the one row of an enormous target has a small loss."""
    seen = set()
    for row in range(11):
        y = torch.zeros(11)
        y[row] = 1000.0
        settings = {"n_members": 1, "batch_size": 10, "drop_last": True, "standardize_targets": False, "random_state": 0}
        losses = fit_ensemble(NETWORK, X[:11], y, max_epochs=60, learning_rate=1e-9, **settings).history[0, 0]
        left_out = losses < losses.max() / 2
        assert 0 < left_out.sum() < 30
        seen.add(tuple(left_out))
    assert len(seen) == 11
