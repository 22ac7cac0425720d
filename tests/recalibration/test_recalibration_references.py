"""Recalibrations against closed forms, independent optima, quadrature and simulation."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.optimize import minimize
from scipy.special import log_softmax
from scipy.stats import norm
from torch import Tensor
from torch.distributions import Categorical, Independent, Laplace, LogNormal, Normal

from deep_ensembles._random import seeded
from deep_ensembles.metrics import interval_coverage
from deep_ensembles.mixture import Mixture
from deep_ensembles.recalibration import (
    Conformal,
    Isotonic,
    Recalibrated,
    Temperature,
    VarianceScaling,
    choose,
    conformal,
    isotonic,
    temperature,
    variance_scaling,
)
from deep_ensembles.recalibration._base import _moments_of_normals
from deep_ensembles.recalibration.of_ensembles import stretched, tempered

quick = settings(deadline=None, derandomize=True, max_examples=40)


def noise(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def normals(n_rows: int, n_members: int = 3) -> Mixture:
    return Mixture(Normal(2 * noise(n_members, n_rows), noise(n_members, n_rows, seed=1).exp()))


def drawn(mixture: Mixture, seed: int = 0) -> Tensor:
    with seeded(seed):
        return mixture.sample()


def two_humps(n_rows: int, seed: int) -> Tensor:
    """Mean 0 and variance 1, unlike a Gaussian."""
    return noise(n_rows, seed=seed).sign() * 0.95 + 0.3 * noise(n_rows, seed=seed + 100)


class TestVarianceScaling:
    def test_of_one_gaussian_is_the_closed_form(self):
        single, truth = normals(50, n_members=1), 3 * noise(50, seed=2)
        z = (truth - single.mean) / single.stddev
        assert variance_scaling(single, truth).factor == pytest.approx(float(z.square().mean().sqrt()), rel=1e-6)

    def test_of_laplace_members_is_the_closed_form(self):
        single, truth = Laplace(noise(50), noise(50, seed=1).exp()), noise(50, seed=2)
        closed = float(((truth - single.loc).abs() / single.scale).mean())
        assert variance_scaling(single, truth).factor == pytest.approx(closed, rel=1e-6)

    @pytest.mark.parametrize("factor", [0.1, 1.0, 7.0])
    @pytest.mark.parametrize("targets", [(), (2,)])
    def test_keeps_the_mean_and_scales_the_variance(self, factor, targets):
        components = Normal(noise(3, 4, *targets), noise(3, 4, *targets, seed=1).exp())
        mixture = Mixture(Independent(components, 1) if targets else components, torch.tensor([0.5, 0.3, 0.2]))
        after = VarianceScaling(factor)(mixture)
        torch.testing.assert_close(after.mean, mixture.mean)
        torch.testing.assert_close(after.variance, factor**2 * mixture.variance)
        torch.testing.assert_close(after.epistemic, factor**2 * mixture.epistemic)

    def test_is_where_the_mixtures_likelihood_is_least(self):
        mixture, truth = normals(80), 3 * noise(80, seed=2)
        factor = variance_scaling(mixture, truth).factor
        loss = [-VarianceScaling(factor * each)(mixture).log_prob(truth).mean() for each in (0.999, 1.0, 1.001)]
        assert loss[1] < min(loss[0], loss[2])

    def test_what_is_no_location_and_scale_is_refused(self):
        with pytest.raises(TypeError, match=r"members with a location and a scale, got Mixture\(1 × LogNormal"):
            variance_scaling(LogNormal(torch.zeros(3), torch.ones(3)), torch.ones(3))

    def test_targets_that_equal_the_means_give_a_small_factor(self):
        assert variance_scaling(Normal(torch.zeros(3), torch.ones(3)), torch.zeros(3)).factor == pytest.approx(
            0.01, rel=1e-3
        )


class TestTemperature:
    def test_equals_an_independent_optimum(self):
        logits, weights = 4 * noise(3, 200, 5), np.array([0.5, 0.3, 0.2])
        truth = drawn(Mixture(Categorical(logits=logits / 3)))

        def loss(inverse: np.ndarray) -> float:
            probabilities = np.exp(log_softmax(logits.numpy() * inverse[0], -1))
            return -np.log(np.einsum("m,mnk->nk", weights, probabilities)[np.arange(200), truth]).mean()

        expected = minimize(loss, [0.5], method="Nelder-Mead", options={"xatol": 1e-10, "fatol": 1e-14}).x[0]
        fitted = temperature(Mixture(Categorical(logits=logits), torch.from_numpy(weights)), truth).temperature
        assert 1 / fitted == pytest.approx(expected, rel=1e-5)

    @pytest.mark.parametrize("factor", [0.3, 5.0])
    def test_members_keep_their_most_probable_class(self, factor):
        mixture = Mixture(Categorical(logits=noise(3, 50, 4)))
        after = Temperature(factor)(mixture)
        assert torch.equal(after.components.probs.argmax(-1), mixture.components.probs.argmax(-1))
        assert torch.equal(Temperature(factor)(mixture.member(0)).mode, mixture.member(0).probs.argmax(-1))

    def test_a_class_that_was_ruled_out_is_refused(self):
        certain = Categorical(logits=torch.tensor([[0.0, -math.inf]]).expand(3, 2), validate_args=False)
        with pytest.raises(ValueError, match="`distribution` must be of positive density at every target"):
            temperature(certain, [0, 0, 1])


@st.composite
def maps(draw: st.DrawFn) -> Isotonic:
    n = draw(st.integers(0, 6))
    inner = st.lists(st.floats(0.01, 1), min_size=n + 1, max_size=n + 1)
    before, after = (np.cumsum(draw(inner)) for _ in range(2))
    return Isotonic(*((0.0, *(each[:-1] / each[-1]).tolist(), 1.0) for each in (before, after)))


class TestIsotonic:
    @quick
    @given(maps(), st.floats(1e-6, 1 - 1e-6))
    def test_quantiles_invert_the_distribution_function(self, recalibration, level):
        after = recalibration(normals(4))
        torch.testing.assert_close(after.cdf(after.icdf(torch.tensor(level))), torch.full((4,), level).double())

    @pytest.mark.parametrize("fit", [isotonic, conformal])
    def test_density_integrates_to_one_and_gives_the_moments(self, fit):
        mixture = normals(1)
        after: Recalibrated = fit(VarianceScaling(0.8)(normals(30)), drawn(normals(30)))(mixture)
        widest = mixture.components.stddev.max().item() + mixture.stddev.item()
        edges = after.icdf(torch.tensor([[q] for q in after.after[1:-1]], dtype=torch.float64))[:, 0].tolist()
        ends = [mixture.mean.item() - 12 * widest, *edges, mixture.mean.item() + 12 * widest]

        # Gauss-Legendre in many small pieces: the density jumps where the map has an edge.
        borders = torch.from_numpy(np.unique(np.concatenate([np.linspace(a, b, 33) for a, b in pairwise(ends)])))
        nodes, weights = map(torch.from_numpy, np.polynomial.legendre.leggauss(16))
        half = borders.diff()[:, None] / 2
        y, weights = (borders[:-1, None] + half * (1 + nodes)).reshape(-1, 1), (half * weights).reshape(-1, 1)
        log_density = after.log_prob(y)

        def integral(function: Tensor | float) -> float:
            return float((weights * function * log_density.exp()).sum())

        mean = integral(y)
        assert integral(1.0) == pytest.approx(1, abs=1e-6)
        assert after.mean.item() == pytest.approx(mean, abs=1e-3 * after.stddev.item())
        assert after.variance.item() == pytest.approx(integral((y - mean) ** 2), rel=1e-3)
        assert after.entropy().item() == pytest.approx(integral(-log_density), abs=2e-3)

    def test_the_identity_changes_nothing(self):
        mixture, value = normals(5), noise(5, seed=3)
        after = Isotonic((0.0, 0.5, 1.0), (0.0, 0.5, 1.0))(mixture)
        torch.testing.assert_close(after.log_prob(value), mixture.log_prob(value))
        torch.testing.assert_close(after.cdf(value), mixture.cdf(value))
        torch.testing.assert_close(after.mean, mixture.mean, rtol=0, atol=1e-3)
        torch.testing.assert_close(after.variance, mixture.variance, rtol=1e-3, atol=0)
        torch.testing.assert_close(after.entropy(), mixture.entropy(), rtol=0, atol=1e-3)

    def test_follows_a_shape_where_one_factor_cannot(self):
        mixture, new = (Normal(torch.zeros(4000).double(), torch.ones(4000).double()) for _ in range(2))
        truth, later = (two_humps(4000, seed) for seed in (2, 3))
        after = isotonic(mixture, truth)(new)
        for coverage in (0.5, 0.9):
            assert interval_coverage(after, later, coverage) == pytest.approx(coverage, abs=0.03)
        assert after.log_prob(later).mean() > variance_scaling(mixture, truth)(new).log_prob(later).mean()

    def test_samples_are_distributed_as_said(self):
        after = Isotonic((0.0, 0.1, 0.7, 1.0), (0.0, 0.5, 0.6, 1.0))(normals(2))
        with seeded(0):
            draws = after.sample((20_000,))
        assert draws.shape == (20_000, 2)
        levels = after.cdf(draws)
        assert (levels.mean(0) - 0.5).abs().max() < 0.01
        assert (draws.var(0) / after.variance - 1).abs().max() < 0.05

    def test_far_out_and_tied_rows_give_a_map(self):
        narrow = Normal(torch.zeros(6), torch.full((6,), 1e-3))
        fitted = isotonic(narrow, [-9.0, -9.0, -9.0, 9.0, 9.0, 0.0])
        assert fitted(narrow).log_prob(torch.zeros(6)).isfinite().all()

    @pytest.mark.parametrize(
        ("before", "after", "message"),
        [
            ((0.0, 1.0), (0.0, 0.5, 1.0), "`after` must be as many levels as `before`, 2, got 3"),
            ((0.0, 0.5, 0.5, 1.0), (0.0, 0.2, 0.4, 1.0), "`before` must be strictly increasing from 0 to 1"),
            ((0.0, 0.5), (0.0, 1.0), "`before` must be strictly increasing from 0 to 1"),
            ((0.0, 1.0), (math.nan, 1.0), "`after` must be strictly increasing from 0 to 1"),
            ((), (), "`before` must be strictly increasing from 0 to 1"),
        ],
    )
    def test_what_is_no_map_is_refused(self, before, after, message):
        with pytest.raises(ValueError, match=message):
            Isotonic(before, after)

    def test_levels_outside_are_refused(self):
        with pytest.raises(ValueError, match="`value` must be probabilities between 0 and 1"):
            Isotonic((0.0, 1.0), (0.0, 1.0))(normals(1)).icdf(torch.tensor(1.5))


def coverages(n_rows: int, coverage: float, n_trials: int = 800) -> tuple[float, float]:
    """How often intervals of a wrong model held a new truth: by `interval`, and by the recalibrated distribution."""
    random = np.random.default_rng(0)
    model = Normal(torch.full((n_rows + 1,), 0.3).double(), torch.full((n_rows + 1,), 0.6).double())
    first, last = (Normal(model.loc[rows], model.scale[rows]) for rows in (slice(n_rows), slice(n_rows, None)))
    held = np.zeros(2)
    for _ in range(n_trials):
        truth = random.normal(size=n_rows + 1)
        fitted = conformal(first, truth[:-1])
        central = fitted(last).icdf(torch.tensor([[(1 - coverage) / 2], [(1 + coverage) / 2]]).double())
        for i, (low, high) in enumerate((fitted.interval(last, coverage)[0], central[:, 0])):
            held[i] += low <= truth[-1] <= high
    return held[0] / n_trials, held[1] / n_trials


class TestConformal:
    @pytest.mark.parametrize(("n_rows", "coverage"), [(9, 0.5), (9, 0.83), (19, 0.9)])
    def test_intervals_hold_what_they_promise(self, n_rows, coverage):
        """Marginal coverage is exactly rank / (N+1), whatever the model."""
        exact = math.ceil(round((n_rows + 1) * coverage, 9)) / (n_rows + 1)
        interval, central = coverages(n_rows, coverage)
        error = math.sqrt(exact * (1 - exact) / 800)  # an error of one rank is more than four of these
        assert abs(interval - exact) < 4 * error
        assert central > coverage - 4 * error

    @quick
    @given(st.lists(st.floats(0, 0.499), min_size=2, max_size=30), st.floats(0, 1))
    def test_recalibrated_intervals_contain_the_promised_ones(self, scores, share):
        fitted = Conformal(tuple(sorted(scores)))
        n_rows = len(scores)
        coverage = (1 + share * (n_rows - 1)) / (n_rows + 1)
        mixture = Normal(torch.zeros(1).double(), torch.ones(1).double())
        ends = fitted(mixture).icdf(torch.tensor([[(1 - coverage) / 2], [(1 + coverage) / 2]]).double())[:, 0]
        low, high = fitted.interval(mixture, min(coverage, n_rows / (n_rows + 1)))[0]
        assert ends[0] <= low + 1e-6
        assert ends[1] >= high - 1e-6

    @pytest.mark.parametrize(
        ("coverage", "expected"),
        [(0.01, 0.001), (0.07, 0.007), (0.29, 0.029), (0.57, 0.057), (0.575, 0.058), (0.99, 0.099), (0.991, math.inf)],
    )
    def test_the_rank_is_that_of_the_decimal(self, coverage, expected):
        """99 scores: coverage c has rank ⌈100 c⌉."""
        fitted = Conformal(tuple(k / 1000 for k in range(1, 100)))
        assert fitted.threshold(coverage) == expected

    @pytest.mark.parametrize("coverage", [0.6, 0.9])
    def test_prediction_sets_hold_what_they_promise(self, coverage):
        n_rows, n_trials = 14, 1000
        logits = noise(n_trials, n_rows + 1, 4)
        truth = drawn(Categorical(logits=logits))
        model = Categorical(logits=5 * logits + 1)
        held = 0
        for t in range(n_trials):
            first, last = (Categorical(logits=model.logits[t, rows]) for rows in (slice(n_rows), slice(n_rows, None)))
            held += bool(conformal(first, truth[t, :-1]).prediction_set(last, coverage)[0, truth[t, -1]])
        exact = math.ceil(round(15 * coverage, 9)) / 15
        assert abs(held / n_trials - exact) < 4 * math.sqrt(exact * (1 - exact) / n_trials)

    def test_too_few_rows_promise_nothing(self):
        number, several = normals(3), Categorical(logits=noise(3, 4))
        assert conformal(number, torch.zeros(3)).interval(number, 0.9).abs().eq(math.inf).all()
        assert conformal(several, [0, 1, 2]).prediction_set(several, 0.9).all()

    def test_shapes(self):
        fitted = conformal(normals(40), noise(40))
        assert fitted.interval(normals(6), 0.8).shape == (6, 2)
        sets = conformal(Categorical(logits=noise(40, 4)), torch.arange(40) % 4).prediction_set
        assert sets(Mixture(Categorical(logits=noise(3, 6, 4))), 0.8).shape == (6, 4)

    def test_class_probabilities_stay(self):
        mixture = Mixture(Categorical(logits=noise(3, 6, 4)))
        assert Conformal((0.1, 0.2), discrete=True)(mixture) is mixture

    def test_intervals_and_sets_are_not_mixed_up(self):
        with pytest.raises(ValueError, match=r"`interval` must be of a recalibration of numbers.*use `prediction_set`"):
            Conformal((0.1, 0.2), discrete=True).interval(normals(2))
        with pytest.raises(ValueError, match=r"`prediction_set` must be of a recalibration of classes.*use `interval`"):
            Conformal((0.1, 0.2)).prediction_set(normals(2))

    @pytest.mark.parametrize("scores", [(), (0.1,), (0.2, 0.1), (0.1, 0.6), (0.1, math.nan)])
    def test_what_are_no_scores_is_refused(self, scores):
        with pytest.raises(ValueError, match="`scores` must be"):
            Conformal(scores)

    @pytest.mark.parametrize("coverage", [0, -0.1, 1.1, math.nan, "0.9"])
    def test_what_is_no_coverage_is_refused(self, coverage):
        with pytest.raises(ValueError, match="`coverage` must be a number > 0 and ≤ 1"):
            Conformal((0.1, 0.2)).interval(normals(2), coverage)


class TestTails:
    """Levels down to 1e-300 and as near to 1 as numbers come."""

    tail = 10.0 ** torch.linspace(-300, -1, 600, dtype=torch.float64)
    levels = torch.cat([tail, torch.linspace(0.1, 0.9, 2001, dtype=torch.float64), 1 - tail[tail > 1e-16].flip(0)])[:, None]

    @pytest.mark.parametrize("fit", [variance_scaling, isotonic, conformal])
    @pytest.mark.parametrize("distance", [0.3, 3.0, 30.0])
    def test_quantiles_never_fall_as_the_level_rises(self, fit, distance):
        model = normals(200)
        after = fit(model, model.mean + distance * model.stddev * noise(200, seed=5))(normals(20))
        quantiles = after.icdf(self.levels)
        assert (quantiles[1:] >= quantiles[:-1]).all()
        below = after.cdf(quantiles[:100])
        np.testing.assert_allclose(below, self.levels[:100].expand_as(below), rtol=1e-11)

    def test_exact_moments_reach_into_the_tail(self):
        """A map that puts nearly all mass between two quantiles far below."""
        narrow = Mixture(Normal(torch.zeros(1, 1).double(), torch.ones(1, 1).double()))
        levels = torch.tensor([[1e-40], [1e-30]], dtype=torch.float64)
        low, high = narrow.icdf(levels).flatten().tolist()
        moments = _moments_of_normals(narrow, (0.0, 1e-40, 1e-30, 1.0), (0.0, 1e-9, 1 - 1e-9, 1.0))
        for power in (1, 2):
            inside = quad(lambda y, power=power: y**power * norm.pdf(y) / 1e-30, low, high)[0]
            assert moments[power - 1].item() == pytest.approx(inside, rel=1e-6)


class TestChoose:
    def test_one_factor_where_one_factor_is_wrong(self):
        model = normals(300)
        fitted = choose(VarianceScaling(0.2)(model), drawn(model))
        assert isinstance(fitted, VarianceScaling)
        assert fitted.factor == pytest.approx(5, rel=0.15)

    def test_a_map_where_the_shape_is_wrong(self):
        standard = Normal(torch.zeros(500), torch.ones(500))
        fitted = choose(standard, two_humps(500, 2))
        assert fitted == isotonic(standard, two_humps(500, 2))

    def test_temperature_or_none_for_classes(self):
        logits = 2 * noise(3, 400, 4)
        truth = drawn(Mixture(Categorical(logits=logits)))
        assert choose(Mixture(Categorical(logits=logits)), truth) is None
        assert isinstance(choose(Mixture(Categorical(logits=4 * logits)), truth), Temperature)

    def test_only_what_is_named_is_compared(self):
        sure = VarianceScaling(0.2)(normals(100))
        assert choose(sure, drawn(normals(100)), ["none"]) is None
        assert isinstance(choose(sure, drawn(normals(100)), ["none", "conformal"]), Conformal)

    def test_the_same_seed_gives_the_same_choice(self):
        first, second = (choose(normals(60), drawn(normals(60)), random_state=3) for _ in range(2))
        assert first == second

    def test_several_targets(self):
        components = Independent(Normal(noise(3, 60, 2), torch.ones(3, 60, 2).double()), 1)
        assert isinstance(choose(VarianceScaling(0.1)(Mixture(components)), drawn(Mixture(components))), VarianceScaling)

    @pytest.mark.parametrize("names", [[], ["nonsense"], "none"])
    def test_unknown_names_are_refused(self, names):
        with pytest.raises(ValueError, match="`names` must be of none, variance_scaling, "):
            choose(normals(20), torch.zeros(20), names)

    def test_too_few_rows_are_refused(self):
        with pytest.raises(ValueError, match="`target` must be at least 10 rows, got 9"):
            choose(normals(9), torch.zeros(9))


@pytest.mark.parametrize("spread", [0.5, 1.0, 1.5])
def test_the_temperature_of_an_ensemble_is_below_that_of_its_members(spread: float) -> None:
    """Members that are wrong by noise of their own: the average is surer of what is right than single ones should be.

    One of them predicts each row out of fold; the best temperature of all of them is known from fresh targets.
    """
    generator, n_members = torch.Generator().manual_seed(0), 5
    truth = 2 * torch.randn(20_000, 4, generator=generator, dtype=torch.float64)
    targets, fresh = torch.multinomial(truth.softmax(-1), 2, replacement=True, generator=generator).T
    wrong_by = spread * torch.randn(n_members, *truth.shape, generator=generator, dtype=torch.float64)
    members = Mixture(Categorical(logits=truth + wrong_by))
    single = Mixture(Categorical(logits=members.components.logits[:1]))
    of_single, of_all = (temperature(mixture, rows).temperature for mixture, rows in ((single, targets), (members, fresh)))
    found = tempered(single, targets, torch.ones(n_members), lambda rows: members[rows]).temperature
    assert of_all < found < of_single
    alone = tempered(single, targets, torch.ones(1), lambda rows: members[rows]).temperature
    assert alone == pytest.approx(of_single, rel=1e-2)


@pytest.mark.parametrize("spread", [0.0, 0.5, 1.5])
@pytest.mark.parametrize("noise", [0.7, 1.5])
def test_the_factor_of_an_ensemble_is_found_from_single_members(spread: float, noise: float) -> None:
    """Members that are wrong by noise of their own, of which one predicts each row out of fold."""
    generator = torch.Generator().manual_seed(0)
    targets = noise * torch.randn(50_000, generator=generator, dtype=torch.float64)
    wrong_by = spread * torch.randn(5, len(targets), generator=generator, dtype=torch.float64)
    members = Mixture(Normal(wrong_by, torch.ones_like(wrong_by)))
    single = Mixture(Normal(wrong_by[:1], torch.ones_like(wrong_by[:1])))
    found = stretched(single, targets, torch.ones(5), lambda rows: members[rows]).factor
    z = ((targets - members.mean) ** 2).mean() / members.variance.mean()
    assert found == pytest.approx(float(z) ** 0.5, rel=0.05)
