"""Random streams: keyed by seed, purpose and counter; nobody else's state is touched."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from deep_ensembles._random import Purpose, drawn, run_seeds, seed_sequence, seeded, stream, torch_generators, torch_seed


@given(seed=st.integers(0, 2**64), n=st.integers(0, 20), more=st.integers(0, 20))
def test_a_runs_seed_does_not_depend_on_the_number_of_runs(seed, n, more):
    seeds = run_seeds(seed, n + more)
    assert seeds[:n] == run_seeds(seed, n)
    assert len(set(seeds)) == n + more
    assert all(0 <= each < 2**64 for each in seeds)


def test_random_states_of_every_kind():
    kinds = [
        lambda: 3,
        lambda: np.int64(3),
        lambda: np.random.RandomState(3),
        lambda: np.random.default_rng(3),
        lambda: np.random.SeedSequence(3),
        lambda: np.random.SeedSequence(3).spawn(1)[0],
    ]
    seeds = [run_seeds(make(), 2) for make in kinds]
    assert seeds == [run_seeds(make(), 2) for make in kinds]
    assert seeds[0] == seeds[1] == seeds[4]
    assert len({tuple(each) for each in seeds}) == 4
    assert run_seeds(None, 2) != run_seeds(None, 2)


def test_a_generator_moves_on_and_a_seed_sequence_stays():
    for generator in (np.random.default_rng(0), np.random.RandomState(0)):
        assert run_seeds(generator, 1) != run_seeds(generator, 1)
    sequence = np.random.SeedSequence(0)
    assert run_seeds(sequence, 2) == run_seeds(sequence, 2)
    assert sequence.n_children_spawned == 0


@pytest.mark.parametrize("random_state", [-1, 1.5, "0", [1, 2], np.float64(1)])
def test_refuses_a_bad_random_state(random_state):
    with pytest.raises(ValueError, match=r"^`random_state` must be None, an integer ≥ 0 or a NumPy generator, got "):
        seed_sequence(random_state)


def test_streams_differ_by_seed_purpose_and_counter():
    keys = [(seed, purpose, *counters) for seed in (0, 2**64 - 1) for purpose in Purpose for counters in ((), (1,), (2, 1))]
    assert len({stream(*key).integers(2**63) for key in keys}) == len(keys)
    assert len({torch_seed(*key) for key in keys}) == len(keys)
    assert all(0 <= torch_seed(*key) < 2**63 for key in keys)
    assert stream(5, Purpose.ORDER, 1).integers(2**63) == stream(5, Purpose.ORDER, 1).integers(2**63)


def test_seeded_is_reproducible_and_puts_the_global_state_back():
    state = torch.get_rng_state()
    with seeded(2**63 - 1):
        one = torch.rand(3)
    with seeded(2**63 - 1, torch.device("cpu")):
        two = torch.rand(3)
    assert torch.equal(one, two)
    assert torch.equal(torch.get_rng_state(), state)


def test_seeded_puts_the_state_back_after_an_error():
    state = torch.get_rng_state()
    with pytest.raises(RuntimeError, match="shape"), seeded(1):
        torch.rand(3).reshape(2)
    assert torch.equal(torch.get_rng_state(), state)


def test_each_run_is_drawn_from_its_own_generator():
    like, cpu = torch.zeros(3, 1000), torch.device("cpu")
    numbers = drawn("bernoulli_", like, torch_generators([1, 2, 3], cpu), 0.3)
    assert set(numbers.unique().tolist()) == {0.0, 1.0}
    assert numbers.mean().item() == pytest.approx(0.3, abs=0.05)
    assert torch.equal(numbers[1:2], drawn("bernoulli_", like[1:2], torch_generators([2], cpu), 0.3))
    assert (like == 0).all()
