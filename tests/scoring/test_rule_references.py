"""Rules of quantiles, intervals, vectors and censored times equal scikit-learn's, SciPy's or the plain definition."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import pytest
import torch
from scipy import special, stats
from sklearn.metrics import brier_score_loss, mean_pinball_loss
from torch import distributions as td
from torch.nn import Linear

from deep_ensembles import Mixture, fit_ensemble
from deep_ensembles.distributions import Interpolated, LogNormal, NormalMixture
from deep_ensembles.heads import Gamma, Laplace, MultivariateNormal, Normal, Poisson, Quantiles
from deep_ensembles.recalibration import isotonic
from deep_ensembles.scoring import brier, censored, crps, energy_score, interval_score, log_score, pinball

double = partial(torch.tensor, dtype=torch.float64)
LEVELS = [i / 20 for i in range(1, 20)]


def drawn(n_rows: int = 50) -> tuple[Mixture, np.ndarray]:
    random = np.random.default_rng(0)
    free = torch.from_numpy(random.normal(size=(2, 3, n_rows)))
    return Mixture(td.Normal(free[0], free[1].exp()), torch.tensor([0.5, 0.3, 0.2])), random.normal(size=n_rows)


@pytest.mark.parametrize("location", [0.0, 1e4, -1e6])
def test_crps_of_many_student_ts_keeps_its_digits_in_single_precision(location):
    random = torch.Generator().manual_seed(0)
    free = torch.randn(3, 5, 200, generator=random)
    df, loc, scale = 2.1 + (2 * free[0]).exp(), location + 0.3 * free[1].round(), 0.5 * (0.5 * free[2]).exp()
    target = location + 2 * torch.randn(200, generator=random).round()
    single, precise = (crps(Mixture(td.StudentT(*(part.to(dtype) for part in (df, loc, scale)))), target.to(dtype))
                       for dtype in (torch.float32, torch.float64))  # fmt: skip
    torch.testing.assert_close(single.double(), precise, rtol=2e-5, atol=0)


# -- quantiles and intervals ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("levels", [None, (0.1, 0.5, 0.97)])
def test_pinball_equals_sklearn(levels):
    mixture, target = drawn()
    for prediction in (mixture, mixture.member(0)):
        losses = pinball(prediction, torch.from_numpy(target), levels)
        quantiles = [prediction.icdf(double(level)).expand(50).numpy() for level in levels or LEVELS]
        expected = [mean_pinball_loss(target, at, alpha=q) for at, q in zip(quantiles, levels or LEVELS, strict=True)]
        assert losses.mean().item() == pytest.approx(np.mean(expected), rel=1e-9)


def test_pinball_looks_at_the_levels_of_the_quantiles_head():
    values = torch.tensor([[[0.0, 1.0, 3.0]], [[-1.0, 1.5, 2.0]]])
    known = Interpolated(values[0], torch.tensor([0.2, 0.5, 0.9]))
    # Quantiles 0, 1, 3 of the target 2 at levels 0.2, 0.5, 0.9.
    assert pinball(known, torch.tensor([2.0])).item() == pytest.approx((0.2 * 2 + 0.5 * 1 + 0.1 * 1) / 3)
    mixture = Mixture(Interpolated(values, torch.tensor([0.2, 0.5, 0.9])))
    expected = pinball(mixture, torch.tensor([2.0]), levels=(0.2, 0.5, 0.9))
    torch.testing.assert_close(pinball(mixture, torch.tensor([2.0])), expected)


def test_pinball_at_many_levels_is_half_the_crps():
    mixture, target = drawn()
    levels = ((np.arange(400) + 0.5) / 400).tolist()
    close = 2 * pinball(mixture, torch.from_numpy(target), levels)
    torch.testing.assert_close(close, crps(mixture, torch.from_numpy(target)), rtol=0.01, atol=1e-3)


def test_pinball_of_counts_and_of_a_recalibrated_prediction():
    counts, target = td.Poisson(torch.full((4,), 3.0)), torch.tensor([0.0, 2.0, 3.0, 9.0])
    quantiles = stats.poisson.ppf([[0.1], [0.9]], 3.0)
    expected = [mean_pinball_loss(target, quantiles[i].repeat(4), alpha=q) for i, q in enumerate((0.1, 0.9))]
    assert pinball(counts, target, levels=(0.1, 0.9)).mean().item() == pytest.approx(np.mean(expected), rel=1e-6)
    mixture, target = drawn()
    again = isotonic(mixture, target)(mixture)
    level = again.icdf(double(0.3)).numpy()
    expected = mean_pinball_loss(target, level, alpha=0.3)
    assert pinball(again, torch.from_numpy(target), (0.3,)).mean().item() == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("coverage", [0.5, 0.9])
def test_interval_score_is_width_and_fine(coverage):
    mixture, target = drawn()
    missed = 1 - coverage
    low, high = (mixture.icdf(double(q)).numpy() for q in (missed / 2, 1 - missed / 2))
    expected = (high - low) + 2 / missed * (np.maximum(low - target, 0) + np.maximum(target - high, 0))
    np.testing.assert_allclose(interval_score(mixture, torch.from_numpy(target), coverage), expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    ("rule", "error", "message"),
    [
        (partial(pinball, levels=()), ValueError, "`levels` must be at least one number"),
        (partial(pinball, levels=(0.5, 1.0)), ValueError, "`levels` must be a number > 0 and < 1, got 1.0"),
        (partial(interval_score, coverage=1.0), ValueError, "`coverage` must be a number > 0 and < 1, got 1.0"),
    ],
)
def test_clear_errors(rule, error, message):
    with pytest.raises(error, match=message):
        rule(td.Normal(torch.zeros(1), torch.ones(1)), torch.zeros(1))


@pytest.mark.parametrize("rule", [pinball, interval_score])
def test_recalibrated_counts_are_judged(rule):
    counts = Mixture(td.Poisson(torch.linspace(1, 9, 60).expand(3, 60)))
    target = torch.arange(60.0) // 6
    recalibrated = isotonic(counts, target)(counts)
    with torch.no_grad():
        known = rule(recalibrated, target)
    torch.testing.assert_close(rule(recalibrated, target), known)


@pytest.mark.parametrize("rule", [pinball, interval_score])
def test_counts_cannot_be_trained_by_quantiles(rule):
    x = torch.linspace(0, 1, 20).unsqueeze(1)
    with pytest.raises(TypeError, match="those of Poisson, which are whole numbers, jump; train with `crps`"):
        fit_ensemble(lambda: Linear(1, 1), x, torch.arange(20.0), head=Poisson(), scoring_rule=rule, max_epochs=1)


# -- vectors --------------------------------------------------------------------------------------------------------


def mean_length(n_targets: int, distance: float) -> float:
    """E‖Z - y‖ of standard normals and a point so far from their mean, by Kummer's function."""
    ratio = math.gamma((n_targets + 1) / 2) / math.gamma(n_targets / 2)
    return math.sqrt(2) * ratio * float(special.hyp1f1(-0.5, n_targets / 2, -(distance**2) / 2))


