"""Networks that are hard to train as one stack."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from deep_ensembles import Looped, fit_ensemble, mlp

X = np.random.default_rng(0).normal(size=(230, 8))
Y = X[:, 0] + X[:, 1] ** 2


def test_networks_that_differ_in_more_than_parameters_are_looped() -> None:
    def build() -> nn.Module:
        return nn.Sequential(nn.Linear(8, 8), nn.Tanh() if torch.rand(()) < 0.5 else nn.ReLU(), nn.Linear(8, 2))

    settings = {"n_members": 4, "random_state": 3, "max_epochs": 3}
    with pytest.warns(UserWarning, match="differ in more than their parameters"):
        mixed = fit_ensemble(build, X, Y, **settings)
    torch.testing.assert_close(mixed(X).mean, fit_ensemble(build, X, Y, members=Looped, **settings)(X).mean)


@pytest.mark.parametrize("other", [{"n_members": 7}, {"members": Looped, "n_members": 2}], ids=str)
def test_batch_norm_does_not_blow_up_rounding(other: dict[str, object]) -> None:
    build = partial(mlp, 8, 2, (13,), batch_norm=True)
    settings = {"batch_size": 37, "max_epochs": 30, "random_state": 1}
    two = fit_ensemble(build, X, Y, n_members=2, **settings)(X).components.mean
    torch.testing.assert_close(two, fit_ensemble(build, X, Y, **settings, **other)(X).components.mean[:2], rtol=0, atol=1e-3)


class LateDropout(nn.Module):
    """Starts to draw random numbers after some steps."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.out = nn.Linear(8, 8), nn.Linear(8, 2)
        self.calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        hidden = torch.tanh(self.inner(x))
        return self.out(nn.functional.dropout(hidden, 0.3, self.training and self.calls > 20))


def test_noise_that_comes_late() -> None:
    ensemble = fit_ensemble(LateDropout, X, Y, n_members=2, max_epochs=12, random_state=0)
    assert ensemble.members.kind == "stacked"
    assert ensemble(X).mean.isfinite().all()


def test_a_weight_shared_in_a_sequence() -> None:
    def build() -> nn.Module:
        network = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 2))
        network[2].weight = network[0].weight
        return network

    settings = {"n_members": 2, "random_state": 0, "max_epochs": 3}
    shared, looped = fit_ensemble(build, X, Y, **settings), fit_ensemble(build, X, Y, members=Looped, **settings)
    torch.testing.assert_close(shared(X).mean, looped(X).mean, rtol=1e-4, atol=1e-4)
