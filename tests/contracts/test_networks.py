"""Every network: shapes fit, every member starts elsewhere, the same seed gives the same network, a stack is a loop."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from _found import found, is_exported
from torch import Tensor, nn

from deep_ensembles import fit_ensemble, load, networks
from deep_ensembles._random import seeded
from deep_ensembles.members import Looped, Members, Plain, Stacked, assemble
from deep_ensembles.networks import convnet, inception, mlp, vgg
from deep_ensembles.networks.mlp import ACTIVATIONS

Factory = Callable[..., nn.Module]


def for_images(network: Factory) -> bool:
    return "image_size" in inspect.signature(network).parameters


every_network = pytest.mark.parametrize("network", found(networks))
every_image_network = pytest.mark.parametrize("network", [each for each in found(networks) if for_images(*each.values)])


def small(network: Factory, n_outputs: int = 2, **options: Any) -> Factory:
    """Rows of 3 features, or 16×16 images of 3 channels for a network that asks for the size of images."""
    if not for_images(network):
        return partial(network, 3, n_outputs, **options)
    whole = isinstance(inspect.signature(network).parameters["width"].default, int)
    return partial(network, n_outputs, in_channels=3, image_size=16, width=4 if whole else 0.05, **options)


def make(network: Factory, n_outputs: int = 2, **options: Any) -> nn.Module:
    return small(network, n_outputs, **options)()


def inputs_for(network: Factory, n_rows: int = 4) -> Tensor:
    features = (3, 16, 16) if for_images(network) else (3,)
    return torch.randn(n_rows, *features, generator=torch.Generator().manual_seed(0))


def built(network: Factory, seed: int, **options: Any) -> nn.Module:
    with seeded(seed):
        return make(network, **options)


@every_network
def test_is_exported(network):
    assert is_exported(networks, network)


@every_network
@pytest.mark.parametrize("n_outputs", [1, 7])
def test_output_has_the_asked_shape(network, n_outputs):
    outputs = make(network, n_outputs).eval()(inputs_for(network))
    assert outputs.shape == (4, n_outputs)
    assert outputs.isfinite().all()


@every_network
def test_rows_do_not_see_each_other(network):
    module, inputs = built(network, 0).eval(), inputs_for(network)
    torch.testing.assert_close(module(inputs)[1:2], module(inputs[1:2]))


@every_network
def test_every_call_starts_elsewhere(network):
    with seeded(0):
        one, two = make(network), make(network)
    for a, b in zip(one.parameters(), two.parameters(), strict=True):
        assert bool((a == a.flatten()[0]).all()) or not torch.equal(a, b)  # constants, as of a norm, may agree
    one(inputs_for(network)), two(inputs_for(network))  # a norm that has seen nothing may hide small signals
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


def together_and_looped(network) -> tuple[type[Members], type[Members]]:
    return (Plain if network.__name__ == "mlp" else Stacked), Looped


def close(pair: list[Tensor]) -> None:
    torch.testing.assert_close(*pair, rtol=1e-6, atol=1e-6)


@every_network
def test_stacked_equals_looped(network):
    build, inputs = small(network, dropout=0.2), inputs_for(network, 8)
    both = [assemble(lambda: build().double(), [1, 2], inputs, kind) for kind in together_and_looped(network)]
    inputs = torch.stack([inputs, 2 * inputs]).double()
    gradients = [members.prepare() for members in both]
    raws = [members.forward(inputs, [5, 6], input_gradient=True).clone() for members in both]
    close(raws)
    close([members.backward(torch.ones_like(raws[0])) for members in both])
    close([each.flat for each in gradients])
    close([members(inputs) for members in both])


@every_network
def test_after_training_stacked_equals_looped(network):
    x, build = inputs_for(network, 16), small(network, dropout=0.2)
    settings = {"max_epochs": 2, "batch_size": 8, "random_state": 3, "n_members": 2}
    # In float32, Adam would blow up rounding noise where a gradient is exactly zero.
    fits = [
        fit_ensemble(lambda: build().double(), x, x.flatten(1)[:, 0], members=kind, **settings)
        for kind in together_and_looped(network)
    ]
    assert [each.members.kind == "looped" for each in fits] == [False, True]
    close([each(x).mean for each in fits])
    close([each(x).variance for each in fits])


@every_network
def test_a_model_file_knows_it_by_name(network, tmp_path):
    x = inputs_for(network, 16)
    ensemble = fit_ensemble(small(network), x, torch.arange(16) % 2, n_members=2, max_epochs=1, random_state=0)
    ensemble.save(tmp_path / "model")
    assert torch.equal(load(tmp_path / "model")(x).probs, ensemble(x).probs)


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


@every_image_network
@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_image_networks_drop_only_when_asked(network, dropout):
    found = [each for each in make(network, dropout=dropout).modules() if isinstance(each, nn.Dropout)]
    assert bool(found) == (dropout > 0)
    assert {each.p for each in found} <= {dropout}


@every_image_network
@pytest.mark.parametrize(("in_channels", "image_size"), [(1, 28), (3, 33)])
def test_image_networks_take_other_images(network, in_channels, image_size):
    module = small(network)(in_channels=in_channels, image_size=image_size)
    assert module(torch.zeros(2, in_channels, image_size, image_size)).shape == (2, 2)


@every_image_network
@pytest.mark.parametrize("name", ["image_size", "width", "dropout"])
@pytest.mark.parametrize("value", [-1, "3", None, float("nan")])
def test_image_networks_refuse_bad_options(network, name, value):
    with pytest.raises(ValueError, match=f"^`{name}` must be an? (integer|number) [≥>] [0-9]+.*, got "):
        small(network)(**{name: value})


def test_sizes_of_the_published_networks():
    def parameters(module: nn.Module) -> int:
        return sum(each.numel() for each in module.parameters())

    with torch.device("meta"):
        assert parameters(inception(1000)) == 23_834_568, "Inception-v3 without its auxiliary classifier"
        assert parameters(nn.Sequential(*[each for each in vgg(10) if not isinstance(each, nn.Linear)])) == 14_718_912
        assert parameters(convnet(10)) == 454_922
        pixels = inception(10)[:-2](torch.zeros(1, 3, 299, 299))
    assert pixels.shape == (1, 2048, 8, 8)


@pytest.mark.parametrize(("image_size", "grid"), [(299, 35), (128, 28), (64, 27), (32, 26), (13, 7)])
def test_inception_shrinks_small_images_less(image_size, grid):
    with torch.device("meta"):
        layers = inception(10, image_size=image_size, width=0.05)
        stem = next(number for number, each in enumerate(layers) if isinstance(each, nn.ModuleList))
        assert layers[:stem](torch.zeros(1, 3, image_size, image_size)).shape[2:] == (grid, grid)
        assert layers(torch.zeros(2, 3, image_size, image_size)).shape == (2, 10)
