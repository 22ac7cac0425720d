"""Folders that someone made to harm: sealed as ours are, since a checksum is no signature, but with other contents."""

from __future__ import annotations

import copy
import json
import math
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from _made_tables import houses
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor, nn

from deep_ensembles import ModelFileError, fit_ensemble, load
from deep_ensembles._files import _header, _sealed

MODELS = Path(__file__).parent / "models"
NAMES = sorted(path.name for path in MODELS.iterdir() if path.is_dir())
NETWORKS = {"ensemble-own-network": lambda: nn.Linear(10, 2)}
Config = dict[str, Any]
Tensors = dict[str, Tensor]


def stored(name: str) -> tuple[Config, Tensors]:
    config = json.loads((MODELS / name / "config.json").read_text())
    return config, load_tensors((MODELS / name / "model.safetensors").read_bytes())


def sealed(folder: Path, config: Config, tensors: Tensors | None = None) -> Path:
    """A folder with a correct checksum; with other tensors, also the one of theirs."""
    folder.mkdir(exist_ok=True)
    if tensors is not None:
        content = save_tensors(tensors)
        (folder / "model.safetensors").write_bytes(content)
        config = {**config, "tensors": _header("model.safetensors", content, tensors)["tensors"]}
    (folder / "config.json").write_bytes(_sealed({**config, "checksum": "0" * 64}))
    return folder


def put(config: Any, path: str, value: Any) -> None:
    """Set a value at a place like `ensemble.seeds.0`."""
    *parents, last = [int(part) if part.isdecimal() else part for part in path.split(".")]
    for part in parents:
        config = config[part]
    config[last] = value


def refuses(folder: Path, match: str | None = None, network: Any = None) -> None:
    """Loading must end soon in a `ModelFileError` of readable length."""
    started = time.monotonic()
    with pytest.raises(ModelFileError, match=match) as error:
        load(folder, network=network)
    assert time.monotonic() - started < 5  # on a busy machine; a fraction of a second on a quiet one
    assert len(str(error.value)) < 1000


def test_a_path_in_a_model_is_not_followed(tmp_path: Path) -> None:
    config, tensors = stored("regressor-two-targets-checkpoint")
    precious = tmp_path / "precious"
    precious.write_text("years of work")
    checkpoint = {"path": str(precious), "every_epochs": 1, "every_seconds": 0, "resume": False}
    config["parameters"]["checkpoint"] = {"name": "Checkpoint", "arguments": checkpoint}
    model = load(sealed(tmp_path / "model", config, tensors))
    assert model.checkpoint is None
    model.fit(np.random.default_rng(0).normal(size=(30, 10)), np.zeros((30, 2)))
    assert precious.read_text() == "years of work"
    model.save(tmp_path / "again")
    assert "Checkpoint" not in (tmp_path / "again" / "config.json").read_text()
    config["parameters"]["folds"] = config["parameters"]["checkpoint"]
    refuses(sealed(tmp_path / "model", config, tensors), "'Checkpoint', which this version does not know")


NESTED: Any = "relu"
for _ in range(6):
    NESTED = {"name": "networks.mlp", "partial": [2, 2, {"tuple": [2] * 30}, NESTED], "keywords": {}}


