"""Networks for tables as a stack: waves of some columns, a smooth clip, skips and dropout, with derivatives by hand."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from deep_ensembles import ComplementaryFolds, RobustScaling, fit_ensemble, load, mlp, periodic_mlp
from deep_ensembles.members import Looped, Plain, assemble
from deep_ensembles.members.plain import is_plain
from deep_ensembles.networks.periodic_mlp import Levels, NumberEmbedding, Skip, SmoothClip, Values

X = torch.randn(12, 5, generator=torch.Generator().manual_seed(0)).double()
VARIANTS: dict[str, dict[str, Any]] = {
    "usual": {},
    "some columns": {"columns": (0, 3)},
    "columns in another order": {"columns": (3, 0)},
    "no columns": {"columns": ()},
    "no waves": {"n_frequencies": 0},
    "bins": {"n_bins": 3, "n_frequencies": 0},
    "bins of some columns, and waves": {"n_bins": 3, "columns": (4, 1)},
    "room for bins": {"n_bins": 3, "sets_bins": False},
    "categories": {"levels": {1: 3, 4: 2}, "columns": (0, 2, 3)},
    "repeated numbers": {"repeated": {1: 3, 3: 5}},
    "repeated numbers beside categories": {"repeated": {1: 3}, "levels": {4: 2}, "columns": (0, 1)},
    "three layers": {"hidden_sizes": (6, 6, 6)},
    "layers of two sizes": {"hidden_sizes": (6, 4, 4)},
    "linear": {"hidden_sizes": ()},
    "dropout in skips": {"hidden_sizes": (6, 6), "dropout": 0.3},
}
variants = pytest.mark.parametrize("settings", VARIANTS.values(), ids=VARIANTS)


def factory(settings: dict[str, Any]) -> Any:
    def build() -> nn.Module:
        network = periodic_mlp(5, 2, **({"hidden_sizes": (6, 6), "n_frequencies": 4} | settings)).double()
        nn.init.normal_(network[-1].weight)  # which starts at 0, so that nothing before it would have a gradient
        for layer in network:
            if isinstance(layer, NumberEmbedding) and layer.sets_bins:
                layer.load_state_dict(layer.state_dict() | layer.bins(X))
                nn.init.normal_(layer.weight)  # of which those of bins start at 0
            if isinstance(layer, Values):
                layer.load_state_dict(layer.state_dict() | layer.values(torch.cat([X, X])))
        return network

    return build


@variants
def test_all_of_them_have_a_derivative_by_hand(settings: dict[str, Any]) -> None:
    assert is_plain(factory(settings)())
    assert isinstance(assemble(factory(settings), [1, 2], X), Plain)


@variants
@pytest.mark.parametrize("input_gradient", [False, True])
def test_a_stack_is_a_loop(settings: dict[str, Any], input_gradient: bool) -> None:
    both = [assemble(factory(settings), [1, 2, 3], X, kind) for kind in (Plain, Looped)]
    inputs = torch.stack([X, 2 * X, X - 1])
    gradients = [members.prepare() for members in both]
    close = partial(torch.testing.assert_close, rtol=1e-9, atol=1e-9)
    for accumulate in (False, True):
        raws = [members.forward(inputs, [4, 5, 6], input_gradient=input_gradient).clone() for members in both]
        close(*raws)
        weights = torch.linspace(-1, 1, raws[0].numel(), dtype=torch.float64).reshape(raws[0].shape)
        back = [members.backward(weights.clone(), accumulate) for members in both]
        close(*(each.flat for each in gradients))
        if input_gradient:
            close(*back)
        else:
            assert back[0] is None
    close(*(members(inputs) for members in both))
    close(*(members.sample(inputs, [7, 8, 9]) for members in both))


@pytest.mark.parametrize("name", ["some columns", "bins", "categories", "repeated numbers"])
def test_after_training_a_stack_is_a_loop(name: str) -> None:
    settings = {"dropout": 0.2, **VARIANTS[name]}
    y = X[:, 0] - X[:, 4]
    both = [
        fit_ensemble(factory(settings), X, y, n_members=2, max_epochs=5, batch_size=5, random_state=0, members=kind)
        for kind in (Plain, Looped)
    ]
    torch.testing.assert_close(*(ensemble(X).mean for ensemble in both), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    "network",
    [
        nn.Sequential(Skip(nn.Linear(5, 5), nn.Softsign()), nn.Linear(5, 2)),
        nn.Sequential(nn.Linear(5, 2), SmoothClip(3.0)),
        nn.Sequential(nn.Linear(5, 5), nn.Sequential(nn.Linear(5, 5)), nn.Softplus(), nn.Linear(5, 2)),
    ],
    ids=["unknown layer in a skip", "no linear layer at the end", "unknown layer"],
)
def test_what_is_no_such_sequence_is_not_plain(network: nn.Module) -> None:
    assert not is_plain(network)


def test_a_layer_that_stands_in_two_places_is_not_plain() -> None:
    layer = nn.Linear(5, 5)
    assert not is_plain(nn.Sequential(layer, Skip(layer), nn.Linear(5, 2)))
    assert is_plain(mlp(5, 2))


def test_the_clip_keeps_small_numbers_and_bounds_large_ones() -> None:
    clip = SmoothClip(3.0)
    x = torch.tensor([-torch.inf, -1e15, -0.01, 0.0, 0.01, 1e15, 1e30])
    torch.testing.assert_close(clip(x), torch.tensor([-3.0, -3.0, -0.01, 0.0, 0.01, 3.0, 3.0]), rtol=1e-4, atol=1e-6)
    members = fit_ensemble(partial(periodic_mlp, 1, 2), X[:, :1], X[:, 0], max_epochs=20, random_state=0)
    large, larger = members(torch.tensor([[1e15], [1e300]], dtype=torch.float64)).mean
    assert large == pytest.approx(larger) != pytest.approx(members(X[:, :1].mean(0, keepdim=True)).mean[0])


def test_waves_are_the_formula() -> None:
    layer = NumberEmbedding(3, 4, 0.5, n_bins=0, n_outputs=2, columns=(2,)).double()
    x = X[:, :3]
    waves = torch.cos(x[:, 2:] * layer.frequency[0] * layer.RATE + layer.phase[0] * layer.RATE)
    torch.testing.assert_close(layer(x), torch.cat([x, waves @ layer.weight[0]], 1))


def test_frequencies_have_the_asked_scale() -> None:
    layer = NumberEmbedding(200, 50, 0.3, n_bins=0, n_outputs=1)
    cycles = layer.frequency.detach() * layer.RATE / (2 * torch.pi)
    assert float(cycles.std()) == pytest.approx(0.3, rel=0.05)


def test_bins_are_the_formula() -> None:
    layer = NumberEmbedding(2, 0, 1.0, n_bins=4, n_outputs=2, columns=(1,))
    x = torch.stack([torch.zeros(9), torch.tensor([0.0, 1, 2, 4, 4, 4, 4, 4, 8])], 1)  # quartiles 0, 2, 4, 4 and 8
    layer.load_state_dict(layer.state_dict() | layer.bins(x))
    nn.init.normal_(layer.weight)
    encoded = torch.tensor([[0.0, 0, 0, 0], [1, 0.5, 0, 0], [1, 1, 0.25, 0], [1, 1, 1, 0]])
    new = torch.stack([torch.zeros(4), torch.tensor([-7.0, 3, 5, 99])], 1)
    torch.testing.assert_close(layer(new), torch.cat([new, encoded @ layer.weight[0]], 1))


@pytest.mark.parametrize("n_bins", [1, 4])
def test_a_stack_is_a_loop_where_bins_are_set_late_and_some_members_have_none(n_bins: int) -> None:
    both = [assemble(factory({"n_bins": n_bins}), [1, 2], X, kind) for kind in (Plain, Looped)]
    new = NumberEmbedding(5, 4, 0.3, n_bins, 3).bins(2 * X + 1)
    for members in both:
        for name in ("start", "slope"):
            members.buffers[f"1.{name}"][0] = new[name]
            members.buffers[f"1.{name}"][1] = 0
    inputs, close = torch.stack([X, 3 * X]), partial(torch.testing.assert_close, rtol=1e-9, atol=1e-9)
    gradients = [members.prepare() for members in both]
    close(*(members.forward(inputs, [1, 2], input_gradient=True) for members in both))
    close(*(members.backward(torch.ones(2, 12, 2, dtype=torch.float64)) for members in both))
    close(*(stack.flat for stack in gradients))


def test_an_activation_at_the_front_leaves_its_input_as_it_is() -> None:
    def build() -> nn.Module:
        return nn.Sequential(nn.ReLU(), Skip(nn.ReLU(), nn.Linear(5, 5)), nn.Linear(5, 2)).double()

    both = [assemble(build, [1, 2], X, kind) for kind in (Plain, Looped)]
    inputs = torch.stack([X, X])
    close = partial(torch.testing.assert_close, rtol=1e-9, atol=1e-9)
    gradients = [members.prepare() for members in both]
    close(*(members.forward(inputs, [1, 2], input_gradient=True) for members in both))
    close(*(members.backward(torch.ones(2, 12, 2, dtype=torch.float64)) for members in both))
    close(*(stack.flat for stack in gradients))
    close(*(members(inputs) for members in both))
    assert torch.equal(inputs, torch.stack([X, X]))


def test_bins_of_a_member_lie_between_quantiles_of_its_own_rows(tmp_path: Path) -> None:
    x = torch.arange(40.0)[:, None] ** 2
    build = partial(periodic_mlp, 1, 2, (4,), n_frequencies=0, n_bins=4)
    settings = {"standardize_inputs": RobustScaling(), "folds": ComplementaryFolds(2), "early_stopping": True}
    ensemble = fit_ensemble(build, x, x[:, 0], n_members=2, max_epochs=2, random_state=0, **settings)
    for member in range(2):
        seen = x[torch.from_numpy(ensemble.out_of_fold_members[0] != member)]
        units = ensemble.standardization.select([member])
        clipped = SmoothClip(3.0)(units.inputs(seen[None], torch.float64)[0])
        edges = torch.from_numpy(np.quantile(clipped[:, 0], (0, 0.25, 0.5, 0.75)))
        torch.testing.assert_close(ensemble.members.buffers["1.start"][member, 0].double(), edges, rtol=1e-5, atol=1e-5)
    ensemble.save(tmp_path / "model")
    assert torch.equal(load(tmp_path / "model")(x).mean, ensemble(x).mean)


def test_categories_are_looked_up_and_sometimes_taken_for_unknown() -> None:
    layer = Levels(2, {1: 3}).eval()
    x = torch.tensor([[0.5, 2.0], [0.6, 0.0], [0.7, 9.0]])
    expected = torch.cat([torch.tensor([[0.5, 0], [0.6, 0], [0.7, 0]]), layer.weight[0, [2, 0, 2]]], 1)
    torch.testing.assert_close(layer(x), expected)
    many = layer.train()(x[:1].expand(4000, 2))[:, 2:]
    unknown = (many == layer.weight[0, 0]).all(1)
    assert 0.08 < float(unknown.double().mean()) < 0.12
    assert bool((many[~unknown] == layer.weight[0, 2]).all())


def test_categories_are_found_again_in_the_units_of_each_member() -> None:
    generator = np.random.default_rng(0)
    code = generator.integers(0, 40, 400)
    effects = generator.normal(size=40)
    x = np.column_stack([generator.normal(size=400), code])
    build = partial(periodic_mlp, 2, 2, (16,), columns=(0,), levels={1: 40})
    settings = {"standardize_inputs": RobustScaling(), "folds": ComplementaryFolds(2), "early_stopping": True}
    ensemble = fit_ensemble(
        build, x, effects[code], n_members=2, max_epochs=60, learning_rate=0.02, random_state=0, **settings
    )
    assert not torch.equal(*ensemble.members.buffers["0.scale"])
    apart = np.column_stack([np.zeros(40), np.arange(40)])
    assert np.corrcoef(ensemble(apart).mean, effects)[0, 1] > 0.9


def test_numbers_that_repeat_have_vectors_and_others_share_one() -> None:
    layer = Values(2, {1: 3})
    x = torch.tensor([[0.0, 7.0], [0.0, 7.0], [0.0, -2.5], [0.0, -2.5], [0.0, -2.5], [0.0, 4.0]])
    layer.load_state_dict(layer.state_dict() | layer.values(x))
    places = layer.places(torch.tensor([[-2.5, -2.500001, 7.0, 4.0, -9.0, 9.0, 6.99]]), layer.low, layer.high)
    assert places.tolist() == [[1, 1, 2, 0, 0, 0, 0]]
    y = layer.eval()(x)
    assert torch.equal(y[:, :2], x)
    assert torch.equal(y[:, 2:], layer.weight[0][[2, 2, 1, 1, 1, 0]])


def test_numbers_that_repeat_are_found_again_in_the_units_of_each_member() -> None:
    generator = np.random.default_rng(0)
    numbers = generator.normal(1e4, 300, 60).round(2)
    effects, place = generator.normal(size=60), generator.integers(0, 60, 900)
    x, y = numbers[place, None], effects[place]
    build = partial(periodic_mlp, 1, 2, (32,), n_frequencies=0, repeated={0: 100})
    settings = {"standardize_inputs": RobustScaling(), "folds": ComplementaryFolds(2), "early_stopping": True}
    ensemble = fit_ensemble(build, x, y, n_members=2, max_epochs=60, learning_rate=0.02, random_state=0, **settings)
    assert np.corrcoef(ensemble(numbers[:, None]).mean, effects)[0, 1] > 0.9


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"repeated": {0: 0}}, "`repeated` must be columns from 0 to 4, and a number ≥ 1 for each"),
        ({"levels": {5: 3}}, "`levels` must be columns from 0 to 4, and a number ≥ 1 for each"),
        ({"n_bins": 2.5}, "`n_bins` must be an integer ≥ 0, got 2.5"),
        ({"columns": (5,)}, "`columns` must be columns from 0 to 4"),
        ({"n_frequencies": -1}, "`n_frequencies` must be an integer ≥ 0, got -1"),
        ({"frequency_scale": 0}, "`frequency_scale` must be a number > 0, got 0"),
    ],
)
def test_wrong_settings(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        periodic_mlp(5, 2, **settings)
