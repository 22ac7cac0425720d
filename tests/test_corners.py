"""Corners where things went wrong once."""

from __future__ import annotations

import functools
import subprocess
import sys
import threading
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from deep_ensembles import (
    Checkpoint,
    DeepEnsembleClassifier,
    DeepEnsembleRegressor,
    Looped,
    ModelFileError,
    TrainingDiverged,
    cross_validate,
    crps,
    fit_ensemble,
    load,
    log_score,
    mlp,
)

X = np.random.default_rng(0).normal(size=(230, 8))
Y = X[:, 0] + X[:, 1] ** 2


def test_networks_that_differ_in_more_than_parameters_are_looped() -> None:
    def build() -> nn.Module:
        return nn.Sequential(nn.Linear(8, 8), nn.Tanh() if torch.rand(()) < 0.5 else nn.ReLU(), nn.Linear(8, 2))

    settings = {"n_members": 4, "random_state": 3, "max_epochs": 3}
    with pytest.warns(UserWarning, match="differ in more than their parameters"):
        mixed = fit_ensemble(build, X, Y, **settings)
    torch.testing.assert_close(mixed(X).mean, fit_ensemble(build, X, Y, members=Looped, **settings)(X).mean)


@pytest.mark.parametrize("other", [{"n_members": 7}, {"members": Looped, "n_members": 2}], ids=str)
def test_batch_norm_does_not_blow_up_rounding(other: dict[str, object]) -> None:
    build = partial(mlp, 8, 2, (13,), batch_norm=True)
    settings = {"batch_size": 37, "max_epochs": 30, "random_state": 1}
    two = fit_ensemble(build, X, Y, n_members=2, **settings)(X).components.mean
    torch.testing.assert_close(two, fit_ensemble(build, X, Y, **settings, **other)(X).components.mean[:2], rtol=0, atol=1e-3)


@pytest.mark.parametrize("rate", [1e12, 1e15, 1e300])
def test_a_network_that_exploded_in_its_last_epoch_is_not_returned(rate: float) -> None:
    try:
        ensemble = fit_ensemble(partial(mlp, 8, 2, (20, 20, 20)), X, Y, learning_rate=rate, max_epochs=1, batch_size=1000)
    except TrainingDiverged:
        return
    assert ensemble(X).mean.isfinite().all()
    assert ensemble(X).variance.isfinite().all()


