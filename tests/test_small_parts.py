"""The small closed parts: schedules, optimisers, segments, random streams, units, names."""

from __future__ import annotations

import builtins
import functools
import importlib
import json
import math
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from deep_ensembles._checks import check_flag, check_integer, check_number
from deep_ensembles._random import Purpose, bernoulli, run_seeds, seed_sequence, seeded, stream, torch_generators, torch_seed
from deep_ensembles._splits import Bootstrap, Subsample
from deep_ensembles.heads import Normal
from deep_ensembles.networks import mlp
from deep_ensembles.perturbations import FastGradientSign
from deep_ensembles.scoring import beta_nll
from deep_ensembles.settings import NotSaved, describe, known_objects, restore
from deep_ensembles.training.batches import alike, cut, segments
from deep_ensembles.training.checkpoint import Checkpoint
from deep_ensembles.training.optimization import Adam, AdamW, Constant, Cosine
from deep_ensembles.training.standardization import Moments, Standardization

quick = settings(deadline=None, derandomize=True, max_examples=100)
shares = st.floats(0, 1)


class TestChecks:
    @pytest.mark.parametrize("value", [0, 0.5, 1, np.float32(0.5), np.int64(1)])
    def test_numbers_inside(self, value):
        check_number("it", value, low=0, high=1)

    @pytest.mark.parametrize("value", [-0.1, 1.1, math.nan, math.inf, True, "1", None, 1j])
    def test_numbers_outside(self, value):
        with pytest.raises(ValueError, match=r"^`it` must be a number ≥ 0 and ≤ 1, got "):
            check_number("it", value, low=0, high=1)

    def test_open_bound(self):
        check_number("it", 1e-300, low=0, above=True)
        with pytest.raises(ValueError, match=r"^`it` must be a number > 0, got 0$"):
            check_number("it", 0, low=0, above=True)

    @pytest.mark.parametrize("value", [0, 1.0, True, "1", None])
    def test_integers(self, value):
        check_integer("it", np.int32(1), low=1)
        with pytest.raises(ValueError, match=r"^`it` must be an integer ≥ 1, got "):
            check_integer("it", value, low=1)

    @pytest.mark.parametrize("value", [0, 1, None, "True"])
    def test_flags(self, value):
        check_flag("it", np.bool_(True))
        with pytest.raises(ValueError, match=r"^`it` must be True or False, got "):
            check_flag("it", value)


class TestSchedules:
    def test_constant(self):
        assert {Constant()(step, 10) for step in range(10)} == {1.0}

    @quick
    @given(warmup=shares, final=shares, total=st.integers(1, 500))
    def test_cosine_rises_then_falls_to_its_end(self, warmup, final, total):
        schedule, warm = Cosine(warmup, final), round(warmup * total)
        factors = [schedule(step, total) for step in range(total + 1)]
        assert all(0 <= factor <= 1 + 1e-12 for factor in factors)
        assert factors[:warm] == sorted(factors[:warm])
        assert factors[warm:] == sorted(factors[warm:], reverse=True)
        assert factors[max(0, warm - 1) if warm else 0] == pytest.approx(1.0)
        if warm < total:
            assert factors[total] == pytest.approx(final)

    def test_cosine_is_the_formula_without_warmup(self):
        assert Cosine(warmup=0, final=0.2)(3, 10) == pytest.approx(0.2 + 0.8 * (1 + math.cos(0.3 * math.pi)) / 2)

    @pytest.mark.parametrize("name", ["warmup", "final"])
    @pytest.mark.parametrize("value", [-0.1, 1.1, math.nan])
    def test_cosine_refuses_what_is_no_share(self, name, value):
        with pytest.raises(ValueError, match=f"^`{name}` must be a number ≥ 0 and ≤ 1, got"):
            Cosine(**{name: value})


