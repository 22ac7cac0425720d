"""Every kind of members: nothing is shared, what the author froze stays frozen, and no member looks at another."""

from __future__ import annotations

import copy
import functools
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from _found import found
from torch import Tensor, nn

from deep_ensembles import fit_ensemble, load, members, mlp
from deep_ensembles.ensemble import Ensemble
from deep_ensembles.members import Looped, Members, Plain, Stacked, assemble
from deep_ensembles.scoring import log_score

SEEDS = [11, 12, 13]
KINDS = found(members)
every_kind = pytest.mark.parametrize("kind", KINDS)
not_plain = pytest.mark.parametrize("kind", [each for each in KINDS if each.values[0] is not Plain])


def rows(n: int = 6) -> Tensor:
    return torch.randn(n, 8, generator=torch.Generator().manual_seed(0))


class Net(nn.Module):
    """A backbone and a head of its own."""

    def __init__(self, backbone: nn.Module) -> None:
        super().__init__()
        self.backbone, self.out = backbone, nn.Linear(6, 2, dtype=next(backbone.parameters()).dtype)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.backbone(x))


class LongShortTerm(nn.LSTM):
    """A recurrent backbone that takes and gives rows."""

    def __init__(self) -> None:
        super().__init__(4, 6, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:  # type: ignore[override]
        return super().forward(x.reshape(-1, 2, 4))[0][:, -1]


def perceptron() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 6), nn.BatchNorm1d(6), nn.Tanh(), nn.Dropout(0.3))


def around(backbone: nn.Module, kind: type[Members]) -> Callable[[], nn.Module]:
    """A factory whose networks share a backbone; of a form that the kind takes."""
    return (lambda: nn.Sequential(*backbone, Net(backbone).out)) if kind is Plain else (lambda: Net(backbone))


def state_of(module: nn.Module) -> dict[str, Any]:
    """All that a user could see of a module of theirs."""
    state: dict[str, Any] = {name: tensor.detach().clone() for name, tensor in module.state_dict().items()}
    state |= {f"{name} is trained": parameter.requires_grad for name, parameter in module.named_parameters()}
    state |= {f"gradient of {name}": copy.deepcopy(parameter.grad) for name, parameter in module.named_parameters()}
    state |= {f"address of {name}": tensor.data_ptr() for name, tensor in module.state_dict().items()}
    return state | {f"mode of {name}": part.training for name, part in module.named_modules()}


def assert_unchanged(module: nn.Module, before: dict[str, Any]) -> None:
    after = state_of(module)
    assert after.keys() == before.keys()
    for name, value in before.items():
        same = torch.equal(after[name], value) if isinstance(value, Tensor) else after[name] == value
        assert same, name


def storages(tensors: Members | nn.Module) -> set[int]:
    """The memory that members or a module use."""
    if isinstance(tensors, nn.Module):
        return {tensor.untyped_storage().data_ptr() for tensor in (*tensors.parameters(), *tensors.buffers())}
    own = [tensors.parameters.flat, *tensors.buffers.values()]
    return {tensor.untyped_storage().data_ptr() for tensor in own}.union(*map(storages, tensors.modules)) - {0}


def parts(tensors: Members) -> set[int]:
    return {id(part) for module in tensors.modules for part in (*module.modules(), *module.parameters(), *module.buffers())}


def step(some: Members) -> None:
    """Change every parameter and running statistic, as a training would."""
    some.prepare()
    raw = some.forward(2 * rows().expand(len(some), -1, -1), list(range(len(some))))
    some.backward(torch.ones_like(raw))
    assert some.gradients is not None
    some.parameters.flat.sub_(some.gradients.flat)


COPIES: dict[str, Callable[[Members], Members]] = {
    "select": lambda source: source.select([2, 0, 1]),
    "to": lambda source: source.to(torch.device("cpu")),
    "pickle": lambda source: pickle.loads(pickle.dumps(source)),
    "deepcopy": copy.deepcopy,
    "select after a window": lambda source: (source.window(1, 3), source.training_units(), source.select([0, 1, 2]))[-1],
}