@pytest.mark.parametrize(
    ("name", "path", "value"),
    [
        ("regressor", "ensemble.network.partial.2", {"tuple": [10_000_000, 10_000_000]}),
        ("regressor", "ensemble.network.partial.2", {"tuple": [3] * 10_000}),
        ("regressor", "ensemble.network.partial.2", {"tuple": [3] * 1_000_000}),
        ("regressor", "ensemble.network.partial.3", NESTED),
        ("regressor", "ensemble.network", {"name": "networks.vgg", "arguments": {"n_outputs": 10**7}}),
        ("ensemble-looped", "ensemble.network.keywords.width", 10**6),
        ("ensemble-looped", "ensemble.network.keywords.image_size", 10**9),
        ("ensemble-looped", "ensemble.network.name", "networks.inception"),
        ("ensemble-looped", "ensemble.network.name", "networks.vgg"),
        ("ensemble-looped", "ensemble.feature_shape", [1, 30_000, 30_000]),
        ("ensemble-own-network", "ensemble.n_outputs", 10**9),
        ("regressor", "ensemble.n_members", 10**9),
        ("regressor", "ensemble.n_members", True),
        ("regressor", "ensemble.seeds", ["1"] * 100_000),
        ("regressor", "ensemble.seeds.0", "9" * 5000),
        ("regressor", "ensemble.feature_shape", [10**12]),
        ("regressor", "ensemble.n_outputs", 4),
        ("regressor", "ensemble.members", "stack"),
        ("regressor", "fitted.n_features_in_", 11),
        ("regressor", "fitted.n_outputs_", 2),
        ("regressor", "fitted.feature_range_", [[0.0], [1.0]]),
        ("regressor", "parameters.evil", 1),
        ("classifier", "fitted.classes_.dtype", "<U1000000000"),
        ("classifier", "fitted.classes_.values", [0, 1, 1]),
        ("classifier", "fitted.class_prior_", [1.0]),
        ("classifier", "ensemble.head", {"name": "heads.Point", "arguments": {}}),
        ("classifier", "ensemble.recalibration", {"name": "recalibration.VarianceScaling", "arguments": {"factor": 2.0}}),
        ("table-numbers", "table.schema.columns.0", {"kind": "text", "name": "size", "words": ["a"], "weights": []}),
        ("table-numbers", "table.schema.columns.0", {"kind": "text", "name": "size", "words": ["a"], "weights": ["1"]}),
        ("table-numbers", "table.schema.columns.0.marked", 10**9),
        ("table-numbers", "table.schema.columns.0.scale", 0.0),
        ("table-numbers", "table.schema.columns.0.low", 10**400),
        ("table-numbers", "table.schema.columns", []),
        ("table-numbers", "table.facts.constant.std", "wide"),
        ("table-numbers", "table.facts.single_recalibration", {"name": "heads.Point", "arguments": {}}),
        ("table-classes", "table.target.classes", ["fast", "slow", "still"]),
        ("table-classes", "table.target.task", "regression"),
        ("ensemble-points", "tensors.file", "../ensemble-looped/model.safetensors"),
        ("ensemble-points", "tensors.bytes", 10**15),
        ("ensemble-points", "kind", ["Ensemble"]),
    ],
)  # fmt: skip
def test_a_config_that_asks_for_too_much_or_does_not_fit(name: str, path: str, value: Any, tmp_path: Path) -> None:
    config, tensors = stored(name)
    folder = sealed(tmp_path / "model", config, tensors)
    load(folder, network=NETWORKS.get(name))  # so that it is the value
    put(config, path, value)
    refuses(sealed(folder, config), network=NETWORKS.get(name))