class TestOptimizers:
    @pytest.mark.parametrize(("ours", "theirs"), [(Adam, torch.optim.Adam), (AdamW, torch.optim.AdamW)])
    @pytest.mark.parametrize("weight_decay", [0.0, 0.1])
    @pytest.mark.parametrize("options", [{}, {"beta1": 0.5, "beta2": 0.9, "epsilon": 1e-3}])
    def test_equals_torch(self, ours, theirs, weight_decay, options):
        generator = torch.Generator().manual_seed(0)
        start = [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in [(3, 4), (7,)]]
        reference = [each.clone().requires_grad_() for each in start]
        betas = options.get("beta1", 0.9), options.get("beta2", 0.999)
        torchs = theirs(reference, lr=0.1, betas=betas, eps=options.get("epsilon", 1e-8), weight_decay=weight_decay)
        parameters, moments = (
            [each.clone() for each in start],
            [[torch.zeros_like(each) for each in start] for _ in range(2)],
        )
        for step in range(1, 8):
            gradients = [torch.randn(each.shape, generator=generator, dtype=torch.float64) for each in start]
            for each, gradient in zip(reference, gradients, strict=True):
                each.grad = gradient.clone()
            torchs.step()
            given = [gradient.clone() for gradient in gradients]
            ours(**options)((parameters, given, *moments), torch.tensor(float(step)), 0.1, weight_decay)
            assert all(map(torch.equal, given, gradients))
            for each, expected in zip(parameters, reference, strict=True):
                torch.testing.assert_close(each, expected.detach(), rtol=1e-10, atol=1e-12)

    @pytest.mark.parametrize("kind", [Adam, AdamW])
    @pytest.mark.parametrize(("name", "value"), [("beta1", -0.1), ("beta2", 1.5), ("epsilon", 0), ("epsilon", math.nan)])
    def test_refuses_bad_settings(self, kind, name, value):
        with pytest.raises(ValueError, match=f"^`{name}` must be a number"):
            kind(**{name: value})

    @pytest.mark.parametrize("kind", [Adam, AdamW])
    @pytest.mark.parametrize("name", ["beta1", "beta2"])
    def test_refuses_a_beta_of_one(self, kind, name):
        """The bias correction 1 - βᵗ would be 0, and every parameter NaN after one step."""
        with pytest.raises(ValueError, match=f"^`{name}` must be"):
            kind(**{name: 1.0})


class TestSegments:
    @quick
    @example(n=201, size=100)
    @example(n=2, size=1)
    @given(n=st.integers(1, 400), size=st.integers(1, 120))
    def test_cut(self, n, size):
        sizes = cut(n, size)
        assert sum(sizes) == n
        assert all(each == size for each in sizes[:-1])
        assert 1 <= sizes[-1] <= size + 1
        assert sizes[-1] > 1 or n == 1 or size == 1

    @quick
    @example(counts=[250, 250, 230], batch_size=100)
    @example(counts=[201, 200, 1], batch_size=100)
    @given(counts=st.lists(st.integers(1, 60), min_size=1, max_size=8), batch_size=st.integers(1, 25))
    def test_every_run_takes_its_own_steps_in_order(self, counts, batch_size):
        taken = {run: [] for run in range(len(counts))}
        for segment in segments(counts, batch_size):
            assert segment.start < segment.stop
            for run in range(segment.start, segment.stop):
                assert segment.column == sum(taken[run])
                assert segment.step == len(taken[run])
                taken[run] += segment.sizes
        assert [taken[run] for run in taken] == [cut(n, batch_size) for n in counts]

    @quick
    @given(count=st.integers(1, 60), n_runs=st.integers(1, 8), batch_size=st.integers(1, 25))
    def test_runs_that_are_alike_go_together(self, count, n_runs, batch_size):
        (only,) = segments([count] * n_runs, batch_size)
        assert (only.start, only.stop, only.sizes) == (0, n_runs, cut(count, batch_size))

    @quick
    @given(keys=st.lists(st.sampled_from("abc"), min_size=1, max_size=12))
    def test_alike(self, keys):
        ranges = alike(keys)
        assert [i for start, stop in ranges for i in range(start, stop)] == list(range(len(keys)))
        assert all(len(set(keys[start:stop])) == 1 for start, stop in ranges)
        assert all(keys[one[1] - 1] != keys[two[0]] for one, two in pairwise(ranges))


