"""The one loop: runs are independent, early stopping keeps the best, divergence is caught, data may be streamed."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset, IterableDataset, TensorDataset

from deep_ensembles import (
    AdamW,
    Bootstrap,
    Cosine,
    FastGradientSign,
    Normal,
    RandomSign,
    Subsample,
    TrainingDiverged,
    cross_validate,
    fit_ensemble,
    log_score,
    mlp,
)
from deep_ensembles._random import run_seeds
from deep_ensembles.ensemble import Ensemble
from deep_ensembles.members import Looped
from deep_ensembles.training import Training, train
from deep_ensembles.training.data import InMemory
from deep_ensembles.training.recipe import Recipe, Run, plan_runs
from deep_ensembles.training.step import Algorithm, Criterion

NETWORK = partial(mlp, 3, 2, (16,))


def data(n: int = 230) -> tuple[Tensor, Tensor]:
    x = torch.randn(n, 3, generator=torch.Generator().manual_seed(0))
    noise = torch.randn(n, generator=torch.Generator().manual_seed(1))
    return x, x[:, 0] + x[:, 1] ** 2 + 0.1 * noise


def weights(ensemble: Ensemble, member: int) -> Tensor:
    return torch.cat([view[member].flatten() for view in ensemble.members.parameters.views.values()])


@pytest.mark.parametrize("perturbation", [None, FastGradientSign(0.01), RandomSign(0.01)], ids=["none", "sign", "random"])
@pytest.mark.parametrize("network", [{}, {"dropout": 0.2}, {"batch_norm": True, "dropout": 0.2}], ids=str)
def test_a_member_does_not_depend_on_the_number_of_members(perturbation: object, network: dict[str, object]) -> None:
    build = partial(mlp, 3, 2, (16,), dtype=torch.float64, **network)
    settings = {"perturbation": perturbation, "max_epochs": 3, "batch_size": 50, "random_state": 5}
    few, many = (fit_ensemble(build, *data(), n_members=m, **settings) for m in (2, 5))
    for member in range(2):
        torch.testing.assert_close(weights(few, member), weights(many, member), rtol=1e-7, atol=1e-7)


def test_the_same_seed_gives_the_same_bits_and_another_seed_does_not() -> None:
    one, two, other = (fit_ensemble(NETWORK, *data(), max_epochs=3, random_state=seed) for seed in (1, 1, 2))
    assert torch.equal(one.members.parameters.flat, two.members.parameters.flat)
    assert not torch.equal(one.members.parameters.flat, other.members.parameters.flat)


def test_runs_with_different_rows_are_what_they_are_alone() -> None:
    """Folds of different sizes, down to batches of different sizes, with batch norm: nothing leaks between runs."""
    x, y = data(131)
    rows = InMemory(x, y)
    build = partial(mlp, 3, 2, (16,), batch_norm=True, dtype=torch.float64)
    sizes = [131, 131, 130, 101, 60, 60, 7]
    runs = [Run(np.arange(n), seed) for n, seed in zip(sizes, run_seeds(0, len(sizes)), strict=True)]
    algorithm, recipe = Algorithm(Criterion(Normal(), log_score), None), Recipe(max_epochs=3, batch_size=50)
    together = train(Training(build, rows, runs, algorithm, recipe)).members
    for r, run in enumerate(runs):
        alone = train(Training(build, rows, [run], algorithm, recipe)).members
        for name, view in together.parameters.views.items():
            torch.testing.assert_close(view[r], alone.parameters.views[name][0], rtol=1e-6, atol=1e-6)
        for name, buffer in together.buffers.items():
            torch.testing.assert_close(buffer[r], alone.buffers[name][0], rtol=1e-6, atol=1e-6)


def test_stacks_that_outgrow_the_cache_are_trained_part_by_part(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {"max_epochs": 2, "n_members": 5, "random_state": 0, "early_stopping": True}
    whole = fit_ensemble(NETWORK, *data(), **settings)
    monkeypatch.setattr("deep_ensembles.training.loop._CACHED_PARAMETERS", 2 * 98)
    parts = fit_ensemble(NETWORK, *data(), **settings)
    torch.testing.assert_close(parts.members.parameters.flat, whole.members.parameters.flat, rtol=1e-5, atol=1e-6)


def test_runs_may_have_their_own_hyper_parameters() -> None:
    rows = InMemory(*data())
    seed = run_seeds(0, 1)[0]
    own = [{}, {"learning_rate": 0.001}, {"weight_decay": 0.5}, {"perturbation_factor": 20.0}]
    runs = [Run(np.arange(230), seed, **extra) for extra in own]
    algorithm, recipe = Algorithm(Criterion(Normal(), log_score), FastGradientSign(0.01)), Recipe(max_epochs=3)
    together = train(Training(NETWORK, rows, runs, algorithm, recipe)).members.parameters.views
    for r, run in enumerate(runs):
        alone = train(Training(NETWORK, rows, [run], algorithm, recipe)).members.parameters.views
        for name in together:
            torch.testing.assert_close(together[name][r], alone[name][0], rtol=1e-5, atol=1e-6)
    flat = torch.stack([torch.cat([view[r].flatten() for view in together.values()]) for r in range(4)])
    assert min((flat[i] - flat[j]).abs().max() for i in range(4) for j in range(i)) > 1e-3


def test_training_equals_a_plain_loop_with_torch_adam() -> None:
    """One member, written out as anybody would."""
    x, y = data()
    seed = run_seeds(3, 1)[0]
    ensemble = fit_ensemble(NETWORK, x, y, n_members=1, max_epochs=2, batch_size=40, weight_decay=0.01, random_state=3)
    network = fit_ensemble(NETWORK, x, y, n_members=1, max_epochs=1, learning_rate=1e-30, random_state=3).members
    module = nn.Sequential(nn.Linear(3, 16), nn.ReLU(), nn.Linear(16, 2))
    module.load_state_dict({name: view[0] for name, view in network.parameters.views.items()})
    optimizer = torch.optim.Adam(module.parameters(), lr=0.01, weight_decay=0.01)
    z = ((x.double() - x.double().mean(0)) / x.double().std(0, correction=0)).float()
    t = ((y.double() - y.double().mean()) / y.double().std(correction=0)).float()
    order = np.random.default_rng((seed, 1, 0)).permuted(np.broadcast_to(np.arange(230), (16, 230)), axis=1)
    for epoch in range(2):
        for batch in np.split(order[epoch], range(40, 230, 40)):
            optimizer.zero_grad()
            mean, raw = module(z[batch]).unbind(-1)
            variance = nn.functional.softplus(raw) + 1e-6
            nn.functional.gaussian_nll_loss(mean, t[batch], variance, eps=1e-12).backward()
            optimizer.step()
    for name, expected in module.state_dict().items():
        torch.testing.assert_close(ensemble.members.parameters.views[name][0], expected, rtol=1e-4, atol=1e-5)


def test_adversarial_training_minimises_both_losses() -> None:
    """The gradient of a step is that of ℓ(x) + ℓ(x′), x′ held fixed (Algorithm 1)."""
    x, y = data(40)
    members = fit_ensemble(NETWORK, x, y, n_members=2, max_epochs=1, random_state=0).members
    gradients = members.prepare()
    inputs, targets, scale = x.expand(2, -1, -1), y.expand(2, -1), torch.tensor([1.0, 2.0, 0.0])
    Algorithm(Criterion(Normal(), log_score), FastGradientSign(0.05)).gradient(
        members, inputs, targets, 1 / 40, scale, [[0, 0]] * 3
    )
    for m in range(2):
        module = mlp(3, 2, (16,))
        module.load_state_dict({name: view[m] for name, view in members.parameters.views.items()})
        leaf = x.clone().requires_grad_()
        loss = log_score(Normal()(module(leaf)), y).mean()
        nearby = x + 0.05 * scale * torch.autograd.grad(loss, leaf, retain_graph=True)[0].sign()
        (loss + log_score(Normal()(module(nearby)), y).mean()).backward()
        for name, parameter in module.named_parameters():
            torch.testing.assert_close(gradients.views[name][m], parameter.grad, rtol=1e-4, atol=1e-6)


def test_a_perturbation_of_the_users_own_may_differentiate_the_loss() -> None:
    def two_steps(loss, predict, inputs, scale, generator):  # type: ignore[no-untyped-def]
        for _ in range(2):
            leaf = inputs.detach().requires_grad_()
            with torch.enable_grad():
                (gradient,) = torch.autograd.grad(loss(leaf).sum(), leaf)
            inputs = inputs + 0.005 * scale * gradient.sign()
        return inputs

    settings = {"max_epochs": 2, "random_state": 0, "perturbation": two_steps}
    fast = fit_ensemble(NETWORK, *data(), **settings)
    slow = fit_ensemble(NETWORK, *data(), members=Looped, **settings)
    torch.testing.assert_close(fast.members.parameters.flat, slow.members.parameters.flat, rtol=1e-4, atol=1e-5)
    plain = fit_ensemble(NETWORK, *data(), max_epochs=2, random_state=0)
    assert (fast.members.parameters.flat - plain.members.parameters.flat).abs().max() > 1e-4


def test_early_stopping_keeps_each_members_best_epoch() -> None:
    x, y = data(120)
    ensemble = fit_ensemble(
        partial(mlp, 3, 2, (64,)), x, y, max_epochs=300, learning_rate=0.02, early_stopping=True, patience=5, random_state=0
    )
    losses, scores = ensemble.history
    epochs = (~np.isnan(scores)).sum(axis=1)
    best = np.nanargmin(scores, axis=1)
    assert (epochs < 300).all()
    assert ((epochs - 1 - best) == 5).all()
    assert len(set(epochs.tolist())) > 1
    assert np.isnan(losses[0, epochs[0] :]).all()
    assert np.isfinite(losses[0, : epochs[0]]).all()
    for m in range(5):
        alone = fit_ensemble(
            partial(mlp, 3, 2, (64,)), x, y, n_members=m + 1, max_epochs=int(best.max()) + 30, learning_rate=0.02,
            early_stopping=True, patience=5, random_state=0,
        )  # fmt: skip
        torch.testing.assert_close(weights(alone, m), weights(ensemble, m), rtol=1e-3, atol=1e-4)


def test_patience_grows_with_the_best_epoch() -> None:
    """Members stop after so many times the epochs up to their best, but neither within 30 nor after `patience`."""
    x, y = data(120)
    ensemble = fit_ensemble(
        partial(mlp, 3, 2, (64,)), x, y, max_epochs=400, learning_rate=0.01, early_stopping=True, patience=90,
        patience_factor=0.5, random_state=0,
    )  # fmt: skip
    scores = ensemble.history[1]
    epochs, best = (~np.isnan(scores)).sum(axis=1), np.nanargmin(scores, axis=1) + 1
    assert (epochs - best).tolist() == np.ceil(np.clip(0.5 * best, 30, 90)).tolist()
    assert len(set((epochs - best).tolist())) > 2
    assert Recipe(patience=90).waits(best).tolist() == [90] * 5


def test_held_out_rows_are_not_trained_on() -> None:
    """Neither by the networks nor by the standardisation; and each class gives its share."""
    x, y = data(100)
    recipe = Recipe(early_stopping=True, validation_fraction=0.2, max_epochs=1)
    ensemble = fit_ensemble(
        NETWORK, x, y, n_members=4, early_stopping=True, validation_fraction=0.2, max_epochs=1, random_state=0
    )
    for run, shift in zip(
        plan_runs(np.arange(100), run_seeds(0, 4), recipe), ensemble.standardization.target_shift, strict=True
    ):
        assert float(shift) == pytest.approx(float(y[run.rows].double().mean()), abs=1e-12)
    classes = np.repeat([0, 1, 2], [50, 30, 20])
    for run in plan_runs(np.arange(100), run_seeds(0, 4), recipe, classes):
        assert len(np.intersect1d(run.rows, run.validation)) == 0
        assert len(run.rows) + len(run.validation) == 100
        assert np.abs(np.bincount(classes[run.validation], minlength=3) - [10, 6, 4]).max() <= 1


@pytest.mark.parametrize(("resampling", "seen"), [(Bootstrap(), 0.632), (Subsample(0.5), 0.5), (None, 1.0)])
def test_resampling(resampling: object, seen: float) -> None:
    runs = plan_runs(np.arange(2000), run_seeds(0, 3), Recipe(resampling=resampling))
    for run in runs:
        assert len(np.unique(run.rows)) / 2000 == pytest.approx(seen, abs=0.02)
    if resampling is not None:
        assert not np.array_equal(runs[0].rows, runs[1].rows)
    ensemble = fit_ensemble(NETWORK, *data(), resampling=resampling, max_epochs=2, random_state=0)
    shifts = ensemble.standardization.input_shift
    assert shifts is not None
    assert torch.equal(shifts[0], shifts[1]) == (resampling is None)


class Explosive(nn.Module):
    """A network whose weights leave the finite numbers at a high learning rate."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(3, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x).pow(3).exp()


