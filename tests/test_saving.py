"""Saved models: no pickle, load anywhere, refuse anything that was changed."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.datasets import load_iris
from torch import Tensor, nn

from deep_ensembles import (
    DeepEnsembleClassifier,
    DeepEnsembleRegressor,
    Ensemble,
    FastGradientSign,
    ModelFileError,
    Point,
    beta_nll,
    fit_ensemble,
    load,
    log_score,
    mlp,
    squared_error,
)

X = np.random.default_rng(0).normal(size=(80, 3))
Y = X[:, 0] * 2 + 1


def regressor(**settings: Any) -> DeepEnsembleRegressor:
    return DeepEnsembleRegressor(**({"preset": "paper", "n_members": 3, "max_epochs": 3, "random_state": 0} | settings)).fit(
        X, Y
    )


class Own(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.randn(3, 2))
        self.norm = nn.BatchNorm1d(3)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(x) @ self.w


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"batch_norm": True, "dropout": 0.1, "hidden_sizes": (8, 8), "activation": "silu"},
        {"perturbation": FastGradientSign(0.02), "early_stopping": True, "learning_rate": 0.003},
        {"head": Point(), "scoring_rule": squared_error},
        {"scoring_rule": partial(beta_nll, beta=1.0)},
        {"network": partial(mlp, hidden_sizes=(5,))},
        {"batch_size": 10},
    ],
    ids=lambda settings: "-".join(settings) or "defaults",
)
def test_a_regressor_comes_back_the_same(settings: dict[str, Any], tmp_path: Path) -> None:
    model = regressor(**settings)
    model.save(tmp_path / "model")
    back = load(tmp_path / "model")
    assert isinstance(back, DeepEnsembleRegressor)
    np.testing.assert_array_equal(back.predict(X), model.predict(X))
    np.testing.assert_array_equal(back.predict_distribution(X).variance, model.predict_distribution(X).variance)
    assert sorted(path.name for path in (tmp_path / "model").iterdir()) == ["config.json", "model.safetensors"]
    assert repr(back) == repr(model)
    np.testing.assert_array_equal(back.fit(X, Y).predict(X), model.predict(X))


@pytest.mark.parametrize("labels", [["a", "b", "ç"], [3, 1, 2], [0.0, 1.0, 2.0], [True, False, True]], ids=str)
def test_a_classifier_comes_back_with_its_labels(labels: list[Any], tmp_path: Path) -> None:
    inputs, codes = load_iris(return_X_y=True, as_frame=True)
    model = DeepEnsembleClassifier(n_members=2, max_epochs=3, random_state=0).fit(inputs, np.array(labels)[codes])
    model.save(tmp_path / "model")
    back = load(tmp_path / "model")
    assert back.classes_.dtype == model.classes_.dtype
    np.testing.assert_array_equal(back.predict(inputs), model.predict(inputs))
    assert list(back.feature_names_in_) == list(inputs.columns)
    assert back.n_features_in_ == 4


def test_an_ensemble_of_the_users_own_module(tmp_path: Path) -> None:
    ensemble = fit_ensemble(Own, X, Y, n_members=2, max_epochs=3, random_state=0)
    ensemble.save(tmp_path / "model")
    with pytest.raises(ModelFileError, match=r"load\(path, network=factory\)"):
        load(tmp_path / "model")
    back = load(tmp_path / "model", network=Own)
    assert isinstance(back, Ensemble)
    torch.testing.assert_close(back(X).mean, ensemble(X).mean)
    torch.testing.assert_close(back(X).variance, ensemble(X).variance)
    with pytest.raises(ModelFileError, match=r"does not fit|shape"):
        load(tmp_path / "model", network=lambda: nn.Linear(3, 2))
    with pytest.raises(ModelFileError, match=r"does not fit|shape"):
        load(tmp_path / "model", network=lambda: nn.Sequential(Own(), nn.Linear(2, 2)))


def test_another_network_of_the_same_shapes_is_refused(tmp_path: Path) -> None:
    def network(activation: type[nn.Module]) -> Any:
        return lambda: nn.Sequential(nn.Linear(3, 4), activation(), nn.Linear(4, 2))

    fit_ensemble(network(nn.ReLU), X, Y, n_members=2, max_epochs=1).save(tmp_path / "model")
    for other in (nn.Tanh, nn.ELU):
        with pytest.raises(ModelFileError, match=r"not the one that was trained|does not fit"):
            load(tmp_path / "model", network=network(other))
    load(tmp_path / "model", network=network(nn.ReLU))


def test_an_estimator_with_the_users_own_parts(tmp_path: Path) -> None:
    model = regressor(network=lambda: Own(), scoring_rule=lambda d, t: log_score(d, t))
    model.save(tmp_path / "model")
    back = load(tmp_path / "model", network=Own)
    np.testing.assert_array_equal(back.predict(X), model.predict(X))
    with pytest.raises(TypeError, match="was not saved with the model"):
        back.fit(X, Y)


def test_looped_members_come_back(tmp_path: Path) -> None:
    class Masked(nn.Module):
        """Has state that is neither parameter nor buffer; it comes back with the member's seed."""

        def __init__(self) -> None:
            super().__init__()
            self.mask = (torch.rand(3) > 0.3).float()
            self.out = nn.Linear(3, 2)

        def forward(self, x: Tensor) -> Tensor:
            return self.out(x * self.mask)

    with pytest.warns(UserWarning, match="one after another"):
        ensemble = fit_ensemble(Masked, X, Y, n_members=4, max_epochs=3, random_state=0)
    ensemble.save(tmp_path / "model")
    torch.testing.assert_close(load(tmp_path / "model", network=Masked)(X).mean, ensemble(X).mean)


