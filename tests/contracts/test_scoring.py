"""Every scoring rule: proper, differentiable, one value per sample, equal to an independent reference."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import numpy as np
import pytest
import torch
from _found import found, is_exported
from scipy.integrate import quad
from scipy.stats import laplace, norm
from sklearn.metrics import brier_score_loss
from torch import Tensor
from torch.distributions import Bernoulli, Categorical, Distribution, Independent, Laplace, MultivariateNormal, Normal

from deep_ensembles import scoring
from deep_ensembles.distributions import Delta
from deep_ensembles.mixture import Mixture
from deep_ensembles.scoring import (
    beta_nll,
    brier,
    censored,
    crps,
    energy_score,
    interval_score,
    log_score,
    pinball,
    squared_error,
)

WEIGHTS = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
# Weights samples by a number whose gradient is stopped: its gradient is proper, its value is not (see its docstring).
TRAINING_ONLY = [beta_nll]
SLOW = [energy_score, pinball, interval_score]
# Quantiles of points jump, so that where a level meets one there are two slopes, of which neither is 0.
WITH_CORNERS = [(pinball, "point_mixture"), (interval_score, "point_mixture")]


@dataclass(frozen=True)
class Kind:
    """A family of predictions, made from free parameters `[*members, row, *parameters]`."""

    build: Callable[[Tensor], Distribution]
    members: tuple[int, ...]
    parameters: tuple[int, ...]

    def free(self, n_rows: int, seed: int = 0) -> Tensor:
        shape = (*self.members, n_rows, *self.parameters)
        return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)

    def repeated(self, n_rows: int, seed: int = 0) -> Tensor:
        """The parameters of one row, for many rows."""
        return self.free(1, seed).repeat_interleave(n_rows, dim=len(self.members))


def normal(free: Tensor) -> Distribution:
    return Normal(free[..., 0], free[..., 1].exp())


def several(free: Tensor) -> Distribution:
    return Independent(normal(free), 1)


def point(free: Tensor) -> Distribution:
    return Delta(free)


def classes(free: Tensor) -> Distribution:
    return Categorical(logits=free)


def labels(free: Tensor) -> Distribution:
    return Independent(Bernoulli(logits=free), 1)


def vectors(free: Tensor) -> Distribution:
    """Two targets that depend on one another."""
    spread = torch.diag_embed(free[..., 2:4].exp()) + torch.tril(free[..., 4, None, None].expand(*free.shape[:-1], 2, 2), -1)
    return MultivariateNormal(free[..., :2], scale_tril=spread)


def mixed(build: Callable[[Tensor], Distribution], free: Tensor) -> Mixture:
    return Mixture(build(free), WEIGHTS)


KINDS = {
    "normal": Kind(normal, (), (2,)),
    "normal_mixture": Kind(partial(mixed, normal), (3,), (2,)),
    "several": Kind(several, (), (2, 2)),
    "several_mixture": Kind(partial(mixed, several), (3,), (2, 2)),
    "point": Kind(point, (), ()),
    "point_mixture": Kind(partial(mixed, point), (3,), ()),
    "classes": Kind(classes, (), (4,)),
    "classes_mixture": Kind(partial(mixed, classes), (3,), (4,)),
    "labels": Kind(labels, (), (3,)),
    "labels_mixture": Kind(partial(mixed, labels), (3,), (3,)),
    "vectors": Kind(vectors, (), (5,)),
    "vectors_mixture": Kind(partial(mixed, vectors), (3,), (5,)),
}


def censored_above_half(distribution: Distribution, target: Tensor) -> Tensor:
    """What `censored` says of a target that is only seen up to 0.5."""
    if target.is_floating_point() and not distribution.event_shape:
        target = torch.stack([target.clamp_max(0.5), (target <= 0.5).to(target)], dim=-1)
    return censored()(distribution, target)


def rules() -> list:
    """Every rule; that for censored targets as one for usual ones, of which it sees less."""
    return [pytest.param(censored_above_half, id=rule.id) if rule.values[0] is censored else rule for rule in found(scoring)]


def scores(rule: Callable, kind: Kind, n_rows: int = 5) -> Tensor | None:
    """Scores of some predictions for one draw of each; none if the rule refuses the kind."""
    distribution = kind.build(kind.free(n_rows))
    with torch.random.fork_rng():
        torch.manual_seed(1)
        target = distribution.sample()
    try:
        return rule(distribution, target)
    except (TypeError, NotImplementedError):
        return None


def accepted() -> list:
    """Every rule with every kind of prediction that it scores."""
    return [
        pytest.param(rule.values[0], kind, id=f"{rule.id}-{name}")
        for rule in rules()
        for name, kind in KINDS.items()
        if (values := scores(rule.values[0], kind)) is not None and bool(values.isfinite().all())
    ]


every_rule = pytest.mark.parametrize("rule", rules())
every_pair = pytest.mark.parametrize(("rule", "kind"), accepted())
every_metric = pytest.mark.parametrize(
    ("rule", "kind"), [each for each in accepted() if each.values[0] not in TRAINING_ONLY]
)


@pytest.mark.parametrize("rule", found(scoring))
def test_is_exported(rule):
    assert is_exported(scoring, rule)


@every_rule
def test_scores_something(rule):
    assert rule in [each.values[0] for each in accepted()]


def few_or_many(rule: Callable) -> int:
    """Rows for a test of many; fewer where a row costs more."""
    return 2_000 if rule in SLOW else 20_000


@every_rule
@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_scores_or_refuses(rule, kind):
    """A prediction that a rule cannot score is an error, never a number without meaning."""
    values = scores(rule, kind)
    assert values is None or values.isfinite().all()


@every_pair
def test_one_value_per_sample(rule, kind):
    assert scores(rule, kind, 5).shape == (5,)
    assert scores(rule, kind, 1).shape == (1,)


@every_pair
def test_each_sample_is_scored_alone(rule, kind):
    free = kind.free(6)
    target = drawn(kind, free)
    together = rule(kind.build(free), target)
    rows = [rule(kind.build(free.narrow(len(kind.members), i, 1)), target[i : i + 1]) for i in range(6)]
    torch.testing.assert_close(torch.cat(rows), together)


@every_pair
def test_is_differentiable(rule, kind):
    leaf = kind.free(6).requires_grad_()
    target = drawn(kind, kind.free(6, seed=1))
    (gradient,) = torch.autograd.grad(rule(kind.build(leaf), target).sum(), leaf)
    assert gradient.isfinite().all()
    assert (gradient != 0).any()


@every_metric
def test_gradient_is_the_derivative(rule, kind):
    target = drawn(kind, kind.free(3, seed=1))
    assert torch.autograd.gradcheck(lambda free: rule(kind.build(free), target), kind.free(3).requires_grad_())


@pytest.mark.parametrize(
    ("rule", "kind"),
    [each for each in accepted() if each.values not in [(rule, KINDS[name]) for rule, name in WITH_CORNERS]],
)
def test_gradient_vanishes_at_the_truth(rule, kind):
    """In expectation over targets drawn from the prediction itself, there is nothing to gain."""
    n_rows = few_or_many(rule)
    leaf = kind.repeated(n_rows).requires_grad_()
    target = drawn(kind, leaf.detach())
    (gradient,) = torch.autograd.grad(rule(kind.build(leaf), target).sum(), leaf)
    row = len(kind.members)
    error = gradient.std(row) / n_rows**0.5
    assert (gradient.mean(row).abs() <= 4 * error + 1e-12).all()


@every_metric
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_truth_scores_best(rule, kind, seed):
    n_rows = few_or_many(rule)
    truth = kind.repeated(n_rows)
    target = drawn(kind, truth)
    other = truth + 0.5 * kind.repeated(n_rows, seed)
    excess = rule(kind.build(other), target) - rule(kind.build(truth), target)
    assert excess.mean() > 0


def drawn(kind: Kind, free: Tensor) -> Tensor:
    with torch.random.fork_rng():
        torch.manual_seed(1)
        return kind.build(free).sample()


def grid() -> tuple[np.ndarray, np.ndarray, np.ndarray, Mixture]:
    """Means and deviations `[member, row]`, targets `[row]`, and their mixture."""
    means, deviations = np.array([[0.0, 1.0, -5.0], [0.5, 9.0, 5.0]]), np.array([[1.0, 0.1, 2.0], [3.0, 1.0, 0.5]])
    mixture = Mixture(Normal(torch.tensor(means), torch.tensor(deviations)), torch.tensor([0.25, 0.75]))
    return means, deviations, np.array([0.3, 4.0, 5.0]), mixture


def crps_by_quadrature(cdf: Callable[[float], float], target: float, corners: list[float]) -> float:
    low, high = min(corners) - 60, max(corners) + 60
    edges = sorted({low, high, target, *corners})
    square = lambda z: (cdf(z) - (target <= z)) ** 2  # noqa: E731
    return sum(quad(square, a, b, limit=200)[0] for a, b in pairwise(edges))


def test_log_score_equals_scipy():
    means, deviations, targets, mixture = grid()
    single = log_score(mixture.member(0), torch.tensor(targets))
    np.testing.assert_allclose(single, -norm.logpdf(targets, means[0], deviations[0]), rtol=1e-12, atol=1e-12)
    density = np.array([0.25, 0.75]) @ norm.pdf(targets, means, deviations)
    np.testing.assert_allclose(log_score(mixture, torch.tensor(targets)), -np.log(density), rtol=1e-12, atol=1e-12)


def test_log_score_of_several_targets_is_joint():
    distribution = several(KINDS["several"].free(4))
    expected = -norm.logpdf(0.5, distribution.mean, distribution.stddev).sum(-1)
    np.testing.assert_allclose(log_score(distribution, torch.full((4, 2), 0.5)), expected, rtol=1e-12, atol=1e-12)


def test_log_score_of_classes_is_the_cross_entropy():
    probabilities = torch.tensor([[0.2, 0.3, 0.5], [0.9, 0.1, 0.0]], dtype=torch.float64)
    values = log_score(Categorical(probabilities), torch.tensor([2, 0]))
    torch.testing.assert_close(values, -torch.tensor([0.5, 0.9], dtype=torch.float64).log())


def test_crps_of_normals_equals_quadrature():
    means, deviations, targets, mixture = grid()
    alone, together = (crps(each, torch.tensor(targets)) for each in (mixture.member(1), mixture))
    for i, target in enumerate(targets):
        m, s = means[:, i], deviations[:, i]
        corners = [*m, *(m - 5 * s), *(m + 5 * s)]
        expected = crps_by_quadrature(lambda z, m=m, s=s: norm.cdf(z, m[1], s[1]), target, corners)
        assert alone[i].item() == pytest.approx(expected, rel=1e-7)
        cdf = lambda z, m=m, s=s: np.array([0.25, 0.75]) @ norm.cdf(z, m, s)  # noqa: E731
        assert together[i].item() == pytest.approx(crps_by_quadrature(cdf, target, corners), rel=1e-7)


def test_crps_of_points_is_the_energy_form():
    """E|X - y| - E|X - X'| / 2, with X and X' drawn from the points."""
    places, target = torch.tensor([0.0, 1.0, 5.0], dtype=torch.float64), torch.tensor([2.0], dtype=torch.float64)
    pairs = WEIGHTS.outer(WEIGHTS) * (places[:, None] - places).abs()
    expected = (WEIGHTS * (places - target).abs()).sum() - pairs.sum() / 2
    torch.testing.assert_close(crps(Mixture(Delta(places[:, None]), WEIGHTS), target), expected[None])
    assert crps(Delta(places), target).tolist() == [2.0, 1.0, 3.0]


@pytest.mark.parametrize("target", [-9.0, 0.3, 25.0])
def test_crps_of_anything_with_a_cdf_equals_quadrature(target):
    distribution = Laplace(torch.tensor([1.0]).double(), torch.tensor([2.0]).double())
    expected = crps_by_quadrature(lambda z: laplace.cdf(z, 1, 2), target, [1.0, -20.0, 20.0])
    assert crps(distribution, torch.tensor([target]).double()).item() == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("target", [-1.0, 3.0, 9.0])
def test_crps_of_a_mixture_of_anything_is_near_quadrature(target):
    components = Laplace(torch.tensor([[0.0], [3.0]]).double(), torch.tensor([[1.0], [0.5]]).double())
    cdf = lambda z: (laplace.cdf(z, 0, 1) + laplace.cdf(z, 3, 0.5)) / 2  # noqa: E731
    expected = crps_by_quadrature(cdf, target, [-10.0, 0.0, 3.0, 10.0])
    assert crps(Mixture(components), torch.tensor([target]).double()).item() == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("rule", [crps, squared_error])
@pytest.mark.parametrize(("joint", "alone"), [("several", "normal"), ("several_mixture", "normal_mixture")])
def test_average_over_targets(rule, joint, alone):
    free, target = KINDS[joint].free(4), torch.tensor([[0.0, 1.0]], dtype=torch.float64).expand(4, 2)
    single = [rule(KINDS[alone].build(free[..., t, :]), target[:, t]) for t in range(2)]
    torch.testing.assert_close(rule(KINDS[joint].build(free), target), (single[0] + single[1]) / 2)


def test_brier_equals_sklearn_averaged_over_classes():
    free, target = KINDS["classes_mixture"].free(50), torch.arange(50) % 4
    for distribution in (classes(free[0]), mixed(classes, free)):
        each = [brier_score_loss(target == k, distribution.probs[:, k]) for k in range(4)]
        assert brier(distribution, target).mean().item() == pytest.approx(np.mean(each), rel=1e-12)


def test_brier_divides_by_the_number_of_classes():
    assert brier(Categorical(torch.full((1, 5), 0.2)), torch.tensor([0])).item() == pytest.approx((0.64 + 4 * 0.04) / 5)


@pytest.mark.parametrize("kind", ["normal", "normal_mixture"])
def test_squared_error_is_of_the_mean(kind):
    distribution = KINDS[kind].build(KINDS[kind].free(4))
    torch.testing.assert_close(squared_error(distribution, torch.ones(4)), (1 - distribution.mean) ** 2)


@pytest.mark.parametrize("kind", ["normal", "normal_mixture", "several", "several_mixture"])
def test_beta_nll_without_beta_is_the_log_score(kind):
    leaf = KINDS[kind].free(4).requires_grad_()
    target = drawn(KINDS[kind], leaf.detach())
    without, expected = (rule(KINDS[kind].build(leaf), target) for rule in (partial(beta_nll, beta=0.0), log_score))
    torch.testing.assert_close(without, expected)
    gradients = [torch.autograd.grad(values.sum(), leaf)[0] for values in (without, expected)]
    torch.testing.assert_close(*gradients)


@pytest.mark.parametrize("beta", [0.5, 1.0])
def test_beta_nll_scales_the_gradient_by_the_variance(beta):
    free = KINDS["normal"].free(4).requires_grad_()
    distribution = normal(free)
    (gradient,) = torch.autograd.grad(beta_nll(distribution, torch.ones(4), beta=beta).sum(), free)
    mean, variance = distribution.mean.detach(), distribution.variance.detach()
    torch.testing.assert_close(gradient[:, 0], variance**beta * (mean - 1) / variance)
    torch.testing.assert_close(gradient[:, 1], variance**beta * (1 - (mean - 1) ** 2 / variance))


@pytest.mark.parametrize(("rule", "kind"), [(brier, "normal"), (brier, "normal_mixture"), (crps, "classes")])
def test_refusals_name_the_rule(rule, kind):
    distribution = KINDS[kind].build(KINDS[kind].free(4))
    with pytest.raises(TypeError, match=f"`{rule.__name__}` needs a"):
        rule(distribution, torch.zeros(4))
