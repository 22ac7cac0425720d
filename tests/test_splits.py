"""Which rows a run may see."""

from __future__ import annotations

import numpy as np
import pytest

from deep_ensembles import ComplementaryFolds, Subsample


@pytest.mark.parametrize("fraction", [0, -0.1, 1.1, "half"])
def test_a_fraction_is_a_share(fraction: object) -> None:
    with pytest.raises(ValueError, match="`fraction` must be a number > 0 and ≤ 1, got"):
        Subsample(fraction)  # type: ignore[arg-type]


def test_halves_are_every_other_row() -> None:
    first, second = ComplementaryFolds().halves(np.array([3, 5, 8, 9, 11]))
    assert (first.tolist(), second.tolist()) == ([3, 8, 11], [5, 9])


def test_halves_have_the_same_share_of_each_class() -> None:
    classes = np.tile([0, 0, 0, 1], 10)
    fold = np.arange(40)
    for half in ComplementaryFolds().halves(fold, classes):
        assert len(half) == 20
        assert int(classes[half].sum()) == 5


def test_halves_keep_groups_together() -> None:
    groups = np.random.default_rng(0).integers(0, 7, size=60)
    fold = np.flatnonzero(groups != 3)
    first, second = ComplementaryFolds(groups=groups).halves(fold)
    np.testing.assert_array_equal(np.sort(np.concatenate([first, second])), fold)
    assert set(groups[first]).isdisjoint(groups[second])
    assert len(set(groups[first])) == len(set(groups[second])) == 3


def test_a_seed_of_their_own_gives_several_ensembles_the_same_folds() -> None:
    rows = np.arange(30)
    one, same, other = (
        ComplementaryFolds(3, random_state=seed)(rows, 3, np.random.default_rng(member))
        for seed, member in ((1, 0), (1, 9), (2, 0))
    )
    assert all(map(np.array_equal, one, same))
    assert not all(map(np.array_equal, one, other))
    by_member = [ComplementaryFolds(3)(rows, 3, np.random.default_rng(member)) for member in (0, 9)]
    assert not all(map(np.array_equal, *by_member))


@pytest.mark.parametrize("seed", [-1, 0.5, "one"])
def test_the_seed_of_folds_is_a_whole_number(seed: object) -> None:
    with pytest.raises(ValueError, match="`random_state` must be an integer ≥ 0, got"):
        ComplementaryFolds(random_state=seed)  # type: ignore[arg-type]