@every_kind
@pytest.mark.parametrize("name", COPIES)
def test_a_copy_shares_nothing_with_its_source(kind: type[Members], name: str) -> None:
    source = assemble(around(perceptron(), kind), SEEDS, rows(), kind)
    inputs = rows().expand(3, -1, -1)
    before, buffers = source(inputs), {key: value.clone() for key, value in source.buffers.items()}
    copied = COPIES[name](source)
    assert not storages(copied) & storages(source)
    assert not parts(copied) & parts(source)
    step(copied)
    assert torch.equal(source(inputs), before)
    assert all(torch.equal(source.buffers[key], value) for key, value in buffers.items())
    changed = copied(inputs)
    assert (changed - before[[2, 0, 1] if name == "select" else slice(None)]).abs().max() > 1e-3
    step(source)
    assert torch.equal(copied(inputs), changed)


@every_kind
def test_a_window_trains_its_members_and_no_others(kind: type[Members]) -> None:
    source = assemble(around(perceptron(), kind), SEEDS, rows(), kind)
    gradients = source.prepare()
    part = source.window(1, 2)
    part.backward(torch.ones_like(part.forward(rows()[None], [0])))
    for name, gradient in gradients.views.items():
        assert gradient[[0, 2]].abs().sum() == 0, name
    assert gradients.flat.abs().sum() > 0


@every_kind
@pytest.mark.parametrize("n_members", [1, 3])
def test_a_backbone_that_the_user_keeps_is_copied_into_every_member(kind: type[Members], n_members: int) -> None:
    # In float32, Adam would blow up rounding noise where a gradient is exactly zero (a bias before batch norm).
    backbone = (perceptron() if kind is not Looped else LongShortTerm()).double()
    for parameter in backbone.parameters():
        parameter.grad = torch.full_like(parameter, 0.5)
    before = state_of(backbone)
    fit = functools.partial(fit_ensemble, around(backbone, kind), rows(40), rows(40)[:, 0], max_epochs=3, random_state=0)
    ensemble = fit(n_members=n_members, members=kind)
    assert_unchanged(backbone, before)
    assert not storages(ensemble.members) & storages(backbone)
    alone = fit(n_members=1, members=kind)
    for name, view in ensemble.members.parameters.views.items():
        torch.testing.assert_close(view[0], alone.members.parameters.views[name][0], rtol=1e-4, atol=1e-5)
        still = n_members == 1 or name.endswith("0.bias")  # nothing depends on a bias before batch norm
        assert still or (view[0] - view[1]).abs().max() > 1e-6, name


@every_kind
def test_networks_that_the_user_keeps_do_not_change(kind: type[Members]) -> None:
    kept: list[tuple[nn.Module, dict[str, Any]]] = []

    def build() -> nn.Module:
        network = around(perceptron(), kind)().eval() if kind is Stacked else around(perceptron(), kind)()
        kept.append((network, state_of(network)))
        return network

    fit_ensemble(build, rows(40), rows(40)[:, 0], n_members=2, max_epochs=2, random_state=0, members=kind)
    assert len(kept) == 2
    for network, before in kept:
        assert_unchanged(network, before)


@not_plain
def test_weights_tied_within_a_network_stay_tied(kind: type[Members]) -> None:
    class Tied(nn.Module):
        def __init__(self, first: nn.Linear) -> None:
            super().__init__()
            self.first, self.second, self.out = first, nn.Linear(8, 8), nn.Linear(8, 2)
            self.second.weight = first.weight

        def forward(self, x: Tensor) -> Tensor:
            return self.out(torch.tanh(self.second(torch.tanh(self.first(x)))))

    first = nn.Linear(8, 8)
    fitted = fit_ensemble(lambda: Tied(first), rows(40), rows(40)[:, 0], n_members=2, max_epochs=2, members=kind)
    for some in (fitted.members, fitted.subset([1, 0]).members, fitted.to("cpu").members):
        assert "second.weight" not in some.parameters.views
        assert all(module.second.weight is module.first.weight for module in some.modules)  # type: ignore[union-attr]