@pytest.mark.parametrize("n_targets", [2, 3, 10])
@pytest.mark.parametrize("distance", [0.0, 0.5, 3.0])
def test_energy_score_of_normals_is_exact(n_targets, distance):
    target = torch.zeros(1, n_targets, dtype=torch.float64)
    target[0, 0] = distance
    expected = mean_length(n_targets, distance) - mean_length(n_targets, 0.0) / math.sqrt(2)
    zero, one = torch.zeros(1, n_targets, dtype=torch.float64), torch.eye(n_targets, dtype=torch.float64)
    for normal in (td.MultivariateNormal(zero, one), td.Independent(td.Normal(zero, torch.ones_like(zero)), 1)):
        assert energy_score(normal, target).item() == pytest.approx(expected, rel=1e-8)
        twice = Mixture(td.MultivariateNormal(zero.expand(2, 1, -1), one))
        assert energy_score(twice, target).item() == pytest.approx(expected, rel=1e-8)


def test_energy_score_of_one_target_is_the_crps():
    mixture, target = drawn()
    torch.testing.assert_close(energy_score(mixture, torch.from_numpy(target)), crps(mixture, torch.from_numpy(target)))
    alone = td.Normal(torch.zeros(4).double(), torch.ones(4).double())
    joint = td.Independent(td.Normal(torch.zeros(4, 1).double(), torch.ones(4, 1).double()), 1)
    target = double([-1.0, 0.0, 0.5, 4.0])
    torch.testing.assert_close(energy_score(joint, target.unsqueeze(1)), crps(alone, target), rtol=1e-7, atol=1e-8)


