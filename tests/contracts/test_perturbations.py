"""Every perturbation: inside its box, reproducible, and nothing left behind."""

from __future__ import annotations

import math

import pytest
import torch
from _found import found, is_exported
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from deep_ensembles import perturbations
from deep_ensembles._random import torch_generators
from deep_ensembles.perturbations import FastGradientSign, RandomSign, input_gradient

every_perturbation = pytest.mark.parametrize("kind", found(perturbations))
quick = settings(deadline=None, derandomize=True, max_examples=60)
CPU = torch.device("cpu")


def loss(inputs: Tensor) -> Tensor:
    return (inputs.sin() + inputs.square() / 10).flatten(2).sum(-1)


def inputs_for(n_runs: int = 3, features: tuple[int, ...] = (2,), dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(n_runs, 5, *features, generator=torch.Generator().manual_seed(1), dtype=dtype)


def generators(n_runs: int = 3) -> list[torch.Generator]:
    return torch_generators(range(10, 10 + n_runs), CPU)


@every_perturbation
def test_is_exported_and_a_value(kind):
    assert is_exported(perturbations, kind)
    assert kind(0.5) == kind(epsilon=0.5)
    assert len({kind(0.5), kind(0.5), kind(0.25)}) == 2


@every_perturbation
@quick
@given(
    epsilon=st.floats(0, 10),
    magnitude=st.floats(-8, 8),
    scale=st.lists(st.floats(0, 1e6), min_size=2, max_size=2),
    seed=st.integers(0, 2**31),
)
def test_stays_inside_the_box(kind, epsilon, magnitude, scale, seed):
    generator = torch.Generator().manual_seed(seed)
    inputs = 10**magnitude * torch.randn(2, 3, 2, generator=generator, dtype=torch.float64)
    box = epsilon * torch.tensor(scale, dtype=torch.float64)
    perturbed = kind(epsilon)(loss, inputs, torch.tensor(scale, dtype=torch.float64), generator)
    rounding = 4 * torch.finfo(torch.float64).eps * (inputs.abs() + box)
    assert ((perturbed - inputs).abs() <= box + rounding).all()


@every_perturbation
@pytest.mark.parametrize("features", [(2,), (3, 4, 4)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_keeps_shape_and_dtype_and_moves(kind, features, dtype):
    inputs = inputs_for(features=features, dtype=dtype)
    perturbed = kind(0.1)(loss, inputs, torch.ones(features, dtype=dtype), generators())
    assert perturbed.shape == inputs.shape
    assert perturbed.dtype == dtype
    assert (perturbed != inputs).any(-1).all()


@every_perturbation
def test_each_dimension_has_its_own_scale_and_a_constant_one_stays(kind):
    inputs = inputs_for()
    perturbed = kind(0.1)(loss, inputs, torch.tensor([3.0, 0.0], dtype=torch.float64), generators())
    assert torch.equal(perturbed[..., 1], inputs[..., 1])
    assert not torch.equal(perturbed[..., 0], inputs[..., 0])


@every_perturbation
def test_each_run_may_have_its_own_scale(kind):
    inputs = inputs_for()
    scale = torch.tensor([0.0, 1.0, 2.0], dtype=torch.float64).reshape(3, 1, 1)
    moved = (kind(0.1)(loss, inputs, scale, generators()) - inputs).abs().amax((1, 2))
    assert moved[0] == 0
    assert (moved <= 0.1 * scale.flatten() + 1e-12).all()


@every_perturbation
@pytest.mark.parametrize("grad_mode", [torch.enable_grad, torch.no_grad])
def test_leaves_no_graph_behind(kind, grad_mode):
    weight = torch.ones(2, dtype=torch.float64, requires_grad=True)
    inputs = inputs_for().requires_grad_()
    before = inputs.detach().clone()
    with grad_mode():
        perturbed = kind(0.1)(lambda x: (x * weight).sum(-1), inputs, torch.ones(2), generators())
    assert not perturbed.requires_grad
    assert perturbed.grad_fn is None
    assert inputs.grad is None
    assert weight.grad is None
    assert torch.equal(inputs.detach(), before)


@every_perturbation
def test_is_reproducible_and_leaves_the_global_generator_alone(kind):
    state = torch.get_rng_state()
    one, two = (kind(0.1)(loss, inputs_for(), torch.ones(2), torch.Generator().manual_seed(7)) for _ in range(2))
    assert torch.equal(one, two)
    assert torch.equal(kind(0.1)(loss, inputs_for(), torch.ones(2), generators()),
                       kind(0.1)(loss, inputs_for(), torch.ones(2), generators()))  # fmt: skip
    assert torch.equal(torch.get_rng_state(), state)


@every_perturbation
def test_a_run_does_not_depend_on_the_others(kind):
    inputs = inputs_for()
    together = kind(0.1)(loss, inputs, torch.ones(2), generators())
    for run in range(3):
        alone = kind(0.1)(loss, inputs[run : run + 1], torch.ones(2), generators()[run : run + 1])
        torch.testing.assert_close(alone, together[run : run + 1])


@every_perturbation
def test_needs_a_generator_for_every_run(kind):
    if getattr(kind, "uses_randomness", True):
        with pytest.raises(ValueError, match="argument"):
            kind(0.1)(loss, inputs_for(), torch.ones(2), generators(2))


@every_perturbation
def test_says_truly_what_it_does_not_use(kind):
    def refuse(inputs: Tensor) -> Tensor:
        raise AssertionError("the loss was evaluated")

    if not getattr(kind, "uses_gradient", True):
        kind(0.1)(refuse, inputs_for(), torch.ones(2), generators())
    if not getattr(kind, "uses_randomness", True):
        assert torch.equal(kind(0.1)(loss, inputs_for(), torch.ones(2), None),
                           kind(0.1)(loss, inputs_for(), torch.ones(2), generators()))  # fmt: skip


@every_perturbation
def test_epsilon_zero_changes_nothing(kind):
    assert torch.equal(kind(0)(loss, inputs_for(), torch.full((2,), 1e6), generators()), inputs_for())


@every_perturbation
@pytest.mark.parametrize("epsilon", [-1, -1e-9, math.nan, math.inf, "0.1", None, True])
def test_refuses_a_bad_epsilon(kind, epsilon):
    with pytest.raises(ValueError, match=r"^`epsilon` must be a number ≥ 0, got ") as error:
        kind(epsilon)
    assert repr(epsilon) in str(error.value)


def test_fast_gradient_sign_goes_uphill_to_the_corner():
    inputs = inputs_for()
    perturbed = FastGradientSign(0.01)(loss, inputs, torch.tensor([1.0, 5.0], dtype=torch.float64), None)
    uphill = (inputs.cos() + inputs / 5).sign()
    torch.testing.assert_close(perturbed, inputs + uphill * torch.tensor([0.01, 0.05], dtype=torch.float64))
    assert (loss(perturbed) > loss(inputs)).all()


def test_random_sign_takes_every_corner_equally_often():
    steps = RandomSign(1.0)(None, torch.zeros(1, 40_000, 2), torch.ones(2), torch.Generator().manual_seed(0))[0]
    corners = (steps > 0).long() @ torch.tensor([1, 2])
    assert (steps.abs() == 1).all()
    assert (corners.bincount(minlength=4) / 40_000).tolist() == pytest.approx([0.25] * 4, abs=0.01)


def test_a_loss_may_bring_its_own_gradient():
    def known(inputs: Tensor) -> Tensor:
        raise AssertionError("the loss was evaluated")

    known.gradient = torch.ones_like
    assert torch.equal(input_gradient(known, inputs_for()), torch.ones(3, 5, 2, dtype=torch.float64))
