"""Stacked ≡ looped: forward, gradient, buffers, noise, and after steps, on modules of every kind."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from deep_ensembles import fit_ensemble, mlp
from deep_ensembles.members import Looped, Members, Plain, Stacked, assemble
from deep_ensembles.networks import convnet, vgg


class RawParameters(nn.Module):
    """No layers, only parameters of its own, one of them frozen."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Parameter(torch.randn(8, 6) / 3)
        self.second = nn.Parameter(torch.randn(6, 2) / 3)
        self.frozen = nn.Parameter(torch.randn(6), requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(x @ self.first + self.frozen) @ self.second


class Convolution(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Dropout2d(0.3), nn.Flatten()
        )
        self.out = nn.Linear(8, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.body(x.reshape(-1, 1, 2, 4)))


class Attention(nn.Module):
    def __init__(self, dropout: float = 0.2) -> None:
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(4, 2, 8, dropout=dropout, batch_first=True)
        self.out = nn.Linear(8, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.layer(x.reshape(-1, 2, 4)).flatten(1))


class Tied(nn.Module):
    """One matrix used twice, a residual connection, a learned scale of shape []."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(8, 8, bias=False)
        self.again = self.inner
        self.scale = nn.Parameter(torch.rand(()))
        self.out = nn.Linear(8, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(x + self.scale * self.again(F.gelu(self.inner(x))))


class TiedLayers(nn.Module):
    """Two layers that share a weight but not a bias."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two, self.out = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 2)
        self.two.weight = self.one.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.out(torch.tanh(self.two(torch.tanh(self.one(x)))))


class GaussianNoise(nn.Module):
    """Draws its own random numbers in training."""

    def __init__(self) -> None:
        super().__init__()
        self.out = nn.Linear(8, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(x + 0.1 * torch.randn_like(x) + 0.1 * torch.rand(8) if self.training else x)


class RunningMean(nn.Module):
    """Replaces its buffer instead of writing into it, which a vectorised call would lose."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("center", torch.zeros(8))
        self.out = nn.Linear(8, 2)

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.center = 0.9 * self.center + 0.1 * x.mean(0).detach()
        return self.out(x - self.center)


class DataDependent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.out = nn.Linear(8, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(x) if x.sum().item() > 0 else self.out(-x)


class HiddenRandomness(nn.Module):
    """Each network has its own fixed mask that is neither parameter nor buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.mask = (torch.rand(8) > 0.5).float()
        self.out = nn.Linear(8, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(x * self.mask)


def recurrent() -> nn.Module:
    class Recurrent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.out = nn.GRU(4, 6, batch_first=True), nn.Linear(6, 2)

        def forward(self, x: Tensor) -> Tensor:
            return self.out(self.layer(x.reshape(-1, 2, 4))[1][0])

    return Recurrent()


STACKING: dict[str, Callable[[], nn.Module]] = {
    "mlp": lambda: mlp(8, 2, (16, 16)),
    "mlp tanh": lambda: mlp(8, 2, (16,), activation="tanh"),
    "mlp silu dropout": lambda: mlp(8, 2, (16, 16), activation="silu", dropout=0.3),
    "mlp gelu": lambda: mlp(8, 2, (16,), activation="gelu"),
    "mlp sigmoid": lambda: mlp(8, 2, (16,), activation="sigmoid"),
    "mlp elu": lambda: mlp(8, 2, (16,), activation="elu"),
    "mlp linear": lambda: mlp(8, 2, ()),
    "mlp no bias": lambda: nn.Sequential(nn.Linear(8, 5, bias=False), nn.ReLU(), nn.Linear(5, 2)),
    "mlp ends in relu": lambda: nn.Sequential(nn.Linear(8, 5), nn.ReLU(), nn.Linear(5, 2), nn.ReLU()),
    "mlp float64": lambda: mlp(8, 2, (16,), dtype=torch.float64),
    "batch norm": lambda: mlp(8, 2, (16, 16), batch_norm=True, dropout=0.2),
    "batch norm by vmap": lambda: nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ELU(), nn.Linear(16, 2)),
    "layer norm": lambda: nn.Sequential(nn.Linear(8, 16), nn.LayerNorm(16), nn.LeakyReLU(), nn.Linear(16, 2)),
    "alpha dropout": lambda: nn.Sequential(nn.Linear(8, 16), nn.SELU(), nn.AlphaDropout(0.2), nn.Linear(16, 2)),
    "raw parameters": RawParameters,
    "convolution": Convolution,
    "attention": Attention,
    "attention without dropout": lambda: Attention(0.0),
    "tied": Tied,
    "tied layers": TiedLayers,
    "tied in a sequence": lambda: (lambda layer: nn.Sequential(layer, nn.ReLU(), layer, nn.Linear(8, 2)))(nn.Linear(8, 8)),
    "own noise": GaussianNoise,
    "lazy": lambda: nn.Sequential(nn.LazyLinear(16), nn.ReLU(), nn.LazyLinear(2)),
}
LOOPING: dict[str, Callable[[], nn.Module]] = {
    "batch norm without momentum": lambda: nn.Sequential(
        nn.Linear(8, 16), nn.BatchNorm1d(16, momentum=None), nn.ReLU(), nn.Linear(16, 2)
    ),
    "weight norm": lambda: nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(8, 16)), nn.Linear(16, 2)),
    "recurrent": recurrent,
    "replaced buffer": RunningMean,
    "data-dependent": DataDependent,
    "hidden randomness": HiddenRandomness,
}
SEEDS = [11, 12, 13]