@pytest.mark.parametrize(
    "prediction",
    [
        td.MultivariateNormal(double([[1.0, 0.0]]), double([[1.0, 1.5], [1.5, 4.0]])),
        td.LowRankMultivariateNormal(
            torch.zeros(1, 3).double(), torch.ones(1, 3, 1).double(), torch.full((1, 3), 0.1).double()
        ),
        td.Independent(td.Normal(torch.zeros(1, 2).double(), double([[1.0, 2.0]])), 1),
        Mixture(td.MultivariateNormal(double([[[1.0, 0.0]], [[-1.0, 3.0]]]), torch.eye(2).double())),
    ],
    ids=["normal", "low rank", "independent", "mixture"],
)
def test_energy_score_is_near_its_mean_over_draws(prediction):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        first, second = prediction.sample((2, 200_000))
    target = torch.full((1, first.shape[-1]), 0.7, dtype=torch.float64)
    draws = (first - target).norm(dim=-1) - (first - second).norm(dim=-1) / 2
    error = 4 * draws.std().item() / 200_000**0.5
    assert energy_score(prediction, target).item() == pytest.approx(draws.mean().item(), rel=0, abs=error)
    torch.testing.assert_close(energy_score(prediction, target), energy_score(prediction, target), rtol=0, atol=0)


def test_energy_score_sees_correlation():
    """Unlike the average score of single targets."""
    zero, wide = torch.zeros(2000, 2).double(), double([[1.0, 0.9], [0.9, 1.0]])
    truth, other = td.MultivariateNormal(zero, wide), td.MultivariateNormal(zero, torch.eye(2).double())
    with torch.random.fork_rng():
        torch.manual_seed(0)
        target = truth.sample()
    assert (energy_score(truth, target) - energy_score(other, target)).mean() < -0.01
    torch.testing.assert_close(crps(truth, target), crps(other, target))


# -- labels ---------------------------------------------------------------------------------------------------------


def test_brier_of_labels_equals_sklearn_averaged_over_labels():
    random = np.random.default_rng(0)
    logits, target = torch.from_numpy(random.normal(size=(3, 40, 4))), random.integers(0, 2, size=(40, 4))
    for prediction in (
        Mixture(td.Independent(td.Bernoulli(logits=logits), 1)),
        td.Independent(td.Bernoulli(logits=logits[0]), 1),
    ):
        shares = prediction.mean.numpy()
        expected = np.mean([brier_score_loss(target[:, k], shares[:, k]) for k in range(4)])
        assert brier(prediction, torch.from_numpy(target)).mean().item() == pytest.approx(expected, rel=1e-12)


# -- censored times -------------------------------------------------------------------------------------------------

FAMILIES = {
    "normal": (td.Normal(double([1.0]), 2.0), stats.norm(1, 2)),
    "log-normal": (
        LogNormal(double([0.5]), double([0.7])),
        stats.lognorm(0.7, scale=math.exp(0.5)),
    ),
    "gamma": (td.Gamma(double([2.0]), 0.5), stats.gamma(2, scale=2)),
    "weibull": (td.Weibull(double([3.0]), 1.5), stats.weibull_min(1.5, scale=3)),
    "student": (td.StudentT(double([4.0]), 1.0, 2.0), stats.t(4, 1, 2)),
}


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("time", [0.3, 4.0, 30.0])
def test_censored_is_density_or_survival(name, time):
    prediction, reference = FAMILIES[name]
    event, over = (double([[time, flag]]) for flag in (1.0, 0.0))
    assert censored(log_score)(prediction, event).item() == pytest.approx(-reference.logpdf(time), rel=1e-9)
    assert censored(log_score)(prediction, over).item() == pytest.approx(-reference.logsf(time), rel=1e-9)


