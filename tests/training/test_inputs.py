"""Inputs that are not one tensor: dicts, tuples, tokens, datasets of dicts; and what is refused, in one sentence."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

from deep_ensembles import (
    Checkpoint,
    ComplementaryFolds,
    FastGradientSign,
    RandomSign,
    cross_validate,
    fit_ensemble,
    load,
    mlp,
)
from deep_ensembles.members import Looped, Stacked
from deep_ensembles.training.parts import InputParts, PartsNetwork

N = 90


def rows(n: int = N) -> tuple[dict[str, Tensor], Tensor]:
    """Tokens, a mask, a table far from 0 and images of bytes; the target depends on the first and the third."""
    generator = torch.Generator().manual_seed(0)
    inputs = {
        "tokens": torch.randint(0, 7, (n, 4), generator=generator),
        "mask": torch.rand(n, 4, generator=generator) > 0.1,
        "table": 1e6 + 5 * torch.randn(n, 3, generator=generator, dtype=torch.float64),
        "image": torch.randint(0, 256, (n, 2, 5, 5), generator=generator, dtype=torch.uint8),
    }
    return inputs, inputs["tokens"].double().mean(1) + (inputs["table"][:, 0] - 1e6) / 5


class OfDict(nn.Module):
    """Embeds tokens, inverts a mask (which needs flags), convolves images (which needs floats)."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.convolve, self.out = nn.Embedding(7, 3), nn.Conv2d(2, 2, 3), nn.Linear(8, 2)

    def forward(self, x: dict[str, Tensor]) -> Tensor:
        words = self.embed(x["tokens"]).masked_fill(~x["mask"].unsqueeze(-1), 0).mean(1)
        return self.out(torch.cat([words, x["table"], self.convolve(x["image"]).mean((2, 3))], 1))


class OfTwo(nn.Module):
    """Takes two tensors one by one, or by their names."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.out = nn.Embedding(7, 3), nn.Linear(6, 2)

    def forward(self, tokens: Tensor, table: Tensor) -> Tensor:
        return self.out(torch.cat([self.embed(tokens).mean(1), table], 1))


class Items(Dataset):  # type: ignore[type-arg]
    """A dataset whose items are made by a function of the row."""

    def __init__(self, make: Any, n: int = N) -> None:
        self.make, self.n = make, n

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, i: int) -> Any:
        return self.make(i)


SETTINGS: dict[str, Any] = {"n_members": 2, "max_epochs": 3, "random_state": 0, "batch_size": 30}
INPUTS, TARGETS = rows()
TWO = {name: INPUTS[name] for name in ("tokens", "table")}


def fitted(**others: Any) -> Any:
    return fit_ensemble(OfDict, INPUTS, TARGETS, **{**SETTINGS, **others})


def test_a_dict_of_tokens_flags_numbers_and_images_is_learnt() -> None:
    ensemble = fitted(max_epochs=150, learning_rate=0.02)
    assert float((ensemble(INPUTS).mean - TARGETS).abs().mean()) < 0.35 * float(TARGETS.std())
    assert ensemble.parts.dtypes == ("int64", "bool", "float", "float")
    assert repr(ensemble).startswith("Ensemble(2 × OfDict")


def test_parts_are_standardised_by_themselves() -> None:
    units = fitted().standardization
    shift, scale, reach = units.input_shift[0], units.input_scale[0], units.input_range[0]
    spans = dict(zip(INPUTS, fitted().parts.spans(), strict=True))
    for name in ("tokens", "mask"):
        assert not shift[spans[name]].any()
        assert not reach[spans[name]].any()
        assert (scale[spans[name]] == 1).all()
    table, image = INPUTS["table"], INPUTS["image"].double()
    torch.testing.assert_close(shift[spans["table"]], table.mean(0))
    torch.testing.assert_close(scale[spans["table"]], table.std(0, correction=0))
    by_channel = image.mean((0, 2, 3)).repeat_interleave(25)
    torch.testing.assert_close(shift[spans["image"]], by_channel)
    expected = (image.amax(0) - image.amin(0)).flatten() / scale[spans["image"]]
    torch.testing.assert_close(reach[spans["image"]], expected)


def test_a_network_of_parts_is_the_network_of_its_tensors() -> None:
    """A prediction for a dict equals the user's network called by hand with standardised numbers."""
    ensemble = fitted()
    x = {name: part[:7] for name, part in INPUTS.items()}
    own = OfDict()
    weights = {name.removeprefix("network."): view[1] for name, view in ensemble.members.parameters.views.items()}
    own.load_state_dict(weights)
    units, spans = ensemble.standardization, dict(zip(INPUTS, ensemble.parts.spans(), strict=True))
    for name in ("table", "image"):
        shift, scale = (unit[1][spans[name]].reshape(x[name].shape[1:]) for unit in (units.input_shift, units.input_scale))
        x[name] = ((x[name].double() - shift) / scale).float()
    mean = own(x)[:, 0].detach().double() * units.target_scale[1] + units.target_shift[1]
    torch.testing.assert_close(ensemble.subset([1])({n: p[:7] for n, p in INPUTS.items()}).mean, mean, rtol=1e-4, atol=1e-4)