class TestRandom:
    @quick
    @given(seed=st.integers(0, 2**64), n=st.integers(0, 20), more=st.integers(0, 20))
    def test_a_runs_seed_does_not_depend_on_the_number_of_runs(self, seed, n, more):
        seeds = run_seeds(seed, n + more)
        assert seeds[:n] == run_seeds(seed, n)
        assert len(set(seeds)) == n + more
        assert all(0 <= each < 2**64 for each in seeds)

    def test_random_states_of_every_kind(self):
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

    def test_a_generator_moves_on_and_a_seed_sequence_stays(self):
        for generator in (np.random.default_rng(0), np.random.RandomState(0)):
            assert run_seeds(generator, 1) != run_seeds(generator, 1)
        sequence = np.random.SeedSequence(0)
        assert run_seeds(sequence, 2) == run_seeds(sequence, 2)
        assert sequence.n_children_spawned == 0

    @pytest.mark.parametrize("random_state", [-1, 1.5, "0", [1, 2], np.float64(1)])
    def test_refuses_a_bad_random_state(self, random_state):
        with pytest.raises(ValueError, match=r"^`random_state` must be None, an integer ≥ 0 or a NumPy generator, got "):
            seed_sequence(random_state)

    def test_streams_differ_by_seed_purpose_and_counter(self):
        keys = [
            (seed, purpose, *counters) for seed in (0, 2**64 - 1) for purpose in Purpose for counters in ((), (1,), (2, 1))
        ]
        assert len({stream(*key).integers(2**63) for key in keys}) == len(keys)
        assert len({torch_seed(*key) for key in keys}) == len(keys)
        assert all(0 <= torch_seed(*key) < 2**63 for key in keys)
        assert stream(5, Purpose.ORDER, 1).integers(2**63) == stream(5, Purpose.ORDER, 1).integers(2**63)

    def test_seeded_is_reproducible_and_puts_the_global_state_back(self):
        state = torch.get_rng_state()
        with seeded(2**63 - 1):
            one = torch.rand(3)
        with seeded(2**63 - 1, torch.device("cpu")):
            two = torch.rand(3)
        assert torch.equal(one, two)
        assert torch.equal(torch.get_rng_state(), state)

    def test_seeded_puts_the_state_back_after_an_error(self):
        state = torch.get_rng_state()
        with pytest.raises(RuntimeError, match="shape"), seeded(1):
            torch.rand(3).reshape(2)
        assert torch.equal(torch.get_rng_state(), state)

    def test_bernoulli_draws_each_run_from_its_own_generator(self):
        like, cpu = torch.zeros(3, 1000), torch.device("cpu")
        drawn = bernoulli(like, 0.3, torch_generators([1, 2, 3], cpu))
        assert set(drawn.unique().tolist()) == {0.0, 1.0}
        assert drawn.mean().item() == pytest.approx(0.3, abs=0.05)
        assert torch.equal(drawn[1:2], bernoulli(like[1:2], 0.3, torch_generators([2], cpu)))
        assert (like == 0).all()