WIDE = """
import resource, sys, torch
from deep_ensembles import ModelFileError, fit_ensemble, load
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    load(sys.argv[1])
except ModelFileError:
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="counts kilobytes as Linux does")
def test_no_memory_is_taken_before_shapes_are_compared(tmp_path: Path) -> None:
    config, tensors = stored("ensemble-points")
    config["ensemble"]["network"]["partial"][2] = {"tuple": [20_000, 20_000]}
    command = [sys.executable, "-c", WIDE, sealed(tmp_path / "model", config, tensors)]
    out = subprocess.run(command, capture_output=True, text=True, check=True)
    assert float(out.stdout) < 500_000  # the network would have 1.6 GB; imports take some


def changed(name: str, change: Callable[[Tensor], Tensor]) -> Callable[[Tensors], None]:
    return lambda tensors: tensors.update({name: change(tensors[name]).contiguous()})


def filled(name: str, value: float) -> Callable[[Tensors], None]:
    return changed(name, lambda tensor: tensor.index_fill(0, torch.tensor([0]), value))


@pytest.mark.parametrize(
    "change",
    [
        *(filled(name, value) for value in (float("nan"), float("inf")) for name in (
            "parameter.0.weight", "buffer.1.running_var", "standardization.input_shift")),
        filled("standardization.input_scale", 0.0),
        filled("buffer.1.running_var", -1.0),
        changed("parameter.0.weight", Tensor.double),
        changed("parameter.0.weight", Tensor.int),
        changed("parameter.0.weight", lambda tensor: tensor[:1]),
        changed("parameter.0.weight", lambda tensor: tensor.mT),
        changed("buffer.1.num_batches_tracked", Tensor.float),
        changed("standardization.input_scale", lambda tensor: tensor[:, :3]),
        changed("history", lambda tensor: tensor[:1]),
        changed("history", lambda tensor: tensor[:, :1]),
        lambda tensors: tensors.update(weights=torch.tensor([0.5, -0.5])),
        lambda tensors: tensors.update(weights=torch.tensor([0.5, float("nan")])),
        lambda tensors: tensors.update(weights=torch.ones(3)),
        lambda tensors: tensors.update(more=torch.ones(2)),
        lambda tensors: tensors.update({"standardization.more": torch.ones(2)}),
        lambda tensors: tensors.update({"standardization.target_shift": torch.ones(2)}),
        lambda tensors: tensors.pop("parameter.0.weight"),
        lambda tensors: tensors.pop("standardization.input_shift"),
        Tensors.clear,
    ],
)  # fmt: skip
def test_tensors_that_do_not_fit(change: Callable[[Tensors], Any], tmp_path: Path) -> None:
    config, tensors = stored("classifier")
    change(tensors)
    refuses(sealed(tmp_path / "model", config, tensors))


def test_a_history_may_have_gaps_and_a_mask_infinities(tmp_path: Path) -> None:
    class Masked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(10, 2)
            self.register_buffer("mask", torch.tensor([0.0, -torch.inf]))

        def forward(self, x: Tensor) -> Tensor:
            return self.linear(x) + self.mask.exp()

    config, tensors = stored("ensemble-own-network")
    tensors = {name.replace("parameter.", "parameter.linear."): tensor for name, tensor in tensors.items()}
    tensors |= {"buffer.mask": torch.tensor([[0.0, -torch.inf]] * 2), "history": torch.full((2, 2, 1), torch.nan)}
    config["ensemble"]["architecture"] = repr(Masked())
    load(sealed(tmp_path / "model", config, tensors), network=Masked)
    tensors["buffer.mask"][0, 0] = torch.inf
    refuses(sealed(tmp_path / "model", config, tensors), "buffer mask must be finite", network=Masked)


@pytest.mark.parametrize("version", [True, 1.0, "1", 0, -1, 2, 10**30, None, [], {}], ids=repr)
def test_the_format_is_a_number_up_to_ours(version: Any, tmp_path: Path) -> None:
    config, tensors = stored("ensemble-points")
    refuses(sealed(tmp_path / "model", {**config, "format_version": version}, tensors), "format version")


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff\xfe{}",
        b"null",
        b"[]",
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b'{"format": "deep-ensembles", "format": "deep-ensembles"}',
        b'{"format": "deep-ensembles", "format_version": 1, "checksum": NaN}',
        b'{"format": "deep-ensembles", "format_version": 1e999}',
        b'{"format": "deep-ensembles", "format_version": ' + b"9" * 5000 + b"}",
    ],
    ids=lambda content: content[:30].decode("latin-1"),
)
def test_texts_that_are_no_configuration(content: bytes, tmp_path: Path) -> None:
    folder = sealed(tmp_path / "model", *stored("ensemble-points"))
    (folder / "config.json").write_bytes(content)
    refuses(folder)


def test_a_name_that_appears_twice(tmp_path: Path) -> None:
    folder = sealed(tmp_path / "model", *stored("ensemble-points"))
    text = (folder / "config.json").read_text()
    checksum = json.loads(text)["checksum"]
    doubled = json.loads(_sealed({"x": text.replace(checksum, "0" * 64).replace('"kind"', '"kind": 1, "kind"')}))["x"]
    (folder / "config.json").write_text(doubled)
    refuses(folder, "damaged")


def test_tensor_files_that_lie(tmp_path: Path) -> None:
    config, tensors = stored("ensemble-points")
    whole = save_tensors(tensors)
    for content in (b"", b"\xff" * 8, b"\x08" + whole[1:], whole[:8] + b"[" + whole[9:], whole[:-4], whole + b"more"):
        folder = sealed(tmp_path / "model", config, tensors)
        described = {**_header("model.safetensors", content, tensors)["tensors"]}
        (folder / "model.safetensors").write_bytes(content)
        refuses(sealed(folder, {**config, "tensors": described}))


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_what_is_no_file(name: str, tmp_path: Path) -> None:
    folder = sealed(tmp_path / "model", *stored("ensemble-points"))
    (folder / name).unlink()
    (folder / name).mkdir()
    refuses(folder, "missing")
    (folder / name).rmdir()
    if hasattr(os, "mkfifo"):
        os.mkfifo(folder / name)
        refuses(folder, "missing")
        (folder / name).unlink()
        (folder / name).symlink_to("/dev/zero")
        refuses(folder, "missing")


# Anything at all, at any place

VALUES: list[Any] = [
    *(None, True, False, 0, 1, -1, 3, 10**7, 10**30, 10**400, -2.5, 0.5, 1e300, 1e-320, "", "x", "0", "1" * 70, "\ud800"),
    *([], {}, [[]], [1] * 50, [10**7] * 2, {"a": 1}, {"tuple": [1]}, {"tuple": 1}, {"dict": [1]}, {"dtype": "float16"}),
    *({"dtype": []}, {"not saved": 3}, {"name": "networks.mlp"}, {"name": "heads.Point", "arguments": {}}),
    *(
        {"name": "networks.vgg", "arguments": {"n_outputs": 10}},
        {"name": "networks.inception", "partial": [2], "keywords": {}},
    ),
]


def places(data: Any) -> Iterator[tuple[Any, Any]]:
    """Every (container, key) below."""
    for key, value in list(data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()):
        yield data, key
        yield from places(value)


def mutate(config: Config, chance: random.Random) -> None:
    for _ in range(chance.choice([1, 1, 1, 2, 3])):
        everywhere = [(data, key) for data, key in places(config) if key not in ("format", "checksum", "versions")]
        container, key = chance.choice(everywhere)
        old = container[key]
        how = chance.randrange(4)
        if how == 0:
            del container[key]
        elif how == 1 and type(old) in (int, float):
            container[key] = chance.choice([old + 1, old - 1, -old, old * 10**7, float(old), str(old), bool(old)])
        elif how == 1 and isinstance(old, list):
            container[key] = chance.choice([old * 2, old[:-1], old[::-1], [*old, None]])
        elif how == 2:
            other, place = chance.choice(everywhere)
            container[key] = copy.deepcopy(other[place]) if place != key else None
        else:
            container[key] = copy.deepcopy(chance.choice(VALUES))


def predict(name: str, model: Any) -> None:
    if name.startswith("table"):
        prediction = model(houses(5), "missing")
    elif name.startswith("ensemble"):
        prediction = model(torch.zeros(3, *model.feature_shape))
    else:
        rows = np.zeros((3, model.n_features_in_))
        model.predict(rows)
        prediction = model.predict_distribution(rows)
    assert len(prediction.aleatoric) == len(prediction.epistemic)


def attacked(seed: int, name: str, folder: Path) -> bool:
    """Whether a folder with random changes was loaded; then it predicts, or says what is wrong."""
    config, tensors = stored(name)
    sealed(folder, config, tensors)
    mutate(config, random.Random(f"{seed} {name}"))
    sealed(folder, config)
    started = time.monotonic()
    try:
        model = load(folder, network=NETWORKS.get(name))
    except ModelFileError:
        model = None
    assert time.monotonic() - started < 5
    if model is not None:
        try:
            predict(name, model)
        except (TypeError, ValueError) as error:
            assert "must" in str(error) or "lacks" in str(error)  # noqa: PT017
    return model is not None


@pytest.mark.parametrize("name", NAMES)
def test_random_changes_are_refused_or_harmless(name: str, tmp_path: Path) -> None:
    loaded = [attacked(seed, name, tmp_path / "model") for seed in range(40)]
    assert 0 < sum(loaded) < 40


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_many_random_changes_are_refused_or_harmless(name: str, tmp_path: Path) -> None:
    for seed in range(40, 1000):
        attacked(seed, name, tmp_path / "model")


class _OfDict(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.out = nn.Embedding(5, 2), nn.Linear(3, 2)

    def forward(self, x: dict[str, Tensor]) -> Tensor:
        return self.embed(x["word"]) + self.out(x["table"])


@pytest.mark.parametrize(
    ("path", "value"),
    [
        *((f"ensemble.parts{path}", value) for path in ("", ".names", ".shapes", ".dtypes", ".precise")
          for value in (7, "text", [], {}, [[]], [None, None], [{}, []])),
        ("ensemble.parts.names", "ab"),
        ("ensemble.parts.dtypes", {"int64": 1, "float": 2}),
        ("ensemble.parts.shapes.0", {}),
        ("ensemble.parts.names", ["word", "word"]),
        ("ensemble.parts.names", ["word", "table", "other"]),
        ("ensemble.parts.names.0", 3),
        ("ensemble.parts.shapes", [[], [4]]),
        ("ensemble.parts.shapes", [[], [3], [0]]),
        ("ensemble.parts.shapes", [[], [-3]]),
        ("ensemble.parts.shapes", [[True], [3]]),
        ("ensemble.parts.shapes", [[], [2**40, 2**40]]),
        ("ensemble.parts.shapes", [[], [3.0]]),
        ("ensemble.parts.dtypes", ["float64", "float"]),
        ("ensemble.parts.dtypes", ["int64", "object"]),
        ("ensemble.parts.dtypes", ["float", ["float"]]),
        ("ensemble.parts.precise", None),
        ("ensemble.feature_shape", [2, 2]),
    ],
)  # fmt: skip
def test_parts_of_an_input_that_cannot_be_are_refused(tmp_path: Path, path: str, value: Any) -> None:
    inputs = {"word": torch.arange(20) % 5, "table": torch.randn(20, 3)}
    fit_ensemble(_OfDict, inputs, inputs["table"][:, 0], n_members=2, max_epochs=1).save(tmp_path / "model")
    assert load(tmp_path / "model", network=_OfDict)(inputs).mean.shape == (20,)
    config = json.loads((tmp_path / "model" / "config.json").read_text())
    put(config, path, value)
    refuses(sealed(tmp_path / "model", config), network=_OfDict)


def test_only_ensembles_have_parts(tmp_path: Path) -> None:
    for name in ("regressor", "table-numbers", "ensemble-stacked"):
        config, tensors = stored(name)
        n = math.prod(config["ensemble"]["feature_shape"])
        config["ensemble"]["parts"] = {"names": ["x"], "shapes": [[n]], "dtypes": ["float"], "precise": False}
        refuses(sealed(tmp_path / name, config, tensors), "parts" if name != "ensemble-stacked" else None)