def test_a_diverging_member_is_restarted_at_a_lower_rate() -> None:
    x, y = data()
    ensemble = fit_ensemble(Explosive, x, y, n_members=3, learning_rate=2.0, max_epochs=4, random_state=0)
    assert ensemble.members.parameters.flat.isfinite().all()
    assert np.isfinite(ensemble.history[0]).all()


def test_a_member_that_keeps_diverging_stops_training_with_its_name_and_a_cure() -> None:
    x, y = data()
    with pytest.raises(TrainingDiverged, match=r"member 0 diverged in epoch 1 .*`learning_rate`.*`clip_norm`"):
        fit_ensemble(Explosive, x, y, n_members=2, learning_rate=1e20, max_epochs=4, random_state=0)
    with pytest.raises(TrainingDiverged, match="member"):
        fit_ensemble(NETWORK, x, y, scoring_rule=lambda d, t: log_score(d, t) * torch.nan, max_epochs=2, random_state=0)


def test_the_error_names_the_member_that_diverged() -> None:
    built = []

    def build() -> nn.Module:
        network = mlp(3, 2, (16,))
        built.append(network)
        if len(built) == 3:
            nn.init.constant_(network[0].weight, 1e38)
        return network

    with pytest.raises(TrainingDiverged, match="member 2 "):
        fit_ensemble(build, *data(), n_members=4, max_epochs=2, random_state=0)