def rows_of(seed: int, n: int, offset: float = 0.0, scale: float = 1.0) -> torch.Tensor:
    return offset + scale * torch.randn(n, 3, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def assert_same(one: Moments, two: Moments, **tolerances: float) -> None:
    assert one.weight == pytest.approx(two.weight)
    for name in ("mean", "deviation", "low", "high"):
        torch.testing.assert_close(getattr(one, name), getattr(two, name), **tolerances)


class TestMoments:
    def test_equal_numpy(self):
        rows = rows_of(0, 20)
        expected = Moments(20, rows.mean(0), rows.std(0, correction=0), rows.amin(0), rows.amax(0))
        assert_same(Moments.of(rows), expected)
        assert Moments.of(rows.float()).mean.dtype == torch.float64

    @quick
    @given(sizes=st.lists(st.integers(1, 20), min_size=1, max_size=6), offset=st.floats(-1e3, 1e3), seed=st.integers(0, 999))
    def test_merged_equals_the_whole(self, sizes, offset, seed):
        rows = rows_of(seed, sum(sizes), offset)
        merged = functools.reduce(Moments.merged, map(Moments.of, rows.split(sizes)))
        assert_same(merged, Moments.of(rows), rtol=1e-9, atol=1e-9)

    @quick
    @given(weights=st.lists(st.integers(1, 5), min_size=1, max_size=12), seed=st.integers(0, 999))
    def test_a_weight_is_a_repetition(self, weights, seed):
        rows, weights = rows_of(seed, len(weights)), torch.tensor(weights)
        assert_same(Moments.of(rows, weights), Moments.of(rows.repeat_interleave(weights, 0)), rtol=1e-9, atol=1e-9)

    def test_a_weight_of_zero_is_no_row(self):
        rows, weights = rows_of(0, 6), torch.tensor([1.0, 2.0, 1.0, 0.0, 0.0, 0.0])
        assert_same(Moments.of(rows, weights), Moments.of(rows[:3], weights[:3]))
        merged = Moments.of(rows[:3], weights[:3]).merged(Moments.of(rows[3:], weights[3:]))
        assert_same(merged, Moments.of(rows[:3], weights[:3]))

    def test_huge_offsets(self):
        rows = rows_of(0, 1000, offset=1e9, scale=1e-3)
        exact = (rows - 1e9).std(0, correction=0)  # the offset is subtracted without rounding
        merged = functools.reduce(Moments.merged, map(Moments.of, rows.split(100)))
        for moments in (Moments.of(rows), Moments.of(rows, torch.ones(1000)), merged):
            torch.testing.assert_close(moments.scale(), exact, rtol=1e-3, atol=0)
            torch.testing.assert_close(moments.mean - 1e9, (rows - 1e9).mean(0), rtol=0, atol=1e-6)

    @pytest.mark.parametrize("value", [0.0, 0.1, 1e9 + 0.1, -1e-300])
    def test_constant_columns_have_scale_one(self, value):
        rows = torch.full((30, 2), value, dtype=torch.float64)
        rows[:, 1] = torch.arange(30)
        halves = [Moments.of(half) for half in rows.split(7)]
        weighted = Moments.of(rows, torch.linspace(0.1, 1, 30))
        for moments in (Moments.of(rows), weighted, functools.reduce(Moments.merged, halves)):
            assert moments.scale()[0] == 1
            assert moments.scale()[1] == moments.deviation[1] > 1

    def test_pooled_equals_all_values_of_a_channel(self):
        images = torch.randn(5, 3, 4, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        pooled, expected = Moments.of(images).pooled(), Moments.of(images.movedim(1, -1).reshape(-1, 3))
        for name in ("mean", "deviation", "low", "high"):
            assert getattr(pooled, name).shape == (3, 1, 1)
            torch.testing.assert_close(getattr(pooled, name).flatten(), getattr(expected, name))
        vector = Moments.of(rows_of(0, 5))
        assert vector.pooled() is vector


class TestStandardization:
    def test_rows_come_to_mean_zero_and_deviation_one_per_run(self):
        runs, moments = [rows_of(0, 50, 10.0, 3.0), rows_of(1, 50, -1e4, 0.1)], []
        for rows in runs:
            own = Moments.of(rows)
            moments.append(Standardization(own.mean, own.scale(), (own.high - own.low) / own.scale(), own.mean, own.scale()))
        units = Standardization.stack(moments)
        for seen in (units.inputs(torch.stack(runs), torch.float64), units.targets(torch.stack(runs), torch.float64)):
            torch.testing.assert_close(seen.mean(1), torch.zeros(2, 3, dtype=torch.float64), atol=1e-9, rtol=0)
            torch.testing.assert_close(seen.std(1, correction=0), torch.ones(2, 3, dtype=torch.float64))
        assert torch.equal(units.select([1]).inputs(runs[1][None], torch.float64),
                           units.inputs(runs[1][None], torch.float64, [1]))  # fmt: skip
        assert not units.shared
        assert units.select([1, 1]).shared

    def test_nothing_to_standardise(self):
        plain = Standardization.stack([Standardization(), Standardization()])
        tokens, numbers = torch.tensor([[[1, 2]]]), torch.tensor([[[1.5]]], dtype=torch.float64)
        assert plain.shared
        assert plain.tensors() == {}
        assert torch.equal(plain.inputs(tokens, torch.float32), tokens)
        assert plain.inputs(tokens, torch.float32).dtype == torch.int64
        assert plain.targets(numbers, torch.float32).dtype == torch.float32


VALUES = [
    Normal(min_variance=1e-3),
    FastGradientSign(np.float32(0.25)),
    Cosine(0.1, final=0.2),
    Adam(beta1=0.8),
    AdamW(epsilon=1e-6),
    Bootstrap(),
    Subsample(0.5),
    torch.float64,
    NotSaved("their own"),
    (1, (2.5, None), [True, "text"]),
    {"a": (1,), 2: {"tuple": [3]}, ("key",): {"name": "os.system"}},
]
plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.text(max_size=3) | st.integers() | st.tuples(st.integers()), inner, max_size=3)
    ),
    max_leaves=8,
)


