"""Schedules of the learning rate, and optimisers that equal torch's."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from deep_ensembles.training.recipe import Adam, AdamW, Constant, Cosine

shares = st.floats(0, 1)


def test_constant():
    assert {Constant()(step, 10) for step in range(10)} == {1.0}


@given(warmup=shares, final=shares, total=st.integers(1, 500))
def test_cosine_rises_then_falls_to_its_end(warmup, final, total):
    schedule, warm = Cosine(warmup, final), round(warmup * total)
    factors = [schedule(step, total) for step in range(total + 1)]
    assert all(0 <= factor <= 1 + 1e-12 for factor in factors)
    assert factors[:warm] == sorted(factors[:warm])
    assert factors[warm:] == sorted(factors[warm:], reverse=True)
    assert factors[max(0, warm - 1) if warm else 0] == pytest.approx(1.0)
    if warm < total:
        assert factors[total] == pytest.approx(final)


def test_cosine_is_the_formula_without_warmup():
    assert Cosine(warmup=0, final=0.2)(3, 10) == pytest.approx(0.2 + 0.8 * (1 + math.cos(0.3 * math.pi)) / 2)


@pytest.mark.parametrize("name", ["warmup", "final"])
@pytest.mark.parametrize("value", [-0.1, 1.1, math.nan])
def test_cosine_refuses_what_is_no_share(name, value):
    with pytest.raises(ValueError, match=f"^`{name}` must be a number ≥ 0 and ≤ 1, got"):
        Cosine(**{name: value})


@pytest.mark.parametrize(("ours", "theirs"), [(Adam, torch.optim.Adam), (AdamW, torch.optim.AdamW)])
@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
@pytest.mark.parametrize("options", [{}, {"beta1": 0.5, "beta2": 0.9, "epsilon": 1e-3}])
def test_equals_torch(ours, theirs, weight_decay, options):
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
def test_refuses_bad_settings(kind, name, value):
    with pytest.raises(ValueError, match=f"^`{name}` must be a number"):
        kind(**{name: value})


@pytest.mark.parametrize("kind", [Adam, AdamW])
@pytest.mark.parametrize("name", ["beta1", "beta2"])
def test_refuses_a_beta_of_one(kind, name):
    """The bias correction 1 - βᵗ would be 0, and every parameter NaN after one step."""
    with pytest.raises(ValueError, match=f"^`{name}` must be"):
        kind(**{name: 1.0})