def test_held_out_scores_of_runs_with_different_numbers_of_rows() -> None:
    """The score of each run is the mean over the rows it holds out, however many those are."""
    x, y = data(230)
    held_out = [np.arange(5), np.arange(3), np.arange(0), np.arange(5, 45)]
    seeds = run_seeds(0, 4)
    runs = [Run(np.arange(60, 230), seed, rows) for seed, rows in zip(seeds, held_out, strict=True)]
    algorithm = Algorithm(Criterion(Normal(), log_score), None)
    history = train(Training(NETWORK, InMemory(x, y), runs, algorithm, Recipe(max_epochs=2))).history
    for r, run in enumerate(runs):
        alone = train(Training(NETWORK, InMemory(x, y), [run], algorithm, Recipe(max_epochs=2))).history
        np.testing.assert_allclose(history[:, r], alone[:, 0], rtol=1e-5, atol=1e-5)


def test_clipping_is_per_run() -> None:
    x, y = data()
    free, clipped = (
        fit_ensemble(NETWORK, x, y, n_members=3, max_epochs=1, clip_norm=limit, random_state=0) for limit in (None, 1e-3)
    )
    alone = fit_ensemble(NETWORK, x, y, n_members=1, max_epochs=1, clip_norm=1e-3, random_state=0)
    torch.testing.assert_close(weights(alone, 0), weights(clipped, 0), rtol=1e-4, atol=1e-5)
    assert not torch.allclose(weights(free, 0), weights(clipped, 0), atol=1e-4)


