"""Probabilistic backpropagation: its moments by sampling and quadrature, its derivatives, its runs, what it learns."""

from __future__ import annotations

import math
import os
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate, stats
from sklearn.base import clone
from sklearn.utils.estimator_checks import parametrize_with_checks
from torch import Tensor

from deep_ensembles import Mixture
from deep_ensembles.paper._pbp import (
    Filter,
    Moments,
    activations,
    features,
    log_evidence,
    matched_gamma,
    output_moments,
    rectified,
    total_variances,
)
from deep_ensembles.paper.probabilistic_backpropagation import Posterior, ProbabilisticBackpropagation, fit_runs
from deep_ensembles.training.data import Standardization


@parametrize_with_checks([ProbabilisticBackpropagation(n_hidden=20, n_epochs=20)])
def test_scikit_learn_checks(estimator, check) -> None:  # type: ignore[no-untyped-def]
    """All of them; none is expected to fail."""
    check(estimator)


def double(values: list) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def normals(*shape: int, seed: int = 0) -> Moments:
    rng = np.random.default_rng(seed)
    return Moments(torch.from_numpy(rng.normal(size=shape)), torch.from_numpy(rng.uniform(0.1, 2, size=shape)))


def cubic(n: int = 200, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    x = rng.uniform(-2, 2, (n, 1))
    return x, 10 + x[:, 0] ** 3 + rng.normal(0, 0.5, n)


@given(st.floats(-15, 30), st.floats(1e-3, 1e3))
def test_rectifier_against_quadrature(alpha: float, deviation: float) -> None:
    found = rectified(Moments(double([alpha * deviation]), double([deviation**2]))).moments
    normal = stats.norm(alpha, 1)
    low, high = max(0.0, alpha - 10), max(0.0, alpha) + 10
    first, second = (integrate.quad(lambda t, k=k: t**k * normal.pdf(t), low, high, epsabs=0, limit=200)[0] for k in (1, 2))
    assert found.mean.item() == pytest.approx(first * deviation, rel=1e-6, abs=0)
    assert found.variance.item() == pytest.approx((second - first**2) * deviation**2, rel=1e-6, abs=0)


def test_rectifier_far_from_zero() -> None:
    """Deep in the negative all mass is at 0, far in the positive nothing changes, and derivatives stay finite."""
    z = Moments(double([-1e8, -100, -31, 31, 1e8]), torch.ones(5).double())
    found = rectified(z)
    mean, variance = found.moments
    assert (mean[:3] >= 0).all()
    assert (mean[:3] < 1e-89).all()
    assert (variance[:3] < 1e-89).all()
    torch.testing.assert_close(mean[3:], z.mean[3:])
    torch.testing.assert_close(variance[3:], z.variance[3:])
    for by in found.backward(Moments(torch.ones(5).double(), torch.ones(5).double())):
        assert by.isfinite().all()


def test_layers_against_sampling() -> None:
    """A hidden layer, the rectifier, and the output layer, each with its scale and bias, for weights drawn at random."""
    n_inputs, n_hidden, n_draws = 3, 4, 400_000
    first, second = normals(n_inputs + 1, n_hidden), normals(n_hidden + 1, seed=1)
    x = double([[0.5, -1.0, 2.0]])
    rng = np.random.default_rng(2)
    w1 = rng.normal(first.mean.numpy(), first.variance.sqrt().numpy(), (n_draws, n_inputs + 1, n_hidden))
    w2 = rng.normal(second.mean.numpy(), second.variance.sqrt().numpy(), (n_draws, n_hidden + 1))
    z = np.einsum("i,dih->dh", np.append(x[0].numpy(), 1), w1) / math.sqrt(n_inputs + 1)
    units = np.maximum(z, 0)
    out = (np.hstack([units, np.ones((n_draws, 1))]) * w2).sum(1) / math.sqrt(n_hidden + 1)

    scale = math.sqrt(n_hidden + 1)
    layer = Moments(*(features(x, n_hidden) @ torch.stack(first)).squeeze(-2))
    hidden = rectified(layer).moments
    for moments, draws in ((layer, z), (hidden, units)):
        np.testing.assert_allclose(moments.mean * scale, draws.mean(0), atol=0.01)
        np.testing.assert_allclose(moments.variance * scale**2, draws.var(0), rtol=0.02)
    mean, variance = output_moments(second, activations(hidden))
    assert mean.item() == pytest.approx(out.mean(), abs=0.01)
    assert variance.item() == pytest.approx(out.var(), rel=0.02)


def test_product_against_quadrature() -> None:
    weight, value = Moments(*double([[0.7], [0.3]])), Moments(*double([[-1.2], [0.5]]))
    densities = [stats.norm(each.mean.item(), math.sqrt(each.variance.item())) for each in (weight, value)]

    def moment(k: int) -> float:
        first, second = (integrate.quad(lambda t, d=d: t**k * d.pdf(t), -15, 15, points=[0])[0] for d in densities)
        return first * second

    mean, variance = output_moments(weight, value)
    assert mean.item() == pytest.approx(moment(1))
    assert variance.item() == pytest.approx(moment(2) - moment(1) ** 2)


def test_evidence_is_a_normal_density_with_the_mean_noise() -> None:
    gamma = double([7.0, 3.0])
    log_z = log_evidence(double([0.4]), total_variances(double([0.2]), gamma))
    noise = [1 / stats.gamma(7 + k, scale=1 / 3).expect(lambda t: t) for k in (-1, 0, 1)]
    expected = [stats.norm(0, math.sqrt(0.2 + each)).logpdf(0.4) + 0.5 * math.log(2 * math.pi) for each in noise]
    np.testing.assert_allclose(log_z, expected, rtol=1e-7, atol=1e-9)
    inverse = stats.gamma(7, scale=1 / 3).expect(lambda t: 1 / t)
    assert noise[0] == pytest.approx(inverse)


def test_matched_gamma_has_the_moments_of_the_posterior() -> None:
    """For an exact likelihood, N(r; 0, 1/precision), the rule is exact: shape + ½, rate + r²/2."""
    shape, rate, residual = 6.0, 4.0, 1.3

    def evidence(extra: int) -> float:
        density = stats.gamma(shape + extra, scale=1 / rate)
        return math.log(density.expect(lambda t: stats.norm(0, 1 / math.sqrt(t)).pdf(residual)))

    log_z = double([evidence(k) for k in range(3)])
    matched = matched_gamma(double([shape, rate]), log_z)
    np.testing.assert_allclose(matched, [shape + 0.5, rate + residual**2 / 2], rtol=1e-6)


def test_matched_gamma_refuses_what_is_none() -> None:
    gamma = double([6.0, 6.0])
    for log_z in ([0.0, 0.0, -50.0], [math.nan] * 3, [0.0, 800.0, 0.0], [0.0, -900.0, 0.0]):
        torch.testing.assert_close(matched_gamma(gamma, double(log_z)), gamma)


def plain_evidence(hidden: Tensor, output: Tensor, x: Tensor, y: Tensor, noise: Tensor) -> Tensor:
    """log Z as the paper writes it: every layer scaled by itself, the rectifier with φ/Φ."""
    ones = x.new_ones(len(x), 1)
    inputs = torch.cat([x, ones], dim=1)
    mean, variance = (torch.einsum("ri,rih->rh", inputs**k, hidden[:, k - 1]) / inputs.shape[1] ** (k / 2) for k in (1, 2))
    alpha = mean / variance.sqrt()
    standard = torch.distributions.Normal(0.0, 1.0)
    cdf = standard.cdf(alpha)
    ratio = standard.log_prob(alpha).exp() / cdf
    inside = mean + variance.sqrt() * ratio
    spread = cdf * inside**2 * (1 - cdf) + cdf * variance * (1 - ratio * (ratio + alpha))
    unit, spread = torch.cat([cdf * inside, ones], dim=1), torch.cat([spread, 0 * ones], dim=1)
    (w, v), n = output.unbind(1), output.shape[-1]
    predicted = (w * unit).sum(1) / math.sqrt(n)
    total = (v * unit**2 + w**2 * spread + v * spread).sum(1) / n + noise[:, 1] / (noise[:, 0] - 1)
    return -0.5 * (total.log() + (y - predicted) ** 2 / total)


def test_update_is_the_papers_rule_with_automatic_derivatives() -> None:
    state = Filter((normals(3, 5, 6).mean, normals(3, 7, seed=1).mean))
    x, y = normals(3, 4, seed=2).mean, normals(3, seed=3).mean
    before = [part.clone().requires_grad_() for part in (state.hidden, state.output)]
    evidence = plain_evidence(*before, x, y, state.noise.clone())
    gradients = torch.autograd.grad(evidence.sum(), before)
    found = state.update(features(x.unsqueeze(1), 6).unsqueeze(0), y.reshape(1, 3, 1))
    torch.testing.assert_close(found, evidence.detach())
    for old, by, new in zip(before, gradients, (state.hidden, state.output), strict=True):
        mean, variance = old.detach().unbind(1)
        by_mean, by_variance = by.unbind(1)
        torch.testing.assert_close(new[:, 0], mean + variance * by_mean)
        torch.testing.assert_close(new[:, 1], variance - variance.square() * (by_mean.square() - 2 * by_variance))


def test_variances_stay_positive_under_outliers() -> None:
    state = Filter((normals(2, 3, 4).mean, normals(2, 5, seed=1).mean))
    with torch.inference_mode():
        for size in (1e3, 1e8, 1e150, 1.0):
            state.update(features(double([[[[size] * 2]] * 2]), 4), double([[[-size]] * 2]))
            state.refine_prior()
    for part in (state.hidden, state.output):
        assert part.isfinite().all()
        assert (part[:, 1] > 0).all()
    assert (state.noise > 0).all()


def test_prior_alone_leaves_weights_alone() -> None:
    """Without data there is nothing to refine: the cavity is flat, and the prior stays as it was."""
    state = Filter((normals(2, 3, 4).mean, normals(2, 5, seed=1).mean))
    before = state.hidden.clone(), state.prior.clone()
    state.refine_prior()
    torch.testing.assert_close((state.hidden, state.prior), before)


def one_by_one(mean: np.ndarray, variance: np.ndarray, sweeps: int) -> tuple[np.ndarray, np.ndarray]:
    """The prior's shape and rate, and the weights' variances, if factors are refined one after another."""
    site, gammas, prior = np.full(len(mean), 5 / 6), np.zeros((len(mean), 2)), np.array([6.0, 6.0])
    cavity = 1 / (1 / variance - site)
    centre = mean * cavity / variance
    for _ in range(sweeps):
        for i in np.flatnonzero((cavity > 0) & (cavity < 1e6)):
            shape, rate = without = prior - gammas[i]
            totals = cavity[i] + rate / (shape + np.array([-1, 0, 1]))
            z, z1, z2 = stats.norm(0, np.sqrt(totals)).pdf(centre[i])
            new_shape = 1 / (z2 * z / z1**2 * (shape + 1) / shape - 1)
            prior = np.array([new_shape, 1 / (z2 / z1 * (shape + 1) / rate - z1 / z * shape / rate)])
            gammas[i], site[i] = prior - without, (shape - 1) / rate
    return prior, 1 / (1 / cavity + site)


def test_refining_all_weights_together_ends_where_one_by_one_does() -> None:
    state = Filter((normals(1, 3, 4).mean, normals(1, 5, seed=1).mean))
    state.update(features(normals(30, 1, 1, 2, seed=2).mean, 4), normals(30, 1, 1, seed=3).mean)
    mean, variance = (torch.cat([state.hidden[0, i].flatten(), state.output[0, i]]).numpy().copy() for i in range(2))
    prior, variances = one_by_one(mean, variance, 60)
    for _ in range(60):
        state.refine_prior()
    np.testing.assert_allclose(state.prior[0], prior, rtol=1e-6)
    np.testing.assert_allclose(torch.cat([state.hidden[0, 1].flatten(), state.output[0, 1]]), variances, rtol=1e-6)


def test_many_runs_are_single_runs() -> None:
    X, y = cubic(90)
    rows = [np.arange(30), np.arange(10, 40), np.arange(0, 90, 3), np.arange(60, 90)]
    settings = {"n_hidden": 8, "n_epochs": 4}
    together = fit_runs(X, y, rows, [5, 6, 7, 8], **settings)
    for i, own in enumerate(rows):
        alone, part = fit_runs(X, y, [own], [5 + i], **settings), together[i]
        for name in ("hidden", "output", "noise", "history"):
            torch.testing.assert_close(getattr(part, name), getattr(alone, name), rtol=1e-7, atol=1e-9)
        torch.testing.assert_close(part(X).mean, alone(X).mean)
    assert together(X).n_members == 4
    torch.testing.assert_close(together(X).member(2).stddev, together[2](X).stddev)
    assert not together[0](X).mean.is_inference()


def test_runs_see_their_own_rows_only() -> None:
    X, y = cubic(60)
    poisoned = np.where(np.arange(60) < 30, y, 1e6)
    clean, other = (fit_runs(X, t, [np.arange(30)], [0], n_hidden=5, n_epochs=2) for t in (y, poisoned))
    torch.testing.assert_close(clean.hidden, other.hidden, rtol=0, atol=0)


def test_learns_a_function_and_its_noise() -> None:
    X, y = cubic(300)
    model = ProbabilisticBackpropagation(n_hidden=30, random_state=0).fit(X, y)
    fresh, target = cubic(1000, seed=1)
    mean, std = model.predict(fresh, return_std=True)
    assert np.sqrt(np.mean((mean - target) ** 2)) < 0.7
    assert 0.4 < np.median(std) < 0.8
    assert 0.83 < np.mean(np.abs(mean - target) < 1.645 * std) < 0.97
    _, far = model.predict(np.array([[8.0]]), return_std=True)
    assert far > 2 * std.max()
    assert (np.diff(model.posterior_.history[:, 0])[:3] > 0).all()


def test_prediction_is_a_mixture_of_one_in_the_units_of_the_target() -> None:
    X, y = cubic(60)
    model = ProbabilisticBackpropagation(10, n_epochs=3, random_state=0)
    mixture = model.fit(X, y).predict_distribution(X)
    assert isinstance(mixture, Mixture)
    assert (mixture.n_members, mixture.batch_shape) == (1, (60,))
    mean, std = model.predict(X, return_std=True)
    np.testing.assert_array_equal(mean, mixture.mean)
    np.testing.assert_array_equal(std, mixture.stddev)
    scaled, wider = clone(model).fit(X * 7 - 3, y * 100 - 50).predict(X * 7 - 3, return_std=True)
    np.testing.assert_allclose(scaled, mean * 100 - 50, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(wider, std * 100, rtol=1e-6)


def test_prediction_in_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = cubic(60)
    posterior = fit_runs(X, y, [np.arange(60)] * 2, [0, 1], n_hidden=5, n_epochs=1)
    whole = posterior(X)
    monkeypatch.setattr("deep_ensembles.paper.probabilistic_backpropagation._BATCH_ELEMENTS", 70)
    torch.testing.assert_close(posterior(X).components.mean, whole.components.mean)
    assert isinstance(posterior, Posterior)
    assert isinstance(posterior.standardization, Standardization)


def test_reproducible_by_seed_and_pickle() -> None:
    X, y = cubic(50)
    model = ProbabilisticBackpropagation(10, n_epochs=3, random_state=3).fit(X, y)
    np.testing.assert_array_equal(clone(model).fit(X, y).predict(X), model.predict(X))
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).predict(X), model.predict(X))
    assert not np.array_equal(clone(model).set_params(random_state=4).fit(X, y).predict(X), model.predict(X))