@every_kind
def test_subsets_and_moved_ensembles_share_nothing(kind: type[Members]) -> None:
    ensemble = fit_ensemble(around(perceptron(), kind), rows(40), rows(40)[:, 0], n_members=3, max_epochs=1, members=kind)
    before = ensemble(rows()).mean
    copies: list[Ensemble] = [ensemble.subset(2), ensemble.subset([2]), ensemble.to("cpu")]
    for other in copies:
        assert not storages(other.members) & storages(ensemble.members)
        other.members.parameters.flat.zero_()
        step(other.members)
    torch.testing.assert_close(ensemble(rows()).mean, before, rtol=0, atol=0)


@not_plain
def test_modules_that_a_network_only_calls_get_no_gradient(kind: type[Members]) -> None:
    backbone = nn.Linear(8, 6)

    class Calling(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.out = nn.Linear(6, 2)

        def forward(self, x: Tensor) -> Tensor:
            return self.out(backbone(x))

    before = state_of(backbone)
    fit_ensemble(Calling, rows(40), rows(40)[:, 0], n_members=2, max_epochs=1, members=kind)
    assert_unchanged(backbone, before)


def test_networks_with_computed_tensors_are_copied() -> None:
    """The older weight norm keeps a tensor with a graph, which `copy.deepcopy` does not take."""
    with pytest.warns(FutureWarning):
        layer = nn.utils.weight_norm(nn.Linear(8, 6))
    before = layer(rows())
    looped = assemble(lambda: Net(layer), SEEDS, rows(), Looped)
    expected = torch.stack([module.out(before) for module in looped.modules]).detach()
    torch.testing.assert_close(looped(rows().expand(3, -1, -1)), expected)


class Remembering(nn.Module):
    """Keeps what it computed, graph and all, and a function of its settings."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.out, self.settings = perceptron(), nn.Linear(6, 2), {"slope": 2.0}
        settings, one = self.settings, torch.ones(())
        self.features: dict[str, list[Tensor]] = {}
        self.activation = lambda x: x * settings["slope"] * one
        self.body.register_forward_hook(self.remember)

    def remember(self, module: nn.Module, args: Any, features: Tensor) -> None:
        self.features["last"] = [features]

    def forward(self, x: Tensor) -> Tensor:
        self.body(x)
        return self.activation(self.out(self.features["last"][0]))


def test_networks_that_remember_what_they_computed_are_copied() -> None:
    settings = {"n_members": 2, "max_epochs": 2, "random_state": 0, "members": Looped}
    ensemble = fit_ensemble(Remembering, rows(40), rows(40)[:, 0], **settings)
    step(ensemble.members)
    assert ensemble.members.modules[0].features["last"][0].grad_fn is not None  # type: ignore[union-attr,index]
    torch.testing.assert_close(ensemble.subset(2)(rows()).mean, ensemble(rows()).mean)


class Locked(nn.Linear):
    def __deepcopy__(self, memo: object) -> nn.Module:
        raise TypeError("cannot pickle a lock\nof this kind")


def remembering() -> nn.Module:
    network = Net(perceptron())
    network.backbone.register_forward_hook(lambda module, args, out: setattr(network, "features", out))
    return network


def forwarding() -> nn.Module:
    network = Net(perceptron())
    network.forward = lambda x: network.out(network.backbone(x))  # type: ignore[method-assign]
    return network


@pytest.mark.parametrize("build", [lambda: Locked(8, 2), remembering, forwarding])
def test_networks_that_cannot_be_copied_are_refused_in_one_sentence(build: Callable[[], nn.Module]) -> None:
    with pytest.raises(TypeError, match="cannot be copied") as error:
        assemble(build, SEEDS, rows())
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 300


# -- what the author left in eval() -----------------------------------------------------------------------------------


class LeftInEval(nn.Module):
    """A backbone whose batch norm and dropout its author froze."""

    def __init__(self) -> None:
        super().__init__()
        self.backbone, self.out = perceptron(), nn.Sequential(nn.BatchNorm1d(6), nn.Linear(6, 2))
        self.backbone.eval()

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.backbone(x))


class EvalInTrain(nn.Module):
    """The same by an overridden `train`, which returns nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.backbone, self.out = perceptron(), nn.Sequential(nn.BatchNorm1d(6), nn.Linear(6, 2))

    def train(self, mode: bool = True) -> None:  # type: ignore[override]
        super().train(mode)
        self.backbone.eval()

    forward = LeftInEval.forward


class Lazy(LeftInEval):
    def __init__(self) -> None:
        super().__init__()
        self.backbone[0] = nn.LazyLinear(6).eval()


@not_plain
@pytest.mark.parametrize("build", [LeftInEval, EvalInTrain, Lazy])
def test_parts_left_in_eval_are_trained_in_eval(kind: type[Members], build: type[LeftInEval]) -> None:
    some = assemble(build, SEEDS, rows(), kind)
    for members_ in (some, some.select([0, 1, 2]), pickle.loads(pickle.dumps(some)), some.to(torch.device("cpu"))):
        members_(rows().expand(3, -1, -1))
        before = {name: buffer.clone() for name, buffer in members_.buffers.items()}
        raw = members_.forward(rows().expand(3, -1, -1), [1, 2, 3])
        again = members_.forward(rows().expand(3, -1, -1), [4, 5, 6])
        torch.testing.assert_close(raw, again)  # no dropout; the head's batch norm takes the batch's statistics
        for name, buffer in members_.buffers.items():
            assert torch.equal(buffer, before[name]) == name.startswith("backbone."), name
        reference = build()
        reference(rows())
        reference.load_state_dict({n: t[0] for n, t in (members_.parameters.views | before).items()})
        reference.train()
        reference.backbone.eval()
        torch.testing.assert_close(raw[0], reference(rows()).detach(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("part", [1, 3])
def test_a_plain_perceptron_with_a_part_left_in_eval_is_no_plain_one(part: int, tmp_path: Any) -> None:
    def build() -> nn.Module:
        network = mlp(8, 2, (6,), batch_norm=True, dropout=0.5)
        assert isinstance(network[part], (nn.BatchNorm1d, nn.Dropout))
        network[part].eval()
        return network

    with pytest.raises(ValueError, match="must be Stacked or Looped"):
        assemble(build, SEEDS, rows(), Plain)
    fast = fit_ensemble(build, rows(40), rows(40)[:, 0], n_members=2, max_epochs=2, random_state=0)
    slow = fit_ensemble(build, rows(40), rows(40)[:, 0], n_members=2, max_epochs=2, random_state=0, members=Looped)
    assert fast.members.kind == "stacked"
    torch.testing.assert_close(fast.members.parameters.flat, slow.members.parameters.flat, rtol=1e-3, atol=1e-4)
    still = fast.members.buffers["1.num_batches_tracked"] == 0
    assert bool(still.all()) == (part == 1)
    fast.save(tmp_path / "model")
    loaded = load(tmp_path / "model", network=build)
    torch.testing.assert_close(loaded(rows()).mean, fast(rows()).mean, rtol=0, atol=0)


def test_members_with_different_parts_in_eval_are_not_stacked() -> None:
    flags = iter([True, False, False])
    with pytest.warns(UserWarning, match="differ in more than their parameters"):
        some = assemble(lambda: Net(perceptron().train(next(flags))), SEEDS, rows())
    some.forward(rows().expand(3, -1, -1), [1, 2, 3])
    assert some.buffers["backbone.1.num_batches_tracked"].tolist() == [1, 0, 0]


@every_kind
def test_dropout_left_in_eval_is_not_sampled_either(kind: type[Members]) -> None:
    if kind is Plain:
        kind = Stacked
    some = assemble(LeftInEval, SEEDS, rows(), kind)
    inputs = rows().expand(3, -1, -1)
    torch.testing.assert_close(some.sample(inputs, [1, 2, 3]), some(inputs), rtol=1e-4, atol=1e-5)


# -- rules that look at other members ---------------------------------------------------------------------------------


def centred(distribution: Any, target: Tensor) -> Tensor:
    return (distribution.mean - distribution.mean.mean(0) - target).square()


def counted(distribution: Any, target: Tensor) -> Tensor:
    return log_score(distribution, target) / distribution.batch_shape[0]


def repelled(distribution: Any, target: Tensor) -> Tensor:
    return log_score(distribution, target) - 0.01 * (distribution.mean - distribution.mean[:1]).square()


def weighted(distribution: Any, target: Tensor) -> Tensor:
    return log_score(distribution, target) * torch.tensor([1.0, 2.0])[:, None]


ACROSS = [centred, counted, repelled]


@every_kind
@pytest.mark.parametrize("n_members", [1, 2, 5])
@pytest.mark.parametrize("rule", ACROSS)
def test_a_rule_that_looks_across_members_is_refused(kind: type[Members], rule: Any, n_members: int) -> None:
    with pytest.raises(ValueError, match="every member by itself") as error:
        fit_ensemble(
            functools.partial(mlp, 8, 2), rows(), rows()[:, 0], scoring_rule=rule, n_members=n_members, members=kind
        )
    assert len(str(error.value)) < 300


@every_kind
def test_a_rule_with_a_weight_per_member_is_refused(kind: type[Members]) -> None:
    with pytest.raises(ValueError, match="every member by itself"):
        fit_ensemble(functools.partial(mlp, 8, 2), rows(), rows()[:, 0], scoring_rule=weighted, n_members=2, members=kind)


def zero() -> nn.Module:
    network = mlp(8, 2)
    nn.init.zeros_(network[-1].weight)
    nn.init.zeros_(network[-1].bias)
    return network


@pytest.mark.parametrize("rule", ACROSS)
def test_a_rule_that_looks_across_members_is_refused_where_all_start_alike(rule: Any) -> None:
    with pytest.raises(ValueError, match="every member by itself"):
        fit_ensemble(zero, rows(), rows()[:, 0], scoring_rule=rule, n_members=2)


def energy(distribution: Any, target: Tensor) -> Tensor:
    """A score by sampling."""
    draws = distribution.rsample((8,))
    return (draws - target).abs().mean(0) - 0.5 * (draws[:4] - draws[4:]).abs().mean(0)


def over_rows(distribution: Any, target: Tensor) -> Tensor:
    losses = log_score(distribution, target)
    return losses - 0.1 * losses.mean(1, keepdim=True)


@every_kind
@pytest.mark.parametrize("rule", [energy, over_rows, lambda d, y: 1e6 * log_score(d, y), lambda d, y: log_score(d, y) * 0])
def test_rules_that_do_not_are_taken(kind: type[Members], rule: Any) -> None:
    state = torch.get_rng_state()
    assemble(functools.partial(mlp, 8, 2), SEEDS, rows(), kind)
    assert torch.equal(state, torch.get_rng_state())
    fit_ensemble(
        functools.partial(mlp, 8, 2), rows(), rows()[:, 0], scoring_rule=rule, n_members=2, max_epochs=1, members=kind
    )


def test_a_sequence_within_a_sequence_is_trained_as_any_other_network() -> None:
    def build() -> nn.Module:
        return nn.Sequential(nn.Sequential(nn.Linear(8, 6), nn.ReLU()), nn.Linear(6, 2))

    ensemble = fit_ensemble(build, rows(), rows()[:, 0], n_members=2, max_epochs=1, random_state=0)
    assert isinstance(ensemble.members, Stacked)
