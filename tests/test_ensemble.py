"""A fitted ensemble: batches, subsets, devices, draws with dropout."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from deep_ensembles import (
    Bootstrap,
    ComplementaryFolds,
    Ensemble,
    Point,
    StudentT,
    fit_ensemble,
    load,
    mlp,
    periodic_mlp,
    squared_error,
)

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


def of_scale(scale: float, n_members: int = 2, **settings: Any) -> Ensemble:
    build = partial(periodic_mlp, 3, 2, (6, 6), n_frequencies=4, frequency_scale=scale)
    folds = ComplementaryFolds(2, random_state=0)
    settings = {"folds": folds, "early_stopping": True, "max_epochs": 4, "random_state": int(10 * scale), **settings}
    return fit_ensemble(build, X, Y, n_members=n_members, **settings)


@pytest.fixture(scope="module")
def parts() -> list[Ensemble]:
    return [of_scale(0.3), of_scale(1.0, n_members=4)]


@pytest.fixture
def joined(parts: list[Ensemble]) -> Ensemble:
    return Ensemble.joined(parts, [0.7, 0.3])


class TestJoined:
    def test_is_the_weighted_mixture(self, parts: list[Ensemble], joined: Ensemble) -> None:
        assert joined.n_members == 6
        one, two = (part(X).log_prob(Y.double()).exp() for part in parts)
        torch.testing.assert_close(joined(X).log_prob(Y.double()).exp(), 0.7 * one + 0.3 * two, rtol=1e-6, atol=1e-9)
        means = [part(X).mean for part in parts]
        torch.testing.assert_close(joined(X).mean, 0.7 * means[0] + 0.3 * means[1])
        assert joined.seeds == (*parts[0].seeds, *parts[1].seeds)
        assert joined.history is not None
        assert joined.history.shape[1] == 6

    def test_out_of_fold(self, parts: list[Ensemble], joined: Ensemble) -> None:
        one, two = (part.out_of_fold(X).log_prob(Y.double()).exp() for part in parts)
        together = joined.out_of_fold(X)
        assert together.n_members == 1 + 2
        torch.testing.assert_close(together.log_prob(Y.double()).exp(), 0.7 * one + 0.3 * two, rtol=1e-6, atol=1e-9)

    def test_comes_back_from_a_file(self, joined: Ensemble, tmp_path: Path) -> None:
        joined.save(tmp_path / "model")
        back = load(tmp_path / "model")
        assert torch.equal(back(X).mean, joined(X).mean)
        assert torch.equal(back(X).variance, joined(X).variance)

    def test_parts_stay_as_they_are(self, parts: list[Ensemble], joined: Ensemble) -> None:
        before = parts[0](X).mean
        joined.members.parameters.flat.zero_()
        assert torch.equal(parts[0](X).mean, before)

    def test_one_part_is_itself(self, parts: list[Ensemble]) -> None:
        alone = Ensemble.joined(parts[:1], [1.0])
        torch.testing.assert_close(alone(X).variance, parts[0](X).variance)

    def test_others_are_refused(self, parts: list[Ensemble]) -> None:
        other = fit_ensemble(partial(mlp, 3, 2), X, Y, n_members=1, max_epochs=1)
        heavy = fit_ensemble(partial(periodic_mlp, 3, 3), X, Y, head=StudentT(), n_members=1, max_epochs=1)
        for wrong in (other, heavy):
            with pytest.raises(ValueError, match="`ensembles` must be of one architecture and head"):
                Ensemble.joined([parts[0], wrong], [0.5, 0.5])

    def test_without_held_out_rows(self) -> None:
        plain = [of_scale(scale, folds=None, early_stopping=False) for scale in (0.3, 1.0)]
        joined = Ensemble.joined(plain, [0.5, 0.5])
        assert joined.out_of_fold_members is None
        assert bool(joined(X).mean.isfinite().all())