def test_one_row_and_constant_columns() -> None:
    X = np.column_stack([np.linspace(0, 1, 30), np.full(30, 7.0)])
    for rows, target in ((X, np.full(30, 4.0)), (X[:1], np.array([4.0])), (X, X[:, 0])):
        mean, std = ProbabilisticBackpropagation(5, n_epochs=3, random_state=0).fit(rows, target).predict(X, return_std=True)
        assert np.isfinite(mean).all()
        assert (std > 0).all()


def test_bad_settings_are_named() -> None:
    X, y = cubic(20)
    with pytest.raises(ValueError, match="`n_hidden` must be an integer ≥ 1, got 0"):
        ProbabilisticBackpropagation(0).fit(X, y)
    with pytest.raises(ValueError, match=r"`n_epochs` must be an integer ≥ 1, got 1\.5"):
        ProbabilisticBackpropagation(n_epochs=1.5).fit(X, y)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="`seeds` must be one per run"):
        fit_runs(X, y, [np.arange(3)], [0, 1])
    with pytest.raises(ValueError, match="`rows_per_run` must be at least one row each"):
        fit_runs(X, y, [np.arange(0)], [0])
    with pytest.raises(ValueError, match=r"`rows_per_run` must be .* as many for each, got \[3, 4\]"):
        fit_runs(X, y, [np.arange(4), np.arange(3)], [0, 1])


@pytest.mark.slow
@pytest.mark.parametrize(("name", "paper"), [("yacht", 1.63), ("boston-housing", 2.57)])
def test_reaches_the_papers_score(name: str, paper: float) -> None:
    home = os.environ.get("DEEP_ENSEMBLES_DATA")
    path = Path(home or ".") / "uci" / f"{name}.npz"
    if home is None or not path.exists():
        pytest.skip(f"set DEEP_ENSEMBLES_DATA to a folder that has uci/{name}.npz")
    data = np.load(path)
    X, y, tests = data["X"], data["y"], [data[f"test_index_{i}"] for i in range(8)]
    posterior = fit_runs(X, y, [np.setdiff1d(np.arange(len(y)), test) for test in tests], range(8))
    scores = [-posterior[i](X[test]).log_prob(torch.from_numpy(y[test])).mean().item() for i, test in enumerate(tests)]
    assert np.mean(scores) == pytest.approx(paper, abs=0.25)