def test_schedules_and_decoupled_decay_train() -> None:
    x, y = data()
    ensemble = fit_ensemble(
        NETWORK,
        x,
        y,
        schedule=Cosine(warmup=0.1),
        optimizer=AdamW(),
        weight_decay=0.1,
        max_epochs=60,
        batch_size=20,
        random_state=0,
    )
    assert float((ensemble(x).mean - y).square().mean().sqrt()) < 0.5
    heavy = fit_ensemble(NETWORK, x, y, weight_decay=10.0, max_epochs=60, random_state=0)
    assert weights(heavy, 0).norm() < 0.2 * weights(ensemble, 0).norm()


def test_sample_weights_are_repetitions() -> None:
    x, y = data(60)
    repeat = torch.arange(60) % 3
    settings = {"max_epochs": 40, "batch_size": 1000, "random_state": 0}
    build = partial(mlp, 3, 2, (16,), dtype=torch.float64)
    weighted = fit_ensemble(build, x, y, sample_weight=repeat, **settings)
    repeated = fit_ensemble(build, x.repeat_interleave(repeat, 0), y.repeat_interleave(repeat), **settings)
    torch.testing.assert_close(weighted(x).mean, repeated(x).mean, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(weighted(x).variance, repeated(x).variance, rtol=1e-6, atol=1e-6)


class Streaming(Dataset):  # type: ignore[type-arg]
    def __init__(self, x: Tensor, y: Tensor) -> None:
        self.x, self.y = x, y

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, i: int) -> tuple[Tensor, Tensor]:
        return self.x[i], self.y[i]