def through_a_file(value):
    return restore(json.loads(json.dumps(describe(value))))


class TestNaming:
    @pytest.mark.parametrize("value", VALUES, ids=repr)
    def test_round_trip(self, value):
        assert through_a_file(value) == value
        assert type(through_a_file(value)) is type(value)

    @quick
    @given(value=plain)
    def test_round_trip_of_plain_data(self, value):
        assert through_a_file(value) == value

    @pytest.mark.parametrize("name", known_objects())
    def test_round_trip_of_everything_known(self, name):
        assert describe(known_objects()[name]) == {"name": name}
        assert through_a_file(known_objects()[name]) is known_objects()[name]

    def test_round_trip_of_partials(self):
        made = through_a_file(functools.partial(mlp, 3, 2, hidden_sizes=(4, 5), dtype=torch.float64))
        assert made.func is mlp
        assert made.args == (3, 2)
        assert made.keywords == {"hidden_sizes": (4, 5), "dtype": torch.float64}
        assert through_a_file(functools.partial(beta_nll, beta=1.0)).keywords == {"beta": 1.0}

    def test_a_path_is_not_kept(self):
        for value in (Checkpoint(Path("state")), Path("state")):
            assert isinstance(through_a_file(value), NotSaved)

    @pytest.mark.parametrize("value", [torch.bfloat16, torch.float16], ids=str)
    def test_round_trip_of_other_dtypes(self, value):
        assert through_a_file(value) == value

    def test_a_users_own_object_is_left_out_and_says_so(self):
        def my_rule(distribution, target):
            return target

        restored = through_a_file({"rule": my_rule})["rule"]
        assert isinstance(restored, NotSaved)
        with pytest.raises(TypeError, match="my_rule was not saved with the model"):
            restored(None, None)

    @pytest.mark.parametrize(
        "name", ["os.system", "builtins.eval", "scoring", "heads.__doc__", "scoring.log_score.F", "", None]
    )
    @pytest.mark.parametrize("more", [{}, {"arguments": {}}, {"partial": [], "keywords": {}}])
    def test_unknown_names_are_refused(self, name, more):
        with pytest.raises(ValueError, match="which this version does not know"):
            restore({"name": name, **more})

    def test_an_unknown_dtype_is_refused(self):
        with pytest.raises(ValueError, match="'system'"):
            restore({"dtype": "system"})

    def test_nothing_is_imported_by_name(self, monkeypatch):
        def refuse(*args, **kwargs):
            raise AssertionError(f"an import was tried: {args[:1]}")

        descriptions = [describe(value) for value in VALUES]
        monkeypatch.setattr(importlib, "import_module", refuse)
        monkeypatch.setattr(builtins, "__import__", refuse)
        restored = [restore(each) for each in descriptions]
        with pytest.raises(ValueError, match="does not know") as error:
            restore({"name": "antigravity", "arguments": {}})
        monkeypatch.undo()
        assert restored == VALUES
        assert "antigravity" in str(error.value)