def example(module: nn.Module) -> Tensor:
    return torch.randn(4, 8, generator=torch.Generator().manual_seed(0), dtype=next(module.parameters()).dtype)


def both(build: Callable[[], nn.Module]) -> tuple[Members, Members, Tensor]:
    kind = None if type(build()) is nn.Sequential else Stacked
    rows = torch.randn(10, 8, generator=torch.Generator().manual_seed(1))
    fast = assemble(build, SEEDS, rows, kind)
    slow = assemble(build, SEEDS, rows, Looped)
    return fast, slow, torch.stack([rows, 2 * rows, -rows]).to(fast.parameters.flat.dtype)


def close(a: Tensor, b: Tensor) -> None:
    torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", STACKING)
def test_stacked_equals_looped(name: str) -> None:
    fast, slow, inputs = both(STACKING[name])
    assert not isinstance(fast, Looped)
    close(fast(inputs), slow(inputs))
    for accumulate in (False, True):
        gradients = [members.prepare() if not accumulate else members.gradients for members in (fast, slow)]
        raws = [members.forward(inputs, [5, 6, 7], input_gradient=True).clone() for members in (fast, slow)]
        close(*raws)
        up = torch.linspace(-1, 1, raws[0].numel()).reshape(raws[0].shape).to(raws[0])
        of_inputs = [members.backward(up.clone(), accumulate) for members in (fast, slow)]
        close(*of_inputs)
        for parameter in fast.parameters.views:
            close(gradients[0].views[parameter], gradients[1].views[parameter])
    for buffer in fast.buffers:
        close(fast.buffers[buffer], slow.buffers[buffer])
    close(fast(inputs), slow(inputs))


