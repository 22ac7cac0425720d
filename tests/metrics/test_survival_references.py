"""Metrics of censored times equal their definitions, written out as loops, and what is known in closed form."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import kstest, poisson
from torch.distributions import Categorical, Exponential, Independent, LogNormal, Normal, Poisson

from deep_ensembles.metrics import (
    censored_brier_score,
    censored_negative_log_likelihood,
    concordance_index,
    integrated_brier_score,
    interval_coverage,
    probability_integral_transform,
)
from deep_ensembles.mixture import Mixture

quick = settings(deadline=None, derandomize=True, max_examples=100)
tied = st.integers(0, 5)
cases = st.lists(st.tuples(tied, tied, st.booleans()), min_size=2, max_size=25)


def observed(n_cases: int = 200, decimals: int = 8) -> tuple[Mixture, np.ndarray, np.ndarray, np.ndarray]:
    """Predictions of three members, observed times, whether they were events', and the times that would have been."""
    random = np.random.default_rng(0)
    middle = torch.from_numpy(random.normal(size=(3, n_cases)))
    prediction = Mixture(LogNormal(middle, torch.full_like(middle, 0.8)))
    latent, end = np.exp(random.normal(middle[0], 0.8)), random.exponential(2.0, n_cases)
    return prediction, np.minimum(latent, end).round(decimals), latent <= end, latent


def concordance_by_pairs(risk: np.ndarray, time: np.ndarray, event: np.ndarray) -> float | None:
    right, comparable = 0.0, 0
    for i in range(len(time)):
        for j in range(len(time)):
            if event[i] and (time[i] < time[j] or (time[i] == time[j] and not event[j])):
                comparable += 1
                right += 1.0 if risk[i] > risk[j] else 0.5 if risk[i] == risk[j] else 0.0
    return right / comparable if comparable else None


@quick
@given(cases)
def test_concordance_is_the_share_of_pairs(cases):
    risk, time, event = (np.array(values) for values in zip(*cases, strict=True))
    expected = concordance_by_pairs(risk, time, event)
    if expected is None:
        with pytest.raises(ValueError, match="`event` must be true for a time that another exceeds, got 'no such pair'"):
            concordance_index(risk, time, event)
    else:
        assert concordance_index(risk, time, event) == pytest.approx(expected, rel=1e-12)


def test_concordance_of_a_distribution_is_that_of_its_median():
    prediction, time, event, _ = observed()
    risk = -prediction.icdf(torch.tensor(0.5)).numpy()
    expected = concordance_by_pairs(risk, time, event)
    assert concordance_index(prediction, time, event) == pytest.approx(expected, rel=1e-12)
    assert concordance_index(risk, time, event) == pytest.approx(expected, rel=1e-12)


def test_concordance_of_many_cases_takes_no_time():
    random = np.random.default_rng(0)
    risk, time = random.normal(size=(2, 200_000))
    assert concordance_index(risk, time, random.random(200_000) < 0.5) == pytest.approx(0.5, abs=0.01)


def test_likelihood_is_density_or_survival():
    time, event = np.array([0.5, 2.0, 3.0]), np.array([True, False, True])
    rates = torch.tensor([1.0, 0.25, 2.0], dtype=torch.float64)
    expected = np.mean([-math.log(1.0) + 0.5, 0.5, -math.log(2.0) + 6.0])
    assert censored_negative_log_likelihood(Exponential(rates), time, event) == pytest.approx(expected, rel=1e-12)


def free_until(moment: float, time: np.ndarray, event: np.ndarray, included: bool) -> float:
    """Kaplan–Meier's chance not to be censored up to a moment, or before it; events come first at equal times."""
    chance = 1.0
    for t in np.unique(time):
        if t < moment or (included and t == moment):
            ends, losses = ((time == t) & event).sum(), ((time == t) & ~event).sum()
            at_risk = (time >= t).sum() - ends
            chance *= 1 - losses / at_risk if at_risk else 1.0
    return chance


@pytest.mark.parametrize("decimals", [8, 0])
@pytest.mark.parametrize("at", [0.5, 1.0, 2.2])
def test_brier_score_is_weighted_by_the_chance_of_being_seen(at, decimals):
    prediction, time, event, _ = observed(60, decimals)
    above = 1 - prediction.cdf(torch.full((60,), at, dtype=torch.float64)).numpy()
    terms = []
    for t, is_event, s in zip(time, event, above, strict=True):
        if t > at:
            terms.append((1 - s) ** 2 / free_until(at, time, event, included=True))
        else:
            terms.append(s**2 / free_until(t, time, event, included=False) if is_event else 0.0)
    assert censored_brier_score(prediction, time, event, at) == pytest.approx(np.mean(terms), rel=1e-10)


