"""Every perturbation: inside its box, reproducible, and nothing left behind; for every head."""

from __future__ import annotations

import math

import pytest
import torch
from _found import found, is_exported
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.distributions import Categorical, Distribution, Independent, Normal, StudentT, kl_divergence

from deep_ensembles import heads, perturbations
from deep_ensembles._random import torch_generators
from deep_ensembles.perturbations import (
    Divergence,
    FastGradientSign,
    ProjectedGradient,
    RandomSign,
    VirtualAdversarial,
    input_gradient,
)

every_perturbation = pytest.mark.parametrize("kind", found(perturbations))


class OwnHead:
    """A user's head, of a family for which torch knows no divergence."""

    def raw_size(self, n_targets: int) -> int:
        return 3 * n_targets

    def __call__(self, raw: Tensor) -> Distribution:
        location, scale, freedom = raw.chunk(3, -1)
        return Independent(StudentT(2 + nn.functional.softplus(freedom), location, nn.functional.softplus(scale) + 0.1), 1)


every_head = pytest.mark.parametrize("head", [*found(heads), pytest.param(OwnHead, id="own")])
quick = settings(deadline=None, derandomize=True, max_examples=60)
CPU = torch.device("cpu")


def loss(inputs: Tensor) -> Tensor:
    return (inputs.sin() + inputs.square() / 10).flatten(2).sum(-1)


def predict(inputs: Tensor) -> Distribution:
    features = inputs.flatten(2)
    return Normal(features.sin().sum(-1), 1 + features.square().mean(-1))


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
    perturbed = kind(epsilon)(loss, predict, inputs, torch.tensor(scale, dtype=torch.float64), generator)
    rounding = 4 * torch.finfo(torch.float64).eps * (inputs.abs() + box)
    assert ((perturbed - inputs).abs() <= box + rounding).all()


