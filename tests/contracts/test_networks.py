"""Every network: shapes fit, every member starts elsewhere, the same seed gives the same network."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable
from typing import Any

import pytest
import torch
from _found import found, is_exported
from torch import Tensor, nn

from deep_ensembles import networks
from deep_ensembles._random import seeded
from deep_ensembles.networks import mlp
from deep_ensembles.networks.mlp import ACTIVATIONS

every_network = pytest.mark.parametrize("network", found(networks))


def inputs_for(network: Callable[..., nn.Module], n_rows: int = 4) -> Tensor:
    """Rows of 3 features, or small images of 3 channels for a network whose first argument counts channels."""
    first = next(iter(inspect.signature(network).parameters))
    features = (3, 32, 32) if "channel" in first else (3,)
    return torch.randn(n_rows, *features, generator=torch.Generator().manual_seed(0))


def built(network: Callable[..., nn.Module], seed: int, **options: Any) -> nn.Module:
    with seeded(seed):
        return network(3, 2, **options)


@every_network
def test_is_exported(network):
    assert is_exported(networks, network)


@every_network
@pytest.mark.parametrize("out_features", [1, 7])
def test_output_has_the_asked_shape(network, out_features):
    outputs = network(3, out_features).eval()(inputs_for(network))
    assert outputs.shape == (4, out_features)
    assert outputs.isfinite().all()


@every_network
def test_rows_do_not_see_each_other(network):
    module, inputs = built(network, 0).eval(), inputs_for(network)
    torch.testing.assert_close(module(inputs)[1:2], module(inputs[1:2]))


@every_network
def test_every_call_starts_elsewhere(network):
    with seeded(0):
        one, two = network(3, 2), network(3, 2)
    for a, b in zip(one.parameters(), two.parameters(), strict=True):
        assert bool((a == a.flatten()[0]).all()) or not torch.equal(a, b)  # constants, as of a norm, may agree
    assert not torch.equal(one.eval()(inputs_for(network)), two.eval()(inputs_for(network)))


@every_network
def test_the_same_seed_gives_the_same_network(network):
    one, two = built(network, 5), built(network, 5)
    for a, b in zip(one.state_dict().values(), two.state_dict().values(), strict=True):
        assert torch.equal(a, b)


@every_network
def test_every_parameter_is_trained(network):
    module = built(network, 0)
    module(inputs_for(network)).square().sum().backward()
    assert all(each.grad is not None and bool(each.grad.isfinite().all()) for each in module.parameters())


@every_network
def test_can_be_copied(network):
    module = built(network, 0).eval()
    assert torch.equal(copy.deepcopy(module)(inputs_for(network)), module(inputs_for(network)))


@every_network
@pytest.mark.parametrize("size", [0, -1, 2.5, "3", None, True])
@pytest.mark.parametrize("position", [0, 1])
def test_refuses_bad_sizes(network, size, position):
    name = list(inspect.signature(network).parameters)[position]
    with pytest.raises(ValueError, match=rf"^`{name}` must be an integer ≥ 1, got "):
        network(*[size if i == position else 3 for i in range(2)])


@pytest.mark.parametrize("hidden_sizes", [(), (5,), [5, 4]])
def test_mlp_has_the_asked_layers(hidden_sizes):
    layers = [each for each in mlp(3, 2, hidden_sizes) if isinstance(each, nn.Linear)]
    assert [each.in_features for each in layers] == [3, *hidden_sizes]
    assert [each.out_features for each in layers] == [*hidden_sizes, 2]


def test_mlp_options():
    layers = list(mlp(3, 2, (5,), activation="tanh", batch_norm=True, dropout=0.5, dtype=torch.float64))
    assert [type(each) for each in layers] == [nn.Linear, nn.BatchNorm1d, nn.Tanh, nn.Dropout, nn.Linear]
    assert {each.dtype for layer in layers for each in layer.parameters()} == {torch.float64}
    assert not any(isinstance(each, nn.Dropout) for each in mlp(3, 2, dropout=0))


@pytest.mark.parametrize("activation", [*ACTIVATIONS, nn.Mish])
def test_mlp_takes_an_activation_by_name_or_as_a_function(activation):
    module = mlp(3, 2, activation=activation)
    assert isinstance(module[1], ACTIVATIONS.get(activation, nn.Mish))
    assert module(torch.zeros(4, 3)).shape == (4, 2)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"hidden_sizes": 50}, r"`hidden_sizes` must be a sequence of integers ≥ 1, got 50; for one layer write \(50,\)"),
        ({"hidden_sizes": "50"}, r"`hidden_sizes` must be a sequence of integers ≥ 1, got '50'"),
        ({"hidden_sizes": (5, 0)}, r"`hidden_sizes` must be an integer ≥ 1, got 0"),
        ({"hidden_sizes": (2.5,)}, r"`hidden_sizes` must be an integer ≥ 1, got 2.5"),
        ({"activation": "rectified"}, r"`activation` must be one of .*relu.*, got 'rectified'"),
        ({"dropout": -0.1}, r"`dropout` must be a number ≥ 0 and ≤ 1, got -0.1"),
        ({"dropout": 1.5}, r"`dropout` must be a number ≥ 0 and ≤ 1, got 1.5"),
    ],
)
def test_mlp_refuses_bad_options(options, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        mlp(3, 2, **options)