def test_stacked_equals_looped() -> None:
    stacked, looped = (fitted(members=kind, perturbation=FastGradientSign(0.01)) for kind in (Stacked, Looped))
    assert fitted().members.kind == "stacked"
    torch.testing.assert_close(stacked.members.parameters.flat, looped.members.parameters.flat, rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(stacked(INPUTS).mean, looped(INPUTS).mean, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("build", [OfTwo, partial(OfTwo)])
def test_a_tuple_is_passed_one_by_one_and_a_dict_by_name(build: Any) -> None:
    pair = tuple(TWO.values())
    by_position, by_name = (fit_ensemble(build, x, TARGETS, **SETTINGS) for x in (pair, TWO))
    assert torch.equal(by_position(pair).mean, by_name(TWO).mean)
    swapped = {name: TWO[name] for name in reversed(TWO)}
    torch.testing.assert_close(by_name(swapped).mean, by_name(TWO).mean)  # the order of keys is free


def test_keywords_of_any_name() -> None:
    class OfKeywords(OfTwo):
        def forward(self, **parts: Tensor) -> Tensor:
            return super().forward(**parts)

    torch.testing.assert_close(
        fit_ensemble(OfKeywords, TWO, TARGETS, **SETTINGS)(TWO).mean, fit_ensemble(OfTwo, TWO, TARGETS, **SETTINGS)(TWO).mean
    )


def test_a_network_behind_any_arguments_takes_the_dict() -> None:
    class Wrapped(OfDict):
        def forward(self, *arguments: Any, **keywords: Any) -> Tensor:
            return super().forward(*arguments, **keywords)

    assert torch.equal(fit_ensemble(Wrapped, INPUTS, TARGETS, **SETTINGS)(INPUTS).mean, fitted()(INPUTS).mean)


def test_lazy_networks_and_one_key() -> None:
    class Lazy(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.out = nn.Embedding(7, 3), nn.LazyLinear(2)

        def forward(self, x: dict[str, Tensor]) -> Tensor:
            return self.out(self.embed(x["tokens"]).flatten(1))

    tokens = {"tokens": INPUTS["tokens"]}
    assert fit_ensemble(Lazy, tokens, TARGETS, **SETTINGS)(tokens).mean.isfinite().all()


def test_a_tuple_of_rows_is_one_tensor_where_the_network_takes_one() -> None:
    ensemble = fit_ensemble(partial(mlp, 3, 2), X, TARGETS, **SETTINGS)
    assert torch.equal(ensemble(tuple(X[:2].numpy())).mean, ensemble(X[:2]).mean)
    assert ensemble(tuple(map(tuple, X[:2].tolist()))).mean.shape == (2,)
    assert fit_ensemble(partial(mlp, 3, 2), tuple(map(tuple, X.tolist())), TARGETS, **SETTINGS).parts is None


@pytest.mark.parametrize("perturbation", [FastGradientSign(0.1), RandomSign(0.1)])
def test_perturbations_leave_whole_numbers_alone(perturbation: Any) -> None:
    seen: list[tuple[Tensor, Tensor]] = []

    def recorded(loss: Any, predict: Any, inputs: Tensor, scale: Tensor, generator: Any) -> Tensor:
        moved = perturbation(loss, predict, inputs, scale, generator)
        seen.append((inputs.clone(), moved.clone()))
        return moved

    tokens, mask, table, _ = fitted(perturbation=recorded, max_epochs=1).parts.spans()
    for before, after in seen:
        assert torch.equal(before[..., tokens], after[..., tokens])
        assert torch.equal(before[..., mask], after[..., mask])
        assert not torch.equal(before[..., table], after[..., table])
        assert torch.equal(before[..., tokens], before[..., tokens].round())
    assert seen


def test_a_perturbation_needs_a_part_that_can_move() -> None:
    class OfTokens(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Embedding(7, 2)

        def forward(self, x: dict[str, Tensor]) -> Tensor:
            return self.embed(x["tokens"]).mean(1)

    with pytest.raises(TypeError, match=r"floating-point inputs, got a dict of tokens \[4\]"):
        fit_ensemble(OfTokens, {"tokens": INPUTS["tokens"]}, TARGETS, perturbation=FastGradientSign(), **SETTINGS)


def test_members_are_the_same_in_any_company() -> None:
    alone, among = fitted(n_members=1), fitted(n_members=3)
    torch.testing.assert_close(alone(INPUTS).mean, among.subset(1)(INPUTS).mean, rtol=1e-4, atol=1e-4)


def test_the_factory_is_called_once_per_member() -> None:
    made = [OfDict() for _ in range(2)]
    before = [network.out.weight.clone() for network in made]
    networks = iter(made)
    fit_ensemble(lambda: next(networks), INPUTS, TARGETS, **SETTINGS)
    assert all(torch.equal(network.out.weight, weight) for network, weight in zip(made, before, strict=True))
    same = OfDict()
    with pytest.raises(ValueError, match="a new module each time"):
        fit_ensemble(lambda: same, INPUTS, TARGETS, **SETTINGS)


def test_cross_validation_and_out_of_fold() -> None:
    result = cross_validate(OfDict, INPUTS, TARGETS, cv=3, **SETTINGS)
    train, test = result.folds[0]
    part = {name: values[torch.as_tensor(test)] for name, values in INPUTS.items()}
    torch.testing.assert_close(result.ensembles[0](part).mean, result.distributions[0].mean)
    alone = fit_ensemble(OfDict, {n: v[torch.as_tensor(train)] for n, v in INPUTS.items()}, TARGETS[train], **SETTINGS)
    torch.testing.assert_close(alone(part).mean, result.distributions[0].mean, rtol=1e-4, atol=1e-3)
    held_out = fitted(folds=ComplementaryFolds(2), early_stopping=True)
    assert held_out.out_of_fold(INPUTS).batch_shape == (N,)
    with pytest.raises(ValueError, match="the 90 training rows, got '5 rows'"):
        held_out.out_of_fold({name: values[:5] for name, values in INPUTS.items()})


def test_batches_of_any_size_give_the_same_and_none_gives_none() -> None:
    ensemble = fitted()
    torch.testing.assert_close(ensemble(INPUTS, batch_size=7).mean, ensemble(INPUTS).mean, rtol=1e-5, atol=1e-5)
    assert ensemble({name: values[:0] for name, values in INPUTS.items()}).mean.shape == (0,)
    assert sum(len(part.mean) for part in ensemble.batches(INPUTS, batch_size=40)) == N
    assert ensemble.sampled(INPUTS, 2, random_state=0).batch_shape == (N,)
    lists = {name: values.numpy() for name, values in INPUTS.items()}
    assert torch.equal(ensemble(lists).mean, ensemble(INPUTS).mean)


def test_a_model_of_parts_is_saved_and_loaded(tmp_path: Path) -> None:
    ensemble = fitted()
    ensemble.save(tmp_path / "model")
    again = load(tmp_path / "model", network=OfDict)
    assert again.parts == ensemble.parts
    assert torch.equal(again(INPUTS).mean, ensemble(INPUTS).mean)
    x = INPUTS["table"].float()
    package = fit_ensemble(partial(mlp, 3, 2), (x,), TARGETS, **SETTINGS)  # a network that the file can name
    package.save(tmp_path / "named")
    assert torch.equal(load(tmp_path / "named")((x,)).mean, package((x,)).mean)


class Interrupted(OfDict):
    """Stops after some calls, as a user may."""

    left = 10**9

    def forward(self, x: dict[str, Tensor]) -> Tensor:
        Interrupted.left -= 1
        if Interrupted.left < 0:
            raise KeyboardInterrupt
        return super().forward(x)


def test_a_checkpoint_of_parts_is_taken_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fit(name: str, inputs: Any = INPUTS) -> Any:
        checkpoint = Checkpoint(tmp_path / name, every_seconds=0)
        return fit_ensemble(Interrupted, inputs, TARGETS, checkpoint=checkpoint, members=Stacked, **SETTINGS)

    whole = fit("whole")
    monkeypatch.setattr(Interrupted, "left", 10**9 - Interrupted.left - 4)
    with pytest.raises(KeyboardInterrupt):
        fit("stopped")
    assert (tmp_path / "stopped").exists()
    monkeypatch.setattr(Interrupted, "left", 10**9)
    assert torch.equal(fit("stopped").members.parameters.flat, whole.members.parameters.flat)
    with pytest.raises(ValueError, match="another training"):
        fit("stopped", {**INPUTS, "tokens": INPUTS["tokens"].flip(0)})


# -- tokens -----------------------------------------------------------------------------------------------------------


def embedding() -> nn.Module:
    return nn.Sequential(nn.Embedding(7, 3), nn.Flatten(), nn.Linear(12, 2))


class CastsItself(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.network = embedding()

    def forward(self, x: Tensor) -> Tensor:
        return self.network(x.long())


@pytest.mark.parametrize("build", [embedding, CastsItself])
def test_tokens_need_no_setting(build: Any, tmp_path: Path) -> None:
    tokens = INPUTS["tokens"]
    chosen = fit_ensemble(build, tokens, TARGETS, **SETTINGS)
    told = fit_ensemble(build, tokens, TARGETS, standardize_inputs=False, **SETTINGS)
    assert torch.equal(chosen.members.parameters.flat, told.members.parameters.flat)
    chosen.save(tmp_path / "model")
    assert torch.equal(load(tmp_path / "model", network=build)(tokens).mean, chosen(tokens).mean)
    folds = cross_validate(build, tokens, TARGETS, cv=2, **SETTINGS)
    assert folds.distribution.batch_shape == (N,)
    with pytest.raises(TypeError, match="floating-point inputs"):
        fit_ensemble(build, tokens, TARGETS, perturbation=FastGradientSign(), **SETTINGS)


def test_whole_numbers_as_features_are_standardised_as_before() -> None:
    x = INPUTS["tokens"]
    integers, floats = (fit_ensemble(partial(mlp, 4, 2), inputs, TARGETS, **SETTINGS) for inputs in (x, x.double()))
    assert integers.standardization.input_shift is not None
    torch.testing.assert_close(integers(x).mean, floats(x.double()).mean)


def test_whole_number_parts_are_standardised_where_a_network_refuses_them() -> None:
    class Features(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.out = nn.Embedding(7, 2), nn.Linear(1, 2)

        def forward(self, tokens: Tensor, time: Tensor) -> Tensor:
            return self.embed(tokens).mean(1) + self.out(time)

    seconds = 1_700_000_000 + 10 * torch.arange(N).unsqueeze(1)  # not exact in float32
    inputs = {"tokens": INPUTS["tokens"], "time": seconds}
    ensemble = fit_ensemble(Features, inputs, TARGETS, **SETTINGS)
    assert ensemble.parts == InputParts(("tokens", "time"), ((4,), (1,)), ("int64", "float"), True)
    seen = ensemble.standardization.inputs(ensemble.parts.pack(inputs)[None], torch.float32, slice(0, 1))[0, :, -1]
    expected = (torch.arange(N) - (N - 1) / 2) / torch.arange(N).double().std(correction=0)
    torch.testing.assert_close(seen.double(), expected.double(), rtol=1e-6, atol=1e-6)
    small = fit_ensemble(Features, {**inputs, "time": seconds - 1_700_000_000}, TARGETS, **SETTINGS)
    assert small.parts.dtypes == ("int64", "float")
    assert not small.parts.precise
    both = fit_ensemble(OfTwo, {**TWO, "table": torch.ones(N, 3, dtype=torch.int64)}, TARGETS, **SETTINGS)
    assert both.parts.dtypes == ("int64", "int64")  # `torch.cat` takes them as they are


# -- packing ----------------------------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=40)
@given(st.data())
def test_packing_and_unpacking_gives_the_same(data: st.DataObject) -> None:
    dtypes = [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool, torch.float32, torch.float64]
    chosen = data.draw(st.lists(st.sampled_from(dtypes), min_size=1, max_size=4))
    generator = torch.Generator().manual_seed(data.draw(st.integers(0, 1000)))
    parts = []
    for dtype in chosen:
        shape = data.draw(st.lists(st.integers(1, 3), max_size=3))
        limit = 2**24 if not dtype.is_floating_point and dtype != torch.bool else 2
        limit = min(limit, torch.iinfo(dtype).max) if limit > 2 else limit
        parts.append((torch.rand(3, *shape, generator=generator, dtype=torch.float64) * limit).to(dtype))
    values: Any = tuple(parts) if data.draw(st.booleans()) else {f"part {i}": part for i, part in enumerate(parts)}
    structure = InputParts.of(values)
    again = structure.unpack(structure.pack(values))
    assert type(again) is type(values)
    for part, back in zip(parts, again.values() if isinstance(again, dict) else again, strict=True):
        assert part.is_floating_point() or back.dtype == part.dtype
        assert torch.equal(back.double(), part.double())


# -- datasets ---------------------------------------------------------------------------------------------------------


def item(i: int) -> dict[str, Tensor]:
    return {name: values[i] for name, values in INPUTS.items()}


@pytest.mark.parametrize(
    "make",
    [
        lambda i: (item(i), TARGETS[i]),
        lambda i: {**item(i), "target": TARGETS[i]},
        lambda i: {"label": float(TARGETS[i]), "weight": 1.0, **item(i)},
        lambda i: (item(i), TARGETS[i], 1.0),
    ],
)
@pytest.mark.parametrize("workers", [0, pytest.param(2, marks=pytest.mark.slow)])
def test_streamed_dicts_train_like_dicts_in_memory(make: Any, workers: int) -> None:
    memory = fitted(early_stopping=True)
    data = Items(make)
    streamed = fit_ensemble(OfDict, data, num_workers=workers, early_stopping=True, **SETTINGS)
    torch.testing.assert_close(streamed.members.parameters.flat, memory.members.parameters.flat, rtol=1e-3, atol=1e-4)
    for inputs in (data, Items(item), Items(lambda i: (item(i),))):
        torch.testing.assert_close(streamed(inputs, batch_size=50).mean, streamed(INPUTS).mean, rtol=1e-4, atol=1e-4)


def test_streamed_tuples() -> None:
    pair = lambda i: (TWO["tokens"][i], TWO["table"][i])  # noqa: E731
    data = Items(lambda i: (pair(i), TARGETS[i]))
    ensemble = fit_ensemble(OfTwo, data, **SETTINGS)
    expected = ensemble(tuple(TWO.values())).mean
    for inputs in (data, Items(pair)):
        torch.testing.assert_close(ensemble(inputs).mean, expected, rtol=1e-4, atol=1e-4)


def test_one_value_beside_the_target_is_the_input() -> None:
    x = INPUTS["table"]
    data = Items(lambda i: {"x": x[i], "y": TARGETS[i]})
    ensemble = fit_ensemble(partial(mlp, 3, 2), data, **SETTINGS)
    assert ensemble.parts is None
    for inputs in (data, Items(lambda i: {"x": x[i]})):
        torch.testing.assert_close(ensemble(inputs).mean, ensemble(x).mean, rtol=1e-5, atol=1e-5)


def test_an_input_may_be_called_y() -> None:
    class Plane(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.out = nn.Linear(2, 2)

        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            return self.out(torch.stack([x, y], 1))

    place = {"x": INPUTS["table"][:, 0], "y": INPUTS["table"][:, 1]}
    ensemble = fit_ensemble(Plane, place, TARGETS, **SETTINGS)
    items = Items(lambda i: {name: values[i] for name, values in place.items()})
    labelled = Items(lambda i: {**items[i], "target": TARGETS[i]})
    for inputs in (items, labelled):
        torch.testing.assert_close(ensemble(inputs).mean, ensemble(place).mean, rtol=1e-5, atol=1e-5)
    with pytest.raises(TypeError, match=r"one target, .* got the keys x, y, target; or return \(input, target\)"):
        fit_ensemble(Plane, labelled, **SETTINGS)


def test_what_reads_rows_by_number_is_a_dataset() -> None:
    class Duck:
        def __len__(self) -> int:
            return N

        def __getitem__(self, i: int) -> tuple[Tensor, Tensor]:
            return INPUTS["table"][i], TARGETS[i]

    ensemble = fit_ensemble(partial(mlp, 3, 2), Duck(), **SETTINGS)
    torch.testing.assert_close(ensemble(Duck()).mean, ensemble(INPUTS["table"]).mean, rtol=1e-5, atol=1e-5)


# -- refusals ---------------------------------------------------------------------------------------------------------


class OnlyLength:
    def __len__(self) -> int:
        return 5

    def __iter__(self) -> Iterator[int]:
        return iter(range(5))


class ByName:
    """Looks like data, but its rows have no numbers."""

    def __len__(self) -> int:
        return 5

    def __getitem__(self, name: str) -> Tensor:
        return {"x": torch.ones(3)}[name]


class Endless(IterableDataset):  # type: ignore[type-arg]
    def __iter__(self) -> Iterator[Any]:
        return iter([])


class NoLength(Dataset):  # type: ignore[type-arg]
    def __getitem__(self, i: int) -> Any:
        return INPUTS["table"][i], TARGETS[i]


X = INPUTS["table"].float()
FRAME = pd.DataFrame({"area": [1.0, 2.0], "city": ["Rome", "Oslo"]})
REFUSED: dict[str, tuple[Any, type[Exception], str]] = {
    "loader": (DataLoader(TensorDataset(X, TARGETS)), TypeError, r"got DataLoader; pass its `.dataset`, and `batch_size="),
    "endless": (Endless(), TypeError, r"map-style dataset, got Endless; each member draws its own order"),
    "no length": (NoLength(), TypeError, r"map-style dataset, got NoLength; .* give it `__len__`"),
    "generator": ((row for row in X), TypeError, r"got generator; collect its rows first, as in `torch.stack"),
    "iterator": (iter(X.tolist()), TypeError, r"got list_iterator; collect its rows first"),
    "list of dicts": ([{"x": 1.0}], TypeError, r"got list; pass a dict of tensors, as `torch.utils.data.default"),
    "text": ("data.csv", TypeError, r"got str; read the file or encode the text first"),
    "words": ([["Rome"], ["Oslo"]], TypeError, r"`inputs` must be numbers, got <U4 in list"),
    "set": ({1.0, 2.0}, TypeError, r"got set; it has no `__getitem__` to take a row by its number"),
    "only length": (OnlyLength(), TypeError, r"got OnlyLength; it has no `__getitem__`"),
    "by name": (ByName(), TypeError, r"got ByName, whose row 0 cannot be read \(KeyError: 0\)"),
    "frame": (FRAME, TypeError, r"got object in the column 'city'; encode it, or fit a `DeepEnsembleRegressor`"),
    "sparse matrix": (scipy.sparse.csr_matrix(X.numpy()), TypeError, r"got csr_matrix; make it dense with `.toarray\(\)`"),
    "sparse tensor": (X.to_sparse(), TypeError, r"got Tensor; make it dense with `.to_dense\(\)`"),
    "ragged": ([[1.0, 2.0], [3.0]], ValueError, r"rows of one shape, got list"),
    "nothing": (None, TypeError, r"`inputs` must be numbers, got object in NoneType"),
    "no parts": ({}, ValueError, r"a dict with text as keys, at least one, got \[\]"),
    "number as key": ({0: X}, ValueError, r"a dict with text as keys, at least one, got \[0\]"),
    "lengths": ({"a": X, "b": X[:50]}, ValueError, r"`inputs\['b'\]` must be as long as `inputs\['a'\]`, 90 rows, got 50"),
    "scalar": ({"a": X, "b": torch.tensor(1.0)}, ValueError, r"`inputs\['b'\]` must be of shape \[row, …\], got \[\]"),
    "nan": ({"a": X, "b": X / 0 * 0}, ValueError, r"`inputs\['b'\]` must be finite"),
    "nested": ({"a": X, "b": {"c": X}}, TypeError, r"`inputs\['b'\]` must be one tensor or array, got dict of c"),
    "words in a part": ({"a": X, "b": ["Rome"] * N}, TypeError, r"`inputs\['b'\]` must be numbers, got <U4 in list"),
    "loader in a part": ({"a": DataLoader(TensorDataset(X))}, TypeError, r"`inputs\['a'\]` must be .* got DataLoader"),
}  # fmt: skip


def refuses(error: type[Exception], match: str, call: Any) -> None:
    with pytest.raises(error, match=match) as refusal:
        call()
    message = str(refusal.value)
    assert len(message) <= 300
    assert "\n" not in message


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_data_is_refused_in_one_sentence(name: str) -> None:
    inputs, error, match = REFUSED[name]
    targets = None if name in ("by name", "endless", "no length") else TARGETS
    for fit in (fit_ensemble, cross_validate):
        refuses(error, match, partial(fit, OfDict, inputs, targets, **SETTINGS))


@pytest.mark.parametrize(
    "name", ["loader", "endless", "generator", "text", "set", "frame", "sparse matrix", "list of dicts"]
)
def test_and_so_it_is_in_predictions(name: str) -> None:
    inputs, error, match = REFUSED[name]
    if name == "generator":
        inputs = (row for row in X)
    for ensemble in (fitted(max_epochs=1), fit_ensemble(partial(mlp, 3, 2), X, TARGETS, **SETTINGS)):
        if name == "frame" and ensemble.parts is not None:
            error, match = TypeError, "`inputs` must be a dict of tokens .*, got DataFrame"
        refuses(error, match, partial(ensemble, inputs))
        inputs, error, match = (row for row in X) if name == "generator" else REFUSED[name][0], *REFUSED[name][1:]


@pytest.mark.parametrize(
    ("change", "error", "match"),
    [
        ({"image": None}, ValueError, r"`inputs` must be a dict of tokens \[4\], mask .*; 'image' is missing"),
        ({"colour": X}, ValueError, r"got 'tokens, mask, table, image, colour'; 'colour' is not known"),
        ({"table": X[:, :2]}, ValueError, r"`inputs\['table'\]` must be of shape \['n', 3\], got \[90, 2\]"),
        ({"tokens": INPUTS["tokens"].float()}, TypeError, r"`inputs\['tokens'\]` must be whole numbers \(int64\)"),
        ({"tokens": INPUTS["tokens"] + 2**25}, ValueError, r"`inputs\['tokens'\]` must be int64 from -16777216 to 16777216"),
        ({"mask": INPUTS["tokens"]}, ValueError, r"`inputs\['mask'\]` must be bool from 0 to 1, got \[0, 6\]"),
        ({"table": X[:5]}, ValueError, r"`inputs\['table'\]` must be as long as `inputs\['tokens'\]`, 90 rows, got 5"),
    ],
)  # fmt: skip
def test_other_parts_than_in_training_are_refused(change: dict[str, Any], error: type[Exception], match: str) -> None:
    given_parts = {name: values for name, values in {**INPUTS, **change}.items() if values is not None}
    refuses(error, match, partial(fitted(max_epochs=1), given_parts))


def test_one_kind_of_input_is_not_another() -> None:
    of_dict, of_tensor = fitted(max_epochs=1), fit_ensemble(partial(mlp, 3, 2), X, TARGETS, **SETTINGS)
    of_tuple = fit_ensemble(OfTwo, tuple(TWO.values()), TARGETS, **SETTINGS)
    refuses(TypeError, "must be a dict of tokens .*, got Tensor", partial(of_dict, X))
    refuses(TypeError, r"must be one tensor or array, got dict of table", partial(of_tensor, {"table": X}))
    refuses(TypeError, r"must be a tuple of \[4\], \[3\], got dict", partial(of_tuple, TWO))
    refuses(ValueError, r"a tuple of \[4\], \[3\], got '0'; 1 is missing", partial(of_tuple, (TWO["tokens"],)))
    refuses(TypeError, r"must be a tuple of \[4\], \[3\], got dict", partial(of_tuple, Items(item)))
    refuses(TypeError, r"must be a dict of tokens .*, got Tensor", partial(of_dict, Items(lambda i: X[i])))


@pytest.mark.parametrize(
    ("made", "match"),
    [
        (lambda i: item(i), r"one target, under the key `target`, `label` or `y`, got the keys tokens, mask"),
        (lambda i: {**item(i), "y": 1.0, "label": 1.0}, r"one target, .* got the keys tokens, .*y, label; or return"),
        (lambda i: 3.0, r"\(input, target\) .* or a dict with the key `target`, got float"),
        (lambda i: ([1.0, 2.0], 3.0), r"the input in items of the dataset must be a tensor or array, .*, got list"),
        (lambda i: ("Rome", 3.0), r"the input in items of the dataset must be a tensor or array, .*, got str"),
        (lambda i: {"a": X[i], "b": "Rome", "target": 1.0}, r"`inputs\['b'\]` must be numbers, got <U4 in list"),
    ],
)
def test_items_that_hold_something_else_are_refused(made: Any, match: str) -> None:
    refuses(TypeError, match, partial(fit_ensemble, OfDict, Items(made), **SETTINGS))


def test_networks_that_do_not_take_the_parts_are_refused() -> None:
    refuses(TypeError, r"must take a dict of tokens \[4\], table \[3\], which it refuses \(TypeError: ",
            partial(fit_ensemble, partial(nn.Linear, 3, 2), TWO, TARGETS, **SETTINGS))  # fmt: skip
    refuses(TypeError, r"must take a dict of tokens .*, which it refuses", lambda: fitted(standardize_inputs=False))
    half = lambda: OfTwo().to(torch.bfloat16)  # noqa: E731
    refuses(TypeError, "parameters of float32 or float64, got torch.bfloat16",
            partial(fit_ensemble, half, TWO, TARGETS, **SETTINGS))  # fmt: skip
    refuses(TypeError, "must be a function that builds", partial(fit_ensemble, OfTwo(), TWO, TARGETS, **SETTINGS))
    refuses(TypeError, "must return a torch.nn.Module", partial(fit_ensemble, dict, TWO, TARGETS, **SETTINGS))


def test_many_whole_number_parts_are_decided_soon() -> None:
    class Sums(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.out = nn.Linear(12, 2)

        def forward(self, x: dict[str, Tensor]) -> Tensor:
            return self.out(torch.stack(list(x.values()), 1))

    columns = {f"column {i}": torch.arange(N) % (i + 2) for i in range(12)}
    ensemble = fit_ensemble(Sums, columns, TARGETS, **SETTINGS)
    assert set(ensemble.parts.dtypes) == {"float"}


def test_long_lists_of_parts_make_short_messages() -> None:
    columns = {f"a column with a long name {i}": X[:, 0] for i in range(50)}
    structure = InputParts.of(columns)
    refuses(TypeError, "must be a dict of a column", partial(structure.pack, X))
    assert len(repr(PartsNetwork(nn.Identity(), structure))) < 400
    with pytest.raises(ValueError, match=re.escape("is missing")) as error:
        structure.pack({"other": X})
    assert len(str(error.value)) < 350
    assert np.prod(structure.pack(columns).shape) == 50 * N
