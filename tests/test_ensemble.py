"""A fitted ensemble: batches, subsets, devices, draws with dropout."""

from __future__ import annotations

from functools import partial

import pytest
import torch

from deep_ensembles import Bootstrap, Ensemble, Point, fit_ensemble, mlp, squared_error

X = torch.randn(100, 3, generator=torch.Generator().manual_seed(0))
Y = X[:, 0] * 3 + 10


@pytest.fixture(scope="module")
def ensemble() -> Ensemble:
    return fit_ensemble(partial(mlp, 3, 2, dropout=0.3), X, Y, n_members=3, max_epochs=30, random_state=0)


def test_batches_do_not_matter(ensemble: Ensemble) -> None:
    whole = ensemble(X)
    for size in (1, 7, 1000):
        torch.testing.assert_close(ensemble(X, batch_size=size).mean, whole.mean, rtol=1e-6, atol=1e-6)
    assert sum(len(batch.mean) for batch in ensemble.batches(X, batch_size=30)) == 100


def test_subsets(ensemble: Ensemble) -> None:
    whole = ensemble(X).components.mean
    torch.testing.assert_close(ensemble.subset(2)(X).components.mean, whole[:2])
    torch.testing.assert_close(ensemble.subset([2, 0])(X).components.mean, whole[[2, 0]])
    assert ensemble.subset([2, 0]).seeds == (ensemble.seeds[2], ensemble.seeds[0])
    for bad in (0, 4, [3], []):
        with pytest.raises(ValueError, match="`members` must be"):
            ensemble.subset(bad)


def test_drawing_with_dropout(ensemble: Ensemble) -> None:
    drawn = ensemble.sampled(X, 50, random_state=0)
    assert drawn.n_members == 150
    torch.testing.assert_close(drawn.mean, ensemble.sampled(X, 50, random_state=0).mean)
    assert (drawn.epistemic > ensemble(X).epistemic).double().mean() > 0.9
    assert float((drawn.mean - Y).square().mean().sqrt()) < Y.std()
    with pytest.raises(ValueError, match="`n_samples`"):
        ensemble.sampled(X, 0)


def test_draws_are_in_the_units_of_each_member() -> None:
    """Members standardised by rows of their own: draws of a member without dropout are its prediction."""
    plain = fit_ensemble(
        partial(mlp, 3, 1), X, Y, head=Point(), scoring_rule=squared_error, resampling=Bootstrap(), n_members=2,
        max_epochs=5, random_state=0,
    )  # fmt: skip
    draws = plain.sampled(X, 3).components.mean.reshape(2, 3, 100)
    torch.testing.assert_close(draws, plain(X).components.mean.unsqueeze(1).expand(2, 3, 100))


def test_moving_keeps_predictions(ensemble: Ensemble) -> None:
    torch.testing.assert_close(ensemble.to("cpu")(X).mean, ensemble(X).mean)
    assert "3 × Sequential" in repr(ensemble)
