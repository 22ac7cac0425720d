"""Networks for tables as a stack: waves of some columns, a smooth clip, skips and dropout, with derivatives by hand."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from torch import nn

from deep_ensembles import fit_ensemble, mlp, periodic_mlp
from deep_ensembles.members import Looped, Plain, assemble
from deep_ensembles.members.plain import is_plain
from deep_ensembles.networks.periodic_mlp import Periodic, Skip, SmoothClip

X = torch.randn(12, 5, generator=torch.Generator().manual_seed(0)).double()
VARIANTS: dict[str, dict[str, Any]] = {
    "usual": {},
    "some columns": {"columns": (0, 3)},
    "columns in another order": {"columns": (3, 0)},
    "no columns": {"columns": ()},
    "no waves": {"n_frequencies": 0},
    "three layers": {"hidden_sizes": (6, 6, 6)},
    "layers of two sizes": {"hidden_sizes": (6, 4, 4)},
    "linear": {"hidden_sizes": ()},
    "dropout in skips": {"hidden_sizes": (6, 6), "dropout": 0.3},
    "dropout": {"hidden_sizes": (6, 4), "dropout": 0.3},
}
variants = pytest.mark.parametrize("settings", VARIANTS.values(), ids=VARIANTS)


def factory(settings: dict[str, Any]) -> Any:
    return lambda: periodic_mlp(5, 2, **({"hidden_sizes": (6, 6), "n_frequencies": 4} | settings)).double()


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


def test_after_training_a_stack_is_a_loop() -> None:
    settings = {"columns": (0, 3), "dropout": 0.2}
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
    x = torch.tensor([-1e15, -0.01, 0.0, 0.01, 1e15])
    torch.testing.assert_close(clip(x), torch.tensor([-3.0, -0.01, 0.0, 0.01, 3.0]), rtol=1e-4, atol=1e-6)


def test_waves_are_the_formula() -> None:
    layer = Periodic(3, n_frequencies=4, scale=0.5, n_outputs=2, columns=(2,)).double()
    x = X[:, :3]
    waves = torch.cos(x[:, 2:] * layer.frequency[0] * layer.RATE + layer.phase[0] * layer.RATE)
    torch.testing.assert_close(layer(x), torch.cat([x, waves @ layer.weight[0]], 1))


def test_frequencies_have_the_asked_scale() -> None:
    layer = Periodic(200, n_frequencies=50, scale=0.3, n_outputs=1)
    cycles = layer.frequency.detach() * layer.RATE / (2 * torch.pi)
    assert float(cycles.std()) == pytest.approx(0.3, rel=0.05)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"columns": (5,)}, "`columns` must be columns from 0 to 4"),
        ({"n_frequencies": -1}, "`n_frequencies` must be an integer ≥ 0, got -1"),
        ({"frequency_scale": 0}, "`frequency_scale` must be a number > 0, got 0"),
    ],
)
def test_wrong_settings(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        periodic_mlp(5, 2, **settings)
