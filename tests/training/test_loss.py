"""Head and scoring rule together: written-out derivatives equal automatic ones."""

from __future__ import annotations

import dataclasses
import functools

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import Tensor

from deep_ensembles.heads import Categorical, Normal, Point, StudentT
from deep_ensembles.scoring import beta_nll, brier, crps, log_score, squared_error
from deep_ensembles.training.step import _DERIVATIVES, Criterion

every_pair = pytest.mark.parametrize(
    ("head", "rule"), [pytest.param(head(), rule, id=f"{head.__name__}-{rule.__name__}") for head, rule in _DERIVATIVES]
)
quick = settings(deadline=None, derandomize=True, max_examples=40)


def data(head, n_targets: int, seed: int = 0, scale: float = 1.0) -> tuple[Tensor, Tensor]:
    """Raw outputs `[run, batch, raw]` and targets that fit them."""
    generator = torch.Generator().manual_seed(seed)
    n_outputs = head.raw_size(n_targets + 1 if head.kind == "classes" else n_targets)
    raw = scale * torch.randn(2, 5, n_outputs, generator=generator, dtype=torch.float64)
    if head.kind == "classes":
        return raw, torch.randint(n_outputs, (2, 5), generator=generator)
    targets = torch.randn(2, 5, n_targets, generator=generator, dtype=torch.float64)
    return raw, targets.squeeze(-1) if n_targets == 1 else targets


def automatic(criterion: Criterion, raw: Tensor, target: Tensor) -> Tensor:
    leaf = raw.clone().requires_grad_()
    return torch.autograd.grad(criterion.losses(leaf, target).sum(), leaf)[0]


@every_pair
@quick
@given(n_targets=st.integers(1, 4), seed=st.integers(0, 2**31), scale=st.sampled_from([1e-3, 1.0, 10.0, 100.0]))
def test_written_out_derivatives_equal_automatic_ones(head, rule, n_targets, seed, scale):
    criterion = Criterion(head, rule)
    raw, target = data(head, n_targets, seed, scale)
    torch.testing.assert_close(criterion.raw_gradient(raw, target), automatic(criterion, raw, target), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    "head",
    [Normal(min_variance=0.5), StudentT(min_variance=0.5, min_degrees_of_freedom=0.3), StudentT(degrees_of_freedom=3.0)],
)
def test_derivatives_know_the_settings_of_the_head(head):
    criterion = Criterion(head, log_score)
    raw, target = data(criterion.head, 1)
    torch.testing.assert_close(criterion.raw_gradient(raw, target), automatic(criterion, raw, target))


@every_pair
@quick
@example(raw=[1e15] * 9)
@example(raw=[1e15, -1e15, 1e15] * 3)
@example(raw=[-1e15] * 9)
@given(raw=st.lists(st.floats(-(2.0**50), 2.0**50, width=32), min_size=9, max_size=9))
def test_written_out_derivatives_are_finite(head, rule, raw):
    n_outputs = head.raw_size(3 if head.kind == "classes" else 1)
    target = torch.zeros(1, 1, dtype=torch.long if head.kind == "classes" else torch.float32)
    gradient = Criterion(head, rule).raw_gradient(torch.tensor([[raw[:n_outputs]]]), target)
    assert gradient.isfinite().all()


@every_pair
@pytest.mark.parametrize("n_targets", [1, 3])
def test_nothing_is_modified(head, rule, n_targets):
    raw, target = data(head, n_targets)
    before = raw.clone(), target.clone()
    gradient = Criterion(head, rule).raw_gradient(raw, target)
    assert torch.equal(raw, before[0])
    assert torch.equal(target, before[1])
    assert gradient.shape == raw.shape
    assert gradient.dtype == raw.dtype


@every_pair
@pytest.mark.parametrize("n_targets", [1, 3])
def test_targets_may_be_shared_by_all_runs(head, rule, n_targets):
    """Runs on the same rows pass one target expanded over runs, which is not contiguous."""
    raw, target = data(head, n_targets)
    shared = target[:1].expand_as(target)
    criterion = Criterion(head, rule)
    torch.testing.assert_close(criterion.raw_gradient(raw, shared), criterion.raw_gradient(raw, shared.contiguous()))


@pytest.mark.parametrize(
    ("head", "rule"),
    [
        (Normal(), crps),
        (Normal(), functools.partial(beta_nll, beta=1.0)),
        (Normal(), lambda distribution, target: log_score(distribution, target)),
        (Categorical(), brier),
        (Point(), crps),
    ],
    ids=["crps", "partial", "lambda", "brier", "point"],
)
def test_other_pairs_are_differentiated(head, rule):
    assert (type(head), rule) not in _DERIVATIVES
    criterion = Criterion(head, rule)
    raw, target = data(head, 1)
    with torch.no_grad():
        gradient = criterion.raw_gradient(raw, target)
    assert not gradient.requires_grad
    assert (gradient != 0).any()
    torch.testing.assert_close(gradient, automatic(criterion, raw, target))


def test_a_head_derived_from_another_is_differentiated():
    """A written-out derivative is for exactly its head: a subclass may mean something else by the raw output."""

    @dataclasses.dataclass(frozen=True)
    class Doubled(Normal):
        def __call__(self, raw: Tensor):
            return super().__call__(2 * raw)

    criterion = Criterion(Doubled(), log_score)
    raw, target = data(criterion.head, 1)
    torch.testing.assert_close(criterion.raw_gradient(raw, target), automatic(criterion, raw, target))


@every_pair
def test_losses_are_the_scores(head, rule):
    raw, target = data(head, 1)
    losses = Criterion(head, rule).losses(raw, target)
    assert losses.shape == (2, 5)
    torch.testing.assert_close(losses, rule(head(raw), target))


@pytest.mark.parametrize(
    "rule",
    [
        lambda distribution, target: log_score(distribution, target).mean(),
        lambda distribution, target: log_score(distribution, target).mean(0),
        lambda distribution, target: squared_error(distribution, target).unsqueeze(-1),
    ],
    ids=["mean", "run_mean", "extra_axis"],
)
@pytest.mark.parametrize("method", ["losses", "raw_gradient"])
def test_a_rule_must_give_one_value_per_sample(rule, method):
    raw, target = data(Normal(), 1)
    with pytest.raises(ValueError, match=r"^`scoring_rule` must give one value per sample \[2, 5\], got \["):
        getattr(Criterion(Normal(), rule), method)(raw, target)
