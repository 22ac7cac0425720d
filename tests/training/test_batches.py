"""An epoch in batches: every run takes its own steps, and runs that are equal_ranges go together."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import example, given
from hypothesis import strategies as st

from deep_ensembles.training.batches import batch_sizes, equal_ranges, segments


@example(n=201, size=100)
@example(n=2, size=1)
@given(n=st.integers(1, 400), size=st.integers(1, 120))
def test_cut(n, size):
    sizes = batch_sizes(n, size)
    assert sum(sizes) == n
    assert all(each == size for each in sizes[:-1])
    assert 1 <= sizes[-1] <= size + 1
    assert sizes[-1] > 1 or n == 1 or size == 1


@example(counts=[250, 250, 230], batch_size=100)
@example(counts=[201, 200, 1], batch_size=100)
@given(counts=st.lists(st.integers(1, 60), min_size=1, max_size=8), batch_size=st.integers(1, 25))
def test_every_run_takes_its_own_steps_in_order(counts, batch_size):
    taken = {run: [] for run in range(len(counts))}
    for segment in segments(counts, batch_size):
        assert segment.start < segment.stop
        for run in range(segment.start, segment.stop):
            assert segment.first_row == sum(taken[run])
            assert segment.first_step == len(taken[run])
            taken[run] += segment.sizes
    assert [taken[run] for run in taken] == [batch_sizes(n, batch_size) for n in counts]


@given(count=st.integers(1, 60), n_runs=st.integers(1, 8), batch_size=st.integers(1, 25))
def test_runs_that_are_alike_go_together(count, n_runs, batch_size):
    (only,) = segments([count] * n_runs, batch_size)
    assert (only.start, only.stop, only.sizes) == (0, n_runs, batch_sizes(count, batch_size))


@given(keys=st.lists(st.sampled_from("abc"), min_size=1, max_size=12))
def test_alike(keys):
    ranges = equal_ranges(keys)
    assert [i for start, stop in ranges for i in range(start, stop)] == list(range(len(keys)))
    assert all(len(set(keys[start:stop])) == 1 for start, stop in ranges)
    assert all(keys[one[1] - 1] != keys[two[0]] for one, two in pairwise(ranges))