@pytest.mark.parametrize("workers", [0, pytest.param(2, marks=pytest.mark.slow)])
def test_streamed_rows_train_like_rows_in_memory(workers: int) -> None:
    x, y = data()
    settings = {"max_epochs": 3, "random_state": 0, "early_stopping": True, "n_members": 2}
    memory = fit_ensemble(NETWORK, x, y, **settings)
    streamed = fit_ensemble(NETWORK, Streaming(x, y), num_workers=workers, **settings)
    torch.testing.assert_close(streamed.members.parameters.flat, memory.members.parameters.flat, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(streamed(Streaming(x, y)).mean, memory(x).mean, rtol=1e-4, atol=1e-5)


def test_streamed_classes_with_weights() -> None:
    x, y = data()
    items = TensorDataset(x, (y > 1).long(), torch.rand(len(y)))
    ensemble = fit_ensemble(partial(mlp, 3, 2), items, max_epochs=20, random_state=0)
    assert float((ensemble(x).mode == (y > 1)).double().mean()) > 0.9


def test_datasets_that_cannot_be_shuffled_are_refused() -> None:
    class Endless(IterableDataset):  # type: ignore[type-arg]
        def __iter__(self):  # type: ignore[no-untyped-def]
            return iter([])

    with pytest.raises(TypeError, match="map-style"):
        fit_ensemble(NETWORK, Endless())
    with pytest.raises(TypeError, match=r"\(input, target\)"):
        fit_ensemble(NETWORK, TensorDataset(data()[0]))


def test_cross_validation_trains_folds_on_their_own_rows() -> None:
    x, y = data(103)
    settings = {"n_members": 2, "max_epochs": 5, "random_state": 0, "batch_size": 20}
    build = partial(mlp, 3, 2, (16,), dtype=torch.float64)
    result = cross_validate(build, x, y, cv=4, **settings)
    assert result.distribution.batch_shape == (103,)
    for (rows, test), ensemble, prediction in zip(result.folds, result.ensembles, result.distributions, strict=True):
        alone = fit_ensemble(build, x[rows], y[rows], **settings)
        torch.testing.assert_close(alone(x[test]).mean, prediction.mean, rtol=1e-6, atol=1e-6)
        torch.testing.assert_close(ensemble(x[test]).variance, result.distribution[torch.as_tensor(test)].variance)
    with pytest.raises(ValueError, match="exactly one test fold"):
        _ = cross_validate(build, x, y, cv=[(np.arange(50), np.arange(50, 60))], **settings).distribution


def test_cross_validation_of_classes_is_stratified() -> None:
    x, y = data(90)
    labels = (y > y.quantile(0.8)).long()
    result = cross_validate(partial(mlp, 3, 2), x, labels, cv=3, n_members=2, max_epochs=2, random_state=0)
    assert all(labels[torch.as_tensor(test)].sum() == 6 for _, test in result.folds)
    assert result.distribution.probs.shape == (90, 2)


def test_integer_inputs_reach_an_embedding() -> None:
    tokens = torch.randint(0, 7, (60, 4), generator=torch.Generator().manual_seed(0))
    target = tokens.double().mean(1)

    def build() -> nn.Module:
        return nn.Sequential(nn.Embedding(7, 3), nn.Flatten(), nn.Linear(12, 2))

    ensemble = fit_ensemble(build, tokens, target, standardize_inputs=False, max_epochs=150, random_state=0)
    assert float((ensemble(tokens).mean - target).abs().mean()) < 0.3
    with pytest.raises(TypeError, match="floating-point inputs"):
        fit_ensemble(build, tokens, target, standardize_inputs=False, perturbation=FastGradientSign())


def test_images_are_standardised_by_channel() -> None:
    images = 100 + 5 * torch.randn(64, 3, 6, 6, generator=torch.Generator().manual_seed(0))
    target = images[:, 1].mean((1, 2))

    def build() -> nn.Module:
        return nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(64, 2))

    ensemble = fit_ensemble(build, images, target, max_epochs=2, perturbation=FastGradientSign(), random_state=0)
    shift = ensemble.standardization.input_shift
    assert shift is not None
    assert (shift == shift[:, :, :1, :1]).all()
    assert ensemble(images).mean.shape == (64,)


def test_constant_columns_and_huge_offsets_do_no_harm() -> None:
    x, y = data()
    offset = torch.cat([x.double() * 1e-3 + 1e9, torch.full((230, 1), 7.0)], dim=1)
    ensemble = fit_ensemble(partial(mlp, 4, 2), offset, 1e12 + y.double() * 1e-2, max_epochs=100, random_state=0,
                            perturbation=FastGradientSign(0.01))  # fmt: skip
    residual = (ensemble(offset).mean - 1e12) / 1e-2 - y
    assert float(residual.square().mean().sqrt()) < 0.6