@pytest.mark.parametrize("name", STACKING)
def test_after_training_stacked_equals_looped(name: str) -> None:
    x = torch.randn(48, 8, generator=torch.Generator().manual_seed(2))
    settings = {"max_epochs": 3, "batch_size": 16, "learning_rate": 0.003, "random_state": 3, "n_members": 3}
    # In float32, Adam would blow up rounding noise where a gradient is exactly zero (a bias before batch norm).
    fast = fit_ensemble(lambda: STACKING[name]().double(), x, x[:, 0] + x[:, 1] ** 2, **settings)
    slow = fit_ensemble(lambda: STACKING[name]().double(), x, x[:, 0] + x[:, 1] ** 2, members=Looped, **settings)
    assert fast.members.kind != "looped"
    torch.testing.assert_close(fast(x).mean, slow(x).mean, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(fast(x).variance, slow(x).variance, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", LOOPING)
def test_what_cannot_be_stacked_is_looped_with_a_notice(name: str) -> None:
    x = torch.randn(40, 8, generator=torch.Generator().manual_seed(2))
    with pytest.warns(UserWarning, match="one after another") as notices:
        ensemble = fit_ensemble(LOOPING[name], x, x[:, 0], n_members=2, max_epochs=2, random_state=0)
    assert len(notices) == 1
    assert "\n" not in str(notices[0].message)
    assert ensemble.members.kind == "looped"
    assert ensemble(x).mean.isfinite().all()


@pytest.mark.parametrize("name", [*STACKING, "hidden randomness"])
def test_members_differ_at_the_start(name: str) -> None:
    build = (STACKING | LOOPING)[name]
    members = Looped.of([build_under(build, seed) for seed in SEEDS])
    inputs = example(members.modules[0]).expand(3, -1, -1)
    raw = members(inputs)
    assert (raw[0] - raw[1]).abs().max() > 1e-3
    assert (raw[1] - raw[2]).abs().max() > 1e-3


def build_under(build: Callable[[], nn.Module], seed: int) -> nn.Module:
    return assemble(build, [seed], torch.randn(4, 8), Looped).modules[0]


@pytest.mark.parametrize("name", ["mlp silu dropout", "batch norm", "convolution", "attention", "alpha dropout"])
def test_sampling_with_dropout_left_on(name: str) -> None:
    fast, slow, inputs = both(STACKING[name])
    buffers = {key: value.clone() for key, value in fast.buffers.items()}
    draw, again, other = (fast.sample(inputs, seeds) for seeds in ([1, 2, 3], [1, 2, 3], [4, 5, 6]))
    close(draw, slow.sample(inputs, [1, 2, 3]))
    assert torch.equal(draw, again)
    assert (draw - other).abs().max() > 1e-3
    assert all(torch.equal(fast.buffers[key], value) for key, value in buffers.items())
    close(fast(inputs), slow(inputs))


def test_plain_networks_take_the_fast_path() -> None:
    rows = torch.randn(4, 8)
    assert isinstance(assemble(lambda: mlp(8, 2), SEEDS, rows), Plain)
    assert isinstance(assemble(lambda: mlp(8, 2, batch_norm=True, dropout=0.1), SEEDS, rows), Plain)
    assert isinstance(assemble(lambda: mlp(8, 2, activation="elu"), SEEDS, rows), Stacked)
    images = torch.randn(4, 1, 12, 12)
    assert isinstance(assemble(lambda: convnet(2, image_size=12, width=4), SEEDS, images), Stacked)
    assert isinstance(assemble(lambda: convnet(2, image_size=12, width=32), SEEDS, images), Looped)  # faster on a CPU


class Viewing(nn.Module):
    """A convolution whose output is flattened by `view`, which needs the channels first."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.out = nn.Conv2d(3, 64, 5, padding=2), nn.Linear(64 * 36, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.body(x).view(len(x), -1))


class ByMemory(nn.Module):
    """A convolution whose output is taken in the order of memory, so that the order of channels changes what it says."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.out = nn.Conv2d(3, 64, 5, padding=2), nn.Linear(64 * 36, 2)

    def forward(self, x: Tensor) -> Tensor:
        features = self.body(x)
        return self.out(features.as_strided((len(x), 64 * 36), (64 * 36, 1)))


def convolutions(in_channels: int) -> Callable[[], nn.Module]:
    return lambda: convnet(2, in_channels, image_size=6, width=32, dropout=0.2)


@pytest.mark.parametrize("in_channels", [1, 3])
def test_images_with_channels_last_train_the_same_networks(in_channels: int) -> None:
    images = torch.randn(3, 5, in_channels, 6, 6)
    members = assemble(convolutions(in_channels), SEEDS, images[0])
    assert members.traits.channels_last
    outcomes = []
    for members.traits.channels_last in (True, False):
        gradients = members.prepare()
        raw = members.forward(images, SEEDS, input_gradient=True)
        outcomes.append([raw, members.backward(torch.ones_like(raw)), gradients.flat])
    for last, first in zip(*outcomes, strict=True):
        close(last, first)


class Pair(Viewing):
    """No tensor comes out."""

    def forward(self, x: Tensor) -> Tensor:
        return self.body(x), self.body(x)  # type: ignore[return-value]


def test_a_network_that_fails_is_told_of_where_it_is_first_used() -> None:
    with pytest.raises(TypeError, match="must return a tensor"):
        fit_ensemble(Pair, torch.randn(8, 3, 6, 6).numpy(), [0, 1] * 4, n_members=2, max_epochs=1, random_state=0)


def test_one_image_is_enough_to_build_networks_with_batch_norm() -> None:
    assert not assemble(lambda: vgg(2, image_size=2, width=0.1), SEEDS, torch.randn(1, 3, 2, 2)).traits.channels_last


@pytest.mark.parametrize("build", [Viewing, ByMemory])
def test_networks_that_need_channels_first_get_them(build: Callable[[], nn.Module]) -> None:
    images = torch.randn(8, 3, 6, 6)
    members = assemble(build, SEEDS, images)
    assert isinstance(members, Looped)
    assert not members.traits.channels_last
    fit_ensemble(build, images.numpy(), [0, 1] * 4, n_members=2, max_epochs=1, random_state=0)


def test_hooks_are_respected() -> None:
    def hooked() -> nn.Module:
        network = mlp(8, 2)
        network[0].register_forward_hook(lambda module, args, out: out * 2)
        return network

    fast = assemble(hooked, SEEDS, torch.randn(4, 8))
    slow = assemble(hooked, SEEDS, torch.randn(4, 8), Looped)
    inputs = torch.randn(3, 5, 8)
    close(fast(inputs), slow(inputs))


@pytest.mark.parametrize("kind", [Plain, Stacked, Looped])
def test_window_select_pickle(kind: type[Members]) -> None:
    members = assemble(lambda: mlp(8, 2), SEEDS, torch.randn(4, 8), kind)
    inputs = torch.randn(3, 5, 8)
    whole = members(inputs)
    close(members.select([2, 0])(inputs[[2, 0]]), whole[[2, 0]])
    close(members.window(1, 3)(inputs[1:]), whole[1:])
    close(pickle.loads(pickle.dumps(members))(inputs), whole)
    close(copy.deepcopy(members)(inputs), whole)
    assert len(pickle.dumps(members)) < 40_000
    gradients = members.prepare()
    members.window(1, 2).forward(inputs[1:2], [0])
    part = members.window(1, 2)
    part.forward(inputs[1:2], [0])
    part.backward(torch.ones(1, 5, 2))
    assert gradients.views["0.weight"][1].abs().sum() > 0
    assert gradients.views["0.weight"][[0, 2]].abs().sum() == 0


def test_factories_that_are_no_factories() -> None:
    network = mlp(8, 2)
    with pytest.raises(ValueError, match="new module each time"):
        assemble(lambda: network, SEEDS, torch.randn(4, 8))
    with pytest.raises(TypeError, match=r"must return a torch\.nn\.Module"):
        assemble(lambda: 3, SEEDS, torch.randn(4, 8))
    sizes = iter([4, 5, 6])
    with pytest.raises(ValueError, match="same architecture"):
        assemble(lambda: mlp(8, 2, (next(sizes),)), SEEDS, torch.randn(4, 8))
    with pytest.raises(ValueError, match="parameters to train"):
        assemble(nn.Flatten, SEEDS, torch.randn(4, 8))


def test_building_leaves_the_global_generator_alone() -> None:
    state = torch.get_rng_state()
    assemble(lambda: mlp(8, 2, dropout=0.5), SEEDS, torch.zeros(4, 8))
    assert torch.equal(state, torch.get_rng_state())
