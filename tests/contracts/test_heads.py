"""Every head: a proper distribution, finite for whatever a network puts out, in any units, for targets that it can have."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
import torch
from _found import found, is_exported
from _references import integral
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.distributions import Distribution, Independent

from deep_ensembles import DeepEnsembleRegressor, fit_ensemble, heads, mlp
from deep_ensembles.distributions import Delta, is_whole, rescaled
from deep_ensembles.heads import Head, LogitNormal, MultivariateNormal, Normal, Point, TargetNeeds
from deep_ensembles.scoring import crps, log_score, squared_error

LARGEST = 2.0**50
HEADS = [each.values[0] for each in found(heads)]
every_head = pytest.mark.parametrize("kind", found(heads))
quick = settings(deadline=None, derandomize=True, max_examples=40)


def of_kind(*kinds: str):
    return pytest.mark.parametrize("kind", [each for each in found(heads) if each.values[0].kind in kinds])


def raw_for(head: Head, n_targets: int = 0, n_rows: int = 4, seed: int = 0) -> Tensor:
    shape = (n_rows, head.raw_size(n_targets or fewest(head)))
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def fewest(head: Head) -> int:
    """As many targets, labels or classes as make sense."""
    return {"classes": 3, "vectors": 2, "labels": 2}.get(head.kind, 1)


def target_for(head: Head, n_rows: int = 4, dtype: torch.dtype = torch.float64) -> Tensor:
    """Targets that the head can have, inside its support."""
    share = torch.linspace(0.1, 0.9, n_rows, dtype=dtype)
    if head.kind == "classes":
        return torch.arange(n_rows) % fewest(head)
    if head.kind == "counts":
        return (5 * share).floor()
    if head.kind == "labels":
        return torch.stack([share > 0.3, share > 0.6], -1).to(dtype)
    if head.kind == "vectors":
        return torch.stack([share, -share], -1)
    return share


@every_head
def test_is_a_head_and_a_value(kind):
    assert is_exported(heads, kind)
    assert isinstance(kind(), Head)
    assert kind() == kind()
    assert len({kind(), kind()}) == 1
    with pytest.raises((AttributeError, TypeError)):
        kind().something = 1


@every_head
def test_says_what_its_distribution_shows(kind):
    """What is inferred for a head that says nothing must not contradict what this one says."""
    head = kind()
    inferred = TargetNeeds.of(None, head(raw_for(head)))
    same = {"labels": "labels", "classes": "classes", "counts": "counts", "vectors": "vectors", "numbers": "numbers"}
    assert inferred.kind == same[head.kind]
    assert inferred.scaling in (head.scaling, None)


@every_head
def test_total_probability_is_one(kind):
    head = kind()
    distribution = head(raw_for(head))
    if head.kind == "classes":
        totals = distribution.probs.sum(-1).tolist()
    elif head.kind == "labels":
        every = torch.tensor(list(product([0.0, 1.0], repeat=2)), dtype=torch.float64)[:, None]
        totals = distribution.log_prob(every).exp().sum(0).tolist()
    elif isinstance(distribution, Delta):  # all mass on one value
        below = torch.nextafter(distribution.mean, torch.tensor(-math.inf, dtype=torch.float64))
        totals = (distribution.cdf(distribution.mean) - distribution.cdf(below)).tolist()
    elif head.kind == "counts":
        totals = distribution.log_prob(torch.arange(20_000.0, dtype=torch.float64)[:, None]).exp().sum(0).tolist()
    elif head.kind == "vectors":
        totals = [_volume(head(row)) for row in raw_for(head).split(1)]
    else:
        totals = [_integral(head(row)) for row in raw_for(head).split(1)]
    assert totals == pytest.approx([1.0] * 4, abs=1e-8)


def _integral(distribution: Distribution) -> float:
    """Over the whole support, piece by piece between quantiles."""
    levels = (1e-12, 1e-9, 1e-6, 1e-3, 0.01, 0.1, 0.3, 0.5, 0.7, 0.9, 0.99, 0.999, 1 - 1e-6, 1 - 1e-9, 1 - 1e-12)
    ends = [distribution.icdf(torch.tensor([level], dtype=torch.float64)).item() for level in levels]
    kinks = getattr(distribution, "kinks", torch.empty(0)).flatten().tolist()
    ends = sorted({*ends, *kinks})

    return integral(lambda y: distribution.log_prob(torch.as_tensor(y)[..., None])[..., 0].exp().numpy(), ends)


def _volume(distribution: Distribution) -> float:
    """Of a density of two numbers, on a fine grid: for smooth functions that vanish outside, exact to rounding."""
    sides = [torch.linspace(-12, 12, 601, dtype=torch.float64) * s + m
             for m, s in zip(distribution.mean[0], distribution.stddev[0], strict=True)]  # fmt: skip
    points = torch.cartesian_prod(*sides)
    cell = math.prod((side[1] - side[0]).item() for side in sides)
    return distribution.log_prob(points[:, None]).exp().sum().item() * cell


@every_head
@quick
@example(first=1e15, second=1e15)
@example(first=1e15, second=-1e15)
@example(first=-1e15, second=1e15)
@example(first=-1e15, second=-1e15)
@given(first=st.floats(-LARGEST, LARGEST, width=32), second=st.floats(-LARGEST, LARGEST, width=32))
def test_log_density_and_gradient_are_finite(kind, first, second):
    head = kind()
    width = head.raw_size(fewest(head))
    leaf = torch.tensor([[first, second] * width])[:, :width].expand(4, width).clone().requires_grad_()
    distribution = head(leaf)
    # A point has no density: its value is what must be finite.
    value = distribution.mean if isinstance(head, Point) else distribution.log_prob(target_for(head, dtype=torch.float32))
    (gradient,) = torch.autograd.grad(value.sum(), leaf)
    assert value.isfinite().all()
    assert gradient.isfinite().all()


@of_kind("numbers", "counts", "vectors")
@quick
@example(first=-1e15, second=-1e15)
@given(first=st.floats(-LARGEST, LARGEST, width=32), second=st.floats(-LARGEST, LARGEST, width=32))
def test_variance_stays_above_its_floor(kind, first, second):
    head = kind()
    width = head.raw_size(fewest(head))
    distribution = head(torch.tensor([[first, second] * width])[:, :width])
    assert (distribution.variance >= 0).all()
    if head.scaling == "location-scale" and hasattr(head, "min_variance"):
        assert (distribution.variance >= head.min_variance * (1 - 1e-5)).all()
        assert distribution.variance.isfinite().all()


@every_head
@pytest.mark.parametrize("n_targets", [1, 2, 5])
@pytest.mark.parametrize("batch", [(4,), (3, 4), (0,)])
def test_raw_size_fits_the_call(kind, n_targets, batch):
    head = kind()
    distribution = head(torch.zeros(*batch, head.raw_size(n_targets)))
    assert distribution.batch_shape == batch
    if head.kind == "classes":
        assert distribution.event_shape == ()
        assert distribution.probs.shape == (*batch, max(n_targets, distribution.probs.shape[-1] if n_targets == 1 else 0))
    else:
        single = n_targets == 1 and head.kind != "labels"
        assert distribution.event_shape == (() if single else (n_targets,))


@of_kind("numbers", "counts", "labels")
def test_several_targets_are_independent(kind):
    """Target t of several has the distribution that it would have alone; raw outputs go parameter by parameter."""
    head = kind()
    raw = raw_for(head, 3)
    joint = head(raw)
    assert isinstance(joint, Independent)
    for target in range(3):
        alone = head(raw[:, target::3])
        torch.testing.assert_close(joint.mean[:, target], alone.mean.reshape(4))
        torch.testing.assert_close(joint.variance[:, target], alone.variance.reshape(4))


@of_kind("numbers", "vectors")
@pytest.mark.parametrize("n_targets", [1, 3])
def test_rescaled_changes_units(kind, n_targets):
    r"""The density of shift + scale · y is p(y) / scale."""
    head = kind()
    distribution = head(raw_for(head, n_targets))
    shift = torch.full((n_targets,), 1e3 if head.scaling == "location-scale" else 0.0, dtype=torch.float64)
    scale = torch.arange(2.0, 2.0 + n_targets).double()
    shift, scale = (each.squeeze() for each in (shift, scale))
    other = rescaled(distribution, shift, scale)
    torch.testing.assert_close(other.mean, shift + scale * distribution.mean)
    torch.testing.assert_close(other.variance, scale.square() * distribution.variance)
    if not isinstance(head, Point):
        value = distribution.mean * 1.01
        expected = distribution.log_prob(value) - scale.log().sum()
        torch.testing.assert_close(other.log_prob(shift + scale * value), expected, rtol=1e-8, atol=1e-8)


def fitted(head: Head, targets: np.ndarray, standardize: bool = True):
    build = lambda: mlp(2, head.raw_size(1 if targets.ndim == 1 else targets.shape[1]), (8,))  # noqa: E731
    rule = squared_error if head == Point() else log_score
    return fit_ensemble(build, INPUTS, targets, head=head, n_members=2, max_epochs=3, batch_size=16, random_state=0,
                        scoring_rule=rule, standardize_targets=standardize)  # fmt: skip


INPUTS = np.random.default_rng(0).normal(size=(48, 2)).astype(np.float32)


@of_kind("numbers", "vectors")
def test_predictions_are_in_the_units_of_the_targets(kind):
    head = kind()
    if head.scaling == "none":
        pytest.skip("the head takes targets as they are")
    targets = np.exp(INPUTS[:, 0] / 2 + 0.1).astype(np.float64)
    if head.kind == "vectors":
        targets = np.stack([targets, targets**2], axis=1)
    shift = 5.0 if head.scaling == "location-scale" else 0.0
    first, second = (fitted(head, units)(INPUTS) for units in (targets, 1000 * targets + shift))
    torch.testing.assert_close(second.mean, 1000 * first.mean + shift, rtol=1e-4, atol=1e-2)
    torch.testing.assert_close(second.variance, 1e6 * first.variance, rtol=1e-3, atol=1e-2)


@of_kind("numbers", "counts", "labels", "vectors")
def test_targets_outside_the_support_are_refused(kind):
    head = kind()
    inside = target_for(head, 48).float().numpy()
    assert fitted(head, inside, standardize=head.scaling != "none")(INPUTS[:3]).batch_shape == (3,)
    wrong = {"counts": -1.0, "labels": 2.0}.get(head.kind, -1.5)
    if head.support.check(torch.tensor(wrong)).all():
        return
    outside = inside.copy()
    outside[7] = wrong
    with pytest.raises(ValueError, match=rf"got {wrong:g} in row 7"):
        fitted(head, outside, standardize=head.scaling != "none")


@of_kind("numbers", "counts")
def test_can_be_trained_by_crps(kind):
    head = kind()
    if type(head).__name__ == "Categorical":
        return
    raw = (0.3 * raw_for(head, 1, 32)).float().requires_grad_()
    target = target_for(head, 32, torch.float32)
    optimizer = torch.optim.Adam([raw], lr=0.05)
    losses = []
    for _ in range(25):
        loss = crps(head(raw), target).mean()
        optimizer.zero_grad()
        loss.backward()
        assert raw.grad.isfinite().all()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.9 * losses[0]


@of_kind("numbers", "counts")
@pytest.mark.parametrize("size", [-1e15, 0.0, 1e15])
def test_crps_is_finite_for_any_output(kind, size):
    head = kind()
    leaf = torch.full((4, head.raw_size(1)), size, requires_grad=True)
    score = crps(head(leaf), target_for(head, dtype=torch.float32))
    (gradient,) = torch.autograd.grad(score.sum(), leaf)
    assert not score.isnan().any()
    assert not gradient.isnan().any()


@of_kind("numbers", "counts")
def test_works_in_an_estimator(kind):
    head = kind()
    model = DeepEnsembleRegressor(
        preset="paper", head=head, scoring_rule=squared_error if head == Point() else log_score, n_members=2, max_epochs=2,
        random_state=0,
    )  # fmt: skip
    predictions = model.fit(INPUTS, target_for(head, 48).numpy()).predict(INPUTS)
    assert np.isfinite(predictions).all()
    if is_whole(head(raw_for(head))):
        assert (predictions >= 0).all()


def test_rescaled_takes_the_units_dtype():
    other = rescaled(Normal()(torch.zeros(2, 2)), torch.zeros(1).double(), torch.ones(1).double())
    assert other.mean.dtype == other.stddev.dtype == torch.float64


def test_normal_refuses_an_odd_raw_output():
    with pytest.raises(ValueError, match="2 outputs per target"):
        Normal()(torch.zeros(4, 3))


def test_multivariate_normal_refuses_another_number_of_outputs():
    with pytest.raises(ValueError, match="raw_size"):
        MultivariateNormal()(torch.zeros(4, 4))


def test_bounds_are_in_order():
    with pytest.raises(ValueError, match="`high` must be more than `low`"):
        LogitNormal(low=1.0, high=0.0)


@pytest.mark.parametrize("floor", [0, -1.0, math.nan, math.inf, "1", True])
def test_normal_refuses_a_bad_floor(floor):
    with pytest.raises(ValueError, match=r"`min_variance` must be a number > 0, got"):
        Normal(min_variance=floor)


def test_normal_keeps_its_own_floor():
    assert Normal(min_variance=0.25)(torch.tensor([[0.0, -1e15]])).variance.item() == pytest.approx(0.25)


def test_point_has_no_density():
    with pytest.raises(NotImplementedError, match="no density"):
        Point()(torch.zeros(2, 1)).log_prob(torch.zeros(2))
