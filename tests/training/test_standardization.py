"""Means and deviations of rows that come in parts, and the units that runs are trained in."""

from __future__ import annotations

import functools

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from deep_ensembles import DeepEnsembleRegressor, RobustScaling, fit_ensemble, load, mlp
from deep_ensembles.training.data import Moments, Standardization


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

    @given(sizes=st.lists(st.integers(1, 20), min_size=1, max_size=6), offset=st.floats(-1e3, 1e3), seed=st.integers(0, 999))
    def test_merged_equals_the_whole(self, sizes, offset, seed):
        rows = rows_of(seed, sum(sizes), offset)
        merged = functools.reduce(Moments.merged, map(Moments.of, rows.split(sizes)))
        assert_same(merged, Moments.of(rows), rtol=1e-9, atol=1e-9)

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


def test_rows_come_to_mean_zero_and_deviation_one_per_run():
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


def test_nothing_to_standardise():
    plain = Standardization.stack([Standardization(), Standardization()])
    tokens, numbers = torch.tensor([[[1, 2]]]), torch.tensor([[[1.5]]], dtype=torch.float64)
    assert plain.shared
    assert plain.tensors() == {}
    assert torch.equal(plain.inputs(tokens, torch.float32), tokens)
    assert plain.inputs(tokens, torch.float32).dtype == torch.int64
    assert plain.targets(numbers, torch.float32).dtype == torch.float32


def test_large_whole_numbers_keep_their_digits() -> None:
    seconds = 1_700_000_000 + torch.arange(230).unsqueeze(1)
    wave = torch.sin(torch.arange(230) / 20.0).double()
    whole = fit_ensemble(lambda: mlp(1, 2), seconds, wave, max_epochs=20, random_state=0)
    precise = fit_ensemble(lambda: mlp(1, 2), seconds.double(), wave, max_epochs=20, random_state=0)
    torch.testing.assert_close(whole(seconds).mean, precise(seconds.double()).mean)


class TestRobustScaling:
    def units(self, x: torch.Tensor, scaling: object = None) -> tuple[torch.Tensor, torch.Tensor]:
        settings = {"standardize_inputs": scaling or RobustScaling(), "max_epochs": 1, "random_state": 0}
        ensemble = fit_ensemble(lambda: mlp(x.shape[1], 2), x, x[:, 0], n_members=1, **settings)
        return ensemble.standardization.input_shift[0], ensemble.standardization.input_scale[0]

    def test_is_median_and_interquartile_range(self):
        x = rows_of(0, 101, 5.0, 3.0)
        low, median, high = np.quantile(x.numpy(), (0.25, 0.5, 0.75), axis=0)
        shift, scale = self.units(x)
        np.testing.assert_allclose(shift, median, rtol=1e-6, atol=1e-9)
        np.testing.assert_allclose(scale, (high - low) / 1.349, rtol=1e-6, atol=1e-9)

    def test_is_about_the_deviation_of_a_normal(self):
        shift, scale = self.units(rows_of(0, 20_000, 5.0, 3.0))
        torch.testing.assert_close(shift, torch.full_like(shift, 5.0), rtol=0, atol=0.15)
        torch.testing.assert_close(scale, torch.full_like(scale, 3.0), rtol=0.05, atol=0)

    def test_outliers_change_nothing(self):
        x = rows_of(0, 200)
        wild = x.clone()
        wild[0] = 1e9
        for calm, disturbed in zip(self.units(x), self.units(wild), strict=True):
            torch.testing.assert_close(calm, disturbed, rtol=0.1, atol=0.1)

    def test_a_value_that_most_rows_share(self):
        x = rows_of(0, 100)
        x[:80, 1] = 0.0
        x[:, 2] = 7.0
        _, scale = self.units(x)
        assert float(scale[1]) == pytest.approx(float(x[:, 1].std(correction=0)), rel=1e-6)
        assert float(scale[2]) == 1

    def test_takes_some_rows_of_many(self):
        x = rows_of(0, 1000)
        shift, _ = self.units(x, RobustScaling(n_rows=10))
        np.testing.assert_allclose(shift, np.median(x[np.linspace(0, 999, 10).astype(int)], axis=0), rtol=1e-6, atol=1e-9)

    def test_is_saved_with_an_estimator(self, tmp_path):
        x = rows_of(0, 60).numpy()
        settings = {"standardize_inputs": RobustScaling(500), "max_epochs": 1, "random_state": 0}
        model = DeepEnsembleRegressor(1, preset="paper", **settings).fit(x, x[:, 0])
        model.save(tmp_path / "model")
        back = load(tmp_path / "model")
        assert back.standardize_inputs == RobustScaling(500)
        np.testing.assert_array_equal(back.predict(x), model.predict(x))
