"""Every head: a proper distribution, finite for whatever a network puts out, in any units."""

from __future__ import annotations

import math

import pytest
import torch
from _found import found, is_exported
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from torch import Tensor

from deep_ensembles import heads
from deep_ensembles.distributions import rescaled
from deep_ensembles.heads import Head, Normal, Point

every_head = pytest.mark.parametrize("kind", found(heads))
every_continuous_head = pytest.mark.parametrize("kind", [each for each in found(heads) if each.values[0].kind == "numbers"])
extremes = st.lists(st.floats(-(2.0**50), 2.0**50, width=32), min_size=6, max_size=6)
quick = settings(deadline=None, derandomize=True, max_examples=60)


def raw_for(head: Head, n_targets: int, n_rows: int = 4, seed: int = 0) -> Tensor:
    shape = (n_rows, head.raw_size(n_targets))
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@every_head
def test_is_a_head_and_a_value(kind):
    assert is_exported(heads, kind)
    assert isinstance(kind(), Head)
    assert kind() == kind()
    assert len({kind(), kind()}) == 1


@every_head
def test_total_probability_is_one(kind):
    head = kind()
    distribution = head(raw_for(head, 3 if head.kind == "classes" else 1))
    if head.kind == "classes":
        totals = distribution.probs.sum(-1).tolist()
    elif bool((distribution.variance == 0).all()):  # all mass on one value
        below = torch.nextafter(distribution.mean, torch.tensor(-math.inf, dtype=torch.float64))
        totals = (distribution.cdf(distribution.mean) - distribution.cdf(below)).tolist()
    else:
        totals = [_integral(head, row) for row in raw_for(head, 1).split(1)]
    assert totals == pytest.approx([1.0] * 4, abs=1e-8)


def _integral(head: Head, raw: Tensor) -> float:
    distribution = head(raw)
    middle, spread = distribution.mean.item(), distribution.stddev.item()

    def density(z: float) -> float:
        return spread * distribution.log_prob(torch.tensor([middle + spread * z], dtype=torch.float64)).exp().item()

    return quad(density, -math.inf, math.inf)[0]


@every_head
@quick
@example(raw=[1e15] * 6, target=0.0)
@example(raw=[1e15, -1e15] * 3, target=0.0)
@example(raw=[-1e15] * 6, target=0.0)
@given(raw=extremes, target=st.floats(-100, 100, width=32))
def test_log_density_and_gradient_are_finite(kind, raw, target):
    head = kind()
    leaf = torch.tensor([raw[: head.raw_size(3 if head.kind == "classes" else 1)]], requires_grad=True)
    distribution = head(leaf)
    if isinstance(head, Point):  # no density: its value is what must be finite
        value = distribution.mean
    else:
        value = distribution.log_prob(torch.tensor([0]) if head.kind == "classes" else torch.tensor([target]))
    (gradient,) = torch.autograd.grad(value.sum(), leaf)
    assert value.isfinite().all()
    assert gradient.isfinite().all()


@every_continuous_head
@quick
@example(raw=[-1e15] * 6)
@given(raw=extremes)
def test_variance_stays_above_its_floor(kind, raw):
    head = kind()
    variance = head(torch.tensor([raw])).variance
    assert (variance >= getattr(head, "min_variance", 0.0) * (1 - 1e-6)).all()
    assert variance.isfinite().all()


@every_head
@pytest.mark.parametrize("n_targets", [1, 2, 5])
@pytest.mark.parametrize("batch", [(4,), (3, 4), (0,)])
def test_raw_size_fits_the_call(kind, n_targets, batch):
    head = kind()
    distribution = head(torch.zeros(*batch, head.raw_size(n_targets)))
    assert distribution.batch_shape == batch
    if head.kind == "classes":
        assert distribution.event_shape == ()
        assert distribution.probs.shape == (*batch, n_targets)
    else:
        assert distribution.event_shape == (() if n_targets == 1 else (n_targets,))


@every_continuous_head
def test_several_targets_are_independent(kind):
    """Target t of several has the distribution that it would have alone."""
    head = kind()
    raw = raw_for(head, 3)
    joint = head(raw)
    for target in range(3):
        alone = head(raw[:, target::3])
        torch.testing.assert_close(joint.mean[:, target], alone.mean)
        torch.testing.assert_close(joint.variance[:, target], alone.variance)


@every_head
@pytest.mark.parametrize("n_targets", [1, 3])
def test_rescaled_changes_units(kind, n_targets):
    r"""The density of shift + scale · y is p(y) / scale."""
    head = kind()
    distribution = head(raw_for(head, n_targets))
    shift, scale = torch.full((n_targets,), 1e3, dtype=torch.float64), torch.arange(2.0, 2.0 + n_targets).double()
    shift, scale = (each.squeeze() for each in (shift, scale))
    if head.kind == "classes":
        with pytest.raises(TypeError, match="standardize_targets=False"):
            rescaled(distribution, shift, scale)
        return
    other = rescaled(distribution, shift, scale)
    torch.testing.assert_close(other.mean, shift + scale * distribution.mean)
    torch.testing.assert_close(other.variance, scale.square() * distribution.variance)
    if not isinstance(head, Point):
        value = distribution.mean + 0.5
        expected = distribution.log_prob(value) - scale.log().sum()
        torch.testing.assert_close(other.log_prob(shift + scale * value), expected, rtol=1e-9, atol=1e-9)


def test_rescaled_takes_the_units_dtype():
    other = rescaled(Normal()(torch.zeros(2, 2)), torch.zeros(1).double(), torch.ones(1).double())
    assert other.mean.dtype == other.stddev.dtype == torch.float64


def test_normal_refuses_an_odd_raw_output():
    with pytest.raises(ValueError, match="2 outputs per target"):
        Normal()(torch.zeros(4, 3))


@pytest.mark.parametrize("floor", [0, -1.0, math.nan, math.inf, "1", True])
def test_normal_refuses_a_bad_floor(floor):
    with pytest.raises(ValueError, match=r"`min_variance` must be a number > 0, got"):
        Normal(min_variance=floor)


def test_normal_keeps_its_own_floor():
    assert Normal(min_variance=0.25)(torch.tensor([[0.0, -1e15]])).variance.item() == pytest.approx(0.25)


def test_point_has_no_density():
    with pytest.raises(NotImplementedError, match="no density"):
        Point()(torch.zeros(2, 1)).log_prob(torch.zeros(2))