def test_loading_in_a_process_that_never_trained(tmp_path: Path) -> None:
    regressor().save(tmp_path / "model")
    code = (
        "import sys, numpy as np; from deep_ensembles import load; model = load(sys.argv[1], device='cpu');"
        "assert 'pickle' not in sys.argv; print(model.predict(np.zeros((1, 3)))[0])"
    )
    out = subprocess.run([sys.executable, "-c", code, str(tmp_path / "model")], capture_output=True, text=True, check=True)
    assert float(out.stdout) == pytest.approx(regressor().predict(np.zeros((1, 3)))[0], rel=1e-5)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("saved") / "model"
    regressor(n_members=1, hidden_sizes=(3,)).save(path)
    return path


def copied(saved: Path, target: Path) -> Path:
    target.mkdir()
    for file in saved.iterdir():
        (target / file.name).write_bytes(file.read_bytes())
    return target


def flip(path: Path, at: int, bit: int) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 1 << bit
    path.write_bytes(bytes(content))


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_any_flipped_bit_is_refused(name: str, saved: Path, tmp_path: Path) -> None:
    generator = random.Random(name)
    size = (saved / name).stat().st_size
    model = copied(saved, tmp_path / "model")
    for at in [*range(0, size, max(1, size // 150)), size - 1]:
        bit = generator.randrange(8)
        flip(model / name, at, bit)
        with pytest.raises(ModelFileError):
            load(model)
        flip(model / name, at, bit)
    load(model)


def test_missing_short_and_foreign_files(saved: Path, tmp_path: Path) -> None:
    for name in ("config.json", "model.safetensors"):
        model = copied(saved, tmp_path / f"without {name}")
        (model / name).unlink()
        with pytest.raises(ModelFileError, match=f"{name} is missing"):
            load(model)
        short = copied(saved, tmp_path / f"short {name}")
        (short / name).write_bytes((saved / name).read_bytes()[:-7])
        with pytest.raises(ModelFileError, match="damaged"):
            load(short)
    with pytest.raises(ModelFileError, match="missing"):
        load(tmp_path / "nowhere")
    foreign = copied(saved, tmp_path / "foreign")
    (foreign / "config.json").write_text(json.dumps({"format": "something else"}))
    with pytest.raises(ModelFileError, match="does not describe"):
        load(foreign)


def test_a_newer_format_says_so(saved: Path, tmp_path: Path) -> None:
    model = copied(saved, tmp_path / "model")
    config = (model / "config.json").read_text()
    (model / "config.json").write_text(config.replace('"format_version": 1', '"format_version": 2'))
    with pytest.raises(ModelFileError, match="format version 2; update this library"):
        load(model)


def test_saving_replaces_a_model_but_nothing_else(saved: Path, tmp_path: Path) -> None:
    target = tmp_path / "deep" / "model"
    regressor().save(target)
    other = regressor(random_state=1)
    other.save(target)
    np.testing.assert_array_equal(load(target).predict(X), other.predict(X))
    assert [path.name for path in target.parent.iterdir()] == ["model"]
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "thesis.txt").write_text("years of work")
    with pytest.raises(ModelFileError, match="not a model folder"):
        other.save(precious)
    assert (precious / "thesis.txt").read_text() == "years of work"


def test_the_folder_holds_no_pickle(saved: Path) -> None:
    config = json.loads((saved / "config.json").read_text())
    assert config["kind"] == "DeepEnsembleRegressor"
    assert {"format_version", "checksum", "versions", "tensors", "parameters", "fitted", "ensemble"} <= set(config)
    header = (saved / "model.safetensors").read_bytes()
    assert header[8:9] == b"{"


def test_an_ensemble_needs_neither_scikit_learn_nor_pyarrow() -> None:
    code = (
        "import sys; from deep_ensembles import load; load(sys.argv[1])(__import__('torch').zeros(1, 10));"
        "print([name for name in ('sklearn', 'pyarrow', 'pandas', 'sympy', 'torch._dynamo') if name in sys.modules])"
    )
    model = Path(__file__).parent / "models" / "ensemble-points"
    out = subprocess.run([sys.executable, "-c", code, str(model)], capture_output=True, text=True, check=True)
    assert out.stdout == "[]\n"