def test_brier_score_without_censoring_is_the_mean_square():
    prediction, _, _, latent = observed()
    above = 1 - prediction.cdf(torch.ones(200, dtype=torch.float64)).numpy()
    expected = np.mean((above - (latent > 1)) ** 2)
    assert censored_brier_score(prediction, latent, np.ones(200, dtype=bool), 1.0) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("unit", [1e-9, 0.5])
def test_brier_score_makes_up_for_censoring(unit):
    """It comes near to what it would have been had nothing been censored, also where many times are the same."""
    prediction, _, _, latent = observed(20_000)
    latent, end = (np.ceil(times / unit) * unit for times in (latent, np.random.default_rng(1).exponential(2.0, 20_000)))
    full = censored_brier_score(prediction, latent, np.ones(20_000, dtype=bool), 2.0)
    seen = censored_brier_score(prediction, np.minimum(latent, end), latent <= end, 2.0)
    assert seen == pytest.approx(full, rel=0.03)


def test_integral_of_brier_scores():
    prediction, time, event, _ = observed()
    grid = [0.2, 0.5, 1.5]
    scores = [censored_brier_score(prediction, time, event, at) for at in grid]
    expected = (0.3 * (scores[0] + scores[1]) / 2 + 1.0 * (scores[1] + scores[2]) / 2) / 1.3
    assert integrated_brier_score(prediction, time, event, grid) == pytest.approx(expected, rel=1e-12)
    first, last = np.quantile(time[event], [0.05, 0.95])
    fine = integrated_brier_score(prediction, time, event, np.linspace(first, last, 1000))
    assert integrated_brier_score(prediction, time, event) == pytest.approx(fine, rel=0.01)


@pytest.mark.parametrize(
    ("metric", "message"),
    [
        (lambda p, t, e: censored_brier_score(p, t, e, at=1e9), "`at` must be below the last time, .*, got 1000000000.0"),
        (lambda p, t, e: integrated_brier_score(p, t, e, [1.0]), "`times` must be at least two, increasing, got"),
        (lambda p, t, e: integrated_brier_score(p, t, e, [1.0, 0.5]), "`times` must be at least two, increasing, got"),
        (lambda p, t, e: concordance_index(p, t, e + 1.0), r"`event` must be true or false \(1 or 0\), got 2"),
        (lambda p, t, e: concordance_index(p, t, e[:3]), "`event` must be as many as `time`, 200, got 3"),
        (lambda p, t, e: concordance_index(p, t, ~e & e), "`event` must be true for a time that another exceeds"),
        (
            lambda p, t, e: censored_brier_score(Independent(Normal(torch.zeros(200, 2), 1.0), 1), t, e, 1.0),
            "one number per",
        ),
    ],
)
def test_clear_errors(metric, message):
    prediction, time, event, _ = observed()
    with pytest.raises(ValueError, match=message):
        metric(prediction, time, event)


def test_classes_have_no_times():
    _, time, event, _ = observed()
    with pytest.raises(TypeError, match="times need a prediction of numbers, got Categorical over classes"):
        censored_negative_log_likelihood(Categorical(torch.ones(200, 3)), time, event)


# -- levels -------------------------------------------------------------------------------------------------------


def test_levels_of_the_truth_are_even():
    random = np.random.default_rng(0)
    rates = random.uniform(0.2, 5, size=5000)
    counts = random.poisson(rates)
    levels = probability_integral_transform(Poisson(torch.from_numpy(rates)), counts, random_state=1)
    assert kstest(levels, "uniform").pvalue > 0.01
    assert (levels >= poisson.cdf(counts - 1, rates) - 1e-12).all()
    assert (levels <= poisson.cdf(counts, rates) + 1e-12).all()
    assert kstest(poisson.cdf(counts, rates), "uniform").pvalue < 1e-10
    again = probability_integral_transform(Poisson(torch.from_numpy(rates)), counts, random_state=1)
    np.testing.assert_array_equal(levels, again)


def test_levels_of_numbers_are_the_distribution_function():
    prediction, _, _, latent = observed()
    expected = prediction.cdf(torch.from_numpy(latent)).numpy()
    np.testing.assert_allclose(probability_integral_transform(prediction, latent), expected, rtol=1e-12, atol=0)


def test_the_ends_of_an_interval_of_counts_belong_to_it():
    """As between the quantiles that `predict_interval` gives."""
    random = np.random.default_rng(0)
    rates = random.uniform(0.2, 30, size=2000)
    counts = random.poisson(rates)
    low, high = poisson.ppf(0.05, rates), poisson.ppf(0.95, rates)
    inside = ((counts >= low) & (counts <= high)).mean()
    assert interval_coverage(Poisson(torch.from_numpy(rates)), counts) == pytest.approx(inside, abs=0)
