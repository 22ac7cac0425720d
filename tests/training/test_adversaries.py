"""Adversaries within training: the gradient of a step by hand, rows without targets, resuming with them."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch
from sklearn.datasets import make_moons
from torch import Tensor, nn
from torch.distributions import Distribution, StudentT
from torch.utils.data import TensorDataset

from deep_ensembles import (
    Categorical,
    Checkpoint,
    FastGradientSign,
    Looped,
    Normal,
    Point,
    ProjectedGradient,
    Stacked,
    VirtualAdversarial,
    fit_ensemble,
    log_score,
    mlp,
    squared_error,
)
from deep_ensembles._random import Purpose, run_seeds, stream, torch_generators
from deep_ensembles.members import assemble
from deep_ensembles.perturbations import Divergence
from deep_ensembles.training import Training, train
from deep_ensembles.training.checkpoint import CheckpointWriter
from deep_ensembles.training.data import InMemory
from deep_ensembles.training.recipe import Recipe, Run
from deep_ensembles.training.step import Algorithm, Criterion

CPU = torch.device("cpu")
NETWORK = partial(mlp, 3, 2, (16,), activation="tanh", dtype=torch.float64)
every_kind = pytest.mark.parametrize("kind", [None, Stacked, Looped], ids=["plain", "stacked", "looped"])
adversaries = pytest.mark.parametrize(
    "perturbation", [ProjectedGradient(0.05), VirtualAdversarial(0.1)], ids=lambda each: type(each).__name__
)


def data(n: int = 120, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 3, generator=generator)
    return x, x[:, 0] + x[:, 1] ** 2 + 0.1 * torch.randn(n, generator=generator)


@every_kind
@pytest.mark.parametrize("weighted", [False, True], ids=["equal", "weighted"])
@pytest.mark.parametrize("with_unlabelled", [False, True], ids=["labelled", "unlabelled"])
def test_virtual_adversarial_training_adds_the_divergence_of_all_rows(kind, weighted, with_unlabelled):
    """The gradient of ℓ(x) + weight · KL(p(x) ‖ p(x′)), p(x) and x′ held fixed; the mean over rows with and without y."""
    x, y = data(40)
    x, y = x.double(), y.double()
    others = data(40, seed=1)[0].double() if with_unlabelled else None
    members = assemble(NETWORK, [1, 2], x[:4], kind)
    gradients, scale = members.prepare(), torch.tensor([1.0, 2.0, 0.5], dtype=torch.float64)
    weights = torch.linspace(0.5, 1.5, 40, dtype=torch.float64) if weighted else torch.ones(40, dtype=torch.float64)
    perturbation = VirtualAdversarial(0.3, power_iterations=2, weight=1.7)
    Algorithm(Criterion(Normal(), log_score), perturbation).gradient(
        members, x.expand(2, -1, -1), y.expand(2, -1), (weights / 40).expand(2, -1) if weighted else 1 / 40,
        scale.expand(2, 1, -1), [[0, 0], [0, 0], [5, 6]], None if others is None else others.expand(2, -1, -1),
    )  # fmt: skip
    for m in range(2):
        module = NETWORK()
        module.load_state_dict({name: view[m] for name, view in members.parameters.views.items()})

        def predict(inputs: Tensor, module: nn.Module = module) -> Distribution:
            return Normal()(module(inputs))

        rows, counts = (x, weights) if others is None else (torch.cat([x, others]), torch.cat([weights, torch.ones(40)]) / 2)
        nearby = perturbation(None, predict, rows[None], scale, torch_generators([5 + m], CPU))[0]
        with torch.no_grad():
            divergence = Divergence(predict(rows))
        loss = (weights * log_score(predict(x), y)).sum() / 40
        (loss + 1.7 * (counts * divergence(predict(nearby))).sum() / 40).backward()
        for name, parameter in module.named_parameters():
            torch.testing.assert_close(gradients.views[name][m], parameter.grad, rtol=1e-6, atol=1e-9)


@every_kind
def test_projected_gradient_training_minimises_both_losses(kind):
    x, y = data(40)
    x, y = x.double(), y.double()
    members = assemble(NETWORK, [1, 2], x[:4], kind)
    gradients, scale = members.prepare(), torch.tensor([1.0, 2.0, 0.5], dtype=torch.float64)
    perturbation = ProjectedGradient(0.1, steps=3)
    Algorithm(Criterion(Normal(), log_score), perturbation).gradient(
        members, x.expand(2, -1, -1), y.expand(2, -1), 1 / 40, scale.expand(2, 1, -1), [[0, 0], [0, 0], [5, 6]]
    )
    for m in range(2):
        module = NETWORK()
        module.load_state_dict({name: view[m] for name, view in members.parameters.views.items()})

        def loss(inputs: Tensor, module: nn.Module = module) -> Tensor:
            return log_score(Normal()(module(inputs)), y.expand(inputs.shape[:-1]))

        nearby = perturbation(loss, None, x[None], scale, torch_generators([5 + m], CPU))[0]
        (loss(x).mean() + loss(nearby).mean()).backward()
        for name, parameter in module.named_parameters():
            torch.testing.assert_close(gradients.views[name][m], parameter.grad, rtol=1e-6, atol=1e-9)


def test_a_perturbation_may_look_again_and_differentiate_what_it_looked_at_before():
    """Two predictions, then the gradient through the first: members remember only the last pass."""
    x, y = data(20)
    x, y = x.double(), y.double()
    members = assemble(NETWORK, [1], x[:4])
    members.prepare()
    module = NETWORK()
    module.load_state_dict({name: view[0] for name, view in members.parameters.views.items()})
    gradients = []

    def looking(loss, predict, inputs, scale, generator):
        for mean in (lambda leaf: predict(leaf).mean, lambda leaf: Normal()(module(leaf)).mean):
            leaf = inputs.detach().requires_grad_()
            with torch.enable_grad():
                first, _ = mean(leaf), predict(inputs + 1.0).mean
                gradients.append(torch.autograd.grad(first.sum(), leaf)[0])
        with torch.enable_grad():
            of_loss = torch.autograd.grad(loss(leaf).sum(), leaf)[0]
            gradients.append(of_loss - torch.autograd.grad(log_score(Normal()(module(leaf)), y).sum(), leaf)[0])
        return inputs

    before = [tensor.clone() for tensor in members.gradients.views.values()]
    Algorithm(Criterion(Normal(), log_score), looking).gradient(members, x[None], y[None], 1 / 20, x.new_ones(3), [[0]] * 3)
    torch.testing.assert_close(gradients[0], gradients[1])
    torch.testing.assert_close(gradients[2], torch.zeros_like(gradients[2]), rtol=0, atol=1e-12)
    assert all((tensor != old).any() for tensor, old in zip(members.gradients.views.values(), before, strict=True))


@adversaries
@every_kind
def test_looking_for_inputs_leaves_running_statistics_alone(perturbation, kind):
    build = partial(mlp, 3, 2, (16,), batch_norm=True)
    x, y = data(40)
    members = assemble(build, [1, 2], x[:4], kind)
    members.prepare()
    Algorithm(Criterion(Normal(), log_score), perturbation).gradient(
        members, x.expand(2, -1, -1), y.expand(2, -1), 1 / 40, torch.ones(2, 1, 3), [[0, 0], [0, 0], [5, 6]]
    )
    passes = [tensor for name, tensor in members.buffers.items() if name.endswith("num_batches_tracked")]
    assert torch.equal(torch.cat(passes), torch.full((2,), 2))  # x and x′


@adversaries
@pytest.mark.parametrize("network", [{}, {"batch_norm": True, "dropout": 0.2}], ids=str)
def test_a_member_does_not_depend_on_the_number_of_members(perturbation, network):
    build = partial(mlp, 3, 2, (16,), dtype=torch.float64, **network)
    settings = {"perturbation": perturbation, "max_epochs": 3, "batch_size": 50, "random_state": 5}
    if isinstance(perturbation, VirtualAdversarial):
        settings["unlabelled"] = data(70, seed=1)[0]
    few, many = (fit_ensemble(build, *data(), n_members=m, **settings).members for m in (2, 4))
    for name, view in few.parameters.views.items():
        torch.testing.assert_close(view, many.parameters.views[name][:2], rtol=1e-7, atol=1e-7)


def test_draws_for_a_family_without_a_known_divergence_are_each_members_own():
    def heavy_tails(raw: Tensor) -> Distribution:
        location, scale = raw.unbind(-1)
        return StudentT(5.0 + 0 * location, location, nn.functional.softplus(scale) + 0.01, validate_args=False)

    settings = {"head": heavy_tails, "perturbation": VirtualAdversarial(0.1), "max_epochs": 2, "random_state": 5}
    few, many = (fit_ensemble(NETWORK, *data(), n_members=m, **settings).members.parameters.views for m in (2, 4))
    alone = fit_ensemble(NETWORK, *data(), n_members=2, members=Looped, **settings).members.parameters.views
    for name, view in few.items():
        torch.testing.assert_close(view, many[name][:2], rtol=1e-7, atol=1e-7)
        torch.testing.assert_close(view, alone[name], rtol=1e-6, atol=1e-7)


@adversaries
def test_stacked_looped_and_plain_members_train_alike(perturbation):
    settings = {"perturbation": perturbation, "max_epochs": 2, "random_state": 0, "n_members": 2}
    plain, stacked, looped = (fit_ensemble(NETWORK, *data(), members=kind, **settings) for kind in (None, Stacked, Looped))
    for other in (stacked, looped):
        torch.testing.assert_close(other.members.parameters.flat, plain.members.parameters.flat, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize(
    ("head", "rule", "n_outputs"), [(Point(), squared_error, 1), (Categorical(), log_score, 2)], ids=["point", "categorical"]
)
def test_other_heads_are_trained_too(head, rule, n_outputs):
    x, y = data()
    target = (y > 0.5).long() if isinstance(head, Categorical) else y
    settings = {"head": head, "scoring_rule": rule, "max_epochs": 40, "random_state": 0, "n_members": 2}
    smooth, plain = (
        fit_ensemble(partial(mlp, 3, n_outputs, (16,)), x, target, perturbation=perturbation, **settings)
        for perturbation in (VirtualAdversarial(0.2, weight=3), None)
    )
    nearby = x + 0.05 * torch.randn(x.shape, generator=torch.Generator().manual_seed(9))
    centre = "probs" if isinstance(head, Categorical) else "mean"
    pairs = [[getattr(model(inputs), centre) for inputs in (nearby, x)] for model in (smooth, plain)]
    changes = [(moved - still).square().mean() for moved, still in pairs]
    assert changes[0] < 0.9 * changes[1]


def test_a_runs_factor_is_a_factor_on_epsilon():
    rows, seed = InMemory(*data()), run_seeds(0, 1)[0]
    runs = [Run(np.arange(120), seed, perturbation_factor=factor) for factor in (1.0, 3.0)]
    criterion, recipe = Criterion(Normal(), log_score), Recipe(max_epochs=2, standardize_targets=False)
    both = Training(NETWORK, rows, runs, Algorithm(criterion, VirtualAdversarial(0.1)), recipe)
    farther = Training(NETWORK, rows, runs[:1], Algorithm(criterion, VirtualAdversarial(0.3)), recipe)
    # The probe's length has the factor too: the direction is found at another distance, and nearly the same.
    one, other = (train(training).members.parameters.views for training in (both, farther))
    for name, view in one.items():
        torch.testing.assert_close(view[1], other[name][0], rtol=0, atol=1e-3)
        assert (view[1] - view[0]).abs().max() > 5e-3 or "bias" in name


# -- rows without targets ---------------------------------------------------------------------------------------------


def test_rows_without_targets_help():
    """Two moons with four labels each: their shape is only seen in the rows without labels."""
    X, y = make_moons(600, noise=0.1, random_state=0)
    X = X.astype(np.float32)
    labelled = np.concatenate([np.flatnonzero(y == label)[:4] for label in (0, 1)]).repeat(8)
    settings = {"max_epochs": 400, "n_members": 2, "random_state": 0, "perturbation": VirtualAdversarial(0.1)}
    accuracy = []
    for unlabelled in (None, X):
        model = fit_ensemble(partial(mlp, 2, 2, (50, 50)), X[labelled], y[labelled], unlabelled=unlabelled, **settings)
        accuracy.append((model(X).mode.numpy() == y).mean())
    assert accuracy[0] < 0.88
    assert accuracy[1] > 0.96


def test_rows_without_targets_are_standardised_like_the_others():
    """Shifted and scaled inputs of both kinds give the same networks."""
    x, y = data()
    others = data(50, seed=1)[0]
    settings = {"perturbation": VirtualAdversarial(0.1), "max_epochs": 3, "random_state": 0, "n_members": 2}
    plain = fit_ensemble(NETWORK, x, y, unlabelled=others, **settings)
    moved = fit_ensemble(NETWORK, 1000 * x.double() + 5, y, unlabelled=1000 * others.double() + 5, **settings)
    torch.testing.assert_close(plain.members.parameters.flat, moved.members.parameters.flat, rtol=1e-4, atol=1e-5)
    farther = fit_ensemble(NETWORK, x, y, unlabelled=others + 1, **settings)
    assert (plain.members.parameters.flat - farther.members.parameters.flat).abs().max() > 1e-3


@pytest.mark.parametrize("n_unlabelled", [7, 50, 120, 333])
def test_every_row_without_target_comes_before_any_comes_again(n_unlabelled, monkeypatch):
    seen: list[Tensor] = []
    gradient = Algorithm.gradient

    def spying(self, members, inputs, *others):
        seen.append(others[-1].clone())
        return gradient(self, members, inputs, *others)

    monkeypatch.setattr(Algorithm, "gradient", spying)
    x, y = data()
    rows = torch.arange(float(n_unlabelled)).unsqueeze(1).expand(-1, 3)
    fit_ensemble(NETWORK, x, y, unlabelled=rows, perturbation=VirtualAdversarial(), standardize_inputs=False, batch_size=50,
                 max_epochs=7, n_members=2, random_state=3)  # fmt: skip
    assert [len(batch[0]) for batch in seen] == [50, 50, 20] * 7
    numbers = torch.cat(seen, 1)[..., 0].long()
    for run in numbers:
        for start in range(0, len(run) - n_unlabelled, n_unlabelled):
            assert run[start : start + n_unlabelled].unique().numel() == n_unlabelled
    assert (numbers[0] != numbers[1]).any()
    seed, repeats = run_seeds(3, 1)[0], -(-120 // n_unlabelled)
    first = stream(seed, Purpose.UNLABELLED, 0).permuted(np.tile(np.arange(n_unlabelled), (repeats, 1)), axis=1).ravel()
    assert numbers[0, : len(first)].tolist() == first[: 7 * 120].tolist()


def test_rows_without_targets_go_with_streamed_rows_and_several_targets():
    x, y = data()
    settings = {"perturbation": VirtualAdversarial(0.1), "max_epochs": 2, "random_state": 0, "n_members": 2}
    others = data(50, seed=1)[0]
    streamed = fit_ensemble(NETWORK, TensorDataset(x, y), unlabelled=others, **settings)
    in_memory = fit_ensemble(NETWORK, x, y, unlabelled=others, **settings)
    torch.testing.assert_close(streamed.members.parameters.flat, in_memory.members.parameters.flat, rtol=1e-6, atol=1e-7)
    several = fit_ensemble(partial(mlp, 3, 4), x, torch.stack([y, -y], 1), unlabelled=others, **settings)
    assert several(x[:2]).mean.shape == (2, 2)


@pytest.mark.parametrize("perturbation", [None, FastGradientSign(0.01), ProjectedGradient(0.01)], ids=str)
def test_rows_without_targets_need_a_perturbation_that_needs_none(perturbation):
    with pytest.raises(ValueError, match=r"^`unlabelled` must be None with .* pass `perturbation=VirtualAdversarial\(\)`$"):
        fit_ensemble(NETWORK, *data(), unlabelled=data()[0], perturbation=perturbation)


@pytest.mark.parametrize(
    "unlabelled", [torch.zeros(5, 2), torch.zeros(3), torch.zeros(0, 3)], ids=lambda x: str(list(x.shape))
)
def test_rows_without_targets_have_the_shape_of_inputs(unlabelled):
    with pytest.raises(
        ValueError, match=r"^`unlabelled` must be of shape \[row, 3\] with at least one row, like `inputs`, got"
    ):
        fit_ensemble(NETWORK, *data(), unlabelled=unlabelled, perturbation=VirtualAdversarial())
    with pytest.raises(ValueError, match=r"^`unlabelled` must be finite"):
        fit_ensemble(NETWORK, *data(), unlabelled=torch.full((5, 3), torch.nan), perturbation=VirtualAdversarial())


class Interrupted(Exception):
    pass


@pytest.mark.parametrize("at", [1, 4, 9, 17])
def test_resuming_gives_the_same_bits(at, tmp_path, monkeypatch):
    """Stop at the n-th write of a checkpoint, within an epoch or between two."""
    monkeypatch.setattr("deep_ensembles.training.batches._BLOCK_BYTES", 2000)
    network = partial(mlp, 3, 2, (16,), dropout=0.2, batch_norm=True)
    settings = {
        "max_epochs": 8, "batch_size": 40, "random_state": 0, "early_stopping": True, "patience": 3, "n_members": 3,
        "perturbation": VirtualAdversarial(0.1), "unlabelled": data(77, seed=1)[0],
    }  # fmt: skip
    calm = fit_ensemble(network, *data(), **settings)
    checkpoint = Checkpoint(tmp_path / "state", every_seconds=0.0)
    write, written = CheckpointWriter.write, []

    def interrupting(self: CheckpointWriter, *args: object) -> None:
        write(self, *args)  # type: ignore[arg-type]
        written.append(1)
        if len(written) == at:
            raise Interrupted

    monkeypatch.setattr(CheckpointWriter, "write", interrupting)
    with pytest.raises(Interrupted):
        fit_ensemble(network, *data(), checkpoint=checkpoint, **settings)
    resumed = fit_ensemble(network, *data(), checkpoint=checkpoint, **settings)
    assert torch.equal(calm.members.parameters.flat, resumed.members.parameters.flat)
    assert all(torch.equal(calm.members.buffers[name], tensor) for name, tensor in resumed.members.buffers.items())
    for changed in ({"unlabelled": data(77, seed=2)[0]}, {"unlabelled": None}, {"perturbation": VirtualAdversarial(0.2)}):
        with pytest.raises(ValueError, match="belongs to another training"):
            fit_ensemble(network, *data(), checkpoint=checkpoint, **settings | changed)