@every_perturbation
@pytest.mark.parametrize("features", [(2,), (3, 4, 4)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_keeps_shape_and_dtype_and_moves(kind, features, dtype):
    inputs = inputs_for(features=features, dtype=dtype)
    perturbed = kind(0.1)(loss, predict, inputs, torch.ones(features, dtype=dtype), generators())
    assert perturbed.shape == inputs.shape
    assert perturbed.dtype == dtype
    assert (perturbed != inputs).any(-1).all()


@every_perturbation
def test_each_dimension_has_its_own_scale_and_a_constant_one_stays(kind):
    inputs = inputs_for()
    perturbed = kind(0.1)(loss, predict, inputs, torch.tensor([3.0, 0.0], dtype=torch.float64), generators())
    assert torch.equal(perturbed[..., 1], inputs[..., 1])
    assert not torch.equal(perturbed[..., 0], inputs[..., 0])


@every_perturbation
def test_each_run_may_have_its_own_scale(kind):
    inputs = inputs_for()
    scale = torch.tensor([0.0, 1.0, 2.0], dtype=torch.float64).reshape(3, 1, 1)
    moved = (kind(0.1)(loss, predict, inputs, scale, generators()) - inputs).abs().amax((1, 2))
    assert moved[0] == 0
    assert (moved <= 0.1 * scale.flatten() + 1e-12).all()


@every_perturbation
@pytest.mark.parametrize("grad_mode", [torch.enable_grad, torch.no_grad])
def test_leaves_no_graph_behind(kind, grad_mode):
    weight = torch.ones(2, dtype=torch.float64, requires_grad=True)
    inputs = inputs_for().requires_grad_()
    before = inputs.detach().clone()
    with grad_mode():
        perturbed = kind(0.1)(
            lambda x: (x * weight).sum(-1), lambda x: Normal((x * weight).sum(-1), 1.0), inputs, torch.ones(2), generators()
        )
    assert not perturbed.requires_grad
    assert perturbed.grad_fn is None
    assert inputs.grad is None
    assert weight.grad is None
    assert torch.equal(inputs.detach(), before)


@every_perturbation
def test_is_reproducible_and_leaves_the_global_generator_alone(kind):
    state = torch.get_rng_state()
    one, two = (kind(0.1)(loss, predict, inputs_for(), torch.ones(2), torch.Generator().manual_seed(7)) for _ in range(2))
    assert torch.equal(one, two)
    assert torch.equal(kind(0.1)(loss, predict, inputs_for(), torch.ones(2), generators()),
                       kind(0.1)(loss, predict, inputs_for(), torch.ones(2), generators()))  # fmt: skip
    assert torch.equal(torch.get_rng_state(), state)


@every_perturbation
def test_a_run_does_not_depend_on_the_others(kind):
    inputs = inputs_for()
    together = kind(0.1)(loss, predict, inputs, torch.ones(2), generators())
    for run in range(3):
        alone = kind(0.1)(loss, predict, inputs[run : run + 1], torch.ones(2), generators()[run : run + 1])
        torch.testing.assert_close(alone, together[run : run + 1])


@every_perturbation
def test_needs_a_generator_for_every_run(kind):
    if getattr(kind, "uses_randomness", True):
        with pytest.raises(ValueError, match="argument"):
            kind(0.1)(loss, predict, inputs_for(), torch.ones(2), generators(2))


@every_perturbation
def test_says_truly_what_it_does_not_use(kind):
    def refuse(inputs: Tensor) -> Tensor:
        raise AssertionError("the loss was evaluated")

    if not getattr(kind, "uses_gradient", True):
        kind(0.1)(refuse, refuse, inputs_for(), torch.ones(2), generators())
    if not getattr(kind, "needs_target", True):
        kind(0.1)(refuse, predict, inputs_for(), torch.ones(2), generators())
    if not getattr(kind, "uses_randomness", True):
        assert torch.equal(kind(0.1)(loss, predict, inputs_for(), torch.ones(2), None),
                           kind(0.1)(loss, predict, inputs_for(), torch.ones(2), generators()))  # fmt: skip


@every_perturbation
def test_epsilon_zero_changes_nothing(kind):
    assert torch.equal(kind(0)(loss, predict, inputs_for(), torch.full((2,), 1e6), generators()), inputs_for())


@every_perturbation
@pytest.mark.parametrize("epsilon", [-1, -1e-9, math.nan, math.inf, "0.1", None, True])
def test_refuses_a_bad_epsilon(kind, epsilon):
    with pytest.raises(ValueError, match=r"^`epsilon` must be a number ≥ 0, got ") as error:
        kind(epsilon)
    assert repr(epsilon) in str(error.value)


def test_fast_gradient_sign_goes_uphill_to_the_corner():
    inputs = inputs_for()
    perturbed = FastGradientSign(0.01)(loss, None, inputs, torch.tensor([1.0, 5.0], dtype=torch.float64), None)
    uphill = (inputs.cos() + inputs / 5).sign()
    torch.testing.assert_close(perturbed, inputs + uphill * torch.tensor([0.01, 0.05], dtype=torch.float64))
    assert (loss(perturbed) > loss(inputs)).all()


def test_random_sign_takes_every_corner_equally_often():
    steps = RandomSign(1.0)(None, None, torch.zeros(1, 40_000, 2), torch.ones(2), torch.Generator().manual_seed(0))[0]
    corners = (steps > 0).long() @ torch.tensor([1, 2])
    assert (steps.abs() == 1).all()
    assert (corners.bincount(minlength=4) / 40_000).tolist() == pytest.approx([0.25] * 4, abs=0.01)


def test_a_loss_may_bring_its_own_gradient():
    def known(inputs: Tensor) -> Tensor:
        raise AssertionError("the loss was evaluated")

    known.gradient = torch.ones_like
    assert torch.equal(input_gradient(known, inputs_for()), torch.ones(3, 5, 2, dtype=torch.float64))


def network(n_outputs: int, n_inputs: int = 5, seed: int = 0) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Sequential(nn.Linear(n_inputs, 32), nn.Tanh(), nn.Linear(32, n_outputs)).double()


def head_for(kind: type) -> tuple[object, int]:
    """A head as it comes, and how many raw outputs it needs for two targets or three classes; or for one target only."""
    head = kind()
    try:
        return head, head.raw_size(3 if getattr(head, "discrete", False) else 2)
    except (ValueError, TypeError):
        return head, head.raw_size(1)


@every_perturbation
@every_head
def test_works_with_every_head(kind, head):
    head, n_outputs = head_for(head)
    model, inputs = network(n_outputs), inputs_for(features=(5,))
    scale = torch.tensor([1.0, 2.0, 0.5, 3.0, 1.0], dtype=torch.float64)

    def of(inputs: Tensor) -> Distribution:
        return head(model(inputs))

    def score(inputs: Tensor) -> Tensor:
        return model(inputs).sin().sum(-1)

    one, two = (kind(0.1)(score, of, inputs, scale, generators()) for _ in range(2))
    assert torch.equal(one, two)
    assert one.isfinite().all()
    assert (one != inputs).any(-1).all()
    assert ((one - inputs).abs() <= 0.1 * scale * (1 + 1e-9)).all()
    alone = kind(0.1)(score, of, inputs[1:2], scale, generators()[1:2])
    torch.testing.assert_close(alone, one[1:2], rtol=1e-6, atol=1e-9)


@every_head
def test_the_virtual_direction_changes_the_prediction_more_than_random_ones(head):
    head, n_outputs = head_for(head)
    model, inputs = network(n_outputs), inputs_for(1, (5,)).repeat(1, 8, 1)
    scale = torch.tensor([1.0, 2.0, 0.5, 3.0, 1.0], dtype=torch.float64)
    with torch.no_grad():
        divergence = Divergence(head(model(inputs)), torch.Generator().manual_seed(3))
        step = VirtualAdversarial(0.01, power_iterations=5)(None, lambda x: head(model(x)), inputs, scale, generators(1))
        directions = torch.randn(50, *inputs.shape, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
        directions /= directions.norm(dim=-1, keepdim=True)
        random = torch.stack([divergence(head(model(inputs + 0.01 * scale * d))) for d in directions])
        assert (divergence(head(model(step))).mean() > 1.5 * random.mean()).all()
        assert (divergence(head(model(step))) >= random).double().mean() > 0.8


@pytest.mark.parametrize("head", [heads.Normal(), heads.Categorical()], ids=["normal", "categorical"])
def test_the_virtual_direction_is_the_first_eigenvector(head):
    model, inputs = network(4), inputs_for(1, (5,))
    scale = torch.tensor([1.0, 2.0, 0.5, 3.0, 1.0], dtype=torch.float64)
    found_step = VirtualAdversarial(1.0, power_iterations=30)(None, lambda x: head(model(x)), inputs, scale, generators(1))
    for x, step in zip(inputs[0], (found_step - inputs)[0] / scale, strict=True):
        fixed = head(model(x[None]).detach())
        hessian = torch.autograd.functional.hessian(
            lambda d, x=x, fixed=fixed: kl_divergence(fixed, head(model((x + scale * d)[None]))).sum(), torch.zeros_like(x)
        )
        values, vectors = torch.linalg.eigh(hessian)
        assert values[-1] > 1.2 * values[-2]  # else there is no one direction
        assert (vectors[:, -1] @ step).abs().item() == pytest.approx(1, abs=2e-3)


@quick
@given(epsilon=st.floats(1e-3, 10), scale=st.lists(st.floats(1e-3, 1e3), min_size=2, max_size=2), seed=st.integers(0, 2**31))
def test_the_virtual_step_is_as_long_as_epsilon_says(epsilon, scale, seed):
    scale = torch.tensor(scale, dtype=torch.float64)
    inputs = inputs_for()
    step = (VirtualAdversarial(epsilon)(None, predict, inputs, scale, torch.Generator().manual_seed(seed)) - inputs) / scale
    torch.testing.assert_close(step.norm(dim=-1), torch.full((3, 5), epsilon, dtype=torch.float64), rtol=1e-8, atol=1e-12)


def test_the_virtual_step_is_random_where_the_prediction_is_flat():
    flat = VirtualAdversarial(0.1)(None, lambda x: Normal(0 * x.sum(-1), 1.0), inputs_for(), torch.ones(2), generators())
    torch.testing.assert_close((flat - inputs_for()).norm(dim=-1), torch.full((3, 5), 0.1, dtype=torch.float64))


def test_several_steps_find_worse_inputs_than_one():
    model = network(1, seed=3)

    def score(inputs: Tensor) -> Tensor:
        return model(6 * inputs).squeeze(-1).sin()

    inputs, scale = inputs_for(1, (5,)).repeat(1, 20, 1) + torch.randn(100, 5, generator=generators(1)[0]), torch.ones(5)
    one = score(FastGradientSign(0.3)(score, None, inputs, scale, None))
    many = score(ProjectedGradient(0.3, steps=10)(score, None, inputs, scale, generators(1)))
    assert (many >= one).double().mean() > 0.8
    assert many.mean() > one.mean() + 0.05
    single = ProjectedGradient(0.3, steps=1, step_size=0.3, random_start=False)(score, None, inputs, scale, None)
    torch.testing.assert_close(single, FastGradientSign(0.3)(score, None, inputs, scale, None), rtol=0, atol=1e-12)


def test_projected_gradient_starts_anywhere_in_the_box():
    kind = ProjectedGradient(1.0, steps=1, step_size=1e-6)
    step = kind(lambda x: 0 * x.sum(-1), None, torch.zeros(1, 40_000, 1), torch.ones(1), torch.Generator().manual_seed(0))
    assert torch.quantile(step.flatten(), torch.tensor([0.1, 0.5, 0.9])).tolist() == pytest.approx([-0.8, 0, 0.8], abs=0.02)
    assert ProjectedGradient().uses_randomness
    assert not ProjectedGradient(random_start=False).uses_randomness


@pytest.mark.parametrize(
    ("kind", "name", "value", "must"),
    [
        (ProjectedGradient, "steps", 0, "an integer ≥ 1"),
        (ProjectedGradient, "step_size", 0, "a number > 0"),
        (ProjectedGradient, "random_start", 1, "True or False"),
        (VirtualAdversarial, "power_iterations", 0, "an integer ≥ 1"),
        (VirtualAdversarial, "weight", -1, "a number ≥ 0"),
    ],
)
def test_refuses_bad_settings(kind, name, value, must):
    with pytest.raises(ValueError, match=rf"^`{name}` must be {must}, got {value}$"):
        kind(**{name: value})


def test_the_divergence_is_exact_where_torch_knows_it():
    p, q = (Independent(Normal(torch.randn(2, 3, 2), 1 + torch.rand(2, 3, 2)), 1) for _ in range(2))
    torch.testing.assert_close(Divergence(p)(q), kl_divergence(p, q))
    p, q = (Categorical(logits=torch.randn(2, 3, 4)) for _ in range(2))
    torch.testing.assert_close(Divergence(p)(q), kl_divergence(p, q))


def test_the_divergence_of_other_families_comes_from_draws_of_each_run():
    location = torch.zeros(3, 4, dtype=torch.float64)
    p, q = StudentT(5.0 + location, location), StudentT(5.0 + location, location + 0.05)
    divergence = Divergence(p, generators())
    assert divergence(p).abs().max() == 0
    many = torch.stack([Divergence(p, torch.Generator().manual_seed(seed))(q) for seed in range(300)])
    fisher = 6 / 8  # of the location, (ν + 1)/(ν + 3)
    assert many.mean().item() == pytest.approx(fisher * 0.05**2 / 2, rel=0.05)
    alone = Divergence(StudentT(5.0 + location[1:2], location[1:2]), generators()[1:2])
    assert torch.equal(alone(StudentT(5.0 + location[1:2], location[1:2] + 0.05)), divergence(q)[1:2])


def test_the_divergence_of_points_is_their_squared_distance():
    p, q = heads.Point()(torch.zeros(2, 3, 2)), heads.Point()(torch.tensor([1.0, 3.0]).expand(2, 3, 2))
    assert torch.equal(Divergence(p)(q), torch.full((2, 3), 5.0))