class LateDropout(nn.Module):
    """Starts to draw random numbers after some steps."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.out = nn.Linear(8, 8), nn.Linear(8, 2)
        self.calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        hidden = torch.tanh(self.inner(x))
        return self.out(nn.functional.dropout(hidden, 0.3, self.training and self.calls > 20))


def test_noise_that_comes_late() -> None:
    ensemble = fit_ensemble(LateDropout, X, Y, n_members=2, max_epochs=12, random_state=0)
    assert ensemble.members.kind == "stacked"
    assert ensemble(X).mean.isfinite().all()


def test_reversed_and_fortran_arrays() -> None:
    model = DeepEnsembleRegressor(2, max_epochs=2, random_state=0)
    expected = model.fit(X[::-1].copy(), Y[::-1].copy()).predict(X)
    np.testing.assert_array_equal(model.fit(X[::-1], Y[::-1]).predict(X), expected)
    np.testing.assert_array_equal(model.predict(X[::-1])[::-1], expected)
    np.testing.assert_allclose(model.predict(np.asfortranarray(X)), expected, rtol=1e-6)


def test_two_threads_fit_like_one() -> None:
    def fit(results: list[np.ndarray], hidden: tuple[int, ...]) -> None:
        model = DeepEnsembleRegressor(3, hidden_sizes=hidden, max_epochs=1, random_state=0)
        results.extend(model.fit(X, Y).predict(X) for _ in range(5))

    found: tuple[list[np.ndarray], list[np.ndarray]] = ([], [])
    threads = [threading.Thread(target=fit, args=(found[i], (200 + 100 * i,))) for i in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for i in range(2):
        alone: list[np.ndarray] = []
        fit(alone, (200 + 100 * i,))
        for result in found[i]:
            np.testing.assert_allclose(result, alone[0], rtol=1e-6)


def test_large_whole_numbers_keep_their_digits() -> None:
    seconds = 1_700_000_000 + torch.arange(230).unsqueeze(1)
    wave = torch.sin(torch.arange(230) / 20.0).double()
    whole = fit_ensemble(lambda: mlp(1, 2), seconds, wave, max_epochs=20, random_state=0)
    precise = fit_ensemble(lambda: mlp(1, 2), seconds.double(), wave, max_epochs=20, random_state=0)
    torch.testing.assert_close(whole(seconds).mean, precise(seconds.double()).mean)


@pytest.mark.parametrize("unit", [1e-300, 1e-170, 1e160, 1e200])
def test_units_whose_squares_are_no_numbers(unit: float) -> None:
    settings = {"max_epochs": 20, "random_state": 0}
    base = DeepEnsembleRegressor(2, **settings).fit(X, Y).predict(X)
    np.testing.assert_allclose(
        DeepEnsembleRegressor(2, **settings).fit(X * unit, Y).predict(X * unit), base, rtol=1e-3, atol=1e-3
    )
    with pytest.raises(ValueError, match="change their unit"):
        DeepEnsembleRegressor(2).fit(X, Y * unit)


def test_a_weight_shared_in_a_sequence() -> None:
    def build() -> nn.Module:
        network = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 2))
        network[2].weight = network[0].weight
        return network

    settings = {"n_members": 2, "random_state": 0, "max_epochs": 3}
    shared, looped = fit_ensemble(build, X, Y, **settings), fit_ensemble(build, X, Y, members=Looped, **settings)
    torch.testing.assert_close(shared(X).mean, looped(X).mean, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("scale", [1e-50, 1e45])
def test_weights_are_relative(scale: float) -> None:
    model = DeepEnsembleRegressor(2, max_epochs=3, random_state=0)
    weights = np.linspace(0.5, 1.5, 230)
    expected = model.fit(X, Y, sample_weight=weights).predict(X)
    np.testing.assert_allclose(model.fit(X, Y, sample_weight=weights * scale).predict(X), expected, rtol=1e-3, atol=1e-4)


def test_a_head_of_the_users_own_for_classes() -> None:
    labels = (X[:, 0] > 0).astype(int)

    def head(raw: Tensor) -> torch.distributions.Distribution:
        return torch.distributions.Categorical(logits=raw)

    assert DeepEnsembleClassifier(2, head=head, max_epochs=20, random_state=0).fit(X, labels).score(X, labels) > 0.9


class TestCheckpoints:
    def test_a_partial_rule_resumes_in_another_process(self, tmp_path: Path) -> None:
        code = (
            "import functools, sys, numpy as np; from deep_ensembles import *;"
            "X = np.random.default_rng(0).normal(size=(50, 2));"
            "fit_ensemble(functools.partial(mlp, 2, 2), X, X[:, 0], scoring_rule=functools.partial(beta_nll, beta=1.0),"
            "max_epochs=2, random_state=0, checkpoint=Checkpoint(sys.argv[1]))"
        )
        for _ in range(2):
            subprocess.run([sys.executable, "-c", code, str(tmp_path / "state")], check=True)

    @pytest.mark.parametrize("other", ["dropout", "rule"])
    def test_other_settings_are_refused(self, other: str, tmp_path: Path) -> None:
        checkpoint = Checkpoint(tmp_path / "state")
        settings = {"max_epochs": 2, "random_state": 0, "checkpoint": checkpoint}
        fit_ensemble(partial(mlp, 8, 2), X, Y, scoring_rule=lambda d, t: log_score(d, t), **settings)
        build = partial(mlp, 8, 2, dropout=0.5) if other == "dropout" else partial(mlp, 8, 2)
        rule = (lambda d, t: crps(d, t)) if other == "rule" else (lambda d, t: log_score(d, t))
        with pytest.raises(ValueError, match="belongs to another training"):
            fit_ensemble(build, X, Y, scoring_rule=rule, **settings)

    def test_a_flipped_bit_is_refused(self, tmp_path: Path) -> None:
        path = tmp_path / "state"
        settings = {"max_epochs": 2, "random_state": 0, "checkpoint": Checkpoint(path)}
        fit_ensemble(partial(mlp, 8, 2), X, Y, **settings)
        content = bytearray(path.read_bytes())
        content[-100] ^= 4
        path.write_bytes(bytes(content))
        with pytest.raises(ValueError, match="damaged"):
            fit_ensemble(partial(mlp, 8, 2), X, Y, **settings)


class TestFiles:
    def test_saving_through_a_link_replaces_what_it_points_to(self, tmp_path: Path) -> None:
        model = DeepEnsembleRegressor(1, max_epochs=1, random_state=0).fit(X, Y)
        model.save(tmp_path / "real")
        (tmp_path / "link").symlink_to(tmp_path / "real")
        model.fit(X, -Y).save(tmp_path / "link")
        np.testing.assert_array_equal(load(tmp_path / "real").predict(X), model.predict(X))
        assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "real"]

    def test_an_activation_of_the_users_own(self, tmp_path: Path) -> None:
        model = DeepEnsembleRegressor(1, activation=nn.Mish, max_epochs=1, random_state=0).fit(X, Y)
        model.save(tmp_path / "model")
        with pytest.raises(ModelFileError, match=r"load\(path, network=factory\)"):
            load(tmp_path / "model")
        build = functools.partial(mlp, activation=nn.Mish)
        back = load(tmp_path / "model", network=build)
        np.testing.assert_array_equal(back.predict(X), model.predict(X))
        assert back.network is build

    def test_a_label_that_is_no_text(self, tmp_path: Path) -> None:
        labels = np.array(["a", "\ud800"], dtype=object)[(X[:, 0] > 0).astype(int)]
        DeepEnsembleClassifier(1, max_epochs=1).fit(X, labels).save(tmp_path / "model")
        assert list(load(tmp_path / "model").classes_) == ["a", "\ud800"]


class TestMessages:
    def test_outputs_that_do_not_fit(self) -> None:
        with pytest.raises(ValueError, match="raw outputs do not fit the head"):
            fit_ensemble(partial(mlp, 8, 6), X, np.stack([Y, Y], axis=1))
        with pytest.raises(ValueError, match=r"must return \[batch, raw outputs\]"):
            fit_ensemble(lambda: nn.Sequential(nn.Linear(8, 1), nn.Flatten(0)), X, Y)

    def test_a_class_that_only_held_out_rows_have(self) -> None:
        labels = np.zeros(230, dtype=int)
        labels[5] = 3
        with pytest.raises(ValueError, match="classes from 0 to 1"):
            fit_ensemble(partial(mlp, 8, 2), X, labels, early_stopping=True, validation_fraction=0.9, random_state=0)

    def test_folds(self) -> None:
        build = partial(mlp, 8, 2)
        assert len(cross_validate(build, X, Y, cv=np.int64(3), n_members=1, max_epochs=1).ensembles) == 3
        mask = np.arange(230) < 100
        assert len(cross_validate(build, X, Y, cv=[(mask, ~mask)], n_members=1, max_epochs=1).folds[0][1]) == 130
        for bad in ([(np.arange(5), np.array([230]))], [(np.array([-1]), np.arange(3))]):
            with pytest.raises(ValueError, match="row numbers from 0 to 229"):
                cross_validate(build, X, Y, cv=bad)

    def test_no_quantiles(self) -> None:
        with pytest.raises(ValueError, match="`quantiles` must be at least one number"):
            DeepEnsembleRegressor(1, max_epochs=1).fit(X, Y).predict_quantiles(X, [])