def test_censored_of_a_mixture_is_that_of_the_average():
    random = np.random.default_rng(0)
    loc, shares = torch.from_numpy(random.normal(size=(3, 5))), double([0.5, 0.3, 0.2])
    target = double([[0.5, 0.0]] * 5)
    expected = -torch.log(shares @ torch.from_numpy(stats.norm.sf(0.5, loc.numpy(), 1.0)))
    torch.testing.assert_close(censored()(Mixture(td.Normal(loc, torch.ones_like(loc)), shares), target), expected)
    inner = NormalMixture(td.Categorical(shares.expand(5, 3)), td.Normal(loc.T, 1.0))
    torch.testing.assert_close(censored()(inner, target), expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_censored_stays_finite_far_out(dtype):
    """In training a time may lie a hundred standard deviations out; the score and its slope must still say so."""
    loc = torch.zeros(2, dtype=dtype, requires_grad=True)
    scores = censored()(td.Normal(loc, torch.ones(2, dtype=dtype)), torch.tensor([[100.0, 0.0], [100.0, 1.0]], dtype=dtype))
    (slope,) = torch.autograd.grad(scores.sum(), loc)
    np.testing.assert_allclose(scores.detach(), -np.array([stats.norm.logsf(100), stats.norm.logpdf(100)]), rtol=1e-5)
    np.testing.assert_allclose(slope, [-100.01, -100.0], rtol=1e-3)


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        (lambda: censored(crps), "`censored` takes `log_score` alone, got crps: .* other rules are not proper"),
        (lambda: censored(None), "`censored` takes `log_score` alone, got None"),
        (lambda: censored()(td.Categorical(torch.ones(1, 2)), torch.ones(1, 2)), "`censored` needs a continuous prediction"),
        (
            lambda: censored()(td.Independent(td.Normal(torch.zeros(1, 2), 1.0), 1), torch.ones(1, 2)),
            "`censored` needs one time per row, got Normal of several targets",
        ),
    ],
)
def test_what_cannot_be_censored(rule, message):
    with pytest.raises(TypeError, match=message):
        rule()


def test_why_the_censored_crps_is_refused():
    """Avati et al. (2020): ∫ F² up to a censored time. An exponential that is too short scores better than the truth."""
    grid = np.linspace(0, 60, 60_001)
    random = np.random.default_rng(0)
    time, end = random.exponential(1.0, 20_000), 0.5

    def score(rate: float) -> float:
        below = 1 - np.exp(-rate * grid)
        step = grid[1]
        up_to, over = np.cumsum(below**2) * step, np.cumsum((1 - below[::-1]) ** 2)[::-1] * step
        place = np.minimum((np.minimum(time, end) / step).astype(int), len(grid) - 1)
        return float(np.mean(np.where(time <= end, up_to[place] + over[place], up_to[place])))

    assert score(1.3) < score(1.0)


# -- training -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rule", "head", "n_outputs"),
    [
        (pinball, Quantiles(), 13),
        (pinball, Laplace(), 2),
        (partial(pinball, levels=(0.1, 0.5, 0.9)), Normal(), 2),
        (interval_score, Normal(), 2),
        (energy_score, MultivariateNormal(), 5),
        (energy_score, Normal(), 4),
        (censored(log_score), Gamma(), 2),
    ],
)
def test_loss_falls_in_training(rule, head, n_outputs):
    random = np.random.default_rng(0)
    x = random.normal(size=(200, 1))
    y = np.exp(x[:, :1] + 0.3 * random.normal(size=(200, 2)))
    if getattr(rule, "is_censored", False):
        y[:, 1] = random.random(200) < 0.7
    elif rule is not energy_score:
        y = y[:, 0]
    settings = {"head": head, "scoring_rule": rule, "n_members": 2, "max_epochs": 30, "random_state": 0}
    ensemble = fit_ensemble(lambda: Linear(1, n_outputs), x, y, **settings)
    loss = ensemble.history[0]
    assert np.isfinite(loss).all()
    assert (loss[:, -1] < 0.9 * loss[:, 0]).all() or (loss[:, -1] < loss[:, 0] - 0.1).all()
    again = fit_ensemble(lambda: Linear(1, n_outputs), x, y, **settings)
    np.testing.assert_array_equal(again.history, ensemble.history)
